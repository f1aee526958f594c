/* Admin answers about a small core with two tenants: the keys that must exist, counts that add up,
 * lists that come whole in pages of any size, and nothing of one tenant told to another. */
#include "unit/rig/rig_host.h"
#include "unit/rig/rig_pair.h"
#include "unit/rig/rig_record.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

#include "shell/admin/admin.h"

#define TEXT_BYTES (1u << 20)

/* The case's. */
static struct scene {
    struct bench b;
    struct rig_engine other; /* of tenant 1 */
    struct pool_id other_pool;
    struct rig_session *other_session;
    struct config *config;
    struct admin_ctx ctx;
    char *text;
    char why[ADMIN_WHY_BYTES]; /* of the last answer */
    uint64_t *bits;
    uint32_t visits;
    json_t *answer; /* the last */
} s;

static const char *peer_state_word(void *ctx, uint32_t peer, uint64_t *ret_incarnation)
{
    (void)ctx;
    *ret_incarnation = 0xf00dull << 48 | peer;
    return "up";
}

static const char *peer_down_cause(void *ctx, uint32_t peer, uint32_t *ret_attempts,
                                   uint64_t *ret_since_ns)
{
    (void)ctx;
    (void)peer;
    *ret_attempts = 3;
    *ret_since_ns = s.ctx.now_ns - 2500000000u;
    return "Connection \"refused\"";
}

static struct refusals refused_to[2];

static const struct refusals *refusals_of(void *ctx, uint32_t tenant)
{
    (void)ctx;
    return &refused_to[tenant];
}

static uint64_t pid_of(void *ctx, uint32_t proc)
{
    (void)ctx;
    return 4000 + proc;
}

static const char *group_name(void *ctx, uint32_t pool, uint32_t group)
{
    (void)ctx;
    return pool == 0 && group == 0 ? "kv" : NULL;
}

FIXTURE(scene_start)
{
    static const char yaml[] =
        "node: alpha\ninsecure_peers: true\nfaults: {corrupt_pages: 7}\n"
        "tenants:\n  - {name: first, socket: /tmp/1, memory: 4M}\n"
        "  - {name: second, socket: /tmp/2, memory: 4M}\n"
        "peers:\n  - {name: beta, address: \"[::1]:7001\", tenants: [second]}\n";
    char why[CONFIG_WHY_BYTES];

    rig_test_setup(NULL);
    s = (struct scene){.b = bench_start(4, 32)};
    s.other = rig_engine(s.b.rig, 1, "o", 2);
    s.other_pool = rig_pool_pages(s.b.rig, &s.other, 4, 16);
    s.other_session = rig_session(s.b.rig, &s.other, s.other_pool, 1);
    rig_put(s.b.rig, &s.b.e, s.b.pool, 5, 12);
    rig_put(s.b.rig, &s.other, s.other_pool, 6, 8);
    if (config_load_text("t", yaml, sizeof yaml - 1, &s.config, why, sizeof why) != TERN_OK)
        fail_msg("%s", why);
    s.text = malloc(TEXT_BYTES);
    s.bits = calloc((s.b.rig->options.limits.nodes + 63) / 64, sizeof *s.bits);
    s.ctx = (struct admin_ctx){.core = s.b.rig->core,
                               .config = s.config,
                               .start_ns = s.b.rig->now_ns,
                               .now_ns = s.b.rig->now_ns + 90000000000u,
                               .conns = 6,
                               .mem = {.bytes = 8 << 20, .huge_page_bytes = 2 << 20},
                               .xfer = {.payload_bytes_in = UINT64_MAX / 4, .corrupt_detected = 3},
                               .tape = {.recorded = 9},
                               .listen_port = 7001,
                               .peer_state_word = peer_state_word,
                               .refusals = refusals_of,
                               .proc_pid = pid_of,
                               .group_name = group_name,
                               .node_bits = s.bits,
                               .visits = &s.visits};
    s.visits = ADMIN_VISITS_MAX;
    memset(refused_to, 0, sizeof refused_to);
    return 0;
}

FIXTURE(scene_stop)
{
    config_destroy(s.config);
    free(s.text);
    free(s.bits);
    json_decref(s.answer);
    return rig_test_teardown(NULL);
}

TEST_EACH(scene_start, scene_stop);

/* The answer is kept until the next one is asked for. */
static enum tern_err ask_sized(const char *command, const char *a, const char *b, uint32_t tenant,
                               size_t cap)
{
    char *args[2] = {(char *)(uintptr_t)a, (char *)(uintptr_t)b};
    struct text_out out;
    enum tern_err err;

    json_decref(s.answer);
    s.answer = NULL;
    text_init(&out, s.text, cap);
    err = admin_answer(&s.ctx, command, args, (size_t)(a != NULL) + (size_t)(b != NULL), tenant,
                       &out, s.why);
    if (err != TERN_OK) {
        assert_int_equal(out.len, 0);
        assert_int_equal(s.text[0], '\0');
        return err;
    }
    assert_true(text_whole(&out));
    s.answer = json_loads(s.text, JSON_REJECT_DUPLICATES, NULL);
    if (!s.answer)
        fail_msg("not JSON: %s", s.text);
    return err;
}

