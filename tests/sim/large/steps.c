/* Sends events to the core, checks the bounds of each step, and starts the core and its engine. A
 * failed check of the core, and a signal inside it, is a violation like any other. */
#include "world.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "../work.h"
#include "core/arena/arena.h"
#include "core/query.h"
#include "testing/secret.h"

/* Bound of a step, in basic blocks of the core: a fixed part, and a part for each record that it
 * counts as visited, for each token, operation or page that its event or its answers name, and for
 * each rank. A record and an item may have something in each group. A loop that counts no visits
 * exceeds the bound at once. */
#define WORK_FIXED     80000u
#define WORK_PER_VISIT (600u + 50u * lw.cfg.ngroups)
#define WORK_PER_ITEM  (64u * (1 + lw.cfg.ngroups))
#define WORK_PER_RANK  400u
/* Bound of a step in which every loop runs in pieces and none looks at a whole path or table; but a
 * session that retracts releases its tail at once. */
#define VISITS_IN_PIECES (BATCH_VISITS_MAX + 2 * PIECE_VISITS_MAX + TAIL_PAGES_MAX)
/* Walks that only look at the nodes of a path: one checks whether a resume point has its window,
 * and a Fetch from the host needs two, for the end of what it loads, and for what it pins. */
#define VISITS_LOOKING (STEP_TABLE_MAX / NODES_A_VISIT)
/* Bounds when nothing is left over and nothing is due, whatever the tables hold. */
#define IDLE_VISITS 64u
#define IDLE_WORK   12000u
#define SETTLE_MAX  200000u
/* Bound of any step, whatever it visits: others have to wait for it. */
#define WORK_MOST 16000000u
#define WORK_ENDS 400000000u /* a step that runs so long is ended inside */

struct lworld lw;

void lruns_on(void)
{
    work_most = UINT64_MAX;
    lviolation("step_work", "a step ran more than %u basic blocks, and had %u visits by then",
               WORK_ENDS, lw.core->visits);
}

void lviolation(const char *what, const char *format, ...)
{
    va_list ap;

    va_start(ap, format);
    history_broke(&lw.run, what, format, ap);
}

static uint64_t named_by(const struct actions *out)
{
    uint64_t n = out->nruns + out->nrefs + out->npages + out->nspans + out->nreads;

    for (uint32_t i = 0; i < out->n; i++) {
        const struct action *a = &out->v[i];

        if (a->kind == ACT_DISK_WRITE)
            n += a->disk_write.ntokens + a->disk_write.npages;
        else if (a->kind == ACT_REPLY && a->reply.op == OP_STEP)
            n += a->reply.step.n;
    }
    return n;
}

static const char *event_name(const struct event *ev)
{
    static const char *const names[EV_COUNT] = {[EV_TIMER] = "a timer",
                                                [EV_PROC_GONE] = "a process that is gone",
                                                [EV_STEP_DONE] = "a step that is done",
                                                [EV_SEALED] = "checksums",
                                                [EV_COPIED] = "a copy",
                                                [EV_PULLED] = "pages that came",
                                                [EV_PULL_QUIET] = "the end of a transfer",
                                                [EV_DISK_FOUND] = "an extent that was found",
                                                [EV_DISK_READY] = "the last extent",
                                                [EV_DISK_WRITTEN] = "a file that is written",
                                                [EV_DISK_DROPPED] = "a file that is gone"};

    if (ev->kind == EV_REQUEST)
        return op_name(ev->request.op);
    return names[ev->kind] ? names[ev->kind] : "another event";
}

/* A fetch by ticket or from the disk and a hand-over look at a whole table, or its path. */
static bool needs_a_path(const struct event *ev)
{
    const struct request *r = &ev->request;

    return ev->kind == EV_REQUEST &&
           ((r->op == OP_FETCH && r->fetch.peer != PEER_HOST) || r->op == OP_HANDOFF);
}

static uint32_t looking(const struct event *ev)
{
    return ev->kind == EV_REQUEST && ev->request.op == OP_FETCH ? 3 * VISITS_LOOKING
                                                                : VISITS_LOOKING;
}

/* A Match borrows all pages in the windows. STATE that goes ends a claim on it, which is up to a
 * window below, and each node between is visited. */
static uint32_t windows(const struct event *ev)
{
    uint32_t chunks = 0;

    for (uint32_t g = 0; g < lw.cfg.ngroups; g++)
        if (lw.cfg.window[g] / lw.cfg.align > chunks)
            chunks = lw.cfg.window[g] / lw.cfg.align;
    return ev->kind == EV_REQUEST && ev->request.op == OP_MATCH ? 3 * chunks : 2 * chunks;
}

