#include "reshard/layout.h"

#include "base/err.h"
#include "reshard/holds.h"

#define REFUSE_IF(condition, NAME)                                                                 \
    do {                                                                                           \
        if (condition)                                                                             \
            return RESHARD_##NAME;                                                                 \
    } while (0)

const char *reshard_text(enum reshard_refusal refusal)
{
    static const char *const texts[RESHARD_REFUSALS] = {
#define X(NAME, text) [RESHARD_##NAME] = (text),
        RESHARD_REFUSAL_TABLE(X)
#undef X
    };

    return refusal >= RESHARD_NONE && refusal < RESHARD_REFUSALS ? texts[refusal] : "";
}

static bool divides_either_way(uint32_t a, uint32_t b)
{
    return a > 0 && b > 0 && (a % b == 0 || b % a == 0);
}

static bool same_name(const char *a, const char *b)
{
    return strncmp(a, b, RESHARD_NAME_MAX) == 0;
}

static enum reshard_refusal check_sections(const struct reshard_layout *l,
                                           const struct reshard_field *f)
{
    const struct reshard_axis *channels = field_axis(f, AXIS_CHANNEL);
    uint64_t sum = 0;

    REFUSE_IF(!channels && f->nsections != 0, SECTIONS);
    REFUSE_IF(channels && (f->nsections == 0 || f->nsections > RESHARD_SECTIONS_MAX), SECTIONS);
    for (uint32_t k = 0; k < f->nsections; k++) {
        const struct reshard_section *s = &f->section[k];

        REFUSE_IF(s->count == 0 || s->width == 0, SECTIONS);
        REFUSE_IF(s->count > RESHARD_LENGTH_MAX || s->width > RESHARD_LENGTH_MAX, SECTIONS);
        for (uint32_t j = 0; j < k; j++)
            REFUSE_IF(same_name(f->section[j].name, s->name), SECTIONS);
        REFUSE_IF(f->over != OVER_REPLICATED && !divides_either_way(s->count, l->ranks),
                  SECTION_DIVIDES);
        sum += (uint64_t)s->count * s->width;
    }
    REFUSE_IF(channels && sum != channels->length, SECTIONS);
    return RESHARD_NONE;
}

static enum reshard_refusal check_axes(const struct reshard_layout *l,
                                       const struct reshard_field *f)
{
    uint32_t seen = 0;

    REFUSE_IF(f->naxes == 0 || f->naxes > AXIS_KINDS, AXES);
    for (uint32_t i = 0; i < f->naxes; i++) {
        const struct reshard_axis *a = &f->axis[i];

        REFUSE_IF((uint32_t)a->kind >= AXIS_KINDS || seen & 1u << a->kind, AXES);
        seen |= 1u << a->kind;
        REFUSE_IF(a->length == 0 || a->length > RESHARD_LENGTH_MAX, LENGTH);
        REFUSE_IF(a->kind == AXIS_TOKEN && a->length != l->page_tokens, TOKENS);
        REFUSE_IF(a->kind == AXIS_LAYER && a->length % l->stages != 0, LAYERS);
        REFUSE_IF(a->kind == AXIS_HEAD && f->over != OVER_REPLICATED &&
                      !divides_either_way(a->length, l->ranks),
                  HEADS);
    }
    REFUSE_IF(seen & 1u << AXIS_HEAD && seen & 1u << AXIS_CHANNEL, AXES);
    REFUSE_IF(l->page_tokens > 0 && !(seen & 1u << AXIS_TOKEN), TOKENS);
    REFUSE_IF(l->stages > 1 && !(seen & 1u << AXIS_LAYER), NO_LAYERS);
    REFUSE_IF(f->over != OVER_REPLICATED && !field_divided(f), NO_HEADS);
    return check_sections(l, f);
}

/* Elements do not overlap if each axis, by ascending stride, steps over all that the axes below it
 * reach. *ret_end: the end of the field in the page. */
static enum reshard_refusal check_strides(const struct reshard_layout *l,
                                          const struct reshard_field *f, uint64_t *ret_end)
{
    uint64_t reach = f->element_bytes;
    uint32_t done = 0;

    for (uint32_t step = 0; step < f->naxes; step++) {
        uint32_t next = AXIS_KINDS;
        uint64_t n;

        for (uint32_t i = 0; i < f->naxes; i++)
            if (!(done & 1u << i) &&
                (next == AXIS_KINDS || f->axis[i].stride < f->axis[next].stride))
                next = i;
        done |= 1u << next;
        n = axis_local(l, f, &f->axis[next]);
        if (n == 1)
            continue;
        REFUSE_IF(f->axis[next].stride < reach, STRIDES);
        REFUSE_IF(f->axis[next].stride > l->page_bytes, BEYOND);
        reach += (n - 1) * f->axis[next].stride;
    }
    REFUSE_IF(f->offset > l->page_bytes || reach > l->page_bytes - f->offset, BEYOND);
    *ret_end = f->offset + reach;
    return RESHARD_NONE;
}

