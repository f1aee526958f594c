/* Page jobs of the engines: see engine.h. The writes, comparisons and copies of a step are gathered
 * in a list, which grows to the largest step and keeps that size; all ranks work on it together. */
#include "engine.h"
#include "engine/proc.h"

static void add_job(struct engine *e, struct page_job job)
{
    if (e->njobs == e->jobs_cap) {
        e->jobs_cap = e->jobs_cap ? e->jobs_cap * 2 : 4096;
        e->jobs = mem_grow(e->jobs, e->jobs_cap, sizeof *e->jobs);
    }
    e->jobs[e->njobs++] = job;
}

void engine_add_jobs(struct engine *e, const struct turn *turn, enum rank_work work, uint32_t group,
                     uint32_t first, uint32_t end)
{
    const struct table_group *tg = &turn->table.group[group];

    for (uint32_t i = first; i < end; i++) {
        add_job(e, (struct page_job){.prefix = tg->prefix[i],
                                     .page = i,
                                     .index = tg->index[i],
                                     .gen = tg->gen[i],
                                     .group = (uint16_t)group,
                                     .work = (uint16_t)work});
    }
}

void engine_add_state(struct engine *e, const struct turn *turn, enum rank_work work, uint32_t at)
{
    const struct table_group *tg;
    uint32_t chunk;

    if (e->recurrent < 0 || at == 0)
        return;
    tg = &turn->table.group[e->recurrent];
    chunk = (at - 1) / e->page_tokens;
    add_job(e, (struct page_job){.prefix = tg->prefix[chunk],
                                 .page = chunk,
                                 .index = tg->index[0],
                                 .gen = tg->gen[0],
                                 .from = tg->from,
                                 .group = (uint16_t)e->recurrent,
                                 .work = (uint16_t)work});
}

void engine_copy_state(struct engine *e, struct turn *turn, uint32_t at)
{
    engine_add_state(e, turn, RANK_COPY, at);
    engine_add_state(e, turn, RANK_COMPARE, at);
    turn->table.group[e->recurrent].from = 0;
}

void engine_add_tail(struct engine *e, struct turn *turn, uint32_t from, uint32_t to, uint32_t at)
{
    if (e->recurrent >= 0 && turn->table.group[e->recurrent].from != 0)
        engine_copy_state(e, turn, from);
    for (uint32_t g = 0; g < e->geometry.ngroups; g++) {
        const struct tern_group *group = &e->geometry.groups[g];

        if (group->family != TERN_RECURRENT)
            engine_add_jobs(e, turn, RANK_WRITE, g, from / group->page_tokens,
                            div_up(to, group->page_tokens));
    }
    engine_add_state(e, turn, RANK_WRITE, at);
}

void engine_add_table(struct engine *e, struct turn *turn, uint32_t from, uint32_t at)
{
    const struct table_group *state = e->recurrent < 0 ? NULL : &turn->table.group[e->recurrent];

    for (uint32_t g = 0; g < e->geometry.ngroups; g++) {
        uint32_t pt = e->geometry.groups[g].page_tokens;

        for (uint32_t i = from / pt; (int)g != e->recurrent && i < div_up(at, pt); i++) {
            if (turn->table.group[g].index[i] != 0)
                engine_add_jobs(e, turn, RANK_COMPARE, g, i, i + 1);
        }
    }
    if (!state || state->index[0] == 0)
        return;
    if (state->from != 0)
        engine_copy_state(e, turn, at);
    else
        engine_add_state(e, turn, RANK_COMPARE, at);
}

bool engine_run_jobs(struct engine *e, uint64_t step, const char *what)
{
    uint64_t wrong = 0;

    if ((e->njobs > 0 || step > 0) && !team_run(&e->team, e->jobs, e->njobs, step, &wrong)) {
        engine_says(e, "a rank process is gone");
        return false;
    }
    if (wrong)
        engine_says(e, "%llu wrong bytes in %s, in step %llu", (unsigned long long)wrong, what,
                    (unsigned long long)e->step);
    count(e->counts.wrong, wrong);
    e->njobs = 0;
    if (step > 0)
        e->published = step;
    return true;
}
