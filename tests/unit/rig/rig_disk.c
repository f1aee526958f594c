/* See rig_disk.h. */
#include "unit/rig/rig_disk.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/prng.h"
#include "seam/mem/checksum.h"

/* ---- an extent ---- */

static void make_runs(struct prng *p, struct disk_head *h)
{
    struct disk_extent *e = &h->extent;

    h->nruns = 1 + prng_below(p, 3);
    for (uint32_t i = 0; i < h->nruns; i++) {
        struct disk_run *r = &h->run[i];

        r->pages = 1 + prng_below(p, 3);
        r->units = 1 + prng_below(p, 3);
        r->regions = 1 + prng_below(p, 2);
        r->page_bytes = r->units + prng_below(p, i == 0 ? 9000 : 700);
        e->npages += r->pages;
        e->nsums += r->pages * r->units * r->regions;
        e->page_bytes += r->pages * r->regions * r->page_bytes;
    }
}

static void fill_list(struct prng *p, const struct disk_extent *e, uint8_t *at)
{
    uint32_t *tokens = (uint32_t *)(void *)at;
    struct extra_key *keys = (void *)(at + disk_list_bytes(e) - e->nkeys * sizeof *keys);

    for (uint32_t i = 0; i < e->tokens; i++)
        tokens[i] = (uint32_t)prng_u64(p) >> 1;
    for (uint32_t i = 0; i < e->nkeys; i++)
        keys[i] = (struct extra_key){.position = e->depth - e->align + i, .hi = prng_u64(p)};
}

/* The pages, with their checksums in front. */
static void fill_pages(struct prng *p, const struct disk_head *h, uint8_t *body)
{
    uint64_t *sum = (uint64_t *)(void *)(body + disk_list_bytes(&h->extent));
    uint8_t *at = body + disk_meta_bytes(&h->extent);

    for (uint32_t i = 0; i < h->nruns; i++) {
        const struct disk_run *r = &h->run[i];

        for (uint32_t n = r->pages * r->regions; n > 0; n--, at += r->page_bytes) {
            for (uint64_t k = 0; k < r->page_bytes; k++)
                at[k] = (uint8_t)(prng_u64(p) >> 11);
            for (uint32_t u = 0; u < r->units; u++) {
                uint64_t from, to = checksum_unit_span(r->page_bytes, r->units, u, &from);

                *sum++ = checksum_unit(at + from, to - from);
            }
        }
    }
}

void rig_disk_make(uint64_t seed, enum disk_part part, struct disk_place place,
                   struct disk_head *ret, struct rig_disk_body *ret_body)
{
    struct disk_extent *e = &ret->extent;
    struct prng p;

    prng_init(&p, seed);
    *ret = (struct disk_head){.incarnation = 7};
    *e = (struct disk_extent){.part = part, .align = RIG_DISK_ALIGN, .place = place};
    e->ns = (struct namespace_id){11, 12};
    e->layout_hash = 13;
    e->chain = prng_u64(&p);
    e->parent_chain = prng_u64(&p);
    e->depth = RIG_DISK_ALIGN * (1 + prng_below(&p, 5));
    if (part == DISK_HISTORY) {
        e->tokens = e->align;
        e->nkeys = prng_below(&p, 3);
    }
    if (part == DISK_ENTRY) {
        e->reason = prng_below(&p, DISK_REASONS);
        e->hits = prng_below(&p, 100);
        e->served_ns = prng_below(&p, 1000);
    } else {
        make_runs(&p, ret);
    }
    e->groups = (1u << ret->nruns) - 1;
    if (part != DISK_HISTORY || e->depth > e->align)
        e->above = (struct disk_place){1 + prng_below(&p, 9), DISK_BLOCK};
    ret_body->n = disk_extent_bytes(e) - DISK_BLOCK;
    ret_body->bytes = aligned_alloc(DISK_BLOCK, ret_body->n + DISK_BLOCK);
    check(ret_body->bytes);
    memset(ret_body->bytes, 0, ret_body->n);
    ret_body->tokens = (const uint32_t *)(const void *)ret_body->bytes;
    ret_body->keys =
        (const void *)(ret_body->bytes + disk_list_bytes(e) - e->nkeys * sizeof(struct extra_key));
    fill_list(&p, e, ret_body->bytes);
    fill_pages(&p, ret, ret_body->bytes);
    ret->seal.meta_sum = checksum_unit(ret_body->bytes, disk_meta_bytes(e));
    ret->seal.list_sum = checksum_unit(ret_body->bytes, disk_list_bytes(e));
}

void rig_disk_free(struct rig_disk_body *body)
{
    free(body->bytes);
    body->bytes = NULL;
}

void rig_disk_seal(struct disk_crypt *crypt, struct disk_head *h, const char *tenant,
                   struct rig_disk_body *body, uint8_t *block)
{
    if (crypt)
        check(disk_crypt_fresh(crypt, &h->seal.key_id, h->seal.nonce));
    disk_put_extent(block, h, tenant);
    if (!crypt)
        return;
    disk_crypt_begin(crypt, DISK_KEY_BODIES, DISK_SEAL, h->seal.nonce, block, DISK_ASSOCIATED);
    disk_crypt_update(crypt, body->bytes, disk_body_bytes(&h->extent));
    check(disk_seal_end(crypt, h->seal.tag));
    disk_put_extent(block, h, tenant);
}

void rig_disk_put(struct disk_crypt *crypt, const struct disk_head *h, const char *tenant,
                  uint8_t *block)
{
    disk_put_extent(block, h, tenant);
    check(!crypt || disk_seal_extent(crypt, block));
}

/* ---- whole files ---- */

