/* The asynchronous form: requests are submitted into the table of pending.c, and tern_poll returns
 * their answers one by one, first those that arrived while a synchronous call waited. */
#include "internal.h"

#include <poll.h>
#include <string.h>

#include "base/err.h"

static enum tern_err async_begin(struct tern *t)
{
    t->text[0] = '\0';
    t->nresults = 0;
    if (t->socket.state != CLIENT_SOCKET_UP)
        return set_error(t, TERN_DAEMON_LOST, NULL);
    if (!t->pending_free)
        return set_error(t, TERN_BUSY,
                         "TERN_INFLIGHT_MAX requests are under way: call tern_poll first");
    return TERN_OK;
}

enum tern_err async_room(struct tern *t, size_t body, struct outgoing *ret)
{
    enum tern_err err;

    TRY(async_begin(t));
    err = send_room(t, body, ret);
    if (err == TERN_BUSY && client_socket_send(&t->socket) != TERN_DAEMON_LOST)
        err = send_room(t, body, ret);
    if (err == TERN_OK || err == TERN_INVALID)
        return err;
    return set_error(t, err,
                     "the socket is full: wait until tern_fd is writable, then call tern_poll");
}

enum tern_err async_room_left(struct tern *t, size_t body, struct outgoing *ret)
{
    enum tern_err err;

    TRY(async_begin(t));
    err = send_room(t, body, ret);
    return err != TERN_BUSY ? err
                            : set_error(t, err,
                                        "the socket is full, or its thread is sending: nothing is "
                                        "lost; submit the operations with the next step");
}

static struct pending *async_queue(struct tern *t, struct outgoing *o, uint16_t type,
                                   uint64_t session, uint64_t cookie, struct subscription *sub)
{
    uint32_t slot = (uint32_t)__builtin_ctzll(t->pending_free);

    send_queue(t, o, type, pending_begin(t, slot, type, cookie, sub), session);
    return &t->pending[slot];
}

struct pending *async_submit(struct tern *t, struct outgoing *o, uint16_t type, uint64_t session,
                             uint64_t cookie, struct subscription *sub)
{
    struct pending *p = async_queue(t, o, type, session, cookie, sub);

    (void)client_socket_send(&t->socket);
    return p;
}

struct pending *async_leave(struct tern *t, struct outgoing *o, uint16_t type)
{
    bool ours = client_socket_wants_write(&t->socket);
    struct pending *p = async_queue(t, o, type, 0, 0, NULL);

    t->socket.out_left = !ours;
    sender_told(t->sender);
    return p;
}

enum tern_err async_quick(struct tern *t, const struct quick_request *q, struct asked *asked,
                          uint32_t n, uint64_t cookie)
{
    struct outgoing o;
    struct pending *p;

    TRY(check_leased(t, q->session));
    TRY(async_room(t, quick_size(q), &o));
    quick_put(&o.body, q);
    p = async_submit(t, &o, q->type, q->session, cookie, NULL);
    p->nops = n;
    p->asked = asked;
    return TERN_OK;
}

enum tern_err tern_submit_match(struct tern *t, tern_session s, const struct tern_tokens *tokens,
                                uint64_t step, uint64_t cookie)
{
    ENTER(t);
    struct quick_request q = {
        .type = FRAME_MATCH, .session = s, .match = {.tokens = tokens, .step = step}};

    TRY(check_tokens(t, tokens));
    TRY(check_step(t, step));
    return async_quick(t, &q, NULL, 1, cookie);
}

enum tern_err tern_submit_fetch(struct tern *t, tern_session s, const struct tern_fetch *fetch,
                                uint64_t cookie)
{
    ENTER(t);
    struct quick_request q = {.type = FRAME_FETCH, .session = s, .fetch = {.of = fetch}};

    TRY(check_fetch(t, fetch));
    return async_quick(t, &q, NULL, 1, cookie);
}

enum tern_err tern_submit_fetch_wait(struct tern *t, tern_session s, uint32_t above,
                                     uint64_t cookie)
{
    ENTER(t);
    struct quick_request q = {
        .type = FRAME_FETCH_WAIT, .session = s, .fetch_wait = {.above = above}};

    return async_quick(t, &q, NULL, 1, cookie);
}

enum tern_err tern_submit_recover(struct tern *t, tern_session s, uint64_t cookie)
{
    ENTER(t);
    struct quick_request q = {.type = FRAME_RECOVER, .session = s};

    return async_quick(t, &q, NULL, 1, cookie);
}

enum tern_err tern_submit_wait_published(struct tern *t, uint64_t step, uint64_t cookie)
{
    ENTER(t);
    struct quick_request q = {.type = FRAME_WAIT_PUBLISHED, .wait_step = step};

    TRY(check_wait(t, step));
    return async_quick(t, &q, NULL, 1, cookie);
}

enum tern_err tern_submit_store(struct tern *t, tern_session s, uint32_t depth, uint64_t cookie)
{
    ENTER(t);
    Tern__Wire__Store m = TERN__WIRE__STORE__INIT;
    struct outgoing o;

    m.has_depth = 1;
    m.depth = depth;
    TRY(check_leased(t, s));
    TRY(async_room(t, message_size(&m.base), &o));
    put_whole(&o.body, &m.base);
    async_submit(t, &o, FRAME_STORE, s, cookie, NULL);
    return TERN_OK;
}

int tern_fd(const struct tern *t, short *ret_events)
{
    if (ret_events)
        *ret_events = client_socket_wants_write(&t->socket) ? POLLIN | POLLOUT : POLLIN;
    return t->socket.fd;
}

