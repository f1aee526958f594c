/* Requests of the rig: connections, engines, pools, sessions, steps. Each sends one request and
 * applies the answer to the rig's picture of the session, as an engine would. Invariant: a
 * session's table follows from the answers alone, never from the core's state. */
#include "unit/rig/rig.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "oracle/rules.h"

const struct reply *rig_reply_to(struct rig *rig, uint64_t request_id)
{
    struct rig_reply *slot = &rig->replies[request_id % RIG_REPLIES_MAX];

    return slot->used && slot->reply.request_id == request_id ? &slot->reply : NULL;
}

const struct reply *rig_request(struct rig *rig, uint32_t conn, struct request *request)
{
    struct event event = {.kind = EV_REQUEST};
    const struct reply *reply;

    request->conn = conn;
    request->request_id = rig->next_request++;
    event.request = *request;
    rig_event(rig, &event);
    reply = rig_reply_to(rig, request->request_id);
    if (reply && (reply->conn != conn || reply->op != request->op))
        rig_fail("the reply to request %llu names another connection or request",
                 (unsigned long long)request->request_id);
    return reply;
}

/* Sends a request that must be answered at once, and repeats it, as libtern does, if one step of
 * the core is too short for it. */
static const struct reply *ask(struct rig *rig, uint32_t conn, struct request request)
{
    const struct reply *reply;

    do
        reply = rig_request(rig, conn, &request);
    while (reply && reply->err == TERN_BUSY && reply->shortage.goes_on);

    if (!reply)
        rig_fail("request of kind %d got no answer at once", request.op);
    return reply;
}

static uint32_t connect_as(struct rig *rig, uint32_t tenant, uint32_t proc, bool admin)
{
    struct event event = {
        .kind = EV_CONN_OPENED,
        .conn = {.conn = rig->next_conn++, .tenant = tenant, .proc = proc, .admin = admin}};

    rig_event(rig, &event);
    return event.conn.conn;
}

uint32_t rig_connect(struct rig *rig, uint32_t tenant, uint32_t *ret_proc)
{
    uint32_t proc = rig->next_proc++;

    if (ret_proc)
        *ret_proc = proc;
    return connect_as(rig, tenant, proc, false);
}

uint32_t rig_connect_admin(struct rig *rig)
{
    return connect_as(rig, NONE, NONE, true);
}

void rig_disconnect(struct rig *rig, uint32_t conn)
{
    rig_event(rig, &(struct event){.kind = EV_CONN_CLOSED, .conn.conn = conn});
}

void rig_proc_gone(struct rig *rig, uint32_t proc)
{
    rig_event(rig, &(struct event){.kind = EV_PROC_GONE, .proc.proc = proc});
}

void rig_step_done(struct rig *rig, struct engine_id engine, uint32_t rank, uint64_t step)
{
    rig_event(rig, &(struct event){.kind = EV_STEP_DONE,
                                   .step_done = {.engine = engine, .rank = rank, .step = step}});
}

void rig_engine_done(struct rig *rig, const struct rig_engine *e, uint64_t step)
{
    for (uint32_t r = 0; r < e->world; r++)
        rig_step_done(rig, e->id, r, step);
}

enum tern_err rig_join(struct rig *rig, uint32_t conn, const char *name, enum role role,
                       uint32_t rank, uint32_t world)
{
    struct request request = {.op = OP_ENGINE_JOIN,
                              .join = {.role = role, .rank = rank, .world = world}};

    snprintf(request.join.name, sizeof request.join.name, "%s", name);
    return ask(rig, conn, request)->err;
}

enum tern_err rig_leave(struct rig *rig, uint32_t conn)
{
    return ask(rig, conn, (struct request){.op = OP_ENGINE_LEAVE})->err;
}

enum tern_err rig_join_at(struct rig *rig, uint32_t conn, const char *name, uint32_t rank,
                          uint32_t world, uint32_t region)
{
    struct request request = {.op = OP_ENGINE_JOIN,
                              .join = {.role = rank ? ROLE_WORKER : ROLE_BOTH,
                                       .rank = rank,
                                       .world = world,
                                       .device = {.named = region != NONE, .region = region}}};

    snprintf(request.join.name, sizeof request.join.name, "%s", name);
    return ask(rig, conn, request)->err;
}

