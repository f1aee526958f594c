/* Blocks of two hosts whose sets ask any peer: clients put, get, find, touch, pin, remove and
 * cancel at random, over pools and disks that are too small, while clients and daemons are killed.
 * A model in shared memory records the puts: a get must return all bytes of one put of that key,
 * and of none that a remove has ended before. A remove affects one host, so a client that ends puts
 * removes the key from both hosts while nobody uses it (a purge). TERN_FULL=1: minutes of it. */
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/prng.h"
#include "engine/admin.h"
#include "engine/proc.h"
#include "rig_blocks.h"
#include "rig_daemon.h"
#include "testing/test.h"

#define HOSTS        2
#define CLIENTS      20
#define VALUE        160004 /* not a multiple of 8, nor of 4,096 */
#define WORDS        (VALUE / 4)
#define KEYS         64
#define POOL         28 /* pages of each host */
#define LIST_MAX     6
#define PUTS_MAX     (1u << 22)
#define TICK_MS      100
#define SHORT        50 /* ticks */
#define FULL         1500
#define DAEMON_TICKS 15 /* ticks between kills of a daemon */
#define UNDONE_TICKS 20 /* the disk may have missed removes of that many ticks before a kill */
#define CALL_MS      2000

/* State of a client that the other clients need, even after its death. */
struct slot {
    _Atomic uint64_t uses; /* a bit for each key that its calls may bring to a host */
    _Atomic bool purges;
};

struct model {
    _Atomic bool over, no_purge;
    _Atomic uint32_t puts;
    _Atomic uint32_t purger[KEYS];     /* only user of the key, from 1 on; 0: anybody */
    _Atomic uint32_t gone_below[KEYS]; /* earlier puts of that key are gone, except `loose` ones */
    _Atomic uint32_t wrong, removed_came, pin_lost, errors;
    _Atomic uint64_t gets, hits, purged, cancelled, pinned, elsewhere, loads, again, damaged, calls;
    struct slot slot[CLIENTS];
    uint8_t key[PUTS_MAX];
    /* The put may exist again: a call that could bring it was in flight when its client or its
     * remove's daemon ended. */
    _Atomic uint8_t loose[PUTS_MAX];
};

static struct daemon rig[HOSTS];
static char dir[RIG_DIR_BYTES];
static struct model *model;

/* ---- a client ---- */

struct list {
    uint32_t n, key[LIST_MAX];
    struct tern_block_key keys[LIST_MAX];
    struct tern_block_value values[LIST_MAX];
    struct iovec iov[LIST_MAX];
    uint8_t bytes[LIST_MAX][TERN_BLOCK_KEY_MAX], ok[LIST_MAX];
    uint32_t value[LIST_MAX][WORDS];
};

struct client {
    uint32_t me, host;
    struct prng prng;
    struct tern_block_set *set, *other; /* of its host, which asks peers, and of the other host */
    struct tern_block_queue *queue;
    struct list list, queued;
    struct tern_block_pin *pin;
    uint32_t pinned; /* key of the pin */
    struct tern_block_counts told;
};

static uint32_t below(struct client *c, uint32_t n)
{
    return prng_below(&c->prng, n);
}

static void choose(struct client *c, struct list *l)
{
    l->n = 1 + below(c, below(c, 3) ? 2 : LIST_MAX);
    for (uint32_t i = 0; i < l->n; i++) {
        l->key[i] = below(c, KEYS);
        l->keys[i] = rig_block_key(l->key[i], l->bytes[i]);
        l->iov[i] = (struct iovec){l->value[i], VALUE};
        l->values[i] = (struct tern_block_value){&l->iov[i], 1};
    }
}

/* Marks the keys of the list as used, so that no client purges them. Returns false if one does. */
static bool use(struct client *c, const struct list *l)
{
    uint64_t mine = 0;

    for (uint32_t i = 0; i < l->n; i++)
        mine |= 1ull << l->key[i];
    model->slot[c->me].uses = mine;
    for (uint32_t k = 0; k < KEYS; k++)
        if (mine >> k & 1 && model->purger[k] != 0) {
            model->slot[c->me].uses = 0;
            return false;
        }
    return true;
}

