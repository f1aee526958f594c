/* See config.h. Invariant: nothing here allocates, and each peer costs at most a search by
 * name, because the owner thread compares thousands of peers. */
#include <stdio.h>
#include <string.h>

#include "shell/config/config_table.h"

#define CUT        "..."
#define WHY_SIZE   "the daemon sizes memory and tables by this setting at its start"
#define WHY_ONCE   "the daemon uses this setting only at its start"
#define WHY_TENANT "the daemon creates a tenant's memory, socket and shares at its start"
#define WHY_BYTES  1024

struct compare {
    const struct config *was, *is;
    config_change_fn *found;
    void *ctx;
    struct config_change change;
    uint32_t tenant_slot[CONFIG_TENANTS_MAX]; /* slot in `was` of each tenant of `is`; NONE */
    uint64_t taken;                           /* slots of `was` that joining tenants take */
    char why[WHY_BYTES];
};

static void cut(const char *text, char ret[CONFIG_CHANGE_VALUE])
{
    if (snprintf(ret, CONFIG_CHANGE_VALUE, "%s", text) >= CONFIG_CHANGE_VALUE)
        memcpy(ret + CONFIG_CHANGE_VALUE - sizeof CUT, CUT, sizeof CUT);
}

static void value_of(const struct setting *s, const void *base, char ret[CONFIG_CHANGE_VALUE])
{
    char text[VALUE_TEXT_BYTES];

    value_text(s, base, text, sizeof text);
    cut(text, ret);
}

static const char *why_not(const struct setting *s)
{
    return s->change == CHANGE_LIVE ? NULL : s->change == CHANGE_SIZED ? WHY_SIZE : WHY_ONCE;
}

static void setting(struct compare *c, size_t row)
{
    const struct setting *s = &config_settings[row];
    struct config_change *change = &c->change;

    if ((!c->was->given[row] && !c->is->given[row]) ||
        memcmp((const char *)c->was + s->offset, (const char *)c->is + s->offset, s->size) == 0)
        return;
    *change = (struct config_change){.of = CHANGE_OF_SETTING, .row = row, .why = why_not(s)};
    snprintf(change->setting, sizeof change->setting, "%s%s%s", s->section,
             *s->section == '\0' ? "" : ".", s->key);
    value_of(s, c->was, change->was);
    value_of(s, c->is, change->is);
    c->found(c->ctx, change);
}

void config_take(struct config *config, const struct config *from,
                 const struct config_change *change)
{
    const struct setting *s = &config_settings[change->row];

    memcpy((char *)config + s->offset, (const char *)from + s->offset, s->size);
    config->given[change->row] = from->given[change->row];
}

/* Compares a field. A part of the disk tier that is derived in both configurations counts as
 * equal. */
static bool differs(const struct compare *c, uint32_t slot, uint32_t from, const struct setting *s)
{
    const struct config_tenant *was = &c->was->tenants[slot], *is = &c->is->tenants[from];

    if (s->offset == offsetof(struct config_tenant, spill_bytes) &&
        (c->was->spill_parts >> slot & 1) && (c->is->spill_parts >> from & 1))
        return false;
    return memcmp((const char *)was + s->offset, (const char *)is + s->offset, s->size) != 0;
}

static void tenant(struct compare *c, uint32_t slot, uint32_t from)
{
    const struct config_tenant *was = &c->was->tenants[slot], *is = &c->is->tenants[from];
    struct config_change *change = &c->change;

    for (size_t f = 0; f < TENANT_FIELDS; f++) {
        const struct setting *s = &config_tenant_fields[f];

        if (!differs(c, slot, from, s))
            continue;
        *change = (struct config_change){.of = CHANGE_OF_TENANT, .why = why_not(s)};
        snprintf(change->setting, sizeof change->setting, "tenants[%s].%s", was->name, s->key);
        value_of(s, was, change->was);
        value_of(s, is, change->is);
        c->found(c->ctx, change);
    }
}