static enum tern_err ask_with(const char *command, const char *arg, uint32_t tenant)
{
    return ask_sized(command, arg, NULL, tenant, TEXT_BYTES);
}

static json_t *ask(const char *command)
{
    assert_ok(ask_with(command, NULL, NONE));
    return s.answer;
}

/* The rows of a list, which bears its command's name. */
static json_t *rows_of(const char *command)
{
    return json_object_get(ask(command), command);
}

/* Of the only row, or of one of `n`. */
static json_t *row_of(const char *command, size_t at, size_t n)
{
    json_t *rows = rows_of(command);

    assert_int_equal(json_array_size(rows), n);
    return json_array_get(rows, at);
}

/* Of objects all members that are wanted, of arrays each entry, everything else as it is. */
static bool holds(const json_t *got, const json_t *wanted)
{
    const char *key;
    json_t *member;

    if (json_is_array(wanted)) {
        size_t n = json_array_size(wanted);

        for (size_t i = 0; i < n; i++)
            if (!holds(json_array_get(got, i), json_array_get(wanted, i)))
                return false;
        return json_array_size(got) == n;
    }
    if (!json_is_object(wanted))
        return json_equal(got, wanted);
    json_object_foreach((json_t *)(uintptr_t)wanted, key,
                        member) if (!holds(json_object_get(got, key), member)) return false;
    return true;
}

/* `format` is JSON with ' for ", and \\' for what is to be escaped. */
__attribute__((format(printf, 3, 4))) static void tells_at(int line, const json_t *got,
                                                           const char *format, ...)
{
    char text[1024];
    json_t *wanted;
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    for (char *c = text; *c; c++)
        if (*c == '\'')
            *c = '"';
    wanted = json_loads(text, JSON_DECODE_ANY, NULL);
    if (!wanted || !holds(got, wanted))
        fail_msg("line %d: wanted %s, got %s", line, text, json_dumps(got, JSON_ENCODE_ANY));
    json_decref(wanted);
}

#define tells(...) tells_at(__LINE__, __VA_ARGS__)

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

static uint64_t id_of(const json_t *object, const char *key)
{
    return strtoull(string_of(object, key), NULL, 16);
}

/* Whose turns leave records: the session of tenant 1. */
static struct recorder recorder_of_other(void)
{
    return (struct recorder){.rig = s.b.rig,
                             .conn = s.other.conn[0],
                             .tenant = 1,
                             .session = s.other_session->id,
                             .seed = 1};
}

/* A session of the bench's engine is handed over, 8 tokens, with 5 bytes. */
static struct ticket ticket_stands(void)
{
    struct rig_session *t = rig_committed(s.b.rig, &s.b.e, s.b.pool, 77, 8);
    struct request request = {.op = OP_HANDOFF,
                              .handoff = {.session = t->id,
                                          .blob_bytes = 5,
                                          .blob = {.v = (const uint32_t[]){1, 2}, .n = 2}}};

    assert_ok(rig_request(s.b.rig, t->conn, &request)->err);
    return s.b.rig->last->handoff.ticket;
}

/* ---- status ---- */

TEST(status_has_the_keys_and_its_pages_add_up)
{
    static const char *const parts[] = {"free",     "leased", "session",  "snapshot", "reclaimable",
                                        "transfer", "ticket", "retiring", "zeroing",  "quarantine"};
    json_t *status = ask("status"), *pools = json_object_get(status, "pools"), *pool;
    size_t i;

    tells(status,
          "{'incarnation': '0000000000001001', 'uptime_s': 90, 'sessions': 2, 'prefix_nodes': %u,"
          " 'peers': 1, 'peers_up': 1, 'links_up': 0, 'transfers_active': 0,"
          " 'insecure_peers': true, 'errors': {}, 'fault_injection': {'corrupt_pages': 7},"
          " 'memory': {'huge_page_bytes': %u}, 'data': {'corrupt_detected': 3}}",
          rig_view(s.b.rig).nodes, 2 << 20);
    assert_int_equal(json_object_size(json_object_get(status, "errors")), TERN_ERR_COUNT - 1);
    tells(json_array_get(json_object_get(status, "shares"), 0), "{'table': 'engines'}");
    assert_null(json_object_get(status, "core_hash"));
    json_array_foreach(pools, i, pool)
    {
        uint64_t sum = 0;

        for (size_t p = 0; p < sizeof parts / sizeof *parts; p++)
            sum += number_of(pool, parts[p]);
        assert_int_equal(sum, number_of(pool, "total"));
    }
    tells(pools, "[{'group': 'kv', 'tenant': 'first', 'total': 32, 'snapshot': 3, 'free': 29},"
                 " {'group': 'group0'}]");
}

