/* Admin answers about a small core with two tenants: the keys that must exist, counts that add up,
 * lists that come whole in pages of any size, and nothing of one tenant told to another. */
#include "unit/rig/rig_host.h"
#include "unit/rig/rig_pair.h"
#include "unit/rig/rig_test.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

#include "shell/admin/admin.h"

#define TEXT_BYTES (1u << 20)

struct scene {
    struct bench b;
    struct rig_engine other; /* of tenant 1 */
    struct pool_id other_pool;
    struct rig_session *other_session;
    struct config *config;
    struct admin_ctx ctx;
    char *text;
    char why[ADMIN_WHY_BYTES]; /* of the last answer */
    uint64_t *bits;
};

static const char *peer_state_word(void *ctx, uint32_t peer, uint64_t *ret_incarnation)
{
    (void)ctx;
    *ret_incarnation = 0xf00dull << 48 | peer;
    return "up";
}

static const char *peer_down_cause(void *ctx, uint32_t peer, uint32_t *ret_attempts,
                                   uint64_t *ret_since_ns)
{
    const struct scene *s = ctx;

    (void)peer;
    *ret_attempts = 3;
    *ret_since_ns = s->ctx.now_ns - 2500000000u;
    return "Connection \"refused\"";
}

static const char *group_name(void *ctx, uint32_t pool, uint32_t group)
{
    (void)ctx;
    return pool == 0 && group == 0 ? "kv" : NULL;
}

static struct scene *scene_start(void)
{
    static const char yaml[] =
        "node: alpha\ninsecure_peers: true\nfaults: {corrupt_pages: 7}\n"
        "tenants:\n  - {name: first, socket: /tmp/1, memory: 4M}\n"
        "  - {name: second, socket: /tmp/2, memory: 4M}\n"
        "peers:\n  - {name: beta, address: \"[::1]:7001\", tenants: [second]}\n";
    struct scene *s = calloc(1, sizeof *s);
    char why[CONFIG_WHY_BYTES];

    s->b = bench_start(4, 32);
    s->other = rig_engine(s->b.rig, 1, "o", 2);
    s->other_pool = rig_pool_pages(s->b.rig, &s->other, 4, 16);
    s->other_session = rig_session(s->b.rig, &s->other, s->other_pool, 1);
    rig_put(s->b.rig, &s->b.e, s->b.pool, 5, 12);
    rig_put(s->b.rig, &s->other, s->other_pool, 6, 8);
    if (config_load_text("t", yaml, sizeof yaml - 1, &s->config, why, sizeof why) != TERN_OK)
        fail_msg("%s", why);
    s->text = malloc(TEXT_BYTES);
    s->bits = calloc((s->b.rig->options.limits.nodes + 63) / 64, sizeof *s->bits);
    s->ctx = (struct admin_ctx){.core = s->b.rig->core,
                                .config = s->config,
                                .start_ns = s->b.rig->now_ns,
                                .now_ns = s->b.rig->now_ns + 90000000000u,
                                .conns = 6,
                                .mem = {.bytes = 8 << 20, .huge_page_bytes = 2 << 20},
                                .xfer = {.payload_bytes_in = UINT64_MAX / 4, .corrupt_detected = 3},
                                .tape = {.recorded = 9},
                                .listen_port = 7001,
                                .peer_state_word = peer_state_word,
                                .group_name = group_name,
                                .node_bits = s->bits};
    return s;
}

static void scene_stop(struct scene *s)
{
    config_destroy(s->config);
    free(s->text);
    free(s->bits);
    free(s);
}

static enum tern_err ask_sized(struct scene *s, const char *command, const char *a, const char *b,
                               uint32_t tenant, size_t cap, json_t **ret)
{
    char *args[2] = {(char *)(uintptr_t)a, (char *)(uintptr_t)b};
    struct text_out out;
    enum tern_err err;

    text_init(&out, s->text, cap);
    err = admin_answer(&s->ctx, command, args, (size_t)(a != NULL) + (size_t)(b != NULL), tenant,
                       &out, s->why);
    if (err != TERN_OK) {
        assert_int_equal(out.len, 0);
        assert_int_equal(s->text[0], '\0');
        return err;
    }
    assert_true(text_whole(&out));
    *ret = json_loads(s->text, JSON_REJECT_DUPLICATES, NULL);
    if (*ret == NULL)
        fail_msg("not JSON: %s", s->text);
    return err;
}

