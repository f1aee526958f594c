/* The audit: what must be true of a core after every event. This file knows only the public views.
 */
#include "rig.h"

static void audit_pool(const struct pool_view *v)
{
    for (uint32_t g = 0; g < v->ngroups; g++) {
        const struct group_view *q = &v->group[g];
        uint64_t sum = (uint64_t)q->free + q->leased + q->session + q->snapshot + q->reclaimable +
                       q->transfer + q->ticket + q->retiring + q->zeroing + q->quarantine;

        if (sum != q->total)
            rig_fail("T1: pool %u group %u: %llu pages are somewhere, %u exist", v->id.slot, g,
                     (unsigned long long)sum, q->total);
    }
}

void rig_audit(const struct core *core)
{
    const struct core_limits *limits = core_limits_of(core);

    for (uint32_t p = 0; p < limits->pools; p++) {
        struct pool_view v;

        if (core_pool_view(core, p, &v))
            audit_pool(&v);
    }
}
