/* The trace reader: see trace.h. A malformed line ends the run with its number: a replay that
 * skipped lines would report figures of another workload. */
#include "trace.h"

#include <errno.h>
#include <jansson.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>

bool trace_open(struct trace *t, const char *name, char *why)
{
    *t = (struct trace){.name = name, .file = fopen(name, "re")};
    if (!t->file)
        snprintf(why, SOURCE_WHY_BYTES, "%s: %s", name, strerror(errno));
    return t->file != NULL;
}

void trace_close(struct trace *t)
{
    if (t->file)
        fclose(t->file);
    free(t->buf);
    *t = (struct trace){0};
}

__attribute__((format(printf, 3, 4))) static int bad(const struct trace *t, char *why,
                                                     const char *format, ...)
{
    int n = snprintf(why, SOURCE_WHY_BYTES, "%s:%llu: ", t->name, (unsigned long long)t->line);
    va_list args;

    va_start(args, format);
    if (n > 0 && n < SOURCE_WHY_BYTES)
        vsnprintf(why + n, SOURCE_WHY_BYTES - (size_t)n, format, args);
    va_end(args);
    return -1;
}

/* Reads the integer at object[key] in [least, most]; a missing one is `missing`, or an error if
 * that is negative. */
static int get_number(const struct trace *t, const json_t *object, const char *key,
                      json_int_t least, json_int_t most, json_int_t missing, json_int_t *ret,
                      char *why)
{
    const json_t *v = json_object_get(object, key);

    if (!v && missing >= 0) {
        *ret = missing;
        return 0;
    }
    if (!v)
        return bad(t, why, "\"%s\" is missing", key);
    if (!json_is_integer(v) || json_integer_value(v) < least || json_integer_value(v) > most)
        return bad(t, why, "\"%s\" must be an integer from %lld to %lld", key, (long long)least,
                   (long long)most);
    *ret = json_integer_value(v);
    return 0;
}

static int take_ids(const struct trace *t, const json_t *object, struct prompt *p, char *why)
{
    const json_t *ids = json_object_get(object, "hash_ids");
    size_t n = json_array_size(ids), most = (p->input_length + p->block_size - 1) / p->block_size;

    if (!json_is_array(ids))
        return bad(t, why, "\"hash_ids\" must be an array");
    if (n > most)
        return bad(t, why, "%zu \"hash_ids\" are more than the %zu blocks of the prompt", n, most);
    prompt_reserve(p, (uint32_t)n);
    for (size_t i = 0; i < n; i++) {
        const json_t *id = json_array_get(ids, i);

        if (!json_is_integer(id) || json_integer_value(id) < 0)
            return bad(t, why, "\"hash_ids\"[%zu] must be an integer from 0", i);
        p->ids[i] = (uint64_t)json_integer_value(id);
    }
    p->nblocks = (uint32_t)n;
    return 0;
}

static int take_fields(const struct trace *t, const json_t *object, struct prompt *p, char *why)
{
    json_int_t stamp, input, output, block;

    if (!json_is_object(object))
        return bad(t, why, "a line must be one JSON object");
    if (get_number(t, object, "timestamp", 0, INT64_MAX / 1000, 0, &stamp, why) ||
        get_number(t, object, "input_length", 1, PROMPT_TOKENS_MAX, -1, &input, why) ||
        get_number(t, object, "output_length", 0, INT32_MAX, 0, &output, why) ||
        get_number(t, object, "block_size", 1, BLOCK_TOKENS_MAX, BLOCK_DEFAULT, &block, why))
        return -1;
    p->timestamp_ms = (uint64_t)stamp;
    p->input_length = (uint32_t)input;
    p->output_length = (uint32_t)output;
    p->block_size = (uint32_t)block;
    return take_ids(t, object, p, why);
}

/* Returns 1: a line that is not empty; 0: the end; -1: too long. */
static int read_line(struct trace *t, size_t *ret_n, char *why)
{
    for (;;) {
        ssize_t n = getline(&t->buf, &t->cap, t->file);

        if (n < 0)
            return ferror(t->file) ? bad(t, why, "%s", strerror(errno)) : 0;
        t->line++;
        if ((size_t)n > TRACE_LINE_MAX)
            return bad(t, why, "the line is longer than %u bytes", TRACE_LINE_MAX);
        if (strspn(t->buf, " \t\r\n") == (size_t)n)
            continue;
        *ret_n = (size_t)n;
        return 1;
    }
}

int trace_next(struct trace *t, struct prompt *p, char *why)
{
    json_error_t err;
    json_t *object;
    size_t n = 0;
    int got = read_line(t, &n, why);

    if (got <= 0)
        return got;
    object = json_loadb(t->buf, n, JSON_REJECT_DUPLICATES, &err);
    if (!object)
        return bad(t, why, "not JSON: %s", err.text);
    got = take_fields(t, object, p, why);
    json_decref(object);
    return got < 0 ? -1 : 1;
}
