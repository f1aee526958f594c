/* Makes a history from a seed: a configuration with small limits, and a list of choices whose
 * weights the seed chooses too, so that some histories have many faults of one kind and none of
 * another. */
#include "sim.h"

#include "base/prng.h"
#include "choices.h"

static uint32_t between(struct prng *p, uint32_t least, uint32_t most)
{
    return least + prng_below(p, most - least + 1);
}

static bool one_in(struct prng *p, uint32_t n)
{
    return prng_below(p, n) == 0;
}

static void make_groups(struct prng *p, struct config *c)
{
    static const uint8_t shape[][2] = {{2, 0}, {3, 0}, {4, 0}, {2, 0}, {4, 0}, {1, 2}, {2, 1},
                                       {2, 4}, {4, 1}, {1, 3}, {3, 2}, {1, 4}, {2, 2}};
    uint32_t i = prng_below(p, sizeof shape / sizeof shape[0]);

    c->page_tokens0 = shape[i][0];
    c->page_tokens1 = shape[i][1];
    c->ngroups = shape[i][1] ? 2 : 1;
    c->page_granules0 = one_in(p, 4) ? 2 : 1;
    c->page_granules1 = c->ngroups == 2 && one_in(p, 3) ? 2 : 1;
    c->cap0 = one_in(p, 8) ? between(p, 3, 10) : 0;
}

static void make_limits(struct prng *p, struct config *c, uint32_t align)
{
    c->tight = one_in(p, 4) ? 1 + prng_below(p, 5) : 0;
    c->lim_sessions = c->tight == 4 ? between(p, 2, 4) : 8;
    c->lim_nodes = c->tight == 1 ? between(p, 3, 8) : 0; /* 0: enough, see make_shares */
    c->lim_blocks = c->tight == 2 ? between(p, 4, 12) : 0;
    c->lim_retires = c->tight == 3 ? between(p, 1, 4) : 48;
    c->lim_keys = c->tight == 2 ? between(p, 1, 6) : 0;
    c->lim_pulls = between(p, 1, 3);
    c->lim_serves = between(p, 1, 3);
    c->lim_seals = between(p, 1, 4);
    c->lim_spaces = c->tight == 5 || one_in(p, 16) ? between(p, 1, 3) : 0;
    c->peer_pages = one_in(p, 2) ? between(p, 1, 6) : 64;
    c->tenant_pages = one_in(p, 4) ? between(p, 1, 6) : 64;
    c->deadline_ms = between(p, 20, 200);
    c->sessions_max = one_in(p, 6) ? between(p, 1, 3) : 16;
    c->tokens_max = align * between(p, 2, 6);
    if (one_in(p, 12))
        c->tokens_max = align * between(p, 8, 20); /* more than a block of the token store */
    if (c->tokens_max > SPAN - 4)
        c->tokens_max = SPAN - 4;
    c->piece = one_in(p, 3) ? between(p, 1, 9) : 0;
}

static uint32_t align_of(const struct config *c)
{
    uint32_t l = c->page_tokens0;

    while (c->page_tokens1 && l % c->page_tokens1)
        l += c->page_tokens0;
    return l;
}

/* Granules that a chunk needs for HISTORY. */
static uint32_t chunk_granules(const struct config *c)
{
    uint32_t align = align_of(c), n = c->page_granules0 * (align / c->page_tokens0);

    return c->ngroups == 2 ? n + c->page_granules1 * (align / c->page_tokens1) : n;
}

/* The same, at the daemon whose chunks need fewer. */
static uint32_t chunk_least(const struct config *c)
{
    struct config far = *c;
    uint32_t n = chunk_granules(c), other;

    far.page_tokens0 = c->far_tokens0 ? c->far_tokens0 : c->page_tokens0;
    far.page_tokens1 = c->far_tokens1 ? c->far_tokens1 : c->page_tokens1;
    other = chunk_granules(&far);
    return other < n ? other : n;
}

