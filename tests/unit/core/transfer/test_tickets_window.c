/* A window that came by ticket, when its session runs on (T18, T5): its beginning, within a chunk,
 * belongs to no node and stays the session's own. The next commit gives the pages behind that to
 * the nodes of the path, so that others can resume from there. */
#include "unit/rig/rig_ticket.h"

struct moved {
    struct pair p;
    struct rig_session *d;
    struct state_shape shape;
    uint32_t n;
};

/* A session of the destination whose n tokens came by ticket. */
static struct moved moved_by_ticket(struct state_shape shape, uint32_t n)
{
    struct group_layout groups[2] = {rig_group(shape.align, 512),
                                     rig_window(shape.window_page, shape.window, 512)};
    struct moved m = {.p = pair_limited(1 << 20), .shape = shape, .n = n};

    assert_ok(rig_pool_open(m.p.source, m.p.se.conn[0], groups, 2, 1u << 19, &m.p.sp));
    assert_ok(rig_pool_open(m.p.dest, m.p.de.conn[0], groups, 2, 1u << 19, &m.p.dp));
    m.d = asking(&m.p, 1, n);
    assert_ok(ticket_fetched(m.d, hand_over(state_computed(&m.p, shape.align, n), 0, 0)));
    return m;
}

static void runs_to(struct moved *m, uint32_t to)
{
    struct rig_session *d = m->d;

    assert_ok(rig_extend(d, to, d->len.written, rig_tokens(1, to) + m->n, to - m->n));
    rig_write(d, d->len.written, to);
    assert_ok(rig_extend(d, to, to, NULL, 0));
    m->n = to;
}

static uint32_t resumable(struct moved *m, uint32_t depth)
{
    return rig_depth(m->d, rig_tokens(1, depth), depth);
}

/* Returns true if all that a session needs to resume from `depth` came, in whole segments. */
static bool came(const struct moved *m, uint32_t from, uint32_t depth)
{
    const struct state_shape *s = &m->shape;
    uint32_t need = depth > s->window ? (depth - s->window) / s->align * s->align : 0,
             has = from > s->window ? (from - s->window) / s->window_page * s->window_page : 0;

    return s->window <= s->align || need >= has;
}

static const struct state_shape SHAPES[] = {{8, 4, 8},   {8, 4, 12},  {8, 8, 16},
                                            {8, 2, 20},  {8, 4, 32},  {8, 2, 50},
                                            {16, 4, 64}, {16, 8, 40}, {16, 16, 48}};

/* Commits chunk by chunk, each written to its end or further, with a slide before each commit. */
static void goes_on(struct state_shape shape, uint32_t n, uint32_t ahead, bool slides)
{
    struct moved m = moved_by_ticket(shape, n);
    uint32_t depth = n / shape.align * shape.align;

    for (uint32_t i = 0; i < 3; i++) {
        depth += shape.align;
        runs_to(&m, depth + ahead);
        if (slides)
            assert_ok(rig_slide(m.d, depth, 0));
        assert_ok(rig_commit(m.d, depth, 0));
        assert_int_equal(rig_wrong(m.d, depth + ahead), 0);
        if (came(&m, n, depth))
            assert_int_equal(resumable(&m, depth), depth);
        assert_true(i == 0 || came(&m, n, depth));
    }
    assert_int_equal(m.d->len.committed, depth);
    assert_ok(rig_close(m.d, 0));
    assert_int_equal(rig_group_view(m.p.dest, m.p.dp, 1).session, 0);
    m.d = session_with(m.p.dest, &m.p.de, m.p.dp, 1, depth + 1);
    assert_int_equal(m.d->matched, depth);
    assert_int_equal(rig_wrong(m.d, depth), 0);
    rig_destroy_all();
}

TEST(t18_session_that_came_by_ticket_makes_resume_points_as_it_goes_on)
{
    for (size_t i = 0; i < sizeof SHAPES / sizeof SHAPES[0]; i++)
        for (uint32_t n = 6 * SHAPES[i].align + 1; n < 8 * SHAPES[i].align; n++)
            for (uint32_t ahead = 0; ahead <= SHAPES[i].align; ahead += SHAPES[i].align / 2 + 1)
                goes_on(SHAPES[i], n, ahead, n % 2);
}

