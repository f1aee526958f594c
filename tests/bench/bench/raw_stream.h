/* The raw baseline of `tern-bench transfer`: one plain TCP stream between two processes, each with
 * a populated region as large as Tern's, whose pages are visited in random order. No checksum, no
 * protocol. */
#ifndef BENCH_RAW_STREAM_H
#define BENCH_RAW_STREAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define RAW_READ_SIZES 3

extern const size_t raw_read_sizes[RAW_READ_SIZES];

struct raw_stream {
    pid_t pid;       /* the sender */
    int fd;          /* our end, owned */
    uint8_t *region; /* owned */
    uint32_t *order; /* owned */
    size_t page_bytes;
    uint32_t pages;
};

/* A connected pair over TCP on the loopback. */
bool raw_stream_pair(int ret[2]);

bool raw_stream_start(struct raw_stream *s, size_t page_bytes, uint32_t pages);
void raw_stream_stop(struct raw_stream *s);

/* Receives everything once, at most read_bytes at a time; *ret_gb_s is 10^9 bytes a second. */
bool raw_stream_pass(struct raw_stream *s, size_t read_bytes, double *ret_gb_s);

#endif
