#include "gpu/arena.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/reference.h"

#define ARENA_ALIGN 256

static void *must(void *p)
{
    if (p)
        return p;
    fprintf(stderr, "cases: no host memory is left\n");
    exit(2);
}

void arena_random(uint8_t *to, size_t n, struct prng *p)
{
    for (; n >= sizeof(uint64_t); n -= sizeof(uint64_t), to += sizeof(uint64_t)) {
        uint64_t word = prng_u64(p);

        memcpy(to, &word, sizeof word);
    }
    while (n-- > 0)
        *to++ = (uint8_t)prng_u64(p);
}

void arena_begin(struct arena *a, const struct device *d, size_t bytes, struct prng *p)
{
    bytes = (bytes + ARENA_ALIGN - 1) / ARENA_ALIGN * ARENA_ALIGN;
    *a = (struct arena){.device = d,
                        .want = must(aligned_alloc(ARENA_ALIGN, bytes)),
                        .got = must(aligned_alloc(ARENA_ALIGN, bytes)),
                        .at = d->take(d->ctx, bytes),
                        .bytes = bytes,
                        .used = ARENA_GUARD};
    arena_random(a->want, bytes, p);
}

size_t arena_take(struct arena *a, size_t bytes, size_t align)
{
    size_t at = (a->used + align - 1) / align * align;

    a->used = at + bytes + ARENA_GUARD;
    if (a->used <= a->bytes)
        return at;
    fprintf(stderr, "cases: an arena of %zu bytes is too small for %zu\n", a->bytes, a->used);
    exit(2);
}

void arena_put(struct arena *a)
{
    a->device->put(a->device->ctx, a->at, a->want, a->bytes);
}

uint64_t arena_address(const struct arena *a, bool device)
{
    return device ? a->at : (uint64_t)(uintptr_t)a->want;
}

void arena_run(const struct arena *a, enum kernels_kind kind, union kernels_args *host,
               union kernels_args *device)
{
    struct kernels_launch launch;
    enum kernels_refusal no = kernels_prepare(kind, host, &launch);

    if (!no)
        no = kernels_prepare(kind, device, &launch);
    if (no) {
        fprintf(stderr, "cases: refused: %s\n", kernels_text(no));
        exit(2);
    }
    reference_run(kind, host);
    if (launch.grid > 0)
        a->device->launch(a->device->ctx, kind, &launch, device);
}

void arena_end(struct arena *a, struct case_result *io)
{
    size_t at = 0, said = strlen(io->text);

    a->device->get(a->device->ctx, a->got, a->at, a->bytes);
    io->ok = memcmp(a->want, a->got, a->bytes) == 0;
    while (!io->ok && a->want[at] == a->got[at])
        at++;
    if (!io->ok)
        snprintf(io->text + said, sizeof io->text - said,
                 ": byte %zu of the arena is %u, and the reference's is %u", at, a->got[at],
                 a->want[at]);
    a->device->give(a->device->ctx, a->at);
    free(a->want);
    free(a->got);
}