struct rig_engine rig_engine_at(struct rig *rig, uint32_t tenant, const char *name, uint32_t world,
                                uint32_t first)
{
    struct rig_engine e = {.tenant = tenant, .world = world};

    for (uint32_t r = 0; r < world; r++) {
        e.conn[r] = rig_connect(rig, tenant, &e.proc[r]);
        if (rig_join_at(rig, e.conn[r], name, r, world, first == NONE ? NONE : first + r) !=
            TERN_OK)
            rig_fail("rank %u of %s cannot join: %d", r, name, rig->last->err);
        e.id = rig->last->join.engine;
    }
    return e;
}

struct rig_engine rig_engine(struct rig *rig, uint32_t tenant, const char *name, uint32_t world)
{
    return rig_engine_at(rig, tenant, name, world, NONE);
}

/* As the shell does: the connection breaks, and the pidfd shows that the process is gone. */
void rig_engine_kill(struct rig *rig, const struct rig_engine *e, uint32_t rank)
{
    rig_disconnect(rig, e->conn[rank]);
    rig_proc_gone(rig, e->proc[rank]);
}

struct group_layout rig_group(uint32_t page_tokens, uint64_t page_bytes)
{
    return (struct group_layout){
        .family = FAMILY_HISTORY, .page_tokens = page_tokens, .units = 1, .page_bytes = page_bytes};
}

struct group_layout rig_window(uint32_t page_tokens, uint32_t window, uint64_t page_bytes)
{
    struct group_layout l = rig_group(page_tokens, page_bytes);

    l.family = FAMILY_WINDOW;
    l.window = window;
    l.reserve = 1;
    return l;
}

struct group_layout rig_recurrent(uint32_t page_tokens, uint64_t page_bytes)
{
    struct group_layout l = rig_group(page_tokens, page_bytes);

    l.family = FAMILY_RECURRENT;
    return l;
}

enum tern_err rig_pool_open(struct rig *rig, uint32_t conn, const struct group_layout *groups,
                            uint32_t n, uint64_t bytes, struct pool_id *ret)
{
    struct request request = {.op = OP_POOL_OPEN,
                              .pool_open = {.ngroups = n,
                                            .shard = SHARD_NONE,
                                            .axes_hash = 7,
                                            .supersede = rig->supersede,
                                            .bytes = bytes,
                                            .host_bytes = rig->host_bytes}};
    const struct reply *reply;

    memcpy(request.pool_open.group, groups, (n < GROUPS_MAX ? n : GROUPS_MAX) * sizeof *groups);
    reply = ask(rig, conn, request);
    if (reply->err == TERN_OK)
        *ret = reply->pool_open.pool;
    return reply->err;
}

enum tern_err rig_map(struct rig *rig, uint32_t conn, struct pool_id pool)
{
    return ask(rig, conn, (struct request){.op = OP_POOL_MAP, .pool_map.pool = pool})->err;
}

enum tern_err rig_pool_map(struct rig *rig, uint32_t conn, struct pool_id pool)
{
    return ask(rig, conn, (struct request){.op = OP_POOL_MAP, .pool_map.pool = pool})->err;
}

enum tern_err rig_pool_close(struct rig *rig, uint32_t conn, struct pool_id pool)
{
    return ask(rig, conn, (struct request){.op = OP_POOL_CLOSE, .pool_close.pool = pool})->err;
}

struct pool_id rig_pool_pages(struct rig *rig, const struct rig_engine *e, uint32_t page_tokens,
                              uint32_t usable)
{
    struct group_layout group = rig_group(page_tokens, 512);
    struct pool_id pool = {0, 0};

    group.cap_pages = usable;
    if (rig_pool_open(rig, e->conn[0], &group, 1, 1u << 20, &pool) != TERN_OK)
        rig_fail("no pool of %u pages: %d", usable, rig->last->err);
    return pool;
}

enum tern_err rig_session_open(struct rig *rig, uint32_t conn, struct pool_id pool, uint64_t ns,
                               struct rig_session *ret)
{
    struct namespace_id space = {.hi = 1, .lo = ns};
    const struct reply *reply =
        ask(rig, conn,
            (struct request){.op = OP_SESSION_OPEN, .session_open = {.pool = pool, .ns = space}});

