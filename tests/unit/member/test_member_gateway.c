/* The inputs of tern-member: answers of etcd's gateway, keys, addresses and rules, valid ones and
 * hostile ones. A reader that refuses leaves its output unchanged. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/member/decide.h"
#include "client/member/local.h"
#include "proto/host_name.h"
#include "testing/test.h"

#define PREFIX "/tern/a"
#define HEADER "\"header\":{\"revision\":\"7\"}"

static struct nodes nodes;

static const struct node node_a = {.name = "a",
                                   .address = "host-a:7000",
                                   .incarnation = 0xd5b2646159b219db,
                                   .healthy = true,
                                   .capacity = {100, 40, 1u << 20}};

static json_t *parse(const char *text)
{
    json_t *j = json_loads(text, 0, NULL);

    assert_non_null(j);
    return j;
}

/* A row of a range's answer: as tern-member itself writes it, or with another value, in base64. */
static json_t *row_of(const struct node *node, const char *value)
{
    json_t *row = gateway_put(PREFIX, node, 1);

    assert_non_null(row);
    if (value)
        json_object_set_new(row, "value", json_string(value));
    return row;
}

static json_t *answer_of(json_t *rows, uint64_t count)
{
    char text[24];

    snprintf(text, sizeof(text), "%llu", (unsigned long long)count);
    return json_pack("{s:{s:s}, s:o, s:s}", "header", "revision", "7", "kvs", rows, "count", text);
}

static bool nodes_read(json_t *answer)
{
    bool ok = gateway_nodes(answer, PREFIX, &nodes);

    json_decref(answer);
    return ok;
}

/* ---- nodes ---- */

TEST(gateway_what_was_written_is_read)
{
    struct node second = node_a;

    strcpy(second.name, "0");
    strcpy(second.address, "[fd00::1]:65535");
    second.healthy = false;
    assert_true(nodes_read(
        answer_of(json_pack("[o, o]", row_of(&node_a, NULL), row_of(&second, NULL)), 2)));
    assert_int_equal(nodes.n, 2);
    assert_int_equal(nodes.ignored, 0);
    assert_false(nodes.cut);
    assert_memory_equal(&nodes.v[1], &node_a, sizeof(node_a)); /* sorted by name */
    assert_true(node_same(&nodes.v[0], &second));
    assert_ptr_equal(nodes_find(&nodes, "a"), &nodes.v[1]);
    assert_null(nodes_find(&nodes, "aa"));
}

TEST(gateway_keys_that_are_no_nodes_are_counted)
{
    static const char *const values[] = {
        "",                                                     /* empty */
        "e30=",                                                 /* {} */
        "e30",                                                  /* no groups of four */
        "====",                                                 /* padding alone */
        "e3=0",                                                 /* padding inside */
        "W10=",                                                 /* [] */
        "eyJuYW1lIjoiYiJ9",                                     /* {"name":"b"}: another's key */
        "eyJuYW1lIjoiYSIsIm5hbWUiOiJhIn0=",                     /* a key twice */
        "/////w==",                                             /* bytes */
        "W1tbW1tbW1tbW1tbW1tbW1tbW1tbW1tbW1tbW1tbW1tbW1tbW1tb", /* [[[[ */
    };
    json_t *rows = json_array();

    for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++)
        json_array_append_new(rows, row_of(&node_a, values[i]));
    json_array_append_new(rows, json_null());
    json_array_append_new(rows, json_object());
    json_array_append_new(rows, row_of(&node_a, NULL));
    json_array_append_new(rows, row_of(&node_a, NULL)); /* the same once more */
    assert_true(nodes_read(answer_of(rows, json_array_size(rows))));
    assert_int_equal(nodes.n, 1);
    assert_int_equal(nodes.ignored, sizeof(values) / sizeof(values[0]) + 3);
}

TEST(gateway_a_key_of_another_prefix_is_no_node)
{
    json_t *row = gateway_put("/tern/b", &node_a, 1);

    assert_true(nodes_read(answer_of(json_pack("[o]", row), 1)));
    assert_int_equal(nodes.n, 0);
    assert_int_equal(nodes.ignored, 1);
}

