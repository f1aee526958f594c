/* Copies of a block for runs that are larger than a core's cache: each byte is read once, and
 * written past the caches, so that the destination is not read first. Any thread. */
#ifndef CLIENT_BLOCK_STREAM_H
#define CLIENT_BLOCK_STREAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/checksum_blocks.h"

/* Returns true if this machine can copy to that address by block_stream. */
bool block_stream_to(const uint8_t *to);
/* Copies CHECKSUM_BLOCK bytes to `to`, and the same bytes to `between`, which is aligned to 16
 * bytes. The source may change meanwhile. `ahead`: offset from `from` of bytes that are likely to
 * be copied next. */
void block_stream(uint8_t *to, const uint8_t *from, uint8_t *between, size_t ahead);
/* Makes the copies of this thread visible to other threads before its next store. */
void block_stream_end(void);

#endif
