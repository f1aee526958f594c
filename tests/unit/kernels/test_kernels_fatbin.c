/* The module for devices: code for each of them and PTX, where the build had nvcc. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/kernels.h"
#include "testing/test.h"

/* The container, as nvcc writes it: a header, then entries of a header and its payload. */
#define FATBIN_MAGIC  0xba55ed50u
#define FATBIN_HEADER 16
enum { ENTRY_PTX = 1, ENTRY_CODE = 2 };

struct entry {
    uint16_t kind, version;
    uint32_t header_bytes;
    uint64_t bytes;
    uint32_t more[3], device;
};

static uint32_t found(const uint8_t *module, size_t bytes, uint16_t kind, uint32_t device)
{
    uint32_t n = 0;
    struct entry e;

    for (size_t at = FATBIN_HEADER; at + sizeof e <= bytes; at += e.header_bytes + e.bytes) {
        memcpy(&e, module + at, sizeof e);
        assert_true(e.header_bytes >= sizeof e && e.bytes <= bytes - at);
        n += e.kind == kind && e.device == device;
    }
    return n;
}

TEST(module_has_code_for_each_device_and_ptx)
{
    size_t bytes;
    const uint8_t *module = kernels_fatbin(&bytes);
    uint32_t magic;

    if (!module) {
        printf("skipped: this build had no nvcc\n");
        exit(77);
    }
    memcpy(&magic, module, sizeof magic);
    assert_int_equal(magic, FATBIN_MAGIC);
    assert_int_equal(found(module, bytes, ENTRY_CODE, 80), 1);
    assert_int_equal(found(module, bytes, ENTRY_CODE, 90), 1);
    assert_int_equal(found(module, bytes, ENTRY_CODE, 100), 1);
    assert_int_equal(found(module, bytes, ENTRY_PTX, 80), 1);
    print_message("a module of %zu bytes\n", bytes);
}
