/* Carries one choice out. A choice that has nothing to act on does nothing. */
#include <stdlib.h>

#include "world.h"

#define RESETS_MOST 40u /* fewer than any daemon remembers */
#define POOL_TOKENS 24576u

bool fwrong(enum tern_err err)
{
    return err == TERN_INTERNAL || err == TERN_MALFORMED || err == TERN_CORRUPT;
}

/* --- daemons --- */

void fsettle(void)
{
    for (uint32_t i = 0; i < 2 * FLEET; i++)
        rig_settle(fw.d[i % FLEET].rig);
}

static void goes_up(uint32_t i, uint32_t k)
{
    FTRACE("  %u calls %u\n", i, k);
    fw.up[i][k] = 1;
    rig_link_up(fw.d[i].rig, k, fw.d[k].rig, FLEET + i);
}

static void goes_down(uint32_t i, uint32_t k)
{
    if (!fw.up[i][k])
        return;
    FTRACE("  %u loses %u\n", i, k);
    fw.up[i][k] = 0;
    fticket_link_down(i, k);
    rig_link_down(fw.d[i].rig, k);
}

static void member_event(uint32_t i, uint32_t k)
{
    rig_event(fw.d[i].rig, &(struct event){.kind = fw.member[i][k] ? EV_PEER_JOINED : EV_PEER_LEFT,
                                           .member.peer = k});
}

/* One group, of pages with described fields, so any two such pools exchange them. */
static void pool_opens(struct fdaemon *d)
{
    struct request r = {.op = OP_POOL_OPEN,
                        .pool_open = {.ngroups = 1,
                                      .shard = SHARD_HEADS,
                                      .axes_hash = 7,
                                      .fields_hash = 9,
                                      .align_tokens = FLEET_UNIT,
                                      .bytes = POOL_TOKENS * FLEET_TOKEN}};
    const struct reply *reply;

    r.pool_open.group[0] = rig_group(d->page_tokens, d->page_tokens * FLEET_TOKEN);
    r.pool_open.group[0].cap_pages = d->pool_pages;
    reply = rig_request(d->rig, d->e.conn[0], &r);
    FEXPECT(reply && reply->err == TERN_OK, "pool", "%s", reply ? reply->text : "no answer");
    d->pool = reply->pool_open.pool;
    for (uint32_t k = 1; k < d->ranks; k++)
        FEXPECT(rig_map(d->rig, d->e.conn[k], d->pool) == TERN_OK, "pool", "rank %u", k);
}

/* Limits, budgets and the layout of its pool change with each life. */
static void starts(uint32_t i)
{
    static const uint32_t tokens[] = {4, 8, 16, 32, 64};
    struct fdaemon *d = &fw.d[i];
    struct rig_options o = rig_defaults();
    uint32_t was = d->page_tokens;

    o.limits.tenants = 1;
    o.limits.links = 2 * FLEET;
    o.limits.peers = FLEET;
    o.limits.pages = o.limits.slabs = 8192;
    o.limits.token_blocks = 2048;
    o.limits.lease_pages = FLEET_LEASED;
    o.limits.nodes = fw.cfg.ample ? 512 : 24 + fpick(100);
    o.limits.sessions = 8 + fpick(24);
    o.limits.pulls = o.limits.serves = 2 + fpick(7);
    o.limits.conns = 64;
    o.limits.peer_bytes_in_flight = 512u << fpick(8);
    o.tenant[0].sessions_max = o.limits.sessions;
    if (d->spill)
        spill_limits(&o, fw.cfg.ample ? 1u << 20 : 4096u << fpick(6), FLEET_UNIT);
    o.incarnation = d->incarnation = 0x1000 * (i + 1) + ((uint64_t)++d->lives << 20);
    o.secret = fw.secret;
    d->rig = rig_create(&o);
    d->rig->no_audit = fw.cfg.seed % 8 != 0;
    d->rig->on_event = fmodel_event;
    d->rig->on_event_ctx = d;
    d->rig->reshard = fbytes_reshard;
    if (d->spill)
        rig_spill(d->rig, d->spill);
    for (uint32_t k = 0; k < FLEET; k++)
        if (!fw.member[i][k])
            member_event(i, k);
    if (fw.cfg.by_hand && !fw.ends)
        d->rig->automatic &= ~(uint32_t)(RIG_MSG | RIG_PULL);
    d->page_tokens = fw.cfg.layouts ? tokens[fpick(5)] : 16;
    d->ranks = fw.cfg.ranks ? 1 + fpick(2) : 1;
    if (was && was != d->page_tokens)
        FMARK(other_layout);
    d->pool_pages = fw.cfg.ample ? 0 : (FLEET_TOKENS * 5 / 4 + fpick(768)) / d->page_tokens;
    d->e = rig_engine(d->rig, 0, "e", d->ranks);
    pool_opens(d);
    d->admin = rig_connect_admin(d->rig);
    FTRACE("  daemon %u starts with pages of %u over %u ranks\n", i, d->page_tokens, d->ranks);
}

