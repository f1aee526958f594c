/* See spaces.h. `left` is the part of a tenant's counts not reported so far, which may be reported
 * now: a kept namespace reports its growth, a new one reports its counts up to `left`, and "other"
 * reports the rest. */
#include "client/agent/spaces.h"

#include <string.h>

static const char *const keys[] = {
#define X(key) key,
    SPACES_COUNTS(X)
#undef X
};

static void read_counts(const json_t *row, struct spaces_counts *ret)
{
    for (uint32_t i = 0; i < SPACES_KEYS; i++)
        ret->v[i] = (uint64_t)json_integer_value(json_object_get(row, keys[i]));
}

static const char *text_of(const json_t *row, const char *key)
{
    const char *text = json_string_value(json_object_get(row, key));

    return text && strlen(text) < SPACES_NAME_BYTES ? text : "";
}

/* Returns the index of the row's tenant; SPACES_TENANTS_MAX: none. */
static uint32_t tenant_of(const json_t *row, const json_t *tenants)
{
    const char *name = text_of(row, "tenant");
    json_t *tenant;
    size_t i;

    json_array_foreach((json_t *)(uintptr_t)tenants, i, tenant)
    {
        if (i < SPACES_TENANTS_MAX && strcmp(text_of(tenant, "tenant"), name) == 0)
            return (uint32_t)i;
    }
    return SPACES_TENANTS_MAX;
}

void spaces_restart(struct spaces *s)
{
    s->n = 0;
    memset(s->other, 0, sizeof(s->other));
}

static struct space *find(struct spaces *s, const json_t *row)
{
    const char *pool = text_of(row, "pool"), *name = text_of(row, "namespace");

    for (uint32_t i = 0; i < s->n; i++)
        if (strcmp(s->space[i].name, name) == 0 && strcmp(s->space[i].pool, pool) == 0)
            return &s->space[i];
    return NULL;
}

/* Returns a place for one more namespace; NULL: none. If no other is free, reuses that of a
 * namespace that is gone, whose counts move to the tenant's "other". */
static struct space *place(struct spaces *s)
{
    if (s->n < s->limit)
        return &s->space[s->n++];
    for (uint32_t i = 0; i < s->n; i++) {
        struct space *old = &s->space[i];

        if (old->there)
            continue;
        for (uint32_t k = 0; k < SPACES_KEYS; k++)
            s->other[old->tenant].v[k] += old->told.v[k];
        return old;
    }
    return NULL;
}

/* Reports the growth of a namespace. If its counts decreased, the daemon had forgotten it and
 * started anew. */
static void grow(struct space *space, const struct spaces_counts *now, struct spaces_counts *left)
{
    for (uint32_t k = 0; k < SPACES_KEYS; k++) {
        uint64_t seen = now->v[k] >= space->seen.v[k] ? space->seen.v[k] : 0;
        uint64_t more = now->v[k] - seen;

        if (more > left->v[k])
            more = left->v[k];
        space->told.v[k] += more;
        left->v[k] -= more;
    }
    space->seen = *now;
    space->there = true;
}

/* Computes for each tenant its counts less those reported. */
static void count_left(const struct spaces *s, const json_t *tenants,
                       struct spaces_counts left[SPACES_TENANTS_MAX])
{
    memset(left, 0, SPACES_TENANTS_MAX * sizeof(*left));
    for (uint32_t t = 0; t < SPACES_TENANTS_MAX; t++) {
        read_counts(json_array_get(tenants, t), &left[t]);
        for (uint32_t k = 0; k < SPACES_KEYS; k++)
            left[t].v[k] -= s->other[t].v[k];
    }
    for (uint32_t i = 0; i < s->n; i++)
        for (uint32_t k = 0; k < SPACES_KEYS; k++)
            left[s->space[i].tenant].v[k] -= s->space[i].told.v[k];
}

static void update_rows(struct spaces *s, const json_t *rows, const json_t *tenants,
                        struct spaces_counts left[SPACES_TENANTS_MAX])
{
    json_t *row;
    size_t i;

    for (uint32_t n = 0; n < s->n; n++)
        s->space[n].there = false;
    /* Known namespaces come first: counts of a new one may already be reported as "other". */
    for (uint32_t fresh = 0; fresh < 2; fresh++)
        json_array_foreach((json_t *)(uintptr_t)rows, i, row)
        {
            uint32_t tenant = tenant_of(row, tenants);
            struct space *space = find(s, row);
            struct spaces_counts now;

            if (tenant == SPACES_TENANTS_MAX || (space != NULL) == (fresh == 1))
                continue;
            if (!space) {
                space = place(s);
                if (!space)
                    return;
                *space = (struct space){.tenant = tenant};
                strcpy(space->pool, text_of(row, "pool"));
                strcpy(space->name, text_of(row, "namespace"));
            }
            read_counts(row, &now);
            grow(space, &now, &left[tenant]);
        }
}

static void add_row(json_t *to, const char *tenant, const char *name,
                    const struct spaces_counts *counts)
{
    json_t *row = json_object();

    json_object_set_new(row, "tenant", json_string(tenant));
    json_object_set_new(row, "namespace", json_string(name));
    for (uint32_t k = 0; k < SPACES_KEYS; k++)
        json_object_set_new(row, keys[k], json_integer((json_int_t)counts->v[k]));
    json_array_append_new(to, row);
}

json_t *spaces_update(struct spaces *s, const json_t *rows, const json_t *tenants, uint32_t shown)
{
    struct spaces_counts left[SPACES_TENANTS_MAX];
    json_t *to = json_array();

    count_left(s, tenants, left);
    update_rows(s, rows, tenants, left);
    for (uint32_t i = 0; i < s->n; i++) {
        const struct space *space = &s->space[i];
        bool own = space->tenant < shown;

        add_row(to, own ? text_of(json_array_get(tenants, space->tenant), "tenant") : SPACES_OTHER,
                own ? space->name : SPACES_OTHER, &space->told);
    }
    for (uint32_t t = 0; t < SPACES_TENANTS_MAX && t < json_array_size(tenants); t++) {
        for (uint32_t k = 0; k < SPACES_KEYS; k++)
            s->other[t].v[k] += left[t].v[k];
        add_row(to, t < shown ? text_of(json_array_get(tenants, t), "tenant") : SPACES_OTHER,
                SPACES_OTHER, &s->other[t]);
    }
    return json_pack("{s:o}", "namespaces", to);
}
