/* Shares (T22): a tenant that fills a table does not keep another one out of what is reserved for
 * it, and the refusal names the share and the setting. */
#include <stdio.h>

#include "testing/test.h"
#include "unit/rig/rig_pair.h"
#include "unit/rig/rig_test.h"

/* Two tenants, each with an engine, a pool and a session. */
struct neighbours {
    struct rig *rig;
    struct rig_engine a, b;
    struct pool_id ap, bp;
    struct rig_session *as, *bs;
};

static struct neighbours neighbours_with(struct rig_options options)
{
    struct neighbours n;

    options.limits.reserved_percent = 50;
    n.rig = rig_create(&options);
    n.a = rig_engine(n.rig, 0, "a", 1);
    n.b = rig_engine(n.rig, 1, "b", 1);
    n.ap = rig_pool_pages(n.rig, &n.a, 4, 512);
    n.bp = rig_pool_pages(n.rig, &n.b, 4, 64);
    n.as = rig_session(n.rig, &n.a, n.ap, 1);
    n.bs = rig_session(n.rig, &n.b, n.bp, 1);
    return n;
}

static struct share_view share_of(const struct neighbours *n, const char *setting, uint32_t tenant)
{
    struct share_view v = {0};

    for (uint32_t i = 0; core_share_view(n->rig->core, (struct share_of){i, tenant}, &v); i++)
        if (strcmp(v.setting, setting) == 0)
            return v;
    fail_msg("no table is called %s", setting);
    return v;
}

/* Tenant A never publishes a step. Releases that wait for A's steps leave B's commit, rewind and
 * close their records. */
TEST(t22_releases_of_a_tenant_that_stands_still_leave_the_other_its_share)
{
    struct neighbours n = neighbours_with(OPTIONS_WITH(limits.retires = 128));
    uint32_t held = 0;

    computes(n.as, 1, 1024);
    while (rig_rewind(n.as, 1024 - 4 * (held + 1), held + 1) == TERN_OK)
        held++;
    assert_int_equal(held, 96); /* 32 reserved, and the common 64 */
    assert_non_null(strstr(n.rig->res.text, "raise limits.retires"));
    assert_int_equal(share_of(&n, "retires", 0).used, 96);
    assert_int_equal(share_of(&n, "retires", 0).rest, 0);
    assert_int_equal(share_of(&n, "retires", 1).used, 0);
    assert_int_equal(share_of(&n, "retires", 1).reserved, 32);

    computes_and_commits(n.bs, 2, 64, 32, 1);
    assert_ok(rig_rewind(n.bs, 48, 1));
    assert_ok(rig_close(n.bs, 1));
    rig_engine_done(n.rig, &n.b, 1);
    assert_int_equal(share_of(&n, "retires", 1).used, 0);
    rig_engine_done(n.rig, &n.a, held);
    assert_int_equal(share_of(&n, "retires", 0).used, 0);
    assert_int_equal(share_of(&n, "retires", 0).rest, 64);
}

static const struct reply *resets(struct rig *rig, const struct rig_engine *e, uint64_t ns)
{
    struct request request = {.op = OP_NAMESPACE_RESET, .namespace_reset.ns.lo = ns};

    rig_request(rig, e->conn[0], &request);
    return rig_reply_to(rig, request.request_id);
}

/* No peer is connected, so each reset of a namespace keeps a record. */
TEST(t22_resets_that_wait_for_peers_leave_the_other_tenant_its_share)
{
    struct neighbours n = neighbours_with(OPTIONS_WITH(limits.resets = 8));
    uint32_t held = 0;

    while (resets(n.rig, &n.a, held)->err == TERN_OK)
        held++;
    assert_int_equal(held, 6); /* 2 reserved, and the common 4 */
    assert_non_null(
        strstr(resets(n.rig, &n.a, held)->text, "or remove them from the configuration"));
    assert_int_equal(share_of(&n, "resets", 1).reserved, 2);
    for (uint32_t i = 0; i < 2; i++)
        assert_ok(resets(n.rig, &n.b, i)->err);
    assert_err(TERN_BUSY, resets(n.rig, &n.b, 2)->err);
    assert_int_equal(share_of(&n, "resets", 0).rest, 0);
}

