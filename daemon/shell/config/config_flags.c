/* Command-line flags, parsed by argp: flags of the table of settings, and the others: --config,
 * --check-config, --plan and the lists --tenant and --peer. argp itself answers --help, --usage,
 * --version and unknown flags. */
#include <argp.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <tern_version.h>

#include "base/check.h"
#include "base/err.h"
#include "shell/config/config_table.h"

#define KEY_SETTING 0x1000 /* plus the setting's index; no character, so no short form */
#define KEY_CONFIG  'c'
#define KEY_CHECK   0x2000
#define KEY_TENANT  0x2001
#define KEY_PEER    0x2002
#define KEY_PLAN    0x2003
#define ENTRY_BYTES 2048
#define EXIT_CONFIG 2 /* exit status of argp's errors, as of any error of the configuration */

const char *argp_program_version TERN_ARGP = "ternd " TERN_VERSION;

struct pass {
    struct loader *loader;
    bool first; /* read only the flags that choose the file */
    enum tern_err err;
};

static enum tern_err entry_set(struct loader *l, const char *list, uint32_t slot, const char *key,
                               const char *value)
{
    char names[ENTRY_BYTES], *rest = NULL;
    size_t field = loader_field(l, list, key);
    const char *retired = loader_retired(list, key);

    if (field == ENTRY_ITSELF)
        return loader_fail(l, ORIGIN_FLAG, list, (int)slot, key, "%s",
                           retired ? retired : "unknown key");
    if (field != PEER_NAMES)
        return loader_entry_set(l, list, slot, field, value);
    snprintf(names, sizeof names, "%s", value);
    for (char *name = strtok_r(names, "+", &rest); name != NULL; name = strtok_r(NULL, "+", &rest))
        TRY(loader_peer_tenant(l, slot, name));
    return TERN_OK;
}

/* Reads key=value,key=value. */
static enum tern_err list_flag(struct loader *l, const char *list, const char *arg)
{
    char text[ENTRY_BYTES], *rest = NULL;
    uint32_t slot;

    if (strlen(arg) >= sizeof text)
        return loader_fail(l, ORIGIN_FLAG, list, -1, NULL, "longer than %zu bytes",
                           sizeof text - 1);
    strcpy(text, arg);
    TRY(loader_entry_add(l, list, ORIGIN_FLAG, &slot));
    for (char *part = strtok_r(text, ",", &rest); part != NULL; part = strtok_r(NULL, ",", &rest)) {
        char *value = strchr(part, '=');

        if (value == NULL)
            return loader_fail(l, ORIGIN_FLAG, list, (int)slot, part,
                               "has no value: write %s=VALUE", part);
        *value++ = '\0';
        TRY(entry_set(l, list, slot, part, value));
    }
    return TERN_OK;
}

static error_t parse_flag(int key, char *arg, struct argp_state *state)
{
    struct pass *p = state->input;
    struct loader *l = p->loader;

    switch (key) {
    case KEY_CONFIG:
        if (strlen(arg) < sizeof l->config->file)
            strcpy(l->config->file, arg);
        else
            p->err = loader_fail(l, ORIGIN_FLAG, "", -1, "config", "path too long");
        break;
    case KEY_CHECK: l->config->check_only = true; break;
    case KEY_PLAN: l->config->plan_only = true; break;
    case KEY_TENANT:
    case KEY_PEER:
        if (!p->first)
            p->err = list_flag(l, key == KEY_TENANT ? "tenants" : "peers", arg);
        break;
    case ARGP_KEY_ARG:
        p->err = loader_fail(l, ORIGIN_FLAG, "", -1, NULL, "%s: ternd takes only flags, see --help",
                             arg);
        break;
    default:
        if (key < KEY_SETTING || (size_t)(key - KEY_SETTING) >= config_settings_n)
            return ARGP_ERR_UNKNOWN;
        if (!p->first) /* a bool flag without a value means true */
            p->err =
                loader_set(l, (size_t)(key - KEY_SETTING), arg == NULL ? "true" : arg, ORIGIN_FLAG);
    }
    return p->err == TERN_OK ? 0 : EINVAL;
}

static const char *const forms[] = {
#define X(NAME, form) [VALUE_##NAME] = form,
    VALUE_TABLE(X)
#undef X
};

#define NAME_BYTES 64
#define DOC_BYTES  256
#define KEYS_BYTES 512

struct options {
    struct argp_option v[SETTINGS_MAX + 8];
    char name[SETTINGS_MAX][NAME_BYTES]; /* as in the file: SECTION.KEY, or KEY */
    char doc[SETTINGS_MAX][DOC_BYTES];
    char tenant[KEYS_BYTES], peer[KEYS_BYTES]; /* keys of their entries */
};