    if (reply->err != TERN_OK)
        return reply->err;
    *ret = (struct rig_session){.rig = rig,
                                .id = reply->session_open.session,
                                .pool = pool,
                                .conn = conn,
                                .ns = space,
                                .tenant = rig_pool_view(rig, pool).tenant};
    return TERN_OK;
}

struct rig_session *rig_session(struct rig *rig, const struct rig_engine *e, struct pool_id pool,
                                uint64_t ns)
{
    struct rig_session *s = malloc(sizeof *s);

    if (!s)
        abort();
    if (rig_session_open(rig, e->conn[0], pool, ns, s) != TERN_OK)
        rig_fail("no session: %d", rig->last->err);
    s->next = rig->sessions;
    rig->sessions = s;
    return s;
}

void rig_session_free(struct rig_session *s)
{
    struct rig_session **at = &s->rig->sessions;

    while (*at != s)
        at = &(*at)->next;
    *at = s->next;
    free(s);
}

const uint32_t *rig_tokens(uint32_t seed, uint32_t n)
{
    static uint32_t tokens[RIG_TOKENS_MAX];

    if (n > RIG_TOKENS_MAX)
        rig_fail("%u tokens are too many for the rig", n);
    for (uint32_t i = 0; i < n; i++)
        tokens[i] = seed * 100000u + i;
    return tokens;
}

static uint32_t first_sequence[RIG_TOKENS_MAX];
const uint32_t *const seq1 = first_sequence;

__attribute__((constructor)) static void make_first_sequence(void)
{
    memcpy(first_sequence, rig_tokens(1, RIG_TOKENS_MAX), sizeof first_sequence);
}

/* T21: the engine copies in stream order, before any later step. */
static void copy_state(struct rig_session *s, const struct table_run *run)
{
    uint64_t bytes;
    const uint8_t *from = rig_page(s->rig, s->pool.slot, run->group, run->from.index, &bytes);

    memmove(rig_page(s->rig, s->pool.slot, run->group, run->refs[0].index, &bytes), from, bytes);
}

/* Returns true if a page of a WINDOW group left the table (T5), or its chunk never kept it (T7). */
static bool has_left(const struct rig_session *s, uint32_t g, const struct group_layout *l,
                     uint32_t align, uint32_t p)
{
    uint32_t at = p * l->page_tokens, end = at / align * align + align;

    if (at >= s->len.committed)
        return p < s->slid[g];
    return at + l->page_tokens <= s->low ||
           p < rule_segment_first(l->window, l->page_tokens, align, end);
}

/* Removes the pages that the rules take from the engine: beyond A, and below the window. */
static void trim_table(struct rig_session *s, const struct lengths *before)
{
    struct pool_view v;

    if (!core_pool_view(s->rig->core, s->pool.slot, &v))
        return;
    for (uint32_t g = 0; g < v.ngroups; g++) {
        const struct group_layout *l = &v.group[g].layout;
        uint32_t end = (s->len.allocated + l->page_tokens - 1) / l->page_tokens;

        if (s->len.allocated == 0)
            s->slid[g] = s->low = 0;
        if (l->family == FAMILY_RECURRENT) {
            if (s->len.written < before->written || s->len.allocated == 0)
                s->table[g][0] = (struct page_ref){0, 0}; /* the state of C is no longer valid */
            continue;
        }
        for (uint32_t p = 0; p < end && p < RIG_TABLE_MAX && l->family == FAMILY_WINDOW; p++)
            if (has_left(s, g, l, v.align_tokens, p))
                s->table[g][p] = (struct page_ref){0, 0};
        if (end < RIG_TABLE_MAX)
            memset(&s->table[g][end], 0, (RIG_TABLE_MAX - end) * sizeof s->table[g][end]);
    }
}