static json_t *ask(struct scene *s, const char *command, uint32_t tenant)
{
    json_t *json = NULL;

    assert_int_equal(ask_sized(s, command, NULL, NULL, tenant, TEXT_BYTES, &json), TERN_OK);
    return json;
}

static uint64_t number_of(const json_t *object, const char *key)
{
    const json_t *v = json_object_get(object, key);

    if (!json_is_integer(v))
        fail_msg("%s is no number", key);
    return (uint64_t)json_integer_value(v);
}

static const char *string_of(const json_t *object, const char *key)
{
    const json_t *v = json_object_get(object, key);

    if (!json_is_string(v))
        fail_msg("%s is no string", key);
    return json_string_value(v);
}

/* ---- status ---- */

TEST(status_has_the_keys_and_its_pages_add_up)
{
    static const char *const parts[] = {"free",     "leased", "session",  "snapshot", "reclaimable",
                                        "transfer", "ticket", "retiring", "zeroing",  "quarantine"};
    struct scene *s = scene_start();
    json_t *status = ask(s, "status", NONE), *pools = json_object_get(status, "pools");
    const json_t *kv;

    assert_string_equal(string_of(status, "incarnation"), "0000000000001001");
    assert_int_equal(number_of(status, "uptime_s"), 90);
    assert_int_equal(number_of(status, "sessions"), 2);
    assert_int_equal(number_of(status, "prefix_nodes"), rig_view(s->b.rig).nodes);
    assert_int_equal(number_of(status, "peers"), 1);
    assert_int_equal(number_of(status, "peers_up"), 1);
    assert_int_equal(number_of(status, "links_up"), 0);
    assert_int_equal(number_of(status, "transfers_active"), 0);
    assert_true(json_is_object(json_object_get(status, "errors")));
    assert_int_equal(json_object_size(json_object_get(status, "errors")), TERN_ERR_COUNT - 1);
    assert_string_equal(string_of(json_array_get(json_object_get(status, "shares"), 0), "table"),
                        "engines");
    assert_true(json_is_true(json_object_get(status, "insecure_peers")));
    assert_int_equal(number_of(json_object_get(status, "fault_injection"), "corrupt_pages"), 7);
    assert_int_equal(number_of(json_object_get(status, "memory"), "huge_page_bytes"), 2 << 20);
    assert_int_equal(number_of(json_object_get(status, "data"), "corrupt_detected"), 3);
    assert_null(json_object_get(status, "core_hash"));
    assert_int_equal(json_array_size(pools), 2);
    for (size_t i = 0; i < 2; i++) {
        uint64_t sum = 0;

        for (size_t p = 0; p < sizeof parts / sizeof *parts; p++)
            sum += number_of(json_array_get(pools, i), parts[p]);
        assert_int_equal(sum, number_of(json_array_get(pools, i), "total"));
    }
    kv = json_array_get(pools, 0);
    assert_string_equal(string_of(kv, "group"), "kv");
    assert_string_equal(string_of(kv, "tenant"), "first");
    assert_int_equal(number_of(kv, "total"), 32);
    assert_int_equal(number_of(kv, "snapshot"), 3);
    assert_int_equal(number_of(kv, "free"), 29);
    assert_string_equal(string_of(json_array_get(pools, 1), "group"), "group0");
    json_decref(status);
    scene_stop(s);
}

TEST(status_counts_errors_and_tells_the_hash_when_asked)
{
    struct scene *s = scene_start();
    char wanted[32];
    json_t *status;

    rig_session_open(s->b.rig, s->b.e.conn[0], (struct pool_id){77, 77}, 1, s->b.s);
    status = NULL;
    assert_int_equal(ask_sized(s, "status", "hash=1", NULL, NONE, TEXT_BYTES, &status), TERN_OK);
    assert_int_equal(number_of(json_object_get(status, "errors"), "GONE"),
                     rig_view(s->b.rig).errors[TERN_GONE]);
    assert_true(number_of(json_object_get(status, "errors"), "GONE") > 0);
    snprintf(wanted, sizeof wanted, "%016llx", (unsigned long long)core_hash(s->b.rig->core));
    assert_string_equal(string_of(status, "core_hash"), wanted);
    json_decref(status);
    scene_stop(s);
}

