/* Fuzz target of the core: bytes become a history of two small daemons, three engines, their
 * sessions, fetches, retractions and faults. Engines write real bytes, also late ones: into every
 * page that they released until its step is done, and into every page of a transfer or of a copy
 * between the tiers until it is proven quiet. The first byte chooses the pools' STATE groups and
 * the size of their host memory. At the end all faults stop and everything must be free again. A
 * failure is an abort: of the rig, of the audit, or of a check of the core's own. */
#include "fuzz/core/world.h"
#include "fuzz/passed.h"

#define OPS_MAX    100
#define RESPAWNS   4
#define AUDIT_EACH 16 /* operations */
#define EVICTS_MAX 8  /* in a row, until nothing is left */

/* --- faults --- */

static void complete(struct world *w, struct rig *rig)
{
    static const enum rig_job_kind kinds[] = {RIG_SEAL, RIG_PULL, RIG_PULL_STOP, RIG_SERVE_STOP,
                                              RIG_MSG,  RIG_ZERO, RIG_COPY};
    uint32_t b = take(w);
    enum rig_job_kind kind = b >= 210 ? RIG_RECORD : kinds[b % 7];
    uint32_t n = rig_jobs(rig, kind),
             nth = kind == RIG_MSG ? 0 : take(w); /* messages keep their order */

    if (!n)
        return;
    if (kind == RIG_PULL_STOP)
        scribble(rig, RIG_PULL);
    rig_complete_nth(rig, kind, nth % n);
}

static void link_toggle(struct world *w)
{
    if (w->rig[0]->link[0].rig)
        rig_link_down(w->rig[0], 0);
    else
        rig_link_up(w->rig[0], 0, w->rig[1], 2);
    if (w->rig[1]->link[0].rig)
        rig_link_down(w->rig[1], 0);
    else
        rig_link_up(w->rig[1], 0, w->rig[0], 2);
}

/* The first of its processes is gone; until the last is, the engine writes wherever it could. */
static void kill_leader(struct actor *a)
{
    fetches(a);
    turns_lost(a);
    for (uint32_t i = 0; i < SESSIONS; i++)
        for (uint32_t g = 0; g < a->ngroups && a->open[i] && !a->fetch[i]; g++)
            for (uint32_t p = a->groups[g].family == FAMILY_RECURRENT
                                  ? 0
                                  : a->s[i]->len.committed / a->groups[g].page_tokens;
                 p < SEQUENCE; p++)
                remember(a, UINT64_MAX, g, a->s[i]->table[g][p], false);
    rig_engine_kill(a->rig, &a->e, 0);
    a->alive = false;
    a->dying = true;
    memset(a->open, 0, sizeof a->open);
    memset(a->away, 0, sizeof a->away);
    memset(a->fetch, 0, sizeof a->fetch);
    memset(a->recover, 0, sizeof a->recover);
}

static void kill_rest(struct actor *a)
{
    for (uint32_t r = 1; r < a->world; r++) {
        write_late(a);
        write_prepared(a);
        rig_engine_kill(a->rig, &a->e, r);
    }
    a->dying = false;
    a->nlate = a->nghosts = 0;
    memset(a->done, 0, sizeof a->done);
}

static void spawn(struct world *w, uint32_t i)
{
    struct actor *a = &w->actor[i], *owner = &w->actor[a->shares];
    struct request map = {.op = OP_POOL_MAP};
    struct pool_view v;

    if (a->alive || a->dying || w->respawns == RESPAWNS + ACTORS)
        return;
    w->respawns++;
    a->e = rig_engine(a->rig, 0, a->name, a->world);
    if (a->shares != i && core_pool_view(a->rig->core, owner->pool.slot, &v) &&
        v.id.gen == owner->pool.gen) {
        map.pool_map.pool = a->pool = owner->pool;
        a->alive = rig_request(a->rig, a->e.conn[0], &map)->err == TERN_OK;
    } else {
        a->alive = rig_pool_open(a->rig, a->e.conn[0], a->groups, a->ngroups,
                                 (w->shape & SHAPE_STATE ? 28 : 20) * 128, &a->pool) == TERN_OK;
    }
    if (!a->alive)
        for (uint32_t r = 0; r < a->world; r++)
            rig_engine_kill(a->rig, &a->e, r);
}

