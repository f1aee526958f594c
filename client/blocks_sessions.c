/* See blocks.h. Requests of many sessions go out behind one another, and their answers are taken in
 * the same order; loads are answered in any order, and are polled. */
#include "blocks.h"

#include "base/err.h"

#define ROUND_SHIFT 8 /* a cookie is a round of loads, and below it the session's place */

_Static_assert(BLOCKS_SESSIONS <= TERN_INFLIGHT_MAX, "each may have a load under way");
_Static_assert(BLOCKS_SESSIONS <= 1u << ROUND_SHIFT, "a cookie has room for each");

/* Closes those that are dirty. Where the daemon says no, it has none. */
static enum tern_err close_dirty(struct tern_block_set *set, struct block_sessions *s,
                                 uint64_t deadline_ns)
{
    const struct tern_result *results;
    uint32_t done;

    if (s->dirty == 0)
        return TERN_OK;
    tern_batch_clear(set->batch);
    for (uint32_t i = 0; i < BLOCKS_SESSIONS; i++)
        if (s->dirty & 1ull << i)
            TRY(tern_batch_session_close(set->batch, s->v[i], TERN_STEP_NONE));
    set->counts.requests++;
    TRY(tern_batch_run(set->batch, blocks_left_ms(deadline_ns), &results, &done));
    for (uint32_t i = 0; i < BLOCKS_SESSIONS; i++)
        if (s->dirty & 1ull << i)
            s->v[i] = 0;
    s->dirty = 0;
    return TERN_OK;
}

/* Asks for one session at each place below n that has none. */
static enum tern_err ask_sessions(struct tern_block_set *set, const struct block_sessions *s,
                                  uint32_t n, uint64_t deadline_ns, struct call *calls)
{
    Tern__Wire__SessionOpen m = TERN__WIRE__SESSION_OPEN__INIT;
    Tern__Wire__Namespace ns;

    TRY(put_namespace(set->t, &set->ns, &ns));
    m.has_pool = 1;
    m.pool = set->pool;
    m.ns = &ns;
    for (uint32_t i = 0; i < n; i++) {
        if (s->v[i] != 0)
            continue;
        TRY(call_start_by(set->t, FRAME_SESSION_OPEN, deadline_ns, &calls[i]));
        TRY(call_put(set->t, &calls[i], 0, &m.base));
    }
    return TERN_OK;
}

enum tern_err sessions_ready(struct tern_block_set *set, struct block_sessions *s, uint32_t n,
                             uint64_t deadline_ns)
{
    struct call calls[BLOCKS_SESSIONS];
    const ProtobufCMessage *msg;
    enum tern_err first = TERN_OK;
    bool asked = false;

    TRY(close_dirty(set, s, deadline_ns));
    for (uint32_t i = 0; i < n; i++)
        asked |= s->v[i] == 0;
    if (!asked)
        return TERN_OK;
    set->counts.requests++;
    /* A session whose answer comes too late for anybody is closed by pending.c. */
    TRY(ask_sessions(set, s, n, deadline_ns, calls));
    for (uint32_t i = 0; i < n; i++) {
        enum tern_err err;

        if (s->v[i] != 0)
            continue;
        err = call_answer(set->t, &calls[i], &msg);
        if (err == TERN_OK)
            s->v[i] = ((const Tern__Wire__SessionOpenReply *)msg)->session;
        else if (first == TERN_OK)
            first = err;
        if (err == TERN_DAEMON_LOST || err == TERN_MALFORMED || err == TERN_TIMED_OUT)
            return err;
    }
    return first;
}

void sessions_rest(struct tern_block_set *set, uint32_t n, uint64_t deadline_ns)
{
    const struct tern_result *results;
    uint32_t done = 0;

    tern_batch_clear(set->batch);
    for (uint32_t i = 0; i < n; i++)
        if (tern_batch_abort(set->batch, set->loads.v[i], TERN_STEP_NONE) != TERN_OK)
            break;
    set->counts.requests++;
    if (tern_batch_count(set->batch) != n ||
        tern_batch_run(set->batch, blocks_left_ms(deadline_ns), &results, &done) != TERN_OK)
        done = 0;
    for (uint32_t i = 0; i < n; i++)
        if (i >= done || results[i].err != TERN_OK)
            set->loads.dirty |= 1ull << i;
    tern_batch_clear(set->batch);
}

/* ---- loading ---- */

