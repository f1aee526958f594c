/* Scenarios D-a to D-f: which entries are stored on the disk, which of them a longer prompt's
 * stores make needless, and which go when there is no room. Pages have 1/16 of the scenario's
 * bytes, and so has the budget. */
#include "unit/rig/rig_disk_bench.h"

#include "core/disk/entries.h"
#include "core/disk/stores.h"

#define L      64u
#define PROMPT 49022u

static struct disk_bench long_prompt(uint64_t budget)
{
    return disk_bench((struct disk_shape){
        .page_tokens = L, .pages = 1600, .page_bytes = 14u * 1024 / 16 * L, .budget = budget});
}

/* Computes and commits 10,240 tokens at a time, as a prefill does. */
static struct rig_session *prefill(struct disk_bench *b, uint32_t seed)
{
    struct rig_session *s = rig_session(b->rig, &b->e, b->pool, 1);
    const uint32_t *tokens = rig_tokens(seed, PROMPT);
    uint32_t at = 0;

    assert_ok(rig_match(s, tokens, PROMPT));
    while (at < PROMPT) {
        at = at + 10240 < PROMPT ? at + 10240 : PROMPT;
        assert_ok(rig_run_to(s, tokens, at));
        assert_ok(rig_commit(s, at - at % L, 0));
    }
    return s;
}

TEST(d_a)
{
    struct disk_bench b = long_prompt(1u << 26); /* 1 GiB / 16 */
    struct rig_session *s = prefill(&b, 1);
    struct disk_entry_view v;

    assert_int_equal(disk_seen(&b).counts.stored[DISK_CONTINUED], 4);
    assert_int_equal(disk_seen(&b).counts.pruned, 3);
    assert_true(disk_entry(&b, 40960, &v));
    assert_ok(disk_stored(s, PROMPT));
    assert_int_equal(disk_seen(&b).entries, 1);
    assert_true(disk_entry(&b, 48960, &v));
    assert_int_equal(v.reason, DISK_COLD);
    assert_int_equal(v.own_bytes, v.bytes); /* shared with no other entry */
    assert_int_equal(disk_seen(&b).counts.evicted, 0);
    disk_bench_restart(&b);
    s = rig_session(b.rig, &b.e, b.pool, 1);
    matches(s, rig_tokens(1, PROMPT), PROMPT, 0);
    assert_int_equal(b.rig->last->match.disk_depth, 48960);
    assert_ok(rig_fetched(s, rig_fetch(s, PEER_DISK, 0)));
    assert_whole(s, 48960);
    disk_bench_end(&b);
}

static void store_as(struct disk_bench *b, struct rig_session *s, enum disk_reason reason)
{
    struct session_view v;
    struct disk_wanted w = {.reason = reason};

    assert_true(core_session_view(b->rig->core, s->id.slot, &v));
    w.node = v.node;
    assert_true(disk_store_begin(b->rig->core, &w));
    rig_advance(b->rig, 1);
}

/* D6 */
TEST(d_a_with_evict_none_is_pruned)
{
    struct disk_bench b = long_prompt(1u << 26);
    struct rig_session *s = prefill(&b, 1);
    struct disk_entry_view v;

    store_as(&b, s, DISK_EVICT);
    assert_int_equal(disk_seen(&b).counts.pruned, 3); /* pruned by the continued ones */
    assert_true(disk_entry(&b, 40960, &v));
    assert_true(disk_entry(&b, 48960, &v));
    disk_bench_end(&b);
}

/* The budget fits an unrelated entry and the final one: the stores on the way leave it alone. */
TEST(d_a_an_unrelated_entry_survives_a_long_prompt)
{
    struct disk_bench b = long_prompt(1u << 26);
    struct disk_entry_view v;
    struct rig_session *s;
    uint64_t final;

    assert_ok(disk_stored(prefill(&b, 1), PROMPT));
    final = disk_seen(&b).used;
    disk_bench_end(&b);

    b = long_prompt(final + final / 100 + 10 * 70000);
    s = rig_committed(b.rig, &b.e, b.pool, 2, 10 * L);
    store_as(&b, s, DISK_EVICT);
    assert_ok(rig_close(s, 0));
    assert_ok(disk_stored(prefill(&b, 1), PROMPT));
    assert_int_equal(disk_seen(&b).counts.evicted, 0);
    assert_true(disk_entry(&b, 10 * L, &v));
    assert_true(disk_entry(&b, 48960, &v));
    disk_bench_end(&b);
}

