/* An open-addressed set of hashes: see prefixes.h. 0 marks an empty place, so every stored hash has
 * its lowest bit set. */
#include "prefixes.h"

#include <stdlib.h>

#include "engine/proc.h"

#define SET_FIRST ((size_t)1 << 16)

static size_t place(const uint64_t *v, size_t size, uint64_t h)
{
    size_t at = (h ^ h >> 32) & (size - 1);

    while (v[at] && v[at] != h)
        at = (at + 1) & (size - 1);
    return at;
}

static void grow(struct prefixes *s)
{
    size_t size = s->size ? s->size * 2 : SET_FIRST;
    uint64_t *v = mem_need(size, sizeof *v);

    for (size_t i = 0; i < s->size; i++) {
        if (s->v[i])
            v[place(v, size, s->v[i])] = s->v[i];
    }
    free(s->v);
    s->v = v;
    s->size = size;
}

bool prefixes_add(struct prefixes *s, uint64_t prefix)
{
    uint64_t h = prefix | 1;
    bool fresh;
    size_t at;

    if (s->used * 2 >= s->size)
        grow(s);
    at = place(s->v, s->size, h);
    fresh = s->v[at] == 0;
    s->used += fresh;
    s->v[at] = h;
    return fresh;
}

bool prefixes_have(const struct prefixes *s, uint64_t prefix)
{
    return s->size > 0 && s->v[place(s->v, s->size, prefix | 1)] != 0;
}

void prefixes_finish(struct prefixes *s)
{
    free(s->v);
    *s = (struct prefixes){0};
}
