/* The asynchronous form: requests under way in a fixed table, answers handed out one by one.
 * Answers that arrive while a synchronous call waits are copied and kept in the order in which they
 * came; there are never more than TERN_INFLIGHT_MAX, since each belongs to a slot of the table. */
#include "internal.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/err.h"

static const char nonsense_text[] = "the daemon sent what is no answer: the connection is closed";

static void slot_free(struct tern *t, uint32_t slot)
{
    free(t->pending[slot].body);
    subscription_free(t->pending[slot].sub);
    t->pending[slot] = (struct pending){.state = PENDING_FREE};
    t->pending_free |= 1ull << slot;
}

void async_finish(struct tern *t)
{
    for (uint32_t i = 0; i < TERN_INFLIGHT_MAX; i++) {
        free(t->pending[i].body);
        subscription_free(t->pending[i].sub);
    }
}

/* The submitted request that this frame answers, or NULL. */
static struct pending *find(struct tern *t, const struct frame_header *h)
{
    uint32_t slot = h->request_id & ID_SYNC;
    struct pending *p;

    if (slot >= TERN_INFLIGHT_MAX)
        return NULL;
    p = &t->pending[slot];
    if (p->state != PENDING_WAITING && p->state != PENDING_STREAM)
        return NULL;
    return p->id == h->request_id && p->type == h->type ? p : NULL;
}

/* A refusal brings no descriptors: those that are here belong to a frame behind it. */
static bool brought_fds(struct tern *t, const struct frame_header *h, const uint8_t *body)
{
    const Tern__Wire__PoolMapReply *reply;
    const ProtobufCMessage *msg;

    if (wire_decode(&t->budget, h->type, body, h->length, &msg) != TERN_OK)
        return true;
    reply = (const Tern__Wire__PoolMapReply *)msg;
    return !reply->status || !reply->status->err;
}

/* The answer to a call that ran into its deadline is dropped; what was never asked for ends the
 * connection. */
static void drop(struct tern *t, const struct frame_header *h, const uint8_t *body)
{
    bool asked =
        (h->request_id & ID_SYNC) == ID_SYNC && h->request_id >> ID_SLOT_BITS <= t->next_number;

    if (!asked) {
        conn_lose(&t->conn);
        return;
    }
    if (h->type == FRAME_POOL_MAP_REPLY && t->conn.fds_expected > 0) {
        t->conn.fds_expected--;
        if (brought_fds(t, h, body))
            conn_drop_fds(&t->conn);
    }
}

/* A subscription is there once, whatever has come for it. */
static bool is_kept(const struct tern *t, uint32_t slot)
{
    uint32_t at = t->kept_head;

    while (at != NO_SLOT && at != slot)
        at = t->pending[at].next;
    return at == slot;
}

static void keep(struct tern *t, uint32_t slot)
{
    if (is_kept(t, slot))
        return;
    t->pending[slot].next = NO_SLOT;
    if (t->kept_head == NO_SLOT)
        t->kept_head = (uint8_t)slot;
    else
        t->pending[t->kept_tail].next = (uint8_t)slot;
    t->kept_tail = (uint8_t)slot;
}

static void keep_no_more(struct tern *t, uint32_t slot)
{
    uint8_t head = t->kept_head;

    t->kept_head = t->kept_tail = NO_SLOT;
    for (uint32_t at = head, next; at != NO_SLOT; at = next) {
        next = t->pending[at].next;
        if (at != slot)
            keep(t, at);
    }
}

void async_end(struct tern *t, uint32_t slot)
{
    keep_no_more(t, slot);
    slot_free(t, slot);
}

void async_take(struct tern *t, const struct frame_header *h, const uint8_t *body)
{
    struct pending *p = find(t, h);

    if (!p) {
        drop(t, h, body);
        return;
    }
    if (p->sub) {
        if (!subscription_take(t, p, body, h->length)) {
            conn_lose(&t->conn);
            return;
        }
    } else {
        p->body = malloc(h->length);
        if (!p->body) {
            conn_lose(&t->conn);
            return;
        }
        memcpy(p->body, body, h->length);
        p->body_bytes = h->length;
        p->state = PENDING_KEPT;
    }
    keep(t, (uint32_t)(p - t->pending));
}

