/* See wire_layout.h. */
#include "shell/wire/wire_layout.h"

#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/err.h"
#include "base/hash.h"
#include "proto/messages.h"

static_assert(WIRE_FIELDS_MAX <= RESHARD_FIELDS_MAX, "a decoded Group fits");
static_assert(WIRE_SECTIONS_MAX <= RESHARD_SECTIONS_MAX, "a decoded Field fits");

static const char *const axis_names[AXIS_KINDS] = {
    [AXIS_LAYER] = "layer",     [AXIS_KV] = "kv",   [AXIS_TOKEN] = "token", [AXIS_HEAD] = "head",
    [AXIS_CHANNEL] = "channel", [AXIS_DIM] = "dim", [AXIS_STATE] = "state",
};

static enum tern_err refused(const char **ret_text, const char *text)
{
    *ret_text = text;
    return TERN_INVALID;
}

static enum tern_err name_in(const char *name, char ret[RESHARD_NAME_MAX], const char **ret_text)
{
    size_t n = name ? strlen(name) : 0;

    if (n >= RESHARD_NAME_MAX)
        return refused(ret_text, "names of groups that have fields, of fields and of sections have "
                                 "at most 31 bytes");
    memset(ret, 0, RESHARD_NAME_MAX);
    if (n > 0)
        memcpy(ret, name, n);
    return TERN_OK;
}

static enum tern_err axis_in(const Tern__Wire__Axis *a, struct reshard_axis *ret,
                             const char **ret_text)
{
    uint32_t kind = 0;

    while (kind < AXIS_KINDS && (!a->name || strcmp(a->name, axis_names[kind]) != 0))
        kind++;
    if (kind == AXIS_KINDS)
        return refused(ret_text,
                       "an axis of a field must be layer, kv, token, head, channel, dim or state");
    *ret =
        (struct reshard_axis){.kind = (enum reshard_axis_kind)kind,
                              .length = a->length > UINT32_MAX ? UINT32_MAX : (uint32_t)a->length,
                              .stride = a->stride_bytes};
    return TERN_OK;
}

static enum tern_err field_in(const Tern__Wire__Field *f, struct reshard_field *ret,
                              const char **ret_text)
{
    TRY(name_in(f->name, ret->name, ret_text));
    if (f->n_axes > AXIS_KINDS || f->over > OVER_REPLICATED)
        return refused(ret_text, "a field has at most 7 axes, and must be divided or replicated");
    ret->over = (enum reshard_over)f->over;
    ret->element_bytes = f->element_bytes;
    ret->offset = f->offset;
    ret->naxes = (uint32_t)f->n_axes;
    for (uint32_t i = 0; i < ret->naxes; i++)
        TRY(axis_in(f->axes[i], &ret->axis[i], ret_text));
    ret->nsections = (uint32_t)f->n_sections;
    for (uint32_t i = 0; i < ret->nsections; i++) {
        TRY(name_in(f->sections[i]->name, ret->section[i].name, ret_text));
        ret->section[i].count = f->sections[i]->count;
        ret->section[i].width = f->sections[i]->width;
    }
    return TERN_OK;
}

enum tern_err wire_layout_in(Tern__Wire__Group *const *groups, size_t n, struct reshard_layout *ret,
                             const char **ret_text)
{
    memset(ret, 0, n * sizeof *ret);
    for (size_t g = 0; g < n; g++) {
        TRY(name_in(groups[g]->name, ret[g].name, ret_text));
        ret[g].page_tokens = groups[g]->page_tokens;
        ret[g].units = groups[g]->units ? groups[g]->units : 1;
        ret[g].page_bytes = groups[g]->page_bytes;
        ret[g].nfields = (uint32_t)groups[g]->n_fields;
        for (uint32_t i = 0; i < ret[g].nfields; i++)
            TRY(field_in(groups[g]->fields[i], &ret[g].field[i], ret_text));
    }
    return TERN_OK;
}

static uint64_t hash_name(const char name[RESHARD_NAME_MAX])
{
    return XXH3_64bits(name, strnlen(name, RESHARD_NAME_MAX));
}

/* Sums the hashes, so that the order does not count. Ignores the length of a token axis, which is
 * the page's and not a property of the contents. */
static uint64_t hash_field(const struct reshard_field *f)
{
    uint64_t h = hash_mix(hash_name(f->name), f->element_bytes), sum = 0;

    for (uint32_t i = 0; i < f->naxes; i++)
        sum += hash_mix((uint64_t)f->axis[i].kind + 1,
                        f->axis[i].kind == AXIS_TOKEN ? 0 : f->axis[i].length);
    for (uint32_t k = 0; k < f->nsections; k++)
        sum += hash_mix(hash_name(f->section[k].name),
                        (uint64_t)f->section[k].count << 32 | f->section[k].width);
    return hash_mix(h, sum);
}

uint64_t wire_layout_fields(const struct reshard_layout *l, uint32_t n)
{
    uint64_t h = n;

    for (uint32_t g = 0; g < n; g++) {
        uint64_t sum = 0;

        for (uint32_t i = 0; i < l[g].nfields; i++)
            sum += hash_field(&l[g].field[i]);
        h = hash_mix(hash_mix(h, hash_name(l[g].name)), sum);
    }
    return h ? h : 1;
}

static void field_out(const struct reshard_field *f, struct wire_layout *w, uint32_t g, uint32_t k)
{
    Tern__Wire__Field *to = &w->field[g][k];

    tern__wire__field__init(to);
    to->name = (char *)(uintptr_t)f->name;
    to->has_over = to->has_element_bytes = to->has_offset = true;
    to->over = (uint32_t)f->over;
    to->element_bytes = f->element_bytes;
    to->offset = f->offset;
    to->n_axes = f->naxes;
    to->axes = w->axes[g][k];
    for (uint32_t i = 0; i < f->naxes; i++) {
        Tern__Wire__Axis *a = w->axes[g][k][i] = &w->axis[g][k][i];

        tern__wire__axis__init(a);
        a->name = (char *)(uintptr_t)axis_names[f->axis[i].kind];
        a->has_length = a->has_stride_bytes = true;
        a->length = f->axis[i].length;
        a->stride_bytes = f->axis[i].stride;
    }
    to->n_sections = f->nsections;
    to->sections = w->sections[g][k];
    for (uint32_t i = 0; i < f->nsections; i++) {
        Tern__Wire__Section *s = w->sections[g][k][i] = &w->section[g][k][i];

        tern__wire__section__init(s);
        s->name = (char *)(uintptr_t)f->section[i].name;
        s->has_count = s->has_width = true;
        s->count = f->section[i].count;
        s->width = f->section[i].width;
    }
}

void wire_layout_out(const struct reshard_layout *l, uint32_t n, struct wire_layout *ret)
{
    for (uint32_t g = 0; g < n; g++) {
        Tern__Wire__Group *to = ret->groups[g] = &ret->group[g];

        tern__wire__group__init(to);
        to->name = (char *)(uintptr_t)l[g].name;
        to->has_page_tokens = to->has_page_bytes = to->has_units = true;
        to->page_tokens = l[g].page_tokens;
        to->page_bytes = l[g].page_bytes;
        to->units = l[g].units;
        to->n_fields = l[g].nfields;
        to->fields = ret->fields[g];
        for (uint32_t i = 0; i < l[g].nfields; i++) {
            ret->fields[g][i] = &ret->field[g][i];
            field_out(&l[g].field[i], ret, g, i);
        }
    }
}