/* Random numbers, where a careful client would not send them. */
static void garbage(struct world *w, struct actor *a)
{
    struct request r = {.op = (enum op)(take(w) % (OP_COUNT + 2))};
    struct step_op op = {.kind = (enum step_op_kind)(take(w) % 11)};
    uint32_t a_number = take(w) << 24 | take(w), another = take(w);

    if (!a->alive || r.op == OP_ENGINE_LEAVE || r.op == OP_POOL_CLOSE || r.op == OP_POOL_OPEN ||
        r.op == OP_DRAIN)
        return;
    op.session = (struct session_id){another % 10, a_number};
    op.length = a_number;
    op.written = another;
    r.match.session = op.session;
    r.match.tokens =
        (struct req_tokens){.v = sequence(0), .n = another % SEQUENCE, .base = a_number};
    if (r.op == OP_SESSION_OPEN)
        r.session_open.pool = (struct pool_id){another % 4, a_number};
    if (r.op == OP_PEEK)
        r.peek = (struct req_peek){.pool = a->pool,
                                   .tokens = {.v = sequence(another % 8), .n = SEQUENCE}};
    if (r.op == OP_STEP)
        r.step = (struct req_step){.ops = &op, .n = 1};
    if (r.op == OP_EVICT)
        r.evict = (struct req_evict){.pool = {another % 4, a_number}};
    if (r.op == OP_RETRACT)
        r.retract.mode = (enum retract_mode)(another & 1);
    if (r.op == OP_NAMESPACE_RESET)
        r.namespace_reset.ns = (struct namespace_id){.hi = 1, .lo = 3 + another};
    rig_request(a->rig, a->e.conn[0], &r);
}

static void stale_event(struct world *w, struct rig *rig)
{
    static const enum event_kind kinds[] = {EV_SEALED,     EV_ZEROED,      EV_PULLED,
                                            EV_PULL_QUIET, EV_SERVE_QUIET, EV_COPIED};
    uint32_t b = take(w);
    struct event event = {.kind = b >= 240 ? EV_RECORD_CHECKED : kinds[b % 6]};

    if (event.kind == EV_SEALED)
        event.sealed.n = 1;
    event.pulled.pull =
        (struct pull_id){take(w) % 8, 1u << 31 | take(w)}; /* never a living generation */
    rig_event(rig, &event);
}

/* --- operations --- */

/* Several kinds of operation share the numbers of fetch (9), cancel (10) and evict (13). */
static uint32_t session_kind(uint32_t b)
{
    static const uint32_t nine[] = {9, GIVE_WAY, COME_BACK, FETCH_HOST};
    static const uint32_t ten[] = {10, 11, 12, GIVE_WAY, COME_BACK};

    if (b % 24 == 9)
        return nine[b / 24 % 4];
    return b % 24 == 10 ? ten[b / 24 % 5] : b % 24;
}

static void advance(struct world *w, struct rig *rig, uint64_t ns)
{
    rig_settle(rig);
    for (uint32_t i = 0; i < ACTORS; i++)
        fetches(&w->actor[i]);
    rig_advance(rig, ns);
    for (uint32_t i = 0; i < ACTORS; i++)
        turns_pass(&w->actor[i]);
}

