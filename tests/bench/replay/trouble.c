/* Trouble drawn from a seed: see trouble.h. */
#include "trouble.h"

#include "base/prng.h"
#include "engine/bytes.h"
#include "tern.h"

#include "base/hash.h"

#define DELAY_NS     2000000u
#define DELAY_SHIFTS 8 /* short delays as often as long ones */
#define BLOB_USUAL   4096u
#define BLOB_LARGE   32 /* one in so many has the maximum size */

/* One stream of numbers for each purpose, so that no purpose affects another. */
enum purpose { OF_KIND = 1, OF_DELAY, OF_BLOB };

static struct prng dice(uint64_t seed, uint64_t index, uint32_t handoff, enum purpose purpose)
{
    struct prng p;

    prng_init(&p, hash_mix(hash_mix(seed, index), (uint64_t)handoff << 8 | purpose));
    return p;
}

enum trouble trouble_draw(uint64_t seed, uint64_t index, uint32_t handoff, double probability)
{
    struct prng p = dice(seed, index, handoff, OF_KIND);
    double drawn = (double)(prng_u64(&p) >> 11) / (double)(UINT64_C(1) << 53);

    if (handoff >= TROUBLES_MAX || drawn >= probability)
        return TROUBLE_NONE;
    return (enum trouble)(1 + prng_below(&p, TROUBLE_KINDS - 1));
}

uint64_t trouble_delay_ns(uint64_t seed, uint64_t index, uint32_t handoff)
{
    struct prng p = dice(seed, index, handoff, OF_DELAY);

    return prng_below(&p, DELAY_NS >> prng_below(&p, DELAY_SHIFTS));
}

uint32_t blob_make(uint64_t seed, uint64_t index, uint32_t handoff, uint8_t *blob)
{
    struct prng p = dice(seed, index, handoff, OF_BLOB);
    uint32_t bytes =
        prng_below(&p, BLOB_LARGE) == 0 ? TERN_BLOB_BYTES : prng_below(&p, BLOB_USUAL + 1);

    page_fill(blob, bytes, prng_u64(&p));
    return bytes;
}
