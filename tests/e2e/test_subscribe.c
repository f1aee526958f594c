/* Subscriptions to the prefix tree of a real daemon: which changes each subscriber gets, and from
 * where on. A subscriber that does not read loses changes and nothing else: not its connection, not
 * the daemon's time, not another subscriber's changes. */
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "engine/engine.h"
#include "rig_daemon.h"
#include "shell/conn/subscribe.h"
#include "testing/test.h"

#define L         64
#define CHUNKS    16
#define KEPT      256 /* limits.events */
#define CHURN_MAX 4000
#define ANSWERS   400 /* that nobody reads: more than one reads of them */
#define LITTLE    65536

static struct daemon rig;
static struct engine engine, other;
static struct tern *admin;
static char other_path[SPAWN_PATH_BYTES]; /* of tenant t1 */
static const struct tern_namespace ns1 = {.model = "m"}, ns2 = {.model = "n"};

FIXTURE(start)
{
    struct tern_group kv = {.name = "kv", .page_tokens = L, .page_bytes = 4096};
    struct tern_layout layout = {.groups = &kv, .ngroups = 1, .bytes = 2u << 20};
    char extra[64];

    rig_deadlines.progress_ms = RIG_SLOW_MS;
    snprintf(extra, sizeof(extra), "    events_tokens: true\nlimits:\n  events: %d\n", KEPT);
    rig_start_two(&rig, other_path, extra);
    assert_ok(engine.tern, engine_open_pool(&engine, rig.socket, "e", &layout, RIG_WAIT_MS));
    assert_ok(other.tern, engine_open_pool(&other, other_path, "e", &layout, RIG_WAIT_MS));
    admin = rig_connected(rig.admin);
    return 0;
}

FIXTURE(stop)
{
    engine_close(&engine);
    engine_close(&other);
    tern_destroy(admin);
    assert_int_equal(rig_stop(&rig), 0);
    return 0;
}

/* ---- making changes ---- */

/* Adds the first n chunks of a sequence to the tree. */
static void put(struct engine *e, const struct tern_namespace *ns, uint32_t seed, uint32_t n)
{
    uint32_t v[CHUNKS * L];
    struct engine_session s;

    for (uint32_t i = 0; i < n * L; i++)
        v[i] = seed * 65536 + i;
    e->ns = *ns;
    assert_ok(e->tern, engine_begin(&s, e, v, n * L));
    assert_ok(e->tern, engine_extend(&s, n * L, n * L));
    assert_ok(e->tern, engine_commit(&s, n * L));
    assert_ok(e->tern, engine_end(&s));
}

/* Evicts n chunks: all that exist. Chunks whose checksums are being computed follow later. */
static void evict(uint64_t n)
{
    wait_until((n -= rig_figure(admin, "evict", "nodes")) == 0);
}

/* ---- listening ---- */

/* Subscribes. Returns the answer. */
static struct tern_answer subscribe(struct tern *t, const struct tern_namespace *ns, uint64_t from,
                                    uint64_t cookie)
{
    struct tern_answer a;

    assert_ok(t, tern_subscribe(t, &(struct tern_subscription){.ns = ns, .from = from}, cookie));
    assert_ok(t, answer_wait(t, RIG_WAIT_MS, &a));
    assert_int_equal(a.cookie, cookie);
    return a;
}

static uint64_t subscribed(struct tern *t, const struct tern_namespace *ns, uint64_t from,
                           uint64_t cookie)
{
    struct tern_answer a = subscribe(t, ns, from, cookie);

    assert_ok(t, a.err);
    assert_int_equal(a.events->n, 0);
    return a.events->next;
}

static void refused(struct tern *t, enum tern_err want, uint64_t from, uint64_t cookie)
{
    struct tern_answer a = subscribe(t, NULL, from, cookie);

    assert_err(want, a.err);
    assert_null(a.events);
    assert_string_not_equal(tern_error_text(t, NULL), "");
}

/* The next n changes, received or lost, in order. */
struct heard {
    uint64_t events, lost, last;
    struct tern_event v[CHURN_MAX];
};

static struct heard heard;

