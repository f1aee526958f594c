/* The audit of the disk's index: every chunk, entry and extent is counted anew. See audit.h. */
#include "oracle/audit.h"

#include "core/disk/entries.h"

struct disk_audit {
    struct audit *a;
    uint32_t *extents; /* by file */
    uint32_t *claims, *children, *pins;
    uint64_t *bytes; /* by tenant */
    uint32_t *chunks, *entries, *files;
};

static void audit_part(struct disk_audit *d, uint32_t at, enum disk_part part)
{
    const struct core *c = d->a->c;
    const struct disk_chunk *k = disk_chunk_at(c, at);
    const struct disk_kept *p = &k->part[part];

    if (!(k->kept & DISK_HAS(part)))
        return;
    if (p->file >= c->limits.disk_files || disk_file_at(c, p->file)->state != DISK_FILE_KEPT)
        oracle_fail("audit: part %u of disk chunk %u is kept in no file", part, at);
    if (p->offset < DISK_BLOCK || p->offset % DISK_BLOCK)
        oracle_fail("audit: an extent at %llu", (unsigned long long)p->offset);
    d->extents[p->file]++;
    d->bytes[k->tenant] += disk_kept_bytes(k, part, p);
}

/* D9: a chunk is needed: another lies below it, it is an entry, or it is pinned. */
static void audit_chunk(struct disk_audit *d, uint32_t at)
{
    const struct core *c = d->a->c;
    const struct disk_chunk *k = disk_chunk_at(c, at), *p;

    if (k->children.n == 0 && !disk_is_entry(k) && k->pins == 0 && c->disk_trimmed &&
        !(disk_entry_list_has(c, at) && c->left_over)) /* else the next piece removes it */
        oracle_fail("audit: D9: nobody needs disk chunk %u", at);
    for (uint32_t i = 0; i < DISK_PARTS; i++)
        audit_part(d, at, i);
    if (k->depth == 0) {
        if (k->parent != NONE || k->kept || k->root != at)
            oracle_fail("audit: disk root %u has a parent, or extents", at);
        return;
    }
    p = disk_chunk_at(c, k->parent);
    d->children[k->parent]++;
    d->chunks[k->tenant]++;
    if (!p->used || p->depth + k->align != k->depth || p->root != k->root || p->tenant != k->tenant)
        oracle_fail("audit: disk chunk %u does not fit the one before it", at);
    if (k->kept & DISK_HAS(DISK_HISTORY) && p->depth > 0 && !(p->kept & DISK_HAS(DISK_HISTORY)))
        oracle_fail("audit: disk chunk %u is kept, and the one before it is not", at);
    if (k->kept && !(k->kept & DISK_HAS(DISK_HISTORY)))
        oracle_fail("audit: disk chunk %u has parts without HISTORY", at);
    audit_chain(d->a, k->tokens, tokens_blocks_per_chunk(k->align), "a disk chunk");
    audit_keys(d->a, k->keys, p->depth, k->depth, "a disk chunk");
    if (!disk_is_entry(k))
        return;
    d->entries[k->tenant]++;
    for (uint32_t i = k->reach, up = at; i > 0 && disk_chunk_at(c, up)->depth > 0;
         i--, up = disk_chunk_at(c, up)->parent)
        d->claims[up]++;
}

static void audit_stores_of_disk(struct disk_audit *d)
{
    const struct core *c = d->a->c;
    uint32_t n = 0;

    for (uint32_t at = c->disk_stores.head; at != NONE; at = disk_store_list_next(c, at), n++) {
        const struct disk_store *s = disk_store_at(c, at);
        bool writes = s->state == DISK_STORE_WRITING;

        if (s->state == DISK_STORE_EMPTY || writes != (s->file != NONE) ||
            writes != (tenant_at(c, s->tenant)->disk_writing == at))
            oracle_fail("audit: store %u in state %u", at, s->state);
        if (s->chunk != NONE)
            d->pins[s->chunk]++;
        if (s->last != NONE)
            d->pins[s->last]++;
        for (uint32_t i = s->ends && writes ? pool_at(c, s->pool)->reach : 0, up = s->last;
             i > 0 && disk_chunk_at(c, up)->depth > 0; i--, up = disk_chunk_at(c, up)->parent)
            d->claims[up]++;
        for (uint32_t i = 0; writes && i < s->ncoming; i++) {
            d->extents[s->file]++;
            d->bytes[s->tenant] += disk_kept_bytes(disk_chunk_at(c, s->coming[i].chunk),
                                                   s->coming[i].part, &s->coming[i].at);
        }
    }
    if (n + c->free_disk_stores.n != c->limits.disk_stores)
        oracle_fail("audit: %u stores are listed, %u free", n, c->free_disk_stores.n);
}

