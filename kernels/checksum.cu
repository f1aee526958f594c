/* Checksums of units (X7). The first kernel hashes sub-blocks of 4 KiB into the scratch, the second
 * hashes each unit's values there. Four threads hash together: each has a pair of accumulators and
 * loads 16 bytes of every stripe, so that neighbours load neighbours and exchange nothing before
 * the end. */
#include "kernels/device.h"
#include "kernels/xxh3.h"

struct hashed {
    const uint8_t *at;
    uint64_t bytes;
};

template <uint32_t align>
static __device__ __forceinline__ struct xxh3_pair load_pair(const uint8_t *at)
{
    struct xxh3_pair v;

    if (align == 16) {
        ulonglong2 both = *reinterpret_cast<const ulonglong2 *>(at);

        v.even = both.x;
        v.odd = both.y;
    } else {
        v.even = reinterpret_cast<const uint64_t *>(at)[0];
        v.odd = reinterpret_cast<const uint64_t *>(at)[1];
    }
    return v;
}

static __device__ __forceinline__ struct xxh3_pair load_bytes(const uint8_t *at)
{
    struct xxh3_pair v;

    v.even = xxh3_read64(at);
    v.odd = xxh3_read64(at + 8);
    return v;
}

/* Hashes the first n stripes of a span; `word` has the thread's keys for it. All loads are issued
 * before the first one is used. */
template <uint32_t align>
static __device__ __forceinline__ void add_stripes(struct xxh3_pair *acc, const uint8_t *at,
                                                   uint32_t n, const uint64_t *word)
{
    struct xxh3_pair v[XXH3_STRIPES];

#pragma unroll
    for (uint32_t k = 0; k < XXH3_STRIPES; k++)
        if (k < n)
            v[k] = load_pair<align>(at + k * XXH3_STRIPE);
#pragma unroll
    for (uint32_t k = 0; k < XXH3_STRIPES; k++)
        if (k < n)
            xxh3_add(acc, v[k], {word[k], word[k + 1]});
}

/* Returns the share of one thread of the four in the sum, for more than XXH3_SHORT_MAX bytes. The
 * thread's keys stay in registers: the key of stripe k begins with the second word of stripe k - 1.
 * The address is a multiple of `align`. */
template <uint32_t align>
static __device__ __forceinline__ uint64_t long_part(const struct hashed *h, uint32_t pair)
{
    const uint8_t *at = h->at + 16 * pair, *last = at + h->bytes - XXH3_STRIPE;
    uint64_t spans = (h->bytes - 1) / XXH3_SPAN, word[XXH3_STRIPES + 1];
    uint32_t stripes = static_cast<uint32_t>((h->bytes - 1) % XXH3_SPAN / XXH3_STRIPE);
    struct xxh3_pair acc = xxh3_begin(pair);

#pragma unroll
    for (uint32_t k = 0; k <= XXH3_STRIPES; k++) {
        word[k] = xxh3_secret[2 * pair + k];
        KERNELS_KEEP(word[k]);
    }
    for (uint64_t span = 0; span < spans; span++, at += XXH3_SPAN) {
        add_stripes<align>(&acc, at, XXH3_STRIPES, word);
        xxh3_scramble(&acc, pair);
    }
    add_stripes<align>(&acc, at, stripes, word);
    xxh3_add(&acc, h->bytes % align ? load_bytes(last) : load_pair<align>(last),
             xxh3_keys(XXH3_AT_LAST, pair));
    return xxh3_merge(&acc, pair);
}

/* Returns the same for any address, byte by byte. */
static __device__ __forceinline__ uint64_t long_part_bytes(const struct hashed *h, uint32_t pair)
{
    const uint8_t *at = h->at + 16 * pair;
    uint64_t stripes = (h->bytes - 1) / XXH3_STRIPE;
    struct xxh3_pair acc = xxh3_begin(pair);

    KERNELS_LOOP
    for (uint64_t k = 0; k < stripes; k++) {
        uint32_t key_at = static_cast<uint32_t>(k % XXH3_STRIPES) * 8;

        xxh3_add(&acc, load_bytes(at + k * XXH3_STRIPE), xxh3_keys(key_at, pair));
        if (k % XXH3_STRIPES == XXH3_STRIPES - 1)
            xxh3_scramble(&acc, pair);
    }
    xxh3_add(&acc, load_bytes(at + h->bytes - XXH3_STRIPE), xxh3_keys(XXH3_AT_LAST, pair));
    return xxh3_merge(&acc, pair);
}

