/* Token lists that are too long for one request are sent in pieces; each piece names the number of
 * tokens before it. daemon/core/session/match.c handles them. */
#include "internal.h"

#define PIECE_REST 2048u /* the most bytes of a request beside its tokens and extra keys */

_Static_assert(PIECE_REST < CLIENT_BODY_MIN, "a piece has room for tokens");

struct tern_tokens piece_of(const struct tern *t, const struct tern_tokens *all, uint32_t at,
                            uint32_t most)
{
    uint32_t room = t->socket.body_max - PIECE_REST, first = 0;
    struct tern_tokens piece = {.v = all->v + at, .n = all->n - at, .base = all->base + at};

    if (piece.n > most)
        piece.n = most;
    if (piece.n > room / sizeof(*piece.v))
        piece.n = room / (uint32_t)sizeof(*piece.v);
    while (first < all->nkeys && all->keys[first].position < piece.base)
        first++;
    for (;; piece.n /= 2) {
        piece.nkeys = 0;
        while (first + piece.nkeys < all->nkeys &&
               all->keys[first + piece.nkeys].position - piece.base < piece.n)
            piece.nkeys++;
        if (piece.n * sizeof(*piece.v) + piece.nkeys * sizeof(*piece.keys) <= room)
            break;
    }
    piece.keys = piece.nkeys ? all->keys + first : NULL;
    return piece;
}

uint32_t piece_taken(const struct tern_tokens *piece, uint32_t taken)
{
    return taken > 0 ? taken : piece->n;
}
