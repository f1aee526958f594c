/* The peers that tern-member adds and removes. The last case plays random clusters and checks the
 * invariants against a table of its own. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/prng.h"
#include "client/member/decide.h"
#include "testing/test.h"

#define GRACE  30u
#define NAMES  12u
#define ROUNDS 3000u

static struct nodes nodes;
static struct peers peers;
static struct absences absences;
static struct rules rules;
static struct change changes[CHANGES_MAX];

FIXTURE(begin)
{
    nodes.n = nodes.ignored = 0;
    nodes.cut = false;
    peers.n = 0;
    absences_forget(&absences);
    rules = (struct rules){.self = "me", .n = 1};
    assert_true(rule_read("n*=t0+t1", &rules.v[0]));
    return 0;
}

TEST_EACH(begin, NULL);

/* Must be called in the order of names. */
static void node(const char *name, const char *address)
{
    struct node *n = &nodes.v[nodes.n++];

    *n = (struct node){.healthy = true};
    strcpy(n->name, name);
    strcpy(n->address, address);
}

static void peer(const char *name, const char *address, bool ours)
{
    struct peer *p = &peers.v[peers.n++];

    *p = (struct peer){.ours = ours};
    strcpy(p->name, name);
    strcpy(p->address, address);
}

static uint32_t at(uint64_t now)
{
    struct seen seen = {&nodes, &peers, now, GRACE};

    return decide(&seen, &rules, &absences, changes);
}

static void is(uint32_t i, enum change_kind kind, const char *name)
{
    assert_int_equal(changes[i].kind, kind);
    assert_string_equal(changes[i].name, name);
}

TEST(decide_a_node_that_may_joins)
{
    node("me", "h:1");
    node("n1", "h:2");
    node("x", "h:3");
    assert_int_equal(at(0), 1);
    is(0, CHANGE_ADD, "n1");
    assert_string_equal(changes[0].address, "h:2");
    assert_string_equal(changes[0].tenants, "t0+t1");
}

TEST(decide_a_node_that_is_not_healthy_stays_a_peer)
{
    node("n1", "h:2");
    nodes.v[0].healthy = false;
    peer("n1", "h:2", true);
    assert_int_equal(at(0), 0);
    peers.n = 0;
    assert_int_equal(at(1), 1);
}

TEST(decide_peers_of_others_are_left_alone)
{
    node("n1", "h:9"); /* another address, as in etcd */
    peer("n1", "h:2", false);
    peer("n2", "h:2", false);
    assert_int_equal(at(0), 0);
    assert_int_equal(at(1000), 0);
}

TEST(decide_a_node_that_is_gone_leaves_after_the_grace_time)
{
    peer("n1", "h:1", true);
    assert_int_equal(at(100), 0);
    assert_int_equal(at(100 + GRACE - 1), 0);
    assert_int_equal(at(100 + GRACE), 1);
    is(0, CHANGE_REMOVE, "n1");
}

TEST(decide_a_node_that_comes_again_has_its_whole_grace_time)
{
    peer("n1", "h:1", true);
    assert_int_equal(at(0), 0);
    node("n1", "h:1");
    assert_int_equal(at(10), 0);
    nodes.n = 0;
    assert_int_equal(at(20), 0);
    assert_int_equal(at(20 + GRACE - 1), 0);
    assert_int_equal(at(20 + GRACE), 1);
}

TEST(decide_etcd_that_was_away_removes_nothing)
{
    peer("n1", "h:1", true);
    assert_int_equal(at(0), 0);
    absences_forget(&absences);
    assert_int_equal(at(1000), 0);
    assert_int_equal(at(1000 + GRACE), 1);
}

TEST(decide_a_list_that_is_cut_removes_nothing)
{
    peer("n1", "h:1", true);
    assert_int_equal(at(0), 0);
    nodes.cut = true;
    assert_int_equal(at(1000), 0);
    nodes.cut = false;
    assert_int_equal(at(1001), 0);
    assert_int_equal(at(1001 + GRACE), 1);
}

TEST(decide_grace_times_are_each_nodes_own)
{
    peer("n2", "h:2", true);
    assert_int_equal(at(0), 0);
    peers.n = 0;
    peer("n1", "h:1", true);
    peer("n2", "h:2", true);
    peer("n3", "h:3", true);
    assert_int_equal(at(10), 0);
    assert_int_equal(at(GRACE), 1);
    is(0, CHANGE_REMOVE, "n2");
    assert_int_equal(at(GRACE + 10), 3);
}

TEST(decide_a_node_that_moved_is_removed_and_added)
{
    node("n1", "h:9");
    peer("n1", "h:2", true);
    assert_int_equal(at(0), 2);
    is(0, CHANGE_REMOVE, "n1");
    is(1, CHANGE_ADD, "n1");
    assert_string_equal(changes[1].address, "h:9");
}

