/* The audit of the views of transfers for operators: a view is of that transfer, and adds up. The
 * audit takes nothing from core/transfer/stages.c. */
#include "oracle/audit.h"

#include "core/query.h"

/* Each nanosecond since the transfer began is in one stage and one wait. */
static void adds_up(const struct core *c, const struct transfer_view *v, const char *what)
{
    uint64_t stages = 0, waits = 0, age = c->now_ns - v->started_ns;

    for (uint32_t i = 0; i < TRANSFER_STAGES; i++)
        stages += transfer_stage_ns(&v->times, (enum transfer_stage)i, c->now_ns);
    for (uint32_t i = 0; i < TRANSFER_WAITS; i++)
        waits += transfer_wait_ns(&v->times, (enum transfer_wait)i, c->now_ns);
    if (stages != age || waits != age)
        oracle_fail("audit: %s of %llu ns was in stages for %llu and in waits for %llu", what,
                    (unsigned long long)age, (unsigned long long)stages, (unsigned long long)waits);
}

/* A page is verified only after it was asked for, and published only after it was verified. */
static void amounts(const struct core *c, const struct pull *p, const struct transfer_view *v)
{
    uint32_t left = 0, right = 0;

    for (uint32_t g = 0; g < pool_at(c, p->pool)->ngroups; g++)
        for (uint32_t i = p->pages[g].head; i != NONE; i = page_list_next(c, i)) {
            left++;
            right += page_at(c, i)->state == PAGE_VERIFIED;
        }
    if (v->pages_published != v->pages - left || v->bytes_published > v->bytes)
        oracle_fail("audit: of %u pages %u are left, and %u are published", v->pages, left,
                    v->pages_published);
    if (v->pages_verified > v->pages_asked || v->bytes_verified > v->bytes_asked ||
        v->pages_published > v->pages_verified)
        oracle_fail("audit: %u pages are asked for, %u verified, %u published", v->pages_asked,
                    v->pages_verified, v->pages_published);
    if (p->state == PULL_RUNNING && v->pages_verified != v->pages_published + right)
        oracle_fail("audit: %u pages are verified, %u published and %u wait for that",
                    v->pages_verified, v->pages_published, right);
}

/* N1: a wait for the peers of a reset has an end, and the core checks the reset then. */
static void reset_ends(const struct core *c, const struct reset *r)
{
    uint32_t told = 0;

    for (uint32_t p = 0; p < c->limits.peers; p++)
        told += heard_of(c, r, p)->state == HEARD_TOLD;
    if (r->state != RESET_ASKED || r->due)
        return;
    if (c->now_ns >= r->until_ns ? told > 0 : c->resets_until_ns == 0)
        oracle_fail("audit: N1: reset %llx still waits for %u peers", (unsigned long long)r->id,
                    told);
    if (c->now_ns < r->until_ns && c->resets_until_ns > r->until_ns)
        oracle_fail("audit: N1: reset %llx is looked at too late", (unsigned long long)r->id);
}

void audit_transfers(struct audit *a)
{
    const struct core *c = a->c;
    struct transfer_view v;

    for (uint32_t i = 0; i < c->limits.resets; i++)
        reset_ends(c, reset_at(c, i));

    for (uint32_t i = c->pulls_active.head; i != NONE; i = pull_list_next(c, i)) {
        if (!core_pull_view(c, i, &v))
            oracle_fail("audit: transfer in %u is not told of", i);
        adds_up(c, &v, "a transfer in");
        amounts(c, pull_at(c, i), &v);
        if ((v.times.stage == STAGE_WIRE) !=
            (pull_at(c, i)->state == PULL_RUNNING && pull_at(c, i)->batches > 0))
            oracle_fail("audit: transfer in %u is said to be in stage %u", i, v.times.stage);
    }
    for (uint32_t i = c->serves_active.head; i != NONE; i = serve_list_next(c, i)) {
        if (!core_serve_view(c, i, &v))
            oracle_fail("audit: transfer out %u is not told of", i);
        adds_up(c, &v, "a transfer out");
        if ((v.times.stage == STAGE_OFFERED) != (serve_at(c, i)->state == SERVE_OPEN))
            oracle_fail("audit: transfer out %u is said to be in stage %u", i, v.times.stage);
    }
}
