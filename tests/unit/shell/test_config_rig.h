/* Helpers of the configuration tests: reading a text and comparing the result. Header only. */
#ifndef TEST_CONFIG_RIG_H
#define TEST_CONFIG_RIG_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shell/config/config.h"
#include "testing/test.h"

#define TENANT "tenants:\n  - name: default\n    socket: /tmp/t.sock\n    memory: 64M\n"

static inline enum tern_err load_text(const char *text, struct config **ret,
                                      char why[CONFIG_WHY_BYTES])
{
    why[0] = '\0';
    return config_load_text("t.yaml", text, strlen(text), ret, why, CONFIG_WHY_BYTES);
}

/* The text is refused, with `why` starting like `at` and containing `words`. */
static inline void refused(const char *text, const char *at, const char *words)
{
    char why[CONFIG_WHY_BYTES];
    struct config *config = NULL;

    assert_int_equal(load_text(text, &config, why), TERN_INVALID);
    assert_null(config);
    if (strncmp(why, at, strlen(at)) != 0 || strstr(why, words) == NULL)
        fail_msg("wanted \"%s ... %s ...\", got \"%s\"", at, words, why);
    assert_null(strchr(why, '\n'));
}

/* Configurations that the case has read, and the text that it has written; freed when it ends. */
static struct config *configs[4];
static uint32_t nconfigs;
static char *texts[3];
static uint32_t ntexts;
static size_t text_bytes;

FIXTURE(drop_all)
{
    while (nconfigs > 0)
        config_destroy(configs[--nconfigs]);
    while (ntexts > 0)
        free(texts[--ntexts]);
    return 0;
}

TEST_EACH(NULL, drop_all);

/* After its close, the text is texts[ntexts - 1]. */
static inline FILE *text_begin(void)
{
    return open_memstream(&texts[ntexts++], &text_bytes);
}

static inline char *printed(const struct config *config)
{
    FILE *out = text_begin();

    config_print(config, out);
    fclose(out);
    return texts[ntexts - 1];
}

static inline struct config *accepted(const char *text)
{
    char why[CONFIG_WHY_BYTES];

    if (load_text(text, &configs[nconfigs], why) != TERN_OK)
        fail_msg("refused: %s", why);
    return configs[nconfigs++];
}

/* Equal except for the origin of settings: a printed file sets everything. */
static inline void assert_same(struct config *a, struct config *b)
{
    memset(a->given, 0, sizeof a->given);
    memset(b->given, 0, sizeof b->given);
    a->spill_parts = b->spill_parts = 0;
    assert_memory_equal(a, b, sizeof *a);
}

#endif
