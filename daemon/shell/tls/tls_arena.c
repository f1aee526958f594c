/* Blocks of a few sizes from one mapping. See tls_arena.h. Invariant: a block is in one free list
 * or allocated; its head names its list and marks it as ours. Sizes are a power of two or half as
 * much again, so a quarter is lost on average. */
#include "shell/tls/tls_arena.h"

#include <assert.h>
#include <pthread.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>

#include "base/check.h"
#include "base/undumped.h"

#define CLASSES 25 /* of 32, 48, 64, 96, ... TLS_ARENA_BLOCK_MAX bytes, heads included */
/* A sanitizer build detects accesses beyond a block's end or after it was freed. */
#ifdef TERN_ASAN
#include <sanitizer/asan_interface.h>
#define HIDE(p, n) ASAN_POISON_MEMORY_REGION(p, n)
#define SHOW(p, n) ASAN_UNPOISON_MEMORY_REGION(p, n)
#else
#define HIDE(p, n) ((void)(p), (void)(n))
#define SHOW(p, n) ((void)(p), (void)(n))
#endif

#define BLOCK_USED 0x75736564u
#define BLOCK_FREE 0x66726565u

struct block {
    uint32_t mark, class; /* mark: BLOCK_USED or BLOCK_FREE, so that a stray pointer is found */
    union {
        size_t size; /* requested size, while allocated */
        struct block *next;
    };
};

static_assert(sizeof(struct block) == 16, "what follows a head is aligned to 16");

/* OpenSSL's hooks have no context, so there is one. */
static struct {
    pthread_mutex_t lock;
    uint8_t *base;
    struct block *free[CLASSES];
    struct tls_arena_stats stats;
    uint64_t fail_in;
} arena = {.lock = PTHREAD_MUTEX_INITIALIZER};

static size_t class_bytes(uint32_t class)
{
    return (class % 2 ? (size_t)48 : (size_t)32) << (class / 2);
}

static_assert((size_t)32 << (CLASSES / 2) == TLS_ARENA_BLOCK_MAX, "the last class is the largest");

enum tern_err tls_arena_create(size_t cap)
{
    void *p;

    if (arena.base)
        return cap <= arena.stats.cap ? TERN_OK : TERN_INTERNAL;
    p = mmap(NULL, cap, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED)
        return TERN_INTERNAL;
    undumped(p, cap); /* contains private keys */
    arena.base = p;
    arena.stats.cap = cap;
    return TERN_OK;
}

static struct block *block_of(void *p)
{
    struct block *b = (struct block *)p - 1;

    check(b->mark == BLOCK_USED && b->class < CLASSES);
    return b;
}

static struct block *cut(uint32_t class)
{
    size_t n = class_bytes(class);
    struct block *b;

    if (!arena.base || n > arena.stats.cap - arena.stats.cut)
        return NULL;
    b = (struct block *)(void *)(arena.base + arena.stats.cut);
    arena.stats.cut += n;
    HIDE(b + 1, n - sizeof(*b));
    b->class = class;
    return b;
}

/* Finds a block of that size or, once the mapping is used up, a larger free one. */
static struct block *find(uint32_t class)
{
    struct block *b = arena.free[class];

    if (!b)
        b = cut(class);
    for (uint32_t c = class; !b && c < CLASSES; c++)
        b = arena.free[c];
    if (b && arena.free[b->class] == b)
        arena.free[b->class] = b->next;
    return b;
}

static bool fault_is_due(void)
{
    return arena.fail_in && --arena.fail_in == 0;
}

void *tls_arena_take(size_t n, const char *file, int line)
{
    struct block *b = NULL;
    uint32_t class = 0;

    (void)file, (void)line;
    if (n == 0)
        return NULL;
    pthread_mutex_lock(&arena.lock);
    if (n <= TLS_ARENA_BLOCK_MAX - sizeof(struct block) && !fault_is_due()) {
        while (class_bytes(class) < n + sizeof(struct block))
            class ++;
        b = find(class);
    }
    if (b) {
        b->mark = BLOCK_USED;
        b->size = n;
        SHOW(b + 1, n);
        arena.stats.used += class_bytes(b->class);
        if (arena.stats.used > arena.stats.used_max)
            arena.stats.used_max = arena.stats.used;
    } else {
        arena.stats.refused++;
    }
    pthread_mutex_unlock(&arena.lock);
    return b ? b + 1 : NULL;
}

void tls_arena_put(void *p, const char *file, int line)
{
    struct block *b;

    (void)file, (void)line;
    if (!p)
        return;
    pthread_mutex_lock(&arena.lock);
    b = block_of(p);
    explicit_bzero(p, b->size); /* may contain a key */
    arena.stats.used -= class_bytes(b->class);
    b->mark = BLOCK_FREE;
    b->next = arena.free[b->class];
    arena.free[b->class] = b;
    HIDE(p, class_bytes(b->class) - sizeof(*b));
    pthread_mutex_unlock(&arena.lock);
}

void *tls_arena_resize(void *p, size_t n, const char *file, int line)
{
    struct block *b;
    void *to;

    if (!p)
        return tls_arena_take(n, file, line);
    if (n == 0) {
        tls_arena_put(p, file, line);
        return NULL;
    }
    b = block_of(p);
    if (n <= class_bytes(b->class) - sizeof(*b)) {
        if (n < b->size)
            explicit_bzero((uint8_t *)p + n, b->size - n);
        HIDE(p, class_bytes(b->class) - sizeof(*b));
        SHOW(p, n);
        b->size = n;
        return p;
    }
    to = tls_arena_take(n, file, line);
    if (!to)
        return NULL;
    memcpy(to, p, b->size);
    tls_arena_put(p, file, line);
    return to;
}

void tls_arena_stats(struct tls_arena_stats *ret)
{
    pthread_mutex_lock(&arena.lock);
    *ret = arena.stats;
    pthread_mutex_unlock(&arena.lock);
}

void tls_arena_fail(uint64_t n)
{
    pthread_mutex_lock(&arena.lock);
    arena.fail_in = n;
    pthread_mutex_unlock(&arena.lock);
}
