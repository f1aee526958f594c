/* The files of a store: the chunks of its path that are not on the disk yet, room for them, and
 * what happens when a file is durable or was not written (D3). HISTORY is written from the root
 * downwards. The STATE that a resume needs and the entry come last and in one file. Invariant: no
 * entry exists before its prefix can be resumed. */
#include "core/disk/stores.h"

#include "core/arena/actions.h"
#include "core/tree/state.h"

#define NODES_MAX (DISK_WRITE_EXTENTS / 2) /* of one file */

/* Extents of a store that the disk does not have. */
struct missing {
    uint32_t n, all;       /* chunks without HISTORY: in v, and in total */
    uint32_t chunk;        /* the deepest existing chunk; NONE */
    uint32_t keys;         /* extra keys of the missing chunks */
    uint32_t v[NODES_MAX]; /* nodes, from the top */
    uint64_t bytes;        /* of everything missing and the entry */
    uint64_t total;        /* of everything that the entry needs */
    uint32_t awaits;       /* a node whose checksums the next file waits for; NONE */
    struct reason why;     /* why it does not fit */
};

bool store_fits(uint64_t budget, uint64_t bytes)
{
    return bytes <= UINT64_MAX / 101 && bytes * 101 <= budget * 100;
}

static struct pool *store_pool(const struct core *c, const struct disk_store *s)
{
    return pool_at(c, s->pool);
}

/* --- what an extent is made of --- */

/* Returns true if the store reads the node from the device. Deeper nodes may come and leave. */
static bool on_device(const struct core *c, const struct disk_store *s, const struct node *n)
{
    return n->depth <= node_at(c, s->device)->depth;
}

/* Returns the tier from which the node's pages of the group are read; TIER_COUNT: none for this
 * store. Nobody may read a refill that waits for its step (T18). */
static enum tier group_tier(const struct core *c, const struct disk_store *s, const struct node *n,
                            uint32_t g)
{
    if (on_device(c, s, n) && n->group[g].pages[TIER_DEVICE] != NONE &&
        !(n->state.refilling & 1u << g))
        return TIER_DEVICE;
    return s->host != NONE && n->group[g].pages[TIER_HOST] != NONE ? TIER_HOST : TIER_COUNT;
}

static bool group_is_of(const struct core *c, const struct disk_store *s, const struct node *n,
                        uint32_t g, enum disk_part part)
{
    return part == (group_is_state(&store_pool(c, s)->group[g]) ? DISK_STATE : DISK_HISTORY) &&
           group_tier(c, s, n, g) != TIER_COUNT;
}

static struct disk_kept kept_of(const struct core *c, const struct disk_store *s,
                                const struct node *n, enum disk_part part)
{
    const struct pool *p = store_pool(c, s);
    uint32_t groups = 0;

    for (uint32_t g = 0; g < p->ngroups; g++)
        groups |= group_is_of(c, s, n, g, part) ? 1u << g : 0;
    return disk_kept_of(p, groups);
}

static uint64_t bytes_of(const struct core *c, const struct disk_store *s, const struct node *n,
                         enum disk_part part)
{
    struct disk_kept at = kept_of(c, s, n, part);
    struct disk_chunk k = {.align = store_pool(c, s)->align};

    if (part == DISK_HISTORY)
        k.nkeys = tokens_count_keys(c, n->keys);
    return disk_kept_bytes(&k, part, &at);
}

/* Returns the existing extent of the node's STATE; file NONE: none. */
static struct disk_kept state_there(const struct core *c, const struct node *n)
{
    uint32_t at = disk_of_node(c, n);

    return at != NONE && disk_chunk_at(c, at)->kept & DISK_HAS(DISK_STATE)
               ? disk_chunk_at(c, at)->part[DISK_STATE]
               : (struct disk_kept){.file = NONE};
}

