/* See block_copy.h. A run is cut into parts of PART_BYTES at most, which the calling thread and the
 * others take one by one; the thread that makes the last part of a value completes the value. */
#include "block_copy.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/checksum_blocks.h"
#include "block_stream.h"

#define PART_BYTES   LANE_BYTES  /* a multiple of CHECKSUM_BLOCK */
#define RUN_BYTES    (64u << 20) /* bytes of values in one run, or one value */
#define STREAM_BYTES (1u << 20)  /* runs of that size or more are copied by block_stream */
#define NAME_WORDS   (sizeof(struct block_name) / sizeof(uint64_t))
#define LEAVES_MAX   (TERN_BLOCK_VALUE_MAX / CHECKSUM_BLOCK + NAME_WORDS) /* of a value */
#define FOLDS_MAX    (LEAVES_MAX * sizeof(uint64_t) / CHECKSUM_BLOCK + 1)

_Static_assert(PART_BYTES % CHECKSUM_BLOCK == 0, "parts have whole blocks");
_Static_assert(TERN_BLOCK_VALUE_MAX <= RUN_BYTES, "each value fits one run");
_Static_assert(sizeof(struct block_trailer) == 64, "as docs/blocks.md says");
_Static_assert(FOLDS_MAX * sizeof(uint64_t) <= CHECKSUM_BLOCK, "two levels of hashes are enough");
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "trailers are written as they lie");

struct copier {
    uint64_t value_bytes;
    uint32_t most, parts_each;
    uint32_t leaves;        /* words of a value's hashes and its name */
    uint32_t words;         /* words for a page's hashes, which may be more */
    uint64_t *leaf;         /* owned: `words` for each copy of a run */
    _Atomic uint32_t *left; /* owned: parts of each copy that are not complete yet */

    pthread_mutex_t lock;
    pthread_cond_t work, done;
    pthread_t *threads; /* owned */
    uint32_t nthreads;
    uint32_t wanted, busy; /* threads that are to join the run, and that have not ended it */
    bool ends;

    const struct block_far *far; /* NULL: pages are memory of the host */
    _Atomic bool failed;         /* a lane of this run has failed */
    _Atomic bool loose;          /* a lane of any run is loose */

    struct block_copy *copies; /* of the run */
    enum copy_way way;
    bool streams; /* by block_stream */
    uint32_t parts;
    _Atomic uint32_t next;
};

/* A place in the caller's memory: that of byte `at` of the value. */
struct place {
    const struct iovec *iov;
    size_t off;
};

static struct place place_of(const struct block_copy *b, uint64_t at)
{
    struct place p = {.iov = b->iov};

    for (; at >= p.iov->iov_len; p.iov++)
        at -= p.iov->iov_len;
    p.off = at;
    return p;
}

/* Skips pieces that are used up, while there are bytes left to move. */
static void place_ahead(struct place *p)
{
    for (; p->off == p->iov->iov_len; p->iov++)
        p->off = 0;
}

/* Moves n bytes between *p and `with`, piece by piece, and advances *p behind them. */
static void move_pieces(struct place *p, uint8_t *with, size_t n, enum copy_way way)
{
    while (n > 0) {
        uint8_t *at;
        size_t take;

        place_ahead(p);
        take = p->iov->iov_len - p->off < n ? p->iov->iov_len - p->off : n;
        at = (uint8_t *)p->iov->iov_base + p->off;
        if (way == COPY_TO_PAGES)
            memcpy(with, at, take);
        else
            memcpy(at, with, take);
        with += take;
        n -= take;
        p->off += take;
    }
}

/* Copies one block by block_stream, and hashes the bytes that it has copied. Returns false if the
 * block lies in several pieces, or at an address that does not allow it. */
