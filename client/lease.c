/* The calls of a lease: what a scheduler's thread does in every decode step, without a system call.
 * What they gather is one Step, which sender.c sends; stock.c takes the answers. See lease.h. */
#include "lease.h"

#include <stdlib.h>
#include <string.h>

#include "base/err.h"

/* ---- life ---- */

static enum tern_err check_marks(struct tern *t, const struct tern_layout *layout,
                                 const struct tern_lease_marks *marks, uint32_t sessions)
{
    TRY(check_layout(t, layout));
    if (sessions == 0 || sessions > TERN_LEASE_SESSIONS_MAX)
        return set_error(t, TERN_INVALID, "a lease is for 1 to TERN_LEASE_SESSIONS_MAX sessions");
    for (uint32_t g = 0; g < layout->ngroups; g++) {
        bool leased = layout->groups[g].family != TERN_RECURRENT;

        if (leased != (marks[g].high > 0) || marks[g].low > marks[g].high ||
            marks[g].high > LEASE_STEP_PAGES)
            return set_error(t, TERN_INVALID,
                             "the marks of a group are low <= high, high from 1 to 4096; those of "
                             "a RECURRENT group are 0");
    }
    return TERN_OK;
}

static void lease_free(struct tern_lease *l)
{
    while (l->news) {
        struct lease_news *news = l->news;

        l->news = news->next;
        free(news);
    }
    free(l->handed);
    for (uint32_t g = 0; g < TERN_GROUPS_MAX; g++)
        free(l->group[g].page);
    free(l->slot);
    free(l->place);
    free(l->cold);
    free(l->stray);
    free(l->step);
    free(l);
}

void leases_free_all(struct tern *t)
{
    while (t->leases) {
        struct tern_lease *l = t->leases;

        t->leases = l->next;
        lease_free(l);
    }
}

static bool lease_fill(struct tern_lease *l, const struct tern_layout *layout,
                       const struct tern_lease_marks *marks)
{
    uint32_t all = 0;

    for (uint32_t g = 0; g < layout->ngroups; g++) {
        struct lease_group *to = &l->group[g];

        if (marks[g].high == 0)
            continue;
        *to = (struct lease_group){.page_tokens = layout->groups[g].page_tokens,
                                   .low = marks[g].low,
                                   .high = marks[g].high,
                                   .most = marks[g].high};
        to->page = malloc((size_t)LEASE_HELD_TIMES * to->high * sizeof *to->page);
        all += LEASE_HELD_TIMES * to->high;
        if (!to->page)
            return false;
    }
    l->stray = malloc(all * sizeof *l->stray);
    l->slot = aligned_alloc(_Alignof(struct lease_slot), l->nslots * sizeof *l->slot);
    l->cold = calloc(l->nslots, sizeof *l->cold);
    l->step = malloc((LEASE_STEPS_MAX + 1) * sizeof *l->step);
    if (!leased_init(l) || !l->slot || !l->cold || !l->step || (!l->stray && all > 0))
        return false;
    /* Written, and not only got: no step is to pay for the kernel's fetching a page. */
    memset(l->slot, 0, l->nslots * sizeof *l->slot);
    memset(l->step, 0, (LEASE_STEPS_MAX + 1) * sizeof *l->step);
    memset(l->words, 0, sizeof l->words);
    memset(l->run, 0, sizeof l->run);
    memset(l->op, 0, sizeof l->op);
    return true;
}

enum tern_err tern_lease_begin(struct tern *t, uint64_t pool, const struct tern_layout *layout,
                               const struct tern_lease_marks *marks, uint32_t sessions,
                               struct tern_lease **ret)
{
    struct tern_lease *l;
    enum tern_err err;

