/* Fuzz target of the core: bytes become a history of two small daemons, three engines, their
 * sessions, fetches, retractions and faults. Engines write real bytes, also late ones: into every
 * page that they gave back until its step is done, and into every page of a transfer or of a copy
 * between the tiers until it is proven quiet. The first byte chooses the pools' STATE groups and
 * how much host memory they have. After it all faults stop and everything must be free again. A
 * failure is an abort: of the rig, of the audit, or of a check of the core's own. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "unit/rig.h"

#define ACTORS     3
#define SESSIONS   4 /* of an actor */
#define LATE_MAX   256
#define OPS_MAX    160
#define SEQUENCE   40 /* tokens */
#define RESPAWNS   4
#define AUDIT_EACH 8 /* operations */
#define GROUPS     4
#define PINS_MAX   8
#define EVICTS_MAX 8 /* in a row, until nothing is left */
#define expect(x)  ((x) ? (void)0 : rig_fail("%s:%d: %s", __FILE__, __LINE__, #x))

enum { SHAPE_SHORT = 1, SHAPE_LONG = 2, SHAPE_RECURRENT = 4, SHAPE_STATE = 7 };

/* A page that an engine may still write, or still reads, until each of its ranks has done `step`.
 */
struct late {
    uint64_t step;
    uint32_t group, index, ranks; /* ranks: bits of those that have not passed yet */
    const struct rig_session *of; /* RETRACT: a Recover gives the page back to it. Else NULL */
    bool reads;
    uint8_t bytes[64]; /* what it reads there */
};

struct actor {
    struct rig *rig;
    const char *name;
    uint32_t world, shares; /* shares: the actor whose pool this one maps, or itself */
    bool alive, dying; /* dying: some of its processes live on, and write wherever they could */
    struct rig_engine e;
    struct id pool;
    uint64_t done[RANKS_MAX];
    struct rig_session *s[SESSIONS];
    bool open[SESSIONS];
    uint64_t fetch[SESSIONS];   /* request id of a fetch that has no answer; 0: none */
    bool away[SESSIONS];        /* retracted, and not back */
    uint64_t recover[SESSIONS]; /* as fetch */
    struct late late[LATE_MAX];
    uint32_t nlate, ngroups;
    struct group_layout groups[GROUPS];
};

struct world {
    struct rig *rig[2];
    struct actor actor[ACTORS];
    const uint8_t *in;
    size_t n;
    uint32_t respawns, admin[2], shape; /* shape: which groups the pools have */
    struct event copied[2];             /* the last acknowledgement of a copy */
    struct id pin[2][PINS_MAX];
    uint32_t npins[2];
};

static uint32_t take(struct world *w)
{
    if (!w->n)
        return 0;
    w->n--;
    return *w->in++;
}

static struct rig_options small_limits(void)
{
    struct rig_options o = rig_defaults();

    o.limits.nodes = 24;
    o.limits.token_blocks = 96;
    o.limits.extra_keys = 8;
    o.limits.namespaces = 3;
    o.limits.sessions = 8;
    o.limits.retires = 5;
    o.limits.pages = 512;
    o.limits.slabs = 160;
    o.limits.pools = 6;
    o.limits.engines = 3;
    o.limits.pulls = o.limits.serves = 2;
    o.limits.seal_jobs = 2;
    o.limits.copy_jobs = 2;
    o.limits.events = 8;
    o.limits.conns = o.limits.procs = 64;
    o.limits.peer_bytes_in_flight = 700;
    for (uint32_t t = 0; t < 2; t++) {
        o.tenant[t].memory_bytes = o.tenant[t].host_bytes = 8192;
        o.tenant[t].sessions_max = 7;
    }
    return o;
}

/* Eight sequences that part at 8, 16 and 20 tokens. */
static const uint32_t *sequence(uint32_t k)
{
    static uint32_t tokens[SEQUENCE];

    for (uint32_t i = 0; i < SEQUENCE; i++)
        tokens[i] = i + (i >= 8 && k & 1 ? 1000 : 0) + (i >= 16 && k & 2 ? 2000 : 0) +
                    (i >= 20 && k & 4 ? 4000 : 0);
    return tokens;
}

/* --- what the device still does --- */

