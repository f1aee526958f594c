/* Turns (M5 to M7, M12): who may use a session. While a turn is in flight the model's requests name
 * the session by the turn's handle; this file also uses handles that are not valid. The model
 * tracks by itself the ends of turns without a request (timeout, closed connection). */
#include "records.h"
#include "tickets.h"

/* Any connection of the engine. */
uint32_t any_seat(struct sim *w, uint32_t d, uint32_t e)
{
    const struct engine *g = &w->d[d].engine[e];
    uint32_t seat = pick(w, PROCS);

    for (uint32_t i = 0; i < PROCS; i++, seat = (seat + 1) % PROCS)
        if (seat < g->nprocs && g->proc[seat].state == PROC_LIVE && g->proc[seat].conn != NO &&
            g->joined >> seat & 1)
            return g->proc[seat].conn;
    return NO;
}

/* The turn is over. `ended`: by a TurnEnd. */
static void turn_over(struct sim *w, uint32_t d, struct session *s, bool ended)
{
    records_turn_over(w, d, s, ended);
    s->rolling = 0;
    s->old_turn = s->handle;
    s->handle = s->id;
    s->gate = s->gate == GATE_CLAIMED || (!ended && s->close_conn == NO) ? GATE_OPEN
              : ended                                                    ? GATE_CLOSED
                                                                         : GATE_UNCLOSED;
    s->ending |= s->gate == GATE_CLOSED; /* until the core has processed it */
}

static bool claimed(const struct session *s)
{
    return s->live && (s->gate == GATE_CLAIMED || s->gate == GATE_CLOSING);
}

void turns_pass(struct sim *w, uint32_t d)
{
    for (uint32_t i = 0; i < SESSIONS && w->cfg.turn_ms; i++) {
        struct session *s = &w->d[d].session[i];

        if (!claimed(s) || s->turn_begun + w->cfg.turn_ms * MS > w->now)
            continue;
        TRACE("  the turn %u.%u of daemon %u is over\n", s->handle.slot, s->handle.gen, d);
        turn_over(w, d, s, false);
        MARK(turn_expired);
    }
}

/* A request is made before the core sees the time of its step: whatever would end in between, or
 * ends at this very time, ends first. */
void turns_near(struct sim *w)
{
    for (uint64_t past = w->now - 1;; past = w->now) {
        uint64_t from = w->now, at = ticket_near(w, past, from + 2 * MS);

        for (uint32_t d = 0; d < DAEMONS && w->cfg.turn_ms; d++)
            for (uint32_t i = 0; i < SESSIONS; i++) {
                const struct session *s = &w->d[d].session[i];
                uint64_t end = s->turn_begun + w->cfg.turn_ms * MS;

                if (claimed(s) && end <= from + 2 * MS && end > at)
                    at = end;
            }
        if (at == past)
            return; /* no turn ends soon */
        w->now = at;
        sim_timers(w, 0);
        sim_timers(w, 1);
    }
}

void turns_conn_left(struct sim *w, uint32_t d, uint32_t conn, bool closed)
{
    if (closed)
        records_conn_closed(w, d, conn);
    for (uint32_t i = 0; i < SESSIONS; i++) {
        struct session *s = &w->d[d].session[i];

        if (!s->live)
            continue;
        if (closed && s->gate >= GATE_CLOSING && s->close_conn == conn)
            s->close_conn = NO;
        if (s->gate == GATE_UNCLOSED && s->close_conn == NO)
            s->gate = GATE_OPEN;
        if (!claimed(s) || s->turn_conn != conn)
            continue;
        TRACE("  the turn %u.%u goes with its connection %u.%u\n", s->handle.slot, s->handle.gen, d,
              conn);
        turn_over(w, d, s, false);
        MARK(turn_lost);
    }
}

static uint32_t close_step(const struct session *s)
{
    uint32_t step = s->close_step > s->turn_step ? s->close_step : s->turn_step;

    step = s->away && s->away_step > step ? s->away_step : step;
    return s->slid_step > step ? s->slid_step : step;
}

/* The answer to a SessionClose that had to wait. Returns false if it is another answer. */
bool session_closed(struct sim *w, uint32_t d, const struct reply *r)
{
    struct session *s = NULL;

    for (uint32_t i = 0; i < SESSIONS; i++)
        if (w->d[d].session[i].used && w->d[d].session[i].close_request == r->request_id)
            s = &w->d[d].session[i];
    if (!s)
        return false;
    EXPECT(s->close_conn == r->conn, "close_told", "connection %u, not %u", r->conn, s->close_conn);
    s->close_request = 0;
    if (!s->live)
        return true; /* it ended with its engine */
    if (r->err == TERN_BUSY) {
        EXPECT(s->gate == GATE_UNCLOSED, "close_refused_late", "gate %u: %s", s->gate, r->text);
        s->gate = GATE_OPEN;
        MARK(close_not_carried_out);
        return true;
    }
    EXPECT(r->err == TERN_OK, "close_refused", "err %u %s", r->err, r->text);
    if (s->gate != GATE_CLOSED && (s->ending || w->d[d].engine[s->engine].dying))
        return true; /* the request under way ends it */
    EXPECT(s->gate == GATE_CLOSED, "closed_in_a_turn", "session %u.%u, gate %u", s->id.slot,
           s->id.gen, s->gate);
    session_forget(w, d, s, close_step(s));
    MARK(close_waited);
    return true;
}

