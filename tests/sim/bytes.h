/* What the words of pages are (bytes.c). */
#ifndef SIM_BYTES_H
#define SIM_BYTES_H

#include "sim.h"

/* Who holds a word: that rank, of the so many that the pool lies on. */
struct holder {
    uint32_t daemon, group, ranks, rank;
};

/* What it holds of the prefix. */
struct tag_form {
    uint32_t mix, shift, mask;
};
struct tag_form tag_form(const struct sim *w, struct holder of);

static inline uint32_t tag_word(const struct tag_form *f, uint32_t prefix)
{
    return (prefix ^ f->mix) >> f->shift & f->mask;
}

/* A rank's heads may leave some of a word unused. */
static inline bool tag_is(const struct tag_form *f, uint32_t v, uint32_t prefix)
{
    return (v & f->mask) == tag_word(f, prefix);
}

/* A token's word in a page. */
struct token_at {
    uint32_t pool, group, granule, slot;
};
/* The prefix that all ranks together hold there. False: ranks that should hold the same do not. */
bool tag_prefix(struct sim *w, uint32_t d, const struct token_at *at, uint32_t *ret);

#endif
