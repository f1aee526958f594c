/* One synchronous call: queue a request, wait for its answer until the deadline, keep what else
 * arrives. Used by every call of tern.h that blocks. The common case is two system calls: a send
 * and a receive that sleeps. */
#include "internal.h"

#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/err.h"

static const char lost_text[] =
    "the daemon ended the connection (its log says why): tern_destroy, then "
    "connect again";
static const char nonsense_text[] = "the daemon sent what is no answer: the connection is closed";

enum tern_err set_error(struct tern *t, enum tern_err err, const char *text)
{
    if (!text && err == TERN_PEER_LOST)
        text = lost_text;
    if (!text)
        text = err_text(err);
    snprintf(t->text, sizeof(t->text), "%s", text);
    return err;
}

uint64_t new_id(struct tern *t, uint32_t slot)
{
    return ++t->next_number << ID_SLOT_BITS | slot;
}

uint64_t with_trace(const struct tern *t, uint64_t body)
{
    return t->trace_id ? body + TRACE_BYTES : body;
}

/* Behind the other fields, whoever wrote those: most requests have a field of that name. Returns
 * its bytes. */
static uint32_t put_trace(const struct tern *t, uint16_t type, uint8_t *end)
{
    const ProtobufCMessageDescriptor *d = t->trace_id ? wire_descriptor(type) : NULL;
    const ProtobufCFieldDescriptor *f =
        d ? protobuf_c_message_descriptor_get_field_by_name(d, "trace_id") : NULL;
    uint8_t *p = end;

    if (!f)
        return 0;
    check(f->id < 16 && f->type == PROTOBUF_C_TYPE_UINT64); /* a tag of one byte, a varint */
    *p++ = (uint8_t)(f->id << 3);
    for (uint64_t v = t->trace_id; v; v >>= 7)
        *p++ = (uint8_t)((v & 0x7f) | (v >= 0x80 ? 0x80 : 0));
    return (uint32_t)(p - end);
}

enum tern_err call_start(struct tern *t, uint16_t type, uint32_t deadline_ms, struct call *ret)
{
    t->text[0] = '\0';
    if (t->conn.state != CONN_UP)
        return set_error(t, TERN_PEER_LOST, NULL);
    ret->sleep_ms = deadline_ms ? deadline_ms : TERN_DEADLINE_DEFAULT_MS;
    ret->deadline_ns = conn_now_ns() + (uint64_t)ret->sleep_ms * 1000000u;
    ret->reply_type = (uint16_t)(type + 1);
    ret->id = new_id(t, ID_SYNC);
    return TERN_OK;
}

/* A daemon that can take no further connection says so before it reads anything: to request 0. */
static bool is_answer(const struct call *call, const struct frame_header *h)
{
    return h->request_id == call->id ||
           (h->request_id == 0 && h->type == FRAME_HELLO_REPLY && h->type == call->reply_type);
}

/* Deals with every whole frame that is there. OK: the call's own was among them. BUSY: it was not.
 */
static enum tern_err take_frames(struct tern *t, const struct call *call, const uint8_t **ret_body,
                                 uint32_t *ret_n)
{
    struct frame_header h;
    const uint8_t *body;
    enum tern_err err;

    while ((err = conn_frame(&t->conn, &h, &body)) == TERN_OK) {
        if (ret_body && is_answer(call, &h)) {
            if (h.type != call->reply_type) {
                conn_lose(&t->conn);
                return set_error(t, TERN_MALFORMED, nonsense_text);
            }
            *ret_body = body;
            *ret_n = h.length;
            return TERN_OK;
        }
        async_take(t, &h, body);
    }
    if (err != TERN_BUSY)
        return set_error(t, err, nonsense_text);
    return t->conn.state == CONN_UP ? TERN_BUSY : set_error(t, TERN_PEER_LOST, NULL);
}

/* One round of waiting and moving bytes both ways: a daemon that cannot write to us would not read
 * either. */
static enum tern_err move_bytes(struct tern *t, const struct call *call)
{
    enum tern_err err = conn_wait(&t->conn, call->deadline_ns);

    if (err != TERN_OK)
        return set_error(t, err, NULL);
    err = conn_recv(&t->conn, 0);
    if (err == TERN_OK || err == TERN_BUSY)
        err = conn_send(&t->conn);
    return err == TERN_BUSY ? TERN_OK : err;
}

enum tern_err call_room(struct tern *t, struct call *call, uint64_t body, uint8_t **ret_frame)
{
    enum tern_err err;

