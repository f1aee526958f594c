/* See blocks.h. Requests of many sessions are sent one after the other, and their answers are taken
 * in the same order; loads are answered in any order, and are polled. */
#include "blocks.h"

#include <string.h>

#include "base/err.h"

#define ROUND_SHIFT 8 /* a cookie is a round of loads << ROUND_SHIFT | the session's place */

_Static_assert(BLOCKS_SESSIONS <= TERN_INFLIGHT_MAX, "each may have a load under way");
_Static_assert(BLOCKS_SESSIONS <= 1u << ROUND_SHIFT, "a cookie has room for each");

/* Closes the sessions in v (0: none) by one request. Sets to 0 each session that the daemon no
 * longer has. BUSY: the daemon still has some. */
static enum tern_err close_some(struct tern_block_set *set, tern_session *v, uint32_t n,
                                uint64_t deadline_ns)
{
    const struct tern_result *results;
    uint32_t done, op = 0, left = 0;

    tern_batch_clear(set->batch);
    for (uint32_t i = 0; i < n; i++)
        if (v[i] != 0)
            TRY(tern_batch_session_close(set->batch, v[i], TERN_STEP_NONE));
    if (tern_batch_count(set->batch) == 0)
        return TERN_OK;
    set->counts.requests++;
    TRY(tern_batch_run(set->batch, blocks_left_ms(deadline_ns), &results, &done));
    for (uint32_t i = 0; i < n; i++) {
        if (v[i] == 0)
            continue;
        if (op < done && results[op].err != TERN_BUSY)
            v[i] = 0; /* closed, or GONE: a late answer had closed it */
        left += v[i] != 0;
        op++;
    }
    return left == 0
               ? TERN_OK
               : set_error(set->t, TERN_BUSY, "no session of the set can be closed now: retry");
}

enum tern_err sessions_close(struct tern_block_set *set, tern_session *v, uint32_t n,
                             uint64_t deadline_ns)
{
    for (uint32_t from = 0; from < n; from += BLOCKS_SESSIONS) {
        const uint32_t some = n - from < BLOCKS_SESSIONS ? n - from : BLOCKS_SESSIONS;
        enum tern_err err;

        do
            err = close_some(set, v + from, some, deadline_ns);
        while (err == TERN_BUSY && blocks_nap(set, deadline_ns));
        TRY(err);
    }
    return TERN_OK;
}

/* Closes the dirty sessions. */
static enum tern_err close_dirty(struct tern_block_set *set, struct block_sessions *s,
                                 uint64_t deadline_ns)
{
    tern_session v[BLOCKS_SESSIONS];
    enum tern_err err;

    if (s->dirty == 0)
        return TERN_OK;
    for (uint32_t i = 0; i < BLOCKS_SESSIONS; i++)
        v[i] = s->dirty & 1ull << i ? s->v[i] : 0;
    err = sessions_close(set, v, BLOCKS_SESSIONS, deadline_ns);
    for (uint32_t i = 0; i < BLOCKS_SESSIONS; i++)
        if (s->dirty & 1ull << i && v[i] == 0) {
            s->v[i] = 0;
            s->dirty &= ~(1ull << i);
        }
    return err;
}

void sessions_leave(struct tern_block_set *set, const tern_session *v, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        set->left[set->nleft++] = v[i];
}

void sessions_close_left(struct tern_block_set *set, uint64_t deadline_ns)
{
    enum tern_err err = TERN_OK;
    uint32_t left = 0;

    for (uint32_t at = 0, n; at < set->nleft && (err == TERN_OK || err == TERN_BUSY); at += n) {
        n = set->nleft - at < BLOCKS_SESSIONS ? set->nleft - at : BLOCKS_SESSIONS;
        err = close_some(set, set->left + at, n, deadline_ns);
    }
    for (uint32_t i = 0; i < set->nleft; i++)
        if (set->left[i] != 0)
            set->left[left++] = set->left[i];
    set->pinned -= set->nleft - left;
    set->nleft = left;
}

