/* An open-addressed set of hashes: see prefixes.h. 0 marks an empty place, so the lowest bit of
 * what is kept is always set. */
#include "prefixes.h"

#include <stdlib.h>

#define SET_FIRST ((size_t)1 << 16)
#define SET_MAX   ((size_t)1 << 28)

static size_t place(const uint64_t *v, size_t size, uint64_t h)
{
    size_t at = (h ^ h >> 32) & (size - 1);

    while (v[at] && v[at] != h)
        at = (at + 1) & (size - 1);
    return at;
}

static bool grow(struct prefixes *s)
{
    size_t size = s->size ? s->size * 2 : SET_FIRST;
    uint64_t *v = size <= SET_MAX ? calloc(size, sizeof *v) : NULL;

    if (!v)
        return false;
    for (size_t i = 0; i < s->size; i++) {
        if (s->v[i])
            v[place(v, size, s->v[i])] = s->v[i];
    }
    free(s->v);
    s->v = v;
    s->size = size;
    return true;
}

bool prefixes_add(struct prefixes *s, uint64_t prefix, bool *ret_fresh)
{
    uint64_t h = prefix | 1;
    size_t at;

    if (s->used * 2 >= s->size && !grow(s))
        return false;
    at = place(s->v, s->size, h);
    if (ret_fresh)
        *ret_fresh = s->v[at] == 0;
    s->used += s->v[at] == 0;
    s->v[at] = h;
    return true;
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
