/* How long a ticket stands (Y1, Y3): no other pool ends it, and a reset ends a promise. */
#include "unit/rig/rig_follow.h"

#include "core/arena/arena.h"

/* Y3: the ticket's engine has gone, and another engine wants the memory. */
TEST(y3_a_ticket_outlives_the_pool_that_another_engine_wants)
{
    struct pair p = pair_limited(1 << 20);
    struct rig_session *s = computed(&p), *d = asking(&p, 1, LEN);
    struct ticket t = hand_over(s, 0, 0);
    struct group_layout g = rig_group(8, 512);
    struct rig_engine other;
    struct pool_id pool;

    assert_ok(rig_leave(p.source, p.se.conn[0]));
    rig_settle(p.source);
    other = rig_engine(p.source, 0, "other", 1);
    assert_err(TERN_BUSY, rig_pool_open(p.source, other.conn[0], &g, 1, 4u << 20, &pool));
    assert_string_equal(p.source->last->text,
                        "# tickets need a pool that no engine maps: retry when they "
                        "were fetched or have expired");
    assert_int_equal(p.source->last->number[0], 1);
    assert_ok(ticket_fetched(d, t));
    rig_settle(p.source);
    assert_err(TERN_BUSY, rig_pool_open(p.source, other.conn[0], &g, 1, 4u << 20, &pool));
    rig_settle(p.source);
    assert_ok(rig_pool_open(p.source, other.conn[0], &g, 1, 4u << 20, &pool));
}

/* Y1 */
TEST(y1_a_promise_is_over_with_the_reset_of_its_namespace)
{
    struct pair p = pair_limited(1 << 20);
    struct rig_session *s = session_with(p.source, &p.se, p.sp, 1, LEN);
    struct ticket t;
    uint32_t nodes;

    assert_ok(rig_run_to(s, rig_tokens(1, LEN), 8));
    t = ticket_early(s);
    assert_ok(ticket_ask(p.source, p.se.conn[0], OP_TICKET_RENEW, t, 1000));
    rig_link_down(p.dest, 0);
    assert_ok(rig_reset(p.source, p.se.conn[0], 1, &nodes));
    assert_err(TERN_GONE, ticket_ask(p.source, p.se.conn[0], OP_TICKET_RENEW, t, 1000));
    assert_err(TERN_GONE, ticket_ask(p.source, p.se.conn[0], OP_TICKET_DROP, t, 0));
}
