/* See mem_pack.h. */
#include "seam/mem/mem_pack.h"

#include <string.h>

#include "seam/mem/mem_fault.h"
#include "seam/mem/mem_touch.h"

struct packing {
    const struct iovec *next;
    uint8_t *in;        /* pack: where the next stretch goes to; NULL: */
    const uint8_t *out; /* unpack: where it comes from */
    uint64_t left;
};

static void pack_touch(void *ctx)
{
    struct packing *p = ctx;

    while (p->left > 0) {
        const struct iovec *s = p->next++;
        uint64_t n = s->iov_len < p->left ? s->iov_len : p->left;
        const uint8_t *out = p->out;
        uint8_t *in = p->in;

        p->left -= n; /* where memory is gone it goes on behind it */
        if (in) {
            p->in += n;
            memcpy(in, s->iov_base, n);
        } else {
            p->out += n;
            memcpy(s->iov_base, out, n);
        }
    }
}

static bool pack_all(struct packing *p)
{
    bool all = true;

    while (!mem_fault_bytes(pack_touch, p))
        all = false;
    return all;
}

/* Stretch by stretch, where some may be memory of a device. */
static bool pack_far(const struct mem *mem, struct packing *p)
{
    bool all = true;

    while (p->left > 0) {
        const struct iovec *s = p->next++;
        uint64_t n = s->iov_len < p->left ? s->iov_len : p->left;

        p->left -= n;
        if (p->in) {
            all = mem_get(mem, p->in, s->iov_base, n) && all;
            p->in += n;
        } else {
            all = mem_put(mem, s->iov_base, p->out, n) && all;
            p->out += n;
        }
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
        needed = mem_is_far(mem, stretches[i].iov_base);
    return needed;
}

bool mem_pack(const struct mem *mem, uint8_t *packed, const struct iovec *stretches, uint64_t n)
{
    return pack_any(mem, &(struct packing){.next = stretches, .in = packed, .left = n});
}

bool mem_unpack(const struct mem *mem, const struct iovec *stretches, const uint8_t *packed,
                uint64_t n)
{
    return pack_any(mem, &(struct packing){.next = stretches, .out = packed, .left = n});
}