static bool lacks_state(const struct core *c, const struct disk_store *s, const struct node *n)
{
    const struct disk_kept there = state_there(c, n);

    return there.file == NONE || (kept_of(c, s, n, DISK_STATE).groups & ~there.groups) != 0;
}

/* --- what is missing --- */

static bool sums_known(const struct node *n)
{
    return node_visible(n) && n->work.seal == SEAL_DONE;
}

/* Host pages always have their checksums. */
static void await_sums(const struct core *c, const struct disk_store *s, uint32_t node,
                       struct missing *m)
{
    if (m->awaits == NONE && on_device(c, s, node_at(c, node)) && !sums_known(node_at(c, node)))
        m->awaits = node;
}

/* Existing STATE may have to be written again if its entry is evicted. It may have more groups than
 * this entry needs, like that at the end of a shorter one, and is kept unchanged. */
static void look_at_state(struct core *c, const struct disk_store *s, struct missing *m)
{
    for (uint32_t at = s->node; node_at(c, at)->depth > s->state_from;
         at = node_at(c, at)->parent, c->visits++) {
        const struct disk_kept there = state_there(c, node_at(c, at));
        const uint64_t has = there.file == NONE ? 0 : disk_kept_bytes(NULL, DISK_STATE, &there),
                       needs = bytes_of(c, s, node_at(c, at), DISK_STATE);

        m->total += has > needs ? has : needs;
        await_sums(c, s, at, m);
        if (lacks_state(c, s, node_at(c, at)))
            m->bytes += needs;
    }
}

static void look(struct core *c, const struct disk_store *s, struct missing *ret)
{
    const struct node *n = node_at(c, s->node);
    const uint32_t align = store_pool(c, s)->align;
    uint32_t have = disk_of_path(c, s->node, true), at; /* another store may have reached deeper */
    const uint32_t from = have == NONE ? 0 : disk_chunk_at(c, have)->depth;

    *ret =
        (struct missing){.chunk = have, .bytes = DISK_BLOCK, .total = DISK_BLOCK, .awaits = NONE};
    look_at_state(c, s, ret);
    at = node_above(c, (struct path){s->node, from});
    ret->all = (n->depth - from) / align;
    ret->n = ret->all < NODES_MAX ? ret->all : NODES_MAX;
    ret->keys = n->disk.keys - node_at(c, at)->disk.keys;
    ret->bytes += n->disk.bytes - node_at(c, at)->disk.bytes;
    ret->total += n->disk.bytes - node_at(c, at)->disk.bytes;
    ret->total += have == NONE ? 0 : disk_chunk_at(c, have)->path_bytes;
    at = node_above(c, (struct path){s->node, from + ret->n * align});
    for (uint32_t i = ret->n; i-- > 0; at = node_at(c, at)->parent) {
        ret->v[i] = at;
        await_sums(c, s, at, ret);
    }
    c->visits += 1 + ret->n;
}

/* --- a file --- */

/* A file that is being filled. */
struct filling {
    struct disk_write *write;
    struct disk_store *store;
    struct actions *out;
    const struct pool *pool;
    uint64_t offset;
    uint32_t chunk; /* its deepest chunk, or the deepest existing one */
};

bool store_may_write(const struct actions *out)
{
    return !out->opens && actions_room(out) >= 2 && out->npages == 0;
}

static bool has_room(const struct filling *f, const struct disk_kept *at, uint64_t bytes)
{
    const struct disk_write *w = f->write;

    return w->nextents < DISK_WRITE_EXTENTS && w->npages + at->npages <= DISK_WRITE_PAGES &&
           (w->nextents == 0 || f->offset + bytes <= DISK_FILE_BYTES);
}

static void put_pages(const struct core *c, struct filling *f, const struct node *n,
                      enum disk_part part)
{
    for (uint32_t g = 0; g < f->pool->ngroups; g++) {
        const enum tier tier = group_tier(c, f->store, n, g);

        if (!group_is_of(c, f->store, n, g, part))
            continue;
        for (uint32_t at = n->group[g].pages[tier]; at != NONE; at = page_list_next(c, at)) {
            f->out->pages[f->write->npages] = page_place(c, at);
            f->out->pages[f->write->npages++].pool = page_at(c, at)->pool;
        }
    }
}

