/* Two processes with a region of pages each and a TCP stream between them, for `tern-bench
 * reshard`. A page is a square of pieces; one region stores it row by row, the other column by
 * column. The stream has the order of one of the two, so its bytes lie scattered at the other end.
 * No checksum, no protocol. */
#ifndef BENCH_PIECES_H
#define BENCH_PIECES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define PIECES_PAGE_BYTES (1u << 20)

/* How an end moves scattered bytes: as stretches of one call, or copied through a buffer that stays
 * in cache. PLAIN: nothing is scattered. */
enum pieces_end { PIECES_PLAIN, PIECES_STRETCHES, PIECES_PACKED };

struct pieces_way {
    enum pieces_end sends, receives; /* at most one is not PLAIN */
};

struct pieces {
    pid_t pid; /* the sender */
    int fd;    /* our end, owned */
    uint8_t *region;
    uint8_t *packed; /* owned, as the region */
    size_t piece_bytes;
    uint32_t pages;
};

bool pieces_start(struct pieces *p, size_t piece_bytes, uint32_t pages);
void pieces_stop(struct pieces *p);

/* Speed of a pass in 10^9 bytes a second: by the clock, and by the core time of the end that is not
 * PLAIN (of a PLAIN pass, the receiving end). */
struct pieces_speed {
    double gb_s, gb_core_s;
};

/* Moves everything once. */
bool pieces_pass(struct pieces *p, struct pieces_way way, struct pieces_speed *ret);
/* Counts the pieces that the last pass left at the wrong place. */
uint64_t pieces_wrong(const struct pieces *p, struct pieces_way way);

#endif
