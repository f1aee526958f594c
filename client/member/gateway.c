/* See gateway.h. */
#include "client/member/gateway.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NODES         "/nodes/"
#define NODES_END     "/nodes0" /* the first key behind all keys that begin with NODES */
#define NUMBER_BYTES  24u
#define DECIMAL_MAX   19u /* the most digits that always fit 64 bits */
#define BASE64(bytes) (((bytes) + 2) / 3 * 4)

static const char base64_chars[] =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

bool gateway_prefix_ok(const char *prefix)
{
    size_t n = strlen(prefix);

    return n > 1 && n < GATEWAY_PREFIX_BYTES && prefix[0] == '/' && prefix[n - 1] != '/' &&
           strspn(prefix, NODE_NAME_CHARS "/") == n;
}

/* ---- base64 ---- */

static void encode(const char *bytes, size_t n, char *ret)
{
    for (size_t i = 0; i < n; i += 3) {
        uint32_t v = (uint32_t)(unsigned char)bytes[i] << 16;

        if (i + 1 < n)
            v |= (uint32_t)(unsigned char)bytes[i + 1] << 8;
        if (i + 2 < n)
            v |= (uint32_t)(unsigned char)bytes[i + 2];
        *ret++ = base64_chars[v >> 18];
        *ret++ = base64_chars[v >> 12 & 63];
        *ret++ = i + 1 < n ? base64_chars[v >> 6 & 63] : '=';
        *ret++ = i + 2 < n ? base64_chars[v & 63] : '=';
    }
    *ret = '\0';
}

/* Returns the digits of one group of four without padding; -1: it is no base64. */
static int group(const char *text, bool last, uint32_t *ret)
{
    int digits = 4;

    if (last && text[3] == '=')
        digits = text[2] == '=' ? 2 : 3;
    *ret = 0;
    for (int i = 0; i < 4; i++) {
        const char *at =
            i < digits ? memchr(base64_chars, text[i], sizeof(base64_chars) - 1) : NULL;

        if (i < digits && !at)
            return -1;
        *ret = *ret << 6 | (at ? (uint32_t)(at - base64_chars) : 0);
    }
    return digits;
}

/* Decodes at most `cap` bytes and appends a NUL, for which `ret` has room. */
static bool decode(const json_t *text, size_t cap, char *ret, size_t *ret_n)
{
    const char *c = json_string_value(text);
    size_t left = json_string_length(text), n = 0;
    uint32_t v;

    if (!c || left % 4 != 0 || left > BASE64(cap))
        return false;
    for (; left > 0; left -= 4, c += 4) {
        int digits = group(c, left == 4, &v);

        for (int i = 0; i + 1 < digits; i++) {
            if (n == cap)
                return false;
            ret[n++] = (char)(v >> (16 - 8 * i) & 0xff);
        }
        if (digits < 0)
            return false;
    }
    ret[n] = '\0';
    *ret_n = n;
    return true;
}

/* ---- requests ---- */

static json_t *base64_text(const char *bytes, size_t n)
{
    char *text = malloc(BASE64(n) + 1);
    json_t *j;

    if (!text)
        return NULL;
    encode(bytes, n, text);
    j = json_string(text);
    free(text);
    return j;
}

static json_t *key_of(const char *prefix, const char *nodes, const char *name)
{
    char key[GATEWAY_KEY_BYTES];

    snprintf(key, sizeof(key), "%s%s%s", prefix, nodes, name);
    return base64_text(key, strlen(key));
}

static json_t *number_text(uint64_t v)
{
    char text[NUMBER_BYTES];

    snprintf(text, sizeof(text), "%" PRIu64, v);
    return json_string(text);
}

json_t *gateway_grant(uint32_t ttl_s)
{
    return json_pack("{s:o}", "TTL", number_text(ttl_s));
}

json_t *gateway_lease(uint64_t id)
{
    return json_pack("{s:o}", "ID", number_text(id));
}

json_t *gateway_put(const char *prefix, const struct node *node, uint64_t lease)
{
    json_t *j = node_write(node);
    char *value = json_dumps(j, JSON_COMPACT);
    json_t *body = NULL;

    json_decref(j);
    if (value)
        body = json_pack("{s:o, s:o, s:o}", "key", key_of(prefix, NODES, node->name), "value",
                         base64_text(value, strlen(value)), "lease", number_text(lease));
    free(value);
    return body;
}

json_t *gateway_claim(const char *prefix, const struct node *node, struct claim_by by)
{
    return json_pack("{s:[{s:s, s:s, s:o, s:o}], s:[{s:o}], s:[{s:{s:o}}]}", "compare", "target",
                     "MOD", "result", "EQUAL", "key", key_of(prefix, NODES, node->name),
                     "mod_revision", number_text(by.revision), "success", "request_put",
                     gateway_put(prefix, node, by.lease), "failure", "request_range", "key",
                     key_of(prefix, NODES, node->name));
}

json_t *gateway_newest(const char *prefix)
{
    return json_pack("{s:o, s:o, s:s, s:b, s:s, s:s}", "key", key_of(prefix, NODES, ""),
                     "range_end", key_of(prefix, NODES_END, ""), "limit", "1", "keys_only", 1,
                     "sort_target", "MOD", "sort_order", "DESCEND");
}

json_t *gateway_all(const char *prefix)
{
    return json_pack("{s:o, s:o, s:o}", "key", key_of(prefix, NODES, ""), "range_end",
                     key_of(prefix, NODES_END, ""), "limit", number_text(NODES_MAX));
}

