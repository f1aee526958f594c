/* etcd's JSON gateway (API v3, as etcd 3.4 and later have it): the bodies of what is asked, and how
 * the answers are read. Keys and values go in base64, and numbers of 64 bits as texts. An answer
 * may hold anything: a function that returns false has found it to be none, and writes nothing. */
#ifndef MEMBER_GATEWAY_H
#define MEMBER_GATEWAY_H

#include "client/member/node.h"

#define NODES_MAX            1024u
#define GATEWAY_BYTES_MAX    (4u << 20) /* of one answer; NODES_MAX of the largest keys fit */
#define GATEWAY_PREFIX_BYTES 128u       /* of a prefix, with the NUL */
#define GATEWAY_KEY_BYTES    (GATEWAY_PREFIX_BYTES + sizeof("/nodes/") + NODE_NAME_BYTES)

struct lease {
    uint64_t id;
    uint32_t ttl_s;
};

/* Of all keys below the prefix: two that are equal say that none was written or deleted between
 * them. A write raises the highest revision of the keys that are there, unless that key is deleted
 * again; a deletion lowers their number. */
struct stamp {
    uint64_t revision, keys;
};

/* This node's key after it was to be written. It is written only over the revision that the writer
 * knows, so that two who have one name do not overwrite each other. */
struct claim {
    bool written, is_node; /* is_node: the key that is there instead says what `node` has */
    uint64_t revision;     /* of the key as it is now; 0: there is none */
    uint64_t lease;        /* of the key that is there instead; 0: it has none */
    struct node node;
};

/* What a claim is made with. */
struct claim_by {
    uint64_t lease, revision; /* revision: that may be overwritten; 0: there has to be no key */
};

/* Sorted by name, and each name once. */
struct nodes {
    uint32_t n, ignored; /* ignored: keys with what is no node */
    bool cut;            /* there are more than NODES_MAX keys */
    struct node v[NODES_MAX];
};

#define GATEWAY_GRANT  "/v3/lease/grant"
#define GATEWAY_KEEP   "/v3/lease/keepalive"
#define GATEWAY_REVOKE "/v3/lease/revoke"
#define GATEWAY_CLAIM  "/v3/kv/txn"
#define GATEWAY_RANGE  "/v3/kv/range"

/* An absolute path of name characters, which does not end in '/'. */
bool gateway_prefix_ok(const char *prefix);

/* The bodies; owned by the caller. */
json_t *gateway_grant(uint32_t ttl_s);
json_t *gateway_lease(uint64_t id); /* of KEEP and REVOKE */
json_t *gateway_put(const char *prefix, const struct node *node, uint64_t lease); /* of a claim */
json_t *gateway_claim(const char *prefix, const struct node *node, struct claim_by by);
json_t *gateway_newest(const char *prefix); /* RANGE: what gateway_stamp reads */
json_t *gateway_all(const char *prefix);    /* RANGE: what gateway_nodes reads */

bool gateway_granted(const json_t *answer, struct lease *ret);
/* A ttl_s of 0: there is no such lease any more. */
bool gateway_kept(const json_t *answer, struct lease *ret);
bool gateway_claimed(const json_t *answer, const char *prefix, struct claim *ret);
bool gateway_stamp(const json_t *answer, struct stamp *ret);
bool gateway_nodes(const json_t *answer, const char *prefix, struct nodes *ret);

const struct node *nodes_find(const struct nodes *nodes, const char *name); /* NULL: none */

#endif
