/* Streams of the stand-in: see standin.h. One thread makes all copies, each some time after it was
 * queued, and draws the next stream at random. */
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/prng.h"
#include "standin/standin_state.h"

/* The kinds up to COPY_WRITE touch memory at `at`. */
enum copy_kind {
    COPY_GET,
    COPY_PUT,
    COPY_SET,
    COPY_MOVE,
    COPY_WRITE,
    COPY_RECORD,
    COPY_WAIT,
    COPY_CALL,
    COPY_LAUNCH
};

struct copy {
    enum copy_kind kind;
    CUstream stream;
    void *host;
    CUdeviceptr at, from; /* from: for a move */
    size_t n;
    uint64_t value;
    CUevent event;
    uint32_t number; /* of the record that it makes, or waits for */
    CUhostFn call;
    void *with;
    struct standin_launch launch;
};

static struct CUstream_st streams[STREAMS_MAX];
static struct CUevent_st events[EVENTS_MAX];
static struct copy copies[COPIES_MAX]; /* in the order in which they were queued */
static size_t ncopies;
static pthread_cond_t asked = PTHREAD_COND_INITIALIZER, done = PTHREAD_COND_INITIALIZER;
static pthread_t thread;
static pid_t thread_of; /* the process that has the thread; 0: none */
static bool stop;
static struct prng dice = {{1, 2, 3, 4}};

/* ---- the thread ---- */

/* Returns the address that a copy touches: only a write may touch host memory. NULL: see *ret. */
static uint8_t *place_of(const struct copy *c, CUresult *ret)
{
    uint8_t *host = c->kind == COPY_WRITE ? standin_registered(c->at, c->n) : NULL;

    return host ? host : standin_reach(c->at, c->n, c->stream->device, ret);
}

/* Returns the source of a move, whose device needs access to both ends; NULL: it has not. */
static uint8_t *move_from(const struct copy *c)
{
    CUresult result;

    return standin_reach(c->from, c->n, c->stream->device, &result);
}

static bool move_do(const struct copy *c, uint8_t *there)
{
    const uint8_t *from = move_from(c);

    if (!from)
        return false;
    memmove(there, from, c->n);
    if (standin_spoils(c->stream->device, standin_device_of(c->from)))
        there[c->n / 2] ^= 0x10;
    return true;
}

/* Runs a function without the lock: it may take any time. */
static void call_do(const struct copy *c)
{
    pthread_mutex_unlock(&standin_lock);
    standin_in_call = true;
    c->call(c->with);
    standin_in_call = false;
    pthread_mutex_lock(&standin_lock);
}

static void launch_do(const struct copy *c)
{
    CUresult result = standin_kernel(&c->launch, c->stream->device);

    if (result != CUDA_SUCCESS)
        standin_devices.lost[c->stream->device] = result;
}

static void copy_do(const struct copy *c)
{
    CUresult result = CUDA_SUCCESS;
    uint8_t *there;

    if (c->kind == COPY_RECORD)
        c->event->pending--;
    else if (c->kind == COPY_CALL)
        call_do(c);
    else if (c->kind == COPY_LAUNCH)
        launch_do(c);
    if (c->kind > COPY_WRITE)
        return;
    there = place_of(c, &result);
    if (!there || (c->kind == COPY_MOVE && !move_do(c, there))) {
        standin_devices.lost[c->stream->device] = CUDA_ERROR_ILLEGAL_ADDRESS;
        return;
    }
    if (c->kind == COPY_GET)
        memcpy(c->host, there, c->n);
    else if (c->kind == COPY_PUT)
        memcpy(there, c->host, c->n);
    else if (c->kind == COPY_WRITE)
        __atomic_store_n((uint64_t *)(void *)there, c->value, __ATOMIC_RELEASE);
    else if (c->kind == COPY_SET)
        memset(there, (int)c->value, c->n);
}

static bool recorded(const struct copy *wait)
{
    for (size_t k = 0; k < ncopies; k++)
        if (copies[k].kind == COPY_RECORD && copies[k].event == wait->event &&
            copies[k].number == wait->number)
            return false;
    return true;
}

