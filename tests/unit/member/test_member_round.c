/* Rounds of tern-member with an etcd that stops answering, or answers invalidly, within a round:
 * then the round has failed, and no peer is changed. The test provides etcd and the daemon. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../../client/member/member.c"
#include "testing/test.h"

#define HEADER "\"header\":{\"revision\":\"7\"}"
#define NONE   "{" HEADER "}" /* of keys; also that the node's own is gone */
#define ONE    "{" HEADER ",\"count\":\"1\",\"kvs\":[{\"mod_revision\":\"9\"}]}"

static const char *answers[2]; /* to the next questions, in turn; NULL: none */
static uint32_t asked, misread, peers_asked;
static struct member m;

/* ---- in place of etcd.c and local.c ---- */

bool etcd_ask(struct etcd *e, const char *path, json_t *body, json_t **ret)
{
    const char *answer = answers[asked];

    (void)e;
    assert_string_equal(path, GATEWAY_RANGE);
    json_decref(body);
    assert_true(asked++ < 2);
    *ret = answer ? json_loads(answer, 0, NULL) : NULL;
    return *ret != NULL;
}

void etcd_misread(struct etcd *e)
{
    (void)e;
    misread++;
}

const char *etcd_why(const struct etcd *e)
{
    (void)e;
    return "it is a test";
}

const char *etcd_endpoint(const struct etcd *e)
{
    (void)e;
    return "http://127.0.0.1:1";
}

uint32_t etcd_endpoints(const struct etcd *e)
{
    (void)e;
    return 1;
}

bool local_status(struct local *l, struct node *self)
{
    (void)l;
    self->healthy = true;
    return true;
}

bool local_peers(struct local *l, struct peers *ret)
{
    (void)l;
    ret->n = 0;
    peers_asked++;
    return true;
}

bool local_change(struct local *l, const struct change *c)
{
    (void)l;
    fail_msg("%s is changed", c->name);
    return false;
}

void local_end(struct local *l)
{
    (void)l;
}

/* ---- the cases ---- */

/* The node has its lease, and its key is as it wrote it: it asks only for the other nodes. */
FIXTURE(begin)
{
    memset(&m, 0, sizeof m);
    m.prefix = "/tern/a";
    m.ttl_s = 15;
    m.grace_s = 30;
    m.interval_ms = 1000;
    strcpy(m.self.name, "a");
    strcpy(m.self.address, "a:7000");
    m.self.healthy = true;
    m.lease = (struct lease){.id = 1, .ttl_s = 15};
    m.lease_kept_ns = m.written_ns = now_ns();
    m.written = m.self;
    m.has_written = true;
    asked = misread = peers_asked = 0;
    answers[0] = answers[1] = NULL;
    return 0;
}

TEST_EACH(begin, NULL);

static void round_fails(uint32_t questions, uint32_t not_understood)
{
    uint64_t before = now_ns();

    assert_int_equal(member_round(&m), 1000);
    assert_int_equal(asked, questions);
    assert_int_equal(misread, not_understood);
    assert_true(m.etcd_said);
    assert_int_equal(m.etcd_failures, 1);
    assert_true(m.etcd_again_ns > before);
    assert_int_equal(peers_asked, 0);
}

TEST(member_etcd_that_answers_is_followed)
{
    answers[0] = NONE;
    answers[1] = NONE;
    m.etcd_said = true;
    assert_int_equal(member_round(&m), 1000);
    assert_int_equal(asked, 2);
    assert_false(m.etcd_said);
    assert_true(m.has_nodes);
    assert_false(m.has_written); /* its key is gone: the next round writes it */
    assert_int_equal(peers_asked, 1);
}

TEST(member_nodes_that_are_as_before_are_not_read_again)
{
    m.has_nodes = true;
    m.stamp = (struct stamp){.revision = 9, .keys = 1};
    answers[0] = ONE;
    assert_int_equal(member_round(&m), 1000);
    assert_int_equal(asked, 1);
    assert_int_equal(peers_asked, 1);
}

TEST(member_etcd_that_goes_away_within_a_round_fails_the_round)
{
    round_fails(1, 0);
    begin(NULL);
    answers[0] = ONE;
    round_fails(2, 0);
    assert_false(m.has_nodes);
}

TEST(member_answers_that_are_none_fail_the_round)
{
    answers[0] = "{}";
    round_fails(1, 1);
    begin(NULL);
    answers[0] = ONE;
    answers[1] = "{}";
    round_fails(2, 1);
    assert_false(m.has_nodes);
}