static void loosen(uint32_t key, uint32_t from, uint32_t to)
{
    for (uint32_t put = from; put < to; put++)
        if (model->key[put] == key)
            model->loose[put] = 1;
}

/* The calls that used the keys are over; if not `over`, nobody knows how they ended. */
static void let_go(struct slot *slot, bool over)
{
    const uint64_t uses = slot->uses;

    for (uint32_t k = 0; k < KEYS && !over; k++)
        if (uses >> k & 1)
            loosen(k, model->gone_below[k], model->puts);
    slot->uses = 0;
}

static void fill(struct list *l)
{
    uint32_t first = atomic_fetch_add(&model->puts, l->n);

    if (first + l->n >= PUTS_MAX)
        _exit(0);
    for (uint32_t i = 0; i < l->n; i++) {
        model->key[first + i] = (uint8_t)l->key[i];
        rig_block_fill(l->value[i], WORDS, first + i);
    }
}

static void got(const struct client *c, const struct list *l, bool here)
{
    model->gets += l->n;
    for (uint32_t i = 0; i < l->n; i++) {
        uint32_t put = l->ok[i] ? rig_block_put(l->value[i], WORDS) : 0;

        if (!l->ok[i]) {
            model->pin_lost += here && c->pin && c->pinned == l->key[i];
            continue;
        }
        model->hits++;
        if (put == 0 || put >= model->puts || model->key[put] != l->key[i])
            model->wrong++;
        else if (put < model->gone_below[l->key[i]] && !model->loose[put])
            model->removed_came++;
    }
}

/* Checks that a client may get that error. Returns true if the daemon is lost. */
static bool is_lost(enum tern_err err, const char *text)
{
    if (err != TERN_OK && err != TERN_BUSY && err != TERN_POOL_EXHAUSTED && err != TERN_TIMED_OUT &&
        err != TERN_GONE && err != TERN_DAEMON_LOST) {
        fprintf(stderr, "client: %s: %s\n", err_name(err), text);
        model->errors++;
    }
    return err == TERN_DAEMON_LOST;
}

static enum tern_err do_direct(struct client *c, bool puts)
{
    struct list *l = &c->list;
    enum tern_err err;

    if (!use(c, l))
        return TERN_OK;
    if (puts)
        fill(l);
    else
        memset(l->value, 0xee, l->n * sizeof l->value[0]);
    err = puts ? tern_blocks_put(c->set, l->keys, l->values, l->n, CALL_MS, l->ok)
               : tern_blocks_get(c->set, l->keys, l->values, l->n, CALL_MS, l->ok);
    if (!puts && err != TERN_DAEMON_LOST)
        got(c, l, err == TERN_OK);
    let_go(&model->slot[c->me], err == TERN_OK);
    return err;
}

/* A call of the queue, sometimes with one of the set while it waits or is in flight. */
static enum tern_err do_queued(struct client *c, bool puts)
{
    struct list *l = &c->queued;
    struct tern_block_call call = {.what = puts ? TERN_BLOCKS_PUT : TERN_BLOCKS_GET,
                                   .keys = l->keys,
                                   .values = l->values,
                                   .marks = l->ok,
                                   .deadline_ms = CALL_MS};
    struct pollfd p = {.fd = tern_block_queue_fd(c->queue), .events = POLLIN};
    struct tern_block_result r;
    enum tern_err err;
    uint64_t id;

    if (!use(c, l))
        return TERN_OK;
    if (puts)
        fill(l);
    call.n = l->n;
    err = tern_block_queue_submit(c->queue, &call, &id);
    if (err == TERN_OK && below(c, 3) == 0) {
        usleep(below(c, 400));
        model->cancelled += tern_block_queue_cancel(c->queue, id) == TERN_OK;
    }
    while (err == TERN_OK && tern_block_queue_take(c->queue, &r, 1) == 0)
        (void)poll(&p, 1, 1000);
    if (err == TERN_OK)
        err = r.err;
    if (!puts && err != TERN_DAEMON_LOST)
        got(c, l, false);
    let_go(&model->slot[c->me], err == TERN_OK);
    return err;
}