static uint32_t world_of(struct prng *p)
{
    static const uint8_t of[] = {1, 1, 1, 2, 2, 2, 3, 4};

    return of[prng_below(p, sizeof of)];
}

static void make_config(struct prng *p, struct config *c)
{
    uint32_t per_chunk, pages;

    memset(c, 0, sizeof *c);
    make_groups(p, c);
    make_limits(p, c, align_of(c));
    c->tenants = one_in(p, 3) ? 2 : 1;
    c->world0 = world_of(p);
    c->world1 = one_in(p, 8) ? world_of(p) : c->world0;
    c->world2 = one_in(p, 8) ? world_of(p) : c->world0;
    c->scheduler = one_in(p, 2);
    c->variants = one_in(p, 2) ? 2 : between(p, 2, VARIANTS);
    c->namespaces = one_in(p, 3) ? 2 : 1;
    c->keys = one_in(p, 3);
    c->seed_tokens = (uint32_t)prng_u64(p);
    c->host_behind = c->seed_tokens >> 15 & 1;
    c->awaits = c->seed_tokens >> 14 & 1;
    pages = one_in(p, 3) ? between(p, 4, 8) : between(p, 8, 16);
    per_chunk = chunk_granules(c);
    /* `pages` of the finest group, and what the other group needs beside them */
    c->granules = c->ngroups == 1 ? pages * c->page_granules0 : pages * per_chunk / 2;
    if (c->granules < 2 * per_chunk)
        c->granules = 2 * per_chunk;
    c->granules += 2; /* the core never uses slab 0 */
    if (c->granules > GRANULES)
        c->granules = GRANULES;
}

/* A table of 256 kinds in proportion to their weights. */
static void make_weights(struct prng *p, const struct config *c, uint8_t table[256])
{
    static const struct {
        uint16_t weight;
        uint8_t fault;
    } of[] = {
#define X(name, weight, fault) {weight, fault},
        CHOICES(X)
#undef X
    };
    static const uint8_t scale[] = {0, 0, 0, 0, 1, 1, 3, 12};
    uint32_t n = sizeof of / sizeof of[0], total = 0, at = 0, w[sizeof of / sizeof of[0]];
    bool calm = one_in(p, 8);

    for (uint32_t i = 0; i < CHOICE_record; i++) { /* the weights from there on are fixed */
        w[i] = 4 * of[i].weight *
               (of[i].fault ? (calm ? 0 : scale[prng_below(p, sizeof scale)]) : between(p, 3, 8)) /
               4;
        if (i == CHOICE_fetch && c->slow) /* fetches from both sources at a time */
            w[i] *= 4;
        total += w[i];
    }
    for (uint32_t i = CHOICE_record; i < n; i++) {
        w[i] = (i == CHOICE_record    ? c->records
                : i == CHOICE_lease   ? c->leases
                : i == CHOICE_follow  ? c->early
                : i >= CHOICE_handoff ? c->ticket_ms
                                      : c->disk)
                   ? 6 * of[i].weight
                   : 0;
        total += w[i];
    }
    for (uint32_t i = 0, sum = 0; i < n; i++) {
        uint32_t to;

        sum += w[i];
        to = (uint32_t)((uint64_t)sum * 256 / total);
        while (at < to)
            table[at++] = (uint8_t)i;
    }
}

