/* See disk_scan.h. */
#include "seam/disk/disk_scan.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "seam/disk/disk_footer.h"

#define FILES_AT_FIRST 256

static void listed(void *to, const char *name)
{
    struct disk_scan *s = to;
    struct scan_file f = {.tenant = s->listed};

    if (s->full || !disk_parse_name(name, &f.file, &f.unfinished))
        return;
    if (s->nfiles == s->cap) {
        uint32_t cap = s->cap ? s->cap * 2 : FILES_AT_FIRST;
        struct scan_file *more = realloc(s->file, cap * sizeof *more);

        s->full = !more;
        if (!more)
            return;
        s->file = more;
        s->cap = cap;
    }
    s->file[s->nfiles++] = f;
}

static int by_number(const void *a, const void *b)
{
    const struct scan_file *x = a, *y = b;

    if (x->file != y->file)
        return x->file < y->file ? -1 : 1;
    return (x->tenant > y->tenant) - (x->tenant < y->tenant);
}

static enum tern_err list_all(struct disk_scan *s, const char **ret_why)
{
    for (; s->listed < s->config->tenants; s->listed++) {
        const char *tenant = s->config->tenant[s->listed];

        if (tenant[0] && s->files->list(s->files->ctx, tenant, listed, s) < 0) {
            *ret_why = "a tenant's folder in the spill directory cannot be read: check its mode "
                       "and its owner";
            return TERN_DISK;
        }
    }
    if (s->full) {
        *ret_why = "no memory for the list of files in the spill directory";
        return TERN_INTERNAL;
    }
    if (s->nfiles > 1)
        qsort(s->file, s->nfiles, sizeof *s->file, by_number);
    return TERN_OK;
}

enum tern_err disk_scan_begin(struct disk_scan *s, const char **ret_why)
{
    enum tern_err err = TERN_OK;

    if (!disk_memory_get(&s->blocks, (size_t)DISK_LANE_PIECES * DISK_BLOCK)) {
        *ret_why = "no memory to read the spill directory";
        err = TERN_INTERNAL;
    }
    if (err == TERN_OK && s->config->encrypt)
        err = disk_crypt_create(s->config->key, &s->crypt, ret_why);
    if (err == TERN_OK)
        err = list_all(s, ret_why);
    s->body.files = s->files;
    s->body.crypt = s->crypt;
    if (err != TERN_OK)
        disk_scan_end(s);
    return err;
}

void disk_scan_end(struct disk_scan *s)
{
    disk_body_free(&s->body);
    disk_crypt_destroy(s->crypt);
    disk_memory_free(&s->blocks);
    disk_memory_free(&s->footer);
    free(s->file);
    s->crypt = NULL;
    s->file = NULL;
}

static void tell(struct disk_scan *s, enum disk_fault fault)
{
    s->now.fault = fault;
    s->found(s->ctx, &s->now);
}

static void tell_of(struct disk_scan *s, uint64_t offset, enum disk_fault fault)
{
    struct disk_place at = {s->now.head.extent.place.file, offset};

    s->now.head = (struct disk_head){.extent.place = at};
    tell(s, fault);
}

/* Takes the list of an extent with a good header: `list` is of disk_list_bytes, aligned to 8. */
static enum disk_fault take_list(struct disk_scan *s, const uint8_t *list)
{
    const struct disk_extent *e = &s->now.head.extent;
    size_t keys = e->nkeys * sizeof(struct extra_key);

    s->now.tokens = (const uint32_t *)(const void *)list;
    s->now.keys = (const void *)(list + disk_list_bytes(e) - keys);
    return disk_keys_fit(e, s->now.keys) ? DISK_FAULT_NONE : DISK_FAULT_SHAPE;
}

/* Opens and checks the header block that was read for `at`. entry NULL: no footer describes it. */
static enum disk_fault look_at_header(struct disk_scan *s, uint8_t *block, struct disk_place at,
                                      const struct disk_footer_entry *entry)
{
    struct disk_head *h = &s->now.head;
    enum disk_fault fault = disk_open_extent(s->crypt, block);

    if (fault == DISK_FAULT_NONE)
        fault = disk_get_extent(block, at, s->bytes, s->now.tenant, h);
    h->extent.place = at;
    if (fault != DISK_FAULT_NONE)
        return fault;
    if (!s->known) {
        s->known = true;
        s->incarnation = h->incarnation;
    }
    if (h->incarnation != s->incarnation)
        return DISK_FAULT_ADDRESS;
    if (entry && memcmp(block, entry->head_bytes, DISK_HEAD_BYTES) != 0)
        return DISK_FAULT_ADDRESS;
    h->extent.tenant = s->now.slot;
    return DISK_FAULT_NONE;
}

