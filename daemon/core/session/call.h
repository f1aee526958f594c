/* One request while it is being answered: who asks, and what the request names. core/step.c fills
 * this in at one place, by the table of operations, before it calls the operation's own function.
 * Invariant: the engine and the session in it are alive and belong to the asker.
 *
 * An operation's function returns the error of the reply, through refuse() for a refusal, and fills
 * the rest of the reply itself. A function that starts a transfer sets `later`: the core then drops
 * the reply, and answers when the transfer ends. */
#ifndef CORE_CALL_H
#define CORE_CALL_H

#include "core/arena/actions.h"

struct call {
    const struct request *req;
    struct conn *conn;
    struct engine *engine;   /* the connection's, if the request needs one */
    struct session *session; /* the session that the request names, if any; of that engine */
    struct actions *out;     /* of the step */
    bool later;
};

/* The function of each operation. */
#define X(NAME, name, function, ...)                                                               \
    enum tern_err function(struct core *c, struct call *call, struct reply *ret);
OP_TABLE(X)
#undef X

/* A later step answers the request. */
static inline struct reply_to call_later(struct call *call)
{
    call->later = true;
    return (struct reply_to){.conn = call->req->conn,
                             .gen = call->conn->gen,
                             .request_id = call->req->request_id,
                             .trace_id = call->req->trace_id};
}

/* Returns the engine of a connection, if it may send requests now. */
enum tern_err engine_of_conn(const struct core *c, const struct conn *conn,
                             struct engine **ret_engine, struct reply *ret);

/* evictions.c. Continues the evictions of OP_EVICT. Returns false if work is left, or if `out` had
 * no room for an answer. */
bool evictions_flush(struct core *c, struct actions *out);

#endif
