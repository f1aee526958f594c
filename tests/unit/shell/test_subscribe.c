/* Changes of the prefix tree: which are reported, in what order, the name of a prefix, the contents
 * of the ring, and the reader of the shell. */
#include <stdlib.h>

#include "base/prng.h"
#include "core/tree/nodes.h"
#include "shell/conn/subscribe.h"
#include "unit/rig/rig_test.h"

#define L         256
#define RING      64 /* rig_defaults' limits.events */
#define MIRROR    4096
#define READ_MAX  8
#define HOST_ROOM (1u << 18)

static struct tree_event_view event_no(const struct rig *rig, uint64_t seq)
{
    struct tree_event_view e;

    if (!rig_event_view(rig->core, seq, &e))
        fail_msg("no change has the number %llu", (unsigned long long)seq);
    return e;
}

/* Reads changes without their chunks. */
static uint32_t changes(const struct core *core, struct event_reader *r, struct wire_event *ret,
                        uint32_t max)
{
    return subscribe_read(core, r, &(struct event_page){.v = ret, .max = max});
}

static uint64_t next_no(const struct rig *rig)
{
    uint64_t first, next;

    core_event_range(rig->core, &first, &next);
    return next;
}

static uint32_t node_of(const struct rig *rig, uint64_t chain)
{
    struct node_view n;

    for (uint32_t i = 0; i < rig->options.limits.nodes; i++)
        if (core_node_view(rig->core, i, &n) && n.depth > 0 && n.chain == chain)
            return i;
    return NONE;
}

#define assert_event(e, what, deep, device, host)                                                  \
    do {                                                                                           \
        assert_int_equal((e).kind, (what));                                                        \
        assert_int_equal((e).depth, (deep));                                                       \
        assert_int_equal((e).on_device, (device));                                                 \
        assert_int_equal((e).on_host, (host));                                                     \
    } while (0)

/* ---- reported changes ---- */

TEST(event_commit_tells_each_chunk_once)
{
    struct bench b = bench_start(L, 16);
    struct tree_event_view e1, e2;
    struct node_view n;

    assert_int_equal(next_no(b.rig), 1);
    rig_put(b.rig, &b.e, b.pool, 1, 2 * L);
    rig_put(b.rig, &b.e, b.pool, 1, 2 * L); /* duplicates of existing ones */
    assert_int_equal(next_no(b.rig), 3);
    e1 = event_no(b.rig, 1);
    e2 = event_no(b.rig, 2);
    assert_event(e1, TREE_STORED, L, true, false);
    assert_event(e2, TREE_STORED, 2 * L, true, false);
    assert_int_equal(e1.seq, 1);
    assert_int_equal(e1.tenant, 0);
    assert_int_equal(e1.pool, b.pool.slot);
    assert_int_equal(e1.pool_gen, b.pool.gen);
    assert_int_equal(e1.ns.hi, 1);
    assert_int_equal(e1.ns.lo, 1);
    assert_int_equal(e1.parent_chain, 0);
    assert_true(e2.parent_chain == e1.chain && e1.chain != e2.chain);
    assert_true(core_node_view(b.rig->core, node_of(b.rig, e2.chain), &n));
    assert_int_equal(n.depth, 2 * L);
}

TEST(event_commit_in_flight_is_told_when_its_step_has_passed)
{
    struct bench b = bench_start(L, 16);

    computes_and_commits(b.s, 1, L, L, 7);
    rig_engine_done(b.rig, &b.e, 6);
    assert_int_equal(next_no(b.rig), 1);
    rig_engine_done(b.rig, &b.e, 7);
    assert_int_equal(next_no(b.rig), 2);
    assert_event(event_no(b.rig, 1), TREE_STORED, L, true, false);
}

