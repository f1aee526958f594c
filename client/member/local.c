/* See local.h. */
#include "client/member/local.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/shown.h"

#define CHANGE_ARGS 4

static void why_is(struct local *l, const char *text)
{
    shown_quoted(l->why, sizeof(l->why), text);
}

void local_end(struct local *l)
{
    tern_destroy(l->tern);
    l->tern = NULL;
}

static bool connected(struct local *l)
{
    enum tern_err err;

    if (l->tern)
        return true;
    errno = 0;
    err = tern_connect(l->socket, l->deadline_ms, &l->tern);
    if (err == TERN_OK)
        return true;
    why_is(l, err == TERN_DAEMON_LOST && errno ? strerror(errno) : tern_error_text(NULL, NULL));
    l->tern = NULL;
    return false;
}

struct question {
    const char *command;
    const char *const *args;
    uint32_t nargs;
};

/* The caller owns *ret. */
static bool ask(struct local *l, const struct question *q, json_t **ret)
{
    bool kept = l->tern != NULL;
    const char *text;
    enum tern_err err;
    json_t *answer;

    if (!connected(l))
        return false;
    err = tern_admin(l->tern, q->command, q->args, q->nargs, l->deadline_ms, &text);
    if (err == TERN_DAEMON_LOST && kept) { /* it was a connection to a daemon that has ended */
        local_end(l);
        return ask(l, q, ret);
    }
    if (err != TERN_OK) {
        why_is(l, tern_error_text(l->tern, NULL));
        if (err == TERN_DAEMON_LOST || err == TERN_TIMED_OUT)
            local_end(l);
        return false;
    }
    answer = json_loads(text, 0, NULL);
    if (!json_is_object(answer)) {
        json_decref(answer);
        why_is(l, "the daemon's answer is not a JSON object");
        return false;
    }
    *ret = answer;
    return true;
}

/* ---- its status ---- */

static bool has_error(const json_t *status)
{
    const json_t *row;
    size_t i;

    json_array_foreach(json_object_get(status, "alarm_counts"), i, row)
    {
        const char *severity = json_string_value(json_object_get(row, "severity"));

        if (severity && strcmp(severity, "error") == 0 &&
            json_integer_value(json_object_get(row, "on")) > 0)
            return true;
    }
    return false;
}

static uint64_t count(const json_t *object, const char *key)
{
    json_int_t v = json_integer_value(json_object_get(object, key));

    return v > 0 ? (uint64_t)v : 0;
}

bool local_read_status(const json_t *status, struct node *self)
{
    const char *incarnation = json_string_value(json_object_get(status, "incarnation"));
    const json_t *draining = json_object_get(status, "draining"), *row;
    size_t i;

    if (!incarnation || !json_is_boolean(draining))
        return false;
    self->incarnation = strtoull(incarnation, NULL, 16);
    self->healthy = !json_is_true(draining) && !has_error(status);
    self->capacity =
        (struct capacity){.memory_bytes = count(json_object_get(status, "memory"), "bytes") +
                                          count(json_object_get(status, "memory"), "device_bytes")};
    json_array_foreach(json_object_get(status, "pools"), i, row)
    {
        const char *tier = json_string_value(json_object_get(row, "tier"));

        if (!tier || strcmp(tier, "device") != 0)
            continue;
        self->capacity.pages += count(row, "total");
        self->capacity.pages_free += count(row, "free") + count(row, "reclaimable");
    }
    return true;
}

bool local_status(struct local *l, struct node *self)
{
    char text[LOCAL_WHY_BYTES];
    const char *name;
    json_t *answer;
    bool ok;

    if (!ask(l, &(struct question){.command = "status"}, &answer))
        return false;
    name = json_string_value(json_object_get(answer, "node"));
    l->misnamed = name && strcmp(name, self->name) != 0;
    if (l->misnamed) {
        snprintf(text, sizeof(text), "the daemon's name is %s: give that name as --node", name);
        why_is(l, text);
        json_decref(answer);
        return false;
    }
    ok = local_read_status(answer, self);
    json_decref(answer);
    if (!ok)
        why_is(
            l,
            "the daemon's status has an unknown form: use the tern-member of the daemon's version");
    return ok;
}

/* ---- its peers ---- */

static bool is(const json_t *row, const char *key, const char *word)
{
    const char *text = json_string_value(json_object_get(row, key));

    return text && strcmp(text, word) == 0;
}

/* A peer that is leaving no longer counts. */
static void peer_row(const json_t *row, struct peers *ret)
{
    const char *name = json_string_value(json_object_get(row, "peer"));
    const char *host = json_string_value(json_object_get(row, "host"));
    struct peer *p = &ret->v[ret->n];

    if (ret->n == PEERS_MAX || !name || !host || !node_name_ok(name) || is(row, "state", "leaving"))
        return;
    if (!node_address_write(host, count(row, "port"), p->address))
        return;
    memcpy(p->name, name, strlen(name) + 1);
    p->ours = is(row, "origin", "membership");
    ret->n++;
}

bool local_peers(struct local *l, struct peers *ret)
{
    char from[32], limit[32];
    const char *const args[] = {from, limit};
    uint64_t begin = 0, next;
    json_t *answer, *row;
    size_t i;

    snprintf(limit, sizeof(limit), "limit=%u", LOCAL_PAGE_ROWS);
    ret->n = 0;
    for (uint32_t page = 0; page < LOCAL_PAGES_MAX; page++, begin = next) {
        snprintf(from, sizeof(from), "from=%llu", (unsigned long long)begin);
        if (!ask(l, &(struct question){"peers", args, 2}, &answer))
            return false;
        json_array_foreach(json_object_get(answer, "peers"), i, row) peer_row(row, ret);
        next = count(answer, "next");
        json_decref(answer);
        if (next <= begin) {
            peers_sort(ret);
            return true;
        }
    }
    why_is(l, "the list of peers does not end");
    return false;
}

bool local_change(struct local *l, const struct change *change)
{
    char name[NODE_NAME_BYTES + 8], address[NODE_ADDRESS_BYTES + 8];
    char tenants[RULE_TENANTS_BYTES + 8];
    const char *const args[CHANGE_ARGS] = {name, address, tenants, "origin=membership"};
    bool add = change->kind == CHANGE_ADD;
    json_t *answer;

    snprintf(name, sizeof(name), "name=%s", change->name);
    snprintf(address, sizeof(address), "address=%s", add ? change->address : "");
    snprintf(tenants, sizeof(tenants), "tenants=%s", add ? change->tenants : "");
    if (!ask(l, &(struct question){add ? "peer-add" : "peer-remove", args, add ? CHANGE_ARGS : 1},
             &answer))
        return false;
    json_decref(answer);
    return true;
}
