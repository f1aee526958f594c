/* The driver: starts and kills of nodes, the choices of their cores, and the end of a history, at
 * which everything must converge. */
#include "world.h"

#include <stdio.h>

#include "base/check.h"
#include "seam/xfer/tcp/tcp.h"
#include "seam/xfer/verbs/verbs.h"

#define TICK_NS  (100 * MS)
#define PORT     7000u
#define SLICE_NS (50 * MS)
#define SPIN_NS  100000u /* VERBS_SPIN_NS */

/* The transports that this world has a network for. Another transport that is built in is played
 * once its cards and its killed processes are modelled here. */
static const struct transport_ops *const played[] = {&verbs_transport, &tcp_transport, NULL};

/* ------------------------------------------------------------------ nodes */

void drive_emit(void *ctx, struct event *event)
{
    struct rnode *node = ctx;

    model_said(node, event);
    check(node->nemitted < EMITTED);
    node->emitted[node->nemitted++] = *event;
    if (!node->core_due)
        rw_post(rw_one_in(4) ? rw_soon() : 0, T_CORE, node->number, 0);
    node->core_due = true;
}

void drive_core(uint32_t number)
{
    struct rnode *node = &rw.node[number];
    struct event said[EMITTED];
    uint32_t n = node->nemitted;

    node->core_due = false;
    memcpy(said, node->emitted, n * sizeof said[0]);
    node->nemitted = 0;
    for (uint32_t i = 0; i < n && node->alive; i++)
        pulls_heard(node, &said[i]);
}

void drive_tick(uint32_t number, uint32_t life)
{
    struct rnode *node = &rw.node[number];

    if (!node->alive || node->life != life)
        return;
    rw.current = number;
    audit_tick(number);
    audit_node(number, false);
    rw_post(TICK_NS, T_TICK, number, life);
}

void drive_turned(uint32_t number)
{
    struct rnode *node = &rw.node[number];

    if (!node->alive || !node->polls || node->poll_due)
        return;
    node->poll_due = true;
    rw_post(rw_soon(), T_POLL, number, node->life);
}

void drive_poll(uint32_t number, uint32_t life)
{
    struct rnode *node = &rw.node[number];

    if (!node->alive || node->life != life)
        return;
    rw.current = number;
    node->poll_due = xfer_poll(node->xfer);
    if (!node->poll_due && rnic_has_just_begun(number, SPIN_NS))
        rw_fail("sleeps_at_once", "node %u does not poll for what it has just posted", number);
    if (node->poll_due)
        rw_post(rw_soon(), T_POLL, number, life);
}

/* In every second history a region has a rail of its own, as those of GPUs have. No choice of the
 * history is drawn for it. */
static void name_rails(uint32_t number, struct xfer_rdma_config *c)
{
    static char name[NODES][REGIONS][XFER_DEVICE_BYTES];

    for (uint32_t r = 0; r < rw.cfg.regions; r++)
        snprintf(name[number][r], sizeof name[0][0], "sim%u", (number + r) % rw.cfg.rails[number]);
    for (uint32_t t = 0; t < rw.cfg.tenants; t++)
        c->region_device[t] = name[number];
}

