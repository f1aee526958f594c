/* Checksums of published nodes, so that peers may read them. Each tenant has a queue of nodes;
 * tenants take turns. A job is one node; as many run as job slots and SEAL_BYTES_MAX allow, but at
 * least two, so that no worker waits for the owner. The owner learns of the first nodes while the
 * next are read, even if it shares one processor with the workers. So the first waiters are served
 * before the end (Y4). Invariant: a job pins its node, so its pages are not reused while a worker
 * reads them. */

#include "core/arena/actions.h"
#include "core/tier/host.h"
#include "core/transfer/serves.h"
#include "core/tree/nodes.h"
#include "core/tree/state.h"

void seal_queue(struct core *c, uint32_t node)
{
    struct node *n = node_at(c, node);

    if (n->work.seal != SEAL_NONE)
        return;
    seal_state_move(&n->work.seal, SEAL_QUEUED);
    node_pin(c, node, REF_JOB);
    seal_list_push(c, &tenant_at(c, node_pool(c, n)->tenant)->seals_queued, node);
    c->seals_queued++;
}

/* Returns true if the page's checksum was not requested yet, and no refill of the group waits for
 * its step. */
static bool page_waits(const struct node *n, uint32_t group, const struct page *pg)
{
    return pg->seal == PAGE_SEAL_NONE && !(n->state.refilling & 1u << group);
}

static bool node_waits(const struct core *c, const struct node *n)
{
    for (uint32_t g = 0; g < c->limits.groups; g++)
        for (uint32_t at = n->group[g].pages[TIER_DEVICE]; at != NONE; at = page_list_next(c, at))
            if (page_waits(n, g, page_at(c, at)))
                return true;
    return false;
}

static uint64_t job_bytes(const struct pool *p)
{
    uint64_t n = 0;

    for (uint32_t g = 0; g < p->ngroups; g++)
        n += p->group[g].segment * p->group[g].layout.page_bytes * p->transfer_regions;
    return n;
}

void seal_done(struct core *c, struct seal_id job)
{
    struct node *n;

    if (job.slot >= c->limits.nodes)
        return;
    n = node_at(c, job.slot);
    if (!n->used || n->gen != job.gen || n->work.seal != SEAL_RUNNING)
        return;
    for (uint32_t g = 0; g < c->limits.groups; g++)
        for (uint32_t at = n->group[g].pages[TIER_DEVICE]; at != NONE; at = page_list_next(c, at))
            if (page_at(c, at)->seal == PAGE_SEAL_RUNNING)
                page_seal_state_move(&page_at(c, at)->seal, PAGE_SEAL_DONE);
    seal_state_move(&n->work.seal, SEAL_DONE);
    seal_list_remove(c, &c->seals_out, job.slot);
    c->seals_running--;
    ticket_looks(c);
    c->seal_bytes -= job_bytes(pool_at(c, n->pool));
    /* The node waits for another job if its STATE was refilled meanwhile, or the piece is over: the
     * end of that job does the rest. */
    if (node_waits(c, n) || piece_over(c)) {
        seal_state_move(&n->work.seal, SEAL_NONE);
        seal_queue(c, job.slot);
    } else {
        if (n->work.since_ns)
            count_since(c, LATENCY_SEAL, n->work.since_ns);
        n->work.since_ns = 0;
        host_sealed(c, job.slot);
    }
    state_settle(c, job.slot);
    node_unpin(c, job.slot, REF_JOB);
}

static void emit_job(struct core *c, struct actions *out, uint32_t slot)
{
    const struct node *n = node_at(c, slot);
    const struct pool *p = pool_at(c, n->pool);
    struct action *a = action_add(out, ACT_SEAL);
    struct page_at *to = out->pages + out->npages;

    a->seal.job = (struct seal_id){.slot = slot, .gen = n->gen};
    a->seal.pool = n->pool;
    a->seal.pages = to;
    for (uint32_t g = 0; g < p->ngroups; g++)
        for (uint32_t at = n->group[g].pages[TIER_DEVICE]; at != NONE; at = page_list_next(c, at)) {
            struct page *pg = page_at(c, at);

            if (!page_waits(n, g, pg))
                continue;
            page_seal_state_move(&pg->seal, PAGE_SEAL_RUNNING);
            to[a->seal.n] = page_place(c, at);
            to[a->seal.n++].step = pg->step;
        }
    out->npages += a->seal.n;
}

bool seal_flush(struct core *c, struct actions *out)
{
    while (c->seals_queued > 0 && c->seals_running < c->limits.seal_jobs) {
        uint32_t tenant = next_tenant(c, c->seal_turn, offsetof(struct tenant, seals_queued)),
                 slot = tenant_at(c, tenant)->seals_queued.head;
        const struct pool *p = pool_at(c, node_at(c, slot)->pool);
        uint32_t need = chunk_pages(p);

        if (c->seals_running > 1 && c->seal_bytes + job_bytes(p) > SEAL_BYTES_MAX)
            return true; /* the end of a job continues */
        if (actions_room(out) == 0 || out->npages + need > sizeof out->pages / sizeof out->pages[0])
            return false;
        seal_list_remove(c, &tenant_at(c, tenant)->seals_queued, slot);
        c->seals_queued--;
        c->seal_turn = tenant;
        seal_list_push(c, &c->seals_out, slot);
        seal_state_move(&node_at(c, slot)->work.seal, SEAL_RUNNING);
        c->seals_running++;
        c->seal_bytes += job_bytes(p);
        emit_job(c, out, slot);
        touch(c);
    }
    return true;
}
