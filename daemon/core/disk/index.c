/* See index.h. */
#include "core/disk/index.h"

#include <string.h>

#include "core/arena/hashed.h"
#include "core/tree/nodes.h"
#include "core/tree/state.h"
#include "core/tree/tokens.h"

/* --- finding --- */

/* The second key of a root in TABLE_CHUNKS, with its namespace; a chunk has its path and root. */
static uint64_t tree_key(const struct core *c, uint32_t tenant, uint64_t layout_hash)
{
    return keyed_fold(secret_of(c), KEYED_START, layout_hash, KIND_OTHER + tenant);
}

/* Returns the root; NONE: it does not exist, or was reset. */
static uint32_t root_of(const struct core *c, struct disk_tree of)
{
    uint32_t at;

    if (c->limits.disk_chunks == 0)
        return NONE;
    at = hashed_first(c, TABLE_CHUNKS, hash_of_space(c, of.ns),
                      tree_key(c, of.tenant, of.layout_hash));
    for (; at != NONE; at = hashed_at(c, TABLE_CHUNKS, at)->next) {
        const struct disk_chunk *k = disk_chunk_at(c, at);

        if (k->depth == 0 && !k->reset && k->tenant == of.tenant && k->ns.hi == of.ns.hi &&
            k->ns.lo == of.ns.lo && k->layout_hash == of.layout_hash)
            return at;
    }
    return NONE;
}

/* Returns the hash of the path that ends with the view's chunk behind the parent. */
static uint64_t path_hash(const struct core *c, uint32_t parent, struct token_view *w)
{
    return view_hash(w, disk_chunk_at(c, parent)->depth, hashed_at(c, TABLE_CHUNKS, parent)->hash,
                     false)
        .path;
}

/* A layout's hash is public, so two layouts with equal hashes may differ in L. */
static bool is_child(const struct disk_chunk *k, uint32_t parent, struct token_view *w)
{
    return k->parent == parent && k->align == w->align &&
           view_equals_chunk(w, k->depth - k->align, (struct token_heads){k->tokens, k->keys});
}

static uint32_t child_at(const struct core *c, uint32_t parent, uint64_t hash, struct token_view *w,
                         bool bad_too)
{
    uint32_t at = hashed_first(c, TABLE_CHUNKS, hash, disk_chunk_at(c, parent)->root);

    for (; at != NONE; at = hashed_at(c, TABLE_CHUNKS, at)->next)
        if (hashed_at(c, TABLE_CHUNKS, at)->hash == hash &&
            (bad_too || disk_found_there(disk_chunk_at(c, at))) &&
            is_child(disk_chunk_at(c, at), parent, w))
            return at;
    return NONE;
}

uint32_t disk_child(const struct core *c, uint32_t parent, struct token_view *w, bool bad_too)
{
    return disk_chunk_at(c, parent)->children.n == 0
               ? NONE
               : child_at(c, parent, path_hash(c, parent, w), w, bad_too);
}

/* The same for a node's chunk, whose hash is known. */
static uint32_t child_of_node(const struct core *c, const struct disk_chunk *p, uint32_t node)
{
    const struct token_buf b = tokens_of_node(c, node_at(c, node));
    struct token_view w = {
        .c = c, .buf = &b, .align = b.align, .base = b.end, .end = b.end, .cursor_block = b.head};

    return child_at(c, disk_chunk_slot(c, p), hashed_at(c, TABLE_NODES, node)->hash, &w, false);
}

static uint32_t root_of_node(const struct core *c, const struct node *n)
{
    const struct pool *p = node_pool(c, n);

    return root_of(c, (struct disk_tree){p->tenant, space_at(c, n->space)->ns, p->layout_hash});
}

uint32_t disk_of_node(const struct core *c, const struct node *n)
{
    const struct node_disk *d = &n->disk;
    const struct disk_chunk *k = d->gen > 0 ? disk_chunk_at(c, d->chunk) : NULL;

    return k && k->used && k->gen == d->gen && d->round == c->disk_round ? d->chunk : NONE;
}

/* Returns true if its chunk is known and durable; then those of all its ancestors are, too. */
static bool is_known(const struct core *c, const struct node *n)
{
    uint32_t at = disk_of_node(c, n);
    const struct disk_chunk *k = at == NONE ? NULL : disk_chunk_at(c, at);

    return n->depth == 0 ||
           (k && k->kept & DISK_HAS(DISK_HISTORY) && !disk_chunk_at(c, k->root)->reset);
}

void disk_node_is(struct core *c, struct node *n, uint32_t chunk)
{
    n->disk.chunk = chunk;
    n->disk.gen = disk_chunk_at(c, chunk)->gen;
    n->disk.round = c->disk_round;
    touch(c);
}

