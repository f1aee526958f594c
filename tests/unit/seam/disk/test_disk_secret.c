/* Encrypted data can be read with its key, and reveals nothing without it. */
#include "testing/test.h"
#include "unit/rig/rig_spill_dir.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/prng.h"
#include "seam/disk/disk_footer.h"
#include "seam/disk/disk_state.h"
#include "seam/mem/checksum.h"

static struct rig_spill rig;
static struct rig_file file, other;

FIXTURE(drop_rig)
{
    rig_spill_finish(&rig);
    return 0;
}

TEST_EACH(NULL, drop_rig);

/* A file like the usual one whose numbers occur nowhere else in its bytes by chance. */
static void make_file(uint64_t number, uint64_t seed)
{
    struct prng p;

    prng_init(&p, seed);
    rig_file_usual(&rig, &file, 0, 0, number);
    for (uint32_t i = 0; i < file.write.nextents; i++) {
        struct disk_extent *e = &file.extent[i];

        e->ns = (struct namespace_id){prng_u64(&p), prng_u64(&p)};
        e->layout_hash = prng_u64(&p);
        e->chain = prng_u64(&p);
        e->parent_chain = prng_u64(&p);
        for (uint32_t k = 0; k < file.write.npages; k++)
            if (file.place[k].extent.place.offset == e->place.offset)
                file.place[k].extent = *e;
    }
    for (uint32_t i = 0; i < file.write.ntokens; i++)
        file.token[i] = (uint32_t)prng_u64(&p);
    for (uint32_t i = 0; i < file.write.nkeys; i++) {
        file.key[i].hi = prng_u64(&p);
        file.key[i].lo = prng_u64(&p);
    }
}

static struct disk_crypt *crypt_of(void)
{
    struct disk_crypt *crypt = NULL;
    const char *why;

    if (rig.config.encrypt)
        assert_int_equal(disk_crypt_create(rig.config.key, &crypt, &why), TERN_OK);
    return crypt;
}

/* Opens the head of each extent, in a copy of its block. */
static void open_heads(const uint8_t *bytes, uint64_t n, struct disk_head *ret)
{
    struct disk_crypt *crypt = crypt_of();
    uint8_t block[DISK_BLOCK];

    for (uint32_t i = 0; i < file.write.nextents; i++) {
        struct disk_place at = file.extent[i].place;

        memcpy(block, bytes + at.offset, DISK_BLOCK);
        assert_int_equal(disk_open_extent(crypt, block), DISK_FAULT_NONE);
        assert_int_equal(disk_get_extent(block, at, n, "alpha", &ret[i]), DISK_FAULT_NONE);
    }
    disk_crypt_destroy(crypt);
}

/* Checksum of the footer's body in the clear. */
static uint64_t footer_sum(const uint8_t *bytes, uint64_t n)
{
    struct disk_crypt *crypt = crypt_of();
    struct disk_footer_reader r;
    struct disk_trailer t;
    uint8_t *copy;
    uint64_t sum;

    assert_int_equal(disk_get_trailer(bytes + n - DISK_BLOCK, file.write.file, n, &t),
                     DISK_FAULT_NONE);
    copy = malloc(n - t.footer_at);
    assert_non_null(copy);
    memcpy(copy, bytes + t.footer_at, n - t.footer_at);
    assert_int_equal(disk_footer_open(&r, copy, &t, "alpha", crypt), DISK_FAULT_NONE);
    sum = checksum_unit(r.at, (size_t)(r.end - r.at));
    free(copy);
    disk_crypt_destroy(crypt);
    return sum;
}

struct search {
    const uint8_t *bytes;
    uint64_t n;
    uint32_t tried, found;
};

static void look_for(struct search *s, const void *what, size_t length)
{
    s->tried++;
    s->found += memmem(s->bytes, s->n, what, length) != NULL ? 1 : 0;
}

/* Looks for all values made of tokens, keys, a namespace or pages, and for these themselves. */
static void look_for_all(struct search *s)
{
    struct disk_head head[RIG_SPILL_EXTENTS];
    uint64_t sum = footer_sum(s->bytes, s->n);

    open_heads(s->bytes, s->n, head);
    look_for(s, &sum, sizeof sum);
    for (uint32_t i = 0; i < file.write.nextents; i++) {
        const struct disk_extent *e = &head[i].extent;

        assert_true(disk_extent_agrees(e, &file.extent[i]));
        look_for(s, &e->ns.hi, 8);
        look_for(s, &e->ns.lo, 8);
        look_for(s, &e->layout_hash, 8);
        look_for(s, &e->chain, 8);
        look_for(s, &e->parent_chain, 8);
        look_for(s, &head[i].seal.meta_sum, 8);
        look_for(s, &head[i].seal.list_sum, 8);
    }
    for (uint32_t i = 0; i < file.write.ntokens; i += 2)
        look_for(s, &file.token[i], 8);
    for (uint32_t i = 0; i < file.write.nkeys; i++) {
        look_for(s, &file.key[i].hi, 8);
        look_for(s, &file.key[i].lo, 8);
    }
    for (uint32_t i = 0; i < file.write.npages; i++) {
        const struct page_at *p = &file.page[i];

        look_for(s, mem_page(rig.mem, 0, 0, p->group, p->index), 16);
        for (uint32_t k = 0; k < mem_transfer_sums(rig.mem, 0, p->group); k++)
            look_for(s, &mem_sums(rig.mem, p->record)[k], 8);
    }
}

