/* See rules.h. */
#include "gpu/rules.h"

#include <string.h>

#include "gpu/exporter.h"

#define DEVICES 2
#define BYTES   4096

/* Mapped memory of a device, to which no device has access at first. */
struct block {
    CUmemGenericAllocationHandle handle;
    CUdeviceptr at;
    size_t bytes;
};

struct asking {
    const struct driver *d;
    struct rules_answer *ret;
    int devices;
    CUdevice device[DEVICES];
    CUcontext context[DEVICES];
    CUstream stream; /* of the first device */
    CUevent event;
};

const char *rules_text(enum rules_name name)
{
    static const char *const texts[] = {
#define X(NAME, text) text,
        RULES_TABLE(X)
#undef X
    };

    return texts[name];
}

const char *rules_word(enum rules_word word)
{
    static const char *const words[] = {"not tried", "confirmed", "refuted"};

    return words[word];
}

static void answer(struct asking *a, enum rules_name name, CUresult seen, bool right)
{
    a->ret[name].word = right ? RULES_CONFIRMED : RULES_REFUTED;
    a->ret[name].seen = driver_error_name(a->d, seen);
}

static bool block_map(const struct asking *a, struct block *b)
{
    return a->d->address_reserve(&b->at, b->bytes, b->bytes, 0, 0) == CUDA_SUCCESS &&
           a->d->mem_map(b->at, b->bytes, 0, b->handle, 0) == CUDA_SUCCESS;
}

static bool block_take(const struct asking *a, int on, struct block *ret)
{
    const CUmemAllocationProp prop = {
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = a->device[on]}};
    const struct driver *d = a->d;

    *ret = (struct block){0};
    return d->mem_granularity(&ret->bytes, &prop, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED) ==
               CUDA_SUCCESS &&
           ret->bytes > 0 && d->mem_create(&ret->handle, ret->bytes, &prop, 0) == CUDA_SUCCESS &&
           block_map(a, ret);
}

static void block_give(const struct asking *a, const struct block *b)
{
    if (b->at) {
        a->d->mem_unmap(b->at, b->bytes);
        a->d->address_free(b->at, b->bytes);
    }
    if (b->handle)
        a->d->mem_release(b->handle);
}

static CUresult access_give(const struct asking *a, const struct block *b, int to)
{
    const CUmemAccessDesc access = {
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = a->device[to]},
        .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};

    return a->d->mem_access(b->at, b->bytes, &access, 1);
}

/* Copies on the first device. */
static CUresult copy(const struct asking *a, const struct block *to, const struct block *from)
{
    CUresult result = a->d->copy_async(to->at, from->at, BYTES, a->stream);

    if (result == CUDA_SUCCESS)
        result = a->d->event_record(a->event, a->stream);
    return result == CUDA_SUCCESS ? a->d->event_wait(a->event) : result;
}

/* Checks the rules of granted access. The first device has access to `here`, the second one to
 * `there`, which is its own memory. */
static void given_ask(struct asking *a, const struct block *here, const struct block *there)
{
    uint8_t bytes[BYTES], came[BYTES] = {0};
    CUresult result = access_give(a, there, 0);

    memset(bytes, 0x5a, sizeof bytes);
    a->d->context_set(a->context[1]);
    if (result == CUDA_SUCCESS)
        result = a->d->copy_to_device(there->at, bytes, sizeof bytes);
    a->d->context_set(a->context[0]);
    answer(a, RULES_PEER_ADDED, result, result == CUDA_SUCCESS);
    if (result != CUDA_SUCCESS)
        return;
    result = copy(a, here, there);
    if (result == CUDA_SUCCESS)
        result = a->d->copy_to_host(came, here->at, sizeof came);
    answer(a, RULES_PEER_GIVEN, result, memcmp(bytes, came, sizeof bytes) == 0);
}

/* A driver that does not refuse the copy may lose the device by it. Returns false if it did. */
static bool closed_ask(struct asking *a, enum rules_name name, const struct block *here,
                       const struct block *closed)
{
    CUresult result = copy(a, here, closed);

    answer(a, name, result, result == CUDA_ERROR_INVALID_VALUE);
    return !driver_is_lost(result);
}

static void peers_ask(struct asking *a, const struct block *here, bool *ret_reached)
{
    struct block there;
    int can = 0;
    bool ready = a->d->device_reaches(&can, a->device[0], a->device[1]) == CUDA_SUCCESS;

    *ret_reached = ready && can;
    ready = block_take(a, 1, &there) && ready && access_give(a, &there, 1) == CUDA_SUCCESS;
    if (ready && can) {
        given_ask(a, here, &there);
    } else if (ready) {
        CUresult result = access_give(a, &there, 0);

        answer(a, RULES_PEER_REFUSED, result, result == CUDA_ERROR_INVALID_DEVICE);
    }
    block_give(a, &there);
}

static void export_ask(struct asking *a, int exported)
{
    static uint8_t bytes[EXPORTER_BYTES];
    struct block b = {.bytes = sizeof bytes};
    bool right = false;
    CUresult result = a->d->mem_import(&b.handle, (void *)(intptr_t)exported,
                                       CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);

    if (result == CUDA_SUCCESS && block_map(a, &b) && access_give(a, &b, 0) == CUDA_SUCCESS) {
        result = a->d->copy_to_host(bytes, b.at, sizeof bytes);
        right = result == CUDA_SUCCESS;
    }
    for (size_t i = 0; i < sizeof bytes && right; i++)
        right = bytes[i] == EXPORTER_FILL;
    answer(a, RULES_EXPORT_LIVES, result, right);
    block_give(a, &b);
}

/* Checks that may lose a device come last. */
static void blocks_ask(struct asking *a, int exported)
{
    struct block here, closed = {0}, far = {0};
    bool reached = false, goes_on;

    if (block_take(a, 0, &here) && access_give(a, &here, 0) == CUDA_SUCCESS) {
        if (a->devices > 1)
            peers_ask(a, &here, &reached);
        if (exported >= 0)
            export_ask(a, exported);
        goes_on = block_take(a, 0, &closed) && closed_ask(a, RULES_OWN_NEEDED, &here, &closed);
        if (goes_on && reached && block_take(a, 1, &far) && access_give(a, &far, 1) == CUDA_SUCCESS)
            (void)closed_ask(a, RULES_PEER_NEEDED, &here, &far);
        block_give(a, &closed);
        block_give(a, &far);
    }
    block_give(a, &here);
}

void rules_ask(const struct driver *d, int exported, struct rules_answer ret[RULES_NAMES])
{
    struct asking a = {.d = d, .ret = ret};
    int devices = 0, retained = 0;

    memset(ret, 0, RULES_NAMES * sizeof *ret);
    if (d->device_count(&devices) != CUDA_SUCCESS)
        return;
    a.devices = devices < DEVICES ? devices : DEVICES;
    while (retained < a.devices && d->device_get(&a.device[retained], retained) == CUDA_SUCCESS &&
           d->context_retain(&a.context[retained], a.device[retained]) == CUDA_SUCCESS)
        retained++;
    if (retained > 0 && retained == a.devices && d->context_set(a.context[0]) == CUDA_SUCCESS &&
        d->stream_create(&a.stream, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS &&
        d->event_create(&a.event, CU_EVENT_DISABLE_TIMING) == CUDA_SUCCESS)
        blocks_ask(&a, exported);
    if (a.event)
        d->event_destroy(a.event);
    if (a.stream)
        d->stream_destroy(a.stream);
    d->context_set(NULL);
    while (retained-- > 0)
        d->context_release(a.device[retained]);
}
