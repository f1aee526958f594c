/* See transport_memory.h. Each peer link moves one piece of a batch at a time, some bytes with each
 * xfer_poll, so that stops find it in the middle. A peer is known by its incarnation and admits
 * callers with a token that it gave out. */
#include "unit/seam/transport_memory.h"

#include <stdlib.h>

#include "base/check.h"
#include "seam/xfer/flow/transfers.h"

#define SIDES_MAX  4
#define STEP_BYTES 16384u

enum job_state { JOB_NONE, JOB_COPIES, JOB_DROPPED /* its pull ended */, JOB_UNSERVED };

struct job {
    enum job_state state;
    struct batch_part part;
    uint32_t pull, record[XFER_PAGES_MAX]; /* record: at the source */
    struct serve_id serve;
    struct transport *peer;
    struct page_cursor cursor;
    uint64_t given[XFER_MASK_WORDS];
    struct arrival arrival;
};

static struct transport *sides[SIDES_MAX];

static struct job *job_of(const struct transport *t, uint32_t link)
{
    return (struct job *)t->own + link;
}

static struct transport *peer_of(const struct transport *t, uint32_t link, uint32_t *ret_link)
{
    const struct xfer_link *l = &t->xfer->link[link];

    for (uint32_t i = 0; i < SIDES_MAX; i++) {
        if (!sides[i] || sides[i]->xfer->config.incarnation != l->peer_incarnation)
            continue;
        *ret_link = xfer_link_admitted(sides[i]->xfer, l->token);
        return *ret_link == NONE ? NULL : sides[i];
    }
    return NULL;
}

/* ------------------------------------------------------------------ a piece */

static void job_end(struct transport *t, struct job *job)
{
    job->state = JOB_NONE;
    if (job->peer)
        serve_release(job->peer->xfer, job->serve.slot);
    pull_release(t->xfer, job->pull);
}

static bool may_leave(const struct transport *t, const struct job *job, uint32_t i,
                      uint32_t *ret_record)
{
    const struct batch *b = &t->xfer->batch[job->part.batch];
    struct xfer_entry e = {
        .group = b->page[i].group, .index = b->ref[i].index, .gen = b->ref[i].gen, .n = 1};

    return serve_page_leaves(job->peer->xfer, job->serve, &e, ret_record);
}

static void ask_source(struct transport *t, struct job *job)
{
    const struct batch *b = &t->xfer->batch[job->part.batch];

    for (uint32_t i = 0; i < job->part.n; i++)
        if (may_leave(t, job, job->part.first + i, &job->record[i]) &&
            mem_sums_known(job->peer->xfer->config.mem, job->record[i],
                           batch_page_sums(t->xfer, b, job->part.first + i)))
            xfer_set_bit(job->given, i);
        else
            batch_gone(t->xfer, job->part.batch);
}

static void pump(struct transport *t, uint32_t link)
{
    struct lane *lane = transport_lane(t, link);
    struct job *job = job_of(t, link);
    uint32_t peer_link, number = batch_in_turn(t, link, NULL);
    struct transport *peer = peer_of(t, link, &peer_link);

    if (job->state != JOB_NONE || number == NONE)
        return;
    if (!peer || !serve_allows(peer->xfer, t->xfer->batch[number].serve, peer_link)) {
        queue_break(t->xfer, &lane->queue, TERN_PEER_LOST);
        return;
    }
    *job = (struct job){.state = JOB_COPIES,
                        .part = batch_cut(t->xfer, number, XFER_PIECE_BYTES, XFER_PIECE_SUMS),
                        .pull = t->xfer->batch[number].pull,
                        .serve = t->xfer->batch[number].serve,
                        .peer = peer};
    pull_hold(t->xfer, job->pull);
    serve_hold(peer->xfer, job->serve.slot);
    batch_asked(t->xfer, number, job->part.n);
    ask_source(t, job);
}

/* Copies some bytes of the page at the cursor. */
static uint64_t copy_some(struct transport *t, struct job *job, uint64_t most)
{
    struct mem *mem = t->xfer->config.mem, *from = job->peer->xfer->config.mem;
    const struct batch *b = &t->xfer->batch[job->part.batch];
    struct page_cursor *c = &job->cursor;
    uint32_t i = job->part.first + c->page, group = b->page[i].group;
    uint64_t left = mem_group(mem, b->pool, group)->page_bytes - c->at,
             n = left < most ? left : most;
    uint8_t *to = mem_page(mem, b->pool, c->region, group, b->page[i].index);
    uint8_t *at = mem_page(from, job->peer->xfer->serve[job->serve.slot].pool, c->region, group,
                           b->ref[i].index);

    if (c->at == 0 && c->region == 0)
        arrival_begin(&job->arrival, t->xfer, job->part.batch, i,
                      mem_sums(from, job->record[c->page]));
    memcpy(to + c->at, at + c->at, n);
    c->at += n;
    job->peer->xfer->stats.payload_bytes_out += n;
    arrival_reached(&job->arrival, c->region, c->at);
    if (n < left)
        return n;
    c->at = 0;
    if (++c->region == mem_place(mem, b->pool)->transfer_regions) {
        *c = (struct page_cursor){.page = c->page + 1};
        arrival_end(t->xfer, job->part.batch, i, mem_verify_landed(&job->arrival.verify));
    }
    return n;
}

