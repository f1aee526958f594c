/* A namespace reset on one daemon is gone on its peers, too: no Match and no Fetch finds earlier
 * commits under it any more, even after the first daemon has restarted. Later commits are found. */
#include <stdio.h>
#include <stdlib.h>

#include "engine/admin.h"
#include "engine/engine.h"
#include "engine/proc.h"
#include "rig_daemon.h"
#include "testing/test.h"

#define PAGE   4096
#define TOKENS 640

static struct daemon source, dest;
static struct daemon_options options[2] = {
    {.node = "source", .memory_bytes = 16u << 20, .page_bytes_min = PAGE, .core = -1},
    {.node = "dest", .memory_bytes = 16u << 20, .page_bytes_min = PAGE, .core = -1}};
static uint32_t tokens[TOKENS];

static void commit_all(struct engine *e)
{
    struct engine_session s;

    assert_ok(e->tern, engine_begin(&s, e, tokens, TOKENS));
    assert_ok(e->tern, engine_run(&s));
    assert_ok(e->tern, engine_publish(e));
    assert_ok(e->tern, engine_end(&s));
}

/* Tokens of a new session there after a Match and a Fetch from the source; every byte of their
 * pages must be right. */
static uint32_t fetched(struct engine *e, uint32_t *ret_matched)
{
    struct engine_session s;
    uint32_t committed;

    assert_ok(e->tern, engine_begin(&s, e, tokens, TOKENS));
    *ret_matched = s.matched;
    assert_ok(e->tern, engine_fetch(&s, "source", TOKENS, RIG_WAIT_MS));
    committed = s.len.committed;
    assert_int_equal(engine_wrong(&s, committed), 0);
    assert_ok(e->tern, engine_end(&s));
    return committed;
}

/* Both daemons have reset it once, and no peer is still to be notified. */
static void is_known_to_all(void)
{
    const struct daemon *all[] = {&source, &dest};

    for (uint32_t i = 0; i < 2; i++) {
        struct tern *admin = rig_connected(all[i]->admin);

        assert_int_equal(rig_figure(admin, "status", "namespaces_reset"), 1);
        assert_int_equal(rig_figure(admin, "status", "resets_spreading"), 0);
        tern_destroy(admin);
    }
}

static void link_is_up(const struct daemon *d, const char *peer)
{
    struct tern *admin = rig_connected(d->admin);

    assert_true(admin_wait_peer(admin, peer, RIG_WAIT_MS));
    tern_destroy(admin);
}

TEST(reset_of_a_namespace_reaches_the_peers)
{
    char dir[RIG_DIR_BYTES], why[SPAWN_WHY_BYTES] = "";
    struct tern_namespace ns = {.model = "m"};
    uint32_t matched, unreached = 99;
    struct engine a, b;

    for (uint32_t i = 0; i < TOKENS; i++)
        tokens[i] = i * 7 + 1;
    rig_start_pair(&source, &dest, dir, options);
    link_is_up(&source, "dest"); /* an unconnected peer would not be reached */
    link_is_up(&dest, "source");
    a = rig_engine(source.socket, "prefill", 64, 64 * PAGE);
    commit_all(&a);
    b = rig_engine(dest.socket, "decode", 64, 64 * PAGE);
    assert_int_equal(fetched(&b, &matched), TOKENS);
    assert_int_equal(matched, 0);

    assert_ok(b.tern, tern_namespace_reset(b.tern, &ns, RIG_WAIT_MS, NULL, &unreached));
    assert_int_equal(unreached, 0);
    is_known_to_all();
    assert_int_equal(fetched(&b, &matched), 0);
    assert_int_equal(matched, 0);

    engine_close(&b);
    assert_int_equal(daemon_end(&dest, RIG_STOP_MS), 0);
    if (!daemon_start(&dest, dir, &options[1], why))
        fail_msg("%s", why);
    link_is_up(&dest, "source");
    b = rig_engine(dest.socket, "decode", 64, 64 * PAGE);
    assert_int_equal(fetched(&b, &matched), 0);
    assert_int_equal(matched, 0);

    commit_all(&a);
    assert_int_equal(fetched(&b, &matched), TOKENS);
    engine_close(&b);
    engine_close(&a);
    assert_true(daemon_stop(&dest));
    assert_true(daemon_stop(&source));
    tempdir_remove(dir);
}

static void starts_again(struct daemon *d, const char *dir, const struct daemon_options *o)
{
    char why[SPAWN_WHY_BYTES] = "";

    assert_int_equal(daemon_end(d, RIG_STOP_MS), 0);
    if (!daemon_start(d, dir, o, why))
        fail_msg("%s", why);
}

static uint64_t figure(const struct daemon *d, const char *name)
{
    struct tern *admin = rig_connected(d->admin);
    uint64_t n = (uint64_t)rig_figure(admin, "status", name);

    tern_destroy(admin);
    return n;
}

/* N1: the daemon that was asked had just started, so one direction of the link was not up; the
 * reset is repeated until all have it. The peer's commits after its restart stay. */
TEST(reset_that_was_repeated_does_not_come_back)
{
    struct tern_namespace ns = {.model = "m"};
    char dir[RIG_DIR_BYTES];
    uint32_t matched, unreached;
    struct engine a, b;

    for (uint32_t i = 0; i < TOKENS; i++)
        tokens[i] = i * 7 + 1;
    rig_start_pair(&source, &dest, dir, options);
    for (uint32_t n = 0; n < 2; n++) {
        starts_again(&dest, dir, &options[1]);
        b = rig_engine(dest.socket, "decode", 64, 64 * PAGE);
        unreached = 1;
        for (uint32_t tries = 0; unreached > 0 && tries < 10000; tries++)
            assert_ok(b.tern, tern_namespace_reset(b.tern, &ns, RIG_WAIT_MS, NULL, &unreached));
        assert_int_equal(unreached, 0);
        starts_again(&source, dir, &options[0]);
        a = rig_engine(source.socket, "prefill", 64, 64 * PAGE);
        commit_all(&a);
        link_is_up(&dest, "source");
        link_is_up(&source, "dest");
        assert_int_equal(fetched(&b, &matched), TOKENS); /* after every pending message */
        assert_int_equal(figure(&source, "namespaces_reset"), 0);
        assert_int_equal(figure(&source, "resets_spreading"), 0);
        assert_int_equal(figure(&dest, "resets_spreading"), 0);
        engine_close(&a);
        engine_close(&b);
    }
    assert_true(daemon_stop(&dest));
    assert_true(daemon_stop(&source));
    tempdir_remove(dir);
}
