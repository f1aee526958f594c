/* The table of profiles: see profile.h. A rank's region holds its share of every page, or all of it
 * where the group is replicated. --page-bytes changes how many bytes a page has, never how many
 * tokens, layers or heads. */
#include "profile.h"

#include <string.h>

#define SLABS_OF_POOL 1024 /* about as many as the daemon cuts a pool into */

#define NO_STATE                                                                                   \
    "it has STATE groups, which this build has not got: use tiny, tiny-256, llama-70b or "         \
    "deepseek-v3"

static const struct profile profiles[] = {
    {"tiny", "kv", 64, 4096, TERN_SHARD_HEADS, 2, 8, NULL},
    {"tiny-256", "kv", 256, 4096, TERN_SHARD_HEADS, 2, 8, NULL},
    {"llama-70b", "kv", 64, 64 * 327680u, TERN_SHARD_HEADS, 80, 8, NULL},
    {"deepseek-v3", "mla", 64, 64 * 70272u, TERN_SHARD_REPLICATED, 61, 1, NULL},
    {"tiny-state", "kv", 64, 4096, TERN_SHARD_HEADS, 2, 8, NO_STATE},
    {"hybrid", "kv", 64, 16384, TERN_SHARD_HEADS, 2, 8, NO_STATE},
    {"deepseek-v4", "c4a_kv", 256, 65536, TERN_SHARD_REPLICATED, 61, 1, NO_STATE},
};

const struct profile *profile_find(const char *name, const char **ret_why)
{
    for (size_t i = 0; i < sizeof profiles / sizeof profiles[0]; i++) {
        if (strcmp(profiles[i].name, name) != 0)
            continue;
        if (profiles[i].unsupported) {
            *ret_why = profiles[i].unsupported;
            return NULL;
        }
        return &profiles[i];
    }
    *ret_why = "there is no such profile: use tiny, tiny-256, llama-70b or deepseek-v3";
    return NULL;
}

/* Layer, token, head, as the bytes lie in the page; what is left over is one head's element. A byte
 * size that the shape does not divide has no axes to name. */
static uint32_t make_axes(struct geometry *g)
{
    const struct profile *p = g->profile;
    uint32_t heads = p->shard == TERN_SHARD_HEADS ? p->heads / g->ranks : p->heads;
    uint64_t cells = (uint64_t)p->layers * p->page_tokens * heads;
    uint64_t cell = cells ? g->region_bytes / cells : 0;

    if (cell == 0 || cell * cells != g->region_bytes)
        return 0;
    g->axes[0] = (struct tern_axis){"layer", p->layers, cell * heads * p->page_tokens};
    g->axes[1] = (struct tern_axis){"token", p->page_tokens, cell * heads};
    g->axes[2] = (struct tern_axis){"head", heads, cell};
    return 3;
}

uint64_t pool_bytes_for(uint64_t pages, uint64_t region_bytes)
{
    return (pages + 3 * (pages / SLABS_OF_POOL) + 16) * region_bytes;
}

const char *geometry_init(struct geometry *g, const struct profile *p, uint64_t page_bytes,
                          uint32_t ranks, uint32_t pool_pages)
{
    *g = (struct geometry){
        .profile = p, .page_bytes = page_bytes ? page_bytes : p->page_bytes, .ranks = ranks};
    if (ranks == 0 || ranks > TERN_RANKS_MAX)
        return "an engine has 1 to 16 ranks";
    g->region_bytes = g->page_bytes;
    if (p->shard == TERN_SHARD_HEADS) {
        if (p->heads % ranks)
            return "the ranks must divide the profile's heads";
        if (g->page_bytes % ranks)
            return "the ranks must divide the page's bytes";
        g->region_bytes /= ranks;
    }
    if (g->region_bytes == 0 || g->region_bytes % 8)
        return "a rank's share of a page must be a multiple of 8 bytes";
    g->group = (struct tern_group){
        .name = p->group,
        .family = TERN_HISTORY,
        .page_tokens = p->page_tokens,
        .page_bytes = g->region_bytes,
        .units = 1,
        .cap_pages = pool_pages,
        .axes = g->axes,
    };
    g->group.naxes = make_axes(g);
    if (g->group.naxes == 0)
        g->group.axes = NULL;
    g->layout = (struct tern_layout){
        .groups = &g->group,
        .ngroups = 1,
        .shard = p->shard,
        .bytes = pool_bytes_for(pool_pages, g->region_bytes),
    };
    return NULL;
}
