/* The contents of the words of pages (bytes.c). */
#ifndef SIM_BYTES_H
#define SIM_BYTES_H

#include "sim.h"

/* The holder of a word: a rank of a pool that lies on `ranks` ranks. */
struct holder {
    uint32_t daemon, group, ranks, rank;
};

/* The part of the prefix that the rank holds. */
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
/* The prefix in all ranks together. Returns false if ranks that should have equal data do not. */
bool tag_prefix(struct sim *w, uint32_t d, const struct token_at *at, uint32_t *ret);

#endif