static enum tern_err do_pin(struct client *c)
{
    enum tern_err err;

    c->pinned = KEYS;
    if (c->pin)
        return tern_blocks_unpin(&c->pin, CALL_MS);
    err = tern_blocks_pin(c->set, c->list.keys, 1, CALL_MS, c->list.ok, &c->pin);
    if (err == TERN_OK && c->list.ok[0])
        c->pinned = c->list.key[0];
    model->pinned += c->pinned < KEYS;
    return err;
}

static enum tern_err do_find(struct client *c)
{
    struct list *l = &c->list;
    uint32_t front, n = 0;
    enum tern_err err = tern_blocks_find(c->set, l->keys, l->n, CALL_MS, l->ok, &front);

    if (err != TERN_OK)
        return err;
    for (uint32_t i = 0; i < l->n; i++)
        model->elsewhere += l->ok[i] == TERN_BLOCK_ELSEWHERE;
    while (n < l->n && l->ok[n] != TERN_BLOCK_NOWHERE)
        n++;
    model->wrong += n != front;
    return tern_blocks_touch(c->set, l->keys, l->n, CALL_MS, NULL);
}

static bool used_by_others(const struct client *c, uint32_t key)
{
    for (uint32_t i = 0; i < CLIENTS; i++)
        if (i != c->me && model->slot[i].uses >> key & 1)
            return true;
    return false;
}

/* Removes a key from both hosts while nobody uses it. */
static enum tern_err purge(struct client *c, uint32_t key)
{
    enum tern_err err = TERN_OK, other = TERN_OK;
    uint32_t puts, removed = 0, there = 0;

    for (uint32_t i = 0; i < 100 && used_by_others(c, key); i++)
        usleep(2000);
    puts = model->puts; /* nobody puts the key now */
    if (used_by_others(c, key))
        return TERN_OK;
    err = tern_blocks_remove(c->set, c->list.keys, 1, CALL_MS / 4, &removed);
    other = tern_blocks_remove(c->other, c->list.keys, 1, CALL_MS / 4, &there);
    if (err == TERN_OK && other == TERN_OK) {
        model->gone_below[key] = puts;
        model->purged += removed + there > 0;
    }
    return err != TERN_OK ? err : other;
}

static enum tern_err do_purge(struct client *c)
{
    const uint32_t key = c->list.key[0];
    struct slot *slot = &model->slot[c->me];
    enum tern_err err = TERN_OK;
    uint32_t nobody = 0;

    slot->purges = true;
    if (!model->no_purge &&
        atomic_compare_exchange_strong(&model->purger[key], &nobody, c->me + 1)) {
        err = purge(c, key);
        model->purger[key] = 0;
    }
    slot->purges = false;
    return err;
}

static void close_all(struct client *c)
{
    tern_block_queue_close(c->queue);
    tern_blocks_close(c->other);
    tern_blocks_close(c->set); /* and its pin */
    c->queue = NULL;
    c->set = c->other = NULL;
    c->pin = NULL;
}

/* Repeats: the daemon may be down, or may not have seen yet that the old client is gone. */
static void open_all(struct client *c)
{
    struct tern_block_config config = {.ns = {.model = "m"},
                                       .group = "kv",
                                       .value_bytes = VALUE,
                                       .pool_bytes = POOL * (VALUE / 8 * 8 + 8 + 64),
                                       .hosts = TERN_PEER_ANY};

    for (uint64_t end_ms = rig_now_ms() + RIG_WAIT_MS;; usleep(20000)) {
        config.hosts = TERN_PEER_ANY;
        if (tern_blocks_open(rig[c->host].socket, &config, CALL_MS, &c->set) == TERN_OK &&
            tern_block_queue_open(rig[c->host].socket, &config, CALL_MS, &c->queue) == TERN_OK) {
            config.hosts = NULL;
            if (tern_blocks_open(rig[!c->host].socket, &config, CALL_MS, &c->other) == TERN_OK)
                break;
        }
        close_all(c);
        if (rig_now_ms() > end_ms) {
            fprintf(stderr, "client: open: %s\n", tern_blocks_error_text(NULL));
            model->errors++;
            _exit(1);
        }
    }
    memset(&c->told, 0, sizeof c->told);
}

