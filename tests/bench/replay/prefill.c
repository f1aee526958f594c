/* The prefill engine: one loop, one Step an iteration with every extend, commit and close of that
 * iteration, as a scheduler does it. Request: open, Match, extend, write bytes, step done, commit,
 * hand over, wait for the decode side, close. The session stays open while the decode side fetches,
 * so the source's pages are there. It commits as if it had stopped at the last whole chunk: its
 * window is then the one that the decode side needs, and stays until the close. Where there is a
 * RECURRENT group it really stops there, copies the state that the tree took back into its own
 * page, and goes on. */
#include "handover.h"

#include <poll.h>
#include <sys/socket.h>

#include "engine/proc.h"
#include "engine/stats.h"
#include "prefixes.h"
#include "pressure.h"

struct prefill {
    struct engine e;
    struct source *source;
    struct prompt next; /* read ahead */
    enum { NEXT_NONE, NEXT_READY, NEXT_END } next_state;
    struct prefixes
        seen; /* what was committed and could be resumed, if nothing were ever dropped */
    uint64_t start_ns;
    int peer;
};

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

/* When the next request comes, by the trace's clock. */
static uint64_t next_due_ns(const struct prefill *p)
{
    double speed = p->e.options->speed;

    if (p->next_state != NEXT_READY)
        return UINT64_MAX;
    return speed > 0 ? p->start_ns + (uint64_t)((double)p->next.timestamp_ms * 1e6 / speed) : 0;
}

/* The oracle: tokens of the deepest boundary at which an earlier commit left what is needed to go
 * on. Windows: at each of its chunks. RECURRENT: at its end alone. */
static uint32_t best_match(const struct prefill *p, const struct turn *turn)
{
    uint32_t i = turn->target / p->e.page_tokens;

    while (i > 0 && !prefixes_have(&p->seen, turn->table.group[0].prefix[i - 1]))
        i--;
    return i * p->e.page_tokens;
}

static void remember(struct prefill *p, const struct turn *turn)
{
    uint32_t n = turn->target / p->e.page_tokens,
             i = p->e.recurrent >= 0 ? n - (n > 0) : turn->matched / p->e.page_tokens;

    for (; i < n; i++)
        prefixes_add(&p->seen, turn->table.group[0].prefix[i]);
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

/* Fills idle turns with new requests, but not while one waits to be begun again, or to come back:
 * it would starve.
 */
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
        turn->prompt = p->next; /* they change places, so that neither's memory is copied */
        p->next = old;
        p->next_state = NEXT_NONE;
        turn_load(&p->e, turn);
        begin(p, turn);
        waiting = turn->state == TURN_WAITING || turn->state == TURN_ABORTING;
    }
    return true;
}

static bool hand_over(struct prefill *p, struct turn *turn)
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
    };

    turn->state = turn->handed == HANDED_ANSWERED ? TURN_CLOSING : TURN_HANDED;
    if (turn->handed != HANDED_NO)
        return true; /* computed again */
    turn->handed = HANDED_SENT;
    if (proc_send(p->peer, &m, sizeof m) && proc_send(p->peer, r->ids, r->nblocks * sizeof *r->ids))
        return true;
    engine_says(&p->e, "the decode engine is gone");
    return false;
}

/* What is said to be written at the commit. */
static uint32_t computed(const struct turn *turn)
{
    return turn->target > turn->committed ? turn->target : turn->prompt.input_length;
}

/* Up to here the next step computes. */
static uint32_t next_end(const struct engine *e, const struct turn *turn)
{
    uint32_t n = turn->prompt.input_length,
             piece = div_up(e->options->prefill_tokens, e->page_tokens) * e->page_tokens;

    return n - turn->ready <= piece ? n : turn->ready + piece;
}

/* What is computed is committed, and there is to be room for more. */
static void plan_piece(struct engine *e, struct turn *turn)
{
    if (turn->ready > turn->committed) {
        engine_add_op(e, turn, (struct engine_op){.kind = ENGINE_EXTEND, .written = turn->ready});
        engine_add_op(e, turn,
                      (struct engine_op){.kind = ENGINE_COMMIT,
                                         .length = turn->ready / e->page_tokens * e->page_tokens,
                                         .step = turn->step});
    }
    engine_add_op(e, turn, (struct engine_op){.kind = ENGINE_EXTEND, .length = next_end(e, turn)});
}

/* All is computed: the rest is committed, up to the last whole chunk. */
static bool plan_commit(struct prefill *p, struct turn *turn)
{
    struct engine *e = &p->e;
    uint32_t n = turn->prompt.input_length, said = computed(turn);
    bool commit = turn->target > turn->committed;

    if (!commit && turn->written == n)
        return hand_over(p, turn);
    if (said > turn->written)
        engine_add_op(e, turn, (struct engine_op){.kind = ENGINE_EXTEND, .written = said});
    if (commit)
        engine_add_op(
            e, turn,
            (struct engine_op){.kind = ENGINE_COMMIT, .length = turn->target, .step = turn->step});
    if (commit && n > said && n > turn->written && e->recurrent < 0)
        engine_add_op(e, turn, (struct engine_op){.kind = ENGINE_EXTEND, .written = n});
    return true;
}

