/* Closes sockets of clients, by threads: a close wakes all waiters on the other end, as many as the
 * client likes, and it releases descriptors that the client may have sent (client_fds.h), whose
 * last close may take long. A signal every millisecond interrupts a close if that is possible. Each
 * lane (a tenant, the operators) has its own thread: a close that cannot be interrupted delays only
 * closes of its tenant. Owner thread only; nothing allocates after closer_create.
 *
 * Invariant: a socket counts against its tenant's limits until it is closed, so that a slow close
 * uses up only limited places of its own tenant. */
#ifndef SEAM_CLOSER_H
#define SEAM_CLOSER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/tern_err.h"
#include "seam/io/io.h"

#define CLOSER_WORDS      16   /* sockets that get a last message before they are closed */
#define CLOSER_WORD_BYTES 1024 /* of a last message, at most */

struct closer;

struct closer_config {
    struct io *io;
    uint32_t lanes;        /* at most IO_THREADS_MAX */
    uint32_t sockets;      /* handed to the threads at a time: as many as can exist */
    uint32_t lane_sockets; /* of one lane, at a time */
};

uint64_t closer_bytes(const struct closer_config *config); /* allocated by create */
/* Returns INTERNAL and sets *ret_why if the threads cannot be started. */
enum tern_err closer_create(const struct closer_config *config, struct closer **ret,
                            const char **ret_why);
/* From here on a client's socket stays open until the process exits: then nothing lingers. Runs the
 * ring a short time for the closes in the threads, but calls no `done`. */
void closer_end(struct closer *closer);
void closer_destroy(struct closer *closer); /* ended */

/* Takes ownership of fd; the ring has no operation on it. Returns true if fd is closed: always if
 * closer is NULL or fd is no Unix socket, since it is no client's. Returns false if a thread closes
 * it: io_run then calls done(ctx); done may be NULL. */
bool closer_close(struct closer *closer, uint32_t lane, int fd, void (*done)(void *ctx), void *ctx);

/* Sends the bytes to fd right before it is closed. The caller closes it later; the send waits until
 * then because it wakes as many waiters as a close. Returns false, and sends nothing, if
 * CLOSER_WORDS sockets that are not closed yet have such bytes. */
bool closer_say(struct closer *closer, int fd, const void *bytes, size_t n);

struct closer_stats {
    uint32_t closing; /* handed to the threads and not yet closed */
    uint64_t closed;  /* by the threads */
};
void closer_stats(const struct closer *closer, struct closer_stats *ret);

#endif
