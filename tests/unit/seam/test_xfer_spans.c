/* N3: pages of other page_tokens between two xfers over real sockets. Each token of the source
 * reaches its place, also in spans that lack pages; a page that does not agree with a checksum, or
 * is gone, does not count. */
#include "unit/rig/rig_reshard.h"
#include "unit/seam/test_pulls_rig.h"

#define RANKS    2u
#define SPANS    5u
#define HASH_SRC 0x51u
#define HASH_DST 0xd1u
#define TOKENS   (SPANS * WORLD_TOKENS)

struct ends {
    uint32_t from, to; /* page_tokens; the larger is WORLD_TOKENS */
};

static const struct ends all_ends[] = {{2, 16}, {4, 16}, {8, 16}, {16, 2}, {16, 4}, {16, 8}};

static struct world_end src_end, dst_end;
static uint32_t from_pages, to_pages; /* of a span */

/* The existing pages of the source's part of each span. */
static struct pull_span span_of(uint32_t s)
{
    struct pull_span span = {.pages = (uint8_t)to_pages, .n = (uint8_t)from_pages};

    if (from_pages > 1 && s == 0)
        span.first = 1; /* a window begins here */
    if (from_pages > 1 && s == SPANS - 1)
        span.n = 1; /* a ticket ends here */
    span.n -= span.first;
    return span;
}

