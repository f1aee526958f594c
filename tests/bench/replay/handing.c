/* Handing over: see handing.h. A ticket is lost if the decode engine or a drop finds it gone
 * although it was neither fetched nor dropped and its time was not shortened; report.c also
 * compares the daemon's counters. */
#include "handing.h"

#include <string.h>

#include "engine/proc.h"
#include "engine/stats.h"
#include "pressure.h"

#define HANDOFFS_MAX 200 /* of one request */
#define MS           UINT64_C(1000000)

static uint64_t seed_of(const struct prefill *p)
{
    return p->e.options->source.seed;
}

static void next_trouble(const struct prefill *p, struct turn *turn)
{
    turn->handoff++;
    turn->trouble =
        trouble_draw(seed_of(p), turn->prompt.index, turn->handoff, p->e.options->aborts);
}

/* Sends the request to the decode engine, with the ticket that it fetches by. */
static bool pass_on(struct prefill *p, struct turn *turn)
{
    const struct prompt *r = &turn->prompt;
    struct handover m = {
        .index = r->index,
        .timestamp_ms = r->timestamp_ms,
        .turn = (uint32_t)(turn - p->e.turns),
        .input_length = r->input_length,
        .output_length = r->output_length,
        .block_size = r->block_size,
        .nblocks = r->nblocks,
        .handoff = turn->handoff,
        .trouble = turn->trouble,
    };

    memcpy(m.ticket, turn->ticket, sizeof m.ticket);
    turn->handed = HANDED_SENT;
    if (proc_send(p->peer, &m, sizeof m) && proc_send(p->peer, r->ids, r->nblocks * sizeof *r->ids))
        return true;
    engine_says(&p->e, "the decode engine is gone");
    return false;
}

static bool hand_session(struct prefill *p, struct turn *turn)
{
    turn->state = turn->handed == HANDED_ANSWERED ? TURN_CLOSING : TURN_HANDED;
    return turn->handed != HANDED_NO || pass_on(p, turn); /* else it was computed again */
}

/* --- by ticket --- */

/* Runs the trouble that comes before the ticket exists; the turn leaves HANDING then. */
static bool trouble_before(struct prefill *p, struct turn *turn)
{
    if (turn->trouble == TROUBLE_ABORT) {
        next_trouble(p, turn);
        turn->state = TURN_ABORTING;
    } else if (turn->trouble == TROUBLE_AWAY) {
        turn->trouble = TROUBLE_NONE;
        return pressure_away(&p->e, turn);
    }
    return true;
}

/* The ticket stands for `ms` from now on; it is renewed after half of that. */
static void stands(struct turn *turn, uint32_t ms)
{
    turn->due_ns = clock_ns() + ms * MS / 2;
}

static bool renew(struct prefill *p, struct turn *turn)
{
    uint32_t ms = 0;
    enum tern_err err = tern_ticket_renew(p->e.tern, turn->ticket, 0, CALL_MS, &ms);

    turn->due_ns = 0;
    if (err == TERN_OK)
        stands(turn, ms);
    else if (err != TERN_GONE) /* the decode engine's answer says whether it was fetched */
        engine_says(&p->e, "renewing a ticket: %s", tern_error_text(p->e.tern, NULL));
    return err == TERN_OK || err == TERN_GONE;
}

static bool drop(struct prefill *p, struct turn *turn)
{
    enum tern_err err = tern_ticket_drop(p->e.tern, turn->ticket, CALL_MS);

    turn->due_ns = 0;
    if (err == TERN_OK) {
        turn->excuse = EXCUSE_DROPPED;
        count(&p->e.board->tickets_dropped, 1);
    } else if (err != TERN_GONE) {
        engine_says(&p->e, "dropping a ticket: %s", tern_error_text(p->e.tern, NULL));
    }
    return err == TERN_OK || err == TERN_GONE;
}

/* The ticket exists: plans what happens to it while it stands. */
static bool begin_standing(struct prefill *p, struct turn *turn, uint32_t stands_ms)
{
    turn->excuse = EXCUSE_NONE;
    stands(turn, stands_ms);
    switch (turn->trouble) {
    case TROUBLE_RENEW:
        if (!renew(p, turn))
            return false;
        if (turn->due_ns == 0) /* the renewal was too late */
            turn->excuse = EXCUSE_BRIEF;
        return true;
    case TROUBLE_EXPIRE:
    case TROUBLE_EXPIRE_RACE:
        turn->excuse = EXCUSE_BRIEF;
        turn->due_ns = 0;
        return true;
    case TROUBLE_DROP:
        turn->due_ns = clock_ns() + trouble_delay_ns(seed_of(p), turn->prompt.index, turn->handoff);
        return true;
    default: return true;
    }
}