/* Returns true if the extent was dropped after its header was read, which only a running daemon
 * does. */
static bool is_gone(struct disk_scan *s, uint8_t *block, uint64_t offset)
{
    return disk_body_read(&s->body, block, DISK_BLOCK, offset) && disk_is_hole(block);
}

/* Takes a good extent's list, from the footer if possible; checks its body if s->bodies is set. */
static enum disk_fault look_at_body(struct disk_scan *s, uint8_t *block,
                                    const struct disk_footer_entry *entry)
{
    const struct disk_head *h = &s->now.head;
    enum disk_fault fault;

    if (!s->bodies && entry &&
        checksum_unit(entry->list, disk_list_bytes(&h->extent)) == h->seal.list_sum)
        return take_list(s, entry->list);
    fault = s->bodies ? disk_body_check(&s->body, h, block) : disk_body_list(&s->body, h, block);
    if (fault == DISK_FAULT_CHECKSUM && is_gone(s, block, h->extent.place.offset)) {
        s->now.hole = true;
        return DISK_FAULT_NONE;
    }
    return fault == DISK_FAULT_NONE ? take_list(s, s->body.meta.v) : fault;
}

/* Reports the block at `at`. Returns false if its header is not good: then its end is unknown. */
static bool look_at(struct disk_scan *s, uint8_t *block, bool read, struct disk_place at,
                    const struct disk_footer_entry *entry)
{
    enum disk_fault fault = DISK_FAULT_READ;
    bool header = false;

    s->now.hole = read && disk_is_hole(block);
    s->now.head = (struct disk_head){.extent.place = at};
    s->now.tokens = NULL;
    s->now.keys = NULL;
    if (read)
        fault = s->now.hole ? DISK_FAULT_NONE : look_at_header(s, block, at, entry);
    if (fault == DISK_FAULT_NONE && !s->now.hole) {
        header = true;
        fault = look_at_body(s, block, entry);
    }
    tell(s, fault);
    s->now.hole = false;
    return header;
}

struct header_read {
    struct disk_footer_entry entry;
    bool done;
};

/* Reads the headers of the next entries into s->blocks.v in parallel. Returns how many. */
static uint32_t read_headers(struct disk_scan *s, struct disk_footer_reader *r,
                             struct header_read *to)
{
    uint32_t n = 0, in_flight = 0;

    while (n < DISK_LANE_PIECES && disk_footer_next(r, &to[n].entry)) {
        struct disk_piece piece = {.memory = s->blocks.v + (size_t)n * DISK_BLOCK,
                                   .bytes = DISK_BLOCK,
                                   .offset = to[n].entry.head.extent.place.offset,
                                   .token = n};

        to[n].done = false;
        if (s->files->submit(s->files->ctx, 0, s->body.file, false, &piece) == 0)
            in_flight++;
        n++;
    }
    for (; in_flight > 0; in_flight--) {
        uint64_t token;
        int err = s->files->reap(s->files->ctx, 0, &token);

        to[token].done = err == 0;
    }
    return n;
}

static void by_footer(struct disk_scan *s, struct disk_footer_reader *r)
{
    struct header_read headers[DISK_LANE_PIECES];
    uint32_t n;

    while ((n = read_headers(s, r, headers)) > 0)
        for (uint32_t i = 0; i < n; i++)
            look_at(s, s->blocks.v + (size_t)i * DISK_BLOCK, headers[i].done,
                    headers[i].entry.head.extent.place, &headers[i].entry);
}

/* NONE: *r can read the footer. *ret_at: where the fault is. */
static enum disk_fault open_footer(struct disk_scan *s, uint64_t file, uint64_t *ret_at,
                                   struct disk_footer_reader *r)
{
    struct disk_trailer t;
    uint64_t bytes;

