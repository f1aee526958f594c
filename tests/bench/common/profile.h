/* The profiles: page geometry by name, as in --profile. Only profiles of HISTORY groups exist; the
 * others are known by name and refused, so that a caller learns why. */
#ifndef BENCH_PROFILE_H
#define BENCH_PROFILE_H

#include <stdint.h>

#include "tern.h"

#define PROFILE_AXES_MAX 5

struct profile {
    const char *name, *group;
    uint32_t page_tokens;
    uint64_t page_bytes; /* over all layers and ranks */
    enum tern_shard shard;
    uint32_t layers, heads;
    const char *unsupported; /* why this build refuses it; NULL: it does not */
};

/* What one engine opens: the profile with the real byte size and its share of a rank. The layout's
 * pointers lead into this struct, so it stays where it is. */
struct geometry {
    const struct profile *profile;
    uint64_t page_bytes;   /* over all ranks; replicated groups count once */
    uint64_t region_bytes; /* of a page in one rank's region */
    uint32_t ranks;
    struct tern_axis axes[PROFILE_AXES_MAX];
    struct tern_group group;
    struct tern_layout layout;
};

/* NULL and *ret_why (static) where there is no such profile or this build has not got it. */
const struct profile *profile_find(const char *name, const char **ret_why);

/* Bytes of a pool in which `pages` pages can be had: the daemon cuts it into slabs and never uses
 * the first. */
uint64_t pool_bytes_for(uint64_t pages, uint64_t region_bytes);

/* The group is capped at pool_pages. page_bytes 0: the profile's own. NULL, or why it does not work
 * (static). */
const char *geometry_init(struct geometry *g, const struct profile *p, uint64_t page_bytes,
                          uint32_t ranks, uint32_t pool_pages);

#endif
