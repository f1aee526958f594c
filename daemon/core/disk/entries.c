/* See entries.h. */
#include "core/disk/entries.h"

#define HALF_LIFE_NS (6ull * 3600 * 1000000000) /* of what an entry was used (D7) */

uint64_t disk_served(const struct core *c)
{
    return c->disk_served_ns + (c->now_ns - c->disk_began_ns);
}

/* Counts an entry in or out among the claims of the STATE that it needs. */
static void claim(struct core *c, uint32_t chunk, bool in)
{
    uint32_t at = chunk;

    for (uint32_t i = disk_chunk_at(c, chunk)->reach; i > 0 && disk_chunk_at(c, at)->depth > 0;
         i--, at = disk_chunk_at(c, at)->parent) {
        struct disk_chunk *k = disk_chunk_at(c, at);

        k->claims += in ? 1 : -1u;
        if (k->claims == 0 && k->kept & DISK_HAS(DISK_STATE))
            disk_part_leave(c, at, DISK_STATE);
    }
}

void disk_entry_keep(struct core *c, uint32_t chunk, const struct disk_entry *e)
{
    struct disk_chunk *k = disk_chunk_at(c, chunk);
    struct list *entries = &tenant_at(c, k->tenant)->disk_entries;
    uint32_t reach = k->reach;
    bool was = disk_is_entry(k);

    k->reach = e->reach;
    claim(c, chunk, true);
    if (was) { /* what the earlier one claimed, after what this one does */
        k->reach = reach;
        claim(c, chunk, false);
        k->reach = e->reach;
        disk_entry_list_remove(c, entries, chunk);
    }
    disk_part_keep(c, chunk, DISK_ENTRY, e->at);
    k->reason = e->reason;
    k->hits = e->hits > k->hits ? e->hits : k->hits;
    k->used_ns = e->used_ns;
    disk_entry_list_push(c, entries, chunk);
}

void disk_entry_end(struct core *c, uint32_t chunk)
{
    struct disk_chunk *k = disk_chunk_at(c, chunk);

    disk_part_leave(c, chunk, DISK_ENTRY);
    disk_entry_list_remove(c, &tenant_at(c, k->tenant)->disk_entries, chunk);
    claim(c, chunk, false);
    k->hits = k->reach = 0;
    touch(c);
    disk_chunk_offer(c, chunk);
}

void disk_entry_use(struct core *c, uint32_t chunk)
{
    uint32_t at = chunk;

    while (at != NONE && !disk_is_entry(disk_chunk_at(c, at)))
        at = disk_chunk_at(c, at)->children.head; /* there is one below */
    if (at == NONE)
        return;
    disk_chunk_at(c, at)->hits++;
    disk_chunk_at(c, at)->used_ns = disk_served(c);
    touch(c);
}

uint64_t disk_entry_bytes(const struct core *c, uint32_t chunk)
{
    const struct disk_chunk *k = disk_chunk_at(c, chunk);
    uint64_t bytes = k->path_bytes + disk_kept_bytes(k, DISK_ENTRY, &k->part[DISK_ENTRY]);

    for (uint32_t i = k->reach; i > 0 && k->depth > 0; i--, k = disk_chunk_at(c, k->parent))
        if (k->kept & DISK_HAS(DISK_STATE))
            bytes += disk_kept_bytes(k, DISK_STATE, &k->part[DISK_STATE]);
    return bytes;
}

uint64_t disk_entry_own(const struct core *c, uint32_t chunk)
{
    const struct disk_chunk *k = disk_chunk_at(c, chunk);
    uint64_t bytes = disk_kept_bytes(k, DISK_ENTRY, &k->part[DISK_ENTRY]);
    const struct disk_chunk *up = k;

    for (uint32_t i = k->reach; i > 0 && up->depth > 0; i--, up = disk_chunk_at(c, up->parent))
        if (up->claims == 1 && up->kept & DISK_HAS(DISK_STATE))
            bytes += disk_kept_bytes(up, DISK_STATE, &up->part[DISK_STATE]);
    for (up = k; up->depth > 0 && up->pins == 0; up = disk_chunk_at(c, up->parent)) {
        if (up->children.n > (up == k ? 0u : 1u) || (up != k && disk_is_entry(up)))
            break;
        bytes += disk_kept_bytes(up, DISK_HISTORY, &up->part[DISK_HISTORY]);
    }
    return bytes;
}

/* Halved every HALF_LIFE_NS, and in a straight line in between. */
static uint64_t decayed(uint64_t value, uint64_t age_ns)
{
    uint64_t halves = age_ns / HALF_LIFE_NS, part = age_ns % HALF_LIFE_NS;

    if (halves >= 48)
        return 0;
    value >>= halves;
    return value - (value / 2 * (part >> 20)) / (HALF_LIFE_NS >> 20);
}

uint64_t disk_entry_score(const struct core *c, uint32_t chunk)
{
    const struct disk_chunk *k = disk_chunk_at(c, chunk);
    uint64_t bytes = disk_entry_bytes(c, chunk), served = disk_served(c);
    uint64_t uses = decayed((uint64_t)(k->hits < 65535 ? k->hits : 65535) << 16,
                            served > k->used_ns ? served - k->used_ns : 0) +
                    (1 << 16);

    if (k->reason == DISK_COLD)
        uses *= 2;                         /* anchors */
    return (uses * k->depth << 8) / bytes; /* uses: below 2^34, depth: 2^22 at most */
}

