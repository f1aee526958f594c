/* Fetches that name no peer (X11), between real daemons over TCP: a prefix that one host computed,
 * or a block that it put, is a hit on another host; hosts that hang or are gone cost no more than
 * the deadline of a question. Four daemons: the first has the others as its peers. */
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "engine/bytes.h"
#include "engine/proc.h"
#include "engine/profile.h"
#include "rig_daemon.h"
#include "testing/test.h"

#define HOSTS       4
#define PAGE_TOKENS 16
#define PAGES       64
#define TOKENS      (PAGES * PAGE_TOKENS)
#define CALL_MS     20000
#define ASK_MS      100  /* how long the daemon waits for an answer */
#define SPARE_MS    3000 /* for a busy machine; less than a link's 5 s */
#define VALUE       RIG_PAGE
#define KEYS        96

enum { ASKS, FULL, HALF, EMPTY };

struct world {
    char dir[RIG_DIR_BYTES];
    struct daemon daemon[HOSTS];
    struct engine engine[HOSTS];
    uint32_t tokens[TOKENS];
};

static struct world w;

FIXTURE(start)
{
    static const char *const names[HOSTS] = {"asks", "full", "half", "empty"};
    struct daemon_options o[HOSTS] = {{0}};
    char why[SPAWN_WHY_BYTES] = "";

    assert_true(tempdir_make(w.dir, sizeof w.dir, "tern-any"));
    for (uint32_t i = 0; i < HOSTS; i++)
        o[i] = (struct daemon_options){
            .node = names[i], .memory_bytes = RIG_MEMORY, .page_bytes_min = RIG_PAGE, .core = -1};
    if (!daemon_start_star(w.daemon, HOSTS, w.dir, o, why))
        fail_msg("%s", why);
    for (uint32_t i = 1; i < HOSTS; i++)
        rig_wait_linked(&w.daemon[0], names[i]);
    block_tokens(5, 0, TOKENS, w.tokens);
    return 0;
}

FIXTURE(stop)
{
    for (uint32_t i = 0; i < HOSTS; i++) {
        engine_close(&w.engine[i]);
        kill(w.daemon[i].pid, SIGCONT);
        daemon_end(&w.daemon[i], RIG_STOP_MS);
    }
    tempdir_remove(w.dir);
    return 0;
}

static struct engine_session begin(uint32_t host)
{
    struct engine_session s;

    assert_ok(w.engine[host].tern, engine_begin(&s, &w.engine[host], w.tokens, TOKENS));
    return s;
}

/* Commits at the hosts' engines: `full` has computed all tokens, `half` half of them. */
static void compute(void)
{
    for (uint32_t i = 0; i < HOSTS; i++)
        w.engine[i] = rig_engine(w.daemon[i].socket, "lm", PAGE_TOKENS, 8u << 20);
    for (uint32_t i = FULL; i <= HALF; i++) {
        struct engine_session s = begin(i);

        assert_ok(w.engine[i].tern, engine_extend(&s, TOKENS, TOKENS));
        engine_write(&s, 0, TOKENS);
        assert_ok(w.engine[i].tern, engine_publish(&w.engine[i]));
        assert_ok(w.engine[i].tern, engine_commit(&s, i == FULL ? TOKENS : TOKENS / 2));
        assert_ok(w.engine[i].tern, engine_end(&s));
    }
}

/* A fetch that names no peer returns n tokens from that host within `ms`. */
static void brings(uint32_t n, const char *host, uint64_t ms)
{
    struct engine_session s = begin(ASKS);
    uint64_t began = rig_now_ms();

    assert_int_equal(s.matched, 0);
    assert_ok(w.engine[ASKS].tern, engine_fetch(&s, TERN_PEER_ANY, 0, CALL_MS));
    assert_true(rig_now_ms() - began < ms);
    assert_int_equal(s.len.committed, n);
    assert_int_equal(engine_wrong(&s, n), 0);
    if (host)
        assert_string_equal(s.last.host, host);
    else
        assert_null(s.last.host);
    assert_ok(w.engine[ASKS].tern, engine_end(&s));
}