/* There must be room. */
static void put(struct core *c, struct filling *f, const struct node *n, uint32_t chunk,
                enum disk_part part)
{
    struct disk_write *w = f->write;
    struct disk_coming *coming = &f->store->coming[f->store->ncoming++];
    struct disk_extent *e = &f->out->extents[w->nextents++];
    uint64_t bytes;

    *coming = (struct disk_coming){chunk, part, kept_of(c, f->store, n, part)};
    disk_extent_of(c, chunk, part, &coming->at, e);
    e->place = (struct disk_place){w->file, f->offset};
    coming->at.file = f->store->file;
    coming->at.offset = f->offset;
    if (part == DISK_HISTORY) {
        disk_chunk_at(c, chunk)->part[DISK_HISTORY] = coming->at; /* chunks below name it */
        w->ntokens += e->tokens;
        w->nkeys += e->nkeys;
    }
    put_pages(c, f, n, part);
    bytes = disk_extent_bytes(e);
    f->offset += bytes;
    disk_file_at(c, f->store->file)->extents++;
    tenant_at(c, f->store->tenant)->disk_used += bytes;
    f->store->written += bytes;
}

/* Adds the HISTORY of a node, with a new chunk. Returns false if it does not fit the file. */
static bool put_history(struct core *c, struct filling *f, uint32_t node)
{
    const struct node *n = node_at(c, node);
    struct disk_kept at = kept_of(c, f->store, n, DISK_HISTORY);
    struct disk_fresh fresh = {.parent = f->chunk,
                               .align = f->pool->align,
                               .chain = n->chain,
                               .tokens = f->out->tokens + f->write->ntokens,
                               .extra = f->out->keys + f->write->nkeys,
                               .nkeys = tokens_count_keys(c, n->keys)};
    uint32_t chunk;

    if (!has_room(f, &at, bytes_of(c, f->store, n, DISK_HISTORY)) ||
        f->write->ntokens + fresh.align > OPEN_TOKENS_MAX ||
        f->write->nkeys + fresh.nkeys > EXTRA_KEYS_MAX)
        return false;
    tokens_copy_chunk(c, n, f->out->tokens + f->write->ntokens, f->out->keys + f->write->nkeys);
    chunk = disk_chunk_make(c, &fresh);
    if (chunk == NONE)
        return false;
    f->chunk = chunk;
    disk_node_is(c, node_at(c, node), chunk);
    put(c, f, n, chunk, DISK_HISTORY);
    return true;
}

/* Adds the window's missing STATE and the entry: all or nothing. */
static bool put_entry(struct core *c, struct filling *f)
{
    struct disk_store *s = f->store;
    const uint32_t from = s->state_from; /* without STATE, the path's end */
    struct disk_kept need = {0};
    const struct node *n;
    uint64_t bytes = DISK_BLOCK;
    uint32_t extents = 1;

    c->visits += 2 * (node_at(c, s->node)->depth - from) / f->pool->align;
    for (n = node_at(c, s->node); n->depth > from; n = node_at(c, n->parent))
        if (lacks_state(c, s, n)) {
            need.npages += kept_of(c, s, n, DISK_STATE).npages;
            bytes += bytes_of(c, s, n, DISK_STATE);
            extents++;
        }
    if (!has_room(f, &need, bytes) || f->write->nextents + extents > DISK_WRITE_EXTENTS)
        return false;
    for (n = node_at(c, s->node); n->depth > from; n = node_at(c, n->parent))
        if (lacks_state(c, s, n))
            put(c, f, n, disk_of_node(c, n), DISK_STATE);
    put(c, f, node_at(c, s->node), f->chunk, DISK_ENTRY);
    f->out->extents[f->write->nextents - 1].reason = s->reason;
    f->out->extents[f->write->nextents - 1].reach = f->pool->reach;
    f->out->extents[f->write->nextents - 1].served_ns = disk_served(c);
    disk_claim(c, (struct disk_window){f->chunk, f->pool->reach}, true); /* existing STATE stays */
    s->ends = 1;
    return true;
}