/* Returns the changes of a subscription, which stays in the table unless it has ended. */
static enum tern_err hand_out_stream(struct tern *t, uint32_t slot, struct tern_answer *ret)
{
    if (subscription_give(t, &t->pending[slot], ret) != TERN_OK)
        pending_free(t, slot);
    return TERN_OK;
}

static enum tern_err hand_out_frame(struct tern *t, uint32_t slot, const uint8_t *body, uint32_t n,
                                    struct tern_answer *ret)
{
    struct pending *p = &t->pending[slot];

    if (subscription_take(t, p, body, n))
        return hand_out_stream(t, slot, ret);
    *ret = (struct tern_answer){.cookie = p->cookie, .err = not_an_answer(t, TERN_MALFORMED)};
    pending_free(t, slot);
    return TERN_OK;
}

struct tern_stored stored_of(const ProtobufCMessage *msg)
{
    const Tern__Wire__StoreReply *reply = (const Tern__Wire__StoreReply *)msg;

    return (struct tern_stored){.depth = reply->depth, .written = reply->written};
}

static bool take_stored(struct tern *t, const uint8_t *body, uint32_t n, struct tern_answer *ret)
{
    const ProtobufCMessage *msg;

    if (wire_decode(&t->budget, FRAME_STORE_REPLY, body, n, &msg) != TERN_OK)
        return false;
    ret->n = 1;
    ret->err = call_status(t, msg);
    t->results[0] = (struct tern_result){.err = ret->err};
    if (ret->err == TERN_OK)
        ret->stored = stored_of(msg);
    return true;
}

/* Takes the results of a batch and the operations that they belong to; or one result, with its
 * text. Returns false if the body is no answer. */
static bool take_results(struct tern *t, const struct pending *p, const uint8_t *body, uint32_t n,
                         struct tern_answer *ret)
{
    if (p->type == FRAME_STORE_REPLY)
        return take_stored(t, body, n, ret);
    if (p->type == FRAME_STEP_REPLY) {
        if (!quick_step_get(body, n, &t->store, t->results, p->nops, &ret->n, &ret->err))
            return false;
        memcpy(t->asked, p->asked, ret->n * sizeof *t->asked);
        t->nresults = ret->n;
        return true;
    }
    if (!quick_get(p->type, body, n, &t->store, t->results))
        return false;
    ret->n = 1;
    ret->err = said(t, &(struct asked){.kind = asked_of((uint16_t)(p->type - 1))}, t->results);
    return true;
}

/* Decodes an answer into the connection's arrays and frees its slot. */
static enum tern_err hand_out(struct tern *t, uint32_t slot, const uint8_t *body, uint32_t n,
                              struct tern_answer *ret)
{
    struct pending *p = &t->pending[slot];

    *ret = (struct tern_answer){.cookie = p->cookie, .results = t->results};
    t->store.text[0] = '\0';
    if (!take_results(t, p, body, n, ret)) {
        ret->err = not_an_answer(t, TERN_MALFORMED);
        ret->n = 0;
    } else if (ret->err != TERN_OK && !t->text[0]) {
        set_error(t, ret->err, NULL);
    }
    pending_free(t, slot);
    return TERN_OK;
}

/* BUSY: nothing is kept. */
static enum tern_err hand_out_kept(struct tern *t, struct tern_answer *ret)
{
    uint32_t slot = pending_kept(t);
    struct pending *p;

    if (slot == NO_SLOT)
        return TERN_BUSY;
    p = &t->pending[slot];
    if (p->sub)
        return hand_out_stream(t, slot, ret);
    return hand_out(t, slot, p->body, p->body_bytes, ret);
}

/* After the connection was lost: fails each request that still waits, then nothing is left to poll.
 * A lease notices the loss by itself. */
static enum tern_err hand_out_lost(struct tern *t, struct tern_answer *ret)
{
    uint64_t used = ~t->pending_free;
    uint32_t slot;

    for (uint32_t i = 0; i < TERN_INFLIGHT_MAX; i++)
        if (t->pending[i].lease)
            used &= ~(1ull << i);

    set_error(t, TERN_DAEMON_LOST, NULL);
    if (!used)
        return TERN_DAEMON_LOST;
    slot = (uint32_t)__builtin_ctzll(used);
    *ret = (struct tern_answer){
        .cookie = t->pending[slot].cookie, .err = TERN_DAEMON_LOST, .results = t->results};
    pending_free(t, slot);
    return TERN_OK;
}

enum tern_err tern_poll(struct tern *t, struct tern_answer *ret)
{
    ENTER(t);
    bool received = false;

    t->text[0] = '\0';
    t->nresults = 0;
    if (client_socket_wants_write(&t->socket))
        (void)client_socket_send(&t->socket);
    pending_end_unheld(t);
    if (hand_out_kept(t, ret) == TERN_OK)
        return TERN_OK;
    for (;;) {
        struct frame_header h;
        const uint8_t *body;
        enum tern_err err = client_socket_frame(&t->socket, &h, &body);

        if (err == TERN_OK) {
            struct pending *p = pending_find(t, &h);

            if (p && p->lease) {
                pending_take(t, &h, body);
                continue;
            }
            if (p && p->sub)
                return hand_out_frame(t, (uint32_t)(p - t->pending), body, h.length, ret);
            if (p)
                return hand_out(t, (uint32_t)(p - t->pending), body, h.length, ret);
            pending_drop(t, &h, body);
            pending_end_unheld(t);
            continue;
        }
        if (t->socket.state != CLIENT_SOCKET_UP)
            return hand_out_lost(t, ret);
        if (received || client_socket_recv(&t->socket, 0) == TERN_BUSY)
            return TERN_BUSY;
        received = true;
    }
}
