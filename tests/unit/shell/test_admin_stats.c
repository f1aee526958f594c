/* Figures for operators: the core's counts by tenant, pool and namespace, and times; a tenant sees
 * only its own. */
#include "unit/shell/test_admin_rig.h"

static struct histogram timed[OP_COUNT];

static bool peer_bytes(const struct xfer *d, uint32_t peer, uint32_t i, const char **ret_transport,
                       uint64_t *ret_bytes)
{
    (void)d;
    *ret_transport = i == 0 ? "verbs" : "tcp";
    *ret_bytes = 1000 + 100 * peer + i;
    return i < 2;
}

TEST(stats_tells_what_became_of_prompts)
{
    const json_t *tenants, *all = json_object_get(ask("stats"), "tenants");

    tells(json_array_get(all, 0),
          "{'tenant': 'first', 'prompts': %u, 'prompt_tokens': %u,"
          " 'matched_device_tokens': 0, 'fetched_peer_tokens': 0}",
          (unsigned)core_tenant_view(s.b.rig->core, 0).figures->v[FIGURE_PROMPTS],
          (unsigned)core_tenant_view(s.b.rig->core, 0).figures->v[FIGURE_PROMPT_TOKENS]);
    assert_true(number_of(json_array_get(all, 0), "committed_tokens") > 0);
    assert_int_equal(json_array_size(all), 2);
    tells(json_object_get(s.answer, "pools"), "[{'tenant': 'first'}, {'tenant': 'second'}]");
    assert_ok(ask_with("stats", NULL, 1)); /* a tenant sees only itself, and no times */
    tenants = json_object_get(s.answer, "tenants");
    assert_int_equal(json_array_size(tenants), 1);
    tells(tenants, "[{'tenant': 'second'}]");
    assert_int_equal(json_array_size(json_object_get(s.answer, "pools")), 1);
    assert_null(json_object_get(s.answer, "latencies"));
    assert_null(json_object_get(s.answer, "peers"));
    assert_ok(ask_with("status", NULL, 1));
    tells(json_object_get(s.answer, "figures"), "[{'tenant': 'second', 'prompts': %u}]",
          (unsigned)core_tenant_view(s.b.rig->core, 1).figures->v[FIGURE_PROMPTS]);
}

TEST(stats_tells_times_and_bytes_of_peers)
{
    histogram_add(&timed[OP_MATCH], 3000);
    histogram_add(&timed[OP_MATCH], 9000);
    memcpy(fake.answered, timed, sizeof fake.answered);
    s.parts.bytes = peer_bytes;
    tells(ask("stats"), "{'requests': {'match': {'count': 2, 'sum_us': 12, 'p50_us': 4,"
                        " 'p99_us': 16, 'buckets': [0, 0, 1, 0, 1]}},"
                        " 'peers': [{'peer': 'beta', 'bytes_in': {'verbs': 1000, 'tcp': 1001}}]}");
    assert_int_equal(json_object_size(json_object_get(s.answer, "requests")), 1);
    assert_int_equal(json_object_size(json_object_get(s.answer, "latencies")), LATENCIES);
}

TEST(namespaces_are_listed_with_their_figures)
{
    const json_t *rows = rows_of("namespaces");

    assert_int_equal(json_array_size(rows), 2);
    tells(json_array_get(rows, 0), "{'tenant': 'first', 'nodes': 3, 'held': true, 'reset': false}");
    assert_ok(ask_with("namespaces", NULL, 1));
    tells(json_object_get(s.answer, "namespaces"), "[{'tenant': 'second'}]");
    assert_ok(ask_with("namespaces", "pool=1", NONE));
    assert_int_equal(json_array_size(json_object_get(s.answer, "namespaces")), 1);
}
