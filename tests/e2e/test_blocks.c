/* Blocks over a real daemon: clients put, get, find, touch, pin and remove at random in two sets
 * over one pool, and are killed meanwhile. A model in shared memory records the puts: a get must
 * return all bytes of one put of that key and set, and of none that a remove has ended before. Keys
 * differ only in their last bit or in their length. */
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/prng.h"
#include "engine/admin.h"
#include "engine/json.h"
#include "engine/proc.h"
#include "rig_blocks.h"
#include "rig_daemon.h"
#include "testing/test.h"

#define VALUE    100004 /* not a multiple of 8, nor of 4,096 */
#define WORDS    (VALUE / 4)
#define SETS     2
#define KEYS     96 /* of a set */
#define PUTS_MAX (1u << 18)
#define LIST_MAX 24
#define CLIENTS  4
#define KILLS    12
#define RUN_MS   250 /* between two kills */
#define PIECES   3   /* of a value in a client's memory */
#define PINS_MAX 1   /* of a client and set at a time, each of one block */

/* The model's record of a put. Each put has a number; 0 is none. */
struct put_seen {
    _Atomic uint32_t done;  /* 1: it was answered */
    _Atomic uint64_t ended; /* the model's clock when a later remove was answered; or 0 */
    uint32_t set, key;
};

struct model {
    _Atomic uint64_t clock;
    _Atomic uint32_t puts;
    _Atomic uint32_t wrong, ended_twice; /* gets of wrong bytes; gets of a removed put */
    _Atomic uint64_t gets, hits, removed, pinned, again, damaged, loads, calls;
    struct put_seen put[PUTS_MAX];
};

static struct daemon rig;
static char spill[RIG_DIR_BYTES];
static struct model *model;

/* ---- a client ---- */

struct client {
    struct tern_block_set *set[SETS];
    struct prng prng;
    uint32_t n, key[LIST_MAX];
    struct tern_block_key keys[LIST_MAX];
    struct tern_block_value values[LIST_MAX];
    struct iovec iov[LIST_MAX][PIECES];
    uint8_t bytes[LIST_MAX][TERN_BLOCK_KEY_MAX], ok[LIST_MAX];
    uint32_t value[LIST_MAX][WORDS];
    struct tern_block_pin *pin[SETS][PINS_MAX];
    struct tern_block_counts told[SETS]; /* counts that the model already has */
};

/* Errors that a client may get: no room, or the block is in use. */
static void may_be(enum tern_err err, const struct tern_block_set *set)
{
    if (err == TERN_OK || err == TERN_BUSY || err == TERN_POOL_EXHAUSTED || err == TERN_TIMED_OUT)
        return;
    fprintf(stderr, "client: %s: %s\n", err_name(err), tern_blocks_error_text(set));
    _exit(1);
}

static uint32_t below(struct client *c, uint32_t n)
{
    return prng_below(&c->prng, n);
}

static void choose(struct client *c)
{
    c->n = 1 + below(c, below(c, 4) ? 4 : LIST_MAX);
    for (uint32_t i = 0; i < c->n; i++) {
        uint32_t first = below(c, VALUE), second = below(c, VALUE - first);
        uint8_t *at = (uint8_t *)c->value[i];

        c->key[i] = below(c, KEYS);
        c->keys[i] = rig_block_key(c->key[i], c->bytes[i]);
        c->iov[i][0] = (struct iovec){at, first};
        c->iov[i][1] = (struct iovec){at + first, second};
        c->iov[i][2] = (struct iovec){at + first + second, VALUE - first - second};
        c->values[i] = (struct tern_block_value){c->iov[i], PIECES};
    }
}

static void do_put(struct client *c, uint32_t s)
{
    uint32_t first = atomic_fetch_add(&model->puts, c->n);

    if (first + c->n >= PUTS_MAX)
        _exit(0);
    for (uint32_t i = 0; i < c->n; i++) {
        model->put[first + i].set = s;
        model->put[first + i].key = c->key[i];
        rig_block_fill(c->value[i], WORDS, first + i);
    }
    may_be(tern_blocks_put(c->set[s], c->keys, c->values, c->n, 2000, c->ok), c->set[s]);
    for (uint32_t i = 0; i < c->n; i++)
        model->put[first + i].done = 1;
}

