/* See block_lane.h. */
#include "block_lane.h"

static void lane_must(struct lane *l, CUresult result)
{
    l->failed |= result != CUDA_SUCCESS;
}

void lane_begin(struct lane *l, const struct block_far *far)
{
    CUcontext context;

    *l = (struct lane){.far = far};
    if (!far)
        return;
    lane_must(l, far->driver->context_retain(&context, far->device));
    if (l->failed)
        return;
    lane_must(l, far->driver->context_set(context));
    if (!l->failed)
        lane_must(l, far->driver->stream_create(&l->stream, CU_STREAM_NON_BLOCKING));
    if (!l->failed)
        lane_must(l, far->driver->event_create(&l->event, CU_EVENT_DISABLE_TIMING));
    if (!l->failed)
        lane_must(l, far->driver->host_alloc((void **)&l->between, LANE_BYTES, 0));
}

void lane_end(struct lane *l)
{
    if (!l->far || l->loose)
        return;
    if (l->between)
        (void)l->far->driver->host_free(l->between);
    if (l->event)
        (void)l->far->driver->event_destroy(l->event);
    if (l->stream)
        (void)l->far->driver->stream_destroy(l->stream);
    (void)l->far->driver->context_release(l->far->device);
}

/* Waits until the stream has finished all queued work. */
static bool is_over(struct lane *l)
{
    return l->far->driver->event_record(l->event, l->stream) == CUDA_SUCCESS &&
           l->far->driver->event_wait(l->event) == CUDA_SUCCESS;
}

/* `given`: the result of the last call that queued a copy. If a call has failed, a copy may still
 * be under way. */
static void await(struct lane *l, CUresult given)
{
    if (given == CUDA_SUCCESS && is_over(l))
        return;
    l->failed = true;
    l->loose = !is_over(l);
}

void lane_put(struct lane *l, const uint8_t *to, size_t n)
{
    if (!l->failed)
        await(l, l->far->driver->put_async((CUdeviceptr)(uintptr_t)to, l->between, n, l->stream));
}

void lane_get(struct lane *l, const uint8_t *from, size_t n)
{
    if (!l->failed)
        await(l, l->far->driver->get_async(l->between, (CUdeviceptr)(uintptr_t)from, n, l->stream));
}
