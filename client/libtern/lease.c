/* The calls of a lease that a scheduler's thread makes in every decode step, without a system call:
 * its sessions and their operations. The gathered operations form one Step, which lease_submit.c
 * passes to sender.c. See lease.h. */
#include "lease.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/err.h"

/* ---- gathering ---- */

static enum tern_err is_full(struct tern_lease *l)
{
    return set_error(
        l->t, TERN_BUSY,
        "the gathered operations fill one Step: call tern_lease_submit, then continue");
}

bool lease_has_room(struct tern_lease *l, uint32_t pages, uint32_t runs, uint32_t words)
{
    const struct lease_step *s = lease_gathering(l);
    const size_t most = 128 + (size_t)pages * sizeof(struct tern_page) + runs * 32u + words * 4u;

    return s->nops < TERN_BATCH_OPS_MAX && pages <= LEASE_STEP_PAGES - s->npages &&
           runs <= LEASE_STEP_RUNS - l->nruns && words <= LEASE_STEP_WORDS - l->nwords &&
           l->bytes + most + TRACE_BYTES <= l->t->socket.body_max;
}

void lease_gather(struct tern_lease *l, struct client_op op, uint32_t slot, uint32_t npages)
{
    struct lease_step *s = lease_gathering(l);

    s->op[s->nops] = (struct lease_op){.kind = op.kind,
                                       .slot = slot,
                                       .npages = npages,
                                       .length = op.length,
                                       .written = op.written};
    l->bytes += quick_op_measure(&op);
    l->op[s->nops++] = op;
    s->npages += npages;
    l->nruns += op.nruns;
    if (slot != UINT32_MAX)
        l->cold[slot].under_way++;
}

/* Moves the session's waiting tokens into an operation. */
static struct tern_tokens tell_tokens(struct tern_lease *l, struct lease_slot *s)
{
    struct tern_tokens t = {
        .v = l->words + l->nwords, .n = s->nwaiting, .base = s->tokens - s->nwaiting};

    memcpy(l->words + l->nwords, s->waiting, s->nwaiting * sizeof *s->waiting);
    l->nwords += s->nwaiting;
    s->nwaiting = 0;
    s->told = true;
    return t.n > 0 ? t : (struct tern_tokens){0};
}

/* Gathers an assign without pages that reports the session's unreported tokens and lengths. The
 * daemon has all its pages, unless an earlier operation was refused. Then this assign is refused
 * too, whereas an extend would allocate pages unknown to the engine. */
static enum tern_err tell_lengths(struct tern_lease *l, uint32_t at)
{
    struct lease_slot *s = &l->slot[at];

    if (s->nwaiting == 0 && s->told)
        return TERN_OK;
    if (!lease_has_room(l, 0, 0, s->nwaiting))
        return is_full(l);
    lease_gather(l,
                 (struct client_op){.kind = CLIENT_ASSIGN,
                                    .session = s->session,
                                    .length = s->allocated,
                                    .written = s->written,
                                    .tokens = tell_tokens(l, s)},
                 at, 0);
    return TERN_OK;
}

static enum tern_err slot_of(struct tern_lease *l, uint32_t at, struct lease_slot **ret)
{
    l->t->text[0] = '\0';
    if (l->t->socket.state != CLIENT_SOCKET_UP)
        return set_error(l->t, TERN_DAEMON_LOST, NULL);
    if (at >= l->nslots || l->slot[at].state == LEASE_SLOT_FREE ||
        l->slot[at].state == LEASE_SLOT_LEAVING)
        return set_error(l->t, TERN_GONE, "the session is not in the lease: it was removed");
    *ret = &l->slot[at];
    return l->slot[at].state == LEASE_SLOT_FAILED
               ? set_error_numbers(l->t, l->cold[at].err, l->cold[at].text, l->cold[at].numbers)
               : TERN_OK;
}

/* ---- sessions ---- */

static uint32_t pages_at(const struct lease_group *g, uint32_t tokens)
{
    return g->page_tokens == 0 ? 0 : tokens / g->page_tokens + (tokens % g->page_tokens != 0);
}

/* Returns the tokens that fit into the pages that cover `allocated` tokens, in the group whose
 * pages end first. */
static uint32_t room_of(const struct tern_lease *l, uint32_t allocated)
{
    uint32_t least = UINT32_MAX;

    for (uint32_t g = 0; g < l->ngroups; g++) {
        const struct lease_group *of = &l->group[g];
        uint32_t room = pages_at(of, allocated) * of->page_tokens;

        if (of->page_tokens > 0 && room < least)
            least = room;
    }
    return least;
}

