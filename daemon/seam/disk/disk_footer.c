/* See disk_footer.h. */
#include "seam/disk/disk_footer.h"

#include <assert.h>
#include <string.h>

#include "base/check.h"
#include "base/err.h"
#include "seam/mem/checksum.h"

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "lists lie on the disk as in memory");
static_assert(DISK_HEAD_BYTES % 8 == 0 && sizeof(struct extra_key) % 8 == 0, "lists are aligned");

size_t disk_footer_bytes_max(void)
{
    size_t heads = (size_t)DISK_WRITE_EXTENTS * DISK_HEAD_BYTES;
    size_t tokens = (size_t)OPEN_TOKENS_MAX * 4 + (size_t)DISK_WRITE_EXTENTS * 4; /* each to 8 */
    size_t keys = (size_t)EXTRA_KEYS_MAX * sizeof(struct extra_key);

    return DISK_BLOCK + disk_whole_blocks(heads + tokens + keys) + DISK_BLOCK;
}

void disk_footer_begin(struct disk_footer *f, uint8_t *memory, size_t cap)
{
    check(cap >= 2 * DISK_BLOCK);
    *f = (struct disk_footer){.memory = memory, .cap = cap};
}

static void add_bytes(struct disk_footer *f, const void *bytes, size_t n)
{
    check(n <= f->cap - 2 * DISK_BLOCK - f->bytes);
    if (n > 0)
        memcpy(f->memory + DISK_BLOCK + f->bytes, bytes, n);
    f->bytes += n;
}

void disk_footer_add(struct disk_footer *f, const uint8_t *block, const struct disk_extent *e,
                     const uint32_t *tokens, const struct extra_key *keys)
{
    static const uint32_t pad;

    check(f->nextents < DISK_WRITE_EXTENTS);
    add_bytes(f, block, DISK_HEAD_BYTES);
    add_bytes(f, tokens, (size_t)e->tokens * 4);
    add_bytes(f, &pad, e->tokens % 2 * sizeof pad);
    add_bytes(f, keys, (size_t)e->nkeys * sizeof *keys);
    f->nextents++;
}

size_t disk_footer_end(struct disk_footer *f, struct disk_place at,
                       const struct disk_file_header *file, struct disk_crypt *crypt)
{
    struct disk_footer_header h = {.place = at,
                                   .incarnation = file->incarnation,
                                   .body_bytes = f->bytes,
                                   .nextents = f->nextents};
    size_t bytes = disk_whole_blocks(f->bytes);
    uint8_t *body = f->memory + DISK_BLOCK;
    struct disk_trailer t = {.file = at.file,
                             .incarnation = file->incarnation,
                             .footer_at = at.offset,
                             .file_bytes = at.offset + 2 * DISK_BLOCK + bytes};

    check(bytes <= f->cap - 2 * DISK_BLOCK);
    memset(body + f->bytes, 0, bytes - f->bytes);
    if (crypt) {
        if (!disk_crypt_fresh(crypt, &h.key_id, h.nonce))
            return 0;
        disk_put_footer_header(f->memory, &h, file->tenant);
        disk_crypt_begin(crypt, DISK_KEY_BODIES, DISK_SEAL, h.nonce, f->memory,
                         DISK_FOOTER_ASSOCIATED);
        disk_crypt_update(crypt, body, f->bytes);
        if (!disk_seal_end(crypt, h.tag))
            return 0;
    }
    h.body_sum = checksum_unit(body, f->bytes);
    disk_put_footer_header(f->memory, &h, file->tenant);
    disk_put_trailer(body + bytes, &t);
    return 2 * DISK_BLOCK + bytes;
}

static enum disk_fault next(struct disk_footer_reader *r, struct disk_footer_entry *ret)
{
    struct disk_place at = {r->trailer.file, r->next_offset};

    if (r->end - r->at < DISK_HEAD_BYTES)
        return DISK_FAULT_SHAPE;
    ret->head_bytes = r->at;
    TRY(disk_get_head(r->at, at, r->trailer.footer_at, r->tenant, &ret->head));
    if (ret->head.incarnation != r->trailer.incarnation)
        return DISK_FAULT_ADDRESS;
    if (ret->head.seal.key_id != r->key_id)
        return DISK_FAULT_KEY;
    ret->list = r->at + DISK_HEAD_BYTES;
    if (disk_list_bytes(&ret->head.extent) > (uint64_t)(r->end - ret->list))
        return DISK_FAULT_SHAPE;
    r->at = ret->list + disk_list_bytes(&ret->head.extent);
    r->next_offset += disk_extent_bytes(&ret->head.extent);
    r->left--;
    return DISK_FAULT_NONE;
}

/* Checks each entry once, so that no later read of an entry can fail. */
static enum disk_fault look_at_all(struct disk_footer_reader r)
{
    struct disk_footer_entry entry;

    while (r.left > 0)
        TRY(next(&r, &entry));
    return r.at == r.end && r.next_offset == r.trailer.footer_at ? DISK_FAULT_NONE
                                                                 : DISK_FAULT_SHAPE;
}

static enum disk_fault open_body(const struct disk_footer_header *h, uint8_t *memory,
                                 struct disk_crypt *crypt)
{
    uint8_t *body = memory + DISK_BLOCK;

    if (h->key_id != disk_crypt_key_id(crypt))
        return DISK_FAULT_KEY;
    if (checksum_unit(body, h->body_bytes) != h->body_sum)
        return DISK_FAULT_CHECKSUM;
    if (!crypt)
        return DISK_FAULT_NONE;
    disk_crypt_begin(crypt, DISK_KEY_BODIES, DISK_OPEN, h->nonce, memory, DISK_FOOTER_ASSOCIATED);
    disk_crypt_update(crypt, body, h->body_bytes);
    return disk_open_end(crypt, h->tag) ? DISK_FAULT_NONE : DISK_FAULT_CHECKSUM;
}

enum disk_fault disk_footer_open(struct disk_footer_reader *r, uint8_t *memory,
                                 const struct disk_trailer *trailer, const char *tenant,
                                 struct disk_crypt *crypt)
{
    struct disk_place at = {trailer->file, trailer->footer_at};
    uint64_t room = trailer->file_bytes - trailer->footer_at - 2 * DISK_BLOCK;
    struct disk_footer_header h;

    TRY(disk_get_footer_header(memory, at, tenant, &h));
    if (h.incarnation != trailer->incarnation)
        return DISK_FAULT_ADDRESS;
    if (h.body_bytes > room || disk_whole_blocks(h.body_bytes) != room)
        return DISK_FAULT_SHAPE;
    TRY(open_body(&h, memory, crypt));
    *r = (struct disk_footer_reader){.at = memory + DISK_BLOCK,
                                     .end = memory + DISK_BLOCK + h.body_bytes,
                                     .trailer = *trailer,
                                     .tenant = tenant,
                                     .key_id = h.key_id,
                                     .next_offset = DISK_BLOCK,
                                     .left = h.nextents};
    return look_at_all(*r);
}

bool disk_footer_next(struct disk_footer_reader *r, struct disk_footer_entry *ret)
{
    return r->left > 0 && next(r, ret) == DISK_FAULT_NONE;
}
