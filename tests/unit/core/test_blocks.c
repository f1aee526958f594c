/* Blocks: prefixes of one chunk, found by the thousand, marked as used, and removed from all tiers.
 * L = 4; the key of block `seed` is the first chunk of that sequence. */
#include <stdlib.h>

#include "base/prng.h"
#include "unit/rig/rig_disk_bench.h"
#include "unit/rig/rig_host.h"

#define KEYS_MAX 16

struct asked_blocks {
    struct rig *rig;
    uint32_t conn;
    struct pool_id pool;
    uint32_t n, key[KEYS_MAX * 4];
};

static struct asked_blocks keys_of(struct rig *rig, uint32_t conn, struct pool_id pool,
                                   uint32_t first, uint32_t n)
{
    struct asked_blocks a = {.rig = rig, .conn = conn, .pool = pool, .n = n};

    for (uint32_t i = 0; i < n; i++)
        memcpy(a.key + 4 * i, rig_tokens(first + i, 4), sizeof(uint32_t[4]));
    return a;
}

static const struct reply *request_of(struct asked_blocks *a, enum blocks_what what, uint32_t words)
{
    struct request r = {.op = OP_BLOCKS,
                        .blocks = {.pool = a->pool,
                                   .ns = {.hi = 1, .lo = 1},
                                   .what = what,
                                   .keys = {.v = a->key, .n = words}}};

    return rig_request(a->rig, a->conn, &r);
}

static const struct page_ref *told(struct asked_blocks *a, enum blocks_what what)
{
    const struct reply *r = request_of(a, what, 4 * a->n);

    assert_ok(r->err);
    assert_int_equal(r->nruns, 1);
    assert_int_equal(r->runs[0].n, a->n);
    return r->runs[0].refs;
}

#define assert_place(ref, place)                                                                   \
    do {                                                                                           \
        const struct page_ref ref_ = (ref);                                                        \
                                                                                                   \
        assert_int_equal(ref_.index, 0);                                                           \
        assert_int_equal(ref_.gen, place);                                                         \
    } while (0)

TEST(blocks_are_found_by_their_pages_in_any_order)
{
    struct bench b = bench_start(4, 16);
    struct rig_session *s = rig_committed(b.rig, &b.e, b.pool, 3, 4);
    struct asked_blocks a = keys_of(b.rig, b.e.conn[0], b.pool, 2, 3);
    const struct page_ref *refs;

    rig_put(b.rig, &b.e, b.pool, 2, 8); /* its second chunk is not a block */
    refs = told(&a, BLOCKS_FIND);
    assert_true(refs[0].index > 0);
    assert_int_equal(refs[1].index, s->table[0][0].index);
    assert_int_equal(refs[1].gen, s->table[0][0].gen);
    assert_place(refs[2], BLOCK_NOWHERE);
    a.n = 0;
    told(&a, BLOCKS_FIND);
    assert_ok(rig_close(s, 0));
    bench_ends_clean(&b);
}

/* T13: blocks that are not touched go first. */
TEST(blocks_that_are_touched_are_evicted_later)
{
    struct bench b = bench_start(4, 3);
    struct asked_blocks a = keys_of(b.rig, b.e.conn[0], b.pool, 1, 1);
    const struct page_ref *refs;

    for (uint32_t seed = 1; seed <= 3; seed++)
        rig_put(b.rig, &b.e, b.pool, seed, 4);
    told(&a, BLOCKS_FIND);
    told(&a, BLOCKS_TOUCH);
    rig_put(b.rig, &b.e, b.pool, 4, 4);
    a = keys_of(b.rig, b.e.conn[0], b.pool, 1, 4);
    refs = told(&a, BLOCKS_FIND);
    assert_true(refs[0].index > 0 && refs[2].index > 0 && refs[3].index > 0);
    assert_place(refs[1], BLOCK_NOWHERE);
    bench_ends_clean(&b);
}

/* T13: of blocks that one request touches the first goes last, whatever the order of the puts. */
TEST(blocks_that_are_touched_together_are_evicted_from_the_end)
{
    struct bench b = bench_start(4, 3);
    struct asked_blocks a = keys_of(b.rig, b.e.conn[0], b.pool, 1, 3);
    const struct page_ref *refs;

    for (uint32_t seed = 1; seed <= 3; seed++)
        rig_put(b.rig, &b.e, b.pool, seed, 4);
    told(&a, BLOCKS_TOUCH);
    for (uint32_t left = 2; left > 0; left--) {
        rig_put(b.rig, &b.e, b.pool, 6 - left, 4);
        refs = told(&a, BLOCKS_FIND);
        for (uint32_t i = 0; i < 3; i++)
            assert_true((refs[i].index > 0) == (i < left));
    }
    bench_ends_clean(&b);
}

