/* See mem_pack.h. */
#include "seam/mem/mem_pack.h"

#include <string.h>

#include "seam/mem/mem_fault.h"

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

bool mem_pack(uint8_t *packed, const struct iovec *stretches, uint64_t n)
{
    return pack_all(&(struct packing){.next = stretches, .in = packed, .left = n});
}

bool mem_unpack(const struct iovec *stretches, const uint8_t *packed, uint64_t n)
{
    return pack_all(&(struct packing){.next = stretches, .out = packed, .left = n});
}