static void hear(struct tern *t, uint64_t n)
{
    struct tern_answer a;

    heard.events = heard.lost = heard.last = 0;
    while (heard.events + heard.lost < n) {
        assert_ok(t, answer_wait(t, RIG_WAIT_MS, &a));
        assert_ok(t, a.err);
        heard.lost += a.events->lost;
        for (uint32_t i = 0; i < a.events->n; i++) {
            assert_true(a.events->v[i].number > heard.last);
            heard.last = a.events->v[i].number;
            if (heard.events < CHURN_MAX)
                heard.v[heard.events] = a.events->v[i];
            heard.events++;
        }
        assert_true(a.events->next > heard.last);
    }
    assert_int_equal(heard.events + heard.lost, n);
}

static uint64_t now_at(void)
{
    struct tern *t = rig_connected(rig.admin);
    uint64_t at = subscribed(t, NULL, 0, 1);

    tern_destroy(t);
    return at;
}

static void nothing_more(struct tern *t)
{
    struct tern_answer a;

    assert_err(TERN_BUSY, answer_wait(t, 100, &a));
}

/* ---- tests ---- */

TEST_GROUP(start, stop);

TEST(subscriber_hears_each_change_of_its_namespace)
{
    struct tern *t = rig_connected(rig.socket), *all = rig_connected(rig.socket);
    uint64_t from = subscribed(t, &ns1, 0, 7);

    assert_int_equal(subscribed(all, NULL, 0, 8), from);
    put(&engine, &ns1, 1, 3);
    put(&engine, &ns2, 1, 2);
    evict(5);
    hear(t, 3);
    for (uint32_t i = 0; i < 3; i++) {
        assert_int_equal(heard.v[i].kind, TERN_STORED);
        assert_int_equal(heard.v[i].depth, (i + 1) * L);
        assert_int_equal(heard.v[i].number, from + i);
        assert_true(heard.v[i].pool == engine.pool && heard.v[i].on_device && !heard.v[i].on_host);
        assert_true(heard.v[i].parent_chain == (i ? heard.v[i - 1].chain : 0));
        assert_null(heard.v[i].tenant);
    }
    hear(t, 3);
    for (uint32_t i = 0; i < 3; i++) {
        assert_int_equal(heard.v[i].kind, TERN_REMOVED);
        assert_true(!heard.v[i].on_device && !heard.v[i].on_host);
    }
    nothing_more(t);
    hear(all, 10);
    assert_int_equal(heard.lost, 0);
    tern_destroy(t);
    tern_destroy(all);
}

TEST(tenant_hears_nothing_of_another)
{
    struct tern *mine = rig_connected(rig.socket), *everything = rig_connected(rig.admin);
    uint64_t from = subscribed(mine, NULL, 0, 1);

    subscribed(everything, NULL, 0, 2);
    put(&other, &ns1, 1, 4);
    put(&engine, &ns1, 1, 1);
    hear(mine, 1);
    assert_int_equal(heard.v[0].number, from + 4);
    hear(everything, 5);
    assert_string_equal(heard.v[0].tenant, "t1");
    assert_string_equal(heard.v[4].tenant, "t0");
    assert_true(heard.v[0].chain == heard.v[4].chain); /* the same prefix, each its own pages */
    evict(5);
    tern_destroy(mine);
    tern_destroy(everything);
}

TEST(subscriber_goes_on_where_it_was)
{
    struct tern *t = rig_connected(rig.socket);
    uint64_t from = subscribed(t, NULL, 0, 1), at;

    put(&engine, &ns1, 2, 5);
    hear(t, 5);
    tern_destroy(t);
    put(&engine, &ns1, 3, 5);
    t = rig_connected(rig.socket);
    assert_int_equal(subscribed(t, NULL, from + 5, 1), from + 5);
    hear(t, 5);
    assert_int_equal(heard.v[0].number, from + 5);
    evict(10);
    /* From a number that was overwritten: gets all that is kept, and the number of lost changes. */
    for (uint32_t i = 0; i < KEPT / 16 + 1; i++) {
        put(&engine, &ns1, 100 + i, 8);
        evict(8);
    }
    at = now_at();
    hear(t, at - from - 10);
    assert_int_equal(subscribed(t, NULL, from, 2), from);
    assert_ok(t, tern_unsubscribe(t, 1, 0));
    hear(t, at - from);
    assert_int_equal(heard.events, KEPT);
    assert_int_equal(heard.v[0].number, at - KEPT);
    refused(t, TERN_GONE, at + 1, 3);
    refused(t, TERN_GONE, 21, 3); /* of an earlier incarnation */
    assert_ok(t, tern_ping(t, 0));
    tern_destroy(t);
}

