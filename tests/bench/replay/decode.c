/* The decode engine: takes over what the prefill engine hands it. Request: open, Match, Fetch what
 * is missing, extend by the tokens behind the last whole page and write their page, make every byte
 * of the whole pages again and compare it, close. Fetches of several requests are under way at a
 * time; the rest goes by steps, as on the prefill side. */
#include "handover.h"

#include <poll.h>
#include <sys/socket.h>

#include "engine/proc.h"
#include "engine/stats.h"
#include "pressure.h"

#define SOURCE_AWAY_MS 20 /* before a Match of a request whose session there has given way */

struct decode {
    struct engine e;
    int peer;
    bool peer_done; /* no further request comes */
    uint32_t fetching;
    uint64_t fetching_since_ns;
};

static void fetch_begins(struct decode *d)
{
    if (d->fetching++ == 0)
        d->fetching_since_ns = clock_ns();
}

static void fetch_ends(struct decode *d)
{
    if (--d->fetching == 0)
        count(&d->e.board->fetching_ns, clock_ns() - d->fetching_since_ns);
}

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
    turn->not_before_ns = 0;
    turn->state = TURN_WAITING;
    return true;
}

/* The Match has been answered: fetch the rest, unless it is all there. */
static void submit(struct decode *d, struct turn *turn)
{
    enum tern_err err;

    if (pressure_rests(turn, clock_ns()) || turn_load_host(&d->e, turn))
        return;
    if (turn->matched == turn->target) {
        turn->state = TURN_ARRIVED;
        return;
    }
    err = tern_submit_fetch(d->e.tern, turn->session, d->e.options->peer, 0, turn->target,
                            TERN_STEP_NONE, (uint64_t)(turn - d->e.turns));
    if (err == TERN_BUSY)
        return; /* as many requests as a connection may have: again when one was answered */
    if (err != TERN_OK) {
        turn_give_up(&d->e, turn, err);
        return;
    }
    turn->state = TURN_FETCHING;
    fetch_begins(d);
}

static void begin_turns(struct decode *d)
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
        if (turn->state == TURN_MATCHED)
            submit(d, turn);
    }
}

static void take_fetched(struct decode *d, const struct tern_answer *a)
{
    struct turn *turn = &d->e.turns[a->cookie];
    uint32_t got[PROFILE_GROUPS_MAX] = {0};
    enum tern_err err = a->err;

    fetch_ends(d);
    if (err == TERN_OK && !table_take(&turn->table, &a->results[0], got)) {
        engine_says(&d->e, "request %llu: a Fetch named pages outside the prompt",
                    (unsigned long long)turn->prompt.index);
        err = TERN_INTERNAL;
    }
    if (err == TERN_POOL_EXHAUSTED && a->n == 1 &&
        a->results[0].lengths.committed == turn->committed) {
        turn->state = TURN_MATCHED;
        pressure_note(&d->e, turn, &a->results[0].shortage);
        return;
    }
    if (err == TERN_OK && a->results[0].lengths.committed < turn->target)
        err = TERN_BUSY; /* the source has less than it was said to have: again, from a new Match */
    if (err != TERN_OK) {
        bool gave_way = err == TERN_BUSY && a->err == TERN_OK;

        turn_give_up(&d->e, turn, err);
        if (gave_way) /* its session there has, and comes back */
            turn->not_before_ns += SOURCE_AWAY_MS * UINT64_C(1000000);
        return;
    }
    pressure_over(&d->e, turn);
    turn->committed = turn->written = turn->room = turn->ready = turn->target;
    for (uint32_t g = 0; g < d->e.geometry.ngroups; g++) {
        if (d->e.geometry.groups[g].family == TERN_HISTORY)
            turn->arrived += got[g];
    }
    count(&d->e.board->fetched_kib, a->results[0].fetched_kib);
    turn->state = TURN_ARRIVED;
}

static bool take_fetches(struct decode *d)
{
    struct tern_answer a;
    enum tern_err err;

    while ((err = tern_poll(d->e.tern, &a)) == TERN_OK) {
        struct turn *turn = a.cookie < d->e.nturns ? &d->e.turns[a.cookie] : NULL;

        if (turn && turn->state == TURN_FETCHING)
            take_fetched(d, &a);
        else if (turn && ((turn->state == TURN_LOADING && !pressure_loaded(&d->e, turn, &a)) ||
                          (turn->state == TURN_RECOVERING && !pressure_recovered(&d->e, turn, &a))))
            return false;
    }
    if (err != TERN_BUSY)
        engine_says(&d->e, "the decode daemon: %s", tern_strerror(err));
    return err == TERN_BUSY;
}