static void one_op(struct world *w)
{
    uint32_t b = take(w), op = b % 24;
    struct actor *a = &w->actor[take(w) % ACTORS];

    if (b % 24 <= 10)
        play_session(w, a, session_kind(b));
    else if (op <= 12 && a->alive)
        rank_done(a, take(w) % a->world, done_min(a) + take(w) % 4);
    else if (op == 13 && b / 24 >= 6)
        turn_op(w, a, b / 24 - 6);
    else if (op == 13 && b / 24 % 6)
        host_op(w, a, b / 24 % 6);
    else if (op == 13)
        rig_evict(a->rig, w->admin[a->rig == w->rig[1]], (struct pool_id){NONE, 0},
                  1 + take(w) % 3);
    else if (op == 14)
        a->rig->automatic = RIG_ALL & ~take(w);
    else if (op <= 17)
        complete(w, a->rig);
    else if (op == 18)
        advance(w, a->rig, (uint64_t)take(w) * 50000000u);
    else if (op == 19 && take(w) % 4 == 0)
        link_toggle(w);
    else if (op == 20 && a->dying)
        kill_rest(a);
    else if (op == 20 && a->alive && take(w) % 4 == 0)
        kill_leader(a);
    else if (op == 21)
        garbage(w, a);
    else if (op == 22)
        stale_event(w, a->rig);
    else if (op == 23) {
        spawn(w, (uint32_t)(a - w->actor));
        a->rig->corrupt_pages = take(w) % 3;
    }
}

/* With the room of all engines that have left, sessions that are away recover, unless the host's
 * copy of what they need was corrupted. */
static void come_back(struct actor *a)
{
    for (uint32_t i = 0; i < SESSIONS; i++) {
        struct request request = {.op = OP_RECOVER, .recover.session = a->s[i]->id};

        if (!a->open[i] || !a->away[i])
            continue;
        rig_request(a->rig, a->e.conn[0], &request);
        a->recover[i] = request.request_id;
        rig_settle(a->rig);
        expect(rig_reply_to(a->rig, request.request_id));
        recovers(a);
    }
}

static void all_evicted(struct world *w, uint32_t d)
{
    struct core_view v;

    while (w->npins[d])
        unpin(w, d);
    for (uint32_t i = 0; i < EVICTS_MAX; i++) { /* evicted device pages may still be on the host */
        rig_evict(w->rig[d], w->admin[d], (struct pool_id){NONE, 0}, 0);
        rig_settle(w->rig[d]);
        core_view(w->rig[d]->core, &v);
        if (!v.nodes)
            break;
    }
    expect(v.sessions == 0 && v.nodes == 0 && v.pulls == 0 && v.serves == 0 && v.copies == 0);
    expect(v.token_blocks_free == w->rig[d]->options.limits.token_blocks);
    expect(v.retires_free == w->rig[d]->options.limits.retires);
}

/* P5: every fault has stopped, so everything is free or evictable. */
static void converge(struct world *w)
{
    for (uint32_t d = 0; d < 2; d++) {
        w->rig[d]->automatic = RIG_ALL;
        w->rig[d]->copies_to_fail = 0;
    }
    rig_settle(w->rig[0]);
    rig_settle(w->rig[1]);
    for (uint32_t i = 0; i < ACTORS; i++) {
        struct actor *a = &w->actor[i];

        fetches(a);
        if (a->dying)
            kill_rest(a);
        if (!a->alive)
            continue;
        verify(a);
        for (uint32_t r = 0; r < a->world; r++)
            rank_done(a, r, done_min(a) + 100);
    }
    for (uint32_t d = 0; d < 2; d++)
        advance(w, w->rig[d], 6000000000u);
    for (uint32_t i = 0; i < ACTORS; i++) {
        fetches(&w->actor[i]);
        come_back(&w->actor[i]);
        for (uint32_t k = 0; k < SESSIONS; k++)
            if (w->actor[i].open[k])
                expect(rig_close(w->actor[i].s[k], 0) == TERN_OK);
    }
    for (uint32_t d = 0; d < 2; d++) {
        all_evicted(w, d);
        for (uint32_t p = 0; p < w->rig[d]->options.limits.pools; p++) {
            struct pool_view pool;

            for (uint32_t g = 0; core_pool_view(w->rig[d]->core, p, &pool) && g < pool.ngroups; g++)
                expect(pool.group[g].free + pool.group[g].zeroing == pool.group[g].total &&
                       pool.group[g].reclaimable == 0);
        }
        oracle_audit(w->rig[d]->core);
    }
}

