/* kernels/driver.h against NVIDIA's cuda.h, and a library that is missing, or lacks something. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/driver.h"
#include "testing/test.h"
#include "unit/kernels/driver_facts.h"

TEST(driver_library_that_is_not_there_is_said_so)
{
    struct driver d = {.library = NULL};
    struct driver_why why;

    assert_int_equal(driver_open(&d, "libnone-of-cuda.so.1", &why), DRIVER_NO_LIBRARY);
    assert_non_null(strstr(why.text, "libnone-of-cuda.so.1"));
    assert_non_null(strstr(why.text, "install"));
    assert_null(d.library);
    assert_int_equal(driver_open(&d, "libc.so.6", &why), DRIVER_TOO_OLD);
    assert_null(d.library);
}

static const char *const names[] = {
#define X(member, name, function, version, parameters) name,
    DRIVER_TABLE(X)
#undef X
};

/* A host of that many devices, whose UUIDs end in their numbers. */
static int host_devices;

static CUresult host_count(int *ret)
{
    *ret = host_devices;
    return CUDA_SUCCESS;
}

static CUresult host_get(CUdevice *ret, int ordinal)
{
    *ret = ordinal;
    return CUDA_SUCCESS;
}

static CUresult host_uuid(CUuuid *ret, CUdevice device)
{
    *ret = (CUuuid){.bytes = {[15] = (char)device}};
    return CUDA_SUCCESS;
}

TEST(driver_that_lacks_the_device_names_every_one_of_a_host_or_says_how_many_more)
{
    struct driver d = {
        .device_count = host_count, .device_get = host_get, .device_uuid = host_uuid};
    char seen[DRIVER_SEEN_BYTES], name[DRIVER_UUID_BYTES];
    CUdevice at = -1;
    CUuuid of;

    for (host_devices = 0; host_devices <= 16; host_devices++) {
        assert_int_equal(driver_device_of(&d, "GPU-none", &at, seen), CUDA_ERROR_NOT_FOUND);
        for (int i = 0; i < host_devices; i++) {
            host_uuid(&of, i);
            driver_uuid_text(&of, name);
            assert_int_equal(strstr(seen, name) != NULL, i < DRIVER_SEEN_MAX);
        }
        assert_int_equal(strstr(seen, "more (`nvidia-smi -L`)") != NULL,
                         host_devices > DRIVER_SEEN_MAX);
    }
    assert_non_null(strstr(seen, " and 8 more (`nvidia-smi -L`)"));
    host_devices = 16;
    assert_int_equal(driver_device_of(&d, name, &at, seen), CUDA_SUCCESS);
    assert_int_equal(at, 15);
}

#ifdef STANDIN /* exists where a C++ compiler is */
TEST(driver_that_lacks_any_function_is_refused)
{
    struct driver d = {.library = NULL};
    struct driver_why why;

    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        setenv("FAKE_CUDA_LACKS", names[i], 1);
        assert_int_equal(driver_open(&d, STANDIN, &why), DRIVER_LACKS);
        assert_non_null(strstr(why.text, names[i]));
        assert_null(d.library);
    }
    unsetenv("FAKE_CUDA_LACKS");
    assert_int_equal(driver_open(&d, STANDIN, &why), DRIVER_OK);
    assert_non_null(d.library);
#define X(member, name, function, version, parameters) assert_true(d.member != NULL);
    DRIVER_TABLE(X)
#undef X
    assert_int_equal(d.init(0), CUDA_SUCCESS);
    driver_close(&d);
    assert_null(d.library);
}
#endif

TEST(results_that_a_context_does_not_recover_from)
{
    assert_true(driver_is_lost(CUDA_ERROR_ILLEGAL_ADDRESS));
    assert_true(driver_is_lost(CUDA_ERROR_MISALIGNED_ADDRESS));
    assert_false(driver_is_lost(CUDA_ERROR_OUT_OF_MEMORY));
    assert_false(driver_is_lost(CUDA_ERROR_NOT_READY));
    assert_false(driver_is_lost(CUDA_SUCCESS));
}

/* The last case: if it is skipped all others must have passed, so that the status is that of a
 * skip. */
#ifdef TERN_HAVE_CUDA_H
TEST(driver_says_what_cuda_h_says)
{
    assert_int_equal(facts_ours_n, facts_cuda_n);
    for (size_t i = 0; i < facts_ours_n; i++) {
        assert_string_equal(facts_ours[i].name, facts_cuda[i].name);
        if (facts_ours[i].value != facts_cuda[i].value)
            fail_msg("%s is %lld, and cuda.h says %lld", facts_ours[i].name, facts_ours[i].value,
                     facts_cuda[i].value);
    }
    print_message("%zu facts, %zu functions\n", facts_ours_n, sizeof names / sizeof names[0]);
}
#else
static int status(int failed)
{
    if (failed == 0)
        printf("skipped: cuda.h is not here, so driver.h was not compared with it\n");
    return failed ? failed : 77;
}

__attribute__((constructor)) static void skips(void)
{
    test_ends(status);
}
#endif