TEST(blocks_in_use_are_not_removed)
{
    struct bench b = bench_start(4, 16);
    struct asked_blocks a = keys_of(b.rig, b.e.conn[0], b.pool, 1, 3);
    struct rig_session *s;
    const struct page_ref *refs;

    s = rig_committed(b.rig, &b.e, b.pool, 1, 4);
    rig_put(b.rig, &b.e, b.pool, 2, 4);
    refs = told(&a, BLOCKS_REMOVE);
    assert_place(refs[0], BLOCK_HELD);
    assert_true(refs[1].index > 0); /* at the same place */
    assert_place(refs[2], BLOCK_NOWHERE);
    refs = told(&a, BLOCKS_FIND);
    assert_true(refs[0].index > 0);
    assert_place(refs[1], BLOCK_NOWHERE);
    assert_ok(rig_close(s, 0));
    assert_true(told(&a, BLOCKS_REMOVE)[0].index > 0);
    assert_place(told(&a, BLOCKS_REMOVE)[0], BLOCK_NOWHERE);
    assert_int_equal(rig_pool_view(b.rig, b.pool).nodes, 0);
    assert_int_equal(rig_free(b.rig, b.pool), 16);
    bench_ends_clean(&b);
}

TEST(blocks_on_the_host_tier_are_found_and_removed_there)
{
    struct bench b = host_bench(4, 16, 16);
    struct asked_blocks a = keys_of(b.rig, b.e.conn[0], b.pool, 1, 1);

    rig_put(b.rig, &b.e, b.pool, 1, 4);
    demote_pool(b.rig, b.pool);
    assert_place(told(&a, BLOCKS_FIND)[0], BLOCK_ON_HOST);
    assert_place(told(&a, BLOCKS_TOUCH)[0], BLOCK_ON_HOST);
    assert_place(told(&a, BLOCKS_REMOVE)[0], BLOCK_ON_HOST);
    assert_place(told(&a, BLOCKS_FIND)[0], BLOCK_NOWHERE);
    assert_int_equal(rig_host_view(b.rig, b.pool).nodes, 0);
    bench_ends_clean(&b);
}

/* A removed block stays removed after a restart. */
TEST(blocks_on_the_disk_are_found_and_removed_there)
{
    struct disk_bench b = disk_bench((struct disk_shape){
        .page_tokens = 4, .pages = 16, .page_bytes = 512, .budget = 1u << 22, .interval = 64});
    struct asked_blocks a;

    for (uint32_t seed = 1; seed <= 2; seed++)
        assert_ok(disk_stored(rig_committed(b.rig, &b.e, b.pool, seed, 4), 4));
    disk_bench_restart(&b);
    a = keys_of(b.rig, b.e.conn[0], b.pool, 1, 3);
    assert_place(told(&a, BLOCKS_FIND)[0], BLOCK_ON_DISK);
    assert_place(told(&a, BLOCKS_FIND)[2], BLOCK_NOWHERE);
    a.n = 1;
    assert_place(told(&a, BLOCKS_REMOVE)[0], BLOCK_ON_DISK);
    a.n = 2;
    assert_place(told(&a, BLOCKS_FIND)[0], BLOCK_NOWHERE);
    assert_place(told(&a, BLOCKS_FIND)[1], BLOCK_ON_DISK);
    disk_bench_restart(&b);
    a.rig = b.rig;
    a.conn = b.e.conn[0];
    a.pool = b.pool;
    assert_place(told(&a, BLOCKS_FIND)[0], BLOCK_NOWHERE);
    assert_place(told(&a, BLOCKS_FIND)[1], BLOCK_ON_DISK);
    disk_bench_end(&b);
}

TEST(blocks_that_are_none_are_refused)
{
    struct bench b = bench_start(4, 16);
    struct asked_blocks a = keys_of(b.rig, b.e.conn[0], b.pool, 1, 1);
    struct group_layout two[2] = {rig_group(4, 64), rig_group(2, 64)};
    uint32_t *many = calloc(BLOCKS_MAX + 1, sizeof(uint32_t[4]));
    struct request r = {.op = OP_BLOCKS,
                        .blocks = {.pool = b.pool, .keys = {.v = many, .n = 4 * (BLOCKS_MAX + 1)}}};

    assert_err(TERN_INVALID, request_of(&a, BLOCKS_FIND, 3)->err);
    assert_err(TERN_INVALID, rig_request(b.rig, b.e.conn[0], &r)->err);
    r.blocks.keys.n = 4 * BLOCKS_MAX;
    assert_ok(rig_request(b.rig, b.e.conn[0], &r)->err);
    free(many);
    a.pool.gen++;
    assert_err(TERN_GONE, request_of(&a, BLOCKS_FIND, 4)->err);
    assert_ok(rig_pool_open(b.rig, b.e.conn[0], two, 2, 1u << 16, &a.pool));
    assert_err(TERN_INVALID, request_of(&a, BLOCKS_FIND, 4)->err);
    bench_ends_clean(&b);
}