static void remember(struct actor *a, uint64_t step, uint32_t group, struct page_ref ref,
                     bool reads)
{
    struct late *l = &a->late[a->nlate];
    uint64_t bytes;

    if (a->nlate == LATE_MAX || !ref.index)
        return;
    *l = (struct late){.step = step, .group = group, .index = ref.index, .reads = reads};
    for (uint32_t r = 0; r < a->world; r++)
        if (a->done[r] < step)
            l->ranks |= 1u << r;
    if (!l->ranks)
        return; /* it has passed: the page may be anyone's */
    memcpy(l->bytes, rig_page(a->rig, a->pool.slot, group, ref.index, &bytes), sizeof l->bytes);
    a->nlate++;
}

static void touch_late(struct actor *a, const struct late *l)
{
    uint64_t bytes;
    uint8_t *page = rig_page(a->rig, a->pool.slot, l->group, l->index, &bytes);

    if (!l->reads)
        memset(page, 0xdd, bytes);
    else if (memcmp(page, l->bytes, sizeof l->bytes) != 0)
        rig_fail("P2: page %u of group %u changed under a reader until step %llu", l->index,
                 l->group, (unsigned long long)l->step);
}

/* The last moment at which a rank may touch the pages of steps up to `step`. */
static void rank_done(struct actor *a, uint32_t rank, uint64_t step)
{
    for (uint32_t i = 0; i < a->nlate; i++)
        if (a->late[i].step <= step && a->late[i].ranks & 1u << rank) {
            touch_late(a, &a->late[i]);
            a->late[i].ranks &= ~(1u << rank);
            if (!a->late[i].ranks)
                a->late[i--] = a->late[--a->nlate];
        }
    if (step > a->done[rank])
        a->done[rank] = step;
    rig_step_done(a->rig, a->e.id, rank, step);
}

static uint64_t done_min(const struct actor *a)
{
    uint64_t min = a->done[0];

    for (uint32_t r = 1; r < a->world; r++)
        if (a->done[r] < min)
            min = a->done[r];
    return min;
}

/* --- sessions --- */

static void verify(struct actor *a)
{
    for (uint32_t i = 0; i < SESSIONS; i++)
        if (a->open[i] && !a->away[i] && rig_wrong(a->s[i], a->s[i]->len.written))
            rig_fail("P1: session %u of %s holds wrong bytes", i, a->name);
}

/* Does the engine only read a page that its table lost, until the step is done? What is committed
 * is anyone's, and what a commit took may be. */
static bool only_reads(const struct rig_session *s, const struct group_layout *l,
                       const struct step_op *op, const struct lengths *before, uint32_t p,
                       bool gone)
{
    if (l->family == FAMILY_RECURRENT)
        return op->kind == STEP_COMMIT;
    if (p < before->committed / l->page_tokens)
        return true;
    return op->kind == STEP_COMMIT && gone && p < s->len.committed / l->page_tokens;
}

/* An operation that may give pages back: what the table loses is remembered as still in use until
 * op.step. */
static void giving(struct actor *a, uint32_t i, struct step_op op)
{
    static struct page_ref before[GROUPS][SEQUENCE + 8];
    struct rig_session *s = a->s[i];
    struct lengths len = s->len;
    enum tern_err err;

    for (uint32_t g = 0; g < a->ngroups; g++)
        memcpy(before[g], s->table[g], sizeof before[g]);
    err = rig_op(s, op);
    if (err == TERN_GONE)
        rig_fail("an open session is GONE");
    if (op.kind == STEP_CLOSE && err == TERN_OK) {
        a->open[i] = false;
        memset(s->table, 0, sizeof s->table);
    }
    if (a->away[i] && err == TERN_OK) { /* closed, or aborted */
        a->away[i] = false;
        a->recover[i] = 0;
    }
    for (uint32_t g = 0; g < a->ngroups && op.step; g++)
        for (uint32_t p = 0; p < SEQUENCE + 8; p++) {
            const struct page_ref *now = &s->table[g][p];

            if (before[g][p].index && memcmp(&before[g][p], now, sizeof *now) != 0)
                remember(a, op.step, g, before[g][p],
                         only_reads(s, &a->groups[g], &op, &len, p, now->index == 0));
        }
}

/* S2: what a resume must come back with, from what the engine knows itself. */
static uint32_t resumed(const struct rig_session *s, const struct req_tokens *t)
{
    uint32_t same = t->base;
    bool had = s->nkeys > 0 && t->base <= 5, has = t->nkeys > 0;

    while (same < s->ntokens && same < t->base + t->n && s->tokens[same] == t->v[same - t->base])
        same++;
    if (had != has && same > 5)
        same = 5;
    return same < s->len.written ? same : s->len.written;
}

