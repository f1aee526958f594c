/* Leases (E5) of a fleet's engines: pages that an engine owns before it needs them. Nobody else
 * gets or writes such a page until it is assigned or unleased. */
#include "world.h"

#define PAGES_MOST 12u /* of a request */

static void takes(struct fdaemon *d, struct page_ref page)
{
    for (uint32_t i = 0; i < d->nleased; i++)
        FEXPECT(d->leased[i].index != page.index, "leased_twice", "page %u", page.index);
    for (uint32_t i = 0; i < d->leaving.n; i++)
        FEXPECT(d->leaving.page[i].index != page.index, "leased_early",
                "page %u, which leaves at step %u", page.index, d->leaving.of[i]);
    d->leased[d->nleased++] = page;
    fbytes_mark(d, page);
}

bool flease_more(struct fdaemon *d)
{
    uint32_t pages = 1 + fpick(PAGES_MOST);
    struct request request = {.op = OP_PAGE_LEASE, .page_lease = {.pool = d->pool, .pages = pages}};
    const struct reply *r = rig_request(d->rig, d->e.conn[0], &request);
    bool many = d->nleased + pages > FLEET_LEASED;

    FEXPECT(r, "lease", "it is not answered");
    FEXPECT(r->err == TERN_QUOTA ? many || !fw.cfg.ample : !many, "lease_quota",
            "%u pages beside %u: %s", pages, d->nleased, r->text);
    if (r->err != TERN_OK) {
        FEXPECT(many || !fw.cfg.ample, "lease_refused", "%s", r->text);
        return false;
    }
    FEXPECT(r->nruns == 1 && r->runs[0].n == pages, "lease_pages", "%u asked for", pages);
    FTRACE("  daemon %u leases %u pages\n", fdaemon_number(d), pages);
    for (uint32_t i = 0; i < pages; i++)
        takes(d, r->runs[0].refs[i]);
    flease_look(d);
    return true;
}

bool do_lease(void)
{
    return flease_more(&fw.d[fpick(FLEET)]);
}

static enum tern_err gives_back(struct fdaemon *d, const struct page_ref *refs, uint32_t n,
                                uint32_t step)
{
    struct table_run run = {.n = n, .refs = refs};
    struct step_op op = {
        .kind = STEP_UNLEASE, .pool = d->pool, .step = step, .nruns = 1, .runs = &run};
    const struct reply *r = rig_step_ops(d->rig, d->e.conn[0], &op, 1);

    return r->err != TERN_OK ? r->err : r->step.results[0].err;
}

/* E5: one page named twice is refused, and an unlease that names one page wrongly has no effect. */
static void names_twice(struct fdaemon *d, uint32_t n)
{
    struct page_ref refs[FLEET_LEASED + 1];
    enum tern_err err;

    memcpy(refs, d->leased, n * sizeof *refs);
    refs[n] = refs[fpick(n)];
    err = gives_back(d, refs, n + 1, 0);
    FEXPECT(err == TERN_CONFLICT, "unlease_twice", "error %u", err);
    FMARK(lease_named_twice);
}

static void leaves(struct fdaemon *d, struct page_ref page)
{
    d->leaving.page[d->leaving.n] = page;
    d->leaving.of[d->leaving.n++] = d->leaving.step;
}

/* Unleases the last n pages of the lease, at once or when every rank has done a step. */
bool do_unlease(void)
{
    struct fdaemon *d = &fw.d[fpick(FLEET)];
    uint32_t n = d->nleased ? 1 + fpick(d->nleased) : 0;
    bool at_step = d->leaving.n + n <= FLEET_LEASED && fpick(3);
    enum tern_err err;

    if (n == 0)
        return false;
    if (fpick(4) == 0)
        names_twice(d, n);
    d->leaving.step += at_step;
    err = gives_back(d, d->leased + d->nleased - n, n, at_step ? d->leaving.step : 0);
    FEXPECT(err == TERN_OK, "unlease", "error %u", err);
    FTRACE("  daemon %u gives %u leased pages back at step %u\n", fdaemon_number(d), n,
           at_step ? d->leaving.step : 0);
    for (; n > 0; n--, d->nleased--)
        if (at_step)
            leaves(d, d->leased[d->nleased - 1]);
    return true;
}