/* Has the core begun the close that waited for the end of a turn? */
static bool close_begun(const struct sim *w, uint32_t d, const struct session *s)
{
    struct session_view v;

    return !core_session_view(w->d[d].core, s->id.slot, &v) || !session_id_equal(v.id, s->id) ||
           strcmp(v.state_word, "closing") == 0;
}

bool session_ends(const struct sim *w, uint32_t d, const struct session *s)
{
    return !s->live || (s->gate == GATE_CLOSED ? close_begun(w, d, s) : s->ending);
}

/* If nobody receives the answer to the close, the core's state shows it. */
void turns_look(struct sim *w, uint32_t d)
{
    for (uint32_t i = 0; i < SESSIONS; i++) {
        struct session *s = &w->d[d].session[i];

        if (s->live && s->gate == GATE_CLOSED && s->close_conn == NO && close_begun(w, d, s))
            session_forget(w, d, s, close_step(s));
    }
}

/* A session to be closed is closed when its step has passed, at the latest. */
void turns_check(struct sim *w, uint32_t d)
{
    if (core_deadline(w->d[d].core) <= w->now)
        return;
    for (uint32_t i = 0; i < SESSIONS; i++) {
        const struct session *s = &w->d[d].session[i];
        const struct engine *g = &w->d[d].engine[s->engine];

        EXPECT(!s->live || g->dying || s->gate != GATE_CLOSED || close_step(s) > g->min_done,
               "close_forgotten", "session %u.%u at step %u, all have done %u", s->id.slot,
               s->id.gen, close_step(s), g->min_done);
        EXPECT(!s->live || g->dying || s->gate != GATE_UNCLOSED, "close_forgotten",
               "session %u.%u is neither closed nor open", s->id.slot, s->id.gen);
    }
}

void begin_turn(struct sim *w, uint32_t d, struct session *s, uint32_t conn)
{
    struct session_id id;
    struct event ev;

    request_init(w, d, &ev, OP_TURN_BEGIN, conn);
    ev.request.turn_begin.session = s->id;
    sim_ask(w, d, &ev, "turn_answer");
    EXPECT(w->reply->err == TERN_OK, "turn_refused", "err %u %s", w->reply->err, w->reply->text);
    id = w->reply->turn_begin.turn;
    EXPECT(id.slot == s->id.slot && id.gen != s->id.gen && !session_id_equal(id, s->old_turn),
           "turn_handle_reused", "%u.%u of session %u.%u", id.slot, id.gen, s->id.slot, s->id.gen);
    TRACE("  daemon %u: turn %u.%u of session %u.%u begins on connection %u\n", d, id.slot, id.gen,
          s->id.slot, s->id.gen, conn);
    s->handle = id;
    s->gate = GATE_CLAIMED;
    s->turn_conn = (uint8_t)conn;
    s->turn_begun = w->now;
    MARK(turn_begun);
}

/* The required answer to any request by that handle. */
static void refused(struct sim *w, uint32_t d, uint32_t conn, struct session_id id,
                    enum tern_err err)
{
    struct step_op op = {.kind = STEP_EXTEND, .session = id, .length = 4};
    enum tern_err said;
    struct event ev;

    switch (pick(w, 5)) {
    case 0:
        request_init(w, d, &ev, OP_TURN_BEGIN, conn);
        ev.request.turn_begin.session = id;
        break;
    case 1:
        request_init(w, d, &ev, OP_TURN_END, conn);
        ev.request.turn_end = (struct req_turn_end){.session = id};
        break;
    case 2:
        request_init(w, d, &ev, OP_FETCH_CANCEL, conn);
        ev.request.fetch_cancel.session = id;
        break;
    case 3:
        request_init(w, d, &ev, OP_RETRACT, conn);
        ev.request.retract = (struct req_retract){.session = id, .mode = RETRACT_DROP};
        break;
    default:
        op.kind = chance(w, 50) ? STEP_CLOSE : STEP_EXTEND;
        request_init(w, d, &ev, OP_STEP, conn);
        ev.request.step.ops = &op;
        ev.request.step.n = 1;
    }
    sim_ask(w, d, &ev, "turn_refusal");
    said = ev.request.op == OP_STEP ? w->reply->step.results[0].err : w->reply->err;
    EXPECT(said == err, err == TERN_BUSY ? "turn_not_guarded" : "turn_over_used",
           "op %u by %u.%u: err %u, not %u", ev.request.op, id.slot, id.gen, said, err);
    if (err == TERN_BUSY)
        MARK(turn_busy);
    else
        MARK(turn_gone);
}

