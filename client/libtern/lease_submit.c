/* Begin and end of a lease, sending of gathered operations, refilling of the stock, and waiting for
 * answers. stock.c takes the answers. See lease.h. */
#include "lease.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

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
                             "the marks of a group must be low <= high, with high from 1 to 4096; "
                             "those of a RECURRENT group must be 0");
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
    free(l); /* and the tables behind it: lease_lay */
}

void leases_free_all(struct tern *t)
{
    while (t->leases) {
        struct tern_lease *l = t->leases;

        t->leases = l->next;
        lease_free(l);
    }
}

static void *part(void *base, size_t *at, size_t n, size_t each)
{
    void *p = base ? (uint8_t *)base + *at : NULL;

    *at += (n * each + LEASE_PART_ALIGN - 1) / LEASE_PART_ALIGN * LEASE_PART_ALIGN;
    return p;
}

/* Lays out the lease and its tables one behind the other. Returns their bytes. NULL: only
 * counts. */
static size_t lease_lay(struct tern_lease *l, const struct tern_layout *layout,
                        const struct tern_lease_marks *marks, uint32_t sessions)
{
    const uint32_t places = leased_places(sessions);
    size_t at = 0, held = 0;

    l = part(l, &at, 1, sizeof *l);
    for (uint32_t g = 0; g < layout->ngroups; g++) {
        const uint32_t most = LEASE_HELD_TIMES * marks[g].high;
        struct tern_page *page = part(l, &at, most, sizeof *page);

        held += most;
        if (l && most == 0)
            l->has_state = true;
        if (l && most > 0)
            l->group[g] = (struct lease_group){.page_tokens = layout->groups[g].page_tokens,
                                               .history = layout->groups[g].family == TERN_HISTORY,
                                               .low = marks[g].low,
                                               .high = marks[g].high,
                                               .most = marks[g].high,
                                               .total = UINT32_MAX,
                                               .page = page};
    }
    struct lease_slot *slot = part(l, &at, sessions, sizeof *slot);
    struct lease_cold *cold = part(l, &at, sessions, sizeof *cold);
    struct lease_step *step = part(l, &at, LEASE_STEPS_MAX + 1, sizeof *step);
    struct lease_stray *stray = part(l, &at, held, sizeof *stray);
    uint32_t *place = part(l, &at, places, sizeof *place);

    if (!l)
        return at;
    l->ngroups = layout->ngroups;
    l->nslots = sessions;
    l->nplaces = places;
    l->slot = slot;
    l->cold = cold;
    l->step = step;
    l->stray = stray;
    l->place = place;
    return at;
}

/* Writes zeros to all of the memory, so that no step pays for a page fault. Uses large pages if the
 * system has them, because a step reads all of the memory: in a virtual machine mapping a small
 * page again may take a hundred microseconds. */
static struct tern_lease *lease_create(const struct tern_layout *layout,
                                       const struct tern_lease_marks *marks, uint32_t sessions)
{
    const size_t bytes = lease_lay(NULL, layout, marks, sessions);
    const size_t all = (bytes + HUGE_PAGE_BYTES - 1) / HUGE_PAGE_BYTES * HUGE_PAGE_BYTES;
    struct tern_lease *l = aligned_alloc(HUGE_PAGE_BYTES, all);

    if (!l)
        return NULL;
    (void)madvise(l, all, MADV_HUGEPAGE);
    memset(l, 0, bytes);
    (void)lease_lay(l, layout, marks, sessions);
    l->news_end = &l->news;
    return l;
}

enum tern_err tern_lease_begin(struct tern *t, uint64_t pool, const struct tern_layout *layout,
                               const struct tern_lease_marks *marks, uint32_t sessions,
                               struct tern_lease **ret)
{
    ENTER(t);
    struct tern_lease *l;
    enum tern_err err;