struct disk_kept disk_kept_of(const struct pool *p, uint32_t groups)
{
    struct disk_kept at = {.groups = groups, .file = NONE};

    for (uint32_t g = 0; g < p->ngroups; g++) {
        const struct group *of = &p->group[g];
        const uint32_t pages = groups & 1u << g ? of->segment : 0;

        at.npages += pages;
        at.nsums += pages * of->layout.units * p->transfer_regions;
        at.page_bytes += pages * of->layout.page_bytes * p->transfer_regions;
    }
    return at;
}

void disk_node_new(struct core *c, uint32_t node)
{
    struct node *n = node_at(c, node);
    const struct node *up = node_at(c, n->parent);
    const struct pool *p = node_pool(c, n);
    const struct disk_chunk k = {.align = p->align, .nkeys = tokens_count_keys(c, n->keys)};
    struct disk_kept at;
    uint32_t groups = 0;

    for (uint32_t g = 0; g < p->ngroups; g++)
        groups |= group_is_state(&p->group[g]) ? 0 : 1u << g;
    at = disk_kept_of(p, groups);
    n->disk.keys = up->disk.keys + k.nkeys;
    n->disk.bytes = up->disk.bytes + disk_kept_bytes(&k, DISK_HISTORY, &at);
    if (is_known(c, up))
        (void)disk_of_path(c, node, true);
}

uint32_t disk_of_path(struct core *c, uint32_t node, bool learns)
{
    const struct node *n = node_at(c, node);
    const uint32_t align = node_pool(c, n)->align;
    uint32_t chunk, looks = 0;

    while (!is_known(c, n))
        n = node_at(c, is_known(c, node_at(c, n->jump)) ? n->parent : n->jump);
    chunk = n->depth == 0 ? root_of_node(c, n) : n->disk.chunk;
    for (uint32_t depth = n->depth + align; chunk != NONE && depth <= node_at(c, node)->depth;
         depth += align, looks++) {
        const uint32_t at = node_above(c, (struct path){node, depth}),
                       below = child_of_node(c, disk_chunk_at(c, chunk), at);

        if (below == NONE)
            break;
        if (learns)
            disk_node_is(c, node_at(c, at), below);
        chunk = below;
    }
    walked(c, looks * tokens_blocks_per_chunk(align));
    return chunk;
}

/* Returns true if the chunk has the STATE needed to resume at the chunk `below` chunks deeper. */
static bool has_state(const struct pool *p, const struct disk_chunk *k, uint32_t below)
{
    for (uint32_t g = 0; g < p->ngroups; g++)
        if (below < p->group[g].reach &&
            (!(k->kept & DISK_HAS(DISK_STATE)) || !(k->part[DISK_STATE].groups & 1u << g)))
            return false;
    return true;
}

/* If an entry lacks the STATE of a chunk, the entries between the two need that STATE, too. */
uint32_t disk_above(struct core *c, const struct pool *p, uint32_t chunk)
{
    uint32_t entry = NONE, n = 0, at = chunk; /* n: complete chunks, from the entry upwards */

    for (; disk_chunk_at(c, at)->depth > 0; at = disk_chunk_at(c, at)->parent) {
        const struct disk_chunk *k = disk_chunk_at(c, at);

        if (p->nstate == 0)
            return at;
        if (entry == NONE && disk_is_entry(k)) {
            entry = at;
            n = 0;
        }
        if (entry != NONE && !has_state(p, k, n++))
            entry = NONE;
        if (entry != NONE && n == p->reach)
            break;
    }
    walked(c, disk_path(disk_chunk_at(c, chunk)) - disk_path(disk_chunk_at(c, at)));
    return entry;
}

/* Goes down along the view as far as it matches, then up. Also counts the first chunk that
 * differs. */
static uint32_t reach_from(struct core *c, const struct pool *p, uint32_t chunk,
                           struct token_view *w)
{
    uint32_t at = chunk, looks = 1;

    while (w->end - disk_chunk_at(c, at)->depth >= w->align &&
           (chunk = disk_child(c, at, w, false)) != NONE) {
        at = chunk;
        looks++;
    }
    walked(c, looks * tokens_blocks_per_chunk(w->align));
    return disk_above(c, p, at);
}

uint32_t disk_reach(struct core *c, uint32_t node, struct token_view *w, bool learns)
{
    const struct node *n = node_at(c, node);
    uint32_t chunk = disk_of_path(c, node, learns);

    if (chunk == NONE)
        return NONE;
    return disk_chunk_at(c, chunk)->depth == n->depth ? reach_from(c, node_pool(c, n), chunk, w)
                                                      : disk_above(c, node_pool(c, n), chunk);
}