static void rank_does(struct fdaemon *d, uint32_t rank)
{
    struct fleaving *l = &d->leaving;
    uint32_t least = l->step, n = 0;

    l->passed[rank] = l->step;
    for (uint32_t k = 0; k < d->ranks; k++)
        least = l->passed[k] < least ? l->passed[k] : least;
    for (uint32_t i = 0; i < l->n; i++)
        if (l->of[i] > least) {
            l->page[n] = l->page[i];
            l->of[n++] = l->of[i];
        }
    if (n < l->n)
        FMARK(lease_left_at_step);
    l->n = n;
    FTRACE("  rank %u of daemon %u has done step %u\n", rank, fdaemon_number(d), l->step);
    rig_step_done(d->rig, d->e.id, rank, l->step);
}

bool do_step(void)
{
    uint32_t at = fpick(FLEET * FLEET_RANKS);

    for (uint32_t n = 0; n < FLEET * FLEET_RANKS; n++, at = (at + 1) % (FLEET * FLEET_RANKS)) {
        struct fdaemon *d = &fw.d[at / FLEET_RANKS];
        const uint32_t rank = at % FLEET_RANKS;

        if (rank >= d->ranks || d->leaving.passed[rank] == d->leaving.step)
            continue;
        rank_does(d, rank);
        return true;
    }
    return false;
}

void flease_steps_end(struct fdaemon *d)
{
    for (uint32_t rank = 0; rank < d->ranks; rank++)
        if (d->leaving.passed[rank] < d->leaving.step)
            rank_does(d, rank);
}

bool flease_assign(struct fdaemon *d, struct rig_session *s, uint32_t to)
{
    const uint32_t have = (s->len.allocated + d->page_tokens - 1) / d->page_tokens,
                   want = (to + d->page_tokens - 1) / d->page_tokens;
    struct table_run run = {.first = have};
    enum tern_err err;

    if (want <= have || d->nleased == 0)
        return false;
    run.n = want - have;
    if (run.n > d->nleased) {
        run.n = d->nleased;
        to = (have + run.n) * d->page_tokens;
    }
    run.refs = d->leased + d->nleased - run.n;
    err = rig_op(s, (struct step_op){.kind = STEP_ASSIGN, .length = to, .nruns = 1, .runs = &run});
    FEXPECT(err == TERN_OK, "assign", "error %u", err);
    memcpy(s->table[0] + have, run.refs, run.n * sizeof *run.refs);
    d->nleased -= run.n;
    FMARK(lease_assigned);
    return true;
}

static void in_no_table(const struct fdaemon *d, struct page_ref page, const char *what)
{
    FEXPECT(fbytes_marked(d, page), "leased_written", "page %u, %s", page.index, what);
    for (const struct rig_session *s = d->rig->sessions; s; s = s->next)
        for (uint32_t p = 0; p * d->page_tokens < s->len.allocated; p++)
            FEXPECT(s->table[0][p].index != page.index, "leased_in_table", "page %u, %s",
                    page.index, what);
}

/* E5, T1. */
void flease_look(const struct fdaemon *d)
{
    struct group_view v;

    if (!d->rig)
        return;
    v = rig_group_view(d->rig, d->pool, 0);
    FEXPECT(v.leased == d->nleased, "leased_count", "%u pages, and the engine has %u", v.leased,
            d->nleased);
    FEXPECT(v.retiring >= d->leaving.n, "leaving_count", "%u pages wait for steps, %u of the lease",
            v.retiring, d->leaving.n);
    for (uint32_t i = 0; i < d->nleased; i++)
        in_no_table(d, d->leased[i], "leased");
    for (uint32_t i = 0; i < d->leaving.n; i++)
        in_no_table(d, d->leaving.page[i], "given back at a step that is not done");
}