TEST(gateway_answers_that_are_none_change_nothing)
{
    static const char *const answers[] = {
        "{}",
        "{\"count\":\"0\"}",
        "{" HEADER ",\"count\":\"1\"}", /* a count of one without a row */
        "{" HEADER ",\"count\":1,\"kvs\":[]}",
        "{" HEADER ",\"count\":\"-1\"}",
        "{" HEADER ",\"count\":\"99999999999999999999\"}",
        "{" HEADER ",\"count\":\"0\",\"kvs\":[{}]}",
        "{" HEADER ",\"count\":\"1\",\"kvs\":{\"a\":1}}",
        "{\"error\":\"etcdserver: user name is empty\",\"code\":3}",
    };

    assert_true(nodes_read(answer_of(json_pack("[o]", row_of(&node_a, NULL)), 1)));
    for (size_t i = 0; i < sizeof(answers) / sizeof(answers[0]); i++) {
        if (nodes_read(parse(answers[i])))
            fail_msg("taken: %s", answers[i]);
        assert_int_equal(nodes.n, 1);
        assert_string_equal(nodes.v[0].name, "a");
    }
    assert_true(nodes_read(parse("{" HEADER "}"))); /* no keys: the gateway omits zeros */
    assert_int_equal(nodes.n, 0);
}

TEST(gateway_more_keys_than_fit_are_told)
{
    json_t *rows = json_array();
    struct node node = node_a;

    assert_true(nodes_read(answer_of(json_pack("[o]", row_of(&node_a, NULL)), NODES_MAX + 1)));
    assert_true(nodes.cut);
    for (uint32_t i = 0; i <= NODES_MAX; i++) {
        snprintf(node.name, sizeof(node.name), "n%u", i);
        json_array_append_new(rows, row_of(&node, NULL));
        if (i + 1 == NODES_MAX) {
            assert_true(nodes_read(answer_of(json_incref(rows), NODES_MAX)));
            assert_int_equal(nodes.n, NODES_MAX);
            assert_non_null(nodes_find(&nodes, "n1023"));
        }
    }
    assert_false(nodes_read(answer_of(rows, NODES_MAX + 1)));
}

TEST(gateway_a_value_that_is_too_long_is_no_node)
{
    char value[NODE_VALUE_BYTES_MAX + 2];
    struct node node;
    json_t *j = node_write(&node_a);
    char *text = json_dumps(j, JSON_COMPACT);

    memset(value, ' ', sizeof(value));
    memcpy(value, text, strlen(text));
    free(text);
    json_decref(j);
    assert_true(node_read(value, NODE_VALUE_BYTES_MAX, "a", &node));
    assert_false(node_read(value, NODE_VALUE_BYTES_MAX + 1, "a", &node));
    assert_false(node_read(value, 10, "a", &node));
}

