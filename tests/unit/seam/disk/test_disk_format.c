/* The bytes of the disk tier's files: fields are read back, a changed bit of a block is always
 * noticed, and a wrong field under a valid checksum is named by its fault. The offsets below are
 * the format's: moving a field makes another version. */
#include "testing/test.h"
#include "unit/rig/rig_disk.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/prng.h"
#include "seam/mem/checksum.h"

#define FILE_BYTES (1ull << 30)
#define SUM_AT     (DISK_BLOCK - 8)

static uint8_t block[DISK_BLOCK];

static const struct disk_file_header file_header = {
    .file = 0x1122, .incarnation = 7, .served_ns = 99, .key_id = 5, .tenant = RIG_DISK_TENANT};
static const struct disk_trailer trailer = {
    .file = 0x1122, .incarnation = 7, .footer_at = 8 * DISK_BLOCK, .file_bytes = 11 * DISK_BLOCK};
static const struct disk_place footer_at = {0x1122, 8 * DISK_BLOCK};
static const struct disk_place extent_at = {0x1122, 3 * DISK_BLOCK};

static void put_sum(void)
{
    uint64_t sum = checksum_unit(block, SUM_AT);

    memcpy(block + SUM_AT, &sum, sizeof sum);
}

static struct disk_head make_head(enum disk_part part, uint64_t seed)
{
    struct rig_disk_body body;
    struct disk_head head;

    rig_disk_make(seed, part, extent_at, &head, &body);
    rig_disk_free(&body);
    head.extent.served_ns = part == DISK_ENTRY ? 4444 : 0;
    head.incarnation = 31;
    head.seal.key_id = 0xabcdef;
    memset(head.seal.nonce, 0x5a, sizeof head.seal.nonce);
    memset(head.seal.tag, 0x77, sizeof head.seal.tag);
    return head;
}

/* ---- each block, put and got ---- */

static enum disk_fault get_file(void)
{
    struct disk_file_header h;

    return disk_get_file_header(block, file_header.file, RIG_DISK_TENANT, &h);
}

static enum disk_fault get_trailer(void)
{
    struct disk_trailer t;

    return disk_get_trailer(block, trailer.file, trailer.file_bytes, &t);
}

static enum disk_fault get_extent(void)
{
    struct disk_head h;

    return disk_get_extent(block, extent_at, FILE_BYTES, RIG_DISK_TENANT, &h);
}

static enum disk_fault get_footer(void)
{
    struct disk_footer_header h;

    return disk_get_footer_header(block, footer_at, RIG_DISK_TENANT, &h);
}

static void put_file(void)
{
    disk_put_file_header(block, &file_header);
}

static void put_trailer(void)
{
    disk_put_trailer(block, &trailer);
}

static void put_extent(void)
{
    struct disk_head h = make_head(DISK_HISTORY, 3);

    disk_put_extent(block, &h, RIG_DISK_TENANT);
}

static void put_entry(void)
{
    struct disk_head h = make_head(DISK_ENTRY, 3);

    disk_put_extent(block, &h, RIG_DISK_TENANT);
}

static void put_footer(void)
{
    struct disk_footer_header h = {.place = footer_at,
                                   .incarnation = 7,
                                   .body_bytes = 5000,
                                   .nextents = 3,
                                   .key_id = 5,
                                   .nonce = {1, 2},
                                   .tag = {3, 4},
                                   .body_sum = 6};

    disk_put_footer_header(block, &h, RIG_DISK_TENANT);
}

static const struct kind {
    const char *name;
    void (*put)(void);
    enum disk_fault (*get)(void);
} kinds[] = {{"file header", put_file, get_file},
             {"trailer", put_trailer, get_trailer},
             {"extent", put_extent, get_extent},
             {"entry", put_entry, get_extent},
             {"footer header", put_footer, get_footer}};

#define KINDS (sizeof kinds / sizeof *kinds)

