/* Admin answers about a small core with two tenants: counts that add up, lists that are complete in
 * pages of any size, and no answer that shows one tenant's data to another. */
#include "unit/shell/test_admin_rig.h"

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

/* Operators see the refusals of each tenant, and a tenant only its own. */
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
    refusals_note(&refused_to[0], &bad, s.ctx.now_ns);
    assert_ok(ask_with("status", NULL, NONE));
    tells(s.answer, "{'errors': {'QUOTA': 1, 'GONE': 2}}");
    assert_ok(ask_with("status", NULL, 1));
    tells(s.answer, "{'errors': {'QUOTA': 1, 'GONE': 1}}");
    assert_null(json_object_get(s.answer, "refusals"));
    assert_ok(ask_with("status", NULL, 0));
    tells(s.answer, "{'errors': {'QUOTA': 0, 'GONE': 1}}");
}

TEST(status_tells_the_hash_when_asked)
{
    assert_ok(ask_with("status", "hash=1", NONE));
    tells(s.answer, "{'core_hash': '%016llx'}", (unsigned long long)core_hash(s.b.rig->core));
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
    links[0] = (struct peer_link){.d = &fake,
                                  .state = PEER_LINK_IDLE,
                                  .cause = "Connection \"refused\"",
                                  .attempts = 3,
                                  .down_ns = s.ctx.now_ns - 2500000000u};
    fake.links.faults[0].breaches = 2;
    tells(row_of("peers", 0, 1),
          "{'state': 'waiting', 'incarnation': '0000000000000000', 'breaches': 2}");
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
        /* An open session without tokens pins a root. */
        tells(row, "{'refs': {'device': %d}, 'visible': true}", root);
    }
    assert_int_equal(pages, 3 + 2);
    assert_int_equal(roots, 2);
    assert_int_equal(deepest, 12);
    assert_ok(ask_with("tree", "pool=1", NONE));
    tells(s.answer, "{'tree': [{'pool': 1}, {'pool': 1}, {'pool': 1}]}");
}

/* E8: the status names an engine whose steps are waited for too long, also for its tenant. */
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
    s.ctx.now_ns = s.b.rig->now_ns; /* one that jumped is named at once */
    rig_step_done(s.b.rig, s.b.e.id, 0, UINT64_MAX);
    tells(ask("status"), "{'steps_overdue': [{'done_step': %lld, 'jumped': true}]}",
          (long long)INT64_MAX);
    tells(row_of("engines", 0, 2), "{'jumps': 1, 'named_step': 7, 'done_step': [%lld]}",
          (long long)INT64_MAX);
    rig_step_done(s.b.rig, s.b.e.id, 0, 7);
    tells(ask("status"), "{'steps_overdue': []}");
}

/* ---- tiers and refs ---- */

static json_t *node_row(const struct bench *b, const uint32_t *tokens, uint32_t depth)
{
    struct node_view node = node_seen(b->rig, b->pool, tokens, depth);

    return row_with("tree", "id", node_id_pack(node.id));
}

static json_t *session_row(const struct rig_session *of)
{
    return row_with("sessions", "session", session_id_pack(of->id));
}

/* Makes `host` the core of the answers, in place of the scene's own. */
static void scene_of(const struct bench *host)
{
    s.ctx.core = host->rig->core;
    s.ctx.now_ns = host->rig->now_ns;
}

/* A session is retracted to the host: its row, its node's and the pools', before and after. */
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

/* Pools: the host tier has a row of its own, the two rows name each other, and the status adds
 * both. */
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

/* Borrowed pages are counted once, however many sessions of whatever engine have them in their
 * tables, and not at all if counting would take too long. */
