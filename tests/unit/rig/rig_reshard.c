#include "unit/rig/rig_reshard.h"

#include <string.h>

#include "base/check.h"

#define SECTIONS 3
#define CHANNELS 128

/* One letter for each axis: layer, k and v, token, head, channel, dim, state. */
#define LETTERS 128

struct field_kind {
    const char *name;
    const char *order[WORLD_ORDERS]; /* outermost first */
    uint32_t element_bytes, heads, dim, state;
    struct reshard_section section[SECTIONS];
};

#define XBC_OF(groups)                                                                             \
    {                                                                                              \
        .name = "conv", .order = {"lcs", "lsc", "scl"}, .element_bytes = 2, .state = 3,            \
        .section = {                                                                               \
            {"x", 8, 4},                                                                           \
            {"B", groups, 6},                                                                      \
            {"C", groups, 6}                                                                       \
        }                                                                                          \
    }
#define RECURRENT                                                                                  \
    {                                                                                              \
        .name = "ssm", .order = {"lhds", "lhsd", "hlds"}, .element_bytes = 4, .heads = 8,          \
        .dim = 4, .state = 3                                                                       \
    }

static const struct world_shape {
    const char *name;
    struct field_kind field[WORLD_FIELDS];
} shapes[WORLD_KINDS] = {
    [WORLD_MHA] = {"mha", {{"kv", {"lkthd", "lkhtd", "klhtd"}, 2, .heads = 8, .dim = 4}}},
    [WORLD_GQA] = {"gqa", {{"kv", {"lkthd", "lkhtd", "klhtd"}, 2, .heads = 2, .dim = 12}}},
    [WORLD_MLA] = {"mla", {{"latent", {"ltd", "tld", "ldt"}, 2, .dim = 18}}},
    [WORLD_WHOLE] = {"whole", {{"kv", {"lkthd", "lkhtd", "tlkhd"}, 2, .heads = 2, .dim = 6}}},
    [WORLD_RECURRENT] = {"recurrent", {RECURRENT}},
    [WORLD_XBC] = {"x|B|C", {XBC_OF(2)}},
    [WORLD_XB1] = {"x|B|C one group", {XBC_OF(1)}},
    [WORLD_QKV] = {"q|k|v",
                   {{"conv",
                     {"lcs", "lsc", "scl"},
                     2,
                     .state = 3,
                     .section = {{"q", 4, 3}, {"k", 4, 3}, {"v", 8, 5}}}}},
    [WORLD_HYBRID] = {"hybrid",
                      {RECURRENT, XBC_OF(2), {"scale", {"lh", "hl", "lh"}, 8, .heads = 8}}},
};

const char *world_name(enum world_kind kind)
{
    return shapes[kind].name;
}

bool world_is_state(enum world_kind kind)
{
    return kind >= WORLD_RECURRENT;
}

/* ---- the parts of a rank ---- */

/* The first of `n` heads of a rank, and their number. If there are fewer, neighbours share one. */
static uint32_t first_head(uint32_t n, uint32_t ranks, uint32_t rank)
{
    return rank * n / ranks;
}

static uint32_t heads_of_rank(uint32_t n, uint32_t ranks)
{
    return n > ranks ? n / ranks : 1;
}

static bool field_is_whole(const struct world_end *e)
{
    return e->kind == WORLD_MLA || (e->kind == WORLD_WHOLE && e->whole);
}

static const struct reshard_section *section_at(const struct world_end *e,
                                                const struct field_kind *f, uint32_t k)
{
    return &f->section[e->reversed ? SECTIONS - 1 - k : k];
}

/* The channels of a rank's page in order. Their numbers begin at 0 for x, at 1000 for B, and so
 * on. */
