/* See disk_format.h. The fields of a block are listed once, for both directions: a coder either
 * puts the fields into a block or gets them from it. */
#include "seam/disk/disk_format.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/err.h"
#include "seam/mem/checksum.h"

#define MAGIC_FILE    0x454c49464e524554ull /* "TERNFILE" */
#define MAGIC_EXTENT  0x545458454e524554ull /* "TERNEXTT" */
#define MAGIC_FOOTER  0x544f4f464e524554ull /* "TERNFOOT" */
#define MAGIC_TRAILER 0x4c4941544e524554ull /* "TERNTAIL" */

#define SUM_AT          (DISK_BLOCK - 8u)
#define KEY_ID_AT       104u
#define NONCE_AT        112u
#define HEAD_TAG_AT     DISK_ASSOCIATED
#define PRIVATE_AT      144u
#define NAME_DIGITS     16
#define NAME_END        ".tern"
#define NAME_UNFINISHED ".tern.tmp"

const char *disk_fault_word(enum disk_fault fault)
{
    static const char *const words[DISK_FAULTS] = {
        [DISK_FAULT_NONE] = "none",       [DISK_FAULT_MAGIC] = "magic",
        [DISK_FAULT_VERSION] = "version", [DISK_FAULT_CHECKSUM] = "checksum",
        [DISK_FAULT_ADDRESS] = "address", [DISK_FAULT_TENANT] = "tenant",
        [DISK_FAULT_SHAPE] = "shape",     [DISK_FAULT_KEY] = "key",
        [DISK_FAULT_READ] = "read",
    };

    return fault < DISK_FAULTS ? words[fault] : "";
}

/* ---- names ---- */

void disk_file_name(char ret[DISK_NAME_MAX], const char *tenant, uint64_t file, bool unfinished)
{
    int n = snprintf(ret, DISK_NAME_MAX, "%s/%0*" PRIx64 "%s", tenant, NAME_DIGITS, file,
                     unfinished ? NAME_UNFINISHED : NAME_END);

    check(n > 0 && n < DISK_NAME_MAX);
}

bool disk_parse_name(const char *name, uint64_t *ret_file, bool *ret_unfinished)
{
    if (strspn(name, "0123456789abcdef") != NAME_DIGITS)
        return false;
    *ret_file = strtoull(name, NULL, 16);
    *ret_unfinished = strcmp(name + NAME_DIGITS, NAME_UNFINISHED) == 0;
    if (*ret_file == 0 || *ret_file > DISK_FILE_MAX)
        return false;
    return *ret_unfinished || strcmp(name + NAME_DIGITS, NAME_END) == 0;
}

/* ---- fields ---- */

struct coder {
    union {
        uint8_t *to;         /* put */
        const uint8_t *from; /* get */
    };
    const char *tenant; /* the block's tenant; NULL: blocks of this kind name no tenant */
    bool put;
    bool other; /* the block is another tenant's */
    bool odd;   /* bytes that must be zero were not */
    size_t at;
};

static void code_bytes(struct coder *c, void *v, size_t n)
{
    if (c->put)
        memcpy(c->to + c->at, v, n);
    else
        memcpy(v, c->from + c->at, n);
    c->at += n;
}

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "numbers lie on the disk as in memory");

static void code64(struct coder *c, uint64_t *v)
{
    code_bytes(c, v, sizeof *v);
}

static void code32(struct coder *c, uint32_t *v)
{
    code_bytes(c, v, sizeof *v);
}

static void code_zero32(struct coder *c)
{
    uint32_t v = 0;

    code32(c, &v);
    c->odd |= v != 0;
}

/* The name, with zeros up to its full length. */
static void code_tenant(struct coder *c)
{
    char name[DISK_TENANT_NAME] = {0}, is[DISK_TENANT_NAME];
    size_t n = strnlen(c->tenant, DISK_TENANT_NAME);

    check(!c->put || (n > 0 && n < DISK_TENANT_NAME));
    memcpy(name, c->tenant, n);
    memcpy(is, name, sizeof is);
    code_bytes(c, is, sizeof is);
    c->other = n == DISK_TENANT_NAME || memcmp(is, name, sizeof is) != 0;
}