enum reshard_refusal reshard_check_layout(const struct reshard_layout *l)
{
    uint64_t end[RESHARD_FIELDS_MAX];

    REFUSE_IF(l->ranks == 0 || l->ranks > RESHARD_RANKS_MAX || (l->ranks & (l->ranks - 1)) != 0,
              RANKS);
    REFUSE_IF(l->stages == 0 || l->stages > RESHARD_STAGES_MAX, STAGES);
    REFUSE_IF(l->page_bytes == 0 || l->page_bytes > RESHARD_PAGE_BYTES_MAX, PAGE_BYTES);
    REFUSE_IF(l->units == 0 || l->units > RESHARD_UNITS_MAX || l->units > l->page_bytes, UNITS);
    REFUSE_IF(l->nfields == 0 || l->nfields > RESHARD_FIELDS_MAX, FIELDS);
    for (uint32_t i = 0; i < l->nfields; i++) {
        const struct reshard_field *f = &l->field[i];

        REFUSE_IF(layout_field(l, f->name) != f, FIELDS);
        REFUSE_IF(f->element_bytes == 0 || f->element_bytes > RESHARD_ELEMENT_BYTES_MAX, ELEMENT);
        TRY(check_axes(l, f));
        TRY(check_strides(l, f, &end[i]));
        for (uint32_t k = 0; k < i; k++)
            REFUSE_IF(f->offset < end[k] && l->field[k].offset < end[i], OVERLAP);
    }
    return RESHARD_NONE;
}

/* The other end may have the sections in another order. */
static bool same_sections(const struct reshard_field *a, const struct reshard_field *b)
{
    bool same = a->nsections == b->nsections;

    for (uint32_t k = 0; same && k < a->nsections; k++) {
        uint32_t j = 0;

        while (j < b->nsections && !same_name(a->section[k].name, b->section[j].name))
            j++;
        same = j < b->nsections && a->section[k].count == b->section[j].count &&
               a->section[k].width == b->section[j].width;
    }
    return same;
}

static enum reshard_refusal check_fields(const struct reshard_field *a,
                                         const struct reshard_field *b)
{
    REFUSE_IF(a->naxes != b->naxes, OTHER_AXES);
    REFUSE_IF(a->element_bytes != b->element_bytes, OTHER_ELEMENT);
    for (uint32_t i = 0; i < a->naxes; i++) {
        const struct reshard_axis *x = &a->axis[i], *y = field_axis(b, x->kind);

        REFUSE_IF(!y, OTHER_AXES);
        if (x->length == y->length || x->kind == AXIS_TOKEN)
            continue;
        REFUSE_IF(x->kind == AXIS_LAYER, OTHER_LAYERS);
        REFUSE_IF(x->kind == AXIS_HEAD, OTHER_HEADS);
        REFUSE_IF(x->kind == AXIS_CHANNEL, OTHER_SECTIONS);
        return RESHARD_OTHER_DIMS;
    }
    REFUSE_IF(!same_sections(a, b), OTHER_SECTIONS);
    return RESHARD_NONE;
}

enum reshard_refusal reshard_check(const struct reshard_pair *pair)
{
    const struct reshard_layout *a = pair->from, *b = pair->to;

    TRY(reshard_check_layout(a));
    TRY(reshard_check_layout(b));
    REFUSE_IF(!same_name(a->name, b->name), OTHER_GROUP);
    REFUSE_IF(a->nfields != b->nfields, OTHER_FIELDS);
    REFUSE_IF(a->page_tokens != b->page_tokens &&
                  !divides_either_way(a->page_tokens, b->page_tokens),
              PAGE_TOKENS);
    REFUSE_IF(a->page_tokens > 0 && (span_pages(a, b) > RESHARD_SPAN_PAGES_MAX ||
                                     span_pages(b, a) > RESHARD_SPAN_PAGES_MAX),
              SPAN_PAGES);
    REFUSE_IF(a->align_tokens != b->align_tokens, ALIGN);
    for (uint32_t i = 0; i < b->nfields; i++) {
        const struct reshard_field *f = layout_field(a, b->field[i].name);

        REFUSE_IF(!f, OTHER_FIELDS);
        TRY(check_fields(f, &b->field[i]));
    }
    return RESHARD_NONE;
}
