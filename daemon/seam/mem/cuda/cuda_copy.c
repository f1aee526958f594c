/* Copies between a device and pinned memory of the host: see mem_cuda.h. A copy takes a lane and
 * alternates between its two pieces, so that the device moves one while the caller uses the other.
 * A copy that fails, or takes too long, loses the device: it may still write the lane's pinned
 * memory, which is never used again.
 *
 * Within a device, and between two with peer access (cuda_peers.c), a copy is one call, in a lane
 * of the target device. Between other devices it uses a lane of each, so that either device
 * accesses only its own lane's pinned memory, and a failure loses only that device. */
#include "seam/mem/cuda/cuda_state.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/undumped.h"
#include "seam/io/io.h"
#include "seam/own_threads.h"

#define SPINS  200u   /* polls of an event without a pause: about as long as a piece takes */
#define NAP_NS 20000u /* between later polls */
#define MS_NS  UINT64_C(1000000)

void cuda_lose(struct cuda_device *d, const char *call, const char *error)
{
    pthread_mutex_lock(&d->lock);
    if (!atomic_load(&d->lost)) {
        snprintf(d->why, sizeof d->why, "%s: %s", call, error);
        atomic_store(&d->lost, true);
        eventfd_wake(d->cuda->event_fd);
    }
    pthread_cond_broadcast(&d->put);
    pthread_mutex_unlock(&d->lock);
}

bool cuda_did(struct cuda_device *d, const char *call, CUresult result)
{
    if (result == CUDA_SUCCESS)
        return true;
    cuda_lose(d, call, driver_error_name(&d->cuda->driver, result));
    return false;
}

const char *cuda_lanes_create(struct cuda_device *d, CUresult *ret)
{
    const struct driver *api = &d->cuda->driver;

    for (uint32_t i = 0; i < CUDA_LANES; i++) {
        struct cuda_lane *l = &d->lane[i];
        void *pinned;

        *ret = api->stream_create(&l->stream, CU_STREAM_NON_BLOCKING);
        if (*ret != CUDA_SUCCESS)
            return "cuStreamCreate";
        for (uint32_t half = 0; half < 2; half++) {
            *ret = api->event_create(&l->done[half], CU_EVENT_DISABLE_TIMING);
            if (*ret != CUDA_SUCCESS)
                return "cuEventCreate";
        }
        *ret = api->host_alloc(&pinned, 2ull * CUDA_PIECE_BYTES, 0);
        if (*ret != CUDA_SUCCESS)
            return "cuMemHostAlloc";
        undumped(pinned, 2ull * CUDA_PIECE_BYTES);
        l->pinned = pinned;
    }
    return NULL;
}

void cuda_lanes_destroy(struct cuda_device *d)
{
    const struct driver *api = &d->cuda->driver;

    for (uint32_t i = 0; i < CUDA_LANES; i++) {
        struct cuda_lane *l = &d->lane[i];

        for (uint32_t half = 0; half < 2; half++)
            if (l->done[half])
                api->event_destroy(l->done[half]);
        if (l->stream)
            api->stream_destroy(l->stream);
        if (l->pinned)
            api->host_free(l->pinned);
    }
}

struct cuda_lane *cuda_lane_take(struct cuda_device *d)
{
    struct cuda_lane *l = NULL;

    pthread_mutex_lock(&d->lock);
    while (!l && !atomic_load(&d->lost)) {
        for (uint32_t i = 0; i < CUDA_LANES && !l; i++)
            if (!d->lane[i].taken)
                l = &d->lane[i];
        if (!l)
            pthread_cond_wait(&d->put, &d->lock);
    }
    if (l)
        l->taken = true;
    pthread_mutex_unlock(&d->lock);
    if (l && !cuda_did(d, "cuCtxSetCurrent", d->cuda->driver.context_set(d->context)))
        return NULL;
    return l;
}

void cuda_lane_put(struct cuda_device *d, struct cuda_lane *l)
{
    pthread_mutex_lock(&d->lock);
    l->taken = false;
    pthread_cond_signal(&d->put);
    pthread_mutex_unlock(&d->lock);
}

