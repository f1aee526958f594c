/* Finds which rank has which part of a field: arithmetic that layout.c, plan.c, units.c and pairs.c
 * share. The layouts have passed reshard_check_layout. */
#ifndef RESHARD_HOLDS_H
#define RESHARD_HOLDS_H

#include "reshard/layout.h"

/* NULL: the field has no such axis. */
const struct reshard_axis *field_axis(const struct reshard_field *f, enum reshard_axis_kind kind);
/* The axis of heads or of channels. NULL: the field has neither. */
const struct reshard_axis *field_divided(const struct reshard_field *f);
/* NULL: no field has that name. */
const struct reshard_field *layout_field(const struct reshard_layout *l, const char *name);

/* Every field has sections here. The heads of a field are one section, whose parts are 1 wide. A
 * field without heads and channels is one section of one part. */
uint32_t field_sections(const struct reshard_field *f);
struct reshard_section field_section(const struct reshard_field *f, uint32_t k);

/* The distribution of a section over a stage's ranks: runs of `parts`, each of them on `copies`
 * neighbouring ranks. */
struct hold {
    uint32_t parts, copies;
};

/* The first part that a rank of a stage has. */
static inline uint32_t hold_first(const struct hold *s, uint32_t rank)
{
    return rank / s->copies * s->parts;
}
/* A section of a field, as the page of one rank has it. */
struct held_section {
    const struct reshard_field *f;
    struct hold hold;
    uint32_t width;  /* channels of a part */
    uint64_t before; /* channels of the page before the section */
};

struct held_section held_section(const struct reshard_layout *l, const struct reshard_field *f,
                                 uint32_t k);
/* The length of an axis in the page of one rank. */
uint64_t axis_local(const struct reshard_layout *l, const struct reshard_field *f,
                    const struct reshard_axis *a);

/* Pages of `l` in a span. A span has as many tokens as the larger page of the two layouts. */
static inline uint32_t span_pages(const struct reshard_layout *l,
                                  const struct reshard_layout *other)
{
    return other->page_tokens > l->page_tokens ? other->page_tokens / l->page_tokens : 1;
}

#endif