/* --- what a longer one makes needless --- */

static bool prunes(enum disk_reason reason)
{
    return reason == DISK_COLD || reason == DISK_CONTINUED;
}

uint64_t disk_prunable(const struct core *c, uint32_t chunk, enum disk_reason reason)
{
    uint64_t bytes = 0;

    if (!prunes(reason))
        return 0;
    for (uint32_t at = chunk; disk_chunk_at(c, at)->depth > 0; at = disk_chunk_at(c, at)->parent)
        if (disk_is_entry(disk_chunk_at(c, at)) && disk_chunk_at(c, at)->reason == DISK_CONTINUED)
            bytes += disk_entry_own(c, at);
    return bytes;
}

void disk_prune(struct core *c, uint32_t chunk, enum disk_reason reason)
{
    if (!prunes(reason))
        return;
    for (uint32_t at = disk_chunk_at(c, chunk)->parent; at != NONE;
         at = disk_chunk_at(c, at)->parent) {
        const struct disk_chunk *k = disk_chunk_at(c, at);

        if (!disk_is_entry(k) || k->reason != DISK_CONTINUED || k->pins > 0)
            continue;
        disk_entry_end(c, at); /* the chunk stays: there is one below it */
        tenant_at(c, k->tenant)->disk.pruned++;
    }
}

/* --- room --- */

/* Is it on the path of what the room is for? */
static bool is_kept(const struct core *c, const struct disk_chunk *k, const struct disk_room *r)
{
    uint32_t at = r->keeps;

    while (at != NONE && disk_chunk_at(c, at)->depth > k->depth)
        at = disk_chunk_at(c, at)->parent;
    return at != NONE && disk_chunk_at(c, at) == k;
}

static bool may_go(const struct core *c, uint32_t chunk, const struct disk_room *r)
{
    const struct disk_chunk *k = disk_chunk_at(c, chunk);

    if (k->pins > 0)
        return false;
    return !r || !prunes(r->reason) || k->reason != DISK_CONTINUED || !is_kept(c, k, r);
}

enum tern_err disk_evict_one(struct core *c, uint32_t tenant, const struct disk_room *r)
{
    uint32_t first = NONE, looked = 0;
    uint64_t lowest = UINT64_MAX;

    if (visits_left(c) == 0)
        return TERN_BUSY;
    for (uint32_t at = tenant_at(c, tenant)->disk_entries.head;
         at != NONE && looked < DISK_ENTRIES_LOOKED; at = disk_entry_list_next(c, at), looked++) {
        uint64_t score;

        if (!may_go(c, at, r))
            continue;
        score = disk_entry_score(c, at);
        if (first == NONE || score < lowest) { /* of equal ones the older */
            first = at;
            lowest = score;
        }
    }
    c->visits += looked;
    if (first == NONE)
        return TERN_QUOTA;
    disk_entry_end(c, first);
    tenant_at(c, tenant)->disk.evicted++;
    return TERN_OK;
}

enum tern_err disk_make_room(struct core *c, uint32_t tenant, struct disk_room r)
{
    struct tenant *t = tenant_at(c, tenant);
    uint64_t credit = r.credit < DISK_PRUNE_BYTES ? r.credit : DISK_PRUNE_BYTES;

    while (t->disk_used + r.bytes > t->config.disk_bytes + credit)
        TRY(disk_evict_one(c, tenant, &r));
    return TERN_OK;
}

/* --- what is never found again --- */

static bool leads_through_bad(const struct core *c, uint32_t chunk)
{
    for (uint32_t at = chunk; at != NONE; at = disk_chunk_at(c, at)->parent)
        if (disk_chunk_at(c, at)->bad || disk_chunk_at(c, at)->reset)
            return true;
    return false;
}

bool disk_bad_flush(struct core *c)
{
    for (uint32_t t = 0; t < c->limits.tenants && c->disk_bad > 0; t++)
        for (uint32_t at = tenant_at(c, t)->disk_entries.head, next; at != NONE; at = next) {
            next = disk_entry_list_next(c, at);
            c->visits += disk_chunk_at(c, at)->depth / disk_chunk_at(c, at)->align;
            if (disk_chunk_at(c, at)->pins == 0 && leads_through_bad(c, at))
                disk_entry_end(c, at);
            if (visits_left(c) == 0)
                return false;
        }
    return true;
}

void disk_reset(struct core *c, uint32_t tenant, struct namespace_id ns)
{
    for (uint32_t at = tenant_at(c, tenant)->disk_roots.head; at != NONE;
         at = disk_child_list_next(c, at)) {
        struct disk_chunk *k = disk_chunk_at(c, at);

        if (k->reset || k->ns.hi != ns.hi || k->ns.lo != ns.lo)
            continue;
        k->reset = 1;
        c->disk_bad++;
        tenant_at(c, tenant)->disk_resets++;
        touch(c);
    }
}