/* Windows below, at and above L. */
static void make_state(struct prng *p, struct config *c)
{
    uint32_t align = align_of(c), most = 0;
    uint32_t *const tokens[] = {&c->page_tokens2, &c->page_tokens3},
                    *const granules[] = {&c->page_granules2, &c->page_granules3},
                    *const window[] = {&c->window2, &c->window3},
                    *const reserve[] = {&c->reserve2, &c->reserve3};

    c->nstate = one_in(p, 2) || c->tight == 2 ? 0 : between(p, 1, 2);
    c->supersede = one_in(p, 8) ? 2 : between(p, 0, 1);
    for (uint32_t i = 0; i < c->nstate; i++) {
        uint32_t n = between(p, 1, SLOTS);

        while (align % n)
            n--;
        *tokens[i] = n;
        *granules[i] = one_in(p, 4) ? 2 : 1;
        *window[i] = n * between(p, 1, 3 * align / n);
        *reserve[i] = one_in(p, 3) ? between(p, 1, align) : 1;
        if (one_in(p, 4))
            *tokens[i] = 1, *window[i] = *reserve[i] = 0;
        most += *granules[i] * (*window[i] + align) / n;
    }
    if (c->nstate == 0)
        return;
    c->cap0 = 0;
    c->granules += most;
    if (one_in(p, 3))
        c->granules += most;
    if (c->tight == 0 && one_in(p, 2)) { /* room for all of it: shows supersession, not evictions */
        c->granules = GRANULES;
        c->supersede = one_in(p, 4) ? 0 : 1;
        c->variants = between(p, 2, 3);
        c->namespaces = 1;
        if (c->tokens_max > 5 * align)
            c->tokens_max = 5 * align;
    }
    if (c->granules > GRANULES)
        c->granules = GRANULES;
}

/* A host tier of some chunks, most often fewer than the device has. */
static void make_host(struct prng *p, struct config *c)
{
    uint32_t align = align_of(c), chunk = chunk_granules(c);
    uint32_t slab = c->page_granules0 > c->page_granules1 ? c->page_granules0 : c->page_granules1;
    uint32_t span2 = c->window2 < align ? c->window2 : align,
             span3 = c->window3 < align ? c->window3 : align;

    c->lim_copies = between(p, 1, 3);
    c->spoil = one_in(p, 2) ? 0 : between(p, 2, 25);
    if (one_in(p, 2) || (c->nstate && c->granules == GRANULES && !one_in(p, 5)))
        return; /* with room for all of it, supersession shows best without */
    if (c->nstate > 0) {
        chunk += c->page_granules2 * (c->window2 ? span2 / c->page_tokens2 : 1);
        slab = c->page_granules2 > slab ? c->page_granules2 : slab;
    }
    if (c->nstate > 1) {
        chunk += c->page_granules3 * (c->window3 ? span3 / c->page_tokens3 : 1);
        slab = c->page_granules3 > slab ? c->page_granules3 : slab;
    }
    c->host = chunk * (one_in(p, 3) ? between(p, 1, 3) : between(p, 3, 8)) + 2 * slab;
    if (c->host > HOSTS)
        c->host = HOSTS;
}

/* In some histories, sessions grow to as many chunks as a pool has pages: then windows lie far
 * behind, one fetch is many messages, and one session uses most of a tight table. One group of
 * HISTORY and at most one of STATE leave room for so many chunks. */
static void make_long(struct config *c)
{
    uint32_t r = c->seed_tokens / 65536, align;

    if (r % 12 != 0)
        return;
    r /= 12;
    c->ngroups = c->page_granules0 = c->page_granules1 = 1;
    c->page_tokens0 = align = c->page_tokens0 > 1 ? c->page_tokens0 : 4;
    c->page_tokens1 = c->cap0 = 0;
    c->granules = GRANULES;
    c->host = c->host ? HOSTS : 0;
    c->tenants = c->namespaces = 1;
    c->variants = 2 + r % 2;
    c->span = align * (GRANULES - 2);
    c->tokens_max = align * (LONG_CHUNKS + 4 + r / 2 % 24);
    c->sessions_max = 16;
    c->lim_nodes = c->tight == 1 ? LONG_CHUNKS + 2 + r / 48 % 16 : 0;
    c->lim_blocks = c->tight == 2 ? LONG_CHUNKS * 2 + r / 48 % 32 : 0;
    if (c->nstate == 0)
        return;
    c->nstate = 1;
    c->page_granules2 = 1;
    c->page_tokens2 = c->window2 ? align : 1;
    c->window2 = c->window2 ? align * (1 + r / 48 % 3) : 0;
    c->reserve2 = c->window2 ? 1 + c->reserve2 % align : 0;
    c->page_tokens3 = c->page_granules3 = c->window3 = c->reserve3 = 0;
}