static void match(struct world *w, struct actor *a, uint32_t i)
{
    static const struct extra_key key = {.position = 5, .lo = 42};
    uint32_t what = take(w), n = SEQUENCE - take(w) % (what & 8 ? SEQUENCE : 4), want;
    struct req_tokens t = {.v = sequence(what % 8), .n = n};
    bool resume = a->s[i]->len.written > 0;

    if (what & 64 && n > 5) {
        t.keys = &key;
        t.nkeys = 1;
    }
    if (what & 128) { /* only what is new travels */
        t.base = a->s[i]->ntokens < n ? a->s[i]->ntokens : n;
        t.v += t.base;
        t.n -= t.base;
        t.nkeys = t.base <= 5 ? t.nkeys : 0;
    }
    want = resumed(a->s[i], &t);
    if (rig_match_full(a->s[i], &t, 0) == TERN_OK && resume && a->s[i]->len.written != want &&
        !(w->shape & SHAPE_RECURRENT && a->s[i]->len.written == a->s[i]->len.committed))
        rig_fail("S2: resumed at %u, not at %u", a->s[i]->len.written, want);
}

/* --- giving way --- */

/* Its table is forgotten; the steps under way go on reading what stays and writing what goes. */
static void retract(struct actor *a, uint32_t i, enum retract_mode mode, uint64_t step)
{
    static struct page_ref before[GROUPS][SEQUENCE + 8];
    struct rig_session *s = a->s[i];
    struct lengths len = s->len;
    uint32_t first = a->nlate;

    for (uint32_t g = 0; g < a->ngroups; g++)
        memcpy(before[g], s->table[g], sizeof before[g]);
    if (rig_retract(s, mode, step) != TERN_OK)
        return;
    if (s->len.committed != len.committed)
        rig_fail("S10: Retract moved T from %u to %u", len.committed, s->len.committed);
    if (a->away[i])
        return; /* once more: nothing changes (S8) */
    a->away[i] = true;
    for (uint32_t g = 0; g < a->ngroups && step; g++)
        for (uint32_t p = 0; p < SEQUENCE + 8; p++) {
            uint32_t from = p * a->groups[g].page_tokens;
            bool goes = a->groups[g].family != FAMILY_RECURRENT && from >= s->len.written;

            remember(a, step, g, before[g][p], !goes);
        }
    while (first < a->nlate)
        a->late[first++].of = s;
}

/* What is in the table again is the session's to read and write. */
static void back(struct actor *a, uint32_t i)
{
    const struct rig_session *s = a->s[i];

    a->away[i] = false;
    for (uint32_t k = 0; k < a->nlate; k++) {
        bool again = false;

        for (uint32_t p = 0; p < SEQUENCE + 8 && a->late[k].of == s; p++)
            again |= s->table[a->late[k].group][p].index == a->late[k].index;
        if (again)
            a->late[k--] = a->late[--a->nlate];
    }
    if (rig_wrong(a->s[i], s->len.written))
        rig_fail("P1: session %u of %s came back with wrong bytes", i, a->name);
}

static void recovers(struct actor *a)
{
    for (uint32_t i = 0; i < SESSIONS; i++)
        if (a->recover[i] && rig_reply_to(a->rig, a->recover[i])) {
            if (a->open[i] && rig_recovered(a->s[i], a->recover[i]) == TERN_OK)
                back(a, i);
            a->recover[i] = 0;
        }
}

static void recover(struct actor *a, uint32_t i)
{
    struct request request = {.op = OP_RECOVER, .recover.session = a->s[i]->id};
    struct lengths before = a->s[i]->len;

    rig_request(a->rig, a->e.conn[0], &request);
    a->recover[i] = request.request_id;
    recovers(a);
    if (!a->away[i] && a->s[i]->len.committed != before.committed)
        rig_fail("S10: Recover moved T from %u to %u", before.committed, a->s[i]->len.committed);
}

/* Of a session that is away, what is not among Retract, Recover, cancel, Abort and Close must be
 * refused and change nothing. */
static void refused(struct actor *a, uint32_t i, uint32_t x)
{
    struct rig_session *s = a->s[i];
    struct lengths before = s->len;
    struct session_view v;
    enum tern_err err;

    expect(core_session_view(a->rig->core, s->id.slot, &v));
    if (strcmp(v.state, "retracting") != 0 && strcmp(v.state, "retracted") != 0 &&
        strcmp(v.state, "loading") != 0)
        return; /* its copies failed: it runs again, which a Recover will tell */
    err = x % 2 ? rig_extend(s, x % SEQUENCE, 0, sequence(0), 0)
                : rig_match(s, sequence(x % 8), SEQUENCE);
    if (err != TERN_INVALID || memcmp(&before, &s->len, sizeof before) != 0)
        rig_fail("a session that is away answered %d", err);
}

