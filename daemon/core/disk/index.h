/* The index of what lies on the disk: a tree of chunks for each (tenant, namespace, layout), beside
 * the prefix trees of the pools and like them, with the token ids of every chunk, so that what is
 * found is equal and not only hashed alike (D4). A chunk is there as long as an entry at it or
 * below it needs it; entries that have chunks in common share them (D9).
 *
 * What must stay true: a chunk whose HISTORY is kept has a parent whose HISTORY is kept, up to the
 * root; the bytes that a tenant uses are those of its extents that are kept or are being written;
 * a STATE extent is kept while an entry claims it. */
#ifndef CORE_DISK_INDEX_H
#define CORE_DISK_INDEX_H

#include "core/arena/disk_records.h"
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

/* Chunks of its path, with it: as many as a walk up to the root looks at. */
static inline uint32_t disk_path(const struct disk_chunk *k)
{
    return k->depth ? k->depth / k->align : 0;
}

/* Those of them that a reach has: a window may be longer than what was stored. */
static inline uint32_t disk_within(const struct disk_chunk *k, uint32_t reach)
{
    return reach < disk_path(k) ? reach : disk_path(k);
}

/* Whose tree: a root is found by it. */
struct disk_tree {
    uint32_t tenant;
    struct namespace_id ns;
    uint64_t layout_hash;
};

/* The same, and it is made; NONE if no record is to be had. */
uint32_t disk_root_make(struct core *c, struct disk_tree of);
/* The chunk that the node remembers, which may not be durable yet; NONE: none. */
uint32_t disk_of_node(const struct core *c, const struct node *n);
/* The deepest chunk of the node's path, every token compared; the root's for a root. NONE: there is
 * no root. What nodes remember is not compared again. learns: they remember what is found. */
uint32_t disk_of_path(struct core *c, uint32_t node, bool learns);
/* The node remembers the chunk as its own. */
void disk_node_is(struct core *c, struct node *n, uint32_t chunk);
/* The node is new: if the chunk of its parent is known, so is its own. */
void disk_node_new(struct core *c, uint32_t node);
/* The deepest one from this upwards that a session of the pool can go on from, or NONE. */
uint32_t disk_above(struct core *c, const struct pool *p, uint32_t chunk);
/* Where a session could get to: from the deepest chunk of the path to `node` that is on the disk,
 * down along the view. NONE for nowhere. */
uint32_t disk_reach(struct core *c, uint32_t node, struct token_view *w, bool learns);
/* The same, from no node at all: a namespace of the pool of which memory has nothing. */
uint32_t disk_reach_anew(struct core *c, const struct pool *p, struct namespace_id ns,
                         struct token_view *w);

/* What a chunk is made of. `blocks` and `keys` are copied into records of the index. */
struct disk_fresh {
    uint32_t parent, align;
    uint64_t chain;
    const uint32_t *tokens;
    const struct extra_key *extra;
    uint32_t nkeys;
};

/* A chunk of which nothing is kept yet, under its parent. NONE: records have run out. */
uint32_t disk_chunk_make(struct core *c, const struct disk_fresh *f);
struct token_view disk_fresh_view(const struct core *c, const struct disk_fresh *f);
/* The child of `parent` with the view's tokens and keys; NONE. bad_too: one that lookups skip. */
uint32_t disk_child(const struct core *c, uint32_t parent, struct token_view *w, bool bad_too);
/* Where nobody needs the chunk any more it goes, and so do those above it. */
void disk_chunk_offer(struct core *c, uint32_t chunk);
/* The rest of what goes. False: there is more. */
bool disk_bare_flush(struct core *c);
static inline void disk_pin(struct core *c, uint32_t chunk)
{
    disk_chunk_at(c, chunk)->pins++;
    tenant_at(c, disk_chunk_at(c, chunk)->tenant)->disk_pins++;
    touch(c);
}
/* A store that waits for room may have it now. */
static inline void disk_let_go(struct core *c)
{
    c->disk_let_go = gen_next(c->disk_let_go);
}

/* An extent of the chunk is durable there: one that it had before goes. */
void disk_part_keep(struct core *c, uint32_t chunk, enum disk_part part, struct disk_kept at);
/* It is needed no more. */
void disk_part_leave(struct core *c, uint32_t chunk, enum disk_part part);
/* By which a chunk is found that has its HISTORY there. */
uint64_t disk_place_hash(const struct core *c, struct disk_place place);
/* What an extent of the chunk says of itself. */
void disk_extent_of(const struct core *c, uint32_t chunk, enum disk_part part,
                    const struct disk_kept *at, struct disk_extent *ret);
/* What an extent with the pages of those groups, of one chunk, keeps. */
struct disk_kept disk_kept_of(const struct pool *p, uint32_t groups);
uint64_t disk_kept_bytes(const struct disk_chunk *k, enum disk_part part,
                         const struct disk_kept *at);

/* Files: how many of their extents are needed, and what is to be given back. */
struct disk_file_new {
    uint32_t tenant;
    struct namespace_id ns;
    uint64_t number;
};
uint32_t disk_file_take(struct core *c, const struct disk_file_new *f); /* NONE: no record */
/* A reset of their namespace is over when they are gone, also those that are leaving by now: a
 * crash could bring them back. */
void disk_files_reset(struct core *c, uint32_t tenant, struct namespace_id ns);
void disk_file_free(struct core *c, uint32_t file);
/* An extent of the file is not needed. */
void disk_extent_gone(struct core *c, uint32_t file, uint64_t offset, uint64_t bytes);
/* Something that was reset is gone for good. */
void disk_reset_over(struct core *c, uint32_t tenant);
/* Nothing of the file is needed: after its last extent, or where none was. */
void disk_file_offer(struct core *c, uint32_t file);
/* Says what is to be given back. False: there is more. */
bool disk_gone_flush(struct core *c, struct actions *out);
/* The file is gone for good: it was given back, or is not there for another reason. 0: all are. */
void disk_file_dropped(struct core *c, uint64_t number);

#endif