enum tern_err tern_lease_add(struct tern_lease *l, tern_session s, const struct tern_result *now,
                             uint32_t *ret)
{
    ENTER(l->t);
    l->t->text[0] = '\0';
    TRY(check_leased(l->t, s));
    for (uint32_t i = 0; i < l->nslots; i++)
        if (l->slot[i].state == LEASE_SLOT_FREE) {
            l->slot[i] = (struct lease_slot){.session = s,
                                             .tokens = now->tokens,
                                             .written = now->lengths.written,
                                             .told = true,
                                             .allocated = now->lengths.allocated,
                                             .room = room_of(l, now->lengths.allocated)};
            lease_slot_state_move(&l->slot[i].state, LEASE_SLOT_LIVE);
            leased_put(l, i);
            l->cold[i] = (struct lease_cold){.err = TERN_OK, .said_in = l->iteration};
            *ret = i;
            return TERN_OK;
        }
    return set_error(
        l->t, TERN_BUSY,
        "the lease has as many sessions as it was begun for: remove some, then wait for "
        "their operations with tern_lease_wait and tern_lease_told");
}

enum tern_err tern_lease_remove(struct tern_lease *l, uint32_t at, uint64_t step)
{
    ENTER(l->t);
    struct lease_slot *s = NULL;
    enum tern_err err = slot_of(l, at, &s);

    if (!s || err == TERN_DAEMON_LOST)
        return err;
    l->t->text[0] = '\0';
    TRY(check_step(l->t, step));
    if (s->state == LEASE_SLOT_LIVE)
        TRY(tell_lengths(l, at));
    l->cold[at].leave_step = step;
    lease_slot_state_move(&s->state, LEASE_SLOT_LEAVING);
    slot_rests(l, at);
    return TERN_OK;
}

/* ---- operations of a step ---- */

static enum tern_err extend_check(struct tern_lease *l, const struct lease_slot *s, uint32_t n,
                                  uint32_t written, uint32_t allocated)
{
    if (n > TERN_LEASE_TOKENS_MAX)
        return set_error(
            l->t, TERN_INVALID,
            "more than TERN_LEASE_TOKENS_MAX tokens at once: make one call for each part");
    if (written < s->written || allocated < s->allocated || written > allocated ||
        written > s->tokens + n || allocated > WIRE_SESSION_TOKENS_MAX)
        return set_error(l->t, TERN_INVALID,
                         "neither length may shrink; written must be at most allocated, and at "
                         "most the tokens of the list; a session has at most 4,194,304 tokens");
    return TERN_OK;
}

/* The request needs more pages than the pool, or the stock at its high mark, has: waiting does not
 * help. */
static enum tern_err never_fits(struct tern_lease *l, uint32_t g, uint32_t needed, bool table)
{
    const struct lease_group *of = &l->group[g];
    const uint64_t numbers[2] = {needed, table ? of->total : of->high};
    char text[QUICK_TEXT_MAX];

    snprintf(
        text, sizeof text,
        table ? "this request can never fit: the session's table would have %u pages of group %u, "
                "and the pool has %u: ask for less, or open a larger pool"
              : "this request can never fit: it needs %u pages of group %u at once, and the stock "
                "has at most %u: extend in smaller parts, or begin the lease with a higher mark",
        needed, g, table ? of->total : of->high);
    return set_error_numbers(l->t, TERN_QUOTA, text, numbers);
}

/* Checks that the stock has the pages of each group that the new length needs. */
static enum tern_err stock_has(struct tern_lease *l, const struct lease_slot *s, uint32_t allocated,
                               uint32_t *ret_pages, uint32_t *ret_runs)
{
    uint32_t pages = 0, runs = 0;

    *ret_pages = *ret_runs = 0;
    if (allocated <= s->room)
        return TERN_OK; /* the common case */
    for (uint32_t g = 0; g < l->ngroups; g++) {
        const struct lease_group *of = &l->group[g];
        uint32_t need = pages_at(of, allocated) - pages_at(of, s->allocated);

        if (need > of->n && of->history && pages_at(of, allocated) > of->total)
            return never_fits(l, g, pages_at(of, allocated), true);
        if (need > of->high)
            return never_fits(l, g, need, false);
        if (need > of->n && of->err == TERN_POOL_EXHAUSTED)
            return set_error(l->t, TERN_POOL_EXHAUSTED,
                             "the stock is empty, and the pool has too few free pages: retract a "
                             "session, or wait until a step releases some");
        if (need > of->n)
            return set_error(l->t, TERN_BUSY,
                             "the stock has too few pages now: call tern_lease_submit, then "
                             "tern_lease_wait; higher marks make this rare");
        pages += need;
        runs += need > 0;
    }
    *ret_pages = pages;
    *ret_runs = runs;
    return TERN_OK;
}

static void take_from_stock(struct tern_lease *l, const struct lease_slot *s, uint32_t allocated)
{
    struct lease_step *step = lease_gathering(l);
    uint32_t at = step->npages, run = l->nruns;

    for (uint32_t g = 0; g < l->ngroups; g++) {
        struct lease_group *of = &l->group[g];
        uint32_t first = pages_at(of, s->allocated), need = pages_at(of, allocated) - first;

        if (need == 0)
            continue;
        l->run[run++] =
            (struct tern_run){.group = g, .first = first, .n = need, .pages = step->page + at};
        for (uint32_t i = 0; i < need; i++, at++) {
            step->page[at] = of->page[--of->n];
            step->group[at] = (uint8_t)g;
        }
    }
}