static bool stream_first(size_t i)
{
    for (size_t k = 0; k < i; k++)
        if (copies[k].stream == copies[i].stream)
            return false;
    if (copies[i].kind == COPY_WAIT && !recorded(&copies[i]))
        return false;
    if (copies[i].kind == COPY_LAUNCH && standin_devices.kernels_hang[copies[i].stream->device])
        return false;
    return !standin_devices.hangs[copies[i].stream->device];
}

/* Draws one of the copies that are next in their stream. Returns false if there is none. */
static bool copy_draw(size_t *ret)
{
    size_t n = 0;

    for (size_t i = 0; i < ncopies; i++)
        if (stream_first(i) && prng_below(&dice, (uint32_t)++n) == 0)
            *ret = i;
    return n > 0;
}

static void *thread_main(void *arg)
{
    const char *delay = getenv("STANDIN_CUDA_DELAY_US");
    uint32_t most = delay ? (uint32_t)atoi(delay) : 100;
    size_t i = 0;

    (void)arg;
    pthread_mutex_lock(&standin_lock);
    while (!stop) {
        struct copy c;

        if (!copy_draw(&i)) {
            pthread_cond_wait(&asked, &standin_lock);
            continue;
        }
        c = copies[i];
        if (c.kind != COPY_RECORD && c.kind != COPY_WAIT && most > 0) {
            uint32_t ns = prng_below(&dice, most * 1000 + 1);

            pthread_mutex_unlock(&standin_lock);
            nanosleep(&(struct timespec){.tv_nsec = ns}, NULL);
            pthread_mutex_lock(&standin_lock);
        }
        copy_do(&c); /* copies that were queued meanwhile stand behind it */
        memmove(&copies[i], &copies[i + 1], (--ncopies - i) * sizeof c);
        pthread_cond_broadcast(&done);
    }
    pthread_mutex_unlock(&standin_lock);
    return NULL;
}

__attribute__((destructor)) static void thread_end(void)
{
    if (thread_of != getpid())
        return;
    pthread_mutex_lock(&standin_lock);
    stop = true;
    pthread_cond_broadcast(&asked);
    pthread_mutex_unlock(&standin_lock);
    pthread_join(thread, NULL);
}

/* ---- queueing ---- */

static CUresult ask(struct copy c)
{
    CUresult result = CUDA_SUCCESS;

    if (!c.stream || !c.stream->used ||
        (standin_current && standin_current->device != c.stream->device) || !standin_current)
        return CUDA_ERROR_INVALID_CONTEXT;
    if (c.stream->capturing)
        standin_broken("something was put into a stream that is being captured");
    if (c.kind == COPY_MOVE && (!place_of(&c, &result) || !move_from(&c)))
        return CUDA_ERROR_INVALID_VALUE;
    if (c.kind <= COPY_WRITE && !place_of(&c, &result))
        return result;
    if ((c.kind == COPY_GET || c.kind == COPY_PUT) && !standin_pinned(c.host, c.n))
        return CUDA_ERROR_INVALID_VALUE;
    if (ncopies == COPIES_MAX)
        return CUDA_ERROR_OUT_OF_MEMORY;
    copies[ncopies++] = c;
    if (thread_of != getpid()) {
        thread_of = getpid();
        if (pthread_create(&thread, NULL, thread_main, NULL) != 0)
            abort();
    }
    pthread_cond_broadcast(&asked);
    return CUDA_SUCCESS;
}

static CUresult copy_asked(const char *name, struct copy c)
{
    CUresult result = standin_enter(name);

    if (result == CUDA_SUCCESS && c.n > 0)
        result = ask(c);
    return standin_leave(result);
}

CUresult standin_get_async(void *to, CUdeviceptr from, size_t bytes, CUstream stream)
{
    return copy_asked(
        "cuMemcpyDtoHAsync",
        (struct copy){.kind = COPY_GET, .stream = stream, .host = to, .at = from, .n = bytes});
}