void fworld_begin(const struct fhistory *h)
{
    static const uint32_t pairs[FLEET][2] = {{0, 1}, {0, 2}, {1, 2}};

    fw.cfg = h->cfg;
    fw.rng = h->cfg.seed;
    fw.clock = 1;
    fw.traces = fw.left = 0;
    fw.nresets = fw.ntickets = 0;
    memset(fw.of_trace, 0, sizeof fw.of_trace);
    fw.ends = false;
    memset(fw.member, 0, sizeof fw.member);
    memset(fw.up, 0, sizeof fw.up);
    for (uint32_t p = 0; p < FLEET; p++)
        if (!(fw.cfg.away >> p & 1))
            fw.member[pairs[p][0]][pairs[p][1]] = fw.member[pairs[p][1]][pairs[p][0]] = 1;
    for (uint32_t v = 0; v < FLEET_VARIANTS; v++)
        memcpy(fw.tokens[v], rig_tokens(1 + v, FLEET_TOKENS), sizeof fw.tokens[v]);
    for (uint32_t i = 0; i < FLEET; i++) {
        struct spill *spill = fw.d[i].spill;

        if (spill)
            spill_free(spill);
        fw.member[i][i] = fw.cfg.own >> i & 1;
        fw.d[i] = (struct fdaemon){.spill = fw.cfg.disk >> i & 1 ? spill_make() : NULL};
        starts(i);
    }
    for (uint32_t i = 0; i < FLEET; i++)
        for (uint32_t k = 0; k < FLEET; k++)
            if (fw.member[i][k] && fpick(4))
                goes_up(i, k);
    fsettle();
}

/* Drops all that the engine had and waited for: nobody receives an answer. */
static void engine_forgets(struct fdaemon *d)
{
    for (uint32_t r = 0; r < fw.nresets; r++)
        if (&fw.d[fw.reset[r].daemon] == d)
            fw.reset[r].request = 0;
    for (uint32_t n = 0; n < FLEET_ASKS; n++)
        if (d->ask[n].s && d->ask[n].request && d->ask[n].ticket)
            fw.ticket[d->ask[n].ticket - 1].orphan = 1;
    memset(d->ask, 0, sizeof d->ask);
    memset(d->run, 0, sizeof d->run);
    d->leaving = (struct fleaving){0};
    d->nleased = 0;
}

static bool do_restart(void)
{
    const uint32_t i = fpick(FLEET);
    struct fdaemon *d = &fw.d[i];
    bool keeps = d->spill && fpick(4);

    for (uint32_t k = 0; k < FLEET; k++) {
        goes_down(i, k);
        goes_down(k, i);
    }
    engine_forgets(d);
    rig_destroy(d->rig);
    d->rig = NULL;
    if (d->spill && !keeps) {
        spill_free(d->spill);
        d->spill = spill_make();
    }
    fmodel_started(d, keeps);
    starts(i);
    return true;
}

/* E1: the engine's pages stay its own until its last process is gone; what it published or handed
 * over stays. */
