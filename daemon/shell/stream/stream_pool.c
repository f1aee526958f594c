/* The buffers of streams: made once, shared, and given back. See stream.h. What must stay true: a
 * stream can always queue one send buffer; a share holds no more body buffers than its own. */
#include <stdlib.h>
#include <sys/mman.h>

#include "base/check.h"
#include "shell/stream/stream_internal.h"

uint64_t stream_pool_bytes(const struct stream_config *c)
{
    uint64_t big = (uint64_t)c->shares * STREAM_BIG_SHARE;

    return sizeof(struct stream_pool) + c->streams * sizeof(struct stream *) +
           ((uint64_t)c->streams + c->send_buffers_extra) * sizeof(struct send_buffer) +
           big * (sizeof(uint8_t *) + c->big_bytes) + c->shares * sizeof(uint32_t);
}

enum tern_err stream_pool_create(const struct stream_config *config, struct stream_pool **ret)
{
    struct stream_pool *pool = calloc(1, sizeof(*pool));
    uint32_t send_buffers = config->streams + config->send_buffers_extra;

    if (!pool)
        return TERN_INTERNAL;
    pool->config = *config;
    pool->big_size = (size_t)config->shares * STREAM_BIG_SHARE * config->big_bytes;
    pool->dirty = calloc(config->streams, sizeof(struct stream *));
    pool->send_buffers = calloc(send_buffers, sizeof(*pool->send_buffers));
    pool->big_free = calloc((size_t)config->shares * STREAM_BIG_SHARE, sizeof(uint8_t *));
    pool->nbig_free = calloc(config->shares, sizeof(*pool->nbig_free));
    pool->big = mmap(NULL, pool->big_size, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (pool->big == MAP_FAILED)
        pool->big = NULL;
    if (!pool->dirty || !pool->send_buffers || !pool->big_free || !pool->nbig_free || !pool->big) {
        stream_pool_destroy(pool);
        return TERN_INTERNAL;
    }
    for (uint32_t i = send_buffers; i-- > 0;) {
        pool->send_buffers[i].next = pool->send_buffers_free;
        pool->send_buffers_free = &pool->send_buffers[i];
    }
    pool->send_buffers_shared = config->send_buffers_extra;
    for (uint32_t i = 0; i < config->shares * STREAM_BIG_SHARE; i++)
        pool->big_free[i] = pool->big + (size_t)i * config->big_bytes;
    for (uint32_t i = 0; i < config->shares; i++)
        pool->nbig_free[i] = STREAM_BIG_SHARE;
    *ret = pool;
    return TERN_OK;
}

void stream_pool_destroy(struct stream_pool *pool)
{
    if (!pool)
        return;
    if (pool->big)
        munmap(pool->big, pool->big_size);
    free(pool->nbig_free);
    free(pool->big_free);
    free(pool->send_buffers);
    free(pool->dirty);
    free(pool);
}

/* ---- buffers ---- */

uint8_t *stream_body_take(struct stream *s)
{
    struct stream_pool *pool = s->pool;
    uint32_t *n = &pool->nbig_free[s->share];

    return *n ? pool->big_free[s->share * STREAM_BIG_SHARE + --*n] : NULL;
}

void stream_body_put(struct stream *s)
{
    struct stream_pool *pool = s->pool;
    uint8_t *body = s->splitter.body;

    if (body && body != s->small) {
        uint32_t *n = &pool->nbig_free[s->share];

        check(*n < STREAM_BIG_SHARE);
        pool->big_free[s->share * STREAM_BIG_SHARE + (*n)++] = body;
    }
    s->splitter.body = NULL;
    s->splitter.have = 0;
}

/* A stream's first buffer is always there: the pool holds one for each. */
struct send_buffer *send_buffer_take(struct stream *s)
{
    struct stream_pool *pool = s->pool;
    struct send_buffer *c = pool->send_buffers_free;

    if (s->send_buffers >= s->send_buffers_max ||
        (s->send_buffers > 0 && pool->send_buffers_shared == 0))
        return NULL;
    check(c);
    if (s->send_buffers > 0)
        pool->send_buffers_shared--;
    pool->send_buffers_free = c->next;
    c->next = NULL;
    c->used = c->sent = c->nfds = 0;
    if (s->last)
        s->last->next = c;
    else
        s->first = c;
    s->last = c;
    s->send_buffers++;
    return c;
}

void send_buffer_put_first(struct stream *s)
{
    struct stream_pool *pool = s->pool;
    struct send_buffer *c = s->first;

    s->first = c->next;
    if (!s->first)
        s->last = NULL;
    c->next = pool->send_buffers_free;
    pool->send_buffers_free = c;
    s->send_buffers--;
    if (s->send_buffers > 0)
        pool->send_buffers_shared++;
}
