/* Pages that are resharded between two xfers over real sockets (N3): they arrive right, or do not
 * count. A stream that was cut or altered, a serve or a pull that ends in the middle, and ends that
 * cannot have a plan. */
#include "unit/rig/rig_reshard.h"
#include "unit/seam/test_pulls_rig.h"
#include "unit/seam/transport_memory.h"

#include "seam/xfer/flow/transfers.h"
#include "seam/xfer/tcp/tcp.h"

#define PAGES      40u
#define RANKS      2u
#define PAGE_BYTES 4096u /* of eight heads, sixteen tokens, two ranks */
#define HASH_SRC   0x51u
#define HASH_DST   0xd1u

static const struct rig_options plain = {
    .page_bytes = {PAGE_BYTES}, .regions = RANKS, .units = 2, .memory_bytes = 8u << 20};

static struct world_end src_end, dst_end;

static struct reshard_layout layout_of(const struct world_end *e)
{
    struct reshard_layout l;

    world_layout(e, &l);
    assert_int_equal(l.page_bytes, PAGE_BYTES);
    return l;
}

static void fill_page(uint32_t i, struct page_at *ret)
{
    for (uint32_t r = 0; r < RANKS; r++)
        world_fill(&src_end, r, i, mem_page(rig.src.mem, 0, r, 0, i), NULL);
    *ret = (struct page_at){.group = 0, .index = i, .gen = 1, .record = i};
}

static void seal(const struct page_at *pages, uint32_t n)
{
    mem_seal(rig.src.mem, (struct seal_id){0, 1}, 0, pages, n);
    while (rig.src.nevents == 0) {
        mem_wait(rig.src.mem);
        mem_poll(rig.src.mem, rig_emit, &rig.src);
    }
    rig.src.nevents = 0;
}

/* Tokens of heads at the source, heads of tokens at the destination; nobody knows a layout yet. */
static void open_worlds(const struct rig_options *o)
{
    struct page_at pages[PAGES];

    src_end = (struct world_end){
        .kind = WORLD_MHA, .ranks = RANKS, .stages = 1, .page_tokens = 16, .units = 2};
    dst_end = src_end;
    dst_end.order = 1;
    rig_open(o);
    for (uint32_t i = 1; i <= PAGES; i++)
        fill_page(i, &pages[i - 1]);
    seal(pages, PAGES);
}

static void tell(void)
{
    struct reshard_layout src = layout_of(&src_end), dst = layout_of(&dst_end);

    xfer_pool_layouts(rig.src.xfer, 0, HASH_SRC, &src, 1);
    xfer_peer_layouts(rig.src.xfer, 0, HASH_DST, &dst, 1);
    xfer_pool_layouts(rig.dst.xfer, 0, HASH_DST, &dst, 1);
    xfer_peer_layouts(rig.dst.xfer, rig.link, HASH_SRC, &src, 1);
}

static void serve(uint32_t slot)
{
    struct action act = {.kind = ACT_SERVE_START};

    act.serve.serve = (struct serve_id){slot, 7};
    act.serve.layout_hash = HASH_DST;
    xfer_serve_start(rig.src.xfer, &act);
}

static void open_told(const struct rig_options *o)
{
    open_worlds(o);
    tell();
    serve(1);
}

/* Pulls from serve 1, by a plan unless hash is 0. */
static void pull(struct pull_id id, uint64_t hash, uint32_t batch, uint32_t first, uint32_t n)
{
    rig.layout_hash = hash;
    rig_pull(id, 1, batch, first, n);
}

static bool page_right(uint32_t i)
{
    static uint8_t like[WORLD_PAGE_MAX];

    for (uint32_t r = 0; r < RANKS; r++) {
        world_fill(&dst_end, r, i, like, NULL);
        if (memcmp(mem_page(rig.dst.mem, 0, r, 0, i), like, PAGE_BYTES) != 0)
            return false;
    }
    return true;
}

/* Number of pages that the event reports as right, which they are. */
static uint32_t right(const struct event *e, uint32_t first)
{
    uint32_t n = 0;

    assert_int_equal(e->kind, EV_PULLED);
    for (uint32_t i = 0; i < PULL_BATCH_PAGES; i++)
        if (xfer_bit(e->pulled.ok, i)) {
            assert_true(page_right(first + i));
            n++;
        }
    return n;
}