TEST(what_is_put_comes_back)
{
    struct disk_file_header file;
    struct disk_trailer t;
    struct disk_footer_header footer;

    put_file();
    assert_int_equal(disk_get_file_header(block, 0x1122, RIG_DISK_TENANT, &file), DISK_FAULT_NONE);
    assert_memory_equal(&file, &file_header, sizeof file);
    put_trailer();
    assert_int_equal(disk_get_trailer(block, 0x1122, trailer.file_bytes, &t), DISK_FAULT_NONE);
    assert_memory_equal(&t, &trailer, sizeof t);
    put_footer();
    assert_int_equal(disk_get_footer_header(block, footer_at, RIG_DISK_TENANT, &footer),
                     DISK_FAULT_NONE);
    assert_int_equal(footer.body_bytes, 5000);
    assert_int_equal(footer.nextents, 3);
    assert_int_equal(footer.incarnation, 7);
    assert_int_equal(footer.key_id, 5);
    assert_int_equal(footer.body_sum, 6);
    assert_int_equal(footer.nonce[1], 2);
    assert_int_equal(footer.tag[1], 4);
    assert_true(disk_is_footer(block));
}

TEST(an_extent_that_is_put_comes_back)
{
    struct disk_head is;

    for (uint32_t i = 0; i < 300; i++) {
        struct disk_head h = make_head((enum disk_part)(i % DISK_PARTS), i);

        disk_put_extent(block, &h, RIG_DISK_TENANT);
        assert_int_equal(disk_get_extent(block, extent_at, FILE_BYTES, RIG_DISK_TENANT, &is),
                         DISK_FAULT_NONE);
        assert_memory_equal(&is, &h, sizeof h);
        assert_true(disk_extent_agrees(&is.extent, &h.extent));
        assert_false(disk_is_footer(block));
    }
}

TEST(no_bit_of_a_block_turns_unnoticed)
{
    uint32_t tried = 0;

    for (size_t k = 0; k < KINDS; k++) {
        kinds[k].put();
        assert_int_equal(kinds[k].get(), DISK_FAULT_NONE);
        for (uint32_t bit = 0; bit < DISK_BLOCK * 8; bit++, tried++) {
            block[bit / 8] ^= (uint8_t)(1u << bit % 8);
            assert_int_equal(kinds[k].get(), bit < 64 ? DISK_FAULT_MAGIC : DISK_FAULT_CHECKSUM);
            block[bit / 8] ^= (uint8_t)(1u << bit % 8);
        }
        assert_int_equal(kinds[k].get(), DISK_FAULT_NONE);
    }
    printf("bits=%u unnoticed=0\n", tried);
}

TEST(a_block_of_another_kind_is_not_taken)
{
    for (size_t k = 0; k < KINDS; k++) {
        kinds[k].put();
        for (size_t other = 0; other < KINDS; other++)
            if (kinds[other].get != kinds[k].get)
                assert_int_equal(kinds[other].get(), DISK_FAULT_MAGIC);
        memset(block, 0, sizeof block);
        assert_int_equal(kinds[k].get(), DISK_FAULT_MAGIC);
        assert_true(disk_is_hole(block));
        block[DISK_BLOCK - 1] = 1;
        assert_false(disk_is_hole(block));
    }
}

TEST(a_newer_format_is_told_from_rot)
{
    for (size_t k = 0; k < KINDS; k++) {
        kinds[k].put();
        block[8] = DISK_FORMAT_VERSION + 1;
        assert_int_equal(kinds[k].get(), DISK_FAULT_CHECKSUM);
        put_sum();
        assert_int_equal(kinds[k].get(), DISK_FAULT_VERSION);
        block[8] = 0;
        put_sum();
        assert_int_equal(kinds[k].get(), DISK_FAULT_SHAPE);
    }
}

/* ---- fields that lie ---- */

struct lie {
    const char *field;
    uint32_t at, bytes;
    uint64_t says;
    enum disk_fault fault;
};

static uint32_t tell(const struct lie *lies, size_t n, const struct kind *kind)
{
    for (size_t i = 0; i < n; i++) {
        enum disk_fault is;

        kind->put();
        memcpy(block + lies[i].at, &lies[i].says, lies[i].bytes);
        put_sum();
        is = kind->get();
        if (is != lies[i].fault)
            printf("%s: %s is %s\n", kind->name, lies[i].field, disk_fault_word(is));
        assert_int_equal(is, lies[i].fault);
    }
    return (uint32_t)n;
}

#define TELL(lies, kind) tell(lies, sizeof(lies) / sizeof *(lies), &kinds[kind])
#define SHAPE(field, at, bytes, says)                                                              \
    {                                                                                              \
        field, at, bytes, says, DISK_FAULT_SHAPE                                                   \
    }

