/* Filling struct actions: what one step of the core wants done, and the runs of page refs that its
 * answers carry. Every part of the core that emits something uses it. */
#ifndef CORE_ACTIONS_H
#define CORE_ACTIONS_H

#include "core/arena/arena.h"

uint32_t actions_room(const struct actions *out);
struct action *action_add(struct actions *out, enum action_kind kind); /* there must be room */
/* A run of these n pages, whose refs the caller fills in; NULL if the answer is full. */
struct page_ref *run_add(struct actions *out, struct table_run wanted);
/* Is there room for so many runs, of so many page refs together? */
struct runs_wanted {
    uint32_t runs, refs;
};
bool refs_fit(const struct actions *out, struct runs_wanted wanted);

/* Who waits for an answer that comes in a later step. */
struct reply_to {
    uint32_t conn;
    uint64_t request_id, trace_id;
};
/* That answer, with nothing else in it; there must be room. The text is static. */
struct reply *reply_late(struct actions *out, struct reply_to to, enum op op, enum tern_err err,
                         const char *text);

#endif
