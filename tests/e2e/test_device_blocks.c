/* Blocks on a GPU of the stand-in, which copies late and in random order: another set gets each
 * value byte for byte, and the context of the calling thread does not change. */
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/prng.h"
#include "engine/proc.h"
#include "kernels/driver.h"
#include "rig_daemon.h"
#include "standin/standin_open.h"
#include "testing/test.h"

#define VALUE  600004 /* three parts, the last of which is short */
#define BLOCKS 24
#define POOL   (20u << 20)

static struct daemon rig;

FIXTURE(stop_rig)
{
    return rig_end(&rig);
}

TEST_EACH(NULL, stop_rig);

static struct tern_block_set *opened(uint32_t threads)
{
    struct tern_block_config config = {.ns = {.model = "m"},
                                       .group = "kv",
                                       .value_bytes = VALUE,
                                       .pool_bytes = POOL,
                                       .threads = threads,
                                       .populate = true};
    struct tern_block_set *set;
    enum tern_err err = tern_blocks_open(rig.socket, &config, RIG_WAIT_MS, &set);

    if (err != TERN_OK)
        fail_msg("%s: %s", err_name(err), tern_blocks_error_text(NULL));
    return set;
}

static void fill(uint8_t *v, uint32_t i)
{
    struct prng p;

    prng_init(&p, i);
    for (uint32_t k = 0; k + 8 <= VALUE; k += 8) {
        uint64_t word = prng_u64(&p);

        memcpy(v + k, &word, 8);
    }
}

TEST(device_blocks_come_back_byte_for_byte)
{
    struct tern_block_set *a, *b;
    struct tern_block_key keys[BLOCKS];
    struct tern_block_value values[BLOCKS];
    struct tern_block_counts counts;
    struct iovec iov[BLOCKS][2];
    uint32_t names[BLOCKS], front, hits = 0;
    uint8_t *v = mem_need(BLOCKS, VALUE), *want = mem_need(1, VALUE), ok[BLOCKS];
    struct driver_why why;
    struct driver d;
    CUcontext context = NULL;

    rig_memory = 32u << 20;
    rig_start(&rig, "    devices: " STANDIN_UUID(0) "\n    device_memory: true\n", NULL);
    a = opened(2);
    b = opened(1);
    for (uint32_t i = 0; i < BLOCKS; i++) {
        names[i] = i;
        keys[i] = (struct tern_block_key){&names[i], sizeof names[i]};
        iov[i][0] = (struct iovec){v + (size_t)i * VALUE, 12345};
        iov[i][1] = (struct iovec){v + (size_t)i * VALUE + 12345, VALUE - 12345};
        values[i] = (struct tern_block_value){iov[i], 2};
        fill(v + (size_t)i * VALUE, i);
    }
    assert_int_equal(tern_blocks_put(a, keys, values, BLOCKS, RIG_WAIT_MS, ok), TERN_OK);
    assert_int_equal(tern_blocks_find(b, keys, BLOCKS, 0, NULL, &front), TERN_OK);
    assert_int_equal(front, BLOCKS);
    memset(v, 0x77, (size_t)BLOCKS * VALUE);
    assert_int_equal(tern_blocks_get(b, keys, values, BLOCKS, RIG_WAIT_MS, ok), TERN_OK);
    for (uint32_t i = 0; i < BLOCKS; i++) {
        fill(want, i);
        hits += ok[i];
        if (ok[i])
            assert_memory_equal(v + (size_t)i * VALUE, want, VALUE - VALUE % 8);
    }
    assert_int_equal(hits, BLOCKS);
    tern_blocks_counts(b, &counts);
    assert_int_equal(counts.again + counts.damaged, 0);
    assert_int_equal(driver_open(&d, DRIVER_LIBRARY, &why), DRIVER_OK);
    assert_int_equal(d.context_get(&context), CUDA_SUCCESS);
    assert_null(context);
    driver_close(&d);
    assert_int_equal(tern_blocks_remove(a, keys, BLOCKS, 0, &front), TERN_OK);
    assert_int_equal(front, BLOCKS);
    tern_blocks_close(a);
    tern_blocks_close(b);
    free(v);
    free(want);
}

/* A driver call fails in this process: nothing is stored, and no stored block is taken for
 * damaged. */
