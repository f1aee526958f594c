/* tern-member: registers this host's daemon in etcd, and adds the other nodes in etcd to the daemon
 * as peers. etcd stores addresses and health, one key for each node below PREFIX/nodes/, each under
 * the lease of the tern-member that wrote it; keys of others are never changed. etcd is not
 * trusted: --allow defines here which node may read which tenant, and daemons identify each other
 * by certificates. While etcd does not answer, no peer is added or removed, and links that are up
 * are not affected.
 *
 *   main.c      the command line, the loop
 *   member.c    one round: the lease and the key, the others' keys, and the resulting peers
 *   decide.c    which peers are added and removed; pure
 *   gateway.c   requests to etcd's JSON gateway and its answers; pure
 *   node.c      a node's value in etcd; pure
 *   etcd.c      one question to etcd, by libcurl
 *   local.c     the daemon's admin socket
 * Each file calls only those below it. There is one thread. */
#ifndef MEMBER_H
#define MEMBER_H

#include "client/member/decide.h"
#include "client/member/etcd.h"
#include "client/member/gateway.h"
#include "client/member/local.h"

#define MEMBER_TTL_S           15u
#define MEMBER_TTL_S_MIN       3u
#define MEMBER_TTL_S_MAX       3600u
#define MEMBER_GRACE_S         30u
#define MEMBER_GRACE_S_MAX     86400u
#define MEMBER_INTERVAL_MS     1000u /* between two rounds */
#define MEMBER_INTERVAL_MS_MIN 50u
#define MEMBER_INTERVAL_MS_MAX 60000u
#define MEMBER_BACKOFF_MS_MAX  5000u  /* while etcd does not answer; at most a third of the TTL */
#define MEMBER_REFUSED_MS_MAX  15000u /* between tries of changes that the daemon refuses */
#define MEMBER_TAKEN_MS_MAX    15000u /* between tries to write a key of another node */
#define MEMBER_CAPACITY_MS     10000u /* between writes of a key that differs only in capacity */
#define MEMBER_REFRESH_MS      60000u /* between writes of an unchanged key */
#define MEMBER_PEERS_MS        10000u /* the longest time between requests for the daemon's peers */

struct member {
    /* From the command line; borrowed. */
    struct etcd *etcd;
    struct local local;
    struct rules rules;
    const char *prefix;
    uint32_t ttl_s, grace_s, interval_ms;

    struct lease lease;                     /* id 0: none */
    uint64_t lease_kept_ns;                 /* when etcd last confirmed it */
    struct node self, written;              /* the current node, and the node in the key */
    bool has_written;                       /* `written` is valid */
    uint64_t written_ns;                    /* when it was written */
    uint64_t revision;                      /* of the key that may be overwritten; 0: no key */
    bool has_claimed;                       /* this program has written the key before */
    uint32_t taken;                         /* rounds in a row with another node's key */
    uint64_t taken_again_ns;                /* time of the next try */
    struct nodes nodes;                     /* etcd's last list */
    struct stamp stamp;                     /* of `nodes` */
    bool has_nodes;                         /* `nodes` is valid */
    struct absences absences;               /* of peers that membership added */
    struct peers peers;                     /* the daemon's peers at peers_ns */
    bool has_peers;                         /* `peers` is of this daemon and up to date */
    uint64_t peers_ns;                      /* when it was requested */
    uint64_t etcd_again_ns, peers_again_ns; /* times of the next tries */
    uint32_t etcd_failures, peers_refused;  /* in a row */
    bool etcd_said, local_said;             /* logged: it does not answer */
    bool cut_said;                          /* logged: etcd has too many nodes */
    uint32_t ignored_said;                  /* number of ignored keys last logged */
};

/* Runs one round, which takes at most the deadlines of its questions. Returns the milliseconds
 * until the next one. */
uint32_t member_round(struct member *m);
/* Revokes the lease and with it the key, so that routers and other nodes notice at once that this
 * node has left. */
void member_end(struct member *m);

#endif
