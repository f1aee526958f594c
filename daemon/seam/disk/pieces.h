/* The staging memory of a thread of the disk tier, as pieces in flight to or from a file. That
 * thread alone uses it. */
#ifndef SEAM_PIECES_H
#define SEAM_PIECES_H

#include "seam/disk/disk_files.h"

struct piece {
    uint8_t *memory; /* DISK_PIECE_BYTES of the staging */
    uint64_t offset, bytes;
    uint32_t file; /* the caller's index of its file */
    bool flying;
    int res; /* once it has landed: 0, or a negative errno */
};

struct pieces {
    const struct disk_files *files; /* borrowed */
    uint32_t lane, depth;
    uint32_t flying; /* pieces and blocks in flight */
    int err;         /* the first error of any since pieces_land; 0: none */
    struct piece piece[DISK_LANE_PIECES];
    uint8_t *blocks;        /* borrowed: a DISK_BLOCK for each that may fly */
    uint32_t blocks_flying; /* a bit for each */
};

/* `memory`: depth pieces. `blocks`: DISK_LANE_PIECES of DISK_BLOCK. */
void pieces_init(struct pieces *p, const struct disk_files *files, uint32_t lane, uint32_t depth,
                 uint8_t *memory, uint8_t *blocks);
/* Returns a piece that is not in flight; waits until there is one. */
struct piece *pieces_take(struct pieces *p);
/* Submits the piece; its `offset` and `bytes` say what to move. */
void pieces_send(struct pieces *p, struct piece *piece, int file, bool write);
/* Writes one block, which is copied; as many are in flight at a time as the lane has room for. */
void pieces_write_block(struct pieces *p, int file, uint64_t offset, const uint8_t *block);
void pieces_wait(struct pieces *p, const struct piece *piece); /* until it has landed */
int pieces_land(struct pieces *p); /* waits for all: 0, or the first error since the last call */

#endif