static void set_groups(struct world *w, struct actor *a)
{
    a->groups[a->ngroups++] = rig_group(2, 64);
    a->groups[a->ngroups++] = rig_group(4, 128);
    if (w->shape & SHAPE_SHORT) /* W < L */
        a->groups[a->ngroups++] = rig_window(1, 3, 64);
    if (w->shape & SHAPE_LONG) {
        a->groups[a->ngroups++] = rig_window(2, 9, 64);
        a->groups[a->ngroups - 1].reserve = 3;
    }
    if (w->shape & SHAPE_RECURRENT && a->ngroups < GROUPS)
        a->groups[a->ngroups++] = rig_recurrent(4, 128);
}

static void set_up(struct world *w)
{
    static struct rig_session sessions[ACTORS][SESSIONS];
    static const struct {
        uint32_t rig, world, shares;
        const char *name;
    } cast[ACTORS] = {{0, 2, 0, "a"}, {0, 2, 0, "b"}, {1, 2, 2, "c"}};
    static const uint64_t host_slabs[] = {24, 6, 12, 0};
    struct rig_options options = rig_small();
    uint32_t shape = take(w);

    options.limits.turn_records = 12;
    options.limits.record_jobs = 2;
    options.limits.turn_deadline_ns = TURN_NS;
    options.tenant[0].record_bytes = 24 * RECORD_PAGE_BYTES;

    w->shape = shape & SHAPE_STATE;
    for (uint32_t d = 0; d < 2; d++) {
        options.incarnation++;
        w->rig[d] = rig_create(&options);
        w->rig[d]->supersede = (enum supersede)(shape / 8 % 3);
        w->rig[d]->host_bytes = host_slabs[shape / 24 % 4] * 128;
        w->rig[d]->on_event = note_copied;
        w->rig[d]->on_event_ctx = &w->copied[d];
        w->rig[d]->no_audit = true; /* one_op decides when */
        w->admin[d] = rig_connect_admin(w->rig[d]);
    }
    link_toggle(w);
    for (uint32_t i = 0; i < ACTORS; i++) {
        struct actor *a = &w->actor[i];

        a->rig = w->rig[cast[i].rig];
        a->world = cast[i].world;
        a->shares = cast[i].shares;
        a->name = cast[i].name;
        for (uint32_t k = 0; k < SESSIONS; k++)
            a->s[k] = &sessions[i][k];
        set_groups(w, a);
        spawn(w, i);
        expect(a->alive);
    }
}

static void look_at_all(struct world *w)
{
    for (uint32_t k = 0; k < ACTORS; k++)
        if (w->actor[k].alive)
            verify(&w->actor[k]);
    for (uint32_t d = 0; d < 2; d++)
        oracle_audit(w->rig[d]->core);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static struct world w;

    fuzz_begin();
    memset(&w, 0, sizeof w);
    w.in = data;
    w.n = n;
    set_up(&w);
    for (uint32_t i = 0; i < OPS_MAX && w.n; i++) {
        one_op(&w);
        fuzz_passed(); /* every operation is a legal one */
        scribble(w.rig[0], RIG_COPY);
        scribble(w.rig[1], RIG_COPY);
        for (uint32_t k = 0; k < ACTORS; k++) {
            fetches(&w.actor[k]);
            write_prepared(&w.actor[k]);
            if (w.actor[k].dying)
                write_late(&w.actor[k]);
        }
        if (i % AUDIT_EACH == 0)
            look_at_all(&w);
    }
    converge(&w);
    rig_destroy(w.rig[0]);
    rig_destroy(w.rig[1]);
    return 0;
}
