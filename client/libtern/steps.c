/* Publishes steps in the control page: by the calling thread, or by a CUDA stream, behind all work
 * queued there before. In a stream the device itself writes the step into the page, which is
 * registered with the driver at the first such step of a mapping; if the device cannot, a thread of
 * the driver writes it. The engine owns the context and the streams, as in device.c.
 *
 * Invariant: the steps of a rank are published in their order, whatever streams they are in and
 * whoever writes them; no page is unmapped, and this process does not report that it has left,
 * while a stream may still write the page. */
#include "steps.h"

#include <errno.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/err.h"

#define STEPS_LATE_MAX 256u   /* steps in streams at a time that a thread of the driver writes */
#define STEPS_WAIT_MS  10000u /* wait for steps in streams before their mapping ends */
#define STEPS_NAP_NS   50000u /* between two looks in that wait */
#define MS_NS          UINT64_C(1000000)

struct stream_page {
    enum tern_step_by by;
    CUdeviceptr at; /* BY_DEVICE: the page's address for the device */
};

/* A step that a thread of the driver will write. */
struct late {
    uint8_t *control;
    uint32_t rank;
    int bell;
    uint64_t step; /* 0: it was never used */
};

/* The steps of a connection in streams. */
struct stream_steps {
    struct driver driver;
    CUcontext context; /* context of all its streams; borrowed */
    CUevent behind;    /* recorded behind the last step put into a stream */
    uint64_t queued;   /* that step; 0: none */
    bool unmarked;     /* `behind` is not recorded there: the driver failed */
    bool left;         /* see steps_left_behind */
    uint32_t nlate;    /* places used so far; they are reused in turn */
    struct late late[STEPS_LATE_MAX];
};

/* ---- the control page ---- */

static _Atomic uint64_t *word(const uint8_t *control, uint32_t at)
{
    return (_Atomic uint64_t *)(void *)(uintptr_t)(control + at);
}

uint64_t control_load(const uint8_t *control, uint32_t at)
{
    return atomic_load_explicit(word(control, at), memory_order_acquire);
}

/* A full socket counts as rung. The bell of an older daemon is an eventfd. */
static void ring(int bell)
{
    if (send(bell, "", 1, MSG_DONTWAIT | MSG_NOSIGNAL) < 0 && errno == ENOTSOCK)
        (void)!write(bell, &(uint64_t){1}, sizeof(uint64_t));
}

void control_publish(uint8_t *control, uint32_t rank, uint64_t step, int bell)
{
    uint64_t before = control_load(control, rank * CONTROL_RANK_STRIDE), wanted;

    /* Release: whoever sees the step also sees what the device and this thread wrote before. */
    atomic_store_explicit(word(control, rank * CONTROL_RANK_STRIDE), step, memory_order_release);
    /* The daemon writes the wanted step, then reads the done step, also with a fence in between: at
     * least one side sees the other's write. */
    atomic_thread_fence(memory_order_seq_cst);
    wanted = control_load(control, CONTROL_WANTED_AT);
    if (before < wanted && wanted <= step)
        ring(bell);
}

bool steps_in_stream(const struct tern *t, const uint8_t *control)
{
    return t->by_stream &&
           control_load(control, t->rank * CONTROL_RANK_STRIDE) < t->by_stream->queued;
}

/* ---- the driver ---- */

static enum tern_err call_failed(struct tern *t, const char *call, CUresult result)
{
    char text[QUICK_TEXT_MAX];

    snprintf(text, sizeof text,
             "the step could not be put into the stream: %s: %s; call tern_done_step when the "
             "device is done",
             call, driver_error_name(&t->by_stream->driver, result));
    return set_error(t, TERN_INTERNAL, text);
}

static enum tern_err no_driver(struct tern *t, const char *why)
{
    char text[QUICK_TEXT_MAX];

    snprintf(text, sizeof text,
             "a step in a stream needs CUDA's driver: %s; or call tern_done_step when the device "
             "is done",
             why);
    return set_error(t, TERN_UNSUPPORTED, text);
}

/* Loads the driver at the first step put into a stream. */
static enum tern_err begin(struct tern *t)
{
    struct stream_steps *s;
    struct driver_why why;
    enum tern_err err;

    if (t->by_stream)
        return TERN_OK;
    s = calloc(1, sizeof *s);
    if (!s)
        return set_error(t, TERN_INTERNAL, "no memory");
    if (driver_open(&s->driver, DRIVER_LIBRARY, &why) != DRIVER_OK) {
        err = no_driver(t, why.text);
        goto out_free;
    }
    if (s->driver.init(0) != CUDA_SUCCESS) {
        err = no_driver(t, "the driver shows this process no GPU (check CUDA_VISIBLE_DEVICES)");
        goto out_close;
    }
    t->by_stream = s;
    return TERN_OK;

out_close:
    driver_close(&s->driver);
out_free:
    free(s);
    return err;
}