/* ---- lists ---- */

TEST(lists_tell_what_is_there)
{
    struct scene *s = scene_start();
    json_t *json, *row;
    char id[32];

    json = ask(s, "sessions", NONE);
    row = json_array_get(json_object_get(json, "sessions"), 0);
    assert_int_equal(json_array_size(json_object_get(json, "sessions")), 2);
    snprintf(id, sizeof id, "%016llx", (unsigned long long)session_id_pack(s->b.s->id));
    assert_string_equal(string_of(row, "session"), id);
    assert_string_equal(string_of(row, "tenant"), "first");
    assert_string_equal(string_of(row, "engine"), "e");
    assert_int_equal(number_of(row, "committed"), 0);
    json_decref(json);

    json = ask(s, "engines", NONE);
    row = json_array_get(json_object_get(json, "engines"), 1);
    assert_string_equal(string_of(row, "name"), "o");
    assert_int_equal(number_of(row, "world"), 2);
    assert_int_equal(json_array_size(json_object_get(row, "done_step")), 2);
    json_decref(json);

    json = ask(s, "pools", NONE);
    row = json_array_get(json_object_get(json, "pools"), 0);
    assert_string_equal(string_of(row, "state"), "open");
    assert_string_equal(string_of(row, "engine"), "e");
    assert_int_equal(number_of(json_array_get(json_object_get(row, "groups"), 0), "total"), 32);
    json_decref(json);

    json = ask(s, "peers", NONE);
    row = json_array_get(json_object_get(json, "peers"), 0);
    assert_string_equal(string_of(row, "peer"), "beta");
    assert_string_equal(string_of(row, "host"), "::1");
    assert_string_equal(string_of(row, "incarnation"), "f00d000000000000");
    assert_string_equal(json_string_value(json_array_get(json_object_get(row, "tenants"), 0)),
                        "second");
    assert_true(json_is_null(json_object_get(row, "last_error")));
    assert_int_equal(number_of(row, "attempts"), 0);
    assert_true(json_is_null(json_object_get(row, "since_s")));
    json_decref(json);

    s->ctx.peer_down_cause = peer_down_cause;
    s->ctx.ctx = s;
    json = ask(s, "peers", NONE);
    row = json_array_get(json_object_get(json, "peers"), 0);
    assert_string_equal(string_of(row, "last_error"), "Connection \"refused\"");
    assert_int_equal(number_of(row, "attempts"), 3);
    assert_true(json_real_value(json_object_get(row, "since_s")) == 2.5);
    json_decref(json);

    json = ask(s, "transfers", NONE);
    assert_int_equal(json_array_size(json_object_get(json, "transfers")), 0);
    assert_true(json_is_null(json_object_get(json, "next")));
    json_decref(json);
    scene_stop(s);
}

TEST(tree_tells_the_path_of_a_prefix)
{
    struct scene *s = scene_start();
    json_t *json = ask(s, "tree", NONE), *rows = json_object_get(json, "tree"), *row;
    uint32_t pages = 0, roots = 0, deepest = 0;
    size_t i;

    assert_int_equal(json_array_size(rows), rig_view(s->b.rig).nodes);
    json_array_foreach(rows, i, row)
    {
        pages += (uint32_t)number_of(row, "pages");
        roots += json_is_null(json_object_get(row, "parent"));
        deepest = number_of(row, "depth") > deepest ? (uint32_t)number_of(row, "depth") : deepest;
        assert_int_equal(
            number_of(json_object_get(row, "refs"), "device"),
            json_is_null(json_object_get(row, "parent"))); /* of an open session without tokens */
        assert_true(json_is_true(json_object_get(row, "visible")));
    }
    assert_int_equal(pages, 3 + 2);
    assert_int_equal(roots, 2);
    assert_int_equal(deepest, 12);
    json_decref(json);

    assert_int_equal(ask_sized(s, "tree", "pool=1", NULL, NONE, TEXT_BYTES, &json), TERN_OK);
    json_array_foreach(json_object_get(json, "tree"), i, row)
        assert_int_equal(number_of(row, "pool"), 1);
    assert_int_equal(json_array_size(json_object_get(json, "tree")), 3);
    json_decref(json);
    scene_stop(s);
}

