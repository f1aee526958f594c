/* Retracting and resuming: see pressure.h. */
#include "pressure.h"

#include "engine/stats.h"

#define MS            UINT64_C(1000000)
#define CALM_MS       5    /* time for a retract's copies before the next retract */
#define WAITS_MAX     2000 /* a millisecond each: longer than any step or copy takes */
#define RECOVER_TRIES 50   /* with nothing else running, before a request is given up */

void pressure_note(struct engine *e, struct turn *turn, const struct tern_shortage *shortage)
{
    turn->waits++;
    turn->not_before_ns = clock_ns() + MS;
    if (e->pressed && e->pressed->order < turn->order)
        return;
    e->pressed = turn;
    e->shortage = *shortage;
}

bool turn_went_well(struct engine *e, struct turn *turn, const struct tern_result *result)
{
    if (result->err == TERN_POOL_EXHAUSTED)
        pressure_note(e, turn, &result->shortage);
    else if (result->err == TERN_BUSY)
        pressure_wait(e, turn); /* the evicted pages are copied first */
    else if (result->err != TERN_OK)
        turn_give_up(e, turn, result->err);
    return result->err == TERN_OK;
}

void pressure_wait(struct engine *e, struct turn *turn)
{
    turn->waits++;
    turn->not_before_ns = clock_ns() + MS;
    if (turn->waits >= WAITS_MAX)
        turn_give_up(e, turn, TERN_BUSY);
}

void pressure_over(struct engine *e, struct turn *turn)
{
    if (e->pressed == turn)
        e->pressed = NULL;
    turn->waits = 0;
    turn->not_before_ns = 0;
}

bool pressure_rests(const struct turn *turn, uint64_t now_ns)
{
    return turn->waits > 0 && now_ns < turn->not_before_ns;
}

/* Returns true if the turn runs and has no transfer, so that another turn may get its pages. */
static bool can_give_way(const struct turn *turn)
{
    return turn->session != 0 && (turn->state == TURN_MATCHED || turn->state == TURN_WRITTEN ||
                                  turn->state == TURN_HANDING || turn->state == TURN_HANDED ||
                                  turn->state == TURN_ARRIVED);
}

/* Tokens that a retract frees, in the mode that frees more: DROP the uncommitted ones, HOST the
 * committed ones. 0 if the session has none. */
static uint32_t to_give(const struct engine *e, const struct turn *turn,
                        enum tern_retract_mode *ret_mode)
{
    uint32_t own = turn->room - turn->committed;

    if (e->geometry.layout.host_bytes > 0 && turn->committed > 0 && turn->committed >= own) {
        *ret_mode = TERN_RETRACT_HOST;
        return turn->committed;
    }
    *ret_mode = TERN_RETRACT_DROP;
    return own;
}

/* Returns true if the turn will end, or need pages, without further action. */
static bool goes_on(const struct turn *turn)
{
    return turn->state != TURN_IDLE && turn->state != TURN_WAITING &&
           turn->state != TURN_RETRACTED && turn->waits == 0;
}

static bool others_go_on(const struct engine *e, const struct turn *turn)
{
    for (uint32_t i = 0; i < e->nturns; i++) {
        if (&e->turns[i] != turn && goes_on(&e->turns[i]))
            return true;
    }
    return false;
}

/* Returns true if every turn is idle, retracted or waits to begin again. */
static bool all_quiet(const struct engine *e)
{
    for (uint32_t i = 0; i < e->nturns; i++) {
        enum turn_state state = e->turns[i].state;

        if (state != TURN_IDLE && state != TURN_WAITING && state != TURN_RETRACTED)
            return false;
    }
    return true;
}

static struct turn *youngest_running(struct engine *e)
{
    struct turn *best = NULL;

    for (uint32_t i = 0; i < e->nturns; i++) {
        struct turn *turn = &e->turns[i];
        enum tern_retract_mode mode;

        if (can_give_way(turn) && to_give(e, turn, &mode) > 0 &&
            (!best || turn->order > best->order))
            best = turn;
    }
    return best;
}

/* Returns the youngest turn that is short of pages or retracted, except `spared`. */
static struct turn *youngest_stuck(struct engine *e, const struct turn *spared)
{
    struct turn *best = NULL;

    for (uint32_t i = 0; i < e->nturns; i++) {
        struct turn *turn = &e->turns[i];
        bool stuck = turn->state == TURN_RETRACTED || (can_give_way(turn) && turn->waits > 0);

        if (stuck && turn != spared && (!best || turn->order > best->order))
            best = turn;
    }
    return best;
}

/* Reports the length that counts as written now: a prefix is committed at its last whole chunk, so
 * no more than that before the commit. */
