/* See rig_disk_world.h. */
#include "unit/rig/rig_disk_world.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/prng.h"

static const char *const tenants[] = {"chat", "batch"};
static const uint8_t world_key[DISK_KEY_BYTES] = {9, 8, 7};

/* ---- the files ---- */

static void config_make(struct world *w, bool encrypt)
{
    const char *why;

    w->config = (struct disk_config){.tenants = 2, .encrypt = encrypt};
    w->config.tenant[0] = tenants[0];
    w->config.tenant[1] = tenants[1];
    memcpy(w->config.key, world_key, sizeof world_key);
    if (encrypt)
        check(disk_crypt_create(world_key, &w->crypt, &why) == TERN_OK);
}

static void write_file(struct world *w, uint32_t i, uint64_t seed, enum rig_disk_wrong wrong)
{
    struct prng p;

    prng_init(&p, seed * WORLD_FILES + i);
    w->file[i] = (struct rig_disk_file){.file = i * 3 + 1,
                                        .incarnation = 7,
                                        .served_ns = 100 + i,
                                        .seed = prng_u64(&p),
                                        .tenant = tenants[i % 2],
                                        .nextents = 1 + prng_below(&p, 5),
                                        .crypt = w->crypt};
    if (i == 0)
        w->file[i].nextents = 4;
    w->err[i] = rig_disk_write(sim_disk_files(w->disk), &w->file[i], wrong);
    w->written[i] = w->err[i] == 0 ? sim_disk_steps(w->disk) : WORLD_NEVER;
}

static void make_hole(struct world *w, uint32_t i, uint32_t extent)
{
    const struct disk_files *files = sim_disk_files(w->disk);
    const struct disk_extent *e = &w->file[i].head[extent].extent;
    char name[DISK_NAME_MAX];
    uint64_t bytes;
    int handle;

    disk_file_name(name, w->file[i].tenant, w->file[i].file, false);
    if (w->err[i] != 0 || files->open(files->ctx, name, &handle, &bytes) != 0)
        return;
    w->hole[i][extent] = sim_disk_steps(w->disk);
    files->punch(files->ctx, handle, e->place.offset, disk_extent_bytes(e));
    files->close(files->ctx, handle);
}

static void drop_file(struct world *w, uint32_t i)
{
    const struct disk_files *files = sim_disk_files(w->disk);
    char name[DISK_NAME_MAX];

    disk_file_name(name, w->file[i].tenant, w->file[i].file, false);
    w->dropped[i] = sim_disk_steps(w->disk);
    files->remove(files->ctx, name);
    files->sync_folder(files->ctx, name);
}

void world_make(struct world *w, uint64_t seed, bool encrypt, enum rig_disk_wrong wrong,
                const struct sim_disk_faults *faults)
{
    *w = (struct world){.disk = sim_disk_make(faults)};
    memset(w->dropped, 0xff, sizeof w->dropped);
    memset(w->hole, 0xff, sizeof w->hole);
    config_make(w, encrypt);
    for (uint32_t i = 0; i < WORLD_FILES; i++) {
        write_file(w, i, seed, wrong);
        if (i == 1)
            make_hole(w, 0, 1);
        if (i == 3)
            drop_file(w, 1);
    }
}

void world_free(struct world *w)
{
    for (uint32_t i = 0; i < WORLD_FILES; i++)
        rig_disk_file_free(&w->file[i]);
    disk_crypt_destroy(w->crypt);
    sim_disk_free(w->disk);
}

struct sim_disk *world_copy(const struct world *w)
{
    return sim_disk_crash(w->disk, sim_disk_steps(w->disk), 1); /* all survives with this seed */
}

/* ---- what a start reports ---- */

static const struct disk_head *head_at(const struct world *w, struct disk_place at, uint32_t *ret_i,
                                       uint32_t *ret_k)
{
    for (uint32_t i = 0; i < WORLD_FILES; i++)
        for (uint32_t k = 0; k < w->file[i].nextents; k++)
            if (w->file[i].head[k].extent.place.file == at.file &&
                w->file[i].head[k].extent.place.offset == at.offset) {
                *ret_i = i;
                *ret_k = k;
                return &w->file[i].head[k];
            }
    return NULL;
}

static bool list_is(const struct world *w, const struct event *ev)
{
    const struct disk_extent *e = &ev->found.extent;
    size_t keys = e->nkeys * sizeof(struct extra_key);
    const struct disk_head *h;
    const uint8_t *list;
    uint32_t i, k;

    h = head_at(w, e->place, &i, &k);
    if (!h || !disk_extent_agrees(&h->extent, e) || h->extent.hits != e->hits ||
        h->extent.served_ns != e->served_ns || e->tenant != i % 2)
        return false;
    list = (const uint8_t *)w->file[i].list[k];
    return memcmp(list, ev->found.tokens, (size_t)e->tokens * 4) == 0 &&
           memcmp(list + disk_list_bytes(e) - keys, ev->found.keys, keys) == 0;
}

