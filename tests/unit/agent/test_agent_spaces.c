/* Counts of namespaces: the rows of a tenant add up to its counts, and no row ever falls, whatever
 * namespaces come, go, and return, and however few rows there are. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/prng.h"
#include "client/agent/spaces.h"
#include "testing/test.h"

#define TENANTS 3u
#define NAMES   9u /* of each tenant */
#define ROUNDS  400u
#define LIMIT   5u

static struct spaces s;

/* The daemon's state: counts of tenants, and of the namespaces that it knows at the moment. */
static uint64_t tenant_count[TENANTS], space_count[TENANTS][NAMES];
static bool known[TENANTS][NAMES];

static json_t *row_of(const char *key, const char *value, uint64_t count)
{
    json_t *row = json_pack("{s:s, s:I}", key, value, "prompts", (json_int_t)count);

    json_object_set_new(row, "pool", json_string("p"));
    return row;
}

static json_t *tenants_now(void)
{
    json_t *all = json_array();
    char name[16];

    for (uint32_t t = 0; t < TENANTS; t++) {
        snprintf(name, sizeof(name), "t%u", t);
        json_array_append_new(all, row_of("tenant", name, tenant_count[t]));
    }
    return all;
}

static json_t *rows_now(uint32_t limit)
{
    json_t *all = json_array(), *row;
    char name[16];

    for (uint32_t i = 0; i < TENANTS * NAMES && json_array_size(all) < limit; i++) {
        uint32_t t = i % TENANTS, k = i / TENANTS;

        if (!known[t][k])
            continue;
        snprintf(name, sizeof(name), "t%u-n%u", t, k);
        row = row_of("namespace", name, space_count[t][k]);
        snprintf(name, sizeof(name), "t%u", t);
        json_object_set_new(row, "tenant", json_string(name));
        json_array_append_new(all, row);
    }
    return all;
}

static json_t *update(uint32_t limit, uint32_t shown)
{
    json_t *rows = rows_now(limit), *tenants = tenants_now(), *told;

    s.limit = limit;
    told = spaces_update(&s, rows, tenants, shown);
    json_decref(rows);
    json_decref(tenants);
    return told;
}

static uint64_t told_of(const json_t *told, const char *tenant, const char *name)
{
    uint64_t n = 0;
    json_t *row;
    size_t i;

    json_array_foreach(json_object_get(told, "namespaces"), i, row)
    {
        if ((!tenant || strcmp(json_string_value(json_object_get(row, "tenant")), tenant) == 0) &&
            (!name || strcmp(json_string_value(json_object_get(row, "namespace")), name) == 0))
            n += (uint64_t)json_integer_value(json_object_get(row, "prompts"));
    }
    return n;
}

static int begin(void **state)
{
    (void)state;
    spaces_restart(&s);
    memset(tenant_count, 0, sizeof(tenant_count));
    memset(space_count, 0, sizeof(space_count));
    memset(known, 0, sizeof(known));
    return 0;
}

static void prompts(uint32_t t, uint32_t k, uint64_t n)
{
    known[t][k] = true;
    space_count[t][k] += n;
    tenant_count[t] += n;
}

static void spaces_each_has_its_own_counts(void **state)
{
    json_t *told;

    (void)state;
    prompts(0, 0, 3);
    prompts(0, 1, 4);
    prompts(1, 0, 5);
    told = update(LIMIT, TENANTS);
    assert_int_equal(told_of(told, "t0", "t0-n0"), 3);
    assert_int_equal(told_of(told, "t0", "t0-n1"), 4);
    assert_int_equal(told_of(told, "t1", "t1-n0"), 5);
    assert_int_equal(told_of(told, NULL, "other"), 0);
    json_decref(told);
}

static void spaces_forgotten_and_known_again_goes_on(void **state)
{
    json_t *told;

    (void)state;
    prompts(0, 0, 10);
    json_decref(update(LIMIT, TENANTS));
    space_count[0][0] = 0; /* the pool dropped it */
    known[0][0] = false;
    json_decref(update(LIMIT, TENANTS));
    prompts(0, 0, 2);
    told = update(LIMIT, TENANTS);
    assert_int_equal(told_of(told, "t0", "t0-n0"), 12);
    json_decref(told);
}

static void spaces_tenants_beyond_the_limit_are_one(void **state)
{
    json_t *told;

    (void)state;
    prompts(0, 0, 1);
    prompts(1, 0, 20);
    prompts(2, 0, 300);
    told = update(LIMIT, 1);
    assert_int_equal(told_of(told, "other", "other"), 320);
    assert_int_equal(told_of(told, "t0", "t0-n0"), 1);
    json_decref(told);
}

/* For each tenant: the sum equals the daemon's count, and each row is at least its former value,
 * unless its namespace was dropped and its row reused, in which case the row is absent once. */
static void spaces_random_lives_add_up_and_never_fall(void **state)
{
    struct prng r;
    json_t *before = NULL, *told;
    char tenant[16], name[16];

    (void)state;
    prng_init(&r, 1);
    for (uint32_t round = 0; round < ROUNDS; round++) {
        for (uint32_t i = 0; i < 6; i++) {
            uint32_t t = prng_below(&r, TENANTS), k = prng_below(&r, NAMES);

            if (prng_below(&r, 4) == 0) {
                known[t][k] = false;
                space_count[t][k] = 0;
            } else {
                prompts(t, k, prng_below(&r, 50));
            }
        }
        told = update(LIMIT, TENANTS);
        for (uint32_t t = 0; t < TENANTS; t++) {
            snprintf(tenant, sizeof(tenant), "t%u", t);
            assert_int_equal(told_of(told, tenant, NULL), tenant_count[t]);
            assert_true(!before ||
                        told_of(told, tenant, "other") >= told_of(before, tenant, "other"));
            for (uint32_t k = 0; k < NAMES; k++) {
                snprintf(name, sizeof(name), "t%u-n%u", t, k);
                if (before && told_of(told, tenant, name) < told_of(before, tenant, name))
                    assert_int_equal(told_of(told, tenant, name) && known[t][k], 0);
            }
        }
        json_decref(before);
        before = told;
    }
    json_decref(before);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(spaces_each_has_its_own_counts, begin),
        cmocka_unit_test_setup(spaces_forgotten_and_known_again_goes_on, begin),
        cmocka_unit_test_setup(spaces_tenants_beyond_the_limit_are_one, begin),
        cmocka_unit_test_setup(spaces_random_lives_add_up_and_never_fall, begin),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