static bool stream_block(struct place *p, uint8_t *page, uint64_t *leaf, enum copy_way way)
{
    _Alignas(16) uint8_t between[CHECKSUM_BLOCK];
    uint8_t *mine, *to;
    size_t left;

    place_ahead(p);
    left = p->iov->iov_len - p->off;
    mine = (uint8_t *)p->iov->iov_base + p->off;
    to = way == COPY_TO_PAGES ? page : mine;
    if (left < CHECKSUM_BLOCK || !block_stream_to(to))
        return false;
    block_stream(to, way == COPY_TO_PAGES ? mine : page, between,
                 left < 2 * CHECKSUM_BLOCK ? 0 : CHECKSUM_BLOCK);
    checksum_blocks(between, CHECKSUM_BLOCK, leaf);
    p->off += CHECKSUM_BLOCK;
    return true;
}

/* Copies one block out of a page. If the block lies in pieces of the caller's memory, an
 * intermediate copy is hashed, because the page may change at any moment. */
static void block_out(struct place *p, const uint8_t *page, size_t n, uint64_t *leaf)
{
    uint8_t between[CHECKSUM_BLOCK];

    place_ahead(p);
    if (p->iov->iov_len - p->off >= n) {
        uint8_t *to = (uint8_t *)p->iov->iov_base + p->off;

        memcpy(to, page, n);
        checksum_blocks(to, n, leaf);
        p->off += n;
        return;
    }
    memcpy(between, page, n);
    checksum_blocks(between, n, leaf);
    move_pieces(p, between, n, COPY_FROM_PAGES);
}

static void copy_part(const struct block_copy *b, uint64_t at, uint64_t end, uint64_t *leaf,
                      enum copy_way way, bool streams)
{
    struct place p = place_of(b, at);

    for (; at < end; at += CHECKSUM_BLOCK, leaf++) {
        size_t n = end - at < CHECKSUM_BLOCK ? end - at : CHECKSUM_BLOCK;

        if (streams && n == CHECKSUM_BLOCK && stream_block(&p, b->page + at, leaf, way))
            continue;
        if (way == COPY_FROM_PAGES) {
            block_out(&p, b->page + at, n, leaf);
        } else {
            move_pieces(&p, b->page + at, n, way);
            checksum_blocks(b->page + at, n, leaf);
        }
    }
    if (streams)
        block_stream_end();
}

/* Copies a part from or to a page on a GPU, through the lane's own memory, which is hashed. */
static void copy_part_far(struct lane *l, const struct block_copy *b, uint64_t at, uint64_t end,
                          uint64_t *leaf, enum copy_way way)
{
    struct place p = place_of(b, at);

    if (way == COPY_FROM_PAGES)
        lane_get(l, b->page + at, end - at);
    else if (!l->failed)
        move_pieces(&p, l->between, end - at, way);
    if (l->failed)
        return;
    checksum_blocks(l->between, end - at, leaf);
    if (way == COPY_FROM_PAGES)
        move_pieces(&p, l->between, end - at, way);
    else
        lane_put(l, b->page + at, end - at);
}

/* Returns the checksum of a value: of its name and of the hashes of all its blocks. */
static uint64_t fold(const uint64_t *leaf, uint32_t n)
{
    uint64_t folds[FOLDS_MAX], sum;

    checksum_blocks(leaf, n * sizeof *leaf, folds);
    checksum_blocks(folds, (n * sizeof *leaf + CHECKSUM_BLOCK - 1) / CHECKSUM_BLOCK * sizeof *folds,
                    &sum);
    return sum;
}

static void read_trailer(struct lane *l, const uint8_t *at, struct block_trailer *ret)
{
    if (l->far)
        lane_get(l, at, sizeof *ret);
    if (!l->failed)
        memcpy(ret, l->far ? l->between : at, sizeof *ret);
}

static void write_trailer(struct lane *l, uint8_t *at, const struct block_trailer *is)
{
    if (l->failed)
        return;
    memcpy(l->far ? l->between : at, is, sizeof *is);
    if (l->far)
        lane_put(l, at, sizeof *is);
}