/* Operators hear of each, and a tenant of itself alone. */
TEST(status_tells_what_each_tenant_was_refused)
{
    const struct op_result results[] = {
        {.err = TERN_OK}, {.err = TERN_POOL_EXHAUSTED}, {.err = TERN_QUOTA, .text = "too many"}};
    const struct reply step = {.op = OP_STEP, .text = "", .step = {.results = results, .n = 3}},
                       good = {.op = OP_PEEK, .text = ""}, bad = {.op = OP_STEP, .err = TERN_GONE};

    refusals_note(&refused_to[1], &step, s.ctx.now_ns - 2500000000u);
    refusals_note(&refused_to[1], &good, s.ctx.now_ns);
    assert_ok(ask_with("status", NULL, NONE));
    tells(json_object_get(s.answer, "refusals"),
          "[{'tenant': 'first', 'last': null, 'last_s': null},"
          " {'tenant': 'second', 'errors': {'POOL_EXHAUSTED': 1, 'QUOTA': 1, 'GONE': 0},"
          " 'last': 'QUOTA', 'last_op': 'step', 'last_text': 'too many', 'last_s': 2.5}]");
    refusals_note(&refused_to[1], &bad, s.ctx.now_ns);
    assert_ok(ask_with("status", NULL, 1));
    tells(s.answer, "{'errors': {'QUOTA': 1, 'GONE': 1}}");
    assert_null(json_object_get(s.answer, "refusals"));
    assert_ok(ask_with("status", NULL, 0));
    tells(s.answer, "{'errors': {'QUOTA': 0, 'GONE': 0}}");
}

TEST(status_counts_errors_and_tells_the_hash_when_asked)
{
    rig_session_open(s.b.rig, s.b.e.conn[0], (struct pool_id){77, 77}, 1, s.b.s);
    assert_ok(ask_with("status", "hash=1", NONE));
    assert_true(rig_view(s.b.rig).errors[TERN_GONE] > 0);
    tells(s.answer, "{'errors': {'GONE': %llu}, 'core_hash': '%016llx'}",
          (unsigned long long)rig_view(s.b.rig).errors[TERN_GONE],
          (unsigned long long)core_hash(s.b.rig->core));
}

/* ---- lists ---- */

TEST(lists_tell_what_is_there)
{
    tells(row_of("sessions", 0, 2),
          "{'session': '%016llx', 'tenant': 'first', 'engine': 'e', 'committed': 0}",
          (unsigned long long)session_id_pack(s.b.s->id));
    tells(row_of("engines", 1, 2), "{'name': 'o', 'world': 2}");
    assert_int_equal(json_array_size(json_object_get(row_of("engines", 1, 2), "done_step")), 2);
    assert_int_equal(json_array_size(json_object_get(row_of("engines", 1, 2), "pids")), 2);
    tells(row_of("pools", 0, 2), "{'state': 'open', 'engine': 'e', 'groups': [{'total': 32}]}");
    tells(row_of("peers", 0, 1),
          "{'peer': 'beta', 'host': '::1', 'incarnation': 'f00d000000000000',"
          " 'tenants': ['second'], 'last_error': null, 'attempts': 0, 'since_s': null}");
    s.ctx.peer_down_cause = peer_down_cause;
    tells(row_of("peers", 0, 1),
          "{'last_error': 'Connection \\'refused\\'', 'attempts': 3, 'since_s': 2.5}");
    tells(ask("transfers"), "{'transfers': [], 'next': null}");
}

TEST(tree_tells_the_path_of_a_prefix)
{
    json_t *rows = rows_of("tree"), *row;
    uint32_t pages = 0, roots = 0, deepest = 0;
    size_t i;

    assert_int_equal(json_array_size(rows), rig_view(s.b.rig).nodes);
    json_array_foreach(rows, i, row)
    {
        bool root = json_is_null(json_object_get(row, "parent"));

        pages += (uint32_t)number_of(row, "pages");
        roots += root;
        deepest = number_of(row, "depth") > deepest ? (uint32_t)number_of(row, "depth") : deepest;
        /* A root is held by an open session without tokens. */
        tells(row, "{'refs': {'device': %d}, 'visible': true}", root);
    }
    assert_int_equal(pages, 3 + 2);
    assert_int_equal(roots, 2);
    assert_int_equal(deepest, 12);
    assert_ok(ask_with("tree", "pool=1", NONE));
    tells(s.answer, "{'tree': [{'pool': 1}, {'pool': 1}, {'pool': 1}]}");
}

/* A transfer that is under way, on both sides. */
TEST(transfers_are_told_by_both_sides)
{
    struct pair p = pair_with(rig_defaults(), 4, 32, 32);
    struct rig_session *session;
    struct node_view node;
    const json_t *row;

    rig_put(p.source, &p.se, p.sp, 9, 16);
    session = rig_session(p.dest, &p.de, p.dp, 1);
    rig_match(session, rig_tokens(9, 16), 16);
    p.dest->automatic &= ~(uint32_t)RIG_PULL;
    rig_fetch(session, 0, 0);
    rig_settle(p.dest);

    s.ctx.core = p.dest->core;
    row = row_of("transfers", 0, 1);
    tells(row, "{'direction': 'in', 'peer': 'beta', 'to': 16, 'pages': 4, 'pages_done': 0}");
    /* It holds what it builds upon: here the root. */
    assert_int_equal(id_of(row, "node_id") & UINT32_MAX, session_seen(session).node);

    s.ctx.core = p.source->core;
    row = row_of("transfers", 0, 1);
    tells(row, "{'direction': 'out'}");
    node = node_seen(p.source, p.sp, rig_tokens(9, 16), 16);
    assert_int_equal(id_of(row, "node_id"), node_id_pack(node.id));
}