static bool do_die(void)
{
    struct fdaemon *d = &fw.d[fpick(FLEET)];
    bool leased = d->nleased > 0;

    FTRACE("  the engine of daemon %u dies\n", fdaemon_number(d));
    for (uint32_t rank = d->ranks; rank-- > 0;) {
        flease_look(d);
        rig_engine_kill(d->rig, &d->e, rank);
    }
    while (d->rig->sessions)
        rig_session_free(d->rig->sessions);
    fruns_lost(d);
    engine_forgets(d);
    fsettle();
    flease_look(d);
    if (leased)
        FMARK(lease_of_dead_engine);
    d->e = rig_engine(d->rig, 0, "e", d->ranks);
    pool_opens(d);
    return true;
}

static bool do_up(void)
{
    uint32_t at = fpick(FLEET * FLEET);

    for (uint32_t n = 0; n < FLEET * FLEET; n++, at = (at + 1) % (FLEET * FLEET))
        if (fw.member[at / FLEET][at % FLEET] && !fw.up[at / FLEET][at % FLEET]) {
            goes_up(at / FLEET, at % FLEET);
            return true;
        }
    return false;
}

static bool do_down(void)
{
    uint32_t i = fpick(FLEET), k = fpick(FLEET);
    bool was = fw.up[i][k];

    goes_down(i, k);
    return was;
}

static bool changes(bool join)
{
    uint32_t i = fpick(FLEET), k = (i + 1 + fpick(FLEET - 1)) % FLEET;

    if (join == (fw.member[i][k] != 0))
        return false;
    goes_down(i, k);
    goes_down(k, i);
    fw.member[i][k] = fw.member[k][i] = join ? ++fw.clock : 0;
    if (!join)
        fw.left = fw.clock;
    FTRACE("  %u and %u %s peers\n", i, k, join ? "become" : "are no longer");
    member_event(i, k);
    member_event(k, i);
    return true;
}

static bool do_leave(void)
{
    return changes(false);
}

static bool do_join(void)
{
    return changes(true);
}

static bool delivers(void)
{
    uint32_t at = fpick(FLEET);

    for (uint32_t n = 0; n < FLEET; n++, at = (at + 1) % FLEET) {
        struct rig *rig = fw.d[at].rig;
        uint32_t jobs = rig_jobs(rig, RIG_MSG), nth;

        if (jobs == 0)
            continue;
        nth = fpick(jobs);
        for (uint32_t j = 0; j < nth; j++) /* those of a link stay in order */
            if (rig_job(rig, RIG_MSG, j)->link == rig_job(rig, RIG_MSG, nth)->link)
                nth = j;
        FTRACE("  %u sends %u over %u\n", at, rig_job(rig, RIG_MSG, nth)->msg.kind,
               rig_job(rig, RIG_MSG, nth)->link);
        rig_complete_nth(rig, RIG_MSG, nth);
        return true;
    }
    return false;
}

static bool do_deliver(void)
{
    bool any = false;

    for (uint32_t n = 1 + fpick(8); n > 0 && delivers(); n--)
        any = true;
    return any;
}

static bool do_work(void)
{
    uint32_t at = fpick(FLEET);
    bool any = false;

    for (uint32_t i = 0; i < FLEET; i++, at = (at + 1) % FLEET)
        for (uint32_t n = fpick(5); n > 0 && rig_jobs(fw.d[at].rig, RIG_PULL) > 0; n--) {
            rig_complete(fw.d[at].rig, RIG_PULL);
            any = true;
        }
    return any;
}

static bool do_time(void)
{
    static const uint32_t unit[] = {1000000, 200000000, 1000000000};
    uint64_t ns = (uint64_t)(1 + fpick(40)) * unit[fpick(3)];

    for (uint32_t i = 0; i < FLEET; i++)
        rig_advance(fw.d[i].rig, ns);
    return true;
}

static bool do_evict(void)
{
    struct fdaemon *d = &fw.d[fpick(FLEET)];

    fmodel_evicted(d);
    return rig_evict(d->rig, d->admin, d->pool, fpick(3) ? 0 : 1 + fpick(4)) > 0;
}