uint32_t disk_reach_anew(struct core *c, const struct pool *p, struct namespace_id ns,
                         struct token_view *w)
{
    uint32_t root = root_of(c, (struct disk_tree){p->tenant, ns, p->layout_hash});

    return root == NONE ? NONE : reach_from(c, p, root, w);
}

/* --- making --- */

/* The tenant's share has room. */
static uint32_t chunk_take(struct core *c, uint32_t tenant)
{
    uint32_t at = disk_chunk_slot_take(c, tenant);
    struct disk_chunk *k = disk_chunk_at(c, at);
    uint32_t gen = gen_next(k->gen);

    memset(k, 0, sizeof *k);
    k->gen = gen;
    k->used = 1;
    k->tenant = tenant;
    k->parent = k->tokens = k->keys = NONE;
    k->children = LIST_EMPTY;
    k->sibling = k->in_entries = (struct list_links){.next = NONE, .prev = NONE};
    for (uint32_t i = 0; i < DISK_PARTS; i++)
        k->part[i].file = NONE;
    touch(c);
    return at;
}

uint32_t disk_root_make(struct core *c, struct disk_tree of)
{
    uint32_t at = root_of(c, of);
    struct disk_chunk *k;

    if (at != NONE)
        return at;
    if (tenant_at(c, of.tenant)->disk_roots.n >= DISK_ROOTS_MAX ||
        share_room(c, SHARE_DISK_CHUNKS, of.tenant) == 0)
        return NONE;
    at = chunk_take(c, of.tenant);
    k = disk_chunk_at(c, at);
    k->root = at;
    k->ns = of.ns;
    k->layout_hash = of.layout_hash;
    k->chain = tree_root_chain(of.ns);
    disk_child_list_push(c, &tenant_at(c, of.tenant)->disk_roots, at);
    hashed_put(c, TABLE_CHUNKS, at, hash_of_space(c, of.ns),
               tree_key(c, of.tenant, of.layout_hash));
    return at;
}

struct token_view disk_fresh_view(const struct core *c, const struct disk_fresh *f)
{
    uint32_t base = disk_chunk_at(c, f->parent)->depth;

    return (struct token_view){.c = c,
                               .align = f->align,
                               .base = base,
                               .end = base + f->align,
                               .v = f->tokens,
                               .keys = f->extra,
                               .nkeys = f->nkeys,
                               .cursor_block = NONE};
}

uint32_t disk_chunk_make(struct core *c, const struct disk_fresh *f)
{
    struct disk_chunk *p = disk_chunk_at(c, f->parent), *k;
    struct token_view view = disk_fresh_view(c, f);
    struct token_buf tokens = {.align = f->align, .owner = {(uint16_t)p->tenant, .disk = 1}};
    uint32_t at;

    tokens_init(&tokens, p->depth);
    if (share_room(c, SHARE_DISK_CHUNKS, p->tenant) == 0 ||
        tokens_append(c, &tokens, f->tokens, f->align, f->extra, f->nkeys) != TERN_OK)
        return NONE;
    at = chunk_take(c, p->tenant);
    k = disk_chunk_at(c, at);
    k->parent = f->parent;
    k->root = p->root;
    k->align = f->align;
    k->depth = p->depth + f->align;
    k->chain = f->chain;
    k->layout_hash = p->layout_hash;
    k->ns = p->ns;
    k->path_bytes = p->path_bytes;
    k->path_keys = p->path_keys + f->nkeys;
    k->tokens = tokens.head;
    k->keys = tokens.keys;
    k->nkeys = f->nkeys;
    disk_child_list_push_front(c, &p->children, at);
    hashed_put(c, TABLE_CHUNKS, at, path_hash(c, f->parent, &view), p->root);
    return at;
}

/* --- ending --- */

static void chunk_free(struct core *c, uint32_t at)
{
    struct disk_chunk *k = disk_chunk_at(c, at);

    for (uint32_t i = 0; i < DISK_PARTS; i++)
        if (k->kept & DISK_HAS(i))
            disk_part_leave(c, at, i);
    hashed_take_out(c, TABLE_CHUNKS, at);
    disk_child_list_remove(c,
                           k->depth > 0 ? &disk_chunk_at(c, k->parent)->children
                                        : &tenant_at(c, k->tenant)->disk_roots,
                           at);
    c->disk_bad -= k->bad + k->reset;
    if (k->bad)
        disk_chunk_at(c, k->root)->nbad--;
    if (disk_entry_list_has(c, at))
        disk_entry_list_remove(c, &tenant_at(c, k->tenant)->disk_bare, at);
    if (k->reset)
        disk_reset_over(c, k->tenant);
    tokens_free(c, (struct token_owner){(uint16_t)k->tenant, .disk = 1},
                (struct token_heads){k->tokens, k->keys});
    k->used = 0;
    disk_chunk_slot_put(c, at, k->tenant);
    touch(c);
}