struct writer {
    const struct disk_files *files;
    struct rig_disk_file *f;
    enum rig_disk_wrong wrong;
    char name[DISK_NAME_MAX], final[DISK_NAME_MAX];
    int handle;
    uint64_t end;
    uint8_t *footer, *blocks; /* owned; blocks: the file's header, then one an extent */
    size_t footer_bytes;
};

static int write_now(struct writer *w, void *memory, uint64_t bytes, uint64_t offset)
{
    struct disk_piece piece = {.memory = memory, .bytes = bytes, .offset = offset};
    uint64_t token;
    int err = 0;

    if (bytes > 0)
        err = w->files->submit(w->files->ctx, 0, w->handle, true, &piece);
    if (err == 0 && bytes > 0)
        err = w->files->reap(w->files->ctx, 0, &token);
    return err;
}

static int sync_now(struct writer *w)
{
    int err = w->files->sync(w->files->ctx, w->handle);

    if (err < 0 && w->wrong == RIG_DISK_SYNC_AGAIN)
        err = w->files->sync(w->files->ctx, w->handle);
    return err;
}

static void make_file(struct writer *w)
{
    struct rig_disk_file *f = w->f;
    struct disk_file_header h = {
        .file = f->file, .incarnation = f->incarnation, .served_ns = f->served_ns};
    struct disk_footer footer;

    if (f->crypt)
        h.key_id = disk_crypt_key_id(f->crypt);
    memcpy(h.tenant, f->tenant, strlen(f->tenant) + 1);
    disk_put_file_header(w->blocks, &h);
    disk_footer_begin(&footer, w->footer, disk_footer_bytes_max());
    w->end = DISK_BLOCK;
    for (uint32_t i = 0; i < f->nextents; i++) {
        struct disk_place place = {f->file, w->end};
        uint8_t *block = w->blocks + (i + 1) * DISK_BLOCK;
        const struct disk_extent *e = &f->head[i].extent;

        rig_disk_make(f->seed + i, (enum disk_part)(i % DISK_PARTS), place, &f->head[i],
                      &f->body[i]);
        f->head[i].incarnation = f->incarnation;
        f->list[i] = malloc(disk_list_bytes(e) + 1);
        check(f->list[i]);
        memcpy(f->list[i], f->body[i].bytes, disk_list_bytes(e));
        rig_disk_seal(f->crypt, &f->head[i], f->tenant, &f->body[i], block);
        disk_footer_add(&footer, block, e, f->list[i],
                        (const void *)((const uint8_t *)f->list[i] + disk_list_bytes(e) -
                                       e->nkeys * sizeof(struct extra_key)));
        rig_disk_put(f->crypt, &f->head[i], f->tenant, block);
        w->end += disk_extent_bytes(e);
    }
    w->footer_bytes = disk_footer_end(&footer, (struct disk_place){f->file, w->end}, &h, f->crypt);
    check(w->footer_bytes > 0);
}

static int write_bodies(struct writer *w)
{
    int err = 0;

    for (uint32_t i = 0; i < w->f->nextents && err == 0; i++)
        err = write_now(w, w->f->body[i].bytes, w->f->body[i].n,
                        w->f->head[i].extent.place.offset + DISK_BLOCK);
    return err;
}

static int write_headers(struct writer *w)
{
    int err = write_now(w, w->blocks, DISK_BLOCK, 0);

    for (uint32_t i = 0; i < w->f->nextents && err == 0; i++)
        err = write_now(w, w->blocks + (i + 1) * DISK_BLOCK, DISK_BLOCK,
                        w->f->head[i].extent.place.offset);
    return err ? err : write_now(w, w->footer, w->footer_bytes, w->end);
}

/* b bodies; h headers, footer and trailer; s sync; n name; f sync of the folder. */
static const char *const orders[] = {
    [RIG_DISK_RIGHT] = "bshsnf",
    [RIG_DISK_HEADERS_FIRST] = "hsnfbs",
    [RIG_DISK_ONE_SYNC] = "bshnf",
    [RIG_DISK_SYNC_AGAIN] = "bshsnf",
};

static int write_step(struct writer *w, char step)
{
    switch (step) {
    case 'b': return write_bodies(w);
    case 'h': return write_headers(w);
    case 's': return sync_now(w);
    case 'n': return w->files->rename(w->files->ctx, w->name, w->final);
    default: return w->files->sync_folder(w->files->ctx, w->final);
    }
}

int rig_disk_write(const struct disk_files *files, struct rig_disk_file *f,
                   enum rig_disk_wrong wrong)
{
    struct writer w = {.files = files, .f = f, .wrong = wrong};
    int err;

    check(f->nextents <= RIG_DISK_EXTENTS);
    w.footer = aligned_alloc(DISK_BLOCK, disk_footer_bytes_max());
    w.blocks = aligned_alloc(DISK_BLOCK, (RIG_DISK_EXTENTS + 1) * DISK_BLOCK);
    check(w.footer && w.blocks);
    disk_file_name(w.name, f->tenant, f->file, true);
    disk_file_name(w.final, f->tenant, f->file, false);
    make_file(&w);
    err = files->make(files->ctx, w.name, &w.handle);
    if (err == 0) {
        for (const char *step = orders[wrong]; *step && err == 0; step++)
            err = write_step(&w, *step);
        files->close(files->ctx, w.handle);
        if (err < 0 && files->remove(files->ctx, w.name) == -ENOENT)
            files->remove(files->ctx, w.final);
    }
    free(w.footer);
    free(w.blocks);
    return err;
}

void rig_disk_file_free(struct rig_disk_file *f)
{
    for (uint32_t i = 0; i < RIG_DISK_EXTENTS; i++) {
        rig_disk_free(&f->body[i]);
        free(f->list[i]);
        f->list[i] = NULL;
    }
}