/* Names with ranks that have not joined yet are engines, too. */
TEST(t22_half_joined_engines_of_a_tenant_leave_the_other_its_share)
{
    struct neighbours n = neighbours_with(rig_defaults());
    uint32_t held = 1, proc;
    enum tern_err err = TERN_OK;
    char name[8];

    for (; err == TERN_OK; held += err == TERN_OK) {
        snprintf(name, sizeof name, "a%u", held);
        err = rig_join(n.rig, rig_connect(n.rig, 0, &proc), name, ROLE_WORKER, 0, 2);
    }
    assert_refused(n.rig, TERN_BUSY, err);
    assert_non_null(strstr(n.rig->last->text, "raise limits.engines"));
    assert_int_equal(held, 6);
    assert_int_equal(share_of(&n, "engines", 0).used, 6);
    assert_ok(rig_join(n.rig, rig_connect(n.rig, 1, &proc), "b1", ROLE_BOTH, 0, 1));
    assert_int_equal(share_of(&n, "engines", 1).used, 2);
    rig_engine_kill(n.rig, &n.a, 0);
    assert_int_equal(share_of(&n, "engines", 0).used, 5);
}

TEST(t22_sessions_of_a_tenant_leave_the_other_its_share)
{
    struct neighbours n = neighbours_with(OPTIONS_WITH(limits.sessions = 16));
    struct rig_session s;
    uint32_t held = 1;

    while (rig_session_open(n.rig, n.a.conn[0], n.ap, 1, &s) == TERN_OK)
        held++;
    assert_non_null(strstr(n.rig->last->text, "raise limits.sessions"));
    assert_int_equal(held, 12);
    for (uint32_t i = 1; i < 4; i++)
        assert_ok(rig_session_open(n.rig, n.b.conn[0], n.bp, 1, &s));
    assert_refused(n.rig, TERN_BUSY, rig_session_open(n.rig, n.b.conn[0], n.bp, 1, &s));
    assert_ok(rig_close(n.as, 0)); /* that session was in the shared remainder */
    assert_ok(rig_session_open(n.rig, n.b.conn[0], n.bp, 1, &s));
    assert_refused(n.rig, TERN_BUSY, rig_session_open(n.rig, n.a.conn[0], n.ap, 1, &s));
}

TEST(t22_pools_of_a_tenant_leave_the_other_its_share)
{
    struct neighbours n = neighbours_with(rig_defaults());
    struct group_layout g = rig_group(4, 512);
    struct pool_id pool;
    uint32_t held = 1;

    while (rig_pool_open(n.rig, n.a.conn[0], &g, 1, 16384, &pool) == TERN_OK)
        held++;
    assert_non_null(strstr(n.rig->last->text, "raise limits.pools"));
    assert_int_equal(held, 6);
    assert_ok(rig_pool_open(n.rig, n.b.conn[0], &g, 1, 16384, &pool));
    assert_refused(n.rig, TERN_BUSY, rig_pool_open(n.rig, n.b.conn[0], &g, 1, 16384, &pool));
    assert_ok(rig_pool_close(n.rig, n.b.conn[0], pool));
    assert_int_equal(share_of(&n, "pools", 1).used, 2); /* until nobody can write to it */
}

/* A opens pools of 1 MiB, each with 2,048 pages in 1,024 slabs, until one is refused. */
static void records_of_pools(uint32_t pages, uint32_t slabs, const char *setting)
{
    struct rig_options options = rig_defaults();
    struct group_layout g = rig_group(4, 512);
    struct neighbours n;
    struct pool_id pool;
    uint32_t held = 1;

    options.limits.pools = 32;
    options.limits.pages = pages;
    options.limits.slabs = slabs;
    options.tenant[0].memory_bytes = options.tenant[1].memory_bytes = 64u << 20;
    n = neighbours_with(options); /* with a pool each */
    while (rig_pool_open(n.rig, n.a.conn[0], &g, 1, 1 << 20, &pool) == TERN_OK)
        held++;
    assert_err(TERN_BUSY, n.rig->last->err);
    assert_non_null(strstr(n.rig->last->text, setting));
    assert_int_equal(held, 6);
    assert_ok(rig_pool_open(n.rig, n.b.conn[0], &g, 1, 1 << 20, &pool));
    assert_int_equal(share_of(&n, "pages", 1).used, 2 * 2048);
    assert_int_equal(share_of(&n, "slabs", 1).used, 2 * 1024);
}

TEST(t22_page_records_of_a_tenant_leave_the_other_its_share)
{
    records_of_pools(16384, 65536, "raise limits.pages");
}

TEST(t22_slab_records_of_a_tenant_leave_the_other_its_share)
{
    records_of_pools(65536, 8192, "raise limits.pools");
}