TEST(node_values_that_lie_are_refused)
{
    static const char *const values[] = {
        "{\"name\":\"a\",\"address\":\"h:1\",\"incarnation\":\"d5b2646159b219db\"}",
        "{\"name\":\"a\",\"address\":\"h:1\",\"incarnation\":\"d5b2646159b219db\",\"healthy\":1}",
        "{\"name\":\"a\",\"address\":\"h:1\",\"incarnation\":\"D5B2646159B219DB\",\"healthy\":"
        "true}",
        "{\"name\":\"a\",\"address\":\"h:1\",\"incarnation\":\"12\",\"healthy\":true}",
        "{\"name\":\"a\",\"address\":\"h\",\"incarnation\":\"d5b2646159b219db\",\"healthy\":true}",
        "{\"name\":\"a\",\"address\":\"h:0\",\"incarnation\":\"d5b2646159b219db\",\"healthy\":"
        "true}",
        "{\"name\":\"a\",\"address\":\"h:1\",\"incarnation\":\"d5b2646159b219db\",\"healthy\":true,"
        "\"capacity\":{\"pages\":-1}}",
        "{\"name\":\"a\",\"address\":\"h:1\",\"incarnation\":\"d5b2646159b219db\",\"healthy\":true,"
        "\"capacity\":{\"pages\":1e99}}",
        "{\"name\":\"a\",\"address\":\"h:1 "
        "reason=x\",\"incarnation\":\"d5b2646159b219db\",\"healthy\":true}",
    };
    static const char good[] =
        "{\"name\":\"a\",\"address\":\"h:01\",\"incarnation\":\"00000000000000ff\","
        "\"healthy\":true,\"later\":[1]}";
    struct node node = node_a;

    for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++) {
        if (node_read(values[i], strlen(values[i]), "a", &node))
            fail_msg("taken: %s", values[i]);
        assert_memory_equal(&node, &node_a, sizeof(node));
    }
    assert_false(node_read(good, strlen(good), "b", &node)); /* in somebody else's key */
    assert_true(
        node_read(good, strlen(good), "a", &node)); /* fields that it does not know are ignored */
    assert_string_equal(node.address, "h:1");
    assert_int_equal(node.incarnation, 0xff);
}

TEST(node_addresses_have_one_form)
{
    static const struct {
        const char *text, *is; /* NULL: none */
    } cases[] = {
        {"h:7000", "h:7000"},
        {"h:07000", "h:7000"},
        {"[h]:7000", "h:7000"},
        {"[::1]:1", "[::1]:1"},
        {"h:65535", "h:65535"},
        {"h:65536", NULL},
        {"h:0", NULL},
        {"h", NULL},
        {":1", NULL},
        {"h:", NULL},
        {"h:1x", NULL},
        {"h:-1", NULL},
        {"::1:7000", NULL},
        {"[::1:7000", NULL},
        {"[]:1", NULL},
        {"h h:1", NULL},
        {"h\n:1", NULL},
        {"h:000001", NULL},
        {"", NULL},
        {"h/x:1", NULL},
        {"-h:1", NULL},
        {"--proxy:1", NULL},
        {"h-:1", NULL},
        {"a.-b:1", NULL},
        {"a..b:1", NULL},
        {"a.b:1", "a.b:1"},
        {"[::x]:1", NULL},
    };
    char address[NODE_ADDRESS_BYTES], host[NODE_HOST_BYTES + 8];

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        if (node_address_read(cases[i].text, address) != (cases[i].is != NULL))
            fail_msg("'%s'", cases[i].text);
        if (cases[i].is)
            assert_string_equal(address, cases[i].is);
    }
    for (size_t i = 0; i < sizeof(host); i++)
        host[i] = i % 2 ? '.' : 'h';
    strcpy(host + HOST_NAME_CHARS_MAX, ":1");
    assert_true(node_address_read(host, address));
    strcpy(host + HOST_NAME_CHARS_MAX, ".h:1");
    assert_false(node_address_read(host, address));
}

/* ---- claims ---- */

#define KEY   "\"key\":\"L3Rlcm4vYS9ub2Rlcy9h\"" /* of node a */
#define OTHER "{" HEADER ",\"responses\":[{\"response_range\":"

TEST(gateway_a_claim_writes_over_the_known_revision_alone)
{
    json_t *claim = gateway_claim(PREFIX, &node_a, (struct claim_by){.lease = 7, .revision = 12});
    json_t *put = gateway_put(PREFIX, &node_a, 7);
    json_t *is = json_pack("{s:[{s:s, s:s, s:O, s:s}], s:[{s:O}], s:[{s:{s:O}}]}", "compare",
                           "target", "MOD", "result", "EQUAL", "key", json_object_get(put, "key"),
                           "mod_revision", "12", "success", "request_put", put, "failure",
                           "request_range", "key", json_object_get(put, "key"));

    assert_true(json_equal(claim, is));
    json_decref(is);
    json_decref(put);
    json_decref(claim);
}

