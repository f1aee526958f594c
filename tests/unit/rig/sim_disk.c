/* See sim_disk.h. A file is an inode whose whole history is in the disk's log; its present bytes
 * are kept beside that. */
#include "unit/rig/sim_disk.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/prng.h"
#include "core/disk.h"

#define SECTOR 512u

enum step_kind { MAKE, RENAME, REMOVE, FOLDER, WRITE, PUNCH, RESERVE, SYNC, SYNC_LOST };

struct step {
    enum step_kind kind;
    uint32_t inode; /* of FOLDER none */
    uint64_t offset, bytes;
    uint8_t *data; /* WRITE; owned */
    size_t done;   /* WRITE: steps when it was reaped; SIZE_MAX: it was not */
    char name[DISK_NAME_MAX];
};

struct inode {
    uint8_t *v; /* owned */
    size_t n, cap;
    char name[DISK_NAME_MAX]; /* "": it has none */
    int opened;
};

struct pending {
    struct disk_piece piece;
    int file, result;
    bool write;
    size_t step; /* SIZE_MAX: none */
};

struct lane {
    struct pending v[DISK_LANE_PIECES];
    uint32_t n;
};

struct sim_disk {
    struct disk_files files;
    pthread_mutex_t lock;
    struct sim_disk_faults faults;
    struct sim_disk_hits hits;
    struct prng chance;
    struct inode *inode; /* owned, as are the steps */
    struct step *step;
    size_t ninodes, inodes_cap, nsteps, steps_cap;
    struct lane lane[SIM_DISK_LANES];
};

static bool one_in(struct sim_disk *d, uint32_t n, uint32_t *hit)
{
    bool yes = n > 0 && prng_below(&d->chance, n) == 0;

    *hit += yes;
    return yes;
}

/* ---- inodes and steps ---- */

static void *grow(void *v, size_t n, size_t *cap, size_t bytes)
{
    if (n < *cap)
        return v;
    *cap = *cap ? *cap * 2 : 64;
    v = realloc(v, *cap * bytes);
    check(v);
    return v;
}

static void resize(struct inode *i, size_t n)
{
    if (n > i->cap) {
        i->cap = n + n / 2;
        i->v = realloc(i->v, i->cap);
        check(i->v);
    }
    if (n > i->n)
        memset(i->v + i->n, 0, n - i->n);
    i->n = n;
}

static struct step *log_step(struct sim_disk *d, enum step_kind kind, size_t inode)
{
    struct step *s;

    d->step = grow(d->step, d->nsteps, &d->steps_cap, sizeof *d->step);
    s = &d->step[d->nsteps++];
    *s = (struct step){.kind = kind, .inode = (uint32_t)inode, .done = SIZE_MAX};
    return s;
}

static void put_name(char to[DISK_NAME_MAX], const char *name)
{
    check(strlen(name) < DISK_NAME_MAX && strchr(name, '/'));
    strcpy(to, name);
}

static size_t find(const struct sim_disk *d, const char *name)
{
    for (size_t i = 0; i < d->ninodes; i++)
        if (strcmp(d->inode[i].name, name) == 0)
            return i;
    return SIZE_MAX;
}

static size_t make_inode(struct sim_disk *d, const char *name)
{
    d->inode = grow(d->inode, d->ninodes, &d->inodes_cap, sizeof *d->inode);
    d->inode[d->ninodes] = (struct inode){.n = 0};
    put_name(d->inode[d->ninodes].name, name);
    put_name(log_step(d, MAKE, d->ninodes)->name, name);
    return d->ninodes++;
}

static uint64_t used(const struct sim_disk *d)
{
    uint64_t bytes = 0;

    for (size_t i = 0; i < d->ninodes; i++)
        bytes += d->inode[i].name[0] ? d->inode[i].n : 0;
    return bytes;
}

static bool is_full(struct sim_disk *d, const struct inode *i, uint64_t end)
{
    bool full = d->faults.room && end > i->n && used(d) + end - i->n > d->faults.room;

    d->hits.full += full;
    return full;
}

/* ---- calls ---- */

static int sim_make(void *ctx, const char *name, int *ret)
{
    struct sim_disk *d = ctx;
    int err = -EEXIST;

    pthread_mutex_lock(&d->lock);
    if (find(d, name) == SIZE_MAX) {
        *ret = (int)make_inode(d, name);
        d->inode[*ret].opened++;
        err = 0;
    }
    pthread_mutex_unlock(&d->lock);
    return err;
}

