/* Writes requests into the send buffer, with number, trace id and header. Also sets error texts,
 * for every file that calls it. */
#include "internal.h"

#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/err.h"

static const char lost_text[] = "the daemon closed the connection (its log has the cause): call "
                                "tern_destroy, then connect again";

static const char unheard_text[] =
    "the request timed out, and may have taken effect: retry if the function allows it; for a "
    "session, tern_recover returns the lengths and the whole table";

enum tern_err set_error(struct tern *t, enum tern_err err, const char *text)
{
    if (!text && err == TERN_DAEMON_LOST)
        text = lost_text;
    if (!text && err == TERN_TIMED_OUT)
        text = unheard_text;
    if (!text)
        text = err_text(err);
    snprintf(t->text, sizeof(t->text), "%s", text);
    t->store.numbers[0] = t->store.numbers[1] = 0;
    return err;
}

enum tern_err set_error_numbers(struct tern *t, enum tern_err err, const char *text,
                                const uint64_t numbers[2])
{
    (void)set_error(t, err, text);
    memcpy(t->store.numbers, numbers, sizeof t->store.numbers);
    return err;
}

enum tern_err not_an_answer(struct tern *t, enum tern_err err)
{
    client_socket_lose(&t->socket);
    return set_error(t, err, "the daemon sent an invalid answer: the connection is closed");
}

uint64_t new_id(struct tern *t, uint32_t slot)
{
    return ++t->next_number << ID_SLOT_BITS | slot;
}

static enum tern_err too_large(struct tern *t, size_t bytes)
{
    char text[QUICK_TEXT_MAX];

    snprintf(text, sizeof(text),
             "the request would have %zu bytes, and at most %u are allowed: split the step, or "
             "match a part and extend by the rest",
             bytes, t->socket.body_max);
    return set_error(t, TERN_INVALID, text);
}

enum tern_err send_room(struct tern *t, size_t body, struct outgoing *ret)
{
    size_t room = body + (t->trace_id ? TRACE_BYTES : 0);
    uint8_t *frame;
    enum tern_err err = client_socket_room(&t->socket, room, &frame);

    if (err == TERN_INVALID)
        return too_large(t, room);
    if (err != TERN_OK)
        return err;
    ret->frame = frame;
    ret->body = writer_of(frame + FRAME_HEADER_BYTES, room);
    return TERN_OK;
}

/* The trace id follows the other fields, which any writer may have written. Most requests have a
 * field of that name. */
static void put_trace(const struct tern *t, uint16_t type, struct writer *w)
{
    const ProtobufCMessageDescriptor *d = t->trace_id ? wire_descriptor(type) : NULL;
    const ProtobufCFieldDescriptor *f =
        d ? protobuf_c_message_descriptor_get_field_by_name(d, "trace_id") : NULL;

    if (!f)
        return;
    check(f->id < 16 && f->type == PROTOBUF_C_TYPE_UINT64); /* a tag of one byte, a varint */
    put_number(w, f->id, t->trace_id);
}

void send_queue(struct tern *t, struct outgoing *o, uint16_t type, uint64_t id, uint64_t session)
{
    struct frame_header h = {
        .version = FRAME_VERSION, .type = type, .request_id = id, .session = session};

    put_trace(t, type, &o->body);
    check(writer_ok(&o->body)); /* the caller reserved room for its body */
    h.length = (uint32_t)(o->body.p - o->frame) - FRAME_HEADER_BYTES;
    frame_encode(&h, o->frame);
    client_socket_queue(&t->socket, FRAME_HEADER_BYTES + h.length);
}

/* ---- messages that have no writer of their own ---- */

size_t message_size(const ProtobufCMessage *msg)
{
    size_t n = protobuf_c_message_get_packed_size(msg);

    return n ? n : WRITER_PAD_BYTES;
}

void put_whole(struct writer *w, const ProtobufCMessage *msg)
{
    const uint8_t *body = w->p;
    size_t n = protobuf_c_message_get_packed_size(msg);

    if (writer_room(w, n))
        w->p += protobuf_c_message_pack(msg, w->p);
    put_pad(w, body);
}