static void assert_quarantine(uint64_t oldest_ms, const char *peer, uint64_t pull, uint64_t pages)
{
    const json_t *status = ask("status");

    tells(status,
          "{'quarantine_oldest_ms': %llu, 'quarantine_holder': {'peer': '%s', 'pages': %llu}}",
          (unsigned long long)oldest_ms, peer, (unsigned long long)pages);
    assert_int_equal(id_of(json_object_get(status, "quarantine_holder"), "transfer"), pull);
}

/* E8: an engine is told of while something waits for its steps too long, to its tenant too. */
TEST(status_tells_which_engines_have_lost_a_process)
{
    tells(ask("status"), "{'engines_stuck': []}");
    rig_engine_kill(s.b.rig, &s.other, 0);
    tells(ask("status"), "{'engines_stuck': [{'engine': 'o', 'tenant': 'second'}]}");
    assert_int_equal(json_array_size(json_object_get(
                         json_array_get(json_object_get(s.answer, "engines_stuck"), 0), "pids")),
                     1);
    assert_ok(ask_with("status", NULL, 0)); /* the other tenant */
    tells(s.answer, "{'engines_stuck': []}");
    rig_engine_kill(s.b.rig, &s.other, 1);
    tells(ask("status"), "{'engines_stuck': []}");
}

TEST(status_tells_which_engines_do_not_step)
{
    uint64_t limit_ns = (uint64_t)s.config->deadlines.step_alarm_ms * 1000000;

    computes(s.b.s, 1, 16);
    assert_ok(rig_close(s.b.s, 7));
    s.ctx.now_ns = s.b.rig->now_ns + limit_ns - 1;
    tells(ask("status"), "{'steps_overdue': []}");
    s.ctx.now_ns++;
    tells(ask("status"),
          "{'steps_overdue': [{'engine': 'e', 'tenant': 'first', 'rank': 0, 'done_step': 0,"
          " 'named_step': 7, 'jumped': false, 'waiting_ms': %u}]}",
          s.config->deadlines.step_alarm_ms);
    assert_ok(ask_with("status", NULL, 1)); /* the other tenant */
    tells(s.answer, "{'steps_overdue': []}");
    s.ctx.now_ns = s.b.rig->now_ns; /* one that jumped is told of at once */
    rig_step_done(s.b.rig, s.b.e.id, 0, UINT64_MAX);
    tells(ask("status"), "{'steps_overdue': [{'done_step': %lld, 'jumped': true}]}",
          (long long)INT64_MAX);
    tells(row_of("engines", 0, 2), "{'jumps': 1, 'named_step': 7, 'done_step': [%lld]}",
          (long long)INT64_MAX);
    rig_step_done(s.b.rig, s.b.e.id, 0, 7);
    tells(ask("status"), "{'steps_overdue': []}");
}

/* The age grows by the clock alone: nothing needs to happen in the core for it. */
TEST(status_tells_how_long_quarantine_lasts_and_for_whom)
{
    struct pair p = pair_limited(1 << 20);
    struct pull_id pull;

    pair_offer(&p, 16);
    fetch_held(&p, RIG_PULL | RIG_PULL_STOP);
    pull = rig_job(p.dest, RIG_PULL, 0)->pull;
    s.ctx.core = p.dest->core;
    s.ctx.now_ns = p.dest->now_ns + 5000000;
    assert_quarantine(0, "", 0, 0);
    assert_ok(rig_fetch_cancel(p.d));
    assert_quarantine(5, "beta", pull_id_pack(pull), 4);
    s.ctx.now_ns = p.dest->now_ns + 12345678901;
    assert_quarantine(12345, "beta", pull_id_pack(pull), 4);
    rig_complete(p.dest, RIG_PULL_STOP);
    assert_quarantine(0, "", 0, 0);
}

/* ---- tiers and refs ---- */

/* The row of that list whose `key` is the id. */
static json_t *row_with(const char *command, const char *key, uint64_t id)
{
    json_t *row;
    size_t i;

    json_array_foreach(rows_of(command), i, row)
    {
        if (id_of(row, key) == id)
            return row;
    }
    fail_msg("%s do not tell of %016llx", command, (unsigned long long)id);
    return NULL;
}

static json_t *node_row(const struct bench *b, const uint32_t *tokens, uint32_t depth)
{
    struct node_view node = node_seen(b->rig, b->pool, tokens, depth);

    return row_with("tree", "id", node_id_pack(node.id));
}

static json_t *session_row(const struct rig_session *of)
{
    return row_with("sessions", "session", session_id_pack(of->id));
}

/* Rows of another core than the scene's own. */
static void scene_of(const struct bench *host)
{
    s.ctx.core = host->rig->core;
    s.ctx.now_ns = host->rig->now_ns;
}

/* A session goes away to the host: what its row, its node's and the pools' say before, and after.
 */
