/* The raw baseline of `tern-bench spill`: a plain loop that writes, or reads, files of 1 MiB pieces
 * with O_DIRECT and io_uring, and syncs as often as the disk tier does. */
#ifndef BENCH_RAW_FILE_H
#define BENCH_RAW_FILE_H

#include <stdbool.h>
#include <stdint.h>

struct raw_file {
    const char *dir;     /* borrowed */
    uint64_t file_bytes; /* a multiple of 1 MiB */
    uint32_t files;
};

/* Seconds of one pass with `depth` pieces in flight, one file after the other. No pass overwrites:
 * files of earlier passes are removed before it, outside the measured time. */
bool raw_file_write(const struct raw_file *raw, uint32_t depth, double *ret_s);
bool raw_file_read(const struct raw_file *raw, uint32_t depth, double *ret_s);
void raw_file_remove(const struct raw_file *raw);

#endif