/* T5: pages wholly below `lower` have left the table. */
static void slide(struct rig_session *s, uint32_t next)
{
    struct pool_view v;
    uint32_t low = s->len.committed;

    if (!core_pool_view(s->rig->core, s->pool.slot, &v))
        return;
    next = next ? next : s->len.committed + v.align_tokens;
    for (uint32_t g = 0; g < v.ngroups; g++) {
        const struct group_layout *l = &v.group[g].layout;
        uint32_t keep = l->family == FAMILY_WINDOW ? l->window + l->reserve : v.align_tokens;
        uint32_t lower = rule_slide_lower(s->len.written, next, keep);
        uint32_t chunk = lower / v.align_tokens * v.align_tokens;

        if (l->family != FAMILY_HISTORY && chunk < low)
            low = chunk;
        if (l->family == FAMILY_WINDOW && lower / l->page_tokens > s->slid[g])
            s->slid[g] = lower / l->page_tokens;
    }
    if (low > s->low)
        s->low = low;
}

static void lengths_are_in_order(const struct rig_session *s)
{
    if (s->len.committed > s->len.written || s->len.written > s->len.allocated)
        rig_fail("S1: committed %u, written %u, allocated %u", s->len.committed, s->len.written,
                 s->len.allocated);
}

static void take_runs(struct rig_session *s, const struct table_run *runs, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        if (runs[i].group >= GROUPS_MAX || runs[i].first + runs[i].n > RIG_TABLE_MAX)
            rig_fail("a run at [%u][%u, +%u)", runs[i].group, runs[i].first, runs[i].n);
        for (uint32_t k = 0; k < runs[i].n; k++)
            if (!runs[i].refs[k].index)
                rig_fail("index 0 was handed out");
        memcpy(&s->table[runs[i].group][runs[i].first], runs[i].refs,
               runs[i].n * sizeof(struct page_ref));
        if (runs[i].from.index)
            copy_state(s, &runs[i]);
    }
}

/* S11: a Fetch has replaced what the session had computed up to there. The Fetch's answer names the
 * pages of a WINDOW group that the window needs, but not those that have left the table. */
static void leave_computed(struct rig_session *s, uint32_t committed)
{
    struct pool_view v;

    if (!core_pool_view(s->rig->core, s->pool.slot, &v))
        return;
    for (uint32_t g = 0; g < v.ngroups; g++) {
        const struct group_layout *l = &v.group[g].layout;
        uint32_t end = s->len.committed / l->page_tokens;

        for (uint32_t p = committed / l->page_tokens; l->family == FAMILY_WINDOW && p < end; p++)
            s->table[g][p] = (struct page_ref){0, 0};
    }
}

static void append(struct rig_session *s, const struct req_tokens *tokens)
{
    if (tokens->base + tokens->n > RIG_TOKENS_MAX)
        rig_fail("%u tokens are too many for the rig", tokens->base + tokens->n);
    if (tokens->n)
        memmove(s->tokens + tokens->base, tokens->v, tokens->n * sizeof(uint32_t));
    while (s->nkeys && s->keys[s->nkeys - 1].position >= tokens->base)
        s->nkeys--;
    for (uint32_t k = 0; k < tokens->nkeys && s->nkeys < RIG_KEYS_MAX; k++)
        s->keys[s->nkeys++] = tokens->keys[k];
}

enum tern_err rig_match_full(struct rig_session *s, const struct req_tokens *tokens, uint64_t step)
{
    const struct reply *reply =
        ask(s->rig, s->conn,
            (struct request){.op = OP_MATCH,
                             .match = {.session = s->id, .tokens = *tokens, .step = step}});
    struct lengths before;

    if (reply->err != TERN_OK)
        return reply->err;
    append(s, tokens);
    before = s->len;
    s->len = reply->match.lengths;
    s->ntokens = reply->match.tokens;
    s->matched = reply->match.matched;
    take_runs(s, reply->runs, reply->nruns);
    trim_table(s, &before);
    return TERN_OK;
}

enum tern_err rig_match(struct rig_session *s, const uint32_t *tokens, uint32_t n)
{
    struct req_tokens t = {.v = tokens, .n = n};

    return rig_match_full(s, &t, 0);
}

enum tern_err rig_peek_keys(struct rig_session *like, const struct req_tokens *tokens,
                            uint32_t *ret_depth)
{
    const struct reply *reply =
        ask(like->rig, like->conn,
            (struct request){.op = OP_PEEK,
                             .peek = {.pool = like->pool, .ns = like->ns, .tokens = *tokens}});

    if (reply->err == TERN_OK)
        *ret_depth = reply->peek.depth;
    return reply->err;
}

