/* Token lists that are longer than one request may be: they go in pieces, each of which says after
 * how many tokens it goes on. What a daemon does with them is in daemon/core/session/match.c. */
#include "internal.h"

#define PIECE_REST 2048u /* bytes of a request beside its tokens and extra keys, at most */

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

uint32_t piece_taken(const struct tern_tokens *piece, uint32_t taken, uint32_t *ret_most)
{
    *ret_most = taken > 0 ? taken : 2 * piece->n;
    return taken > 0 ? taken : piece->n;
}