    t->text[0] = '\0';
    TRY(check_marks(t, layout, marks, sessions));
    l = lease_create(layout, marks, sessions);
    if (!l)
        return set_error(t, TERN_INTERNAL, NULL);
    l->t = t;
    l->pool = pool;
    if (!t->sender && sender_start(&t->socket, &t->sender) != TERN_OK) {
        lease_free(l);
        return set_error(t, TERN_INTERNAL,
                         "the lease's sending thread cannot be started: check the limits of this "
                         "process (ulimit -u, ulimit -v)");
    }
    l->next = t->leases;
    t->leases = l;
    err = tern_lease_submit(l, 0);
    if (err == TERN_DAEMON_LOST)
        return err; /* tern_destroy frees it */
    *ret = l;
    return TERN_OK;
}

/* ---- sending ---- */

/* Takes the answers that have arrived. */
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
                             l->cold[i].commit_step == 0
                                 ? "a commit publishes the RECURRENT page of a session, and its "
                                   "answer names the next one: call tern_lease_wait and "
                                   "tern_lease_told, copy, and submit again"
                                 : "a commit of an earlier step may change a session's table: call "
                                   "tern_lease_wait, then tern_lease_told");
    return TERN_OK;
}

/* Returns unassigned pages of removed sessions to the daemon, behind the step that the removal
 * named. Pages that do not fit wait for the next Step. */
static void give_strays(struct tern_lease *l)
{
    for (uint32_t i = l->nstray; i-- > 0;) {
        struct lease_stray *stray = &l->stray[i];
        struct lease_cold *of = stray->slot == UINT32_MAX ? NULL : &l->cold[stray->slot];
        struct lease_step *s = lease_gathering(l);

        if ((of && l->slot[stray->slot].state != LEASE_SLOT_LEAVING) || !lease_has_room(l, 1, 1, 0))
            continue;
        s->page[s->npages] = stray->page;
        s->group[s->npages] = (uint8_t)stray->group;
        l->run[l->nruns] =
            (struct tern_run){.group = stray->group, .n = 1, .pages = &s->page[s->npages]};
        lease_gather(l,
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

/* Never waits: if there is no room now, the next Step requests the pages. */
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
    struct lease_step *s = lease_gathering(l);
    struct quick_request q = {.type = FRAME_STEP, .step = {.ops = l->op, .n = s->nops}};
    uint32_t next = unused_step(l);
    struct outgoing o;
    struct pending *p;

    if (s->nops == 0)
        return TERN_OK;
    if (next > LEASE_STEPS_MAX)
        return set_error(l->t, TERN_BUSY,
                         "the maximum number of Steps is unanswered: nothing is lost; submit with "
                         "the next Step, or call tern_lease_wait");
    TRY(async_room_left(l->t, l->bytes, &o));
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

/* Returns true if answers not yet taken delay this Step, or soon will. tern_lease_told takes them
 * while the device computes; if it is not called, they are taken here. */
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
    ENTER(l->t);
    l->t->text[0] = '\0';
    if (l->t->socket.state != CLIENT_SOCKET_UP)
        return set_error(l->t, TERN_DAEMON_LOST, NULL);
    if (l->under_way > 0 && (is_behind(l) || commits_told(l, step) != TERN_OK))
        TRY(take_answers(l));
    if (l->nstray > 0)
        give_strays(l);
    TRY(send_step(l)); /* even if `step` has to wait: it may wait for the answer to this Step */
    refill_all(l);
    l->t->text[0] = '\0';
    if (l->t->socket.state != CLIENT_SOCKET_UP)
        return set_error(l->t, TERN_DAEMON_LOST, NULL);
    TRY(commits_told(l, step));
    l->iteration += step > 0;
    l->dispatched = step > 0 ? step : l->dispatched;
    return TERN_OK;
}

/* ---- waiting, and answers ---- */

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
    ENTER(l->t);
    return wait_until(l, deadline_at(deadline_ms));
}

enum tern_err tern_lease_told(struct tern_lease *l, struct tern_lease_told *ret)
{
    ENTER(l->t);
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
    l->cold[ret->slot].news--;
    if (!ret->failed) {
        l->cold[ret->slot].commits = false;
        l->ncommits--;
    }
    slot_rests(l, ret->slot);
    return TERN_OK;
}

uint32_t tern_lease_stock(const struct tern_lease *l, uint32_t group)
{
    return group < l->ngroups ? l->group[group].n : 0;
}

/* ---- the end ---- */

/* Makes all pages of the stock stray pages of no session. */
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
    ENTER(l->t);
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
