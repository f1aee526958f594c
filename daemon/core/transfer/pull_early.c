/* See pull_early.h. */
#include "core/transfer/pull_early.h"

#include "core/arena/actions.h"
#include "core/transfer/pulls.h"
#include "core/tree/nodes.h"
#include "core/tree/state.h"

/* The logical page that untold[g] is, the first that the source has not offered. */
static uint32_t untold_first(const struct core *c, const struct pull *p, uint32_t g)
{
    const struct pool *pool = pool_at(c, p->pool);
    const struct transfer_range moved =
        transfer_pages(pool, &pool->group[g], (struct transfer_span){p->from, p->history, p->to});
    const uint32_t told = p->told / pool->group[g].layout.page_tokens;

    return told > moved.first ? told : moved.first;
}

/* The record of the run's first page, not offered yet; NONE: the transfer does not move it. */
static uint32_t record_of(const struct core *c, const struct pull *p, const struct table_run *run)
{
    uint32_t at = p->untold[run->group], i = untold_first(c, p, run->group);

    if (run->first < i)
        return NONE;
    while (at != NONE && i < run->first)
        at = page_list_next(c, at), i++;
    return at;
}

/* Does it name pages that are the transfer's, in whole? */
static bool run_fits(const struct core *c, const struct pull *p, const struct table_run *run)
{
    uint32_t at;

    if (run->n == 0 || run->n > PULL_BATCH_PAGES ||
        (uint64_t)run->first + run->n >
            (uint64_t)untold_first(c, p, run->group) + early_pages_max(c))
        return false;
    at = record_of(c, p, run);
    for (uint32_t i = 0; i < run->n; i++, at = page_list_next(c, at))
        if (at == NONE || run->refs[i].gen == 0)
            return false;
    return true;
}

bool pull_early_fits(const struct core *c, const struct pull *p, const struct peer_msg *msg)
{
    const struct pool *pool = pool_at(c, p->pool);
    const struct group *g;

    if (!p->follow || p->npages == 0 || p->layout_hash != 0 || msg->err != TERN_OK ||
        msg->serve.gen == 0 || msg->nruns != 1 || msg->runs->group >= pool->ngroups)
        return false;
    if (p->state == PULL_RUNNING && !serve_id_equal(msg->serve, p->serve))
        return false;
    g = &pool->group[msg->runs->group];
    return p->early.left == 0 && !p->early.took && g->layout.family == FAMILY_HISTORY &&
           g->layout.units <= UNITS_EARLY_MAX && msg->units != 0 &&
           (msg->units & ~units_all(g)) == 0 && run_fits(c, p, msg->runs);
}

void pull_early_told(struct core *c, struct pull *p, const struct peer_msg *msg)
{
    const struct table_run *run = msg->runs;
    uint32_t at = record_of(c, p, run);

    p->early.units = msg->units;
    p->early.group = run->group;
    p->early.at = at;
    p->early.unasked = p->early.left = run->n;
    for (uint32_t i = 0; i < run->n; i++, at = page_list_next(c, at)) {
        page_early_state_move(&page_at(c, at)->early, PAGE_EARLY_ASKED);
        page_at(c, at)->source = run->refs[i];
        page_at(c, at)->units &= ~msg->units; /* they are written again, and may not come whole */
    }
    p->early.told += run->n;
    if (p->early.told <= (uint64_t)p->npages * pool_at(c, p->pool)->group[run->group].layout.units)
        pull_time(c, p); /* else it has told of each unit of each page, and goes on */
    touch(c);
}

uint32_t pull_early_next(const struct core *c, struct pull *p)
{
    const uint32_t record = p->early.at;

    if (p->early.unasked == 0)
        return NONE;
    p->early.at = page_list_next(c, record);
    p->early.unasked--;
    return record;
}

void pull_early_arrived(struct core *c, struct pull *p, uint32_t record, uint64_t units)
{
    struct page *pg = page_at(c, record);

    pg->units |= units;
    page_early_state_move(&pg->early, pg->units ? PAGE_EARLY_HAVE : PAGE_EARLY_NONE);
    c->early_pages += units != 0;
    p->early.took = --p->early.left == 0;
    touch(c);
}

bool pull_early_answer(struct core *c, struct actions *out, struct pull *p)
{
    if (!p->early.took)
        return true;
    if (actions_room(out) == 0)
        return false;
    pull_send(c, out, p, PEER_PULL_TOOK)->err = p->early.whole ? TERN_UNSUPPORTED : TERN_OK;
    p->early.took = 0;
    touch(c);
    return true;
}
