/* The checksum of a unit (X7), over XXH3. Called by the workers of mem to seal a page and by xfer
 * for every page that arrives. Each block's value goes to a small array; only a unit of more than
 * CHECKSUM_LEAVES blocks needs XXH3's streaming state, so the usual page costs one pass and no
 * set-up of a state. */
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "seam/mem/checksum.h"

#include <assert.h>
#include <string.h>

#define STATE_ALIGN 64

static_assert(sizeof(XXH3_state_t) + STATE_ALIGN <= CHECKSUM_FOLD_BYTES,
              "the streaming state fits, wherever the struct starts");
static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "values are hashed as they lie in memory");

static XXH3_state_t *state_of(struct checksum *c)
{
    uintptr_t at = ((uintptr_t)c->state + STATE_ALIGN - 1) & ~(uintptr_t)(STATE_ALIGN - 1);

    return (XXH3_state_t *)at;
}

static void fold(struct checksum *c)
{
    if (!c->folded)
        XXH3_64bits_reset(state_of(c));
    c->folded = 1;
    XXH3_64bits_update(state_of(c), c->leaf, c->nleaves * sizeof c->leaf[0]);
    c->nleaves = 0;
}

void checksum_begin(struct checksum *c)
{
    c->nleaves = 0;
    c->folded = 0;
    c->npart = 0;
}

/* The bytes are whole blocks, or the end of the unit. */
static void feed_blocks(struct checksum *c, const uint8_t *p, size_t n)
{
    while (n > 0) {
        size_t room, take;

        if (c->nleaves == CHECKSUM_LEAVES)
            fold(c);
        room = (size_t)(CHECKSUM_LEAVES - c->nleaves) * CHECKSUM_BLOCK;
        take = n < room ? n : room;
        checksum_blocks(p, take, &c->leaf[c->nleaves]);
        c->nleaves += (uint32_t)((take + CHECKSUM_BLOCK - 1) / CHECKSUM_BLOCK);
        p += take;
        n -= take;
    }
}

void checksum_feed(struct checksum *c, const void *bytes, size_t n)
{
    const uint8_t *p = bytes;

    while (n > 0) {
        size_t room = CHECKSUM_BLOCK - c->npart, take = n < room ? n : room;

        if (c->npart == 0 && n >= CHECKSUM_BLOCK) {
            take = n - n % CHECKSUM_BLOCK;
            feed_blocks(c, p, take);
        } else {
            memcpy(c->part + c->npart, p, take);
            c->npart += (uint32_t)take;
        }
        if (c->npart == CHECKSUM_BLOCK) {
            feed_blocks(c, c->part, CHECKSUM_BLOCK);
            c->npart = 0;
        }
        p += take;
        n -= take;
    }
}

uint64_t checksum_end(struct checksum *c)
{
    feed_blocks(c, c->part, c->npart);
    c->npart = 0;
    if (c->folded) {
        fold(c);
        return XXH3_64bits_digest(state_of(c));
    }
    return checksum_fold(c->leaf, c->nleaves);
}

uint64_t checksum_unit(const void *bytes, size_t n)
{
    struct checksum c;

    checksum_begin(&c);
    feed_blocks(&c, bytes, n);
    return checksum_end(&c);
}
