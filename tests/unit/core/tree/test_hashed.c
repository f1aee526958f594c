/* T20: the core's hash tables under inputs that collide under every public hash: the number of
 * records in a bucket, and of those that a lookup meets, is that of any other inputs. The tests
 * walk the buckets and measure no time. */
#include <stdlib.h>

#include "base/hash.h"
#include "core/arena/hashed.h"
#include "core/tree/tokens.h"
#include "unit/rig/rig_collide.h"
#include "unit/rig/rig_disk_bench.h"

enum { CHUNKS = 2000, KEYED = 500, SPACES = 500, STORED = 300 };

struct filled {
    uint32_t records, fullest;
    uint64_t probes; /* of a lookup of each record */
};

static struct filled filled(const struct core *c, enum hash_table t)
{
    struct filled f = {0};

    for (uint32_t b = 0; b <= c->table[t].mask; b++) {
        uint32_t n = 0;

        for (uint32_t at = *bucket_at(c, t, b); at != NONE; at = hashed_at(c, t, at)->next)
            f.probes += ++n;
        f.records += n;
        f.fullest = n > f.fullest ? n : f.fullest;
    }
    return f;
}

/* With at most as many records as buckets a lookup meets 1.5 on average. The chance that a bucket
 * has 12 is once in a thousand years of tests. */
#define assert_spread(c, t, least)                                                                 \
    do {                                                                                           \
        struct filled spread = filled((c), (t));                                                   \
                                                                                                   \
        assert_in_range(spread.records, (least), (c)->table[t].records);                           \
        assert_in_range(spread.fullest, 1, 11);                                                    \
        assert_in_range(spread.probes, spread.records, 2 * spread.records);                        \
    } while (0)

static struct bench roomy_bench(uint64_t secret)
{
    struct rig_options o = rig_defaults();
    struct bench b;

    o.secret = secret;
    o.limits.nodes = o.limits.token_blocks = 8192; /* half are the other tenant's */
    o.limits.namespaces = o.limits.extra_keys = 1024;
    b = bench_with(&o, COLLIDE_TOKENS, 2047);
    b.rig->no_audit = true; /* the audit would look at everything after each event */
    return b;
}

static void put_chunk(struct bench *b, const struct req_tokens *t)
{
    struct rig_session *s = rig_session(b->rig, &b->e, b->pool, 1);

    assert_ok(rig_match_full(s, t, 0));
    assert_int_equal(s->matched, 0);
    commit_to(s, t->v, t->n, 0);
    assert_ok(rig_close(s, 0));
    rig_session_free(s);
}

/* Commits siblings that all have one public hash, and so one chain. */
static void put_colliding(struct bench *b)
{
    for (uint32_t i = 0; i < CHUNKS; i++) {
        uint32_t v[COLLIDE_TOKENS];
        struct req_tokens t = {.v = v, .n = COLLIDE_TOKENS};

        colliding_chunk(i, v);
        put_chunk(b, &t);
    }
}

TEST(hashed_siblings_with_one_chain_are_spread_and_found)
{
    struct bench b = roomy_bench(1);
    uint32_t found = 0;

    put_colliding(&b);
    oracle_audit(b.rig->core);
    assert_spread(b.rig->core, TABLE_NODES, CHUNKS);
    for (uint32_t i = 0; i < CHUNKS; i++) {
        uint32_t v[COLLIDE_TOKENS + 1] = {0};

        colliding_chunk(i, v);
        found += rig_depth(b.s, v, COLLIDE_TOKENS + 1) == COLLIDE_TOKENS;
    }
    assert_int_equal(found, CHUNKS);
    while (rig_evict(b.rig, b.admin, b.pool, 1000) > 0)
        ;
    assert_int_equal(filled(b.rig->core, TABLE_NODES).records, 0);
}

/* Shows that the test above can fail: under the weakest secret the siblings are in one bucket. */
TEST(hashed_siblings_of_a_weak_secret_are_in_one_bucket)
{
    struct bench b = roomy_bench(0);

    put_colliding(&b);
    assert_int_equal(filled(b.rig->core, TABLE_NODES).fullest, CHUNKS);
}

TEST(hashed_chunks_with_colliding_extra_keys_are_spread)
{
    struct bench b = roomy_bench(1);

    for (uint32_t i = 0; i < KEYED; i++) {
        struct namespace_id pair = colliding_pair(i + 1);
        struct extra_key key = {.position = 3, .hi = pair.hi, .lo = pair.lo};
        struct req_tokens t = {.v = seq1, .n = COLLIDE_TOKENS, .keys = &key, .nkeys = 1};

        put_chunk(&b, &t);
    }
    oracle_audit(b.rig->core);
    assert_spread(b.rig->core, TABLE_NODES, KEYED);
}

