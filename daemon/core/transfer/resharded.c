/* See spans.h. A transfer counts from the time when both layouts are known until nothing touches
 * its pages any more. The data path never keeps the pair of layouts for longer than that. */
#include "core/transfer/spans.h"

struct seen {
    struct layout_pair pair[RESHARD_PAIRS_MAX];
    bool of_peer[RESHARD_PAIRS_MAX]; /* of the peer in question */
    uint32_t n;
};

static bool same_pair(struct layout_pair a, struct layout_pair b)
{
    return a.from == b.from && a.to == b.to;
}

static void see(struct seen *seen, struct layout_pair pair, bool of_peer)
{
    uint32_t i = 0;

    while (i < seen->n && !same_pair(seen->pair[i], pair))
        i++;
    if (i == RESHARD_PAIRS_MAX)
        return; /* only for a pull that its source has refused, and that is about to end */
    if (i == seen->n) {
        seen->pair[seen->n++] = pair;
        seen->of_peer[i] = false;
    }
    seen->of_peer[i] = seen->of_peer[i] || of_peer;
}

static void look(const struct core *c, uint32_t peer, struct seen *ret)
{
    ret->n = 0;
    for (uint32_t i = c->serves_active.head; i != NONE; i = serve_list_next(c, i)) {
        const struct serve *s = serve_at(c, i);

        if (s->layout_hash != 0)
            see(ret, (struct layout_pair){pool_at(c, s->pool)->layout_hash, s->layout_hash},
                link_at(c, s->link)->peer == peer);
    }
    for (uint32_t i = c->pulls_active.head; i != NONE; i = pull_list_next(c, i)) {
        const struct pull *p = pull_at(c, i);

        if (p->layout_hash != 0)
            see(ret, (struct layout_pair){p->layout_hash, pool_at(c, p->pool)->layout_hash},
                link_at(c, p->link)->peer == peer);
    }
}

bool resharded_room(const struct core *c, uint32_t link, struct layout_pair pair)
{
    struct seen seen;
    uint32_t of_peer = 0;
    bool there = false;

    if (pair.from == LAYOUT_NONE || pair.to == LAYOUT_NONE)
        return false;
    look(c, link_at(c, link)->peer, &seen);
    for (uint32_t i = 0; i < seen.n; i++) {
        if (same_pair(seen.pair[i], pair) && seen.of_peer[i])
            return true;
        there = there || same_pair(seen.pair[i], pair);
        of_peer += seen.of_peer[i];
    }
    return of_peer < RESHARD_PEER_PAIRS && (there || seen.n < RESHARD_PAIRS_MAX);
}

bool core_layout_used(const struct core *c, uint64_t hash)
{
    for (uint32_t i = c->serves_active.head; i != NONE; i = serve_list_next(c, i))
        if (serve_at(c, i)->layout_hash == hash)
            return true;
    for (uint32_t i = c->pulls_active.head; i != NONE; i = pull_list_next(c, i))
        if (pull_at(c, i)->layout_hash == hash)
            return true;
    return false;
}