    while ((err = conn_room(&t->conn, with_trace(t, body), ret_frame)) == TERN_BUSY) {
        call->sleep_ms = 0;
        err = move_bytes(t, call);
        if (err == TERN_OK)
            err = take_frames(t, call, NULL, NULL);
        if (err != TERN_OK && err != TERN_BUSY)
            return err == TERN_PEER_LOST ? set_error(t, err, NULL) : err;
    }
    if (err == TERN_INVALID)
        set_error(
            t, err,
            "larger than one request can be: split the step, or match a part and extend by the "
            "rest");
    return err;
}

void call_queue(struct tern *t, uint8_t *frame, uint16_t type, uint64_t id, uint64_t session,
                uint64_t body)
{
    struct frame_header h = {
        .length = (uint32_t)body + put_trace(t, type, frame + FRAME_HEADER_BYTES + body),
        .version = FRAME_VERSION,
        .type = type,
        .request_id = id,
        .session = session,
    };

    frame_encode(&h, frame);
    conn_queue(&t->conn, FRAME_HEADER_BYTES + h.length);
}

enum tern_err call_put(struct tern *t, struct call *call, uint64_t session,
                       const ProtobufCMessage *msg)
{
    struct frame_header h = {
        .version = FRAME_VERSION,
        .type = (uint16_t)(call->reply_type - 1),
        .request_id = call->id,
        .session = session,
    };
    size_t size = protobuf_c_message_get_packed_size(msg), n;
    size_t room =
        size < FRAME_HEADER_BYTES ? FRAME_HEADER_BYTES : size; /* an empty body is padded */
    uint8_t *frame;

    TRY(call_room(t, call, room, &frame));
    if (wire_encode(&h, msg, t->conn.body_max, frame, FRAME_HEADER_BYTES + room, &n) != TERN_OK)
        return set_error(t, TERN_INVALID, "larger than one request can be");
    call_queue(t, frame, h.type, h.request_id, session, n - FRAME_HEADER_BYTES);
    return TERN_OK;
}

enum tern_err call_wait(struct tern *t, struct call *call, const uint8_t **ret_body,
                        uint32_t *ret_n)
{
    enum tern_err err = conn_send(&t->conn);

    /* The common case: all is out, and the answer is the next thing to arrive. Sleep in the receive
     * itself. */
    if (err == TERN_OK && t->conn.in_head == t->conn.in_tail)
        err = conn_recv(&t->conn, call->sleep_ms);
    call->sleep_ms = 0; /* an answer may have further frames */
    if (err == TERN_PEER_LOST)
        return set_error(t, err, NULL);
    for (;;) {
        err = take_frames(t, call, ret_body, ret_n);
        if (err != TERN_BUSY)
            return err;
        err = move_bytes(t, call);
        if (err != TERN_OK)
            return err == TERN_PEER_LOST ? set_error(t, err, NULL) : err;
    }
}

/* Every answer has its Status in field 1. */
static enum tern_err take_status(struct tern *t, const ProtobufCMessage *msg)
{
    const ProtobufCFieldDescriptor *f = protobuf_c_message_descriptor_get_field(msg->descriptor, 1);
    const Tern__Wire__Status *status;
    enum tern_err err;

    memcpy(&status, (const uint8_t *)msg + f->offset, sizeof(status));
    if (!status || !status->err)
        return TERN_OK;
    err = status->err < TERN_ERR_COUNT ? (enum tern_err)status->err : TERN_INTERNAL;
    return set_error(t, err, status->text && status->text[0] ? status->text : NULL);
}

enum tern_err call_answer(struct tern *t, struct call *call, const ProtobufCMessage **ret)
{
    const uint8_t *body;
    uint32_t n;

    TRY(call_wait(t, call, &body, &n));
    if (wire_decode(&t->budget, call->reply_type, body, n, ret) != TERN_OK) {
        conn_lose(&t->conn);
        return set_error(t, TERN_MALFORMED, nonsense_text);
    }
    return take_status(t, *ret);
}

enum tern_err call_whole(struct tern *t, uint16_t type, uint64_t session,
                         const ProtobufCMessage *msg, uint32_t deadline_ms,
                         const ProtobufCMessage **ret)
{
    struct call call;

    TRY(call_start(t, type, deadline_ms, &call));
    TRY(call_put(t, &call, session, msg));
    return call_answer(t, &call, ret);
}