static void counted(struct client *c)
{
    struct tern_block_counts n;

    tern_blocks_counts(c->set, &n);
    model->again += n.again - c->told.again;
    model->damaged += n.damaged - c->told.damaged;
    model->loads += n.loads - c->told.loads;
    c->told = n;
    model->calls++;
}

static enum tern_err do_any(struct client *c)
{
    const uint32_t what = below(c, 100);

    choose(c, &c->list);
    choose(c, &c->queued);
    return what < 30   ? do_direct(c, true)
           : what < 65 ? do_direct(c, false)
           : what < 83 ? do_queued(c, what < 72)
           : what < 88 ? do_pin(c)
           : what < 93 ? do_purge(c)
                       : do_find(c);
}

static void client_runs(uint32_t me, uint64_t seed)
{
    struct client *c = calloc(1, sizeof *c);

    c->me = me;
    c->host = me % HOSTS;
    prng_init(&c->prng, seed);
    open_all(c);
    while (!model->over) {
        if (is_lost(do_any(c), tern_blocks_error_text(c->set))) {
            close_all(c);
            open_all(c);
        } else
            counted(c);
    }
    close_all(c);
    _exit(0);
}

/* ---- the test's side ---- */

static uint16_t ports[HOSTS];

static void launch(uint32_t host)
{
    struct daemon_launch how = {.core = -1, .says_ready = true};
    char why[SPAWN_WHY_BYTES] = "";

    unlink(rig[host].log);
    if (!daemon_launch(&rig[host], &how, why))
        fail_msg("%s", why);
}

static void configure(uint32_t host)
{
    char node[8], spill[128];
    FILE *f;

    snprintf(node, sizeof node, "h%u", host);
    daemon_place(&rig[host], dir, node);
    snprintf(spill, sizeof spill, "%s/%s.spill", dir, node);
    f = fopen(rig[host].config, "w");
    assert_non_null(f);
    fprintf(f,
            "node: %s\ninsecure_peers: true\npage_bytes_min: 4096\nworkers: 1\nhuge_pages: false\n"
            "listen: 127.0.0.1:%u\nlimits: {engines: 64}\nadmin: {socket: %s}\n"
            "peers:\n  - {name: h%u, address: \"127.0.0.1:%u\", tenants: [t0]}\n"
            "spill: {dir: %s, bytes: 4M, headroom: 0, threads: 2}\n"
            "tenants:\n  - {name: t0, socket: %s, memory: 6M}\n",
            node, ports[host], rig[host].admin, !host, ports[!host], spill, rig[host].socket);
    assert_int_equal(fclose(f), 0);
    assert_int_equal(mkdir(spill, 0700), 0);
}

FIXTURE(start)
{
    assert_true(tempdir_make(dir, sizeof dir, "tern-e2e-blocks"));
    for (uint32_t i = 0; i < HOSTS; i++)
        assert_true((ports[i] = port_free()) != 0);
    for (uint32_t i = 0; i < HOSTS; i++) {
        configure(i);
        launch(i);
    }
    for (uint32_t i = 0; i < HOSTS; i++)
        rig_wait_linked(&rig[i], i ? "h0" : "h1");
    model = proc_shared(sizeof *model);
    model->puts = 1;
    return 0;
}

FIXTURE(stop)
{
    char command[128];

    for (uint32_t i = 0; i < HOSTS; i++)
        if (rig[i].pid > 0)
            daemon_end(&rig[i], 0);
    snprintf(command, sizeof command, "rm -rf '%s'", dir);
    return system(command) == 0 ? 0 : -1;
}

static void begin_client(pid_t pid[CLIENTS], uint32_t at, uint64_t seed)
{
    pid[at] = proc_fork();
    if (pid[at] == 0)
        client_runs(at, seed);
}