static int sim_open(void *ctx, const char *name, int *ret, uint64_t *ret_bytes)
{
    struct sim_disk *d = ctx;
    size_t i;

    pthread_mutex_lock(&d->lock);
    i = find(d, name);
    if (i != SIZE_MAX) {
        d->inode[i].opened++;
        *ret = (int)i;
        *ret_bytes = d->inode[i].n;
    }
    pthread_mutex_unlock(&d->lock);
    return i == SIZE_MAX ? -ENOENT : 0;
}

static void sim_close(void *ctx, int file)
{
    struct sim_disk *d = ctx;

    pthread_mutex_lock(&d->lock);
    check((size_t)file < d->ninodes && d->inode[file].opened > 0);
    d->inode[file].opened--;
    pthread_mutex_unlock(&d->lock);
}

static int sim_reserve(void *ctx, int file, uint64_t bytes)
{
    struct sim_disk *d = ctx;
    int err = 0;

    pthread_mutex_lock(&d->lock);
    if (is_full(d, &d->inode[file], bytes))
        err = -ENOSPC;
    else if (bytes > d->inode[file].n)
        resize(&d->inode[file], bytes);
    if (err == 0)
        log_step(d, RESERVE, (size_t)file)->bytes = bytes;
    pthread_mutex_unlock(&d->lock);
    return err;
}

/* Applies a write's faults: *inode, *offset and the returned bytes are what is really written. */
static uint64_t misled(struct sim_disk *d, size_t *inode, uint64_t *offset, uint64_t bytes)
{
    if (one_in(d, d->faults.torn, &d->hits.torn))
        bytes = prng_below(&d->chance, (uint32_t)(bytes / SECTOR)) * (uint64_t)SECTOR;
    if (one_in(d, d->faults.dropped, &d->hits.dropped))
        bytes = 0;
    if (one_in(d, d->faults.misdirected, &d->hits.misdirected)) {
        *inode = prng_below(&d->chance, (uint32_t)d->ninodes);
        *offset = prng_below(&d->chance, (uint32_t)(d->inode[*inode].n / DISK_BLOCK) + 1) *
                  (uint64_t)DISK_BLOCK;
    }
    return bytes;
}

static int start_write(struct sim_disk *d, struct pending *p)
{
    size_t inode = (size_t)p->file;
    uint64_t offset = p->piece.offset, n;
    struct step *s;

    if (one_in(d, d->faults.write_eio, &d->hits.write_eio))
        return -EIO;
    if (is_full(d, &d->inode[inode], offset + p->piece.bytes))
        return -ENOSPC;
    n = misled(d, &inode, &offset, p->piece.bytes);
    p->step = d->nsteps;
    s = log_step(d, WRITE, inode);
    s->offset = offset;
    s->bytes = n;
    s->data = malloc(p->piece.bytes);
    check(s->data);
    memcpy(s->data, p->piece.memory, p->piece.bytes);
    if (n > 0 && offset + n > d->inode[inode].n)
        resize(&d->inode[inode], offset + n);
    if (n > 0)
        memcpy(d->inode[inode].v + offset, s->data, n);
    return 0;
}

static int sim_submit(void *ctx, uint32_t lane, int file, bool write,
                      const struct disk_piece *piece)
{
    struct sim_disk *d = ctx;
    struct pending *p;

    pthread_mutex_lock(&d->lock);
    check(lane < SIM_DISK_LANES && d->lane[lane].n < DISK_LANE_PIECES);
    check((size_t)file < d->ninodes && d->inode[file].opened > 0);
    check((uintptr_t)piece->memory % DISK_BLOCK == 0 && piece->bytes > 0);
    check(piece->bytes % DISK_BLOCK == 0 && piece->offset % DISK_BLOCK == 0);
    p = &d->lane[lane].v[d->lane[lane].n++];
    *p = (struct pending){.piece = *piece, .file = file, .write = write, .step = SIZE_MAX};
    if (write)
        p->result = start_write(d, p);
    else
        memset(piece->memory, 0xee, piece->bytes); /* the bytes come when it is reaped */
    pthread_mutex_unlock(&d->lock);
    return 0;
}

