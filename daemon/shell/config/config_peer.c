/* One peer: its faults, for the loader, and the reading of an operator's arguments by the same
 * table as the file. See config.h. */
#include <stdio.h>
#include <string.h>

#include "shell/config/config_table.h"

const char *config_peer_wrong(const struct config_peer *peer)
{
    if (peer->address.host[0] == '\0' || peer->address.port == 0)
        return "needs `address`, HOST:PORT of its `listen`";
    return NULL;
}

static enum tern_err tenants_read(const struct config *config, const char *names, uint64_t *ret,
                                  char why[CONFIG_WHY_BYTES])
{
    while (names != NULL && *names != '\0') {
        size_t n = strcspn(names, "+");
        char name[CONFIG_NAME_BYTES];
        uint32_t slot;

        snprintf(name, sizeof name, "%.*s", n < sizeof name ? (int)n : 0, names);
        if (config_tenant_slot(config, name, &slot) != TERN_OK) {
            snprintf(why, CONFIG_WHY_BYTES, "tenants: there is no tenant %.80s", name);
            return TERN_INVALID;
        }
        *ret |= (uint64_t)1 << slot;
        names += n + (names[n] == '+');
    }
    if (*ret != 0)
        return TERN_OK;
    snprintf(why, CONFIG_WHY_BYTES, "tenants: needs the tenants that it may ask for, NAME+NAME");
    return TERN_INVALID;
}

enum tern_err config_peer_read(const struct config *config, const struct config_peer_text *text,
                               struct config_peer *ret, char why[CONFIG_WHY_BYTES])
{
    const char *const values[PEER_FIELDS] = {text->name, text->address, text->transport};
    const char *wrong;
    char reason[REASON_BYTES];

    memset(ret, 0, sizeof *ret);
    for (size_t f = 0; f < PEER_FIELDS; f++) {
        const struct setting *s = &config_peer_fields[f];
        const char *value = values[f] != NULL ? values[f] : s->initial;

        if (value_parse(s, value != NULL ? value : "", ret, reason) != TERN_OK) {
            snprintf(why, CONFIG_WHY_BYTES, "%s: %s, not \"%.80s\"", s->key, reason,
                     value != NULL ? value : "");
            return TERN_INVALID;
        }
    }
    wrong = config_peer_wrong(ret);
    if (wrong != NULL) {
        snprintf(why, CONFIG_WHY_BYTES, "%s", wrong);
        return TERN_INVALID;
    }
    return tenants_read(config, text->tenants, &ret->tenants, why);
}

const char *config_peer_origin(const struct config_peer *peer)
{
    if (!peer->by_operator)
        return "file";
    return peer->by_member ? "membership" : "operator";
}