static bool say_written(struct engine *e, struct turn *turn)
{
    uint32_t n = turn->ready;
    struct tern_result r;
    enum tern_err err;

    if (turn->committed < turn->target && n > turn->target)
        n = turn->target;
    if (n <= turn->written)
        return true;
    err = tern_extend(e->tern, turn->session, NULL, n, 0, CALL_MS, &r);
    if (err != TERN_OK)
        engine_says(e, "saying that %u tokens are written: %s", n, tern_error_text(e->tern, NULL));
    turn->written = n;
    return err == TERN_OK;
}

/* TERN_POOL_EXHAUSTED: it cannot be retracted: the host has no room, or the STATE of its committed
 * tokens has left its table. */
static enum tern_err retract(struct engine *e, struct turn *turn)
{
    struct tern_retracted r = {0};
    uint64_t step = turn->step ? turn->step : TERN_STEP_NONE;
    enum tern_retract_mode mode;
    enum tern_err err;

    to_give(e, turn, &mode);
    if (!say_written(e, turn))
        return TERN_INTERNAL;
    err = tern_retract(e->tern, turn->session, mode, step, CALL_MS, &r);
    if (err == TERN_POOL_EXHAUSTED && mode == TERN_RETRACT_HOST && turn->room > turn->committed) {
        mode = TERN_RETRACT_DROP;
        err = tern_retract(e->tern, turn->session, mode, step, CALL_MS, &r);
    }
    if (err == TERN_OK && r.lengths.committed != turn->committed) {
        engine_says(e, "request %llu: a retract moved its checkpoint from %u to %u tokens",
                    (unsigned long long)turn->prompt.index, turn->committed, r.lengths.committed);
        return TERN_INTERNAL;
    }
    if (err == TERN_INVALID && mode == TERN_RETRACT_DROP && turn->ready > turn->committed)
        return TERN_POOL_EXHAUSTED;
    if (err != TERN_OK) {
        if (err != TERN_POOL_EXHAUSTED)
            engine_says(e, "a retract: %s", tern_error_text(e->tern, NULL));
        return err;
    }
    count(e->counts.retracts, 1);
    turn->back = turn->state;
    turn->state = TURN_RETRACTED;
    turn->away = ++e->aways;
    turn->seen_finished = e->finished;
    turn->waits = 0;
    turn->not_before_ns = clock_ns() + MS;
    e->calm_until_ns = clock_ns() + CALM_MS * MS;
    return TERN_OK;
}

bool pressure_away(struct engine *e, struct turn *turn)
{
    enum tern_err err = retract(e, turn);

    return err == TERN_OK || err == TERN_POOL_EXHAUSTED;
}

/* Publishes the step, so that pages that wait for it become free. */
static bool publish(struct engine *e, uint64_t step)
{
    return step <= e->published || step > e->step || engine_run_jobs(e, step, "nothing");
}

/* `turn` is blocked for lack of pages. */
static bool relieve(struct engine *e, struct turn *turn)
{
    struct turn *victim;
    enum tern_err err;

    if (e->shortage.until_step != 0 && turn->waits < WAITS_MAX)
        return publish(e, e->shortage.until_step);
    if (clock_ns() < e->calm_until_ns)
        return true;
    victim = youngest_running(e);
    if (victim && (victim != turn || others_go_on(e, turn))) {
        err = retract(e, victim);
        if (err != TERN_POOL_EXHAUSTED)
            return err == TERN_OK;
    }
    if (others_go_on(e, turn) && turn->waits < WAITS_MAX)
        return true;
    victim = youngest_stuck(e, turn);
    turn_give_up(e, victim && victim->order > turn->order ? victim : turn, TERN_POOL_EXHAUSTED);
    e->calm_until_ns = clock_ns() + CALM_MS * MS;
    return true;
}

static struct turn *first_away(struct engine *e)
{
    struct turn *best = NULL;

    for (uint32_t i = 0; i < e->nturns; i++) {
        struct turn *turn = &e->turns[i];

        if (turn->state == TURN_RECOVERING)
            return NULL; /* one at a time */
        if (turn->state == TURN_RETRACTED && (!best || turn->away < best->away))
            best = turn;
    }
    return best;
}

static bool may_come_back(const struct engine *e, const struct turn *turn, uint64_t now_ns)
{
    return now_ns >= turn->not_before_ns && (e->finished != turn->seen_finished || all_quiet(e));
}

