/* The footer of a file: its contents are read back, in the clear and encrypted; a footer with any
 * changed bit is refused, and so is one whose extents do not fill the file. */
#include "testing/test.h"
#include "unit/rig/rig_disk.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "seam/mem/checksum.h"

#define EXTENTS 5

static const struct disk_file_header file_header = {
    .file = 77, .incarnation = 7, .tenant = RIG_DISK_TENANT};
static const uint8_t key[DISK_KEY_BYTES] = {1, 2, 3};

struct made {
    struct disk_head head[EXTENTS];
    struct rig_disk_body body[EXTENTS];
    uint8_t block[EXTENTS][DISK_BLOCK];
    uint8_t *memory;
    size_t bytes;
    struct disk_trailer trailer;
};

static struct made m;

static struct disk_crypt *crypt_of(const uint8_t *k)
{
    struct disk_crypt *c;
    const char *why;

    assert_int_equal(disk_crypt_create(k, &c, &why), TERN_OK);
    return c;
}

/* gap: bytes between the first extent and the second that belong to no extent. */
static void make(struct disk_crypt *crypt, uint64_t gap)
{
    struct disk_place at = {file_header.file, DISK_BLOCK};
    struct disk_footer f;

    m.memory = aligned_alloc(DISK_BLOCK, disk_footer_bytes_max());
    assert_non_null(m.memory);
    memset(m.memory, 0xee, disk_footer_bytes_max());
    disk_footer_begin(&f, m.memory, disk_footer_bytes_max());
    for (uint32_t i = 0; i < EXTENTS; i++) {
        rig_disk_make(i, (enum disk_part)(i % DISK_PARTS), at, &m.head[i], &m.body[i]);
        m.head[i].seal.key_id = crypt ? disk_crypt_key_id(crypt) : 0;
        disk_put_extent(m.block[i], &m.head[i], RIG_DISK_TENANT);
        disk_footer_add(&f, m.block[i], &m.head[i].extent, m.body[i].tokens, m.body[i].keys);
        at.offset += disk_extent_bytes(&m.head[i].extent) + (i == 0 ? gap : 0);
    }
    m.bytes = disk_footer_end(&f, at, &file_header, crypt);
    assert_true(m.bytes > 0 && m.bytes % DISK_BLOCK == 0);
    assert_int_equal(
        disk_get_trailer(m.memory + m.bytes - DISK_BLOCK, 77, at.offset + m.bytes, &m.trailer),
        DISK_FAULT_NONE);
    assert_int_equal(m.trailer.footer_at, at.offset);
}

static void unmake(void)
{
    for (uint32_t i = 0; i < EXTENTS; i++)
        rig_disk_free(&m.body[i]);
    free(m.memory);
}

static enum disk_fault open_copy(struct disk_crypt *crypt, const char *tenant,
                                 struct disk_footer_reader *r)
{
    static uint8_t copy[1u << 16] __attribute__((aligned(DISK_BLOCK)));

    assert_true(m.bytes <= sizeof copy);
    memcpy(copy, m.memory, m.bytes - DISK_BLOCK);
    return disk_footer_open(r, copy, &m.trailer, tenant, crypt);
}

static void comes_back(struct disk_crypt *crypt)
{
    struct disk_footer_reader r;
    struct disk_footer_entry e;

    make(crypt, 0);
    assert_int_equal(open_copy(crypt, RIG_DISK_TENANT, &r), DISK_FAULT_NONE);
    for (uint32_t i = 0; i < EXTENTS; i++) {
        assert_true(disk_footer_next(&r, &e));
        assert_memory_equal(&e.head, &m.head[i], sizeof e.head);
        assert_memory_equal(e.head_bytes, m.block[i], DISK_HEAD_BYTES);
        assert_memory_equal(e.list, m.body[i].bytes, disk_list_bytes(&e.head.extent));
        assert_int_equal(checksum_unit(e.list, disk_list_bytes(&e.head.extent)),
                         e.head.seal.list_sum);
    }
    assert_false(disk_footer_next(&r, &e));
    assert_int_equal(open_copy(crypt, "chats", &r), DISK_FAULT_TENANT);
    m.trailer.incarnation++;
    assert_int_equal(open_copy(crypt, RIG_DISK_TENANT, &r), DISK_FAULT_ADDRESS);
    m.trailer.incarnation--;
    m.trailer.footer_at -= DISK_BLOCK;
    assert_int_equal(open_copy(crypt, RIG_DISK_TENANT, &r), DISK_FAULT_ADDRESS);
    m.trailer.footer_at += DISK_BLOCK;
    m.trailer.file_bytes += DISK_BLOCK;
    assert_int_equal(open_copy(crypt, RIG_DISK_TENANT, &r), DISK_FAULT_SHAPE);
    unmake();
}

