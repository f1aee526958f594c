/* The use of a rig in tests of transfers: each case closes it, and some make a pull from its
 * beginning to its end. */
#ifndef TEST_PULLS_RIG_H
#define TEST_PULLS_RIG_H

#include "unit/seam/test_xfer_rig.h"

FIXTURE(rig_teardown)
{
    if (rig.io)
        rig_close();
    return 0;
}

TEST_EACH(NULL, rig_teardown);

#define PULL(s) ((struct pull_id){(s), 5})

static inline void pull_and_check(const struct rig_options *o, uint32_t pages, uint32_t batch_pages)
{
    uint32_t batches = 0, ok = 0;
    struct xfer_stats in, out;
    uint64_t total = 0;

    rig_open_filled(o, pages + 1);
    for (uint32_t first = 1; first <= pages; first += batch_pages, batches++) {
        uint32_t n = pages + 1 - first < batch_pages ? pages + 1 - first : batch_pages;

        if (batches >= PULL_BATCHES_MAX)
            rig_until(&rig.dst, batches - PULL_BATCHES_MAX + 1);
        rig_pull((struct pull_id){3, 5}, 0, batches, first, n);
    }
    rig_until(&rig.dst, batches);
    for (uint32_t i = 0; i < batches; i++) {
        uint32_t first = 1 + rig.dst.event[i].pulled.batch * batch_pages;

        assert_true(pull_id_equal(rig.dst.event[i].pulled.pull, (struct pull_id){3, 5}));
        ok += rig_check_pulled(&rig.dst.event[i], first, batch_pages);
    }
    assert_int_equal(ok, pages);
    for (uint32_t i = 1; i <= pages; i++)
        total += rig.group[rig_group_of(i)].page_bytes * rig.transfer_regions;
    xfer_stats(rig.dst.xfer, &in);
    xfer_stats(rig.src.xfer, &out);
    assert_int_equal(in.payload_bytes_in, total);
    assert_int_equal(out.payload_bytes_out, total);
    assert_int_equal(in.pages_in, pages);
    assert_int_equal(out.pages_out, pages);
    /* Heads in both directions: at most 2 % at 4096 bytes a page. */
    if (!rig_transports && o->page_bytes[0] == 4096 && o->units == 1 && pages >= 256)
        assert_true((in.socket_bytes_in + in.socket_bytes_out - total) * 50 <= total);
    rig_stop((struct pull_id){3, 5});
    assert_int_equal(rig.dst.nevents, batches + 1);
    assert_int_equal(rig.dst.event[batches].kind, EV_PULL_QUIET);
    rig_serve_stop(0);
    assert_int_equal(rig.src.nevents, 1);
    assert_int_equal(rig.src.event[0].kind, EV_SERVE_QUIET);
    rig_close();
}

static inline void expect_broken(struct pull_id pull, enum tern_err err)
{
    const struct event *e;

    rig_until(&rig.dst, 1);
    e = &rig.dst.event[0];
    assert_int_equal(e->kind, EV_PULL_BROKEN);
    assert_true(pull_id_equal(e->broken.pull, pull));
    assert_int_equal(e->broken.err, err);
    rig_stop(pull);
    rig_until(&rig.dst, 2);
    assert_int_equal(rig.dst.event[1].kind, EV_PULL_QUIET);
    assert_int_equal(rig.dst.nevents, 2);
    rig.dst.nevents = 0;
}

static inline void pull_breaks(struct pull_id pull, uint32_t serve, uint32_t batch, uint32_t first,
                               uint32_t n, enum tern_err err)
{
    rig_pull(pull, serve, batch, first, n);
    expect_broken(pull, err);
}

static inline void pull_works(uint32_t slot)
{
    rig.dst.nevents = 0;
    rig_pull((struct pull_id){slot, 5}, 0, 0, 1, 30);
    rig_until(&rig.dst, 1);
    assert_int_equal(rig_check_pulled(&rig.dst.event[0], 1, 30), 30);
    rig.dst.nevents = 0;
}

#endif
