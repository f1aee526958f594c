/* The prefill engine: one loop, with one Step an iteration that has every extend, commit and close
 * of that iteration, as a scheduler would. A request: open, Match, extend, write bytes, step done,
 * commit, hand over, wait for the decode side, close. The session stays open while the decode side
 * fetches, so the source's pages stay resident; with a ticket the daemon keeps them. */
#include "prefill.h"

#include <poll.h>
#include <sys/socket.h>

#include "engine/proc.h"
#include "engine/stats.h"
#include "handing.h"
#include "pressure.h"

static bool take_next(struct prefill *p)
{
    int got;

    if (p->next_state != NEXT_NONE)
        return true;
    got = source_next(p->source, &p->next, p->e.why);
    if (got >= 0)
        p->next_state = got ? NEXT_READY : NEXT_END;
    return got >= 0;
}

/* When the next request is due, by the trace's clock. */
static uint64_t next_due_ns(const struct prefill *p)
{
    double speed = p->e.options->speed;

    if (p->next_state != NEXT_READY)
        return UINT64_MAX;
    return speed > 0 ? p->start_ns + (uint64_t)((double)p->next.timestamp_ms * 1e6 / speed) : 0;
}

/* The oracle: tokens of the deepest boundary to resume from, had nothing been dropped. With windows
 * every chunk of an earlier commit is one, with a RECURRENT group only its end. */
static uint32_t best_match(const struct prefill *p, const struct turn *turn)
{
    uint32_t i = turn->target / p->e.page_tokens;

    while (i > 0 && !prefixes_have(&p->seen, turn->table.group[0].prefix[i - 1]))
        i--;
    return i * p->e.page_tokens;
}

static void begin(struct prefill *p, struct turn *turn)
{
    struct board *b = p->e.board;
    uint64_t ns = 0, n = counted(&b->match_n);
    enum tern_err err = turn_begin(&p->e, turn, &ns);

    if (err != TERN_OK) {
        turn_give_up(&p->e, turn, err);
        return;
    }
    if (n < BOARD_TIMES_MAX)
        b->match_ns[n] = ns < UINT32_MAX ? (uint32_t)ns : UINT32_MAX;
    count(&b->match_n, 1);
    turn->best = best_match(p, turn);
}

/* Starts new requests in idle turns, but not while a turn waits to begin again or to resume: it
 * would starve. */
static bool admit(struct prefill *p)
{
    uint64_t now = clock_ns();
    bool waiting = false;

    for (uint32_t i = 0; i < p->e.nturns; i++) {
        struct turn *turn = &p->e.turns[i];

        if (turn_may_begin(&p->e, turn, now))
            begin(p, turn);
        waiting = waiting || turn->state == TURN_WAITING || turn->state == TURN_ABORTING ||
                  turn->state == TURN_RETRACTED || turn->state == TURN_RECOVERING;
    }
    for (uint32_t i = 0; i < p->e.nturns && !waiting; i++) {
        struct turn *turn = &p->e.turns[i];
        struct prompt old = turn->prompt;

        if (turn->state != TURN_IDLE)
            continue;
        if (!take_next(p))
            return false;
        if (next_due_ns(p) > now)
            return true;
        turn->prompt = p->next; /* swapped, so that neither's memory is copied */
        p->next = old;
        p->next_state = NEXT_NONE;
        turn_load(&p->e, turn);
        turn->trouble =
            trouble_draw(p->e.options->source.seed, turn->prompt.index, 0, p->e.options->aborts);
        begin(p, turn);
        waiting = turn->state == TURN_WAITING || turn->state == TURN_ABORTING;
    }
    return true;
}