static void stop_and_close(struct pull_id id)
{
    uint32_t events = rig.dst.nevents;

    rig_stop(id);
    rig_until(&rig.dst, events + 1);
    assert_int_equal(rig.dst.event[events].kind, EV_PULL_QUIET);
    rig_serve_stop(1);
    rig_until(&rig.src, 1);
    rig_close();
}

/* The pull breaks with that error, and all ends. */
static void breaks(enum tern_err err)
{
    rig_until(&rig.dst, 1);
    assert_int_equal(rig.dst.event[0].kind, EV_PULL_BROKEN);
    assert_int_equal(rig.dst.event[0].broken.err, err);
    stop_and_close(PULL(3));
}

/* A pull of n pages of which `at` bytes of the stream have arrived, and no more do. */
static void pull_comes_to(struct rig_options o, uint64_t at, uint32_t n)
{
    o.by_proxy = true;
    open_told(&o);
    rig.proxy.down_limit = at;
    pull(PULL(3), HASH_SRC, 0, 1, n);
    while (rig.proxy.down < at)
        rig_turn();
}

TEST(n3_pages_come_in_the_order_of_the_destination)
{
    struct xfer_stats in, out;

    open_told(&plain);
    pull(PULL(3), HASH_SRC, 0, 1, PAGES / 2);
    pull(PULL(3), HASH_SRC, 1, 1 + PAGES / 2, PAGES / 2);
    rig_until(&rig.dst, 2);
    assert_int_equal(right(&rig.dst.event[0], 1 + rig.dst.event[0].pulled.batch * PAGES / 2) +
                         right(&rig.dst.event[1], 1 + rig.dst.event[1].pulled.batch * PAGES / 2),
                     PAGES);
    xfer_stats(rig.dst.xfer, &in);
    xfer_stats(rig.src.xfer, &out);
    assert_int_equal(in.payload_bytes_in, PAGES * RANKS * PAGE_BYTES);
    assert_int_equal(out.payload_bytes_out, in.payload_bytes_in);
    assert_int_equal(in.pages_in, PAGES);
    assert_int_equal(in.corrupt_detected, 0);
    stop_and_close(PULL(3));
}

/* Does each connection copy the moving bytes through a buffer? */
static bool packs(const struct xfer *xfer)
{
    const struct data_conns *conns = xfer->conns;
    bool all = conns->end > 0;

    for (uint32_t i = 0; i < conns->end; i++)
        all = all && conns->conn[i].walk.packed;
    return all;
}

/* Rows of eight bytes lie scattered in the page of the source; whole pages do not. */
TEST(n3_short_rows_are_packed_and_long_ones_are_not)
{
    open_told(&plain);
    pull(PULL(3), HASH_SRC, 0, 1, 8);
    rig_until(&rig.dst, 1);
    assert_int_equal(right(&rig.dst.event[0], 1), 8);
    assert_true(packs(rig.src.xfer));
    stop_and_close(PULL(3));
    rig_open_filled(&plain, PAGES);
    rig_pull(PULL(2), 0, 0, 1, 8);
    rig_until(&rig.dst, 1);
    assert_false(packs(rig.src.xfer));
    assert_false(packs(rig.dst.xfer));
    rig_stop(PULL(2));
    rig_until(&rig.dst, 2);
    rig_close();
}

/* X3, X7: wherever the stream is altered, no wrong page counts. */
TEST(x7_bit_that_is_flipped_anywhere_costs_the_page_or_the_connection)
{
    struct rig_options o = plain;
    uint64_t all = 4 * (RANKS * PAGE_BYTES + RANKS * 2 * 8) + 120;

    o.by_proxy = true;
    for (uint64_t at = 0; at < all; at += 997) {
        open_told(&o);
        rig.proxy.flip_at = at;
        pull(PULL(3), HASH_SRC, 0, 1, 4);
        rig_until(&rig.dst, 1);
        if (rig.dst.event[0].kind == EV_PULLED)
            assert_true(right(&rig.dst.event[0], 1) < 4);
        else
            assert_int_equal(rig.dst.event[0].kind, EV_PULL_BROKEN);
        stop_and_close(PULL(3));
    }
}

