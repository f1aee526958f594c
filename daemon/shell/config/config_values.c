/* Reads and prints one value by its kind. YAML and flags both use this file, so both accept the
 * same texts. Invariant: the text that config_print writes is read as the same value. */
#include <inttypes.h>
#include <stdarg.h>
#include <string.h>

#include "base/err.h"
#include "proto/host_name.h"
#include "shell/config/config_table.h"

#define NAME_CHARS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_."
#define MODE_MAX   0777u

#define fail(reason, ...) fail_with(reason, REASON_BYTES, TERN_INVALID, __VA_ARGS__)

/* Reads digits of `base` up to *ret_end, without sign, blank or 0x. Returns false for no digits or
 * more than 64 bits. */
static bool digits(const char *text, uint32_t base, uint64_t *ret, const char **ret_end)
{
    const char *c = text;
    uint64_t v = 0;

    for (; *c >= '0' && (uint32_t)(*c - '0') < base; c++)
        if (__builtin_mul_overflow(v, base, &v) ||
            __builtin_add_overflow(v, (uint64_t)(*c - '0'), &v))
            return false;
    *ret = v;
    *ret_end = c;
    return c != text;
}

static void store(void *field, size_t size, uint64_t value)
{
    if (size == sizeof(uint16_t))
        *(uint16_t *)field = (uint16_t)value;
    else if (size == sizeof(uint32_t))
        *(uint32_t *)field = (uint32_t)value;
    else
        *(uint64_t *)field = value;
}

static uint64_t fetch(const void *field, size_t size)
{
    if (size == sizeof(uint16_t))
        return *(const uint16_t *)field;
    if (size == sizeof(uint32_t))
        return *(const uint32_t *)field;
    return *(const uint64_t *)field;
}

/* "K", "KB" and "KiB" all mean 1024; "" and "B" mean 1. */
static bool suffix_shift(const char *suffix, uint32_t *ret)
{
    static const char letters[] = "KMGT";
    const char *letter = *suffix == '\0' ? NULL : strchr(letters, *suffix);

    *ret = 0;
    if (letter != NULL) {
        *ret = 10 * (uint32_t)(letter - letters + 1);
        suffix++;
        if (strcmp(suffix, "iB") == 0)
            return true;
    }
    return *suffix == '\0' || strcmp(suffix, "B") == 0;
}

static enum tern_err parse_number(const struct setting *s, const char *text, void *field,
                                  char reason[REASON_BYTES])
{
    uint32_t shift = 0;
    const char *end;
    uint64_t value;
    bool ok = digits(text, 10, &value, &end);

    if (ok && s->kind == VALUE_BYTES)
        ok = suffix_shift(end, &shift) && value <= UINT64_MAX >> shift;
    else if (ok)
        ok = *end == '\0';
    if (!ok)
        return fail(reason, "%s",
                    s->kind == VALUE_BYTES
                        ? "must be a number of bytes, with K, M, G or T for powers of 1024"
                        : "must be a whole number");
    value <<= shift;
    if (value < s->min || value > s->max)
        return fail(reason, "must be from %" PRIu64 " to %" PRIu64, s->min, s->max);
    store(field, s->size, value);
    return TERN_OK;
}

static enum tern_err parse_mode(const char *text, void *field, char reason[REASON_BYTES])
{
    const char *end;
    uint64_t mode;

    if (!digits(text, 8, &mode, &end) || *end != '\0' || mode > MODE_MAX)
        return fail(reason, "must be an octal file mode such as 0660");
    *(uint32_t *)field = (uint32_t)mode;
    return TERN_OK;
}

static enum tern_err parse_bool(const char *text, void *field, char reason[REASON_BYTES])
{
    static const char *const yes[] = {"true", "yes", "on"}, *const no[] = {"false", "no", "off"};

    for (size_t i = 0; i < 3; i++)
        if (strcmp(text, yes[i]) == 0 || strcmp(text, no[i]) == 0) {
            *(bool *)field = strcmp(text, yes[i]) == 0;
            return TERN_OK;
        }
    return fail(reason, "must be true or false");
}

