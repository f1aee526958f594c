/* The disk tier in `ternctl status`: one line for each tenant with a part of it, without figures
 * that do not apply. */
#include <stdlib.h>
#include <string.h>

#include "../../../client/ctl/ctl.h"
#include "testing/test.h"
#include "unit/rig/rig_ctl.h"
#include "unit/rig/rig_printed.h"

static char printed[4096];

/* ---- in place of ask.c ---- */

json_t *ctl_list(struct ctl *ctl, const char *list, const char *arg)
{
    (void)ctl;
    (void)list;
    (void)arg;
    return NULL;
}

bool ctl_print_json(const struct ctl *ctl, const json_t *answer)
{
    (void)ctl;
    (void)answer;
    return true;
}

/* ---- the cases ---- */

/* Prints a tenant's line with these numbers. */
static void shows(uint32_t budget, uint32_t stores, uint32_t failed, uint32_t dropped)
{
    const struct ctl ctl = {0};
    json_t *tenants =
               json_pack("[{s:s, s:{s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:i}}]", "tenant",
                         "t0", "spill", "used_bytes", 1024, "budget_bytes", (int)budget, "entries",
                         3, "hits", 4, "fetched_pages", 5, "evicted", 6, "pruned", 7, "stores",
                         (int)stores, "failed", (int)failed, "dropped", (int)dropped),
           *spill = json_pack("{s:s, s:s}", "dir", "/spill", "state", "ok");
    struct rig_printed p = rig_printed_begin();

    show_spill(&ctl, spill, tenants);
    rig_printed_end(&p, printed, sizeof printed);
    json_decref(tenants);
    json_decref(spill);
}

TEST(disk_parts_say_what_is_there_alone)
{
    static const char all[] = "in 3 entries; 4 hits, 5 pages fetched; 6 evicted, 7 pruned";

    shows(4096, 0, 0, 0);
    assert_non_null(strstr(printed, "    of t0: "));
    assert_non_null(strstr(printed, all));
    assert_string_equal(strstr(printed, "7 pruned"), "7 pruned\n");
    shows(4096, 1, 2, 8);
    assert_string_equal(strstr(printed, "7 pruned"),
                        "7 pruned; 1 being stored; 2 stores failed; 8 extents found at the start "
                        "were dropped (no record or no use)\n");
    shows(0, 0, 0, 0);
    assert_null(strstr(printed, "of t0"));
}
