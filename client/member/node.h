/* A node's value in etcd: a JSON object of at most NODE_VALUE_BYTES_MAX bytes. It is untrusted: a
 * text is accepted only if the daemon's configuration would accept it. */
#ifndef MEMBER_NODE_H
#define MEMBER_NODE_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#define NODE_NAME_BYTES      64u  /* with the NUL, as in the configuration */
#define NODE_HOST_BYTES      256u /* with the NUL */
#define NODE_ADDRESS_BYTES   (NODE_HOST_BYTES + sizeof("[]:65535"))
#define NODE_VALUE_BYTES_MAX 1024u

/* Capacity of the pools in device memory, over the pages of all groups. A cached page without
 * holders counts as free. */
struct capacity {
    uint64_t pages, pages_free;
    uint64_t memory_bytes; /* of the tenants' regions, with or without pools */
};

struct node {
    char name[NODE_NAME_BYTES];
    char address[NODE_ADDRESS_BYTES]; /* HOST:PORT or [HOST]:PORT, as node_address_read writes it */
    uint64_t incarnation;
    bool healthy;
    struct capacity capacity;
};

#define NODE_NAME_CHARS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_."

/* Returns true for 1 to 63 of the characters allowed in the configuration's names. */
bool node_name_ok(const char *name);
/* Writes the address in canonical form, so that equal addresses are equal texts. Returns false if
 * no peer can have that address. */
bool node_address_read(const char *text, char ret[NODE_ADDRESS_BYTES]);
/* The same for a host, which may be an IPv6 address without brackets, and a port. */
bool node_address_write(const char *host, uint64_t port, char ret[NODE_ADDRESS_BYTES]);

/* Returns false if the value is no such JSON, or of another node than `name`, whose key it is. */
bool node_read(const char *value, size_t bytes, const char *name, struct node *ret);
json_t *node_write(const struct node *node); /* owned by the caller */

/* Returns true if all but the capacity is equal. */
bool node_same(const struct node *a, const struct node *b);

#endif
