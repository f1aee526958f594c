/* See entries.h. A chunk names its parent by the parent's place, which no two chunks share, and not
 * by a hash alone. */
#include "core/disk/entries.h"

#include "base/hash.h"
#include "core/arena/hashed.h"
#include "core/tree/tokens.h"

static bool lies_at(const struct core *c, const struct disk_chunk *k, struct disk_place place)
{
    const struct disk_kept *at = &k->part[DISK_HISTORY];

    return k->kept & DISK_HAS(DISK_HISTORY) && at->offset == place.offset &&
           disk_file_at(c, at->file)->number == place.file;
}

/* Returns the chunk whose HISTORY extent is at `place`. */
static uint32_t chunk_at_place(const struct core *c, const struct disk_extent *e, uint64_t chain,
                               struct disk_place place)
{
    uint32_t at = hashed_first(c, TABLE_EXTENTS, disk_place_hash(c, place), 0);

    for (; at != NONE; at = hashed_at(c, TABLE_EXTENTS, at)->next) {
        const struct disk_chunk *k = disk_chunk_at(c, at);

        if (k->chain == chain && k->tenant == e->tenant && k->layout_hash == e->layout_hash &&
            k->ns.hi == e->ns.hi && k->ns.lo == e->ns.lo && lies_at(c, k, place))
            return at;
    }
    return NONE;
}

static uint32_t parent_of(struct core *c, const struct disk_extent *e)
{
    uint32_t at;

    if (e->above.file == 0)
        return e->depth == e->align
                   ? disk_root_make(c, (struct disk_tree){e->tenant, e->ns, e->layout_hash})
                   : NONE;
    at = chunk_at_place(c, e, e->parent_chain, e->above);
    return at != NONE && disk_chunk_at(c, at)->depth + e->align == e->depth ? at : NONE;
}

/* Returns the chain of these tokens and keys behind the parent's. */
static uint64_t chain_of(const struct core *c, const struct disk_fresh *f)
{
    const struct disk_chunk *p = disk_chunk_at(c, f->parent);
    struct token_view w = disk_fresh_view(c, f);

    return hash_mix(p->chain, view_hash(&w, p->depth, KEYED_START, true).content);
}

/* If a chunk is found twice, the first copy had been removed before the second was written,
 * together with everything that refers to the first. A crash has undone that removal, so this
 * function repeats it. The second copy counts. */
static void leave_old(struct core *c, uint32_t chunk)
{
    struct tenant *t = tenant_at(c, disk_chunk_at(c, chunk)->tenant);
    const uint32_t gen = disk_chunk_at(c, chunk)->gen;

    while (disk_chunk_at(c, chunk)->used && disk_chunk_at(c, chunk)->gen == gen) {
        uint32_t at = chunk;

        if (piece_over(c)) {
            disk_chunk_bad(c, chunk); /* the rest is removed after everything is found */
            return;
        }
        for (; disk_chunk_at(c, at)->children.n > 0; c->visits++)
            at = disk_chunk_at(c, at)->children.head;
        t->disk.dropped++;
        if (disk_is_entry(disk_chunk_at(c, at))) {
            t->disk.recovered--;
            disk_entry_end(c, at);
        } else {
            disk_chunk_offer(c, at);
        }
    }
}

/* Creates the chunk under its parent; NONE: no record is free. */
static uint32_t chunk_for(struct core *c, const struct disk_fresh *f)
{
    struct token_view w = disk_fresh_view(c, f);
    uint32_t old, chunk;

    disk_pin(c, f->parent);
    old = disk_child(c, f->parent, &w, true);
    if (old != NONE)
        leave_old(c, old);
    chunk = disk_chunk_make(c, f);
    disk_unpin(c, f->parent); /* if no chunk was made, its new root is removed */
    return chunk;
}

static bool take_history(struct core *c, const struct event *ev, struct disk_kept at)
{
    const struct disk_extent *e = &ev->found.extent;
    struct disk_fresh f = {.align = e->align,
                           .chain = e->chain,
                           .tokens = ev->found.tokens,
                           .extra = ev->found.keys,
                           .nkeys = e->nkeys};
    uint32_t chunk;

    if (e->tokens != e->align || e->align == 0 || e->depth / e->align > DISK_PATH_MAX)
        return false;
    f.parent = parent_of(c, e);
    if (f.parent == NONE || chain_of(c, &f) != e->chain) {
        if (f.parent != NONE)
            disk_chunk_offer(c, f.parent); /* a root that was made for it */
        return false;
    }
    chunk = chunk_for(c, &f);
    if (chunk == NONE)
        return false;
    disk_part_keep(c, chunk, DISK_HISTORY, at);
    return true;
}

static bool take_extent(struct core *c, const struct event *ev, struct disk_kept at)
{
    const struct disk_extent *e = &ev->found.extent;
    struct disk_entry entry = {
        .reason = e->reason, .hits = e->hits, .reach = e->reach, .used_ns = e->served_ns, .at = at};
    uint32_t chunk;

    if (e->part == DISK_HISTORY)
        return take_history(c, ev, at);
    chunk = chunk_at_place(c, e, e->chain, e->above);
    if (chunk == NONE || e->part >= DISK_PARTS || e->reason >= DISK_REASONS ||
        disk_within(disk_chunk_at(c, chunk), e->reach) > DISK_WINDOW_MAX)
        return false;
    if (e->part == DISK_STATE) {
        disk_part_keep(c, chunk, DISK_STATE, at);
        return true;
    }
    tenant_at(c, e->tenant)->disk.recovered += !disk_is_entry(disk_chunk_at(c, chunk));
    disk_entry_keep(c, chunk, &entry);
    return true;
}

