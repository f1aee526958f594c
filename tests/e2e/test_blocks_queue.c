/* Queues of blocks over a real daemon: calls that return at once, results by the eventfd, and each
 * way in which a call ends early. A stopped daemon keeps a call in flight. */
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "engine/proc.h"
#include "rig_daemon.h"
#include "testing/test.h"

#define VALUE   (64u << 10)
#define LIST    8
#define THREADS 4
#define ROUNDS  40

static struct daemon rig;

FIXTURE(remove_all)
{
    char command[256];

    if (rig.pid > 0) {
        kill(rig.pid, SIGCONT);
        daemon_end(&rig, 0);
    }
    snprintf(command, sizeof command, "rm -rf '%s'", rig.dir);
    return system(command) == 0 ? 0 : -1;
}

/* A list of blocks whose keys and values follow from `first`. */
struct list {
    uint8_t key_bytes[LIST][4], marks[LIST];
    struct tern_block_key keys[LIST];
    struct tern_block_value values[LIST];
    struct iovec iov[LIST];
    uint8_t value[LIST][VALUE];
};

static uint8_t byte_of(uint32_t key)
{
    return (uint8_t)(key * 37 + 1);
}

static struct list *list_of(uint32_t first, bool filled)
{
    struct list *l = calloc(1, sizeof *l);

    assert_true(l);
    for (uint32_t i = 0; i < LIST; i++) {
        uint32_t key = first + i;

        memcpy(l->key_bytes[i], &key, sizeof key);
        l->keys[i] = (struct tern_block_key){l->key_bytes[i], sizeof key};
        l->iov[i] = (struct iovec){l->value[i], VALUE};
        l->values[i] = (struct tern_block_value){&l->iov[i], 1};
        if (filled)
            memset(l->value[i], byte_of(key), VALUE);
    }
    return l;
}

static uint32_t right(const struct list *l, uint32_t first)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < LIST; i++)
        n += l->value[i][0] == byte_of(first + i) && l->value[i][VALUE - 1] == l->value[i][0];
    return n;
}

static struct tern_block_queue *queue_open(void)
{
    struct tern_block_config config = {.ns = {.model = "m"},
                                       .group = "kv",
                                       .value_bytes = VALUE,
                                       .pool_bytes = 20u << 20,
                                       .threads = 1};
    struct tern_block_queue *q;

    assert_int_equal(tern_block_queue_open(rig.socket, &config, 20000, &q), TERN_OK);
    return q;
}

static void begin(void)
{
    rig_memory = 24u << 20;
    rig_start(&rig, NULL, NULL);
}

static uint64_t submit(struct tern_block_queue *q, enum tern_block_what what, struct list *l,
                       uint32_t deadline_ms)
{
    struct tern_block_call call = {.what = what,
                                   .n = LIST,
                                   .keys = l->keys,
                                   .values = l->values,
                                   .marks = l->marks,
                                   .deadline_ms = deadline_ms,
                                   .tag = (uint64_t)what * 100};
    uint64_t id = 0;

    assert_int_equal(tern_block_queue_submit(q, &call, &id), TERN_OK);
    assert_true(id > 0);
    return id;
}

static bool readable(struct tern_block_queue *q, int ms)
{
    struct pollfd p = {.fd = tern_block_queue_fd(q), .events = POLLIN};

    return poll(&p, 1, ms) == 1;
}

static struct tern_block_result result_of(struct tern_block_queue *q)
{
    struct tern_block_result r;

    assert_true(readable(q, RIG_WAIT_MS));
    assert_int_equal(tern_block_queue_take(q, &r, 1), 1);
    return r;
}

static void ends_as(struct tern_block_queue *q, uint64_t id, enum tern_err err)
{
    struct tern_block_result r = result_of(q);

    if (r.err != err)
        fprintf(stderr, "ended as %u: %s\n", r.err, r.text);
    assert_int_equal(r.id, id);
    assert_int_equal(r.err, err);
    assert_true(err == TERN_OK ? r.text[0] == '\0' : r.text[0] != '\0');
}

TEST_WITH(queue_answers_in_order_and_counts_marks, NULL, remove_all)
{
    static const enum tern_block_what whats[] = {TERN_BLOCKS_PUT,    TERN_BLOCKS_FIND,
                                                 TERN_BLOCKS_GET,    TERN_BLOCKS_TOUCH,
                                                 TERN_BLOCKS_REMOVE, TERN_BLOCKS_GET};
    const uint32_t n = sizeof whats / sizeof *whats;
    struct tern_block_result r;
    struct tern_block_queue *q;
    struct list *l[6];

    begin();
    q = queue_open();
    assert_false(readable(q, 0));
    for (uint32_t i = 0; i < n; i++) {
        l[i] = list_of(10, whats[i] == TERN_BLOCKS_PUT);
        assert_int_equal(submit(q, whats[i], l[i], 0), i + 1);
    }
    for (uint32_t i = 0; i < n; i++) {
        r = result_of(q);
        assert_int_equal(r.id, i + 1);
        assert_int_equal(r.tag, whats[i] * 100);
        assert_int_equal(r.err, TERN_OK);
        assert_int_equal(r.count, i + 1 < n ? LIST : 0);
    }
    assert_int_equal(right(l[2], 10), LIST);
    assert_int_equal(l[1]->marks[LIST - 1], TERN_BLOCK_IN_POOL);
    assert_false(readable(q, 0));
    assert_int_equal(tern_block_queue_take(q, &r, 1), 0);
    for (uint32_t i = 0; i < n; i++)
        free(l[i]);
    tern_block_queue_close(q);
    assert_int_equal(rig_stop(&rig), 0);
}