bool pressure_act(struct engine *e)
{
    struct turn *turn = e->pressed;
    enum tern_err err;

    e->pressed = NULL;
    if (turn && !relieve(e, turn))
        return false;
    turn = first_away(e);
    if (!turn || !may_come_back(e, turn, clock_ns()))
        return true;
    err = tern_submit_recover(e->tern, turn->session, (uint64_t)(turn - e->turns));
    if (err == TERN_OK)
        turn->state = TURN_RECOVERING;
    else if (err != TERN_BUSY)
        engine_says(e, "a recover: %s", tern_strerror(err));
    return err == TERN_OK || err == TERN_BUSY;
}

/* The turn stays retracted. With nothing else to wait for, the youngest is given up. */
static bool not_yet(struct engine *e, struct turn *turn, const struct tern_answer *a)
{
    struct turn *victim;

    turn->state = TURN_RETRACTED;
    turn->seen_finished = e->finished;
    turn->not_before_ns = clock_ns() + MS;
    if (a->n == 1 && !publish(e, a->results[0].shortage.until_step))
        return false;
    if (!all_quiet(e) || ++turn->waits < RECOVER_TRIES)
        return true;
    turn->waits = 0;
    victim = youngest_stuck(e, turn);
    turn_give_up(e, victim ? victim : turn, TERN_POOL_EXHAUSTED);
    return true;
}

static bool check_back(struct engine *e, struct turn *turn, const struct tern_result *r)
{
    uint32_t got[PROFILE_GROUPS_MAX] = {0}, n = r->lengths.written;

    table_forget(&turn->table);
    if (r->lengths.committed != turn->committed || n < turn->committed ||
        n > turn->prompt.input_length || r->lengths.allocated != n) {
        engine_says(e,
                    "request %llu: %u tokens were committed, and %u, %u written, %u with room "
                    "came back",
                    (unsigned long long)turn->prompt.index, turn->committed, r->lengths.committed,
                    n, r->lengths.allocated);
        return false;
    }
    if (!table_take(&turn->table, r, got) || !table_covers(&turn->table, n)) {
        engine_says(e, "request %llu: a recover to %u tokens does not name all of their pages",
                    (unsigned long long)turn->prompt.index, n);
        return false;
    }
    for (uint32_t g = 0; g < e->geometry.ngroups; g++)
        count(e->counts.recovered_pages, got[g]);
    turn->room = turn->ready = turn->written = n;
    engine_add_table(e, turn, 0, n);
    return engine_run_jobs(e, 0, "what a recover brought back");
}

bool pressure_recovered(struct engine *e, struct turn *turn, const struct tern_answer *a)
{
    if (a->err == TERN_POOL_EXHAUSTED || a->err == TERN_TIMED_OUT || a->err == TERN_BUSY)
        return not_yet(e, turn, a);
    if (a->err != TERN_OK || a->n != 1) {
        engine_says(e, "request %llu did not come back: %s", (unsigned long long)turn->prompt.index,
                    tern_strerror(a->err));
        turn_give_up(e, turn, a->err == TERN_OK ? TERN_INTERNAL : a->err);
        return true;
    }
    if (!check_back(e, turn, a->results))
        return false;
    count(e->counts.recovers, 1);
    pressure_over(e, turn);
    turn->state = turn->back;
    if ((turn->back == TURN_WRITTEN || turn->back == TURN_HANDING) &&
        turn->ready < turn->prompt.input_length)
        turn->state = TURN_MATCHED; /* its last tokens must be computed again */
    return true;
}

bool pressure_loaded(struct engine *e, struct turn *turn, const struct tern_answer *a)
{
    if (a->err == TERN_BUSY) {
        turn->state = TURN_MATCHED;
        pressure_wait(e, turn);
        return true;
    }
    pressure_over(e, turn);
    return turn_loaded(e, turn, a);
}

uint64_t pressure_due_ns(const struct engine *e, uint64_t now_ns)
{
    uint64_t due = UINT64_MAX;

    for (uint32_t i = 0; i < e->nturns; i++) {
        const struct turn *turn = &e->turns[i];
        uint64_t at = turn->not_before_ns > now_ns ? turn->not_before_ns : now_ns;

        if ((turn->state == TURN_RETRACTED &&
             (e->finished != turn->seen_finished || all_quiet(e))) ||
            (turn->waits > 0 && can_give_way(turn)))
            due = at < due ? at : due;
    }
    return due;
}

int engine_wait_ms(const struct engine *e, uint64_t now_ns, uint64_t until_ns)
{
    uint64_t due = pressure_due_ns(e, now_ns);

    due = due < until_ns ? due : until_ns;
    if (due <= now_ns)
        return 0;
    return due == UINT64_MAX ? -1 : (int)((due - now_ns) / MS + 1);
}