/* Items that the event or its answers name have their own part of the bound. */
static uint64_t own_work(uint64_t work, uint64_t items)
{
    uint64_t named = WORK_PER_ITEM * (items + named_by(lw.out)) + WORK_PER_RANK * lw.cfg.ranks;

    return work > named ? work - named : 0;
}

static void bounds(const struct event *ev, uint64_t items, uint64_t work, bool idle)
{
    uint64_t visits = lw.core->visits, own = own_work(work, items);

    lw.most_visits = visits > lw.most_visits ? visits : lw.most_visits;
    if (own > lw.most_work) {
        lw.most_work = own;
        lw.most_event = event_name(ev);
    }
    LEXPECT(visits <= STEP_VISITS_MAX, "step_visits", "%s: %llu visits, and STEP_VISITS_MAX is %u",
            event_name(ev), (unsigned long long)visits, STEP_VISITS_MAX);
    LEXPECT(visits <= VISITS_IN_PIECES + looking(ev) + windows(ev) || needs_a_path(ev),
            "step_in_pieces", "%s: %llu visits, where nothing needs a whole path", event_name(ev),
            (unsigned long long)visits);
    LEXPECT(!work_counted || own <= WORK_FIXED + WORK_PER_VISIT * visits, "step_work",
            "%s: %llu basic blocks, and %llu visits counted", event_name(ev),
            (unsigned long long)own, (unsigned long long)visits);
    LEXPECT(!work_counted || own <= WORK_MOST, "step_long", "%s: %llu basic blocks, %llu visits",
            event_name(ev), (unsigned long long)own, (unsigned long long)visits);
    LEXPECT(!idle || visits <= IDLE_VISITS, "idle_visits",
            "%s has nothing to do, and visited %llu records", event_name(ev),
            (unsigned long long)visits);
    LEXPECT(!idle || !work_counted || own <= IDLE_WORK, "idle_work",
            "%s has nothing to do, and ran %llu basic blocks", event_name(ev),
            (unsigned long long)own);
}

/* An event without a request, when nothing is left over or due. */
static bool is_idle(const struct event *ev)
{
    return (ev->kind == EV_TIMER || (ev->kind == EV_STEP_DONE && ev->step_done.step == 0)) &&
           core_deadline(lw.core) > ev->now_ns;
}

void lstep(struct event *event, uint64_t items)
{
    bool idle;

    event->now_ns = ++lw.now;
    idle = is_idle(event);
    lw.reply = NULL;
    work_done = 0;
    work_most = WORK_ENDS;
    core_step(lw.core, event, lw.out);
    work_most = UINT64_MAX;
    lw.events++;
    bounds(event, items, work_done, idle);
    for (uint32_t i = 0; i < lw.out->n; i++) {
        const struct action *a = &lw.out->v[i];

        if (a->kind != ACT_REPLY)
            laction(a);
        else if (event->kind == EV_REQUEST && a->reply.request_id == event->request.request_id)
            lw.reply = &a->reply;
        else
            llate(&a->reply);
    }
}

const struct reply *lask(struct request *request, uint64_t items)
{
    struct event ev = {.kind = EV_REQUEST};

    request->request_id = ++lw.request_id;
    ev.request = *request;
    lstep(&ev, items);
    return lw.reply;
}

/* Ends all work that continues by itself. */
void lsettle(void)
{
    struct event ev = {.kind = EV_TIMER};

    for (uint32_t i = 0; core_deadline(lw.core) <= lw.now; i++) {
        LEXPECT(i < SETTLE_MAX, "timer_livelock", "the core wants a timer at once, for ever");
        lstep(&ev, 0);
    }
}

/* --- set-up --- */

static void *take(void *old, size_t *have, size_t want)
{
    if (*have >= want)
        return old;
    free(old);
    *have = (want + 63) / 64 * 64;
    old = aligned_alloc(64, *have);
    if (!old) {
        fprintf(stderr, "tern-sim: out of memory\n");
        exit(2);
    }
    return old;
}