TEST(hashed_namespaces_with_one_chain_are_spread_and_found)
{
    struct bench b = roomy_bench(1);
    struct rig_session like = *rig_committed(b.rig, &b.e, b.pool, 1, COLLIDE_TOKENS);

    for (uint32_t i = 0; i < SPACES; i++) {
        struct request open = {.op = OP_SESSION_OPEN, .session_open.pool = b.pool};
        const struct reply *r;

        open.session_open.ns = colliding_pair(i + 1);
        assert_true(hash_mix(open.session_open.ns.hi, open.session_open.ns.lo) ==
                    hash_mix(colliding_pair(0).hi, colliding_pair(0).lo));
        r = rig_request(b.rig, b.e.conn[0], &open);
        assert_ok(r->err);
        like.id = r->session_open.session;
        like.len = (struct lengths){0};
        like.ntokens = like.nkeys = like.matched = 0;
        like.ns = open.session_open.ns;
        computes_and_commits(&like, 1, COLLIDE_TOKENS, COLLIDE_TOKENS, 0);
        assert_ok(rig_close(&like, 0));
    }
    oracle_audit(b.rig->core);
    assert_spread(b.rig->core, TABLE_SPACES, SPACES);
    assert_spread(b.rig->core, TABLE_NODES, SPACES);
}

/* The disk's index, while it is written and when a start finds it: chunks with one chain, and
 * places that are alike. */
TEST(hashed_chunks_of_the_disk_with_one_chain_are_spread)
{
    struct disk_bench b = disk_bench((struct disk_shape){.page_tokens = COLLIDE_TOKENS,
                                                         .pages = 600,
                                                         .page_bytes = 512,
                                                         .budget = 1u << 24,
                                                         .interval = 64});

    b.options.limits.disk_files = 512;
    disk_bench_restart(&b);
    b.rig->no_audit = true;
    for (uint32_t i = 0; i < STORED; i++) {
        struct rig_session *s = rig_session(b.rig, &b.e, b.pool, 1);
        uint32_t v[COLLIDE_TOKENS];

        colliding_chunk(i, v);
        commits_tokens(s, v, COLLIDE_TOKENS);
        assert_ok(disk_stored(s, COLLIDE_TOKENS));
        assert_ok(rig_close(s, 0));
        rig_session_free(s);
    }
    for (uint32_t i = 0; i < 2; i++) {
        assert_int_equal(disk_seen(&b).entries, STORED);
        oracle_audit(b.rig->core);
        assert_spread(b.rig->core, TABLE_CHUNKS, STORED + 1);
        assert_spread(b.rig->core, TABLE_EXTENTS, STORED);
        disk_bench_restart(&b);
    }
    for (uint32_t i = 0; i < STORED; i++) {
        uint32_t v[COLLIDE_TOKENS + 1] = {0};

        colliding_chunk(i, v);
        assert_int_equal(disk_depth_of(&b, v, COLLIDE_TOKENS + 1), COLLIDE_TOKENS);
    }
    disk_bench_end(&b);
}

/* A layout's hash is public, so somebody can make two layouts with one hash. Chunks of another
 * length are never compared, even under the weakest secret, which makes every comparison happen. */
TEST(hashed_chunk_of_the_disk_of_another_length_is_none_of_the_pools)
{
    struct disk_bench b = disk_bench((struct disk_shape){.page_tokens = TOKEN_BLOCK,
                                                         .pages = 16,
                                                         .page_bytes = 512,
                                                         .budget = 1u << 22,
                                                         .interval = TOKEN_BLOCK});
    struct group_layout other = rig_group(2 * TOKEN_BLOCK, 512);
    uint64_t layout_hash;
    struct pool_id pool;

    b.options.secret = 0;
    assert_ok(disk_stored(rig_committed(b.rig, &b.e, b.pool, 1, TOKEN_BLOCK), TOKEN_BLOCK));
    disk_bench_restart(&b); /* memory has none of it now */
    assert_int_equal(disk_depth_of(&b, seq1, 2 * TOKEN_BLOCK), TOKEN_BLOCK);
    layout_hash = pool_at(b.rig->core, b.pool.slot)->layout_hash;
    assert_ok(rig_pool_open(b.rig, b.e.conn[0], &other, 1, 512 * 16, &pool));
    assert_ok(rig_map(b.rig, b.e.conn[0], pool));
    pool_at(b.rig->core, pool.slot)->layout_hash = layout_hash;
    b.pool = pool;
    assert_int_equal(disk_depth_of(&b, seq1, 3 * TOKEN_BLOCK), 0);
    disk_bench_end(&b);
}

/* Equal tokens in chunks of another length make another path. */
TEST(hashed_path_depends_on_the_length_of_its_chunks)
{
    static const uint32_t zeros[2 * TOKEN_BLOCK];
    struct bench b = bench_start(4, 16);
    struct token_view w = {
        .c = b.rig->core, .align = 2 * TOKEN_BLOCK, .end = 2 * TOKEN_BLOCK, .v = zeros};
    uint64_t one = view_hash(&w, 0, KEYED_START, false).path, two;

    w.align = TOKEN_BLOCK;
    two = view_hash(&w, 0, KEYED_START, false).path;
    two = view_hash(&w, TOKEN_BLOCK, two, false).path;
    assert_true(one != two);
}