static uint32_t channels_of_rank(const struct world_end *e, const struct field_kind *f,
                                 uint32_t rank, uint32_t ret[CHANNELS])
{
    uint32_t n = 0;

    for (uint32_t k = 0; k < SECTIONS; k++) {
        const struct reshard_section *s = section_at(e, f, k);
        uint32_t first = first_head(s->count, e->ranks, rank) * s->width;
        uint32_t many = heads_of_rank(s->count, e->ranks) * s->width;

        for (uint32_t i = 0; i < many; i++)
            ret[n++] = 1000 * (uint32_t)(s - f->section) + first + i;
    }
    return n;
}

/* The length of each axis in a rank's page. */
static void lengths(const struct world_end *e, const struct field_kind *f, uint32_t ret[LETTERS])
{
    uint32_t channels[CHANNELS];

    memset(ret, 0, LETTERS * sizeof *ret);
    ret['l'] = WORLD_LAYERS / e->stages;
    ret['k'] = 2;
    ret['t'] = e->page_tokens;
    ret['h'] = field_is_whole(e) ? f->heads : heads_of_rank(f->heads, e->ranks);
    ret['c'] = f->section[0].count > 0 ? channels_of_rank(e, f, 0, channels) : 0;
    ret['d'] = f->dim;
    ret['s'] = f->state;
}

/* ---- the layout ---- */

static enum reshard_axis_kind axis_of(char letter)
{
    switch (letter) {
    case 'l': return AXIS_LAYER;
    case 'k': return AXIS_KV;
    case 't': return AXIS_TOKEN;
    case 'h': return AXIS_HEAD;
    case 'c': return AXIS_CHANNEL;
    case 'd': return AXIS_DIM;
    default: return AXIS_STATE;
    }
}

static uint32_t length_of_all(const struct field_kind *f, char letter, uint32_t of_rank)
{
    uint32_t channels = 0;

    if (letter == 'l')
        return WORLD_LAYERS;
    if (letter == 'h')
        return f->heads;
    if (letter != 'c')
        return of_rank;
    for (uint32_t k = 0; k < SECTIONS; k++)
        channels += f->section[k].count * f->section[k].width;
    return channels;
}

/* Returns the field's end. */
static uint64_t field_layout(const struct world_end *e, const struct field_kind *f, uint64_t at,
                             struct reshard_field *ret)
{
    const char *order = f->order[e->order];
    uint32_t n[LETTERS], naxes = (uint32_t)strlen(order);
    uint64_t stride = f->element_bytes;

    lengths(e, f, n);
    strcpy(ret->name, f->name);
    ret->over = field_is_whole(e) ? OVER_REPLICATED : OVER_DIVIDED;
    ret->element_bytes = f->element_bytes;
    ret->offset = at;
    ret->naxes = naxes;
    for (uint32_t i = naxes; i-- > 0;) {
        struct reshard_axis *a = &ret->axis[(i + e->ranks) % naxes]; /* in any order */
        char c = order[i];

        if (i == 0)
            stride += e->gap;
        *a = (struct reshard_axis){axis_of(c), length_of_all(f, c, n[(int)c]), stride};
        stride *= n[(int)c];
    }
    if (strchr(order, 'c'))
        for (ret->nsections = 0; ret->nsections < SECTIONS; ret->nsections++)
            ret->section[ret->nsections] = *section_at(e, f, ret->nsections);
    return at + stride;
}

void world_layout(const struct world_end *e, struct reshard_layout *ret)
{
    uint64_t at = 0;

    *ret = (struct reshard_layout){.ranks = e->ranks, .stages = e->stages, .units = e->units};
    strcpy(ret->name, world_name(e->kind));
    ret->page_tokens = world_is_state(e->kind) ? 0 : e->page_tokens;
    for (uint32_t i = 0; i < WORLD_FIELDS && shapes[e->kind].field[i].name; i++)
        at = field_layout(e, &shapes[e->kind].field[i], at + e->gap, &ret->field[ret->nfields++]);
    ret->page_bytes = at;
}

/* ---- the bytes ---- */

/* Output of a walk over a page. */
struct pen {
    uint8_t *bytes, *held, *tokens; /* each may be NULL */
    uint64_t at;
};