/* ---- answers ---- */

/* Reads a number of 64 bits, which the gateway writes as a text; absent: 0. */
static bool number(const json_t *object, const char *key, uint64_t *ret)
{
    const json_t *v = json_object_get(object, key);
    const char *text = json_string_value(v);

    *ret = 0;
    if (!v)
        return true;
    if (!text || json_string_length(v) == 0 || json_string_length(v) > DECIMAL_MAX ||
        strspn(text, "0123456789") != json_string_length(v))
        return false;
    *ret = strtoull(text, NULL, 10);
    return true;
}

static bool lease_of(const json_t *object, struct lease *ret)
{
    uint64_t id, ttl_s;

    if (!number(object, "ID", &id) || !number(object, "TTL", &ttl_s) || id == 0 ||
        ttl_s > UINT32_MAX)
        return false;
    *ret = (struct lease){.id = id, .ttl_s = (uint32_t)ttl_s};
    return true;
}

bool gateway_granted(const json_t *answer, struct lease *ret)
{
    struct lease lease;

    if (!lease_of(answer, &lease) || lease.ttl_s == 0)
        return false;
    *ret = lease;
    return true;
}

bool gateway_kept(const json_t *answer, struct lease *ret)
{
    return lease_of(json_object_get(answer, "result"), ret);
}

bool gateway_stamp(const json_t *answer, struct stamp *ret)
{
    const json_t *kvs = json_object_get(answer, "kvs");
    struct stamp stamp;

    /* Every answer of etcd has a header; without one the answer is not etcd's. */
    if (!json_is_object(json_object_get(answer, "header")) ||
        !number(answer, "count", &stamp.keys) ||
        !number(json_array_get(kvs, 0), "mod_revision", &stamp.revision) ||
        (stamp.keys > 0) != (stamp.revision > 0))
        return false;
    *ret = stamp;
    return true;
}

static bool node_of(const json_t *kv, const char *prefix, struct node *ret)
{
    char key[GATEWAY_KEY_BYTES], value[NODE_VALUE_BYTES_MAX + 1];
    size_t nkey, nvalue, at = strlen(prefix) + strlen(NODES);

    return decode(json_object_get(kv, "key"), sizeof(key) - 1, key, &nkey) && strlen(key) == nkey &&
           nkey > at && strncmp(key, prefix, strlen(prefix)) == 0 &&
           strncmp(key + strlen(prefix), NODES, strlen(NODES)) == 0 &&
           decode(json_object_get(kv, "value"), NODE_VALUE_BYTES_MAX, value, &nvalue) &&
           node_read(value, nvalue, key + at, ret);
}

/* Reads the existing key of a refused claim. */
static bool claim_other(const json_t *range, const char *prefix, struct claim *ret)
{
    const json_t *kv = json_array_get(json_object_get(range, "kvs"), 0);

    if (!json_is_object(range))
        return false;
    if (!kv)
        return true;
    ret->is_node = node_of(kv, prefix, &ret->node);
    return number(kv, "lease", &ret->lease) && number(kv, "mod_revision", &ret->revision) &&
           ret->revision > 0;
}

bool gateway_claimed(const json_t *answer, const char *prefix, struct claim *ret)
{
    const json_t *header = json_object_get(answer, "header");
    const json_t *first = json_array_get(json_object_get(answer, "responses"), 0);
    struct claim claim = {.written = json_is_true(json_object_get(answer, "succeeded"))};

    if (!json_is_object(header))
        return false;
    if (claim.written ? !number(header, "revision", &claim.revision) || claim.revision == 0
                      : !claim_other(json_object_get(first, "response_range"), prefix, &claim))
        return false;
    *ret = claim;
    return true;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct node *)a)->name, ((const struct node *)b)->name);
}

/* Sorts by name and keeps a repeated name, which no etcd sends, once. */
static void sort(struct nodes *nodes)
{
    uint32_t kept = 0;

    qsort(nodes->v, nodes->n, sizeof(nodes->v[0]), by_name);
    for (uint32_t i = 0; i < nodes->n; i++) {
        if (kept > 0 && by_name(&nodes->v[kept - 1], &nodes->v[i]) == 0)
            nodes->ignored++;
        else
            nodes->v[kept++] = nodes->v[i];
    }
    nodes->n = kept;
}

bool gateway_nodes(const json_t *answer, const char *prefix, struct nodes *ret)
{
    const json_t *kvs = json_object_get(answer, "kvs");
    size_t n = json_array_size(kvs);
    uint64_t count;

    if (!json_is_object(json_object_get(answer, "header")) || !number(answer, "count", &count) ||
        (kvs && !json_is_array(kvs)) || n > NODES_MAX || count < n || (n == 0 && count > 0))
        return false;
    ret->n = ret->ignored = 0;
    ret->cut = count > n;
    for (size_t i = 0; i < n; i++) {
        if (node_of(json_array_get(kvs, i), prefix, &ret->v[ret->n]))
            ret->n++;
        else
            ret->ignored++;
    }
    sort(ret);
    return true;
}

const struct node *nodes_find(const struct nodes *nodes, const char *name)
{
    struct node key = {.name = ""};

    if (strlen(name) >= sizeof(key.name))
        return NULL;
    memcpy(key.name, name, strlen(name) + 1);
    return bsearch(&key, nodes->v, nodes->n, sizeof(nodes->v[0]), by_name);
}
