/* N3: invalid layouts, and pairs with different contents, are refused by name. */
#include "reshard_rig.h"

#include "base/prng.h"

static struct reshard_layout a, b;
static bool refused[RESHARD_REFUSALS];

static void begin(enum world_kind kind)
{
    struct world_end e = {.kind = kind, .ranks = 2, .stages = 1, .page_tokens = 4, .units = 1};

    world_layout(&e, &a);
    e.order = 1;
    e.ranks = 4;
    world_layout(&e, &b);
    a.page_bytes += 64;
    b.page_bytes += 64;
}

static void assert_refused(enum reshard_refusal want)
{
    struct reshard_pair pair = {.from = &a, .to = &b};
    struct reshard_plan p = {.v = NULL};
    enum reshard_refusal is = reshard_check(&pair);

    if (is != want)
        fail_msg("'%s' and not '%s'", reshard_text(is), reshard_text(want));
    assert_int_equal(want, reshard_plan(&pair, 0, &p));
    refused[want] = true;
}

/* A fault of one layout is found at both ends. */
#define REFUSED(WORLD, NAME, change)                                                               \
    do {                                                                                           \
        struct reshard_layout *l = &a;                                                             \
        begin(WORLD);                                                                              \
        change;                                                                                    \
        assert_int_equal(RESHARD_##NAME, reshard_check_layout(l));                                 \
        assert_refused(RESHARD_##NAME);                                                            \
        l = &b;                                                                                    \
        begin(WORLD);                                                                              \
        change;                                                                                    \
        assert_refused(RESHARD_##NAME);                                                            \
    } while (0)
/* Changes one of the pair, at either end. */
#define DIFFERS(WORLD, NAME, change)                                                               \
    do {                                                                                           \
        struct reshard_layout *l = &b;                                                             \
        begin(WORLD);                                                                              \
        change;                                                                                    \
        assert_int_equal(RESHARD_NONE, reshard_check_layout(l));                                   \
        assert_refused(RESHARD_##NAME);                                                            \
        l = &a;                                                                                    \
        begin(WORLD);                                                                              \
        change;                                                                                    \
        assert_refused(RESHARD_##NAME);                                                            \
    } while (0)

static void set_length(struct reshard_layout *l, enum reshard_axis_kind kind, uint32_t length)
{
    for (uint32_t i = 0; i < l->field[0].naxes; i++)
        if (l->field[0].axis[i].kind == kind)
            l->field[0].axis[i].length = length;
}

static struct reshard_axis *axis(struct reshard_layout *l, enum reshard_axis_kind kind)
{
    uint32_t i = 0;

    while (l->field[0].axis[i].kind != kind)
        i++;
    return &l->field[0].axis[i];
}

/* Removes the axis; its elements become one. */
static void drop(struct reshard_layout *l, enum reshard_axis_kind kind)
{
    struct reshard_field *f = &l->field[0];
    uint32_t i = (uint32_t)(axis(l, kind) - f->axis);

    f->naxes--;
    for (; i < f->naxes; i++)
        f->axis[i] = f->axis[i + 1];
}

static void layouts(void)
{
    REFUSED(WORLD_MHA, RANKS, l->ranks = 0);
    REFUSED(WORLD_MHA, RANKS, l->ranks = 3);
    REFUSED(WORLD_MHA, RANKS, l->ranks = 16);
    REFUSED(WORLD_MHA, STAGES, l->stages = 0);
    REFUSED(WORLD_MHA, STAGES, l->stages = 3);
    REFUSED(WORLD_MHA, PAGE_BYTES, l->page_bytes = 0);
    REFUSED(WORLD_MHA, PAGE_BYTES, l->page_bytes = RESHARD_PAGE_BYTES_MAX + 1);
    REFUSED(WORLD_MHA, UNITS, l->units = 0);
    REFUSED(WORLD_MHA, UNITS, l->units = RESHARD_UNITS_MAX + 1);
    REFUSED(WORLD_MLA, UNITS, l->units = (uint32_t)l->page_bytes + 1);
    REFUSED(WORLD_MHA, FIELDS, l->nfields = 0);
    REFUSED(WORLD_MHA, FIELDS, l->nfields = RESHARD_FIELDS_MAX + 1);
    REFUSED(WORLD_HYBRID, FIELDS, strcpy(l->field[1].name, l->field[0].name));
    REFUSED(WORLD_MHA, ELEMENT, l->field[0].element_bytes = 0);
    REFUSED(WORLD_MHA, ELEMENT, l->field[0].element_bytes = RESHARD_ELEMENT_BYTES_MAX + 1);
    REFUSED(WORLD_MHA, AXES, l->field[0].naxes = 0);
    REFUSED(WORLD_MHA, AXES, l->field[0].naxes = AXIS_KINDS + 1);
    REFUSED(WORLD_MHA, AXES, axis(l, AXIS_KV)->kind = AXIS_DIM);
    REFUSED(WORLD_MHA, AXES, axis(l, AXIS_KV)->kind = AXIS_KINDS);
    REFUSED(WORLD_MHA, AXES, axis(l, AXIS_KV)->kind = AXIS_CHANNEL);
    REFUSED(WORLD_MHA, LENGTH, set_length(l, AXIS_DIM, 0));
    REFUSED(WORLD_MHA, LENGTH, set_length(l, AXIS_DIM, RESHARD_LENGTH_MAX + 1));
    REFUSED(WORLD_MHA, TOKENS, set_length(l, AXIS_TOKEN, 5));
    REFUSED(WORLD_MHA, TOKENS, l->page_tokens = 0);
    REFUSED(WORLD_MHA, TOKENS, drop(l, AXIS_TOKEN));
    REFUSED(WORLD_MHA, NO_LAYERS, (l->stages = 2, drop(l, AXIS_LAYER)));
    REFUSED(WORLD_MHA, LAYERS, (l->stages = 2, set_length(l, AXIS_LAYER, 3)));
    REFUSED(WORLD_MHA, NO_HEADS, drop(l, AXIS_HEAD));
    REFUSED(WORLD_MLA, NO_HEADS, l->field[0].over = OVER_DIVIDED);
    REFUSED(WORLD_MLA, NO_HEADS, l->field[0].over = (enum reshard_over)7);
    REFUSED(WORLD_MHA, HEADS, set_length(l, AXIS_HEAD, 3));
    REFUSED(WORLD_XBC, SECTION_DIVIDES, l->field[0].section[1].count = 3);
    REFUSED(WORLD_XBC, SECTIONS, l->field[0].section[0].width++);
    REFUSED(WORLD_XBC, SECTIONS, l->field[0].section[1].count = 0);
    REFUSED(WORLD_XBC, SECTIONS, l->field[0].section[2].width = 0);
    REFUSED(WORLD_XBC, SECTIONS, l->field[0].nsections = 0);
    REFUSED(WORLD_XBC, SECTIONS, l->field[0].nsections = RESHARD_SECTIONS_MAX + 1);
    REFUSED(WORLD_XBC, SECTIONS, strcpy(l->field[0].section[1].name, "x"));
    REFUSED(WORLD_MHA, SECTIONS, l->field[0].nsections = 1);
    REFUSED(WORLD_MHA, STRIDES, axis(l, AXIS_TOKEN)->stride--);
    REFUSED(WORLD_MHA, STRIDES, axis(l, AXIS_DIM)->stride = 0);
    REFUSED(WORLD_MHA, STRIDES, axis(l, AXIS_DIM)->stride = axis(l, AXIS_HEAD)->stride);
    REFUSED(WORLD_MHA, BEYOND, axis(l, AXIS_LAYER)->stride += 64 / 3 + 1);
    REFUSED(WORLD_MHA, BEYOND, axis(l, AXIS_LAYER)->stride = UINT64_MAX);
    REFUSED(WORLD_MHA, BEYOND, l->field[0].offset = 65);
    REFUSED(WORLD_MHA, BEYOND, l->field[0].offset = UINT64_MAX);
    REFUSED(WORLD_HYBRID, OVERLAP, l->field[1].offset--);
    REFUSED(WORLD_HYBRID, OVERLAP, l->field[2].offset = 0);
}

static void pairs(void)
{
    DIFFERS(WORLD_MHA, OTHER_GROUP, strcpy(l->name, "other"));
    DIFFERS(WORLD_HYBRID, OTHER_FIELDS, l->nfields--);
    DIFFERS(WORLD_HYBRID, OTHER_FIELDS, strcpy(l->field[2].name, "other"));
    DIFFERS(WORLD_MHA, OTHER_AXES, drop(l, AXIS_KV));
    DIFFERS(WORLD_MHA, OTHER_AXES, axis(l, AXIS_KV)->kind = AXIS_STATE);
    DIFFERS(WORLD_MHA, OTHER_ELEMENT, l->field[0].element_bytes = 1);
    DIFFERS(WORLD_MHA, OTHER_LAYERS, set_length(l, AXIS_LAYER, 2));
    DIFFERS(WORLD_MHA, OTHER_HEADS, set_length(l, AXIS_HEAD, 4));
    DIFFERS(WORLD_MHA, OTHER_DIMS, set_length(l, AXIS_DIM, 3));
    DIFFERS(WORLD_MHA, OTHER_DIMS, set_length(l, AXIS_KV, 1));
    DIFFERS(WORLD_XBC, OTHER_SECTIONS, strcpy(l->field[0].section[1].name, "D"));
    DIFFERS(WORLD_XBC, OTHER_SECTIONS,
            (l->field[0].section[1].width = 3, l->field[0].section[1].count = 4));
    DIFFERS(WORLD_XBC, OTHER_SECTIONS,
            (l->field[0].section[1].width = 5, set_length(l, AXIS_CHANNEL, 54)));
    DIFFERS(WORLD_MHA, ALIGN, l->align_tokens = 64);
    DIFFERS(WORLD_MHA, PAGE_TOKENS, (l->page_tokens = 3, set_length(l, AXIS_TOKEN, 3)));
    DIFFERS(WORLD_RECURRENT, PAGE_TOKENS,
            (l->page_tokens = 3, set_length(l, AXIS_STATE, 3),
             axis(l, AXIS_STATE)->kind = AXIS_TOKEN, l->nfields = 1));
}

/* N3: so many tokens to a page that one page of the other end would be too many. */
static void spans(void)
{
    for (uint32_t tokens = RESHARD_SPAN_PAGES_MAX; tokens <= 2 * RESHARD_SPAN_PAGES_MAX;
         tokens *= 2) {
        enum reshard_refusal want =
            tokens > RESHARD_SPAN_PAGES_MAX ? RESHARD_SPAN_PAGES : RESHARD_NONE;
        struct world_end e = {.kind = WORLD_MLA, .ranks = 1, .stages = 1, .units = 1};
        struct reshard_pair pair = {.from = &a, .to = &b}, back = {.from = &b, .to = &a};

        e.page_tokens = 1;
        world_layout(&e, &a);
        e.page_tokens = tokens;
        world_layout(&e, &b);
        assert_int_equal(want, reshard_check(&pair));
        assert_int_equal(want, reshard_check(&back));
        refused[want] = true;
    }
}

/* A value at a limit is accepted. */
static void at_the_limits(void)
{
    static struct reshard_layout l;
    struct reshard_field *f = &l.field[0];

    l = (struct reshard_layout){.ranks = 8, .stages = 2, .units = RESHARD_UNITS_MAX};
    l.page_bytes = RESHARD_PAGE_BYTES_MAX;
    l.nfields = RESHARD_FIELDS_MAX;
    for (uint32_t i = 0; i < l.nfields; i++) {
        f = &l.field[i];
        f->name[0] = (char)('a' + i);
        f->element_bytes = 1;
        f->offset = i;
        f->over = OVER_REPLICATED;
        f->naxes = 1;
        f->axis[0] = (struct reshard_axis){AXIS_LAYER, 2, 1};
    }
    f->element_bytes = RESHARD_ELEMENT_BYTES_MAX;
    f->naxes = 2;
    f->over = OVER_DIVIDED;
    f->axis[1] = (struct reshard_axis){AXIS_CHANNEL, RESHARD_LENGTH_MAX, f->element_bytes};
    for (f->nsections = 0; f->nsections < RESHARD_SECTIONS_MAX; f->nsections++)
        f->section[f->nsections] = (struct reshard_section){
            {(char)('a' + f->nsections)}, 1u << 7, RESHARD_LENGTH_MAX / RESHARD_SECTIONS_MAX >> 7};
    f->offset = l.page_bytes - (uint64_t)(RESHARD_LENGTH_MAX / l.ranks) * f->element_bytes;
    assert_int_equal(RESHARD_NONE, reshard_check_layout(&l));
    f->offset++;
    assert_int_equal(RESHARD_BEYOND, reshard_check_layout(&l));
}

/* Every axis reversed: each step along one of the three axes without a loop is a piece. */
static struct reshard_layout turned(uint32_t length, bool back)
{
    static const enum reshard_axis_kind order[] = {AXIS_LAYER, AXIS_KV,  AXIS_TOKEN,
                                                   AXIS_HEAD,  AXIS_DIM, AXIS_STATE};
    struct reshard_layout l = {.ranks = 1, .stages = 1, .page_tokens = length, .units = 1};
    struct reshard_field *f = &l.field[l.nfields++];

    f->element_bytes = 1;
    for (l.page_bytes = 1; f->naxes < 6; l.page_bytes *= length) {
        enum reshard_axis_kind kind = order[back ? 5 - f->naxes : f->naxes];

        f->axis[f->naxes++] = (struct reshard_axis){kind, length, l.page_bytes};
    }
    return l;
}

static void piece_limit(void)
{
    struct reshard_pair pair = {.from = &a, .to = &b};

    for (uint32_t length = 40; length <= 41; length++) {
        struct reshard_plan p = {.v = NULL};

        a = turned(length, false);
        b = turned(length, true);
        assert_int_equal(RESHARD_NONE, reshard_check(&pair));
        if (length == 40) {
            assert_int_equal(RESHARD_ROOM, reshard_plan(&pair, 0, &p));
            assert_int_equal(40 * 40 * 40, p.n);
        } else {
            assert_int_equal(RESHARD_PIECES, reshard_plan(&pair, 0, &p));
        }
    }
    refused[RESHARD_PIECES] = true;
}

/* N3 */
TEST(reshard_refuses_each_thing_that_does_not_fit_by_its_name)
{
    for (int kind = 0; kind < WORLD_KINDS; kind++) {
        begin((enum world_kind)kind);
        assert_int_equal(RESHARD_NONE, reshard_check_layout(&a));
        assert_int_equal(RESHARD_NONE, reshard_check_layout(&b));
        assert_int_equal(RESHARD_NONE, reshard_check(&(struct reshard_pair){.from = &a, .to = &b}));
    }
    layouts();
    pairs();
    spans();
    at_the_limits();
    piece_limit();
    for (int r = RESHARD_NONE + 1; r < RESHARD_ROOM; r++)
        if (!refused[r])
            fail_msg("nothing was refused by '%s'", reshard_text((enum reshard_refusal)r));
}

TEST(reshard_has_another_text_for_each_refusal)
{
    for (int r = 0; r < RESHARD_REFUSALS; r++) {
        const char *text = reshard_text((enum reshard_refusal)r);

        assert_true(r == RESHARD_NONE ? !*text : strlen(text) > 10);
        for (int k = 0; k < r; k++)
            assert_string_not_equal(text, reshard_text((enum reshard_refusal)k));
    }
    assert_string_equal("", reshard_text(RESHARD_REFUSALS));
}

/* Sections may stand in another order, and axes and fields, too. */
TEST(reshard_takes_fields_axes_and_sections_in_another_order)
{
    struct reshard_pair pair = {.from = &a, .to = &b};
    struct reshard_field f;

    begin(WORLD_HYBRID);
    f = b.field[0];
    b.field[0] = b.field[2];
    b.field[2] = f;
    assert_int_equal(RESHARD_NONE, reshard_check(&pair));
}

/* Layouts come from peers. A layout with a few changed bytes is refused, or its plan stays within
 * the pages that it names. */
TEST(reshard_of_spoilt_layouts_is_refused_or_stays_within_its_pages)
{
    static struct reshard_piece pieces[PIECES_MAX];
    struct prng prng;
    uint32_t planned = 0;

    prng_init(&prng, 1);
    for (uint32_t i = 0; i < 40000; i++) {
        struct reshard_pair pair = {.from = &a, .to = &b};
        struct reshard_plan p = {.v = pieces, .room = PIECES_MAX};

        begin((enum world_kind)(i % WORLD_KINDS));
        for (uint32_t k = 0; k < 1 + i % 3; k++) {
            uint8_t *l = (uint8_t *)(prng_below(&prng, 2) ? &a : &b);

            l[prng_below(&prng, offsetof(struct reshard_layout, field[1]))] ^=
                (uint8_t)(1u << prng_below(&prng, 8));
        }
        if (reshard_plan(&pair, i, &p) != RESHARD_NONE)
            continue;
        planned++;
        for (uint32_t k = 0; k < p.n; k++) {
            const struct reshard_piece *x = &p.v[k];
            uint64_t last = strided_rows(&x->shape) - 1;
            const struct reshard_layout *from = x->kind == PIECE_SPREAD ? &b : &a;

            assert_true(x->from.at + strided_from(&x->shape, last) + x->shape.row_bytes <=
                        from->page_bytes);
            assert_true(x->to.at + strided_to(&x->shape, last) + x->shape.row_bytes <=
                        b.page_bytes);
        }
    }
    assert_true(planned > 1000 && planned < 39000);
}