/* A transfer that is under way, on both sides. */
TEST(transfers_are_told_by_both_sides)
{
    struct pair p = pair_with(rig_defaults(), 4, 32, 32);
    struct scene *s = scene_start();
    struct rig_session *session;
    json_t *json = NULL, *row;
    struct node_view node;

    rig_put(p.source, &p.se, p.sp, 9, 16);
    session = rig_session(p.dest, &p.de, p.dp, 1);
    rig_match(session, rig_tokens(9, 16), 16);
    p.dest->automatic &= ~(uint32_t)RIG_PULL;
    rig_fetch(session, 0, 0);
    rig_settle(p.dest);

    s->ctx.core = p.dest->core;
    json = ask(s, "transfers", NONE);
    assert_int_equal(json_array_size(json_object_get(json, "transfers")), 1);
    row = json_array_get(json_object_get(json, "transfers"), 0);
    assert_string_equal(string_of(row, "direction"), "in");
    assert_string_equal(string_of(row, "peer"), "beta");
    assert_int_equal(number_of(row, "to"), 16);
    assert_int_equal(number_of(row, "pages"), 4);
    assert_int_equal(number_of(row, "pages_done"), 0);
    /* It holds what it builds upon: here the root. */
    assert_int_equal(strtoull(string_of(row, "node_id"), NULL, 16) & UINT32_MAX,
                     session_seen(session).node);
    json_decref(json);

    s->ctx.core = p.source->core;
    json = ask(s, "transfers", NONE);
    assert_int_equal(json_array_size(json_object_get(json, "transfers")), 1);
    row = json_array_get(json_object_get(json, "transfers"), 0);
    assert_string_equal(string_of(row, "direction"), "out");
    node = node_seen(p.source, p.sp, rig_tokens(9, 16), 16);
    assert_int_equal(strtoull(string_of(row, "node_id"), NULL, 16), node_id_pack(node.id));
    json_decref(json);

    s->ctx.core = s->b.rig->core;
    scene_stop(s);
}

static void assert_quarantine(struct scene *s, uint64_t oldest_ms, const char *peer, uint64_t pull,
                              uint64_t pages)
{
    json_t *json = ask(s, "status", NONE);
    const json_t *holder = json_object_get(json, "quarantine_holder");

    assert_int_equal(number_of(json, "quarantine_oldest_ms"), oldest_ms);
    assert_string_equal(string_of(holder, "peer"), peer);
    assert_int_equal(strtoull(string_of(holder, "transfer"), NULL, 16), pull);
    assert_int_equal(number_of(holder, "pages"), pages);
    json_decref(json);
}

/* The age grows by the clock alone: nothing needs to happen in the core for it. */
TEST(status_tells_how_long_quarantine_lasts_and_for_whom)
{
    struct pair p = pair_limited(1 << 20);
    struct scene *s = scene_start();
    struct pull_id pull;

    pair_offer(&p, 16);
    fetch_held(&p, RIG_PULL | RIG_PULL_STOP);
    pull = rig_job(p.dest, RIG_PULL, 0)->pull;
    s->ctx.core = p.dest->core;
    s->ctx.now_ns = p.dest->now_ns + 5000000;
    assert_quarantine(s, 0, "", 0, 0);
    assert_ok(rig_fetch_cancel(p.d));
    assert_quarantine(s, 5, "beta", pull_id_pack(pull), 4);
    s->ctx.now_ns = p.dest->now_ns + 12345678901;
    assert_quarantine(s, 12345, "beta", pull_id_pack(pull), 4);
    rig_complete(p.dest, RIG_PULL_STOP);
    assert_quarantine(s, 0, "", 0, 0);

    s->ctx.core = s->b.rig->core;
    scene_stop(s);
}

/* ---- tiers and refs ---- */

static json_t *node_row(const json_t *tree, struct node_id id)
{
    char wanted[32];
    json_t *row;
    size_t i;

    snprintf(wanted, sizeof wanted, "%016llx", (unsigned long long)node_id_pack(id));
    json_array_foreach(json_object_get(tree, "tree"), i, row)
    {
        if (strcmp(string_of(row, "id"), wanted) == 0)
            return row;
    }
    fail_msg("node %s is not told", wanted);
    return NULL;
}

