/* The door: accepted connections whose first message is not complete. They are not identified yet,
 * so each has a descriptor and a place here, for a short time, but uses nothing that identified
 * clients share. Each origin (an IPv4 address, a /64 of IPv6, a process on a Unix socket) has a
 * share of the places. A newcomer always gets one: if its origin has its full share, the oldest of
 * that origin is sent away, and if all places are taken, the oldest of the origin that has most.
 * Connections whose first message is complete are sent away last. A connection that hangs up loses
 * its place. Nothing is read here: bytes are only peeked at. A connection that sends descriptors is
 * sent away. Since a closing thread (closer.h) may need time, a door has some extra places, and its
 * listener accepts nothing while no place is free. Where an entry is costly (a TLS handshake), an
 * origin enters at a limited rate, and its further connections wait in its share of the places.
 * Owner thread only; nothing allocates after door_create. */
#ifndef SEAM_DOOR_H
#define SEAM_DOOR_H

#include <stdbool.h>
#include <stdint.h>

#include "base/tern_err.h"
#include "seam/io/closer.h"

#define DOOR_PLACES     64          /* of a door, by default */
#define DOOR_SHARES     4           /* an origin's share is one of this many parts, by default */
#define DOOR_WAIT_NS    3000000000u /* for the first message, by default */
#define DOOR_LOOK_BYTES 8192        /* of the first message, at most, for `look` */
#define DOOR_LEAVING    16          /* extra places, for connections that are being closed */
#define DOOR_BURST_S    4           /* seconds of its rate that a quiet origin may use at once */
#define DOOR_ORIGINS    8           /* the rate of all origins together is that of this many */
#define DOOR_PACED      64          /* origins whose rate is known; the quietest is forgotten */

enum door_verdict {
    DOOR_WAIT,  /* more must arrive; from `enter`: there is no room, until door_again */
    DOOR_ENTER, /* the first message is complete, or the new owner reports its fault */
    DOOR_REFUSE /* the door closes the connection */
};

struct door;

struct door_config {
    struct io *io;
    uint32_t places, share; /* 0: as above */
    uint32_t per_s;         /* connections of an origin that enter in a second; 0: any number */
    uint64_t wait_ns;       /* 0: as above */
    uint32_t look_bytes;    /* at most DOOR_LOOK_BYTES */
    enum door_verdict (*look)(void *ctx, const uint8_t *bytes, uint32_t n);
    enum door_verdict (*enter)(void *ctx, int fd); /* DOOR_ENTER: owns fd now */
    void (*left)(void *ctx);                       /* a place is free again; may be NULL */
    void *ctx;
    struct closer *closer; /* borrowed; NULL: sockets are not of clients */
    uint32_t lane;         /* of the closer */
};

struct door_stats {
    uint32_t places, share, waiting;
    uint64_t displaced, overdue; /* sent away for a newcomer; at the end of their time */
    uint64_t over_rate;          /* sent away as above, but while they only waited for the rate */
    uint64_t brought;            /* sent away because they sent descriptors */
    uint64_t brought_by;         /* the origin of the last of those, a process on a Unix socket */
};

uint64_t door_bytes(uint32_t places); /* size of a door; 0: DOOR_PLACES */
enum tern_err door_create(const struct door_config *config, struct door **ret);
void door_destroy(struct door *door); /* before io: runs the ring until it is done with the door */

bool door_has_place(const struct door *door); /* for one more, even if another must leave */
void door_arrived(struct door *door, int fd, uint64_t now_ns); /* takes ownership of fd */
void door_turn_away(struct door *door, int fd); /* takes ownership of fd, and closes it */
void door_again(struct door *door);             /* there may be room for one */
void door_tick(struct door *door, uint64_t now_ns);
void door_stats(const struct door *door, struct door_stats *ret);

#endif
