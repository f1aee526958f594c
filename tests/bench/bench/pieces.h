/* Two processes with a region of pages each and a TCP stream between them, for `tern-bench
 * reshard`. A page is a square of pieces; in one of the regions its rows lie one behind the other,
 * in the other its columns do. So the bytes of the stream, whose order is that of one of the two,
 * lie scattered at the other end. No checksum, no protocol. */
#ifndef BENCH_PIECES_H
#define BENCH_PIECES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define PIECES_PAGE_BYTES (1u << 20)

/* How an end moves what lies scattered there: as stretches of one call, or copied through a buffer
 * that stays in cache. PLAIN: nothing is scattered. */
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

/* Of a pass, in 10^9 bytes: for each second that passed, and for each that the end which is not
 * PLAIN spent on a core (of a pass that is PLAIN, the one that receives). */
struct pieces_speed {
    double gb_s, gb_core_s;
};

/* Everything once over. */
bool pieces_pass(struct pieces *p, struct pieces_way way, struct pieces_speed *ret);
/* Pieces that the last pass has left at the wrong place. */
uint64_t pieces_wrong(const struct pieces *p, struct pieces_way way);

#endif