enum tern_err rig_peek(struct rig_session *like, const uint32_t *tokens, uint32_t n,
                       uint32_t *ret_depth)
{
    struct req_tokens t = {.v = tokens, .n = n};

    return rig_peek_keys(like, &t, ret_depth);
}

uint32_t rig_depth(struct rig_session *like, const uint32_t *tokens, uint32_t n)
{
    uint32_t depth = 0;
    enum tern_err err = rig_peek(like, tokens, n, &depth);

    if (err != TERN_OK)
        rig_fail("Peek answers %d", err);
    return depth;
}

const struct reply *rig_step_ops(struct rig *rig, uint32_t conn, const struct step_op *ops,
                                 uint32_t n)
{
    return ask(rig, conn,
               (struct request){.op = OP_STEP, .step = {.ops = ops, .n = n, .pieces = true}});
}

void rig_take(struct rig_session *s, const struct reply *reply, const struct op_result *result)
{
    struct lengths before = s->len;

    if (result->first_run + result->nruns > reply->nruns)
        rig_fail("a result names runs [%u, +%u) of %u", result->first_run, result->nruns,
                 reply->nruns);
    if (result->err == TERN_GONE)
        return;
    s->len = result->lengths;
    s->ntokens = result->tokens;
    lengths_are_in_order(s);
    take_runs(s, result->nruns ? reply->runs + result->first_run : NULL, result->nruns);
    trim_table(s, &before);
}

/* A piece of an operation: see rig_op. */
static enum tern_err op_piece(struct rig_session *s, struct step_op op)
{
    const struct reply *reply;
    uint32_t t = s->len.committed;

    op.session = s->id;
    reply = ask(s->rig, s->conn,
                (struct request){.op = OP_STEP, .step = {.ops = &op, .n = 1, .pieces = true}});
    memset(&s->rig->res, 0, sizeof s->rig->res);
    if (reply->err != TERN_OK)
        return reply->err;
    if (reply->step.n != 1)
        rig_fail("a Step of one answers %u results", reply->step.n);
    s->rig->res = reply->step.results[0];
    if (s->rig->res.err == TERN_OK && op.kind == STEP_EXTEND && op.tokens.n)
        append(s, &op.tokens);
    rig_take(s, reply, &s->rig->res);
    if ((op.kind == STEP_COMMIT && op.length > t && s->rig->res.err == TERN_OK) ||
        (op.kind == STEP_SLIDE && s->rig->res.err == TERN_OK)) {
        slide(s, op.kind == STEP_SLIDE ? op.length : 0);
        trim_table(s, &s->len);
    }
    return s->rig->res.err;
}

/* Repeated as by libtern, if one step of the core is too short for it. */
enum tern_err rig_op(struct rig_session *s, struct step_op op)
{
    enum tern_err err;

    do
        err = op_piece(s, op);
    while (op_goes_on(&s->rig->res));
    return err;
}

enum tern_err rig_extend(struct rig_session *s, uint32_t allocated, uint32_t written,
                         const uint32_t *tokens, uint32_t n)
{
    return rig_op(s, (struct step_op){.kind = STEP_EXTEND,
                                      .length = allocated,
                                      .written = written,
                                      .tokens = {.v = tokens, .n = n, .base = s->ntokens}});
}

enum tern_err rig_run_to(struct rig_session *s, const uint32_t *tokens, uint32_t to)
{
    uint32_t from = s->len.written, have = s->ntokens;
    enum tern_err err;

    err =
        rig_extend(s, to > s->len.allocated ? to : 0, 0, tokens + have, to > have ? to - have : 0);
    if (err != TERN_OK)
        return err;
    rig_write(s, from, to);
    return rig_extend(s, 0, to, NULL, 0);
}

enum tern_err rig_rewind(struct rig_session *s, uint32_t p, uint64_t step)
{
    return rig_op(s, (struct step_op){.kind = STEP_REWIND, .length = p, .step = step});
}

enum tern_err rig_commit(struct rig_session *s, uint32_t depth, uint64_t step)
{
    return rig_op(s, (struct step_op){.kind = STEP_COMMIT, .length = depth, .step = step});
}

enum tern_err rig_finish(struct rig_session *s, uint32_t length, uint64_t step)
{
    return rig_op(s, (struct step_op){.kind = STEP_FINISH, .length = length, .step = step});
}