static int end_read(struct sim_disk *d, const struct pending *p)
{
    const struct inode *i = &d->inode[p->file];

    if (one_in(d, d->faults.read_eio, &d->hits.read_eio))
        return -EIO;
    if (p->piece.offset > i->n || p->piece.bytes > i->n - p->piece.offset)
        return -ENODATA;
    memcpy(p->piece.memory, i->v + p->piece.offset, p->piece.bytes);
    return 0;
}

static int sim_reap(void *ctx, uint32_t lane, uint64_t *ret_token)
{
    struct sim_disk *d = ctx;
    struct lane *l = &d->lane[lane];
    struct pending p;
    uint32_t i;

    pthread_mutex_lock(&d->lock);
    check(l->n > 0);
    i = prng_below(&d->chance, l->n);
    p = l->v[i];
    l->v[i] = l->v[--l->n];
    *ret_token = p.piece.token;
    if (!p.write)
        p.result = end_read(d, &p);
    if (p.step != SIZE_MAX) {
        check(memcmp(d->step[p.step].data, p.piece.memory, p.piece.bytes) == 0);
        d->step[p.step].done = d->nsteps;
    }
    pthread_mutex_unlock(&d->lock);
    return p.result;
}

static int sim_sync(void *ctx, int file)
{
    struct sim_disk *d = ctx;
    bool lost;

    pthread_mutex_lock(&d->lock);
    lost = one_in(d, d->faults.sync_eio, &d->hits.sync_eio);
    log_step(d, lost ? SYNC_LOST : SYNC, (size_t)file);
    pthread_mutex_unlock(&d->lock);
    return lost ? -EIO : 0;
}

static int sim_rename(void *ctx, const char *from, const char *to)
{
    struct sim_disk *d = ctx;
    size_t i;
    int err = -ENOENT;

    pthread_mutex_lock(&d->lock);
    i = find(d, from);
    if (i != SIZE_MAX)
        err = find(d, to) == SIZE_MAX ? 0 : -EEXIST;
    if (err == 0) {
        put_name(d->inode[i].name, to);
        put_name(log_step(d, RENAME, i)->name, to);
    }
    pthread_mutex_unlock(&d->lock);
    return err;
}

static int sim_sync_folder(void *ctx, const char *name)
{
    struct sim_disk *d = ctx;
    bool lost;

    pthread_mutex_lock(&d->lock);
    lost = one_in(d, d->faults.sync_eio, &d->hits.sync_eio);
    if (!lost)
        put_name(log_step(d, FOLDER, 0)->name, name);
    pthread_mutex_unlock(&d->lock);
    return lost ? -EIO : 0;
}

static int sim_remove(void *ctx, const char *name)
{
    struct sim_disk *d = ctx;
    size_t i;

    pthread_mutex_lock(&d->lock);
    i = find(d, name);
    if (i != SIZE_MAX) {
        d->inode[i].name[0] = 0;
        put_name(log_step(d, REMOVE, i)->name, name);
    }
    pthread_mutex_unlock(&d->lock);
    return i == SIZE_MAX ? -ENOENT : 0;
}

static void zero_range(struct inode *i, uint64_t offset, uint64_t bytes)
{
    if (offset < i->n)
        memset(i->v + offset, 0, bytes < i->n - offset ? bytes : i->n - offset);
}

static int sim_punch(void *ctx, int file, uint64_t offset, uint64_t bytes)
{
    struct sim_disk *d = ctx;
    struct step *s;

    pthread_mutex_lock(&d->lock);
    s = log_step(d, PUNCH, (size_t)file);
    s->offset = offset;
    s->bytes = bytes;
    zero_range(&d->inode[file], offset, bytes);
    pthread_mutex_unlock(&d->lock);
    return 0;
}

/* The latest first: a caller that needs an order must sort. */
static int sim_list(void *ctx, const char *tenant, void (*found)(void *to, const char *name),
                    void *to)
{
    struct sim_disk *d = ctx;
    size_t n = strlen(tenant);

    pthread_mutex_lock(&d->lock);
    for (size_t i = d->ninodes; i-- > 0;) {
        const char *name = d->inode[i].name;

        if (strncmp(name, tenant, n) == 0 && name[n] == '/')
            found(to, name + n + 1);
    }
    pthread_mutex_unlock(&d->lock);
    return 0;
}