/* --- sessions --- */

/* NULL: sessions, or records of namespaces, ran out. */
struct rig_session *fopens(struct fdaemon *d, uint32_t space)
{
    struct rig_session *s = malloc(sizeof *s);

    if (!s)
        abort();
    if (rig_session_open(d->rig, d->e.conn[0], d->pool, space, s) != TERN_OK) {
        free(s);
        return NULL;
    }
    s->next = d->rig->sessions;
    d->rig->sessions = s;
    return s;
}

void fsession_ends(struct rig_session *s)
{
    enum tern_err err = rig_close(s, 0);

    FEXPECT(err == TERN_OK, "close_refused", "%u", err);
    rig_session_free(s);
}

/* Extends by pages of the lease now and then, which needs no room. */
static bool runs_to(struct fdaemon *d, struct rig_session *s, uint32_t variant, uint32_t to)
{
    const uint32_t from = s->len.written;

    if (fpick(2))
        flease_assign(d, s, to);
    if (rig_run_to(s, fw.tokens[variant], to) != TERN_OK)
        return false;
    fbytes_write(s, from / d->page_tokens * d->page_tokens, to);
    return true;
}

bool fcomputes(struct fdaemon *d, struct rig_session *s, uint32_t space, uint32_t variant,
               uint32_t to, uint32_t epoch)
{
    const uint32_t whole = to / FLEET_UNIT * FLEET_UNIT;
    enum tern_err err;

    if (s->len.written < to && !runs_to(d, s, variant, to))
        return false;
    if (s->len.committed < whole) {
        err = rig_commit(s, whole, 0);
        FEXPECT(!fwrong(err), "commit", "error %u", err);
    }
    if (epoch == d->epoch[space])
        fmodel_committed(d, space, variant, s->len.committed);
    return s->len.committed >= whole;
}

static bool do_commit(void)
{
    struct fdaemon *d = &fw.d[fpick(FLEET)];
    uint32_t space = fpick(FLEET_SPACES), variant = fpick(FLEET_VARIANTS),
             to = (1 + fpick(FLEET_UNITS)) * FLEET_UNIT;
    struct rig_session *s = fopens(d, space);
    bool ok;

    if (!s)
        return false;
    ok = rig_match(s, fw.tokens[variant], to) == TERN_OK &&
         fcomputes(d, s, space, variant, to, d->epoch[space]);
    fsession_ends(s);
    return ok;
}

/* Processes the answer, if there is one. */
static void ask_look(struct fdaemon *d, struct fask *a)
{
    const uint64_t request = a->request;
    uint32_t had;
    enum tern_err err;

    if (!a->s || !a->request || !rig_reply_to(d->rig, a->request))
        return;
    had = a->from[0] + a->from[1];
    err = rig_fetched(a->s, a->request);
    a->request = 0;
    FTRACE("  daemon %u fetched up to %u: error %u\n", (uint32_t)(d - fw.d), a->s->len.committed,
           err);
    FEXPECT(!fwrong(err), "fetch", "error %u", err);
    if (a->s->len.committed > had)
        a->from[a->again] += a->s->len.committed - had;
    if (a->from[0] && a->from[1])
        FMARK(two_sources);
    if (a->peer == PEER_DISK && err == TERN_OK && a->s->len.committed > had && d->lives > 1)
        FMARK(disk_outlives_a_life);
    if (a->ticket)
        fticket_judge(d, a, rig_reply_to(d->rig, request));
    if (a->s->len.written <= a->s->ntokens)
        FEXPECT(fbytes_wrong(a->s, a->s->len.written) == 0, "wrong_bytes", "fetched from %u",
                a->peer);
}