static enum tern_err parse_name(const struct setting *s, const char *text, void *field,
                                char reason[REASON_BYTES])
{
    if (*text == '\0' || strlen(text) >= s->size || text[strspn(text, NAME_CHARS)] != '\0')
        return fail(reason, "must be 1 to 63 of the characters a-z A-Z 0-9 - _ .");
    memset(field, 0, s->size);
    memcpy(field, text, strlen(text));
    return TERN_OK;
}

static enum tern_err parse_path(const struct setting *s, const char *text, void *field,
                                char reason[REASON_BYTES])
{
    if (text[0] != '/' || text[1] == '\0')
        return fail(reason, "must be an absolute path");
    if (strlen(text) >= s->size)
        return fail(reason, "must be shorter than %zu bytes", s->size);
    for (const char *c = text; *c != '\0'; c++)
        if ((unsigned char)*c < ' ' || *c == 0x7f)
            return fail(reason, "must not contain control characters");
    memset(field, 0, s->size);
    memcpy(field, text, strlen(text));
    return TERN_OK;
}

/* HOST:PORT; an IPv6 address in brackets. Empty means "not configured" where that is allowed. */
static enum tern_err parse_endpoint(const struct setting *s, const char *text, void *field,
                                    char reason[REASON_BYTES])
{
    static const char wanted[] =
        "must be HOST:PORT, with a port of at most 65535 and an IPv6 address in [brackets]";
    struct config_endpoint e = {.port = 0};
    const char *host = text, *end = strrchr(text, ':'), *number_end;
    uint64_t port;
    size_t n;

    if (*text == '\0' && s->initial != NULL) {
        *(struct config_endpoint *)field = e;
        return TERN_OK;
    }
    if (end == NULL || !digits(end + 1, 10, &port, &number_end) || *number_end != '\0' ||
        port > UINT16_MAX)
        return fail(reason, "%s", wanted);
    n = (size_t)(end - host);
    if (*host == '[') {
        if (n < 2 || host[n - 1] != ']')
            return fail(reason, "%s", wanted);
        host++;
        n -= 2;
    } else if (memchr(host, ':', n) != NULL) {
        return fail(reason, "%s", wanted);
    }
    if (n >= sizeof e.host)
        return fail(reason, HOST_NAME_WANTED);
    memcpy(e.host, host, n);
    if (!host_name_ok(e.host))
        return fail(reason, HOST_NAME_WANTED);
    e.port = (uint16_t)port;
    *(struct config_endpoint *)field = e;
    return TERN_OK;
}

static enum tern_err parse_transport(const char *text, void *field, char reason[REASON_BYTES])
{
    static const char words[] = "must be one of these:"
#define X(name, word, by_paths) " " word
        XFER_TRANSPORT_TABLE(X);
#undef X

    for (size_t i = 0; i < XFER_TRANSPORTS; i++)
        if (strcmp(text, xfer_transport_kind[i].word) == 0) {
            *(enum xfer_transport *)field = (enum xfer_transport)i;
            return TERN_OK;
        }
    return fail(reason, "%s", words);
}

/* A number, or `auto`. */
static enum tern_err parse_by_port(const struct setting *s, const char *text, void *field,
                                   char reason[REASON_BYTES])
{
    enum tern_err err = TERN_OK;

    if (strcmp(text, "auto") == 0)
        store(field, s->size, XFER_BY_PORT);
    else
        err = parse_number(s, text, field, reason);
    if (err != TERN_OK)
        strncat(reason, ", or auto", REASON_BYTES - 1 - strlen(reason));
    return err;
}

static enum tern_err parse_names(const struct setting *s, const char *text,
                                 struct config_names *field, char reason[REASON_BYTES])
{
    const struct setting name = {.size = CONFIG_NAME_BYTES};
    char copy[sizeof field->name + 1];

    memset(field, 0, s->size);
    if (strlen(text) >= sizeof copy)
        return fail(reason, "is too long");
    strcpy(copy, text);
    for (char *rest = copy, *one; strcmp(text, s->initial) != 0 && (one = strsep(&rest, "+"));) {
        char *to = field->name[field->n];

        if (field->n == s->max)
            return fail(reason, "must name at most %" PRIu64 " devices", s->max);
        TRY(parse_name(&name, one, to, reason));
        for (uint32_t i = 0; s->kind == VALUE_DEVICES && i < field->n; i++)
            if (strcmp(field->name[i], to) == 0)
                return fail(reason, "names a device twice");
        field->n++;
    }
    return TERN_OK;
}

