/* The chains of prefixes, computed without a daemon: a router compares its prompts with them. The
 * daemon computes its own in daemon/core (events.c, tokens.c); tests/unit/client/test_chain.c
 * checks that both agree. */
#include "base/hash.h"
#include "internal.h"
#include "proto/namespace.h"

#define PIECE 64 /* words hashed at a time */

static uint64_t hash_chunk(const uint32_t *v, uint32_t n)
{
    uint64_t h = 0;

    for (uint32_t at = 0; at < n; at += PIECE)
        h = hash_words(h, v + at, n - at < PIECE ? n - at : PIECE);
    return h;
}

uint32_t tern_chains(const struct tern_namespace *ns, const struct tern_tokens *tokens,
                     uint32_t align_tokens, uint64_t *ret, uint32_t max)
{
    uint64_t hi, lo, chain;
    uint32_t n = 0, key = 0;

    if (align_tokens == 0 || !ns || !tokens || (tokens->n && !tokens->v) ||
        (tokens->nkeys && !tokens->keys))
        return 0;
    wire_namespace((const char *const[WIRE_NAMESPACE_PARTS]){ns->model, ns->revision, ns->kv_dtype,
                                                             ns->lora, ns->salt},
                   &hi, &lo);
    chain = hash_mix(hi, lo);
    for (uint32_t at = 0; n < max && tokens->n - at >= align_tokens; at += align_tokens) {
        uint64_t h = hash_chunk(tokens->v + at, align_tokens);

        for (; key < tokens->nkeys && tokens->keys[key].position < at + align_tokens; key++)
            h = hash_mix(hash_mix(h, tokens->keys[key].position - at),
                         hash_mix(tokens->keys[key].hi, tokens->keys[key].lo));
        chain = hash_mix(chain, h);
        ret[n++] = chain;
    }
    return n;
}
