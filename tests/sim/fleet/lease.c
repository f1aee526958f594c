/* Leases (E5) of a fleet's engines: pages that an engine holds before it needs them. Nobody else
 * has one, nor writes it, until it is assigned or given back. */
#include "world.h"

#define PAGES_MOST 12u /* of a request */

static void takes(struct fdaemon *d, struct page_ref page)
{
    for (uint32_t i = 0; i < d->nleased; i++)
        FEXPECT(d->leased[i].index != page.index, "leased_twice", "page %u", page.index);
    d->leased[d->nleased++] = page;
    fbytes_mark(d, page);
}

bool do_lease(void)
{
    struct fdaemon *d = &fw.d[fpick(FLEET)];
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

/* The last n of the lease. */
static enum tern_err gives_back(struct fdaemon *d, uint32_t n)
{
    struct table_run run = {.n = n, .refs = d->leased + d->nleased - n};
    struct step_op op = {.kind = STEP_UNLEASE, .pool = d->pool, .nruns = 1, .runs = &run};
    const struct reply *r = rig_step_ops(d->rig, d->e.conn[0], &op, 1);

    return r->err != TERN_OK ? r->err : r->step.results[0].err;
}

bool do_unlease(void)
{
    struct fdaemon *d = &fw.d[fpick(FLEET)];
    uint32_t n = d->nleased ? 1 + fpick(d->nleased) : 0;
    enum tern_err err;

    if (n == 0)
        return false;
    err = gives_back(d, n);
    FEXPECT(err == TERN_OK, "unlease", "error %u", err);
    FTRACE("  daemon %u gives %u leased pages back\n", fdaemon_number(d), n);
    d->nleased -= n;
    return true;
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

/* E5, T1. */
void flease_look(const struct fdaemon *d)
{
    struct group_view v;

    if (!d->rig)
        return;
    v = rig_group_view(d->rig, d->pool, 0);
    FEXPECT(v.leased == d->nleased, "leased_count", "%u pages, and the engine has %u", v.leased,
            d->nleased);
    for (uint32_t i = 0; i < d->nleased; i++) {
        FEXPECT(fbytes_marked(d, d->leased[i]), "leased_written", "page %u", d->leased[i].index);
        for (const struct rig_session *s = d->rig->sessions; s; s = s->next)
            for (uint32_t p = 0; p * d->page_tokens < s->len.allocated; p++)
                FEXPECT(s->table[0][p].index != d->leased[i].index, "leased_in_table", "page %u",
                        d->leased[i].index);
    }
}
