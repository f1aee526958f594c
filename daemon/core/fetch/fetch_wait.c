/* Reports how far a running fetch has come, and where its pages lie (Y4, Y5). One request waits for
 * a fetch; a later request replaces it. The answer is sent in the step that publishes the awaited
 * tokens or ends the fetch, before the fetch's own answer. */
#include "core/fetch/fetch.h"

#include "core/session/record.h"
#include "core/transfer/pulls.h"
#include "core/tree/nodes.h"
#include "core/tree/state.h"

/* A RECURRENT group's page follows with the first Extend. */
void fetch_gained_runs(const struct core *c, struct actions *out, const struct session *s,
                       uint32_t from)
{
    const struct pool *pool = session_pool(c, s);

    for (uint32_t g = 0; g < pool->ngroups; g++) {
        const uint32_t first = from / pool->group[g].layout.page_tokens,
                       window = window_first(&pool->group[g], s->allocated);

        if (pool->group[g].layout.family != FAMILY_RECURRENT)
            session_path_run(c, out, s, (struct group_page){g, first > window ? first : window});
        session_owned_run(c, out, s, g);
    }
}

/* Names the pages that were allocated for data still to arrive. Together with the pages that the
 * session has gained, they are all pages of the fetch. */
static void arriving_runs(const struct core *c, struct actions *out, const struct pull *p)
{
    for (uint32_t g = 0; g < pool_at(c, p->pool)->ngroups; g++) {
        const uint32_t beside = p->front[g] + p->back[g];
        struct table_run run = {.group = g, .first = p->base[g] + p->front[g]};
        struct page_ref *refs;
        uint32_t at;

        if (p->pages[g].n <= beside)
            continue;
        run.n = p->pages[g].n - beside;
        refs = run_add(out, run);
        at = p->pages[g].head;
        for (uint32_t i = 0; i < p->front[g] + run.n; i++, at = page_list_next(c, at))
            if (i >= p->front[g])
                *refs++ = page_ref_of(c, at);
    }
}

static bool runs_fit(const struct core *c, const struct actions *out, const struct pull *p)
{
    return refs_fit(out, (struct runs_wanted){.runs = 3 * GROUPS_MAX,
                                              .refs = pool_table_refs(pool_at(c, p->pool), p->to)});
}

static uint32_t gained_from(const struct pull *p)
{
    return p->wait_above > p->start ? p->wait_above : p->start;
}

static struct reply *answer(struct actions *out, struct pull *p, enum tern_err err,
                            const char *text)
{
    struct reply *r = reply_late(out, p->wait, OP_FETCH_WAIT, err, text);

    p->wait.gen = 0;
    return r;
}

enum tern_err fetch_wait(struct core *c, struct call *call, struct reply *ret)
{
    const struct req_fetch_wait *r = &call->req->fetch_wait;
    const struct session *s = call->session;
    struct pull *p = s->pull == NONE ? NULL : pull_at(c, s->pull);

    reply_lengths(s, ret);
    if (!p && !s->fetched)
        return refuse(ret, TERN_INVALID,
                      "this session began no fetch since its last Match, so there is nothing to "
                      "wait for: see the answer to the Fetch, which may have refused it");
    if (!p)
        return TERN_OK;
    if (!runs_fit(c, call->out, p))
        return TERN_BUSY;
    ret->fetch_wait.arriving = p->to;
    if (r->pages) {
        if (!p->tail)
            fetch_gained_runs(c, call->out, s, p->start);
        arriving_runs(c, call->out, p);
        return TERN_OK;
    }
    if (reply_waits(c, &p->wait))
        answer(call->out, p, TERN_CONFLICT,
               "a later wait for this fetch replaced this one: only one may wait at a time");
    p->wait_above = r->above;
    if (s->written > r->above) {
        if (!p->tail)
            fetch_gained_runs(c, call->out, s, gained_from(p));
        return TERN_OK;
    }
    p->wait = call_later(call);
    return TERN_OK;
}

bool fetch_wait_tell(struct core *c, struct actions *out, struct pull *p)
{
    const struct session *s = p->session == NONE ? NULL : session_at(c, p->session);
    uint32_t first_run = out->nruns;
    struct reply *r;

    if (!s || !reply_waits(c, &p->wait) || s->written <= p->wait_above)
        return true;
    if (actions_room(out) == 0 || !runs_fit(c, out, p))
        return false;
    r = answer(out, p, TERN_OK, "");
    if (!p->tail)
        fetch_gained_runs(c, out, s, gained_from(p));
    r->runs = out->runs + first_run;
    r->nruns = out->nruns - first_run;
    reply_lengths(s, r);
    r->fetch_wait.arriving = p->to;
    return true;
}

void fetch_wait_end(struct core *c, struct actions *out, struct pull *p)
{
    const struct session *s = p->session == NONE ? NULL : session_at(c, p->session);
    struct reply *r;

    if (!reply_waits(c, &p->wait))
        return;
    r = answer(out, p, s ? TERN_OK : TERN_GONE,
               s ? "" : "the session was closed or aborted, which ended the wait");
    if (!s)
        return;
    reply_lengths(s, r);
}
