/* Fetches of the decode engine, by tokens or by ticket: see decode.h. A fetch by tokens that fails
 * begins again from a new session. A fetch by ticket resumes in its session, which keeps the pages
 * that arrived; if the ticket is gone the request returns to the prefill engine, which hands it
 * over anew. */
#include "decode.h"

#include <string.h>

#include "base/err.h"
#include "engine/stats.h"
#include "handover.h"
#include "pressure.h"

#define SOURCE_AWAY_MS 20 /* before a Match of a request whose source session was retracted */
#define MS             UINT64_C(1000000)
#define KEY_AT         40 /* in a ticket's text, which begins with two numbers of 16 digits */

static void counted_from(struct decode *d)
{
    if (d->fetching++ == 0)
        d->fetching_since_ns = clock_ns();
}

static void counted_to(struct decode *d)
{
    if (--d->fetching == 0)
        count(&d->e.board->fetching_ns, clock_ns() - d->fetching_since_ns);
}

/* --- beginning --- */

/* Whole HISTORY pages may be here beyond the STATE to resume from: then only STATE is fetched. */
static enum tern_err look_at_history(struct decode *d, struct turn *turn)
{
    const struct engine *e = &d->e;
    struct tern_tokens tokens = {.v = turn->tokens, .n = turn->prompt.input_length};
    struct tern_depths depths;

    turn->history = turn->ready;
    if (e->nhistory == e->geometry.ngroups)
        return TERN_OK;
    TRY(tern_peek(e->tern, e->pool, &e->ns, &tokens, CALL_MS, &depths));
    turn->history = depths.history > turn->ready ? depths.history : turn->ready;
    return TERN_OK;
}

/* Shows a forged ticket: the source must refuse it. */
static bool show_forged(struct decode *d, struct turn *turn)
{
    char text[TERN_TICKET_BYTES];
    struct tern_result r;
    enum tern_err err;

    memcpy(text, turn->ticket, sizeof text);
    text[KEY_AT] = text[KEY_AT] == '0' ? '1' : '0';
    err = tern_fetch(d->e.tern, turn->session,
                     &(struct tern_fetch){.ticket = text, .step = TERN_STEP_NONE}, CALL_MS, &r);
    if (err != TERN_DENIED && err != TERN_GONE)
        engine_says(&d->e, "request %llu: a forged ticket was answered by: %s",
                    (unsigned long long)turn->prompt.index, tern_strerror(err));
    return err == TERN_DENIED || err == TERN_GONE;
}

/* Runs the trouble that comes before the fetch. If the turn is MATCHED and does not rest
 * afterwards, the fetch may begin. */
static bool trouble_before(struct decode *d, struct turn *turn)
{
    enum trouble trouble = turn->trouble;

    switch (trouble) {
    case TROUBLE_LEAVE: turn->state = TURN_RETURNING; return true;
    case TROUBLE_EXPIRE:
        turn->trouble = TROUBLE_NONE;
        turn->waits = 1;
        turn->not_before_ns = clock_ns() + 2 * TICKET_BRIEF_MS * MS;
        return true;
    case TROUBLE_FORGE: turn->trouble = TROUBLE_NONE; return show_forged(d, turn);
    case TROUBLE_AWAY_BEFORE: turn->trouble = TROUBLE_NONE; return pressure_away(&d->e, turn);
    default: return true;
    }
}

static enum tern_err submit(struct decode *d, struct turn *turn)
{
    struct tern_fetch fetch = {.step = TERN_STEP_NONE};

    if (turn->ticket[0]) {
        fetch.ticket = turn->ticket;
    } else {
        fetch.peer = d->e.options->peer;
        fetch.depth = turn->target;
    }
    return tern_submit_fetch(d->e.tern, turn->session, &fetch, (uint64_t)(turn - d->e.turns));
}