/* Without encryption all of these can be found, with it none. */
TEST(nothing_is_told_without_the_key)
{
    for (uint32_t encrypt = 0; encrypt < 2; encrypt++) {
        struct search s = {.tried = 0};
        uint8_t *bytes;

        rig_spill_start(&rig, encrypt);
        make_file(4, 1);
        assert_int_equal(rig_spill_write(&rig, &file), TERN_OK);
        s.bytes = bytes = rig_spill_contents(&rig, &file, &s.n);
        look_for_all(&s);
        printf("encrypted=%u looked_for=%u found=%u\n", encrypt, s.tried, s.found);
        assert_true(s.tried > 150);
        assert_int_equal(s.found, encrypt ? 0 : s.tried);
        free(bytes);
        rig_spill_clear(&rig, 1);
        assert_int_equal(rig_spill_read(&rig, &file, 0, 16), RIG_SPILL_ALL(16));
        assert_int_equal(rig_spill_alike(&rig, &file), RIG_SPILL_ALL(16));
        rig_spill_finish(&rig);
    }
}

static uint8_t *written(uint64_t seed, uint64_t *ret_n)
{
    char path[RIG_SPILL_PATH];
    uint8_t *bytes;

    make_file(4, seed);
    assert_int_equal(rig_spill_write(&rig, &file), TERN_OK);
    bytes = rig_spill_contents(&rig, &file, ret_n);
    rig_spill_path(&rig, &file, false, path, sizeof path);
    assert_int_equal(unlink(path), 0);
    return bytes;
}

/* Counts equal bytes at equal places, in runs of at least 8. */
static uint64_t same_bytes(const uint8_t *a, const uint8_t *b, uint64_t n)
{
    uint64_t same = 0;

    for (uint64_t i = 0, run = 0; i < n; i++) {
        run = a[i] == b[i] ? run + 1 : 0;
        same += run == 8 ? 8 : run > 8 ? 1 : 0;
    }
    return same;
}

#define NONCE_AT                                                                                   \
    112 /* of an extent's header: the fields before it are the extent's place and owner */

/* A footer's header also has lengths before its nonce. */
static void footers_alike(const uint8_t *a, const uint8_t *b, const struct disk_trailer *t)
{
    const uint64_t at = t->footer_at, nonce = at + 120, sums = at + 136;
    uint64_t bytes;

    memcpy(&bytes, a + at + 104, sizeof bytes);
    assert_int_equal(same_bytes(a + at, b + at, 120), 120);
    assert_int_equal(same_bytes(a + nonce, b + nonce, DISK_NONCE_BYTES), 0);
    assert_int_equal(same_bytes(a + sums, b + sums, 8 + DISK_TAG_BYTES), 0);
    assert_int_equal(same_bytes(a + at + DISK_BLOCK, b + at + DISK_BLOCK, bytes), 0);
}

/* Two files of one number: the clear parts are equal whatever the files contain, and all else
 * differs even if the contents are equal. */
static void differ(const uint8_t *a, const uint8_t *b, uint64_t n)
{
    struct disk_trailer t;

    assert_memory_equal(a, b, DISK_BLOCK);
    assert_memory_equal(a + n - DISK_BLOCK, b + n - DISK_BLOCK, DISK_BLOCK);
    assert_int_equal(disk_get_trailer(a + n - DISK_BLOCK, 4, n, &t), DISK_FAULT_NONE);
    footers_alike(a, b, &t);
    for (uint32_t i = 0; i < file.write.nextents; i++) {
        const uint8_t *x = a + file.extent[i].place.offset, *y = b + file.extent[i].place.offset;
        const uint64_t tag = DISK_ASSOCIATED, sum = DISK_BLOCK - 8;

        assert_memory_equal(x, y, NONCE_AT);
        assert_int_equal(same_bytes(x + NONCE_AT, y + NONCE_AT, DISK_NONCE_BYTES), 0);
        assert_int_equal(same_bytes(x + tag, y + tag, DISK_HEAD_BYTES - tag), 0);
        assert_memory_equal(x + DISK_HEAD_BYTES, y + DISK_HEAD_BYTES, sum - DISK_HEAD_BYTES);
        assert_memory_not_equal(x + sum, y + sum, 8);
        assert_int_equal(
            same_bytes(x + DISK_BLOCK, y + DISK_BLOCK, disk_body_bytes(&file.extent[i])), 0);
    }
}

TEST(the_same_file_is_other_bytes_each_time)
{
    uint8_t *first, *again, *another;
    uint64_t n, is;

    rig_spill_start(&rig, true);
    first = written(1, &n);
    again = written(1, &is);
    assert_int_equal(is, n);
    differ(first, again, n);
    another = written(2, &is);
    assert_int_equal(is, n);
    differ(first, another, n);
    free(first);
    free(again);
    free(another);
}

