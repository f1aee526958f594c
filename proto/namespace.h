/* The 128 bits that stand for a namespace in the core, between daemons and to subscribers: the same
 * on every daemon, so no part of it may change within a wire version. */
#ifndef WIRE_NAMESPACE_H
#define WIRE_NAMESPACE_H

#include <stdint.h>

#define WIRE_NAMESPACE_PARTS 5 /* model, revision, kv_dtype, lora, salt */

/* NULL is "". */
void wire_namespace(const char *const parts[WIRE_NAMESPACE_PARTS], uint64_t *ret_hi,
                    uint64_t *ret_lo);

#endif