bool fetch_begin(struct decode *d, struct turn *turn)
{
    uint32_t wanted = turn->ticket[0] ? turn->prompt.input_length : turn->target;
    enum tern_err err;

    if (d->e.pressed == turn) /* it may still be given up: pressure_act decides */
        return true;
    if (pressure_rests(turn, clock_ns()) || turn_load_host(&d->e, turn))
        return true;
    if (!trouble_before(d, turn))
        return false;
    if (turn->state != TURN_MATCHED || pressure_rests(turn, clock_ns()))
        return true;
    if (turn->ready == wanted) {
        turn->state = TURN_ARRIVED;
        return true;
    }
    err = look_at_history(d, turn);
    if (err == TERN_OK)
        err = submit(d, turn);
    if (err == TERN_BUSY)
        return true; /* the connection has all its requests: try again after an answer */
    if (err != TERN_OK) {
        turn_give_up(&d->e, turn, err);
        return true;
    }
    turn->state = TURN_FETCHING;
    if (turn->trouble == TROUBLE_CANCEL || turn->trouble == TROUBLE_CLOSE)
        turn->due_ns = clock_ns() + trouble_delay_ns(d->e.options->source.seed, turn->prompt.index,
                                                     turn->handoff);
    counted_from(d);
    return true;
}

/* --- ending --- */

/* Pages of a group that the session lacked of `end` tokens when it fetched. */
static uint32_t lacked(const struct turn *turn, const struct tern_group *g, uint32_t end)
{
    uint32_t first = turn->matched / g->page_tokens, window = table_window_first(g, end);

    if (g->family == TERN_RECURRENT)
        return 1;
    if (g->family == TERN_HISTORY)
        first = (turn->history < end ? turn->history : end) / g->page_tokens;
    return div_up(end, g->page_tokens) - (first > window ? first : window);
}

static uint64_t bytes_lacked(const struct engine *e, const struct turn *turn, uint32_t end)
{
    uint64_t bytes = 0,
             regions = e->geometry.layout.shard == TERN_SHARD_REPLICATED ? 1 : e->geometry.ranks;

    for (uint32_t g = 0; g < e->geometry.ngroups; g++)
        bytes +=
            regions * e->geometry.groups[g].page_bytes * lacked(turn, &e->geometry.groups[g], end);
    return bytes;
}

/* Whole HISTORY pages of the prompt in the table, beyond those that Match named. */
static uint32_t whole_arrived(const struct engine *e, const struct turn *turn)
{
    uint32_t n = 0;

    for (uint32_t g = 0; g < e->geometry.ngroups; g++) {
        const struct tern_group *group = &e->geometry.groups[g];

        for (uint32_t i = 0; group->family == TERN_HISTORY && i < turn->target / group->page_tokens;
             i++)
            n += turn->table.group[g].index[i] != 0;
    }
    return n - turn->hits;
}

/* Takes the session's lengths after any end of a fetch. Returns false if pages are missing. */
static bool take_lengths(struct engine *e, struct turn *turn, const struct tern_result *r)
{
    uint32_t got[PROFILE_GROUPS_MAX] = {0}, n = r->lengths.written;

    if (r->lengths.committed < turn->committed || n < r->lengths.committed ||
        n > turn->prompt.input_length || !table_take(&turn->table, r, got) ||
        !table_covers(&turn->table, n)) {
        engine_says(e, "request %llu: a fetch to %u tokens does not name their pages, or others",
                    (unsigned long long)turn->prompt.index, n);
        return false;
    }
    turn->committed = r->lengths.committed;
    turn->written = turn->room = turn->ready = n;
    return true;
}

static bool blob_is_right(struct decode *d, const struct turn *turn, const struct tern_result *r)
{
    static uint8_t want[TERN_BLOB_BYTES];
    uint32_t n = blob_make(d->e.options->source.seed, turn->prompt.index, turn->handoff, want);

    if (r->blob_bytes == n && (n == 0 || memcmp(r->blob, want, n) == 0))
        return true;
    count(d->e.counts.wrong, n ? n : 1);
    engine_says(&d->e, "request %llu: a blob of %u bytes came for one of %u",
                (unsigned long long)turn->prompt.index, r->blob_bytes, n);
    return false;
}

/* Everything arrived as requested. */
static void arrived(struct decode *d, struct turn *turn, const struct tern_answer *a)
{
    struct engine *e = &d->e;

    pressure_over(e, turn);
    turn->arrived = whole_arrived(e, turn);
    count(&e->board->bytes_needed, bytes_lacked(e, turn, turn->ready));
    count(&e->board->fetched_kib, a->results[0].fetched_kib);
    turn->state = TURN_ARRIVED;
}

static void take_by_tokens(struct decode *d, struct turn *turn, const struct tern_answer *a)
{
    enum tern_err err = a->err;
    bool gave_way = false;

    if (err == TERN_OK && !take_lengths(&d->e, turn, &a->results[0]))
        err = TERN_INTERNAL;
    if (err == TERN_OK && turn->committed < turn->target) {
        err = TERN_BUSY; /* the source has less than reported: its session was retracted */
        gave_way = true;
    }
    if (err == TERN_OK) {
        arrived(d, turn, a);
        return;
    }
    turn_give_up(&d->e, turn, err); /* again, from a new Match */
    if (gave_way)
        turn->not_before_ns += SOURCE_AWAY_MS * MS;
}

