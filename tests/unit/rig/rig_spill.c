/* See rig_spill.h. */
#include "unit/rig/rig_spill.h"

#include <stdlib.h>
#include <string.h>

#include "base/hash.h"

static void *owned(const void *base, size_t at, size_t bytes)
{
    void *to = malloc(bytes ? bytes : 1);

    if (!to)
        abort();
    if (bytes)
        memcpy(to, (const uint8_t *)base + at, bytes);
    return to;
}

struct spill *spill_make(void)
{
    struct spill *s = calloc(1, sizeof *s);

    if (!s)
        abort();
    return s;
}

static void extent_free(struct spill_extent *x)
{
    for (uint32_t i = 0; i < x->e.npages; i++)
        free(x->page[i].data);
    free(x->page);
    free(x->tokens);
    free(x->keys);
}

static void file_free(struct spill_file *f)
{
    for (uint32_t i = 0; i < f->n; i++)
        extent_free(&f->v[i]);
    free(f->v);
    *f = (struct spill_file){.number = 0};
}

void spill_free(struct spill *s)
{
    for (uint32_t i = 0; i < s->nfiles; i++)
        file_free(&s->file[i]);
    free(s);
}

uint64_t spill_bytes(const struct spill *s)
{
    uint64_t bytes = 0;

    for (uint32_t i = 0; i < s->nfiles; i++)
        for (uint32_t k = 0; s->file[i].number && k < s->file[i].n; k++)
            bytes += s->file[i].v[k].hole ? 0 : disk_extent_bytes(&s->file[i].v[k].e);
    return bytes;
}

void rig_spill(struct rig *rig, struct spill *s)
{
    struct event ev = {.kind = EV_DISK_READY, .ready.next_file = 1};

    rig->spill = s;
    for (uint32_t i = 0; i < s->nfiles; i++) {
        const struct spill_file *f = &s->file[i];

        for (uint32_t k = 0; f->number && k < f->n; k++) {
            struct event found = {.kind = EV_DISK_FOUND};

            if (f->v[k].hole)
                continue;
            found.found.extent = f->v[k].e;
            found.found.tokens = f->v[k].tokens;
            found.found.keys = f->v[k].keys;
            if (f->v[k].e.served_ns > ev.ready.served_ns)
                ev.ready.served_ns = f->v[k].e.served_ns;
            rig_event(rig, &found);
        }
        if (f->number >= ev.ready.next_file)
            ev.ready.next_file = f->number + 1;
    }
    rig_event(rig, &ev);
}

static struct spill_extent *extent_at(struct spill *s, struct disk_place at)
{
    for (uint32_t i = 0; i < s->nfiles; i++)
        for (uint32_t k = 0; s->file[i].number == at.file && k < s->file[i].n; k++)
            if (s->file[i].v[k].e.place.offset == at.offset)
                return &s->file[i].v[k];
    return NULL;
}

/* The number of ranks whose pages lie on the disk, one after another. */
static uint32_t ranks_of(struct rig *rig, uint32_t pool)
{
    struct pool_view v;

    if (!core_pool_view(rig->core, pool, &v))
        rig_fail("pages of pool %u, which is not there", pool);
    return v.tier == TIER_HOST || v.moved == 0 ? 1 : v.moved;
}

/* Reads the page, which must still have the bytes that were sealed. */
static bool page_read(struct rig *rig, const struct page_at *at, struct spill_page *ret)
{
    const uint32_t ranks = ranks_of(rig, at->pool);
    const uint8_t *page = rig_page(rig, at->pool, at->group, at->index, &ret->bytes);
    const uint64_t sum =
        hash_words(1, (const uint32_t *)(const void *)page, ret->bytes / sizeof(uint32_t));

    ret->group = at->group;
    ret->sum = rig->sums[at->record];
    ret->data = malloc(ranks * ret->bytes + 1);
    if (!ret->data)
        abort();
    for (uint32_t r = 0; r < ranks; r++)
        memcpy(ret->data + r * ret->bytes, rig_page_at(rig, at->pool, r, *at, &ret->bytes),
               ret->bytes);
    ret->bytes *= ranks;
    return sum == ret->sum;
}

enum tern_err spill_write(struct rig *rig, const struct disk_write *w)
{
    struct spill *s = rig->spill;
    uint32_t token = 0, key = 0, page = 0;
    uint64_t offset = DISK_BLOCK;
    struct spill_file *f;