TEST(borrowed_pages_and_pins_are_told)
{
    struct bench host = host_bench(4, 16, 0);
    const uint32_t *tokens = rig_tokens(3, 12);
    struct rig_session *second;
    struct rig_engine e2;

    scene_of(&host);
    rig_put(host.rig, &host.e, host.pool, 3, 12);
    rig_match(host.s, tokens, 8);
    tells(row_of("pools", 0, 1), "{'groups': [{'borrowed': 2}]}");
    e2 = rig_engine(host.rig, 0, "e2", 1);
    assert_ok(rig_pool_map(host.rig, e2.conn[0], host.pool));
    second = rig_session(host.rig, &e2, host.pool, 1);
    rig_match(second, tokens, 12);
    tells(row_of("pools", 0, 1),
          "{'other_tier': null, 'groups': [{'borrowed': 3, 'snapshot': 3}]}");
    s.visits = 3; /* as many as needed, then one fewer */
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

/* Joins the pages of a list; every page has at most `limit` rows in at most `cap` bytes. */
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
                assert_int_equal(answered, 0); /* only before the largest row fits */
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

    for (size_t cap = 1; cap < 16384; cap += 16) {
        enum tern_err err = ask_sized("status", NULL, NULL, NONE, cap);

        busy += err == TERN_BUSY;
        whole += err == TERN_OK;
        assert_true(err == TERN_BUSY || err == TERN_OK);
    }
    assert_true(busy > 0 && whole > 0);
}

/* ---- tickets ---- */

/* The ticket's text is shown to its engine alone. */
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

/* Pages that a turn that never ended may touch belong to its engine, and to no session. */
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

TEST(lists_are_of_one_tenant_engine_or_peer)
{
    static const struct {
        const char *command, *arg, *rows;
    } cases[] = {{"pools", "tenant=first", "[{'tenant': 'first'}]"},
                 {"pools", "engine=o", "[{'engine': 'o'}]"},
                 {"sessions", "tenant=second", "[{'tenant': 'second'}]"},
                 {"sessions", "engine=e", "[{'engine': 'e'}]"},
                 {"engines", "tenant=second", "[{'name': 'o'}]"},
                 {"engines", "engine=e", "[{'name': 'e'}]"},
                 {"engines", "engine=nobody", "[]"},
                 {"peers", "peer=beta", "[{'peer': 'beta'}]"},
                 {"peers", "tenant=second", "[{'peer': 'beta'}]"},
                 {"peers", "tenant=first", "[]"}};
    static const char *const refused[][2] = {
        {"peers", "engine=e"},       {"pools", "peer=beta"}, {"tree", "tenant=first"},
        {"status", "tenant=first"},  {"pools", "tenant=x"},  {"peers", "peer=x"},
        {"transfers", "tenant=fir"}, {"sessions", "tenant="}};

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        json_t *rows;

        assert_ok(ask_with(cases[i].command, cases[i].arg, NONE));
        rows = json_object_get(s.answer, cases[i].command);
        assert_int_equal(json_array_size(rows), cases[i].rows[1] == '{');
        tells(rows, "%s", cases[i].rows);
    }
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
        assert_err(TERN_INVALID, ask_with(refused[i][0], refused[i][1], NONE));
    ask_with("peers", "engine=e", NONE);
    assert_string_equal(s.why, "peers takes no 'engine'");
    assert_ok(ask_with("sessions", "tenant=first", 1)); /* a tenant sees only itself */
    tells(s.answer, "{'sessions': [{'tenant': 'second'}]}");
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
    assert_string_equal(s.why, "tree takes no 'zork': it takes from=, limit=, pool=, tenant=, "
                               "engine=, peer=, hash=");
    ask_with("tree", "pool=1x", NONE);
    assert_string_equal(s.why, "pool=1x: the value must be a number from 0 to 4294967294");
    assert_ok(ask_with("tree", "from=4294967295", NONE));
    tells(s.answer, "{'tree': []}");
}

/* Questions must not change anything: the arena is the same after each. */
TEST(questions_change_nothing)
{
    static const char *const commands[] = {"status",  "pools", "sessions",  "records",
                                           "engines", "peers", "transfers", "tree"};
    uint64_t before = core_hash(s.b.rig->core);

    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++)
        ask(commands[i]);
    assert_true(core_hash(s.b.rig->core) == before);
}
