/* The pages that a session owns, for a model that does not learn them from answers: see oracle.h.
 */
#include "oracle/oracle.h"

#include "core/memory/pages.h"

bool oracle_session_owns(const struct core *core, struct session_id id, uint32_t group,
                         struct page_ref ref)
{
    const struct session *s = session_at(core, id.slot);
    const struct page *p;

    if (s->state == SESSION_EMPTY || s->gen != id.gen)
        return false;
    p = page_find(core, pool_at(core, s->pool), group, ref);
    return p && (p->state == PAGE_OWNED || p->state == PAGE_HANDED) && p->owner == id.slot;
}
