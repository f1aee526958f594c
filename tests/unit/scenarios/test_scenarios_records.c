/* Scenarios M-a to M-c of turn records, in the core. */
#include "unit/rig/rig_record.h"

static struct recorder start(uint32_t blobs_kept, bool merging)
{
    struct rig_options o = rig_defaults();
    struct recorder r = {.rig = rig_create(&o), .seed = 1};
    struct rig_engine e = rig_engine(r.rig, 0, "e", 1);
    struct request open = {.op = OP_SESSION_OPEN,
                           .session_open = {.pool = rig_pool_pages(r.rig, &e, 4, 64),
                                            .ns = {.hi = 1, .lo = 1},
                                            .blobs_kept = blobs_kept,
                                            .merging = merging}};

    r.conn = e.conn[0];
    r.session = record_ask(&r, open)->session_open.session;
    return r;
}

static uint32_t used(const struct recorder *r)
{
    struct records_view v;

    v = core_tenant_view(r->rig->core, 0).records;
    return v.used;
}

static uint32_t pages(uint64_t bytes)
{
    return (uint32_t)((bytes + RECORD_PAGE_BYTES - 1) / RECORD_PAGE_BYTES);
}

/* M1: the kept bytes grow with the prefix, not with turns times prefix. */
TEST(m_a_only_the_last_records_keep_their_blobs)
{
    static const uint32_t lengths[] = {20, 50, 70, 100};
    struct recorder r = start(0, false);

    for (uint32_t i = 0; i < 4; i++)
        records_turn(&r, lengths[i]);
    recorder_begin(&r);
    assert_int_equal(records_read(&r, 4, lengths), 1u << 2 | 1u << 3);
    recorder_end(&r);
    assert_int_equal(used(&r), 4 + pages(70000) + pages(100000));
}

TEST(m_b_a_rollback_onto_a_record_without_its_blobs_is_refused)
{
    static const uint32_t lengths[] = {20, 50, 70, 60};
    struct recorder r = start(0, false);

    for (uint32_t i = 0; i < 3; i++)
        records_turn(&r, lengths[i]);
    recorder_begin(&r);
    assert_ok(rolls_back(&r, 1, 60, 0)->err); /* the third record goes beyond it */
    assert_int_equal(r.rig->last->rollback.length, 50);
    assert_int_equal(records_read(&r, 2, lengths), 1u << 1);
    assert_err(TERN_INVALID, rolls_back(&r, 1, 40, 0)->err);
    assert_int_equal(records_read(&r, 2, lengths), 1u << 1);
    assert_ok(rolls_back(&r, 1, 50, 0)->err); /* no record follows it: none goes */
    recorder_end(&r);
    records_turn(&r, 60); /* after an append one more may be taken back */
    recorder_begin(&r);
    assert_ok(rolls_back(&r, 1, 59, 0)->err);
    assert_int_equal(r.rig->last->rollback.records, 2);
    recorder_end(&r);
    assert_int_equal(used(&r), 2 + pages(50000));
}

/* M3: an append drops the blobs of one record only, and a rollback restores none. */
TEST(m_b_a_rollback_behind_an_append_ends_at_no_record_without_its_blobs)
{
    static const uint32_t lengths[] = {20, 30, 40, 55};
    struct recorder r = start(3, false);

    for (uint32_t i = 0; i < 5; i++)
        records_turn(&r, 10 * i + 20);
    recorder_begin(&r);
    assert_ok(rolls_back(&r, 1, 45, 0)->err);
    assert_int_equal(r.rig->last->rollback.length, 40);
    recorder_end(&r);
    records_turn(&r, 55);
    recorder_begin(&r);
    assert_int_equal(records_read(&r, 4, lengths), 1u << 2 | 1u << 3);
    assert_err(TERN_INVALID, rolls_back(&r, 1, 35, 0)->err);
    assert_int_equal(records_read(&r, 4, lengths), 1u << 2 | 1u << 3);
    assert_ok(rolls_back(&r, 1, 54, 0)->err);
    assert_int_equal(r.rig->last->rollback.length, 40);
    recorder_end(&r);
}

/* M11: the bytes are read as they were written. A merge of the last turn reads log-probabilities of
 * all turns and blobs of the last, which are the same with and without retention. */
TEST(m_c_a_merge_reads_the_same_bytes_where_blobs_were_dropped)
{
    static const uint32_t lengths[] = {20, 50, 70};

    for (uint32_t merging = 0; merging < 2; merging++) {
        struct recorder r = start(merging ? 0 : 1, merging);

        for (uint32_t i = 0; i < 3; i++)
            records_turn(&r, lengths[i]);
        recorder_begin(&r);
        assert_int_equal(records_read(&r, 3, lengths), merging ? 7 : 4);
        recorder_end(&r);
    }
}