TEST(a_retracted_session_is_told_with_its_ref_and_since_when)
{
    struct bench host = host_bench(4, 16, 16);
    const uint32_t *tokens = rig_tokens(3, 12);

    scene_of(&host);
    computes_tokens(host.s, tokens, 12);
    rig_commit(host.s, 12, 1);
    rig_engine_done(host.rig, &host.e, 1);
    rig_advance(host.rig, 5000000000u);
    s.ctx.now_ns = host.rig->now_ns;
    tells(session_row(host.s), "{'ref': 'device'}");

    assert_ok(rig_retract(host.s, RETRACT_HOST, 0));
    rig_settle(host.rig);
    s.ctx.now_ns = host.rig->now_ns + 7000000000u;
    tells(session_row(host.s),
          "{'state': 'retracted', 'ref': 'host', 'ref_s': 7.0, 'node_id': '%016llx'}",
          (unsigned long long)node_id_pack(node_seen(host.rig, host.pool, tokens, 12).id));
    tells(node_row(&host, tokens, 12), "{'tier': 'both', 'pages': 1, 'host_pages': 1,"
                                       " 'refs': {'host': 1, 'device': 0}}");
    assert_int_equal(rig_evict(host.rig, host.admin, host.pool, 0), 3); /* the host's are pinned */
    tells(node_row(&host, tokens, 12), "{'tier': 'host', 'pages': 0}");
}

/* Pools: the host tier is a row of its own, the two name each other; status adds it up. */
TEST(host_tiers_are_pools_of_their_own)
{
    struct bench host = host_bench(4, 16, 12);
    const json_t *pools;

    scene_of(&host);
    rig_put(host.rig, &host.e, host.pool, 3, 12);
    pools = rows_of("pools");
    tells(pools, "[{'tier': 'device', 'other_tier': '%s'}, {'tier': 'host', 'other_tier': '%s'}]",
          string_of(json_array_get(pools, 1), "pool"), string_of(json_array_get(pools, 0), "pool"));
    s.ctx.mem.copied_bytes = 1536;
    tells(ask("status"),
          "{'host_tier': {'host_copies': 3, 'host_copies_failed': 0, 'host_copies_again': 0,"
          "               'retracts_undone': 0, 'copied_bytes': 1536, 'bytes': %d},"
          " 'pools': [{'snapshot': 3}, {'snapshot': 3}]}",
          512 * 13);
}

/* Borrowed pages are counted once, however many sessions have them in their tables, and not where
 * that would take too long. */
TEST(borrowed_pages_and_pins_are_told)
{
    struct bench host = host_bench(4, 16, 0);
    const uint32_t *tokens = rig_tokens(3, 12);
    struct rig_session *second;

    scene_of(&host);
    rig_put(host.rig, &host.e, host.pool, 3, 12);
    rig_match(host.s, tokens, 12);
    second = rig_session(host.rig, &host.e, host.pool, 1);
    rig_match(second, tokens, 8);
    tells(row_of("pools", 0, 1),
          "{'other_tier': null, 'groups': [{'borrowed': 3, 'snapshot': 3}]}");
    s.visits = 3; /* as many as there are, then one fewer */
    tells(row_of("pools", 0, 1), "{'groups': [{'borrowed': 3}]}");
    s.visits = 2;
    tells(row_of("pools", 0, 1), "{'groups': [{'borrowed': null, 'snapshot': 3}]}");
    s.visits = 3;
    tells(row_of("pools", 0, 1), "{'groups': [{'borrowed': 3}]}");
    assert_ok(rig_pin(host.rig, host.admin, node_seen(host.rig, host.pool, tokens, 8).id, true));
    s.ctx.now_ns = host.rig->now_ns + 2000000000u;
    tells(node_row(&host, tokens, 8), "{'refs': {'admin': 1, 'device': 1}, 'admin_s': 2.0}");
    tells(node_row(&host, tokens, 4), "{'admin_s': null}");
}

/* ---- paging ---- */

/* Puts the pages of a list together; every page at most `limit` rows in at most `cap` bytes. */
static json_t *whole_list(const char *command, const char *limit, size_t cap)
{
    json_t *all = json_array();
    char from[32] = "from=0";

    for (uint32_t page = 0; page < 1000; page++) {
        enum tern_err err = ask_sized(command, from, limit, NONE, cap);
        const json_t *next;

        if (err == TERN_BUSY) {
            json_decref(all);
            return NULL;
        }
        assert_ok(err);
        json_array_extend(all, json_object_get(s.answer, command));
        next = json_object_get(s.answer, "next");
        if (json_is_null(next))
            return all;
        snprintf(from, sizeof from, "from=%u", (uint32_t)json_integer_value(next));
    }
    fail_msg("the pages of %s do not end", command);
    return all;
}

