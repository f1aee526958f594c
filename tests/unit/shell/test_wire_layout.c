/* N3: layouts on the wire: they are decoded as encoded, pools with equal pages have the same hash,
 * and invalid layouts are refused, from engines and from peers. */
#include <stdlib.h>
#include <string.h>

#include "proto/codec.h"
#include "shell/wire/wire_in.h"
#include "shell/wire/wire_layout.h"
#include "shell/wire/wire_out.h"
#include "testing/test.h"
#include "unit/rig/rig_reshard.h"

#define BODY_MAX (1u << 20)

static struct wire_in in;
static struct config config;
static struct wire_layout told;
static uint8_t frame[FRAME_HEADER_BYTES + BODY_MAX];

FIXTURE(decoder_begin)
{
    assert_int_equal(wire_in_init(&in, &config, BODY_MAX), TERN_OK);
    return 0;
}

FIXTURE(decoder_end)
{
    wire_in_finish(&in);
    return 0;
}

TEST_EACH(decoder_begin, decoder_end);

static struct reshard_layout layout_of(enum world_kind kind, uint32_t ranks, uint32_t order)
{
    struct world_end e = {.kind = kind,
                          .ranks = ranks,
                          .stages = 2,
                          .page_tokens = 16,
                          .order = order,
                          .units = 2,
                          .reversed = order == 1};
    struct reshard_layout l;

    world_layout(&e, &l);
    return l;
}

/* Encodes and decodes it as a peer's message. */
static enum tern_err there_and_back(const struct reshard_layout *l, uint32_t n)
{
    const struct wire_layouts layouts = {l, n};
    struct peer_msg msg = {.kind = PEER_PULL_OFFER, .layout_hash = 5, .to = 64}, got;
    struct frame_header h;
    uint64_t sequence;

    assert_true(wire_out_peer_msg(&msg, NULL, &layouts, 1, BODY_MAX, frame) > 0);
    assert_int_equal(frame_decode(frame, BODY_MAX, &h), TERN_OK);
    return wire_in_peer_msg(&in, &h, frame + FRAME_HEADER_BYTES, 0, &got, &sequence);
}

static void assert_same(const struct reshard_layout *a, const struct reshard_layout *b)
{
    assert_string_equal(a->name, b->name);
    assert_int_equal(a->ranks, b->ranks);
    assert_int_equal(a->stages, b->stages);
    assert_int_equal(a->page_tokens, b->page_tokens);
    assert_int_equal(a->units, b->units);
    assert_true(a->page_bytes == b->page_bytes);
    assert_int_equal(a->nfields, b->nfields);
    for (uint32_t i = 0; i < a->nfields; i++) {
        const struct reshard_field *f = &a->field[i], *g = &b->field[i];

        assert_string_equal(f->name, g->name);
        assert_int_equal(f->over, g->over);
        assert_int_equal(f->element_bytes, g->element_bytes);
        assert_true(f->offset == g->offset);
        assert_int_equal(f->naxes, g->naxes);
        assert_memory_equal(f->axis, g->axis, f->naxes * sizeof f->axis[0]);
        assert_int_equal(f->nsections, g->nsections);
        for (uint32_t k = 0; k < f->nsections; k++) {
            assert_string_equal(f->section[k].name, g->section[k].name);
            assert_int_equal(f->section[k].count, g->section[k].count);
            assert_int_equal(f->section[k].width, g->section[k].width);
        }
    }
}

TEST(wire_layout_comes_back_as_it_was_told)
{
    struct reshard_layout l[WORLD_KINDS];

    for (uint32_t order = 0; order < WORLD_ORDERS; order++) {
        for (uint32_t kind = 0; kind < WORLD_KINDS; kind++)
            l[kind] = layout_of((enum world_kind)kind, 4, order);
        assert_int_equal(there_and_back(l, WORLD_KINDS), TERN_OK);
        assert_int_equal(in.nlayouts, WORLD_KINDS);
        for (uint32_t kind = 0; kind < WORLD_KINDS; kind++)
            assert_same(&l[kind], &in.layouts[kind]);
    }
    assert_int_equal(there_and_back(NULL, 0), TERN_OK);
    assert_int_equal(in.nlayouts, 0);
}

