/* JSON helpers of the benchmarks: see json.h. */
#include "engine/json.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int json_print(const json_t *object)
{
    if (json_dumpf(object, stdout, JSON_COMPACT | JSON_REAL_PRECISION(12)) != 0)
        return -1;
    if (putchar('\n') == EOF || fflush(stdout) != 0)
        return -1;
    return 0;
}

json_t *json_figure(double value)
{
    double scale;

    if (!isfinite(value))
        return json_null();
    if (value == 0)
        return json_real(0);
    scale = pow(10, 5 - floor(log10(fabs(value))));
    return json_real(round(value * scale) / scale);
}

void json_put_u64(json_t *object, const char *key, uint64_t value)
{
    json_object_set_new(object, key, json_integer((json_int_t)value));
}

void json_put_f64(json_t *object, const char *key, double value)
{
    json_object_set_new(object, key, json_figure(value));
}

uint64_t json_get_u64(const json_t *object, const char *key)
{
    json_int_t v = json_integer_value(json_object_get(object, key));

    return v > 0 ? (uint64_t)v : 0;
}

json_t *json_at(const json_t *root, const char *path)
{
    size_t n = strcspn(path, ".");
    char key[64];
    json_t *next;

    snprintf(key, sizeof key, "%.*s", (int)n, path);
    next = json_is_array(root) ? json_array_get(root, strtoul(key, NULL, 10))
                               : json_object_get(root, key);
    return path[n] == '.' ? json_at(next, path + n + 1) : next;
}

bool json_says(const json_t *object, const char *key, const char *text)
{
    const char *is = json_string_value(json_object_get(object, key));

    return is && strcmp(is, text) == 0;
}

json_t *json_row(const json_t *list, const char *key, const char *text)
{
    json_t *row;
    size_t i;

    json_array_foreach(list, i, row)
    {
        if (json_says(row, key, text))
            return row;
    }
    return NULL;
}