TEST(what_is_encrypted_comes_back)
{
    rig_spill_start(&rig, true);
    for (uint32_t tenant = 0; tenant < 2; tenant++) {
        const uint32_t pool = 2 * tenant; /* of tenant 1 one region moves */

        rig_file_usual(&rig, &file, tenant, pool, 4);
        assert_int_equal(rig_spill_write(&rig, &file), TERN_OK);
        rig_spill_clear(&rig, pool + 1);
        assert_int_equal(rig_spill_alike(&rig, &file), 0);
        assert_int_equal(rig_spill_read(&rig, &file, 0, 16), RIG_SPILL_ALL(16));
        assert_int_equal(rig_spill_alike(&rig, &file), RIG_SPILL_ALL(16));
    }
}

TEST(no_two_extents_have_the_same_nonce)
{
    uint8_t nonce[RIG_SPILL_EXTENTS][DISK_NONCE_BYTES], *bytes;
    uint64_t n;

    rig_spill_start(&rig, true);
    make_file(4, 1);
    assert_int_equal(rig_spill_write(&rig, &file), TERN_OK);
    bytes = rig_spill_contents(&rig, &file, &n);
    for (uint32_t i = 0; i < file.write.nextents; i++) {
        memcpy(nonce[i], bytes + file.extent[i].place.offset + NONCE_AT, DISK_NONCE_BYTES);
        for (uint32_t k = 0; k < i; k++)
            assert_memory_not_equal(nonce[k], nonce[i], DISK_NONCE_BYTES);
    }
    free(bytes);
}

/* A head and its body share one nonce: known text of the one must not open the other. */
TEST(a_head_and_its_body_have_key_streams_of_their_own)
{
    const size_t from = DISK_ASSOCIATED + DISK_TAG_BYTES, length = 256; /* of tokens, too */
    struct disk_head head[RIG_SPILL_EXTENTS];
    uint8_t plain[DISK_BLOCK], *bytes;
    const uint8_t *block;
    uint32_t same = 0;
    uint64_t n;

    rig_spill_start(&rig, true);
    make_file(4, 1);
    assert_int_equal(rig_spill_write(&rig, &file), TERN_OK);
    bytes = rig_spill_contents(&rig, &file, &n);
    open_heads(bytes, n, head);
    disk_put_extent(plain, &head[0], "alpha");
    block = bytes + file.extent[0].place.offset;
    assert_int_equal(file.extent[0].tokens * sizeof *file.token, length);
    for (size_t i = 0; i < length; i++) {
        uint8_t of_head = block[from + i] ^ plain[from + i];
        uint8_t of_body = block[DISK_BLOCK + i] ^ ((const uint8_t *)file.token)[i];

        same += of_head == of_body;
    }
    printf("same=%u of %zu\n", same, length);
    assert_true(same < 16);
    free(bytes);
}

static void on_event(void *ctx, struct event *event)
{
    (void)ctx, (void)event;
}

/* After a start, the threads read and write with their own contexts. */
TEST(the_keys_bytes_are_forgotten_when_the_start_is_over)
{
    static const uint8_t none[DISK_KEY_BYTES];
    struct disk_recovery r;
    const char *why;

    rig_spill_start(&rig, true);
    assert_memory_equal(rig.disk->config.key, rig.config.key, DISK_KEY_BYTES);
    assert_int_equal(disk_recover(rig.disk, on_event, NULL, NULL, &r, &why), TERN_OK);
    assert_memory_equal(rig.disk->config.key, none, DISK_KEY_BYTES);
    rig_file_usual(&rig, &file, 0, 0, 4);
    assert_int_equal(rig_spill_write(&rig, &file), TERN_OK);
    assert_int_equal(rig_spill_read(&rig, &file, 0, 16), RIG_SPILL_ALL(16));
}

TEST(another_key_reads_nothing)
{
    rig_spill_start(&rig, true);
    rig_file_usual(&rig, &file, 0, 0, 4);
    assert_int_equal(rig_spill_write(&rig, &file), TERN_OK);
    rig.config.key[31] ^= 1;
    rig_spill_reopen(&rig);
    assert_int_equal(rig_spill_read(&rig, &file, 0, 16), 0);
    rig.config.encrypt = false;
    rig_spill_reopen(&rig);
    assert_int_equal(rig_spill_read(&rig, &file, 0, 16), 0);
    rig_file_usual(&rig, &other, 0, 0, 5);
    assert_int_equal(rig_spill_write(&rig, &other), TERN_OK);
    assert_int_equal(rig_spill_read(&rig, &other, 0, 16), RIG_SPILL_ALL(16));
    rig.config.key[31] ^= 1;
    rig.config.encrypt = true;
    rig_spill_reopen(&rig);
    assert_int_equal(rig_spill_read(&rig, &other, 0, 16), 0);
    assert_int_equal(rig_spill_read(&rig, &file, 0, 16), RIG_SPILL_ALL(16));
}