TEST(a_footer_comes_back)
{
    comes_back(NULL);
}

/* Flips every bit of the header and of the body, except the body's unused padding. */
static uint32_t flip_all(struct disk_crypt *crypt)
{
    struct disk_footer_header h;
    struct disk_footer_reader r;
    struct disk_place at;
    uint32_t bits = 0;

    make(crypt, 0);
    at = (struct disk_place){77, m.trailer.footer_at};
    assert_int_equal(disk_get_footer_header(m.memory, at, RIG_DISK_TENANT, &h), DISK_FAULT_NONE);
    for (size_t i = 0; i < DISK_BLOCK + h.body_bytes; i++) {
        uint8_t bit = (uint8_t)(1u << i % 8);

        m.memory[i] ^= bit;
        assert_int_not_equal(open_copy(crypt, RIG_DISK_TENANT, &r), DISK_FAULT_NONE);
        m.memory[i] ^= bit;
        bits++;
    }
    assert_int_equal(open_copy(crypt, RIG_DISK_TENANT, &r), DISK_FAULT_NONE);
    unmake();
    return bits;
}

TEST(no_byte_of_a_footer_turns_unnoticed)
{
    printf("bits=%u unnoticed=0\n", flip_all(NULL));
}

TEST(a_footer_whose_extents_leave_a_gap_is_not_taken)
{
    struct disk_footer_reader r;

    make(NULL, DISK_BLOCK);
    assert_int_equal(open_copy(NULL, RIG_DISK_TENANT, &r), DISK_FAULT_ADDRESS);
    unmake();
}

/* Wrong fields under a valid checksum: in the header, and bytes of the first extent in the body. */
TEST(a_footer_that_lies_is_not_taken)
{
    struct disk_footer_header h, lie;
    struct disk_footer_reader r;
    uint32_t taken = 0;

    make(NULL, 0);
    assert_int_equal(disk_get_footer_header(m.memory, (struct disk_place){77, m.trailer.footer_at},
                                            RIG_DISK_TENANT, &h),
                     DISK_FAULT_NONE);
    for (uint32_t i = 0; i < 4; i++) {
        lie = h;
        lie.nextents += i == 0;
        lie.nextents -= i == 1;
        lie.body_bytes += i == 2 ? DISK_BLOCK : 0;
        lie.body_bytes -= i == 3 ? 8 : 0;
        disk_put_footer_header(m.memory, &lie, RIG_DISK_TENANT);
        if (i != 2) {
            lie.body_sum = checksum_unit(m.memory + DISK_BLOCK, lie.body_bytes);
            disk_put_footer_header(m.memory, &lie, RIG_DISK_TENANT);
        }
        taken += open_copy(NULL, RIG_DISK_TENANT, &r) == DISK_FAULT_NONE;
        assert_int_equal(open_copy(NULL, RIG_DISK_TENANT, &r), DISK_FAULT_SHAPE);
    }
    for (uint32_t at = 0; at < DISK_HEAD_BYTES; at++) { /* of the first extent */
        m.memory[DISK_BLOCK + at] ^= 0xff;
        lie = h;
        lie.body_sum = checksum_unit(m.memory + DISK_BLOCK, h.body_bytes);
        disk_put_footer_header(m.memory, &lie, RIG_DISK_TENANT);
        taken += open_copy(NULL, RIG_DISK_TENANT, &r) == DISK_FAULT_NONE;
        m.memory[DISK_BLOCK + at] ^= 0xff;
    }
    /* Fields that may have any value: namespace, layout, chains, list and meta sums. */
    assert_int_equal(taken, 16 + 8 + 8 + 8 + 8 + 8);
    unmake();
}

