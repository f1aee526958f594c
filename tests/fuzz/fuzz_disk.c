/* Fuzz target: recovery and verification over a spill directory whose files the bytes make
 * (daemon/seam/disk). A file is either the bytes themselves, or a good one that the bytes change:
 * the checksums over a change can be corrected, so that the checks of fields are reached. Neither
 * may fail. Emitted extents are in order, in bounds and apart; a verification of the same extent
 * finds it good, and then its list is the one on the disk, or finds its body bad. Extents that were
 * recovered once are recovered again. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "fuzz/passed.h"
#include "seam/disk/disk.h"
#include "seam/mem/checksum.h"
#include "unit/rig/rig_disk.h"
#include "unit/rig/sim_disk.h"

#define FILES_MAX   4
#define CHANGES_MAX 24
#define FOUND_MAX   (FILES_MAX * DISK_WRITE_EXTENTS)
#define RAW_MAX     (8 * DISK_BLOCK)
#define SHAPES      4 /* good files of each kind, made once */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct input {
    const uint8_t *v;
    size_t n;
};

struct good { /* a whole file */
    uint8_t *bytes;
    size_t n;
};

struct found {
    struct disk_extent e;
    uint64_t list; /* a hash of its tokens and keys */
    bool verified;
};

static struct good goods[2][SHAPES];
static struct disk_config config;
static struct disk_crypt *crypt; /* of config.key, to check the results */
static struct found found[FOUND_MAX], first[FOUND_MAX];
static uint32_t nfound, nverified;
static uint64_t next_file;
static struct sim_disk *disk;

static uint32_t take(struct input *in, uint32_t bytes)
{
    uint32_t v = 0;

    for (; bytes > 0; bytes--) {
        v = v << 8 | (in->n ? *in->v : 0);
        in->v += in->n > 0;
        in->n -= in->n > 0;
    }
    return v;
}

/* ---- the files ---- */

static void make_good(uint32_t encrypt, uint32_t shape)
{
    struct rig_disk_file f = {.file = shape + 1,
                              .incarnation = 7,
                              .seed = shape * 10,
                              .tenant = shape % 2 ? "batch" : "chat",
                              .nextents = 1 + shape};
    struct sim_disk *d = sim_disk_make(NULL);
    struct good *g = &goods[encrypt][shape];
    char name[DISK_NAME_MAX];
    const uint8_t *bytes;
    const char *why;

    if (encrypt)
        check(crypt || disk_crypt_create(config.key, &crypt, &why) == TERN_OK);
    f.crypt = encrypt ? crypt : NULL;
    check(rig_disk_write(sim_disk_files(d), &f, RIG_DISK_RIGHT) == 0);
    disk_file_name(name, f.tenant, f.file, false);
    bytes = sim_disk_bytes(d, name, &g->n);
    g->bytes = malloc(g->n);
    check(g->bytes);
    memcpy(g->bytes, bytes, g->n);
    rig_disk_file_free(&f);
    sim_disk_free(d);
}

static void make_goods(void)
{
    config.tenants = 2;
    config.tenant[0] = "chat";
    config.tenant[1] = "batch";
    for (uint32_t encrypt = 0; encrypt < 2; encrypt++)
        for (uint32_t shape = 0; shape < SHAPES; shape++)
            make_good(encrypt, shape);
}

static void put_sum(uint8_t *block)
{
    uint64_t sum = checksum_unit(block, DISK_BLOCK - 8);

    memcpy(block + DISK_BLOCK - 8, &sum, sizeof sum);
}

/* Corrects the sum of the footer's body: its header has the length at 104, and the sum at 136. */
static void put_footer_sum(uint8_t *file, size_t n)
{
    uint64_t at, bytes, sum;
    uint8_t *block;

    memcpy(&at, file + n - DISK_BLOCK + 32, sizeof at);
    if (n < 3 * DISK_BLOCK || at % DISK_BLOCK || at > n - 2 * DISK_BLOCK)
        return;
    block = file + at;
    memcpy(&bytes, block + 104, sizeof bytes);
    if (bytes > n - at - 2 * DISK_BLOCK)
        return;
    sum = checksum_unit(block + DISK_BLOCK, bytes);
    memcpy(block + 136, &sum, sizeof sum);
    put_sum(block);
}

