/* Shares (T22): a tenant that fills a table does not keep another one out of what is reserved for
 * it, and its refusal says which share and which setting. */
#include "testing/test.h"
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

/* Tenant A never publishes a step. What waits for its steps leaves B's commit, rewind and close
 * their records. */
TEST(t22_releases_of_a_tenant_that_stands_still_leave_the_other_its_share)
{
    struct rig_options options = rig_defaults();
    struct neighbours n;
    uint32_t held = 0;

    options.limits.retires = 128;
    n = neighbours_with(options);
    assert_ok(rig_match(n.as, rig_tokens(1, 1024), 1024));
    assert_ok(rig_run_to(n.as, rig_tokens(1, 1024), 1024));
    while (rig_rewind(n.as, 1024 - 4 * (held + 1), held + 1) == TERN_OK)
        held++;
    assert_int_equal(held, 96); /* 32 reserved, and the common 64 */
    assert_non_null(strstr(n.rig->res.text, "raise limits.retires"));
    assert_int_equal(share_of(&n, "retires", 0).used, 96);
    assert_int_equal(share_of(&n, "retires", 0).rest, 0);
    assert_int_equal(share_of(&n, "retires", 1).used, 0);
    assert_int_equal(share_of(&n, "retires", 1).reserved, 32);

    assert_ok(rig_match(n.bs, rig_tokens(2, 64), 64));
    assert_ok(rig_run_to(n.bs, rig_tokens(2, 64), 64));
    assert_ok(rig_commit(n.bs, 32, 1));
    assert_ok(rig_rewind(n.bs, 48, 1));
    assert_ok(rig_close(n.bs, 1));
    rig_engine_done(n.rig, &n.b, 1);
    assert_int_equal(share_of(&n, "retires", 1).used, 0);
    rig_engine_done(n.rig, &n.a, held);
    assert_int_equal(share_of(&n, "retires", 0).used, 0);
    assert_int_equal(share_of(&n, "retires", 0).rest, 64);
}
