/* See decide.h. */
#include "client/member/decide.h"

#include <stdlib.h>
#include <string.h>

/* ---- rules ---- */

static bool tenants_ok(const char *tenants)
{
    char name[NODE_NAME_BYTES];

    if (strlen(tenants) >= RULE_TENANTS_BYTES)
        return false;
    for (;;) {
        size_t n = strcspn(tenants, "+");

        if (n >= sizeof(name))
            return false;
        memcpy(name, tenants, n);
        name[n] = '\0';
        if (!node_name_ok(name))
            return false;
        if (tenants[n] == '\0')
            return true;
        tenants += n + 1;
    }
}

bool rule_read(const char *text, struct rule *ret)
{
    size_t n = strcspn(text, "=");
    struct rule rule = {.prefix = n > 0 && text[n - 1] == '*'};
    size_t name = n - rule.prefix;

    if (text[n] != '=' || name >= sizeof(rule.name) || !tenants_ok(text + n + 1))
        return false;
    memcpy(rule.name, text, name);
    if (!node_name_ok(rule.name) && !(rule.prefix && name == 0))
        return false;
    memcpy(rule.tenants, text + n + 1, strlen(text + n + 1) + 1);
    *ret = rule;
    return true;
}

/* Returns NULL if no rule allows that node as a peer. */
static const char *tenants_of(const struct rules *rules, const char *name)
{
    if (strcmp(name, rules->self) == 0)
        return NULL;
    for (uint32_t i = 0; i < rules->n; i++) {
        const struct rule *r = &rules->v[i];

        if (r->prefix ? strncmp(name, r->name, strlen(r->name)) == 0 : strcmp(name, r->name) == 0)
            return r->tenants;
    }
    return NULL;
}

/* ---- peers ---- */

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct peer *)a)->name, ((const struct peer *)b)->name);
}

void peers_sort(struct peers *peers)
{
    qsort(peers->v, peers->n, sizeof(peers->v[0]), by_name);
}

static const struct peer *peer_find(const struct peers *peers, const char *name)
{
    struct peer key = {.name = ""};

    memcpy(key.name, name, strlen(name) + 1);
    return bsearch(&key, peers->v, peers->n, sizeof(peers->v[0]), by_name);
}

/* ---- absences ---- */

void absences_forget(struct absences *absences)
{
    absences->n = 0;
}

static int by_absent(const void *a, const void *b)
{
    return strcmp(((const struct absence *)a)->name, ((const struct absence *)b)->name);
}

/* Adds a peer that is gone, and returns since when. Names come sorted. */
static uint64_t absent(struct absences *absences, const char *name, uint64_t now_ns)
{
    struct absence *row = &absences->v[absences->n++], *found;

    memcpy(row->name, name, strlen(name) + 1);
    found = bsearch(row, absences->before, absences->before_n, sizeof(*row), by_absent);
    row->since_ns = found ? found->since_ns : now_ns;
    return row->since_ns;
}

/* ---- changes ---- */

struct list {
    struct change *v;
    uint32_t n;
};

static void put(struct list *list, struct change change)
{
    if (list->n < CHANGES_MAX)
        list->v[list->n++] = change;
}

/* Removes peers of ours that are gone, are no longer allowed, or have another address. */
static void leave(const struct seen *seen, const struct rules *rules, struct absences *absences,
                  struct list *list)
{
    memcpy(absences->before, absences->v, absences->n * sizeof(absences->v[0]));
    absences->before_n = absences->n;
    absences->n = 0;
    for (uint32_t i = 0; i < seen->peers->n; i++) {
        const struct peer *p = &seen->peers->v[i];
        const struct change removal = {.kind = CHANGE_REMOVE, .name = p->name};
        const struct node *node = nodes_find(seen->nodes, p->name);

        if (!p->ours)
            continue;
        if (!tenants_of(rules, p->name) || (node && strcmp(node->address, p->address) != 0)) {
            put(list, removal);
            continue;
        }
        if (node || seen->nodes->cut)
            continue;
        if (seen->now_ns - absent(absences, p->name, seen->now_ns) >= seen->grace_ns)
            put(list, removal);
    }
}

static void join(const struct seen *seen, const struct rules *rules, struct list *list)
{
    uint32_t removals = list->n;

    for (uint32_t i = 0; i < seen->nodes->n; i++) {
        const struct node *node = &seen->nodes->v[i];
        const char *tenants = tenants_of(rules, node->name);
        bool moved = false;

        for (uint32_t r = 0; r < removals; r++)
            moved = moved || strcmp(list->v[r].name, node->name) == 0;
        if (tenants && (moved || !peer_find(seen->peers, node->name)))
            put(list, (struct change){CHANGE_ADD, node->name, node->address, tenants});
    }
}

uint32_t decide(const struct seen *seen, const struct rules *rules, struct absences *absences,
                struct change ret[CHANGES_MAX])
{
    struct list list = {.v = ret};

    leave(seen, rules, absences, &list);
    join(seen, rules, &list);
    return list.n;
}