/* The most records that a history can need in the tables of cached prefixes. There are at most as
 * many chunks as pages: each chunk has, on the device or on the host, its pages of every group of
 * HISTORY. Each session has a list of tokens that are not in the tree yet; in the step that
 * replaces a list, both lists exist. A namespace that was reset remains while it is pinned. */
struct records {
    uint32_t nodes, blocks, keys, spaces;
};

static struct records most_records(const struct config *c)
{
    uint32_t align = align_of(c), list = (c->span ? c->span : SPAN) / align + 1,
             pools = c->places ? POOLS : c->tenants, /* side by side, each of full size */
        chunks = pools * (c->granules + c->host) / chunk_least(c),
             spaces = POOLS * c->namespaces + c->lim_sessions;

    return (struct records){.nodes = chunks + spaces,
                            .blocks = chunks + (c->lim_sessions + 1) * list +
                                      (c->ticket_ms ? 4 * (c->lim_sessions + PULLS) : 0),
                            .keys = chunks + c->lim_sessions * 2,
                            .spaces = spaces};
}

/* The part of a limit that two tenants can use together, if the reserved part of one is idle. */
static uint32_t had_of(const struct config *c, uint32_t limit)
{
    uint32_t idle = limit * c->reserved / 100 / TENANTS + 2;

    return limit > idle ? limit - idle : 0;
}

bool records_ample(const struct config *c)
{
    const struct records most = most_records(c);

    return had_of(c, c->lim_nodes) >= most.nodes && had_of(c, c->lim_blocks) >= most.blocks &&
           had_of(c, c->lim_keys) >= most.keys && had_of(c, c->lim_spaces) >= most.spaces;
}

static void enough(const struct config *c, uint32_t most, uint32_t *limit)
{
    if (*limit == 0)
        *limit = most * 100 * TENANTS / (100 * TENANTS - c->reserved) + 4;
}

/* With two tenants, most often a part of the tables is reserved for each. */
static void make_shares(struct config *c)
{
    static const uint8_t percent[] = {0, 25, 50, 100};
    const struct records most = most_records(c);

    c->reserved = c->tenants == 2 ? percent[c->seed_tokens % 4] : 0;
    enough(c, most.nodes, &c->lim_nodes);
    enough(c, most.blocks, &c->lim_blocks);
    enough(c, most.keys, &c->lim_keys);
    enough(c, most.spaces, &c->lim_spaces);
}

/* In some, tenants have more regions than their engines need, and engines choose among them. */
static void make_regions(struct config *c)
{
    if (c->seed_tokens / 4 % 3 != 0)
        return;
    c->regions = RANKS;
    c->places = c->seed_tokens / 16 | 1;
}

/* In half of them, messages about a transfer are short: a chunk or two of tokens, and as few
 * pages. */
static void make_pieces(struct config *c)
{
    uint32_t r = c->seed_tokens / 1024;

    if (r % 2 == 0)
        return;
    c->open_tokens = align_of(c) * (1 + r / 2 % 2) * (c->span ? 8 : 1);
    c->offer_pages = (1 + r / 4 % 6) * (c->span ? 4 : 1);
}

/* In some, a tenant may have few batches of pages under way. */
static void make_batches(struct config *c)
{
    if (c->seed_tokens / 5 % 3 == 0)
        c->lim_batches = 1 + c->seed_tokens / 16 % 3;
}

/* In some, one of two sources is slow. */
static void make_slow(struct config *c)
{
    if (c->disk)
        c->slow = c->seed_tokens / 23 % 3;
    if (c->slow == 0)
        return;
    c->lim_pulls = PULLS - 1;
    c->tenant_pages = c->peer_pages = GRANULES;
}

