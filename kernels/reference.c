/* Plain loops, one page after the other. */
#include "kernels/reference.h"

#include <string.h>

static void *host(uint64_t at)
{
    return (void *)(uintptr_t)at;
}

static uint8_t *page_of(const struct kernels_pages *a, uint32_t i)
{
    const uint32_t *list = host(a->list);

    return (uint8_t *)host(a->pool) + list[i] * a->page_bytes;
}

static uint8_t *packed_of(const struct kernels_pages *a, uint32_t i)
{
    return (uint8_t *)host(a->packed) + i * a->page_bytes;
}

void reference_gather(const struct kernels_pages *a)
{
    for (uint32_t i = 0; i < a->n; i++)
        memcpy(packed_of(a, i), page_of(a, i), a->page_bytes);
}

void reference_scatter(const struct kernels_pages *a)
{
    for (uint32_t i = 0; i < a->n; i++)
        memcpy(page_of(a, i), packed_of(a, i), a->page_bytes);
}

void reference_zero(const struct kernels_pages *a)
{
    for (uint32_t i = 0; i < a->n; i++)
        memset(page_of(a, i), 0, a->page_bytes);
}

void reference_tell(const struct kernels_told *a)
{
    memcpy(host(a->to), a->word, a->n * sizeof *a->word);
}

void reference_run(enum kernels_kind kind, const union kernels_args *args)
{
    switch (kind) {
    case KERNELS_GATHER: reference_gather(&args->pages); break;
    case KERNELS_SCATTER: reference_scatter(&args->pages); break;
    case KERNELS_ZERO: reference_zero(&args->pages); break;
    case KERNELS_CHECKSUM_BLOCKS: reference_checksum_blocks(&args->checksum); break;
    case KERNELS_CHECKSUM_UNITS: reference_checksum_units(&args->checksum); break;
    case KERNELS_RESHARD: reference_reshard(&args->reshard); break;
    case KERNELS_FP8_PACK: reference_fp8_pack(&args->fp8); break;
    case KERNELS_FP8_UNPACK: reference_fp8_unpack(&args->fp8); break;
    case KERNELS_TELL: reference_tell(&args->told); break;
    case KERNELS_KINDS: break;
    }
}
