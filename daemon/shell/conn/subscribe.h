/* Subscriptions: a stream of what changed in the prefix tree, for routers and operators. Each has a
 * place in the core's ring of changes and is sent what lies behind it, one frame at a time: while
 * the kernel has not taken that frame the subscription stays where it is, and what the ring
 * overwrites meanwhile is told as `lost`. Called by request.c (a Subscribe), conn.c (the end of a
 * connection) and daemon.c (once a turn). What must stay true: a tenant hears of itself alone; a
 * slow or dead subscriber costs its own connection one frame and the daemon nothing; after "ready"
 * nothing here allocates. */
#ifndef SHELL_SUBSCRIBE_H
#define SHELL_SUBSCRIBE_H

#include "core/query.h"
#include "proto/codec.h"

#define SUBSCRIPTIONS_SHARE_MAX 16  /* of one tenant, and of the operators */
#define SUBSCRIBE_EVENTS_MAX    256 /* of one frame, which so fits a send buffer of the send queue */
#define SUBSCRIBE_SCAN_MAX      4096 /* changes looked at for one subscription a turn */
#define SUBSCRIBE_OVERHEAD      64   /* bytes of a frame's body beside its events, at most */

/* Where a reader of the ring stands, and what it wants. */
struct event_reader {
    uint64_t at;     /* number of the next change to look at */
    uint64_t lost;   /* changes overwritten before they were looked at, not yet told */
    uint32_t tenant; /* NONE: of every tenant */
    bool one_ns;     /* only of `ns` */
    struct namespace_id ns;
};

/* Fills ret with changes in order, at most max, looking at SUBSCRIBE_SCAN_MAX; returns how many.
 * What is lost lies before the first of them. */
uint32_t subscribe_read(const struct core *core, struct event_reader *r, struct wire_event *ret,
                        uint32_t max);

struct daemon;
struct client_conn;

struct subscription {
    struct event_reader reader;
    uint32_t conn;
    uint64_t request_id;
    uint64_t mark; /* what the stream had queued with its last frame */
};

struct subscriptions {
    struct subscription *v; /* owned; [0, n) are in use */
    uint32_t n, cap;
    uint64_t told, lost; /* changes, over all subscriptions since the start */
    bool more; /* somebody did not get to the end of the ring: call again without waiting */
    struct wire_event events[SUBSCRIBE_EVENTS_MAX];
};

enum tern_err subscribe_init(struct daemon *d);
void subscribe_finish(struct daemon *d);

void subscribe_request(struct daemon *d, struct client_conn *c, const struct frame_header *h,
                       const uint8_t *body);
/* The connection has ended. */
void subscribe_forget(struct daemon *d, uint32_t conn);
/* Sends whatever can be sent. Free of cost where nobody subscribes. */
void subscribe_pump(struct daemon *d);

#endif