TEST_WITH(x11_what_one_host_computed_is_a_hit_on_another, start, stop)
{
    struct engine_session s;

    compute();
    brings(TOKENS, "full", CALL_MS);
    s = begin(ASKS);
    assert_int_equal(s.matched, TOKENS); /* it is resident here now */
    assert_ok(w.engine[ASKS].tern, engine_end(&s));
}

TEST_WITH(x11_host_that_hangs_costs_the_deadline_of_the_question, start, stop)
{
    uint64_t began;

    compute();
    kill(w.daemon[FULL].pid, SIGSTOP);
    began = rig_now_ms();
    brings(TOKENS / 2, "half", ASK_MS + SPARE_MS);
    assert_true(rig_now_ms() - began >= ASK_MS);
}

TEST_WITH(x11_hosts_that_are_gone_are_not_waited_for, start, stop)
{
    struct tern *admin;

    compute();
    for (uint32_t i = 1; i < HOSTS; i++)
        kill(w.daemon[i].pid, SIGKILL);
    admin = rig_connected(w.daemon[ASKS].admin);
    wait_until(rig_figure(admin, "status", "peers_up") == 0);
    tern_destroy(admin);
    brings(0, NULL, SPARE_MS);
}

/* --- blocks --- */

struct list {
    uint8_t bytes[KEYS][32], value[KEYS][VALUE], marks[KEYS];
    struct tern_block_key key[KEYS];
    struct iovec iov[KEYS];
    struct tern_block_value values[KEYS];
};

static struct list list;

static void fill(uint32_t seed)
{
    for (uint32_t i = 0; i < KEYS; i++) {
        memset(list.bytes[i], (int)i, sizeof list.bytes[i]);
        memset(list.value[i], (int)(seed * i + seed), VALUE);
        list.key[i] = (struct tern_block_key){list.bytes[i], 1 + i % 32};
        list.iov[i] = (struct iovec){list.value[i], VALUE};
        list.values[i] = (struct tern_block_value){&list.iov[i], 1};
    }
}

static struct tern_block_set *set_of(uint32_t host, const char *hosts)
{
    struct tern_block_config c = {.ns = {.model = "m"},
                                  .group = "kv",
                                  .value_bytes = VALUE,
                                  .pool_bytes = 4u << 20,
                                  .hosts = hosts};
    struct tern_block_set *set;

    if (tern_blocks_open(w.daemon[host].socket, &c, CALL_MS, &set) != TERN_OK)
        fail_msg("%s", tern_blocks_error_text(NULL));
    return set;
}

