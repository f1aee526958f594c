/* See events.h. */
#include "core/events.h"

void tree_event(struct core *c, uint32_t node, enum tree_event_kind kind)
{
    (void)c, (void)node, (void)kind;
}

bool core_event_view(const struct core *c, uint64_t seq, struct tree_event_view *ret)
{
    (void)c, (void)seq, (void)ret;
    return false;
}