static void put_begin(struct coder *c, uint8_t *block, uint64_t magic, const char *tenant)
{
    uint32_t version = DISK_FORMAT_VERSION;

    *c = (struct coder){.to = memset(block, 0, DISK_BLOCK), .tenant = tenant, .put = true};
    code64(c, &magic);
    code32(c, &version);
}

static void put_sum(uint8_t *block)
{
    struct coder sum = {.to = block, .put = true, .at = SUM_AT};
    uint64_t v = checksum_unit(block, SUM_AT);

    code64(&sum, &v);
}

/* Checks the beginning and the end that all our blocks have; NONE: *c can get the rest. */
static enum disk_fault get_begin(struct coder *c, const uint8_t *block, uint64_t magic,
                                 const char *tenant)
{
    struct coder end = {.from = block, .at = SUM_AT};
    uint64_t is, sum;
    uint32_t version = 0;

    *c = (struct coder){.from = block, .tenant = tenant};
    code64(c, &is);
    code32(c, &version);
    code64(&end, &sum);
    if (is != magic)
        return DISK_FAULT_MAGIC;
    if (sum != checksum_unit(block, SUM_AT))
        return DISK_FAULT_CHECKSUM;
    if (version > DISK_FORMAT_VERSION)
        return DISK_FAULT_VERSION;
    return version == DISK_FORMAT_VERSION ? DISK_FAULT_NONE : DISK_FAULT_SHAPE;
}

static bool zeros(const uint8_t *bytes, size_t n)
{
    return n == 0 || (bytes[0] == 0 && memcmp(bytes, bytes + 1, n - 1) == 0);
}

/* `there`: the block names the place where it was read. Only zeros may stand between the last field
 * and `end`. */
static enum disk_fault got(const struct coder *c, bool there, size_t end)
{
    if (!there)
        return DISK_FAULT_ADDRESS;
    if (c->other)
        return DISK_FAULT_TENANT;
    return c->odd || !zeros(c->from + c->at, end - c->at) ? DISK_FAULT_SHAPE : DISK_FAULT_NONE;
}

bool disk_is_hole(const uint8_t *block)
{
    return zeros(block, DISK_BLOCK);
}

/* ---- the file's header, and its trailer ---- */

static void code_file(struct coder *c, struct disk_file_header *h)
{
    code_zero32(c);
    code64(c, &h->file);
    code64(c, &h->incarnation);
    code64(c, &h->served_ns);
    code64(c, &h->key_id);
    code_tenant(c);
}

void disk_put_file_header(uint8_t *block, const struct disk_file_header *h)
{
    struct disk_file_header copy = *h;
    struct coder c;

    put_begin(&c, block, MAGIC_FILE, h->tenant);
    code_file(&c, &copy);
    put_sum(block);
}

enum disk_fault disk_get_file_header(const uint8_t *block, uint64_t file, const char *tenant,
                                     struct disk_file_header *ret)
{
    struct coder c;

    TRY(get_begin(&c, block, MAGIC_FILE, tenant));
    *ret = (struct disk_file_header){.file = 0};
    code_file(&c, ret);
    snprintf(ret->tenant, sizeof ret->tenant, "%s", tenant);
    return got(&c, ret->file == file, SUM_AT);
}

static void code_trailer(struct coder *c, struct disk_trailer *t)
{
    code_zero32(c);
    code64(c, &t->file);
    code64(c, &t->incarnation);
    code64(c, &t->footer_at);
    code64(c, &t->file_bytes);
}

void disk_put_trailer(uint8_t *block, const struct disk_trailer *t)
{
    struct disk_trailer copy = *t;
    struct coder c;

    put_begin(&c, block, MAGIC_TRAILER, NULL);
    code_trailer(&c, &copy);
    put_sum(block);
}

enum disk_fault disk_get_trailer(const uint8_t *block, uint64_t file, uint64_t file_bytes,
                                 struct disk_trailer *ret)
{
    struct coder c;

