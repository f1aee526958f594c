/* Fuzz target: the configuration from YAML bytes, or from a file whose settings and values the
 * bytes choose, if the first one is CHOSEN. An accepted configuration must print as a file that is
 * accepted again and prints the same. */
#include <inttypes.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "fuzz/message.h"
#include "fuzz/passed.h"
#include "shell/config/config.h"
#include "shell/config/config_table.h"

#define CHOSEN 1u

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

/* ---- a file that the bytes choose ---- */

/* A value in the setting's range, unless `how` wants a little more or less. */
static void put_value(FILE *out, const struct setting *s, struct fuzz_bytes *in)
{
    static const char *const levels[] = {"debug", "info", "warn", "error"};
    static const char units[] = {'K', 'M', ' ', 'M'};
    uint8_t how = fuzz_take(in), byte = fuzz_take(in);
    uint64_t span = s->max - s->min, v = s->min;

    switch (s->kind) {
    case VALUE_COUNT:
    case VALUE_BY_PORT:
        v += how % 4 == 0   ? byte
             : how % 4 == 1 ? (uint64_t)byte << how % 12
                            : byte % 8 * (span / 8);
        v = how >= 250 ? v : v > s->max ? s->max : v;
        fprintf(out, "%" PRIu64, v);
        break;
    case VALUE_BYTES: fprintf(out, "%u%c", byte, units[how % 4]); break;
    case VALUE_MODE: fprintf(out, "0%o", byte * 2 % 512); break;
    case VALUE_BOOL: fputs(byte % 2 ? "true" : "false", out); break;
    case VALUE_NAME: fprintf(out, "n%x", byte % 4); break;
    case VALUE_PATH: fprintf(out, "/p%x", byte); break;
    case VALUE_ENDPOINT: fprintf(out, how % 2 ? "h%x:%u" : "\"[::%x]:%u\"", byte, 1u + how); break;
    case VALUE_LEVEL: fputs(levels[byte % 4], out); break;
    case VALUE_TRANSPORT: fputs(byte % 2 ? "tcp" : "auto", out); break;
    case VALUE_DEVICES:
    case VALUE_NICS: fputs(byte % 4 ? s->initial : "d0+d1", out); break;
    }
}

static void put_fields(FILE *out, const struct setting *fields, size_t n, struct fuzz_bytes *in)
{
    for (uint32_t count = fuzz_take(in) % 4, last = 0; count > 0 && last < n; count--) {
        last += fuzz_take(in) % 4; /* ascending: without repeats */
        if (last >= n)
            break;
        if (strcmp(fields[last].key, "name") != 0 && strcmp(fields[last].key, "socket") != 0 &&
            strcmp(fields[last].key, "address") != 0 && strcmp(fields[last].key, "memory") != 0) {
            fprintf(out, "    %s: ", fields[last].key);
            put_value(out, &fields[last], in);
            fputc('\n', out);
        }
        last++;
    }
}

static void put_lists(FILE *out, struct fuzz_bytes *in)
{
    uint32_t tenants = 1 + fuzz_take(in) % 3, peers = fuzz_take(in) % 3;

    fputs("tenants:\n", out);
    for (uint32_t i = 0; i < tenants; i++) {
        fprintf(out, "  - name: t%u\n    socket: /t%u\n    memory: %uM\n", i, i,
                1u + fuzz_take(in));
        put_fields(out, config_tenant_fields, TENANT_FIELDS, in);
    }
    fputs("insecure_peers: true\n", out);
    fputs(peers ? "peers:\n" : "", out);
    for (uint32_t i = 0; i < peers; i++) {
        fprintf(out, "  - name: p%u\n    address: h%u:1\n    tenants: [t0]\n", i, i);
        put_fields(out, config_peer_fields, PEER_FIELDS, in);
    }
}

/* Required settings of a section, where one of its settings is given; the file has no `tls`. */
static const struct {
    const char *section, *text;
} needed[] = {{"spill", "  dir: /s\n  bytes: 4G\n"}, {"reserve", "  tenants: 1\n  memory: 1M\n"}};

static bool is_needed(const struct setting *s)
{
    for (size_t i = 0; i < sizeof needed / sizeof needed[0]; i++) {
        char line[64];

        snprintf(line, sizeof line, "  %s: ", s->key);
        if (strcmp(needed[i].section, s->section) == 0 && strstr(needed[i].text, line))
            return true;
    }
    return false;
}

static void open_section(FILE *out, const char *section)
{
    fprintf(out, "%s:\n", section);
    for (size_t i = 0; i < sizeof needed / sizeof needed[0]; i++)
        if (strcmp(needed[i].section, section) == 0)
            fputs(needed[i].text, out);
}

/* Settings in the order of their table, so that each section is written once. */
static void put_settings(FILE *out, struct fuzz_bytes *in)
{
    const char *section = "";

    for (size_t i = fuzz_take(in) % 8; i < config_settings_n && in->n;
         i += 1 + fuzz_take(in) % 32) {
        const struct setting *s = &config_settings[i];

        if (strcmp(s->key, "insecure_peers") == 0 || strcmp(s->key, "config") == 0 ||
            strcmp(s->section, "tls") == 0 || is_needed(s))
            continue;
        if (strcmp(section, s->section) != 0)
            open_section(out, s->section);
        section = s->section;
        fprintf(out, "%s%s: ", *section ? "  " : "", s->key);
        put_value(out, s, in);
        fputc('\n', out);
    }
}

static char *chosen_file(const uint8_t *data, size_t n)
{
    struct fuzz_bytes in = {data, n};
    char *text = NULL;
    size_t bytes;
    FILE *out = open_memstream(&text, &bytes);

    check(out);
    put_lists(out, &in);
    put_settings(out, &in);
    fclose(out);
    return text;
}

static void load(const uint8_t *data, size_t size)
{
    struct config *config = NULL, *again = NULL;
    char why[CONFIG_WHY_BYTES] = "", *first, *second;

    if (config_load_text("fuzz", data, size, &config, why, sizeof why) != TERN_OK) {
        check(config == NULL);
        check(why[0] != '\0' && memchr(why, '\0', sizeof why) != NULL);
        return;
    }
    fuzz_passed();
    first = printed(config);
    check(config_load_text("again", first, strlen(first), &again, why, sizeof why) == TERN_OK);
    second = printed(again);
    check(strcmp(first, second) == 0);
    free(first);
    free(second);
    config_destroy(config);
    config_destroy(again);
}

bool fuzz_gets_past(const uint8_t *data, size_t n)
{
    struct config *config = NULL;
    char why[CONFIG_WHY_BYTES],
        *text = n && data[0] == CHOSEN ? chosen_file(data + 1, n - 1) : NULL;
    bool ok = config_load_text("fuzz", text ? (const uint8_t *)text : data, text ? strlen(text) : n,
                               &config, why, sizeof why) == TERN_OK;

    config_destroy(config);
    free(text);
    return ok;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text;

    fuzz_begin();
    if (size == 0 || data[0] != CHOSEN) {
        load(data, size);
        return 0;
    }
    text = chosen_file(data + 1, size - 1);
    load((const uint8_t *)text, strlen(text));
    free(text);
    return 0;
}
