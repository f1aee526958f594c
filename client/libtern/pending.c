/* The table of submitted requests and subscriptions under way, found by the slot in their number,
 * and the list of those whose answer arrived while a synchronous call waited. Each belongs to a
 * slot, so there are at most TERN_INFLIGHT_MAX. */
#include "internal.h"

#include <stdlib.h>
#include <string.h>

void pending_free(struct tern *t, uint32_t slot)
{
    struct pending *p = &t->pending[slot];

    free(p->body);
    free(p->asked);
    subscription_free(p->sub);
    pending_state_move(&p->state, PENDING_FREE);
    *p = (struct pending){0}; /* and FREE, which is 0 */
    t->pending_free |= 1ull << slot;
}

void pending_finish(struct tern *t)
{
    for (uint32_t i = 0; i < TERN_INFLIGHT_MAX; i++) {
        free(t->pending[i].body);
        free(t->pending[i].asked);
        subscription_free(t->pending[i].sub);
    }
}

void pending_forget(struct tern *t, const struct tern_lease *lease)
{
    for (uint32_t i = 0; i < TERN_INFLIGHT_MAX; i++)
        if (t->pending[i].state != PENDING_FREE && t->pending[i].lease == lease)
            pending_free(t, i);
}

uint64_t pending_begin(struct tern *t, uint32_t slot, uint16_t type, uint64_t cookie,
                       struct subscription *sub)
{
    struct pending *p = &t->pending[slot];

    pending_state_move(&p->state, sub ? PENDING_STREAM : PENDING_WAITING);
    p->type = (uint16_t)(type + 1);
    p->nops = 1;
    p->id = new_id(t, slot);
    p->cookie = cookie;
    p->sub = sub;
    t->pending_free &= ~(1ull << slot);
    return p->id;
}

struct pending *pending_find(struct tern *t, const struct frame_header *h)
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

/* ---- answers that nobody waits for ---- */

/* Returns true if the answer carries descriptors. A refusal carries none: descriptors received then
 * belong to a later frame. */
static bool brought_fds(struct tern *t, const struct frame_header *h, const uint8_t *body)
{
    const ProtobufCMessage *msg;
    const Tern__Wire__Status *status;

    if (wire_decode(&t->budget, h->type, body, h->length, &msg) != TERN_OK)
        return true;
    status = h->type == FRAME_POOL_MAP_REPLY ? ((const Tern__Wire__PoolMapReply *)msg)->status
                                             : ((const Tern__Wire__RecordMapReply *)msg)->status;
    return !status || !status->err;
}

/* Returns false if there is no room now. */
static bool end_unheld(struct tern *t, struct unheld u)
{
    /* It had no owner, so no step touched anything. */
    const Tern__Wire__TurnEnd turn_end = TERN__WIRE__TURN_END__INIT;
    const Tern__Wire__SessionClose session_close = TERN__WIRE__SESSION_CLOSE__INIT;
    const ProtobufCMessage *m = u.is_session ? &session_close.base : &turn_end.base;
    uint16_t type = u.is_session ? FRAME_SESSION_CLOSE : FRAME_TURN_END;
    struct outgoing o;

    if (send_room(t, message_size(m), &o) != TERN_OK)
        return false;
    put_whole(&o.body, m);
    send_queue(t, &o, type, new_id(t, ID_SYNC), u.handle);
    return true;
}

void pending_end_unheld(struct tern *t)
{
    if (t->nunheld == 0)
        return;
    while (t->nunheld > 0 && end_unheld(t, t->unheld[t->nunheld - 1]))
        t->nunheld--;
    (void)client_socket_send(&t->socket);
}

/* Returns the handle in an answer to a TurnBegin or a SessionOpen. Returns false if it was
 * refused. */
static bool brought_handle(uint16_t type, const ProtobufCMessage *msg, struct unheld *ret)
{
    const Tern__Wire__TurnBeginReply *turn = (const Tern__Wire__TurnBeginReply *)msg;
    const Tern__Wire__SessionOpenReply *session = (const Tern__Wire__SessionOpenReply *)msg;
    const bool is_session = type == FRAME_SESSION_OPEN_REPLY;
    const Tern__Wire__Status *status = is_session ? session->status : turn->status;

    *ret = (struct unheld){is_session ? session->session : turn->turn, is_session};
    return !status || !status->err;
}

/* Keeps the handle of a TurnBegin or SessionOpen that timed out, to end it later. If there are too
 * many, the connection ends, and all of them with it. */
static void drop_begun(struct tern *t, const struct frame_header *h, const uint8_t *body)
{
    const ProtobufCMessage *msg;

    if (wire_decode(&t->budget, h->type, body, h->length, &msg) != TERN_OK ||
        t->nunheld == UNHELD_MAX) {
        client_socket_lose(&t->socket);
        return;
    }
    if (brought_handle(h->type, msg, &t->unheld[t->nunheld]))
        t->nunheld++; /* ended when no call has taken a request id */
}

void pending_drop(struct tern *t, const struct frame_header *h, const uint8_t *body)
{
    bool asked =
        (h->request_id & ID_SYNC) == ID_SYNC && h->request_id >> ID_SLOT_BITS <= t->next_number;

    if (!asked) {
        client_socket_lose(&t->socket);
        return;
    }
    if (h->type == FRAME_TURN_BEGIN_REPLY || h->type == FRAME_SESSION_OPEN_REPLY)
        drop_begun(t, h, body);
    if ((h->type == FRAME_POOL_MAP_REPLY || h->type == FRAME_RECORD_MAP_REPLY) &&
        t->socket.fds_expected > 0) {
        t->socket.fds_expected--;
        if (brought_fds(t, h, body))
            client_socket_drop_fds(&t->socket);
    }
}

/* ---- answers that are kept ---- */

/* A subscription is in the list once, however many changes it has. */
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

void pending_end(struct tern *t, uint32_t slot)
{
    keep_no_more(t, slot);
    pending_free(t, slot);
}

uint32_t pending_kept(struct tern *t)
{
    uint32_t slot = t->kept_head;

    if (slot == NO_SLOT)
        return NO_SLOT;
    t->kept_head = t->pending[slot].next;
    if (t->kept_head == NO_SLOT)
        t->kept_tail = NO_SLOT;
    return slot;
}

static bool keep_answer(struct pending *p, const struct frame_header *h, const uint8_t *body)
{
    p->body = malloc(h->length);
    if (!p->body)
        return false;
    memcpy(p->body, body, h->length);
    p->body_bytes = h->length;
    pending_state_move(&p->state, PENDING_KEPT);
    return true;
}

void pending_take(struct tern *t, const struct frame_header *h, const uint8_t *body)
{
    struct pending *p = pending_find(t, h);
    bool taken;

    if (!p) {
        pending_drop(t, h, body);
        return;
    }
    if (p->lease) {
        if (!stock_take(t, p, body, h->length))
            client_socket_lose(&t->socket);
        pending_free(t, (uint32_t)(p - t->pending));
        return;
    }
    taken = p->sub ? subscription_take(t, p, body, h->length) : keep_answer(p, h, body);
    if (taken)
        keep(t, (uint32_t)(p - t->pending));
    else
        client_socket_lose(&t->socket);
}
