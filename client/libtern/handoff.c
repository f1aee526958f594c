/* Hand-off of sessions, and the life of tickets. request.c fetches them. */
#include <string.h>

#include "base/err.h"
#include "client/libtern/internal.h"

/* Takes the daemon's answer about a valid ticket. */
static enum tern_err take(struct tern *t, const Tern__Wire__HandoffReply *reply,
                          struct tern_ticket *ret)
{
    const char *text = reply->ticket ? reply->ticket : "";

    if (!text[0] || strlen(text) >= sizeof ret->text)
        return set_error(t, TERN_MALFORMED, "the daemon's answer has no ticket");
    memset(ret, 0, sizeof *ret);
    memcpy(ret->text, text, strlen(text));
    ret->stands_ms = reply->deadline_ms;
    return TERN_OK;
}

enum tern_err tern_handoff(struct tern *t, tern_session s, uint64_t step, const void *blob,
                           uint32_t blob_bytes, uint32_t stands_ms, uint32_t deadline_ms,
                           struct tern_ticket *ret)
{
    ENTER(t);
    Tern__Wire__Handoff m = TERN__WIRE__HANDOFF__INIT;
    const ProtobufCMessage *msg;

    TRY(check_step(t, step));
    if (blob_bytes > TERN_BLOB_BYTES || (blob_bytes > 0 && !blob))
        return set_error(t, TERN_INVALID, "a ticket has a blob of at most 65,536 bytes");
    m.has_step = m.has_deadline_ms = 1;
    m.step = wire_step(step);
    m.deadline_ms = stands_ms;
    m.has_blob = blob_bytes > 0;
    m.blob = (ProtobufCBinaryData){.len = blob_bytes, .data = (uint8_t *)(uintptr_t)blob};
    TRY(call_whole(t, FRAME_HANDOFF, s, &m.base, deadline_ms, &msg));
    return take(t, (const Tern__Wire__HandoffReply *)(const void *)msg, ret);
}

enum tern_err tern_ticket_open(struct tern *t, tern_session s, uint32_t stands_ms,
                               uint32_t deadline_ms, struct tern_ticket *ret)
{
    ENTER(t);
    Tern__Wire__TicketOpen m = TERN__WIRE__TICKET_OPEN__INIT;
    const ProtobufCMessage *msg;

    m.has_deadline_ms = m.has_reserved_one = 1;
    m.deadline_ms = stands_ms;
    m.reserved_one = 1;
    TRY(call_whole(t, FRAME_TICKET_OPEN, s, &m.base, deadline_ms, &msg));
    return take(t, (const Tern__Wire__HandoffReply *)(const void *)msg, ret);
}

enum tern_err tern_ticket_renew(struct tern *t, const char *ticket, uint32_t stands_ms,
                                uint32_t deadline_ms, uint32_t *ret_stands_ms)
{
    ENTER(t);
    Tern__Wire__TicketRenew m = TERN__WIRE__TICKET_RENEW__INIT;
    const ProtobufCMessage *msg;
    struct tern_ticket stands;

    TRY(check_ticket(t, ticket));
    m.ticket = (char *)(uintptr_t)ticket;
    m.has_deadline_ms = 1;
    m.deadline_ms = stands_ms;
    TRY(call_whole(t, FRAME_TICKET_RENEW, 0, &m.base, deadline_ms, &msg));
    TRY(take(t, (const Tern__Wire__HandoffReply *)(const void *)msg, &stands));
    *ret_stands_ms = stands.stands_ms;
    return TERN_OK;
}

enum tern_err tern_ticket_drop(struct tern *t, const char *ticket, uint32_t deadline_ms)
{
    ENTER(t);
    Tern__Wire__TicketDrop m = TERN__WIRE__TICKET_DROP__INIT;
    const ProtobufCMessage *msg;

    TRY(check_ticket(t, ticket));
    m.ticket = (char *)(uintptr_t)ticket;
    return call_whole(t, FRAME_TICKET_DROP, 0, &m.base, deadline_ms, &msg);
}
