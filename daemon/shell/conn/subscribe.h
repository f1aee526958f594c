/* Subscriptions: a stream of the changes of the prefix tree, for routers and operators. Each
 * subscription has a position in its tenant's ring of changes (an operator's, in all of them) and
 * is sent what follows that position, one frame at a time. While the kernel has not taken a frame
 * the subscription stays where it is; changes that the ring overwrites meanwhile are reported as
 * `lost`: they are the tenant's own, as no tenant overwrites another's. Called by request.c (a
 * Subscribe, the end of a connection) and daemon.c (once a turn). What must stay true: a tenant is
 * told about itself alone; a slow or dead subscriber costs its own connection one frame and the
 * daemon nothing; after "ready" nothing here allocates. */
#ifndef SHELL_SUBSCRIBE_H
#define SHELL_SUBSCRIBE_H

#include "core/query.h"
#include "proto/codec.h"

#define SUBSCRIPTIONS_SHARE_MAX 16  /* of one tenant, and of the operators */
#define SUBSCRIBE_EVENTS_MAX    256 /* of one frame, which so fits a send buffer of the send queue */
#define SUBSCRIBE_SCAN_MAX      4096  /* changes looked at for one subscription a turn */
#define SUBSCRIBE_OVERHEAD      64    /* bytes of a frame's body beside its events, at most */
#define SUBSCRIBE_CHUNK_BYTES   14336 /* tokens and extra keys of a frame, and so of a chunk */
#define SUBSCRIBE_CHUNK_HEAD    16    /* bytes of a chunk in a frame beside those, at most */

/* What a frame tells of its events' chunks. */
struct event_chunks {
    uint32_t room;  /* bytes of a body for events and chunks that are left */
    uint32_t bytes; /* of `data` that are used */
    struct {
        uint32_t at, tokens, keys; /* numbers; the tokens stand at `at`, and the keys behind them */
    } of[SUBSCRIBE_EVENTS_MAX];
    _Alignas(8) uint8_t data[SUBSCRIBE_CHUNK_BYTES];
};

/* The position of a reader in the ring, and which changes it wants. */
struct event_reader {
    uint64_t at;     /* number of the next change to look at */
    uint64_t own;    /* which of the tenant's own changes that is; 0: not known yet */
    uint64_t lost;   /* changes overwritten before they were looked at, not yet told */
    uint32_t tenant; /* NONE: of every tenant */
    bool tokens;     /* the chunks, too */
    bool one_ns;     /* only of `ns` */
    struct namespace_id ns;
};

/* Where changes are read to. */
struct event_page {
    struct wire_event *v;
    uint32_t n, max;
    struct event_chunks *chunks; /* for a reader of tokens: the page ends where these are full */
};

/* Fills page->v, from 0 on, in order, and returns how many that are. It looks at SUBSCRIBE_SCAN_MAX
 * changes at most. Lost changes come before the first one returned. */
uint32_t subscribe_read(const struct core *core, struct event_reader *r, struct event_page *page);

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
    uint64_t sent, lost; /* changes, over all subscriptions since the start */
    bool more; /* a subscription has not reached the end of the ring: call again without waiting */
    struct wire_event events[SUBSCRIBE_EVENTS_MAX];
    struct event_chunks chunks;
    Tern__Wire__Tokens chunk[SUBSCRIBE_EVENTS_MAX], *chunk_list[SUBSCRIBE_EVENTS_MAX];
};

enum tern_err subscribe_init(struct daemon *d);
void subscribe_finish(struct daemon *d);

void subscribe_request(struct daemon *d, struct client_conn *c, const struct frame_header *h,
                       const uint8_t *body);
/* The connection has ended, and its subscriptions end with it. */
void subscribe_forget(struct daemon *d, uint32_t conn);
/* Sends what can be sent. It costs nothing where nobody subscribes. */
void subscribe_pump(struct daemon *d);

#endif