/* A peer that does not answer holds the fetches of one tenant. Another tenant's fetches begin, from
 * the same peer and from others. */
TEST(t22_fetches_of_a_tenant_from_a_silent_peer_leave_the_other_its_share)
{
    struct rig_options options = rig_defaults();
    struct neighbours n;
    uint32_t held = 0;

    options.limits.pulls = 8; /* for two tenants with two peers each */
    n = neighbours_with(options);
    n.rig->automatic = BY_HAND(RIG_MSG);
    rig_link_up(n.rig, 0, rig_create(&options), 2);
    assert_ok(rig_match(n.bs, seq1, 16));
    for (; held < 9; held++) {
        struct rig_session *s = session_with(n.rig, &n.a, n.ap, 1, 16);

        rig_fetch(s, 0, 0);
        if (rig_view(n.rig).pulls == held)
            break;
    }
    assert_err(TERN_BUSY, n.rig->last->err);
    assert_non_null(strstr(n.rig->last->text, "raise limits.pulls"));
    assert_int_equal(held, 5);
    assert_int_equal(share_of(&n, "pulls", 0).used, 5);
    rig_fetch(n.bs, 0, 0);
    assert_int_equal(rig_view(n.rig).pulls, 6);
}

/* A peer asks again and again, and reads none of the offers. */
TEST(t22_offers_that_a_peer_leaves_unread_leave_another_peer_its_share)
{
    struct rig_options options = rig_defaults();
    struct event event = {.kind = EV_PEER_MSG};
    uint32_t offers = 0;
    struct pair p;

    options.limits.serves = 8; /* for two tenants with two peers each */
    options.limits.reserved_percent = 50;
    p = pair_with(options, 4, 128, 64);
    rig_put(p.source, &p.se, p.sp, 1, 16);
    p.d = asking(&p, 1, 16);
    p.source->automatic = p.dest->automatic = BY_HAND(RIG_MSG);
    rig_fetch(p.d, 0, 0);
    rig_link_up(p.dest, 1, p.source, 3);
    event.peer.msg = rig_job(p.dest, RIG_MSG, 0)->msg;
    event.peer.link = 2;
    for (uint32_t i = 0; i < 8; i++, offers = rig_view(p.source).serves) {
        event.peer.msg.pull.gen++;
        rig_event(p.source, &event);
    }
    assert_int_equal(offers, 5);
    assert_err(TERN_BUSY, rig_job(p.source, RIG_MSG, 7)->msg.err);
    event.peer.link = 3;
    event.peer.msg.pull.gen++;
    rig_event(p.source, &event);
    assert_int_equal(rig_view(p.source).serves, 6);
    assert_ok(rig_job(p.source, RIG_MSG, 8)->msg.err);
}

/* --- records of prefixes, which are evicted --- */

/* Caches tokens [0, depth) of `seed` in namespace `ns`, with `nkeys` extra keys. */
static enum tern_err put(struct neighbours *n, bool a, uint64_t ns, uint32_t seed, uint32_t nkeys)
{
    struct rig_session *s = rig_session(n->rig, a ? &n->a : &n->b, a ? n->ap : n->bp, ns);
    struct extra_key keys[2] = {{.position = 1, .lo = seed}, {.position = 5, .lo = seed}};
    struct req_tokens t = {.v = rig_tokens(seed, 8), .n = 8, .keys = keys, .nkeys = nkeys};
    enum tern_err err = rig_match_full(s, &t, 0);

    if (err == TERN_OK)
        err = rig_run_to(s, t.v, 8);
    if (err == TERN_OK)
        err = rig_commit(s, 8, 0);
    assert_ok(rig_close(s, 0));
    rig_session_free(s);
    return err;
}

static uint32_t cached(struct neighbours *n, bool a, uint64_t ns, uint32_t seed)
{
    struct rig_session *s = rig_session(n->rig, a ? &n->a : &n->b, a ? n->ap : n->bp, ns);
    uint32_t depth = rig_depth(s, rig_tokens(seed, 8), 8);

    assert_ok(rig_close(s, 0));
    rig_session_free(s);
    return depth;
}

/* A fills the table with cached prefixes, and caches more. B gets what is reserved for it, and then
 * as much of the shared remainder as A has. A's caching evicts A's own prefixes first. */