/* In some, released pages become free in pieces of a few records. A commit in equally short pieces
 * takes a release for each, so there are enough, unless releases are what runs out. */
static void make_give_back(struct config *c)
{
    if (c->seed_tokens / 7 % 3 != 0)
        return;
    c->give_back = 1 + c->seed_tokens / 21 % 6;
    c->cut = c->seed_tokens / 126 % 2;
    if (c->tight != 3)
        c->lim_retires = 1024;
}

/* In most, a turn that nobody ends times out. */
static void make_turns(struct config *c)
{
    if (c->seed_tokens / 11 % 4 > 0)
        c->turn_ms = 3 + c->seed_tokens / 44 % 40;
}

/* In some, turns leave records: most often in little memory. */
static void make_records(struct config *c)
{
    uint32_t r = c->seed_tokens / 13;

    if (r % 4 != 0)
        return;
    c->records = r / 4 % 2 == 0 ? 64 : 12 + r / 16 % 36;
    c->lim_records = r / 512 % 3 == 0 ? 3 + r / 2048 % 6 : 24;
}

/* In some, one of the daemons has a disk, or both do. The disk has room for some chunks, and most
 * often some resource of it is short. */
static void make_disk(struct config *c)
{
    uint32_t r = c->seed_tokens / 17, align = align_of(c), chunk = chunk_granules(c) + 2, chunks;

    if (r % 4 != 0)
        return;
    r = (r / 4) * 2654435761u;
    c->disk = 1 + (r >> 30) % 3;
    c->disk_tenants = c->tenants == 1 || (r >> 28 & 3) ? 3 : 1 + (r >> 27 & 1);
    c->disk_chunks = r >> 25 & 1 ? 64 : 8 + (r >> 19) % 24;
    c->disk_files = r >> 18 & 1 ? 16 : 4 + (r >> 15) % 8;
    c->disk_stores = 1 + (r >> 13) % 4;
    c->disk_tokens = r >> 11 & 3 ? 64 : 8 + (r >> 7) % 16;
    r = c->seed_tokens * 2246822519u;
    c->disk_interval = 1 + (r >> 29) % 4;
    c->disk_align = 1 + (r >> 27) % 2;
    c->disk_trim = (r >> 24) % 8;
    c->disk_least = (r >> 22) % 4 * align / 2;
    chunks = r >> 21 & 1 ? 64 : 2 + (r >> 16) % 12;
    c->disk_blocks = 2 + chunks * chunk * c->world0;
    c->disk_fail = r >> 14 & 3 ? 0 : 1 + (r >> 10) % 12;
    c->disk_rot = r >> 8 & 3 ? 0 : 1 + (r >> 5) % 4;
}

/* In some, engines lease pages. */
static void make_leases(struct config *c)
{
    uint32_t r = c->seed_tokens * 3266489917u >> 16;

    if (r % 3 == 0)
        c->leases = 2 + r / 3 % (LEASES - 1);
}

/* In some, sessions are handed over. */
static void make_tickets(struct config *c)
{
    uint32_t r = c->seed_tokens / 19;

    if (r % 4 != 0)
        return;
    c->ticket_ms = r / 4 % 3 == 0 ? 5 + r / 12 % 40 : 60 + r / 12 % 340;
    c->early = c->seed_tokens * 2654435761u >> 30 != 0; /* and in most, while they still run */
}

/* page_tokens of a group at the other daemon: one of the two numbers divides the other, and both
 * divide L. */
static uint32_t far_tokens(uint32_t r, uint32_t near, uint32_t align)
{
    uint32_t n = 1 + r % SLOTS;

    while (align % n != 0 || (n % near != 0 && near % n != 0))
        n = n % SLOTS + 1;
    return n;
}

/* Both ends of a transfer need whole chunks of their pages. */
static void make_room(struct config *c)
{
    struct config far = *c;
    uint32_t chunk;

    far.page_tokens0 = c->far_tokens0;
    far.page_tokens1 = c->far_tokens1;
    chunk = chunk_granules(&far);
    if (chunk > chunk_granules(c))
        c->granules += 3 * (chunk - chunk_granules(c));
    if (c->granules > GRANULES)
        c->granules = GRANULES;
}