TEST(paged_lists_are_the_same_at_every_size)
{
    static const char *const commands[] = {"tree", "sessions", "pools", "engines"};

    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
        json_t *wanted = whole_list(commands[i], NULL, TEXT_BYTES), *got;
        uint32_t answered = 0;

        assert_true(json_array_size(wanted) >= 2);
        got = whole_list(commands[i], "limit=1", TEXT_BYTES);
        assert_true(json_equal(wanted, got));
        json_decref(got);
        for (size_t cap = 1; cap < 2000; cap += 7) {
            got = whole_list(commands[i], "limit=4096", cap);
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
}

TEST(status_is_whole_or_busy_at_every_size)
{
    uint32_t busy = 0, whole = 0;

    for (size_t cap = 1; cap < 8192; cap += 11) {
        enum tern_err err = ask_sized("status", NULL, NULL, NONE, cap);

        busy += err == TERN_BUSY;
        whole += err == TERN_OK;
        assert_true(err == TERN_BUSY || err == TERN_OK);
    }
    assert_true(busy > 0 && whole > 0);
}

/* Appends the keys in their order; of an array, those of its first row. */
static void put_keys(const json_t *v, char *keys)
{
    const char *key;
    json_t *member;

    v = json_is_array(v) ? json_array_get(v, 0) : v;
    json_object_foreach((json_t *)(uintptr_t)v, key, member)
    {
        size_t at = strlen(keys);

        sprintf(keys + at, "%s%s", at && keys[at - 1] != '(' ? " " : "", key);
        if (!json_is_object(member) && !json_is_array(member))
            continue;
        strcat(keys, "(");
        put_keys(member, keys);
        strcat(keys, ")");
    }
}

static bool peer_tls(void *ctx, uint32_t peer, struct tls_peer *ret)
{
    (void)ctx;
    (void)peer;
    *ret = (struct tls_peer){.version = "TLSv1.3", .not_after = "2031-11-29T08:35:07Z"};
    return true;
}

static const uint64_t *peer_refused(void *ctx, uint32_t peer)
{
    static const uint64_t none[TLS_REFUSALS];

    (void)ctx;
    (void)peer;
    return none;
}

static bool peer_path(void *ctx, uint32_t peer, uint32_t i, struct xfer_path_view *ret)
{
    (void)ctx;
    (void)peer;
    *ret = (struct xfer_path_view){.device = "rdma0"};
    return i == 0;
}

static bool send_share(void *ctx, uint32_t i, const char **ret_name, struct stream_share *ret)
{
    (void)ctx;
    *ret_name = "first";
    *ret = (struct stream_share){.reserved = 1};
    return i == 0;
}

static bool door(void *ctx, uint32_t i, const char **ret_name, struct door_stats *ret)
{
    (void)ctx;
    *ret_name = "data";
    *ret = (struct door_stats){.places = 1};
    return i == 0;
}

/* Programs read these: a key that goes is missed by somebody. */
#define SPILL                                                                                      \
    "spill(dir direct encrypted state error budget_bytes used_bytes free_bytes headroom_bytes "    \
    "files_written bytes_written extents_read bytes_read write_errors read_errors corrupt "        \
    "dropped_files punched_bytes syncs recovery(ms files extents bytes holes unfinished "          \
    "removed_files faults(magic version checksum address tenant shape key read))) "
#define TICKETS " tickets(standing made taken dropped expired)"
#define SPILL_TENANT                                                                               \
    " spill(budget_bytes used_bytes entries chunks files stores stored(cold continued evict "      \
    "shutdown) written_bytes failed refused pruned evicted hits fetched_pages "                    \
    "recovered dropped)"
static const char answer_keys[] =
    "node version incarnation uptime_s draining sessions "
    "turns(turns_in_flight turns_begun turns_expired turns_lost) "
    "tenants(tenant records(pages used held records page_bytes)" TICKETS SPILL_TENANT
    ") pools(pool tenant tier group "
    "family page_tokens page_bytes window total free leased session snapshot "
    "reclaimable borrowed transfer ticket retiring zeroing quarantine peak_session "
    "peak_snapshot) shares(table records limit common_free reserved(first second) used(first "
    "second)) "
    "errors(INVALID MALFORMED UNSUPPORTED CONFLICT POOL_EXHAUSTED PEER_LOST TIMED_OUT "
    "BUSY GONE DENIED QUOTA CORRUPT DISK INTERNAL DAEMON_LOST) refusals(tenant "
    "errors(INVALID MALFORMED UNSUPPORTED CONFLICT POOL_EXHAUSTED PEER_LOST TIMED_OUT "
    "BUSY GONE DENIED QUOTA CORRUPT DISK INTERNAL DAEMON_LOST) last last_op last_text last_s) "
    "steps_overdue() engines_stuck() engines "
    "prefix_nodes peers "
    "peers_up "
    "links_up listen_port transfers_active namespaces_reset resets_spreading "
    "evicted_nodes evicted_pages pages_corrupt pages_pulled pages_served dup_chunks "
    "token_blocks_free nodes_free retires_free quarantine_oldest_ms "
    "quarantine_holder(peer transfer pages) host_tier(bytes host_copies "
    "host_copies_failed host_copies_again host_uncopied host_loads copies copied_bytes "
    "copies_corrupt "
    "retracts retracts_undone recovers) " SPILL "memory(kind bytes huge_pages_wanted "
    "huge_page_bytes sealed_pages zeroed_bytes host_bytes record_bytes records_checked "
    "copied_pages copied_bytes "
    "copies_corrupt copies_spoilt queue_high_water faults workers) data(port conns "
    "pages_in pages_out payload_bytes_in payload_bytes_out socket_bytes_in "
    "socket_bytes_out corrupt_detected corrupt_injected gone_answers refused over_share "
    "conns_retired pages_again "
    "threads(threads tasks tasks_done) from_peers(conns limit reserved common_used common) "
    "verbs(paths_up paths_made "
    "paths_failed pieces_again batches_moved pages_in pages_out bytes_in reads_posted "
    "read_errors late_reads writes_posted grants_revoked late_writes stale_completions "
    "stale_answers cq_high_water cq_events)) events(first next limit subscriptions told "
    "lost) doors(door waiting places share displaced overdue) send_buffers(bytes "
    "shares(share used reserved) common_used common made_way) conns conns_refused "
    "io(completions cq_overflows sq_waits buffers_empty) tape(recorded dropped "
    "bytes_used tokens_kept) log(suppressed lost) insecure_peers certificate(not_after left_s "
    "life_s own_ca) "
    "fault_injection(corrupt_pages copy_corrupt_every checks_on_owner disk_write_every "
    "disk_full_after) slots sessions(session "
    "tenant "
    "engine pool namespace state committed written allocated tokens node node_id ref "
    "ref_s turn turn_s records recorded idle_s) next slots "
    "tenants(tenant records(pages used held records page_bytes)" TICKETS SPILL_TENANT
    ") records(session tenant engine "
    "pool records recorded pages blob_pages turn turn_s) next slots "
    "tenants(tenant records(pages used held records page_bytes)" TICKETS SPILL_TENANT
    ") tickets(session tenant engine pool namespace ticket length committed blob_bytes age_s "
    "left_s) next "
    "slots pools(pool slot tenant engine "
    "state tier other_tier "
    "devices() "
    "offset bytes slab_bytes slabs slabs_free nodes align_tokens supersede groups(group "
    "family page_tokens page_bytes window total free leased session snapshot "
    "reclaimable borrowed transfer ticket retiring zeroing quarantine peak_session "
    "peak_snapshot units reserve cap_pages)) next slots engines(engine name tenant "
    "state world procs_alive pids() sessions done_step() retiring_until named_step jumps) next "
    "slots "
    "breaches_unnamed tls(not_after reloads reloads_failed handshakes memory_bytes "
    "memory_used_max memory_refused refused_unnamed(no_certificate wrong_ca wrong_name "
    "expired bad_certificate old_version bad_handshake bad_record refused_by_peer "
    "timeout no_room)) peers(peer host port state breaches last_error attempts since_s "
    "incarnation transport moves transport_reason connections(limit up calling retired) tenants() "
    "paths(device tenant state "
    "reason) tls(version cipher peer_name not_after refused(no_certificate wrong_ca "
    "wrong_name expired bad_certificate old_version bad_handshake bad_record "
    "refused_by_peer timeout no_room))) next slots tree(slot id parent pool namespace "
    "chain depth children pages tier copying host_pages refs(device transfer job "
    "retracted admin handoff host) admin_s age_s visible sealed state_pages reclaimable "
    "resumable borrowers) next slots " SPILL "disk() next";

TEST(answers_have_all_their_keys)
{
    static const char *const commands[] = {"status",  "sessions", "records", "tickets", "pools",
                                           "engines", "peers",    "tree",    "disk"};
    struct disk_recovery recovery = {.files = 1};
    struct disk_stats disk = {.direct = true};
    static char keys[2 * sizeof answer_keys];
    struct recorder r = recorder_of_other();
    size_t same = 0;
    struct tls_stats tls = {.not_after = "2031-11-29T08:35:07Z"};

    s.ctx.disk = &disk;
    s.ctx.recovery = &recovery;
    s.ctx.tls = &tls;
    s.ctx.peer_tls = peer_tls;
    s.ctx.peer_refused = peer_refused;
    s.ctx.peer_path = peer_path;
    s.ctx.send_share = send_share;
    s.ctx.door = door;
    records_turn(&r, 10);
    ticket_stands();
    keys[0] = '\0';
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++)
        put_keys(ask(commands[i]), keys);
    while (keys[same] && keys[same] == answer_keys[same])
        same++;
    if (keys[same] || answer_keys[same])
        fail_msg("wanted ...%.60s, got ...%.60s", answer_keys + same, keys + same);
}