    TRY(get_begin(&c, block, MAGIC_TRAILER, NULL));
    code_trailer(&c, ret);
    TRY(got(&c, ret->file == file, SUM_AT));
    if (ret->file_bytes != file_bytes || ret->footer_at % DISK_BLOCK ||
        ret->footer_at < DISK_BLOCK || file_bytes < 2 * DISK_BLOCK ||
        ret->footer_at > file_bytes - 2 * DISK_BLOCK)
        return DISK_FAULT_SHAPE;
    return DISK_FAULT_NONE;
}

/* ---- an extent ---- */

static void code_runs(struct coder *c, struct disk_head *h)
{
    for (uint32_t i = 0; i < GROUPS_MAX; i++) {
        struct disk_run none = {0}, *r = i < h->nruns ? &h->run[i] : &none;

        code32(c, &r->pages);
        code32(c, &r->units);
        code32(c, &r->regions);
        code_zero32(c);
        code64(c, &r->page_bytes);
        c->odd |= none.pages || none.units || none.regions || none.page_bytes;
    }
}

static void code_head(struct coder *c, struct disk_head *h)
{
    struct disk_extent *e = &h->extent;

    code_zero32(c);
    code64(c, &e->place.file);
    code64(c, &e->place.offset);
    code64(c, &h->incarnation);
    code_tenant(c);
    check(c->at == KEY_ID_AT);
    code64(c, &h->seal.key_id);
    check(c->at == NONCE_AT);
    code_bytes(c, h->seal.nonce, DISK_NONCE_BYTES);
    code_zero32(c);
    check(c->at == DISK_ASSOCIATED);
    while (c->at < PRIVATE_AT) /* place of the head's tag, when the head is sealed */
        code_zero32(c);
    code32(c, &e->part);
    code32(c, &h->nruns);
    code64(c, &e->ns.hi);
    code64(c, &e->ns.lo);
    code64(c, &e->layout_hash);
    code64(c, &e->chain);
    code64(c, &e->parent_chain);
    code32(c, &e->depth);
    code32(c, &e->align);
    code32(c, &e->tokens);
    code32(c, &e->nkeys);
    code32(c, &e->npages);
    code32(c, &e->nsums);
    code64(c, &e->page_bytes);
    code32(c, &e->reason);
    code32(c, &e->hits);
    code64(c, &e->served_ns);
    code32(c, &e->groups);
    code32(c, &e->reach);
    code64(c, &e->above.file);
    code64(c, &e->above.offset);
    code_runs(c, h);
    code64(c, &h->seal.meta_sum);
    code64(c, &h->seal.list_sum);
    code_bytes(c, h->seal.tag, DISK_TAG_BYTES);
    check(c->at == DISK_HEAD_BYTES);
}

bool disk_seal_extent(struct disk_crypt *crypt, uint8_t *block)
{
    disk_crypt_begin(crypt, DISK_KEY_HEADS, DISK_SEAL, block + NONCE_AT, block, DISK_ASSOCIATED);
    disk_crypt_update(crypt, block + PRIVATE_AT, DISK_HEAD_BYTES - PRIVATE_AT);
    if (!disk_seal_end(crypt, block + HEAD_TAG_AT))
        return false;
    put_sum(block);
    return true;
}

enum disk_fault disk_open_extent(struct disk_crypt *crypt, uint8_t *block)
{
    struct coder c;
    uint64_t key_id = 0;

    TRY(get_begin(&c, block, MAGIC_EXTENT, NULL));
    c.at = KEY_ID_AT;
    code64(&c, &key_id);
    if (key_id != disk_crypt_key_id(crypt))
        return DISK_FAULT_KEY;
    if (!crypt)
        return DISK_FAULT_NONE;
    disk_crypt_begin(crypt, DISK_KEY_HEADS, DISK_OPEN, block + NONCE_AT, block, DISK_ASSOCIATED);
    disk_crypt_update(crypt, block + PRIVATE_AT, DISK_HEAD_BYTES - PRIVATE_AT);
    if (!disk_open_end(crypt, block + HEAD_TAG_AT))
        return DISK_FAULT_CHECKSUM;
    memset(block + HEAD_TAG_AT, 0, DISK_TAG_BYTES);
    put_sum(block);
    return DISK_FAULT_NONE;
}