TEST(gateway_claims_are_read)
{
    static const struct {
        const char *text;
        struct claim claim; /* without the node */
    } cases[] = {
        {"{" HEADER ",\"succeeded\":true,\"responses\":[{\"response_put\":{}}]}",
         {.written = true, .revision = 7}},
        {OTHER "{" HEADER "}}]}", {.revision = 0}}, /* the key is gone */
        {OTHER "{\"kvs\":[{" KEY ",\"mod_revision\":\"5\",\"lease\":\"9\"}]}}]}",
         {.revision = 5, .lease = 9}},
        {OTHER "{\"kvs\":[{" KEY ",\"mod_revision\":\"5\",\"value\":\"e30=\"}]}}]}",
         {.revision = 5}},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const struct claim *is = &cases[i].claim;
        struct claim claim = {.revision = 99};
        json_t *j = parse(cases[i].text);

        if (!gateway_claimed(j, PREFIX, &claim) || claim.written != is->written || claim.is_node ||
            claim.revision != is->revision || claim.lease != is->lease)
            fail_msg("%s", cases[i].text);
        json_decref(j);
    }
}

TEST(gateway_a_claim_tells_whose_the_key_is)
{
    json_t *row = row_of(&node_a, NULL), *answer;
    struct claim claim;

    json_object_set_new(row, "mod_revision", json_string("5"));
    answer = json_pack("{s:{s:s}, s:[{s:{s:[o]}}]}", "header", "revision", "7", "responses",
                       "response_range", "kvs", row);
    assert_true(gateway_claimed(answer, PREFIX, &claim));
    assert_true(claim.is_node && !claim.written);
    assert_true(node_same(&claim.node, &node_a));
    assert_int_equal(claim.lease, 1);
    json_decref(answer);
}

TEST(gateway_claims_that_are_none_are_refused)
{
    static const char *const answers[] = {
        "{}",
        "{\"succeeded\":true}",
        "{\"header\":{},\"succeeded\":true}",
        "{\"header\":{\"revision\":7},\"succeeded\":true}",
        "{" HEADER "}",
        "{" HEADER ",\"succeeded\":1}",
        "{" HEADER ",\"responses\":[]}",
        "{" HEADER ",\"responses\":[{\"response_put\":{}}]}",
        OTHER "[]}]}",
        OTHER "{\"kvs\":[{" KEY ",\"lease\":\"9\"}]}}]}",
        OTHER "{\"kvs\":[{" KEY ",\"mod_revision\":\"-5\"}]}}]}",
        OTHER "{\"kvs\":[{" KEY ",\"mod_revision\":\"5\",\"lease\":9}]}}]}",
        OTHER "{\"kvs\":[null]}}]}",
    };
    struct claim claim = {.revision = 99};

    for (size_t i = 0; i < sizeof(answers) / sizeof(answers[0]); i++) {
        json_t *j = parse(answers[i]);

        if (gateway_claimed(j, PREFIX, &claim))
            fail_msg("taken: %s", answers[i]);
        json_decref(j);
    }
    assert_int_equal(claim.revision, 99);
}

/* ---- leases and stamps ---- */

TEST(gateway_leases_are_read)
{
    struct lease lease = {.id = 5};
    json_t *j = parse("{" HEADER ",\"ID\":\"3392796113576110086\",\"TTL\":\"15\"}");

    assert_true(gateway_granted(j, &lease));
    assert_int_equal(lease.id, 3392796113576110086);
    assert_int_equal(lease.ttl_s, 15);
    assert_false(gateway_kept(j, &lease));
    json_decref(j);
    j = parse("{\"result\":{" HEADER ",\"ID\":\"12345\"}}");
    assert_true(gateway_kept(j, &lease));
    assert_int_equal(lease.ttl_s, 0);
    assert_false(gateway_granted(j, &lease));
    json_decref(j);
}