enum tern_err tern_lease_extend(struct tern_lease *l, uint32_t at, const uint32_t *tokens,
                                uint32_t n, uint32_t written, uint32_t allocated,
                                const struct tern_run **ret_runs, uint32_t *ret_nruns)
{
    ENTER(l->t);
    uint32_t pages = 0, runs = 0;
    struct lease_slot *s;

    TRY(slot_of(l, at, &s));
    TRY(extend_check(l, s, n, written, allocated));
    TRY(stock_has(l, s, allocated, &pages, &runs));
    if (n + s->nwaiting > TERN_LEASE_TOKENS_MAX)
        TRY(tell_lengths(l, at));
    if (pages > 0 && !lease_has_room(l, pages, runs, s->nwaiting + n))
        return is_full(l);
    for (uint32_t i = 0; i < n; i++) /* one or two */
        s->waiting[s->nwaiting++] = tokens[i];
    s->tokens += n;
    s->told = s->told && s->written == written && s->allocated == allocated;
    s->written = written;
    if (l->has_state)
        l->cold[at].said_in = l->iteration;
    *ret_runs = l->run + l->nruns;
    *ret_nruns = runs;
    if (pages > 0) {
        take_from_stock(l, s, allocated);
        lease_gather(l,
                     (struct client_op){.kind = CLIENT_ASSIGN,
                                        .session = s->session,
                                        .length = allocated,
                                        .written = written,
                                        .tokens = tell_tokens(l, s),
                                        .runs = l->run + l->nruns,
                                        .nruns = runs},
                     at, pages);
        s->room = room_of(l, allocated);
    }
    s->allocated = allocated;
    return TERN_OK;
}

enum tern_err tern_lease_rewind(struct tern_lease *l, uint32_t at, uint32_t length, uint64_t step)
{
    ENTER(l->t);
    struct lease_slot *s;

    TRY(slot_of(l, at, &s));
    TRY(check_step(l->t, step));
    TRY(tell_lengths(l, at));
    if (!lease_has_room(l, 0, 0, 0))
        return is_full(l);
    lease_gather(l,
                 (struct client_op){
                     .kind = CLIENT_REWIND, .session = s->session, .length = length, .step = step},
                 at, 0);
    l->cold[at].rewinds++;
    s->allocated = length < s->allocated ? length : s->allocated;
    s->room = room_of(l, s->allocated);
    s->written = length < s->written ? length : s->written;
    s->told = true;
    s->tokens = length < s->tokens ? length : s->tokens;
    return TERN_OK;
}

/* A commit at the written length hands over the page that the device's steps overwrite (T21). So no
 * step may have begun since the session reached that length, and tern_lease_submit lets none begin
 * before the answer has named the page to continue in. */
static enum tern_err state_stands(struct tern_lease *l, uint32_t at, uint64_t step)
{
    char text[QUICK_TEXT_MAX];

    if (l->cold[at].said_in == l->iteration && step >= l->dispatched)
        return TERN_OK;
    snprintf(text, sizeof text,
             "step %" PRIu64
             " was submitted after the session was extended to written %u, or after the step that "
             "the commit names, and may have overwritten its RECURRENT state: extend the session "
             "to its written length, and commit that before the next tern_lease_submit",
             l->dispatched, l->slot[at].written);
    return set_error(l->t, TERN_CONFLICT, text);
}

enum tern_err tern_lease_commit(struct tern_lease *l, uint32_t at, uint32_t depth, uint64_t step)
{
    ENTER(l->t);
    struct lease_slot *s;
    bool state;

    TRY(slot_of(l, at, &s));
    TRY(check_step(l->t, step));
    if (l->cold[at].commits)
        return set_error(
            l->t, TERN_BUSY,
            "a commit of this session is under way: receive its answer by tern_lease_told first");
    if (l->cold[at].rewinds > 0)
        return set_error(l->t, TERN_BUSY,
                         "a rewind of this session is not answered yet: call tern_lease_submit and "
                         "tern_lease_wait, then commit");
    state = l->has_state && depth == s->written;
    if (state)
        TRY(state_stands(l, at, step));
    TRY(tell_lengths(l, at));
    if (!lease_has_room(l, 0, 0, 0))
        return is_full(l);
    lease_gather(l,
                 (struct client_op){
                     .kind = CLIENT_COMMIT, .session = s->session, .length = depth, .step = step},
                 at, 0);
    l->cold[at].commits = true;
    l->cold[at].commit_step = state ? 0 : step;
    l->ncommits++;
    return TERN_OK;
}
