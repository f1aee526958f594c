/* The memory of OpenSSL: one mapping made at start, cut into blocks of a few sizes; a freed block
 * returns to the free list of its size. OpenSSL allocates whenever a peer connects; with the arena
 * the owner thread requests no memory from the system after "ready", and the sum is bounded. An
 * allocation without a free block fails, and so does its handshake. There is one arena per process,
 * because OpenSSL's hooks have no context; tls.c makes it. */
#ifndef SHELL_TLS_ARENA_H
#define SHELL_TLS_ARENA_H

#include <stddef.h>
#include <stdint.h>

#include "base/tern_err.h"

#define TLS_ARENA_BASE_BYTES    (8u << 20)   /* for contexts and handshakes in progress */
#define TLS_ARENA_SESSION_BYTES (160u << 10) /* for one link: buffers, certificates, keys */
#define TLS_ARENA_BLOCK_MAX     (128u << 10) /* larger allocations fail */

struct tls_arena_stats {
    uint64_t cap, cut;       /* bytes of the mapping; bytes cut into blocks */
    uint64_t used, used_max; /* bytes of allocated blocks */
    uint64_t refused;        /* failed allocations */
};

/* INTERNAL: no memory, or a smaller arena exists. A second call is harmless. */
enum tern_err tls_arena_create(size_t cap);

/* OpenSSL's hooks: like malloc, realloc and free, on any thread. Blocks are aligned to 16. */
void *tls_arena_take(size_t n, const char *file, int line);
void *tls_arena_resize(void *p, size_t n, const char *file, int line);
void tls_arena_put(void *p, const char *file, int line);

void tls_arena_stats(struct tls_arena_stats *ret);

/* Fault injection: the n-th allocation from now on fails; 0: none fails. */
void tls_arena_fail(uint64_t n);

#endif
