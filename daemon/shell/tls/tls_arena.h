/* The memory of OpenSSL: one mapping made at start, cut into blocks of a few sizes that go back to
 * a free list of their size. OpenSSL allocates whenever a peer connects; the arena keeps the owner
 * thread from asking the system for memory after "ready", and bounds the sum. A request that finds
 * no block is refused, and the handshake that made it fails. There is one arena a process, because
 * OpenSSL's hooks have no context; tls.c makes it. */
#ifndef SHELL_TLS_ARENA_H
#define SHELL_TLS_ARENA_H

#include <stddef.h>
#include <stdint.h>

#include "base/tern_err.h"

#define TLS_ARENA_BASE_BYTES    (8u << 20)   /* contexts, and the handshakes in flight */
#define TLS_ARENA_SESSION_BYTES (160u << 10) /* of one link: buffers, certificates, keys */
#define TLS_ARENA_BLOCK_MAX     (128u << 10) /* no larger request is served */

struct tls_arena_stats {
    uint64_t cap, cut;       /* bytes of the mapping, and of those that became blocks */
    uint64_t used, used_max; /* bytes in blocks that are out */
    uint64_t refused;        /* requests that found nothing */
};

/* INTERNAL: no memory, or another arena is there and smaller. A second call is harmless. */
enum tern_err tls_arena_create(size_t cap);

/* These behave like malloc, realloc and free, on any thread. Blocks are aligned to 16. */
void *tls_arena_take(size_t n);
void *tls_arena_resize(void *p, size_t n);
void tls_arena_put(void *p);

void tls_arena_stats(struct tls_arena_stats *ret);

/* Fault injection: the n-th request from now on finds nothing; 0: none does. */
void tls_arena_fail(uint64_t n);

#endif
