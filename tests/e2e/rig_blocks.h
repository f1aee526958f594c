/* Blocks of tests whose bytes say which put they come from. */
#ifndef E2E_RIG_BLOCKS_H
#define E2E_RIG_BLOCKS_H

#include <stdint.h>

#include "tern.h"

/* Keys below 128, which differ in their last bits or in their length alone. The bytes are the
 * key's. */
struct tern_block_key rig_block_key(uint32_t k, uint8_t bytes[TERN_BLOCK_KEY_MAX]);
/* The value of a put; `put` is not 0. */
void rig_block_fill(uint32_t *v, uint32_t words, uint32_t put);
/* The put that a value is of, whole; 0: of none. */
uint32_t rig_block_put(const uint32_t *v, uint32_t words);

#endif