/* In some, the pools of the two daemons lie over other numbers of ranks, or all ranks have all
 * heads at one of them, and page_tokens differ. */
static void make_reshard(struct config *c)
{
    static const uint8_t worlds[] = {1, 2, 4};
    uint32_t r = c->seed_tokens * 2891336453u >> 7, align = align_of(c);

    if (r % 6 != 0)
        return;
    r /= 6;
    c->heads = r % 3 == 0 ? 2 : 4;
    c->cap0 = 0;
    c->whole = c->disk || r / 3 % 2 == 0 ? 0 : r / 6 % 4;
    c->world0 = worlds[r / 24 % 3];
    c->far_world0 = worlds[r / 72 % 3];
    c->world1 = r / 216 % 8 ? c->world0 : worlds[r / 1728 % 3];
    c->far_world1 = r / 216 % 8 ? c->far_world0 : worlds[r / 1728 % 3];
    c->world2 = c->world0;
    c->far_world2 = c->far_world0;
    r = c->seed_tokens * 747796405u >> 6;
    if (c->nstate > 0 && c->ticket_ms == 0 && r % 2 == 0) { /* where windows end within chunks */
        c->ticket_ms = 60 + r / 2 % 340;
        c->early = r / 1024 % 4 != 0;
    }
    if (c->span > 0 || r % 3 == 0)
        return;
    c->far_tokens0 = far_tokens(r / 3, c->page_tokens0, align);
    c->far_tokens1 = c->page_tokens1 ? far_tokens(r / 16, c->page_tokens1, align) : 0;
    c->far_tokens2 = c->window2 ? far_tokens(r / 64, c->page_tokens2, align) : 0;
    c->far_tokens3 = c->window3 ? far_tokens(r / 256, c->page_tokens3, align) : 0;
    make_room(c);
}

/* In some, each daemon is its own only peer. */
static void make_own(struct config *c)
{
    c->own = c->seed_tokens * 2246822519u >> 29 == 0;
    if (c->own && c->heads > 0 && c->world1 == c->world0) /* for two pools of one daemon */
        c->world1 = c->world0 == 1 ? 2 : c->world0 / 2;
}

/* In most, consecutive ends of checksum jobs are reported together. */
static void make_together(struct config *c)
{
    c->together = c->seed_tokens * 3266489917u >> 30 != 0;
}

void history_make(uint64_t seed, struct history *h)
{
    struct prng p;
    uint8_t table[256];

    prng_init(&p, seed);
    h->seed = seed;
    make_config(&p, &h->cfg);
    make_state(&p, &h->cfg);
    make_host(&p, &h->cfg);
    make_long(&h->cfg);
    make_regions(&h->cfg);
    make_tickets(&h->cfg);
    make_disk(&h->cfg);
    make_slow(&h->cfg);
    make_reshard(&h->cfg);
    make_shares(&h->cfg);
    make_pieces(&h->cfg);
    make_batches(&h->cfg);
    make_give_back(&h->cfg);
    make_turns(&h->cfg);
    make_records(&h->cfg);
    make_leases(&h->cfg);
    make_own(&h->cfg);
    make_together(&h->cfg);
    make_weights(&p, &h->cfg, table);
    h->n = between(&p, 700, 1200);
    for (uint32_t i = 0; i < h->n; i++) {
        uint64_t r = prng_u64(&p);

        h->choice[i] = (struct choice){.kind = table[r & 255],
                                       .daemon = (uint8_t)(r >> 8 & 1),
                                       .a = (uint16_t)(r >> 16),
                                       .r = (uint32_t)(r >> 32)};
        /* Most histories begin with engines that join. */
        if (i < 8)
            h->choice[i].kind = CHOICE_join;
    }
}
