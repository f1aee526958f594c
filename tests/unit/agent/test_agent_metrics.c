/* The text forms of metrics: hostile names, series beyond a limit, histograms, missing values; and
 * the table itself. The test provides the daemon's answers. */
#include <stdlib.h>
#include <string.h>

#include "client/agent/metrics.h"
#include "testing/test.h"

static char *written(const char *answers, bool openmetrics, uint32_t tenants)
{
    const struct metrics_form form = {.openmetrics = openmetrics, .tenants = tenants};
    json_t *j = json_loads(answers, 0, NULL);
    struct text text;
    char *copy;

    assert_non_null(j);
    text_begin(&text, METRICS_BYTES_MAX);
    assert_true(metrics_write(&text, j, &form));
    copy = strndup(text.at ? text.at : "", text.bytes);
    text_end(&text);
    json_decref(j);
    return copy;
}

static uint32_t times(const char *text, const char *what)
{
    uint32_t n = 0;

    for (; (text = strstr(text, what)) != NULL; text++)
        n++;
    return n;
}

static void metrics_hostile_names_are_escaped(void **state)
{
    char *t = written(
        "{\"stats\":{\"tenants\":[{\"tenant\":\"a\\\"b\\\\c\\nd\\u00e9} 9\",\"prompts\":7}]}}",
        false, 64);

    (void)state;
    assert_non_null(strstr(t, "\ntern_prompts_total{tenant=\"a\\\"b\\\\c\\nd\xc3\xa9} 9\"} 7\n"));
    assert_int_equal(times(t, "\n"), 3); /* HELP, TYPE, and one line for the value */
    free(t);
}

static void metrics_pools_of_one_name_are_one_series(void **state)
{
    char *t = written(
        "{\"status\":{\"pools\":["
        "{\"pool\":\"1\",\"tenant\":\"t\",\"tier\":\"device\",\"group\":\"kv\",\"free\":3},"
        "{\"pool\":\"1\",\"tenant\":\"t\",\"tier\":\"device\",\"group\":\"kv\",\"free\":4}]}}",
        false, 64);

    (void)state;
    assert_int_equal(times(t, "group=\"kv\"} 7\n"), 1);
    assert_int_equal(times(t, "tern_pool_pages{"), 1);
    free(t);
}

static void metrics_tenants_beyond_the_limit_are_summed(void **state)
{
    const char *answers =
        "{\"stats\":{\"tenants\":[{\"tenant\":\"a\",\"prompts\":1},{\"tenant\":\"b\","
        "\"prompts\":20},{\"tenant\":\"c\",\"prompts\":300}]},\"status\":{\"shares\":[{"
        "\"table\":\"limits.nodes\",\"used\":{\"a\":1,\"b\":20,\"c\":300}}]}}";
    char *t = written(answers, false, 1);

    (void)state;
    assert_non_null(strstr(
        t, "tern_prompts_total{tenant=\"a\"} 1\ntern_prompts_total{tenant=\"other\"} 320\n"));
    assert_non_null(strstr(t, "{table=\"limits.nodes\",tenant=\"other\"} 320\n"));
    free(t);
}

static void metrics_what_is_absent_has_no_series(void **state)
{
    char *t = written(
        "{\"status\":{\"spill\":null,\"certificate\":null,\"draining\":true,\"engines_stuck\":[{},{"
        "}],"
        "\"pools\":[{\"pool\":\"1\",\"borrowed\":null,\"quarantine\":2},{\"quarantine\":3}]}}",
        false, 64);

    (void)state;
    assert_null(strstr(t, "tern_spill"));
    assert_null(strstr(t, "tern_certificate"));
    assert_null(strstr(t, "tern_pool_borrowed_pages"));
    assert_non_null(strstr(t, "\ntern_draining 1\n"));
    assert_non_null(strstr(t, "\ntern_engines_stuck 2\n"));
    assert_non_null(strstr(t, "\ntern_quarantined_pages 5\n"));
    free(t);
}

static void metrics_words_and_units_are_numbers(void **state)
{
    char *t = written("{\"status\":{\"node\":\"n\",\"version\":\"1\",\"quarantine_oldest_ms\":1500,"
                      "\"spill\":{\"state\":\"full\"}}}",
                      false, 64);

    (void)state;
    assert_non_null(strstr(t, "\ntern_build_info{node=\"n\",version=\"1\"} 1\n"));
    assert_non_null(strstr(t, "\ntern_quarantine_oldest_seconds 1.5\n"));
    assert_non_null(strstr(t, "\ntern_spill_state{state=\"full\"} 1\n"));
    assert_non_null(strstr(t, "\ntern_spill_state{state=\"ok\"} 0\n"));
    free(t);
}

static void metrics_alarms_are_told_by_kind_also_where_none_is_on(void **state)
{
    char *t =
        written("{\"status\":{\"alarm_counts\":[{\"name\":\"peer_down\",\"severity\":\"warn\","
                "\"on\":2},{\"name\":\"spill_failing\",\"severity\":\"error\",\"on\":0}]}}",
                false, 64);

    (void)state;
    assert_non_null(strstr(t, "\ntern_alarms{name=\"peer_down\",severity=\"warn\"} 2\n"));
    assert_non_null(strstr(t, "\ntern_alarms{name=\"spill_failing\",severity=\"error\"} 0\n"));
    free(t);
}