TEST(event_evict_removes_from_the_end)
{
    struct bench b = bench_start(L, 16);

    rig_put(b.rig, &b.e, b.pool, 1, 2 * L);
    assert_int_equal(rig_evict(b.rig, b.admin, b.pool, 0), 2);
    assert_int_equal(next_no(b.rig), 5);
    assert_event(event_no(b.rig, 3), TREE_REMOVED, 2 * L, false, false);
    assert_event(event_no(b.rig, 4), TREE_REMOVED, L, false, false);
    assert_true(event_no(b.rig, 3).chain == event_no(b.rig, 2).chain);
    assert_true(event_no(b.rig, 3).parent_chain == event_no(b.rig, 1).chain);
    /* And stored again: a new node with the old name. */
    rig_put(b.rig, &b.e, b.pool, 1, L);
    assert_event(event_no(b.rig, 5), TREE_STORED, L, true, false);
    assert_true(event_no(b.rig, 5).chain == event_no(b.rig, 1).chain);
}

TEST(event_host_tier_tells_each_way)
{
    struct rig *rig = rig_create(NULL);
    struct rig_engine e = rig_engine(rig, 0, "e", 1);
    uint32_t admin = rig_connect_admin(rig);
    struct rig_session *s;
    struct pool_id pool;

    rig->host_bytes = HOST_ROOM;
    rig->automatic = RIG_ALL & ~(uint32_t)RIG_COPY;
    pool = rig_pool_pages(rig, &e, L, 16);
    rig_put(rig, &e, pool, 1, L);
    assert_int_equal(next_no(rig), 2);
    assert_int_equal(rig_jobs(rig, RIG_COPY), 1);
    rig_complete(rig, RIG_COPY); /* T16: stored only now */
    assert_int_equal(next_no(rig), 3);
    assert_event(event_no(rig, 2), TREE_TIER, L, true, true);
    assert_int_equal(rig_evict(rig, admin, pool, 1), 1);
    assert_event(event_no(rig, 3), TREE_TIER, L, false, true);
    s = session_with(rig, &e, pool, 1, L);
    rig_fetch(s, PEER_HOST, 0);
    assert_int_equal(next_no(rig), 4);
    rig_complete(rig, RIG_COPY);
    assert_event(event_no(rig, 4), TREE_TIER, L, true, true);
    assert_int_equal(next_no(rig), 5);
}

TEST(event_reset_namespace_is_removed)
{
    struct bench b = bench_start(L, 16);
    uint32_t nodes;

    rig_put(b.rig, &b.e, b.pool, 1, 2 * L);
    assert_ok(rig_reset(b.rig, b.e.conn[0], 1, &nodes));
    rig_timers(b.rig);
    assert_event(event_no(b.rig, next_no(b.rig) - 1), TREE_REMOVED, L, false, false);
    assert_int_equal(next_no(b.rig), 5);
}

/* ---- how a prefix is named ---- */

static uint64_t chain_of(struct rig *rig, const struct rig_engine *e, struct pool_id pool,
                         uint64_t ns, const struct req_tokens *tokens)
{
    struct rig_session *s = rig_session(rig, e, pool, ns);

    assert_ok(rig_match_full(s, tokens, 0));
    assert_ok(rig_extend(s, tokens->n, tokens->n, NULL, 0));
    assert_ok(rig_commit(s, tokens->n, 0));
    assert_ok(rig_close(s, 0));
    return event_no(rig, next_no(rig) - 1).chain;
}

TEST(chain_is_of_namespace_tokens_and_keys_alone)
{
    struct pair p = pair_with(rig_defaults(), L, 16, 16);
    struct pool_id other = rig_pool_pages(p.source, &p.se, L, 16);
    uint32_t changed[L];
    struct extra_key key = {.position = 3, .hi = 1, .lo = 2};
    struct req_tokens plain = {.v = seq1, .n = L}, keyed = plain, differs = plain;
    uint64_t chain[6];

    memcpy(changed, plain.v, sizeof changed);
    changed[L - 1]++;
    differs.v = changed;
    keyed.keys = &key;
    keyed.nkeys = 1;
    chain[0] = chain_of(p.source, &p.se, p.sp, 1, &plain);
    assert_true(chain_of(p.source, &p.se, other, 1, &plain) == chain[0]);
    chain_of(p.dest, &p.de, p.dp, 1, &differs); /* so that its node has another slot there */
    assert_true(chain_of(p.dest, &p.de, p.dp, 1, &plain) == chain[0]);
    chain[1] = chain_of(p.source, &p.se, p.sp, 2, &plain);
    chain[2] = chain_of(p.source, &p.se, p.sp, 1, &keyed);
    chain[3] = chain_of(p.source, &p.se, p.sp, 1, &differs);
    key.lo++;
    chain[4] = chain_of(p.source, &p.se, p.sp, 1, &keyed);
    key.position++;
    chain[5] = chain_of(p.source, &p.se, p.sp, 1, &keyed);
    for (uint32_t i = 0; i < 6; i++)
        for (uint32_t j = 0; j < i; j++)
            assert_true(chain[i] != chain[j]);
}