enum tern_err async_submit(struct tern *t, uint64_t body, uint32_t *ret_slot, uint8_t **ret_frame)
{
    enum tern_err err;

    t->text[0] = '\0';
    if (t->conn.state != CONN_UP)
        return set_error(t, TERN_PEER_LOST, NULL);
    if (!t->pending_free)
        return set_error(t, TERN_BUSY, "TERN_INFLIGHT_MAX requests are under way: tern_poll first");
    err = conn_room(&t->conn, with_trace(t, body), ret_frame);
    if (err == TERN_BUSY && conn_send(&t->conn) != TERN_PEER_LOST)
        err = conn_room(&t->conn, with_trace(t, body), ret_frame);
    if (err == TERN_INVALID)
        return set_error(
            t, err,
            "larger than one request can be: split the step, or match a part and extend by "
            "the rest");
    if (err != TERN_OK)
        return set_error(t, err,
                         "the socket is full: wait until tern_fd can be written, then tern_poll");
    *ret_slot = (uint32_t)__builtin_ctzll(t->pending_free);
    return TERN_OK;
}

void async_submitted(struct tern *t, uint32_t slot, uint8_t *frame, uint16_t type, uint64_t session,
                     uint64_t body, uint32_t nops, uint64_t cookie)
{
    struct pending *p = &t->pending[slot];

    check(p->state == PENDING_FREE);
    *p = (struct pending){
        .state = PENDING_WAITING,
        .type = (uint16_t)(type + 1),
        .nops = nops,
        .id = new_id(t, slot),
        .cookie = cookie,
    };
    t->pending_free &= ~(1ull << slot);
    call_queue(t, frame, type, p->id, session, body);
    (void)conn_send(&t->conn);
}

enum tern_err tern_submit_match(struct tern *t, tern_session s, const struct tern_tokens *tokens,
                                uint64_t step, uint64_t cookie)
{
    uint64_t body;
    uint8_t *frame;
    uint32_t slot;

    TRY(check_tokens(t, tokens));
    body = quick_match_size(tokens, step);
    TRY(async_submit(t, body, &slot, &frame));
    quick_match_put(frame + FRAME_HEADER_BYTES, tokens, step);
    async_submitted(t, slot, frame, FRAME_MATCH, s, body, 1, cookie);
    return TERN_OK;
}

enum tern_err tern_submit_step(struct tern *t, const struct tern_op *ops, uint32_t n,
                               uint64_t cookie)
{
    uint64_t body;
    uint8_t *frame;
    uint32_t slot;

    TRY(check_ops(t, ops, n));
    body = quick_step_size(ops, n);
    TRY(async_submit(t, body, &slot, &frame));
    quick_step_put(frame + FRAME_HEADER_BYTES, ops, n);
    async_submitted(t, slot, frame, FRAME_STEP, 0, body, n, cookie);
    return TERN_OK;
}

enum tern_err tern_submit_fetch(struct tern *t, tern_session s, const char *peer, uint32_t depth,
                                uint64_t cookie)
{
    uint64_t body;
    uint8_t *frame;
    uint32_t slot;

    TRY(check_peer(t, peer));
    body = quick_fetch_size(peer, depth);
    TRY(async_submit(t, body, &slot, &frame));
    quick_fetch_put(frame + FRAME_HEADER_BYTES, peer, depth);
    async_submitted(t, slot, frame, FRAME_FETCH, s, body, 1, cookie);
    return TERN_OK;
}

enum tern_err tern_submit_recover(struct tern *t, tern_session s, uint64_t cookie)
{
    uint64_t body = quick_recover_size();
    uint8_t *frame;
    uint32_t slot;

    TRY(async_submit(t, body, &slot, &frame));
    quick_recover_put(frame + FRAME_HEADER_BYTES);
    async_submitted(t, slot, frame, FRAME_RECOVER, s, body, 1, cookie);
    return TERN_OK;
}

int tern_fd(const struct tern *t)
{
    return t->conn.fd;
}

bool tern_wants_write(const struct tern *t)
{
    return conn_wants_write(&t->conn);
}