static void do_get(struct client *c, uint32_t s)
{
    uint64_t began = atomic_fetch_add(&model->clock, 1);

    memset(c->value, 0xee, c->n * sizeof c->value[0]);
    may_be(tern_blocks_get(c->set[s], c->keys, c->values, c->n, 2000, c->ok), c->set[s]);
    model->gets += c->n;
    for (uint32_t i = 0; i < c->n; i++) {
        const struct put_seen *p;
        uint32_t put;

        if (!c->ok[i])
            continue;
        put = rig_block_put(c->value[i], WORDS);
        put = put < PUTS_MAX ? put : 0;
        p = &model->put[put];
        model->hits++;
        if (put == 0 || p->set != s || p->key != c->key[i])
            model->wrong++;
        else if (p->ended != 0 && p->ended < began)
            model->ended_twice++;
    }
}

/* When a remove is answered, the puts of its keys that were answered before it began are over. */
static void do_remove(struct client *c, uint32_t s)
{
    static uint32_t over[PUTS_MAX];
    uint32_t n = 0, removed, all = model->puts;
    enum tern_err err;

    for (uint32_t put = 1; put < all && put < PUTS_MAX; put++) {
        const struct put_seen *p = &model->put[put];

        for (uint32_t i = 0; p->done && p->ended == 0 && p->set == s && i < c->n; i++)
            if (p->key == c->key[i]) {
                over[n++] = put;
                break;
            }
    }
    err = tern_blocks_remove(c->set[s], c->keys, c->n, 500, &removed);
    may_be(err, c->set[s]);
    model->removed += removed;
    for (uint32_t i = 0; err == TERN_OK && i < n; i++)
        model->put[over[i]].ended = atomic_fetch_add(&model->clock, 1);
}

static void do_pin(struct client *c, uint32_t s)
{
    uint32_t slot = below(c, PINS_MAX);

    if (c->pin[s][slot])
        may_be(tern_blocks_unpin(&c->pin[s][slot], 2000), c->set[s]);
    else
        may_be(tern_blocks_pin(c->set[s], c->keys, 1, 2000, c->ok, &c->pin[s][slot]), c->set[s]);
    model->pinned++;
}

static void do_find(struct client *c, uint32_t s)
{
    uint32_t front, n = 0;

    may_be(tern_blocks_find(c->set[s], c->keys, c->n, 2000, c->ok, &front), c->set[s]);
    while (n < c->n && c->ok[n] != TERN_BLOCK_NOWHERE)
        n++;
    if (n != front)
        model->wrong++;
    may_be(tern_blocks_touch(c->set[s], c->keys, c->n, 2000, &front), c->set[s]);
}

static bool open_sets(struct client *c, uint64_t pool_bytes, uint64_t host_bytes)
{
    for (uint32_t s = 0; s < SETS; s++) {
        struct tern_block_config config = {.ns = {.model = s ? "two" : "one"},
                                           .group = "kv",
                                           .value_bytes = VALUE,
                                           .pool_bytes = pool_bytes,
                                           .host_bytes = host_bytes,
                                           .threads = 2};
        enum tern_err err = tern_blocks_open(rig.socket, &config, 20000, &c->set[s]);

        if (err != TERN_OK) {
            fprintf(stderr, "open: %s: %s\n", err_name(err), tern_blocks_error_text(NULL));
            return false;
        }
    }
    return true;
}

static void counted(struct client *c, uint32_t s)
{
    struct tern_block_counts n;

    tern_blocks_counts(c->set[s], &n);
    model->again += n.again - c->told[s].again;
    model->damaged += n.damaged - c->told[s].damaged;
    model->loads += n.loads - c->told[s].loads;
    c->told[s] = n;
    model->calls++;
}

static void client_runs(uint64_t seed, uint64_t pool_bytes, uint64_t host_bytes, uint32_t calls)
{
    struct client *c = calloc(1, sizeof *c);

    prng_init(&c->prng, seed);
    if (!open_sets(c, pool_bytes, host_bytes))
        _exit(1);
    for (uint32_t i = 0; i < calls; i++) {
        uint32_t what = below(c, 100), s = below(c, 2);

        choose(c);
        if (what < 40)
            do_put(c, s);
        else if (what < 82)
            do_get(c, s);
        else if (what < 88)
            do_remove(c, s);
        else if (what < 94)
            do_pin(c, s);
        else
            do_find(c, s);
        counted(c, s);
    }
    for (uint32_t s = 0; s < SETS; s++)
        tern_blocks_close(c->set[s]);
    _exit(0);
}

/* ---- the test's side ---- */

