/* Fuzz target: the configuration from YAML bytes. What is accepted must print as a file that is
 * accepted again and prints the same. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "shell/config/config.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static char *printed(const struct config *config)
{
    char *text = NULL;
    size_t n = 0;
    FILE *out = open_memstream(&text, &n);

    check(out != NULL);
    config_print(config, out);
    fclose(out);
    return text;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct config *config = NULL, *again = NULL;
    char why[CONFIG_WHY_BYTES] = "", *first, *second;

    if (config_load_text("fuzz", data, size, &config, why, sizeof why) != TERN_OK) {
        check(config == NULL);
        check(why[0] != '\0' && memchr(why, '\0', sizeof why) != NULL);
        return 0;
    }
    first = printed(config);
    check(config_load_text("again", first, strlen(first), &again, why, sizeof why) == TERN_OK);
    second = printed(again);
    check(strcmp(first, second) == 0);
    free(first);
    free(second);
    config_destroy(config);
    config_destroy(again);
    return 0;
}