static const struct lie extent_lies[] = {
    SHAPE("behind the version", 12, 4, 1),
    SHAPE("the tag of a head that is sealed", 128, 1, 1),
    SHAPE("the end of that tag", 143, 1, 1),
    SHAPE("part", 144, 4, DISK_PARTS),
    {"file", 16, 8, 0x1123, DISK_FAULT_ADDRESS},
    {"offset", 24, 8, 4 * DISK_BLOCK, DISK_FAULT_ADDRESS},
    {"tenant", 40, 1, 'C', DISK_FAULT_TENANT},
    {"tenant, longer", 44, 1, 's', DISK_FAULT_TENANT},
    {"tenant, behind its end", 103, 1, 1, DISK_FAULT_TENANT},
    SHAPE("depth 0", 192, 4, 0),
    SHAPE("depth, no multiple", 192, 4, RIG_DISK_ALIGN + 1),
    SHAPE("depth, too long", 192, 4, SESSION_TOKENS_MAX + RIG_DISK_ALIGN),
    SHAPE("align 0", 196, 4, 0),
    SHAPE("align too large", 196, 4, ALIGN_TOKENS_MAX * 2),
    SHAPE("tokens", 200, 4, RIG_DISK_ALIGN - 1),
    SHAPE("tokens 0", 200, 4, 0),
    SHAPE("nkeys", 204, 4, EXTRA_KEYS_MAX + 1),
    SHAPE("npages", 208, 4, 1),
    SHAPE("npages, too many", 208, 4, UINT32_MAX),
    SHAPE("nsums", 212, 4, 1),
    SHAPE("nsums, too many", 212, 4, UINT32_MAX),
    SHAPE("page_bytes", 216, 8, 1),
    SHAPE("page_bytes, too many", 216, 8, UINT64_MAX),
    SHAPE("reason", 224, 4, 1),
    SHAPE("hits", 228, 4, 1),
    SHAPE("served_ns", 232, 8, 1),
    SHAPE("groups, none", 240, 4, 0),
    SHAPE("groups, too many", 240, 4, 1u << GROUPS_MAX),
    SHAPE("reach", 244, 4, 1),
    SHAPE("above, no file", 248, 8, 0),
    SHAPE("above, no offset", 256, 8, 0),
    SHAPE("nruns", 148, 4, GROUPS_MAX + 1),
    SHAPE("nruns, too many", 148, 4, UINT32_MAX),
    SHAPE("nruns, none", 148, 4, 0),
    SHAPE("pages of a run", 264, 4, 0),
    SHAPE("pages of a run, too many", 264, 4, UINT32_MAX),
    SHAPE("units 0", 268, 4, 0),
    SHAPE("units, too many", 268, 4, UINT32_MAX),
    SHAPE("regions 0", 272, 4, 0),
    SHAPE("regions, too many", 272, 4, RANKS_MAX + 1),
    SHAPE("behind regions", 276, 4, 1),
    SHAPE("bytes of a page 0", 280, 8, 0),
    SHAPE("bytes of a page, too many", 280, 8, UINT64_MAX / 2 + 1),
    SHAPE("bytes of a page, so that a sum is 0 again", 280, 8, 1ull << 63),
    SHAPE("a run behind the last", 264 + 15 * 24, 4, 1),
    SHAPE("behind the nonce", 124, 4, 1),
    SHAPE("behind the last field", DISK_HEAD_BYTES, 1, 1),
    SHAPE("before the checksum", SUM_AT - 1, 1, 1),
    {"key_id 0 beside a nonce", 104, 8, 0, DISK_FAULT_SHAPE},
};

static const struct lie entry_lies[] = {
    SHAPE("reason", 224, 4, DISK_REASONS),
    SHAPE("tokens", 200, 4, RIG_DISK_ALIGN),
    SHAPE("nkeys", 204, 4, 1),
    SHAPE("npages", 208, 4, 1),
    SHAPE("nruns", 148, 4, 1),
    SHAPE("groups", 240, 4, 1),
    SHAPE("reach, too far", 244, 4, SESSION_TOKENS_MAX + 1),
};

static const struct lie file_lies[] = {
    SHAPE("behind the version", 12, 4, 1),     {"file", 16, 8, 0x1123, DISK_FAULT_ADDRESS},
    {"tenant", 48, 1, 'C', DISK_FAULT_TENANT}, {"tenant, longer", 52, 1, 's', DISK_FAULT_TENANT},
    SHAPE("behind the last field", 112, 1, 1),
};

