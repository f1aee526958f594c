/* See rig_blocks.h. */
#include "rig_blocks.h"

#include <string.h>

struct tern_block_key rig_block_key(uint32_t k, uint8_t bytes[TERN_BLOCK_KEY_MAX])
{
    memset(bytes, 0, TERN_BLOCK_KEY_MAX);
    bytes[0] = (uint8_t)(k / 32 << 6);
    return (struct tern_block_key){.bytes = bytes, .n = 1 + k % 32};
}

static uint32_t word_of(uint32_t put, uint32_t i)
{
    return i == 0 ? put : (put * 2654435761u) ^ (i * 40503u);
}

void rig_block_fill(uint32_t *v, uint32_t words, uint32_t put)
{
    for (uint32_t i = 0; i < words; i++)
        v[i] = word_of(put, i);
}

uint32_t rig_block_put(const uint32_t *v, uint32_t words)
{
    for (uint32_t i = 0; i < words; i++)
        if (v[i] != word_of(v[0], i))
            return 0;
    return v[0];
}
