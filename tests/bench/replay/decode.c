/* The decode engine: takes over the requests of the prefill engine. A request: open, Match, fetch
 * what is missing, extend by the tokens that did not arrive and write their pages, compare every
 * byte of the other pages with bytes made again, close. Fetches of several requests are in flight
 * at once; everything else runs in Steps, as on the prefill side. */
#include "decode.h"

#include <poll.h>
#include <string.h>
#include <sys/socket.h>

#include "engine/proc.h"
#include "engine/stats.h"
#include "handover.h"
#include "pressure.h"

static bool take_request(struct decode *d)
{
    struct handover m;
    struct turn *turn;

    if (recv(d->peer, &m, 1, MSG_PEEK) == 0) {
        d->peer_done = true;
        return true;
    }
    if (!proc_recv(d->peer, &m, sizeof m) || m.turn >= d->e.nturns ||
        d->e.turns[m.turn].state != TURN_IDLE)
        return false;
    turn = &d->e.turns[m.turn];
    prompt_reserve(&turn->prompt, m.nblocks);
    if (!proc_recv(d->peer, turn->prompt.ids, m.nblocks * sizeof *turn->prompt.ids))
        return false;
    turn->prompt.index = m.index;
    turn->prompt.timestamp_ms = m.timestamp_ms;
    turn->prompt.input_length = m.input_length;
    turn->prompt.output_length = m.output_length;
    turn->prompt.block_size = m.block_size;
    turn->prompt.nblocks = m.nblocks;
    turn_load(&d->e, turn);
    turn->handoff = m.handoff;
    turn->trouble = (enum trouble)m.trouble;
    memcpy(turn->ticket, m.ticket, sizeof turn->ticket);
    turn->ticket[sizeof turn->ticket - 1] = 0;
    turn->not_before_ns = 0;
    turn->state = TURN_WAITING;
    return true;
}

static bool begin_turns(struct decode *d)
{
    uint64_t now = clock_ns(), ns;

    for (uint32_t i = 0; i < d->e.nturns; i++) {
        struct turn *turn = &d->e.turns[i];
        enum tern_err err;

        if (turn_may_begin(&d->e, turn, now)) {
            err = turn_begin(&d->e, turn, &ns);
            if (err != TERN_OK)
                turn_give_up(&d->e, turn, err);
        }
        if (turn->state == TURN_MATCHED && !fetch_begin(d, turn))
            return false;
    }
    return true;
}

static bool take_fetches(struct decode *d)
{
    struct tern_answer a;
    enum tern_err err;

    while ((err = tern_poll(d->e.tern, &a)) == TERN_OK) {
        struct turn *turn = a.cookie < d->e.nturns ? &d->e.turns[a.cookie] : NULL;

        if (turn && turn->state == TURN_FETCHING)
            fetch_take(d, turn, &a);
        else if (turn && ((turn->state == TURN_LOADING && !pressure_loaded(&d->e, turn, &a)) ||
                          (turn->state == TURN_RECOVERING && !pressure_recovered(&d->e, turn, &a))))
            return false;
    }
    if (err != TERN_BUSY)
        engine_says(&d->e, "the decode daemon: %s", tern_strerror(err));
    return err == TERN_BUSY;
}

/* Computes the tokens that did not arrive: their pages are ours to write, beginning with the state
 * that arrived. */
static bool recompute_tails(struct decode *d)
{
    struct engine *e = &d->e;

    for (uint32_t i = 0; i < e->nturns; i++) {
        struct turn *turn = &e->turns[i];
        uint32_t n = turn->prompt.input_length;

        if (turn->state != TURN_EXTENDED || n == turn->ready)
            continue;
        if (e->recurrent >= 0 && turn->ready > 0)
            count(&e->board->verified_state_pages, 1);
        engine_add_tail(e, turn, turn->ready, n, n);
    }
    return engine_run_jobs(e, 0, "the state to go on from");
}