static const struct lie trailer_lies[] = {
    SHAPE("behind the version", 12, 4, 1),
    {"file", 16, 8, 0x1123, DISK_FAULT_ADDRESS},
    SHAPE("footer, no block", 32, 8, 8 * DISK_BLOCK + 8),
    SHAPE("footer, in the header", 32, 8, 0),
    SHAPE("footer, in the trailer", 32, 8, 10 * DISK_BLOCK),
    SHAPE("footer, behind the end", 32, 8, 1ull << 40),
    SHAPE("file_bytes", 40, 8, 12 * DISK_BLOCK),
    SHAPE("behind the last field", 48, 1, 1),
};

static const struct lie footer_lies[] = {
    SHAPE("nextents", 12, 4, DISK_WRITE_EXTENTS + 1),
    {"file", 16, 8, 0x1123, DISK_FAULT_ADDRESS},
    {"offset", 24, 8, 9 * DISK_BLOCK, DISK_FAULT_ADDRESS},
    {"tenant", 40, 1, 'C', DISK_FAULT_TENANT},
    {"key_id 0 beside a nonce", 112, 8, 0, DISK_FAULT_SHAPE},
    SHAPE("behind the nonce", 132, 4, 1),
    SHAPE("behind the last field", 160, 1, 1),
};

TEST(a_field_that_lies_is_named_by_its_fault)
{
    uint32_t n = TELL(file_lies, 0) + TELL(trailer_lies, 1) + TELL(extent_lies, 2) +
                 TELL(entry_lies, 3) + TELL(footer_lies, 4);

    printf("lies=%u taken=0\n", n);
}

TEST(an_extent_ends_within_its_file)
{
    struct disk_head h = make_head(DISK_HISTORY, 3), is;
    uint64_t end = extent_at.offset + disk_extent_bytes(&h.extent);

    disk_put_extent(block, &h, RIG_DISK_TENANT);
    assert_int_equal(disk_get_extent(block, extent_at, end, RIG_DISK_TENANT, &is), DISK_FAULT_NONE);
    assert_int_equal(disk_get_extent(block, extent_at, end - 1, RIG_DISK_TENANT, &is),
                     DISK_FAULT_SHAPE);
    assert_int_equal(disk_get_extent(block, extent_at, extent_at.offset, RIG_DISK_TENANT, &is),
                     DISK_FAULT_SHAPE);
    assert_int_equal(disk_get_extent(block, extent_at, 0, RIG_DISK_TENANT, &is), DISK_FAULT_SHAPE);
}

/* The largest header: all fields at their maximum at once; one more of any is refused. */
TEST(the_largest_extent_is_taken_and_nothing_larger)
{
    struct disk_head most = {.nruns = 2, .extent = {.part = DISK_HISTORY, .place = extent_at}}, h;
    struct disk_extent *e = &most.extent;

    e->align = e->tokens = ALIGN_TOKENS_MAX;
    e->depth = SESSION_TOKENS_MAX;
    e->nkeys = EXTRA_KEYS_MAX;
    e->npages = SEAL_PAGES_MAX;
    e->groups = 3;
    e->above = (struct disk_place){1, DISK_BLOCK};
    most.run[0] = (struct disk_run){.pages = 1, .units = 1, .regions = 1, .page_bytes = 64};
    most.run[1] = (struct disk_run){
        .pages = SEAL_PAGES_MAX - 1, .units = 64, .regions = RANKS_MAX, .page_bytes = 64};
    e->nsums = 1 + (SEAL_PAGES_MAX - 1) * 64 * RANKS_MAX;
    e->page_bytes = 64 + (SEAL_PAGES_MAX - 1) * 64 * RANKS_MAX;
    assert_int_equal(disk_check_head(&most, FILE_BYTES), DISK_FAULT_NONE);
    h = most;
    h.extent.nkeys++;
    assert_int_equal(disk_check_head(&h, FILE_BYTES), DISK_FAULT_SHAPE);
    h = most;
    h.run[1].pages++;
    h.extent.npages++;
    h.extent.nsums += 64 * RANKS_MAX;
    h.extent.page_bytes += 64 * RANKS_MAX;
    assert_int_equal(disk_check_head(&h, FILE_BYTES), DISK_FAULT_SHAPE);
    h = most;
    h.run[0] = (struct disk_run){.pages = 1, .units = 64, .regions = RANKS_MAX, .page_bytes = 65};
    h.extent.nsums = SEAL_PAGES_MAX * 64 * RANKS_MAX;
    h.extent.page_bytes += 65 * RANKS_MAX - 64;
    assert_int_equal(h.extent.nsums, DISK_SUMS_MAX);
    assert_int_equal(disk_check_head(&h, FILE_BYTES), DISK_FAULT_NONE);
    h.run[0].units = 65;
    h.extent.nsums += RANKS_MAX;
    assert_int_equal(disk_check_head(&h, FILE_BYTES), DISK_FAULT_SHAPE);
    h = most;
    h.run[0].page_bytes = DISK_EXTENT_BYTES_MAX - (e->page_bytes - 64);
    h.extent.page_bytes = DISK_EXTENT_BYTES_MAX;
    assert_int_equal(disk_check_head(&h, UINT64_MAX), DISK_FAULT_NONE);
    h.run[0].page_bytes++;
    h.extent.page_bytes++;
    assert_int_equal(disk_check_head(&h, UINT64_MAX), DISK_FAULT_SHAPE);
}