static void tenant_removed(struct compare *c, uint32_t slot)
{
    struct config_change *change = &c->change;

    *change = (struct config_change){.of = CHANGE_OF_TENANT, .why = WHY_TENANT};
    snprintf(change->setting, sizeof change->setting, "tenants[%s]", c->was->tenants[slot].name);
    snprintf(change->was, sizeof change->was, "%s", c->was->tenants[slot].name);
    c->found(c->ctx, change);
}

static uint32_t free_slot(const struct compare *c)
{
    for (uint32_t i = 0; i < c->was->ntenants; i++)
        if (config_tenant_free(c->was, i) && !(c->taken >> i & 1))
            return i;
    return NONE;
}

/* Returns every size that differs from the slot's; NULL: all fit. */
static const char *why_not_its(struct compare *c, uint32_t slot, uint32_t from)
{
    char was[CONFIG_CHANGE_VALUE], is[CONFIG_CHANGE_VALUE];
    size_t n = 0;

    for (size_t f = TENANT_SIZES; f < TENANT_FIELDS; f++) {
        const struct setting *s = &config_tenant_fields[f];

        if (!differs(c, slot, from, s))
            continue;
        value_of(s, &c->was->tenants[slot], was);
        value_of(s, &c->is->tenants[from], is);
        if (n < sizeof c->why)
            n += (size_t)snprintf(c->why + n, sizeof c->why - n,
                                  "%s is %s, and that of the reserve is %s; ", s->key, is, was);
    }
    if (n == 0)
        return NULL;
    if (n < sizeof c->why)
        snprintf(c->why + n, sizeof c->why - n,
                 "use the sizes of the reserve, or leave out `memory` to get all of them");
    return c->why;
}

static void tenant_added(struct compare *c, uint32_t from)
{
    const char *name = c->is->tenants[from].name;
    struct config_change *change = &c->change;
    uint32_t slot = free_slot(c);

    *change = (struct config_change){.of = CHANGE_OF_TENANT_ADDED, .slot = slot, .from = from};
    change->why = slot != NONE ? why_not_its(c, slot, from)
                               : WHY_TENANT
                      "; reserve.tenants reserves memory for tenants that join later";
    snprintf(change->setting, sizeof change->setting, "tenants[%s]", name);
    snprintf(change->is, sizeof change->is, "%s", name);
    if (!c->found(c->ctx, change) || slot == NONE)
        return;
    c->taken |= (uint64_t)1 << slot;
    c->tenant_slot[from] = slot;
}

static void tenants(struct compare *c)
{
    uint32_t slot;

    for (uint32_t i = 0; i < c->is->ntenants; i++)
        c->tenant_slot[i] =
            config_tenant_slot(c->was, c->is->tenants[i].name, &slot) == TERN_OK ? slot : NONE;
    for (uint32_t i = 0; i < c->was->ntenants; i++) {
        if (config_tenant_free(c->was, i))
            continue;
        if (config_tenant_slot(c->is, c->was->tenants[i].name, &slot) == TERN_OK)
            tenant(c, i, slot);
        else
            tenant_removed(c, i);
    }
    for (uint32_t i = 0; i < c->is->ntenants; i++)
        if (c->tenant_slot[i] == NONE && !config_tenant_free(c->is, i))
            tenant_added(c, i);
}

/* Finds the slot of that name in a configuration as loaded. */
static bool peer_loaded(const struct config *config, const char *name, uint32_t *ret)
{
    uint32_t low = 0, high = config->npeers;

    while (low < high) {
        uint32_t middle = low + (high - low) / 2, slot = config->by_name[middle];
        int order = strcmp(name, config->peers[slot].name);

        if (order == 0) {
            *ret = slot;
            return true;
        }
        *(order < 0 ? &high : &low) = order < 0 ? middle : middle + 1;
    }
    return false;
}

static void tenants_text(const struct config *config, uint64_t tenants,
                         char ret[CONFIG_CHANGE_VALUE])
{
    char text[CONFIG_TENANTS_MAX * CONFIG_NAME_BYTES];
    size_t at = 0;

    text[0] = '\0';
    for (uint32_t i = 0; i < config->ntenants; i++)
        if (tenants >> i & 1)
            at += (size_t)snprintf(text + at, sizeof text - at, "%s%s", at > 0 ? "+" : "",
                                   config->tenants[i].name);
    cut(text, ret);
}

