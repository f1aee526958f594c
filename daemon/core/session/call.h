/* One request while it is being answered: who asks, and what the request names. core/step.c fills
 * this in one place, by the table of operations, before the operation's own function is called; so
 * a function that needs an engine or a session finds it here, alive and belonging to the asker.
 *
 * Such a function returns what becomes the reply's error, by refuse() where it refuses. It fills
 * the rest of the reply itself. One that starts a transfer sets `later`: the reply is then thrown
 * away, and whoever ends the transfer makes another. */
#ifndef CORE_CALL_H
#define CORE_CALL_H

#include "core/arena/arena.h"
#include "core/arena/refuse.h"

struct call {
    const struct request *req;
    struct conn *conn;
    struct engine *engine;   /* the connection's, if the request needs one */
    struct session *session; /* that the request names, if it names one; of that engine */
    bool later;
};

/* What answers each operation. */
#define X(NAME, name, function, ...)                                                               \
    enum tern_err function(struct core *c, struct actions *out, struct call *call,                 \
                           struct reply *ret);
OP_TABLE(X)
#undef X

/* The engine of a connection, if it may ask for things now. */
enum tern_err engine_of_conn(const struct core *c, const struct conn *conn,
                             struct engine **ret_engine, struct reply *ret);

/* evictions.c. Goes on with OP_EVICT's. False: there is more to do, or no room for an answer. */
bool evictions_flush(struct core *c, struct actions *out);
void eviction_conn_closed(struct core *c, uint32_t conn);

#endif