static void end(struct sim *w, uint32_t d, struct session *s, uint32_t conn)
{
    uint32_t done = w->d[d].engine[s->engine].min_done;
    struct event ev;

    if ((s->turn == TURN_FETCHING || s->turn == TURN_LOADING) && s->gate == GATE_CLOSING &&
        s->last_step > done)
        return; /* as for a close: the model cannot know what the transfer has pinned */
    request_init(w, d, &ev, OP_TURN_END, conn);
    ev.request.turn_end.session = s->handle;
    ev.request.turn_end.step = s->last_step <= done && chance(w, 50) ? 0 : s->last_step;
    TRACE("  daemon %u: turn %u.%u ends, step %u\n", d, s->handle.slot, s->handle.gen,
          (uint32_t)ev.request.turn_end.step);
    if (s->turn_step < ev.request.turn_end.step)
        s->turn_step = (uint32_t)ev.request.turn_end.step;
    turn_over(w, d, s, true); /* before the answer: a waiting close is answered in the same step */
    sim_ask(w, d, &ev, "turn_answer");
    EXPECT(w->reply->err == TERN_OK, "turn_end_refused", "err %u %s", w->reply->err,
           w->reply->text);
}

/* A close by the session's own handle, while a turn is in flight: its step has no effect, that of
 * the turn's end counts. */
static void close_behind(struct sim *w, uint32_t d, struct session *s, uint32_t conn)
{
    struct event ev;

    request_init(w, d, &ev, OP_SESSION_CLOSE, conn);
    ev.request.session_close.session = s->id;
    ev.request.session_close.step = chance(w, 50) ? 0 : pick(w, s->last_step + 1);
    s->gate = GATE_CLOSING;
    s->close_conn = conn;
    s->close_request = ev.request.request_id;
    s->close_step = (uint32_t)ev.request.session_close.step;
    TRACE("  daemon %u: session %u.%u is to be closed behind its turn\n", d, s->id.slot, s->id.gen);
    sim_step(w, d, &ev);
    EXPECT(!w->reply && s->close_request, "close_did_not_wait", "session %u.%u", s->id.slot,
           s->id.gen);
}

/* A close by a valid handle: like the operation of a Step. */
static void close_now(struct sim *w, uint32_t d, struct session *s, uint32_t conn)
{
    const struct engine *g = &w->d[d].engine[s->engine];
    struct event ev;

    if (s->turn == TURN_FETCHING || s->turn == TURN_LOADING)
        return;
    request_init(w, d, &ev, OP_SESSION_CLOSE, conn);
    ev.request.session_close.session = s->handle;
    ev.request.session_close.step = release_step(w, d, s);
    s->ending = 1;
    sim_ask(w, d, &ev, "close_answer");
    s->ending = 0;
    if (w->reply->err == TERN_BUSY) {
        EXPECT(ev.request.session_close.step > g->min_done || s->away, "release_busy",
               "BUSY for a release at step %llu, all have done %u",
               (unsigned long long)ev.request.session_close.step, g->min_done);
        return;
    }
    EXPECT(w->reply->err == TERN_OK, "close_refused", "err %u %s", w->reply->err, w->reply->text);
    s->close_step = (uint32_t)ev.request.session_close.step;
    session_forget(w, d, s, close_step(s));
    MARK(close_asked);
}

void ask_turn(struct sim *w, uint32_t d, uint32_t i)
{
    struct session *s = &w->d[d].session[i];
    const struct engine *g = &w->d[d].engine[s->engine];
    uint32_t conn = any_seat(w, d, s->engine);

    if (conn == NO || g->dying || g->seen != (1u << g->nprocs) - 1)
        return;
    if (s->old_turn.gen && chance(w, 15)) {
        refused(w, d, conn, s->old_turn, TERN_GONE);
        return;
    }
    switch (s->gate) {
    case GATE_OPEN:
        if (chance(w, 10))
            close_now(w, d, s, conn);
        else
            begin_turn(w, d, s, conn);
        return;
    case GATE_CLAIMED:
        if (chance(w, 40))
            refused(w, d, conn, s->id, TERN_BUSY);
        else if (chance(w, 30))
            close_behind(w, d, s, conn);
        else
            end(w, d, s, conn);
        return;
    case GATE_CLOSING:
        if (chance(w, 30))
            refused(w, d, conn, s->id, TERN_GONE);
        else if (chance(w, 20))
            close_now(w, d, s, conn);
        else
            end(w, d, s, conn);
        return;
    default: refused(w, d, conn, s->id, TERN_GONE);
    }
}

/* Ends every turn, at the end of a history. */
void turns_end(struct sim *w, uint32_t d)
{
    for (uint32_t i = 0; i < SESSIONS; i++) {
        struct session *s = &w->d[d].session[i];
        uint32_t conn = any_seat(w, d, s->engine);

        if (claimed(s) && conn != NO && !w->d[d].engine[s->engine].dying)
            end(w, d, s, conn);
    }
}