static int sim_room(void *ctx, uint64_t *ret_bytes)
{
    struct sim_disk *d = ctx;

    pthread_mutex_lock(&d->lock);
    *ret_bytes = 1ull << 50;
    if (d->faults.room)
        *ret_bytes = d->faults.room > used(d) ? d->faults.room - used(d) : 0;
    pthread_mutex_unlock(&d->lock);
    return 0;
}

/* ---- the disk ---- */

struct sim_disk *sim_disk_make(const struct sim_disk_faults *faults)
{
    struct sim_disk *d = calloc(1, sizeof *d);

    check(d && pthread_mutex_init(&d->lock, NULL) == 0);
    d->files = (struct disk_files){.make = sim_make,
                                   .open = sim_open,
                                   .close = sim_close,
                                   .reserve = sim_reserve,
                                   .submit = sim_submit,
                                   .reap = sim_reap,
                                   .sync = sim_sync,
                                   .rename = sim_rename,
                                   .sync_folder = sim_sync_folder,
                                   .remove = sim_remove,
                                   .punch = sim_punch,
                                   .list = sim_list,
                                   .room = sim_room,
                                   .ctx = d};
    if (faults)
        d->faults = *faults;
    prng_init(&d->chance, d->faults.seed);
    return d;
}

void sim_disk_free(struct sim_disk *d)
{
    for (size_t i = 0; i < d->ninodes; i++) {
        check(d->inode[i].opened == 0);
        free(d->inode[i].v);
    }
    for (size_t i = 0; i < d->nsteps; i++)
        free(d->step[i].data);
    free(d->inode);
    free(d->step);
    pthread_mutex_destroy(&d->lock);
    free(d);
}

const struct disk_files *sim_disk_files(struct sim_disk *d)
{
    return &d->files;
}

void sim_disk_set_faults(struct sim_disk *d, const struct sim_disk_faults *faults)
{
    d->faults = *faults;
    prng_init(&d->chance, faults->seed);
}

struct sim_disk_hits sim_disk_hits(const struct sim_disk *d)
{
    return d->hits;
}

size_t sim_disk_steps(const struct sim_disk *d)
{
    return d->nsteps;
}

void sim_disk_put(struct sim_disk *d, const char *name, const void *bytes, size_t n)
{
    size_t i = find(d, name);
    struct step *s;

    if (i != SIZE_MAX)
        sim_remove(d, name);
    i = make_inode(d, name);
    resize(&d->inode[i], n);
    if (n > 0) {
        memcpy(d->inode[i].v, bytes, n);
        s = log_step(d, WRITE, i);
        s->bytes = n;
        s->data = malloc(n);
        check(s->data);
        memcpy(s->data, bytes, n);
        s->done = d->nsteps;
    }
    log_step(d, SYNC, i);
    put_name(log_step(d, FOLDER, 0)->name, name);
}

uint8_t *sim_disk_bytes(struct sim_disk *d, const char *name, size_t *ret_n)
{
    size_t i = find(d, name);

    *ret_n = i == SIZE_MAX ? 0 : d->inode[i].n;
    return i == SIZE_MAX ? NULL : d->inode[i].v;
}

const char *sim_disk_name(const struct sim_disk *d, uint32_t i)
{
    for (size_t k = 0; k < d->ninodes; k++)
        if (d->inode[k].name[0] && i-- == 0)
            return d->inode[k].name;
    return NULL;
}

/* ---- a crash ---- */

enum fate { NOTHING, EVERYTHING, BY_CHANCE, MOSTLY, FATES };

struct crash {
    const struct sim_disk *d;
    size_t steps;
    struct prng p;
    enum fate fate;  /* of unsynced steps */
    uint32_t sector; /* bytes that are written as a whole or not at all */
};

static bool survives(struct crash *c)
{
    switch (c->fate) {
    case NOTHING: return false;
    case EVERYTHING: return true;
    case BY_CHANCE: return prng_below(&c->p, 2) == 0;
    default: return prng_below(&c->p, 8) != 0;
    }
}

static bool changes_bytes(const struct step *s, size_t inode)
{
    return s->inode == inode && (s->kind == WRITE || s->kind == PUNCH || s->kind == RESERVE);
}

