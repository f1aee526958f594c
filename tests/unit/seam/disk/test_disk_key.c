/* The key of the disk tier: 32 bytes or 64 digits, and readable by its owner alone. */
#include "seam/disk/disk_crypt.h"

#include <sys/stat.h>

#include "unit/rig/rig_dir.h"

TEST_EACH(make_dir, remove_dir);

static uint8_t key[DISK_KEY_BYTES];
static char why[DISK_KEY_WHY];

static enum tern_err read_bytes(const void *bytes, size_t n, mode_t mode)
{
    const char *path = in_dir("key");
    FILE *f = fopen(path, "we");

    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, n, f), n);
    fclose(f);
    assert_int_equal(chmod(path, mode), 0);
    memset(key, 0xee, sizeof key);
    why[0] = '\0';
    return disk_key_read(path, key, why);
}

#define DIGITS "000102030405060708090a0b0c0d0e0f101112131415161718191A1B1C1D1E1F"

TEST(disk_key_is_bytes_or_digits)
{
    uint8_t raw[DISK_KEY_BYTES];

    for (uint32_t i = 0; i < DISK_KEY_BYTES; i++)
        raw[i] = (uint8_t)i;
    assert_int_equal(read_bytes(raw, sizeof raw, 0600), TERN_OK);
    assert_memory_equal(key, raw, sizeof raw);
    assert_int_equal(read_bytes(DIGITS, 64, 0600), TERN_OK);
    assert_memory_equal(key, raw, sizeof raw);
    assert_int_equal(read_bytes(DIGITS "\n", 65, 0400), TERN_OK);
    assert_memory_equal(key, raw, sizeof raw);
    raw[31] = '\n'; /* a byte of a key like any other */
    assert_int_equal(read_bytes(raw, sizeof raw, 0600), TERN_OK);
    assert_memory_equal(key, raw, sizeof raw);
}

TEST(disk_key_of_another_length_or_alphabet_is_none)
{
    static const char wrong[] = DIGITS "0000";
    static const size_t lengths[] = {0, 1, 31, 33, 62, 63, 66};
    static const uint8_t none[DISK_KEY_BYTES];

    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        assert_int_equal(read_bytes(wrong, lengths[i], 0600), TERN_INVALID);
        assert_non_null(strstr(why, "openssl rand -hex 32"));
        assert_non_null(strstr(why, dir));
    }
    assert_int_equal(read_bytes("g" DIGITS, 64, 0600), TERN_INVALID);
    assert_int_equal(read_bytes(DIGITS " ", 65, 0600), TERN_INVALID);
    assert_int_equal(read_bytes(&(DIGITS DIGITS "g")[65], 64, 0600), TERN_INVALID);
    assert_memory_equal(key, none, sizeof none); /* no part of it is left */
}

TEST(disk_key_that_others_may_read_is_refused)
{
    static const mode_t modes[] = {0640, 0604, 0620, 0610, 0601, 0666};

    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++) {
        assert_int_equal(read_bytes(DIGITS, 64, modes[i]), TERN_DENIED);
        assert_non_null(strstr(why, "chmod 600"));
        assert_int_equal(key[0], 0xee);
    }
}

TEST(disk_key_that_is_not_there_is_said_with_its_path)
{
    assert_int_equal(disk_key_read(in_dir("none"), key, why), TERN_DISK);
    assert_non_null(strstr(why, "/none: the key cannot be read: No such file"));
}