/* --- room --- */

#define STORE_LACKS(what, limit)                                                                   \
    "the prefix needs # " what                                                                     \
    " on the disk, and this tenant can have # at most: store a shorter prefix, or raise " limit

/* Returns the tenant's records of a table, plus those that it could still take. */
static uint32_t could_have(const struct core *c, enum share_table table, uint32_t tenant)
{
    return share_room(c, table, tenant) + share_holder(c, table, tenant)->used;
}

/* Returns true if it fits once all else is evicted; if not, neither evicting nor waiting helps.
 * m->why: the limit that the prefix exceeds; else the bytes. */
static bool could_fit(const struct core *c, const struct disk_store *s, struct missing *m)
{
    const struct tenant *t = tenant_at(c, s->tenant);
    const struct pool *p = store_pool(c, s);
    const struct disk_chunk *k = m->chunk == NONE ? NULL : disk_chunk_at(c, m->chunk);
    uint32_t path = node_at(c, s->node)->depth / p->align,
             blocks = path * tokens_blocks_per_chunk(p->align),
             keys = m->keys + (k ? k->path_keys : 0), files = k ? k->path_files : 0;

    const struct reason of[] = {{STORE_LACKS("chunks", "limits.disk_chunks"),
                                 {path + 1, could_have(c, SHARE_DISK_CHUNKS, s->tenant)}},
                                {STORE_LACKS("files", "limits.disk_chunks"),
                                 {files + 1, could_have(c, SHARE_DISK_FILES, s->tenant)}},
                                {STORE_LACKS("token blocks", "limits.disk_chunks"),
                                 {blocks, could_have(c, SHARE_DISK_BLOCKS, s->tenant)}},
                                {STORE_LACKS("extra keys", "limits.extra_keys"),
                                 {keys, could_have(c, SHARE_DISK_KEYS, s->tenant)}}};

    m->why = (struct reason){STORE_LACKS("bytes", "spill_bytes"),
                             {m->total + m->total / 100, t->config.disk_bytes}};
    if (!store_fits(t->config.disk_bytes, m->total))
        return false;
    for (uint32_t i = 0; i < sizeof of / sizeof of[0]; i++)
        if (of[i].number[0] > of[i].number[1]) {
            m->why = of[i];
            return false;
        }
    return true;
}

/* A file's record is free only when the file is gone for good. */
static enum disk_has_room file_for(struct core *c, const struct disk_store *s, struct disk_room *r)
{
    struct disk_room any = {.for_it = {.chunk = s->chunk, .reason = DISK_EVICT}, .pins = 1};
    enum disk_has_room room = DISK_ROOM;

    while (room == DISK_ROOM && share_room(c, SHARE_DISK_FILES, s->tenant) < 1) {
        if (tenant_at(c, s->tenant)->disk_leaving > 0)
            return DISK_ROOM_FILE;
        room = disk_room_more(c, s->tenant, r);
        if (room == DISK_ROOM_NEVER) /* what it will make needless */
            room = disk_room_more(c, s->tenant, &any);
    }
    return room;
}

static enum disk_has_room records_for(struct core *c, const struct disk_store *s,
                                      const struct missing *m, struct disk_room *r)
{
    uint64_t blocks = (uint64_t)m->all * tokens_blocks_per_chunk(store_pool(c, s)->align);
    enum disk_has_room room = DISK_ROOM;

    while (room == DISK_ROOM && (share_room(c, SHARE_DISK_CHUNKS, s->tenant) < m->all ||
                                 share_room(c, SHARE_DISK_BLOCKS, s->tenant) < blocks ||
                                 share_room(c, SHARE_DISK_KEYS, s->tenant) < m->keys))
        room = disk_room_more(c, s->tenant, r);
    return room == DISK_ROOM ? file_for(c, s, r) : room;
}

