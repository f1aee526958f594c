/* Helpers for tests of sessions that are followed: a ticket that is made early, a fetch that
 * follows it, and waits for its progress. Header only. */
#ifndef TEST_RIG_FOLLOW_H
#define TEST_RIG_FOLLOW_H

#include "unit/rig/rig_ticket.h"

/* Returns the whole answer. */
static inline const struct reply *ticket_open_full(struct rig_session *s, uint32_t ms)
{
    struct request request = {.op = OP_TICKET_OPEN,
                              .ticket_open = {.session = s->id, .deadline_ms = ms}};

    request.ticket_open.key[0] = TICKET_KEY_HI;
    request.ticket_open.key[1] = TICKET_KEY_LO + 1; /* not that of a Handoff */
    return rig_request(s->rig, s->conn, &request);
}

static inline struct ticket ticket_early(struct rig_session *s)
{
    const struct reply *r = ticket_open_full(s, 0);

    assert_ok(r->err);
    assert_int_equal(r->ticket_open.ticket.length, 0);
    return r->ticket_open.ticket;
}

static inline uint64_t follow_at(struct rig_session *d, struct ticket t, uint64_t step)
{
    struct request request = {
        .op = OP_FETCH,
        .fetch = {.session = d->id, .peer = 0, .ticket = t, .step = step, .follow = true}};

    if (rig_request(d->rig, d->conn, &request))
        rig_fetched(d, request.request_id);
    d->fetch = request.request_id;
    return d->fetch;
}

static inline uint64_t follow(struct rig_session *d, struct ticket t)
{
    return follow_at(d, t, 0);
}

/* Returns the request's id. */
static inline uint64_t fetch_wait_for(struct rig_session *d, uint32_t above)
{
    struct request request = {.op = OP_FETCH_WAIT,
                              .fetch_wait = {.session = d->id, .above = above}};

    rig_request(d->rig, d->conn, &request);
    return request.request_id;
}

/* The written length that the session's fetch has reached. */
static inline uint32_t come_so_far(struct rig_session *d)
{
    struct request request = {.op = OP_FETCH_WAIT, .fetch_wait = {.session = d->id, .pages = true}};
    const struct reply *r = rig_request(d->rig, d->conn, &request);

    assert_ok(r->err);
    return r->fetch_wait.lengths.written;
}

/* The source runs on to `to` tokens of the sequence, and commits whole chunks. */
static inline void goes_on(struct rig_session *s, uint32_t seed, uint32_t to, uint64_t step)
{
    const uint32_t align = rig_pool_view(s->rig, s->pool).align_tokens;

    assert_ok(rig_run_to(s, rig_tokens(seed, to), to));
    if (to / align * align > s->len.committed)
        assert_ok(rig_commit(s, to / align * align, step));
}

/* A session of the source that has matched [0, LEN) of sequence 1, and a destination session. */
struct followed {
    struct pair p;
    struct rig_session *s, *d;
    struct ticket t;
};

static inline struct followed begin_with(struct pair p)
{
    struct followed f = {.p = p};

    f.s = session_with(f.p.source, &f.p.se, f.p.sp, 1, LEN);
    f.d = asking(&f.p, 1, LEN);
    f.t = ticket_early(f.s);
    return f;
}

static inline struct followed begin(void)
{
    return begin_with(pair_limited(1 << 20));
}

#endif
