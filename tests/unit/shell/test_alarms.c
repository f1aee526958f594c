/* The alarms of a daemon: the subject of each, when it is checked, and what the log and operators
 * receive. The daemon here is a core and a configuration, and nothing runs. */
#include "unit/rig/rig_pair.h"

#include <errno.h>

#include "core/arena/shares.h"
#include "shell/daemon.h"
#include "unit/rig/rig_log.h"

#define S UINT64_C(1000000000)

static struct daemon d;
static struct bench b;
static struct config *config;
static uint64_t now_ns;

static void daemon_of(struct rig *rig, uint32_t peers)
{
    static char yaml[1 << 17];
    char why[CONFIG_WHY_BYTES];
    size_t at = (size_t)sprintf(yaml, "node: alpha\ninsecure_peers: true\ntenants:\n"
                                      "  - {name: first, socket: /tmp/1, memory: 4M}\n"
                                      "  - {name: second, socket: /tmp/2, memory: 4M}\npeers:\n");

    for (uint32_t i = 0; i < peers; i++)
        at += (size_t)sprintf(yaml + at,
                              "  - {name: p%u, address: \"[::1]:7001\", tenants: [first]}\n", i);
    log_start(LEVEL_INFO);
    if (config_load_text("t", yaml, at, &config, why, sizeof why) != TERN_OK)
        fail_msg("%s", why);
    now_ns = rig->now_ns + 1000 * S;
    d = (struct daemon){.config = config, .core = rig->core};
    d.limits = *core_limits_of(d.core);
    d.limits.peers = peers;
    d.engines = calloc(d.limits.engines, sizeof *d.engines);
    d.links.v = calloc(peers, sizeof *d.links.v);
    for (uint32_t i = 0; i < peers; i++)
        d.links.v[i] = (struct peer_link){.d = &d, .slot = i, .peer = i, .state = PEER_LINK_UP};
    assert_int_equal(alarms_init(&d), TERN_OK);
}

FIXTURE(stop)
{
    alarms_finish(&d);
    tape_destroy(d.tape);
    free(d.links.v);
    free(d.engines);
    config_destroy(config);
    log_stop();
    return rig_test_teardown(NULL);
}

FIXTURE(start)
{
    rig_test_setup(NULL);
    b = bench_start(4, 32);
    daemon_of(b.rig, 2);
    return 0;
}

/* The ticks of `seconds` seconds. */
static void ticks(uint32_t seconds)
{
    for (uint32_t i = 0; i < seconds * 10; i++) {
        now_ns += S / 10;
        alarms_tick(&d, now_ns);
    }
}

static void assert_has(const char *text, const char *words)
{
    if (!strstr(text, words))
        fail_msg("no \"%s\" in: %s", words, text);
}

static struct alarm_view only(void)
{
    struct alarm_view v, more;
    uint32_t at = 0;

    assert_true(alarms_view(&d, &at, now_ns, &v));
    assert_false(alarms_view(&d, &at, now_ns, &more));
    assert_int_equal(d.alarms.on, 1);
    return v;
}

static void none(void)
{
    struct alarm_view v;
    uint32_t at = 0;

    assert_false(alarms_view(&d, &at, now_ns, &v));
    assert_int_equal(d.alarms.on, 0);
    for (enum alarm_kind k = 0; k < ALARM_KINDS; k++)
        assert_int_equal(d.alarms.on_of[k], 0);
}

/* An open control port proves nothing about the pages. */
TEST_WITH(alarms_of_a_peer_whose_data_port_is_closed, start, stop)
{
    struct alarm_view v;

    link_data_dialled(&d, 1, 7102, ECONNREFUSED);
    assert_string_equal(link_state_name(&d.links.v[1]), "no_data");
    ticks(60);
    v = only();
    assert_string_equal(v.name, "peer_down");
    assert_has(v.text, ": its data port 7102 cannot be reached: Connection refused");
    link_data_dialled(&d, 1, 7102, 0);
    assert_string_equal(link_state_name(&d.links.v[1]), "up");
    ticks(60);
    none();
}