static void fetches(struct actor *a)
{
    recovers(a);
    for (uint32_t i = 0; i < SESSIONS; i++)
        if (a->fetch[i] && rig_reply_to(a->rig, a->fetch[i])) {
            if (a->open[i])
                rig_fetched(a->s[i], a->fetch[i]);
            a->fetch[i] = 0;
        }
}

/* Runs to `to` tokens of what the session has, and commits what it can. */
static void run(struct actor *a, uint32_t i, uint32_t to, uint64_t step)
{
    struct rig_session *s = a->s[i];

    to = to > s->ntokens ? s->ntokens : to;
    if (s->ntokens > SEQUENCE || (to > s->len.written && rig_run_to(s, s->tokens, to) != TERN_OK))
        return;
    giving(a, i, (struct step_op){.kind = STEP_COMMIT, .length = to, .step = step});
}

enum { GIVE_WAY = 13, COME_BACK, FETCH_HOST };

static void away_op(struct actor *a, uint32_t i, uint32_t kind, uint32_t x, uint64_t step)
{
    switch (kind) {
    case 7: giving(a, i, (struct step_op){.kind = STEP_ABORT, .step = step}); break;
    case 8: giving(a, i, (struct step_op){.kind = STEP_CLOSE, .step = step}); break;
    case 10: rig_fetch_cancel(a->s[i]); break;
    case GIVE_WAY: retract(a, i, x % 4 ? RETRACT_HOST : RETRACT_DROP, step); break;
    case 0:
    case 2:
    case COME_BACK:
        if (!a->recover[i])
            recover(a, i);
        break;
    default:
        if (!a->recover[i])
            refused(a, i, x);
    }
}

static void session_op(struct world *w, struct actor *a, uint32_t kind)
{
    uint32_t which = take(w), i = which % SESSIONS, x = take(w);
    uint64_t step = which & 128 ? 0 : done_min(a) + (which >> 4) % 4;
    struct rig_session *s = a->s[i];

    if (!a->alive)
        return;
    if (!a->open[i]) {
        a->open[i] = rig_session_open(a->rig, a->e.conn[0], a->pool, 1 + x % 9 / 8, s) == TERN_OK;
        if (a->open[i])
            match(w, a, i);
        return;
    }
    if (a->away[i]) {
        away_op(a, i, kind, x, step);
        return;
    }
    if (a->fetch[i] && kind != 7 && kind != 8 && kind != 10)
        return;
    switch (kind) {
    case 0:
    case 2: run(a, i, 1 + x % SEQUENCE, step); break;
    case 1: match(w, a, i); break;
    case 3: rig_extend(s, x % (SEQUENCE + 8), 0, sequence(x % 8) + s->ntokens % 8, x % 3); break;
    case 4:
        giving(a, i, (struct step_op){.kind = STEP_REWIND, .length = x % 48, .step = step});
        break;
    case 5:
        giving(a, i, (struct step_op){.kind = STEP_COMMIT, .length = x % 48, .step = step});
        break;
    case 6:
        giving(a, i, (struct step_op){.kind = STEP_FINISH, .length = x % 8, .step = step});
        break;
    case 7: giving(a, i, (struct step_op){.kind = STEP_ABORT, .step = step}); break;
    case 8: giving(a, i, (struct step_op){.kind = STEP_CLOSE, .step = step}); break;
    case 9: a->fetch[i] = rig_fetch(s, x % 8 == 7, x & 128 ? x % 48 : 0); break;
    case 10: rig_fetch_cancel(s); break;
    case 11:
        giving(a, i, (struct step_op){.kind = STEP_SLIDE, .length = x % 48, .step = step});
        break;
    case 12: rig_snapshot_release(s); break;
    case GIVE_WAY: retract(a, i, x % 4 ? RETRACT_HOST : RETRACT_DROP, step); break;
    case COME_BACK: recover(a, i); break;
    case FETCH_HOST: a->fetch[i] = rig_fetch(s, PEER_HOST, x & 128 ? x % 48 : 0); break;
    default: break;
    }
    /* A Finish may declare tokens as written that the engine has not written yet; it writes them
     * now. */
    if (kind == 6 && a->open[i])
        rig_write(s, s->len.committed, s->len.written);
}