static void left(const struct transport *t, const struct job *job, uint32_t i)
{
    serve_sent(job->peer->xfer, job->serve, 1,
               batch_page_bytes(t->xfer, &t->xfer->batch[job->part.batch], i));
}

/* The piece ends: which pages' generation has passed meanwhile? */
static void answer(struct transport *t, struct job *job)
{
    uint32_t number = job->part.batch, n = job->part.n, record;

    for (uint32_t i = 0; i < n; i++) {
        if (!xfer_bit(job->given, i))
            continue;
        if (job->state == JOB_UNSERVED || !may_leave(t, job, job->part.first + i, &record))
            batch_gone(t->xfer, number);
        else
            left(t, job, job->part.first + i);
    }
    job_end(t, job);
    batch_answered(t->xfer, number, n);
}

static void step(struct transport *t, struct job *job)
{
    if (job->state == JOB_COPIES && !serve_active(job->peer->xfer, job->serve))
        job->state = JOB_UNSERVED;
    for (uint64_t n = 0; job->state == JOB_COPIES && n < STEP_BYTES;) {
        while (job->cursor.page < job->part.n && !xfer_bit(job->given, job->cursor.page))
            job->cursor.page++;
        if (job->cursor.page == job->part.n)
            break;
        n += copy_some(t, job, STEP_BYTES - n);
    }
    if (job->state == JOB_DROPPED)
        job_end(t, job);
    else if (job->state == JOB_UNSERVED || job->cursor.page == job->part.n)
        answer(t, job);
}

/* ------------------------------------------------------------------ behind the door */

static bool poll(struct transport *t)
{
    bool busy = false;

    for (uint32_t i = 0; i < t->xfer->config.links; i++) {
        if (job_of(t, i)->state != JOB_NONE)
            step(t, job_of(t, i));
        pump(t, i);
        busy = busy || job_of(t, i)->state != JOB_NONE;
    }
    return busy;
}

static struct job *job_for(const struct transport *t, uint32_t pull)
{
    struct job *job = job_of(t, t->xfer->pull[pull].peer_link);

    return job->state != JOB_NONE && job->pull == pull ? job : NULL;
}

static void drop(struct transport *t, uint32_t pull)
{
    if (job_for(t, pull))
        job_for(t, pull)->state = JOB_DROPPED; /* the running copy ends first */
}

static bool holds(const struct transport *t, uint32_t pull)
{
    return job_for(t, pull) != NULL;
}

static enum tern_err create(struct transport *t)
{
    uint32_t s = 0;

    t->own = calloc(t->xfer->config.links, sizeof(struct job));
    while (s < SIDES_MAX && sides[s])
        s++;
    check(s < SIDES_MAX);
    sides[s] = t;
    return t->own ? TERN_OK : TERN_INTERNAL;
}

/* Pulls from here have lost their peer. */
static void destroy(struct transport *t)
{
    for (uint32_t s = 0; s < SIDES_MAX; s++) {
        if (sides[s] == t)
            sides[s] = NULL;
        for (uint32_t i = 0; sides[s] && i < sides[s]->xfer->config.links; i++) {
            struct job *job = job_of(sides[s], i);

            if (job->state == JOB_NONE || job->peer != t)
                continue;
            pull_break(sides[s]->xfer, job->pull, TERN_PEER_LOST);
            job->peer = NULL;
            job_end(sides[s], job);
            queue_break(sides[s]->xfer, &transport_lane(sides[s], i)->queue, TERN_PEER_LOST);
        }
    }
    for (uint32_t i = 0; i < t->xfer->config.links; i++)
        if (job_of(t, i)->state != JOB_NONE)
            job_end(t, job_of(t, i));
    free(t->own);
}

const struct transport_ops memory_transport = {.name = "memory",
                                               .create = create,
                                               .destroy = destroy,
                                               .pump = pump,
                                               .drop = drop,
                                               .holds = holds,
                                               .poll = poll};