static uint64_t refs_of(const json_t *row, const char *kind)
{
    return number_of(json_object_get(row, "refs"), kind);
}

static json_t *session_row(const json_t *answer, const struct rig_session *s)
{
    json_t *row;
    size_t i;

    json_array_foreach(json_object_get(answer, "sessions"), i, row)
    {
        if (strtoull(string_of(row, "session"), NULL, 16) == session_id_pack(s->id))
            return row;
    }
    fail_msg("the session is not told");
    return NULL;
}

/* Rows of another core than the scene's own. */
static struct scene *scene_of(struct bench *host)
{
    struct scene *s = scene_start();

    s->ctx.core = host->rig->core;
    s->ctx.now_ns = host->rig->now_ns;
    return s;
}

static void scene_of_stop(struct scene *s)
{
    s->ctx.core = s->b.rig->core;
    scene_stop(s);
}

/* A session goes away to the host: what its row, its node's and the pools' say before, and after.
 */
TEST(a_retracted_session_is_told_with_its_ref_and_since_when)
{
    struct bench host = host_bench(4, 16, 16);
    const uint32_t *tokens = rig_tokens(3, 12);
    struct scene *s = scene_of(&host);
    json_t *json, *row;

    rig_match(host.s, tokens, 12);
    rig_run_to(host.s, tokens, 12);
    rig_commit(host.s, 12, 1);
    rig_engine_done(host.rig, &host.e, 1);
    rig_advance(host.rig, 5000000000u);
    s->ctx.now_ns = host.rig->now_ns;
    json = ask(s, "sessions", NONE);
    assert_string_equal(string_of(session_row(json, host.s), "ref"), "device");
    json_decref(json);

    assert_ok(rig_retract(host.s, RETRACT_HOST, 0));
    rig_settle(host.rig);
    s->ctx.now_ns = host.rig->now_ns + 7000000000u;
    json = ask(s, "sessions", NONE);
    row = session_row(json, host.s);
    assert_string_equal(string_of(row, "state"), "retracted");
    assert_string_equal(string_of(row, "ref"), "host");
    assert_true(json_real_value(json_object_get(row, "ref_s")) == 7.0);
    assert_int_equal(strtoull(string_of(row, "node_id"), NULL, 16),
                     node_id_pack(node_seen(host.rig, host.pool, tokens, 12).id));
    json_decref(json);

    json = ask(s, "tree", NONE);
    row = node_row(json, node_seen(host.rig, host.pool, tokens, 12).id);
    assert_string_equal(string_of(row, "tier"), "both");
    assert_int_equal(number_of(row, "pages"), 1);
    assert_int_equal(number_of(row, "host_pages"), 1);
    assert_int_equal(refs_of(row, "host"), 1);
    assert_int_equal(refs_of(row, "device"), 0);
    json_decref(json);

    assert_int_equal(rig_evict(host.rig, host.admin, host.pool, 0), 3); /* the host's are pinned */
    json = ask(s, "tree", NONE);
    row = node_row(json, node_seen(host.rig, host.pool, tokens, 12).id);
    assert_string_equal(string_of(row, "tier"), "host");
    assert_int_equal(number_of(row, "pages"), 0);
    json_decref(json);
    scene_of_stop(s);
}

