/* Readers of the daemon's answers. */
#include "ctl.h"

uint64_t j_u64(const json_t *object, const char *key)
{
    const json_t *v = json_object_get(object, key);

    return json_is_integer(v) ? (uint64_t)json_integer_value(v) : 0;
}

double j_f64(const json_t *object, const char *key)
{
    const json_t *v = json_object_get(object, key);

    return json_is_number(v) ? json_number_value(v) : 0;
}

const char *j_str(const json_t *object, const char *key)
{
    const json_t *v = json_object_get(object, key);

    return json_is_string(v) ? json_string_value(v) : "-";
}

bool j_bool(const json_t *object, const char *key)
{
    return json_is_true(json_object_get(object, key));
}