void drive_node_start(uint32_t number)
{
    struct rnode *node = &rw.node[number];
    const char *why = "";
    struct xfer_config config = {.io = rnet_io(number),
                                 .mem = rmem_of(number),
                                 .links = LINKS,
                                 .pulls = PULLS,
                                 .serves = SERVES,
                                 .pairs = 1, /* pages are not resharded here */
                                 .data_threads = 1,
                                 .data_conns_max = 8 + 4 * rw.cfg.connections * (NODES - 1),
                                 .connections = rw.cfg.connections,
                                 .idle_ns = rw.cfg.idle_ns,
                                 .socket_buffer_bytes = 4096,
                                 .transports = played,
                                 .rdma = {.pulls = NODES - 1,
                                          .serves = true,
                                          .mr_bytes_max = rw.cfg.mr_bytes,
                                          .tenants = rw.cfg.tenants,
                                          .path_send = links_path_send,
                                          .path_note = links_path_note,
                                          .path_changed = audit_path_changed},
                                 .emit = drive_emit,
                                 .serve_page = serves_page,
                                 .serve_allowed = serves_allowed,
                                 .ctx = node};

    check(!node->alive);
    node->number = number;
    node->life++;
    node->alive = true;
    node->incarnation = rw_u64() | 1;
    node->nemitted = 0;
    node->strays = node->revoked = 0;
    memset(node->failed, 0, sizeof node->failed);
    node->polls = rw_one_in(3);
    node->poll_due = false;
    for (uint32_t t = 0; t < rw.cfg.tenants; t++)
        node->pool[t].offset = 64 * rw_below(32);
    rmem_start(number);
    config.incarnation = node->incarnation;
    config.rdma.ndevices = rw.cfg.rails[number];
    for (uint32_t i = 0; i < rw.cfg.rails[number]; i++)
        snprintf(config.rdma.device[i], sizeof config.rdma.device[i], "sim%u", i);
    if (rw.cfg.rails[number] > 0 && rw.cfg.choices % 2 == 0)
        name_rails(number, &config.rdma);
    rw.current = number;
    check(xfer_create(&config, &node->xfer, &why) == TERN_OK);
    check(xfer_listen(node->xfer, NULL, (uint16_t)(PORT + number), &node->port, &why) == TERN_OK);
    rw_post(TICK_NS / 2, T_TICK, number, node->life);
    links_node(number, true);
}

static void kill_node(uint32_t number)
{
    struct rnode *node = &rw.node[number];

    if (!node->alive)
        return;
    rw.fault[RF_node_killed]++;
    pulls_node_gone(number);
    node->alive = false;
    tasks_kill(number);
    rnet_kill(number);
    rnic_kill(number);
    links_node(number, false);
    rw_post(MS * rw_between(50, 1500), T_NODE, number, 0);
}

/* ------------------------------------------------------------------ choices */

static uint32_t some_node(void)
{
    return rw_below(rw.cfg.nodes);
}

static uint32_t other_node(uint32_t node)
{
    return (node + 1 + rw_below(rw.cfg.nodes - 1)) % rw.cfg.nodes;
}

static void stop_some_pull(void)
{
    struct rnode *node = &rw.node[some_node()];
    struct rpull *pull = &node->pull[rw_below(PULLS)];

    if (!node->alive || pull->phase != PULL_RUNS)
        return;
    rw.fault[RF_pull_stopped]++;
    pulls_stop(node, pull);
}

static void give_up_some_serve(void)
{
    struct rnode *node = &rw.node[some_node()];
    struct rserve *serve = &node->serve[rw_below(SERVES)];

    if (!node->alive || !serve->used || !serve->live)
        return;
    rw.fault[RF_serve_given_up]++;
    serves_stop(node, serve);
}

static void recycle_some(void)
{
    uint32_t node = some_node();

    if (rw.node[node].alive)
        pulls_recycle(node, rw_below(rw.cfg.tenants), rw_below(rmem_places()));
}

static void cut_some(void)
{
    uint32_t a = some_node(), b = other_node(a);
    uint64_t ns = MS * rw_between(1, rw_one_in(2) ? 50 : 3000);

    rw.cut_until[a][b] = rw.now_ns + ns;
    if (rw_one_in(2))
        rw.cut_until[b][a] = rw.now_ns + ns;
}

static void cut_some_rail(void)
{
    rw.rail_cut_until[some_node()][rw_below(2)] = rw.now_ns + MS * rw_between(100, 5000);
}

void drive_choice(void)
{
    uint64_t pause;
    uint32_t node, source;

    rw_chance(FOR_DRIVER, rw.asked[ITEM_choice]);
    pause = rw_between(1, 2000) * rw.cfg.pause_ns / 1000;
    node = some_node();
    source = other_node(node);
    if (rw_happens(ITEM_choice)) {
        if (!rw_one_in(3))
            pulls_start(node, source, rw_below(rw.cfg.tenants), rw_between(1, PULL_PAGES));
        else
            recycle_some();
    }
    if (rw_fault(RF_page_recycled))
        recycle_some();
    if (rw_happens(RF_pull_stopped))
        stop_some_pull();
    if (rw_happens(RF_serve_given_up))
        give_up_some_serve();
    if (rw_happens(RF_conn_reset))
        rnet_reset_random();
    if (rw_happens(RF_path_silent))
        rnet_silence_random();
    if (rw_happens(RF_qp_error))
        rnic_spoil();
    if (rw_fault(RF_cut))
        cut_some();
    if (rw_fault(RF_rail_cut))
        cut_some_rail();
    if (rw_fault(RF_link_down))
        links_down(node, source);
    if (rw_happens(RF_device_lost))
        rnic_lose(some_node(), rw_below(2));
    if (rw_happens(RF_node_killed))
        kill_node(some_node());
    if (--rw.choices_left > 0)
        rw_post(pause, T_CHOICE, 0, 0);
}

