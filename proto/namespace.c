/* See namespace.h. */
#include "proto/namespace.h"

#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

/* Each part with its length before it, so that ("ab", "c") and ("a", "bc") differ. */
void wire_namespace(const char *const parts[WIRE_NAMESPACE_PARTS], uint64_t *ret_hi,
                    uint64_t *ret_lo)
{
    XXH3_state_t state;
    XXH128_hash_t h;

    XXH3_128bits_reset(&state);
    for (uint32_t i = 0; i < WIRE_NAMESPACE_PARTS; i++) {
        uint32_t n = parts[i] ? (uint32_t)strlen(parts[i]) : 0;

        XXH3_128bits_update(&state, &n, sizeof(n));
        if (n)
            XXH3_128bits_update(&state, parts[i], n);
    }
    h = XXH3_128bits_digest(&state);
    *ret_hi = h.high64;
    *ret_lo = h.low64;
}
