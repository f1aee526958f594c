/* Loads a configuration: reads the file and the flags, derives settings without a value, checks
 * all, and returns the configuration whole or not at all. See config.h. */
#include "shell/config/config.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/err.h"
#include "shell/config/config_table.h"

static enum tern_err loader_create(struct loader **ret, char *why, size_t why_cap)
{
    struct loader *l = *ret = calloc(1, sizeof *l);
    char reason[REASON_BYTES];

    if (l == NULL)
        return fail_with(why, why_cap, TERN_INVALID, "out of memory");
    l->why = why;
    l->why_cap = why_cap;
    l->file_name = "";
    l->config = calloc(1, sizeof *l->config);
    if (l->config == NULL)
        return loader_fail(l, ORIGIN_DEFAULT, "", -1, NULL, "out of memory");
    for (size_t i = 0; i < config_settings_n; i++)
        if (config_settings[i].initial != NULL)
            check(value_parse(&config_settings[i], config_settings[i].initial, l->config, reason) ==
                  TERN_OK);
    return TERN_OK;
}

static void loader_destroy(struct loader *l)
{
    if (l == NULL)
        return;
    for (uint32_t i = 0; i < CONFIG_PEERS_MAX; i++)
        free(l->peer_tenants[i]);
    free(l->file_bytes);
    config_destroy(l->config);
    free(l);
}

/* Completes and checks what was read, unless that failed, and destroys the loader. */
static enum tern_err finish(struct loader *l, enum tern_err err, struct config **ret)
{
    if (err == TERN_OK)
        err = config_resolve(l);
    if (err == TERN_OK) {
        config_derive(l);
        err = config_check(l);
    }
    if (err == TERN_OK) {
        *ret = l->config;
        l->config = NULL;
    }
    loader_destroy(l);
    return err;
}

static enum tern_err read_file(struct loader *l)
{
    FILE *file = fopen(l->config->file, "rbe");
    const char *wrong = NULL;

    if (file == NULL)
        return loader_fail(l, ORIGIN_DEFAULT, "", -1, NULL, "%s: %s", l->config->file,
                           strerror(errno));
    l->text = l->file_bytes = malloc(CONFIG_FILE_MAX + 1);
    l->text_bytes = l->text == NULL ? 0 : fread(l->file_bytes, 1, CONFIG_FILE_MAX + 1, file);
    if (l->text == NULL || ferror(file))
        wrong = l->text == NULL ? "out of memory" : strerror(errno);
    else if (l->text_bytes > CONFIG_FILE_MAX)
        wrong = "larger than 16 MiB";
    fclose(file);
    if (wrong != NULL)
        return loader_fail(l, ORIGIN_DEFAULT, "", -1, NULL, "%s: %s", l->config->file, wrong);
    l->file_name = l->config->file;
    return TERN_OK;
}

static enum tern_err load(int argc, char **argv, struct loader *l)
{
    l->config->argc = argc;
    l->config->argv = argv;
    TRY(flags_read(argc, argv, l, true));
    if (l->config->file[0] != '\0') {
        TRY(read_file(l));
        TRY(yaml_load(l));
    }
    return flags_read(argc, argv, l, false);
}

enum tern_err config_load(int argc, char **argv, struct config **ret, char *why, size_t why_cap)
{
    struct loader *l;
    enum tern_err err = loader_create(&l, why, why_cap);

    return finish(l, err == TERN_OK ? load(argc, argv, l) : err, ret);
}

enum tern_err config_load_text(const char *name, const void *bytes, size_t n, struct config **ret,
                               char *why, size_t why_cap)
{
    struct loader *l;
    enum tern_err err = loader_create(&l, why, why_cap);

    if (err == TERN_OK) {
        l->file_name = name;
        l->text = bytes;
        l->text_bytes = n;
        err = yaml_load(l);
    }
    return finish(l, err, ret);
}

void config_destroy(struct config *config)
{
    free(config);
}