static void write_element(struct pen *pen, uint32_t n, uint64_t value, uint32_t token)
{
    check(pen->at + n <= WORLD_PAGE_MAX);
    if (pen->bytes)
        memcpy(pen->bytes + pen->at, &value, n);
    if (pen->tokens)
        memset(pen->tokens + pen->at, (int)token + 1, n);
    if (pen->held)
        memset(pen->held + pen->at, 1, n);
    pen->at += n;
}

/* The value of an element; `id` is its number along each axis in the whole pool. */
static uint64_t value_of(const struct field_kind *f, const uint32_t id[LETTERS])
{
    uint64_t v = (uint64_t)f->name[0];

    for (const char *c = "lkthcds"; *c; c++) {
        v = (v + id[(int)*c] + 1) * 0x9e3779b97f4a7c15ull;
        v ^= v >> 29;
    }
    v *= 0xbf58476d1ce4e5b9ull;
    return v >> 32 ^ v << 20;
}

static void fill_field(const struct world_end *e, const struct field_kind *f, uint32_t rank,
                       uint32_t page, struct pen *pen)
{
    const char *order = f->order[e->order];
    uint32_t n[LETTERS], channels[CHANNELS], i[LETTERS] = {0}, of_stage = rank % e->ranks;
    uint32_t axes = (uint32_t)strlen(order), axis = 0;

    lengths(e, f, n);
    if (n['c'] > 0)
        channels_of_rank(e, f, of_stage, channels);
    do {
        uint32_t id[LETTERS] = {0};

        for (const char *c = order; *c; c++)
            id[(int)*c] = i[(int)*c];
        id['l'] += rank / e->ranks * (WORLD_LAYERS / e->stages);
        if (n['t'] > 0 && strchr(order, 't'))
            id['t'] += page * e->page_tokens;
        if (strchr(order, 'h') && !field_is_whole(e))
            id['h'] += first_head(f->heads, e->ranks, of_stage);
        if (strchr(order, 'c'))
            id['c'] = channels[i['c']];
        write_element(pen, f->element_bytes, value_of(f, id), id['t']);
        for (axis = axes; axis-- > 0;) {
            if (++i[(int)order[axis]] < n[(int)order[axis]])
                break;
            i[(int)order[axis]] = 0;
        }
        if (axis == 0 || axis == UINT32_MAX)
            pen->at += e->gap;
    } while (axis != UINT32_MAX);
}

uint64_t world_fill(const struct world_end *e, uint32_t rank, uint32_t page, uint8_t *bytes,
                    uint8_t *held)
{
    struct pen pen = {.bytes = bytes, .held = held};

    for (uint32_t i = 0; i < WORLD_FIELDS && shapes[e->kind].field[i].name; i++) {
        pen.at += e->gap;
        fill_field(e, &shapes[e->kind].field[i], rank, page, &pen);
    }
    return pen.at;
}

void world_tokens(const struct world_end *e, uint32_t rank, uint32_t page, uint8_t *ret)
{
    struct pen pen = {.tokens = ret};

    memset(ret, 0, WORLD_PAGE_MAX);
    for (uint32_t i = 0; i < WORLD_FIELDS && shapes[e->kind].field[i].name; i++) {
        pen.at += e->gap;
        fill_field(e, &shapes[e->kind].field[i], rank, page, &pen);
    }
}

uint64_t world_bytes(enum world_kind kind, uint32_t tokens)
{
    struct world_end one = {.kind = kind, .ranks = 1, .stages = 1, .page_tokens = tokens};
    uint64_t bytes = 0;

    for (uint32_t i = 0; i < WORLD_FIELDS && shapes[kind].field[i].name; i++) {
        const struct field_kind *f = &shapes[kind].field[i];
        uint32_t n[LETTERS];
        uint64_t elements = 1;

        lengths(&one, f, n);
        for (const char *c = f->order[0]; *c; c++)
            elements *= n[(int)*c];
        bytes += elements * f->element_bytes;
    }
    return bytes;
}
