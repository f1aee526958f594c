/* Fills struct actions: the effects that one step of the core requests, and the runs of page refs
 * in its answers. Every part of the core that emits an action uses it. */
#ifndef CORE_ACTIONS_H
#define CORE_ACTIONS_H

#include "core/arena/arena.h"

uint32_t actions_room(const struct actions *out);
struct action *action_add(struct actions *out, enum action_kind kind); /* there must be room */
/* Adds a run of n pages. The caller fills in the returned refs; NULL if the answer is full. */
struct page_ref *run_add(struct actions *out, struct table_run wanted);
/* refs_fit returns true if there is room for so many runs with so many page refs together. */
struct runs_wanted {
    uint32_t runs, refs;
};
bool refs_fit(const struct actions *out, struct runs_wanted wanted);

/* Returns true if a request waits for the answer, on a connection that is still open. */
static inline bool reply_waits(const struct core *c, const struct reply_to *to)
{
    const struct conn *cn = conn_at(c, to->conn);

    return cn->open && cn->gen == to->gen;
}
/* Adds an otherwise empty answer to that request. There must be room; `text` is static. */
struct reply *reply_late(struct actions *out, struct reply_to to, enum op op, enum tern_err err,
                         const char *text);

#endif
