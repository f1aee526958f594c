/* The arena's records of the disk tier: what is stored, what is being stored and what is being
 * removed. The rules of arena.h for records apply here too. */
#ifndef CORE_DISK_RECORDS_H
#define CORE_DISK_RECORDS_H

#include "core/arena/list.h"
#include "core/core.h"

/* An extent of a chunk: where it is, or where it is being written. */
struct disk_kept {
    uint32_t file; /* record of its file; NONE: no extent */
    uint32_t npages, nsums, groups;
    uint64_t offset, page_bytes;
};

/* An extent of the file that a store writes. */
struct disk_coming {
    uint32_t chunk, part;
    struct disk_kept at;
};

/* A chunk of a prefix on the disk, under its parent; a root has depth 0 and no extents. It belongs
 * to no pool and outlives pools, engines and daemons. See disk/index.h. */
struct disk_chunk {
    uint32_t gen, used, tenant;
    uint32_t parent, root; /* root: itself for a root */
    uint32_t depth, align;
    struct list children;
    struct list_links sibling;    /* root: in its tenant's list; `next` also: a free record */
    uint32_t tokens, keys, nkeys; /* as in struct node */
    uint32_t kept;                /* bits of the parts that are durable */
    uint32_t claims;              /* entries that need its STATE segment */
    uint32_t pins;                /* by stores, and by fetches that read it or chunks below it */
    uint32_t bad;      /* 1: a read returned other bytes than were written: never found again */
    uint32_t reset;    /* root: the same for everything below it (N1) */
    uint32_t nbad;     /* root: bad chunks below it */
    uint32_t needless; /* 1: an entry that a longer one made needless (D5) and that is still read */
    uint32_t spared;   /* disk_spared: a CONTINUED entry on the path of the store that makes room */
    struct list_links in_entries; /* an entry: the tenant's disk_entries; else: its disk_bare */
    uint64_t chain, layout_hash;
    struct namespace_id ns;
    uint64_t path_bytes; /* bytes of the path's HISTORY extents; below: its extra keys, and its
                            files as far as known without a list of them */
    uint32_t path_keys, path_files;
    struct disk_kept part[DISK_PARTS];
    uint64_t renewed_ns;          /* when STATE that it already had was written again; 0: never */
    uint32_t reason, hits, reach; /* of an entry */
    uint64_t used_ns;             /* serving time (D7) when it was stored or last used */
};

struct disk_file { /* see disk/files.c and disk/index.h */
    uint32_t state, tenant;
    uint32_t extents; /* extents that are needed or are being written */
    uint32_t reset;   /* 1: its namespace was reset */
    uint32_t lost;    /* 1: the file is missing although extents of it are needed */
    uint64_t number;
    struct namespace_id ns;
    struct list_links in_list; /* LEAVING: in disk_leaving; `next` also: a free record */
};

struct disk_gone { /* an extent or a file to remove, until the action for it is emitted */
    uint32_t file, next;
    uint64_t offset, bytes; /* offset 0: the whole file */
};

struct disk_store { /* see disk/stores.h */
    uint32_t gen, state;
    uint32_t tenant, pool;
    uint32_t node, node_gen;
    /* From QUEUED on. device: the path's deepest node on the device, pinned TRANSFER. host: the
     * deepest one on the host, pinned HOST with the STATE of a resume there; NONE: the host is not
     * read. */
    uint32_t device, host;
    uint32_t state_from, reason;
    uint32_t admitted; /* 1: room was made for all of it */
    uint32_t chunk;    /* its deepest durable chunk, pinned */
    uint32_t last; /* WRITING: the file's deepest chunk; its pin replaces that of `chunk` once it is
                      durable */
    uint32_t file; /* WRITING */
    uint32_t ends; /* WRITING: 1: the file has the entry */
    uint32_t tried;  /* QUEUED: disk_let_go at the last try without room; 0: not tried */
    uint32_t awaits; /* QUEUED: a node whose checksums it waits for; NONE */
    uint32_t ncoming;
    struct disk_coming coming[DISK_WRITE_EXTENTS];
    struct list_links in_list;
    struct session_id session; /* its session; {0, 0}: none */
    uint32_t before;           /* the session's disk_stored before it (D1) */
    struct reply_to reply;
    uint64_t written;
    uint64_t after_ns; /* DUE: it pins nothing before this time */
    uint64_t since_ns; /* when it began */
    uint32_t keeps;    /* DUE: 1: the last copy of its node is kept for it */
};

#endif