static void set_limits(void)
{
    const struct lconfig *c = &lw.cfg;
    uint32_t pages = c->pages + c->host_pages + 256;

    lw.limits = (struct core_limits){
        .tenants = 1,
        .conns = RANKS_MAX + 2,
        .engines = 2,
        .pools = 4,
        .sessions = c->lim_sessions,
        .nodes = c->lim_nodes,
        .namespaces = 8,
        .token_blocks = c->lim_blocks,
        .extra_keys = 64,
        .pages = pages,
        .slabs = pages,
        .retires = c->lim_retires,
        .turn_records = 16,
        .record_pages = 64,
        .record_jobs = 1,
        .resets = 8,
        .links = 2,
        .peers = 1,
        .pulls = 4,
        .serves = 4,
        .table_pages = c->lim_table,
        .seal_jobs = LARGE_SEAL_MAX,
        .copy_jobs = 16,
        .events = 64,
        .sums_per_page = c->ranks,
        .busy_retry_ms = 5,
        .groups = GROUPS_MAX,
        .disk_chunks = c->disk_chunks,
        .disk_files = c->disk_chunks ? c->disk_files : 0,
        .disk_stores = c->disk_chunks ? 8 : 0,
        .disk_interval = c->disk_chunks ? c->disk_interval * c->align : 0,
        .disk_align = c->disk_chunks ? c->align : 0,
        .disk_blocks =
            c->disk_chunks ? c->disk_chunks * ((c->align + TOKEN_BLOCK - 1) / TOKEN_BLOCK) + 64 : 0,
        .disk_keys = c->disk_chunks ? 16 : 0,
        .give_back_visits = c->give_back,
        .peer_bytes_in_flight = 1u << 24,
        .tenant_bytes_in_flight = 1u << 24,
        .transfer_deadline_ns = 100000 * LARGE_MS,
        .ticket_deadline_ns = c->ticket_ms * LARGE_MS};
}

static void core_begin(void)
{
    const struct lconfig *c = &lw.cfg;
    struct tenant_config tenant = {.memory_bytes = (uint64_t)c->pages * 256 + (64u << 20),
                                   .host_bytes = (uint64_t)c->host_pages * 256 + (64u << 20),
                                   .disk_bytes = c->disk_chunks ? (uint64_t)c->disk_mib << 20 : 0,
                                   .record_bytes = 64ull * RECORD_PAGE_BYTES,
                                   .regions = RANKS_MAX,
                                   .sessions_max = c->lim_sessions,
                                   .host_write = c->seed & 1};
    struct hash_secret secret = secret_from(1 + lw.secret);
    size_t bytes;

    LEXPECT(core_size(&lw.limits, &bytes) == TERN_OK, "sim_limits", "limits were refused");
    LEXPECT(bytes <= LARGE_ARENA, "sim_limits", "an arena of %zu bytes", bytes);
    lw.arena = take(lw.arena, &lw.arena_bytes, bytes);
    lw.out = take(lw.out, &lw.out_bytes, actions_bytes(&lw.limits));
    actions_init(lw.out, &lw.limits);
    memset(lw.arena, 0, bytes);
    lw.incarnation++;
    lw.core = core_init(lw.arena, &lw.limits, &tenant, lw.incarnation, &secret);
}

static void conn_open(uint32_t conn, bool admin)
{
    struct event ev = {.kind = EV_CONN_OPENED};

    ev.conn.conn = conn;
    ev.conn.proc = admin ? NONE : conn;
    ev.conn.tenant = admin ? NONE : 0;
    ev.conn.admin = admin;
    lstep(&ev, 0);
}

static void pool_open(void)
{
    const struct lconfig *c = &lw.cfg;
    struct request r = {.op = OP_POOL_OPEN};
    const struct reply *reply;

    r.pool_open.ngroups = c->ngroups;
    r.pool_open.supersede = c->supersede;
    r.pool_open.align_tokens = c->align;
    r.pool_open.bytes = (uint64_t)c->pages * 256;
    r.pool_open.host_bytes = (uint64_t)c->host_pages * 256;
    for (uint32_t g = 0; g < c->ngroups; g++)
        r.pool_open.group[g] =
            (struct group_layout){.family = c->window[g] == 0   ? FAMILY_HISTORY
                                            : c->window[g] == 1 ? FAMILY_RECURRENT
                                                                : FAMILY_WINDOW,
                                  .page_tokens = c->page_tokens[g],
                                  .window = c->window[g] > 1 ? c->window[g] : 0,
                                  .reserve = c->window[g] > 1 ? 1 + c->seed % c->align : 0,
                                  .units = 1,
                                  .page_bytes = 256};
    for (uint32_t i = 0; i < 3; i++) { /* a former engine's pool has to go first */
        reply = lask(&r, c->ngroups);
        if (reply && reply->err == TERN_BUSY) {
            lsettle();
            while (lw.njobs > 0)
                ljob_finish(0);
            lsettle();
            continue;
        }
        break;
    }
    LEXPECT(reply && reply->err == TERN_OK, "pool_refused", "error %d: %s",
            reply ? (int)reply->err : -1, reply ? reply->text : "");
    LEXPECT(reply->pool_open.align_tokens == c->align, "pool_align", "L is %u, and not %u",
            reply->pool_open.align_tokens, c->align);
    lw.pool = reply->pool_open.pool;
}