TEST(x2_stream_that_is_cut_breaks_the_pull)
{
    for (uint64_t at = 3; at < 4 * RANKS * PAGE_BYTES; at += 2999) {
        pull_comes_to(plain, at, 4);
        proxy_cut(&rig.proxy);
        close(rig.proxy.listen_fd); /* and nobody answers */
        rig.proxy.listen_fd = -1;
        breaks(TERN_PEER_LOST);
    }
}

TEST(p2_pull_that_is_stopped_in_the_middle_is_quiet_and_the_next_one_goes_on)
{
    for (uint64_t at = 100; at < 8 * RANKS * PAGE_BYTES; at += 9001) {
        pull_comes_to(plain, at, 8);
        rig_stop(PULL(3));
        rig_until(&rig.dst, 1);
        assert_int_equal(rig.dst.event[0].kind, EV_PULL_QUIET);
        rig.proxy.down_limit = UINT64_MAX;
        pull(PULL(4), HASH_SRC, 0, 1, PAGES);
        rig_until(&rig.dst, 2);
        assert_int_equal(right(&rig.dst.event[1], 1), PAGES);
        stop_and_close(PULL(4));
    }
}

/* The rest of what was promised goes out as zeros, and the tail names it. */
TEST(p1_serve_that_ends_in_the_middle_gives_nothing_more)
{
    struct rig_options o = plain;

    o.socket_buffer_bytes = 8192;
    pull_comes_to(o, 3 * PAGE_BYTES, PAGES);
    rig_serve_stop(1);
    rig_until(&rig.src, 1);
    assert_int_equal(rig.src.event[0].kind, EV_SERVE_QUIET);
    rig.proxy.down_limit = UINT64_MAX;
    rig_until(&rig.dst, 1);
    assert_int_equal(rig.dst.event[0].kind, EV_PULL_BROKEN);
    assert_int_equal(rig.dst.event[0].broken.err, TERN_GONE);
    rig_stop(PULL(3));
    rig_until(&rig.dst, 2);
    rig_close();
}

TEST(n3_layout_that_nobody_told_of_is_unsupported)
{
    open_worlds(&plain);
    serve(1);
    pull(PULL(3), HASH_SRC, 0, 1, 4);
    breaks(TERN_UNSUPPORTED);
}

/* Only one end knows the layouts: the source sends nothing. */
TEST(n3_source_without_a_plan_gives_no_page)
{
    struct reshard_layout src, dst;

    open_worlds(&plain);
    src = layout_of(&src_end);
    dst = layout_of(&dst_end);
    serve(1);
    xfer_pool_layouts(rig.dst.xfer, 0, HASH_DST, &dst, 1);
    xfer_peer_layouts(rig.dst.xfer, rig.link, HASH_SRC, &src, 1);
    pull(PULL(3), HASH_SRC, 0, 1, 4);
    breaks(TERN_GONE);
}

/* Unchanged pages would be wrong here: a request for them gets none. */
TEST(n3_pages_as_they_are_do_not_leave_for_another_layout)
{
    open_told(&plain);
    pull(PULL(3), 0, 0, 1, 4);
    breaks(TERN_GONE);
}

/* --- pairs and layouts --- */

static bool used_by_core(void *ctx, uint64_t hash)
{
    (void)ctx;
    return hash == HASH_SRC;
}

/* The destination declares n different layouts of its own, by hashes from 1 on. */
static void tell_many(uint32_t link, uint32_t n)
{
    struct reshard_layout l = layout_of(&dst_end);

    for (uint64_t hash = 1; hash <= n; hash++) {
        l.page_bytes = PAGE_BYTES + 2 * hash; /* bytes behind the fields */
        xfer_peer_layouts(rig.src.xfer, link, hash, &l, 1);
    }
}

static enum tern_err take(uint32_t peer, uint64_t hash, struct pair **ret)
{
    const struct pair_ask ask = {.peer = peer, .other_hash = hash, .ours_sends = true};

    return pair_take(rig.src.xfer, &ask, ret);
}

