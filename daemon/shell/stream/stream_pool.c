/* The memory of streams, allocated once and shared, and the buffers of arriving bodies. See
 * stream.h. Invariant: a share uses no body buffers but its own. */
#include <stdlib.h>
#include <sys/mman.h>

#include "base/check.h"
#include "base/undumped.h"
#include "shell/stream/stream_internal.h"

static size_t bodies(const struct stream_config *c)
{
    size_t n = 0;

    for (uint32_t i = 0; i < c->shares; i++)
        n += c->bodies[i];
    return n;
}

static uint32_t send_buffers(const struct stream_config *c)
{
    uint32_t n = c->streams + c->send_buffers;

    for (uint32_t i = 0; i < c->shares; i++)
        n += c->send_buffers_reserved[i];
    return n;
}

uint64_t stream_pool_bytes(const struct stream_config *c)
{
    return sizeof(struct stream_pool) + c->streams * sizeof(struct stream *) +
           send_buffers(c) * (uint64_t)sizeof(struct send_buffer) +
           bodies(c) * (sizeof(uint8_t *) + c->big_bytes) +
           c->shares * (sizeof(uint32_t) + sizeof(struct stream_inputs));
}

enum tern_err stream_pool_create(const struct stream_config *config, struct stream_pool **ret)
{
    struct stream_pool *pool = calloc(1, sizeof(*pool));
    uint32_t n = send_buffers(config);
    size_t body = 0;

    if (!pool)
        return TERN_INTERNAL;
    check(config->shares <= STREAM_SHARES_MAX);
    pool->config = *config;
    pool->big_size = bodies(config) * config->big_bytes;
    pool->dirty = calloc(config->streams, sizeof(struct stream *));
    pool->send_buffers = undumped_take(n * sizeof(*pool->send_buffers), false);
    pool->big_free = calloc(bodies(config), sizeof(uint8_t *));
    pool->used = calloc(config->shares, sizeof(*pool->used));
    pool->inputs = calloc(config->shares, sizeof(*pool->inputs));
    pool->big = mmap(NULL, pool->big_size, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (pool->big == MAP_FAILED)
        pool->big = NULL;
    else
        undumped(pool->big, pool->big_size);
    if (!pool->dirty || !pool->send_buffers || !pool->big_free || !pool->big || !pool->used ||
        !pool->inputs) {
        stream_pool_destroy(pool);
        return TERN_INTERNAL;
    }
    for (uint32_t i = n; i-- > 0;) {
        pool->send_buffers[i].next = pool->send_buffers_free;
        pool->send_buffers_free = &pool->send_buffers[i];
    }
    pool->common_free = config->send_buffers;
    for (uint32_t i = 0; i < config->shares; i++) {
        pool->inputs[i].bodies = pool->big_free + body;
        while (pool->inputs[i].nbodies < config->bodies[i])
            pool->inputs[i].bodies[pool->inputs[i].nbodies++] =
                pool->big + body++ * config->big_bytes;
    }
    *ret = pool;
    return TERN_OK;
}

void stream_pool_destroy(struct stream_pool *pool)
{
    if (!pool)
        return;
    if (pool->big)
        munmap(pool->big, pool->big_size);
    free(pool->inputs);
    free(pool->used);
    free(pool->big_free);
    undumped_put(pool->send_buffers, send_buffers(&pool->config) * sizeof(*pool->send_buffers));
    free(pool->dirty);
    free(pool);
}

void stream_pool_mute(struct stream_pool *pool)
{
    pool->mute = true;
}

void stream_body_put(struct stream *s)
{
    struct stream_inputs *in = &s->pool->inputs[s->share];
    uint8_t *body = s->splitter.body;

    if (body && body != s->small) {
        check(in->nbodies < s->pool->config.bodies[s->share]);
        in->bodies[in->nbodies++] = body;
    }
    s->splitter.body = NULL;
    s->splitter.have = 0;
}
