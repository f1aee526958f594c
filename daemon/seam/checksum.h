/* X7: the checksum of a unit is XXH3-64 over the XXH3-64 values (little-endian) of its 4 KiB sub-blocks; the
 * last sub-block may be short. The same on the wire, on disk, on the CPU and in a kernel. A receiver hashes
 * each sub-block as soon as it is complete, while it is in cache. */
#ifndef SEAM_CHECKSUM_H
#define SEAM_CHECKSUM_H

#include <stddef.h>
#include <stdint.h>

#define CHECKSUM_BLOCK 4096

uint64_t checksum_unit(const void *bytes, size_t n);

#endif