void drive_start(void)
{
    for (uint32_t i = 0; i < rw.cfg.nodes; i++)
        drive_node_start(i);
    if (rw.choices_left > 0)
        rw_post(100 * MS, T_CHOICE, 0, 0);
}

/* ------------------------------------------------------------------ the end */

static void run_for(uint64_t ns)
{
    uint64_t until = rw.now_ns + ns;

    while (rw_step(until))
        ;
}

/* The first thing that is not at rest; NULL: all is at rest. */
static const char *unrest(uint32_t *ret_node)
{
    for (uint32_t n = 0; n < rw.cfg.nodes; n++) {
        const struct rnode *node = &rw.node[n];

        *ret_node = n;
        if (!node->alive || node->nemitted > 0)
            return "is not there";
        for (uint32_t i = 0; i < PULLS; i++)
            if (node->pull[i].phase != PULL_NOT)
                return node->pull[i].phase == PULL_RUNS ? "has a pull that runs"
                                                        : "has a pull that is not quiet";
        for (uint32_t i = 0; i < SERVES; i++)
            if (node->serve[i].used)
                return node->serve[i].live ? "has a serve that nobody ended"
                                           : "has a serve that is not quiet";
        if (rnic_outstanding(n) > 0)
            return "has requests outstanding";
        if (rnic_is_going(n))
            return "loses a device";
        for (uint32_t k = 0; k < rw.cfg.nodes; k++)
            if (k != n && (!rw.link[n][k].up_here || rw.link[n][k].changing > 0))
                return "has a link that is not up";
    }
    return NULL;
}

/* Number of pages that the pulls of all nodes have received. */
static uint32_t pages_received(void)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < rw.cfg.nodes; i++)
        for (uint32_t k = 0; k < PULLS; k++)
            n += rw.node[i].pull[k].right;
    return n;
}

/* A piece that waits for slots of a ring begins its tries when the pieces before it end, so each
 * page that arrives restarts the limit. A pull has at most PULL_PAGES pages, so a pull that never
 * ends still fails. */
static void settle(const char *what)
{
    uint64_t from = rw.now_ns;
    uint32_t node, before;
    const char *why;

    while ((why = unrest(&node)) != NULL) {
        if (rw.now_ns - from > CONVERGE_NS)
            rw_fail(what, "node %u %s", node, why);
        before = pages_received();
        run_for(SLICE_NS);
        if (pages_received() != before)
            from = rw.now_ns;
    }
}

/* Number of possible paths of a tenant. *ret_half, or NULL: paths of which one end lost a device,
 * or gave the path up because the other end can only be read; that other end may not know it. */
static uint32_t paths_of(uint32_t puller, uint32_t source, uint32_t *ret_half)
{
    uint32_t n = 0, there = rw.cfg.rails[source];

    if (rw.cfg.transport[puller][source] == XFER_TCP || there == 0 || rw.cfg.old[puller] ||
        rw.cfg.bare[source])
        return 0;
    for (uint32_t i = 0; i < rw.cfg.rails[puller]; i++) {
        bool lost = rnic_is_lost(puller, i), lost_there = rnic_is_lost(source, i % there);

        n += !lost && !lost_there && !rw.cfg.old[source];
        if (ret_half)
            *ret_half += lost != lost_there || (!lost && rw.cfg.old[source]);
    }
    return n;
}

static bool expects_verbs(uint32_t puller, uint32_t source)
{
    return paths_of(puller, source, NULL) > 0;
}

/* Number of possible paths that are ready. */
static uint32_t paths_ready(uint32_t puller, uint32_t source)
{
    struct xfer_path_view view;
    uint32_t n = 0;

    for (uint32_t i = 0; xfer_path_view(rw.node[puller].xfer, link_out(puller, source), i, &view);
         i++) {
        uint32_t rail = (uint32_t)(view.device[3] - '0');
        bool there = view.ready || strcmp(view.state_word, "unproven") == 0;

        n += there && !rnic_is_lost(puller, rail) &&
             !rnic_is_lost(source, rail % rw.cfg.rails[source]);
    }
    return n;
}