/* ---- the ring ---- */

/* A node whose removal and return are reported over and over: nothing else changes. */
static uint32_t toggled(struct bench *b)
{
    rig_put(b->rig, &b->e, b->pool, 1, L);
    return node_of(b->rig, event_no(b->rig, 1).chain);
}

static void toggle(struct bench *b, uint32_t node, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        tree_event(b->rig->core, node,
                   node_at(b->rig->core, node)->announced ? TREE_REMOVED : TREE_STORED);
}

TEST(ring_keeps_the_last_and_no_other)
{
    struct bench b = bench_start(L, 16);
    uint32_t node = toggled(&b);
    struct tree_event_view e;
    uint64_t first, next;

    for (uint32_t n = 1; n <= 3 * RING; n++) { /* n have happened */
        core_event_range(b.rig->core, &first, &next);
        assert_int_equal(next, n + 1);
        assert_int_equal(first, n > RING ? n - RING + 1 : 1);
        assert_false(rig_event_view(b.rig->core, 0, &e));
        assert_false(rig_event_view(b.rig->core, first - 1, &e));
        assert_false(rig_event_view(b.rig->core, next, &e));
        assert_false(rig_event_view(b.rig->core, next + RING, &e));
        for (uint64_t i = first; i < next; i++) {
            assert_int_equal(event_no(b.rig, i).seq, i);
            assert_int_equal(event_no(b.rig, i).kind, i % 2 ? TREE_STORED : TREE_REMOVED);
        }
        toggle(&b, node, 1);
    }
}

TEST(ring_is_told_changes_only)
{
    struct bench b = bench_start(L, 16);
    uint32_t node = toggled(&b);

    tree_event(b.rig->core, node, TREE_STORED); /* it is stored already */
    tree_event(b.rig->core, node, TREE_TIER);   /* it has not moved */
    assert_int_equal(next_no(b.rig), 2);
    tree_event(b.rig->core, node, TREE_REMOVED);
    tree_event(b.rig->core, node, TREE_REMOVED);
    tree_event(b.rig->core, node, TREE_TIER);
    assert_int_equal(next_no(b.rig), 3);
}

/* ---- the reader ---- */

static struct event_reader reader_from(uint64_t at)
{
    return (struct event_reader){.at = at, .tenant = 0};
}

TEST(reader_that_lags_by_the_ring_loses_nothing_and_by_one_more_loses_one)
{
    struct wire_event v[2 * RING];

    for (uint32_t lag = 0; lag < 3 * RING; lag++) {
        struct bench b = bench_start(L, 16);
        uint32_t node = toggled(&b), want = lag < RING ? lag : RING;
        struct event_reader r = reader_from(2);

        toggle(&b, node, lag);
        assert_int_equal(changes(b.rig->core, &r, v, 2 * RING), want);
        assert_int_equal(r.lost, lag - want);
        assert_int_equal(r.at, lag + 2);
        for (uint32_t i = 0; i < want; i++)
            assert_int_equal(v[i].number, lag + 2 - want + i);
        assert_int_equal(changes(b.rig->core, &r, v, 2 * RING), 0);
        assert_int_equal(r.lost, lag - want); /* until it is reported */
    }
}

TEST(reader_takes_as_many_as_fit_and_goes_on_there)
{
    struct bench b = bench_start(L, 16);
    uint32_t node = toggled(&b), got = 0;
    struct event_reader r = reader_from(1);
    struct wire_event v[7];

    toggle(&b, node, 29);
    for (uint32_t n; (n = changes(b.rig->core, &r, v, 7)) > 0; got += n)
        for (uint32_t i = 0; i < n; i++)
            assert_int_equal(v[i].number, got + i + 1);
    assert_int_equal(got, 30);
    assert_int_equal(r.lost, 0);
}