static void keys_list(char ret[KEYS_BYTES], const char *what, const struct setting *fields,
                      size_t n, const char *more)
{
    int at = snprintf(ret, KEYS_BYTES, "One more %s: ", what);

    for (size_t f = 0; f < n; f++) {
        at += snprintf(ret + at, KEYS_BYTES - (size_t)at, "%s%s", f ? ", " : "", fields[f].key);
        check(at < KEYS_BYTES);
    }
    at += snprintf(ret + at, KEYS_BYTES - (size_t)at, "%s", more);
    check(at < KEYS_BYTES);
}

static void options_build(struct options *o)
{
    const struct argp_option others[] = {
        {"config", KEY_CONFIG, "FILE", 0, "YAML file with settings; flags override it", 1},
        {"check-config", KEY_CHECK, NULL, 0,
         "Print the configuration in force and exit; status 0 only if it is valid, the TLS files "
         "are usable, the sockets' folders writable and `listen` can be bound; names that do not "
         "resolve are reported. Not checked: ports in use, free memory, RDMA devices, GPUs",
         1},
        {"plan", KEY_PLAN, NULL, 0,
         "Print what the configuration needs of a host and exit: memory, memory locked for RDMA, "
         "rails, descriptors. This runs on any machine",
         1},
        {"tenant", KEY_TENANT, "KEY=VALUE,...", 0, o->tenant, 1},
        {"peer", KEY_PEER, "KEY=VALUE,...", 0, o->peer, 1},
    };
    size_t n = sizeof others / sizeof *others;
    const char *section = "";
    int group = 1;

    memset(o, 0, sizeof *o);
    keys_list(o->tenant, "tenant", config_tenant_fields, TENANT_FIELDS, "");
    keys_list(o->peer, "peer", config_peer_fields, PEER_FIELDS, ", tenants=NAME+NAME");
    memcpy(o->v, others, sizeof others);
    for (size_t i = 0; i < config_settings_n; i++) {
        const struct setting *s = &config_settings[i];
        bool has_initial = s->initial != NULL && *s->initial != '\0';

        group += strcmp(section, s->section) != 0;
        section = s->section;
        snprintf(o->name[i], NAME_BYTES, "%s%s%s", s->section, *s->section ? "." : "", s->key);
        snprintf(o->doc[i], DOC_BYTES, "%s%s%s%s%s", s->doc, has_initial ? " [" : "",
                 has_initial ? s->initial : "", has_initial ? "]" : "",
                 s->change == CHANGE_LIVE ? " (a reload changes it)" : "");
        o->v[n + i] = (struct argp_option){
            .name = o->name[i],
            .key = KEY_SETTING + (int)i,
            .arg = forms[s->kind],
            .flags = s->kind == VALUE_BOOL ? OPTION_ARG_OPTIONAL : 0,
            .doc = o->doc[i],
            .group = group,
        };
    }
}

/* Refuses flags of retired settings, for which argp knows only that they are no options. */
static enum tern_err retired_flags(struct loader *l, int argc, char **argv)
{
    char name[NAME_BYTES];

    for (int i = 1; i < argc; i++) {
        char *key = name;
        const char *section, *retired;

        if (strncmp(argv[i], "--", 2) != 0)
            continue;
        snprintf(name, sizeof name, "%.*s", (int)strcspn(argv[i] + 2, "="), argv[i] + 2);
        section = strchr(name, '.') ? strsep(&key, ".") : "";
        retired = loader_retired(section, key);
        if (retired)
            return loader_fail(l, ORIGIN_FLAG, section, -1, key, "%s", retired);
    }
    return TERN_OK;
}

enum tern_err flags_read(int argc, char **argv, struct loader *l, bool first)
{
    struct options *options;
    struct pass pass = {.loader = l, .first = first};
    error_t rc;
    struct argp argp = {
        .parser = parse_flag,
        .doc = "The Tern daemon: owns the KV pages of this host's model servers.\vSettings come "
               "from defaults, then from the file, then from flags, which are named SECTION.KEY as "
               "in the file. BYTES may end in K, M, G or T.\nExample: ternd --tenant "
               "name=default,socket=/run/tern/default.sock,memory=4G\n\nExit status: 0 after a "
               "drain, or if the checked configuration is valid; 1 if the daemon could not start; "
               "2 if a flag or the configuration is wrong. SIGSEGV, SIGBUS, SIGILL, SIGFPE or "
               "SIGABRT: a crash or a failed check, which leaves a tape.",
    };

    TRY(retired_flags(l, argc, argv));
    options = malloc(sizeof *options);
    if (options == NULL)
        return loader_fail(l, ORIGIN_DEFAULT, "", -1, NULL, "out of memory");
    options_build(options);
    argp.options = options->v;
    argp_err_exit_status = EXIT_CONFIG;
    rc = argp_parse(&argp, argc, argv, ARGP_IN_ORDER, NULL, &pass);
    if (rc != 0 && pass.err == TERN_OK)
        pass.err = loader_fail(l, ORIGIN_FLAG, "", -1, NULL, "%s",
                               rc == ENOMEM ? "out of memory" : "the flags could not be parsed");
    free(options);
    return pass.err;
}
