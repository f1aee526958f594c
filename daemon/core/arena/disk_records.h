/* The records of the arena that say what lies on the disk, and what is on its way there. What
 * arena.h says of its records is true of these. */
#ifndef CORE_DISK_RECORDS_H
#define CORE_DISK_RECORDS_H

#include "core/arena/arena.h"

/* An extent of a chunk: where it is, or is being written. */
struct disk_kept {
    uint32_t file; /* record of its file; NONE: there is none */
    uint32_t npages, nsums, groups;
    uint64_t offset, page_bytes;
};

/* An extent of the file that a store writes. */
struct disk_coming {
    uint32_t chunk, part;
    struct disk_kept at;
};

/* A chunk of a prefix on the disk, under its parent; a root has depth 0 and nothing on the disk. It
 * belongs to no pool: it outlives pools, engines and daemons. See disk/index.h. */
struct disk_chunk {
    uint32_t gen, used, tenant;
    uint32_t parent, root; /* a root's own */
    uint32_t depth, align;
    struct list children;
    struct list_links sibling;    /* of a root: in its tenant's list; `next` too where it is free */
    uint32_t tokens, keys, nkeys; /* as a node's */
    uint32_t kept;                /* parts, as bits, that are durable */
    uint32_t claims;              /* entries whose STATE its segment is of */
    uint32_t pins;                /* fetches that read it or what is below it, and stores */
    uint32_t bad;      /* 1: what was read of it was not what was written: never found again */
    uint32_t reset;    /* of a root: the same, of all below it (N1) */
    uint32_t nbad;     /* of a root: chunks below it that are bad */
    uint32_t needless; /* 1: an entry that a longer one has made so (D5), and that somebody reads */
    uint32_t spared;   /* disk_spared: a continued entry on the path of the store that makes room */
    struct list_links in_entries; /* of its tenant; of no entry: in its disk_bare */
    uint64_t chain, layout_hash;
    struct namespace_id ns;
    uint64_t path_bytes; /* of the HISTORY extents up to here; and their extra keys, and files as
                            far as one can tell without remembering them: */
    uint32_t path_keys, path_files;
    struct disk_kept part[DISK_PARTS];
    uint64_t renewed_ns;          /* when STATE that it had was written anew; 0: never */
    uint32_t reason, hits, reach; /* of an entry */
    uint64_t used_ns;             /* serving time (D7) when it was stored, or used last */
};

struct disk_file { /* see disk/files.h */
    uint32_t state, tenant;
    uint32_t extents; /* that are needed, or are being written */
    uint32_t reset;   /* 1: of a namespace that was reset */
    uint32_t lost;    /* 1: it is not there any more, though extents of it are needed */
    uint64_t number;
    struct namespace_id ns;
    struct list_links in_list; /* LEAVING: of disk_leaving; `next` where it is free */
};

struct disk_gone { /* what is to be given back, until it is said */
    uint32_t file, next;
    uint64_t offset, bytes; /* offset 0: the whole file */
};

struct disk_store { /* see disk/stores.h */
    uint32_t gen, state;
    uint32_t tenant, pool;
    uint32_t node, node_gen;
    /* From QUEUED on: what lies on the device is pinned TRANSFER by its deepest node, and HOST the
     * deepest one that is on the host, with the STATE of a resume there. NONE: nothing is read
     * from the host. */
    uint32_t device, host;
    uint32_t state_from, reason;
    uint32_t admitted; /* 1: room was made for all of it */
    uint32_t chunk;    /* the deepest of its chunks that is durable: pinned */
    uint32_t last;     /* WRITING: the deepest chunk of the file; it is pinned in the place of
                          `chunk` when that is durable */
    uint32_t file;     /* WRITING */
    uint32_t ends;     /* WRITING: 1: the file has the entry */
    uint32_t tried;    /* QUEUED: disk_let_go when there was no room for it; 0: it was not tried */
    uint32_t awaits;   /* QUEUED: a node whose checksums it waits for; NONE */
    uint32_t ncoming;
    struct disk_coming coming[DISK_WRITE_EXTENTS];
    struct list_links in_list;
    struct session_id session; /* that it is of; {0, 0}: none */
    uint32_t before;           /* what that session had stored (D1) */
    uint32_t conn;             /* who is to be answered; NONE */
    uint64_t request_id, trace_id, written;
    uint64_t after_ns; /* DUE: it pins nothing before that */
    uint64_t since_ns; /* when it began */
    uint32_t keeps;    /* 1, DUE: the last copy of its node is kept for it */
};

ARENA_RECORDS(disk_chunk, disk_chunk, disk_chunks)
ARENA_RECORDS(disk_file, disk_file, disk_files)
ARENA_RECORDS(disk_store, disk_store, disk_stores)

/* Each extent can go once before its chunk's record is used again, and each file. */
static inline uint32_t disk_gone_limit(const struct core_limits *l)
{
    return l->disk_chunks * DISK_PARTS + l->disk_files;
}

ARENA_ARRAY(struct disk_gone, disk_gone_at, disk_gones_at, disk_gone_limit(&c->limits))

ARENA_LIST(disk_child_list, disk_chunk, sibling)
ARENA_LIST(disk_entry_list, disk_chunk, in_entries)
ARENA_LIST(disk_store_list, disk_store, in_list)
ARENA_LIST(disk_leaving_list, disk_file, in_list)

ARENA_FREE_LIST(disk_chunk, free_disk_chunks, disk_chunk_at(c, i)->sibling.next)
ARENA_FREE_LIST(disk_gone, free_disk_gones, disk_gone_at(c, i)->next)
ARENA_FREE_LIST(disk_file, free_disk_files, disk_file_at(c, i)->in_list.next)
ARENA_FREE_LIST(disk_store, free_disk_stores, disk_store_at(c, i)->in_list.next)

#endif