/* Pools: the host tier is a row of its own, the two name each other; status adds it up. */
TEST(host_tiers_are_pools_of_their_own)
{
    struct bench host = host_bench(4, 16, 12);
    struct scene *s = scene_of(&host);
    json_t *json, *row, *tier;
    uint64_t device, other;

    rig_put(host.rig, &host.e, host.pool, 3, 12);
    json = ask(s, "pools", NONE);
    assert_int_equal(json_array_size(json_object_get(json, "pools")), 2);
    row = json_array_get(json_object_get(json, "pools"), 0);
    tier = json_array_get(json_object_get(json, "pools"), 1);
    assert_string_equal(string_of(row, "tier"), "device");
    assert_string_equal(string_of(tier, "tier"), "host");
    assert_string_equal(string_of(row, "other_tier"), string_of(tier, "pool"));
    assert_string_equal(string_of(tier, "other_tier"), string_of(row, "pool"));
    json_decref(json);

    s->ctx.mem.copied_bytes = 1536;
    json = ask(s, "status", NONE);
    row = json_object_get(json, "host_tier");
    assert_int_equal(number_of(row, "host_copies"), 3);
    assert_int_equal(number_of(row, "host_copies_failed"), 0);
    assert_int_equal(number_of(row, "host_copies_again"), 0);
    assert_int_equal(number_of(row, "retracts_undone"), 0);
    assert_int_equal(number_of(row, "copied_bytes"), 1536);
    assert_int_equal(number_of(row, "bytes"), 512 * 13);
    device = number_of(json_array_get(json_object_get(json, "pools"), 0), "snapshot");
    other = number_of(json_array_get(json_object_get(json, "pools"), 1), "snapshot");
    assert_true(device == 3 && other == 3);
    json_decref(json);
    scene_of_stop(s);
}

/* Borrowed pages are counted once, however many sessions have them in their tables. */
TEST(borrowed_pages_and_pins_are_told)
{
    struct bench host = host_bench(4, 16, 0);
    const uint32_t *tokens = rig_tokens(3, 12);
    struct scene *s = scene_of(&host);
    struct rig_session *second;
    json_t *json, *row;
    struct node_id node;

    rig_put(host.rig, &host.e, host.pool, 3, 12);
    rig_match(host.s, tokens, 12);
    second = rig_session(host.rig, &host.e, host.pool, 1);
    rig_match(second, tokens, 8);
    json = ask(s, "pools", NONE);
    row = json_array_get(json_object_get(json, "pools"), 0);
    assert_true(json_is_null(json_object_get(row, "other_tier")));
    row = json_array_get(json_object_get(row, "groups"), 0);
    assert_int_equal(number_of(row, "borrowed"), 3);
    assert_int_equal(number_of(row, "snapshot"), 3);
    json_decref(json);

    node = node_seen(host.rig, host.pool, tokens, 8).id;
    assert_ok(rig_pin(host.rig, host.admin, node, true));
    s->ctx.now_ns = host.rig->now_ns + 2000000000u;
    json = ask(s, "tree", NONE);
    row = node_row(json, node);
    assert_int_equal(refs_of(row, "admin"), 1);
    assert_int_equal(refs_of(row, "device"), 1);
    assert_true(json_real_value(json_object_get(row, "admin_s")) == 2.0);
    row = node_row(json, node_seen(host.rig, host.pool, tokens, 4).id);
    assert_true(json_is_null(json_object_get(row, "admin_s")));
    json_decref(json);
    scene_of_stop(s);
}

/* ---- paging ---- */

/* Puts the pages of a list together; every page at most `limit` rows in at most `cap` bytes. */
static json_t *whole_list(struct scene *s, const char *command, const char *limit, size_t cap)
{
    json_t *all = json_array(), *json = NULL;
    char from[32] = "from=0";

    for (uint32_t page = 0; page < 1000; page++) {
        enum tern_err err = ask_sized(s, command, from, limit, NONE, cap, &json);
        const json_t *next;

        if (err == TERN_BUSY) {
            json_decref(all);
            return NULL;
        }
        assert_int_equal(err, TERN_OK);
        json_array_extend(all, json_object_get(json, command));
        next = json_object_get(json, "next");
        if (json_is_null(next)) {
            json_decref(json);
            return all;
        }
        snprintf(from, sizeof from, "from=%u", (uint32_t)json_integer_value(next));
        json_decref(json);
    }
    fail_msg("the pages of %s do not end", command);
    return all;
}

TEST(paged_lists_are_the_same_at_every_size)
{
    static const char *const commands[] = {"tree", "sessions", "pools", "engines"};
    struct scene *s = scene_start();

    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
        json_t *wanted = whole_list(s, commands[i], NULL, TEXT_BYTES), *got;
        uint32_t answered = 0;

        assert_true(json_array_size(wanted) >= 2);
        got = whole_list(s, commands[i], "limit=1", TEXT_BYTES);
        assert_true(json_equal(wanted, got));
        json_decref(got);
        for (size_t cap = 1; cap < 2000; cap += 7) {
            got = whole_list(s, commands[i], "limit=4096", cap);
            if (got == NULL) {
                assert_int_equal(answered, 0); /* only while the largest row does not fit */
                continue;
            }
            answered++;
            assert_true(json_equal(wanted, got));
            json_decref(got);
        }
        assert_true(answered > 100);
        json_decref(wanted);
    }
    scene_stop(s);
}

