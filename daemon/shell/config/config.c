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
    config_destroy(l->config);
    free(l);
}

static enum tern_err finish(struct loader *l, struct config **ret)
{
    TRY(config_resolve(l));
    config_derive(l);
    TRY(config_check(l));
    *ret = l->config;
    l->config = NULL;
    return TERN_OK;
}

static enum tern_err read_file(struct loader *l, uint8_t **ret_bytes, size_t *ret_n)
{
    FILE *file = fopen(l->config->file, "rbe");
    uint8_t *bytes = NULL;
    size_t n;

    if (file == NULL)
        return loader_fail(l, ORIGIN_DEFAULT, "", -1, NULL, "%s: %s", l->config->file,
                           strerror(errno));
    bytes = malloc(CONFIG_FILE_MAX + 1);
    n = bytes == NULL ? 0 : fread(bytes, 1, CONFIG_FILE_MAX + 1, file);
    if (bytes == NULL || ferror(file) || n > CONFIG_FILE_MAX) {
        const char *what = bytes == NULL  ? "out of memory"
                           : ferror(file) ? strerror(errno)
                                          : "larger than 16 MiB";

        fclose(file);
        free(bytes);
        return loader_fail(l, ORIGIN_DEFAULT, "", -1, NULL, "%s: %s", l->config->file, what);
    }
    fclose(file);
    *ret_bytes = bytes;
    *ret_n = n;
    return TERN_OK;
}

static enum tern_err load(int argc, char **argv, struct loader *l, uint8_t **ret_bytes)
{
    l->config->argc = argc;
    l->config->argv = argv;
    TRY(flags_read(argc, argv, l, true));
    if (l->config->file[0] != '\0') {
        TRY(read_file(l, ret_bytes, &l->text_bytes));
        l->file_name = l->config->file;
        l->text = *ret_bytes;
        TRY(yaml_load(l));
    }
    return flags_read(argc, argv, l, false);
}

enum tern_err config_load(int argc, char **argv, struct config **ret, char *why, size_t why_cap)
{
    struct loader *l;
    uint8_t *bytes = NULL;
    enum tern_err err = loader_create(&l, why, why_cap);

    if (err == TERN_OK)
        err = load(argc, argv, l, &bytes);
    if (err == TERN_OK)
        err = finish(l, ret);
    free(bytes);
    loader_destroy(l);
    return err;
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
    if (err == TERN_OK)
        err = finish(l, ret);
    loader_destroy(l);
    return err;
}

void config_destroy(struct config *config)
{
    free(config);
}
