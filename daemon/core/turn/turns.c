/* Turns: see turns.h. A turn is a second handle of its session: the same slot, with a generation
 * that is never used otherwise. While a turn is in flight the session's own handle is BUSY and the
 * turn's is valid; when the turn ends, for any reason, its handle is GONE. So no request carries a
 * claim beside its session, and a late one cannot release what it no longer has (M7).
 *
 * The end of a turn changes only who may use the session: pages, lengths and running work stay, and
 * the next turn resumes from them or aborts. So a close that waits for the end is carried out only
 * if the turn named the step that may still touch the pages. */
#include "core/turn/turns.h"

#include "core/arena/actions.h"
#include "core/session/call.h"
#include "core/session/engines.h"
#include "core/session/record.h"
#include "core/session/sessions.h"

static struct tenant *tenant_of(const struct core *c, const struct session *s)
{
    return tenant_at(c, engine_at(c, s->engine)->tenant);
}

enum tern_err turn_begin(struct core *c, struct call *call, struct reply *ret)
{
    struct session *s = call->session;

    if (s->gate != GATE_FREE)
        return refuse(ret, TERN_CONFLICT,
                      "this handle belongs to the turn in flight: end that turn first");
    if (call->conn->turns.n >= TURNS_OF_CONN_MAX)
        return refuse(
            ret, TERN_BUSY,
            "this connection has 65,536 turns in flight: end some, or use another connection");
    gate_state_move(&s->gate, GATE_CLAIMED);
    s->turn_gen = s->gen_last = gen_next(s->gen_last);
    s->turn_conn = call->req->conn;
    s->turn_begun_ns = c->now_ns;
    turn_list_push(c, &c->turns, session_slot(c, s));
    conn_turn_list_push(c, &call->conn->turns, session_slot(c, s));
    tenant_of(c, s)->turns.in_flight++;
    tenant_of(c, s)->turns.begun++;
    touch(c);
    ret->turn_begin.turn = (struct session_id){.slot = session_slot(c, s), .gen = s->turn_gen};
    return TERN_OK;
}

enum tern_err turn_end(struct core *c, struct call *call, struct reply *ret)
{
    struct session_id id = call->req->turn_end.session;

    if (call->session->gate == GATE_CLAIMED && !session_turn_is(call->session, id))
        return refuse(ret, TERN_BUSY, TURN_IN_FLIGHT);
    if (!session_turn_is(call->session, id))
        return refuse(ret, TERN_INVALID,
                      "this is the session's own handle, and no turn is in flight: pass TurnEnd "
                      "the handle that TurnBegin returned");
    step_named(c, call->engine, call->req->turn_end.step);
    if (call->session->turn_step < call->req->turn_end.step)
        call->session->turn_step = call->req->turn_end.step;
    session_turn_over(c, call->session, true);
    return TERN_OK;
}

enum tern_err request_session_close(struct core *c, struct call *call, struct reply *ret)
{
    const struct req_session_close *r = &call->req->session_close;
    struct session *s = call->session;
    struct op_result why = {.text = ""};
    enum tern_err err;

    if (s->gate == GATE_FREE || session_turn_is(s, r->session)) {
        err = session_end(c, call->out, s, r->step, &why);
        return refuse(ret, err, why.text);
    }
    gate_state_move(&s->gate, GATE_CLOSING);
    s->close_reply = call_later(call);
    s->close_step = r->step;
    touch(c);
    return TERN_OK;
}

uint64_t turn_deadline(const struct core *c)
{
    if (c->turns.n == 0 || c->limits.turn_deadline_ns == 0)
        return UINT64_MAX;
    return session_at(c, c->turns.head)->turn_begun_ns + c->limits.turn_deadline_ns;
}

bool turns_expire(struct core *c)
{
    for (uint32_t n = 0; turn_deadline(c) <= c->now_ns; n++, c->visits++) {
        struct session *s = session_at(c, c->turns.head);

        if (n == TURNS_ENDED_MAX)
            return false;
        tenant_of(c, s)->turns.expired++;
        session_turn_over(c, s, false);
    }
    return true;
}

/* A close that waits for a retire record, or for released pages, is skipped; those behind
 * CLOSES_LOOKS_MAX such closes wait until these are done. */
static bool closes_of(struct core *c, struct actions *out, const struct tenant *t)
{
    uint32_t looks = CLOSES_LOOKS_MAX;

    for (uint32_t i = t->closes.head, next; i != NONE && looks > 0; i = next) {
        struct session *s = session_at(c, i);
        struct op_result unused;

        next = closes_list_next(c, i);
        if (actions_room(out) < 2 || visits_left(c) == 0)
            return false;
        if (s->gate == GATE_UNCLOSED) {
            session_close_told(c, out, s, TERN_BUSY);
            session_gate_leave(c, s);
            continue;
        }
        looks--;
        if (session_end(c, out, s, s->close_step, &unused) == TERN_OK &&
            s->state == SESSION_CLOSING)
            return false; /* sessions_flush frees its pages in pieces */
    }
    return true;
}

bool closes_flush(struct core *c, struct actions *out)
{
    bool all = true;

    for (uint32_t t = 0; t < c->limits.tenants && c->ncloses > 0; t++)
        all = closes_of(c, out, tenant_at(c, t)) && all;
    return all;
}