/* Cancels a put while the daemon is stopped. Returns true if the put was in flight by then, no
 * longer queued. */
static bool cancel_under_way(struct tern_block_queue *q, struct list *l, uint32_t pause_ms)
{
    bool waits_on;
    uint64_t id;

    kill(rig.pid, SIGSTOP);
    id = submit(q, TERN_BLOCKS_PUT, l, 20000);
    (void)poll(NULL, 0, (int)pause_ms);
    assert_int_equal(tern_block_queue_cancel(q, id), TERN_OK);
    waits_on = !readable(q, 20);
    kill(rig.pid, SIGCONT);
    ends_as(q, id, TERN_GONE);
    return waits_on;
}

TEST_WITH(queue_ends_calls_that_are_cancelled, NULL, remove_all)
{
    struct list *l = list_of(10, true), *other = list_of(50, true);
    uint64_t first, waits, late, last;
    struct tern_block_queue *q;
    uint32_t pause_ms = 0;

    begin();
    q = queue_open();
    while (!cancel_under_way(q, l, pause_ms))
        assert_true(++pause_ms < 1000);
    kill(rig.pid, SIGSTOP);
    first = submit(q, TERN_BLOCKS_FIND, l, 20000);
    waits = submit(q, TERN_BLOCKS_PUT, other, 20000);
    late = submit(q, TERN_BLOCKS_GET, other, 1);
    last = submit(q, TERN_BLOCKS_GET, other, 20000);
    assert_int_equal(tern_block_queue_cancel(q, waits), TERN_OK);
    ends_as(q, waits, TERN_GONE);
    assert_int_equal(tern_block_queue_cancel(q, waits), TERN_GONE);
    (void)poll(NULL, 0, 5);
    kill(rig.pid, SIGCONT);
    ends_as(q, first, TERN_OK);
    ends_as(q, late, TERN_TIMED_OUT);
    ends_as(q, last, TERN_OK);
    for (uint32_t i = 0; i < LIST; i++)
        assert_int_equal(other->marks[i], 0);              /* its put never ran */
    ends_as(q, submit(q, TERN_BLOCKS_PUT, l, 0), TERN_OK); /* no trace of the first one is left */
    assert_int_equal(tern_block_queue_cancel(q, 1u << 20), TERN_GONE);
    tern_block_queue_close(q);
    free(l);
    free(other);
    assert_int_equal(rig_stop(&rig), 0);
}

/* A put that ends at its deadline frees its pages: the next put takes others. */
TEST_WITH(queue_puts_after_one_that_timed_out, NULL, remove_all)
{
    struct list *l = list_of(10, true), *again = list_of(10, false);
    struct tern_block_queue *q;
    uint32_t stored = 0;

    begin();
    q = queue_open();
    for (uint32_t i = 0; i < 60; i++) { /* stops the daemon at each point of a put */
        struct tern_block_result r;

        submit(q, TERN_BLOCKS_REMOVE, l, 0);
        assert_int_equal(result_of(q).err, TERN_OK);
        submit(q, TERN_BLOCKS_PUT, l, 25);
        for (volatile uint32_t spin = 0; spin < i * 2000; spin++)
            ;
        kill(rig.pid, SIGSTOP);
        (void)poll(NULL, 0, 40); /* longer than the deadline, shorter than freeing pages waits */
        kill(rig.pid, SIGCONT);
        r = result_of(q);
        assert_true(r.err == TERN_OK || r.err == TERN_TIMED_OUT);
        stored += r.err == TERN_OK;
        ends_as(q, submit(q, TERN_BLOCKS_PUT, l, 0), TERN_OK);
        memset(again->value, 0, sizeof again->value);
        ends_as(q, submit(q, TERN_BLOCKS_GET, again, 0), TERN_OK);
        assert_int_equal(right(again, 10), LIST);
    }
    printf("queue: %u of 60 puts were in time\n", stored);
    tern_block_queue_close(q);
    free(l);
    free(again);
    assert_int_equal(rig_stop(&rig), 0);
}

