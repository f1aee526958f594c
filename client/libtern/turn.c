/* Turns, and the close that waits for the end of a turn. pending.c ends a turn that began after its
 * call's deadline, when it drops the late answer. */
#include "internal.h"

#include "base/err.h"

enum tern_err tern_turn_begin(struct tern *t, tern_session s, uint32_t deadline_ms,
                              tern_session *ret)
{
    ENTER(t);
    Tern__Wire__TurnBegin m = TERN__WIRE__TURN_BEGIN__INIT;
    const Tern__Wire__TurnBeginReply *reply;
    const ProtobufCMessage *msg;

    m.has_reserved_one = 1;
    m.reserved_one = 1;
    TRY(call_whole(t, FRAME_TURN_BEGIN, s, &m.base, deadline_ms, &msg));
    reply = (const Tern__Wire__TurnBeginReply *)msg;
    if (reply->turn == 0)
        return not_an_answer(t, TERN_MALFORMED);
    *ret = reply->turn;
    return TERN_OK;
}

enum tern_err tern_turn_end(struct tern *t, tern_session turn, uint64_t step, uint32_t deadline_ms)
{
    ENTER(t);
    Tern__Wire__TurnEnd m = TERN__WIRE__TURN_END__INIT;
    const ProtobufCMessage *msg;

    TRY(check_step(t, step));
    m.has_step = 1;
    m.step = wire_step(step);
    return call_whole(t, FRAME_TURN_END, turn, &m.base, deadline_ms, &msg);
}

enum tern_err tern_session_close(struct tern *t, tern_session s, uint64_t step,
                                 uint32_t deadline_ms, struct tern_result *ret)
{
    ENTER(t);
    Tern__Wire__SessionClose m = TERN__WIRE__SESSION_CLOSE__INIT;
    const ProtobufCMessage *msg = NULL;
    enum tern_err err;

    TRY(check_step(t, step));
    m.has_step = 1;
    m.step = wire_step(step);
    err = call_whole(t, FRAME_SESSION_CLOSE, s, &m.base, deadline_ms, &msg);
    if (msg)
        *ret = (struct tern_result){.err = err};
    return err;
}
