/* See mem_pack.h. */
#include "seam/mem/mem_pack.h"

#include <string.h>

#include "seam/mem/mem_fault.h"
#include "seam/mem/mem_touch.h"

struct packing {
    const struct iovec *next;
    uint8_t *packed; /* of the next stretch; unpack: only read */
    bool unpack;
    uint64_t left;
};

static void pack_touch(void *ctx)
{
    struct packing *p = ctx;

    while (p->left > 0) {
        const struct iovec *s = p->next++;
        uint64_t n = s->iov_len < p->left ? s->iov_len : p->left;
        uint8_t *packed = p->packed;

        p->left -= n; /* skip lost memory, and resume after it */
        p->packed += n;
        if (p->unpack)
            memcpy(s->iov_base, packed, n);
        else
            memcpy(packed, s->iov_base, n);
    }
}

static bool pack_all(struct packing *p)
{
    bool all = true;

    while (!mem_fault_bytes(pack_touch, p))
        all = false;
    return all;
}

/* Counts the bytes, up to p->left, of the next stretches, as long as they lie on devices. */
static uint64_t far_bytes(const struct mem *mem, const struct packing *p, uint32_t *ret_n)
{
    uint64_t bytes = 0;

    for (*ret_n = 0; bytes < p->left && mem_far_at(mem, p->next[*ret_n].iov_base); ++*ret_n)
        bytes += p->next[*ret_n].iov_len;
    return bytes < p->left ? bytes : p->left;
}

/* Packs stretches of devices together, and other stretches one by one. */
static bool pack_far(const struct mem *mem, struct packing *p)
{
    bool all = true;

    while (p->left > 0) {
        uint32_t stretches;
        uint64_t n = far_bytes(mem, p, &stretches);
        bool ok;

        if (n > 0) {
            mem_fault_not_owner();
            ok = mem_far(mem)->pack(mem_far(mem)->ctx, p->next, n, p->packed, p->unpack);
        } else {
            const struct iovec *s = p->next;

            stretches = 1;
            n = s->iov_len < p->left ? s->iov_len : p->left;
            ok = p->unpack ? mem_put(mem, s->iov_base, p->packed, n)
                           : mem_get(mem, p->packed, s->iov_base, n);
        }
        all = ok && all;
        p->next += stretches;
        p->left -= n;
        p->packed += n;
    }
    return all;
}

static bool pack_any(const struct mem *mem, struct packing *p)
{
    return mem_far(mem) ? pack_far(mem, p) : pack_all(p);
}

bool mem_pack_needed(const struct mem *mem, const struct iovec *stretches, uint32_t n)
{
    bool needed = false;

    for (uint32_t i = 0; mem_far(mem) && i < n && !needed; i++)
        needed = mem_far_at(mem, stretches[i].iov_base) != NULL;
    return needed;
}

bool mem_pack(const struct mem *mem, uint8_t *packed, const struct iovec *stretches, uint64_t n)
{
    return pack_any(mem, &(struct packing){.next = stretches, .packed = packed, .left = n});
}

bool mem_unpack(const struct mem *mem, const struct iovec *stretches, const uint8_t *packed,
                uint64_t n)
{
    return pack_any(mem, &(struct packing){.next = stretches,
                                           .packed = (uint8_t *)(uintptr_t)packed,
                                           .unpack = true,
                                           .left = n});
}