static struct disk_new new_entry(const struct core *c, const struct disk_store *s)
{
    const struct pool *p = store_pool(c, s);
    uint32_t depth = node_at(c, s->node)->depth, needs = p->reach * p->align;

    return (struct disk_new){.chunk = s->chunk,
                             .above = depth > needs ? depth - needs : 0,
                             .reach = p->reach,
                             .reason = (enum disk_reason)s->reason};
}

/* Makes room before each file; before the first one, for the whole store. Evicted entries may have
 * had STATE that the new entry needs: then more is missing, and the next step continues. */
static enum disk_has_room admit(struct core *c, struct disk_store *s, struct missing *m)
{
    const struct tenant *t = tenant_at(c, s->tenant);
    const uint64_t evicted = t->disk.evicted, missed = m->bytes;
    struct disk_room r = {.bytes = m->bytes + m->bytes / 100, .for_it = new_entry(c, s), .pins = 1};
    enum disk_has_room room = s->admitted ? DISK_ROOM : disk_make_room(c, s->tenant, r);

    if (room == DISK_ROOM)
        room = records_for(c, s, m, &r);
    if (room == DISK_ROOM && t->disk.evicted != evicted) {
        look(c, s, m);
        if (m->bytes > missed)
            return DISK_ROOM_NEXT;
    }
    s->admitted |= room == DISK_ROOM;
    return room;
}

/* Pins the deepest chunk of its path from here on. Its tree may need a record for a root first. */
static enum disk_has_room anchor(struct core *c, struct disk_store *s, uint32_t chunk)
{
    const struct pool *p = store_pool(c, s);
    const struct disk_tree tree = {s->tenant, space_at(c, node_at(c, s->node)->space)->ns,
                                   p->layout_hash};
    struct disk_room r = {.for_it = {.chunk = NONE, .reason = DISK_EVICT}};
    uint32_t before = s->chunk;
    enum disk_has_room room = DISK_ROOM;

    if (chunk == NONE)
        while ((chunk = disk_root_make(c, tree)) == NONE && room == DISK_ROOM)
            room = disk_room_more(c, s->tenant, &r);
    if (chunk == before || room != DISK_ROOM)
        return room;
    s->chunk = chunk;
    disk_pin(c, chunk);
    if (before != NONE)
        disk_unpin(c, before);
    return DISK_ROOM;
}

/* --- writing --- */

static bool file_begin(struct core *c, struct actions *out, struct disk_store *s, struct filling *f)
{
    const struct disk_file_new file = {.tenant = s->tenant,
                                       .ns = space_at(c, node_at(c, s->node)->space)->ns,
                                       .number = c->disk_next_file};
    struct action *a;

    s->file = disk_file_take(c, &file);
    if (s->file == NONE)
        return false;
    disk_file_state_move(&disk_file_at(c, s->file)->state, DISK_FILE_WRITING);
    a = action_add(out, ACT_DISK_WRITE);
    a->disk_write = (struct disk_write){.store = {disk_store_slot(c, s), s->gen},
                                        .file = c->disk_next_file++,
                                        .tenant = s->tenant,
                                        .pool = s->pool,
                                        .extents = out->extents,
                                        .pages = out->pages,
                                        .tokens = out->tokens,
                                        .keys = out->keys};
    s->ncoming = s->ends = 0;
    *f = (struct filling){.write = &a->disk_write,
                          .store = s,
                          .out = out,
                          .pool = store_pool(c, s),
                          .offset = DISK_BLOCK,
                          .chunk = s->chunk};
    return true;
}