/* --- faults --- */

static void scribble_pulls(struct rig *rig)
{
    struct rig_job *job;

    for (uint32_t nth = 0; (job = rig_job(rig, RIG_PULL, nth)) != NULL; nth++)
        for (uint32_t i = 0; i < job->n; i++) {
            uint64_t bytes;
            uint8_t *page =
                rig_page(rig, job->pool, job->pages[i].group, job->pages[i].index, &bytes);

            memset(page, 0xee, bytes);
        }
}

/* A copy that is not acknowledged may write its destination at any time. */
static void scribble_copies(struct rig *rig)
{
    struct rig_job *job;

    for (uint32_t nth = 0; (job = rig_job(rig, RIG_COPY, nth)) != NULL; nth++)
        for (uint32_t i = 0; i < job->n; i++) {
            uint64_t bytes;
            uint8_t *page = rig_page(rig, job->to_pool, job->to[i].group, job->to[i].index, &bytes);

            memset(page, 0xcc, bytes);
        }
}

static void complete(struct world *w, struct rig *rig)
{
    static const enum rig_job_kind kinds[] = {RIG_SEAL, RIG_PULL, RIG_PULL_STOP, RIG_SERVE_STOP,
                                              RIG_MSG,  RIG_ZERO, RIG_COPY};
    enum rig_job_kind kind = kinds[take(w) % 7];
    uint32_t n = rig_jobs(rig, kind),
             nth = kind == RIG_MSG ? 0 : take(w); /* messages keep their order */

    if (!n)
        return;
    if (kind == RIG_PULL_STOP)
        scribble_pulls(rig);
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

static void write_late(struct actor *a)
{
    for (uint32_t i = 0; i < a->nlate; i++)
        touch_late(a, &a->late[i]);
}

/* The first of its processes is gone; until the last is, it writes wherever it could. */
static void kill_leader(struct actor *a)
{
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
        rig_engine_kill(a->rig, &a->e, r);
    }
    a->dying = false;
    a->nlate = 0;
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

/* Numbers as they come, where a careful client would not put them. */
static void garbage(struct world *w, struct actor *a)
{
    struct request r = {.op = (enum op)(take(w) % (OP_COUNT + 2))};
    struct step_op op = {.kind = (enum step_op_kind)(take(w) % 11)};
    uint32_t a_number = take(w) << 24 | take(w), another = take(w);

    if (!a->alive || r.op == OP_ENGINE_LEAVE || r.op == OP_POOL_CLOSE || r.op == OP_POOL_OPEN ||
        r.op == OP_DRAIN)
        return;
    op.session = (struct id){another % 10, a_number};
    op.length = a_number;
    op.written = another;
    r.match.session = op.session;
    r.match.tokens =
        (struct req_tokens){.v = sequence(0), .n = another % SEQUENCE, .base = a_number};
    if (r.op == OP_SESSION_OPEN)
        r.session_open.pool = (struct id){another % 4, a_number};
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
    struct event event = {.kind = kinds[take(w) % 6]};

    event.pulled.pull =
        (struct id){take(w) % 8, 1u << 31 | take(w)}; /* never a generation that lives */
    rig_event(rig, &event);
}

/* --- the host tier's faults; resets; pins --- */

static uint32_t daemon_of(const struct world *w, const struct actor *a)
{
    return a->rig == w->rig[1];
}

/* The same acknowledgement once more (T16): whatever has become of its node. */
static void copied_again(struct world *w, uint32_t d)
{
    struct event event = w->copied[d];

    if (event.kind == EV_COPIED)
        rig_event(w->rig[d], &event);
}

static void note_copied(void *ctx, const struct event *event)
{
    if (event->kind == EV_COPIED)
        *(struct event *)ctx = *event;
}

/* N1: nothing of it is found any more, on either tier. */
static void reset(struct world *w, struct actor *a)
{
    uint64_t ns = 1 + take(w) % 2;

    if (!a->alive || rig_reset(a->rig, a->e.conn[0], ns, NULL) != TERN_OK)
        return;
    for (uint32_t k = 0; k < 8; k++) {
        struct request r = {.op = OP_PEEK};
        const struct reply *reply;

        r.peek = (struct req_peek){
            .pool = a->pool, .ns = {1, ns}, .tokens = {.v = sequence(k), .n = SEQUENCE}};
        reply = rig_request(a->rig, a->e.conn[0], &r);
        if (reply->err != TERN_OK || reply->peek.depth || reply->peek.history_depth ||
            reply->peek.host_depth)
            rig_fail("N1: a namespace that was reset is found at %u", reply->peek.depth);
    }
}

static void pin(struct world *w, uint32_t d)
{
    const struct core_limits *l = &w->rig[d]->options.limits;
    uint32_t slot = take(w) % l->nodes;
    struct node_view v;

    if (w->npins[d] == PINS_MAX || !core_node_view(w->rig[d]->core, slot, &v) || v.depth == 0)
        return;
    if (rig_pin(w->rig[d], w->admin[d], v.id, true) == TERN_OK)
        w->pin[d][w->npins[d]++] = v.id;
}

/* A pin holds its node: it must be there. */
static void unpin(struct world *w, uint32_t d)
{
    if (w->npins[d])
        expect(rig_pin(w->rig[d], w->admin[d], w->pin[d][--w->npins[d]], false) == TERN_OK);
}

static void host_op(struct world *w, struct actor *a, uint32_t which)
{
    static const enum tern_err errs[] = {TERN_CORRUPT, TERN_INTERNAL};
    uint32_t d = daemon_of(w, a), x = take(w);

    switch (which) {
    case 1: pin(w, d); break;
    case 2: unpin(w, d); break;
    case 3:
        if (x % 4 == 0)
            reset(w, a);
        break;
    case 4: copied_again(w, d); break;
    default: a->rig->copies_to_fail = x % 3; a->rig->copy_err = errs[x / 4 % 2];
    }
}

/* Several kinds of operation share the numbers of fetch (9), cancel (10) and evict (13). */
static uint32_t session_kind(uint32_t b)
{
    static const uint32_t nine[] = {9, GIVE_WAY, COME_BACK, FETCH_HOST};
    static const uint32_t ten[] = {10, 11, 12, GIVE_WAY, COME_BACK};

    if (b % 24 == 9)
        return nine[b / 24 % 4];
    return b % 24 == 10 ? ten[b / 24 % 5] : b % 24;
}

static void one_op(struct world *w)
{
    uint32_t b = take(w), op = b % 24;
    struct actor *a = &w->actor[take(w) % ACTORS];

    if (b % 24 <= 10)
        session_op(w, a, session_kind(b));
    else if (op <= 12 && a->alive)
        rank_done(a, take(w) % a->world, done_min(a) + take(w) % 4);
    else if (op == 13 && b / 24 % 6)
        host_op(w, a, b / 24 % 6);
    else if (op == 13)
        rig_evict(a->rig, w->admin[a->rig == w->rig[1]], (struct id){NONE, 0}, 1 + take(w) % 3);
    else if (op == 14)
        a->rig->automatic = RIG_ALL & ~take(w);
    else if (op <= 17)
        complete(w, a->rig);
    else if (op == 18)
        rig_advance(a->rig, (uint64_t)take(w) * 50000000u);
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

/* With the room of everybody who has left, who is away comes back, unless the host's copy of what
 * it needs was spoilt. */
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
    for (uint32_t i = 0; i < EVICTS_MAX;
         i++) { /* what leaves the device may still be on the host */
        rig_evict(w->rig[d], w->admin[d], (struct id){NONE, 0}, 0);
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
        rig_advance(w->rig[d], 6000000000u);
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
        rig_audit(w->rig[d]->core);
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
    struct rig_options options = small_limits();
    uint32_t shape = take(w);

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

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static struct world w;

    memset(&w, 0, sizeof w);
    w.in = data;
    w.n = n;
    set_up(&w);
    for (uint32_t i = 0; i < OPS_MAX && w.n; i++) {
        one_op(&w);
        scribble_copies(w.rig[0]);
        scribble_copies(w.rig[1]);
        for (uint32_t k = 0; k < ACTORS; k++) {
            fetches(&w.actor[k]);
            if (w.actor[k].dying)
                write_late(&w.actor[k]);
        }
        for (uint32_t k = 0; k < ACTORS; k++) {
            if (w.actor[k].alive)
                verify(&w.actor[k]);
        }
        if (i % AUDIT_EACH == 0)
            for (uint32_t d = 0; d < 2; d++)
                rig_audit(w.rig[d]->core);
    }
    converge(&w);
    rig_destroy(w.rig[0]);
    rig_destroy(w.rig[1]);
    return 0;
}