static void pool_set(struct mem *mem, const struct reshard_layout *l)
{
    const struct group_layout group = {
        .page_tokens = l->page_tokens, .units = l->units, .page_bytes = l->page_bytes};

    mem_pool_set(mem, 0, TIER_DEVICE, 0, 0, 8u << 20, RANKS, NULL, RANKS, 1, &group);
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

/* Page p of the source, from 0 on, has the index p + 1. */
static void open_ends(struct ends ends, bool by_proxy)
{
    const struct rig_options o = {.page_bytes = {4096},
                                  .regions = RANKS,
                                  .units = 2,
                                  .memory_bytes = 8u << 20,
                                  .by_proxy = by_proxy};
    struct action act = {.kind = ACT_SERVE_START};
    struct page_at pages[SPANS * WORLD_TOKENS];
    struct reshard_layout src, dst;
    uint32_t n = TOKENS / ends.from;

    src_end = (struct world_end){
        .kind = WORLD_MHA, .ranks = RANKS, .stages = 1, .page_tokens = ends.from, .units = 2};
    dst_end = src_end;
    dst_end.page_tokens = ends.to;
    dst_end.order = 1;
    from_pages = ends.to > ends.from ? ends.to / ends.from : 1;
    to_pages = ends.from > ends.to ? ends.from / ends.to : 1;
    world_layout(&src_end, &src);
    world_layout(&dst_end, &dst);
    rig_open(&o);
    pool_set(rig.src.mem, &src);
    pool_set(rig.dst.mem, &dst);
    for (uint32_t i = 0; i < n; i++) {
        pages[i] = (struct page_at){.group = 0, .index = 1 + i, .gen = 1, .record = 1 + i};
        for (uint32_t r = 0; r < RANKS; r++)
            world_fill(&src_end, r, i, mem_page(rig.src.mem, 0, r, 0, 1 + i), NULL);
    }
    seal(pages, n);
    for (uint32_t i = 0; i < TOKENS / ends.to; i++)
        for (uint32_t r = 0; r < RANKS; r++)
            memset(mem_page(rig.dst.mem, 0, r, 0, 1 + i), 0x77, dst.page_bytes);
    xfer_pool_layouts(rig.src.xfer, 0, HASH_SRC, &src, 1);
    xfer_peer_layouts(rig.src.xfer, 0, HASH_DST, &dst, 1);
    xfer_pool_layouts(rig.dst.xfer, 0, HASH_DST, &dst, 1);
    xfer_peer_layouts(rig.dst.xfer, rig.link, HASH_SRC, &src, 1);
    act.serve.serve = (struct serve_id){1, 7};
    act.serve.layout_hash = HASH_DST;
    xfer_serve_start(rig.src.xfer, &act);
}

/* All spans in one batch. `spoil` may falsify it. */
static void pull(struct pull_id id, void (*spoil)(struct action *act, struct pull_span *spans))
{
    struct page_at pages[SPANS * WORLD_TOKENS];
    struct pull_span spans[SPANS];
    struct page_ref refs[SPANS];
    struct action act = {.kind = ACT_PULL};

    for (uint32_t s = 0; s < SPANS; s++) {
        uint32_t ref = 1 + s * from_pages + span_of(s).first;

        spans[s] = span_of(s);
        refs[s] = (struct page_ref){ref, 100 + ref};
        for (uint32_t p = 0; p < to_pages; p++) {
            uint32_t index = 1 + s * to_pages + p;

            pages[s * to_pages + p] =
                (struct page_at){.group = 0, .index = index, .gen = id.gen, .record = index};
        }
    }
    act.pull.pull = id;
    act.pull.serve = (struct serve_id){1, 7};
    act.pull.link = rig.link;
    act.pull.layout_hash = HASH_SRC;
    act.pull.n = SPANS;
    act.pull.pages = pages;
    act.pull.refs = refs;
    act.pull.spans = spans;
    if (spoil)
        spoil(&act, spans);
    xfer_pull(rig.dst.xfer, &act);
}

/* Compares every token of the span that the source has; where the source has all, every byte. */
static bool span_right(uint32_t s)
{
    static uint8_t like[WORLD_PAGE_MAX], token[WORLD_PAGE_MAX];
    const struct pull_span span = span_of(s);
    uint32_t first = s * WORLD_TOKENS + span.first * src_end.page_tokens,
             end = first + span.n * src_end.page_tokens;

    for (uint32_t i = s * to_pages; i < (s + 1) * to_pages; i++)
        for (uint32_t r = 0; r < RANKS; r++) {
            const uint8_t *is = mem_page(rig.dst.mem, 0, r, 0, 1 + i);
            uint64_t bytes = world_fill(&dst_end, r, i, like, NULL);

            world_tokens(&dst_end, r, i, token);
            for (uint64_t k = 0; k < bytes; k++)
                if (is[k] != (token[k] > first && token[k] <= end ? like[k] : 0x77))
                    return false;
        }
    return true;
}

/* Number of spans that the event reports as right, which they are. */
static uint32_t right(const struct event *e)
{
    uint32_t n = 0;

    assert_int_equal(e->kind, EV_PULLED);
    for (uint32_t s = 0; s < SPANS; s++)
        if (xfer_bit(e->pulled.ok, s)) {
            assert_true(span_right(s));
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

TEST(n3_spans_bring_each_token_that_is_there)
{
    for (size_t i = 0; i < sizeof all_ends / sizeof *all_ends; i++) {
        struct xfer_stats in, out;
        uint32_t there = 0;

        open_ends(all_ends[i], false);
        pull(PULL(3), NULL);
        rig_until(&rig.dst, 1);
        assert_int_equal(right(&rig.dst.event[0]), SPANS);
        for (uint32_t s = 0; s < SPANS; s++)
            there += span_of(s).n * all_ends[i].from;
        xfer_stats(rig.dst.xfer, &in);
        xfer_stats(rig.src.xfer, &out);
        assert_int_equal(in.payload_bytes_in, world_bytes(WORLD_MHA, there));
        assert_int_equal(out.payload_bytes_out, in.payload_bytes_in);
        assert_int_equal(in.pages_in, SPANS * to_pages);
        assert_int_equal(out.pages_out, there / all_ends[i].from);
        stop_and_close(PULL(3));
    }
}

/* X3, X7: wherever the stream is altered, no wrong span counts. */
TEST(x7_bit_that_is_flipped_in_a_span_costs_the_span_or_the_connection)
{
    for (size_t i = 1; i < sizeof all_ends / sizeof *all_ends; i += 3)
        for (uint64_t at = 0; at < 30000; at += 1499) {
            open_ends(all_ends[i], true);
            rig.proxy.flip_at = at;
            pull(PULL(3), NULL);
            rig_until(&rig.dst, 1);
            if (rig.dst.event[0].kind == EV_PULLED)
                assert_true(right(&rig.dst.event[0]) < SPANS);
            else
                assert_int_equal(rig.dst.event[0].kind, EV_PULL_BROKEN);
            stop_and_close(PULL(3));
        }
}

/* The source checks each page of a span, before its bytes leave and after: if one is gone, it sends
 * nothing of the span. */
TEST(t1_span_with_a_page_that_is_gone_is_gone)
{
    uint32_t pages = 0;

    open_ends((struct ends){4, 16}, false);
    for (uint32_t s = 0; s < SPANS; s++)
        pages += span_of(s).n;
    stop_and_close(PULL(3));
    for (uint32_t at = 1; at <= 2 * pages; at++) {
        open_ends((struct ends){4, 16}, false);
        rig.gone_after = at;
        pull(PULL(3), NULL);
        rig_until(&rig.dst, 1);
        if (at == 2 * pages) {
            assert_int_equal(right(&rig.dst.event[0]), SPANS);
        } else {
            assert_int_equal(rig.dst.event[0].kind, EV_PULL_BROKEN);
            assert_int_equal(rig.dst.event[0].broken.err, TERN_GONE);
        }
        stop_and_close(PULL(3));
    }
}

static void spoil_pages(struct action *act, struct pull_span *spans)
{
    (void)act;
    spans[2].pages++;
}

static void spoil_n(struct action *act, struct pull_span *spans)
{
    (void)act;
    spans[2].first = 1;
}

static void spoil_none(struct action *act, struct pull_span *spans)
{
    (void)act;
    spans[2].n = 0;
}

static void spoil_all(struct action *act, struct pull_span *spans)
{
    (void)spans;
    act->pull.spans = NULL;
}

/* The core and the plans of the layouts have their numbers from the same message; if they
 * contradict each other nothing is requested. */
TEST(n3_spans_that_are_not_the_layouts_are_unsupported)
{
    static void (*const spoils[])(struct action *, struct pull_span *) = {spoil_pages, spoil_n,
                                                                          spoil_none, spoil_all};

    for (size_t i = 0; i < sizeof spoils / sizeof *spoils; i++) {
        open_ends((struct ends){4, 16}, false);
        pull(PULL(3), spoils[i]);
        rig_until(&rig.dst, 1);
        assert_int_equal(rig.dst.event[0].kind, EV_PULL_BROKEN);
        assert_int_equal(rig.dst.event[0].broken.err, TERN_UNSUPPORTED);
        stop_and_close(PULL(3));
    }
}
