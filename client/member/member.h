/* tern-member: tells etcd of this host's daemon, and the daemon of the others that etcd knows.
 * etcd holds addresses and health, one key a node below PREFIX/nodes/, each under the lease of the
 * tern-member that wrote it; a key that another one wrote stays as it is. It is not trusted: who
 * may read which tenant is what --allow says here, and who somebody is the daemons find out by
 * certificates. While etcd does not answer, nothing is added or removed, and links that are up do
 * not know of it.
 *
 *   main.c      the command line, the loop
 *   member.c    one round: the lease and the key, what the others' keys say, peers that follow
 *   decide.c    which peers are added and removed; pure
 *   gateway.c   what is asked of etcd's JSON gateway, and how its answers are read; pure
 *   node.c      a node as its key has it; pure
 *   etcd.c      one question to etcd, by libcurl
 *   local.c     the daemon's admin socket
 * Each calls only those below it. One thread does it all. */
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
#define MEMBER_TAKEN_MS_MAX    15000u /* between tries to write a key that is somebody else's */
#define MEMBER_CAPACITY_MS     10000u /* between writes of a key that differs in capacity alone */
#define MEMBER_REFRESH_MS      60000u /* a key that does not change is written so often */
#define MEMBER_PEERS_MS        10000u /* the daemon's peers are asked for at the latest then */

struct member {
    /* As the command line says; borrowed. */
    struct etcd *etcd;
    struct local local;
    struct rules rules;
    const char *prefix;
    uint32_t ttl_s, grace_s, interval_ms;

    struct lease lease;                     /* id 0: there is none */
    uint64_t lease_kept_ns;                 /* when etcd last said that it stands */
    struct node self, written;              /* as it is, and as the key has it */
    bool has_written;                       /* there is a key */
    uint64_t written_ns;                    /* when */
    uint64_t revision;                      /* of the key that may be overwritten; 0: of none */
    bool has_claimed;                       /* this program has written the key before */
    uint32_t taken;                         /* in a row: the key was somebody else's */
    uint64_t taken_again_ns;                /* it is not tried sooner */
    struct nodes nodes;                     /* what etcd told last */
    struct stamp stamp;                     /* of these */
    bool has_nodes;                         /* there is such a list */
    struct absences absences;               /* of peers that membership added */
    struct peers peers;                     /* the daemon's, as of peers_ns */
    bool has_peers;                         /* that list is of this daemon, and still true */
    uint64_t peers_ns;                      /* when it was asked for */
    uint64_t etcd_again_ns, peers_again_ns; /* no sooner is either tried again */
    uint32_t etcd_failures, peers_refused;  /* in a row */
    bool etcd_said, local_said;             /* that it does not answer is in the log */
    bool cut_said;                          /* likewise that etcd has too many nodes */
    uint32_t ignored_said;                  /* so many keys were passed over, it says */
};

/* One round; takes at most the deadlines of its questions. Returns in how many milliseconds the
 * next one is due. */
uint32_t member_round(struct member *m);
/* The key goes with the lease: routers and other nodes see at once that this one has left. */
void member_end(struct member *m);

#endif