/* Reverts a file that was not written. */
static void file_undo(struct core *c, struct disk_store *s)
{
    struct tenant *t = tenant_at(c, s->tenant);

    if (s->ends)
        disk_claim(c, (struct disk_window){s->last, store_pool(c, s)->reach}, false);
    for (uint32_t i = s->ncoming; i-- > 0;) {
        const struct disk_coming *k = &s->coming[i];
        uint64_t bytes = disk_kept_bytes(disk_chunk_at(c, k->chunk), k->part, &k->at);

        t->disk_used -= bytes;
        s->written -= bytes;
        if (k->part == DISK_HISTORY)
            disk_chunk_at(c, k->chunk)->part[DISK_HISTORY] = (struct disk_kept){.file = NONE};
    }
    disk_file_at(c, s->file)->extents = s->ncoming = 0;
    disk_file_free(c, s->file);
    s->file = NONE;
    if (s->last != NONE)
        disk_unpin(c, s->last);
    s->last = NONE;
}

static void file_fill(struct core *c, struct filling *f, const struct missing *m)
{
    uint32_t i = 0;

    while (i < m->n && put_history(c, f, m->v[i]))
        i++;
    if (i == m->all)
        (void)put_entry(c, f); /* else in the next file */
    f->store->last = f->chunk;
    disk_pin(c, f->chunk);
    f->out->npages += f->write->npages;
    f->out->opens = true;
}

/* Returns true if nothing is missing. */
static bool is_all_there(const struct core *c, const struct disk_store *s, const struct missing *m)
{
    const struct disk_chunk *k = m->chunk == NONE ? NULL : disk_chunk_at(c, m->chunk);

    return k && m->all == 0 && m->bytes == DISK_BLOCK && disk_is_entry(k) &&
           k->depth == node_at(c, s->node)->depth &&
           (s->reason != DISK_COLD || k->reason == DISK_COLD);
}

/* There is no room yet. A store that has written nothing unpins everything, so two stores never
 * block each other. */
static enum store_step no_room(struct core *c, struct actions *out, struct disk_store *s,
                               enum disk_has_room room, const struct reason *why)
{
    if (room == DISK_ROOM_NEVER) {
        store_end(c, out, s, TERN_QUOTA, why);
        return STORE_ENDED;
    }
    if (room != DISK_ROOM_FILE && !s->admitted && s->chunk != NONE) {
        uint32_t chunk = s->chunk, before = c->disk_let_go;

        s->chunk = NONE;
        disk_unpin(c, chunk);
        c->disk_let_go = before; /* no store met this pin in this step */
    }
    s->tried = room == DISK_ROOM_NEXT ? 0 : c->disk_let_go;
    return room == DISK_ROOM_NEXT ? STORE_GOES_ON : STORE_WAITS;
}

bool store_may_try(const struct core *c, const struct disk_store *s)
{
    return (s->tried == 0 || s->tried != c->disk_let_go) &&
           (s->awaits == NONE || sums_known(node_at(c, s->awaits)));
}

enum store_step store_write(struct core *c, struct actions *out, struct disk_store *s)
{
    enum disk_has_room room = DISK_ROOM_NEVER;
    struct missing m;
    struct filling f;

    touch(c);
    look(c, s, &m);
    s->awaits = m.awaits;
    if (s->awaits != NONE) {
        s->tried = 0;
        return STORE_WAITS;
    }
    if (is_all_there(c, s, &m)) {
        store_end(c, out, s, TERN_OK, NULL);
        return STORE_ENDED;
    }
    if (could_fit(c, s, &m) || s->admitted)
        room = anchor(c, s, m.chunk);
    if (room == DISK_ROOM)
        room = admit(c, s, &m);
    if (room == DISK_ROOM && !file_begin(c, out, s, &f))
        room = DISK_ROOM_NEVER;
    if (room != DISK_ROOM)
        return no_room(c, out, s, room, &m.why);
    file_fill(c, &f, &m);
    if (f.write->nextents == 0) { /* even its first extent does not fit a file */
        out->n--;
        out->opens = false;
        file_undo(c, s);
        store_end(c, out, s, TERN_QUOTA, &m.why);
        return STORE_ENDED;
    }
    disk_store_state_move(&s->state, DISK_STORE_WRITING);
    tenant_at(c, s->tenant)->disk_writing = disk_store_slot(c, s);
    touch(c);
    return STORE_WRITES;
}

