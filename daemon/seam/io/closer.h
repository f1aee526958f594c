/* Closes sockets of clients, by threads: a close wakes everybody who waits on the other end, as
 * many as the client likes, and it releases descriptors that may have come (client_fds.h), whose
 * last close may last. A signal every millisecond cuts short what can be interrupted. Each lane (a
 * tenant, the operators) has a thread of its own: what cannot be interrupted holds up the closes of
 * its tenant alone. Owner thread only; nothing allocates after closer_start.
 *
 * What must stay true: whoever counts a socket counts it until it is closed, so that a close that
 * lasts uses up its own tenant's limits and nothing without a limit. */
#ifndef SEAM_CLOSER_H
#define SEAM_CLOSER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/tern_err.h"
#include "seam/io/io.h"

#define CLOSER_WORDS      16   /* sockets that are told something before they are closed */
#define CLOSER_WORD_BYTES 1024 /* that one is told */

struct closer;

struct closer_config {
    struct io *io;
    uint32_t lanes;        /* at most IO_THREADS_MAX */
    uint32_t sockets;      /* that can be with the threads at a time: as many as there can be */
    uint32_t lane_sockets; /* of one lane */
};

uint64_t closer_bytes(const struct closer_config *config); /* what it takes once it is started */
enum tern_err closer_create(const struct closer_config *config, struct closer **ret);
/* Before the first close. INTERNAL with *ret_why set if the threads cannot be started. */
enum tern_err closer_start(struct closer *closer, const char **ret_why);
/* From here on a client's socket stays open until the process exits: then nothing lingers. Runs the
 * ring a short time for those that threads have, but calls no `done`. */
void closer_end(struct closer *closer);
void closer_destroy(struct closer *closer); /* ended, or never started */

/* Takes fd over. closer NULL, or no Unix socket: it is no client's. True: it is closed. False: a
 * thread closes it, and io_run calls done(ctx) when it has; done NULL: nobody asks. The ring is
 * done with fd. */
bool closer_close(struct closer *closer, uint32_t lane, int fd, void (*done)(void *ctx), void *ctx);

/* The bytes that fd is sent right before it is closed, which the caller sees to: a send wakes as
 * many as a close does. False: CLOSER_WORDS sockets that are not closed yet have some; it is not
 * told. */
bool closer_say(struct closer *closer, int fd, const void *bytes, size_t n);

struct closer_stats {
    uint32_t closing; /* with the threads now */
    uint64_t closed;  /* by them */
};
void closer_stats(const struct closer *closer, struct closer_stats *ret);

#endif
