/* See pieces.h. A piece that could not be submitted counts as landed, with the error of the
 * submission. */
#include "seam/disk/pieces.h"

#include <assert.h>
#include <string.h>

#include "base/check.h"
#include "seam/disk/disk.h"

static_assert(DISK_LANE_PIECES == 32, "a bit for each block");

/* A token identifies a piece or a block: below BLOCK_TOKEN it is the piece's number, from there on
 * BLOCK_TOKEN plus the block's number. */
#define BLOCK_TOKEN DISK_LANE_PIECES

void pieces_init(struct pieces *p, const struct disk_files *files, uint32_t lane, uint32_t depth,
                 uint8_t *memory, uint8_t *blocks)
{
    check(depth >= 1 && depth <= DISK_LANE_PIECES);
    *p = (struct pieces){.files = files, .lane = lane, .depth = depth, .blocks = blocks};
    for (uint32_t i = 0; i < depth; i++)
        p->piece[i].memory = memory + (uint64_t)i * DISK_PIECE_BYTES;
}

static void failed(struct pieces *p, int res)
{
    if (res < 0 && p->err == 0)
        p->err = res;
}

static void landed(struct pieces *p, struct piece *piece, int res)
{
    piece->flying = false;
    piece->res = res;
    failed(p, res);
}

static void reap(struct pieces *p)
{
    uint64_t token;
    int res = p->files->reap(p->files->ctx, p->lane, &token);

    p->flying--;
    if (token >= BLOCK_TOKEN) {
        check(token - BLOCK_TOKEN < DISK_LANE_PIECES);
        p->blocks_flying &= ~(1u << (token - BLOCK_TOKEN));
        failed(p, res);
        return;
    }
    check(token < p->depth && p->piece[token].flying);
    landed(p, &p->piece[token], res);
}

static struct piece *piece_here(struct pieces *p)
{
    for (uint32_t i = 0; i < p->depth; i++)
        if (!p->piece[i].flying)
            return &p->piece[i];
    return NULL;
}

struct piece *pieces_take(struct pieces *p)
{
    struct piece *piece;

    while (p->flying == DISK_LANE_PIECES || !(piece = piece_here(p)))
        reap(p);
    return piece;
}

void pieces_write_block(struct pieces *p, int file, uint64_t offset, const uint8_t *block)
{
    struct disk_piece d = {.bytes = DISK_BLOCK, .offset = offset};
    uint32_t i = 0;
    int res;

    while (p->flying == DISK_LANE_PIECES)
        reap(p);
    while (p->blocks_flying & 1u << i)
        i++;
    d.memory = memcpy(p->blocks + (size_t)i * DISK_BLOCK, block, DISK_BLOCK);
    d.token = BLOCK_TOKEN + i;
    res = p->files->submit(p->files->ctx, p->lane, file, true, &d);
    if (res < 0) {
        failed(p, res);
        return;
    }
    p->blocks_flying |= 1u << i;
    p->flying++;
}

void pieces_send(struct pieces *p, struct piece *piece, int file, bool write)
{
    struct disk_piece d = {.memory = piece->memory,
                           .bytes = piece->bytes,
                           .offset = piece->offset,
                           .token = (uint64_t)(piece - p->piece)};
    int res;

    check(!piece->flying && piece->bytes <= DISK_PIECE_BYTES);
    res = p->files->submit(p->files->ctx, p->lane, file, write, &d);
    if (res < 0) {
        landed(p, piece, res);
        return;
    }
    piece->flying = true;
    p->flying++;
}

void pieces_wait(struct pieces *p, const struct piece *piece)
{
    while (piece->flying)
        reap(p);
}

int pieces_land(struct pieces *p)
{
    int err;

    while (p->flying > 0)
        reap(p);
    err = p->err;
    p->err = 0;
    return err;
}