/* The tokens behind the last whole chunk are computed here again: their pages are ours to write,
 * beginning with the state that arrived. */
static bool recompute_tails(struct decode *d)
{
    struct engine *e = &d->e;

    for (uint32_t i = 0; i < e->nturns; i++) {
        struct turn *turn = &e->turns[i];
        uint32_t n = turn->prompt.input_length;

        if (turn->state != TURN_EXTENDED || n == turn->target)
            continue;
        if (e->recurrent >= 0 && turn->target > 0)
            count(&e->board->verified_state_pages, 1);
        engine_add_tail(e, turn, turn->target, n, n);
    }
    return engine_run_jobs(e, 0, "the state to go on from");
}

/* Every whole HISTORY page of the prompt, found here and transferred alike, and of WINDOW groups
 * the window that is needed to go on. */
static void add_compares(struct engine *e, const struct turn *turn)
{
    for (uint32_t g = 0; g < e->geometry.ngroups; g++) {
        const struct tern_group *group = &e->geometry.groups[g];
        uint32_t first = table_window_first(group, turn->target),
                 end = turn->target / group->page_tokens;

        if (group->family == TERN_RECURRENT)
            continue;
        engine_add_jobs(e, turn, RANK_COMPARE, g, first, end);
        count(group->family == TERN_HISTORY ? &e->board->verified_pages
                                            : &e->board->verified_state_pages,
              end - first);
    }
}

/* Every byte of them. */
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
    return !any || engine_run_jobs(e, e->step, "whole pages");
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
    struct handover_done m = {(uint32_t)(turn - d->e.turns), turn->outcome};

    turn->session = 0;
    if (turn->state == TURN_ABORTING) {
        turn->state = TURN_WAITING;
        return true;
    }
    account(d, turn);
    turn->state = TURN_IDLE;
    d->e.finished++;
    return proc_send(d->peer, &m, sizeof m);
}

/* The operation that this turn needs in this iteration's Step. */
static bool plan(struct decode *d, struct turn *turn)
{
    uint32_t n = turn->prompt.input_length;

    if (pressure_rests(turn, clock_ns()))
        return true;
    if (turn->state == TURN_ARRIVED && n > turn->target)
        engine_add_op(&d->e, turn,
                      (struct engine_op){.kind = ENGINE_EXTEND, .length = n, .written = n});
    else if (turn->state == TURN_ARRIVED)
        turn->state = TURN_EXTENDED;
    else if ((turn->state == TURN_CLOSING || turn->state == TURN_ABORTING) && turn->session)
        engine_add_op(&d->e, turn, (struct engine_op){.kind = ENGINE_CLOSE, .step = turn->step});
    else if (turn->state == TURN_CLOSING || turn->state == TURN_ABORTING)
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
    if (!turn_extended(e, turn, r, turn->target, turn->prompt.input_length))
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

/* -1: only a message can bring something to do. */
static int idle_ms(const struct decode *d)
{
    uint64_t now = clock_ns(), until = UINT64_MAX;

    for (uint32_t i = 0; i < d->e.nturns; i++) {
        const struct turn *turn = &d->e.turns[i];
        uint64_t at = turn->not_before_ns > now ? turn->not_before_ns : now + 1000000;

        if (pressure_rests(turn, now))
            continue;
        if (turn->state == TURN_ARRIVED || turn->state == TURN_CLOSING ||
            turn->state == TURN_ABORTING || turn_may_begin(&d->e, turn, now))
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
        {.fd = tern_fd(d->e.tern),
         .events = (short)(POLLIN | (tern_wants_write(d->e.tern) ? POLLOUT : 0))},
    };

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
    /* Synchronous calls keep answers to fetches that come meanwhile: they are taken before every
     * wait. */
    while (!d->peer_done || !engine_idle(&d->e)) {
        begin_turns(d);
        if (!iterate(d) || !take_fetches(d) || !wait_for_work(d) || !take_fetches(d))
            return false;
    }
    return true;
}

int decode_main(const struct options *o, struct board *board, const uint32_t *group_pages, int peer,
                int parent)
{
    struct decode d = {.peer = peer};
    bool ok = engine_start(&d.e, o, board, board->decode_why, o->decode_socket, "replay-decode",
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
