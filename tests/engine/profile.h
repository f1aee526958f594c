/* The profiles: page geometry by name, as in --profile. Group 0 is a HISTORY group, and L is its
 * page_tokens; a profile may have more HISTORY groups of the same page_tokens, and STATE groups. */
#ifndef ENGINE_PROFILE_H
#define ENGINE_PROFILE_H

#include <stdint.h>

#include "tern.h"

#define PROFILE_AXES_MAX   5
#define PROFILE_GROUPS_MAX 4
#define PROFILE_RESERVE    1 /* tokens of these engines' largest rewind */

struct profile_group {
    const char *name;
    enum tern_family family;
    uint32_t page_tokens, window;
    uint64_t page_bytes; /* over all layers and ranks */
};

struct profile {
    const char *name, *group;
    uint32_t page_tokens;
    uint64_t page_bytes; /* over all layers and ranks */
    enum tern_shard shard;
    uint32_t layers, heads;
    struct profile_group more[PROFILE_GROUPS_MAX - 1]; /* besides the first */
    uint32_t nmore;
};

/* The set-up of one engine: the profile with the real byte size and its share of a rank. Invariant:
 * it is never moved, because the layout's pointers point into it. */
struct geometry {
    const struct profile *profile;
    uint64_t page_bytes;       /* of the first group over all ranks; replicated groups count once */
    uint64_t region_bytes;     /* bytes of the first group's page in one rank's region */
    uint64_t region_bytes_min; /* of all groups */
    uint32_t ranks, ngroups;
    struct tern_axis axes[PROFILE_AXES_MAX];
    struct tern_group groups[PROFILE_GROUPS_MAX];
    struct tern_layout layout;
};

/* Returns NULL and *ret_why (static) if there is no such profile. */
const struct profile *profile_find(const char *name, const char **ret_why);

/* Bytes of a pool with room for `pages` pages: the daemon cuts it into slabs and never uses the
 * first. */
uint64_t pool_bytes_for(uint64_t pages, uint64_t region_bytes);

/* Each group is capped at pool_pages. page_bytes 0: the profile's own, else that of every group.
 * Returns NULL, or why it does not work (static). */
const char *geometry_init(struct geometry *g, const struct profile *p, uint64_t page_bytes,
                          uint32_t ranks, uint32_t pool_pages);

/* Pages of one HISTORY group, of no particular shape, in one rank. */
void geometry_plain(struct geometry *g, uint32_t page_tokens, uint64_t page_bytes, uint32_t pages);

/* Sets a cap for each group, a pool with room for them all, and a host tier with room for
 * host_pages of each group, 0: none. */
void geometry_caps(struct geometry *g, const uint32_t *pages, uint32_t host_pages);

#endif