/* Every possible path is ready, at both ends. */
static const char *not_recovered(uint32_t number)
{
    struct xfer_stats stats;
    uint32_t paths = 0, half = 0;

    for (uint32_t k = 0; k < rw.cfg.nodes; k++) {
        struct xfer_link_view view;

        if (k == number)
            continue;
        xfer_link_view(rw.node[number].xfer, link_out(number, k), &view);
        if (expects_verbs(number, k) && strcmp(view.transport, "verbs") != 0)
            return view.reason;
        if (expects_verbs(number, k) &&
            paths_ready(number, k) != paths_of(number, k, NULL) * rw.cfg.tenants)
            return "not every path is ready";
        paths += paths_of(number, k, &half) + paths_of(k, number, &half);
    }
    xfer_stats(rw.node[number].xfer, &stats);
    return stats.paths_up >= paths * rw.cfg.tenants &&
                   stats.paths_up <= (paths + half) * rw.cfg.tenants
               ? NULL
               : "not every path is up";
}

static void recover(void)
{
    uint64_t from = rw.now_ns;
    const char *why;

    for (uint32_t n = 0; n < rw.cfg.nodes; n++)
        while ((why = not_recovered(n)) != NULL) {
            if (rw.now_ns - from > RECOVER_NS)
                rw_fail("no_recovery", "node %u: %s", n, why);
            run_for(SLICE_NS);
        }
}

static void make_room(uint32_t node, uint32_t pool, enum page_kind kind)
{
    for (uint32_t i = 0; i < rmem_places(); i++) {
        struct rpage *page = &rw.node[node].pool[pool].page[i];

        if (i % 2)
            continue;
        page->gen++;
        page->kind = kind;
        rmem_write(node, pool, i, ++rw.tags);
        rmem_commit(node, pool, i);
    }
}

static const struct rpull *pull_through(uint32_t puller, uint32_t source, uint32_t pool)
{
    const struct rpull *pull;

    make_room(source, pool, PG_COMMITTED);
    make_room(puller, pool, PG_FREE);
    pull = pulls_start(puller, source, pool, rw_between(1, PULL_PAGES));
    if (!pull)
        rw_fail("probe_not_begun", "node %u from node %u pool %u", puller, source, pool);
    settle("probe_hangs");
    return pull;
}

/* A queue pair that broke while idle is detected by the first pull that uses it. */
static void probe(uint32_t puller, uint32_t source, uint32_t pool)
{
    struct rnode *node = &rw.node[puller];
    bool verbs = expects_verbs(puller, source);
    bool refused = rw.cfg.transport[puller][source] == XFER_VERBS && !verbs;
    struct xfer_stats before, after;
    const struct rpull *pull;
    uint32_t tries = 0;
    bool by_verbs;

    do {
        recover();
        xfer_stats(node->xfer, &before);
        pull = pull_through(puller, source, pool);
        xfer_stats(node->xfer, &after);
        by_verbs = after.verbs_pages_in - before.verbs_pages_in == pull->n;
    } while (verbs && (pull->broken || !by_verbs) && ++tries < 3);
    if (verbs && !by_verbs)
        rw_fail("probe_not_by_verbs", "node %u from node %u pool %u", puller, source, pool);
    if (verbs)
        rw_mark(RM_probe_by_push);
    if (verbs && rw.cfg.far[puller])
        rw_mark(RM_probe_by_ring);
    if (!verbs && rw.cfg.bare[source] && rw.cfg.transport[puller][source] != XFER_TCP)
        rw_mark(RM_probe_of_unregistered);
    if (refused != pull->broken || (refused && pull->err != TERN_PEER_LOST))
        rw_fail("probe_broken", "node %u from node %u pool %u: error %d", puller, source, pool,
                (int)pull->err);
    if (!refused && pull->right != pull->n)
        rw_fail("probe_wrong", "node %u from node %u: %u of %u pages", puller, source, pull->right,
                pull->n);
    if (refused)
        rw_mark(RM_verbs_refused_to_fall_back);
}