static void metrics_histograms_are_cumulative(void **state)
{
    char *t = written("{\"stats\":{\"latencies\":{\"publish\":{\"count\":6,\"sum_us\":2500000,"
                      "\"buckets\":[1,0,2,3]}}}}",
                      true, 64);

    (void)state;
    assert_non_null(
        strstr(t, "# TYPE tern_publish_seconds histogram\n# UNIT tern_publish_seconds seconds\n"
                  "tern_publish_seconds_bucket{le=\"1e-06\"} 1\n"
                  "tern_publish_seconds_bucket{le=\"2e-06\"} 1\n"
                  "tern_publish_seconds_bucket{le=\"4e-06\"} 3\n"
                  "tern_publish_seconds_bucket{le=\"8e-06\"} 6\n"));
    assert_non_null(strstr(t,
                           "tern_publish_seconds_bucket{le=\"1073.741824\"} 6\n"
                           "tern_publish_seconds_bucket{le=\"+Inf\"} 6\n"
                           "tern_publish_seconds_sum 2.5\ntern_publish_seconds_count 6\n# EOF\n"));
    free(t);
}

static void metrics_openmetrics_names_families_without_total(void **state)
{
    char *t = written("{\"status\":{\"data\":{\"payload_bytes_in\":9007199254740991}}}", true, 64);

    (void)state;
    assert_non_null(strstr(t, "# HELP tern_received_bytes Page bytes received from peers.\n# TYPE "
                              "tern_received_bytes counter\n# UNIT tern_received_bytes "
                              "bytes\ntern_received_bytes_total 9007199254740991\n# EOF\n"));
    free(t);
}

static void metrics_a_text_beyond_its_limit_is_refused(void **state)
{
    const struct metrics_form form = {.tenants = 64};
    json_t *j = json_loads("{\"agent\":{\"up\":true}}", 0, NULL);
    struct text text;

    (void)state;
    text_begin(&text, 60);
    assert_false(metrics_write(&text, j, &form));
    text_end(&text);
    json_decref(j);
}

static void metrics_accept_header_chooses_the_form(void **state)
{
    static const struct {
        const char *accept;
        bool openmetrics;
    } cases[] = {
        {NULL, false},
        {"", false},
        {"*/*", false},
        {"text/plain;version=0.0.4", false},
        {"application/openmetrics-text", true},
        {"text/plain;q=0.5, Application/OpenMetrics-Text; version=1.0.0;q=0.8", true},
        {"application/openmetrics-text;version=1.0.0;q=0,text/plain", false},
        {"application/openmetrics-text;version=1.0.0;q=0.0, application/openmetrics-text", false},
        {",,, ,", false},
        {"text/plain,application/openmetrics-tex", false},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++)
        assert_int_equal(metrics_accepts_openmetrics(cases[i].accept), cases[i].openmetrics);
}

/* Rows of one family are adjacent and agree, names follow the ecosystem, and a help is a line
 * without characters to be escaped. */
static void metrics_table_keeps_to_its_rules(void **state)
{
    (void)state;
    for (size_t i = 0; i < metrics_n; i++) {
        const struct metric *m = &metrics_table[i];
        size_t n = strlen(m->name);

        assert_int_equal(strspn(m->name, "abcdefghijklmnopqrstuvwxyz_"), n);
        assert_memory_equal(m->name, "tern_", 5);
        assert_null(strstr(m->name, "_total"));
        /* Times in the stats have a histogram, or a sum beside a separate count. */
        assert_int_equal(m->type == METRIC_HISTOGRAM || (m->type == METRIC_COUNTER && m->scale > 0),
                         n > 8 && !strcmp(m->name + n - 8, "_seconds") &&
                             strncmp(m->from, "stats.", 6) == 0);
        assert_null(strpbrk(m->help, "\n\\\"|"));
        assert_true(m->help[strlen(m->help) - 1] != '.');
        for (size_t k = 0; k < i; k++) {
            if (strcmp(metrics_table[k].name, m->name) != 0)
                continue;
            assert_string_equal(metrics_table[i - 1].name, m->name);
            assert_int_equal(metrics_table[k].type, m->type);
            assert_string_equal(metrics_table[k].help, m->help);
            assert_true(m->label && metrics_table[k].label &&
                        strcmp(m->label, metrics_table[k].label));
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(metrics_hostile_names_are_escaped),
        cmocka_unit_test(metrics_pools_of_one_name_are_one_series),
        cmocka_unit_test(metrics_tenants_beyond_the_limit_are_summed),
        cmocka_unit_test(metrics_what_is_absent_has_no_series),
        cmocka_unit_test(metrics_words_and_units_are_numbers),
        cmocka_unit_test(metrics_alarms_are_told_by_kind_also_where_none_is_on),
        cmocka_unit_test(metrics_histograms_are_cumulative),
        cmocka_unit_test(metrics_openmetrics_names_families_without_total),
        cmocka_unit_test(metrics_a_text_beyond_its_limit_is_refused),
        cmocka_unit_test(metrics_accept_header_chooses_the_form),
        cmocka_unit_test(metrics_table_keeps_to_its_rules),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