CUresult standin_put_async(CUdeviceptr to, const void *from, size_t bytes, CUstream stream)
{
    return copy_asked("cuMemcpyHtoDAsync", (struct copy){.kind = COPY_PUT,
                                                         .stream = stream,
                                                         .host = (void *)(uintptr_t)from,
                                                         .at = to,
                                                         .n = bytes});
}

CUresult standin_copy_async(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream)
{
    return copy_asked(
        "cuMemcpyDtoDAsync",
        (struct copy){.kind = COPY_MOVE, .stream = stream, .at = to, .from = from, .n = bytes});
}

CUresult standin_set_async(CUdeviceptr at, unsigned char value, size_t n, CUstream stream)
{
    return copy_asked(
        "cuMemsetD8Async",
        (struct copy){.kind = COPY_SET, .stream = stream, .at = at, .n = n, .value = value});
}

CUresult standin_ask_launch(CUstream stream, const struct standin_launch *l)
{
    return ask((struct copy){.kind = COPY_LAUNCH, .stream = stream, .launch = *l});
}

bool standin_launched(int device)
{
    for (size_t i = 0; i < ncopies; i++)
        if (copies[i].kind == COPY_LAUNCH && copies[i].stream->device == device)
            return true;
    return false;
}

bool standin_in_flight(uint64_t at, uint64_t n)
{
    for (size_t i = 0; i < ncopies; i++) {
        const struct copy *c = &copies[i];
        const uint64_t touched[] = {c->at, c->from, (uintptr_t)c->host};

        for (size_t k = 0; c->kind <= COPY_WRITE && k < 3; k++)
            if (touched[k] && touched[k] < at + n && at < touched[k] + c->n)
                return true;
    }
    return false;
}

/* ---- copies that the caller waits for ---- */

static CUresult copy_now(const char *name, void *host, CUdeviceptr at, size_t n, bool put)
{
    CUresult result = standin_enter(name);
    uint8_t *there = NULL;

    if (result == CUDA_SUCCESS && !standin_current)
        result = CUDA_ERROR_INVALID_CONTEXT;
    if (result == CUDA_SUCCESS)
        there = standin_reach(at, n, standin_current->device, &result);
    if (there && put)
        memcpy(there, host, n);
    else if (there)
        memcpy(host, there, n);
    return standin_leave(result);
}

CUresult standin_copy_to_device(CUdeviceptr to, const void *from, size_t bytes)
{
    return copy_now("cuMemcpyHtoD", (void *)(uintptr_t)from, to, bytes, true);
}

CUresult standin_copy_to_host(void *to, CUdeviceptr from, size_t bytes)
{
    return copy_now("cuMemcpyDtoH", to, from, bytes, false);
}

/* ---- streams and events ---- */

CUresult standin_stream_create(CUstream *ret, unsigned int flags)
{
    CUresult result = standin_enter("cuStreamCreate");
    size_t i = 0;

    (void)flags;
    while (i < STREAMS_MAX && streams[i].used)
        i++;
    if (result == CUDA_SUCCESS && !standin_current)
        result = CUDA_ERROR_INVALID_CONTEXT;
    if (result == CUDA_SUCCESS && i == STREAMS_MAX)
        result = CUDA_ERROR_OUT_OF_MEMORY;
    if (result == CUDA_SUCCESS) {
        streams[i] = (struct CUstream_st){.device = standin_current->device, .used = true};
        *ret = &streams[i];
    }
    return standin_leave(result);
}

CUresult standin_stream_destroy(CUstream stream)
{
    CUresult result = standin_enter("cuStreamDestroy");

    if (result == CUDA_SUCCESS)
        stream->used = false;
    return standin_leave(result);
}

CUresult standin_event_create(CUevent *ret, unsigned int flags)
{
    CUresult result = standin_enter("cuEventCreate");
    size_t i = 0;

    (void)flags;
    while (i < EVENTS_MAX && events[i].used)
        i++;
    if (result == CUDA_SUCCESS && i == EVENTS_MAX)
        result = CUDA_ERROR_OUT_OF_MEMORY;
    if (result == CUDA_SUCCESS) {
        events[i] = (struct CUevent_st){.used = true};
        *ret = &events[i];
    }
    return standin_leave(result);
}