TEST(decide_a_peer_that_may_no_longer_be_one_leaves)
{
    node("x", "h:1");
    peer("x", "h:1", true);
    assert_int_equal(at(0), 1);
    is(0, CHANGE_REMOVE, "x");
}

TEST(decide_changes_of_one_round_are_bounded)
{
    char name[NODE_NAME_BYTES];

    for (uint32_t i = 0; i < CHANGES_MAX + 5; i++) {
        snprintf(name, sizeof(name), "n%03u", i);
        node(name, "h:1");
    }
    assert_int_equal(at(0), CHANGES_MAX);
    for (uint32_t i = 0; i < CHANGES_MAX; i++)
        peer(changes[i].name, changes[i].address, true);
    assert_int_equal(at(1), 5);
}

TEST(rules_are_read)
{
    static const char *const wrong[] = {"",      "n",       "=t",    "n=",   "n=t+",
                                        "n=+t",  "n=t t",   "n**=t", "*n=t", "n =t",
                                        "n=t=u", "n*=t++u", "n,x=t", "n=t\n"};
    struct rule rule = {.name = "kept"};

    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
        if (rule_read(wrong[i], &rule))
            fail_msg("taken: '%s'", wrong[i]);
    assert_string_equal(rule.name, "kept");
    assert_true(rule_read("*=t", &rule));
    assert_true(rule.prefix);
    assert_true(rule_read("n1=t", &rule));
    assert_false(rule.prefix);
    assert_string_equal(rule.tenants, "t");
}

TEST(rules_the_first_that_fits_is_taken)
{
    rules.n = 2;
    assert_true(rule_read("n1=t1", &rules.v[0]));
    assert_true(rule_read("*=t2", &rules.v[1]));
    node("me", "h:1");
    node("n1", "h:1");
    node("n11", "h:1");
    assert_int_equal(at(0), 2);
    assert_string_equal(changes[0].tenants, "t1");
    assert_string_equal(changes[1].tenants, "t2");
}

/* ---- random clusters ---- */

/* The state of each name: at etcd, at the daemon, and since when etcd reports it as gone. */
static struct {
    bool node, peer, ours;
    uint64_t gone; /* the first round that can report it */
    char at[8], is[8];
} is_so[NAMES];

static void draw(struct prng *p)
{
    char name[NODE_NAME_BYTES];

    nodes.n = peers.n = 0;
    for (uint32_t i = 0; i < NAMES; i++) {
        snprintf(name, sizeof(name), "n%02u", i);
        if (prng_below(p, 10) == 0)
            is_so[i].node = !is_so[i].node;
        if (prng_below(p, 30) == 0)
            snprintf(is_so[i].at, sizeof(is_so[i].at), "h:%u", 1 + prng_below(p, 3));
        if (prng_below(p, 60) == 0) { /* an operator, or a restarted daemon */
            is_so[i].peer = !is_so[i].peer;
            is_so[i].ours = false;
            strcpy(is_so[i].is, "h:7");
        }
        if (is_so[i].node && is_so[i].at[0])
            node(name, is_so[i].at);
        if (is_so[i].peer)
            peer(name, is_so[i].is, is_so[i].ours);
    }
}

/* Applies one change, and checks that it is allowed. */
static void carry(const struct change *c, uint64_t now)
{
    uint32_t i = (uint32_t)strtoul(c->name + 1, NULL, 10);
    bool there = is_so[i].node && is_so[i].at[0];

    if (c->kind == CHANGE_ADD) {
        assert_true(there && !is_so[i].peer);
        strcpy(is_so[i].is, c->address);
        is_so[i].ours = true;
    } else {
        assert_true(is_so[i].peer && is_so[i].ours);
        assert_true(there ? strcmp(is_so[i].at, is_so[i].is) != 0 : now - is_so[i].gone >= GRACE);
    }
    is_so[i].peer = c->kind == CHANGE_ADD;
}

TEST(decide_random_clusters_follow_etcd)
{
    struct prng p;
    uint32_t n;
    bool away;

    prng_init(&p, 1);
    for (uint64_t now = 0; now < ROUNDS; now++) {
        draw(&p);
        away = prng_below(&p, 20) == 0;
        if (away)
            absences_forget(&absences);
        for (uint32_t i = 0; i < NAMES; i++)
            if (away || (is_so[i].node && is_so[i].at[0]) || !is_so[i].peer || !is_so[i].ours)
                is_so[i].gone = now + 1;
        if (away)
            continue;
        n = at(now);
        for (uint32_t c = 0; c < n; c++)
            carry(&changes[c], now);
        for (uint32_t i = 0; i < NAMES; i++) { /* no difference is left */
            bool there = is_so[i].node && is_so[i].at[0];

            assert_true(!there || is_so[i].peer);
            assert_true(!is_so[i].peer || !is_so[i].ours || there || now - is_so[i].gone < GRACE);
        }
    }
}
