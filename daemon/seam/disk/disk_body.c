/* See disk_body.h. Reads pieces of the body ahead and checks them in order: first the bytes that
 * meta_sum covers, then the pages, unit by unit. */
#include "seam/disk/disk_body.h"

#include <string.h>

#include "base/undumped.h"
#include "seam/disk/disk.h"
#include "seam/disk/pieces.h"

bool disk_memory_get(struct disk_memory *m, uint64_t bytes)
{
    bytes = disk_whole_blocks(bytes);
    if (bytes <= m->bytes)
        return true;
    disk_memory_free(m);
    m->v = undumped_take(bytes, false);
    m->bytes = m->v ? bytes : 0;
    return m->v != NULL;
}

void disk_memory_free(struct disk_memory *m)
{
    undumped_put(m->v, m->bytes);
    *m = (struct disk_memory){.v = NULL};
}

void disk_body_free(struct disk_body *b)
{
    disk_memory_free(&b->pieces);
    disk_memory_free(&b->meta);
}

static void unit_begin(struct disk_body *b)
{
    const struct disk_run *r = &b->head->run[b->run];
    uint64_t from, to = checksum_unit_span(r->page_bytes, r->units, b->unit, &from);

    b->left = to - from;
    checksum_begin(&b->hash);
}

/* Ends a unit. Units follow by region within a page, and by page within a run. */
static void unit_end(struct disk_body *b)
{
    const struct disk_run *r = &b->head->run[b->run];

    if (checksum_end(&b->hash) != *b->sum || *b->sum == CHECKSUM_NONE)
        b->wrong = true;
    b->sum++;
    if (++b->unit == r->units) {
        b->unit = 0;
        b->region++;
    }
    if (b->region == r->regions) {
        b->region = 0;
        b->page++;
    }
    if (b->page == r->pages) {
        b->page = 0;
        b->run++;
    }
    if (b->run < b->head->nruns)
        unit_begin(b);
}

static void pages_take(struct disk_body *b, const uint8_t *bytes, size_t n)
{
    while (n > 0 && b->run < b->head->nruns) {
        size_t took = n < b->left ? n : b->left;

        checksum_feed(&b->hash, bytes, took);
        b->left -= took;
        bytes += took;
        n -= took;
        if (b->left == 0)
            unit_end(b);
    }
}

static void meta_end(struct disk_body *b)
{
    const struct disk_extent *e = &b->head->extent;
    uint64_t list = disk_list_bytes(e);

    if (checksum_unit(b->meta.v, disk_meta_bytes(e)) != b->head->seal.meta_sum ||
        checksum_unit(b->meta.v, list) != b->head->seal.list_sum)
        b->wrong = true;
    b->sum = (const uint64_t *)(const void *)(b->meta.v + list);
    if (b->head->nruns > 0)
        unit_begin(b);
}

/* Takes the next bytes of the body, in the clear. */
static void take(struct disk_body *b, const uint8_t *bytes, size_t n)
{
    uint64_t meta = disk_meta_bytes(&b->head->extent);

    if (b->at < meta) {
        size_t part = n < meta - b->at ? n : meta - b->at;

        memcpy(b->meta.v + b->at, bytes, part);
        b->at += part;
        bytes += part;
        n -= part;
        if (b->at == meta)
            meta_end(b);
    }
    b->at += n;
    pages_take(b, bytes, n);
}

static void begin(struct disk_body *b, const struct disk_head *head, const uint8_t *block)
{
    b->head = head;
    b->at = 0;
    b->run = b->page = b->region = b->unit = 0;
    b->wrong = false;
    if (disk_meta_bytes(&head->extent) == 0)
        meta_end(b);
    if (head->seal.key_id)
        disk_crypt_begin(b->crypt, DISK_KEY_BODIES, DISK_OPEN, head->seal.nonce, block,
                         DISK_ASSOCIATED);
}

/* Reads the body a few pieces ahead. Returns 0, or the first error. */
static int read_body(struct disk_body *b, uint64_t bytes)
{
    const uint64_t from = b->head->extent.place.offset + DISK_BLOCK;
    uint64_t asked = 0, left = disk_body_bytes(&b->head->extent), n;
    struct pieces p;

    pieces_init(&p, b->files, 0, DISK_BODY_DEPTH, b->pieces.v, NULL);
    for (uint32_t taken = 0; left > 0 && p.err == 0; taken++, left -= n) {
        struct piece *piece = &p.piece[taken % DISK_BODY_DEPTH];

        for (uint32_t i = (uint32_t)(asked / DISK_PIECE_BYTES);
             asked < bytes && i < taken + DISK_BODY_DEPTH; i++) {
            struct piece *next = &p.piece[i % DISK_BODY_DEPTH];

            next->offset = from + asked;
            next->bytes = bytes - asked < DISK_PIECE_BYTES ? bytes - asked : DISK_PIECE_BYTES;
            asked += next->bytes;
            pieces_send(&p, next, b->file, false);
        }
        pieces_wait(&p, piece);
        n = left < piece->bytes ? left : piece->bytes;
        if (p.err == 0 && b->head->seal.key_id)
            disk_crypt_update(b->crypt, piece->memory, n);
        if (p.err == 0)
            take(b, piece->memory, n);
    }
    return pieces_land(&p);
}

bool disk_body_read(const struct disk_body *b, uint8_t *to, uint64_t bytes, uint64_t offset)
{
    while (bytes > 0) {
        uint64_t n = bytes < DISK_PIECE_BYTES ? bytes : DISK_PIECE_BYTES, token;
        struct disk_piece piece = {.memory = to, .bytes = n, .offset = offset};

        if (b->files->submit(b->files->ctx, 0, b->file, false, &piece) != 0 ||
            b->files->reap(b->files->ctx, 0, &token) != 0)
            return false;
        to += n;
        offset += n;
        bytes -= n;
    }
    return true;
}

enum disk_fault disk_body_check(struct disk_body *b, const struct disk_head *head,
                                const uint8_t *block)
{
    const uint64_t in_flight = (uint64_t)DISK_BODY_DEPTH * DISK_PIECE_BYTES,
                   bytes = disk_extent_bytes(&head->extent) - DISK_BLOCK;
    int err;

    if (head->seal.key_id != disk_crypt_key_id(b->crypt))
        return DISK_FAULT_KEY;
    if (!disk_memory_get(&b->meta, disk_meta_bytes(&head->extent) + 1) ||
        !disk_memory_get(&b->pieces, bytes < in_flight ? bytes + 1 : in_flight))
        return DISK_FAULT_READ;
    begin(b, head, block);
    err = read_body(b, bytes);
    if (head->seal.key_id && !disk_open_end(b->crypt, head->seal.tag))
        b->wrong = true;
    if (err != 0)
        return DISK_FAULT_READ;
    return b->wrong ? DISK_FAULT_CHECKSUM : DISK_FAULT_NONE;
}

enum disk_fault disk_body_list(struct disk_body *b, const struct disk_head *head,
                               const uint8_t *block)
{
    const uint64_t list = disk_list_bytes(&head->extent);

    if (head->seal.key_id)
        return disk_body_check(b, head, block);
    if (!disk_memory_get(&b->meta, list + 1) ||
        !disk_body_read(b, b->meta.v, disk_whole_blocks(list),
                        head->extent.place.offset + DISK_BLOCK))
        return DISK_FAULT_READ;
    return checksum_unit(b->meta.v, list) == head->seal.list_sum ? DISK_FAULT_NONE
                                                                 : DISK_FAULT_CHECKSUM;
}