TEST(d_b)
{
    struct disk_bench b = disk_bench((struct disk_shape){
        .page_tokens = 4, .pages = 128, .page_bytes = 512, .budget = 1u << 22, .interval = 4096});
    struct rig_session *s[4];
    struct disk_entry_view v;

    s[0] = rig_committed(b.rig, &b.e, b.pool, 1, 16); /* strict prefix, continued */
    s[1] = rig_committed(b.rig, &b.e, b.pool, 2, 20); /* unrelated */
    s[2] = rig_committed(b.rig, &b.e, b.pool, 1, 24); /* strict prefix, cold */
    s[3] = rig_committed(b.rig, &b.e, b.pool, 1, 32); /* the new one */
    store_as(&b, s[0], DISK_CONTINUED);
    store_as(&b, s[1], DISK_CONTINUED);
    store_as(&b, s[2], DISK_EVICT);
    store_as(&b, s[2], DISK_COLD);
    store_as(&b, s[3], DISK_CONTINUED);
    assert_false(disk_entry(&b, 16, &v));
    assert_true(disk_entry(&b, 20, &v));
    assert_true(disk_entry(&b, 24, &v));
    assert_int_equal(v.reason, DISK_COLD);
    assert_true(disk_entry(&b, 32, &v));
    disk_bench_end(&b);
}

TEST(d_c)
{
    struct rig_options o = rig_defaults();
    struct pool p = {.align = L};

    spill_limits(&o, 1, 0);
    assert_int_equal(disk_boundary(&o.limits, &p, 10239), 0);
    assert_int_equal(disk_boundary(&o.limits, &p, 10240), 10240);
    assert_int_equal(disk_boundary(&o.limits, &p, 18432), 10240); /* not above the last */
    assert_int_equal(disk_boundary(&o.limits, &p, 20480), 20480);
    assert_int_equal(disk_cold_depth(&o.limits, &p, 11011), 10240);
    assert_int_equal(disk_cold_depth(&o.limits, &p, 1695), 1664);
}

/* The same through sessions. */
TEST(d_c_a_session_is_stored_at_each_boundary_once)
{
    struct disk_bench b = disk_bench((struct disk_shape){
        .page_tokens = 4, .pages = 200, .page_bytes = 512, .budget = 1u << 24, .interval = 64});
    struct rig_session *s = rig_session(b.rig, &b.e, b.pool, 1);
    static const struct {
        uint32_t to, stored;
    } steps[] = {{60, 0}, {64, 1}, {100, 1}, {124, 1}, {128, 2}, {132, 2}, {256, 3}, {300, 3}};

    assert_ok(rig_match(s, rig_tokens(1, 400), 400));
    for (size_t i = 0; i < sizeof steps / sizeof steps[0]; i++) {
        assert_ok(rig_run_to(s, rig_tokens(1, 400), steps[i].to));
        assert_ok(rig_commit(s, steps[i].to, 0));
        assert_int_equal(disk_seen(&b).counts.stored[DISK_CONTINUED], steps[i].stored);
    }
    disk_bench_end(&b);
}

TEST(d_d)
{
    assert_true(store_fits(1100, 1082));
    assert_false(store_fits(1100, 1090));
}