/* The index of the page of a block, as a result names it; 0: the result names none. */
static uint32_t page_of(const struct tern_result *r)
{
    if (r->err != TERN_OK || r->lengths.committed != BLOCK_TOKENS || r->nruns == 0 ||
        r->runs[0].n != 1)
        return 0;
    return r->runs[0].pages[0].index;
}

/* Which tier a session that has matched is to fetch its block from; false: from none. */
static bool tier_of(const struct tern_result *r, const char **ret_peer)
{
    *ret_peer = r->host_depth == BLOCK_TOKENS ? NULL : TERN_PEER_DISK;
    return r->err == TERN_OK && r->matched != BLOCK_TOKENS &&
           (r->host_depth == BLOCK_TOKENS || r->disk_depth == BLOCK_TOKENS);
}

/* Matches all, and says which sessions are to load and from where. */
static enum tern_err match_all(struct tern_block_set *set, const uint32_t *at, uint32_t n,
                               uint64_t deadline_ns, uint32_t *ret_pages, const char **ret_peers,
                               uint64_t *ret_load)
{
    struct call calls[BLOCKS_SESSIONS];

    for (uint32_t i = 0; i < n; i++) {
        const struct tern_tokens key = {.v = set->words[at[i]], .n = BLOCK_TOKENS};
        struct quick_request q = {.type = FRAME_MATCH,
                                  .session = set->loads.v[i],
                                  .match = {.tokens = &key, .step = TERN_STEP_NONE}};

        TRY(call_start_by(set->t, q.type, deadline_ns, &calls[i]));
        TRY(call_put_quick(set->t, &calls[i], &q));
    }
    set->counts.requests++;
    for (uint32_t i = 0; i < n; i++) {
        struct tern_result r;
        const uint8_t *body;
        uint32_t bytes;

        TRY(call_wait(set->t, &calls[i], &body, &bytes));
        if (!quick_get(calls[i].reply_type, body, bytes, &set->t->store, &r))
            return not_an_answer(set->t, TERN_MALFORMED);
        ret_pages[i] = page_of(&r);
        if (tier_of(&r, &ret_peers[i]))
            *ret_load |= 1ull << i;
    }
    return TERN_OK;
}

/* Takes answers to the loads of this round until all are there. */
static enum tern_err await_loads(struct tern_block_set *set, uint64_t waiting, uint64_t deadline_ns,
                                 uint32_t *ret_pages)
{
    struct tern_answer a;

    while (waiting != 0) {
        enum tern_err err = tern_poll(set->t, &a);

        if (err == TERN_BUSY) {
            TRY(call_round(set->t, deadline_ns));
            continue;
        }
        TRY(err);
        if (a.cookie >> ROUND_SHIFT != set->round)
            continue; /* a call before this one did not wait for it */
        waiting &= ~(1ull << (a.cookie & ((1u << ROUND_SHIFT) - 1)));
        if (a.err != TERN_DAEMON_LOST && a.n == 1)
            ret_pages[a.cookie & ((1u << ROUND_SHIFT) - 1)] = page_of(&a.results[0]);
    }
    return TERN_OK;
}

enum tern_err sessions_load(struct tern_block_set *set, const uint32_t *at, uint32_t n,
                            uint64_t deadline_ns, uint32_t *ret_pages)
{
    const char *peers[BLOCKS_SESSIONS];
    uint64_t load = 0, submitted = 0;
    enum tern_err err;

    set->loads.dirty |= sessions_below(n); /* until sessions_rest knows better */
    err = match_all(set, at, n, deadline_ns, ret_pages, peers, &load);
    if (err != TERN_OK || load == 0)
        goto out;
    set->round++;
    set->counts.requests++;
    for (uint32_t i = 0; i < n && err == TERN_OK; i++) {
        if (!(load & 1ull << i))
            continue;
        err = tern_submit_fetch(set->t, set->loads.v[i], peers[i], 0, 0, TERN_STEP_NONE,
                                set->round << ROUND_SHIFT | i);
        if (err == TERN_OK)
            submitted |= 1ull << i;
        else if (err == TERN_BUSY)
            err = TERN_OK; /* one block less */
    }
    if (err == TERN_OK)
        err = await_loads(set, submitted, deadline_ns, ret_pages);
    set->counts.loads += (uint32_t)__builtin_popcountll(submitted);
out:
    if (err == TERN_OK)
        set->loads.dirty &= ~sessions_below(n);
    return err;
}
