/* Block tables: see table.h. All memory is taken by table_init. */
#include "engine/table.h"

#include <stdlib.h>
#include <string.h>

#include "engine/bytes.h"
#include "engine/proc.h"

/* Tokens of one link of the group's chain of hashes. */
static uint32_t granule(const struct block_table *t, uint32_t g)
{
    return t->groups[g].family == TERN_RECURRENT ? t->align : t->groups[g].page_tokens;
}

void table_init(struct block_table *t, const struct tern_group *groups, uint32_t ngroups,
                uint32_t tokens_max)
{
    *t = (struct block_table){.groups = groups, .ngroups = ngroups, .align = groups[0].page_tokens};
    for (uint32_t g = 0; g < ngroups; g++) {
        size_t n = tokens_max / granule(t, g) + 1;

        t->group[g].prefix = mem_need(n, sizeof(uint64_t));
        t->group[g].index = mem_need(n, sizeof(uint32_t));
        t->group[g].gen = mem_need(n, sizeof(uint32_t));
    }
}

void table_finish(struct block_table *t)
{
    for (uint32_t g = 0; g < t->ngroups; g++) {
        free(t->group[g].prefix);
        free(t->group[g].index);
        free(t->group[g].gen);
    }
    t->ngroups = 0;
}

void table_load(struct block_table *t, const uint64_t *root, const uint32_t *tokens, uint32_t n)
{
    for (uint32_t g = 0; g < t->ngroups; g++) {
        struct table_group *tg = &t->group[g];
        uint32_t step = granule(t, g);
        uint64_t h = root[g];

        tg->pages = 0;
        for (uint32_t at = 0; at < n; at += step) {
            h = content_chain(h, tokens + at, n - at < step ? n - at : step);
            tg->prefix[tg->pages++] = h;
        }
    }
    table_forget(t);
}

void table_forget(struct block_table *t)
{
    for (uint32_t g = 0; g < t->ngroups; g++) {
        t->group[g].from = 0;
        memset(t->group[g].index, 0, t->group[g].pages * sizeof(uint32_t));
    }
}

bool table_take(struct block_table *t, const struct tern_result *r, uint32_t *ret_pages)
{
    for (uint32_t k = 0; k < r->nruns; k++) {
        const struct tern_run *run = &r->runs[k];
        bool recurrent;
        struct table_group *tg;

        if (run->group >= t->ngroups)
            return false;
        recurrent = t->groups[run->group].family == TERN_RECURRENT;
        tg = &t->group[run->group];
        if (run->first > tg->pages || run->n > tg->pages - run->first ||
            (recurrent ? run->first != 0 || run->n != 1 : run->from.index != 0))
            return false;
        for (uint32_t i = 0; i < run->n; i++) {
            tg->index[run->first + i] = run->pages[i].index;
            tg->gen[run->first + i] = run->pages[i].generation;
        }
        tg->from = run->from.index;
        if (ret_pages)
            ret_pages[run->group] += run->n;
    }
    return true;
}

uint32_t table_window_first(const struct tern_group *g, uint32_t at)
{
    if (g->family != TERN_WINDOW || at <= g->window)
        return 0;
    return (at - g->window) / g->page_tokens;
}

bool table_covers(const struct block_table *t, uint32_t at)
{
    for (uint32_t g = 0; g < t->ngroups; g++) {
        const struct tern_group *group = &t->groups[g];

        for (uint32_t i = table_window_first(group, at);
             group->family != TERN_RECURRENT && i * group->page_tokens < at; i++) {
            if (t->group[g].index[i] == 0)
                return false;
        }
    }
    return true;
}

uint32_t table_pages(const struct block_table *t)
{
    uint32_t n = 0;

    for (uint32_t g = 0; g < t->ngroups; g++)
        for (uint32_t i = 0; t->groups[g].family != TERN_RECURRENT && i < t->group[g].pages; i++)
            n += t->group[g].index[i] != 0;
    return n;
}