/* How long to wait for the decode side; 0: there is work. */
static int idle_ms(const struct prefill *p)
{
    uint64_t now = clock_ns(), until = UINT64_MAX;
    uint32_t idle = 0;

    for (uint32_t i = 0; i < p->e.nturns; i++) {
        const struct turn *turn = &p->e.turns[i];
        uint64_t at = turn->not_before_ns > now ? turn->not_before_ns : now + 1000000;

        if (turn->state == TURN_IDLE)
            idle++;
        else if (turn->state == TURN_WAITING)
            until = at < until ? at : until;
        else if (turn->state != TURN_HANDED && turn->state != TURN_LOADING &&
                 turn->state != TURN_RECOVERING && turn->state != TURN_RETRACTED &&
                 !pressure_rests(turn, now))
            return 0;
    }
    if (pressure_due_ns(&p->e, now) < until)
        until = pressure_due_ns(&p->e, now);
    if (handing_due_ns(p) < until)
        until = handing_due_ns(p);
    if (idle > 0 && p->next_state != NEXT_END && until == UINT64_MAX)
        until = p->next_state == NEXT_NONE ? 0 : next_due_ns(p);
    if (idle == p->e.nturns && p->next_state == NEXT_END)
        return 0;
    return engine_wait_ms(&p->e, now, until);
}

/* Takes a request that the decode side is done with. */
static bool take_done(struct prefill *p)
{
    struct handover_done m;

    if (!proc_recv(p->peer, &m, sizeof m) || m.turn >= p->e.nturns ||
        p->e.turns[m.turn].handed != HANDED_SENT) {
        engine_says(&p->e, "the decode engine is gone");
        return false;
    }
    return handing_answered(p, &p->e.turns[m.turn], &m);
}

/* Takes the daemon's answers to submitted operations. */
static bool take_submitted(struct prefill *p)
{
    struct engine *e = &p->e;
    struct tern_answer a;
    enum tern_err err;
    bool ok = true;

    while (ok && (err = tern_poll(e->tern, &a)) == TERN_OK) {
        struct turn *turn = a.cookie < e->nturns ? &e->turns[a.cookie] : NULL;

        if (turn && turn->state == TURN_LOADING) {
            ok = pressure_loaded(e, turn, &a);
        } else if (turn && turn->state == TURN_RECOVERING) {
            ok = pressure_recovered(e, turn, &a);
            if (turn->state == TURN_HANDED && turn->handed == HANDED_ANSWERED)
                turn->state = TURN_CLOSING;
        }
    }
    if (ok && err != TERN_BUSY)
        engine_says(e, "the prefill daemon: %s", tern_strerror(err));
    return ok && err == TERN_BUSY;
}

/* Synchronous calls keep answers that arrive meanwhile: take them before the wait, too. */
static bool take_answers(struct prefill *p)
{
    struct pollfd fd[2] = {{.fd = p->peer, .events = POLLIN}, {.fd = -1}};

    if (!take_submitted(p))
        return false;
    fd[1].fd = tern_fd(p->e.tern, &fd[1].events);
    if (poll(fd, 2, idle_ms(p)) < 0)
        return true;
    while (fd[0].revents) {
        if (!take_done(p))
            return false;
        fd[0].revents = 0;
        poll(fd, 1, 0);
    }
    return take_submitted(p);
}

static bool play(struct prefill *p)
{
    p->start_ns = clock_ns();
    while (p->next_state != NEXT_END || !engine_idle(&p->e)) {
        if (!admit(p) || !prefill_step(p) || !take_answers(p))
            return false;
    }
    return true;
}

int prefill_main(const struct options *o, struct board *board, const uint32_t *group_pages,
                 int peer, int parent)
{
    struct prefill p = {.peer = peer};
    bool ok = engine_start(&p.e, o, board, board->prefill_why, o->prefill_socket, ENGINE_PREFILL,
                           group_pages);

    p.e.counts =
        (struct engine_counts){&board->prefill_retries,         &board->prefill_failed,
                               &board->prefill_retracts,        &board->prefill_recovers,
                               &board->prefill_recovered_pages, &board->prefill_host_hit_tokens,
                               &board->prefill_wrong_bytes};
    atomic_store(&board->pool[0], p.e.pool);
    if (ok)
        p.source = source_open(&o->source, p.e.why);
    ok = ok && p.source && play(&p);
    if (ok) {
        shutdown(peer, SHUT_WR); /* no request follows */
        engine_rest(parent);
    }
    source_close(p.source);
    prefixes_finish(&p.seen);
    prompt_finish(&p.next);
    engine_finish(&p.e);
    return ok ? 0 : 1;
}