TEST_WITH(alarms_of_a_peer_name_it_and_why, start, stop)
{
    struct alarm_view v;

    ticks(20);
    assert_string_equal(logged(), "");
    d.links.v[1].state = PEER_LINK_IDLE;
    snprintf(d.links.v[1].cause, sizeof d.links.v[1].cause, "Connection refused");
    d.links.v[1].attempts = 7;
    ticks(4);
    none();
    ticks(2);
    v = only();
    assert_string_equal(v.name, "peer_down");
    assert_string_equal(v.subject, "p1");
    assert_int_equal(d.alarms.on_of[ALARM_KIND_PEER_DOWN], 1);
    assert_has(v.text, ": Connection refused (7 attempts)");
    assert_has(logged(), "level=warn event=peer_down subject=p1 text=\"the peer cannot be reached");
    ticks(60);
    assert_string_equal(logged(), ""); /* once */
    d.links.v[1].state = PEER_LINK_UP;
    ticks(4);
    v = only();
    assert_has(v.text, "the cause ended 3"); /* not: the peer is unreachable */
    assert_has(v.text, " ms ago, and the alarm ends 5000 ms after the cause");
    d.links.v[1].state = PEER_LINK_IDLE; /* it was up for too short a time */
    ticks(1);
    d.links.v[1].state = PEER_LINK_UP;
    ticks(4);
    assert_string_equal(logged(), "");
    ticks(2);
    none();
    assert_has(logged(), "level=info event=peer_down_ended subject=p1 lasted_ms=7");
}

TEST_WITH(alarms_of_a_share_name_tenant_and_limit, start, stop)
{
    struct share_view v;
    struct reply refused = {.op = OP_SESSION_OPEN, .err = TERN_BUSY};
    uint32_t table = 0, fixed = 0;

    while (core_share_view(d.core, (struct share_of){table, 1}, &v) &&
           strcmp(v.setting, "sessions") != 0)
        table++;
    while (core_share_view(d.core, (struct share_of){fixed, 1}, &v) &&
           strcmp(v.setting, "record_jobs") != 0)
        fixed++;
    refused.text = "this tenant's share of the sessions"; /* another text */
    refusals_note(&d.refusals[1], &refused, now_ns);
    ticks(1);
    none();
    for (uint32_t i = 0; i < CORE_SHARES; i++) {
        uint32_t found = CORE_SHARES;

        assert_true(core_share_refusal(share_refused(i), &found) && found == i);
    }
    refused.text = share_refused((enum share_table)table);
    refusals_note(&d.refusals[1], &refused, now_ns);
    ticks(1);
    assert_string_equal(only().name, "share_exhausted");
    assert_string_equal(only().subject, "second/limits.sessions");
    assert_has(only().text, " sessions; ");
    ticks(11);
    none();
    refused.text = share_refused((enum share_table)fixed);
    refusals_note(&d.refusals[1], &refused, now_ns);
    ticks(1);
    assert_string_equal(only().subject, "second/record_jobs"); /* no setting has that name */
    ticks(11);
    none();
}

TEST_WITH(alarms_of_a_tenant_that_is_refused_pages_or_more_than_its_part, start, stop)
{
    struct op_result results[] = {
        {.err = TERN_POOL_EXHAUSTED, .shortage = {.group = 1, .needed = 16, .free = 15}}};
    const struct reply step = {.op = OP_STEP, .step = {.results = results, .n = 1}},
                       full = {.op = OP_STORE, .err = TERN_POOL_EXHAUSTED},
                       much = {.op = OP_POOL_OPEN, .err = TERN_QUOTA, .text = "has no room"};

    refusals_note(&d.refusals[0], &full, now_ns); /* of the disk */
    ticks(1);
    none();
    refusals_note(&d.refusals[0], &step, now_ns);
    ticks(1);
    assert_string_equal(only().name, "memory_exhausted");
    assert_string_equal(only().subject, "first");
    assert_has(only().text, ": group 1 of the pool needs 16 pages, and 15 are free, 0 evictable");
    ticks(11);
    none();
    refusals_note(&d.refusals[1], &much, now_ns);
    ticks(1);
    assert_string_equal(only().name, "quota_reached");
    assert_string_equal(only().subject, "second");
    assert_has(only().text, ": has no room");
    ticks(11);
    none();
}

