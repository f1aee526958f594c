/* See entries.h. */
#include "core/disk/entries.h"

#define HALF_LIFE_NS (6ull * 3600 * 1000000000) /* of an entry's uses (D7) */

uint64_t disk_served(const struct core *c)
{
    return c->disk_served_ns + (c->now_ns - c->disk_began_ns);
}

void disk_claim(struct core *c, struct disk_window of, bool in)
{
    uint32_t at = of.chunk, up;

    for (uint32_t i = disk_within(disk_chunk_at(c, at), of.reach); i > 0; i--, at = up) {
        struct disk_chunk *k = disk_chunk_at(c, at);

        c->visits++;
        up = k->parent;
        k->claims += in ? 1 : -1u;
        if (k->claims == 0 && k->kept & DISK_HAS(DISK_STATE) &&
            c->disk_ready) /* before that, a claiming entry may still be found */
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
    disk_claim(c, (struct disk_window){chunk, e->reach}, true);
    if (was) { /* the earlier one's claims end after this one's begin */
        disk_claim(c, (struct disk_window){chunk, reach}, false);
        disk_entry_list_remove(c, entries, chunk);
    } else if (disk_entry_list_has(c, chunk)) {
        disk_entry_list_remove(c, &tenant_at(c, k->tenant)->disk_bare, chunk);
    }
    disk_part_keep(c, chunk, DISK_ENTRY, e->at);
    k->reason = e->reason;
    k->needless = 0;
    k->hits = e->hits > k->hits ? e->hits : k->hits;
    k->used_ns = e->used_ns;
    disk_entry_list_push(c, entries, chunk);
}

void disk_entry_end(struct core *c, uint32_t chunk)
{
    struct disk_chunk *k = disk_chunk_at(c, chunk);

    disk_part_leave(c, chunk, DISK_ENTRY);
    disk_entry_list_remove(c, &tenant_at(c, k->tenant)->disk_entries, chunk);
    disk_claim(c, (struct disk_window){chunk, k->reach}, false);
    k->hits = k->reach = k->needless = 0;
    touch(c);
    disk_chunk_offer(c, chunk);
}

void disk_entry_use(struct core *c, uint32_t chunk)
{
    uint32_t at = chunk;

    while (at != NONE && !disk_is_entry(disk_chunk_at(c, at)))
        at = disk_chunk_at(c, at)->children.head; /* an entry is below */
    if (at == NONE)
        return;
    walked(c, disk_path(disk_chunk_at(c, at)) - disk_path(disk_chunk_at(c, chunk)));
    disk_chunk_at(c, at)->hits++;
    disk_chunk_at(c, at)->used_ns = disk_served(c);
    touch(c);
}

uint64_t disk_entry_bytes(const struct core *c, uint32_t chunk)
{
    const struct disk_chunk *k = disk_chunk_at(c, chunk);
    uint64_t bytes = k->path_bytes + disk_kept_bytes(k, DISK_ENTRY, &k->part[DISK_ENTRY]);

    for (uint32_t i = disk_within(k, k->reach); i > 0; i--, k = disk_chunk_at(c, k->parent))
        if (k->kept & DISK_HAS(DISK_STATE))
            bytes += disk_kept_bytes(k, DISK_STATE, &k->part[DISK_STATE]);
    return bytes;
}

uint64_t disk_entry_own(const struct core *c, uint32_t chunk)
{
    const struct disk_chunk *k = disk_chunk_at(c, chunk);
    uint64_t bytes = disk_kept_bytes(k, DISK_ENTRY, &k->part[DISK_ENTRY]);
    const struct disk_chunk *up = k;

    for (uint32_t i = disk_within(k, k->reach); i > 0; i--, up = disk_chunk_at(c, up->parent))
        if (up->claims == 1 && up->kept & DISK_HAS(DISK_STATE))
            bytes += disk_kept_bytes(up, DISK_STATE, &up->part[DISK_STATE]);
    for (up = k; up->depth > 0 && up->pins == 0; up = disk_chunk_at(c, up->parent)) {
        if (up->children.n > (up == k ? 0u : 1u) || (up != k && disk_is_entry(up)))
            break;
        bytes += disk_kept_bytes(up, DISK_HISTORY, &up->part[DISK_HISTORY]);
    }
    return bytes;
}

/* Halves the value every HALF_LIFE_NS, and interpolates linearly in between. */
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

static bool prunes(enum disk_reason reason)
{
    return reason == DISK_COLD || reason == DISK_CONTINUED;
}

static bool is_needless(const struct disk_chunk *k)
{
    return disk_is_entry(k) && k->reason == DISK_CONTINUED;
}

/* Returns the bytes that end with the entries that the new one makes needless: also STATE that
 * neither another entry nor the new one claims. Spares these entries until then. */
static uint64_t prunable(struct core *c, const struct disk_new *e)
{
    uint32_t claiming = 0, n = 0, last = e->chunk; /* last: the next one to stop claiming */
    uint64_t bytes = 0;

    if (!prunes(e->reason))
        return 0;
    c->disk_spared = gen_next(c->disk_spared);
    for (uint32_t at = e->chunk; at != NONE && disk_chunk_at(c, at)->depth > 0;
         at = disk_chunk_at(c, at)->parent, n++) {
        struct disk_chunk *k = disk_chunk_at(c, at);

        if (is_needless(k)) {
            k->spared = c->disk_spared;
            bytes += disk_kept_bytes(k, DISK_ENTRY, &k->part[DISK_ENTRY]);
            claiming++;
        }
        if (n >= e->reach) {
            claiming -= is_needless(disk_chunk_at(c, last));
            last = disk_chunk_at(c, last)->parent;
        }
        if (k->kept & DISK_HAS(DISK_STATE) && k->depth <= e->above && claiming > 0 &&
            k->claims == claiming)
            bytes += disk_kept_bytes(k, DISK_STATE, &k->part[DISK_STATE]);
    }
    walked(c, n);
    return bytes;
}

static void prune_one(struct core *c, uint32_t chunk)
{
    tenant_at(c, disk_chunk_at(c, chunk)->tenant)->disk.pruned++;
    disk_entry_end(c, chunk);
}

void disk_prune(struct core *c, uint32_t chunk, enum disk_reason reason)
{
    if (!prunes(reason))
        return;
    walked(c, disk_path(disk_chunk_at(c, chunk)));
    for (uint32_t at = disk_chunk_at(c, chunk)->parent; at != NONE;
         at = disk_chunk_at(c, at)->parent) {
        struct disk_chunk *k = disk_chunk_at(c, at);

        if (!is_needless(k))
            continue;
        k->needless = 1;
        if (k->pins == 0)
            prune_one(c, at); /* the chunk stays: it has a child */
    }
}

void disk_unpin(struct core *c, uint32_t chunk)
{
    struct disk_chunk *k = disk_chunk_at(c, chunk);

    check(k->pins > 0);
    k->pins--;
    tenant_at(c, k->tenant)->disk_pins--;
    disk_let_go(c);
    touch(c);
    if (k->pins > 0)
        return;
    if (k->needless && k->children.n > 0) {
        prune_one(c, chunk); /* a longer entry still exists */
        return;
    }
    k->needless = 0;
    if (disk_is_entry(k) && (k->bad || disk_chunk_at(c, k->root)->reset))
        disk_entry_end(c, chunk);
    else
        disk_chunk_offer(c, chunk);
}

static bool may_go(const struct core *c, uint32_t chunk, const struct disk_room *r)
{
    const struct disk_chunk *k = disk_chunk_at(c, chunk);

    if (k->pins > (r->for_it.chunk == chunk ? r->pins : 0))
        return false;
    return !prunes(r->for_it.reason) || k->spared != c->disk_spared;
}

/* Returns the evictable entry with the lowest score; NONE. */
static uint32_t next_to_go(struct core *c, uint32_t tenant, const struct disk_room *r)
{
    uint32_t first = NONE, looked = 0, end = c->visits + DISK_CHUNKS_LOOKED;
    uint64_t lowest = UINT64_MAX;

    for (uint32_t at = tenant_at(c, tenant)->disk_entries.head;
         at != NONE && looked < DISK_ENTRIES_LOOKED && c->visits < end;
         at = disk_entry_list_next(c, at), looked++) {
        uint64_t score;

        c->visits++;
        if (!may_go(c, at, r))
            continue;
        c->visits += disk_within(disk_chunk_at(c, at), disk_chunk_at(c, at)->reach);
        score = disk_entry_score(c, at);
        if (first == NONE || score < lowest) { /* of equal scores, the older entry */
            first = at;
            lowest = score;
        }
    }
    return first;
}

enum disk_has_room disk_room_more(struct core *c, uint32_t tenant, struct disk_room *r)
{
    struct tenant *t = tenant_at(c, tenant);
    uint32_t at;

    if ((r->gone > 0 && piece_over(c)) || t->disk_bare.n > 0)
        return DISK_ROOM_NEXT;
    (void)prunable(c, &r->for_it);
    at = next_to_go(c, tenant, r);
    if (at == NONE)
        return t->disk_pins > r->pins ? DISK_ROOM_LATER : DISK_ROOM_NEVER;
    disk_entry_end(c, at);
    t->disk.evicted++;
    r->gone++;
    return DISK_ROOM;
}

/* Evicted entries may have shared STATE with those that the new entry makes needless. */
static uint64_t most_of(struct core *c, uint32_t tenant, const struct disk_room *r)
{
    uint64_t credit = prunable(c, &r->for_it);

    return tenant_at(c, tenant)->config.disk_bytes +
           (credit < DISK_PRUNE_BYTES ? credit : DISK_PRUNE_BYTES);
}

enum disk_has_room disk_make_room(struct core *c, uint32_t tenant, struct disk_room r)
{
    const struct tenant *t = tenant_at(c, tenant);
    enum disk_has_room room = DISK_ROOM;

    while (room == DISK_ROOM && t->disk_used + r.bytes > t->config.disk_bytes &&
           t->disk_used + r.bytes > most_of(c, tenant, &r)) {
        room = disk_room_more(c, tenant, &r);
        if (room != DISK_ROOM_NEVER || !prunes(r.for_it.reason))
            continue;
        r.for_it.reason = DISK_EVICT; /* allow entries that it will make needless */
        room = DISK_ROOM;
    }
    return room;
}

/* Another chunk is bad, or a root was reset: all entries are checked once from now on. */
static void bad_more(struct core *c)
{
    c->disk_bad++;
    c->disk_bad_left = c->limits.disk_chunks;
    touch(c);
}

void disk_chunk_bad(struct core *c, uint32_t chunk)
{
    struct disk_chunk *k = disk_chunk_at(c, chunk);

    if (k->bad)
        return;
    k->bad = 1;
    disk_chunk_at(c, k->root)->nbad++;
    c->disk_round = gen_next(c->disk_round);
    bad_more(c);
}

static bool has_lost(const struct core *c, const struct disk_chunk *k)
{
    for (uint32_t part = 0; c->disk_lost > 0 && part < DISK_PARTS; part++)
        if (k->kept & DISK_HAS(part) && disk_file_at(c, k->part[part].file)->lost)
            return true;
    return false;
}

static bool leads_through_bad(struct core *c, uint32_t chunk)
{
    const struct disk_chunk *k = disk_chunk_at(c, chunk), *root = disk_chunk_at(c, k->root);

    if (root->reset || root->nbad == 0)
        return root->reset;
    walked(c, disk_path(k));
    while (k->depth > 0 && !k->bad)
        k = disk_chunk_at(c, k->parent);
    return k->bad;
}

/* Ends an affected entry; one that is pinned is marked as bad and ends when it is unpinned. */
static void bad_look(struct core *c, uint32_t chunk)
{
    const struct disk_chunk *k = disk_chunk_at(c, chunk);

    if (k->used && has_lost(c, k))
        disk_chunk_bad(c, chunk);
    if (!k->used || !disk_is_entry(k) || !leads_through_bad(c, chunk))
        return;
    if (k->pins == 0)
        disk_entry_end(c, chunk);
    else if (!disk_chunk_at(c, k->root)->reset)
        disk_chunk_bad(c, chunk);
}

bool disk_bad_flush(struct core *c)
{
    uint32_t end = piece_begin(c);

    if (!c->disk_ready)
        return true; /* checked after recovery has found everything */
    for (; c->disk_bad_left > 0; c->disk_bad_left--) {
        if (c->visits++ >= end || visits_left(c) == 0)
            return false;
        if (c->disk_bad + c->disk_lost == 0) {
            c->disk_bad_left = 0;
            return true;
        }
        bad_look(c, c->disk_bad_at);
        c->disk_bad_at = (c->disk_bad_at + 1) % c->limits.disk_chunks;
        touch(c);
    }
    return true;
}

void disk_reset(struct core *c, uint32_t tenant, struct namespace_id ns)
{
    disk_files_reset(c, tenant, ns);
    for (uint32_t at = tenant_at(c, tenant)->disk_roots.head; at != NONE;
         at = disk_child_list_next(c, at), c->visits++) {
        struct disk_chunk *k = disk_chunk_at(c, at);

        if (k->reset || k->ns.hi != ns.hi || k->ns.lo != ns.lo)
            continue;
        k->reset = 1;
        tenant_at(c, tenant)->disk_resets++;
        bad_more(c);
    }
}