/* --- a file was written, or not --- */

static void file_durable(struct core *c, struct disk_store *s)
{
    struct tenant *t = tenant_at(c, s->tenant);
    uint32_t file = s->file;

    disk_file_state_move(&disk_file_at(c, file)->state, DISK_FILE_KEPT);
    for (uint32_t i = 0; i < s->ncoming; i++) {
        const struct disk_coming *k = &s->coming[i];

        t->disk.written_bytes += disk_kept_bytes(disk_chunk_at(c, k->chunk), k->part, &k->at);
        if (k->part == DISK_STATE && disk_chunk_at(c, k->chunk)->kept & DISK_HAS(DISK_STATE))
            disk_chunk_at(c, k->chunk)->renewed_ns = c->now_ns;
        if (k->part != DISK_ENTRY)
            disk_part_keep(c, k->chunk, k->part, k->at);
    }
    disk_unpin(c, s->chunk);
    s->chunk = s->last;
    s->last = s->file = NONE;
}

static void store_done(struct core *c, struct disk_store *s)
{
    const struct pool *p = store_pool(c, s);
    struct disk_entry e = {.reason = s->reason,
                           .reach = p->reach,
                           .used_ns = disk_served(c),
                           .at = s->coming[s->ncoming - 1].at};

    disk_entry_keep(c, s->chunk, &e);
    disk_claim(c, (struct disk_window){s->chunk, e.reach}, false); /* the entry has the claim now */
    tenant_at(c, s->tenant)->disk.stored[s->reason]++;
    disk_prune(c, s->chunk, (enum disk_reason)s->reason);
}

/* A chunk above was found bad during the write, so lookups will not find the new chunks: removes
 * the entry and writes everything again. */
static void store_again(struct core *c, struct disk_store *s, uint32_t file)
{
    const struct disk_kept *at = &s->coming[s->ncoming - 1].at;
    uint64_t bytes = disk_kept_bytes(disk_chunk_at(c, s->chunk), DISK_ENTRY, at);

    s->admitted = 0;
    if (!s->ends)
        return;
    disk_claim(c, (struct disk_window){s->chunk, store_pool(c, s)->reach}, false);
    tenant_at(c, s->tenant)->disk_used -= bytes;
    disk_extent_gone(c, file, at->offset, bytes);
}

void disk_written(struct core *c, struct actions *out, struct store_id id, enum tern_err err)
{
    struct disk_store *s;
    uint32_t file;

    if (id.slot >= c->limits.disk_stores)
        return;
    s = disk_store_at(c, id.slot);
    if (s->gen != id.gen || s->state != DISK_STORE_WRITING)
        return;
    touch(c);
    tenant_at(c, s->tenant)->disk_writing = NONE;
    disk_store_state_move(&s->state, DISK_STORE_QUEUED);
    if (err != TERN_OK) {
        if (err != TERN_CORRUPT)
            c->disk_pause_ns = c->now_ns + DISK_PAUSE_MS * NS_PER_MS;
        file_undo(c, s);
        store_end(c, out, s, err, NULL);
        return;
    }
    file = s->file;
    file_durable(c, s);
    c->visits += s->ncoming;
    if (disk_of_path(c, s->node, true) != s->chunk) {
        store_again(c, s, file);
        return;
    }
    if (!s->ends)
        return; /* its next file waits for its tenant's turn */
    store_done(c, s);
    store_end(c, out, s, TERN_OK, NULL);
}