/* The event can be recorded only in streams of its own context. */
static enum tern_err context_suits(struct tern *t)
{
    struct stream_steps *s = t->by_stream;
    CUcontext current;
    CUresult result = s->driver.context_get(&current);

    if (result != CUDA_SUCCESS)
        return call_failed(t, "cuCtxGetCurrent", result);
    if (!current)
        return set_error(t, TERN_INVALID,
                         "this thread has no CUDA context: set the stream's context first");
    if (s->behind && current != s->context)
        return set_error(t, TERN_INVALID,
                         "this thread uses another CUDA context than the first step in a stream: "
                         "all steps of a rank must use streams of one context");
    if (s->behind)
        return TERN_OK;
    result = s->driver.event_create(&s->behind, CU_EVENT_DISABLE_TIMING);
    if (result != CUDA_SUCCESS)
        return call_failed(t, "cuEventCreate", result);
    s->context = current;
    return TERN_OK;
}

/* ---- the page, as registered for the device ---- */

/* Returns whether the current device reaches the page and can write 64 bits into it from a
 * stream. */
static enum tern_err device_can(struct tern *t, bool *ret)
{
    static const CUdevice_attribute needed[] = {
        CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED,
        CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS,
    };
    const struct driver *d = &t->by_stream->driver;
    CUdevice device;
    CUresult result = d->context_device(&device);

    if (result != CUDA_SUCCESS)
        return call_failed(t, "cuCtxGetDevice", result);
    *ret = true;
    for (size_t i = 0; i < sizeof needed / sizeof *needed; i++) {
        int value = 0;

        result = d->device_attribute(&value, needed[i], device);
        if (result != CUDA_SUCCESS)
            return call_failed(t, "cuDeviceGetAttribute", result);
        *ret = *ret && value;
    }
    return TERN_OK;
}

static enum tern_err page_register(struct tern *t, uint8_t *control, struct stream_page *page)
{
    const struct driver *d = &t->by_stream->driver;
    CUresult result =
        d->host_register(control, CONTROL_BYTES,
                         (unsigned)CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP);

    if (result != CUDA_SUCCESS)
        return call_failed(t, "cuMemHostRegister", result);
    result = d->host_device_at(&page->at, control, 0);
    if (result == CUDA_SUCCESS)
        return TERN_OK;
    d->host_unregister(control);
    return call_failed(t, "cuMemHostGetDevicePointer", result);
}

static enum tern_err page_begin(struct tern_pool *p)
{
    struct tern *t = p->owner;
    struct stream_page *page;
    enum tern_err err;
    bool can = false;

    if (p->stream_page)
        return TERN_OK;
    TRY(device_can(t, &can));
    page = calloc(1, sizeof *page);
    if (!page)
        return set_error(t, TERN_INTERNAL, "no memory");
    page->by = can ? TERN_STEP_BY_DEVICE : TERN_STEP_BY_HOST;
    err = can ? page_register(t, p->control, page) : TERN_OK;
    if (err != TERN_OK) {
        free(page);
        return err;
    }
    p->stream_page = page;
    return TERN_OK;
}

/* The thread that ends a mapping may have another context, or none. The registrations of a context
 * end when the context is destroyed. */
static bool page_unregister(const struct stream_steps *s, void *control)
{
    CUcontext before = NULL;
    CUresult result;

    s->driver.context_get(&before);
    if (s->driver.context_set(s->context) != CUDA_SUCCESS)
        return true;
    result = s->driver.host_unregister(control);
    s->driver.context_set(before);
    return result == CUDA_SUCCESS;
}

/* Returns true once no stream will write the page. A step in the page shows that the device has
 * finished; a thread of the driver still has work after its write, and only the event shows its
 * end. */
static bool drained(const struct tern_pool *p)
{
    const struct stream_steps *s = p->owner->by_stream;
    bool by_device = p->stream_page->by == TERN_STEP_BY_DEVICE;
    uint64_t until = client_socket_now_ns() + STEPS_WAIT_MS * MS_NS;

    while (s->queued > 0 && !(by_device && !steps_in_stream(p->owner, p->control))) {
        CUresult result = s->unmarked ? CUDA_ERROR_NOT_READY : s->driver.event_query(s->behind);

        if (result != CUDA_ERROR_NOT_READY || client_socket_now_ns() > until)
            return result == CUDA_SUCCESS;
        nanosleep(&(struct timespec){.tv_nsec = STEPS_NAP_NS}, NULL);
    }
    return true;
}