/* Pairs are few, and pairs in use stay: the next request is BUSY. */
TEST(n3_pairs_that_are_held_are_not_given_away)
{
    struct pair *held[RESHARD_PAIRS_MAX], *one;

    open_told(&plain);
    xfer_serve_stop(rig.src.xfer, &(struct action){.serve.serve = {1, 7}});
    tell_many(2, RESHARD_PAIRS_MAX + 1);
    for (uint32_t i = 0; i < RESHARD_PAIRS_MAX; i++)
        assert_int_equal(take(2, 1 + i, &held[i]), TERN_OK);
    assert_int_equal(take(2, RESHARD_PAIRS_MAX + 1, &one), TERN_BUSY);
    assert_int_equal(take(2, 1, &one), TERN_OK); /* a second user */
    assert_ptr_equal(one, held[0]);
    pair_put(&one);
    pair_put(&held[RESHARD_PAIRS_MAX - 1]);
    assert_int_equal(take(2, RESHARD_PAIRS_MAX + 1, &held[RESHARD_PAIRS_MAX - 1]), TERN_OK);
    for (uint32_t i = 0; i < RESHARD_PAIRS_MAX; i++)
        pair_put(&held[i]);
    rig_close();
}

/* Under whatever hash they declare the layout. */
TEST(n3_links_between_equal_layouts_share_a_pair)
{
    struct reshard_layout dst, other;
    struct pair *a, *b, *c;

    open_told(&plain);
    dst = other = layout_of(&dst_end);
    other.units = 4;
    xfer_peer_layouts(rig.src.xfer, 1, HASH_DST, &dst, 1);
    xfer_peer_layouts(rig.src.xfer, 2, HASH_DST + 1, &dst, 1);
    assert_int_equal(take(0, HASH_DST, &a), TERN_OK);
    assert_int_equal(take(1, HASH_DST, &b), TERN_OK);
    assert_int_equal(take(2, HASH_DST + 1, &c), TERN_OK);
    assert_ptr_equal(a, b);
    assert_ptr_equal(a, c);
    pair_put(&b);
    pair_put(&c);
    /* A link with another layout under that hash has a pair of its own. */
    xfer_peer_layouts(rig.src.xfer, 2, HASH_DST, &other, 1);
    assert_int_equal(take(2, HASH_DST, &c), TERN_OK);
    assert_int_equal(take(1, HASH_DST, &b), TERN_OK);
    assert_ptr_not_equal(a, c);
    assert_ptr_equal(a, b);
    pair_put(&a);
    pair_put(&b);
    pair_put(&c);
    rig_close();
}

/* The layout that was declared longest ago is dropped, but not one that a transfer of the core
 * needs, however much a peer declares. */
TEST(n3_layout_that_a_transfer_needs_is_not_pushed_out_by_another_peer)
{
    const uint32_t most = RESHARD_PAIRS_MAX * LAYOUTS_A_PAIR, told = 3 * most;
    struct reshard_layout dst;
    struct pair *pair;

    open_told(&plain);
    rig.src.xfer->config.layout_used = used_by_core;
    dst = layout_of(&dst_end);
    xfer_peer_layouts(rig.src.xfer, 1, HASH_SRC, &dst, 1);
    tell_many(2, told);
    assert_int_equal(take(1, HASH_SRC, &pair), TERN_OK);
    pair_put(&pair);
    for (uint64_t hash = 1; hash <= told; hash++) {
        bool kept = hash > told - (most - 1);

        if (hash == HASH_SRC)
            continue;
        assert_int_equal(take(2, hash, &pair), kept ? TERN_OK : TERN_UNSUPPORTED);
        if (kept)
            pair_put(&pair);
    }
    rig_close();
}

