/* The jobs that copy between the tiers: each tenant has a queue of nodes, tenants take turns, and
 * as many jobs run as there are slots. One job moves what one node needs. See host.h. */
#include "core/arena/actions.h"
#include "core/tier/host.h"
#include "core/tree/nodes.h"

void copy_done(struct core *c, struct copy_id job, enum tern_err err)
{
    struct node *n;

    if (job.slot >= c->limits.nodes)
        return;
    n = node_at(c, job.slot);
    if (!n->used || n->work.copy_gen != job.gen ||
        (n->work.copy != COPY_RUNNING && n->work.copy != COPY_CANCELLED))
        return; /* a second acknowledgement */
    copy_list_remove(c, &c->copies_out, job.slot);
    c->copies_running--;
    touch(c);
    if (n->work.copy_to == TIER_HOST)
        writeback_acked(c, job.slot, err);
    else
        loadback_acked(c, job.slot, err);
}

static uint32_t list_at(const struct core *c, struct page_at *to, uint32_t head)
{
    uint32_t n = 0;

    for (uint32_t at = head; at != NONE; at = page_list_next(c, at))
        to[n++] = page_place(c, at);
    return n;
}

static void emit_copy(struct core *c, uint32_t slot, struct actions *out, uint32_t pages)
{
    struct node *n = node_at(c, slot);
    const struct pool *p = node_pool(c, n);
    struct action *a = action_add(out, ACT_COPY);
    struct page_at *from = out->pages + out->npages, *to = from + pages;

    n->work.copy_gen = gen_next(n->work.copy_gen);
    a->copy.job = (struct copy_id){.slot = slot, .gen = n->work.copy_gen};
    a->copy.from_pool = p->tiers[n->work.copy_from];
    a->copy.to_pool = p->tiers[n->work.copy_to];
    a->copy.from = from;
    a->copy.to = to;
    a->copy.n = pages;
    out->npages += 2 * pages;
    for (uint32_t g = 0; g < p->ngroups; g++) {
        if (n->group[g].copying == NONE)
            continue;
        from += list_at(c, from, n->group[g].pages[n->work.copy_from]);
        to += list_at(c, to, n->group[g].copying);
    }
    if (n->work.copy_from == TIER_DEVICE)
        node_pin(c, slot, REF_JOB);
    copy_state_move(&n->work.copy, COPY_RUNNING);
}

bool copy_flush(struct core *c, struct actions *out)
{
    while (c->copies_queued > 0 && c->copies_running < c->limits.copy_jobs) {
        const uint32_t tenant =
                           next_tenant(c, c->copy_turn, offsetof(struct tenant, copies_queued)),
                       slot = tenant_at(c, tenant)->copies_queued.head;
        const struct node *n = node_at(c, slot);
        uint32_t pages = 0;

        for (uint32_t g = 0; g < c->limits.groups; g++)
            pages += n->group[g].copying == NONE ? 0 : node_pool(c, n)->group[g].segment;
        if (actions_room(out) == 0 ||
            out->npages + 2 * pages > sizeof out->pages / sizeof out->pages[0])
            return false;
        copy_unqueue(c, slot);
        c->copy_turn = tenant;
        copy_list_push(c, &c->copies_out, slot);
        c->copies_running++;
        emit_copy(c, slot, out, pages);
        touch(c);
    }
    return true;
}
