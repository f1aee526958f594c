/* Device accesses that no answer can stop: steps under way still touch pages that were released,
 * transfers and copies still write to their targets. See world.h. */
#include "fuzz/core/world.h"

uint32_t take(struct world *w)
{
    if (!w->n)
        return 0;
    w->n--;
    return *w->in++;
}

const uint32_t *sequence(uint32_t k)
{
    static uint32_t tokens[SEQUENCE];

    for (uint32_t i = 0; i < SEQUENCE; i++)
        tokens[i] = i + (i >= 8 && k & 1 ? 1000 : 0) + (i >= 16 && k & 2 ? 2000 : 0) +
                    (i >= 20 && k & 4 ? 4000 : 0);
    return tokens;
}

void remember(struct actor *a, uint64_t step, uint32_t group, struct page_ref ref, bool reads)
{
    struct late *l = &a->late[a->nlate];
    uint64_t bytes;

    if (a->nlate == LATE_MAX || !ref.index)
        return;
    *l = (struct late){.step = step, .group = group, .index = ref.index, .reads = reads};
    for (uint32_t r = 0; r < a->world; r++)
        if (a->done[r] < step)
            l->ranks |= 1u << r;
    if (!l->ranks)
        return; /* it has passed: the page may have another owner */
    memcpy(l->bytes, rig_page(a->rig, a->pool.slot, group, ref.index, &bytes), sizeof l->bytes);
    a->nlate++;
}

void touch_late(struct actor *a, const struct late *l)
{
    uint64_t bytes;
    uint8_t *page = rig_page(a->rig, a->pool.slot, l->group, l->index, &bytes);

    if (!l->reads)
        memset(page, 0xdd, bytes);
    else if (memcmp(page, l->bytes, sizeof l->bytes) != 0)
        rig_fail("P2: page %u of group %u changed under a reader until step %llu", l->index,
                 l->group, (unsigned long long)l->step);
}

/* The last moment at which a rank may touch the pages of steps up to `step`. */
void rank_done(struct actor *a, uint32_t rank, uint64_t step)
{
    for (uint32_t i = 0; i < a->nlate; i++)
        if (a->late[i].step <= step && a->late[i].ranks & 1u << rank) {
            touch_late(a, &a->late[i]);
            a->late[i].ranks &= ~(1u << rank);
            if (!a->late[i].ranks)
                a->late[i--] = a->late[--a->nlate];
        }
    if (step > a->done[rank])
        a->done[rank] = step;
    rig_step_done(a->rig, a->e.id, rank, step);
}

uint64_t done_min(const struct actor *a)
{
    uint64_t min = a->done[0];

    for (uint32_t r = 1; r < a->world; r++)
        if (a->done[r] < min)
            min = a->done[r];
    return min;
}

void write_late(struct actor *a)
{
    for (uint32_t i = 0; i < a->nlate; i++)
        touch_late(a, &a->late[i]);
}

void scribble(struct rig *rig, enum rig_job_kind kind)
{
    struct rig_job *job;

    for (uint32_t nth = 0; (job = rig_job(rig, kind, nth)) != NULL; nth++)
        for (uint32_t i = 0; i < job->n; i++) {
            uint32_t pool = kind == RIG_COPY ? job->to_pool : job->pool,
                     group = kind == RIG_COPY ? job->to[i].group : job->pages[i].group,
                     index = kind == RIG_COPY ? job->to[i].index : job->pages[i].index;
            uint64_t bytes;
            uint8_t *page = rig_page(rig, pool, group, index, &bytes);

            memset(page, 0xee, bytes);
        }
}