/* No sum can overflow 64 bits: each factor was checked against its limit before. */
static bool runs_fit(const struct disk_head *h)
{
    uint64_t pages = 0, sums = 0, bytes = 0;

    static_assert(SEAL_PAGES_MAX <= 1u << 14 && RANKS_MAX <= 1u << 6, "bytes fits 64 bits");
    if (h->nruns > GROUPS_MAX || h->extent.npages > SEAL_PAGES_MAX)
        return false;
    for (uint32_t i = 0; i < h->nruns; i++) {
        const struct disk_run *r = &h->run[i];

        if (!r->pages || r->pages > SEAL_PAGES_MAX || !r->units || r->units > DISK_SUMS_MAX)
            return false;
        if (!r->regions || r->regions > RANKS_MAX || r->zero || r->units > r->page_bytes ||
            r->page_bytes > DISK_EXTENT_BYTES_MAX)
            return false;
        pages += r->pages;
        sums += (uint64_t)r->pages * r->units * r->regions;
        bytes += (uint64_t)r->pages * r->regions * r->page_bytes;
        if (bytes > DISK_EXTENT_BYTES_MAX || sums > DISK_SUMS_MAX)
            return false;
    }
    return pages == h->extent.npages && sums == h->extent.nsums && bytes == h->extent.page_bytes &&
           (uint32_t)__builtin_popcount(h->extent.groups) == h->nruns;
}

static bool part_fits(const struct disk_extent *e)
{
    bool history = e->part == DISK_HISTORY, entry = e->part == DISK_ENTRY;

    if (e->part >= DISK_PARTS || e->tokens != (history ? e->align : 0))
        return false;
    if (e->nkeys > (history ? EXTRA_KEYS_MAX : 0) || (entry && e->npages))
        return false;
    if (e->groups >= 1u << GROUPS_MAX || e->reach > (entry ? SESSION_TOKENS_MAX : 0))
        return false;
    if ((e->above.file == 0) != (e->above.offset == 0) || (!history && !e->above.file) ||
        (history && (e->depth == e->align) != (e->above.file == 0)))
        return false;
    return entry ? e->reason < DISK_REASONS : !e->reason && !e->hits && !e->served_ns;
}

static bool seal_fits(const struct disk_seal *s)
{
    return s->key_id || (zeros(s->nonce, sizeof s->nonce) && zeros(s->tag, sizeof s->tag));
}

enum disk_fault disk_check_head(const struct disk_head *h, uint64_t file_bytes)
{
    const struct disk_extent *e = &h->extent;
    const struct disk_place *p = &e->place;

    if (!e->align || e->align > ALIGN_TOKENS_MAX || !e->depth || e->depth % e->align ||
        e->depth > SESSION_TOKENS_MAX)
        return DISK_FAULT_SHAPE;
    if (!part_fits(e) || !runs_fit(h) || !seal_fits(&h->seal) || h->zero)
        return DISK_FAULT_SHAPE;
    if (!p->file || p->file > DISK_FILE_MAX || p->offset < DISK_BLOCK || p->offset % DISK_BLOCK)
        return DISK_FAULT_SHAPE;
    if (p->offset > file_bytes || disk_extent_bytes(e) > file_bytes - p->offset)
        return DISK_FAULT_SHAPE;
    return DISK_FAULT_NONE;
}

void disk_put_extent(uint8_t *block, const struct disk_head *h, const char *tenant)
{
    struct disk_head copy = *h;
    struct coder c;

    check(disk_check_head(h, UINT64_MAX) == DISK_FAULT_NONE);
    put_begin(&c, block, MAGIC_EXTENT, tenant);
    code_head(&c, &copy);
    put_sum(block);
}