static uint64_t page_bytes(void)
{
    return (VALUE + 7) / 8 * 8 + 64;
}

static void begin(const char *extra)
{
    model = proc_shared(sizeof *model);
    model->clock = 1;
    model->puts = 1;
    rig_memory = 24u << 20;
    rig_start(&rig, extra, NULL);
}

static void end(void)
{
    struct tern *admin = rig_connected(rig.admin);
    struct daemon_status st;

    wait_until(admin_status(admin, 0, &st) && st.sessions == 0);
    rig_wait_let_go(&rig);
    rig_no_leak(admin, 0, st.pages.total, RIG_WAIT_MS);
    tern_destroy(admin);
}

FIXTURE(remove_all)
{
    char command[256];

    if (rig.pid > 0)
        daemon_end(&rig, 0);
    snprintf(command, sizeof command, "rm -rf '%s' '%s'", spill[0] ? spill : rig.dir, rig.dir);
    return system(command) == 0 ? 0 : -1;
}

/* Runs clients with random calls and kills one now and then, `kills` times; then all run to their
 * end. */
static void play(uint32_t kills, uint64_t pool_bytes, uint64_t host_bytes)
{
    pid_t pid[CLIENTS];
    uint64_t seed = 1;
    int status;

    for (uint32_t i = 0; i < CLIENTS + kills; i++) {
        uint32_t at = i % CLIENTS;

        if (i >= CLIENTS) {
            sleep_ms(RUN_MS);
            proc_end(&pid[at]); /* it may have ended by itself */
        }
        pid[at] = proc_fork();
        if (pid[at] == 0)
            client_runs(seed, pool_bytes, host_bytes, i < kills ? UINT32_MAX : 150);
        seed++;
    }
    for (uint32_t i = 0; i < CLIENTS; i++) {
        assert_true(proc_wait(&pid[i], RIG_WAIT_MS, &status));
        assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
    printf("blocks: calls=%lu puts=%u gets=%lu hits=%lu removed=%lu pins=%lu again=%lu loads=%lu "
           "damaged=%lu wrong=%u after_remove=%u\n",
           model->calls, model->puts, model->gets, model->hits, model->removed, model->pinned,
           model->again, model->loads, model->damaged, model->wrong, model->ended_twice);
    assert_int_equal(model->wrong, 0);
    assert_int_equal(model->ended_twice, 0);
    assert_int_equal(model->damaged, 0);
    assert_true(model->hits > 100 && model->removed > 0);
}

TEST_WITH(blocks_of_clients_that_are_killed_in_a_tight_pool, NULL, remove_all)
{
    begin(NULL);
    play(KILLS, 26 * page_bytes(), 0);
    end();
    assert_int_equal(rig_stop(&rig), 0);
}

/* The first of the blocks of one put call is evicted last. */
TEST_WITH(blocks_at_the_front_of_a_list_stay_longest, NULL, remove_all)
{
    struct client *c = calloc(1, sizeof *c);
    uint8_t place[LIST_MAX];
    uint32_t front;

    begin(NULL);
    prng_init(&c->prng, 3);
    assert_true(open_sets(c, 26 * page_bytes(), 0));
    for (uint32_t call = 0; call < 2; call++) {
        do
            choose(c);
        while (c->n < 18);
        c->n = call ? 12 : 18;
        for (uint32_t i = 0; i < c->n; i++) {
            c->key[i] = call * 20 + i;
            c->keys[i] = rig_block_key(c->key[i], c->bytes[i]);
        }
        assert_int_equal(tern_blocks_put(c->set[0], c->keys, c->values, c->n, 0, NULL), TERN_OK);
    }
    for (uint32_t i = 0; i < 18; i++)
        c->keys[i] = rig_block_key(i, c->bytes[i]);
    assert_int_equal(tern_blocks_find(c->set[0], c->keys, 18, 0, place, &front), TERN_OK);
    assert_in_range(front, 8, 17);
    for (uint32_t i = front; i < 18; i++)
        assert_int_equal(place[i], TERN_BLOCK_NOWHERE);
    for (uint32_t s = 0; s < SETS; s++)
        tern_blocks_close(c->set[s]);
    free(c);
    end();
    assert_int_equal(rig_stop(&rig), 0);
}

static void list_keys(struct client *c, uint32_t from, uint32_t n)
{
    do
        choose(c);
    while (c->n < n);
    c->n = n;
    for (uint32_t i = 0; i < n; i++)
        c->keys[i] = rig_block_key(from + i, c->bytes[i]);
}

/* A put copies blocks before it knows whether they are there. The first put of a key decides its
 * value, and no block has the value of another. */
TEST_WITH(blocks_keep_their_values_where_a_put_has_copied_too_early, NULL, remove_all)
{
    static const uint32_t puts[][2] = {{0, 4}, {4, 4}, {0, 4}, {8, 2}, {6, 9}, {15, 4}, {14, 6}};
    struct client *c = calloc(1, sizeof *c);
    uint32_t first[LIST_MAX] = {0}, keys = 0;

    begin(NULL);
    prng_init(&c->prng, 5);
    assert_true(open_sets(c, 130 * page_bytes(), 0)); /* large enough for pages ahead */
    for (uint32_t call = 0; call < sizeof puts / sizeof puts[0]; call++) {
        const uint32_t from = puts[call][0], n = puts[call][1];

        list_keys(c, from, n);
        for (uint32_t i = 0; i < n; i++) {
            rig_block_fill(c->value[i], WORDS, 1 + call * LIST_MAX + i);
            if (first[from + i] == 0)
                first[from + i] = 1 + call * LIST_MAX + i;
        }
        keys = from + n > keys ? from + n : keys;
        assert_int_equal(tern_blocks_put(c->set[0], c->keys, c->values, n, 0, c->ok), TERN_OK);
        for (uint32_t i = 0; i < n; i++)
            assert_true(c->ok[i]);
    }
    list_keys(c, 0, keys);
    assert_int_equal(tern_blocks_get(c->set[0], c->keys, c->values, keys, 0, c->ok), TERN_OK);
    for (uint32_t i = 0; i < keys; i++)
        assert_int_equal(c->ok[i] ? rig_block_put(c->value[i], WORDS) : 0, first[i]);
    for (uint32_t s = 0; s < SETS; s++)
        tern_blocks_close(c->set[s]);
    free(c);
    end();
    assert_int_equal(rig_stop(&rig), 0);
}

TEST_WITH(blocks_on_the_host_tier_come_back, NULL, remove_all)
{
    begin("    host_memory: 8M\n    host_write_through: true\n");
    play(4, 66 * page_bytes(), 7u << 20); /* large enough for sets to lease a page ahead */
    assert_true(model->loads > 0);
    end();
    assert_int_equal(rig_stop(&rig), 0);
}

/* Gets every key of both sets after a restart: values are right. Returns how many are found. */
static uint32_t get_all(struct client *c)
{
    uint64_t before = model->hits;

    for (uint32_t k = 0; k < SETS * KEYS; k++) {
        choose(c);
        c->n = 1;
        c->key[0] = k % KEYS;
        c->keys[0] = rig_block_key(c->key[0], c->bytes[0]);
        do_get(c, k / KEYS);
    }
    return (uint32_t)(model->hits - before);
}

static void restart(void)
{
    struct daemon_launch how = {.core = -1, .says_ready = true};
    char why[SPAWN_WHY_BYTES] = "";

    assert_int_equal(daemon_end(&rig, RIG_STOP_MS), 0);
    unlink(rig.log);
    if (!daemon_launch(&rig, &how, why))
        fail_msg("%s", why);
}

/* A block that was removed before an orderly end is gone after it, and no value is wrong. */
TEST_WITH(blocks_on_the_disk_come_back_after_a_restart, NULL, remove_all)
{
    struct client *c = calloc(1, sizeof *c);
    char yaml[256];
    uint32_t hits;

    prng_init(&c->prng, 7);
    assert_true(tempdir_make(spill, sizeof spill, "tern-e2e-spill"));
    snprintf(yaml, sizeof yaml, "spill: {dir: %s, bytes: 64M, headroom: 0, threads: 2}\n", spill);
    begin(yaml);
    play(4, 26 * page_bytes(), 0);
    restart();
    assert_true(open_sets(c, 26 * page_bytes(), 0));
    hits = get_all(c);
    for (uint32_t s = 0; s < SETS; s++) {
        counted(c, s);
        tern_blocks_close(c->set[s]);
    }
    printf("blocks: after the restart hits=%u loads=%lu wrong=%u after_remove=%u damaged=%lu\n",
           hits, model->loads, model->wrong, model->ended_twice, model->damaged);
    assert_true(hits > 0);
    assert_int_equal(model->wrong + model->ended_twice + model->damaged, 0);
    end();
    free(c);
    assert_int_equal(rig_stop(&rig), 0);
}
