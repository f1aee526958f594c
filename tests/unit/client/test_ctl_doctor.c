/* What `ternctl doctor` prints of hosts that this machine is not: each case gives it an answer of
 * the daemon. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../../../client/ctl/ctl.h"
#include "testing/test.h"

static const char *answer; /* the daemon's */

/* ---- in place of ask.c ---- */

void ctl_fail(enum ctl_exit status, const char *format, ...)
{
    fail_msg("%d: %s", (int)status, format);
    abort();
}

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

uint64_t j_u64(const json_t *object, const char *key)
{
    return (uint64_t)json_integer_value(json_object_get(object, key));
}

double j_f64(const json_t *object, const char *key)
{
    return json_number_value(json_object_get(object, key));
}

const char *j_str(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));

    return text ? text : "";
}

bool j_bool(const json_t *object, const char *key)
{
    return json_is_true(json_object_get(object, key));
}

/* ---- what is printed ---- */

static char printed[1u << 16];

static void run(const char *json)
{
    struct ctl ctl = {.once = true};
    FILE *file = tmpfile();
    int before = dup(STDOUT_FILENO);
    size_t n;

    assert_non_null(file);
    answer = json;
    fflush(stdout);
    dup2(fileno(file), STDOUT_FILENO);
    assert_int_equal(doctor_commands[0].run(&ctl), CTL_OK);
    fflush(stdout);
    dup2(before, STDOUT_FILENO);
    close(before);
    rewind(file);
    n = fread(printed, 1, sizeof printed - 1, file);
    printed[n] = '\0';
    fclose(file);
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