/* Corrects the sums of a body's list and of its meta in the header in front of it. */
static void put_body_sums(uint8_t *file, size_t n, size_t block)
{
    uint8_t *header = file + (block - 1) * DISK_BLOCK, *body = header + DISK_BLOCK;
    struct disk_head h;
    uint64_t sum;

    memcpy(&h.extent.place.file, header + 16, 8);
    if (disk_get_extent(header, (struct disk_place){h.extent.place.file, (block - 1) * DISK_BLOCK},
                        n, "chat", &h) != DISK_FAULT_NONE)
        return;
    sum = checksum_unit(body, disk_meta_bytes(&h.extent));
    memcpy(header + 648, &sum, sizeof sum);
    sum = checksum_unit(body, disk_list_bytes(&h.extent));
    memcpy(header + 656, &sum, sizeof sum);
    put_sum(header);
}

/* An input's change: the place (a block, an offset in it), the bytes, and the sums to correct. */
static void change(struct input *in, uint8_t *file, size_t n)
{
    uint32_t how = take(in, 1), at = take(in, 2), bytes = 1 + (how & 7);
    size_t blocks = n / DISK_BLOCK, block = take(in, 1) % blocks, from;

    if (how & 0x40) /* one block over another */
        memcpy(file + block * DISK_BLOCK, file + at % blocks * DISK_BLOCK, DISK_BLOCK);
    at %= how & 0x80 ? DISK_HEAD_BYTES : DISK_BLOCK;
    from = block * DISK_BLOCK + at;
    for (; bytes > 0 && from < n && !(how & 0x40); bytes--, from++)
        file[from] = (uint8_t)take(in, 1);
    if (how & 0x10)
        put_footer_sum(file, n);
    if (how & 0x20 && block > 1)
        put_body_sums(file, n, block);
    if (how & 0x08)
        put_sum(file + block * DISK_BLOCK);
}

static void put_file(struct input *in, uint32_t i, bool encrypt)
{
    uint32_t kind = take(in, 1), changes, n;
    static uint8_t file[1u << 20];
    char name[DISK_NAME_MAX];
    const struct good *g = &goods[encrypt][i % SHAPES];

    if (kind & 0x20)
        g = &goods[encrypt][kind % SHAPES];
    n = (uint32_t)g->n;
    check(n <= sizeof file);
    memcpy(file, g->bytes, n);
    if (kind & 0x80) { /* the bytes themselves */
        n = take(in, 2) % (RAW_MAX + 1);
        for (uint32_t k = 0; k < n; k++)
            file[k] = (uint8_t)take(in, 1);
    } else {
        for (changes = take(in, 1) % CHANGES_MAX; changes > 0; changes--)
            change(in, file, n);
        if (kind & 0x40)
            n = take(in, 2) * 16 % (n + 1);
    }
    disk_file_name(name, config.tenant[i % 2], i % SHAPES + 1, kind & 0x10);
    sim_disk_put(disk, name, file, n);
}

/* ---- results ---- */

static uint64_t list_hash(const struct disk_extent *e, const uint32_t *tokens,
                          const struct extra_key *keys)
{
    uint64_t h = e->tokens ? checksum_unit(tokens, (size_t)e->tokens * 4) : 1;

    return e->nkeys ? h ^ checksum_unit(keys, e->nkeys * sizeof *keys) * 3 : h;
}

static void in_bounds(const struct disk_extent *e)
{
    check(e->part < DISK_PARTS && e->align > 0 && e->align <= ALIGN_TOKENS_MAX);
    check(e->depth >= e->align && e->depth % e->align == 0 && e->depth <= SESSION_TOKENS_MAX);
    check(e->tokens == (e->part == DISK_HISTORY ? e->align : 0) && e->nkeys <= EXTRA_KEYS_MAX);
    check(e->npages <= SEAL_PAGES_MAX && e->nsums <= DISK_SUMS_MAX && e->nsums >= e->npages);
    check(e->tenant < 2 && e->place.offset % DISK_BLOCK == 0 && e->reason < DISK_REASONS);
}

static void on_event(void *ctx, struct event *ev)
{
    const struct disk_extent *e = &ev->found.extent, *before;

    (void)ctx;
    if (ev->kind == EV_DISK_READY) {
        next_file = ev->ready.next_file;
        return;
    }
    check(ev->kind == EV_DISK_FOUND && nfound < FOUND_MAX);
    in_bounds(e);
    for (uint32_t i = 0; i < e->nkeys; i++)
        check(ev->found.keys[i].position < e->depth && !ev->found.keys[i].zero);
    before = nfound ? &found[nfound - 1].e : NULL;
    if (before && before->place.file == e->place.file)
        check(before->place.offset + disk_extent_bytes(before) <= e->place.offset ||
              before->tenant != e->tenant);
    else if (before)
        check(before->place.file < e->place.file);
    found[nfound++] =
        (struct found){.e = *e, .list = list_hash(e, ev->found.tokens, ev->found.keys)};
}