void lengine_start(void)
{
    struct request r = {.op = OP_ENGINE_JOIN};

    for (uint32_t i = 0; i < lw.cfg.ranks; i++) {
        const struct reply *reply;

        conn_open(i, false);
        r.conn = i;
        r.join = (struct req_join){.name = "large",
                                   .role = i == 0 ? ROLE_BOTH : ROLE_WORKER,
                                   .rank = i,
                                   .world = lw.cfg.ranks};
        reply = lask(&r, 1);
        LEXPECT(reply && reply->err == TERN_OK, "join_refused", "rank %u: %s", i,
                reply ? reply->text : "");
        lw.engine = reply->join.engine;
    }
    lw.step = lw.passed = 0;
    pool_open();
}

void lengine_lost(void)
{
    struct event ev = {.kind = EV_PROC_GONE};

    for (uint32_t i = 0; i < LARGE_TRACKED; i++)
        ltable_clear(&lw.session[i], 0);
    for (uint32_t i = 0; i < lw.cfg.ranks; i++) {
        struct event closed = {.kind = EV_CONN_CLOSED};

        closed.conn.conn = i;
        lstep(&closed, 0);
        ev.proc.proc = i;
        lstep(&ev, 0);
    }
    for (uint32_t i = 0; i < LARGE_TRACKED; i++)
        lw.session[i].state = L_IDLE;
    lw.nheld = 0;
    lsettle();
    while (lw.njobs > 0)
        ljob_finish(0);
    lsettle();
    for (uint32_t g = 0; g < lw.cfg.ngroups; g++)
        for (uint32_t i = 0; lhistory_group(g) && i < lw.npages[g]; i++)
            lw.page[g][i].fence = 0;
    lengine_start();
}

void lworld_restart(bool keep_disk)
{
    for (uint32_t i = 0; i < LARGE_TRACKED; i++)
        lw.session[i].state = L_IDLE;
    lrestarted(keep_disk);
    lw.nheld = lw.njobs = 0;
    lpages_clear();
    core_begin();
    ldisk_clear(!keep_disk);
    conn_open(RANKS_MAX, true);
    if (lw.cfg.disk_chunks)
        ldisk_found();
    lengine_start();
}

/* Each prompt has a common beginning with an earlier one. */
static void make_prompts(void)
{
    uint64_t rng = lw.cfg.seed;
    static size_t have[LARGE_PROMPTS];

    lw.prompt_tokens = (lw.cfg.chunks + 1) * lw.cfg.align;
    for (uint32_t p = 0; p < LARGE_PROMPTS; p++) {
        uint64_t draw = prng_splitmix(&rng);

        lw.common[p] = p == 0 || draw % 3 == 0 ? 0 : (uint32_t)(draw >> 8) % lw.prompt_tokens;
        lw.tokens[p] = take(lw.tokens[p], &have[p], (size_t)lw.prompt_tokens * 4);
        for (uint32_t i = 0; i < lw.prompt_tokens; i++)
            lw.tokens[p][i] = i < lw.common[p] ? lw.tokens[0][i] : i * 4 + p;
    }
}

void lworld_begin(const struct lhistory *h)
{
    static size_t have[GROUPS_MAX], tables[LARGE_TRACKED][GROUPS_MAX];

    lw.cfg = h->cfg;
    lw.now = 1000 * LARGE_MS;
    lw.incarnation = 1000 + h->cfg.seed;
    lw.run.at_choice = 0;
    lw.request_id = 0;
    lw.ticket = (struct ticket){.length = 0};
    lw.most_visits = lw.most_work = 0;
    lw.run.what[0] = lw.run.text[0] = 0;
    lw.space = 1;
    lw.file_max = 0;
    set_limits();
    make_prompts();
    for (uint32_t g = 0; g < lw.cfg.ngroups; g++) {
        if (!lhistory_group(g))
            continue;
        lw.npages[g] = lw.cfg.pages + 1;
        lw.page[g] = take(lw.page[g], &have[g], lw.npages[g] * sizeof(struct lpage));
        for (uint32_t s = 0; s < LARGE_TRACKED; s++)
            lw.session[s].table[g] =
                take(lw.session[s].table[g], &tables[s][g],
                     (size_t)(lw.prompt_tokens / lw.cfg.page_tokens[g] + 2) * sizeof(uint32_t));
    }
    lworld_restart(false);
}