TEST_WITH(queue_refuses_what_it_cannot_take, NULL, remove_all)
{
    struct list *l = list_of(10, true);
    struct tern_block_call call = {.what = TERN_BLOCKS_GET, .n = LIST, .keys = l->keys};
    struct tern_block_result r[8];
    struct tern_block_queue *q;
    uint32_t taken = 0;

    begin();
    q = queue_open();
    assert_int_equal(tern_block_queue_submit(q, &call, NULL), TERN_INVALID);
    call.what = 6;
    assert_int_equal(tern_block_queue_submit(q, &call, NULL), TERN_INVALID);
    call.what = TERN_BLOCKS_FIND;
    for (uint32_t i = 0; i < TERN_BLOCKS_QUEUED_MAX; i++)
        assert_int_equal(tern_block_queue_submit(q, &call, NULL), TERN_OK);
    assert_int_equal(tern_block_queue_submit(q, &call, NULL), TERN_BUSY);
    assert_true(readable(q, RIG_WAIT_MS));
    assert_true(tern_block_queue_take(q, r, 8) > 0);
    call.n = TERN_BLOCKS_LIST_MAX + 1; /* an error of the call itself arrives as its result */
    call.marks = l->marks;
    call.tag = 7;
    assert_int_equal(tern_block_queue_submit(q, &call, NULL), TERN_OK);
    while (taken == 0 || r[taken - 1].tag != 7)
        if (readable(q, RIG_WAIT_MS))
            taken = tern_block_queue_take(q, r, 8);
    assert_int_equal(r[taken - 1].err, TERN_INVALID);
    tern_block_queue_close(q);
    free(l);
    assert_int_equal(rig_stop(&rig), 0);
}

/* Closing a queue ends its calls in flight, and a queue outlives its daemon. */
TEST_WITH(queue_ends_with_its_owner_and_after_its_daemon, NULL, remove_all)
{
    struct list *l = list_of(10, true);
    struct tern_block_call call = {.what = TERN_BLOCKS_FIND, .n = LIST, .keys = l->keys};
    struct tern_block_queue *q;
    int status;
    pid_t child;

    begin();
    q = queue_open();
    ends_as(q, submit(q, TERN_BLOCKS_PUT, l, 0), TERN_OK);
    child = fork();
    if (child == 0) {
        int wrong = tern_block_queue_submit(q, &call, NULL) != TERN_DAEMON_LOST;

        tern_block_queue_close(q);
        _exit(wrong);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    ends_as(q, submit(q, TERN_BLOCKS_GET, l, 0), TERN_OK);
    for (uint32_t i = 0; i < 20; i++)
        submit(q, TERN_BLOCKS_GET, l, 0);
    tern_block_queue_close(q);

    q = queue_open();
    daemon_end(&rig, 0);
    ends_as(q, submit(q, TERN_BLOCKS_GET, l, 0), TERN_DAEMON_LOST);
    tern_block_queue_close(q);
    free(l);
}

struct submitter {
    struct tern_block_queue *q;
    uint32_t first;
    struct list *put, *got[ROUNDS];
};

static void *submit_all(void *arg)
{
    struct submitter *s = arg;

    for (uint32_t i = 0; i < ROUNDS; i++) {
        submit(s->q, TERN_BLOCKS_PUT, s->put, 0);
        submit(s->q, TERN_BLOCKS_GET, s->got[i], 0);
    }
    return NULL;
}

TEST_WITH(queue_takes_calls_of_several_threads, NULL, remove_all)
{
    struct submitter s[THREADS];
    pthread_t thread[THREADS];
    struct tern_block_queue *q;
    struct tern_block_result r[16];
    uint32_t ended = 0;

    begin();
    q = queue_open();
    for (uint32_t i = 0; i < THREADS; i++) {
        s[i] = (struct submitter){.q = q, .first = 1000 * i, .put = list_of(1000 * i, true)};
        for (uint32_t k = 0; k < ROUNDS; k++)
            s[i].got[k] = list_of(1000 * i, false);
        assert_int_equal(pthread_create(&thread[i], NULL, submit_all, &s[i]), 0);
    }
    while (ended < THREADS * ROUNDS * 2) {
        uint32_t n;

        assert_true(readable(q, RIG_WAIT_MS));
        n = tern_block_queue_take(q, r, 16);
        for (uint32_t i = 0; i < n; i++) {
            assert_int_equal(r[i].err, TERN_OK);
            assert_int_equal(r[i].count, LIST);
        }
        ended += n;
    }
    for (uint32_t i = 0; i < THREADS; i++) {
        pthread_join(thread[i], NULL);
        for (uint32_t k = 0; k < ROUNDS; k++) {
            assert_int_equal(right(s[i].got[k], s[i].first), LIST);
            free(s[i].got[k]);
        }
        free(s[i].put);
    }
    tern_block_queue_close(q);
    assert_int_equal(rig_stop(&rig), 0);
}