enum tern_err rig_abort(struct rig_session *s, uint64_t step)
{
    return rig_op(s, (struct step_op){.kind = STEP_ABORT, .step = step});
}

enum tern_err rig_close(struct rig_session *s, uint64_t step)
{
    return rig_op(s, (struct step_op){.kind = STEP_CLOSE, .step = step});
}

enum tern_err rig_slide(struct rig_session *s, uint32_t next, uint64_t step)
{
    return rig_op(s, (struct step_op){.kind = STEP_SLIDE, .length = next, .step = step});
}

enum tern_err rig_snapshot_release(struct rig_session *s)
{
    return rig_op(s, (struct step_op){.kind = STEP_RELEASE});
}

struct rig_session *rig_committed(struct rig *rig, const struct rig_engine *e, struct pool_id pool,
                                  uint32_t seed, uint32_t depth)
{
    struct rig_session *s = rig_session(rig, e, pool, 1);
    const uint32_t *tokens = rig_tokens(seed, depth);

    if (rig_match(s, tokens, depth) != TERN_OK || rig_run_to(s, tokens, depth) != TERN_OK ||
        rig_commit(s, depth, 0) != TERN_OK)
        rig_fail("committing %u tokens of sequence %u failed: %d", depth, seed, rig->res.err);
    if (s->len.committed != depth)
        rig_fail("committed %u of %u tokens", s->len.committed, depth);
    return s;
}

void rig_put(struct rig *rig, const struct rig_engine *e, struct pool_id pool, uint32_t seed,
             uint32_t depth)
{
    struct rig_session *s = rig_committed(rig, e, pool, seed, depth);

    if (rig_close(s, 0) != TERN_OK)
        rig_fail("closing failed: %d", rig->res.err);
    rig_session_free(s);
}

uint32_t rig_evict(struct rig *rig, uint32_t admin_conn, struct pool_id pool, uint32_t nodes)
{
    const struct reply *reply = ask(
        rig, admin_conn, (struct request){.op = OP_EVICT, .evict = {.pool = pool, .nodes = nodes}});

    if (reply->err != TERN_OK)
        rig_fail("evict answers %d", reply->err);
    return reply->evict.nodes;
}

uint64_t rig_fetch(struct rig_session *s, uint32_t peer, uint32_t depth)
{
    struct request request = {.op = OP_FETCH,
                              .fetch = {.session = s->id,
                                        .peer = peer,
                                        .depth = depth,
                                        .at_least = s->at_least,
                                        .wait_ms = s->wait_ms,
                                        .prefetch = s->prefetch,
                                        .step = s->fetch_step}};

    if (rig_request(s->rig, s->conn, &request))
        rig_fetched(s, request.request_id);
    s->fetch = request.request_id;
    return s->fetch;
}

/* Checks an answer that came later. */
static void names_the_asker(const struct rig_session *s, const struct reply *reply)
{
    if (reply->conn != s->conn)
        rig_fail("the reply to request %llu goes to connection %u, not %u",
                 (unsigned long long)reply->request_id, reply->conn, s->conn);
}

enum tern_err rig_fetched(struct rig_session *s, uint64_t request_id)
{
    const struct reply *reply = rig_reply_to(s->rig, request_id);
    struct lengths before;

    if (!reply)
        return TERN_BUSY;
    names_the_asker(s, reply);
    if (reply->fetch.lengths.committed < s->len.committed)
        return reply->err; /* the session is gone: the answer has no lengths */
    before = s->len;
    s->len = reply->fetch.lengths;
    if (s->len.committed > before.committed)
        before.written = UINT32_MAX; /* S11: its own tail is gone */
    trim_table(s, &before);
    leave_computed(s, before.committed);
    take_runs(s, reply->runs, reply->nruns);
    trim_table(s, &s->len);
    return reply->err;
}

enum tern_err rig_fetch_cancel(struct rig_session *s)
{
    return ask(s->rig, s->conn,
               (struct request){.op = OP_FETCH_CANCEL, .fetch_cancel.session = s->id})
        ->err;
}

/* --- retract, recover, reset, pins --- */

static void forget_table(struct rig_session *s)
{
    memset(s->table, 0, sizeof s->table);
}