/* A store that could not fit is refused before a byte is written, and no entry goes for it. */
TEST(d_d_what_cannot_fit_is_refused_up_front)
{
    struct disk_bench b = disk_bench((struct disk_shape){.page_tokens = 4,
                                                         .pages = 128,
                                                         .page_bytes = 4096,
                                                         .budget = 9 * 12288 + 4096,
                                                         .interval = 4096});
    struct rig_session *s = rig_committed(b.rig, &b.e, b.pool, 1, 8);
    uint64_t before;

    assert_ok(disk_stored(s, 8));
    before = b.disk->written_bytes;
    s = rig_committed(b.rig, &b.e, b.pool, 2, 36);
    assert_err(TERN_QUOTA, disk_stored(s, 36)); /* 9 chunks, without the one per cent */
    assert_non_null(strstr(b.rig->last->text, "# bytes on the disk"));
    assert_int_equal(b.rig->last->number[0], (9 * 12288 + 4096) * 101 / 100);
    assert_int_equal(b.rig->last->number[1], 9 * 12288 + 4096);
    assert_int_equal(b.disk->written_bytes, before);
    assert_int_equal(disk_seen(&b).entries, 1);
    assert_int_equal(disk_seen(&b).counts.refused, 1);
    s = rig_committed(b.rig, &b.e, b.pool, 3, 32);
    assert_ok(disk_stored(s, 32)); /* 8 chunks fit, and the first entry goes */
    assert_int_equal(disk_seen(&b).counts.evicted, 1);
    disk_bench_end(&b);
}

#define HOUR_NS (3600ull * 1000000000)

TEST(d_e)
{
    struct disk_bench b = disk_bench((struct disk_shape){.page_tokens = 4,
                                                         .pages = 128,
                                                         .page_bytes = 4096,
                                                         .budget = 8 * 12288 + 3 * 4096,
                                                         .interval = 4096});
    struct rig_session *s;
    struct disk_entry_view v;

    store_as(&b, rig_committed(b.rig, &b.e, b.pool, 1, 12), DISK_EVICT);
    for (uint32_t i = 0; i < 15; i++)
        disk_entry_use(b.rig->core, tenant_at(b.rig->core, 0)->disk_entries.head);
    rig_advance(b.rig, 72 * HOUR_NS);
    store_as(&b, rig_committed(b.rig, &b.e, b.pool, 2, 12), DISK_EVICT);
    disk_entry_use(b.rig->core,
                   disk_entry_list_next(b.rig->core, tenant_at(b.rig->core, 0)->disk_entries.head));
    assert_true(disk_entry_first(&b, &v));
    assert_int_equal(v.hits, 15);
    s = rig_committed(b.rig, &b.e, b.pool, 3, 12);
    store_as(&b, s, DISK_EVICT);
    assert_int_equal(disk_seen(&b).counts.evicted, 1);
    assert_int_equal(disk_depth_of(&b, rig_tokens(2, 13), 13), 0); /* no deeper than memory */
    disk_bench_restart(&b);
    assert_int_equal(disk_depth_of(&b, rig_tokens(1, 13), 13), 0);
    assert_int_equal(disk_depth_of(&b, rig_tokens(2, 13), 13), 12);
    assert_int_equal(disk_depth_of(&b, rig_tokens(3, 13), 13), 12);
    disk_bench_end(&b);
}

/* Bytes written, over the bytes of all pages and tokens of the four together. */
TEST(d_f)
{
    struct disk_bench b = disk_bench((struct disk_shape){.page_tokens = L,
                                                         .pages = 40,
                                                         .page_bytes = 14u * 1024 * L,
                                                         .budget = 1u << 30,
                                                         .interval = 4096});
    uint64_t unique = 16ull * L * (14 * 1024 + 4);
    struct rig_session *s = rig_session(b.rig, &b.e, b.pool, 1);

    assert_ok(rig_match(s, rig_tokens(1, 16 * L), 16 * L));
    for (uint32_t depth = 4 * L; depth <= 16 * L; depth += 4 * L) {
        assert_ok(rig_run_to(s, rig_tokens(1, 16 * L), depth));
        assert_ok(rig_commit(s, depth, 0));
        assert_ok(disk_stored(s, depth));
    }
    assert_int_equal(disk_seen(&b).entries, 4);
    assert_true(b.disk->written_bytes * 100 <= unique * 105);
    print_message("D-f: %.4f bytes are written for each\n",
                  (double)b.disk->written_bytes / (double)unique);
    disk_bench_end(&b);
}