TEST(reader_hears_of_its_tenant_and_namespace_alone)
{
    struct rig *rig = rig_create(NULL);
    struct rig_engine a = rig_engine(rig, 0, "a", 1), b = rig_engine(rig, 1, "b", 1);
    struct pool_id pa = rig_pool_pages(rig, &a, L, 16), pb = rig_pool_pages(rig, &b, L, 16);
    struct req_tokens tokens = {.v = seq1, .n = L};
    struct event_reader r;
    struct wire_event v[READ_MAX];

    chain_of(rig, &a, pa, 1, &tokens);
    chain_of(rig, &b, pb, 1, &tokens);
    chain_of(rig, &a, pa, 2, &tokens);
    chain_of(rig, &b, pb, 2, &tokens);

    r = (struct event_reader){.at = 1, .tenant = 1};
    assert_int_equal(changes(rig->core, &r, v, READ_MAX), 2);
    assert_int_equal(v[0].number, 2);
    assert_int_equal(v[1].number, 4);
    assert_int_equal(v[0].tenant, 0); /* for the operator alone */
    assert_true(v[0].pool == pool_id_pack(pb));
    r = (struct event_reader){.at = 1, .tenant = 0, .one_ns = true, .ns = {.hi = 1, .lo = 2}};
    assert_int_equal(changes(rig->core, &r, v, READ_MAX), 1);
    assert_int_equal(v[0].number, 3);
    assert_true(v[0].ns_hi == 1 && v[0].ns_lo == 2);
    assert_int_equal(v[0].tiers, 1 << TIER_DEVICE);
    assert_int_equal(r.at, 5); /* unwanted changes are skipped */
    r = (struct event_reader){.at = 1, .tenant = NONE};
    assert_int_equal(changes(rig->core, &r, v, READ_MAX), 4);
    assert_int_equal(v[1].tenant, 1);
}

TEST(reader_looks_at_no_more_than_its_bound)
{
    struct bench b = BENCH_LIMITED(limits.events = 2 * SUBSCRIBE_SCAN_MAX, L, 16);
    struct event_reader r = {.at = 1, .tenant = 0, .one_ns = true, .ns = {.hi = 7, .lo = 7}};
    struct wire_event v[READ_MAX];
    uint32_t node = toggled(&b);

    toggle(&b, node, SUBSCRIBE_SCAN_MAX + 9);
    assert_int_equal(changes(b.rig->core, &r, v, READ_MAX), 0);
    assert_int_equal(r.at, SUBSCRIBE_SCAN_MAX + 1);
    assert_int_equal(changes(b.rig->core, &r, v, READ_MAX), 0);
    assert_int_equal(r.at, next_no(b.rig));
}

/* One tenant's changes fill its ring many times. The other tenant's subscriber loses none, and an
 * operator learns the number of all lost ones, before those that follow. */
TEST(reader_loses_nothing_by_what_another_tenant_does)
{
    struct rig *rig = rig_create(NULL);
    struct rig_engine a = rig_engine(rig, 0, "a", 1), b = rig_engine(rig, 1, "b", 1);
    struct pool_id pa = rig_pool_pages(rig, &a, L, 16), pb = rig_pool_pages(rig, &b, L, 16);
    struct req_tokens tokens = {.v = seq1, .n = L};
    struct bench of_a = {.rig = rig, .e = a, .pool = pa};
    struct event_reader own = {.at = 1, .tenant = 1}, all = {.at = 1, .tenant = NONE};
    struct event_reader late = {.at = 3, .tenant = 1};
    struct wire_event v[2 * RING];
    uint32_t node = toggled(&of_a); /* number 1 */

    chain_of(rig, &b, pb, 1, &tokens); /* number 2 */
    toggle(&of_a, node, 5 * RING);     /* the rest, so that 1 is lost, too */
    assert_int_equal(changes(rig->core, &own, v, 2 * RING), 1);
    assert_int_equal(v[0].number, 2);
    assert_int_equal(own.lost, 0);
    assert_int_equal(own.at, next_no(rig));
    chain_of(rig, &b, pb, 2, &tokens);
    assert_int_equal(changes(rig->core, &own, v, 2 * RING), 1);
    assert_int_equal(v[0].number, 5 * RING + 3);
    assert_int_equal(changes(rig->core, &late, v, 2 * RING), 1);
    assert_int_equal(late.lost, 0); /* those between were never its own */

    assert_int_equal(changes(rig->core, &all, v, 2 * RING), 1); /* up to the next gap */
    assert_int_equal(v[0].number, 2);
    assert_int_equal(all.lost, 1);
    assert_int_equal(changes(rig->core, &all, v, 2 * RING), RING + 1);
    assert_int_equal(all.lost, 1 + 4 * RING);
    assert_int_equal(v[RING].number, 5 * RING + 3);
    assert_int_equal(all.at, next_no(rig));
}

