/* One peer: its faults, for the loader, and the reading of an operator's arguments by the same
 * table as the file. See config.h. */
#include <string.h>

#include "shell/config/config_table.h"

const char *config_peer_wrong(const struct config_peer *peer)
{
    if (peer->address.host[0] == '\0' || peer->address.port == 0)
        return "needs `address`, HOST:PORT of its `listen`";
    return NULL;
}

enum tern_err config_peer_tenants(const struct config *config, const char *names, uint64_t *ret,
                                  char why[REASON_BYTES])
{
    for (size_t n; *names != '\0'; names += n + (names[n] == '+')) {
        char name[CONFIG_NAME_BYTES] = "";
        uint32_t slot;

        n = strcspn(names, "+");
        if (n < sizeof name)
            memcpy(name, names, n);
        if (config_tenant_slot(config, name, &slot) != TERN_OK)
            return fail_with(why, REASON_BYTES, TERN_INVALID, "there is no tenant %.*s",
                             n < 80 ? (int)n : 80, names);
        *ret |= (uint64_t)1 << slot;
    }
    if (*ret != 0)
        return TERN_OK;
    return fail_with(why, REASON_BYTES, TERN_INVALID,
                     "needs the tenants that it may ask for, NAME+NAME");
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

        if (value_parse(s, value != NULL ? value : "", ret, reason) != TERN_OK)
            return fail_with(why, CONFIG_WHY_BYTES, TERN_INVALID, "%s: %s, not \"%.80s\"", s->key,
                             reason, value != NULL ? value : "");
    }
    wrong = config_peer_wrong(ret);
    if (wrong != NULL)
        return fail_with(why, CONFIG_WHY_BYTES, TERN_INVALID, "%s", wrong);
    if (config_peer_tenants(config, text->tenants != NULL ? text->tenants : "", &ret->tenants,
                            reason) == TERN_OK)
        return TERN_OK;
    return fail_with(why, CONFIG_WHY_BYTES, TERN_INVALID, "tenants: %s", reason);
}

const char *config_peer_origin(const struct config_peer *peer)
{
    if (!peer->by_operator)
        return "file";
    return peer->by_member ? "membership" : "operator";
}