bool cuda_lane_wait(struct cuda_device *d, const struct cuda_lane *l, uint32_t half,
                    const char *what)
{
    uint64_t until = io_now_ns() + d->cuda->wait_ms * MS_NS;

    for (uint32_t i = 0;; i++) {
        CUresult result = d->cuda->driver.event_query(l->done[half]);

        if (result != CUDA_ERROR_NOT_READY)
            return cuda_did(d, what, result);
        if (atomic_load(&d->lost))
            return false;
        if (i < SPINS)
            continue;
        if (io_now_ns() > until) {
            cuda_lose(d, what, "the call did not end in time");
            return false;
        }
        nanosleep(&(struct timespec){.tv_nsec = NAP_NS}, NULL);
    }
}

/* A copy under way: the bytes [0, n) at `base` on the device. */
struct copy {
    struct cuda_device *device;
    struct cuda_lane *lane;
    uint8_t *base;
    uint64_t n;
};

static uint32_t half_of(uint64_t at)
{
    return (uint32_t)(at / CUDA_PIECE_BYTES % 2);
}

static uint8_t *piece_of(const struct copy *c, uint64_t at)
{
    return c->lane->pinned + (uint64_t)half_of(at) * CUDA_PIECE_BYTES;
}

static uint64_t piece_bytes(const struct copy *c, uint64_t at)
{
    return c->n - at < CUDA_PIECE_BYTES ? c->n - at : CUDA_PIECE_BYTES;
}

/* Submits the copy of the piece at `at`; `put`: to the device. */
static bool piece_ask(const struct copy *c, uint64_t at, bool put)
{
    const struct driver *api = &c->device->cuda->driver;
    CUdeviceptr there = (CUdeviceptr)(uintptr_t)(c->base + at);
    uint64_t n = piece_bytes(c, at);
    CUstream stream = c->lane->stream;

    if (put && !cuda_did(c->device, "cuMemcpyHtoDAsync",
                         api->put_async(there, piece_of(c, at), n, stream)))
        return false;
    if (!put && !cuda_did(c->device, "cuMemcpyDtoHAsync",
                          api->get_async(piece_of(c, at), there, n, stream)))
        return false;
    return cuda_did(c->device, "cuEventRecord",
                    api->event_record(c->lane->done[half_of(at)], stream));
}

static bool half_wait(const struct copy *c, uint32_t half)
{
    return cuda_lane_wait(c->device, c->lane, half, "a copy");
}

static bool far_holds(void *ctx, const void *at)
{
    return cuda_device_at(ctx, at) != NULL;
}

static bool copy_begin(struct copy *ret, struct cuda_device *d, const void *at, uint64_t n)
{
    *ret = (struct copy){.device = d, .base = (uint8_t *)(uintptr_t)at, .n = n};
    ret->lane = cuda_lane_take(d);
    return ret->lane != NULL;
}

/* After this the copy has nothing in flight, or its device is lost. An event that was never
 * recorded counts as done. */
static bool copy_end(const struct copy *c)
{
    bool ok = half_wait(c, 0) && half_wait(c, 1);

    cuda_lane_put(c->device, c->lane);
    return ok;
}

static bool pieces_get(const struct copy *c, mem_piece *take, void *to)
{
    bool ok = c->n == 0 || piece_ask(c, 0, false);

    for (uint64_t from = 0; ok && from < c->n; from += CUDA_PIECE_BYTES) {
        if (c->n - from > CUDA_PIECE_BYTES)
            ok = piece_ask(c, from + CUDA_PIECE_BYTES, false);
        ok = ok && half_wait(c, half_of(from)) && take(to, piece_of(c, from), piece_bytes(c, from));
    }
    return ok;
}

static bool far_get(void *ctx, const void *at, uint64_t n, mem_piece *take, void *to)
{
    struct copy c;
    bool ok;

    if (!copy_begin(&c, cuda_device_at(ctx, at), at, n))
        return false;
    ok = pieces_get(&c, take, to);
    return copy_end(&c) && ok;
}

static bool far_put(void *ctx, void *at, uint64_t n, mem_piece *fill, void *from)
{
    struct copy c;
    bool ok = true;

    if (!copy_begin(&c, cuda_device_at(ctx, at), at, n))
        return false;
    for (uint64_t to = 0; ok && to < n; to += CUDA_PIECE_BYTES)
        ok = half_wait(&c, half_of(to)) && fill(from, piece_of(&c, to), piece_bytes(&c, to)) &&
             piece_ask(&c, to, true);
    return copy_end(&c) && ok;
}