TEST(gateway_leases_that_are_none_are_refused)
{
    static const char *const answers[] = {
        "{}",
        "{\"ID\":\"0\",\"TTL\":\"15\"}",
        "{\"ID\":\"7\"}",
        "{\"ID\":7,\"TTL\":\"15\"}",
        "{\"ID\":\"7\",\"TTL\":\"99999999999\"}",
        "{\"ID\":\"-7\",\"TTL\":\"15\"}",
        "{\"ID\":\"\",\"TTL\":\"15\"}",
        "{\"ID\":\" 7\",\"TTL\":\"15\"}",
    };
    struct lease lease = {.id = 5, .ttl_s = 6};

    for (size_t i = 0; i < sizeof(answers) / sizeof(answers[0]); i++) {
        json_t *j = parse(answers[i]);

        if (gateway_granted(j, &lease))
            fail_msg("taken: %s", answers[i]);
        json_decref(j);
    }
    assert_int_equal(lease.id, 5);
}

TEST(gateway_stamps_are_read)
{
    static const struct {
        const char *text;
        bool ok;
        struct stamp stamp;
    } cases[] = {
        {"{" HEADER "}", true, {0, 0}},
        {"{" HEADER ",\"count\":\"3\",\"kvs\":[{\"mod_revision\":\"9\"}]}", true, {9, 3}},
        {"{" HEADER ",\"count\":\"3\"}", false, {0, 0}},
        {"{" HEADER ",\"kvs\":[{\"mod_revision\":\"9\"}]}", false, {0, 0}},
        {"{\"count\":\"3\",\"kvs\":[{\"mod_revision\":\"9\"}]}", false, {0, 0}},
        {"{" HEADER ",\"count\":\"3\",\"kvs\":[9]}", false, {0, 0}},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct stamp stamp = {1, 1};
        json_t *j = parse(cases[i].text);

        if (gateway_stamp(j, &stamp) != cases[i].ok)
            fail_msg("%s", cases[i].text);
        if (cases[i].ok)
            assert_memory_equal(&stamp, &cases[i].stamp, sizeof(stamp));
        json_decref(j);
    }
}

TEST(gateway_prefixes_are_paths)
{
    static const char *const wrong[] = {"", "/", "tern", "/tern/", "/te rn", "/tern\n", "/t\"x"};
    char longest[GATEWAY_PREFIX_BYTES + 1];

    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
        assert_false(gateway_prefix_ok(wrong[i]));
    memset(longest, 'a', sizeof(longest));
    longest[0] = '/';
    longest[GATEWAY_PREFIX_BYTES] = '\0';
    assert_false(gateway_prefix_ok(longest));
    longest[GATEWAY_PREFIX_BYTES - 1] = '\0';
    assert_true(gateway_prefix_ok(longest));
}

/* ---- the daemon's status ---- */

#define STATUS(draining, on)                                                                       \
    "{\"node\":\"a\",\"incarnation\":\"00000000000000aa\",\"draining\":" draining                  \
    ",\"memory\":{\"bytes\":10,\"device_bytes\":5},\"alarm_counts\":[{\"severity\":\"warn\","      \
    "\"on\":1},{\"severity\":\"error\",\"on\":" on "}],\"pools\":[{\"tier\":\"device\","           \
    "\"total\":10,\"free\":3,\"reclaimable\":4},{\"tier\":\"host\",\"total\":99,\"free\":99}]}"

TEST(local_health_is_what_status_tells)
{
    static const struct {
        const char *status;
        bool ok, healthy;
    } cases[] = {
        {STATUS("false", "0"), true, true},
        {STATUS("true", "0"), true, false},
        {STATUS("false", "1"), true, false},
        {"{}", false, true},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct node self = node_a;
        json_t *j = parse(cases[i].status);

        assert_int_equal(local_read_status(j, &self), cases[i].ok);
        assert_int_equal(self.healthy, cases[i].healthy);
        if (cases[i].ok) {
            assert_int_equal(self.incarnation, 0xaa);
            assert_int_equal(self.capacity.pages, 10);
            assert_int_equal(self.capacity.pages_free, 7);
            assert_int_equal(self.capacity.memory_bytes, 15);
        }
        json_decref(j);
    }
}
