/* etcd's JSON gateway (API v3 of etcd 3.4 and later): makes the bodies of requests and reads the
 * answers. Keys and values are in base64, numbers of 64 bits are texts. An answer is untrusted: a
 * function that returns false has found it invalid and writes nothing. */
#ifndef MEMBER_GATEWAY_H
#define MEMBER_GATEWAY_H

#include "client/member/node.h"

#define NODES_MAX            1024u
#define GATEWAY_BYTES_MAX    (4u << 20) /* bytes of one answer; NODES_MAX of the largest keys fit */
#define GATEWAY_PREFIX_BYTES 128u       /* of a prefix, with the NUL */
#define GATEWAY_KEY_BYTES    (GATEWAY_PREFIX_BYTES + sizeof("/nodes/") + NODE_NAME_BYTES)

struct lease {
    uint64_t id;
    uint32_t ttl_s;
};

/* A stamp of all keys below the prefix: if two stamps are equal, no key was written or deleted
 * between them. A write raises the highest revision of the existing keys, unless that key is
 * deleted again; a deletion lowers their number. */
struct stamp {
    uint64_t revision, keys;
};

/* This node's key after an attempt to write it. The write replaces only the revision that the
 * writer knows, so that two nodes of one name do not overwrite each other. */
struct claim {
    bool written, is_node; /* is_node: the existing key was read into `node` */
    uint64_t revision;     /* of the current key; 0: no key */
    uint64_t lease;        /* of the existing key; 0: none */
    struct node node;
};

/* The arguments of a claim. */
struct claim_by {
    uint64_t lease, revision; /* revision: the one that may be overwritten; 0: no key may exist */
};

/* The nodes, sorted by unique name. */
struct nodes {
    uint32_t n, ignored; /* ignored: number of keys whose value is no node */
    bool cut;            /* there are more than NODES_MAX keys */
    struct node v[NODES_MAX];
};

#define GATEWAY_GRANT  "/v3/lease/grant"
#define GATEWAY_KEEP   "/v3/lease/keepalive"
#define GATEWAY_REVOKE "/v3/lease/revoke"
#define GATEWAY_CLAIM  "/v3/kv/txn"
#define GATEWAY_RANGE  "/v3/kv/range"

/* Returns true for an absolute path of name characters that does not end in '/'. */
bool gateway_prefix_ok(const char *prefix);

/* These return bodies, owned by the caller. */
json_t *gateway_grant(uint32_t ttl_s);
json_t *gateway_lease(uint64_t id); /* of KEEP and REVOKE */
json_t *gateway_put(const char *prefix, const struct node *node, uint64_t lease); /* of a claim */
json_t *gateway_claim(const char *prefix, const struct node *node, struct claim_by by);
json_t *gateway_newest(const char *prefix); /* RANGE: what gateway_stamp reads */
json_t *gateway_all(const char *prefix);    /* RANGE: what gateway_nodes reads */

bool gateway_granted(const json_t *answer, struct lease *ret);
/* ttl_s 0: the lease no longer exists. */
bool gateway_kept(const json_t *answer, struct lease *ret);
bool gateway_claimed(const json_t *answer, const char *prefix, struct claim *ret);
bool gateway_stamp(const json_t *answer, struct stamp *ret);
bool gateway_nodes(const json_t *answer, const char *prefix, struct nodes *ret);

const struct node *nodes_find(const struct nodes *nodes, const char *name); /* NULL: none */

#endif