/* The operations that this turn needs next. */
static bool plan(struct prefill *p, struct turn *turn)
{
    struct engine *e = &p->e;
    uint32_t n = turn->prompt.input_length;

    if (pressure_rests(turn, clock_ns()))
        return true;
    if (turn->state == TURN_MATCHED && turn_load_host(e, turn))
        return true;
    if (turn->state == TURN_MATCHED && n > turn->ready)
        plan_piece(e, turn);
    else if (turn->state == TURN_MATCHED)
        return hand_over(p, turn);
    else if (turn->state == TURN_WRITTEN) {
        return plan_commit(p, turn);
    } else if (turn->state == TURN_COPYING) {
        engine_add_op(e, turn, (struct engine_op){.kind = ENGINE_EXTEND, .written = n});
    } else if (turn->state == TURN_CLOSING || turn->state == TURN_ABORTING) {
        if (turn->session)
            engine_add_op(e, turn, (struct engine_op){.kind = ENGINE_CLOSE, .step = turn->step});
    }
    return true;
}

static void finish_turn(struct prefill *p, struct turn *turn)
{
    if (turn->state == TURN_ABORTING) {
        turn->state = TURN_WAITING;
    } else {
        if (turn->outcome == TERN_OK) {
            count(&p->e.board->matched_tokens, turn->matched);
            if (turn->best > turn->matched)
                count(&p->e.board->lost_resumable_tokens, turn->best - turn->matched);
        }
        turn->state = TURN_IDLE;
        p->e.finished++;
    }
    turn->session = 0;
}

/* The pages of an extend are ours to write: all behind what was matched. The windows that were
 * matched are read, as kernels would do it. */
static bool extended(struct prefill *p, struct turn *turn, const struct tern_result *r)
{
    struct engine *e = &p->e;
    uint32_t end = r->lengths.allocated;

    if (end > turn->prompt.input_length || !turn_extended(e, turn, r, turn->ready, end))
        return false;
    turn->room = end;
    for (uint32_t g = 0; g < e->geometry.ngroups; g++) {
        const struct tern_group *group = &e->geometry.groups[g];

        if (group->family == TERN_WINDOW && turn->ready == turn->matched)
            engine_add_jobs(e, turn, RANK_COMPARE, g, table_window_first(group, turn->matched),
                            turn->matched / group->page_tokens);
        if (group->family == TERN_HISTORY)
            count(&e->board->written_pages,
                  div_up(end, group->page_tokens) - turn->ready / group->page_tokens);
    }
    turn->state = TURN_EXTENDED;
    engine_add_tail(e, turn, turn->ready, end,
                    end < turn->prompt.input_length ? end : computed(turn));
    return true;
}

/* A RECURRENT page that the tree took has a fresh one in its place, which is filled in this step:
 * from now on the daemon takes it for the state of this session. */
static void fill_state(struct engine *e, struct turn *turn, uint32_t at)
{
    if (e->recurrent < 0 || turn->table.group[e->recurrent].from == 0)
        return;
    turn->step = e->step;
    engine_copy_state(e, turn, at);
}

/* The last commit is done. */
static bool committed(struct prefill *p, struct turn *turn, const struct tern_result *r)
{
    struct engine *e = &p->e;
    uint32_t got[PROFILE_GROUPS_MAX] = {0}, n = turn->prompt.input_length;

    remember(p, turn);
    if (e->recurrent < 0)
        return hand_over(p, turn);
    if (!table_take(&turn->table, r, got)) {
        engine_says(e, "request %llu: a commit names pages outside the prompt",
                    (unsigned long long)turn->prompt.index);
        return false;
    }
    turn->state = TURN_COPYING;
    fill_state(e, turn, turn->target);
    if (n == turn->target)
        return true;
    turn->step = e->step;
    engine_add_state(e, turn, RANK_WRITE, n);
    return true;
}

/* The table has the tree's pages now where others were faster. The commit ends early where a chunk
 * is on its way from the host tier for another session: the next one goes on from there. */
static bool piece_committed(struct engine *e, struct turn *turn, const struct tern_result *r)
{
    uint32_t got[PROFILE_GROUPS_MAX] = {0};

    if (r->lengths.committed <= turn->ready && table_take(&turn->table, r, got)) {
        fill_state(e, turn, r->lengths.committed);
        return true;
    }
    engine_says(e, "request %llu: a commit of %u tokens reached %u, or names pages outside",
                (unsigned long long)turn->prompt.index, turn->ready, r->lengths.committed);
    return false;
}