TEST(slow_subscriber_loses_changes_and_nothing_else)
{
    struct tern *slow = rig_connected(rig.socket), *quick = rig_connected(rig.socket);
    uint64_t from = subscribed(slow, NULL, 0, 1), at = from, began, worst = 0, total;
    uint64_t quick_events = 0;

    subscribed(quick, NULL, 0, 2);
    /* More than socket and ring hold, and for longer than a slow reader's deadline. */
    for (uint32_t i = 0; i < 600; i++) {
        put(&engine, &ns1, i, CHUNKS);
        evict(CHUNKS);
        hear(quick, 2 * CHUNKS);
        at += 2 * CHUNKS;
        quick_events += heard.events;
        assert_int_equal(heard.lost, 0);
        began = rig_now_ms();
        assert_ok(other.tern, tern_ping(other.tern, RIG_WAIT_MS));
        worst = rig_now_ms() - began > worst ? rig_now_ms() - began : worst;
        if (i % 100 == 0)
            usleep(RIG_SLOW_MS * 1000 / 3);
    }
    total = at - from;
    assert_int_equal(now_at(), at);
    assert_int_equal(quick_events, total);
    assert_false(rig_log_has(&rig, "too slowly", 0));
    hear(slow, total);
    assert_true(heard.lost > 0);
    assert_true(heard.events >= KEPT);
    assert_int_equal(heard.last, at - 1);
    print_message("%" PRIu64 " changes: the slow one heard %" PRIu64 " and lost %" PRIu64
                  "; a ping took %" PRIu64 " ms at most meanwhile\n",
                  total, heard.events, heard.lost, worst);
    /* The connection works as before. */
    put(&engine, &ns1, 1, 2);
    hear(slow, 2);
    assert_int_equal(heard.lost, 0);
    evict(2);
    tern_destroy(slow);
    tern_destroy(quick);
}

/* An answer keeps its deadline, whatever lies unread before it. */
TEST(subscriber_that_leaves_answers_unread_is_closed)
{
    Tern__Wire__Subscribe m = TERN__WIRE__SUBSCRIBE__INIT;
    int fd = rig_greeted(rig.socket);
    static uint8_t ask[ANSWERS * RIG_STATS_BYTES], little[4096];

    m.has_from = true;
    assert_true(rig_message(fd, FRAME_SUBSCRIBE, 2, 0, &m.base));
    for (uint32_t i = 0; i < 400; i++) { /* until the socket is full */
        put(&engine, &ns1, i, CHUNKS);
        evict(CHUNKS);
    }
    usleep((RIG_SLOW_MS + 300) * 1000);
    assert_false(rig_log_has(&rig, "too slowly", 0));
    rig_stats_frames(ask, ANSWERS, 3); /* sent at once: the deadline runs from the first answer */
    assert_true(rig_write(fd, ask, sizeof(ask)));
    usleep(RIG_SLOW_MS * 1000 / 4);
    for (size_t got = 0; got < LITTLE;) { /* a reader that stops again is treated alike */
        ssize_t n = read(fd, little, sizeof(little));

        assert_true(n > 0);
        got += (size_t)n;
    }
    assert_true(rig_log_has(&rig, "too slowly", RIG_AT_ONCE_MS));
    close(fd);
}

/* A synchronous call keeps the changes that it reads past, up to a bound. */
TEST(subscriber_may_call_meanwhile)
{
    struct tern *t = rig_connected(rig.socket);
    uint64_t from = subscribed(t, &ns1, 0, 1);

    for (uint32_t i = 0; i < 3; i++) {
        put(&engine, &ns1, 50 + i, 4);
        assert_ok(t, tern_ping(t, 0));
    }
    hear(t, 12);
    assert_int_equal(heard.lost, 0);
    evict(12);
    hear(t, 12);
    for (uint32_t i = 0; i < TERN_EVENTS_KEPT / CHUNKS; i++) {
        put(&engine, &ns1, 200 + i, CHUNKS);
        evict(CHUNKS);
        assert_ok(t, tern_ping(t, 0));
    }
    hear(t, 2 * TERN_EVENTS_KEPT);
    assert_true(heard.lost > 0 && heard.events >= TERN_EVENTS_KEPT);
    assert_int_equal(heard.last, from + 24 + 2 * TERN_EVENTS_KEPT - 1);
    tern_destroy(t);
}