static void on_event(void *ctx, struct event *ev)
{
    struct world_found *f = ctx;

    check(f->ready == 0 && (ev->kind == EV_DISK_FOUND || ev->kind == EV_DISK_READY));
    if (ev->kind == EV_DISK_READY) {
        f->ready++;
        f->next_file = ev->ready.next_file;
        f->served_ns = ev->ready.served_ns;
        return;
    }
    check(f->n < WORLD_EXTENTS);
    f->extent[f->n] = ev->found.extent;
    f->list_right[f->n] = list_is(f->world, ev);
    f->verified[f->n++] = DISK_FAULT_MAGIC;
}

static void on_note(void *ctx, const char *file, uint64_t offset, enum disk_fault fault)
{
    struct world_found *f = ctx;

    check(strchr(file, '/') && offset % DISK_BLOCK == 0 && fault != DISK_FAULT_NONE);
    f->notes++;
}

static void on_verified(void *ctx, const struct disk_verified *v)
{
    struct world_found *f = ctx;

    for (uint32_t i = 0; i < f->n; i++)
        if (f->extent[i].place.file == v->extent.place.file &&
            f->extent[i].place.offset == v->extent.place.offset)
            f->verified[i] = v->fault;
}

void world_recover(const struct world *w, struct sim_disk *disk, struct world_found *ret)
{
    struct disk_config config = w->config;

    memset(ret, 0, sizeof *ret);
    ret->world = w;
    config.files = sim_disk_files(disk);
    ret->err = disk_recover_files(&config, on_event, on_note, ret, &ret->recovery, &ret->why);
    if (ret->err == TERN_OK)
        check(disk_verify(&config, on_verified, ret, &ret->why) == TERN_OK);
}

/* ---- comparison ---- */

/* Returns true if header and body are as written, except for the padding of the last block. */
static bool bytes_are(const struct world *w, struct sim_disk *disk, uint32_t i, uint32_t k)
{
    const struct rig_disk_file *f = &w->file[i];
    const struct disk_place *at = &f->head[k].extent.place;
    uint8_t block[DISK_BLOCK], *bytes;
    char name[DISK_NAME_MAX];
    size_t n;

    disk_file_name(name, f->tenant, f->file, false);
    rig_disk_put(w->crypt, &f->head[k], f->tenant, block);
    bytes = sim_disk_bytes(disk, name, &n);
    return bytes && at->offset + DISK_BLOCK + f->body[k].n <= n &&
           memcmp(bytes + at->offset, block, DISK_BLOCK) == 0 &&
           memcmp(bytes + at->offset + DISK_BLOCK, f->body[k].bytes,
                  disk_body_bytes(&f->head[k].extent)) == 0;
}

static void judge_found(const struct world *w, struct sim_disk *disk, size_t steps,
                        const struct world_found *found, uint32_t at, struct world_tally *tally)
{
    uint32_t i, k;
    const struct disk_extent *e = &found->extent[at];
    bool dropped;

    if (!head_at(w, e->place, &i, &k) || !found->list_right[at]) {
        tally->wrong_lists++;
        return;
    }
    dropped = w->hole[i][k] < steps;
    if (found->verified[at] == DISK_FAULT_NONE)
        tally->wrong_bytes += !bytes_are(w, disk, i, k);
    else if (dropped && found->verified[at] == DISK_FAULT_CHECKSUM)
        tally->half_dropped++; /* a part of the hole was made; no entry needs it */
    else if (found->verified[at] == DISK_FAULT_MAGIC)
        tally->unnamed++;
    else
        tally->not_good++;
}

void world_judge(const struct world *w, struct sim_disk *disk, size_t steps,
                 const struct world_found *found, bool durable, struct world_tally *tally)
{
    bool there[WORLD_FILES][RIG_DISK_EXTENTS] = {{false}};

    tally->crashes++;
    tally->found += found->n;
    for (uint32_t at = 0; at < found->n; at++) {
        const struct disk_place *p = &found->extent[at].place,
                                *before = at > 0 ? &found->extent[at - 1].place : NULL;
        uint32_t i = 0, k = 0;

        if (before)
            check(p->file > before->file ||
                  (p->file == before->file && p->offset > before->offset));
        check(p->file < found->next_file);
        judge_found(w, disk, steps, found, at, tally);
        if (head_at(w, *p, &i, &k))
            there[i][k] = true;
    }
    for (uint32_t i = 0; i < WORLD_FILES && durable; i++)
        for (uint32_t k = 0; k < w->file[i].nextents; k++)
            if (w->written[i] <= steps && w->dropped[i] >= steps && w->hole[i][k] >= steps)
                tally->lost += !there[i][k];
}