/* Computes the page's checksum: the hashes of its blocks are those of the value, except the last
 * ones, which include the trailer. */
static void sum_page(const struct copier *c, struct lane *l, struct block_copy *b, uint64_t *leaf)
{
    uint64_t whole = c->value_bytes / CHECKSUM_BLOCK, from = whole * CHECKSUM_BLOCK,
             n = block_page_bytes(c->value_bytes) - from;

    if (l->far)
        lane_get(l, b->page + from, n);
    if (l->failed)
        return;
    checksum_blocks(l->far ? l->between : b->page + from, n, leaf + NAME_WORDS + whole);
    b->sum = checksum_fold(leaf + NAME_WORDS, c->words - NAME_WORDS);
}

static void end_copy(struct copier *c, struct lane *l, struct block_copy *b, uint64_t *leaf)
{
    uint8_t *at = b->page + block_trailer_at(c->value_bytes);
    struct block_trailer is = {.name = b->name}, found = {.sum = 0};

    memcpy(leaf, &b->name, sizeof b->name);
    is.sum = fold(leaf, c->leaves);
    if (c->way == COPY_TO_PAGES) {
        write_trailer(l, at, &is);
        sum_page(c, l, b, leaf);
        b->ok = !l->failed;
        return;
    }
    read_trailer(l, at, &found);
    b->ok = !l->failed && memcmp(&found, &is, sizeof is) == 0;
}

static void make_parts(struct copier *c, struct lane *l)
{
    uint32_t part;

    while ((part = atomic_fetch_add(&c->next, 1)) < c->parts) {
        uint32_t i = part / c->parts_each;
        uint64_t at = (uint64_t)(part % c->parts_each) * PART_BYTES;
        uint64_t end = at + PART_BYTES < c->value_bytes ? at + PART_BYTES : c->value_bytes;
        uint64_t *leaf = c->leaf + (size_t)i * c->words,
                 *block = leaf + NAME_WORDS + at / CHECKSUM_BLOCK;

        if (l->far)
            copy_part_far(l, &c->copies[i], at, end, block, c->way);
        else
            copy_part(&c->copies[i], at, end, block, c->way, c->streams);
        if (atomic_fetch_sub(&c->left[i], 1) == 1)
            end_copy(c, l, &c->copies[i], leaf);
        if (l->failed)
            c->failed = true;
        if (l->loose)
            c->loose = true;
    }
}

static void *run_thread(void *arg)
{
    struct copier *c = arg;
    struct lane lane;

    lane_begin(&lane, c->far);
    pthread_mutex_lock(&c->lock);
    for (;;) {
        while (c->wanted == 0 && !c->ends)
            pthread_cond_wait(&c->work, &c->lock);
        if (c->ends)
            break;
        c->wanted--;
        pthread_mutex_unlock(&c->lock);
        make_parts(c, &lane);
        pthread_mutex_lock(&c->lock);
        if (--c->busy == 0)
            pthread_cond_signal(&c->done);
    }
    pthread_mutex_unlock(&c->lock);
    lane_end(&lane);
    return NULL;
}

/* Starts threads that handle no signal of the process. Returns their number. */
static uint32_t begin_threads(struct copier *c, uint32_t n)
{
    sigset_t all, before;
    uint32_t begun = 0;

    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    while (begun < n && pthread_create(&c->threads[begun], NULL, run_thread, c) == 0)
        (void)pthread_setname_np(c->threads[begun++], "tern-blocks");
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    return begun;
}

/* Returns the words of a name and of the hashes of that many bytes. */
static uint32_t words_of(uint64_t bytes)
{
    return (uint32_t)((bytes + CHECKSUM_BLOCK - 1) / CHECKSUM_BLOCK + NAME_WORDS);
}