/* An innermost axis with a stride of its own leaves rows of one element: here 2^19 of them. */
TEST(n3_plan_of_too_many_rows_is_refused_by_name)
{
    struct reshard_layout src, dst;
    char group[RESHARD_NAME_MAX];
    struct pair *pair;

    open_told(&plain);
    src = (struct reshard_layout){
        .name = "kv",
        .ranks = 1,
        .stages = 1,
        .units = 1,
        .page_bytes = 4u << 20,
        .nfields = 1,
        .field[0] = {.name = "s",
                     .over = OVER_REPLICATED,
                     .element_bytes = 2,
                     .naxes = 2,
                     .axis = {{AXIS_DIM, 1u << 19, 2}, {AXIS_STATE, 2, 1u << 20}}}};
    dst = src;
    dst.field[0].axis[0].stride = 4;
    dst.field[0].axis[1] = (struct reshard_axis){AXIS_STATE, 2, 1u << 21};
    src.page_bytes = 2u << 20;
    assert_int_equal(reshard_check_layout(&src), RESHARD_NONE);
    assert_int_equal(reshard_check_layout(&dst), RESHARD_NONE);
    xfer_pool_layouts(rig.src.xfer, 0, HASH_SRC, &src, 1);
    xfer_peer_layouts(rig.src.xfer, 1, HASH_DST, &dst, 1);
    assert_int_equal(take(1, HASH_DST, &pair), TERN_UNSUPPORTED);
    xfer_pool_layouts(rig.src.xfer, 0, HASH_DST, &dst, 1);
    xfer_peer_layouts(rig.src.xfer, 1, HASH_SRC, &src, 1);
    assert_int_equal(xfer_layouts_refusal(rig.src.xfer, HASH_DST, HASH_SRC, group), RESHARD_ROWS);
    assert_string_equal(group, "kv");
    rig_close();
}

/* A field of so many channels of a byte, in eight sections, over eight ranks and two stages. Its
 * long uniform part comes before the part in which two pages differ. */
static void many_sections(struct reshard_field *f, uint32_t number, uint32_t page_tokens)
{
    const uint64_t channels = RESHARD_SECTIONS_MAX; /* of a rank */

    *f = (struct reshard_field){.element_bytes = 1,
                                .offset = number * channels * page_tokens,
                                .naxes = 6,
                                .axis = {{AXIS_KV, 1, 1},
                                         {AXIS_DIM, 1, 1},
                                         {AXIS_STATE, 1, 1},
                                         {AXIS_TOKEN, page_tokens, channels},
                                         {AXIS_CHANNEL, 8 * RESHARD_SECTIONS_MAX, 1},
                                         {AXIS_LAYER, 2, channels * page_tokens}},
                                .nsections = RESHARD_SECTIONS_MAX};
    snprintf(f->name, sizeof f->name, "field%u", number);
    for (uint32_t k = 0; k < f->nsections; k++) {
        f->section[k] = (struct reshard_section){.count = 8, .width = 1};
        snprintf(f->section[k].name, sizeof f->section[k].name, "section%u", k);
    }
}

/* The maximum of ranks, pages of a span, fields and sections. */
static struct reshard_layout largest(uint32_t page_tokens)
{
    struct reshard_layout l = {.name = "kv",
                               .ranks = RESHARD_RANKS_MAX,
                               .stages = RESHARD_STAGES_MAX,
                               .page_tokens = page_tokens,
                               .align_tokens = RESHARD_SPAN_PAGES_MAX,
                               .units = 1,
                               .page_bytes =
                                   RESHARD_FIELDS_MAX * RESHARD_SECTIONS_MAX * page_tokens,
                               .nfields = RESHARD_FIELDS_MAX};

    for (uint32_t i = 0; i < l.nfields; i++)
        many_sections(&l.field[i], i, page_tokens);
    return l;
}

/* Two million parts of pages for each plan, and plans for each of many groups: at most the steps of
 * a pair are done. */
TEST(n3_pair_whose_plans_would_cost_too_much_is_refused_by_name)
{
    struct reshard_layout src[GROUPS_MAX], dst[GROUPS_MAX];
    char group[RESHARD_NAME_MAX];
    struct pair *pair;

    open_told(&plain);
    for (uint32_t g = 0; g < GROUPS_MAX; g++) {
        src[g] = largest(RESHARD_SPAN_PAGES_MAX);
        dst[g] = largest(1);
        assert_int_equal(reshard_check(&(struct reshard_pair){&src[g], &dst[g]}), RESHARD_NONE);
    }
    xfer_pool_layouts(rig.src.xfer, 0, HASH_SRC, src, GROUPS_MAX);
    xfer_peer_layouts(rig.src.xfer, 1, HASH_DST, dst, GROUPS_MAX);
    assert_int_equal(take(1, HASH_DST, &pair), TERN_UNSUPPORTED);
    xfer_pool_layouts(rig.src.xfer, 0, HASH_DST, dst, GROUPS_MAX);
    xfer_peer_layouts(rig.src.xfer, 1, HASH_SRC, src, GROUPS_MAX);
    assert_int_equal(xfer_layouts_refusal(rig.src.xfer, HASH_DST, HASH_SRC, group), RESHARD_VISITS);
    assert_string_equal(group, "kv");
    rig_serve_stop(1);
    rig_close();
}