static uint32_t wanted_ms(const struct turn *turn)
{
    switch (turn->trouble) {
    case TROUBLE_RENEW:
    case TROUBLE_EXPIRE: return TICKET_BRIEF_MS;
    case TROUBLE_EXPIRE_RACE: return 1;
    default: return 0;
    }
}

static bool hand_ticket(struct prefill *p, struct turn *turn)
{
    static uint8_t blob[TERN_BLOB_BYTES];
    struct engine *e = &p->e;
    struct tern_ticket ticket;
    uint32_t bytes;
    enum tern_err err;

    if (turn->trouble != TROUBLE_NONE && turn->waits == 0)
        count(&e->board->troubles[turn->trouble], 1);
    if (!trouble_before(p, turn))
        return false;
    if (turn->state != TURN_HANDING)
        return true;
    bytes = blob_make(seed_of(p), turn->prompt.index, turn->handoff, blob);
    err = tern_handoff(e->tern, turn->session, turn->step ? turn->step : TERN_STEP_NONE, blob,
                       bytes, wanted_ms(turn), CALL_MS, &ticket);
    if (err == TERN_BUSY) {
        pressure_wait(e, turn);
        return true;
    }
    if (err != TERN_OK) {
        turn_give_up(e, turn, err);
        return true;
    }
    pressure_over(e, turn);
    count(&e->board->tickets, 1);
    memcpy(turn->ticket, ticket.text, sizeof turn->ticket);
    turn->session = 0;
    turn->state = TURN_HANDED;
    return begin_standing(p, turn, ticket.stands_ms) && pass_on(p, turn);
}

static bool do_due(struct prefill *p, struct turn *turn)
{
    return turn->trouble == TROUBLE_DROP ? drop(p, turn) : renew(p, turn);
}

bool handing_act(struct prefill *p)
{
    bool tickets = p->e.options->tickets, ok = true;
    uint64_t now = clock_ns();

    for (uint32_t i = 0; ok && i < p->e.nturns; i++) {
        struct turn *turn = &p->e.turns[i];

        if (turn->state == TURN_HANDING && !pressure_rests(turn, now))
            ok = tickets ? hand_ticket(p, turn) : hand_session(p, turn);
        else if (turn->state == TURN_HANDED && turn->due_ns && now >= turn->due_ns)
            ok = do_due(p, turn);
    }
    return ok;
}

/* Nobody fetched the ticket: drops it. */
static bool judge_standing(struct prefill *p, struct turn *turn)
{
    enum ticket_excuse was = turn->excuse;

    if (was == EXCUSE_DROPPED)
        return true;
    if (!drop(p, turn))
        return false;
    if (turn->excuse == was && was == EXCUSE_NONE)
        count(&p->e.board->lost_tickets, 1);
    return true;
}

static bool judge(struct prefill *p, struct turn *turn, enum ticket_fate fate)
{
    struct board *b = p->e.board;

    turn->due_ns = 0;
    switch (fate) {
    case FATE_STANDS: return judge_standing(p, turn);
    case FATE_FETCHED:
        count(&b->tickets_fetched, 1);
        count(&b->tickets_taken, turn->excuse == EXCUSE_NONE);
        return true;
    case FATE_GONE:
        if (turn->excuse != EXCUSE_NONE)
            return true;
        count(&b->lost_tickets, 1);
        engine_says(&p->e, "request %llu: its ticket was gone, which nobody had fetched or dropped",
                    (unsigned long long)turn->prompt.index);
        return true;
    }
    engine_says(&p->e, "the decode engine sent nonsense");
    return false;
}

bool handing_answered(struct prefill *p, struct turn *turn, const struct handover_done *m)
{
    if (p->e.options->tickets && !judge(p, turn, (enum ticket_fate)m->fate))
        return false;
    turn->handed = HANDED_ANSWERED;
    if (m->again) {
        next_trouble(p, turn);
        turn->handed = HANDED_NO;
        turn->state = TURN_WAITING;
        turn->not_before_ns = 0;
        count(&p->e.board->handed_again, 1);
        if (turn->handoff < HANDOFFS_MAX)
            return true;
        engine_says(&p->e, "request %llu was handed over %u times",
                    (unsigned long long)turn->prompt.index, HANDOFFS_MAX);
        return false;
    }
    if (turn->state == TURN_HANDED || (turn->state == TURN_RETRACTED && turn->back == TURN_HANDED))
        turn->state = TURN_CLOSING;
    return true;
}

uint64_t handing_due_ns(const struct prefill *p)
{
    uint64_t due = UINT64_MAX;

    for (uint32_t i = 0; i < p->e.nturns; i++) {
        const struct turn *turn = &p->e.turns[i];

        if (turn->state == TURN_HANDED && turn->due_ns && turn->due_ns < due)
            due = turn->due_ns;
    }
    return due;
}