static void on_note(void *ctx, const char *file, uint64_t offset, enum disk_fault fault)
{
    (void)ctx;
    check(strchr(file, '/') && offset % DISK_BLOCK == 0);
    check(fault > DISK_FAULT_NONE && fault < DISK_FAULTS);
}

static void on_verified(void *ctx, const struct disk_verified *v)
{
    (void)ctx;
    for (uint32_t i = 0; i < nfound; i++) {
        const struct disk_place *p = &found[i].e.place;

        if (p->file != v->extent.place.file || p->offset != v->extent.place.offset ||
            strcmp(config.tenant[found[i].e.tenant], v->tenant) != 0)
            continue;
        if (v->fault == DISK_FAULT_NONE)
            check(disk_extent_agrees(&found[i].e, &v->extent));
        else if (v->fault != DISK_FAULT_CHECKSUM)
            continue; /* about the file, or its footer */
        found[i].verified = true;
    }
    nverified += v->fault == DISK_FAULT_NONE;
}

static enum tern_err recover(void)
{
    struct disk_recovery recovery;
    const char *why = NULL;
    enum tern_err err;

    nfound = 0;
    next_file = 0;
    config.files = sim_disk_files(disk);
    err = disk_recover_files(&config, on_event, on_note, NULL, &recovery, &why);
    check(err == TERN_OK ? next_file > 0 : why && nfound == 0);
    check(err != TERN_OK || recovery.extents == nfound);
    return err;
}

/* Checks an emitted extent without the code that found it: its header is good, and its list is that
 * of its body, if the body is in the clear and good. */
static void stands_there(const struct found *f, const uint8_t *bytes, size_t n)
{
    const struct disk_extent *e = &f->e;
    const uint8_t *block = bytes + e->place.offset, *list = block + DISK_BLOCK;
    static uint64_t copy[(ALIGN_TOKENS_MAX * 4 + EXTRA_KEYS_MAX * sizeof(struct extra_key)) / 8];
    static uint8_t opened[DISK_BLOCK];
    struct disk_head h;

    check(e->place.offset + disk_extent_bytes(e) <= n);
    memcpy(opened, block, DISK_BLOCK);
    check(disk_open_extent(config.encrypt ? crypt : NULL, opened) == DISK_FAULT_NONE);
    check(disk_get_extent(opened, e->place, n, config.tenant[e->tenant], &h) == DISK_FAULT_NONE);
    check(disk_extent_agrees(e, &h.extent));
    if (config.encrypt || checksum_unit(list, disk_list_bytes(e)) != h.seal.list_sum)
        return;
    memcpy(copy, list, disk_list_bytes(e));
    check(f->list == list_hash(e, (const uint32_t *)(const void *)copy,
                               (const void *)((const uint8_t *)copy + disk_list_bytes(e) -
                                              e->nkeys * sizeof(struct extra_key))));
}

static void recover_twice(void)
{
    size_t bytes;
    const uint8_t *v;
    const char *why;
    uint32_t n;

    if (recover() != TERN_OK)
        return;
    if (nfound > 0)
        fuzz_passed();
    n = nfound;
    memcpy(first, found, n * sizeof *first);
    check(recover() == TERN_OK && nfound == n);
    for (uint32_t i = 0; i < n; i++)
        check(memcmp(&first[i].e, &found[i].e, sizeof found[i].e) == 0 &&
              first[i].list == found[i].list);
    nverified = 0;
    check(disk_verify(&config, on_verified, NULL, &why) == TERN_OK);
    check(nverified <= nfound);
    for (uint32_t i = 0; i < n; i++) {
        char name[DISK_NAME_MAX];

        check(found[i].verified);
        disk_file_name(name, config.tenant[found[i].e.tenant], found[i].e.place.file, false);
        v = sim_disk_bytes(disk, name, &bytes);
        check(v);
        stands_there(&found[i], v, bytes);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct input in = {data, size};
    uint32_t flags = take(&in, 1), files = 1 + flags % FILES_MAX;
    bool encrypted = flags & 0x80;

    fuzz_begin();
    if (!goods[0][0].bytes)
        make_goods();
    disk = sim_disk_make(NULL);
    for (uint32_t i = 0; i < files; i++)
        put_file(&in, i, encrypted);
    config.encrypt = encrypted != ((flags & 0x40) != 0);
    recover_twice();
    sim_disk_free(disk);
    return 0;
}