    t->text[0] = '\0';
    TRY(check_marks(t, layout, marks, sessions));
    l = calloc(1, sizeof *l);
    if (!l)
        return set_error(t, TERN_INTERNAL, NULL);
    l->t = t;
    l->pool = pool;
    l->ngroups = layout->ngroups;
    l->nslots = sessions;
    l->news_end = &l->news;
    if (!lease_fill(l, layout, marks)) {
        lease_free(l);
        return set_error(t, TERN_INTERNAL, NULL);
    }
    if (!t->sender && sender_start(&t->socket, &t->sender) != TERN_OK) {
        lease_free(l);
        return set_error(t, TERN_INTERNAL,
                         "the thread that sends for the lease cannot be begun: look at the limits "
                         "of this process (ulimit -u, ulimit -v)");
    }
    l->next = t->leases;
    t->leases = l;
    err = tern_lease_submit(l, 0);
    if (err == TERN_DAEMON_LOST)
        return err; /* tern_destroy frees it */
    *ret = l;
    return TERN_OK;
}

/* ---- gathering ---- */

static struct lease_step *gathering(struct tern_lease *l)
{
    return &l->step[l->gathering];
}

static enum tern_err is_full(struct tern_lease *l)
{
    return set_error(l->t, TERN_BUSY,
                     "one Step is full: tern_lease_submit what is gathered, then go on");
}

/* Room for one operation with so many pages and tokens. */
static bool has_room(struct tern_lease *l, uint32_t pages, uint32_t runs, uint32_t words)
{
    const struct lease_step *s = gathering(l);
    const size_t most = 128 + (size_t)pages * sizeof(struct tern_page) + runs * 32u + words * 4u;

    return s->nops < TERN_BATCH_OPS_MAX && pages <= LEASE_STEP_PAGES - s->npages &&
           runs <= LEASE_STEP_RUNS - l->nruns && words <= LEASE_STEP_WORDS - l->nwords &&
           l->bytes + most + TRACE_BYTES <= l->t->socket.body_max;
}

/* The pages and runs of the operation are behind those that are gathered. */
static void gather(struct tern_lease *l, struct client_op op, uint32_t slot, uint32_t npages)
{
    struct lease_step *s = gathering(l);

    s->op[s->nops] = (struct lease_op){.kind = op.kind,
                                       .slot = slot,
                                       .npages = npages,
                                       .length = op.length,
                                       .written = op.written};
    l->op[s->nops++] = op;
    s->npages += npages;
    l->nruns += op.nruns;
    l->bytes += quick_op_size(&op);
    if (slot != UINT32_MAX)
        l->cold[slot].under_way++;
}

/* The tokens that wait go into an operation. */
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

/* What the daemon does not know of the session yet, but for pages: it has them all, or an earlier
 * operation was refused. An assign without pages is refused then, where an extend would take some
 * that the engine does not know of. */
static enum tern_err tell_lengths(struct tern_lease *l, uint32_t at)
{
    struct lease_slot *s = &l->slot[at];

    if (s->nwaiting == 0 && s->told)
        return TERN_OK;
    if (!has_room(l, 0, 0, s->nwaiting))
        return is_full(l);
    gather(l,
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
        return set_error(l->t, TERN_GONE, "the lease has no such session: it was removed");
    *ret = &l->slot[at];
    return l->slot[at].state == LEASE_SLOT_FAILED
               ? set_error(l->t, l->cold[at].err, l->cold[at].text)
               : TERN_OK;
}

/* ---- sessions ---- */

static uint32_t pages_at(const struct lease_group *g, uint32_t tokens)
{
    return g->page_tokens == 0 ? 0 : tokens / g->page_tokens + (tokens % g->page_tokens != 0);
}

/* What the pages that cover so many tokens have room for, in the group whose end is next. */
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
            l->cold[i] = (struct lease_cold){.err = TERN_OK};
            *ret = i;
            return TERN_OK;
        }
    return set_error(l->t, TERN_BUSY,
                     "the lease has as many sessions as it was begun for: remove some, and "
                     "tern_lease_wait until what they had under way is answered");
}

enum tern_err tern_lease_remove(struct tern_lease *l, uint32_t at, uint64_t step)
{
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

/* ---- what a step does ---- */

static enum tern_err extend_check(struct tern_lease *l, const struct lease_slot *s, uint32_t n,
                                  uint32_t written, uint32_t allocated)
{
    if (n > TERN_LEASE_TOKENS_MAX)
        return set_error(
            l->t, TERN_INVALID,
            "more than TERN_LEASE_TOKENS_MAX tokens at once: call it once for each part");
    if (written < s->written || allocated < s->allocated || written > allocated ||
        written > s->tokens + n || allocated > WIRE_SESSION_TOKENS_MAX)
        return set_error(l->t, TERN_INVALID,
                         "neither length shrinks; written is at most allocated, and at most the "
                         "tokens of the list; a session has at most 4,194,304 tokens");
    return TERN_OK;
}

/* The pages of each group that the new length needs, all of which the stock has. */
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