/* Every HISTORY page that was found here or transferred, and the STATE needed to resume from there:
 * the window of WINDOW groups, and a RECURRENT page if the session has one of its own. */
static void add_compares(struct engine *e, const struct turn *turn)
{
    for (uint32_t g = 0; g < e->geometry.ngroups; g++) {
        const struct tern_group *group = &e->geometry.groups[g];
        uint32_t first = table_window_first(group, turn->ready),
                 end = div_up(turn->ready, group->page_tokens);

        if (group->family == TERN_RECURRENT)
            continue;
        engine_add_jobs(e, turn, RANK_COMPARE, g, first, end);
        if (group->family == TERN_WINDOW)
            count(&e->board->verified_state_pages, end - first);
        else
            count(&e->board->verified_pages, turn->target / group->page_tokens);
        if (group->family == TERN_HISTORY)
            count(&e->board->verified_tail_pages, end - turn->target / group->page_tokens);
    }
    if (e->recurrent < 0 || turn->ready < turn->prompt.input_length ||
        turn->table.group[e->recurrent].index[0] == 0)
        return;
    engine_add_state(e, turn, RANK_COMPARE, turn->ready);
    count(&e->board->verified_state_pages, 1);
}

static bool compare_pages(struct decode *d)
{
    struct engine *e = &d->e;
    bool any = false;

    for (uint32_t i = 0; i < e->nturns; i++) {
        struct turn *turn = &e->turns[i];

        if (turn->state != TURN_EXTENDED)
            continue;
        any = true;
        turn->state = TURN_CLOSING;
        turn->step = e->step;
        add_compares(e, turn);
    }
    return !any || engine_run_jobs(e, e->step, "what arrived");
}

static void account(struct decode *d, const struct turn *turn)
{
    struct board *b = d->e.board;

    count(&b->finished, 1);
    count(&b->prompt_pages, turn->whole_pages);
    if (turn->outcome != TERN_OK)
        return;
    count(&b->decode_hit_pages, turn->hits);
    count(&b->transferred_pages, turn->arrived);
    if (turn->hits + turn->arrived != turn->whole_pages)
        count(&b->unbalanced, 1);
}

static bool finish_turn(struct decode *d, struct turn *turn)
{
    struct handover_done m = {.turn = (uint32_t)(turn - d->e.turns), .err = turn->outcome};

    turn->session = 0;
    if (turn->state == TURN_ABORTING && turn->fate != FATE_FETCHED) {
        turn->state = TURN_WAITING;
        return true;
    }
    m.again = turn->state != TURN_CLOSING;
    m.fate = turn->fate;
    if (!m.again)
        account(d, turn);
    turn->state = TURN_IDLE;
    d->e.finished++;
    return proc_send(d->peer, &m, sizeof m);
}

/* Returns true if the turn's session must be closed. */
static bool closes(const struct turn *turn)
{
    return turn->state == TURN_CLOSING || turn->state == TURN_ABORTING ||
           turn->state == TURN_RETURNING;
}

/* Plans the operation that this turn needs in this iteration's Step. */
static bool plan(struct decode *d, struct turn *turn)
{
    uint32_t n = turn->prompt.input_length;

    if (turn->state == TURN_ARRIVED && turn->trouble == TROUBLE_AWAY_AFTER) {
        turn->trouble = TROUBLE_NONE;
        if (!pressure_away(&d->e, turn))
            return false;
    }
    if (pressure_rests(turn, clock_ns()))
        return true;
    if (turn->state == TURN_ARRIVED && n > turn->ready)
        engine_add_op(&d->e, turn,
                      (struct engine_op){.kind = ENGINE_EXTEND, .length = n, .written = n});
    else if (turn->state == TURN_ARRIVED)
        turn->state = TURN_EXTENDED;
    else if (closes(turn) && turn->session)
        engine_add_op(&d->e, turn, (struct engine_op){.kind = ENGINE_CLOSE, .step = turn->step});
    else if (closes(turn))
        return finish_turn(d, turn);
    return true;
}