/* Opens one session at each place below n that has none. */
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

    sessions_close_left(set, deadline_ns);
    TRY(close_dirty(set, s, deadline_ns));
    for (uint32_t i = 0; i < n; i++)
        asked |= s->v[i] == 0;
    if (!asked)
        return TERN_OK;
    set->counts.requests++;
    /* pending.c closes a session whose answer arrives too late. */
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
    char text[QUICK_TEXT_MAX]; /* of an earlier error */
    uint32_t done = 0;

    memcpy(text, set->t->text, sizeof text);
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
    memcpy(set->t->text, text, sizeof text);
}

/* ---- loading ---- */

/* Returns the index of a block's page from a result; 0: the result names none. */
static uint32_t page_of(const struct tern_result *r)
{
    if (r->err != TERN_OK || r->lengths.committed != BLOCK_TOKENS || r->nruns == 0 ||
        r->runs[0].n != 1)
        return 0;
    return r->runs[0].pages[0].index;
}

/* Chooses the tier, or peer (`host`; NULL: none), from which a session that has matched fetches its
 * block. Returns false if there is none. */
static bool tier_of(const struct tern_result *r, const char *host, const char **ret_peer)
{
    *ret_peer = r->host_depth == BLOCK_TOKENS   ? NULL
                : r->disk_depth == BLOCK_TOKENS ? TERN_PEER_DISK
                                                : host;
    return r->err == TERN_OK && r->matched != BLOCK_TOKENS &&
           (*ret_peer || r->host_depth == BLOCK_TOKENS);
}

/* Matches all, and returns which sessions must load and from where. */
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
        if (tier_of(&r, block_host(set, at[i]), &ret_peers[i]))
            *ret_load |= 1ull << i;
    }
    return TERN_OK;
}

/* Takes one answer to a load, or waits for one. A load that an earlier call stopped waiting for is
 * answered, too, and occupies its slot among the requests under way until then. */
static enum tern_err take_load(struct tern_block_set *set, uint64_t *waiting, uint64_t deadline_ns,
                               uint32_t *ret_pages)
{
    struct tern_answer a;
    enum tern_err err = tern_poll(set->t, &a);
    uint32_t i;

    if (err == TERN_BUSY)
        return call_round(set->t, deadline_ns);
    TRY(err);
    if (a.cookie >> ROUND_SHIFT != set->round)
        return TERN_OK;
    i = a.cookie & ((1u << ROUND_SHIFT) - 1);
    *waiting &= ~(1ull << i);
    if (a.err != TERN_DAEMON_LOST && a.n == 1)
        ret_pages[i] = page_of(&a.results[0]);
    return TERN_OK;
}

/* Starts all loads and takes their answers. */
static enum tern_err load_all(struct tern_block_set *set, uint64_t load, const char *const *peers,
                              uint64_t deadline_ns, uint32_t *ret_pages)
{
    uint64_t waiting = 0;

    set->round++;
    set->counts.requests++;
    for (uint32_t i = 0; i < BLOCKS_SESSIONS; i++) {
        enum tern_err err;

        if (!(load & 1ull << i))
            continue;
        while (
            (err = tern_submit_fetch(set->t, set->loads.v[i],
                                     &(struct tern_fetch){.peer = peers[i], .step = TERN_STEP_NONE},
                                     set->round << ROUND_SHIFT | i)) == TERN_BUSY)
            TRY(take_load(set, &waiting, deadline_ns, ret_pages));
        TRY(err);
        waiting |= 1ull << i;
        set->counts.loads++;
    }
    while (waiting != 0)
        TRY(take_load(set, &waiting, deadline_ns, ret_pages));
    return TERN_OK;
}

enum tern_err sessions_load(struct tern_block_set *set, const uint32_t *at, uint32_t n,
                            uint64_t deadline_ns, uint32_t *ret_pages)
{
    const char *peers[BLOCKS_SESSIONS];
    uint64_t load = 0;
    enum tern_err err;

    set->loads.dirty |= sessions_below(n); /* until sessions_rest clears it */
    err = match_all(set, at, n, deadline_ns, ret_pages, peers, &load);
    if (err == TERN_OK && load != 0)
        err = load_all(set, load, peers, deadline_ns, ret_pages);
    if (err == TERN_OK)
        set->loads.dirty &= ~sessions_below(n);
    return err;
}
