/* Subscriptions: streams of the changes of the prefix tree, for routers and operators. Each has a
 * position in its tenant's ring of changes (an operator's, in all rings) and receives the changes
 * after it, one frame at a time. The position stays until the kernel has accepted a frame; changes
 * that the ring overwrites meanwhile are reported as `lost`. Only later changes of the same tenant
 * overwrite a change. Called by request.c (a Subscribe, the end of a connection) and daemon.c (once
 * a turn). Invariant: a tenant receives only its own changes; a slow or dead subscriber costs its
 * own connection one frame and the daemon nothing; after "ready" nothing here allocates. */
#ifndef SHELL_SUBSCRIBE_H
#define SHELL_SUBSCRIBE_H

#include "core/query.h"
#include "proto/codec.h"

#define SUBSCRIPTIONS_SHARE_MAX 16    /* of a tenant, and of the operators */
#define SUBSCRIBE_EVENTS_MAX    256   /* per frame, so that a frame fits a send buffer */
#define SUBSCRIBE_SCAN_MAX      4096  /* changes examined per subscription and turn */
#define SUBSCRIBE_OVERHEAD      64    /* bytes of a frame's body beside its events, at most */
#define SUBSCRIBE_CHUNK_BYTES   14336 /* tokens and extra keys of a frame, so of a chunk */
#define SUBSCRIBE_CHUNK_HEAD    16    /* other bytes of a chunk in a frame, at most */

/* The chunks of a frame's events. */
struct event_chunks {
    uint32_t room;  /* bytes left in the body for events and chunks */
    uint32_t bytes; /* used bytes of `data` */
    struct {
        uint32_t at, tokens, keys; /* counts; tokens begin at `at`, keys follow */
    } of[SUBSCRIBE_EVENTS_MAX];
    _Alignas(8) uint8_t data[SUBSCRIBE_CHUNK_BYTES];
};

/* The position of a reader in the ring, and which changes it wants. */
struct event_reader {
    uint64_t at;     /* number of the next change to examine */
    uint64_t own;    /* its number among the tenant's own changes; 0: not known yet */
    uint64_t lost;   /* changes overwritten before they were read, not reported yet */
    uint32_t tenant; /* NONE: all tenants */
    bool tokens;     /* send the chunks too */
    bool one_ns;     /* send only changes of `ns` */
    struct namespace_id ns;
};

/* The output of a read. */
struct event_page {
    struct wire_event *v;
    uint32_t n, max;
    struct event_chunks *chunks; /* for a reader of tokens: the page ends when these are full */
};

/* Fills page->v from 0 in order and returns the count. Examines at most SUBSCRIBE_SCAN_MAX changes.
 * Lost changes precede the first one returned. */
uint32_t subscribe_read(const struct core *core, struct event_reader *r, struct event_page *page);

struct daemon;
struct client_conn;

struct subscription {
    struct event_reader reader;
    uint32_t conn;
    uint64_t request_id;
    uint64_t mark; /* the stream's queued_bytes after the last frame */
};

struct subscriptions {
    struct subscription *v; /* owned; [0, n) are in use */
    uint32_t n, cap;
    uint64_t sent, lost; /* changes, over all subscriptions since the start */
    bool more; /* a subscription is not at the end of the ring: call again without waiting */
    struct wire_event events[SUBSCRIBE_EVENTS_MAX];
    struct event_chunks chunks;
    Tern__Wire__Tokens chunk[SUBSCRIBE_EVENTS_MAX], *chunk_list[SUBSCRIBE_EVENTS_MAX];
};

enum tern_err subscribe_init(struct daemon *d);
void subscribe_finish(struct daemon *d);

void subscribe_request(struct daemon *d, struct client_conn *c, const struct frame_header *h,
                       const uint8_t *body);
/* Ends the subscriptions of a connection that has ended. */
void subscribe_forget(struct client_conn *c);
/* Sends all frames that can be sent. Costs nothing without subscriptions. */
void subscribe_pump(struct daemon *d);

#endif
