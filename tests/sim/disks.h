/* What lies on the simulated disks: of disk.c, disk_checks.c, disk_reads.c and disk_asks.c alone.
 */
#ifndef SIM_DISKS_H
#define SIM_DISKS_H

#include "disk.h"

#define DISK_EXTS   1024 /* extents of a daemon's disk, with holes that may come back */
#define DISK_NFILES 32
#define DISK_EPAGES 16 /* pages of an extent */
#define DISK_ASKS   16 /* Stores that wait for their answers */
#define DISK_TOKENS 16 /* of a chunk */

/* HOLE: it was given back, and a crash may bring it back. */
enum ext_state { EXT_FREE = 0, EXT_COMING, EXT_THERE, EXT_HOLE };
enum file_state { FILE_NONE = 0, FILE_WRITING, FILE_THERE, FILE_LEAVING };

/* A prefix as the disk knows it. `variant`: the smallest sequence that begins with these k chunks.
 */
struct ident {
    uint8_t tenant, ns, ranks, variant, k;
};

struct ext_page {
    uint8_t group, lacks, host; /* host: it is read from the host tier */
    uint16_t granule, record;   /* while it is written: where it is read from */
    uint32_t gen;
    struct tag tag[RANKS];
};

struct ext {
    uint8_t state, file;
    struct ident id;
    uint8_t bad;    /* it cannot be found by this core: what was read of it, or above, was wrong */
    uint8_t doomed; /* likewise, since its namespace was reset */
    uint8_t rotten; /* no start finds it */
    uint8_t spoilt; /* its pages are not what was written */
    uint8_t back;   /* a crash has brought it back */
    uint8_t old;    /* an earlier core has heard of it */
    uint8_t
        half; /* an entry that lacks STATE of some group, since a start; none can resume there */
    uint8_t late; /* an entry that a longer one has made needless, and that is read */
    uint8_t must; /* the start that is under way has to find it */
    uint16_t up;  /* the extent that it names as above it; DISK_EXTS: none */
    uint32_t up_uid, uid, content, dropped, npages; /* dropped: the step; 0: it was not */
    uint64_t since;                                 /* when it became durable */
    struct disk_extent e;
    uint32_t tokens[DISK_TOKENS];
    struct extra_key key;
    struct ext_page page[DISK_EPAGES];
};

struct dfile {
    uint8_t state, tenant, pool;
    uint8_t lost; /* it is not there any more, and the core was told so */
    uint64_t number;
    struct store_id store;
};

struct store_ask {
    uint64_t request; /* 0: none */
    uint32_t conn, depth, committed, tokens, space;
    uint32_t sure, behind; /* depths that the model would bet a session can go on from: the deepest
                              at or above what was asked for, and the first behind it; 0: none */
    struct ident id;       /* k: not used */
};

struct disks {
    uint32_t top, uid, step; /* top: extents below it may be used */
    uint64_t last_file, pause_ns, served_ns;
    uint16_t told;          /* the entry that became durable in this step; DISK_EXTS: none */
    uint16_t began;         /* the file that a write began for in this step; DISK_NFILES: none */
    uint8_t freed;          /* a file has gone since the last write began */
    uint8_t ahead[TENANTS]; /* 1: entries have made way in pieces for the next write */
    uint8_t written;        /* enum tern_err that the core was told of a file in this step */
    uint8_t moved;          /* something was dropped or became durable in this step */
    uint8_t unsure;         /* the core has work left over: what it has dropped is not all said */
    uint8_t starting, shutting, was_full, short_of;
    uint8_t resetting, reset_tenant, reset_ns; /* a peer tells of a reset in this step */
    uint32_t spoilt, broken;                   /* pages that came wrong, reads that failed */
    uint64_t over[TENANTS];                    /* bytes that a start has found beyond the budget */
    uint64_t used[TENANTS];                    /* bytes, when it was last looked at */
    uint64_t lost[TENANTS];          /* stores that failed, though there was room for them */
    uint64_t storing_since[TENANTS]; /* without a break; 0: nothing is stored now */
    uint8_t
        troubled; /* the disk has failed or was slow, an engine died, or a namespace was reset */
    uint64_t denied[TENANTS]; /* stores without room, and evictions, until it was told to end */
    uint32_t unwritten;       /* files that the disk has refused since then */
    struct dfile file[DISK_NFILES];
    struct store_ask ask[DISK_ASKS];
    struct ext ext[DISK_EXTS];
};

static inline bool ext_known(const struct ext *x)
{
    return x->state == EXT_THERE && !x->rotten;
}

/* Did this step drop it? */
static inline bool ext_left(const struct disks *k, const struct ext *x)
{
    return x->state == EXT_HOLE && x->dropped == k->step;
}

static inline bool ident_equal(struct ident a, struct ident b)
{
    return a.tenant == b.tenant && a.ns == b.ns && a.ranks == b.ranks && a.variant == b.variant &&
           a.k == b.k;
}

/* The prefix of the same conversation that ends with chunk k. */
static inline struct ident ident_at(const struct sim *w, struct ident id, uint32_t k)
{
    id.variant = w->canon[id.variant][k];
    id.k = (uint8_t)k;
    return id;
}

#define EXTS(k, x)                                                                                 \
    struct ext *x = (k)->ext;                                                                      \
    x < (k)->ext + (k)->top;                                                                       \
    x++

/* What counts as there: what this core may find; that, before the drops of this step; that, and
 * what is being written; what a start has to find. */
enum look { LOOK_NOW, LOOK_THEN, LOOK_COMING, LOOK_MUST };

/* ---- disk_reads.c ---- */
/* It cannot be found from now on, nor what hangs on it. */
void disk_ext_bad(struct disks *k, const struct ext *bad);

/* ---- disk_checks.c ---- */
struct ext *ext_find(struct disks *k, struct ident id, enum disk_part part, enum look look);
/* Is all the STATE there that a session needs to go on from there? */
bool state_whole(struct sim *w, struct disks *k, struct ident id, enum look look);
bool entry_whole(struct sim *w, struct disks *k, const struct ext *x, enum look look);
struct ext *ext_at(struct disks *k, struct disk_place at);
void note_late(struct sim *w, uint32_t d);
void check_drops(struct sim *w, uint32_t d);
void check_ahead(struct sim *w, uint32_t d);
void check_budgets(struct sim *w, uint32_t d);
/* A start: which entries has it to find? */
void find_musts(struct sim *w, uint32_t d);
/* Which entries have their extents back, and those less than they need? */
void find_halves(struct sim *w, uint32_t d);
/* D5, where nothing is under way. */
void check_pruned(struct sim *w, uint32_t d);
void check_write(struct sim *w, uint32_t d, const struct dfile *f);

#endif
