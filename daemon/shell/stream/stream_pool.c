/* The memory of streams, allocated once and shared: the buffers of arriving bodies, of which a
 * share uses only its own, and those of the send queues. Each stream can always have one send
 * buffer. Each share (a tenant, the operators, the peers) has reserved send buffers, and takes no
 * more of the shared remainder than it leaves to the others. In a full share the stream with the
 * most send buffers is closed and loses those that are not being sent. See stream.h. Invariant: no
 * stream ends for lack of shared buffers while another of its share has more and some of these are
 * not being sent. No share ends a stream of another. */
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
    return sizeof(struct stream_pool) + send_buffers(c) * (uint64_t)sizeof(struct send_buffer) +
           bodies(c) * (sizeof(uint8_t *) + c->big_bytes) +
           c->shares * sizeof(struct stream_inputs);
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
    pool->send_buffers = undumped_take(n * sizeof(*pool->send_buffers), false);
    pool->big_free = calloc(bodies(config), sizeof(uint8_t *));
    pool->inputs = calloc(config->shares, sizeof(*pool->inputs));
    pool->big = mmap(NULL, pool->big_size, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (pool->big == MAP_FAILED)
        pool->big = NULL;
    else
        undumped(pool->big, pool->big_size);
    if (!pool->send_buffers || !pool->big_free || !pool->big || !pool->inputs) {
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
    free(pool->big_free);
    undumped_put(pool->send_buffers, send_buffers(&pool->config) * sizeof(*pool->send_buffers));
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

/* ---- send buffers ---- */

static uint32_t above(uint32_t a, uint32_t b)
{
    return a > b ? a - b : 0;
}

uint32_t send_buffers_left(const struct stream *s)
{
    const struct stream_pool *pool = s->pool;
    uint32_t reserved = pool->config.send_buffers_reserved[s->share],
             used = pool->inputs[s->share].used;
    uint32_t room = above(pool->common_free, above(used, reserved));

    return above(reserved, used) + (room + 1) / 2;
}

static void share_take(struct stream *s)
{
    struct stream_pool *pool = s->pool;

    if (pool->inputs[s->share].used++ >= pool->config.send_buffers_reserved[s->share])
        pool->common_free--;
}

static void share_put(struct stream *s)
{
    struct stream_pool *pool = s->pool;

    check(pool->inputs[s->share].used > 0);
    if (--pool->inputs[s->share].used >= pool->config.send_buffers_reserved[s->share])
        pool->common_free++;
}

static void give_back(struct stream *s, struct send_buffer *c)
{
    c->next = s->pool->send_buffers_free;
    s->pool->send_buffers_free = c;
    s->send_buffers--;
    if (s->send_buffers > 0)
        share_put(s);
}

static uint32_t unsent(const struct stream *s)
{
    return s->send_buffers - (s->send_posted ? s->send_buffers_posted : 0);
}

static struct stream *fattest(const struct stream *than)
{
    struct stream *found = NULL, *s;
    uint32_t most = than->send_buffers;

    LIST_FOREACH (s, &than->pool->open, open) {
        if (s->share != than->share || s->send_buffers <= most || unsent(s) == 0)
            continue;
        most = s->send_buffers;
        found = s;
    }
    return found;
}

void send_buffers_drop(struct stream *s)
{
    struct send_buffer *c = s->first, *rest;
    uint32_t keep = s->send_buffers - unsent(s);

    for (uint32_t i = 1; i < keep; i++)
        c = c->next;
    rest = keep ? c->next : s->first;
    s->last = keep ? c : NULL;
    if (keep)
        c->next = NULL;
    else
        s->first = NULL;
    while (rest) {
        c = rest;
        rest = c->next;
        give_back(s, c);
    }
}

/* Leaves the close to the next flush, since a step for another connection may be in progress. */
static void doom(struct stream *s)
{
    stream_state_move(&s->state, STREAM_DOOMED);
    s->close_reason = "the send buffers of its share are used up, and it has more unread than the "
                      "others: raise limits.send_buffers, or read faster";
    s->pool->doomed = true;
    s->pool->ndoomed++;
    send_buffers_drop(s);
}

static bool may_take(struct stream *s)
{
    struct stream *other;

    if (s->send_buffers == 0)
        return true;
    while (send_buffers_left(s) == 0 && (other = fattest(s)) != NULL)
        doom(other);
    return send_buffers_left(s) > 0;
}

struct send_buffer *send_buffer_take(struct stream *s)
{
    struct stream_pool *pool = s->pool;
    struct send_buffer *c;

    if (s->send_buffers >= s->send_buffers_max || !may_take(s))
        return NULL;
    c = pool->send_buffers_free;
    check(c);
    if (s->send_buffers > 0)
        share_take(s);
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
    struct send_buffer *c = s->first;

    s->first = c->next;
    if (!s->first)
        s->last = NULL;
    if (s->send_buffers_posted > 0)
        s->send_buffers_posted--;
    give_back(s, c);
}

void stream_share_view(const struct stream_pool *pool, uint32_t share, struct stream_share *ret)
{
    *ret = (struct stream_share){.used = pool->inputs[share].used,
                                 .reserved = pool->config.send_buffers_reserved[share],
                                 .common_used = pool->config.send_buffers - pool->common_free,
                                 .common = pool->config.send_buffers,
                                 .doomed = pool->ndoomed};
}
