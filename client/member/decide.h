/* Which peers the daemon is given and which are taken from it: a pure function of what etcd told,
 * what the daemon has, what --allow permits, and the time. What must stay true: only a peer that
 * membership added is removed, and only when etcd itself has told for the whole grace time that its
 * key is gone. */
#ifndef MEMBER_DECIDE_H
#define MEMBER_DECIDE_H

#include "client/member/gateway.h"

#define PEERS_MAX          4096u /* of a daemon, as its configuration has it */
#define RULES_MAX          64u
#define RULE_TENANTS_BYTES 1024u
#define CHANGES_MAX        64u /* of one round; the rest follow in the next */

/* A peer as the daemon has it. */
struct peer {
    char name[NODE_NAME_BYTES];
    char address[NODE_ADDRESS_BYTES];
    bool ours; /* membership added it: it stands in no file, and is no operator's */
};

struct peers {
    uint32_t n;
    struct peer v[PEERS_MAX]; /* sorted by name */
};

/* Nodes of that name, or of those that begin with it where `prefix`, may have these tenants. */
struct rule {
    char name[NODE_NAME_BYTES];
    bool prefix;
    char tenants[RULE_TENANTS_BYTES]; /* names with a '+' between */
};

struct rules {
    const char *self; /* borrowed; this node, which is no peer of its own */
    uint32_t n;
    struct rule v[RULES_MAX]; /* the first that fits is taken */
};

/* Since when etcd has told that nodes are gone. */
struct absences {
    uint32_t n, before_n;
    struct absence {
        char name[NODE_NAME_BYTES];
        uint64_t since_ns;
    } v[PEERS_MAX], before[PEERS_MAX]; /* sorted by name; before: those of the last call */
};

struct change {
    enum change_kind { CHANGE_ADD, CHANGE_REMOVE } kind;
    const char *name, *address, *tenants; /* borrowed from what decided; a removal has a name */
};

/* Reads NAME=TENANT+TENANT; a NAME that ends in '*' stands for all that begin with the rest. */
bool rule_read(const char *text, struct rule *ret);

/* Writes at most CHANGES_MAX changes and returns their number; a removal stands before an addition
 * of the same name. `absences` is kept by the caller from one call to the next. */
struct seen {
    const struct nodes *nodes; /* as etcd tells */
    const struct peers *peers; /* as the daemon has them */
    uint64_t now_ns, grace_ns;
};
uint32_t decide(const struct seen *seen, const struct rules *rules, struct absences *absences,
                struct change ret[CHANGES_MAX]);

/* etcd did not answer: all that were gone have their whole grace time again. */
void absences_forget(struct absences *absences);

void peers_sort(struct peers *peers);

#endif