enum tern_err rig_retract(struct rig_session *s, enum retract_mode mode, uint64_t step)
{
    const struct reply *reply =
        ask(s->rig, s->conn,
            (struct request){.op = OP_RETRACT,
                             .retract = {.session = s->id, .mode = mode, .step = step}});

    if (reply->err != TERN_OK)
        return reply->err;
    s->len = reply->retract.lengths;
    s->rig->free_now = reply->retract.free_now;
    s->rig->free_at_step = reply->retract.free_at_step;
    lengths_are_in_order(s);
    forget_table(s);
    return TERN_OK;
}

uint64_t rig_recover(struct rig_session *s)
{
    struct request request = {.op = OP_RECOVER, .recover.session = s->id};

    if (rig_request(s->rig, s->conn, &request))
        rig_recovered(s, request.request_id);
    return request.request_id;
}

enum tern_err rig_recovered(struct rig_session *s, uint64_t request_id)
{
    const struct reply *reply = rig_reply_to(s->rig, request_id);
    struct lengths before = s->len;

    if (!reply)
        return TERN_BUSY;
    names_the_asker(s, reply);
    if (reply->err != TERN_OK)
        return reply->err;
    s->len = reply->recover.lengths;
    s->ntokens = reply->recover.tokens;
    if (s->len.committed > before.committed)
        rig_fail("S10: T was %u and came back as %u", before.committed, s->len.committed);
    forget_table(s);
    memset(s->slid, 0, sizeof s->slid); /* the answer has the whole table, with all that had left */
    s->low = 0;
    take_runs(s, reply->runs, reply->nruns);
    trim_table(s, &before);
    return TERN_OK;
}

enum tern_err rig_recover_now(struct rig_session *s)
{
    uint64_t request_id = rig_recover(s);

    if (!rig_reply_to(s->rig, request_id))
        rig_fail("Recover got no answer");
    return rig_recovered(s, request_id);
}

enum tern_err rig_reset(struct rig *rig, uint32_t conn, uint64_t ns, uint32_t *ret_nodes)
{
    const struct reply *reply =
        ask(rig, conn,
            (struct request){.op = OP_NAMESPACE_RESET, .namespace_reset.ns = {.hi = 1, .lo = ns}});

    if (reply->err == TERN_OK && ret_nodes)
        *ret_nodes = reply->namespace_reset.nodes;
    return reply->err;
}

enum tern_err rig_pin(struct rig *rig, uint32_t admin_conn, struct node_id node, bool on)
{
    return ask(rig, admin_conn, (struct request){.op = OP_PIN, .pin = {.node = node, .on = on}})
        ->err;
}

/* Inbound links come from the configured peers in their order. */
static uint32_t rig_peer_of(const struct rig *rig, uint32_t link)
{
    uint32_t peers = rig->options.limits.peers;

    return link < peers ? link : peers ? (link - peers) % peers : 0;
}

static void link_event(struct rig *rig, enum event_kind kind, uint32_t link, uint64_t incarnation)
{
    rig_event(rig, &(struct event){.kind = kind,
                                   .link = {.link = link,
                                            .peer = rig_peer_of(rig, link),
                                            .incarnation = incarnation,
                                            .tenants = UINT64_MAX}});
}

void rig_link_up(struct rig *a, uint32_t link_a, struct rig *b, uint32_t link_b)
{
    a->link[link_a].rig = b;
    a->link[link_a].link = link_b;
    b->link[link_b].rig = a;
    b->link[link_b].link = link_a;
    /* The called end learns of the link first. */
    link_event(b, EV_LINK_UP, link_b, a->options.incarnation);
    link_event(a, EV_LINK_UP, link_a, b->options.incarnation);
}

/* At one end. */
static void hears_link_down(struct rig *rig, uint32_t link)
{
    rig_lose_messages(rig, link);
    rig->link[link].rig = NULL;
    link_event(rig, EV_LINK_DOWN, link, 0);
}

void rig_link_down(struct rig *a, uint32_t link_a)
{
    struct rig *b = a->link[link_a].rig;
    uint32_t link_b = a->link[link_a].link;

    hears_link_down(a, link_a);
    if (b)
        hears_link_down(b, link_b);
}
