/* The index of the disk: a tree of chunks for each (tenant, namespace, layout), separate from the
 * pools' prefix trees but like them. It has the token ids of every chunk, so a match compares
 * tokens and not only hashes (D4). A chunk exists while it is an entry, has children or is pinned;
 * entries with common chunks share them (D9).
 *
 * Invariants: the parent of a chunk whose HISTORY is kept has its own HISTORY kept, up to the root;
 * a tenant's used bytes are those of its extents that are kept or being written; a STATE extent is
 * kept while an entry claims it. */
#ifndef CORE_DISK_INDEX_H
#define CORE_DISK_INDEX_H

#include "core/tree/nodes.h"

#define DISK_HAS(part) (1u << (part))

static inline bool disk_found_there(const struct disk_chunk *k)
{
    return k->depth == 0 || (k->kept & DISK_HAS(DISK_HISTORY) && !k->bad);
}

static inline bool disk_is_entry(const struct disk_chunk *k)
{
    return k->kept & DISK_HAS(DISK_ENTRY);
}

/* Returns the number of chunks from `k` up to the root: the length of a walk. A root has 0. */
static inline uint32_t disk_path(const struct disk_chunk *k)
{
    return k->depth ? k->depth / k->align : 0;
}

/* Returns how many chunks of that path lie within `reach`, which may exceed the path. */
static inline uint32_t disk_within(const struct disk_chunk *k, uint32_t reach)
{
    return reach < disk_path(k) ? reach : disk_path(k);
}

/* The key of a root. */
struct disk_tree {
    uint32_t tenant;
    struct namespace_id ns;
    uint64_t layout_hash;
};

/* Finds or creates the root; NONE if no record is free. */
uint32_t disk_root_make(struct core *c, struct disk_tree of);
/* Returns the chunk that the node remembers, which may not be durable yet; NONE: no valid one. */
uint32_t disk_of_node(const struct core *c, const struct node *n);
/* Returns the deepest chunk on the disk of the path to `node`, or the root of the disk's tree if
 * the disk has none. NONE: there is no such root either. Compares every token, except in chunks
 * that nodes remember. learns: nodes remember the chunks that are found. */
uint32_t disk_of_path(struct core *c, uint32_t node, bool learns);
/* Makes the node remember the chunk as its own. */
void disk_node_is(struct core *c, struct node *n, uint32_t chunk);
/* For a new node: sets the size of its path. If its parent's chunk is known, looks up its own. The
 * daemon has a disk tier. */
void disk_node_new(struct core *c, uint32_t node);
/* Returns the deepest chunk from here upwards at which a session of the pool can resume; NONE. */
uint32_t disk_above(struct core *c, const struct pool *p, uint32_t chunk);
/* Returns the deepest chunk at which a session could resume; NONE. The chunks are those of the path
 * to `node` and, if the disk has all of that path, those that match the view below it. */
uint32_t disk_reach(struct core *c, uint32_t node, struct token_view *w, bool learns);
/* The same from the root, for a namespace of the pool of which memory has no node. */
uint32_t disk_reach_anew(struct core *c, const struct pool *p, struct namespace_id ns,
                         struct token_view *w);

/* The content of a new chunk. `tokens` and `extra` are copied into records of the index. */
struct disk_fresh {
    uint32_t parent, align;
    uint64_t chain;
    const uint32_t *tokens;
    const struct extra_key *extra;
    uint32_t nkeys;
};

/* Creates a chunk under its parent, with nothing kept yet. NONE: no record is free. */
uint32_t disk_chunk_make(struct core *c, const struct disk_fresh *f);
struct token_view disk_fresh_view(const struct core *c, const struct disk_fresh *f);
/* Returns the child with the view's tokens and keys; NONE. bad_too: also a child that lookups
 * skip, since it is bad or has no durable HISTORY. */
uint32_t disk_child(const struct core *c, uint32_t parent, struct token_view *w, bool bad_too);
/* Removes the chunk if it is not needed, and then each ancestor that is no longer needed. */
void disk_chunk_offer(struct core *c, uint32_t chunk);
/* Removes unneeded chunks that disk_chunk_offer left. Returns false if there are more. */
bool disk_bare_flush(struct core *c);
static inline void disk_pin(struct core *c, uint32_t chunk)
{
    disk_chunk_at(c, chunk)->pins++;
    tenant_at(c, disk_chunk_at(c, chunk)->tenant)->disk_pins++;
    touch(c);
}
/* Lets stores that wait for room try again. */
static inline void disk_let_go(struct core *c)
{
    c->disk_let_go = gen_next(c->disk_let_go);
}

/* Records a durable extent of the chunk; an earlier one is removed. */
void disk_part_keep(struct core *c, uint32_t chunk, enum disk_part part, struct disk_kept at);
/* The extent is no longer needed. */
void disk_part_leave(struct core *c, uint32_t chunk, enum disk_part part);
/* Returns the hash that finds a chunk by the place of its HISTORY. */
uint64_t disk_place_hash(const struct core *c, struct disk_place place);
/* Fills in the description that an extent of the chunk carries. */
void disk_extent_of(const struct core *c, uint32_t chunk, enum disk_part part,
                    const struct disk_kept *at, struct disk_extent *ret);
/* Returns the sizes of an extent with one chunk's pages of those groups. */
struct disk_kept disk_kept_of(const struct pool *p, uint32_t groups);
uint64_t disk_kept_bytes(const struct disk_chunk *k, enum disk_part part,
                         const struct disk_kept *at);

/* Files: how many of their extents are needed, and what is to be removed. */
struct disk_file_new {
    uint32_t tenant;
    struct namespace_id ns;
    uint64_t number;
};
uint32_t disk_file_take(struct core *c, const struct disk_file_new *f); /* NONE: no record */
/* Marks the namespace's files. Its reset ends when all of these are gone, also those that are
 * LEAVING already, since a crash could restore them. */
void disk_files_reset(struct core *c, uint32_t tenant, struct namespace_id ns);
void disk_file_free(struct core *c, uint32_t file);
/* An extent of the file is no longer needed. */
void disk_extent_gone(struct core *c, uint32_t file, uint64_t offset, uint64_t bytes);
/* A reset root or file is gone for good. */
void disk_reset_over(struct core *c, uint32_t tenant);
/* Removes the file if none of its extents is needed. */
void disk_file_offer(struct core *c, uint32_t file);
/* Emits actions for the queued removals. Returns false if there are more. */
bool disk_gone_flush(struct core *c, struct actions *out);
/* The file is gone for good: it was removed, or is missing. number 0: all files are missing. */
void disk_file_dropped(struct core *c, uint64_t number);

#endif