        if (need > of->n && of->err == TERN_POOL_EXHAUSTED)
            return set_error(l->t, TERN_POOL_EXHAUSTED,
                             "the stock is empty, and the pool has not so many pages: retract a "
                             "session, or wait until a step gives some back");
        if (need > of->n)
            return set_error(l->t, TERN_BUSY,
                             "the stock has not so many pages now: tern_lease_submit, then "
                             "tern_lease_wait; higher marks make that rare");
        pages += need;
        runs += need > 0;
    }
    *ret_pages = pages;
    *ret_runs = runs;
    return TERN_OK;
}

static void take_from_stock(struct tern_lease *l, const struct lease_slot *s, uint32_t allocated)
{
    struct lease_step *step = gathering(l);
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
    uint32_t pages = 0, runs = 0;
    struct lease_slot *s;

    TRY(slot_of(l, at, &s));
    TRY(extend_check(l, s, n, written, allocated));
    TRY(stock_has(l, s, allocated, &pages, &runs));
    if (n + s->nwaiting > TERN_LEASE_TOKENS_MAX)
        TRY(tell_lengths(l, at));
    if (pages > 0 && !has_room(l, pages, runs, s->nwaiting + n))
        return is_full(l);
    for (uint32_t i = 0; i < n; i++) /* one or two */
        s->waiting[s->nwaiting++] = tokens[i];
    s->tokens += n;
    s->told = s->told && s->written == written;
    s->written = written;
    *ret_runs = l->run + l->nruns;
    *ret_nruns = runs;
    if (pages > 0) {
        take_from_stock(l, s, allocated);
        gather(l,
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
    struct lease_slot *s;

    TRY(slot_of(l, at, &s));
    TRY(check_step(l->t, step));
    TRY(tell_lengths(l, at));
    if (!has_room(l, 0, 0, 0))
        return is_full(l);
    gather(l,
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

enum tern_err tern_lease_commit(struct tern_lease *l, uint32_t at, uint32_t depth, uint64_t step)
{
    struct lease_slot *s;

    TRY(slot_of(l, at, &s));
    TRY(check_step(l->t, step));
    if (l->cold[at].commits)
        return set_error(l->t, TERN_BUSY,
                         "a commit of this session is under way: take its answer by "
                         "tern_lease_told first");
    if (l->cold[at].rewinds > 0)
        return set_error(l->t, TERN_BUSY,
                         "a rewind of this session is not answered yet: tern_lease_submit and "
                         "tern_lease_wait, then commit");
    TRY(tell_lengths(l, at));
    if (!has_room(l, 0, 0, 0))
        return is_full(l);
    gather(l,
           (struct client_op){
               .kind = CLIENT_COMMIT, .session = s->session, .length = depth, .step = step},
           at, 0);
    l->cold[at].commits = true;
    l->cold[at].commit_step = step;
    l->ncommits++;
    return TERN_OK;
}

/* ---- sending ---- */

/* What has come. */
static enum tern_err take_answers(struct tern_lease *l)
{
    enum tern_err err = call_take(l->t);

    return err == TERN_BUSY ? TERN_OK : err;
}

static enum tern_err commits_told(struct tern_lease *l, uint64_t step)
{
    for (uint32_t i = 0; l->ncommits > 0 && i < l->nslots; i++)
        if (l->cold[i].commits && l->cold[i].commit_step < step)
            return set_error(l->t, TERN_BUSY,
                             "the table of a session may change by a commit whose step is before "
                             "this one: tern_lease_wait, then tern_lease_told");
    return TERN_OK;
}

/* Pages that were not assigned, of sessions that were removed: they go back behind the step that
 * the removal named. What does not fit waits for the next Step. */
static void give_strays(struct tern_lease *l)
{
    for (uint32_t i = l->nstray; i-- > 0;) {
        struct lease_stray *stray = &l->stray[i];
        struct lease_cold *of = stray->slot == UINT32_MAX ? NULL : &l->cold[stray->slot];
        struct lease_step *s = gathering(l);

        if ((of && l->slot[stray->slot].state != LEASE_SLOT_LEAVING) || !has_room(l, 1, 1, 0))
            continue;
        s->page[s->npages] = stray->page;
        s->group[s->npages] = (uint8_t)stray->group;
        l->run[l->nruns] =
            (struct tern_run){.group = stray->group, .n = 1, .pages = &s->page[s->npages]};
        gather(l,
               (struct client_op){.kind = CLIENT_UNLEASE,
                                  .pool = l->pool,
                                  .step = of ? of->leave_step : TERN_STEP_NONE,
                                  .runs = &l->run[l->nruns],
                                  .nruns = 1},
               stray->slot, 1);
        if (of)
            of->astray--;
        *stray = l->stray[--l->nstray];
    }
}

static enum tern_err refill(struct tern_lease *l, uint32_t group)
{
    Tern__Wire__PageLease m = TERN__WIRE__PAGE_LEASE__INIT;
    struct lease_group *g = &l->group[group];
    uint32_t room = LEASE_HELD_TIMES * g->high - g->held, want = g->high - g->n;
    struct outgoing o;
    struct pending *p;

    want = want < g->most ? want : g->most;
    want = want < room ? want : room;
    if (want == 0)
        return TERN_OK;
    m.has_pool = m.has_group = m.has_pages = 1;
    m.pool = l->pool;
    m.group = group;
    m.pages = want;
    TRY(async_room_left(l->t, message_size(&m.base), &o));
    put_whole(&o.body, &m.base);
    p = async_leave(l->t, &o, FRAME_PAGE_LEASE);
    p->lease = l;
    p->lease_part = LEASE_REFILL + group;
    l->under_way++;
    g->asked = want;
    return TERN_OK;
}

/* In the background: where there is no room for it now, the next Step asks. */
static void refill_all(struct tern_lease *l)
{
    for (uint32_t g = 0; g < l->ngroups; g++)
        if (l->group[g].page_tokens > 0 && l->group[g].asked == 0 &&
            l->group[g].n <= l->group[g].low)
            (void)refill(l, g);
}

static uint32_t unused_step(const struct tern_lease *l)
{
    uint32_t i = 0;

    while (i <= LEASE_STEPS_MAX && (i == l->gathering || l->step[i].used))
        i++;
    return i;
}

static enum tern_err send_step(struct tern_lease *l)
{
    struct lease_step *s = gathering(l);
    struct quick_request q = {.type = FRAME_STEP, .step = {.ops = l->op, .n = s->nops}};
    uint32_t next = unused_step(l);
    struct outgoing o;
    struct pending *p;

    if (s->nops == 0)
        return TERN_OK;
    if (next > LEASE_STEPS_MAX)
        return set_error(l->t, TERN_BUSY,
                         "as many Steps as may be are not answered yet: nothing is lost, submit "
                         "again with the next one, or tern_lease_wait");
    TRY(async_room_left(l->t, quick_size(&q), &o));
    quick_put(&o.body, &q);
    p = async_leave(l->t, &o, FRAME_STEP);
    p->lease = l;
    p->lease_part = l->gathering;
    l->under_way++;
    s->used = true;
    l->gathering = next;
    l->step[next].nops = l->step[next].npages = 0;
    l->bytes = 0;
    l->nruns = l->nwords = 0;
    return TERN_OK;
}

/* The answers that nobody has taken hold this Step up, or soon will: tern_lease_told takes them
 * while the device computes, and where it is not called they are taken here. */
static bool is_behind(const struct tern_lease *l)
{
    uint32_t steps = 0;

    for (uint32_t i = 0; i <= LEASE_STEPS_MAX; i++)
        steps += l->step[i].used;
    for (uint32_t g = 0; g < l->ngroups; g++)
        if (l->group[g].asked > 0 && l->group[g].n <= l->group[g].low / 2)
            return true;
    return steps >= LEASE_STEPS_MAX / 2;
}

enum tern_err tern_lease_submit(struct tern_lease *l, uint64_t step)
{
    l->t->text[0] = '\0';
    if (l->t->socket.state != CLIENT_SOCKET_UP)
        return set_error(l->t, TERN_DAEMON_LOST, NULL);
    if (l->under_way > 0 && (is_behind(l) || commits_told(l, step) != TERN_OK))
        TRY(take_answers(l));
    TRY(commits_told(l, step));
    if (l->nstray > 0)
        give_strays(l);
    TRY(send_step(l));
    refill_all(l);
    l->t->text[0] = '\0';
    return l->t->socket.state == CLIENT_SOCKET_UP ? TERN_OK
                                                  : set_error(l->t, TERN_DAEMON_LOST, NULL);
}

/* ---- waiting, and what was answered ---- */

static enum tern_err wait_until(struct tern_lease *l, uint64_t deadline_ns)
{
    l->t->text[0] = '\0';
    (void)client_socket_send(&l->t->socket);
    TRY(take_answers(l));
    while (l->under_way > 0)
        TRY(call_round(l->t, deadline_ns));
    return TERN_OK;
}

enum tern_err tern_lease_wait(struct tern_lease *l, uint32_t deadline_ms)
{
    return wait_until(l, deadline_at(deadline_ms));
}

enum tern_err tern_lease_told(struct tern_lease *l, struct tern_lease_told *ret)
{
    struct lease_news *news;

    l->t->text[0] = '\0';
    if (!l->news && l->under_way > 0)
        TRY(take_answers(l));
    free(l->handed);
    l->handed = news = l->news;
    if (!news)
        return TERN_BUSY;
    l->news = news->next;
    if (!l->news)
        l->news_end = &l->news;
    *ret = news->told;
    if (!ret->failed) {
        l->cold[ret->slot].commits = false;
        l->ncommits--;
        slot_rests(l, ret->slot);
    }
    return TERN_OK;
}

uint32_t tern_lease_stock(const struct tern_lease *l, uint32_t group)
{
    return group < l->ngroups ? l->group[group].n : 0;
}

/* All that the stock has becomes stray, of no session. */
static void empty_stock(struct tern_lease *l)
{
    for (uint32_t g = 0; g < l->ngroups; g++)
        while (l->group[g].n > 0)
            l->stray[l->nstray++] = (struct lease_stray){
                .page = l->group[g].page[--l->group[g].n], .slot = UINT32_MAX, .group = g};
}

static uint32_t held(const struct tern_lease *l)
{
    uint32_t n = 0;

    for (uint32_t g = 0; g < l->ngroups; g++)
        n += l->group[g].held;
    return n;
}

static enum tern_err give_all_back(struct tern_lease *l, uint32_t deadline_ms)
{
    const uint64_t deadline_ns = deadline_at(deadline_ms);

    TRY(wait_until(l, deadline_ns));
    while (held(l) > 0) {
        if (client_socket_now_ns() >= deadline_ns)
            return set_error(l->t, TERN_TIMED_OUT, NULL);
        TRY(send_step(l));
        empty_stock(l);
        give_strays(l);
        TRY(send_step(l));
        TRY(wait_until(l, deadline_ns));
    }
    return TERN_OK;
}

enum tern_err tern_lease_end(struct tern_lease **lease, uint32_t deadline_ms)
{
    struct tern_lease *l = *lease, **at;
    enum tern_err err = TERN_OK;

    if (!l)
        return TERN_OK;
    for (uint32_t i = 0; i < l->nslots; i++)
        if (l->slot[i].state == LEASE_SLOT_LIVE || l->slot[i].state == LEASE_SLOT_FAILED)
            return set_error(l->t, TERN_CONFLICT, "remove the sessions of the lease first");
    if (l->t->socket.state == CLIENT_SOCKET_UP)
        err = give_all_back(l, deadline_ms);
    if (err != TERN_OK && err != TERN_DAEMON_LOST)
        return err;
    pending_forget(l->t, l);
    for (at = &l->t->leases; *at != l;)
        at = &(*at)->next;
    *at = l->next;
    if (!l->t->leases)
        sender_stop(&l->t->sender, false);
    lease_free(l);
    *lease = NULL;
    return TERN_OK;
}
