/* Fuzz target: etcd's answers, through tern-member's readers, and the decisions from them. The
 * first byte chooses the answer. A configuration would accept all that the readers accept, and a
 * decision changes only peers that membership added. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "client/member/decide.h"
#include "client/member/local.h"
#include "fuzz/passed.h"

#define PREFIX "/tern"

enum { A_LIST, A_STAMP, A_LEASE, A_STATUS, A_VALUE, A_CLAIM, KINDS };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static struct nodes nodes;
static struct peers peers;
static struct absences absences;

static void check_node(const struct node *node)
{
    char address[NODE_ADDRESS_BYTES];
    struct node again;
    json_t *j = node_write(node);
    char *text = json_dumps(j, JSON_COMPACT);

    check(node_name_ok(node->name) && node_address_read(node->address, address));
    check(strcmp(address, node->address) == 0);
    check(text && node_read(text, strlen(text), node->name, &again));
    check(memcmp(&again.capacity, &node->capacity, sizeof(again.capacity)) == 0);
    check(node_same(&again, node));
    free(text);
    json_decref(j);
}

static void check_decision(void)
{
    const struct seen seen = {&nodes, &peers, 10, 5};
    struct rules rules = {.self = "me"};
    struct change changes[CHANGES_MAX];
    uint32_t n;

    check(rule_read("*=t", &rules.v[rules.n++]));
    n = decide(&seen, &rules, &absences, changes);
    check(n <= CHANGES_MAX);
    for (uint32_t i = 0; i < n; i++) {
        const struct node *node = nodes_find(&nodes, changes[i].name);

        check(strcmp(changes[i].name, "me") != 0);
        check(changes[i].kind == CHANGE_ADD
                  ? node && strcmp(node->address, changes[i].address) == 0 &&
                        strcmp(node->name, "operators") != 0
                  : strcmp(changes[i].name, "ours") == 0);
    }
}

static void list(const json_t *answer)
{
    if (!gateway_nodes(answer, PREFIX, &nodes))
        return;
    check(nodes.n <= NODES_MAX);
    for (uint32_t i = 0; i < nodes.n; i++) {
        check_node(&nodes.v[i]);
        check(i == 0 || strcmp(nodes.v[i - 1].name, nodes.v[i].name) < 0);
    }
    check_decision();
}

static void value(const uint8_t *data, size_t n)
{
    struct node node;

    if (node_read((const char *)data, n, "a", &node))
        check_node(&node);
}

static void claimed(const json_t *answer)
{
    struct claim claim;

    if (!gateway_claimed(answer, PREFIX, &claim))
        return;
    check(!claim.written || (claim.revision && !claim.is_node && !claim.lease));
    if (claim.is_node)
        check_node(&claim.node);
}

static void set_up(void)
{
    static const struct peer both[] = {{"operators", "h:1", false}, {"ours", "h:1", true}};

    memcpy(peers.v, both, sizeof(both));
    peers.n = sizeof(both) / sizeof(both[0]);
    absences_forget(&absences);
}

/* Is the input JSON? */
bool fuzz_gets_past(const uint8_t *data, size_t n)
{
    json_t *j = n ? json_loadb((const char *)data + 1, n - 1, JSON_REJECT_DUPLICATES, NULL) : NULL;

    json_decref(j);
    return j != NULL;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct node self = {.name = "a"};
    struct stamp stamp;
    struct lease lease;
    json_t *j;

    fuzz_begin();
    if (n == 0)
        return 0;
    set_up();
    if (data[0] % KINDS == A_VALUE)
        value(data + 1, n - 1);
    j = json_loadb((const char *)data + 1, n - 1, JSON_REJECT_DUPLICATES, NULL);
    if (j || data[0] % KINDS == A_VALUE)
        fuzz_passed();
    switch (data[0] % KINDS) {
    case A_LIST: list(j); break;
    case A_STAMP: check(!gateway_stamp(j, &stamp) || !stamp.keys == !stamp.revision); break;
    case A_LEASE:
        check(!gateway_granted(j, &lease) || (lease.id && lease.ttl_s));
        check(!gateway_kept(j, &lease) || lease.id);
        break;
    case A_CLAIM: claimed(j); break;
    case A_STATUS: local_read_status(j, &self); break;
    default: break;
    }
    json_decref(j);
    return 0;
}