static bool take_result(struct decode *d, uint32_t i)
{
    struct engine *e = &d->e;
    struct turn *turn = &e->turns[e->op_turn[i]];
    const struct tern_result *r = &e->results[i];

    if (e->ops[i].kind == ENGINE_CLOSE) {
        if (r->err == TERN_OK)
            return finish_turn(d, turn);
        engine_says(e, "closing a session: %s", tern_strerror(r->err));
        return false;
    }
    if (!turn_went_well(e, turn, r))
        return true;
    pressure_over(e, turn);
    if (!turn_extended(e, turn, r, turn->ready, turn->prompt.input_length))
        return false;
    turn->state = TURN_EXTENDED;
    return true;
}

static bool iterate(struct decode *d)
{
    struct engine *e = &d->e;

    e->nops = 0;
    e->step++;
    for (uint32_t i = 0; i < e->nturns; i++) {
        if (!plan(d, &e->turns[i]))
            return false;
    }
    if (e->nops && !engine_step(e))
        return false;
    for (uint32_t i = 0; i < e->nops; i++) {
        if (!take_result(d, i))
            return false;
    }
    return recompute_tails(d) && compare_pages(d) && pressure_act(e);
}

/* -1: only a message can bring work. */
static int idle_ms(const struct decode *d)
{
    uint64_t now = clock_ns(), until = fetches_due_ns(d);

    for (uint32_t i = 0; i < d->e.nturns; i++) {
        const struct turn *turn = &d->e.turns[i];
        uint64_t at = turn->not_before_ns > now ? turn->not_before_ns : now + 1000000;

        if (pressure_rests(turn, now))
            continue;
        if (turn->state == TURN_ARRIVED || closes(turn) || turn_may_begin(&d->e, turn, now))
            return 0;
        if (turn->state == TURN_WAITING && at < until)
            until = at;
        if (turn->state == TURN_MATCHED && (d->fetching == 0 || turn->waits > 0))
            return 1;
    }
    return engine_wait_ms(&d->e, now, until);
}

static bool wait_for_work(struct decode *d)
{
    struct pollfd fd[2] = {
        {.fd = d->peer_done ? -1 : d->peer, .events = POLLIN},
        {.fd = -1},
    };

    fd[1].fd = tern_fd(d->e.tern, &fd[1].events);
    if (poll(fd, 2, idle_ms(d)) < 0)
        return true;
    while (fd[0].revents) {
        if (!take_request(d)) {
            engine_says(&d->e, "the prefill engine sent nonsense");
            return false;
        }
        fd[0].revents = 0;
        if (!d->peer_done)
            poll(fd, 1, 0);
    }
    return true;
}

static bool play(struct decode *d)
{
    /* Synchronous calls keep answers to fetches that arrive meanwhile: take them before every
     * wait. */
    while (!d->peer_done || !engine_idle(&d->e)) {
        if (!begin_turns(d) || !fetches_cut(d) || !iterate(d) || !take_fetches(d) ||
            !wait_for_work(d) || !take_fetches(d))
            return false;
    }
    return true;
}

int decode_main(const struct options *o, struct board *board, const uint32_t *group_pages, int peer,
                int parent)
{
    struct decode d = {.peer = peer};
    bool ok = engine_start(&d.e, o, board, board->decode_why, o->decode_socket, ENGINE_DECODE,
                           group_pages);

    d.e.counts = (struct engine_counts){
        &board->decode_retries,  &board->decode_failed,          &board->decode_retracts,
        &board->decode_recovers, &board->decode_recovered_pages, &board->decode_host_hit_tokens,
        &board->wrong_bytes};
    atomic_store(&board->pool[1], d.e.pool);
    ok = ok && play(&d);
    if (ok)
        engine_rest(parent);
    engine_finish(&d.e);
    return ok ? 0 : 1;
}

void engine_rest(int parent)
{
    char byte = 'd';

    if (proc_send(parent, &byte, 1))
        proc_recv(parent, &byte, 1);
}