CUresult standin_event_destroy(CUevent event)
{
    CUresult result = standin_enter("cuEventDestroy");

    if (result == CUDA_SUCCESS)
        event->used = false;
    return standin_leave(result);
}

CUresult standin_event_record(CUevent event, CUstream stream)
{
    CUresult result = standin_enter("cuEventRecord");

    if (result == CUDA_SUCCESS)
        result = ask((struct copy){
            .kind = COPY_RECORD, .stream = stream, .event = event, .number = event->recorded + 1});
    if (result == CUDA_SUCCESS) {
        event->recorded++;
        event->pending++;
    }
    return standin_leave(result);
}

/* Waits for the last record that was queued before this call. */
CUresult standin_stream_wait_event(CUstream stream, CUevent event, unsigned int flags)
{
    CUresult result = standin_enter("cuStreamWaitEvent");

    if (result == CUDA_SUCCESS && flags)
        result = CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS)
        result = ask((struct copy){
            .kind = COPY_WAIT, .stream = stream, .event = event, .number = event->recorded});
    return standin_leave(result);
}

CUresult standin_stream_write64(CUstream stream, CUdeviceptr at, cuuint64_t value,
                                unsigned int flags)
{
    CUresult result = standin_enter("cuStreamWriteValue64");

    if (result == CUDA_SUCCESS && standin_lacks(CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS))
        result = CUDA_ERROR_NOT_SUPPORTED;
    if (result == CUDA_SUCCESS && (flags || at % sizeof value))
        result = CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS)
        result = ask((struct copy){
            .kind = COPY_WRITE, .stream = stream, .at = at, .n = sizeof value, .value = value});
    return standin_leave(result);
}

CUresult standin_host_call(CUstream stream, CUhostFn call, void *with)
{
    CUresult result = standin_enter("cuLaunchHostFunc");

    if (result == CUDA_SUCCESS && !call)
        result = CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS)
        result =
            ask((struct copy){.kind = COPY_CALL, .stream = stream, .call = call, .with = with});
    return standin_leave(result);
}

CUresult standin_stream_capturing(CUstream stream, CUstreamCaptureStatus *ret)
{
    CUresult result = standin_enter("cuStreamIsCapturing");

    if (result == CUDA_SUCCESS && (!stream || !stream->used))
        result = CUDA_ERROR_INVALID_CONTEXT;
    if (result == CUDA_SUCCESS)
        *ret = stream->capturing ? CU_STREAM_CAPTURE_STATUS_ACTIVE : CU_STREAM_CAPTURE_STATUS_NONE;
    return standin_leave(result);
}

CUresult standin_event_query(CUevent event)
{
    CUresult result = standin_enter("cuEventQuery");

    if (result == CUDA_SUCCESS && event->pending > 0)
        result = CUDA_ERROR_NOT_READY;
    return standin_leave(result);
}

CUresult standin_event_wait(CUevent event)
{
    CUresult result = standin_enter("cuEventSynchronize");

    while (result == CUDA_SUCCESS && event->pending > 0)
        pthread_cond_wait(&done, &standin_lock);
    return standin_leave(result);
}

void standin_streams_live(struct standin_live *ret)
{
    for (size_t i = 0; i < STREAMS_MAX; i++)
        ret->streams += streams[i].used;
    for (size_t i = 0; i < EVENTS_MAX; i++)
        ret->events += events[i].used;
}

/* ---- calls of tests ---- */

void standin_go_on(uint32_t device)
{
    pthread_mutex_lock(&standin_lock);
    standin_devices.hangs[device] = standin_devices.kernels_hang[device] = false;
    pthread_cond_broadcast(&asked);
    pthread_mutex_unlock(&standin_lock);
}

void standin_capture(CUstream stream, int on)
{
    pthread_mutex_lock(&standin_lock);
    stream->capturing = on != 0;
    pthread_mutex_unlock(&standin_lock);
}