TEST(status_is_whole_or_busy_at_every_size)
{
    struct scene *s = scene_start();
    uint32_t busy = 0, whole = 0;
    json_t *json;

    for (size_t cap = 1; cap < 4096; cap += 11) {
        enum tern_err err = ask_sized(s, "status", NULL, NULL, NONE, cap, &json);

        busy += err == TERN_BUSY;
        whole += err == TERN_OK;
        assert_true(err == TERN_BUSY || err == TERN_OK);
        if (err == TERN_OK)
            json_decref(json);
    }
    assert_true(busy > 0 && whole > 0);
    scene_stop(s);
}

/* ---- tenants and bad questions ---- */

TEST(tenants_are_told_about_themselves_alone)
{
    static const char *const commands[] = {"status", "pools", "sessions", "engines"};
    struct scene *s = scene_start();
    json_t *json;

    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
        json = ask(s, commands[i], 1);
        assert_null(strstr(s->text, "first"));
        assert_null(strstr(s->text, "\"e\""));
        assert_non_null(strstr(s->text, i == 0 ? "group0" : "second"));
        json_decref(json);
    }
    json = ask(s, "status", 1);
    assert_int_equal(number_of(json, "sessions"), 1);
    assert_null(json_object_get(json, "prefix_nodes"));
    assert_null(json_object_get(json, "data"));
    json_decref(json);
    assert_int_equal(ask_sized(s, "tree", NULL, NULL, 1, TEXT_BYTES, &json), TERN_DENIED);
    assert_int_equal(ask_sized(s, "transfers", NULL, NULL, 1, TEXT_BYTES, &json), TERN_DENIED);
    assert_int_equal(ask_sized(s, "peers", NULL, NULL, 1, TEXT_BYTES, &json), TERN_DENIED);
    scene_stop(s);
}

TEST(questions_that_are_wrong_are_refused)
{
    static const char *const bad[] = {
        "from=", "from=x", "from=-1", "from=4294967296", "limit=0", "limit=4097", "zork=1",
        "from",  "",       "pool=1x", "fromm=1",         "fro=1",   "hash=2"};
    struct scene *s = scene_start();
    json_t *json = NULL;

    assert_int_equal(ask_sized(s, "zork", NULL, NULL, NONE, TEXT_BYTES, &json), TERN_UNSUPPORTED);
    assert_int_equal(ask_sized(s, "", NULL, NULL, NONE, TEXT_BYTES, &json), TERN_UNSUPPORTED);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(ask_sized(s, "tree", bad[i], NULL, NONE, TEXT_BYTES, &json), TERN_INVALID);
        assert_true(s->why[0] != '\0');
    }
    ask_sized(s, "tree", "limit=2", "zork=1", NONE, TEXT_BYTES, &json);
    assert_string_equal(s->why, "tree takes no 'zork': it takes from=, limit=, pool=, hash=");
    ask_sized(s, "tree", "pool=1x", NULL, NONE, TEXT_BYTES, &json);
    assert_string_equal(s->why, "pool=1x: that is no number from 0 to 4294967294");
    assert_int_equal(ask_sized(s, "tree", "from=4294967295", NULL, NONE, TEXT_BYTES, &json),
                     TERN_OK);
    assert_int_equal(json_array_size(json_object_get(json, "tree")), 0);
    json_decref(json);
    scene_stop(s);
}

/* Asking must not change anything: the arena is the same after every question. */
TEST(questions_change_nothing)
{
    static const char *const commands[] = {"status", "pools",     "sessions", "engines",
                                           "peers",  "transfers", "tree"};
    struct scene *s = scene_start();
    uint64_t before = core_hash(s->b.rig->core);

    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++)
        json_decref(ask(s, commands[i], NONE));
    assert_true(core_hash(s->b.rig->core) == before);
    scene_stop(s);
}