TEST(extents_that_say_something_else_do_not_agree)
{
    struct disk_extent a = make_head(DISK_HISTORY, 5).extent;
    uint32_t counted = 0;

    /* Byte by byte: only the fields outside the file, the counts of a run, and the place of the
     * parent, which may exist twice, may differ. */
    for (size_t i = 0; i < sizeof a; i++) {
        struct disk_extent b = a;
        bool may = (i >= offsetof(struct disk_extent, tenant) &&
                    i < offsetof(struct disk_extent, tenant) + sizeof b.tenant) ||
                   (i >= offsetof(struct disk_extent, hits) &&
                    i < offsetof(struct disk_extent, served_ns) + sizeof b.served_ns) ||
                   i >= offsetof(struct disk_extent, above);

        ((uint8_t *)&b)[i] ^= 1;
        assert_int_equal(disk_extent_agrees(&a, &b), may);
        counted += !may;
    }
    assert_int_equal(counted, 104);
}

TEST(keys_lie_within_the_tokens_in_order)
{
    struct disk_extent e = {.align = 16, .depth = 48, .nkeys = 3};
    struct extra_key keys[3] = {{.position = 32}, {.position = 32}, {.position = 47}}, bad[3];

    assert_true(disk_keys_fit(&e, keys));
    for (uint32_t i = 0; i < 3; i++) {
        memcpy(bad, keys, sizeof bad);
        bad[i].zero = 1;
        assert_false(disk_keys_fit(&e, bad));
    }
    memcpy(bad, keys, sizeof bad);
    bad[0].position = 31;
    assert_false(disk_keys_fit(&e, bad));
    bad[0].position = 33;
    assert_false(disk_keys_fit(&e, bad));
    bad[0].position = 32;
    bad[2].position = 48;
    assert_false(disk_keys_fit(&e, bad));
}

/* ---- names ---- */

TEST(names_come_back_and_others_are_nobodys)
{
    static const char *const others[] = {
        "",
        ".",
        "..",
        "lock",
        "0000000000000000.tern",
        "8000000000000000.tern",
        "000000000000001.tern",
        "00000000000000001.tern",
        "000000000000000A.tern",
        "000000000000001g.tern",
        "0000000000000001.ter",
        "0000000000000001.ternx",
        "0000000000000001.tern.tm",
        "0000000000000001.tern.tmp.tmp",
        "0000000000000001",
        "+000000000000001.tern",
    };
    char name[DISK_NAME_MAX];
    uint64_t file;
    bool unfinished;

    disk_file_name(name, RIG_DISK_TENANT, 0x1a2b, false);
    assert_string_equal(name, "chat/0000000000001a2b.tern");
    assert_true(disk_parse_name(name + 5, &file, &unfinished));
    assert_int_equal(file, 0x1a2b);
    assert_false(unfinished);
    disk_file_name(name, RIG_DISK_TENANT, DISK_FILE_MAX, true);
    assert_string_equal(name, "chat/7fffffffffffffff.tern.tmp");
    assert_true(disk_parse_name(name + 5, &file, &unfinished));
    assert_true(file == DISK_FILE_MAX);
    assert_true(unfinished);
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        assert_false(disk_parse_name(others[i], &file, &unfinished));
}

TEST(each_fault_has_a_word)
{
    for (uint32_t i = 0; i < DISK_FAULTS; i++) {
        assert_string_not_equal(disk_fault_word((enum disk_fault)i), "");
        for (uint32_t k = 0; k < i; k++)
            assert_string_not_equal(disk_fault_word((enum disk_fault)i),
                                    disk_fault_word((enum disk_fault)k));
    }
}