TEST(device_blocks_of_a_gpu_that_fails_are_neither_stored_nor_removed)
{
    struct standin in = standin_open(DRIVER_LIBRARY);
    uint8_t *v = mem_need(1, VALUE), ok;
    struct iovec iov = {v, VALUE};
    struct tern_block_value value = {&iov, 1};
    struct tern_block_key first = {"a", 1}, second = {"b", 1};
    struct tern_block_counts counts;
    struct tern_block_set *set;
    uint32_t front;

    rig_memory = 32u << 20;
    rig_start(&rig, "    devices: " STANDIN_UUID(0) "\n    device_memory: true\n", NULL);
    set = opened(1);
    assert_int_equal(tern_blocks_put(set, &first, &value, 1, RIG_WAIT_MS, NULL), TERN_OK);
    in.let_fail("cuMemcpyHtoDAsync", 1, CUDA_ERROR_INVALID_VALUE);
    assert_err(TERN_INTERNAL, tern_blocks_put(set, &second, &value, 1, RIG_WAIT_MS, &ok));
    assert_non_null(strstr(tern_blocks_error_text(set), "GPU"));
    assert_int_equal(ok, 0);
    assert_err(TERN_INTERNAL, tern_blocks_get(set, &first, &value, 1, RIG_WAIT_MS, &ok));
    assert_int_equal(tern_blocks_find(set, &second, 1, 0, NULL, &front), TERN_OK);
    assert_int_equal(front, 0);
    assert_int_equal(tern_blocks_find(set, &first, 1, 0, NULL, &front), TERN_OK);
    assert_int_equal(front, 1);
    tern_blocks_counts(set, &counts);
    assert_int_equal(counts.damaged, 0);
    tern_blocks_close(set);
    free(v);
}

struct putter {
    struct tern_block_set *set;
    enum tern_err err;
    _Atomic bool ended;
};

static void *put_one(void *arg)
{
    static uint8_t v[VALUE];
    struct putter *p = arg;
    struct iovec iov = {v, VALUE};
    struct tern_block_value value = {&iov, 1};
    struct tern_block_key key = {"c", 1};

    p->err = tern_blocks_put(p->set, &key, &value, 1, RIG_WAIT_MS, NULL);
    p->ended = true;
    return NULL;
}

/* A copy is under way and a later call fails: the put owns the page until the copy is over. */
TEST(device_blocks_keep_the_page_of_a_copy_that_is_under_way)
{
    struct standin in = standin_open(DRIVER_LIBRARY);
    struct putter p = {.err = TERN_OK};
    pthread_t thread;
    bool waits;

    rig_memory = 32u << 20;
    rig_start(&rig, "    devices: " STANDIN_UUID(0) "\n    device_memory: true\n", NULL);
    p.set = opened(1);
    in.hang(0);
    in.let_fail("cuEventRecord", 1, CUDA_ERROR_OUT_OF_MEMORY);
    assert_int_equal(pthread_create(&thread, NULL, put_one, &p), 0);
    (void)poll(NULL, 0, 200);
    waits = !p.ended;
    in.go_on(0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_true(waits);
    assert_err(TERN_INTERNAL, p.err);
    in.let_fail("", 0, CUDA_SUCCESS);
    tern_blocks_close(p.set);
}

static uint32_t sessions_there(void)
{
    json_t *told = NULL;
    const char *text;
    struct tern *t;
    uint32_t n;

    assert_int_equal(tern_connect(rig.socket, RIG_WAIT_MS, &t), TERN_OK);
    assert_int_equal(tern_stats(t, RIG_WAIT_MS, &text), TERN_OK);
    told = json_loads(text, 0, NULL);
    assert_non_null(told);
    n = (uint32_t)json_integer_value(json_object_get(told, "sessions"));
    json_decref(told);
    tern_destroy(t);
    return n;
}

/* Runs in a child. The GPU has failed, and nobody knows whether its copy is over. */
static void put_loosely(int says, int ends)
{
    struct standin in = standin_open(DRIVER_LIBRARY);
    struct putter p = {.err = TERN_OK};
    char c = 'n';

    p.set = opened(1);
    in.hang(0);
    in.let_fail("cuEventRecord", 1, CUDA_ERROR_ILLEGAL_ADDRESS);
    (void)put_one(&p);
    if (p.err == TERN_INTERNAL) {
        (void)put_one(&p); /* takes no further page */
        tern_blocks_close(p.set);
        c = p.err == TERN_INTERNAL ? 'y' : 'n';
    }
    (void)!write(says, &c, 1);
    (void)!read(ends, &c, 1);
    _exit(0);
}

/* Nobody else gets the page until the process has ended, whatever becomes of the set. */
TEST(device_blocks_leave_the_page_to_a_gpu_that_may_still_write_it)
{
    int says[2], ends[2], status;
    uint32_t there;
    pid_t child;
    char c = 0;

    rig_memory = 32u << 20;
    rig_start(&rig, "    devices: " STANDIN_UUID(0) "\n    device_memory: true\n", NULL);
    assert_int_equal(pipe(says) | pipe(ends), 0);
    child = fork();
    if (child == 0)
        put_loosely(says[1], ends[0]);
    close(says[1]); /* so that the death of the child ends the read */
    assert_int_equal(read(says[0], &c, 1), 1);
    there = sessions_there();
    assert_int_equal(kill(child, SIGKILL), 0);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(c, 'y');
    assert_int_equal(there, 1);
    for (uint32_t ms = 0; sessions_there() > 0; ms++) {
        assert_true(ms < RIG_WAIT_MS);
        (void)poll(NULL, 0, 1);
    }
    close(says[0]);
    close(ends[0]);
    close(ends[1]);
}