enum tern_err copier_create(uint32_t threads, uint64_t value_bytes, const struct block_far *far,
                            struct copier **ret)
{
    /* The calling thread copies nothing to a GPU, so its context stays unchanged. */
    const uint32_t others = far ? threads : threads - 1;
    struct copier *c = calloc(1, sizeof *c);
    uint64_t most = RUN_BYTES / value_bytes;

    if (!c)
        return TERN_INTERNAL;
    c->value_bytes = value_bytes;
    c->far = far;
    c->most = most < TERN_BLOCKS_LIST_MAX ? (uint32_t)most : TERN_BLOCKS_LIST_MAX;
    c->leaves = words_of(value_bytes);
    c->words = words_of(block_page_bytes(value_bytes));
    c->parts_each = (uint32_t)((value_bytes + PART_BYTES - 1) / PART_BYTES);
    c->leaf = calloc((size_t)c->most * c->words, sizeof *c->leaf);
    c->left = calloc(c->most, sizeof *c->left);
    c->threads = calloc(threads, sizeof *c->threads);
    (void)pthread_mutex_init(&c->lock, NULL);
    (void)pthread_cond_init(&c->work, NULL);
    (void)pthread_cond_init(&c->done, NULL);
    if (c->leaf && c->left && c->threads)
        c->nthreads = begin_threads(c, others);
    if (!c->leaf || !c->left || !c->threads || c->nthreads < others) {
        copier_destroy(c, false);
        return TERN_INTERNAL;
    }
    *ret = c;
    return TERN_OK;
}

void copier_destroy(struct copier *c, bool is_child)
{
    if (!c)
        return;
    if (!is_child) {
        pthread_mutex_lock(&c->lock);
        c->ends = true;
        pthread_cond_broadcast(&c->work);
        pthread_mutex_unlock(&c->lock);
        for (uint32_t i = 0; i < c->nthreads; i++)
            (void)pthread_join(c->threads[i], NULL);
        (void)pthread_cond_destroy(&c->work);
        (void)pthread_cond_destroy(&c->done);
        (void)pthread_mutex_destroy(&c->lock);
    }
    free(c->leaf);
    free((void *)c->left);
    free(c->threads);
    free(c);
}

bool copier_is_loose(const struct copier *c)
{
    return c->loose;
}

uint32_t copier_most(const struct copier *c)
{
    return c->most;
}

/* Returns the number of threads that help: none for a run that one thread completes before another
 * wakes, but at least one if the calling thread copies nothing. */
static uint32_t helpers(const struct copier *c, uint32_t n)
{
    uint64_t shares = c->value_bytes * n / PART_BYTES, others = shares > 0 ? shares - 1 : 0;

    if (c->far)
        others = shares > 0 ? shares : 1;
    return others < c->nthreads ? (uint32_t)others : c->nthreads;
}

bool copier_run(struct copier *c, struct block_copy *copies, uint32_t n, enum copy_way way)
{
    struct lane lane = {.far = NULL};
    uint32_t help = helpers(c, n);

    c->copies = copies;
    c->way = way;
    c->streams = c->value_bytes * n >= STREAM_BYTES;
    c->parts = n * c->parts_each;
    c->failed = false;
    atomic_store(&c->next, 0);
    for (uint32_t i = 0; i < n; i++)
        atomic_store_explicit(&c->left[i], c->parts_each, memory_order_relaxed);
    if (help > 0) {
        pthread_mutex_lock(&c->lock);
        c->wanted = c->busy = help;
        pthread_cond_broadcast(&c->work);
        pthread_mutex_unlock(&c->lock);
    }
    if (!c->far)
        make_parts(c, &lane);
    if (help == 0)
        return true;
    pthread_mutex_lock(&c->lock);
    if (!c->far) {
        c->busy -= c->wanted; /* threads that have not joined by now are not needed */
        c->wanted = 0;
    }
    while (c->busy > 0)
        pthread_cond_wait(&c->done, &c->lock);
    pthread_mutex_unlock(&c->lock);
    return !c->failed;
}