/* All processes that open a pool as shared get one pool, whichever comes first and whatever size
 * they name. */
TEST(pool_opened_as_shared_is_one_for_all_engines)
{
    struct bench b = bench_start(4, 16);
    struct rig_engine other = rig_engine(b.rig, 0, "other", 1);
    struct request r = {
        .op = OP_POOL_OPEN,
        .pool_open = {.ngroups = 1, .axes_hash = 9, .bytes = 1u << 16, .shared = true}};
    const struct reply *first, *second;

    r.pool_open.group[0] = rig_group(4, 64);
    first = rig_request(b.rig, b.e.conn[0], &r);
    assert_ok(first->err);
    r.pool_open.bytes = 1u << 17;
    second = rig_request(b.rig, other.conn[0], &r);
    assert_ok(second->err);
    assert_int_equal(second->pool_open.pool.slot, first->pool_open.pool.slot);
    assert_int_equal(second->pool_open.bytes, first->pool_open.bytes);
    r.pool_open.shared = false;
    second = rig_request(b.rig, other.conn[0], &r);
    assert_ok(second->err);
    assert_int_not_equal(second->pool_open.pool.slot, first->pool_open.pool.slot);
    bench_ends_clean(&b);
}

/* The place of a block, by a Peek of its key. *ret_device: the device has it. */
static uint32_t peeked(struct disk_bench *b, const uint32_t *key, bool *ret_device)
{
    struct request r = {
        .op = OP_PEEK,
        .peek = {.pool = b->pool, .ns = {.hi = 1, .lo = 1}, .tokens = {.v = key, .n = 4}}};
    const struct reply *reply = rig_request(b->rig, b->e.conn[0], &r);

    assert_ok(reply->err);
    *ret_device = reply->peek.depth == 4;
    return reply->peek.host_depth == 4   ? BLOCK_ON_HOST
           : reply->peek.disk_depth == 4 ? BLOCK_ON_DISK
                                         : BLOCK_NOWHERE;
}

/* seen: counts blocks by place, and at BLOCK_HELD those on the device. */
static void agrees(struct disk_bench *b, struct asked_blocks *a, uint32_t seen[])
{
    struct page_ref refs[KEYS_MAX];

    memcpy(refs, told(a, BLOCKS_FIND), a->n * sizeof refs[0]);
    for (uint32_t i = 0; i < a->n; i++) {
        bool on_device;
        uint32_t place = peeked(b, a->key + 4 * i, &on_device);

        assert_int_equal(refs[i].index != 0, on_device);
        if (!on_device)
            assert_int_equal(refs[i].gen, place);
        seen[on_device ? BLOCK_HELD : place]++;
    }
}

/* A removed block is nowhere. All others are where a Peek finds them, on any tier, while sessions
 * hold some and others are evicted, stored and removed. */
TEST(blocks_at_random_are_where_a_peek_finds_them)
{
    struct disk_bench b = disk_bench((struct disk_shape){
        .page_tokens = 4, .pages = 5, .page_bytes = 512, .budget = 1u << 22, .interval = 64});
    struct prng prng;
    struct rig_session *held = NULL;
    uint32_t seen[BLOCK_HELD + 1] = {0}, in_use = 0;
    struct asked_blocks a;

    prng_init(&prng, 5);
    b.host_bytes = 6 * 512; /* five pages */
    b.options.tenant[0].host_bytes = 1u << 20;
    b.options.tenant[0].host_write = HOST_WRITE_THROUGH;
    disk_bench_restart(&b);
    a = keys_of(b.rig, b.e.conn[0], b.pool, 1, 12);
    for (uint32_t i = 0; i < 600; i++) {
        uint32_t seed = 1 + prng_below(&prng, 12), what = prng_below(&prng, 10);
        struct asked_blocks one = keys_of(b.rig, b.e.conn[0], b.pool, seed, 1);

        if (what < 5) {
            rig_put(b.rig, &b.e, b.pool, seed, 4);
        } else if (what < 7) {
            struct page_ref at = told(&one, BLOCKS_REMOVE)[0];

            in_use += at.index == 0 && at.gen == BLOCK_HELD;
            if (at.index != 0 || at.gen != BLOCK_HELD)
                assert_place(told(&one, BLOCKS_FIND)[0], BLOCK_NOWHERE);
        } else if (what == 7) {
            told(&one, BLOCKS_TOUCH);
        } else if (held) {
            assert_ok(rig_close(held, 0));
            rig_session_free(held);
            held = NULL;
        } else {
            held = rig_session(b.rig, &b.e, b.pool, 1);
            assert_ok(rig_match(held, rig_tokens(seed, 4), 4));
        }
        agrees(&b, &a, seen);
    }
    for (uint32_t place = 0; place <= BLOCK_HELD; place++)
        assert_true(seen[place] > 0);
    assert_true(in_use > 0);
    disk_bench_end(&b);
}
