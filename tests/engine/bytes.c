/* Tokens, page seeds and page bytes: see bytes.h. Called by the engines of tern-replay and
 * tern-bench for every token and every byte, so all loops are plain counters that a compiler can
 * vectorise. */
#include "engine/bytes.h"

#include <string.h>

#include "base/hash.h"

#define LANES 8 /* words made side by side */

static uint32_t scramble(uint32_t x)
{
    x ^= x >> 16;
    x *= 0x7feb352du;
    x ^= x >> 15;
    x *= 0x846ca68bu;
    return x ^ (x >> 16);
}

void block_tokens(uint64_t id, uint32_t first, uint32_t n, uint32_t *out)
{
    uint32_t base = (uint32_t)hash_mix(id, 0x746f6b656e73u);

    for (uint32_t i = 0; i < n; i++)
        out[i] =
            scramble(base + (first + i) * 0x9e3779b9u) & 0x1ffffu; /* a vocabulary of 131,072 */
}

static uint64_t chain_text(uint64_t h, const char *text)
{
    for (; *text; text++)
        h = hash_mix(h, (uint8_t)*text);
    return hash_mix(h, 0x100); /* a separator, not a byte: "ab","c" differs from "a","bc" */
}

uint64_t content_root(const char *tenant, const char *model, const char *salt, const char *group)
{
    uint64_t h = chain_text(0, tenant);

    h = chain_text(h, model);
    h = chain_text(h, salt);
    return chain_text(h, group);
}

uint64_t content_chain(uint64_t prefix, const uint32_t *tokens, uint32_t n)
{
    return hash_words(prefix, tokens, n);
}

uint64_t page_seed(uint64_t prefix, uint32_t page, uint32_t rank)
{
    return hash_mix(prefix, (uint64_t)rank << 32 | page);
}

/* Word i of a page is mix(seed + i * stride): a different seed or a shifted position changes nearly
 * every word. */
struct lanes {
    uint64_t x[LANES], step;
};

static void lanes_init(struct lanes *l, uint64_t seed)
{
    uint64_t stride = hash_mix(seed, 0x7061676573u) | 1;

    for (uint32_t i = 0; i < LANES; i++)
        l->x[i] = seed + i * stride;
    l->step = LANES * stride;
}

static inline void lanes_next(struct lanes *l, uint64_t out[LANES])
{
    for (uint32_t i = 0; i < LANES; i++) {
        out[i] = l->x[i] ^ (l->x[i] >> 29);
        l->x[i] += l->step;
    }
}

void page_fill(void *page, size_t bytes, uint64_t seed)
{
    struct lanes l;
    uint64_t w[LANES];
    uint8_t *at = page;

    lanes_init(&l, seed);
    for (; bytes >= sizeof w; bytes -= sizeof w, at += sizeof w) {
        lanes_next(&l, w);
        memcpy(at, w, sizeof w);
    }
    lanes_next(&l, w);
    memcpy(at, w, bytes);
}

static size_t count_wrong(const uint8_t *at, const uint8_t *want, size_t n)
{
    size_t wrong = 0;

    for (size_t i = 0; i < n; i++)
        wrong += at[i] != want[i];
    return wrong;
}

size_t page_compare(const void *page, size_t bytes, uint64_t seed)
{
    struct lanes l;
    uint64_t want[LANES], have[LANES];
    const uint8_t *at = page;
    size_t wrong = 0;

    lanes_init(&l, seed);
    for (; bytes >= sizeof want; bytes -= sizeof want, at += sizeof want) {
        uint64_t diff = 0;

        lanes_next(&l, want);
        memcpy(have, at, sizeof have);
        for (uint32_t i = 0; i < LANES; i++)
            diff |= want[i] ^ have[i];
        if (diff)
            wrong += count_wrong(at, (const uint8_t *)want, sizeof want);
    }
    lanes_next(&l, want);
    return wrong + count_wrong(at, (const uint8_t *)want, bytes);
}