TEST(unsubscribed_hears_no_more)
{
    struct tern *t = rig_connected(rig.socket);
    uint64_t from = subscribed(t, &ns1, 0, 1);

    assert_int_equal(subscribed(t, &ns2, 0, 2), from);
    put(&engine, &ns1, 1, 2); /* on its way, or already kept, when the subscription ends */
    assert_ok(t, tern_ping(t, 0));
    assert_ok(t, tern_unsubscribe(t, 1, 0));
    put(&engine, &ns1, 2, 2);
    nothing_more(t);
    put(&engine, &ns2, 2, 2);
    hear(t, 2);
    assert_err(TERN_GONE, tern_unsubscribe(t, 1, 0));
    assert_ok(t, tern_unsubscribe(t, 2, 0));
    evict(6);
    nothing_more(t);
    tern_destroy(t);
}

TEST(subscriptions_are_limited_and_given_back)
{
    struct tern *t = rig_connected(rig.socket), *u = rig_connected(rig.socket);
    struct tern *op = rig_connected(rig.admin);

    for (uint32_t i = 1; i <= SUBSCRIPTIONS_SHARE_MAX; i++)
        subscribed(i % 2 ? t : u, NULL, 0, i);
    refused(t, TERN_QUOTA, 0, 99);
    subscribed(op, NULL, 0, 1); /* operators have their own */
    assert_ok(u, tern_unsubscribe(u, 2, 0));
    subscribed(t, NULL, 0, 100);
    refused(u, TERN_QUOTA, 0, 99);
    tern_destroy(t);
    for (uint32_t i = 0; i < SUBSCRIPTIONS_SHARE_MAX / 2; i++)
        subscribed(u, NULL, 0, 200 + i);
    tern_destroy(u);
    tern_destroy(op);
}

/* t1 allows it, and t0 does not. */
TEST(subscriber_gets_tokens_where_the_tenant_allows_it)
{
    struct tern *t = rig_connected(other_path);
    struct tern_answer a;

    assert_ok(t, tern_subscribe(t, &(struct tern_subscription){.ns = &ns1, .tokens = true}, 1));
    assert_ok(t, answer_wait(t, RIG_WAIT_MS, &a));
    assert_ok(t, a.err);
    put(&other, &ns1, 9, 3);
    for (uint32_t i = 0; i < 3; i += a.events->n) {
        assert_ok(t, answer_wait(t, RIG_WAIT_MS, &a));
        for (uint32_t k = 0; k < a.events->n; k++) {
            const struct tern_event *e = &a.events->v[k];

            assert_int_equal(e->ntokens, L);
            assert_int_equal(e->nkeys, 0);
            for (uint32_t j = 0; j < L; j++)
                assert_int_equal(e->tokens[j], 9 * 65536 + (i + k) * L + j);
        }
    }
    evict(3);
    assert_ok(t, tern_unsubscribe(t, 1, 0));
    tern_destroy(t);
}

static void tokens_denied(const char *path)
{
    struct tern *t = rig_connected(path);
    struct tern_answer a;

    assert_ok(t, tern_subscribe(t, &(struct tern_subscription){.tokens = true}, 1));
    assert_ok(t, answer_wait(t, RIG_WAIT_MS, &a));
    assert_err(TERN_DENIED, a.err);
    assert_non_null(strstr(tern_error_text(t, NULL), "events_tokens: true"));
    assert_ok(t, tern_ping(t, 0));
    tern_destroy(t);
}

TEST(tokens_are_denied_to_others)
{
    tokens_denied(rig.socket);
    tokens_denied(rig.admin);
}

FIXTURE(stop_killed)
{
    engine_close(&engine);
    engine_close(&other);
    tern_destroy(admin);
    rig_stop(&rig);
    return 0;
}

TEST_GROUP(start, stop_killed);

TEST(subscriber_is_told_of_the_end)
{
    struct tern *t = rig_connected(rig.socket);
    struct tern_answer a;

    subscribed(t, NULL, 0, 5);
    assert_int_equal(kill(rig.pid, SIGKILL), 0);
    assert_ok(t, answer_wait(t, RIG_WAIT_MS, &a));
    assert_int_equal(a.cookie, 5);
    assert_err(TERN_DAEMON_LOST, a.err);
    assert_null(a.events);
    assert_err(TERN_DAEMON_LOST, tern_poll(t, &a));
    tern_destroy(t);
}
