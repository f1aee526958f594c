/* Decides which peers to add to the daemon and which to remove: a pure function of etcd's answer,
 * the daemon's peers, the rules of --allow, and the time. Invariant: only a peer that membership
 * added is removed, and only when etcd itself has reported for the whole grace time that its key is
 * gone. */
#ifndef MEMBER_DECIDE_H
#define MEMBER_DECIDE_H

#include "client/member/gateway.h"

#define PEERS_MAX          4096u /* peers of a daemon, the limit of its configuration */
#define RULES_MAX          64u
#define RULE_TENANTS_BYTES 1024u
#define CHANGES_MAX        64u /* changes of one round; the rest follow in the next */

/* A peer in the daemon's list. */
struct peer {
    char name[NODE_NAME_BYTES];
    char address[NODE_ADDRESS_BYTES];
    bool ours; /* membership added it, not a configuration file or an operator */
};

struct peers {
    uint32_t n;
    struct peer v[PEERS_MAX]; /* sorted by name */
};

/* Nodes of that name, or with `prefix` nodes whose name begins with it, may have these tenants. */
struct rule {
    char name[NODE_NAME_BYTES];
    bool prefix;
    char tenants[RULE_TENANTS_BYTES]; /* names separated by '+' */
};

struct rules {
    const char *self; /* borrowed; this node, which is not its own peer */
    uint32_t n;
    struct rule v[RULES_MAX]; /* the first that matches applies */
};

/* The times since which etcd has reported nodes as gone. */
struct absences {
    uint32_t n, before_n;
    struct absence {
        char name[NODE_NAME_BYTES];
        uint64_t since_ns;
    } v[PEERS_MAX], before[PEERS_MAX]; /* sorted by name; before: of the last call */
};

struct change {
    enum change_kind { CHANGE_ADD, CHANGE_REMOVE } kind;
    const char *name, *address, *tenants; /* borrowed from the arguments; a removal: name only */
};

/* Reads NAME=TENANT+TENANT; a NAME that ends in '*' matches all names that begin with the rest. */
bool rule_read(const char *text, struct rule *ret);

/* Writes at most CHANGES_MAX changes and returns their number; a removal precedes an addition of
 * the same name. The caller keeps `absences` from one call to the next. */
struct seen {
    const struct nodes *nodes; /* from etcd */
    const struct peers *peers; /* from the daemon */
    uint64_t now_ns, grace_ns;
};
uint32_t decide(const struct seen *seen, const struct rules *rules, struct absences *absences,
                struct change ret[CHANGES_MAX]);

/* Call it when etcd did not answer: restarts the grace time of all absent nodes. */
void absences_forget(struct absences *absences);

void peers_sort(struct peers *peers);

#endif
