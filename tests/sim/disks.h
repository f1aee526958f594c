/* Contents of the simulated disks, for disk.c, disk_checks.c, disk_reads.c and disk_asks.c
 * alone. */
#ifndef SIM_DISKS_H
#define SIM_DISKS_H

#include "disk.h"

#define DISK_EXTS   1024 /* extents of a daemon's disk, and holes that may return */
#define DISK_NFILES 32
#define DISK_EPAGES 16 /* pages of an extent */
#define DISK_ASKS   16 /* Stores that wait for their answers, at most */
#define DISK_TOKENS 16 /* tokens of a chunk */

/* HOLE: the extent was freed, and a crash may restore it. */
enum ext_state { EXT_FREE = 0, EXT_COMING, EXT_THERE, EXT_HOLE };
enum file_state { FILE_NONE = 0, FILE_WRITING, FILE_THERE, FILE_LEAVING };

/* A prefix as the disk knows it. `variant`: the smallest sequence that begins with these k
 * chunks. */
struct ident {
    uint8_t tenant, ns, ranks, variant, k;
};

struct ext_page {
    uint8_t group, lacks, host; /* host: it is read from the host tier */
    uint16_t granule, record;   /* source of the write, while the page is written */
    uint32_t gen;
    struct tag tag[RANKS];
};

struct ext {
    uint8_t state, file;
    struct ident id;
    uint8_t bad;    /* this core cannot find it: data read from it, or above it, was wrong */
    uint8_t doomed; /* likewise, since its namespace was reset */
    uint8_t rotten; /* no start finds it */
    uint8_t spoilt; /* its pages are not what was written */
    uint8_t back;   /* a crash has restored it */
    uint8_t old;    /* an earlier core knew of it */
    uint8_t
        half; /* an entry that lacks STATE of some group, since a start; none can resume there */
    uint8_t late; /* an entry that a longer one has made needless, and that a fetch reads */
    uint8_t must; /* the start that is under way has to find it */
    uint16_t up;  /* the extent that it names as its parent; DISK_EXTS: none */
    uint32_t up_uid, uid, content, dropped, npages; /* dropped: the step; 0: never */
    uint64_t since;                                 /* when it became durable */
    struct disk_extent e;
    uint32_t tokens[DISK_TOKENS];
    struct extra_key key;
    struct ext_page page[DISK_EPAGES];
};

struct dfile {
    uint8_t state, tenant, pool;
    uint8_t lost; /* the file does not exist any more, and the core was informed */
    uint64_t number;
    struct store_id store;
};

struct store_ask {
    uint64_t request; /* 0: none */
    uint32_t conn, depth, committed, tokens, space;
    uint32_t sure, behind; /* depths where the model would bet on a resume: the deepest at or above
                            * what was asked for, and the first behind it; 0: none */
    struct ident id;       /* k: not used */
};

struct disks {
    uint32_t top, uid, step; /* top: extents below it may be used */
    uint64_t last_file, pause_ns, served_ns;
    uint16_t told;          /* the entry that became durable in this step; DISK_EXTS: none */
    uint16_t began;         /* the file that a write began for in this step; DISK_NFILES: none */
    uint8_t freed;          /* a file has gone since the last write began */
    uint8_t ahead[TENANTS]; /* 1: entries were evicted in pieces for the next write */
    uint8_t written;        /* enum tern_err of a file that the core received in this step */
    uint8_t moved;          /* something was dropped or became durable in this step */
    uint8_t unsure;         /* the core has work left over: not all drops are reported */
    uint8_t starting, shutting, was_full, short_of;
    uint8_t resetting, reset_tenant, reset_ns; /* a peer sends a reset in this step */
    uint32_t spoilt, broken;                   /* pages that came wrong, reads that failed */
    uint64_t over[TENANTS];                    /* bytes beyond the budget that a start has found */
    uint64_t used[TENANTS];                    /* bytes, at the last look */
    uint64_t lost[TENANTS];          /* stores that failed, though there was room for them */
    uint64_t storing_since[TENANTS]; /* since when stores run without a break; 0: none runs now */
    uint8_t
        troubled; /* the disk has failed or was slow, an engine died, or a namespace was reset */
    uint64_t denied[TENANTS]; /* stores without room, and evictions, until its shutdown */
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

/* Extents that count as existing: those that this core may find; the same, before the drops of this
 * step; the same, and those being written; those that a start has to find. */
enum look { LOOK_NOW, LOOK_THEN, LOOK_COMING, LOOK_MUST };

/* ---- disk_reads.c ---- */
/* Neither the extent nor its descendants can be found from now on. */
void disk_ext_bad(struct disks *k, const struct ext *bad);

/* ---- disk_checks.c ---- */
struct ext *ext_find(struct disks *k, struct ident id, enum disk_part part, enum look look);
/* Does the disk have all the STATE that a session needs to resume from there? */
bool state_whole(struct sim *w, struct disks *k, struct ident id, enum look look);
bool entry_whole(struct sim *w, struct disks *k, const struct ext *x, enum look look);
struct ext *ext_at(struct disks *k, struct disk_place at);
void note_late(struct sim *w, uint32_t d);
void check_drops(struct sim *w, uint32_t d);
void check_ahead(struct sim *w, uint32_t d);
void check_budgets(struct sim *w, uint32_t d);
/* Decides which entries a start must find. */
void find_musts(struct sim *w, uint32_t d);
/* Marks the entries that came back with fewer extents than they need. */
void find_halves(struct sim *w, uint32_t d);
/* Checks D5, where nothing is under way. */
void check_pruned(struct sim *w, uint32_t d);
void check_write(struct sim *w, uint32_t d, const struct dfile *f);

#endif