void fasks(struct fdaemon *d, struct fask *a, uint32_t peer)
{
    struct request request = {.op = OP_FETCH};

    a->peer = peer;
    if (peer == PEER_DISK)
        fmodel_from_disk(d, a);
    FTRACE("  daemon %u fetches sequence %u of space %u from %u\n", (uint32_t)(d - fw.d),
           a->variant, a->space, peer);
    a->trace = ++fw.traces;
    a->request = UINT64_MAX;
    request.fetch.session = a->s->id;
    request.fetch.peer = peer;
    request.trace_id = a->trace;
    if (a->ticket) {
        fw.of_trace[a->trace % FLEET_TRACES] = a->ticket;
        request.fetch.ticket = fw.ticket[a->ticket - 1].t;
        request.fetch.ticket.key[1] ^= a->forged; /* the seed, in each of them */
        request.fetch.follow = a->follow;
        fticket_asked(d, a);
    }
    rig_request(d->rig, a->s->conn, &request);
    a->request = request.request_id;
}

/* Most often a connected one that has more of it than the session. */
static uint32_t some_source(const struct fdaemon *d, const struct fask *a)
{
    const uint32_t unit = a->s->len.committed / FLEET_UNIT;
    uint32_t k = fpick(FLEET);

    for (uint32_t n = 0; n < 2 * FLEET; n++, k = (k + 1) % FLEET)
        if (fw.up[d - fw.d][k] && k != d - fw.d && unit < FLEET_UNITS &&
            fw.d[k].may[a->space][a->variant][unit] && (k != a->peer || n >= FLEET))
            return k;
    return k;
}

struct fask *fask_free(struct fdaemon *d)
{
    for (uint32_t i = 0; i < FLEET_ASKS; i++)
        if (!d->ask[i].s)
            return &d->ask[i];
    return NULL;
}

struct fask *fask_answered(struct fdaemon *d)
{
    uint32_t at = fpick(FLEET_ASKS);

    for (uint32_t n = 0; n < FLEET_ASKS; n++, at = (at + 1) % FLEET_ASKS)
        if (d->ask[at].s && !d->ask[at].request)
            return &d->ask[at];
    return NULL;
}

/* A sequence that the daemon's disk may have, if there is any. */
static void on_disk(const struct fdaemon *d, struct fask *a)
{
    for (uint32_t n = 0; n < FLEET_SPACES * FLEET_VARIANTS && !d->disk[a->space][a->variant][0];
         n++) {
        a->variant = (a->variant + 1) % FLEET_VARIANTS;
        a->space = (a->space + (a->variant == 0)) % FLEET_SPACES;
    }
}

static bool do_fetch(void)
{
    struct fdaemon *d = &fw.d[fpick(FLEET)];
    struct fask *a = fask_free(d);
    bool disk = d->spill && !fpick(3);

    if (!a)
        return false;
    *a =
        (struct fask){.space = fpick(FLEET_SPACES), .variant = fpick(FLEET_VARIANTS), .peer = NONE};
    if (disk)
        on_disk(d, a);
    a->epoch = d->epoch[a->space];
    a->s = fopens(d, a->space);
    if (!a->s)
        return false;
    if (rig_match(a->s, fw.tokens[a->variant], FLEET_TOKENS) != TERN_OK) {
        fsession_ends(a->s);
        a->s = NULL;
        return false;
    }
    a->from[0] = a->s->len.committed;
    fasks(d, a, disk ? PEER_DISK : some_source(d, a));
    return true;
}

/* Fetches from another source, or computes the rest and ends. */
static bool do_again(void)
{
    struct fdaemon *d = &fw.d[fpick(FLEET)];
    struct fask *a = fask_answered(d);

    if (!a)
        return false;
    if (!a->again && !a->ticket && a->s->len.committed < FLEET_TOKENS && fpick(3)) {
        a->again = 1;
        fasks(d, a, some_source(d, a));
        return true;
    }
    if (fpick(2) && a->epoch == d->epoch[a->space])
        fcomputes(d, a->s, a->space, a->variant, FLEET_TOKENS, a->epoch);
    fsession_ends(a->s);
    a->s = NULL;
    return false;
}

/* --- resets --- */

