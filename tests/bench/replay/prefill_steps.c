/* One Step of the prefill engine: see prefill.h. It commits as if it had stopped at the last whole
 * chunk, because its window is then the one that the decode side needs, and stays until the close.
 * With a RECURRENT group it really stops there, copies the state that the tree took back into its
 * own page, and continues. */
#include "engine/stats.h"
#include "handing.h"
#include "prefill.h"
#include "pressure.h"

static void remember(struct prefill *p, const struct turn *turn)
{
    uint32_t n = turn->target / p->e.page_tokens,
             i = p->e.recurrent >= 0 ? n - (n > 0) : turn->matched / p->e.page_tokens;

    for (; i < n; i++)
        prefixes_add(&p->seen, turn->table.group[0].prefix[i]);
}

/* The length that the commit reports as written. */
static uint32_t computed(const struct turn *turn)
{
    return turn->target > turn->committed ? turn->target : turn->prompt.input_length;
}

/* The next step computes up to here. */
static uint32_t next_end(const struct engine *e, const struct turn *turn)
{
    uint32_t n = turn->prompt.input_length,
             piece = div_up(e->options->prefill_tokens, e->page_tokens) * e->page_tokens;

    return n - turn->ready <= piece ? n : turn->ready + piece;
}

/* Commits what is computed, and allocates room for more. */
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

/* Everything is computed: commits the rest, up to the last whole chunk. */
static void plan_commit(struct engine *e, struct turn *turn)
{
    uint32_t n = turn->prompt.input_length, said = computed(turn);
    bool commit = turn->target > turn->committed;

    if (!commit && turn->written == n)
        turn->state = TURN_HANDING;
    else if (said > turn->written)
        engine_add_op(e, turn, (struct engine_op){.kind = ENGINE_EXTEND, .written = said});
    if (commit)
        engine_add_op(
            e, turn,
            (struct engine_op){.kind = ENGINE_COMMIT, .length = turn->target, .step = turn->step});
    if (commit && n > said && n > turn->written && e->recurrent < 0)
        engine_add_op(e, turn, (struct engine_op){.kind = ENGINE_EXTEND, .written = n});
}

/* Plans the operations that this turn needs next. */
static void plan(struct engine *e, struct turn *turn)
{
    uint32_t n = turn->prompt.input_length;

    if (pressure_rests(turn, clock_ns()))
        return;
    if (turn->state == TURN_MATCHED && turn_load_host(e, turn))
        return;
    if (turn->state == TURN_MATCHED && n > turn->ready)
        plan_piece(e, turn);
    else if (turn->state == TURN_MATCHED)
        turn->state = TURN_HANDING;
    else if (turn->state == TURN_WRITTEN) {
        plan_commit(e, turn);
    } else if (turn->state == TURN_COPYING) {
        engine_add_op(e, turn, (struct engine_op){.kind = ENGINE_EXTEND, .written = n});
    } else if (turn->state == TURN_CLOSING || turn->state == TURN_ABORTING) {
        if (turn->session)
            engine_add_op(e, turn, (struct engine_op){.kind = ENGINE_CLOSE, .step = turn->step});
    }
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

/* The pages of an extend are ours to write: all behind the match. The matched windows are read, as
 * kernels would do it. */
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

/* The tree took a RECURRENT page, and a fresh one has replaced it. Fills that page in this step:
 * from now on it is the session's state to the daemon. */
static void fill_state(struct engine *e, struct turn *turn, uint32_t at)
{
    if (e->recurrent < 0 || turn->table.group[e->recurrent].from == 0)
        return;
    turn->step = e->step;
    engine_copy_state(e, turn, at);
}

/* Takes the result of the last commit. */
static bool committed(struct prefill *p, struct turn *turn, const struct tern_result *r)
{
    struct engine *e = &p->e;
    uint32_t got[PROFILE_GROUPS_MAX] = {0}, n = turn->prompt.input_length;

    remember(p, turn);
    if (e->recurrent < 0) {
        turn->state = TURN_HANDING;
        return true;
    }
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

/* The table now has the tree's pages for chunks that others committed first. The commit ends early
 * if another session is loading a chunk from the host tier: the next commit continues there. */
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
        return true; /* an earlier operation failed */
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
    if (op->kind == ENGINE_COMMIT)
        return committed(p, turn, r);
    turn->state = TURN_HANDING;
    return true;
}

/* Writes the pages of this iteration's extends, and publishes their step in every rank. */
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

bool prefill_step(struct prefill *p)
{
    struct engine *e = &p->e;

    e->nops = 0;
    e->step++;
    for (uint32_t i = 0; i < e->nturns; i++) {
        plan(e, &e->turns[i]);
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
    return write_pages(p) && handing_act(p) && pressure_act(&p->e);
}
