/* A node as its key in etcd has it: a JSON object of at most NODE_VALUE_BYTES_MAX bytes. What is
 * read here came from outside: a text is taken only if the daemon's configuration would take it. */
#ifndef MEMBER_NODE_H
#define MEMBER_NODE_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#define NODE_NAME_BYTES      64u  /* with the NUL: as the configuration has it */
#define NODE_HOST_BYTES      256u /* likewise */
#define NODE_ADDRESS_BYTES   (NODE_HOST_BYTES + sizeof("[]:65535"))
#define NODE_VALUE_BYTES_MAX 1024u

/* Of the pools in device memory: pages of all groups. A page that is cached and held by nobody
 * counts as free. */
struct capacity {
    uint64_t pages, pages_free;
    uint64_t memory_bytes; /* of the tenants' regions, whether there are pools in it or not */
};

struct node {
    char name[NODE_NAME_BYTES];
    char address[NODE_ADDRESS_BYTES]; /* HOST:PORT or [HOST]:PORT, as node_address_read writes it */
    uint64_t incarnation;
    bool healthy;
    struct capacity capacity;
};

#define NODE_NAME_CHARS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_."

/* One to 63 of the characters that a name in the configuration may have. */
bool node_name_ok(const char *name);
/* Writes the address in one form, so that two that are equal are equal as texts. False: it is none
 * that a peer can have. */
bool node_address_read(const char *text, char ret[NODE_ADDRESS_BYTES]);
/* The same of a host, which may be an IPv6 address without brackets, and a port. */
bool node_address_write(const char *host, uint64_t port, char ret[NODE_ADDRESS_BYTES]);

/* False: it is no JSON of that kind, or it is of another node than `name`, whose key it has. */
bool node_read(const char *value, size_t bytes, const char *name, struct node *ret);
json_t *node_write(const struct node *node); /* owned by the caller */

/* Whether all but the capacity is equal. */
bool node_same(const struct node *a, const struct node *b);

#endif
