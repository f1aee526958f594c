/* tern-bench blocks: puts and gets of values in a store of blocks, against two loops over memory of
 * the same size with as many threads, alternating in the same run: one copies 4 KiB at a time and
 * hashes them, the other is memcpy. Each pass covers BYTES of values, so that no cache has them
 * all. Also finds 4,096 keys. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/checksum_blocks.h"
#include "bench.h"
#include "engine/daemon.h"
#include "engine/json.h"
#include "engine/proc.h"
#include "engine/stats.h"
#include "tern.h"

#define BYTES        (128ull << 20) /* of one pass */
#define BYTES_QUICK  (16ull << 20)
#define CALLS_MAX    256 /* of one pass: small values go over less */
#define ROUNDS       7
#define ROUNDS_QUICK 1
#define THREADS_MAX  8
#define FIND_KEYS    4096
#define FINDS        200
#define KEY_BYTES    32
#define RATIO        0.9
#define FIND_US_MAX  1000

static const uint64_t value_sizes[] = {4096, 65536, 262144, 1 << 20, 4 << 20};
static const uint32_t lists[] = {1, 32};
static const uint32_t thread_counts[] = {1, 2, 4, 8};

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

struct bench {
    const struct bench_args *args;
    struct daemon daemon;
    uint8_t *ours, *theirs; /* BYTES each: the caller's values, and the loops' destination */
    struct tern_block_key *keys;
    uint8_t (*key)[KEY_BYTES];
    struct tern_block_value *values;
    struct iovec *iov;
    uint8_t *ok;
    json_t *rows, *finds;
    uint32_t round; /* each round has fresh keys */
    uint64_t wrong; /* values that were returned wrong */
    bool within;
};

/* One row of the table. */
struct row {
    uint64_t value_bytes;
    uint32_t list, threads, values;
};

_Noreturn static void failed(const struct bench *b, const struct tern_block_set *set,
                             const char *what)
{
    fprintf(stderr, "tern-bench blocks: %s: %s\n", what, tern_blocks_error_text(set));
    daemon_end((struct daemon *)(uintptr_t)&b->daemon, 0);
    exit(2);
}

/* ---- the loops ---- */

enum loop { LOOP_HASHES, LOOP_COPIES };

struct share {
    uint8_t *to;
    const uint8_t *from;
    uint64_t bytes, sum;
    enum loop loop;
};

static void *run_share(void *arg)
{
    struct share *s = arg;
    uint64_t sum;

    if (s->loop == LOOP_COPIES) {
        memcpy(s->to, s->from, s->bytes);
        return NULL;
    }
    for (uint64_t at = 0; at < s->bytes; at += CHECKSUM_BLOCK) {
        memcpy(s->to + at, s->from + at, CHECKSUM_BLOCK);
        checksum_blocks(s->to + at, CHECKSUM_BLOCK, &sum);
        s->sum += sum;
    }
    return NULL;
}

/* Returns GB/s of a pass over the row's bytes, divided over its threads. */
static double loop_gb_s(struct bench *b, const struct row *r, enum loop loop)
{
    uint64_t bytes = r->value_bytes * r->values, each = bytes / r->threads / 4096 * 4096;
    pthread_t thread[THREADS_MAX];
    struct share share[THREADS_MAX];
    uint64_t began = clock_ns();

    for (uint32_t i = 0; i < r->threads; i++) {
        share[i] = (struct share){.to = b->theirs + i * each,
                                  .from = b->ours + i * each,
                                  .bytes = i + 1 == r->threads ? bytes - i * each : each,
                                  .loop = loop};
        if (i > 0 && pthread_create(&thread[i], NULL, run_share, &share[i]) != 0)
            failed(b, NULL, "no thread");
    }
    run_share(&share[0]);
    for (uint32_t i = 1; i < r->threads; i++)
        pthread_join(thread[i], NULL);
    return (double)bytes / (double)(clock_ns() - began);
}

/* ---- blocks ---- */

static void name_keys(struct bench *b, uint32_t n)
{
    b->round++;
    for (uint32_t i = 0; i < n; i++) {
        uint64_t words[KEY_BYTES / 8];

        for (uint32_t k = 0; k < KEY_BYTES / 8; k++)
            words[k] = (((uint64_t)b->round << 32 | i) + k) * 0x9e3779b97f4a7c15u;
        memcpy(b->key[i], words, KEY_BYTES);
        b->keys[i] = (struct tern_block_key){b->key[i], KEY_BYTES};
    }
}

static void place_values(struct bench *b, const struct row *r, uint8_t *base)
{
    for (uint32_t i = 0; i < r->values; i++) {
        b->iov[i] = (struct iovec){base + i * r->value_bytes, r->value_bytes};
        b->values[i] = (struct tern_block_value){&b->iov[i], 1};
    }
}

typedef enum tern_err pass_fn(struct tern_block_set *set, const struct tern_block_key *keys,
                              const struct tern_block_value *values, uint32_t n,
                              uint32_t deadline_ms, uint8_t *ret);

