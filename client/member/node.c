/* See node.h. */
#include "client/member/node.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/host_name.h"

#define PORT_CHARS  "0123456789"
#define PORT_DIGITS 5u
#define HEX_DIGITS  16u

bool node_name_ok(const char *name)
{
    size_t n = strspn(name, NODE_NAME_CHARS);

    return n > 0 && n < NODE_NAME_BYTES && name[n] == '\0';
}

bool node_address_write(const char *host, uint64_t port, char ret[NODE_ADDRESS_BYTES])
{
    bool brackets = strchr(host, ':') != NULL;

    if (!host_name_ok(host) || port == 0 || port > UINT16_MAX)
        return false;
    snprintf(ret, NODE_ADDRESS_BYTES, "%s%s%s:%" PRIu64, brackets ? "[" : "", host,
             brackets ? "]" : "", port);
    return true;
}

bool node_address_read(const char *text, char ret[NODE_ADDRESS_BYTES])
{
    const char *end = strrchr(text, ':');
    char host[NODE_HOST_BYTES];
    size_t n, digits;

    if (!end)
        return false;
    n = (size_t)(end - text);
    digits = strspn(end + 1, PORT_CHARS);
    if (digits == 0 || digits > PORT_DIGITS || end[1 + digits] != '\0')
        return false;
    if (text[0] == '[') {
        if (n < 2 || text[n - 1] != ']')
            return false;
        text++;
        n -= 2;
    } else if (memchr(text, ':', n)) {
        return false;
    }
    if (n >= sizeof(host))
        return false;
    memcpy(host, text, n);
    host[n] = '\0';
    return node_address_write(host, strtoul(end + 1, NULL, 10), ret);
}

/* Reads a number; absent: 0. Returns false if it is present and no whole number. */
static bool count(const json_t *object, const char *key, uint64_t *ret)
{
    const json_t *v = json_object_get(object, key);

    if (v && (!json_is_integer(v) || json_integer_value(v) < 0))
        return false;
    *ret = (uint64_t)json_integer_value(v);
    return true;
}

static bool capacity_read(const json_t *object, struct capacity *ret)
{
    return count(object, "pages", &ret->pages) && count(object, "pages_free", &ret->pages_free) &&
           count(object, "memory_bytes", &ret->memory_bytes);
}

static bool read_object(const json_t *j, const char *name, struct node *ret)
{
    const char *own = json_string_value(json_object_get(j, "name"));
    const char *address = json_string_value(json_object_get(j, "address"));
    const char *incarnation = json_string_value(json_object_get(j, "incarnation"));
    const json_t *healthy = json_object_get(j, "healthy");

    if (!own || !node_name_ok(own) || strcmp(own, name) != 0 || !address || !incarnation ||
        strlen(incarnation) != HEX_DIGITS ||
        strspn(incarnation, "0123456789abcdef") != HEX_DIGITS || !json_is_boolean(healthy))
        return false;
    memcpy(ret->name, own, strlen(own) + 1);
    ret->incarnation = strtoull(incarnation, NULL, 16);
    ret->healthy = json_is_true(healthy);
    return node_address_read(address, ret->address) &&
           capacity_read(json_object_get(j, "capacity"), &ret->capacity);
}

bool node_read(const char *value, size_t bytes, const char *name, struct node *ret)
{
    struct node node = {.name = ""};
    json_t *j;
    bool ok;

    if (bytes > NODE_VALUE_BYTES_MAX)
        return false;
    j = json_loadb(value, bytes, JSON_REJECT_DUPLICATES, NULL);
    ok = read_object(j, name, &node);
    json_decref(j);
    if (ok)
        *ret = node;
    return ok;
}

json_t *node_write(const struct node *node)
{
    char incarnation[HEX_DIGITS + 1];

    snprintf(incarnation, sizeof(incarnation), "%016" PRIx64, node->incarnation);
    return json_pack("{s:s, s:s, s:s, s:b, s:{s:I, s:I, s:I}}", "name", node->name, "address",
                     node->address, "incarnation", incarnation, "healthy", node->healthy,
                     "capacity", "pages", (json_int_t)node->capacity.pages, "pages_free",
                     (json_int_t)node->capacity.pages_free, "memory_bytes",
                     (json_int_t)node->capacity.memory_bytes);
}

bool node_same(const struct node *a, const struct node *b)
{
    return strcmp(a->name, b->name) == 0 && strcmp(a->address, b->address) == 0 &&
           a->incarnation == b->incarnation && a->healthy == b->healthy;
}