/* A fetch by ticket delivers everything, or the session keeps what it has. */
static void take_by_ticket(struct decode *d, struct turn *turn, const struct tern_answer *a)
{
    const struct tern_result *r = &a->results[0];
    bool cut = turn->due_ns != 0 && turn->trouble == TROUBLE_NONE;
    enum tern_err err = a->err;

    turn->due_ns = 0;
    if ((err == TERN_OK || err == TERN_GONE || err == TERN_BUSY) &&
        (a->n != 1 || !take_lengths(&d->e, turn, r)))
        err = TERN_INTERNAL;
    if (err == TERN_OK) {
        turn->fate = FATE_FETCHED;
        /* Not all tokens need be committed: if another session is loading a chunk from the host
         * tier, the pages from there on stay the session's own. */
        if (turn->ready == turn->prompt.input_length && blob_is_right(d, turn, r)) {
            arrived(d, turn, a);
            return;
        }
        err = TERN_INTERNAL;
    }
    if (err == TERN_GONE && cut) {
        count(&d->e.board->cancelled, 1);
        turn->state = TURN_MATCHED;
    } else if (err == TERN_GONE) {
        turn->fate = FATE_GONE;
        turn->state = TURN_RETURNING;
    } else if (err == TERN_BUSY) {
        turn->state = TURN_MATCHED;
        pressure_wait(&d->e, turn);
    } else {
        turn_give_up(&d->e, turn, err);
    }
}

/* The session was closed while it fetched. */
static void take_closed(struct decode *d, struct turn *turn, const struct tern_answer *a)
{
    turn->due_ns = 0;
    if (a->err == TERN_OK)
        turn->fate = FATE_FETCHED; /* the fetch was quicker, and nobody has its pages */
    else if (a->err == TERN_GONE)
        count(&d->e.board->cancelled, 1);
    turn->state = TURN_ABORTING;
}

void fetch_take(struct decode *d, struct turn *turn, const struct tern_answer *a)
{
    counted_to(d);
    if (!turn->session) {
        take_closed(d, turn, a);
    } else if (a->err == TERN_POOL_EXHAUSTED && a->n == 1 &&
               a->results[0].lengths.committed == turn->committed) {
        turn->due_ns = 0;
        turn->state = TURN_MATCHED;
        pressure_note(&d->e, turn, &a->results[0].shortage);
    } else if (turn->ticket[0]) {
        take_by_ticket(d, turn, a);
    } else {
        take_by_tokens(d, turn, a);
    }
}

/* --- cutting short --- */

static enum tern_err cut(struct decode *d, struct turn *turn)
{
    struct tern_result r;
    enum trouble trouble = turn->trouble;

    turn->trouble = TROUBLE_NONE;
    if (trouble == TROUBLE_CANCEL)
        return tern_fetch_cancel(d->e.tern, turn->session, CALL_MS);
    TRY(tern_session_close(d->e.tern, turn->session, TERN_STEP_NONE, CALL_MS, &r));
    turn->session = 0;
    return TERN_OK;
}

bool fetches_cut(struct decode *d)
{
    uint64_t now = clock_ns();

    for (uint32_t i = 0; i < d->e.nturns; i++) {
        struct turn *turn = &d->e.turns[i];
        enum tern_err err;

        if (turn->state != TURN_FETCHING || turn->trouble == TROUBLE_NONE || turn->due_ns == 0 ||
            now < turn->due_ns)
            continue;
        err = cut(d, turn);
        if (err == TERN_OK)
            continue;
        engine_says(&d->e, "cutting a fetch short: %s", tern_error_text(d->e.tern, NULL));
        return false;
    }
    return true;
}

uint64_t fetches_due_ns(const struct decode *d)
{
    uint64_t due = UINT64_MAX;

    for (uint32_t i = 0; i < d->e.nturns; i++) {
        const struct turn *turn = &d->e.turns[i];

        if (turn->state == TURN_FETCHING && turn->trouble != TROUBLE_NONE && turn->due_ns &&
            turn->due_ns < due)
            due = turn->due_ns;
    }
    return due;
}