/* All in one commit: each of its chunks whose window is complete becomes a resume point. */
TEST(t18_commit_of_several_chunks_behind_a_ticket_makes_a_resume_point)
{
    for (size_t i = 0; i < sizeof SHAPES / sizeof SHAPES[0]; i++) {
        struct moved m = moved_by_ticket(SHAPES[i], 6 * SHAPES[i].align + 3);
        uint32_t depth = 9 * SHAPES[i].align;

        runs_to(&m, depth + 1);
        assert_ok(rig_commit(m.d, depth, 0));
        assert_int_equal(resumable(&m, depth), depth);
        assert_ok(rig_close(m.d, 0));
        rig_destroy_all();
    }
}

/* E3, T18: pages that a commit gives to nodes above wait for its step, as its chunk does. */
TEST(t18_window_that_is_given_waits_for_the_step_of_its_commit)
{
    struct moved m = moved_by_ticket((struct state_shape){8, 4, 32}, 54);

    runs_to(&m, 56);
    assert_ok(rig_commit(m.d, 56, 9));
    assert_int_equal(resumable(&m, 56), 0);
    rig_engine_done(m.p.dest, &m.p.de, 8);
    assert_int_equal(resumable(&m, 56), 0);
    rig_engine_done(m.p.dest, &m.p.de, 9);
    assert_int_equal(resumable(&m, 56), 56);
    assert_int_equal(rig_wrong(m.d, 56), 0);
    assert_ok(rig_close(m.d, 9));
}

/* T18: the engine dies before the step: older nodes are as they were before. */
TEST(t18_window_that_is_given_goes_with_an_engine_that_dies_before_its_step)
{
    struct moved m = moved_by_ticket((struct state_shape){8, 4, 32}, 54);
    struct rig_engine other = second_engine(m.p.dest, m.p.dp);

    runs_to(&m, 56);
    assert_ok(rig_commit(m.d, 56, 9));
    rig_engine_kill(m.p.dest, &m.p.de, 0);
    rig_settle(m.p.dest);
    assert_int_equal(rig_group_view(m.p.dest, m.p.dp, 1).snapshot, 0);
    m.d = session_with(m.p.dest, &other, m.p.dp, 1, 57);
    assert_int_equal(m.d->matched, 0);
    assert_ok(rig_close(m.d, 0));
}

/* T8: a node that has STATE by then keeps it: the session borrows it, and the answer names it. */
TEST(t8_node_that_has_its_window_by_then_gives_it_to_the_session)
{
    struct moved m = moved_by_ticket((struct state_shape){8, 4, 32}, 54);
    struct rig_engine other = second_engine(m.p.dest, m.p.dp);
    struct rig_session *s = rig_session(m.p.dest, &other, m.p.dp, 1);

    assert_ok(rig_match(s, rig_tokens(1, 48), 48));
    assert_ok(rig_run_to(s, rig_tokens(1, 48), 48));
    assert_ok(rig_commit(s, 48, 0)); /* refills all segments */
    runs_to(&m, 56);
    assert_ok(rig_commit(m.d, 56, 0));
    assert_int_equal(rig_wrong(m.d, 56), 0);
    assert_int_equal(resumable(&m, 56), 56);
    assert_int_equal(rig_group_view(m.p.dest, m.p.dp, 1).session, 0);
    assert_ok(rig_close(s, 0));
    assert_int_equal(rig_wrong(m.d, 56), 0);
    assert_ok(rig_close(m.d, 0));
}

/* S4: back at its committed length the session has all the pages that it runs on. */
TEST(s4_session_goes_back_to_a_length_whose_window_was_given)
{
    struct moved m = moved_by_ticket((struct state_shape){8, 4, 32}, 54);

    runs_to(&m, 60);
    assert_ok(rig_commit(m.d, 56, 0));
    assert_ok(rig_rewind(m.d, 56, 0));
    assert_int_equal(rig_wrong(m.d, 56), 0);
    assert_lengths(m.d, 56, 56, 56);
    assert_ok(rig_close(m.d, 0));
}

/* Y1: at a multiple of L a fetch gives nodes their segments, so the segment in which the window
 * begins must have come whole. At the first length it did not, at the next it did. */
TEST(y1_window_that_came_in_part_is_not_handed_over_where_its_segment_has_to_be_whole)
{
    struct moved m = moved_by_ticket((struct state_shape){8, 2, 20}, 46);

    runs_to(&m, 48);
    assert_ok(rig_commit(m.d, 48, 0));
    assert_err(TERN_INVALID, hand_over_full(m.d, (struct req_handoff){.step = 0})->err);
    runs_to(&m, 56);
    assert_ok(rig_commit(m.d, 56, 0));
    hand_over(m.d, 0, 0);
}