/* Unneeded chunks are removed in pieces: the rest waits in the tenant's `disk_bare`. */
void disk_chunk_offer(struct core *c, uint32_t chunk)
{
    for (uint32_t at = chunk, up; at != NONE; at = up) {
        const struct disk_chunk *k = disk_chunk_at(c, at);

        up = k->parent;
        if (k->children.n > 0 || disk_is_entry(k) || k->pins > 0)
            return;
        if (at != chunk && piece_over(c)) {
            if (!disk_entry_list_has(c, at))
                disk_entry_list_push(c, &tenant_at(c, k->tenant)->disk_bare, at);
            return;
        }
        c->visits += 1 + tokens_blocks_per_chunk(k->align ? k->align : 1) / RECORDS_A_VISIT;
        chunk_free(c, at);
    }
}

bool disk_bare_flush(struct core *c)
{
    piece_begin(c);
    for (uint32_t i = 0; i < c->limits.tenants; i++)
        while (tenant_at(c, i)->disk_bare.n > 0) {
            if (piece_over(c))
                return false;
            disk_chunk_offer(c, disk_entry_list_pop(c, &tenant_at(c, i)->disk_bare));
        }
    return true;
}

/* --- extents --- */

uint64_t disk_place_hash(const struct core *c, struct disk_place place)
{
    const struct hash_secret *k = secret_of(c);

    return keyed_fold(k, keyed_fold(k, KEYED_START, place.file, KIND_OTHER), place.offset,
                      KIND_OTHER);
}

void disk_extent_of(const struct core *c, uint32_t chunk, enum disk_part part,
                    const struct disk_kept *at, struct disk_extent *ret)
{
    const struct disk_chunk *k = disk_chunk_at(c, chunk), *p = disk_chunk_at(c, k->parent);
    const struct disk_kept *above =
        part == DISK_HISTORY ? &p->part[DISK_HISTORY] : &k->part[DISK_HISTORY];

    *ret = (struct disk_extent){.part = part,
                                .tenant = k->tenant,
                                .ns = k->ns,
                                .layout_hash = k->layout_hash,
                                .chain = k->chain,
                                .parent_chain = p->chain,
                                .depth = k->depth,
                                .align = k->align,
                                .tokens = part == DISK_HISTORY ? k->align : 0,
                                .nkeys = part == DISK_HISTORY ? k->nkeys : 0,
                                .npages = at->npages,
                                .nsums = at->nsums,
                                .groups = at->groups,
                                .page_bytes = at->page_bytes};
    if (at->file != NONE)
        ret->place = (struct disk_place){disk_file_at(c, at->file)->number, at->offset};
    if (above->file != NONE)
        ret->above = (struct disk_place){disk_file_at(c, above->file)->number, above->offset};
}

uint64_t disk_kept_bytes(const struct disk_chunk *k, enum disk_part part,
                         const struct disk_kept *at)
{
    struct disk_extent e = {.tokens = part == DISK_HISTORY ? k->align : 0,
                            .nkeys = part == DISK_HISTORY ? k->nkeys : 0,
                            .nsums = at->nsums,
                            .page_bytes = at->page_bytes};

    return disk_extent_bytes(&e);
}

void disk_part_keep(struct core *c, uint32_t chunk, enum disk_part part, struct disk_kept at)
{
    struct disk_chunk *k = disk_chunk_at(c, chunk);

    if (k->kept & DISK_HAS(part))
        disk_part_leave(c, chunk, part);
    k->part[part] = at;
    k->kept |= DISK_HAS(part);
    if (part == DISK_HISTORY) {
        const struct disk_chunk *p = disk_chunk_at(c, k->parent);
        struct disk_place place = {disk_file_at(c, at.file)->number, at.offset};

        k->path_bytes = p->path_bytes + disk_kept_bytes(k, part, &at);
        k->path_files = p->path_files + (p->part[DISK_HISTORY].file != at.file);
        hashed_put(c, TABLE_EXTENTS, chunk, disk_place_hash(c, place), 0);
    }
    touch(c);
}

void disk_part_leave(struct core *c, uint32_t chunk, enum disk_part part)
{
    struct disk_chunk *k = disk_chunk_at(c, chunk);
    struct disk_kept *at = &k->part[part];
    uint64_t bytes = disk_kept_bytes(k, part, at);

    check(k->kept & DISK_HAS(part));
    k->kept &= ~DISK_HAS(part);
    if (part == DISK_HISTORY)
        hashed_take_out(c, TABLE_EXTENTS, chunk);
    tenant_at(c, k->tenant)->disk_used -= bytes;
    disk_extent_gone(c, at->file, at->offset, bytes);
    *at = (struct disk_kept){.file = NONE};
}