static void t22_shares_of_a_cache(struct rig_options options, const char *setting, uint32_t a_has,
                                  uint32_t b_has)
{
    bool salts = strcmp(setting, "namespaces") == 0;
    struct neighbours n = neighbours_with(options);
    uint32_t nkeys = strcmp(setting, "extra_keys") == 0 ? 2 : 0;

    assert_ok(put(&n, false, 1, 1, nkeys));
    for (uint32_t i = 0; i < 200; i++)
        assert_ok(put(&n, true, salts ? 2 + i : 1, 10 + i, nkeys));
    assert_int_equal(share_of(&n, setting, 0).used, a_has);
    assert_int_equal(cached(&n, false, 1, 1), nkeys ? 0 : 8); /* the Peek names no keys */
    for (uint32_t i = 0; i < 200; i++)
        assert_ok(put(&n, false, salts ? 2 + i : 1, 10 + i, nkeys));
    assert_int_equal(share_of(&n, setting, 1).used, b_has);
    assert_true(share_of(&n, setting, 0).used >= share_of(&n, setting, 0).reserved);
}

#define CACHES(table, n, a_has, b_has)                                                             \
    TEST(t22_##table##_that_a_tenant_caches_leave_the_other_its_share)                             \
    {                                                                                              \
        t22_shares_of_a_cache(OPTIONS_WITH(limits.table = (n)), #table, a_has, b_has);             \
    }

CACHES(namespaces, 16, 12, 4)
CACHES(nodes, 64, 48, 16)
CACHES(token_blocks, 64, 48, 16)
CACHES(extra_keys, 16, 12, 4)

/* If a tenant uses all that it has, another one's cached prefixes are evicted for it until both
 * have equally much of the shared remainder; then nothing is. */
TEST(t22_what_is_in_use_takes_the_place_of_what_another_caches)
{
    struct neighbours n = neighbours_with(rig_defaults());
    struct rig_session s;
    uint32_t held = 1;

    for (uint32_t i = 0; i < 20; i++)
        assert_ok(put(&n, true, 2 + i, 1, 0));
    assert_int_equal(share_of(&n, "namespaces", 0).used, 12);
    while (rig_session_open(n.rig, n.b.conn[0], n.bp, 1 + held, &s) == TERN_OK)
        held++;
    assert_err(TERN_BUSY, n.rig->last->err);
    assert_non_null(strstr(n.rig->last->text, "raise limits.namespaces"));
    assert_int_equal(held, 8);
    assert_int_equal(share_of(&n, "namespaces", 0).used, 8);
    assert_int_equal(cached(&n, true, 21, 1), 8); /* the oldest went, not this one */
}

/* The records of prefixes that are reserved for a tenant follow its memory, of all its regions. */
TEST(t22_records_of_prefixes_are_reserved_by_memory)
{
    struct rig_options options = rig_defaults();
    struct neighbours n;

    options.tenant[0].memory_bytes = 15u << 20;
    options.tenant[0].regions = 4;
    options.tenant[1].regions = 1;
    options.tenant[0].host_bytes = options.tenant[1].host_bytes = 0;
    options.tenant[1].memory_bytes = 7u << 20;
    options.limits.nodes = 148;
    n = neighbours_with(options);
    assert_int_equal(share_of(&n, "nodes", 0).reserved, 1 + 64);
    assert_int_equal(share_of(&n, "nodes", 1).reserved, 1 + 8);
    assert_int_equal(share_of(&n, "namespaces", 0).reserved, 4);
}

/* A prefix with extra keys is evicted for new keys, with what continues it. One without keys stays,
 * and so does one that a session holds. */
TEST(t22_extra_keys_make_way_alone)
{
    struct extra_key keys[2] = {{.position = 1, .lo = 2}, {.position = 5, .lo = 2}};
    struct req_tokens t = {.v = rig_tokens(2, 16), .n = 16, .keys = keys, .nkeys = 2};
    struct neighbours n = neighbours_with(OPTIONS_WITH(limits.extra_keys = 8)); /* six for one */
    struct rig_session *s;

    assert_ok(put(&n, true, 1, 1, 0));
    assert_ok(put(&n, true, 1, 2, 2));
    s = rig_session(n.rig, &n.a, n.ap, 1);
    assert_ok(rig_match_full(s, &t, 0));
    assert_int_equal(s->matched, 8);
    for (uint32_t i = 3; i < 20; i++)
        assert_ok(put(&n, true, 1, i, 2));
    assert_int_equal(share_of(&n, "extra_keys", 0).used, 6);
    assert_int_equal(cached(&n, true, 1, 1), 8);
    assert_whole(s, 8);
}
