/* The door: connections that were accepted and whose first message is not whole yet. Nobody knows
 * who they are, so they hold a descriptor and a place here, and nothing of what those share who
 * have said it. A place is kept for a short time. Each origin (an IPv4 address, a /64 of IPv6, a
 * process on a Unix socket) has a share of the places. A newcomer always gets one: where its origin
 * has its share the oldest of that origin goes, and where all places are taken the oldest of the
 * origin that has most; those whose first message is there go last. Who hangs up before has a place
 * no more. Nothing is read here: bytes are only looked at. Who sends descriptors beside them is
 * sent away. A closing thread may need time for those who are (closer.h), so a door has some places
 * more, and its listener accepts nobody while no place is free. Where whoever enters
 * costs much (a TLS handshake) an origin enters at a rate, and what it has beyond that waits in its
 * share of the places. Owner thread only; nothing allocates after door_create. */
#ifndef SEAM_DOOR_H
#define SEAM_DOOR_H

#include <stdbool.h>
#include <stdint.h>

#include "base/tern_err.h"
#include "seam/io/closer.h"

#define DOOR_PLACES     64          /* of a door, unless it is said otherwise */
#define DOOR_SHARES     4           /* an origin may have one of so many parts, likewise */
#define DOOR_WAIT_NS    3000000000u /* for the first message, likewise */
#define DOOR_LOOK_BYTES 8192        /* of the first message that can be looked at */
#define DOOR_LEAVING    16          /* places more, for those who are being closed */
#define DOOR_BURST_S    4           /* an origin that was quiet may enter so often at once */
#define DOOR_ORIGINS    8           /* all of them enter at most at the rate of so many */
#define DOOR_PACED      64          /* origins whose rate is known; the quietest is forgotten */

enum door_verdict {
    DOOR_WAIT,  /* more has to come; of `enter`: there is no room, and door_again asks again */
    DOOR_ENTER, /* the first message is whole, or whoever takes it will say what is wrong */
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
    enum door_verdict (*enter)(void *ctx, int fd); /* DOOR_ENTER: fd is taken over */
    void (*left)(void *ctx);                       /* a place is free again; NULL: nobody asks */
    void *ctx;
    struct closer *closer; /* borrowed; NULL: no client's sockets */
    uint32_t lane;         /* of the closer */
};

struct door_stats {
    uint32_t places, share, waiting;
    uint64_t displaced, overdue; /* sent away for a newcomer; at the end of their time */
    uint64_t over_rate;          /* either, but they waited for the rate of their origin alone */
    uint64_t brought;            /* sent away as they had sent descriptors */
    uint64_t brought_by;         /* the last of those, a process on a Unix socket */
};

uint64_t door_bytes(uint32_t places); /* what a door takes; 0: DOOR_PLACES */
enum tern_err door_create(const struct door_config *config, struct door **ret);
void door_destroy(struct door *door); /* before io: runs the ring until it holds nothing of it */

bool door_has_place(const struct door *door); /* for one more, whoever goes for it */
void door_arrived(struct door *door, int fd, uint64_t now_ns); /* takes fd over */
void door_turn_away(struct door *door, int fd);                /* takes fd over, and closes it */
void door_again(struct door *door);                            /* there is room for one, perhaps */
void door_tick(struct door *door, uint64_t now_ns);
void door_stats(const struct door *door, struct door_stats *ret);

#endif