TEST(wire_layout_fields_are_the_same_however_they_lie)
{
    uint64_t seen[WORLD_KINDS];

    for (uint32_t kind = 0; kind < WORLD_KINDS; kind++) {
        struct reshard_layout l = layout_of((enum world_kind)kind, 1, 0);

        seen[kind] = wire_layout_fields(&l, 1);
        for (uint32_t k = 0; k < kind; k++)
            assert_true(seen[k] != seen[kind]);
        for (uint32_t ranks = 1; ranks <= 8; ranks *= 2)
            for (uint32_t order = 0; order < WORLD_ORDERS; order++) {
                l = layout_of((enum world_kind)kind, ranks, order);
                assert_true(wire_layout_fields(&l, 1) == seen[kind]);
            }
        l.field[0].element_bytes *= 2;
        assert_true(wire_layout_fields(&l, 1) != seen[kind]);
        l = layout_of((enum world_kind)kind, 1, 0);
        l.field[0].axis[0].length++;
        assert_true(wire_layout_fields(&l, 1) != seen[kind] ||
                    l.field[0].axis[0].kind == AXIS_TOKEN);
    }
}

/* Layouts that a peer may send and that are wrong. */
TEST(wire_layout_of_a_peer_that_makes_no_sense_is_malformed)
{
    struct reshard_layout l;

#define WRONG(change)                                                                              \
    l = layout_of(WORLD_HYBRID, 4, 0);                                                             \
    change;                                                                                        \
    assert_int_equal(there_and_back(&l, 1), TERN_MALFORMED)
    WRONG(l.ranks = 3);
    WRONG(l.ranks = 0);
    WRONG(l.ranks = UINT32_MAX);
    WRONG(l.stages = 4);
    WRONG(l.page_bytes = 0);
    WRONG(l.page_bytes = UINT64_MAX);
    WRONG(l.units = UINT32_MAX);
    WRONG(l.nfields = 0);
    WRONG(l.field[1].element_bytes = UINT32_MAX);
    WRONG(l.field[0].offset = UINT64_MAX);
    WRONG(l.field[0].offset = UINT64_MAX - 64);
    WRONG(l.field[0].axis[1].stride = UINT64_MAX);
    WRONG(l.field[0].axis[1].stride = 1ull << 63);
    WRONG(l.field[0].axis[1].length = UINT32_MAX);
    WRONG(l.field[0].axis[1].length = 0);
    WRONG(l.field[1].section[0].count = UINT32_MAX);
    WRONG(l.field[1].section[0].width = UINT32_MAX);
    WRONG(l.field[1].offset = l.field[0].offset);
    WRONG(l.page_tokens = 16);
#undef WRONG
}

static enum tern_err from_engine(const struct reshard_layout *l, uint32_t n, const char **ret_text)
{
    wire_layout_out(l, n, &told);
    return wire_layout_in(told.groups, n, in.layouts, ret_text);
}

TEST(wire_layout_of_an_engine_is_refused_by_name)
{
    static char name[64] = "a name of more than thirty-one bytes";
    struct reshard_layout l = layout_of(WORLD_XBC, 2, 0);
    const char *text = NULL;

    assert_int_equal(from_engine(&l, 1, &text), TERN_OK);
    told.group[0].name = name;
    assert_int_equal(wire_layout_in(told.groups, 1, in.layouts, &text), TERN_INVALID);
    assert_non_null(strstr(text, "at most 31 bytes"));
    wire_layout_out(&l, 1, &told);
    told.section[0][0][2].name = name;
    assert_int_equal(wire_layout_in(told.groups, 1, in.layouts, &text), TERN_INVALID);
    wire_layout_out(&l, 1, &told);
    told.axis[0][0][1].name = name;
    assert_int_equal(wire_layout_in(told.groups, 1, in.layouts, &text), TERN_INVALID);
    assert_non_null(strstr(text, "channel"));
    told.axis[0][0][1].name = NULL;
    assert_int_equal(wire_layout_in(told.groups, 1, in.layouts, &text), TERN_INVALID);
    wire_layout_out(&l, 1, &told);
    told.field[0][0].over = 2;
    assert_int_equal(wire_layout_in(told.groups, 1, in.layouts, &text), TERN_INVALID);
    wire_layout_out(&l, 1, &told);
    told.axis[0][0][0].length = UINT64_MAX;
    assert_int_equal(wire_layout_in(told.groups, 1, in.layouts, &text), TERN_OK);
    in.layouts[0].ranks = 2;
    in.layouts[0].stages = 2;
    assert_int_equal(reshard_check_layout(&in.layouts[0]), RESHARD_LENGTH);
}
