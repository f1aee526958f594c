/* Blocks for tests: the bytes of a value identify the put that they come from. */
#ifndef E2E_RIG_BLOCKS_H
#define E2E_RIG_BLOCKS_H

#include <stdint.h>

#include "tern.h"

/* Keys below 128, which differ only in their last bits or in their length. The key points to
 * `bytes`. */
struct tern_block_key rig_block_key(uint32_t k, uint8_t bytes[TERN_BLOCK_KEY_MAX]);
/* Makes the value of a put; `put` is not 0. */
void rig_block_fill(uint32_t *v, uint32_t words, uint32_t put);
/* Returns the put that a whole value belongs to; 0: none. */
uint32_t rig_block_put(const uint32_t *v, uint32_t words);

#endif
