/* See admin.h. */
#include "shell/admin/admin.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/shown.h"

#define ARG_BYTES 41 /* of an argument, in an answer */

static bool number(const char *text, uint32_t max, uint32_t *ret)
{
    uint64_t v = strtoull(text, NULL, 10); /* ULLONG_MAX if too large */

    if (*text == '\0' || text[strspn(text, "0123456789")] != '\0' || v > max)
        return false;
    *ret = (uint32_t)v;
    return true;
}

static enum tern_err unknown(const char *command, const char *arg, const struct admin_arg *takes,
                             size_t ntakes, char why[ADMIN_WHY_BYTES])
{
    char key[ARG_BYTES], name[ARG_BYTES];
    size_t at;

    shown(key, sizeof key, arg);
    shown(name, sizeof name, command);
    at = (size_t)snprintf(why, ADMIN_WHY_BYTES, "%s takes no '%.*s': it takes", name,
                          (int)strcspn(key, "="), key);
    for (size_t i = 0; i < ntakes && at < ADMIN_WHY_BYTES; i++)
        at += (size_t)snprintf(why + at, ADMIN_WHY_BYTES - at, "%s %s=", i > 0 ? "," : "",
                               takes[i].key);
    if (ntakes == 0)
        snprintf(why + at, ADMIN_WHY_BYTES - at, " no argument");
    return TERN_INVALID;
}

enum tern_err admin_args(const char *command, char *const *args, size_t nargs,
                         const struct admin_arg *takes, size_t ntakes, char why[ADMIN_WHY_BYTES])
{
    for (size_t i = 0; i < nargs; i++) {
        size_t n = strcspn(args[i], "="), k = 0;
        char value[ARG_BYTES];

        while (k < ntakes && (args[i][n] != '=' || strlen(takes[k].key) != n ||
                              strncmp(args[i], takes[k].key, n) != 0))
            k++;
        if (k == ntakes)
            return unknown(command, args[i], takes, ntakes, why);
        if (!takes[k].number) {
            *takes[k].text = args[i] + n + 1;
        } else if (!number(args[i] + n + 1, takes[k].max, takes[k].number)) {
            shown(value, sizeof value, args[i] + n + 1);
            return admin_refuse(why, TERN_INVALID, "%s=%s: that is no number from 0 to %u",
                                takes[k].key, value, takes[k].max);
        }
    }
    return TERN_OK;
}
