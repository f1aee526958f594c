/* The 128-bit hash of a namespace in the core, between daemons and to subscribers. It is the same
 * on every daemon, so the function must not change within a wire version. */
#ifndef WIRE_NAMESPACE_H
#define WIRE_NAMESPACE_H

#include <stdint.h>

#define WIRE_NAMESPACE_PARTS 5 /* model, revision, kv_dtype, lora, salt */

/* NULL is "". */
void wire_namespace(const char *const parts[WIRE_NAMESPACE_PARTS], uint64_t *ret_hi,
                    uint64_t *ret_lo);

#endif