/* ---- tickets ---- */

/* Its text is told to nobody but its engine. */
TEST(tickets_are_shown_and_counted)
{
    struct ticket t = ticket_stands();
    struct request drop = {.op = OP_TICKET_DROP, .ticket_drop.ticket = t};
    json_t *row = row_with("tickets", "session", session_id_pack(t.id));
    char *text;

    tells(row, "{'ticket': 'open', 'length': 8, 'committed': 8, 'blob_bytes': 5, 'left_s': 20.0}");
    text = json_dumps(row, 0);
    assert_null(strstr(text, "key"));
    free(text);
    tells(row_with("sessions", "session", session_id_pack(t.id)),
          "{'state': 'handed_over', 'ref': 'handoff', 'written': 8}");
    assert_ok(rig_request(s.b.rig, s.b.e.conn[0], &drop)->err);
    tells(ask("tickets"), "{'tickets': [], 'tenants': [{'tickets': {'standing': 0, 'made': 1, "
                          "'taken': 0, 'dropped': 1, 'expired': 0}}, {'tickets': {'made': 0}}]}");
}

/* ---- turn records ---- */

TEST(sessions_say_what_their_records_have)
{
    static const char none[] = "{'records': [], 'tenants': [{'records': {'used': 0, 'records': 0}},"
                               " {'records': {'used': 0, 'records': 0}}]}";
    struct recorder r = recorder_of_other();

    tells(ask("records"), none);
    recorder_begin(&r);
    assert_non_null(record_write(&r, 30, 30000)); /* a page of numbers, two of a blob */
    tells(ask("records"), "{'records': [{'records': 0, 'recorded': 0, 'pages': 3, 'blob_pages': 2, "
                          "'turn': 'in_flight', 'turn_s': 90.0}]}");
    assert_ok(record_put_now(&r)->err);
    recorder_end(&r);
    records_turn(&r, 40);
    records_turn(&r, 50); /* the blob of the first is dropped */
    tells(ask("records"), "{'records': [{'records': 3, 'recorded': 50, 'pages': 10, "
                          "'blob_pages': 7, 'turn': null, 'turn_s': null}]}");
    tells(row_with("records", "session", session_id_pack(r.session)),
          "{'tenant': 'second', 'engine': 'o', 'pool': '%016llx'}",
          (unsigned long long)pool_id_pack(s.other_pool));
    tells(ask("status"), "{'tenants': [{'tenant': 'first', 'records': {'pages': 64, 'used': 0}}, "
                         "{'tenant': 'second', 'records': {'pages': 64, 'used': 10, 'held': 0, "
                         "'records': 3, 'page_bytes': 16384}}]}");
    tells(session_row(s.other_session), "{'records': 3, 'recorded': 50}");
    assert_ok(rig_close(s.other_session, 0));
    tells(ask("records"), none);
}