/* Ever new layouts cost at most so many steps at once; a layout that was declared before, or by
 * another peer, does not wait. A refused pair is computed once. */
TEST(n3_peer_that_tells_ever_new_layouts_waits)
{
    struct reshard_layout src = largest(RESHARD_SPAN_PAGES_MAX), dst = largest(1), first = dst;
    struct pair *pair;
    uint64_t made = 0, seconds, from_ns = io_now_ns();

    open_told(&plain);
    rig_serve_stop(1);
    xfer_pool_layouts(rig.src.xfer, 0, HASH_SRC, &src, 1);
    assert_null(xfer_peer_layouts(rig.src.xfer, 1, 1, &first, 1));
    for (uint32_t i = 0; i < 1000; i++)
        assert_int_equal(take(1, 1, &pair), TERN_UNSUPPORTED); /* computed once */
    for (uint64_t hash = 2; hash < 1000; hash++) {
        dst.page_bytes += 2;
        if (xfer_peer_layouts(rig.src.xfer, 1, hash, &dst, 1))
            continue;
        assert_int_equal(take(1, hash, &pair), TERN_UNSUPPORTED);
        made++;
    }
    seconds = (io_now_ns() - from_ns) / (1000 * NS_PER_MS);
    assert_in_range(made, 2, (seconds + 2) * PAIR_COST_S / PAIR_STEPS_MAX);
    assert_null(xfer_peer_layouts(rig.src.xfer, 1, 1, &first, 1)); /* it is known */
    dst.page_bytes += 2;
    assert_null(xfer_peer_layouts(rig.src.xfer, 2, 1, &dst, 1));
    assert_int_equal(take(2, 1, &pair), TERN_UNSUPPORTED);
    rig_close();
}

/* A layout that fits no pair is refused when the pool is opened, also with all pairs in use. */
TEST(n3_layout_that_could_go_nowhere_is_refused_by_itself)
{
    struct pair *held[RESHARD_PAIRS_MAX];
    struct reshard_layout l[2];
    char group[RESHARD_NAME_MAX];

    open_told(&plain);
    tell_many(2, RESHARD_PAIRS_MAX - 1); /* the serve uses one */
    for (uint32_t i = 0; i + 1 < RESHARD_PAIRS_MAX; i++)
        assert_int_equal(take(2, 1 + i, &held[i]), TERN_OK);
    l[0] = l[1] = layout_of(&src_end);
    snprintf(l[1].name, sizeof l[1].name, "second");
    assert_int_equal(xfer_pool_refusal(rig.src.xfer, l, 2, group), RESHARD_NONE);
    l[1].page_bytes += 2;
    assert_int_equal(xfer_pool_refusal(rig.src.xfer, l, 2, group), RESHARD_UNIT_PADDED);
    assert_string_equal(group, "second");
    l[1] = l[0];
    l[0].units = PAGE_BYTES;
    assert_int_equal(xfer_pool_refusal(rig.src.xfer, l, 2, group), RESHARD_NONE);
    l[1].ranks = 4;
    l[1].units = PAIR_SUMS_MAX / 4 + 1;
    assert_int_equal(xfer_pool_refusal(rig.src.xfer, l, 2, group), RESHARD_UNITS);
    for (uint32_t i = 0; i + 1 < RESHARD_PAIRS_MAX; i++)
        pair_put(&held[i]);
    rig_serve_stop(1);
    rig_close();
}

/* While a transfer needs the layout that a peer declared under a hash, the peer cannot declare
 * another one under it: one peer would use all pairs, of which the core counts one. Another peer's
 * hash is independent. */
