/* Checksums that libtern brings with a put of blocks, over a real daemon: the daemon computes none,
 * and a wrong one costs the tenant its own block alone. libtern's checksum_fold is wrapped here and
 * returns wrong checksums; the daemon has its own. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/checksum_blocks.h"
#include "engine/admin.h"
#include "rig_daemon.h"
#include "testing/test.h"

#define VALUE 100004 /* not a multiple of 8, nor of 4,096 */
#define LIST  44     /* more than one part of a put (BLOCKS_PART_BYTES) */
#define OTHER 80     /* more than the pages of the pool */

static struct daemon rig;
static struct tern *admin;
static struct tern_block_set *set;
static uint64_t wrong; /* added to each checksum */

static uint8_t key_bytes[LIST], value[LIST][VALUE], got[LIST];
static struct tern_block_key keys[LIST];
static struct tern_block_value values[LIST];
static struct iovec iov[LIST];

uint64_t __real_checksum_fold(const uint64_t *leaves, size_t n); /* NOLINT: the linker's names */
uint64_t __wrap_checksum_fold(const uint64_t *leaves, size_t n); /* NOLINT */

uint64_t __wrap_checksum_fold(const uint64_t *leaves, size_t n) /* NOLINT */
{
    return __real_checksum_fold(leaves, n) + wrong;
}

static void fill(void)
{
    for (uint32_t i = 0; i < LIST; i++)
        for (uint32_t k = 0; k < VALUE; k++)
            value[i][k] = (uint8_t)(k * (i + 3) + k / 251);
}

FIXTURE(start)
{
    struct tern_block_config config = {.ns = {.model = "m"},
                                       .group = "kv",
                                       .value_bytes = VALUE,
                                       .pool_bytes = 7u << 20,
                                       .host_bytes = 15u << 20,
                                       .threads = 2};

    rig_memory = 12u << 20;
    rig_start(&rig, "    host_memory: 16M\n    host_write_through: true\n", NULL);
    admin = rig_connected(rig.admin);
    assert_int_equal(tern_blocks_open(rig.socket, &config, 20000, &set), TERN_OK);
    for (uint32_t i = 0; i < LIST; i++) {
        key_bytes[i] = (uint8_t)i;
        keys[i] = (struct tern_block_key){&key_bytes[i], 1};
        iov[i] = (struct iovec){value[i], VALUE};
        values[i] = (struct tern_block_value){&iov[i], 1};
    }
    fill();
    wrong = 0;
    return 0;
}

FIXTURE(stop)
{
    tern_blocks_close(set);
    tern_destroy(admin);
    return rig_end(&rig);
}

TEST_EACH(start, stop);

static uint64_t memory(const char *what)
{
    char path[64];

    snprintf(path, sizeof path, "memory.%s", what);
    return rig_figure(admin, "status", path);
}

/* Puts all blocks, and waits until the daemon has the checksums of their pages. */
static void put_all(void)
{
    assert_ok(NULL, tern_blocks_put(set, keys, values, LIST, 5000, NULL));
    wait_until(memory("sealed_pages") == LIST);
}

/* Gets all blocks: each must have the bytes of its put. Returns how many are found. */
static uint32_t get_all(void)
{
    uint32_t n = 0;

    memset(value, 0xee, sizeof value);
    assert_ok(NULL, tern_blocks_get(set, keys, values, LIST, 5000, got));
    for (uint32_t i = 0; i < LIST; i++)
        for (uint32_t k = 0; got[i] && k < VALUE; k++)
            assert_int_equal(value[i][k], (uint8_t)(k * (i + 3) + k / 251));
    for (uint32_t i = 0; i < LIST; i++)
        n += got[i];
    return n;
}

/* Puts other blocks, so that the first ones stay at most on the host tier. */
static void evict_all(void)
{
    uint8_t other[OTHER][2];
    uint64_t before = wrong;

    wrong = 0;
    for (uint32_t i = 0; i < OTHER; i++) {
        struct tern_block_key key = {other[i], 2};

        other[i][0] = (uint8_t)i;
        other[i][1] = 1;
        assert_ok(NULL, tern_blocks_put(set, &key, &values[0], 1, 5000, NULL));
    }
    wrong = before;
}

TEST(blocks_bring_their_checksums_and_the_daemon_computes_none)
{
    put_all();
    assert_int_equal(memory("checksums_by_engine"), LIST);
    wait_until(memory("copied_pages") == LIST);
    assert_int_equal(memory("copies_corrupt"), 0);
    evict_all();
    assert_int_equal(get_all(), LIST);
}

/* The daemon trusts the wrong checksums, so no copy of a page matches: no copy is kept, and pages
 * from the pool itself are right. */
TEST(blocks_whose_checksums_are_wrong_are_dropped_and_never_wrong)
{
    wrong = 1;
    put_all();
    assert_int_equal(memory("checksums_by_engine"), LIST);
    wait_until(memory("copies_corrupt") > 0); /* a job has several pages */
    assert_int_equal(memory("copied_pages"), 0);
    assert_int_equal(get_all(), LIST);
    fill();
    evict_all();
    assert_int_equal(get_all(), 0);
}
