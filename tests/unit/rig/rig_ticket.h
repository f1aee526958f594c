/* Helpers for tests of tickets: a session that is handed over at the source, with a tail behind its
 * committed length and a blob, and one at the destination that fetches it. Header only. */
#ifndef TEST_RIG_TICKET_H
#define TEST_RIG_TICKET_H

#include "unit/rig/rig_pair.h"
#include "unit/rig/rig_state.h"

#define FULL 40 /* whole chunks of 4 tokens */
#define LEN  42 /* length of most tickets: half a page more */

#define TICKET_KEY_HI 0x1122334455667788u
#define TICKET_KEY_LO 0x99aabbccddeeff00u

/* Returns the whole answer. If it is OK, the session is the ticket's. */
static inline const struct reply *hand_over_full(struct rig_session *s, struct req_handoff r)
{
    struct request request = {.op = OP_HANDOFF, .handoff = r};

    request.handoff.session = s->id;
    request.handoff.key[0] = TICKET_KEY_HI;
    request.handoff.key[1] = TICKET_KEY_LO;
    return rig_request(s->rig, s->conn, &request);
}

/* With a blob of `blob` words: i * 7. */
static inline struct ticket hand_over(struct rig_session *s, uint64_t step, uint32_t blob)
{
    uint32_t words[TICKET_WORDS];
    const struct reply *r;

    for (uint32_t i = 0; i < blob; i++)
        words[i] = i * 7;
    r = hand_over_full(s, (struct req_handoff){.step = step,
                                               .blob_bytes = blob * 4,
                                               .blob = {.v = words, .n = blob}});
    assert_ok(r->err);
    assert_int_equal(r->handoff.ticket.length, s->len.written);
    return r->handoff.ticket;
}

static inline uint64_t ticket_fetch_at(struct rig_session *d, struct ticket t, uint64_t step)
{
    struct request request = {.op = OP_FETCH,
                              .fetch = {.session = d->id, .peer = 0, .ticket = t, .step = step}};

    if (rig_request(d->rig, d->conn, &request))
        rig_fetched(d, request.request_id);
    d->fetch = request.request_id;
    return d->fetch;
}

static inline uint64_t ticket_fetch(struct rig_session *d, struct ticket t)
{
    return ticket_fetch_at(d, t, 0);
}

/* Returns the fetch's error; the answer must be there. */
static inline enum tern_err ticket_fetched(struct rig_session *d, struct ticket t)
{
    return rig_fetched(d, ticket_fetch(d, t));
}

static inline bool blob_came(struct rig_session *d, uint32_t words)
{
    const struct reply *r = rig_reply_to(d->rig, d->fetch);

    if (r->fetch.blob_bytes != words * 4)
        return false;
    for (uint32_t i = 0; i < words; i++)
        if (r->fetch.blob[i] != i * 7)
            return false;
    return true;
}

static inline enum tern_err ticket_ask(struct rig *rig, uint32_t conn, enum op op, struct ticket t,
                                       uint32_t ms)
{
    struct request request = {.op = op};

    if (op == OP_TICKET_RENEW)
        request.ticket_renew = (struct req_ticket){.ticket = t, .deadline_ms = ms};
    else
        request.ticket_drop = (struct req_ticket){.ticket = t};
    return rig_request(rig, conn, &request)->err;
}

/* The last page of the group in the session's table, full or not, and its bytes. */
static inline uint8_t *last_page(struct rig_session *s, uint32_t group, uint64_t *ret_bytes)
{
    uint32_t pt = rig_group_view(s->rig, s->pool, group).layout.page_tokens;
    struct page_ref ref = s->table[group][(s->len.written - 1) / pt];

    assert_int_not_equal(ref.index, 0);
    return rig_page(s->rig, s->pool.slot, group, ref.index, ret_bytes);
}

static inline void write_last_page(struct rig_session *s, uint32_t group, uint8_t value)
{
    uint64_t n;
    uint8_t *page = last_page(s, group, &n);

    memset(page, value, n);
}

static inline bool last_page_is(struct rig_session *s, uint32_t group, uint8_t value)
{
    uint64_t n;
    const uint8_t *page = last_page(s, group, &n);

    for (uint64_t i = 0; i < n; i++)
        if (page[i] != value)
            return false;
    return true;
}

/* Computes sequence 1 up to LEN at the source, and commits whole chunks. */
static inline struct rig_session *computed(struct pair *p)
{
    struct rig_session *s = session_with(p->source, &p->se, p->sp, 1, LEN);

    run_and_commit(s, rig_tokens(1, LEN), LEN, FULL, 0);
    write_last_page(s, 0, 0x5a);
    return s;
}

static inline struct group_view source_pages(struct pair *p)
{
    return rig_group_view(p->source, p->sp, 0);
}

/* ---- with STATE ---- */

struct state_shape {
    uint32_t align, window_page, window;
};

/* Two hosts whose pools have a HISTORY, a WINDOW and a RECURRENT group. */
static inline struct pair state_pair(struct state_shape shape)
{
    struct group_layout groups[3] = {rig_group(shape.align, 512),
                                     rig_window(shape.window_page, shape.window, 512),
                                     rig_recurrent(shape.align, 512)};
    struct pair p = pair_limited(1 << 20);

    assert_ok(rig_pool_open(p.source, p.se.conn[0], groups, 3, 1u << 19, &p.sp));
    assert_ok(rig_pool_open(p.dest, p.de.conn[0], groups, 3, 1u << 19, &p.dp));
    return p;
}

/* Computes the missing part of [0, n) as an engine does: chunk by chunk, each committed with its
 * STATE. */
static inline struct rig_session *state_computed(struct pair *p, uint32_t align, uint32_t n)
{
    struct rig_session *s = rig_session(p->source, &p->se, p->sp, 1);
    const uint32_t *tokens = rig_tokens(1, n);

    assert_ok(rig_match(s, tokens, n));
    for (uint32_t at = s->len.committed + align; at <= n; at += align) {
        assert_ok(rig_run_to(s, tokens, at));
        assert_ok(rig_commit(s, at, 0));
    }
    assert_ok(rig_run_to(s, tokens, n));
    return s;
}

#endif