TEST(n3_peer_tells_one_layout_under_a_hash_that_is_used)
{
    struct pair *first, *pair;
    struct reshard_layout dst;

    open_told(&plain);
    rig_serve_stop(1);
    rig.src.xfer->config.layout_used = used_by_core;
    dst = layout_of(&dst_end);
    assert_null(xfer_peer_layouts(rig.src.xfer, 1, HASH_SRC, &dst, 1));
    assert_int_equal(take(1, HASH_SRC, &first), TERN_OK);
    for (uint32_t i = 0; i < 2 * RESHARD_PAIRS_MAX; i++) {
        dst.page_bytes += 2;
        assert_non_null(xfer_peer_layouts(rig.src.xfer, 1, HASH_SRC, &dst, 1));
        assert_int_equal(take(1, HASH_SRC, &pair), TERN_OK);
        assert_ptr_equal(pair, first);
        pair_put(&pair);
    }
    assert_null(xfer_peer_layouts(rig.src.xfer, 2, HASH_SRC, &dst, 1));
    assert_int_equal(take(2, HASH_SRC, &pair), TERN_OK);
    assert_ptr_not_equal(pair, first);
    pair_put(&pair);
    rig.src.xfer->config.layout_used = NULL;
    assert_null(xfer_peer_layouts(rig.src.xfer, 1, HASH_SRC, &dst, 1));
    pair_put(&first);
    rig_close();
}

/* --- a link with RDMA --- */

static uint32_t notes;
static char note[160];

static void carries_all(const struct transport *t, uint32_t link, struct xfer_link_view *ret)
{
    (void)link;
    ret->transport = t->ops->name;
    ret->reason = "rxe0 port 1";
}

static void path_note(void *ctx, uint32_t link, const struct xfer_note *told)
{
    (void)ctx;
    assert_true(link == rig.link && told->tenant == 0 && told->kind == XFER_NOTE_PART);
    notes++;
    snprintf(note, sizeof note, "%s: %s", told->transport, told->reason);
}

/* Pages that come by RDMA are unchanged: a transport that poses as RDMA moves pages between equal
 * layouts, and resharded pages come by TCP beside it. Operators are informed, once. */
TEST(n3_resharded_pages_come_by_tcp_where_the_link_has_rdma)
{
    static struct transport_ops rdma;
    static const struct transport_ops *both[] = {&rdma, &tcp_transport, NULL};
    struct xfer_link_view view;
    struct xfer_stats stats;

    rdma = memory_transport;
    rdma.name = "verbs";
    rdma.asked_for = XFER_VERBS;
    rdma.rdma = true;
    rdma.link_view = carries_all;
    rig_transports = both;
    open_told(&plain);
    rig.dst.xfer->config.rdma.path_note = path_note;
    rig_serve(0);
    rig_pull(PULL(2), 0, 0, 1, 4); /* unchanged pages */
    rig_until(&rig.dst, 1);
    xfer_link_view(rig.dst.xfer, rig.link, &view);
    assert_string_equal(view.transport, "verbs");
    assert_string_equal(view.reason, "rxe0 port 1");
    xfer_stats(rig.dst.xfer, &stats);
    assert_int_equal(stats.socket_bytes_in, 0);
    rig_stop(PULL(2));
    rig_until(&rig.dst, 2);
    rig.dst.nevents = 0;
    for (uint32_t i = 0; i < 2; i++)
        pull(PULL(3), HASH_SRC, i, 1 + 4 * i, 4);
    rig_until(&rig.dst, 2);
    assert_int_equal(right(&rig.dst.event[0], 1 + 4 * rig.dst.event[0].pulled.batch), 4);
    assert_int_equal(right(&rig.dst.event[1], 1 + 4 * rig.dst.event[1].pulled.batch), 4);
    xfer_link_view(rig.dst.xfer, rig.link, &view);
    assert_string_equal(view.transport, "verbs");
    assert_string_equal(view.reason, "pages of pools of another layout arrive by tcp");
    assert_int_equal(notes, 1);
    assert_string_equal(note, "tcp: pages of pools of another layout arrive by tcp");
    xfer_stats(rig.dst.xfer, &stats);
    assert_true(stats.socket_bytes_in > 8 * RANKS * PAGE_BYTES);
    rig_serve_stop(0);
    rig_until(&rig.src, 1);
    rig.src.nevents = 0;
    stop_and_close(PULL(3));
    rig_transports = NULL;
}
