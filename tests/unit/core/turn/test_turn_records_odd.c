/* Turn records where little goes as usual: lengths that no memory has, turns that are lost again
 * and again, engines that end in pieces while a worker looks, and rollbacks of sessions in every
 * state, after which each has to go on as if nothing had been. */
#include "unit/rig/rig_record.h"

struct stand {
    struct rig *rig;
    struct rig_engine e;
    struct rig_session *s;
    struct recorder r;
};

static struct stand stand_with(struct rig_options o)
{
    struct stand t = {.rig = rig_create(&o)};

    t.e = rig_engine(t.rig, 0, "e", 2);
    t.s = rig_session(t.rig, &t.e, rig_pool_pages(t.rig, &t.e, 4, 64), 1);
    t.r = (struct recorder){.rig = t.rig, .conn = t.e.conn[0], .session = t.s->id, .seed = 1};
    return t;
}

static struct stand stand(void)
{
    return stand_with(rig_defaults());
}

static struct records_view view(const struct stand *t)
{
    struct records_view v;

    core_records(t->rig->core, 0, &v);
    return v;
}

#define assert_pages(t, used_, held_)                                                              \
    do {                                                                                           \
        assert_int_equal(view(t).used, (used_));                                                   \
        assert_int_equal(view(t).held, (held_));                                                   \
    } while (0)

/* A blob of nearly 2^64 bytes has no pages, however its length is rounded up. */
TEST(records_blobs_longer_than_any_memory_are_refused)
{
    static const uint64_t bytes[] = {UINT64_MAX, UINT64_MAX - RECORD_PAGE_BYTES + 2,
                                     UINT64_MAX - RECORD_PAGE_BYTES + 1, 1ull << 63,
                                     (1ull << 32) * RECORD_PAGE_BYTES,
                                     (1ull << 32) * RECORD_PAGE_BYTES + 1};
    struct stand t = stand();

    recorder_begin(&t.r);
    for (size_t i = 0; i < sizeof bytes / sizeof *bytes; i++) {
        assert_null(record_write(&t.r, 4, bytes[i]));
        assert_err(TERN_QUOTA, t.rig->last->err);
        assert_pages(&t, 0, 0);
    }
    recorder_end(&t.r);
}

/* Of what a lost turn was told, only that is held. What was recorded later is not, whichever
 * tokens it is of: a session may roll back and append as often as it wants to. */
TEST(records_that_came_after_a_lost_turn_are_not_held)
{
    struct rig_options o = OPTIONS_WITH(limits.turn_deadline_ns = 1000);
    struct stand t = stand_with(o);

    records_turn(&t.r, 10);
    records_turn(&t.r, 30);
    recorder_begin(&t.r);
    assert_non_null(record_write(&t.r, 40, RECORD_PAGE_BYTES));
    rig_advance(t.rig, 1000);
    assert_pages(&t, 2 + 3 + 3, 3);
    for (uint32_t i = 0; i < 8; i++) {
        recorder_begin(&t.r);
        assert_ok(rolls_back(&t.r, 1, 29, 0)->err);
        assert_int_equal(t.rig->last->rollback.length, 10);
        recorder_end(&t.r);
        assert_pages(&t, 2 + 6, 6); /* the record of the lost turn, and the one that it knew */
        records_turn(&t.r, 30);
    }
}
