/* Pages that are resharded on their way between two xfers over real sockets (N3): what comes is
 * what it has to be, or nothing of it counts; a stream that was cut or altered, a serve or a pull
 * that ends in the middle, and ends that cannot have a plan. */
#include "unit/rig/rig_reshard.h"
#include "unit/seam/test_pulls_rig.h"

#include "seam/xfer/pairs.h"

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
    *ret = (struct page_at){0, i, 1, i};
}

static void seal(const struct page_at *pages, uint32_t n)
{
    mem_seal(rig.src.mem, (struct seal_id){0, 1}, 0, pages, n);
    while (rig.src.nevents == 0) {
        struct pollfd p = {.fd = mem_event_fd(rig.src.mem), .events = POLLIN};

        assert_int_equal(poll(&p, 1, 30000), 1);
        mem_poll(rig.src.mem, rig_emit, &rig.src);
    }
    rig.src.nevents = 0;
}

/* Tokens of heads at the source, heads of tokens at the destination; nobody has told anything. */
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

/* Of serve 1, by a plan unless hash is 0. */
static void pull(struct pull_id id, uint64_t hash, uint32_t batch, uint32_t first, uint32_t n)
{
    struct page_at pages[PULL_BATCH_PAGES];
    struct page_ref refs[PULL_BATCH_PAGES];
    struct action act = {.kind = ACT_PULL};

    for (uint32_t i = 0; i < n; i++) {
        pages[i] = (struct page_at){0, first + i, id.gen, first + i};
        refs[i] = (struct page_ref){first + i, 100 + first + i};
    }
    act.pull.pull = id;
    act.pull.serve = (struct serve_id){1, 7};
    act.pull.link = rig.link;
    act.pull.layout_hash = hash;
    act.pull.batch = batch;
    act.pull.n = n;
    act.pull.pages = pages;
    act.pull.refs = refs;
    xfer_pull(rig.dst.xfer, &act);
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

/* How many the event says are right; each of them is. */
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

/* X3, X7: wherever the stream is altered, no page counts that is not right. */
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
    struct rig_options o = plain;

    o.by_proxy = true;
    for (uint64_t at = 3; at < 4 * RANKS * PAGE_BYTES; at += 2999) {
        open_told(&o);
        rig.proxy.down_limit = at;
        pull(PULL(3), HASH_SRC, 0, 1, 4);
        while (rig.proxy.down < at)
            rig_turn();
        proxy_cut(&rig.proxy);
        close(rig.proxy.listen_fd); /* and nobody answers */
        rig.proxy.listen_fd = -1;
        rig_until(&rig.dst, 1);
        assert_int_equal(rig.dst.event[0].kind, EV_PULL_BROKEN);
        assert_int_equal(rig.dst.event[0].broken.err, TERN_PEER_LOST);
        stop_and_close(PULL(3));
    }
}

TEST(p2_pull_that_is_stopped_in_the_middle_is_quiet_and_the_next_one_goes_on)
{
    struct rig_options o = plain;

    o.by_proxy = true;
    for (uint64_t at = 100; at < 8 * RANKS * PAGE_BYTES; at += 9001) {
        open_told(&o);
        rig.proxy.down_limit = at;
        pull(PULL(3), HASH_SRC, 0, 1, 8);
        while (rig.proxy.down < at)
            rig_turn();
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

/* What had been promised goes out as zeros, named in the tail. */
TEST(p1_serve_that_ends_in_the_middle_gives_nothing_more)
{
    struct rig_options o = plain;

    o.by_proxy = true;
    o.socket_buffer_bytes = 8192;
    open_told(&o);
    rig.proxy.down_limit = 3 * PAGE_BYTES;
    pull(PULL(3), HASH_SRC, 0, 1, PAGES);
    while (rig.proxy.down < 3 * PAGE_BYTES)
        rig_turn();
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
    rig_until(&rig.dst, 1);
    assert_int_equal(rig.dst.event[0].kind, EV_PULL_BROKEN);
    assert_int_equal(rig.dst.event[0].broken.err, TERN_UNSUPPORTED);
    stop_and_close(PULL(3));
}

/* One end alone knows: the source gives nothing. */
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
    rig_until(&rig.dst, 1);
    assert_int_equal(rig.dst.event[0].kind, EV_PULL_BROKEN);
    assert_int_equal(rig.dst.event[0].broken.err, TERN_GONE);
    stop_and_close(PULL(3));
}

/* Pages as they are would be wrong here: a peer that asks so is given none. */
TEST(n3_pages_as_they_are_do_not_leave_for_another_layout)
{
    open_told(&plain);
    pull(PULL(3), 0, 0, 1, 4);
    rig_until(&rig.dst, 1);
    assert_int_equal(rig.dst.event[0].kind, EV_PULL_BROKEN);
    assert_int_equal(rig.dst.event[0].broken.err, TERN_GONE);
    stop_and_close(PULL(3));
}

/* Pairs are few, and those that are held stay: who comes next is told to come again. */
TEST(n3_pairs_that_are_held_are_not_given_away)
{
    struct pair *held[PAIRS_MAX], *one;
    struct reshard_layout dst;
    struct pair_ask ask = {.pool = 0, .link = 2, .other_hash = 1};

    open_told(&plain);
    dst = layout_of(&src_end);
    for (uint32_t i = 0; i < PAIRS_MAX; i++, ask.other_hash++) {
        xfer_peer_layouts(rig.dst.xfer, 2, ask.other_hash, &dst, 1);
        assert_int_equal(pair_take(rig.dst.xfer, &ask, &held[i]), TERN_OK);
    }
    xfer_peer_layouts(rig.dst.xfer, 2, ask.other_hash, &dst, 1);
    assert_int_equal(pair_take(rig.dst.xfer, &ask, &one), TERN_BUSY);
    ask.other_hash = 1;
    assert_int_equal(pair_take(rig.dst.xfer, &ask, &one), TERN_OK); /* a second holder */
    assert_ptr_equal(one, held[0]);
    pair_put(&one);
    pair_put(&held[PAIRS_MAX - 1]);
    ask.other_hash = PAIRS_MAX + 1;
    assert_int_equal(pair_take(rig.dst.xfer, &ask, &held[PAIRS_MAX - 1]), TERN_OK);
    for (uint32_t i = 0; i < PAIRS_MAX; i++)
        pair_put(&held[i]);
    rig_close();
}

/* What peers told longest ago makes way, and no more is kept than there is room for. */
TEST(n3_layouts_told_by_peers_are_bounded)
{
    struct pair *pair;
    struct reshard_layout src;
    struct pair_ask ask = {.pool = 0, .link = 2};

    open_told(&plain);
    src = layout_of(&src_end);
    for (uint64_t hash = 1; hash <= 3 * LAYOUTS_TOLD_MAX; hash++)
        xfer_peer_layouts(rig.dst.xfer, 2, hash, &src, 1);
    for (uint64_t hash = 1; hash <= 3 * LAYOUTS_TOLD_MAX; hash++) {
        bool kept = hash > 2 * LAYOUTS_TOLD_MAX;

        ask.other_hash = hash;
        assert_int_equal(pair_take(rig.dst.xfer, &ask, &pair), kept ? TERN_OK : TERN_UNSUPPORTED);
        if (kept)
            pair_put(&pair);
    }
    rig_close();
}
