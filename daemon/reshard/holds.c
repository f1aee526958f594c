#include "reshard/holds.h"

#include <string.h>

const struct reshard_axis *field_axis(const struct reshard_field *f, enum reshard_axis_kind kind)
{
    for (uint32_t i = 0; i < f->naxes; i++)
        if (f->axis[i].kind == kind)
            return &f->axis[i];
    return NULL;
}

const struct reshard_axis *field_divided(const struct reshard_field *f)
{
    const struct reshard_axis *heads = field_axis(f, AXIS_HEAD);

    return heads ? heads : field_axis(f, AXIS_CHANNEL);
}

const struct reshard_field *layout_field(const struct reshard_layout *l, const char *name)
{
    for (uint32_t i = 0; i < l->nfields; i++)
        if (strncmp(l->field[i].name, name, RESHARD_NAME_MAX) == 0)
            return &l->field[i];
    return NULL;
}

uint32_t field_sections(const struct reshard_field *f)
{
    return field_axis(f, AXIS_CHANNEL) ? f->nsections : 1;
}

struct reshard_section field_section(const struct reshard_field *f, uint32_t k)
{
    const struct reshard_axis *heads = field_axis(f, AXIS_HEAD);

    if (field_axis(f, AXIS_CHANNEL))
        return f->section[k];
    return (struct reshard_section){.count = heads ? heads->length : 1, .width = 1};
}

static struct hold hold_of(const struct reshard_layout *l, const struct reshard_field *f,
                           const struct reshard_section *s)
{
    if (f->over == OVER_REPLICATED)
        return (struct hold){.parts = s->count, .copies = l->ranks};
    if (s->count < l->ranks)
        return (struct hold){.parts = 1, .copies = l->ranks / s->count};
    return (struct hold){.parts = s->count / l->ranks, .copies = 1};
}

/* The number of channels before section k in a rank's page. */
static uint64_t hold_before(const struct reshard_layout *l, const struct reshard_field *f,
                            uint32_t k)
{
    uint64_t channels = 0;

    for (uint32_t i = 0; i < k; i++) {
        struct reshard_section s = field_section(f, i);

        channels += (uint64_t)hold_of(l, f, &s).parts * s.width;
    }
    return channels;
}

struct held_section held_section(const struct reshard_layout *l, const struct reshard_field *f,
                                 uint32_t k)
{
    const struct reshard_section s = field_section(f, k);

    return (struct held_section){f, hold_of(l, f, &s), s.width, hold_before(l, f, k)};
}

uint64_t axis_local(const struct reshard_layout *l, const struct reshard_field *f,
                    const struct reshard_axis *a)
{
    if (a->kind == AXIS_LAYER)
        return a->length / l->stages;
    if (a->kind == AXIS_HEAD || a->kind == AXIS_CHANNEL)
        return hold_before(l, f, field_sections(f));
    return a->length;
}