static bool take_result(struct prefill *p, uint32_t i)
{
    struct turn *turn = &p->e.turns[p->e.op_turn[i]];
    const struct tern_result *r = &p->e.results[i];
    const struct engine_op *op = &p->e.ops[i];
    bool last =
        i + 1 == p->e.nops || p->e.op_turn[i + 1] != p->e.op_turn[i] || op->kind == ENGINE_COMMIT;

    if (op->kind == ENGINE_CLOSE) {
        if (r->err != TERN_OK)
            engine_says(&p->e, "closing a session: %s", tern_strerror(r->err));
        finish_turn(p, turn);
        return r->err == TERN_OK;
    }
    if (turn->state != TURN_MATCHED && turn->state != TURN_WRITTEN && turn->state != TURN_COPYING)
        return true; /* an operation before this one failed */
    turn->committed = r->lengths.committed;
    turn->written = r->lengths.written;
    if (!turn_went_well(&p->e, turn, r))
        return true;
    if (turn->state == TURN_MATCHED && op->kind == ENGINE_COMMIT)
        return piece_committed(&p->e, turn, r);
    if (op->length)
        pressure_over(&p->e, turn);
    if (turn->state == TURN_MATCHED)
        return op->length == 0 || extended(p, turn, r);
    if (op->kind == ENGINE_COMMIT && turn->committed < turn->target) {
        pressure_wait(&p->e, turn);
        return piece_committed(&p->e, turn, r);
    }
    if (!last || turn->committed < turn->target)
        return true;
    pressure_over(&p->e, turn);
    return op->kind == ENGINE_COMMIT ? committed(p, turn, r) : hand_over(p, turn);
}

/* Writes what this iteration's extends brought; then its step is done in every rank. */
static bool write_pages(struct prefill *p)
{
    struct engine *e = &p->e;

    if (e->njobs == 0)
        return true;
    if (!engine_run_jobs(e, e->step, "what was to go on from"))
        return false;
    for (uint32_t i = 0; i < e->nturns; i++) {
        if (e->turns[i].state != TURN_EXTENDED)
            continue;
        e->turns[i].ready = e->turns[i].room;
        e->turns[i].state =
            e->turns[i].ready < e->turns[i].prompt.input_length ? TURN_MATCHED : TURN_WRITTEN;
        e->turns[i].step = e->step;
    }
    return true;
}

static bool iterate(struct prefill *p)
{
    struct engine *e = &p->e;

    e->nops = 0;
    e->step++;
    for (uint32_t i = 0; i < e->nturns; i++) {
        if (!plan(p, &e->turns[i]))
            return false;
        if ((e->turns[i].state == TURN_CLOSING || e->turns[i].state == TURN_ABORTING) &&
            !e->turns[i].session)
            finish_turn(p, &e->turns[i]);
    }
    if (e->nops && !engine_step(e))
        return false;
    for (uint32_t i = 0; i < e->nops; i++) {
        if (!take_result(p, i))
            return false;
    }
    return write_pages(p) && pressure_act(&p->e);
}

/* How long there is nothing to do but to wait for the decode side; 0: there is something. */
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
    if (idle > 0 && p->next_state != NEXT_END && until == UINT64_MAX)
        until = p->next_state == NEXT_NONE ? 0 : next_due_ns(p);
    if (idle == p->e.nturns && p->next_state == NEXT_END)
        return 0;
    return engine_wait_ms(&p->e, now, until);
}

/* The decode side is done with this one. */
static bool take_done(struct prefill *p)
{
    struct handover_done m;
    struct turn *turn;

    if (!proc_recv(p->peer, &m, sizeof m) || m.turn >= p->e.nturns ||
        p->e.turns[m.turn].handed != HANDED_SENT) {
        engine_says(&p->e, "the decode engine is gone");
        return false;
    }
    turn = &p->e.turns[m.turn];
    turn->handed = HANDED_ANSWERED;
    if (turn->state == TURN_HANDED || (turn->state == TURN_RETRACTED && turn->back == TURN_HANDED))
        turn->state = TURN_CLOSING;
    return true;
}

/* The daemon's answers to what was submitted. */
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

/* Synchronous calls keep answers that come meanwhile: they are taken before the wait too. */
static bool take_answers(struct prefill *p)
{
    struct pollfd fd[2] = {{.fd = p->peer, .events = POLLIN},
                           {.fd = tern_fd(p->e.tern), .events = POLLIN}};

    if (!take_submitted(p))
        return false;
    if (tern_wants_write(p->e.tern))
        fd[1].events |= POLLOUT;
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
        if (!admit(p) || !iterate(p) || !take_answers(p))
            return false;
    }
    return true;
}

int prefill_main(const struct options *o, struct board *board, const uint32_t *group_pages,
                 int peer, int parent)
{
    struct prefill p = {.peer = peer};
    bool ok = engine_start(&p.e, o, board, board->prefill_why, o->prefill_socket, "replay-prefill",
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