/* Ends a copy that was submitted as a whole, and not by pieces. */
static bool whole_end(const struct copy *c, bool asked)
{
    const struct driver *api = &c->device->cuda->driver;
    bool ok = asked && cuda_did(c->device, "cuEventRecord",
                                api->event_record(c->lane->done[0], c->lane->stream));

    return copy_end(c) && ok;
}

static bool far_zero(void *ctx, void *at, uint64_t n)
{
    struct cuda_device *d = cuda_device_at(ctx, at);
    struct copy c;

    if (!copy_begin(&c, d, at, n))
        return false;
    return whole_end(
        &c, cuda_did(d, "cuMemsetD8Async",
                     d->cuda->driver.set_async((CUdeviceptr)(uintptr_t)at, 0, n, c.lane->stream)));
}

bool cuda_copy_direct(struct cuda_device *d, uint8_t *to, const uint8_t *from, uint64_t n,
                      CUresult *ret)
{
    struct copy c;

    *ret = CUDA_SUCCESS;
    if (!copy_begin(&c, d, to, n))
        return false;
    *ret = d->cuda->driver.copy_async((CUdeviceptr)(uintptr_t)to, (CUdeviceptr)(uintptr_t)from, n,
                                      c.lane->stream);
    return whole_end(&c, *ret == CUDA_SUCCESS);
}

static bool copy_direct(struct cuda_device *d, uint8_t *to, const uint8_t *from, uint64_t n)
{
    CUresult result;
    bool ok = cuda_copy_direct(d, to, from, n, &result);

    return cuda_did(d, "cuMemcpyDtoDAsync", result) && ok;
}

/* A copy with a lane of each device; calls for a device are made in its own context. */
struct staged {
    struct copy from, to;
    uint64_t at; /* bytes staged so far */
};

static bool copy_enter(const struct copy *c)
{
    return cuda_did(c->device, "cuCtxSetCurrent",
                    c->device->cuda->driver.context_set(c->device->context));
}

static bool staged_end(const struct copy *c)
{
    bool ok = copy_enter(c);

    return copy_end(c) && ok;
}

static bool piece_staged(void *ctx, uint8_t *bytes, uint64_t n)
{
    struct staged *s = ctx;
    bool ok = copy_enter(&s->to) && half_wait(&s->to, half_of(s->at));

    if (ok) {
        memcpy(piece_of(&s->to, s->at), bytes, n);
        ok = piece_ask(&s->to, s->at, true);
        s->at += n;
    }
    return copy_enter(&s->from) && ok;
}

/* Takes a lane of each device, in the order of the devices. */
static bool staged_begin(struct staged *s)
{
    bool up = s->from.device < s->to.device;
    struct copy *first = up ? &s->from : &s->to, *second = up ? &s->to : &s->from;

    first->lane = cuda_lane_take(first->device);
    if (!first->lane)
        return false;
    second->lane = cuda_lane_take(second->device);
    if (!second->lane)
        cuda_lane_put(first->device, first->lane);
    return second->lane != NULL;
}

static bool copy_staged(struct cuda_device *d, uint8_t *to, struct cuda_device *s,
                        const uint8_t *from, uint64_t n)
{
    struct staged both = {
        .from = {.device = s, .base = (uint8_t *)(uintptr_t)from, .n = n},
        .to = {.device = d, .base = to, .n = n},
    };
    bool ok;

    if (!staged_begin(&both))
        return false;
    ok = copy_enter(&both.from) && pieces_get(&both.from, piece_staged, &both);
    ok = staged_end(&both.from) && ok;
    return staged_end(&both.to) && ok;
}

static bool far_move(void *ctx, void *to, const void *from, uint64_t n)
{
    struct cuda *c = ctx;
    struct cuda_device *d = cuda_device_at(c, to), *s = cuda_device_at(c, from);
    bool peers = d != s && cuda_pair_of(c, d, s)->open, ok;

    if (atomic_load(&s->lost)) /* if a peer read its memory, the peer could be lost too */
        return false;
    ok = d == s || peers ? copy_direct(d, to, from, n) : copy_staged(d, to, s, from, n);
    atomic_fetch_add(d == s  ? &c->moved_within
                     : peers ? &c->moved_by_peer
                             : &c->moved_staged,
                     ok ? n : 0);
    return ok;
}

const struct mem_far cuda_far_calls = {
    .holds = far_holds, .get = far_get, .put = far_put, .zero = far_zero, .move = far_move};