/* ---- tokens of what is stored ---- */

#define ROOM (SUBSCRIBE_CHUNK_BYTES + 1024)

static struct event_chunks chunks;

/* The next page of a reader that wants tokens. */
static uint32_t page_of(const struct rig *rig, struct event_reader *r, struct wire_event *v,
                        uint32_t room)
{
    r->tokens = true;
    chunks.room = room;
    chunks.bytes = 0;
    return subscribe_read(rig->core, r,
                          &(struct event_page){.v = v, .max = READ_MAX, .chunks = &chunks});
}

static void assert_tokens(uint32_t i, const uint32_t *want, uint32_t n)
{
    assert_int_equal(chunks.of[i].tokens, n);
    assert_memory_equal(chunks.data + chunks.of[i].at, want, n * sizeof *want);
}

TEST(reader_of_tokens_gets_those_that_are_there)
{
    struct bench b = bench_start(L, 16);
    uint32_t admin = rig_connect_admin(b.rig);
    struct event_reader r = reader_from(1);
    struct wire_event v[READ_MAX];

    rig_put(b.rig, &b.e, b.pool, 1, 2 * L);
    assert_int_equal(page_of(b.rig, &r, v, ROOM), 2);
    assert_tokens(0, seq1, L);
    assert_tokens(1, seq1 + L, L);
    assert_int_equal(rig_evict(b.rig, admin, b.pool, 1), 1);
    r = reader_from(1);
    assert_int_equal(page_of(b.rig, &r, v, ROOM), 3);
    assert_tokens(1, NULL, 0);          /* stored, and gone since */
    rig_put(b.rig, &b.e, b.pool, 2, L); /* in the place of the one that went */
    r = reader_from(1);
    assert_int_equal(page_of(b.rig, &r, v, ROOM), 4);
    assert_tokens(0, seq1, L);
    assert_tokens(1, NULL, 0);
    assert_int_equal(v[2].kind, TREE_REMOVED);
    assert_tokens(2, NULL, 0);
    assert_int_equal(chunks.of[3].tokens, L);
}

TEST(reader_of_tokens_gets_the_extra_keys)
{
    struct rig *rig = rig_create(NULL);
    struct rig_engine e = rig_engine(rig, 0, "e", 1);
    struct pool_id pool = rig_pool_pages(rig, &e, L, 16);
    const struct extra_key keys[] = {{.position = 3, .hi = 1, .lo = 2},
                                     {.position = 5, .hi = 3, .lo = 4},
                                     {.position = L + 1, .hi = 5, .lo = 6}};
    struct req_tokens tokens = {.v = seq1, .n = 2 * L, .keys = keys, .nkeys = 3};
    struct event_reader r = reader_from(1);
    struct wire_event v[READ_MAX];

    chain_of(rig, &e, pool, 1, &tokens);
    assert_int_equal(page_of(rig, &r, v, ROOM), 2);
    assert_tokens(0, seq1, L);
    assert_int_equal(chunks.of[0].keys, 2);
    assert_memory_equal(chunks.data + chunks.of[0].at + 4 * L, keys, 2 * sizeof keys[0]);
    assert_int_equal(chunks.of[1].keys, 1);
    assert_memory_equal(chunks.data + chunks.of[1].at + 4 * L, &keys[2], sizeof keys[0]);
}