/* A rail that is known to work; NONE32: none. */
static uint32_t rail_that_works(uint32_t puller, uint32_t source)
{
    uint32_t from = rw_below(RAILS), there = rw.cfg.rails[source];

    for (uint32_t k = 0; k < RAILS; k++) {
        uint32_t rail = (from + k) % RAILS;

        if (rail < rw.cfg.rails[puller] && !rnic_is_lost(puller, rail) &&
            !rnic_is_lost(source, rail % there) && rnic_is_whole(puller, rail, source))
            return rail;
    }
    return NONE32;
}

static void mend_rails(void)
{
    memset(rw.rail_cut_until, 0, sizeof rw.rail_cut_until);
}

static void cut_rails_but(uint32_t node, uint32_t lives)
{
    for (uint32_t i = 0; i < RAILS; i++)
        rw.rail_cut_until[node][i] = i == lives ? 0 : UINT64_MAX;
}

/* All rails but one are dead without any sign, or none is proven: the pages come over that one. A
 * source that pushes answers nothing while a dead path's queue is full: it has to give that path up
 * before the puller gives up the connection. */
static void probe_one_rail(uint32_t puller, uint32_t source, uint32_t pool)
{
    struct rnode *node = &rw.node[puller];
    struct xfer_stats before, after;
    const struct rpull *pull;
    uint32_t lives;

    if (paths_of(puller, source, NULL) < 2)
        return;
    if (rw_one_in(2)) {
        cut_rails_but(puller, NONE32);
        pull_through(puller, source, pool);
        mend_rails();
    }
    recover();
    lives = rail_that_works(puller, source);
    if (lives == NONE32)
        return;
    cut_rails_but(puller, lives);
    xfer_stats(node->xfer, &before);
    pull = pull_through(puller, source, pool);
    xfer_stats(node->xfer, &after);
    mend_rails();
    if (pull->broken || after.verbs_pages_in - before.verbs_pages_in != pull->n)
        rw_fail("live_rail_not_found", "node %u from node %u pool %u: rail %u, error %d", puller,
                source, pool, lives, (int)pull->err);
    rw_mark(RM_probe_by_one_rail);
}

static void stop_node(uint32_t number)
{
    struct rnode *node = &rw.node[number];
    struct xfer_stats stats;

    xfer_stats(node->xfer, &stats);
    if (stats.stale_completions > node->strays)
        rw_fail("completion_lost", "node %u rejects %llu completions, %llu were stale", number,
                (unsigned long long)stats.stale_completions, (unsigned long long)node->strays);
    rw.marks[RM_late_writes] |= stats.late_writes > 0;
    rw.marks[RM_grants_revoked] |= stats.grants_revoked > 0;
    rw.marks[RM_piece_asked_again] |= stats.pieces_again > 0;
    rw.marks[RM_batch_moved_to_tcp] |= stats.batches_moved > 0;
    rw.marks[RM_path_made_again] |= stats.paths_failed > 0 && stats.paths_up > 0;
    node->alive = false;
    links_node(number, false);
    rw.current = number;
    xfer_destroy(node->xfer);
    if (rnet_open(number) > 0)
        rw_fail("descriptors_left", "node %u: %u", number, rnet_open(number));
    if (rnic_objects(number) > 0)
        rw_fail("device_objects_left", "node %u: %u", number, rnic_objects(number));
}

/* A peer that was granted memory windows, and neither writes nor refuses, keeps its piece until the
 * path is given up, which takes idle_ns. */
static void audit_at_rest(void)
{
    run_for(rw.cfg.idle_ns + STALL_NS);
    for (uint32_t i = 0; i < rw.cfg.nodes; i++)
        audit_node(i, true);
}

void drive_converge(void)
{
    memset(rw.cut_until, 0, sizeof rw.cut_until);
    mend_rails();
    rnet_heal();
    settle("not_converged");
    audit_at_rest();
    recover();
    for (uint32_t i = 0; i < rw.cfg.nodes; i++)
        for (uint32_t k = 0; k < rw.cfg.nodes; k++)
            for (uint32_t t = 0; i != k && t < rw.cfg.tenants; t++)
                probe(i, k, t);
    probe_one_rail(0, 1, 0);
    audit_at_rest();
    for (uint32_t i = 0; i < rw.cfg.nodes; i++)
        stop_node(i);
    for (uint32_t i = 0; i < rw.cfg.nodes; i++)
        rmem_audit(i);
}