static __device__ __forceinline__ uint64_t part_of(const struct hashed *h, uint32_t pair)
{
    uintptr_t at = reinterpret_cast<uintptr_t>(h->at);

    if (h->bytes <= XXH3_SHORT_MAX)
        return pair == 0 ? xxh3_short(h->at, static_cast<uint32_t>(h->bytes)) : 0;
    if (at % 16 == 0)
        return long_part<16>(h, pair);
    return at % 8 == 0 ? long_part<8>(h, pair) : long_part_bytes(h, pair);
}

/* Returns the hash from the parts of the four threads. */
static __device__ __forceinline__ uint64_t value_of(const struct hashed *h, const uint64_t *part)
{
    return h->bytes <= XXH3_SHORT_MAX ? part[0]
                                      : xxh3_end(part[0] + part[1] + part[2] + part[3], h->bytes);
}

typedef struct hashed find_fn(const struct kernels_checksum *a, uint64_t i);
typedef uint64_t *to_fn(const struct kernels_checksum *a, uint64_t i);

/* Writes the hash of each range that `find` returns to the place that `to` returns. All threads of
 * a block reach every barrier. */
template <find_fn *find, to_fn *to>
static __device__ __forceinline__ void hash_all(const struct kernels_checksum *a, uint64_t all)
{
    __shared__ uint64_t part[KERNELS_THREADS];
    uint32_t pair = threadIdx.x % XXH3_PAIRS;
    uint64_t first = static_cast<uint64_t>(blockIdx.x) * KERNELS_HASHED;

    for (; first < all; first += static_cast<uint64_t>(gridDim.x) * KERNELS_HASHED) {
        uint64_t i = first + threadIdx.x / XXH3_PAIRS;
        struct hashed h = {nullptr, 0};

        if (i < all) {
            h = find(a, i);
            part[threadIdx.x] = part_of(&h, pair);
        }
        __syncthreads();
        if (i < all && pair == 0)
            *to(a, i) = value_of(&h, &part[threadIdx.x]);
        __syncthreads(); /* before the parts are overwritten */
    }
}

static __device__ __forceinline__ struct hashed find_block(const struct kernels_checksum *a,
                                                           uint64_t i)
{
    uint64_t in_list = i / a->page_blocks, page = memory<const uint32_t>(a->list)[in_list];
    uint32_t block = static_cast<uint32_t>(i - in_list * a->page_blocks);
    uint32_t unit = block / a->unit_blocks;
    uint64_t share = a->page_bytes / a->units, from, end, at;

    if (unit >= a->units)
        unit = a->units - 1;
    from = share * unit;
    end = unit + 1 == a->units ? a->page_bytes : from + share;
    at = from + static_cast<uint64_t>(block - unit * a->unit_blocks) * KERNELS_BLOCK;
    return {memory<const uint8_t>(a->pool) + page * a->page_bytes + at,
            end - at < KERNELS_BLOCK ? end - at : KERNELS_BLOCK};
}

static __device__ __forceinline__ uint64_t *block_to(const struct kernels_checksum *a, uint64_t i)
{
    return memory<uint64_t>(a->blocks) + i;
}

static __device__ __forceinline__ struct hashed find_unit(const struct kernels_checksum *a,
                                                          uint64_t i)
{
    uint64_t in_list = i / a->units, unit = i - in_list * a->units;
    uint64_t first = in_list * a->page_blocks + unit * a->unit_blocks;
    uint64_t end = unit + 1 == a->units ? (in_list + 1) * a->page_blocks : first + a->unit_blocks;

    return {memory<const uint8_t>(a->blocks) + first * sizeof(uint64_t),
            (end - first) * sizeof(uint64_t)};
}

static __device__ __forceinline__ uint64_t *unit_to(const struct kernels_checksum *a, uint64_t i)
{
    uint64_t in_list = i / a->units;

    if (a->places == 0)
        return memory<uint64_t>(a->sums) + i;
    return memory<uint64_t>(a->sums + memory<const uint32_t>(a->places)[in_list] * a->place_bytes) +
           (i - in_list * a->units);
}

extern "C" __global__ void tern_checksum_blocks(struct kernels_checksum a)
{
    hash_all<find_block, block_to>(&a, static_cast<uint64_t>(a.n) * a.page_blocks);
}

extern "C" __global__ void tern_checksum_units(struct kernels_checksum a)
{
    hash_all<find_unit, unit_to>(&a, static_cast<uint64_t>(a.n) * a.units);
}
