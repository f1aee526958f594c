/* JSON helpers of the benchmarks: see json.h. */
#include "engine/json.h"

#include <math.h>
#include <stdio.h>

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