enum tern_err value_parse(const struct setting *s, const char *text, void *base,
                          char ret_reason[REASON_BYTES])
{
    void *field = (char *)base + s->offset;

    switch (s->kind) {
    case VALUE_COUNT:
    case VALUE_BYTES: return parse_number(s, text, field, ret_reason);
    case VALUE_MODE: return parse_mode(text, field, ret_reason);
    case VALUE_BOOL: return parse_bool(text, field, ret_reason);
    case VALUE_NAME: return parse_name(s, text, field, ret_reason);
    case VALUE_PATH: return parse_path(s, text, field, ret_reason);
    case VALUE_ENDPOINT: return parse_endpoint(s, text, field, ret_reason);
    case VALUE_LEVEL:
        if (log_level_parse(text, field))
            return TERN_OK;
        return fail(ret_reason, "must be error, warn, info or debug");
    case VALUE_TRANSPORT: return parse_transport(text, field, ret_reason);
    case VALUE_DEVICES:
    case VALUE_NICS: return parse_names(s, text, field, ret_reason);
    case VALUE_BY_PORT: return parse_by_port(s, text, field, ret_reason);
    }
    return fail(ret_reason, "has a kind that nobody reads");
}

/* A buffer being filled; text that does not fit is dropped. */
struct text {
    char *at;
    size_t left; /* with the NUL */
};

__attribute__((format(printf, 2, 3))) static void put(struct text *t, const char *format, ...)
{
    va_list args;
    size_t n;

    va_start(args, format);
    n = (size_t)vsnprintf(t->at, t->left, format, args);
    va_end(args);
    n = n < t->left ? n : t->left - 1;
    t->at += n;
    t->left -= n;
}

static void put_names(struct text *out, const struct setting *s, const struct config_names *field)
{
    put(out, "\"%s", field->n == 0 ? s->initial : "");
    for (uint32_t i = 0; i < field->n; i++)
        put(out, "%s%s", i ? "+" : "", field->name[i]);
    put(out, "\"");
}

/* In YAML's double quotes, backslash and quote escaped; checked values need no other escape. A file
 * or tenant without a name has no text. */
static void put_quoted(struct text *out, const char *text)
{
    if (*text == '\0')
        return;
    put(out, "\"");
    for (; *text != '\0'; text++)
        put(out, "%s%c", *text == '"' || *text == '\\' ? "\\" : "", *text);
    put(out, "\"");
}

static void put_endpoint(struct text *out, const struct config_endpoint *e)
{
    bool brackets = strchr(e->host, ':') != NULL;

    if (e->host[0] == '\0')
        put(out, "\"\"");
    else
        put(out, "\"%s%s%s:%u\"", brackets ? "[" : "", e->host, brackets ? "]" : "", e->port);
}

void value_text(const struct setting *s, const void *base, char *ret, size_t cap)
{
    const void *field = (const char *)base + s->offset;
    struct text out = {ret, cap};

    ret[0] = '\0';
    switch (s->kind) {
    case VALUE_COUNT:
    case VALUE_BYTES: put(&out, "%" PRIu64, fetch(field, s->size)); break;
    case VALUE_MODE: put(&out, "%04o", *(const uint32_t *)field); break;
    case VALUE_BOOL: put(&out, "%s", *(const bool *)field ? "true" : "false"); break;
    case VALUE_NAME:
    case VALUE_PATH: put_quoted(&out, field); break;
    case VALUE_ENDPOINT: put_endpoint(&out, field); break;
    case VALUE_LEVEL: put(&out, "%s", log_level_name(*(const enum log_level *)field)); break;
    case VALUE_TRANSPORT:
        put(&out, "%s", xfer_transport_kind[*(const enum xfer_transport *)field].word);
        break;
    case VALUE_DEVICES:
    case VALUE_NICS: put_names(&out, s, field); break;
    case VALUE_BY_PORT:
        if (*(const uint32_t *)field == XFER_BY_PORT)
            put(&out, "auto");
        else
            put(&out, "%" PRIu32, *(const uint32_t *)field);
        break;
    }
}