/* Answers that have one result. */
static bool get_one(struct tern *t, uint16_t type, const uint8_t *body, uint32_t n)
{
    if (type == FRAME_MATCH_REPLY)
        return quick_match_get(body, n, &t->store, t->results);
    if (type == FRAME_FETCH_REPLY)
        return quick_fetch_get(body, n, &t->store, t->results);
    check(type == FRAME_RECOVER_REPLY);
    return quick_recover_get(body, n, &t->store, t->results);
}

/* What has come for a subscription, which stays in the table unless that was its end. */
static enum tern_err hand_out_stream(struct tern *t, uint32_t slot, struct tern_answer *ret)
{
    if (subscription_give(t, &t->pending[slot], ret) != TERN_OK)
        slot_free(t, slot);
    return TERN_OK;
}

static enum tern_err hand_out_frame(struct tern *t, uint32_t slot, const uint8_t *body, uint32_t n,
                                    struct tern_answer *ret)
{
    struct pending *p = &t->pending[slot];

    if (subscription_take(t, p, body, n))
        return hand_out_stream(t, slot, ret);
    conn_lose(&t->conn);
    *ret = (struct tern_answer){.cookie = p->cookie,
                                .err = set_error(t, TERN_MALFORMED, nonsense_text)};
    slot_free(t, slot);
    return TERN_OK;
}

/* Decodes an answer into the connection's arrays and frees its slot. */
static enum tern_err hand_out(struct tern *t, uint32_t slot, const uint8_t *body, uint32_t n,
                              struct tern_answer *ret)
{
    struct pending *p = &t->pending[slot];
    uint32_t done = 1;
    enum tern_err err;
    bool ok;

    t->store.text[0] = '\0';
    if (p->type == FRAME_STEP_REPLY) {
        ok = quick_step_get(body, n, &t->store, t->results, p->nops, &done, &err);
    } else {
        ok = get_one(t, p->type, body, n);
        err = t->results[0].err;
    }
    if (!ok) {
        conn_lose(&t->conn);
        err = set_error(t, TERN_MALFORMED, nonsense_text);
        done = 0;
    } else if (err != TERN_OK && !t->text[0]) {
        set_error(t, err, NULL);
    }
    *ret = (struct tern_answer){.cookie = p->cookie, .err = err, .results = t->results, .n = done};
    slot_free(t, slot);
    return TERN_OK;
}

static enum tern_err hand_out_kept(struct tern *t, struct tern_answer *ret)
{
    uint32_t slot = t->kept_head;
    struct pending *p = &t->pending[slot];

    t->kept_head = p->next;
    if (t->kept_head == NO_SLOT)
        t->kept_tail = NO_SLOT;
    if (p->sub)
        return hand_out_stream(t, slot, ret);
    return hand_out(t, slot, p->body, p->body_bytes, ret);
}

/* After the connection was lost: whoever still waits is told, then there is nothing more to poll.
 */
static enum tern_err hand_out_lost(struct tern *t, struct tern_answer *ret)
{
    uint64_t used = ~t->pending_free;
    uint32_t slot;

    set_error(t, TERN_PEER_LOST, NULL);
    if (!used)
        return TERN_PEER_LOST;
    slot = (uint32_t)__builtin_ctzll(used);
    *ret = (struct tern_answer){
        .cookie = t->pending[slot].cookie, .err = TERN_PEER_LOST, .results = t->results};
    slot_free(t, slot);
    return TERN_OK;
}

enum tern_err tern_poll(struct tern *t, struct tern_answer *ret)
{
    bool received = false;

    t->text[0] = '\0';
    if (conn_wants_write(&t->conn))
        (void)conn_send(&t->conn);
    if (t->kept_head != NO_SLOT)
        return hand_out_kept(t, ret);
    for (;;) {
        struct frame_header h;
        const uint8_t *body;
        enum tern_err err = conn_frame(&t->conn, &h, &body);

        if (err == TERN_OK) {
            struct pending *p = find(t, &h);

            if (p && p->sub)
                return hand_out_frame(t, (uint32_t)(p - t->pending), body, h.length, ret);
            if (p)
                return hand_out(t, (uint32_t)(p - t->pending), body, h.length, ret);
            drop(t, &h, body);
            continue;
        }
        if (t->conn.state != CONN_UP)
            return hand_out_lost(t, ret);
        if (received || conn_recv(&t->conn, 0) == TERN_BUSY)
            return TERN_BUSY;
        received = true;
    }
}