static void audit_files(struct disk_audit *d)
{
    const struct core *c = d->a->c;
    uint32_t n = 0;

    for (uint32_t i = 0; i < c->limits.disk_files; i++) {
        const struct disk_file *f = disk_file_at(c, i);

        if (f->state == DISK_FILE_EMPTY)
            continue;
        n++;
        d->files[f->tenant]++;
        if (f->extents != d->extents[i] + (i == c->disk_file_found))
            oracle_fail("audit: disk file %u counts %u extents and has %u", i, f->extents,
                        d->extents[i]);
        if ((f->state == DISK_FILE_LEAVING) != (f->extents == 0))
            oracle_fail("audit: disk file %u of %u extents is in state %u", i, f->extents,
                        f->state);
    }
    if (n + c->free_disk_files.n != c->limits.disk_files)
        oracle_fail("audit: %u disk files, %u free", n, c->free_disk_files.n);
}

static void audit_counts(struct disk_audit *d)
{
    const struct core *c = d->a->c;

    for (uint32_t i = 0; i < c->limits.disk_chunks; i++) {
        const struct disk_chunk *k = disk_chunk_at(c, i);

        if (!k->used)
            continue;
        if (k->claims != d->claims[i] || k->children.n != d->children[i] || k->pins != d->pins[i])
            oracle_fail("audit: disk chunk %u counts %u claims, %u children, %u pins; %u, %u, %u",
                        i, k->claims, k->children.n, k->pins, d->claims[i], d->children[i],
                        d->pins[i]);
        if (k->claims == 0 && k->kept & DISK_HAS(DISK_STATE) && c->disk_trimmed)
            oracle_fail("audit: nobody claims the STATE of disk chunk %u", i);
    }
    for (uint32_t t = 0; t < c->limits.tenants; t++) {
        const struct tenant *of = tenant_at(c, t);
        struct disk_view told;

        core_disk(c, t, &told);
        if (of->disk_used != d->bytes[t] || of->disk_entries.n != d->entries[t] ||
            told.chunks != d->chunks[t] || told.files != d->files[t])
            oracle_fail("audit: tenant %u uses %llu bytes of disk, and counts %llu; %u entries, "
                        "%u chunks, %u files",
                        t, (unsigned long long)d->bytes[t], (unsigned long long)of->disk_used,
                        d->entries[t], d->chunks[t], d->files[t]);
    }
}

void audit_disk(struct audit *a)
{
    const struct core *c = a->c;
    uint32_t n = c->limits.disk_chunks, used = 0;
    struct disk_audit d = {.a = a};

    if (n == 0)
        return;
    d.extents = audit_scratch(c->limits.disk_files, sizeof(uint32_t));
    d.claims = audit_scratch(n, sizeof(uint32_t));
    d.children = audit_scratch(n, sizeof(uint32_t));
    d.pins = audit_scratch(n, sizeof(uint32_t));
    d.bytes = audit_scratch(c->limits.tenants, sizeof(uint64_t));
    d.chunks = audit_scratch(c->limits.tenants, sizeof(uint32_t));
    d.entries = audit_scratch(c->limits.tenants, sizeof(uint32_t));
    d.files = audit_scratch(c->limits.tenants, sizeof(uint32_t));
    for (uint32_t i = 0; i < n; i++)
        if (disk_chunk_at(c, i)->used) {
            audit_chunk(&d, i);
            used++;
        }
    if (used + c->free_disk_chunks.n != n)
        oracle_fail("audit: %u disk chunks, %u free", used, c->free_disk_chunks.n);
    audit_stores_of_disk(&d);
    for (uint32_t i = c->pulls_active.head; i != NONE; i = pull_list_next(c, i))
        if (pull_at(c, i)->chunk != NONE)
            d.pins[pull_at(c, i)->chunk]++;
    audit_files(&d);
    audit_counts(&d);
}