static bool resets(uint32_t daemon, uint32_t space)
{
    struct request request = {.op = OP_NAMESPACE_RESET};
    struct fdaemon *d = &fw.d[daemon];
    struct freset *r;

    if (fw.nresets == RESETS_MOST)
        return false;
    r = fmodel_begins(d, space);
    request.trace_id = fw.nresets;
    request.namespace_reset.ns = (struct namespace_id){.hi = 1, .lo = space};
    rig_request(d->rig, d->e.conn[0], &request);
    r->request = request.request_id;
    return true;
}

static bool do_reset(void)
{
    uint32_t daemon = fpick(FLEET);

    return resets(daemon, fpick(FLEET_SPACES));
}

static bool do_repeat(void)
{
    const struct freset *r = fw.nresets ? &fw.reset[fw.nresets - 1] : NULL;

    return r && !r->request && !r->zero && resets(r->daemon, r->space);
}

/* Marks tickets that a fetch has taken, before other answers are judged, which may name that. */
static void winners_look(void)
{
    for (uint32_t i = 0; i < FLEET * FLEET_ASKS; i++) {
        const struct fask *a = &fw.d[i / FLEET_ASKS].ask[i % FLEET_ASKS];
        const struct reply *r =
            a->s && a->request && a->ticket ? rig_reply_to(a->s->rig, a->request) : NULL;

        if (r && r->err == TERN_OK)
            fw.ticket[a->ticket - 1].won = 1;
    }
}

static void look(void)
{
    fmodel_look();
    winners_look();
    for (uint32_t i = 0; i < FLEET; i++) {
        for (uint32_t n = 0; n < FLEET_ASKS; n++)
            ask_look(&fw.d[i], &fw.d[i].ask[n]);
        flease_look(&fw.d[i]);
    }
    fticket_look();
}

void fplay(const struct fchoice *c)
{
    static bool (*const does[])(void) = {
#define X(name, weight, least) do_##name,
        FLEET_KINDS(X)
#undef X
    };

    fw.rng = (uint64_t)c->r << 32 | c->a;
    fw.clock++;
    if (does[c->kind]())
        fw.marks[c->kind] = true;
    fsettle();
    look();
    if (fw.run.at_choice % 4 == 0)
        fmodel_found_look();
}

/* All peers reach each other again, and no requests follow: everything under way ends. */
void fworld_end(void)
{
    struct core_view v;

    fw.ends = true;
    for (uint32_t i = 0; i < FLEET; i++) {
        fw.d[i].rig->automatic = RIG_ALL;
        flease_steps_end(&fw.d[i]);
    }
    fsettle();
    for (uint32_t i = 0; i < FLEET * FLEET; i++)
        if (fw.member[i / FLEET][i % FLEET] && !fw.up[i / FLEET][i % FLEET])
            goes_up(i / FLEET, i % FLEET);
    fsettle();
    look();
    ftickets_last();
    fruns_end();
    for (uint32_t n = 0; n < 10; n++) {
        fsettle();
        for (uint32_t i = 0; i < FLEET; i++)
            rig_advance(fw.d[i].rig, n % 2 ? 31000000000u : 50000000u);
    }
    fsettle();
    look();
    fmodel_found_look();
    for (uint32_t i = 0; i < FLEET; i++) {
        for (uint32_t n = 0; n < FLEET_ASKS; n++) {
            struct fask *a = &fw.d[i].ask[n];

            FEXPECT(!a->s || !a->request, "fetch_unanswered", "of daemon %u", i);
            if (a->s)
                fsession_ends(a->s);
            a->s = NULL;
        }
        fsettle();
    }
    for (uint32_t i = 0; i < FLEET; i++) {
        core_view(fw.d[i].rig->core, &v);
        FEXPECT(v.resets_spreading == 0, "no_rest", "%u resets spread at daemon %u",
                v.resets_spreading, i);
        FEXPECT(v.pulls == 0 && v.serves == 0, "no_rest", "%u fetches, %u serves at daemon %u",
                v.pulls, v.serves, i);
    }
    for (uint32_t i = 0; i < fw.nresets; i++)
        FEXPECT(!fw.reset[i].request, "reset_unanswered", "reset %u", i);
}