static double pass_gb_s(struct bench *b, const struct row *r, struct tern_block_set *set,
                        pass_fn *pass, struct series *call_us)
{
    uint64_t began = clock_ns(), at = began;
    double gb_s;

    for (uint32_t from = 0; from < r->values; from += r->list) {
        uint64_t now;

        if (pass(set, b->keys + from, b->values + from, r->list, 0, b->ok + from) != TERN_OK)
            failed(b, set, "a pass");
        now = clock_ns();
        series_add(call_us, (double)(now - at) / 1000);
        at = now;
    }
    gb_s = (double)(r->value_bytes * r->values) / (double)(clock_ns() - began);
    for (uint32_t i = 0; i < r->values; i++)
        if (!b->ok[i])
            failed(b, set, "a block is not there");
    return gb_s;
}

static void remove_all(struct bench *b, const struct row *r, struct tern_block_set *set)
{
    for (uint32_t from = 0, n; from < r->values; from += n) {
        n = r->values - from < TERN_BLOCKS_LIST_MAX ? r->values - from : TERN_BLOCKS_LIST_MAX;
        if (tern_blocks_remove(set, b->keys + from, n, 0, NULL) != TERN_OK)
            failed(b, set, "removing");
    }
}

enum figure { PUT, GET, LOOP, COPY, PUT_RATIO, GET_RATIO, PUT_US, GET_US, FIGURES };

static const char *const figure_names[FIGURES] = {"put_gb_s",    "get_gb_s",  "loop_gb_s",
                                                  "memcpy_gb_s", "put_ratio", "get_ratio",
                                                  "put_us_p50",  "get_us_p50"};

static void measure_round(struct bench *b, const struct row *r, struct tern_block_set *set,
                          struct series *f)
{
    double put, get, loop;

    name_keys(b, r->values);
    loop = loop_gb_s(b, r, LOOP_HASHES);
    place_values(b, r, b->ours);
    put = pass_gb_s(b, r, set, tern_blocks_put, &f[PUT_US]);
    series_add(&f[COPY], loop_gb_s(b, r, LOOP_COPIES));
    place_values(b, r, b->theirs);
    memset(b->theirs, 0, r->value_bytes * r->values);
    get = pass_gb_s(b, r, set, tern_blocks_get, &f[GET_US]);
    for (uint32_t i = 0; i < r->values; i++)
        b->wrong += memcmp(b->ours + i * r->value_bytes, b->theirs + i * r->value_bytes,
                           r->value_bytes) != 0;
    loop = (loop + loop_gb_s(b, r, LOOP_HASHES)) / 2;
    remove_all(b, r, set);
    series_add(&f[PUT], put);
    series_add(&f[GET], get);
    series_add(&f[LOOP], loop);
    series_add(&f[PUT_RATIO], put / loop);
    series_add(&f[GET_RATIO], get / loop);
}

static struct tern_block_set *open_set(struct bench *b, const struct row *r)
{
    struct tern_block_config config = {
        .ns = {.model = "bench"},
        .group = "kv",
        .value_bytes = r->value_bytes,
        .pool_bytes = (r->value_bytes + 64) * (BYTES / r->value_bytes + 16) * 9 / 8, /* of all */
        .threads = r->threads,
        .populate = true};
    struct tern_block_set *set;

    if (tern_blocks_open(b->daemon.socket, &config, 60000, &set) != TERN_OK)
        failed(b, NULL, "opening a set");
    return set;
}

static void show_row(struct bench *b, const struct row *r, struct series *f)
{
    json_t *o = json_object();
    double v[FIGURES];

    json_put_u64(o, "value_bytes", r->value_bytes);
    json_put_u64(o, "list", r->list);
    json_put_u64(o, "threads", r->threads);
    for (uint32_t i = 0; i < FIGURES; i++) {
        v[i] = series_median(&f[i]);
        json_put_f64(o, figure_names[i], v[i]);
    }
    json_array_append_new(b->rows, o);
    if (!b->args->json)
        printf("  %8lu x %2u, %u threads  put %6.2f GB/s (%.2f of the loop, %8.0f us a call)  get "
               "%6.2f GB/s (%.2f, %8.0f us)  loop %.2f  memcpy %.2f\n",
               r->value_bytes, r->list, r->threads, v[PUT], v[PUT_RATIO], v[PUT_US], v[GET],
               v[GET_RATIO], v[GET_US], v[LOOP], v[COPY]);
    if (r->threads > 1 || r->value_bytes < (r->list > 1 ? 262144u : 4u << 20))
        return;
    b->within &= bench_limit(v[PUT_RATIO] >= RATIO, "a put against the loop");
    b->within &= bench_limit(v[GET_RATIO] >= RATIO, "a get against the loop");
}