enum disk_fault disk_get_head(const uint8_t *bytes, struct disk_place at, uint64_t file_bytes,
                              const char *tenant, struct disk_head *ret)
{
    struct coder c = {.from = bytes, .tenant = tenant};
    uint64_t magic;
    uint32_t version = 0;

    code64(&c, &magic);
    code32(&c, &version);
    if (magic != MAGIC_EXTENT)
        return DISK_FAULT_MAGIC;
    *ret = (struct disk_head){.nruns = 0};
    code_head(&c, ret);
    c.odd |= version != DISK_FORMAT_VERSION;
    TRY(got(&c, disk_place_equal(ret->extent.place, at), DISK_HEAD_BYTES));
    return disk_check_head(ret, file_bytes);
}

enum disk_fault disk_get_extent(const uint8_t *block, struct disk_place at, uint64_t file_bytes,
                                const char *tenant, struct disk_head *ret)
{
    struct coder c;

    TRY(get_begin(&c, block, MAGIC_EXTENT, tenant));
    TRY(disk_get_head(block, at, file_bytes, tenant, ret));
    return zeros(block + DISK_HEAD_BYTES, SUM_AT - DISK_HEAD_BYTES) ? DISK_FAULT_NONE
                                                                    : DISK_FAULT_SHAPE;
}

bool disk_extent_agrees(const struct disk_extent *a, const struct disk_extent *b)
{
    return a->part == b->part && a->ns.hi == b->ns.hi && a->ns.lo == b->ns.lo &&
           a->layout_hash == b->layout_hash && a->chain == b->chain &&
           a->parent_chain == b->parent_chain && a->depth == b->depth && a->align == b->align &&
           a->tokens == b->tokens && a->nkeys == b->nkeys && a->npages == b->npages &&
           a->nsums == b->nsums && a->page_bytes == b->page_bytes && a->groups == b->groups &&
           a->reach == b->reach && a->reason == b->reason && disk_place_equal(a->place, b->place);
}

bool disk_keys_fit(const struct disk_extent *e, const struct extra_key *keys)
{
    for (uint32_t i = 0; i < e->nkeys; i++) {
        const struct extra_key *k = &keys[i];

        if (k->position < e->depth - e->align || k->position >= e->depth || k->zero ||
            (i > 0 && k->position < k[-1].position))
            return false;
    }
    return true;
}

/* ---- the header of the footer ---- */

static void code_footer(struct coder *c, struct disk_footer_header *h)
{
    code32(c, &h->nextents);
    code64(c, &h->place.file);
    code64(c, &h->place.offset);
    code64(c, &h->incarnation);
    code_tenant(c);
    code64(c, &h->body_bytes);
    code64(c, &h->key_id);
    check(c->at == DISK_FOOTER_ASSOCIATED);
    code_bytes(c, h->nonce, DISK_NONCE_BYTES);
    code_zero32(c);
    code64(c, &h->body_sum);
    code_bytes(c, h->tag, DISK_TAG_BYTES);
}

void disk_put_footer_header(uint8_t *block, const struct disk_footer_header *h, const char *tenant)
{
    struct disk_footer_header copy = *h;
    struct coder c;

    put_begin(&c, block, MAGIC_FOOTER, tenant);
    code_footer(&c, &copy);
    put_sum(block);
}

enum disk_fault disk_get_footer_header(const uint8_t *block, struct disk_place at,
                                       const char *tenant, struct disk_footer_header *ret)
{
    struct coder c;

    TRY(get_begin(&c, block, MAGIC_FOOTER, tenant));
    *ret = (struct disk_footer_header){.zero = 0};
    code_footer(&c, ret);
    TRY(got(&c, disk_place_equal(ret->place, at), SUM_AT));
    if (ret->nextents > DISK_WRITE_EXTENTS ||
        (!ret->key_id &&
         !(zeros(ret->nonce, sizeof ret->nonce) && zeros(ret->tag, sizeof ret->tag))))
        return DISK_FAULT_SHAPE;
    return DISK_FAULT_NONE;
}

bool disk_is_footer(const uint8_t *block)
{
    struct coder c = {.from = block};
    uint64_t magic;

    code64(&c, &magic);
    return magic == MAGIC_FOOTER;
}