/* One store of so many chunks takes several files. The entry is in the last one, and a daemon that
 * ends before has no entry. */
TEST(d_a_a_store_of_several_files_is_none_before_the_last)
{
    struct disk_bench b = disk_bench((struct disk_shape){
        .page_tokens = 4, .pages = 700, .page_bytes = 512, .budget = 1u << 24, .interval = 4096});
    struct rig_session *s = rig_committed(b.rig, &b.e, b.pool, 1, 2400);
    uint32_t files = 0;

    b.rig->automatic = BY_HAND(RIG_DISK_WRITE);
    disk_store(s, 2400);
    rig_complete(b.rig, RIG_DISK_WRITE);
    assert_int_equal(disk_seen(&b).entries, 0);
    disk_bench_restart(&b);
    assert_int_equal(disk_seen(&b).used, 0); /* no chunk links to the first file */
    assert_int_equal(spill_bytes(b.disk), 0);
    s = rig_committed(b.rig, &b.e, b.pool, 1, 2400);
    b.rig->automatic = BY_HAND(RIG_DISK_WRITE);
    disk_store(s, 2400);
    for (; rig_jobs(b.rig, RIG_DISK_WRITE) > 0; files++) {
        assert_int_equal(disk_seen(&b).entries, 0);
        rig_complete(b.rig, RIG_DISK_WRITE);
    }
    assert_int_equal(files, 3);
    assert_int_equal(disk_seen(&b).entries, 1);
    disk_bench_restart(&b);
    assert_int_equal(disk_depth_of(&b, rig_tokens(1, 2400), 2400), 2400);
    disk_bench_end(&b);
}

/* D7: of two entries of equal size and age the anchor stays. */
TEST(d_e_an_anchor_weighs_double)
{
    struct disk_bench b = disk_bench((struct disk_shape){.page_tokens = 4,
                                                         .pages = 128,
                                                         .page_bytes = 4096,
                                                         .budget = 8 * 12288 + 3 * 4096,
                                                         .interval = 4096});
    struct disk_entry_view v;

    store_as(&b, rig_committed(b.rig, &b.e, b.pool, 1, 12), DISK_COLD);
    store_as(&b, rig_committed(b.rig, &b.e, b.pool, 2, 12), DISK_EVICT);
    store_as(&b, rig_committed(b.rig, &b.e, b.pool, 3, 12), DISK_EVICT);
    assert_int_equal(disk_seen(&b).counts.evicted, 1);
    assert_true(disk_entry_first(&b, &v));
    assert_int_equal(v.reason, DISK_COLD);
    disk_bench_end(&b);
}

/* D7: a hit counts half after six hours of serving, a quarter after twelve. */
TEST(d_e_uses_are_worth_half_after_six_hours)
{
    struct disk_bench b = disk_bench((struct disk_shape){
        .page_tokens = 4, .pages = 128, .page_bytes = 4096, .budget = 1u << 22, .interval = 4096});
    uint32_t entry;
    uint64_t one, now;

    store_as(&b, rig_committed(b.rig, &b.e, b.pool, 1, 12), DISK_EVICT);
    entry = tenant_at(b.rig->core, 0)->disk_entries.head;
    one = disk_entry_score(b.rig->core, entry); /* (0 + 1) * tokens / bytes */
    for (uint32_t i = 0; i < 16; i++)
        disk_entry_use(b.rig->core, entry);
    now = disk_entry_score(b.rig->core, entry);
    assert_in_range(now / 16, one * 17 / 16 - 1, one * 17 / 16 + 1);
    rig_advance(b.rig, 6 * HOUR_NS);
    assert_in_range(disk_entry_score(b.rig->core, entry) / 9, one - 1, one + 1);
    rig_advance(b.rig, 6 * HOUR_NS);
    assert_in_range(disk_entry_score(b.rig->core, entry) / 5, one - 1, one + 1);
    rig_advance(b.rig, 3 * HOUR_NS); /* between 4 and 2: a straight line */
    assert_in_range(disk_entry_score(b.rig->core, entry) / 4, one - 1, one + 1);
    disk_bench_end(&b);
}
