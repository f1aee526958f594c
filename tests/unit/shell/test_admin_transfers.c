/* Admin answers about transfers: both sides of one, its progress, and pages in quarantine. */
#include "unit/shell/test_admin_rig.h"

/* A transfer that is under way, on both sides. */
TEST(transfers_are_told_by_both_sides)
{
    struct pair p = pair_with(rig_defaults(), 4, 32, 32);
    struct rig_session *session;
    struct node_view node;
    const json_t *row;

    rig_put(p.source, &p.se, p.sp, 9, 16);
    session = rig_session(p.dest, &p.de, p.dp, 1);
    rig_match(session, rig_tokens(9, 16), 16);
    p.dest->automatic &= ~(uint32_t)RIG_PULL;
    rig_fetch(session, 0, 0);
    rig_settle(p.dest);

    s.ctx.core = p.dest->core;
    row = row_of("transfers", 0, 1);
    tells(row, "{'direction': 'in', 'peer': 'beta', 'to': 16, 'pages': 4, 'pages_verified': 0}");
    /* The transfer pins its parent: here the root. */
    assert_int_equal(id_of(row, "node_id") & UINT32_MAX, session_seen(session).node);
    assert_ok(ask_with("transfers", "peer=beta", NONE));
    tells(s.answer, "{'transfers': [{'peer': 'beta'}]}");
    assert_ok(ask_with("transfers", "peer=/disk", NONE));
    assert_int_equal(json_array_size(json_object_get(s.answer, "transfers")), 0);
    assert_ok(ask_with("transfers", "tenant=second", NONE));
    assert_int_equal(json_array_size(json_object_get(s.answer, "transfers")), 0);

    s.ctx.core = p.source->core;
    row = row_of("transfers", 0, 1);
    tells(row, "{'direction': 'out', 'peer': 'beta', 'tier': 'peer', 'stage': 'offered'}");
    node = node_seen(p.source, p.sp, rig_tokens(9, 16), 16);
    assert_int_equal(id_of(row, "node_id"), node_id_pack(node.id));
}

/* X8: both sides show whether a decode waits for a transfer. */
TEST(transfers_tell_their_class)
{
    for (uint32_t prefetch = 0; prefetch < 2; prefetch++) {
        struct pair p = pair_with(rig_defaults(), 4, 32, 32);
        struct rig_session *session = rig_session(p.dest, &p.de, p.dp, 1);
        const char *class = prefetch ? "prefetch" : "decode";

        rig_put(p.source, &p.se, p.sp, 9, 16);
        rig_match(session, rig_tokens(9, 16), 16);
        p.dest->automatic &= ~(uint32_t)RIG_PULL;
        session->prefetch = prefetch;
        rig_fetch(session, 0, 0);
        rig_settle(p.dest);
        s.ctx.core = p.dest->core;
        tells(row_of("transfers", 0, 1), "{'class': '%s'}", class);
        s.ctx.core = p.source->core;
        tells(row_of("transfers", 0, 1), "{'class': '%s'}", class);
        rig_destroy_all();
    }
}

/* The data path's view of both sides. */
static struct xfer_flow_view flow_now;

static bool flow(const struct xfer *d, struct pull_id pull, struct xfer_flow_view *ret)
{
    (void)d;
    (void)pull;
    *ret = flow_now;
    return true;
}

static bool flow_out(const struct xfer *d, struct serve_id serve, struct xfer_flow_view *ret)
{
    (void)serve;
    return flow(d, (struct pull_id){0}, ret);
}

/* A fetch of 16 pages of 512 bytes, 4 at a time; 3 of the first batch have arrived. */
static struct pair pair_on_its_way(void)
{
    struct pair p = pair_limited(4 * 512);

    pair_offer(&p, 64);
    fetch_held(&p, RIG_PULL | RIG_PULL_STOP);
    rig_advance(p.dest, 2000 * NS_PER_MS);
    rig_complete(p.dest, RIG_PULL);
    flow_now = (struct xfer_flow_view){.pages = 7, .bytes = 7 * 512};
    s.parts.pull = flow;
    s.parts.serve = flow_out;
    s.ctx.core = p.dest->core;
    s.ctx.now_ns = p.dest->now_ns + 2000 * NS_PER_MS;
    return p;
}

TEST(transfers_tell_their_stage_amounts_and_waits)
{
    struct pair p = pair_on_its_way();

    tells(row_of("transfers", 0, 1),
          "{'stage': 'wire', 'waits_for': 'credit', 'tier': 'peer', 'tenant': 'first',"
          " 'ticket': false, 'published': 16, 'pages': 16, 'bytes': 8192, 'pages_asked': 8,"
          " 'bytes_asked': 4096, 'pages_arrived': 7, 'bytes_arrived': 3584, 'pages_verified': 4,"
          " 'bytes_verified': 2048, 'pages_published': 4, 'bytes_published': 2048}");
    tells(row_of("transfers", 0, 1),
          "{'bytes_per_s': 0, 'mean_bytes_per_s': 512, 'age_s': 4.0, 'waited_s': 4.0,"
          " 'stage_s': {'queued': 0.0, 'wire': 4.0},"
          " 'wait_s': {'credit': 4.0, 'busy_source': 0.0}}");
    s.ctx.now_ns = p.dest->now_ns;
    tells(row_of("transfers", 0, 1), "{'bytes_per_s': 2048, 'mean_bytes_per_s': 1024}");
    assert_ok(rig_fetch_cancel(p.d));
    tells(row_of("transfers", 0, 1), "{'stage': 'ending', 'waits_for': 'proof'}");
}

TEST(transfers_tell_what_has_left)
{
    struct pair p = pair_on_its_way();

    s.ctx.core = p.source->core;
    s.ctx.now_ns = p.source->now_ns;
    flow_now.rate = (struct rate){.second = s.ctx.now_ns / RATE_SPAN_NS, .now = 99};
    tells(row_of("transfers", 0, 1), "{'stage': 'offered', 'waits_for': null, 'pages': 16,"
                                     " 'pages_sent': 7, 'bytes_sent': 3584, 'bytes_per_s': 99}");
}

static void assert_quarantine(uint64_t oldest_ms, const char *peer, uint64_t pull, uint64_t pages)
{
    const json_t *status = ask("status");

    tells(status,
          "{'quarantine_oldest_ms': %llu, 'quarantine_holder': {'peer': '%s', 'pages': %llu}}",
          (unsigned long long)oldest_ms, peer, (unsigned long long)pages);
    assert_int_equal(id_of(json_object_get(status, "quarantine_holder"), "transfer"), pull);
}

TEST(status_tells_how_long_quarantine_lasts_and_for_whom)
{
    struct pair p = pair_limited(1 << 20);
    struct pull_id pull;

    pair_offer(&p, 16);
    fetch_held(&p, RIG_PULL | RIG_PULL_STOP);
    pull = rig_job(p.dest, RIG_PULL, 0)->pull;
    s.ctx.core = p.dest->core;
    s.ctx.now_ns = p.dest->now_ns + 5000000;
    assert_quarantine(0, "", 0, 0);
    assert_ok(rig_fetch_cancel(p.d));
    assert_quarantine(5, "beta", pull_id_pack(pull), 4);
    s.ctx.now_ns = p.dest->now_ns + 12345678901;
    assert_quarantine(12345, "beta", pull_id_pack(pull), 4);
    rig_complete(p.dest, RIG_PULL_STOP);
    assert_quarantine(0, "", 0, 0);
}