TEST(the_largest_footer_fits)
{
    struct disk_extent e = {
        .align = 479, .tokens = 479, .depth = 479, .nkeys = EXTRA_KEYS_MAX / DISK_WRITE_EXTENTS};
    uint8_t *memory = aligned_alloc(DISK_BLOCK, disk_footer_bytes_max());
    uint32_t *tokens = calloc(e.tokens, sizeof *tokens);
    struct extra_key *keys = calloc(e.nkeys, sizeof *keys);
    uint8_t block[DISK_BLOCK] = {0};
    struct disk_footer f;

    assert_true(memory && tokens && keys);
    assert_true(OPEN_TOKENS_MAX / e.tokens >= DISK_WRITE_EXTENTS);
    disk_footer_begin(&f, memory, disk_footer_bytes_max());
    for (uint32_t i = 0; i < DISK_WRITE_EXTENTS; i++)
        disk_footer_add(&f, block, &e, tokens, keys);
    assert_true(disk_footer_end(&f, (struct disk_place){77, 1u << 20}, &file_header, NULL) <=
                disk_footer_bytes_max());
    printf("footer_bytes_max=%zu\n", disk_footer_bytes_max());
    free(memory);
    free(tokens);
    free(keys);
}

/* ---- encrypted ---- */

TEST(an_encrypted_footer_comes_back)
{
    struct disk_crypt *crypt;

    crypt = crypt_of(key);
    comes_back(crypt);
    printf("bits=%u unnoticed=0\n", flip_all(crypt));
    disk_crypt_destroy(crypt);
}

TEST(a_footer_that_was_forged_is_told_by_the_tag)
{
    struct disk_footer_header h, lie;
    struct disk_footer_reader r;
    struct disk_crypt *crypt;
    struct disk_place at;

    crypt = crypt_of(key);
    make(crypt, 0);
    at = (struct disk_place){77, m.trailer.footer_at};
    assert_int_equal(disk_get_footer_header(m.memory, at, RIG_DISK_TENANT, &h), DISK_FAULT_NONE);
    lie = h;
    lie.tag[3] ^= 1;
    disk_put_footer_header(m.memory, &lie, RIG_DISK_TENANT);
    assert_int_equal(open_copy(crypt, RIG_DISK_TENANT, &r), DISK_FAULT_CHECKSUM);
    lie = h;
    m.memory[DISK_BLOCK + 99] ^= 1; /* under a valid sum */
    lie.body_sum = checksum_unit(m.memory + DISK_BLOCK, h.body_bytes);
    disk_put_footer_header(m.memory, &lie, RIG_DISK_TENANT);
    assert_int_equal(open_copy(crypt, RIG_DISK_TENANT, &r), DISK_FAULT_CHECKSUM);
    m.memory[DISK_BLOCK + 99] ^= 1;
    disk_put_footer_header(m.memory, &h, RIG_DISK_TENANT);
    assert_int_equal(open_copy(crypt, RIG_DISK_TENANT, &r), DISK_FAULT_NONE);
    lie = h;
    lie.incarnation++; /* the trailer agrees with it */
    m.trailer.incarnation++;
    disk_put_footer_header(m.memory, &lie, RIG_DISK_TENANT);
    assert_int_equal(open_copy(crypt, RIG_DISK_TENANT, &r), DISK_FAULT_CHECKSUM);
    unmake();
    disk_crypt_destroy(crypt);
}

TEST(another_key_opens_no_footer)
{
    static const uint8_t other_key[DISK_KEY_BYTES] = {1, 2, 4};
    struct disk_crypt *crypt, *other;
    struct disk_footer_reader r;
    uint32_t clear = 0;

    crypt = crypt_of(key);
    other = crypt_of(other_key);
    make(crypt, 0);
    assert_int_equal(open_copy(other, RIG_DISK_TENANT, &r), DISK_FAULT_KEY);
    assert_int_equal(open_copy(NULL, RIG_DISK_TENANT, &r), DISK_FAULT_KEY);
    for (size_t i = DISK_BLOCK; i + 16 < m.bytes - DISK_BLOCK; i++)
        clear += memcmp(m.memory + i, m.body[0].tokens, 16) == 0;
    assert_int_equal(clear, 0);
    unmake();
    make(NULL, 0);
    assert_int_equal(open_copy(crypt, RIG_DISK_TENANT, &r), DISK_FAULT_KEY);
    unmake();
    disk_crypt_destroy(crypt);
    disk_crypt_destroy(other);
}