/* Maps bits of tenants in `is` to their slots in `was`; drops tenants that have none. */
static uint64_t here(const struct compare *c, uint64_t tenants)
{
    uint64_t ret = 0;

    for (uint32_t i = 0; i < c->is->ntenants; i++)
        if ((tenants >> i & 1) && c->tenant_slot[i] != NONE)
            ret |= (uint64_t)1 << c->tenant_slot[i];
    return ret;
}

static void peer_whole(struct compare *c, enum config_change_of of, uint32_t slot)
{
    const struct config *config = of == CHANGE_OF_PEER_ADDED ? c->is : c->was;
    struct config_change *change = &c->change;
    char *text;

    *change = (struct config_change){
        .of = of, .slot = slot, .tenants = here(c, config->peers[slot].tenants)};
    text = of == CHANGE_OF_PEER_ADDED ? change->is : change->was;
    snprintf(change->setting, sizeof change->setting, "peers[%s]", config->peers[slot].name);
    value_of(&config_peer_fields[PEER_ADDRESS], &config->peers[slot], text);
    c->found(c->ctx, change);
}

static void peer_differs(struct compare *c, uint32_t slot, uint32_t from, const char *key)
{
    struct config_change *change = &c->change;

    change->of = CHANGE_OF_PEER;
    change->slot = slot;
    change->from = from;
    change->tenants = here(c, c->is->peers[from].tenants);
    change->why = NULL;
    snprintf(change->setting, sizeof change->setting, "peers[%s].%s", c->was->peers[slot].name,
             key);
    c->found(c->ctx, change);
}

static void peer(struct compare *c, uint32_t slot, uint32_t from)
{
    const struct config_peer *is = &c->is->peers[from];
    const struct config_peer before = c->was->peers[slot], *was = &before; /* `found` changes it */
    struct config_change *change = &c->change;

    for (size_t f = 0; f < PEER_FIELDS; f++) {
        const struct setting *s = &config_peer_fields[f];

        if (memcmp((const char *)was + s->offset, (const char *)is + s->offset, s->size) == 0)
            continue;
        value_of(s, was, change->was);
        value_of(s, is, change->is);
        peer_differs(c, slot, from, s->key);
    }
    tenants_text(c->was, was->tenants, change->was);
    tenants_text(c->is, is->tenants, change->is);
    if (was->tenants != here(c, is->tenants))
        peer_differs(c, slot, from, "tenants");
    snprintf(change->was, sizeof change->was, "%s", config_peer_origin(was));
    snprintf(change->is, sizeof change->is, "file");
    if (was->by_operator)
        peer_differs(c, slot, from, "origin");
}

static void peers(struct compare *c)
{
    uint64_t met[CONFIG_PEERS_MAX / 64] = {0}; /* bits of new peers */
    uint32_t from;

    for (uint32_t i = 0; i < c->was->npeers; i++) {
        if (c->was->peers[i].name[0] == '\0' || c->was->peers[i].leaving)
            continue;
        if (peer_loaded(c->is, c->was->peers[i].name, &from)) {
            met[from / 64] |= (uint64_t)1 << from % 64;
            peer(c, i, from);
        } else if (!c->was->peers[i].by_operator) {
            peer_whole(c, CHANGE_OF_PEER_REMOVED, i);
        }
    }
    for (uint32_t i = 0; i < c->is->npeers; i++)
        if (!(met[i / 64] >> i % 64 & 1))
            peer_whole(c, CHANGE_OF_PEER_ADDED, i);
}

void config_compare(const struct config *was, const struct config *is, config_change_fn *found,
                    void *ctx)
{
    struct compare c = {.was = was, .is = is, .found = found, .ctx = ctx};

    for (size_t i = 0; i < config_settings_n; i++)
        setting(&c, i);
    tenants(&c);
    peers(&c);
}