static void measure_row(struct bench *b, struct row r)
{
    uint64_t bytes = b->args->quick ? BYTES_QUICK : BYTES;
    struct series f[FIGURES];
    struct tern_block_set *set;

    r.values = (uint32_t)(bytes / r.value_bytes);
    r.values = r.values < CALLS_MAX * r.list ? r.values : CALLS_MAX * r.list;
    r.values = r.values < r.list ? r.list : r.values / r.list * r.list;
    if (r.values * r.value_bytes > BYTES)
        return;
    set = open_set(b, &r);
    for (uint32_t i = 0; i < FIGURES; i++)
        series_init(&f[i], 4096);
    for (uint32_t i = 0; i <= (b->args->quick ? ROUNDS_QUICK : ROUNDS); i++) {
        measure_round(b, &r, set, f);
        for (uint32_t k = 0; i == 0 && k < FIGURES; k++)
            series_clear(&f[k]); /* the first touches every page for the first time */
    }
    show_row(b, &r, f);
    for (uint32_t i = 0; i < FIGURES; i++)
        series_finish(&f[i]);
    tern_blocks_close(set);
}

static void find_row(struct bench *b, struct tern_block_set *set, uint32_t n)
{
    json_t *o = json_object();
    struct series us;

    series_init(&us, FINDS);
    for (uint32_t i = 0; i < FINDS; i++) {
        uint64_t began = clock_ns();
        uint32_t front;

        if (tern_blocks_find(set, b->keys, n, 0, b->ok, &front) != TERN_OK || front != n)
            failed(b, set, "finding");
        series_add(&us, (double)(clock_ns() - began) / 1000);
    }
    json_put_u64(o, "keys", n);
    json_put_f64(o, "us_p50", series_quantile(&us, 0.5));
    json_put_f64(o, "us_p99", series_quantile(&us, 0.99));
    json_array_append_new(b->finds, o);
    if (!b->args->json)
        printf("  find of %4u keys        %8.1f us (p99 %.1f)\n", n, series_quantile(&us, 0.5),
               series_quantile(&us, 0.99));
    if (n == FIND_KEYS)
        b->within &= bench_limit(series_quantile(&us, 0.5) <= FIND_US_MAX, "finding 4,096 keys");
    series_finish(&us);
}

static void measure_find(struct bench *b)
{
    struct row r = {.value_bytes = 4096, .list = FIND_KEYS, .threads = 1, .values = FIND_KEYS};
    struct tern_block_set *set = open_set(b, &r);

    name_keys(b, r.values);
    place_values(b, &r, b->ours);
    if (tern_blocks_put(set, b->keys, b->values, r.values, 60000, b->ok) != TERN_OK)
        failed(b, set, "putting");
    find_row(b, set, 1);
    find_row(b, set, 32);
    find_row(b, set, FIND_KEYS);
    tern_blocks_close(set);
}

/* Filled, so that every page of it is resident. */
static uint8_t *filled(uint64_t bytes)
{
    uint8_t *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (p == MAP_FAILED) {
        perror("tern-bench blocks");
        exit(2);
    }
    for (uint64_t i = 0; i < bytes / 8; i++)
        ((uint64_t *)(void *)p)[i] = i * 0x9e3779b97f4a7c15u;
    return p;
}

int bench_blocks(const struct bench_args *args)
{
    const uint32_t most = (uint32_t)(BYTES / 4096);
    struct daemon_options options = {
        .node = "blocks", .memory_bytes = 1ull << 30, .page_bytes_min = 4096, .core = -1};
    struct bench b = {.args = args, .rows = json_array(), .finds = json_array(), .within = true};
    char dir[64], why[SPAWN_WHY_BYTES];
    json_t *o = json_object();

    b.ours = filled(BYTES);
    b.theirs = filled(BYTES);
    b.keys = mem_need(most, sizeof *b.keys);
    b.key = mem_need(most, sizeof *b.key);
    b.values = mem_need(most, sizeof *b.values);
    b.iov = mem_need(most, sizeof *b.iov);
    b.ok = mem_need(most, 1);
    if (!tempdir_make(dir, sizeof dir, "tern-bench") ||
        !daemon_start(&b.daemon, dir, &options, why)) {
        fprintf(stderr, "tern-bench blocks: %s\n", why);
        return 2;
    }
    measure_find(&b);
    for (uint32_t v = 0; v < COUNT(value_sizes); v++)
        for (uint32_t l = 0; l < COUNT(lists); l++)
            for (uint32_t t = 0; t < (args->quick ? 2 : COUNT(thread_counts)); t++)
                measure_row(&b, (struct row){.value_bytes = value_sizes[v],
                                             .list = lists[l],
                                             .threads = thread_counts[t]});
    json_put_u64(o, "cores", (uint64_t)sysconf(_SC_NPROCESSORS_ONLN));
    json_object_set_new(o, "find", b.finds);
    json_object_set_new(o, "rows", b.rows);
    json_put_u64(o, "wrong", b.wrong);
    b.within &= bench_count(b.wrong == 0, "values that came back otherwise");
    if (args->json)
        json_print(o);
    json_decref(o);
    daemon_end(&b.daemon, 5000);
    tempdir_remove(dir);
    return b.within ? 0 : 1;
}