    if (!s)
        rig_fail("a file is to be written, and there is no disk");
    if (s->writes_to_fail > 0) {
        s->writes_to_fail--;
        return s->err;
    }
    if (s->nfiles == SPILL_FILES_MAX)
        rig_fail("more than %d files", SPILL_FILES_MAX);
    for (uint32_t i = 0; i < s->nfiles; i++)
        if (s->file[i].number >= w->file)
            rig_fail("file %llu was there before", (unsigned long long)w->file);
    f = &s->file[s->nfiles++];
    *f = (struct spill_file){.number = w->file, .n = w->nextents};
    f->v = calloc(w->nextents, sizeof *f->v);
    for (uint32_t i = 0; i < w->nextents; i++) {
        struct spill_extent *x = &f->v[i];

        x->e = w->extents[i];
        if (x->e.place.offset != offset || x->e.place.file != w->file)
            rig_fail("extent %u is not where the one before it ends", i);
        offset += disk_extent_bytes(&x->e);
        s->written_bytes += disk_extent_bytes(&x->e);
        x->tokens = owned(w->tokens, token * sizeof *w->tokens, x->e.tokens * sizeof *w->tokens);
        x->keys = owned(w->keys, key * sizeof *w->keys, x->e.nkeys * sizeof *w->keys);
        x->page = calloc(x->e.npages + 1, sizeof *x->page);
        for (uint32_t k = 0; k < x->e.npages; k++)
            if (!page_read(rig, &w->pages[page + k], &x->page[k]))
                rig_fail("what is written is not what was sealed");
        token += x->e.tokens;
        key += x->e.nkeys;
        page += x->e.npages;
    }
    if (token != w->ntokens || key != w->nkeys || page != w->npages)
        rig_fail("the file's counts do not add up");
    s->written_files++;
    return TERN_OK;
}

/* The page of the extent whose bytes begin at `body_at`. */
static const struct spill_page *page_at_byte(const struct spill_extent *x, uint64_t body_at)
{
    uint64_t at = disk_meta_bytes(&x->e);

    for (uint32_t i = 0; i < x->e.npages; at += x->page[i++].bytes)
        if (at == body_at)
            return &x->page[i];
    return NULL;
}

void spill_read(struct rig *rig, const struct rig_job *job, struct event *event)
{
    const uint32_t ranks = ranks_of(rig, job->pool);

    for (uint32_t i = 0; i < job->n; i++) {
        const struct disk_page *from = &job->from[i];
        const struct spill_extent *x = extent_at(rig->spill, from->extent.place);
        const struct spill_page *p;
        uint64_t bytes;
        uint8_t *to = rig_page(rig, job->pool, job->pages[i].group, job->pages[i].index, &bytes);

        if (!x || x->hole || x->e.chain != from->extent.chain || x->e.part != from->extent.part)
            rig_fail("an extent is read that is not there");
        p = page_at_byte(x, from->body_at);
        if (!p || p->bytes != ranks * bytes || p->group != job->pages[i].group)
            rig_fail("a page is read where none begins");
        for (uint32_t r = 0; r < ranks; r++)
            memcpy(rig_page_at(rig, job->pool, r, job->pages[i], &bytes), p->data + r * bytes,
                   bytes);
        rig->sums[job->pages[i].record] = p->sum;
        if (rig->spill->reads_to_spoil > 0 || x->rotten) {
            rig->spill->reads_to_spoil -= rig->spill->reads_to_spoil > 0;
            to[0] ^= 1;
            continue;
        }
        event->pulled.ok[i / 64] |= (uint64_t)1 << (i % 64);
    }
}

bool spill_drop(struct spill *s, const struct disk_drop *d)
{
    struct spill_extent *x;

    for (uint32_t i = 0; i < s->nfiles && d->place.offset == 0; i++)
        if (s->file[i].number == d->place.file) {
            file_free(&s->file[i]);
            return true;
        }
    x = d->place.offset ? extent_at(s, d->place) : NULL;
    if (!x || x->hole || disk_extent_bytes(&x->e) != d->bytes)
        rig_fail("what is given back is not there: %llu in file %llu",
                 (unsigned long long)d->place.offset, (unsigned long long)d->place.file);
    x->hole = true;
    return false;
}

void spill_limits(struct rig_options *o, uint64_t bytes, uint32_t interval)
{
    o->limits.disk_chunks = 1024;
    o->limits.disk_files = 128;
    o->limits.disk_stores = 8;
    o->limits.disk_blocks = 2048;
    o->limits.disk_keys = 64;
    o->limits.disk_interval = interval ? interval : 10240;
    o->limits.disk_align = interval ? interval : 2048;
    o->limits.disk_trim = 32;
    o->limits.disk_least = 512;
    o->tenant[0].disk_bytes = bytes;
}