bool steps_page_end(struct tern_pool *p)
{
    struct stream_steps *s = p->owner->by_stream;
    bool ended;

    if (!p->stream_page)
        return true;
    ended = !s->left && drained(p) &&
            (p->stream_page->by == TERN_STEP_BY_HOST || page_unregister(s, p->control));
    s->left = !ended;
    free(p->stream_page);
    p->stream_page = NULL;
    return ended;
}

bool steps_left_behind(const struct tern *t)
{
    return t->by_stream && t->by_stream->left;
}

void steps_finish(struct tern *t)
{
    struct stream_steps *s = t->by_stream;

    t->by_stream = NULL;
    if (!s || s->left) /* a thread of the driver may still use it */
        return;
    if (is_owner(t)) {
        if (s->behind)
            s->driver.event_destroy(s->behind);
        driver_close(&s->driver);
    }
    free(s);
}

/* ---- steps ---- */

/* A step put into a stream that is being captured would become part of the graph, and each launch
 * of the graph would write the same step again. */
static enum tern_err stream_suits(struct tern *t, CUstream stream)
{
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    CUresult result = t->by_stream->driver.stream_capturing(stream, &status);

    if (result != CUDA_SUCCESS)
        return call_failed(t, "cuStreamIsCapturing", result);
    if (status != CU_STREAM_CAPTURE_STATUS_NONE)
        return set_error(t, TERN_INVALID,
                         "the stream is being captured: put the step after the graph's launch");
    return TERN_OK;
}

/* Makes the stream wait for the step before, which may be in another stream. */
static enum tern_err keep_order(struct tern_pool *p, CUstream stream)
{
    struct tern *t = p->owner;
    struct stream_steps *s = t->by_stream;
    CUresult result;

    if (!steps_in_stream(t, p->control))
        return TERN_OK;
    if (s->unmarked)
        return set_error(t, TERN_INTERNAL,
                         "the driver failed, and the previous step is still in a stream: wait for "
                         "that stream first");
    result = s->driver.stream_wait_event(stream, s->behind, 0);
    return result == CUDA_SUCCESS ? TERN_OK : call_failed(t, "cuStreamWaitEvent", result);
}

static void late_write(void *with)
{
    const struct late *l = with;

    control_publish(l->control, l->rank, l->step, l->bell);
}

/* Has a thread of the driver write the step and wake the daemon. */
static enum tern_err put_late(struct tern_pool *p, uint64_t step, CUstream stream)
{
    struct tern *t = p->owner;
    struct stream_steps *s = t->by_stream;
    struct late *l = &s->late[s->nlate % STEPS_LATE_MAX];
    CUresult result;

    if (l->step > control_load(p->control, t->rank * CONTROL_RANK_STRIDE))
        return set_error(t, TERN_BUSY,
                         "256 steps are already in streams: wait until the first of them is done");
    *l = (struct late){.control = p->control, .rank = t->rank, .bell = t->bell, .step = step};
    result = s->driver.host_call(stream, late_write, l);
    s->nlate++; /* also after an error, since the thread may still use it */
    return result == CUDA_SUCCESS ? TERN_OK : call_failed(t, "cuLaunchHostFunc", result);
}

static enum tern_err put_write(struct tern_pool *p, uint64_t step, CUstream stream)
{
    struct tern *t = p->owner;
    CUdeviceptr at = p->stream_page->at + t->rank * CONTROL_RANK_STRIDE;
    /* Default: with a barrier, so that whoever sees the step sees what kernels wrote before.
     */
    CUresult result =
        t->by_stream->driver.stream_write64(stream, at, step, CU_STREAM_WRITE_VALUE_DEFAULT);

    return result == CUDA_SUCCESS ? TERN_OK : call_failed(t, "cuStreamWriteValue64", result);
}

enum tern_err steps_put(struct tern_pool *p, uint64_t step, CUstream stream,
                        enum tern_step_by *ret_by)
{
    struct tern *t = p->owner;
    struct stream_steps *s;

    TRY(begin(t));
    TRY(context_suits(t));
    TRY(page_begin(p));
    TRY(stream_suits(t, stream));
    if (step != t->last_step) { /* else it is already published, or will be */
        TRY(keep_order(p, stream));
        TRY(p->stream_page->by == TERN_STEP_BY_DEVICE ? put_write(p, step, stream)
                                                      : put_late(p, step, stream));
        s = t->by_stream;
        s->queued = step;
        s->unmarked = s->driver.event_record(s->behind, stream) != CUDA_SUCCESS;
    }
    if (ret_by)
        *ret_by = p->stream_page->by;
    return TERN_OK;
}