TEST(page_of_tokens_ends_where_it_is_full)
{
    const uint32_t one = WIRE_EVENT_BYTES + SUBSCRIBE_CHUNK_HEAD + 4 * L;
    struct bench b = bench_start(L, 16);
    struct event_reader r = reader_from(1);
    struct wire_event v[READ_MAX];

    rig_put(b.rig, &b.e, b.pool, 1, 4 * L);
    assert_int_equal(page_of(b.rig, &r, v, 2 * one), 2);
    assert_int_equal(r.at, 3);
    assert_int_equal(page_of(b.rig, &r, v, 2 * one - 1), 1);
    assert_tokens(0, seq1 + 2 * L, L);
    /* A chunk that no page has room for is sent without tokens, and the next one follows. */
    assert_int_equal(page_of(b.rig, &r, v, one - 1), 1);
    assert_int_equal(v[0].number, 4);
    assert_tokens(0, NULL, 0);
    assert_int_equal(page_of(b.rig, &r, v, ROOM), 0);
    assert_int_equal(r.lost, 0);
}

/* ---- whoever applies every change knows the tree ---- */

struct mirror {
    struct event_reader r;
    struct wire_event v[MIRROR];
    uint32_t n;
    uint64_t lost;
};

static void mirror_apply(struct mirror *m, const struct wire_event *e)
{
    uint32_t i = 0;

    while (i < m->n && m->v[i].chain != e->chain)
        i++;
    if (e->kind == TREE_STORED) {
        assert_int_equal(i, m->n);
        m->v[m->n++] = *e;
    } else if (e->kind == TREE_TIER) {
        assert_true(i < m->n && m->v[i].tiers != e->tiers);
        m->v[i] = *e;
    } else {
        assert_true(i < m->n);
        m->v[i] = m->v[--m->n];
    }
}

static void mirror_read(const struct rig *rig, struct mirror *m)
{
    struct wire_event v[READ_MAX];
    uint32_t n;

    while ((n = changes(rig->core, &m->r, v, READ_MAX)) > 0)
        for (uint32_t i = 0; i < n; i++)
            mirror_apply(m, &v[i]);
}

static void mirror_compare(const struct rig *rig, const struct mirror *m)
{
    uint32_t n = 0;
    struct node_view view;

    for (uint32_t i = 0; i < rig->options.limits.nodes; i++) {
        uint32_t at = 0;

        if (!core_node_view(rig->core, i, &view) || view.depth == 0 || !view.visible)
            continue;
        n++;
        while (at < m->n && m->v[at].chain != view.chain)
            at++;
        assert_true(at < m->n);
        assert_int_equal(m->v[at].depth, view.depth);
        assert_int_equal(m->v[at].tiers, (uint32_t)view.on_device << TIER_DEVICE |
                                             (uint32_t)view.on_host << TIER_HOST);
    }
    assert_int_equal(n, m->n);
}

TEST(mirror_of_a_random_run_is_the_tree)
{
    struct rig *rig = rig_create(NULL);
    struct rig_engine e = rig_engine(rig, 0, "e", 1);
    uint32_t admin = rig_connect_admin(rig);
    struct mirror *m = calloc(1, sizeof *m);
    struct prng rng;
    struct pool_id pool;

    prng_init(&rng, 5);
    rig->host_bytes = 4096; /* both tiers run full */
    rig->automatic = RIG_ALL & ~(uint32_t)RIG_COPY;
    pool = rig_pool_pages(rig, &e, L, 12);
    m->r = reader_from(1);
    for (uint32_t i = 0; i < 600; i++) {
        uint32_t what = prng_below(&rng, 8);

        while (rig_jobs(rig, RIG_COPY) > 2)
            rig_complete(rig, RIG_COPY); /* they pin the device */
        if (what < 4)
            rig_put(rig, &e, pool, 1 + prng_below(&rng, 6), L * (1 + prng_below(&rng, 4)));
        else if (what == 4)
            rig_evict(rig, admin, pool, 1 + prng_below(&rng, 3));
        else if (rig_jobs(rig, RIG_COPY) > 0)
            rig_complete(rig, RIG_COPY);
        mirror_read(rig, m);
        mirror_compare(rig, m);
    }
    assert_int_equal(m->r.lost, 0);
    assert_true(next_no(rig) > 600); /* the run caused changes */
    assert_true(rig_view(rig).host_copies > 20);
    free(m);
}