#define blocks_ok(set, expr)                                                                       \
    do {                                                                                           \
        if ((expr) != TERN_OK)                                                                     \
            fail_msg("%s: %s", #expr, tern_blocks_error_text(set));                                \
    } while (0)

/* `full` puts the keys from the first on, `half` those from the second on. */
static void put_blocks(uint32_t full, uint32_t half)
{
    fill(3);
    for (uint32_t i = FULL; i <= HALF; i++) {
        uint32_t from = i == FULL ? full : half;
        struct tern_block_set *set = set_of(i, NULL);

        blocks_ok(set, tern_blocks_put(set, list.key + from, list.values + from, KEYS - from,
                                       CALL_MS, NULL));
        tern_blocks_close(set);
    }
}

TEST_WITH(x11_block_that_one_host_put_is_a_hit_on_another, start, stop)
{
    struct tern_block_set *here, *any;
    uint32_t front;

    put_blocks(8, KEYS - 8);
    here = set_of(ASKS, NULL);
    any = set_of(ASKS, TERN_PEER_ANY);
    blocks_ok(here, tern_blocks_find(here, list.key, KEYS, CALL_MS, list.marks, &front));
    assert_int_equal(front, 0);
    assert_int_equal(list.marks[8], TERN_BLOCK_NOWHERE); /* no peer was asked */
    blocks_ok(any, tern_blocks_find(any, list.key + 4, KEYS - 4, CALL_MS, list.marks, &front));
    assert_int_equal(list.marks[3], TERN_BLOCK_NOWHERE);
    assert_null(tern_blocks_host(any, 3));
    for (uint32_t i = 4; i < KEYS - 12; i++) {
        assert_int_equal(list.marks[i], TERN_BLOCK_ELSEWHERE);
        assert_string_equal(tern_blocks_host(any, i), "full");
    }
    for (uint32_t i = 0; i < KEYS; i++)
        memset(list.value[i], 0, VALUE);
    blocks_ok(any, tern_blocks_get(any, list.key, list.values, KEYS, CALL_MS, list.marks));
    for (uint32_t i = 0; i < KEYS; i++) {
        const uint8_t want = (uint8_t)(3 * i + 3);

        assert_int_equal(list.marks[i], i >= 8);
        for (uint32_t k = 0; i >= 8 && k < VALUE; k++)
            if (list.value[i][k] != want)
                fail_msg("block %u has another byte %u", i, k);
    }
    blocks_ok(here, tern_blocks_find(here, list.key + 8, KEYS - 8, CALL_MS, list.marks, &front));
    assert_int_equal(front, KEYS - 8); /* they are in the pool now */
    assert_int_equal(list.marks[0], TERN_BLOCK_IN_POOL);
    tern_blocks_close(here);
    tern_blocks_close(any);
}

/* A router names the host: no other one is asked, although one has the blocks, too. */
TEST_WITH(x11_block_of_the_host_that_is_named_comes_from_it, start, stop)
{
    static const char *const wrong[] = {"nobody", "", "/disk"};
    struct tern_block_config c = {.group = "kv", .value_bytes = VALUE, .pool_bytes = 4u << 20};
    struct tern_block_set *named;
    uint32_t front;

    put_blocks(0, 8);
    kill(w.daemon[FULL].pid, SIGSTOP);
    named = set_of(ASKS, "half");
    blocks_ok(named, tern_blocks_find(named, list.key, KEYS, CALL_MS, list.marks, &front));
    for (uint32_t i = 0; i < KEYS; i++)
        assert_int_equal(list.marks[i], i < 8 ? TERN_BLOCK_NOWHERE : TERN_BLOCK_ELSEWHERE);
    blocks_ok(named, tern_blocks_get(named, list.key, list.values, KEYS, CALL_MS, list.marks));
    for (uint32_t i = 0; i < KEYS; i++)
        assert_int_equal(list.marks[i], i >= 8);
    tern_blocks_close(named);
    for (uint32_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        c.hosts = wrong[i];
        assert_int_equal(tern_blocks_open(w.daemon[ASKS].socket, &c, CALL_MS, &named),
                         TERN_INVALID);
        assert_non_null(strstr(tern_blocks_error_text(NULL), i ? "`hosts`" : "'nobody'"));
    }
}

TEST_WITH(x11_blocks_of_a_host_that_hangs_cost_the_deadline, start, stop)
{
    struct tern_block_set *any;
    uint64_t began;
    uint32_t front;

    put_blocks(0, 0);
    any = set_of(ASKS, TERN_PEER_ANY);
    kill(w.daemon[FULL].pid, SIGSTOP);
    began = rig_now_ms();
    blocks_ok(any, tern_blocks_find(any, list.key, KEYS, CALL_MS, list.marks, &front));
    assert_int_equal(front, KEYS);
    assert_string_equal(tern_blocks_host(any, 0), "half");
    kill(w.daemon[HALF].pid, SIGSTOP);
    blocks_ok(any, tern_blocks_find(any, list.key, KEYS, CALL_MS, list.marks, &front));
    assert_int_equal(front, 0);
    assert_true(rig_now_ms() - began >= ASK_MS && rig_now_ms() - began < 2 * ASK_MS + SPARE_MS);
    tern_blocks_close(any);
}