/* What a turn that never ended may touch is its engine's, and of no session. */
TEST(records_that_are_held_are_told_of_their_tenant)
{
    struct recorder r = recorder_of_other();

    recorder_begin(&r);
    assert_non_null(record_write(&r, 30, 30000));
    rig_disconnect(s.b.rig, r.conn);
    tells(ask("records"), "{'records': [], 'tenants': [{'records': {'used': 0, 'held': 0}}, "
                          "{'records': {'used': 3, 'held': 3, 'records': 1}}]}");
}

/* ---- tenants and bad questions ---- */

TEST(tenants_are_told_about_themselves_alone)
{
    static const char *const commands[] = {"pools", "sessions", "engines", "records", "status"};
    struct recorder r = recorder_of_other();

    records_turn(&r, 10);
    rig_session(s.b.rig, &s.other, s.other_pool, 2);
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
        assert_ok(ask_with(commands[i], NULL, 1));
        assert_null(strstr(s.text, "first"));
        assert_null(strstr(s.text, "\"e\""));
        assert_non_null(strstr(s.text, i == 4 ? "group0" : "second"));
    }
    tells(s.answer, "{'sessions': 2}");
    assert_null(json_object_get(s.answer, "prefix_nodes"));
    assert_null(json_object_get(s.answer, "data"));
    assert_ok(ask_with("sessions", "limit=1", 1));
    tells(s.answer, "{'sessions': [{'tenant': 'second'}]}");
    assert_err(TERN_DENIED, ask_with("tree", NULL, 1));
    assert_err(TERN_DENIED, ask_with("transfers", NULL, 1));
    assert_err(TERN_DENIED, ask_with("peers", NULL, 1));
}

TEST(questions_that_are_wrong_are_refused)
{
    static const char *const bad[] = {
        "from=", "from=x", "from=-1", "from=4294967296", "limit=0", "limit=4097", "zork=1",
        "from",  "",       "pool=1x", "fromm=1",         "fro=1",   "hash=2"};

    assert_err(TERN_UNSUPPORTED, ask_with("zork", NULL, NONE));
    assert_err(TERN_UNSUPPORTED, ask_with("", NULL, NONE));
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_err(TERN_INVALID, ask_with("tree", bad[i], NONE));
        assert_true(s.why[0] != '\0');
    }
    ask_sized("tree", "limit=2", "zork=1", NONE, TEXT_BYTES);
    assert_string_equal(s.why, "tree takes no 'zork': it takes from=, limit=, pool=, hash=");
    ask_with("tree", "pool=1x", NONE);
    assert_string_equal(s.why, "pool=1x: that is no number from 0 to 4294967294");
    assert_ok(ask_with("tree", "from=4294967295", NONE));
    tells(s.answer, "{'tree': []}");
}

/* Asking must not change anything: the arena is the same after every question. */
TEST(questions_change_nothing)
{
    static const char *const commands[] = {"status",  "pools", "sessions",  "records",
                                           "engines", "peers", "transfers", "tree"};
    uint64_t before = core_hash(s.b.rig->core);

    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++)
        ask(commands[i]);
    assert_true(core_hash(s.b.rig->core) == before);
}