/* Kills a client: the results of its calls in flight are unknown. */
static void kill_client(pid_t pid[CLIENTS], uint32_t at)
{
    uint32_t owner = at + 1;

    proc_end(&pid[at]);
    for (uint32_t k = 0; k < KEYS; k++, owner = at + 1)
        (void)atomic_compare_exchange_strong(&model->purger[k], &owner, 0);
    model->slot[at].purges = false;
    let_go(&model->slot[at], false);
}

/* Kills a daemon: its disk may still have puts removed moments before. */
static void kill_daemon(uint32_t host, const uint32_t gone_before[KEYS])
{
    model->no_purge = true;
    for (uint32_t i = 0; i < CLIENTS; i++)
        wait_until(!model->slot[i].purges);
    proc_end(&rig[host].pid);
    for (uint32_t k = 0; k < KEYS; k++)
        loosen(k, gone_before[k], model->gone_below[k]);
    model->no_purge = false;
    launch(host);
}

static void ends_clean(uint32_t host)
{
    struct tern *admin = rig_connected(rig[host].admin);
    struct daemon_status st;

    wait_until(admin_status(admin, 0, &st) && st.sessions == 0);
    rig_wait_let_go(&rig[host]);
    rig_no_leak(admin, 0, st.pages.total, RIG_WAIT_MS);
    tern_destroy(admin);
    assert_int_equal(daemon_end(&rig[host], RIG_STOP_MS), 0);
}

TEST_WITH(blocks_of_two_hosts_whose_clients_and_daemons_are_killed, start, stop)
{
    static uint32_t gone[UNDONE_TICKS][KEYS]; /* gone_below of the last ticks */
    const char *full = getenv("TERN_FULL");
    const uint32_t ticks = full && full[0] == '1' ? FULL : SHORT;
    uint32_t clients = 0, daemons = 0;
    pid_t pid[CLIENTS];
    struct prng prng;
    int status;

    prng_init(&prng, 1);
    for (uint32_t i = 0; i < CLIENTS; i++)
        begin_client(pid, i, i);
    for (uint32_t t = 1; t <= ticks; t++) {
        uint32_t at = prng_below(&prng, CLIENTS);

        sleep_ms(TICK_MS);
        if (t % DAEMON_TICKS == 0)
            kill_daemon(daemons++ % HOSTS, gone[t % UNDONE_TICKS]);
        else if (prng_below(&prng, 2)) {
            kill_client(pid, at);
            begin_client(pid, at, CLIENTS + ++clients);
        }
        for (uint32_t k = 0; k < KEYS; k++)
            gone[t % UNDONE_TICKS][k] = model->gone_below[k];
    }
    model->over = true;
    for (uint32_t i = 0; i < CLIENTS; i++) {
        assert_true(proc_wait(&pid[i], RIG_WAIT_MS, &status));
        assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
    printf("blocks: clients_killed=%u daemons_killed=%u calls=%lu puts=%u gets=%lu hits=%lu "
           "elsewhere=%lu loads=%lu pins=%lu cancelled=%lu purged=%lu again=%lu damaged=%lu "
           "wrong=%u removed_came=%u pin_lost=%u errors=%u\n",
           clients, daemons, model->calls, model->puts, model->gets, model->hits, model->elsewhere,
           model->loads, model->pinned, model->cancelled, model->purged, model->again,
           model->damaged, model->wrong, model->removed_came, model->pin_lost, model->errors);
    assert_int_equal(model->wrong, 0);
    assert_int_equal(model->removed_came, 0);
    assert_int_equal(model->pin_lost, 0);
    assert_int_equal(model->damaged, 0);
    assert_int_equal(model->errors, 0);
    assert_true(model->hits > 1000 && model->elsewhere > 0 && model->loads > 0);
    assert_true(model->purged > 0 && model->cancelled > 0 && model->pinned > 0);
    for (uint32_t i = 0; i < HOSTS; i++)
        ends_clean(i);
}
