/* Plays the seams: checksums, copies, zeroing, the disk. A choice decides when a job ends, and all
 * jobs succeed; an extent that was written is found again after a restart. */
#include "world.h"

#include <stdio.h>
#include <stdlib.h>

static void add(enum ljob_kind kind, uint64_t id, uint32_t batch, uint32_t n)
{
    LEXPECT(lw.njobs < LARGE_JOBS, "too_many_jobs", "%u jobs", lw.njobs);
    lw.job[lw.njobs++] = (struct ljob){.kind = kind, .n = n, .batch = batch, .id = id};
}

/* --- the disk --- */

static void extent_drop(uint32_t i)
{
    free(lw.extent[i].tokens);
    lw.extent[i] = lw.extent[--lw.nextents];
}

void ldisk_clear(bool all)
{
    for (uint32_t i = lw.nextents; i-- > 0;)
        if (all || !lw.extent[i].durable)
            extent_drop(i);
}

static void write_begins(const struct disk_write *w)
{
    const uint32_t *tokens = w->tokens;

    add(LJOB_WRITE, store_id_pack(w->store), 0, (uint32_t)w->file);
    lw.file_max = w->file > lw.file_max ? w->file : lw.file_max;
    for (uint32_t i = 0; i < w->nextents; tokens += w->extents[i++].tokens) {
        struct lextent *x = &lw.extent[lw.nextents];

        if (lw.nextents == LARGE_EXTENTS)
            return; /* a restart does not find it, as if the disk had lost it */
        *x = (struct lextent){.e = w->extents[i]};
        if (x->e.tokens > 0) {
            x->tokens = malloc(x->e.tokens * sizeof(uint32_t));
            LEXPECT(x->tokens, "memory", "no memory for an extent");
            memcpy(x->tokens, tokens, x->e.tokens * sizeof(uint32_t));
        }
        lw.nextents++;
    }
}

static void written(const struct ljob *j)
{
    struct event ev = {.kind = EV_DISK_WRITTEN};

    for (uint32_t i = 0; i < lw.nextents; i++)
        lw.extent[i].durable |= lw.extent[i].e.place.file == j->n;
    ev.written.store = store_id_unpack(j->id);
    ev.written.err = TERN_OK;
    lstep(&ev, 0);
}

static void drop(const struct disk_drop *d)
{
    for (uint32_t i = lw.nextents; i-- > 0;)
        if (lw.extent[i].e.place.file == d->place.file &&
            (d->place.offset == 0 || lw.extent[i].e.place.offset == d->place.offset))
            extent_drop(i);
    if (d->place.offset == 0)
        add(LJOB_DROP, d->place.file, 0, 0);
}

static int by_place(const void *a, const void *b)
{
    const struct disk_place *x = &((const struct lextent *)a)->e.place,
                            *y = &((const struct lextent *)b)->e.place;

    if (x->file != y->file)
        return x->file < y->file ? -1 : 1;
    return x->offset < y->offset ? -1 : x->offset > y->offset;
}

void ldisk_found(void)
{
    struct event ev = {.kind = EV_DISK_FOUND};

    qsort(lw.extent, lw.nextents, sizeof lw.extent[0], by_place);
    for (uint32_t i = 0; i < lw.nextents; i++) {
        ev.found.extent = lw.extent[i].e;
        ev.found.tokens = lw.extent[i].tokens;
        ev.found.keys = NULL;
        lstep(&ev, lw.extent[i].e.tokens);
        if (ev.found.extent.place.file != lw.extent[i].e.place.file)
            i--; /* a drop has moved the last one to its place */
    }
    ev = (struct event){.kind = EV_DISK_READY};
    ev.ready.next_file = lw.file_max + 1;
    lstep(&ev, 0);
    lsettle();
}

/* --- jobs --- */

void laction(const struct action *a)
{
    switch (a->kind) {
    case ACT_SEAL: add(LJOB_SEAL, seal_id_pack(a->seal.job), 0, a->seal.n); return;
    case ACT_COPY: add(LJOB_COPY, copy_id_pack(a->copy.job), 0, a->copy.n); return;
    case ACT_ZERO: add(LJOB_ZERO, pool_id_pack(a->zero.pool), 0, 0); return;
    case ACT_PULL: add(LJOB_PULL, pull_id_pack(a->pull.pull), a->pull.batch, a->pull.n); return;
    case ACT_PULL_STOP: add(LJOB_STOP, pull_id_pack(a->pull_stop.pull), 0, 0); return;
    case ACT_DISK_WRITE: write_begins(&a->disk_write); return;
    case ACT_DISK_DROP: drop(&a->disk_drop); return;
    case ACT_ENGINE_GONE:
    case ACT_ENGINE_STUCK:
    case ACT_STEP_WANTED: return;
    default: lviolation("action", "action %u was not expected", a->kind);
    }
}

static void pulled(const struct ljob *j)
{
    struct event ev = {.kind = EV_PULLED};

    ev.pulled.pull = pull_id_unpack(j->id);
    ev.pulled.batch = j->batch;
    for (uint32_t i = 0; i < j->n; i++)
        ev.pulled.ok[i / 64] |= 1ull << i % 64;
    lstep(&ev, j->n);
}

/* In half of the histories the event reports the newest checksum jobs, too. */
static void add_newest_seals(struct event *ev, uint32_t *items)
{
    for (; lw.cfg.seed % 2 && lw.njobs > 0 && ev->sealed.n < SEALED_JOBS_MAX; lw.njobs--) {
        const struct ljob *j = &lw.job[lw.njobs - 1];

        if (j->kind != LJOB_SEAL)
            return;
        ev->sealed.job[ev->sealed.n++] = seal_id_unpack(j->id);
        *items += j->n;
    }
}

/* Often the newest job ends first; a stop waits for the batches of its transfer. */
void ljob_finish(uint32_t i)
{
    struct event ev = {.kind = EV_TIMER};
    struct ljob j;

    if (lw.njobs == 0)
        return;
    i %= lw.njobs;
    for (uint32_t k = 0; lw.job[i].kind == LJOB_STOP && k < lw.njobs; k++)
        if (lw.job[k].kind == LJOB_PULL && lw.job[k].id == lw.job[i].id)
            i = k;
    j = lw.job[i];
    lw.job[i] = lw.job[--lw.njobs];
    switch (j.kind) {
    case LJOB_PULL: pulled(&j); return;
    case LJOB_WRITE: written(&j); return;
    case LJOB_SEAL:
        ev.kind = EV_SEALED;
        ev.sealed.job[0] = seal_id_unpack(j.id);
        ev.sealed.n = 1;
        add_newest_seals(&ev, &j.n);
        break;
    case LJOB_COPY:
        ev.kind = EV_COPIED;
        ev.copied.job = copy_id_unpack(j.id);
        break;
    case LJOB_ZERO:
        ev.kind = EV_ZEROED;
        ev.zeroed.pool = pool_id_unpack(j.id);
        break;
    case LJOB_DROP:
        ev.kind = EV_DISK_DROPPED;
        ev.dropped.file = j.id;
        break;
    case LJOB_STOP:
        ev.kind = EV_PULL_QUIET;
        ev.pull_quiet.pull = pull_id_unpack(j.id);
        break;
    }
    lstep(&ev, j.n);
}

void lpass(uint64_t step)
{
    struct event ev = {.kind = EV_STEP_DONE};

    lw.passed = step;
    ev.step_done.engine = lw.engine;
    ev.step_done.step = step;
    for (uint32_t r = 0; r < lw.cfg.ranks; r++) {
        ev.step_done.rank = r;
        lstep(&ev, 0);
    }
}
