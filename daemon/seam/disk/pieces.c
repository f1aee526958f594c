/* See pieces.h. What could not be handed over has landed with its error. */
#include "seam/disk/pieces.h"

#include "base/check.h"
#include "seam/disk/disk.h"

void pieces_init(struct pieces *p, const struct disk_files *files, uint32_t lane, uint32_t depth,
                 uint8_t *memory)
{
    check(depth >= 1 && depth <= DISK_LANE_PIECES);
    *p = (struct pieces){.files = files, .lane = lane, .depth = depth};
    for (uint32_t i = 0; i < depth; i++)
        p->piece[i].memory = memory + (uint64_t)i * DISK_PIECE_BYTES;
}

static void landed(struct pieces *p, struct piece *piece, int res)
{
    piece->flying = false;
    piece->res = res;
    if (res < 0 && p->err == 0)
        p->err = res;
}

static void reap(struct pieces *p)
{
    uint64_t token;
    int res = p->files->reap(p->files->ctx, p->lane, &token);

    check(token < p->depth && p->piece[token].flying);
    p->flying--;
    landed(p, &p->piece[token], res);
}

struct piece *pieces_take(struct pieces *p)
{
    while (p->flying == p->depth)
        reap(p);
    for (uint32_t i = 0; i < p->depth; i++)
        if (!p->piece[i].flying)
            return &p->piece[i];
    check_failed("one of the pieces is here", __FILE__, __LINE__);
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