    *ret_at = 0;
    if (s->bytes < 3 * DISK_BLOCK)
        return DISK_FAULT_SHAPE;
    *ret_at = s->bytes - DISK_BLOCK;
    if (!disk_body_read(&s->body, s->blocks.v, DISK_BLOCK, *ret_at))
        return DISK_FAULT_READ;
    TRY(disk_get_trailer(s->blocks.v, file, s->bytes, &t));
    if (s->known && t.incarnation != s->incarnation)
        return DISK_FAULT_ADDRESS;
    bytes = *ret_at - t.footer_at;
    if (bytes > disk_footer_bytes_max() - DISK_BLOCK)
        return DISK_FAULT_SHAPE;
    *ret_at = t.footer_at;
    if (!disk_memory_get(&s->footer, bytes) ||
        !disk_body_read(&s->body, s->footer.v, bytes, t.footer_at))
        return DISK_FAULT_READ;
    TRY(disk_footer_open(r, s->footer.v, &t, s->now.tenant, s->crypt));
    s->known = true;
    s->incarnation = t.incarnation;
    return DISK_FAULT_NONE;
}

static void by_headers(struct disk_scan *s, uint64_t file)
{
    struct disk_place at = {file, DISK_BLOCK};
    bool good = true;

    while (good && at.offset < s->bytes) {
        bool read = disk_body_read(&s->body, s->blocks.v, DISK_BLOCK, at.offset);

        if (read && disk_is_footer(s->blocks.v))
            return;
        good = look_at(s, s->blocks.v, read, at, NULL);
        at.offset += disk_extent_bytes(&s->now.head.extent);
    }
}

static int open_file(struct disk_scan *s, const struct scan_file *f)
{
    int err;

    disk_file_name(s->name, s->config->tenant[f->tenant], f->file, false);
    s->now = (struct scan_found){
        .tenant = s->config->tenant[f->tenant], .name = s->name, .slot = f->tenant};
    s->now.head.extent.place.file = f->file;
    err = s->files->open(s->files->ctx, s->name, &s->body.file, &s->bytes);
    s->known = false;
    if (err == 0)
        s->bytes -= s->bytes % DISK_BLOCK;
    return err;
}

static enum disk_fault read_header(struct disk_scan *s, const struct scan_file *f,
                                   struct disk_file_header *ret)
{
    if (s->bytes < DISK_BLOCK)
        return DISK_FAULT_SHAPE;
    if (!disk_body_read(&s->body, s->blocks.v, DISK_BLOCK, 0))
        return DISK_FAULT_READ;
    TRY(disk_get_file_header(s->blocks.v, f->file, s->now.tenant, ret));
    return ret->key_id == disk_crypt_key_id(s->crypt) ? DISK_FAULT_NONE : DISK_FAULT_KEY;
}

enum disk_fault disk_scan_header(struct disk_scan *s, const struct scan_file *f)
{
    struct disk_file_header h;
    enum disk_fault fault;

    if (open_file(s, f) != 0)
        return DISK_FAULT_READ;
    fault = read_header(s, f, &h);
    s->files->close(s->files->ctx, s->body.file);
    return fault;
}

static void scan_open(struct disk_scan *s, const struct scan_file *f, struct disk_file_header *ret)
{
    enum disk_fault fault = read_header(s, f, ret);
    struct disk_footer_reader footer;
    uint64_t at;

    if (fault != DISK_FAULT_NONE) {
        *ret = (struct disk_file_header){.file = 0};
        tell_of(s, 0, fault);
    }
    if (fault == DISK_FAULT_KEY || fault == DISK_FAULT_VERSION)
        return;
    s->known = fault == DISK_FAULT_NONE;
    s->incarnation = ret->incarnation;
    fault = open_footer(s, f->file, &at, &footer);
    if (fault == DISK_FAULT_NONE) {
        by_footer(s, &footer);
        return;
    }
    tell_of(s, at, fault);
    by_headers(s, f->file);
}

bool disk_scan_file(struct disk_scan *s, const struct scan_file *f, struct disk_file_header *ret)
{
    int err = open_file(s, f);

    *ret = (struct disk_file_header){.file = 0};
    if (err == 0) {
        scan_open(s, f, ret);
        s->files->close(s->files->ctx, s->body.file);
    } else if (err != -ENOENT) {
        tell_of(s, 0, DISK_FAULT_READ);
    }
    return err == 0;
}
