/* The few things that the benchmarks do with JSON beyond jansson's own calls. */
#ifndef ENGINE_JSON_H
#define ENGINE_JSON_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

/* Prints one object on standard output as one line, keys in the order they were set. Returns 0, or
 * -1 if it cannot be written. */
int json_print(const json_t *object);

/* A number rounded to a readable number of digits, so that no report shows 17 of them. */
json_t *json_figure(double value);

void json_put_u64(json_t *object, const char *key, uint64_t value);
void json_put_f64(json_t *object, const char *key, double value);

/* The unsigned number at object[key]; 0 if it is missing or not a number. */
uint64_t json_get_u64(const json_t *object, const char *key);

/* The value at a path such as "peers.0.tls.version" of keys and list indices; NULL: none. */
json_t *json_at(const json_t *root, const char *path);
/* Returns true if object[key] is that text. */
bool json_says(const json_t *object, const char *key, const char *text);
/* The object of that list whose `key` is that text; NULL: none. */
json_t *json_row(const json_t *list, const char *key, const char *text);

#endif
