/* A second destination beside that of a pair. Header only. */
#ifndef TEST_RIG_ANOTHER_H
#define TEST_RIG_ANOTHER_H

#include "core/arena/arena.h"
#include "unit/rig/rig_pair.h"

/* Creates another daemon that calls the source, as a peer of its own. */
static inline struct rig *another_dest(struct pair *p, uint32_t peer, struct rig_engine *ret)
{
    uint32_t peers = p->source->options.limits.peers;
    struct rig *dest = rig_create(&p->dest->options);

    *ret = rig_engine(dest, 0, "decode", 1);
    rig_link_up(dest, 0, p->source, peers + peer);
    link_at(p->source->core, peers + peer)->peer = peer;
    return dest;
}

#endif
