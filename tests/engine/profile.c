/* The table of profiles: see profile.h. A rank's region has its share of every page, or the whole
 * page if the group is replicated. --page-bytes changes how many bytes a page has, never how many
 * tokens, layers or heads. */
#include "engine/profile.h"

#include <string.h>

#define SLABS_OF_POOL 1024 /* about as many as the daemon cuts a pool into */

#define NAMES                                                                                      \
    "use tiny, tiny-16, tiny-256, tiny-state, hybrid, llama-70b, deepseek-v3 or deepseek-v4"

static const struct profile profiles[] = {
    {"tiny", "kv", 64, 4096, TERN_SHARD_HEADS, 2, 8, {{0}}, 0},
    {"tiny-16", "kv", 16, 1024, TERN_SHARD_HEADS, 2, 8, {{0}}, 0},
    {"tiny-256", "kv", 256, 4096, TERN_SHARD_HEADS, 2, 8, {{0}}, 0},
    {"llama-70b", "kv", 64, 64 * 327680u, TERN_SHARD_HEADS, 80, 8, {{0}}, 0},
    {"deepseek-v3", "mla", 64, 64 * 70272u, TERN_SHARD_REPLICATED, 61, 1, {{0}}, 0},
    {"tiny-state",
     "kv",
     64,
     4096,
     TERN_SHARD_HEADS,
     2,
     8,
     {{"swa", TERN_WINDOW, 32, 128, 4096}},
     1},
    {"hybrid", "kv", 64, 16384, TERN_SHARD_HEADS, 2, 8, {{"ssm", TERN_RECURRENT, 64, 0, 65536}}, 1},
    {"deepseek-v4",
     "c4a_kv",
     256,
     65536,
     TERN_SHARD_REPLICATED,
     61,
     1,
     {{"c128a_kv", TERN_HISTORY, 256, 0, 8192},
      {"c4a_state", TERN_WINDOW, 4, 8, 16384},
      {"c128a_state", TERN_WINDOW, 8, 128, 16384}},
     3},
};

const struct profile *profile_find(const char *name, const char **ret_why)
{
    for (size_t i = 0; i < sizeof profiles / sizeof profiles[0]; i++) {
        if (strcmp(profiles[i].name, name) == 0)
            return &profiles[i];
    }
    *ret_why = "there is no such profile: " NAMES;
    return NULL;
}

/* Layer, token, head, as the bytes lie in the page; the rest is one head's element. A byte size
 * that the shape does not divide has no axes. */
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

/* The bytes of a page in one region; 0 if the ranks do not divide it. */
static uint64_t share(const struct geometry *g, uint64_t page_bytes)
{
    if (g->profile->shard != TERN_SHARD_HEADS)
        return page_bytes;
    return page_bytes % g->ranks ? 0 : page_bytes / g->ranks;
}

static const char *make_groups(struct geometry *g, uint64_t page_bytes)
{
    const struct profile *p = g->profile;

    g->ngroups = 1 + p->nmore;
    g->groups[0] = (struct tern_group){.name = p->group,
                                       .family = TERN_HISTORY,
                                       .page_tokens = p->page_tokens,
                                       .page_bytes = share(g, g->page_bytes),
                                       .units = 1};
    for (uint32_t i = 0; i < p->nmore; i++) {
        const struct profile_group *m = &p->more[i];

        g->groups[1 + i] =
            (struct tern_group){.name = m->name,
                                .family = m->family,
                                .page_tokens = m->page_tokens,
                                .page_bytes = share(g, page_bytes ? page_bytes : m->page_bytes),
                                .units = 1,
                                .window = m->window,
                                .reserve = m->family == TERN_WINDOW ? PROFILE_RESERVE : 0};
    }
    for (uint32_t i = 0; i < g->ngroups; i++) {
        uint64_t bytes = g->groups[i].page_bytes;

        if (bytes == 0)
            return "the ranks must divide the page's bytes";
        if (bytes % 8)
            return "a rank's share of a page must be a multiple of 8 bytes";
        if (i == 0 || bytes < g->region_bytes_min)
            g->region_bytes_min = bytes;
    }
    return NULL;
}

/* In a pool of several groups each group's last slab may be used in part. */
static uint64_t shared_bytes(const struct geometry *g, uint64_t bytes, uint64_t largest)
{
    return (bytes + (g->ngroups + 2) * (bytes / SLABS_OF_POOL) + 32 * largest + 4095) &
           ~UINT64_C(4095);
}

void geometry_caps(struct geometry *g, const uint32_t *pages, uint32_t host_pages)
{
    uint64_t bytes = 0, all = 0, largest = 0;

    for (uint32_t i = 0; i < g->ngroups; i++) {
        uint64_t b = g->groups[i].page_bytes;

        g->groups[i].cap_pages = pages[i];
        bytes += pages[i] * b;
        all += b;
        largest = b > largest ? b : largest;
    }
    if (g->ngroups == 1)
        g->layout.bytes = pool_bytes_for(pages[0], g->region_bytes);
    else
        g->layout.bytes = shared_bytes(g, bytes, largest);
    if (host_pages > 0)
        g->layout.host_bytes = g->ngroups == 1 ? pool_bytes_for(host_pages, g->region_bytes)
                                               : shared_bytes(g, host_pages * all, largest);
}

const char *geometry_init(struct geometry *g, const struct profile *p, uint64_t page_bytes,
                          uint32_t ranks, uint32_t pool_pages)
{
    uint32_t pages[PROFILE_GROUPS_MAX];
    const char *why;

    *g = (struct geometry){
        .profile = p, .page_bytes = page_bytes ? page_bytes : p->page_bytes, .ranks = ranks};
    if (ranks == 0 || ranks > TERN_RANKS_MAX)
        return "an engine has 1 to 16 ranks";
    if (p->shard == TERN_SHARD_HEADS && p->heads % ranks)
        return "the ranks must divide the profile's heads";
    why = make_groups(g, page_bytes);
    if (why)
        return why;
    g->region_bytes = g->groups[0].page_bytes;
    g->groups[0].naxes = make_axes(g);
    g->groups[0].axes = g->groups[0].naxes ? g->axes : NULL;
    g->layout = (struct tern_layout){.groups = g->groups, .ngroups = g->ngroups, .shard = p->shard};
    for (uint32_t i = 0; i < PROFILE_GROUPS_MAX; i++)
        pages[i] = pool_pages;
    geometry_caps(g, pages, 0);
    return NULL;
}

void geometry_plain(struct geometry *g, uint32_t page_tokens, uint64_t page_bytes, uint32_t pages)
{
    static struct profile plain = {.name = "plain", .group = "kv", .layers = 1, .heads = 1};

    plain.page_tokens = page_tokens;
    plain.page_bytes = page_bytes;
    geometry_init(g, &plain, 0, 1, pages);
}
