/* Resolves names without blocking the owner thread: the system's resolver blocks for as long as a
 * name service takes, and allocates. The resolver has a few data threads of its own, because a
 * worker that waits for a name service would delay checksums. Each slot belongs to one caller and
 * has one lookup at a time, so nothing grows. The owner starts and cancels lookups and receives
 * answers; none of that blocks or allocates. Called by the shell's links. */
#ifndef SEAM_RESOLVE_H
#define SEAM_RESOLVE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

#include "base/tern_err.h"

#define RESOLVE_THREADS    4u /* lookups at a time; further ones wait */
#define RESOLVE_ADDRS_MAX  4  /* of one name; further ones are dropped */
#define RESOLVE_HOST_BYTES 256
#define RESOLVE_TEXT       96

struct io;

struct resolve_answer {
    enum tern_err err; /* INVALID: no such name; TIMED_OUT: no service answers; INTERNAL: other */
    char text[RESOLVE_TEXT]; /* the system's error text; "" with OK */
    uint32_t n;
    struct sockaddr_storage addr[RESOLVE_ADDRS_MAX];
    socklen_t len[RESOLVE_ADDRS_MAX];
};

/* Asks the system's resolver. Fills *ret, which is zeroed. Several threads may call it at a time.
 */
void resolve_system(const char *host, uint16_t port, struct resolve_answer *ret);
/* Converts a numeric address; never blocks. Returns false if `host` is a name. */
bool resolve_number(const char *host, uint16_t port, struct resolve_answer *ret);

struct resolver;

struct resolver_config {
    struct io *io; /* the owner's */
    uint32_t slots;
    void (*lookup)(const char *host, uint16_t port,
                   struct resolve_answer *ret); /* resolve_system */
    /* On the owner thread, from io_run. The slot is free again. */
    void (*answered)(void *ctx, uint32_t slot, const struct resolve_answer *answer);
    void *ctx;
};

uint64_t resolver_bytes(uint32_t slots); /* of its tables */
enum tern_err resolver_create(const struct resolver_config *config, struct resolver **ret);
/* Does not wait for a name service: a thread that waits for one stays, with the memory that it
 * uses. */
void resolver_destroy(struct resolver *r);

/* Returns false if a cancelled lookup of that slot has not returned yet. The host is copied. */
bool resolver_ask(struct resolver *r, uint32_t slot, const char *host, uint16_t port);
/* Drops the answer: `answered` is not called. */
void resolver_cancel(struct resolver *r, uint32_t slot);

#endif