/* Returns true if the step is durable. A write whose sync failed is not, whatever comes later. */
static bool is_durable(const struct crash *c, size_t at)
{
    const struct step *s = &c->d->step[at];
    size_t from = s->kind == WRITE ? s->done : at + 1;

    for (size_t i = from; i < c->steps; i++) {
        const struct step *t = &c->d->step[i];

        if (t->inode == s->inode && (t->kind == SYNC || t->kind == SYNC_LOST))
            return t->kind == SYNC;
    }
    return false;
}

static void apply(struct inode *to, const struct step *s, uint64_t at, uint64_t bytes)
{
    if (s->kind == RESERVE) {
        if (s->bytes > to->n)
            resize(to, s->bytes);
    } else if (s->kind == PUNCH) {
        zero_range(to, s->offset + at, bytes);
    } else if (bytes > 0) {
        if (s->offset + at + bytes > to->n)
            resize(to, s->offset + at + bytes);
        memcpy(to->v + s->offset + at, s->data + at, bytes);
    }
}

/* Applies the surviving sectors of a step; or loses its bytes and keeps the file's length. */
static void apply_some(struct crash *c, struct inode *to, const struct step *s)
{
    if (s->kind == RESERVE) {
        if (survives(c))
            apply(to, s, 0, 0);
        return;
    }
    for (uint64_t at = 0; at < s->bytes; at += c->sector)
        if (survives(c))
            apply(to, s, at, s->bytes - at < c->sector ? s->bytes - at : c->sector);
    if (s->kind == WRITE && s->bytes > 0 && c->fate == BY_CHANCE && prng_below(&c->p, 4) == 0 &&
        s->offset + s->bytes > to->n)
        resize(to, s->offset + s->bytes);
}

/* Unsynced steps are applied in any order. */
static void crash_bytes(struct crash *c, size_t inode, struct inode *to)
{
    size_t *loose = calloc(c->steps + 1, sizeof *loose), n = 0;

    check(loose);
    for (size_t i = 0; i < c->steps; i++) {
        const struct step *s = &c->d->step[i];

        if (!changes_bytes(s, inode))
            continue;
        if (is_durable(c, i))
            apply(to, s, 0, s->bytes);
        else
            loose[n++] = i;
    }
    for (; n > 0; n--) {
        size_t k = c->fate == EVERYTHING ? 0 : prng_below(&c->p, (uint32_t)n), i = loose[k];

        memmove(loose + k, loose + k + 1, (n - 1 - k) * sizeof *loose);
        apply_some(c, to, &c->d->step[i]);
    }
    free(loose);
}

static bool same_folder(const char *a, const char *b)
{
    size_t n = (size_t)(strchr(a, '/') - a);

    return strncmp(a, b, n + 1) == 0;
}

/* The file's name after the crash: the one at its folder's last sync, or any later one. */
static const char *crash_name(struct crash *c, size_t inode)
{
    const char *names[8] = {""};
    uint32_t n = 1;
    const char *last = "";

    for (size_t i = 0; i < c->steps; i++) {
        const struct step *s = &c->d->step[i];
        bool moves = s->kind == MAKE || s->kind == RENAME || s->kind == REMOVE;

        if (moves && s->inode == inode) {
            check(n < sizeof names / sizeof *names);
            last = s->name;
            names[n++] = s->kind == REMOVE ? "" : s->name;
        } else if (s->kind == FOLDER && last[0] && same_folder(last, s->name)) {
            names[0] = names[n - 1];
            n = 1;
        }
    }
    if (c->fate == NOTHING)
        return names[0];
    return names[c->fate == EVERYTHING ? n - 1 : prng_below(&c->p, n)];
}

struct sim_disk *sim_disk_crash(const struct sim_disk *d, size_t steps, uint64_t seed)
{
    struct sim_disk_faults none = {.seed = seed};
    struct sim_disk *to = sim_disk_make(&none);
    struct crash c = {.d = d, .steps = steps};

    check(steps <= d->nsteps);
    prng_init(&c.p, seed);
    c.fate = (enum fate)(seed % FATES);
    c.sector = prng_below(&c.p, 2) ? SECTOR : DISK_BLOCK;
    for (size_t i = 0; i < d->ninodes; i++) {
        const char *name = crash_name(&c, i);
        struct inode left = {.n = 0};

        if (name[0]) {
            crash_bytes(&c, i, &left);
            sim_disk_put(to, name, left.v, left.n);
        }
        free(left.v);
    }
    return to;
}
