/* The output of `ternctl doctor` for hosts other than this machine: each case sets the daemon's
 * answer. */
#include <stdlib.h>
#include <string.h>

#include "../../../client/ctl/ctl.h"
#include "testing/test.h"
#include "unit/rig/rig_ctl.h"
#include "unit/rig/rig_printed.h"

static const char *answer; /* the daemon's */

/* ---- in place of ask.c ---- */

json_t *ctl_ask(struct ctl *ctl, const char *command, const char *const *args, uint32_t nargs)
{
    (void)ctl;
    (void)args;
    (void)nargs;
    assert_string_equal(command, "doctor");
    return json_loads(answer, 0, NULL);
}

bool ctl_print_json(const struct ctl *ctl, const json_t *all)
{
    (void)ctl;
    assert_non_null(all);
    return false;
}

/* ---- what is printed ---- */

static char printed[1u << 16];

static void run(const char *json)
{
    struct ctl ctl = {.once = true};
    struct rig_printed p = rig_printed_begin();

    answer = json;
    assert_int_equal(doctor_commands[0].run(&ctl), CTL_OK);
    rig_printed_end(&p, printed, sizeof printed);
}

static void assert_says(const char *text)
{
    if (!strstr(printed, text))
        fail_msg("no '%s' in: %s", text, printed);
}

static void assert_says_not(const char *text)
{
    if (strstr(printed, text))
        fail_msg("'%s' in: %s", text, printed);
}

/* ---- answers ---- */

#define REGION(device, rail)                                                                       \
    "{\"tenant\": \"t\", \"region\": 0, \"gpu\": null, \"pci\": null, \"device\": " device         \
    ", \"rail\": " rail ", \"reason\": \"why\"}"

/* ---- the cases ---- */

TEST(doctor_speaks_of_any_rail_only_where_there_is_one)
{
    run("{\"rdma\": {\"built\": true, \"rails\": [], \"regions\": [" REGION("null", "null") "]}}");
    assert_says_not("region 0");
    assert_says_not("any rail");
    run("{\"rdma\": {\"built\": true, \"rails\": [], \"regions\": [" REGION("\"mlx5_0\"",
                                                                            "null") "]}}");
    assert_says("region 0 of t, memory of the host: mlx5_0 (why), which is not in use\n");
    run("{\"rdma\": {\"built\": true, \"rails\": [{\"device\": \"mlx5_0\"}], \"regions\": [" REGION(
        "null", "null") "]}}");
    assert_says("region 0 of t, memory of the host: any rail (why)\n");
}

#define ROW(region, registered, test)                                                              \
    "{\"tenant\": \"t\", \"region\": " region ", \"regions\": 1, \"kind\": \"gpu\", \"gpu\": "     \
    "\"GPU-1\", \"device\": \"mlx5_0\", \"registered\": \"" registered "\", \"reason\": \"\", "    \
    "\"ring_bytes\": 0, \"no_ring\": \"\", \"self_test\": " test "}"

TEST(doctor_says_of_each_memory_what_the_self_test_found_or_that_there_was_none)
{
    run("{\"rdma\": {\"built\": true, \"wanted\": true, \"in_use\": true, \"devices\": "
        "[{\"device\": "
        "\"mlx5_0\", \"state\": \"rail 0\"}], \"memory\": [" //
        ROW("0", "dma-buf",
            "{\"result\": \"passed\", \"bytes\": 4096, \"us\": 65, \"age_ms\": 5000}") ", " //
        ROW("1", "no", "null") "]}}");
    assert_says("self-test of t, region 0, on GPU-1, with mlx5_0: passed (4,096 bytes in 65 us), ");
    assert_says("self-test of t, region 1, on GPU-1, with mlx5_0: not run: it is not "
                "registered with the device\n");
    assert_says_not("  self-test: ");
}

TEST(doctor_says_why_no_self_test_was_made_at_all)
{
    run("{\"rdma\": {\"built\": false}}");
    assert_says("  self-test: not run: RDMA is not in this build\n");
    run("{\"rdma\": {\"built\": true}}");
    assert_says("  self-test: not run: RDMA is off by configuration\n");
    run("{\"rdma\": {\"built\": true, \"wanted\": true, \"devices\": []}}");
    assert_says("  self-test: not run: there is no RDMA device\n");
    run("{\"rdma\": {\"built\": true, \"wanted\": true, \"devices\": [{\"device\": \"mlx5_0\", "
        "\"state\": \"the self-test with host memory failed: byte 7\"}]}}");
    assert_says("  device mlx5_0: the self-test with host memory failed: byte 7\n");
    assert_says("  self-test: no device is in use; each device's line has the cause\n");
}

/* With any limit, the figure has one form, with its unit and the number of devices. */
TEST(doctor_says_what_registrations_take_in_one_way)
{
    static const char *const limits[] = {"\"memlock_exempt\": true, \"memlock_bytes\": 65536",
                                         "\"memlock_exempt\": false, \"memlock_bytes\": null",
                                         "\"memlock_exempt\": false, \"memlock_bytes\": 65536"};
    char json[512];

    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++)
        for (int used = 0; used < 2; used++) {
            snprintf(json, sizeof json,
                     "{\"rdma\": {\"in_use\": %s, %s, \"memlock_needed_bytes\": 134225920, "
                     "\"memlock_devices\": 2}}",
                     used ? "true" : "false", limits[i]);
            run(json);
            assert_says(used ? "; registrations take 134,225,920 bytes of the host's memory, on 2 "
                               "devices"
                             : "; registrations would take 134,225,920 bytes of the host's memory, "
                               "on 2 devices");
            assert_int_equal(strstr(printed, ": too few, set LimitMEMLOCK=infinity") != NULL,
                             i == 2);
        }
    assert_says("locked memory: RLIMIT_MEMLOCK is 65,536 bytes; ");
    run("{\"rdma\": {\"memlock_exempt\": true, \"memlock_devices\": 1}}");
    assert_says("on 1 device\n");
}