/* The next engine gets the slot of the one that ended. */
TEST_WITH(alarms_of_an_engine_end_with_it, start, stop)
{
    struct engine_view e;

    assert_true(core_engine_view(d.core, b.e.id.slot, &e));
    d.engines[b.e.id.slot] = (struct engine_watch){.state = ENGINE_WATCH_ACTIVE, .gen = e.id.gen};
    memcpy(d.engines[b.e.id.slot].name, e.name, sizeof e.name);
    alarms_engine(&d, b.e.id.slot, now_ns);
    none();
    computes(b.s, 1, 32);
    assert_ok(rig_rewind(b.s, 16, 7)); /* its pages wait for step 7 */
    alarms_engine(&d, b.e.id.slot, now_ns);
    assert_string_equal(only().name, "step_overdue");
    alarms_engine_gone(&d, b.e.id.slot, now_ns);
    none();
    assert_has(logged(), "event=step_overdue_ended subject=first/");
}

TEST_WITH(alarms_of_an_engine_of_which_a_process_ended, start, stop)
{
    struct rig_engine two = rig_engine(b.rig, 1, "two", 2);

    d.engines[two.id.slot] =
        (struct engine_watch){.state = ENGINE_WATCH_ACTIVE, .gen = two.id.gen, .tenant = 1};
    strcpy(d.engines[two.id.slot].name, "two");
    ticks(1);
    none();
    rig_proc_gone(b.rig, two.proc[1]);
    alarms_engine(&d, two.id.slot, now_ns);
    assert_string_equal(only().name, "engine_stuck");
    assert_string_equal(only().subject, "second/two");
    assert_has(only().text, ": pids ");
    alarms_engine_gone(&d, two.id.slot, now_ns);
    none();
}

TEST_WITH(alarms_of_quarantine_name_who_may_still_write, NULL, stop)
{
    struct rig_session *session;
    uint64_t since_ns;
    struct pair p;
    char wanted[96];

    rig_test_setup(NULL);
    p = pair_limited(1 << 20);
    daemon_of(p.dest, 2);
    p.dest->automatic = BY_HAND(RIG_PULL | RIG_PULL_STOP);
    fetch_many(&p, 1, 16, &session);
    snprintf(wanted, sizeof wanted, "4 pages for 10000 ms, transfer %016" PRIx64 " from peer p0",
             pull_id_pack(rig_job(p.dest, RIG_PULL, 0)->pull));
    since_ns = p.dest->now_ns;
    assert_ok(rig_fetch_cancel(session));
    alarms_tick(&d, since_ns + 10 * S - 1);
    none();
    now_ns = since_ns + 10 * S;
    d.alarms.pass_ns = 0;
    alarms_tick(&d, now_ns);
    assert_string_equal(only().name, "quarantine_old");
    assert_has(only().text, wanted);
    rig_complete(p.dest, RIG_PULL_STOP);
    ticks(2);
    none();
}

TEST_WITH(alarms_of_a_backlog_say_how_long_it_is, NULL, stop)
{
    struct rig_options options = rig_defaults();

    rig_test_setup(NULL);
    options.limits.retires = 4;
    b = bench_with(&options, 4, 32);
    daemon_of(b.rig, 2);
    computes(b.s, 1, 32);
    for (uint32_t i = 0; i < 3; i++)
        assert_ok(rig_rewind(b.s, 28 - 4 * i, 7 + i));
    ticks(1);
    none();
    ticks(2);
    assert_string_equal(only().name, "retire_backlog");
    assert_has(only().text, ": 3 of 4 in use");
    rig_engine_done(b.rig, &b.e, 7);
    ticks(20);
    only(); /* half of them */
    rig_engine_done(b.rig, &b.e, 9);
    ticks(6);
    none();
}

TEST_WITH(alarms_of_many_peers_are_looked_at_by_turns, NULL, stop)
{
    rig_test_setup(NULL);
    b = bench_start(4, 32);
    daemon_of(b.rig, 1500);
    for (uint32_t i = 0; i < 1500; i++)
        d.links.v[i].state = PEER_LINK_IDLE;
    alarms_tick(&d, now_ns);
    assert_int_equal(d.alarms.next, ALARM_LOOKS);
    ticks(7);
    assert_int_equal(d.alarms.on, 1500);
}