/* Releases the last file found, which stays until all of it was reported. */
static void let_go_of_file(struct core *c)
{
    if (c->disk_file_found == NONE)
        return;
    disk_file_at(c, c->disk_file_found)->extents--;
    disk_file_offer(c, c->disk_file_found);
    c->disk_file_found = NONE;
}

static uint32_t file_of(struct core *c, const struct disk_extent *e)
{
    struct disk_file *f;

    if (c->disk_file_found != NONE && disk_file_at(c, c->disk_file_found)->number == e->place.file)
        return c->disk_file_found;
    let_go_of_file(c);
    c->disk_file_found = disk_file_take(
        c, &(struct disk_file_new){.tenant = e->tenant, .ns = e->ns, .number = e->place.file});
    if (c->disk_file_found == NONE)
        return NONE;
    f = disk_file_at(c, c->disk_file_found);
    disk_file_state_move(&f->state, DISK_FILE_KEPT);
    f->extents = 1;
    return c->disk_file_found;
}

void disk_found(struct core *c, const struct event *ev)
{
    const struct disk_extent *e = &ev->found.extent;
    struct disk_kept at = {.npages = e->npages,
                           .nsums = e->nsums,
                           .groups = e->groups,
                           .offset = e->place.offset,
                           .page_bytes = e->page_bytes};
    uint64_t bytes = disk_extent_bytes(e);
    struct tenant *t;

    if (c->disk_ready || c->limits.disk_chunks == 0 || e->tenant >= c->limits.tenants)
        return;
    t = tenant_at(c, e->tenant);
    if (t->config.disk_bytes == 0)
        return; /* the tenant may get a share again, so its files stay */
    at.file = file_of(c, e);
    if (at.file == NONE) {
        t->disk.dropped++;
        return;
    }
    disk_file_at(c, at.file)->extents++;
    t->disk_used += bytes;
    touch(c);
    if (take_extent(c, ev, at))
        return;
    t->disk_used -= bytes;
    t->disk.dropped++;
    disk_extent_gone(c, at.file, at.offset, bytes);
}

void disk_ready(struct core *c, uint64_t next_file, uint64_t served_ns)
{
    if (c->disk_ready || c->limits.disk_chunks == 0)
        return;
    let_go_of_file(c);
    c->disk_next_file = next_file ? next_file : 1;
    c->disk_served_ns = served_ns;
    c->disk_began_ns = c->now_ns;
    c->disk_checked = 0;
    c->disk_ready = 1;
    touch(c);
}

/* Returns true if STATE within its reach is missing. */
static bool lacks(const struct core *c, uint32_t chunk)
{
    const struct disk_chunk *k = disk_chunk_at(c, chunk);

    for (uint32_t i = disk_within(k, k->reach); i > 0; i--, k = disk_chunk_at(c, k->parent))
        if (!(k->kept & DISK_HAS(DISK_STATE)))
            return true;
    return false;
}

static void check_chunk(struct core *c, uint32_t at)
{
    const struct disk_chunk *k = disk_chunk_at(c, at);
    struct tenant *t;

    if (!k->used)
        return;
    t = tenant_at(c, k->tenant);
    c->visits += disk_within(k, k->reach);
    if (disk_is_entry(k) && lacks(c, at)) {
        t->disk.dropped++;
        t->disk.recovered--;
        disk_entry_end(c, at); /* this may free the chunk, too */
        return;
    }
    if (k->claims == 0 && k->kept & DISK_HAS(DISK_STATE)) {
        t->disk.dropped++;
        disk_part_leave(c, at, DISK_STATE);
    }
    if (k->children.n == 0 && !disk_is_entry(k) && k->pins == 0) {
        t->disk.dropped += k->depth > 0;
        disk_chunk_offer(c, at);
    }
}

bool disk_recover_flush(struct core *c)
{
    struct disk_room any = {.for_it = {.chunk = NONE, .reason = DISK_EVICT}};
    uint32_t end = piece_begin(c);

    for (; c->disk_ready && c->disk_checked < c->limits.disk_chunks; c->disk_checked++) {
        if (c->visits++ >= end || visits_left(c) == 0)
            return false;
        check_chunk(c, c->disk_checked);
        touch(c);
    }
    for (uint32_t i = 0; c->disk_ready && !c->disk_trimmed && i < c->limits.tenants; i++)
        while (tenant_at(c, i)->disk_used > tenant_at(c, i)->config.disk_bytes) {
            enum disk_has_room room = disk_room_more(c, i, &any);

            if (room == DISK_ROOM_NEXT)
                return false;
            if (room != DISK_ROOM)
                break;
        }
    if (c->disk_ready && !c->disk_trimmed) { /* from now on stores observe the budget */
        c->disk_trimmed = 1;
        touch(c);
    }
    return true;
}
