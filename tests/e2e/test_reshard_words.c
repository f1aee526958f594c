/* N3: pools of different layouts at the two ends. Layouts that do not fit are refused by name,
 * where a pool is opened and where it is fetched from. Fitting ones are handed over to the last
 * token, between a pool with tokens before heads and one with heads before tokens, also with
 * different numbers of tokens a page. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/admin.h"
#include "engine/engine.h"
#include "engine/json.h"
#include "engine/proc.h"
#include "rig_daemon.h"
#include "testing/test.h"

#define LAYERS 2u
#define HEADS  4u
#define DIM    8u
#define PT     16u
#define PAGE   (LAYERS * PT * HEADS * DIM * 4u)
#define TOKENS 40u  /* two pages and a half */
#define LONG   168u /* of pages of 64 tokens two and five eighths; of 16 ten and a half */

static struct daemon_options options[2] = {
    {.node = "source", .memory_bytes = 16u << 20, .page_bytes_min = PAGE / 2, .core = -1},
    {.node = "dest", .memory_bytes = 16u << 20, .page_bytes_min = PAGE / 2, .core = -1}};

static struct daemon source, dest;
static char dir[RIG_DIR_BYTES];

/* TERN_OWN_PEER: both ends are one daemon, which is its own peer. */
FIXTURE(start)
{
    char why[SPAWN_WHY_BYTES] = "";

    if (!getenv("TERN_OWN_PEER")) {
        rig_start_pair(&source, &dest, dir, options);
        return 0;
    }
    options[0].port = port_free();
    options[0].peer[0] = (struct daemon_peer){options[0].node, options[0].port};
    assert_true(tempdir_make(dir, sizeof dir, "tern-e2e"));
    if (!daemon_start(&source, dir, &options[0], why))
        fail_msg("%s", why);
    rig_wait_linked(&source, options[0].node);
    dest = source;
    return 0;
}

FIXTURE(stop)
{
    if (dest.pid != source.pid)
        assert_true(daemon_stop(&dest));
    assert_true(daemon_stop(&source));
    tempdir_remove(dir);
    return 0;
}

TEST_EACH(start, stop);

/* KV with tokens before heads, or heads before tokens. */
struct kv {
    bool heads_first;
    uint32_t heads, overlap;
    uint32_t pt, align, tokens; /* 0: PT; pages that needs; TOKENS */
    struct tern_axis axes[4];
    struct tern_field field;
    struct tern_group group;
    struct tern_layout layout;
};

static const struct tern_layout *layout_of(struct kv *kv)
{
    uint64_t row = DIM * 4, token = kv->heads_first ? row : row * kv->heads;

    kv->pt = kv->pt ? kv->pt : PT;
    kv->tokens = kv->tokens ? kv->tokens : TOKENS;
    kv->axes[0] = (struct tern_axis){"layer", LAYERS, kv->pt * row * kv->heads - kv->overlap};
    kv->axes[1] = (struct tern_axis){"token", kv->pt, token};
    kv->axes[2] = (struct tern_axis){"head", kv->heads, kv->heads_first ? row * kv->pt : row};
    kv->axes[3] = (struct tern_axis){"dim", DIM, 4};
    kv->field = (struct tern_field){.name = "kv", .element_bytes = 4, .axes = kv->axes, .naxes = 4};
    kv->group = (struct tern_group){.name = "kv",
                                    .page_tokens = kv->pt,
                                    .page_bytes = LAYERS * kv->pt * row * kv->heads,
                                    .fields = &kv->field,
                                    .nfields = 1};
    kv->layout = (struct tern_layout){
        .groups = &kv->group, .ngroups = 1, .bytes = 64 * PAGE, .align_tokens = kv->align};
    return &kv->layout;
}

static uint32_t align_of(const struct kv *kv)
{
    return kv->align ? kv->align : kv->pt;
}

static uint32_t value_of(uint32_t layer, uint32_t token, uint32_t head, uint32_t dim)
{
    return ((layer * 4096 + token) * 64 + head) * 64 + dim + 1;
}

/* Writes page i, or counts its wrong elements. */
static uint32_t page_do(const struct kv *kv, uint32_t *page, uint32_t i, bool write)
{
    uint32_t wrong = 0;

    for (uint32_t l = 0; l < LAYERS; l++)
        for (uint32_t t = 0; t < kv->pt && i * kv->pt + t < kv->tokens; t++)
            for (uint32_t h = 0; h < HEADS; h++)
                for (uint32_t d = 0; d < DIM; d++) {
                    uint32_t at = kv->heads_first ? ((l * HEADS + h) * kv->pt + t) * DIM + d
                                                  : ((l * kv->pt + t) * HEADS + h) * DIM + d;

                    if (write)
                        page[at] = value_of(l, i * kv->pt + t, h, d);
                    else
                        wrong += page[at] != value_of(l, i * kv->pt + t, h, d);
                }
    return wrong;
}

static uint32_t pages_do(const struct kv *kv, struct engine_session *s, bool write)
{
    uint32_t wrong = 0;

    for (uint32_t i = 0; i * kv->pt < kv->tokens; i++) {
        uint32_t index = s->table.group[0].index[i];

        assert_int_not_equal(index, 0);
        wrong += page_do(kv, (uint32_t *)(void *)engine_page(s->engine, 0, index), i, write);
    }
    return wrong;
}

static struct engine opened(const struct daemon *d, const char *name, struct kv *kv)
{
    struct engine e = {.tern = NULL};

    assert_ok(e.tern, engine_open(&e, d->socket, name, layout_of(kv), RIG_WAIT_MS));
    return e;
}

static struct tern_ticket hand_over(const struct kv *kv, struct engine *a, const uint32_t *tokens)
{
    struct engine_session from;
    struct tern_ticket ticket;

    assert_ok(a->tern, engine_begin(&from, a, tokens, kv->tokens));
    assert_ok(a->tern, engine_extend(&from, kv->tokens, kv->tokens));
    pages_do(kv, &from, true);
    a->step++;
    if (kv->tokens >= align_of(kv))
        assert_ok(a->tern, engine_commit(&from, kv->tokens / align_of(kv) * align_of(kv)));
    assert_ok(a->tern, tern_handoff(a->tern, from.id, a->step, "blob", 4, 0, RIG_WAIT_MS, &ticket));
    assert_ok(a->tern, tern_done_step(a->map, a->step));
    engine_free(&from);
    return ticket;
}

static enum tern_err fetched_all(struct engine *b, struct engine_session *to,
                                 const uint32_t *tokens, uint32_t n,
                                 const struct tern_ticket *ticket)
{
    struct tern_result r;

    assert_ok(b->tern, engine_begin(to, b, tokens, n));
    return rig_fetch_ticket(to, ticket, &r);
}

/* In a guest with a device the link has RDMA, and yet these pages came by TCP: `ternctl peers`
 * shows it. */
static void assert_told_of_tcp(void)
{
    struct tern *admin = rig_connected(dest.admin);
    json_t *peers = admin_ask(admin, "peers", NULL),
           *row = json_row(json_object_get(peers, "peers"), "peer", "source");
    const char *reason;

    assert_non_null(row);
    reason = json_string_value(json_object_get(row, "transport_reason"));
    if (json_says(row, "transport", "verbs"))
        assert_string_equal(reason, "pages of pools of another layout arrive by tcp");
    printf("resharded over a link of transport=%s reason=%s\n",
           json_string_value(json_object_get(row, "transport")), reason);
    json_decref(peers);
    tern_destroy(admin);
}

static enum tern_err fetched(struct engine *b, struct engine_session *to, const uint32_t *tokens,
                             const struct tern_ticket *ticket)
{
    return fetched_all(b, to, tokens, TOKENS, ticket);
}

static void tokens_from(uint32_t first, uint32_t *tokens, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        tokens[i] = first + i;
}

struct tokens_pair {
    uint32_t from, to, tokens;
};

/* Both pools share prefixes in chunks of 64 tokens. */
static void ends_of(const struct tokens_pair *t, struct kv *from, struct kv *to)
{
    *from = (struct kv){.heads = HEADS, .pt = t->from, .align = 64, .tokens = t->tokens};
    *to = *from;
    to->pt = t->to;
    to->heads_first = true;
}

static const struct tokens_pair token_pairs[] = {{16, 64, LONG}, {64, 16, LONG}, {32, 64, LONG},
                                                 {64, 32, 24},   {64, 16, 4},    {16, 64, 4},
                                                 {64, 8, 65},    {64, 16, 128}};

/* N3: to the last token, whatever the last pages of both ends have. */
TEST(n3_ticket_with_a_tail_goes_to_a_pool_of_other_page_tokens)
{
    for (size_t i = 0; i < sizeof token_pairs / sizeof *token_pairs; i++) {
        const struct tokens_pair *t = &token_pairs[i];
        struct engine a, b;
        struct engine_session got;
        struct tern_ticket ticket;
        uint32_t tokens[LONG];
        struct kv from, to;

        ends_of(t, &from, &to);
        a = opened(&source, "prefill", &from);
        b = opened(&dest, "decode", &to);
        tokens_from(10000 * (uint32_t)i, tokens, t->tokens);
        ticket = hand_over(&from, &a, tokens);
        assert_ok(b.tern, fetched_all(&b, &got, tokens, t->tokens, &ticket));
        assert_int_equal(got.len.written, t->tokens);
        assert_int_equal(got.len.committed, t->tokens / 64 * 64);
        assert_int_equal(pages_do(&to, &got, false), 0);
        assert_ok(b.tern, engine_end(&got));
        rig_wait_let_go(&dest); /* including tokens of whole spans that nobody asked for */
        engine_close(&b);
        engine_close(&a);
    }
}

TEST(n3_ticket_with_a_tail_goes_to_a_pool_whose_heads_come_first)
{
    struct kv from = {.heads = HEADS}, to = {.heads = HEADS, .heads_first = true};
    struct engine a = opened(&source, "prefill", &from), b = opened(&dest, "decode", &to);
    struct engine_session got;
    struct tern_ticket ticket;
    uint32_t tokens[TOKENS];

    for (uint32_t i = 0; i < TOKENS; i++)
        tokens[i] = 100 + i;
    ticket = hand_over(&from, &a, tokens);
    assert_ok(b.tern, fetched(&b, &got, tokens, &ticket));
    assert_int_equal(got.len.written, TOKENS);
    assert_int_equal(pages_do(&to, &got, false), 0);
    assert_told_of_tcp();
    assert_ok(b.tern, engine_end(&got));
    engine_close(&b);
    engine_close(&a);
}

/* Y4: decode follows prefill chunk by chunk, and has everything in the end. */
static void follows(struct kv *from, struct kv *to, uint32_t first)
{
    struct engine a = opened(&source, "prefill", from), b = opened(&dest, "decode", to);
    const uint32_t n = from->tokens, align = align_of(from);
    struct engine_session s, got;
    struct tern_answer answer = {.cookie = 0};
    struct tern_ticket ticket, handed;
    uint32_t tokens[LONG];

    tokens_from(first, tokens, n);
    assert_ok(a.tern, engine_begin(&s, &a, tokens, n));
    assert_ok(a.tern, tern_ticket_open(a.tern, s.id, 0, RIG_WAIT_MS, &ticket));
    assert_ok(b.tern, engine_begin(&got, &b, tokens, n));
    assert_ok(b.tern,
              tern_submit_fetch(b.tern, got.id,
                                &(struct tern_fetch){
                                    .ticket = ticket.text, .follow = true, .step = TERN_STEP_NONE},
                                7));
    assert_ok(a.tern, engine_extend(&s, n, n));
    pages_do(from, &s, true);
    for (uint32_t until = align; until < n; until += align) {
        struct tern_result r;

        a.step++;
        assert_ok(a.tern, engine_commit(&s, until));
        assert_ok(a.tern, tern_done_step(a.map, a.step));
        assert_ok(b.tern, tern_fetch_wait(b.tern, got.id, until - align, RIG_WAIT_MS, &r));
        assert_int_equal(engine_take(&got, &r), TERN_OK);
        assert_true(got.len.committed >= until);
    }
    a.step++;
    if (n % align == 0) /* arrives with the end */
        assert_ok(a.tern, engine_commit(&s, n));
    assert_ok(a.tern, tern_handoff(a.tern, s.id, a.step, NULL, 0, 0, RIG_WAIT_MS, &handed));
    assert_ok(a.tern, tern_done_step(a.map, a.step));
    engine_free(&s);
    assert_ok(b.tern, answer_wait(b.tern, RIG_WAIT_MS, &answer));
    assert_ok(b.tern, answer.results[0].err);
    assert_int_equal(engine_take(&got, &answer.results[0]), TERN_OK);
    assert_int_equal(got.len.written, n);
    assert_int_equal(pages_do(to, &got, false), 0);
    assert_ok(b.tern, engine_end(&got));
    engine_close(&b);
    engine_close(&a);
}

TEST(y4_follow_goes_to_a_pool_whose_heads_come_first)
{
    struct kv from = {.heads = HEADS}, to = {.heads = HEADS, .heads_first = true};

    follows(&from, &to, 500);
}

TEST(y4_follow_goes_to_a_pool_of_other_page_tokens)
{
    for (size_t i = 0; i < sizeof token_pairs / sizeof *token_pairs; i++) {
        struct kv from, to;

        ends_of(&token_pairs[i], &from, &to);
        follows(&from, &to, 20000 * (uint32_t)i);
    }
}

static void assert_said(struct tern *t, const char *words)
{
    if (!strstr(tern_error_text(t, NULL), words))
        fail_msg("'%s' does not say '%s'", tern_error_text(t, NULL), words);
}

TEST(n3_pools_that_do_not_fit_are_refused_by_name)
{
    struct kv from = {.heads = HEADS}, to = {.heads = HEADS / 2};
    struct engine a = opened(&source, "prefill", &from), b = opened(&dest, "decode", &to);
    struct engine_session got;
    struct tern_ticket ticket;
    uint32_t tokens[TOKENS];

    for (uint32_t i = 0; i < TOKENS; i++)
        tokens[i] = 100 + i;
    ticket = hand_over(&from, &a, tokens);
    assert_err(TERN_UNSUPPORTED, fetched(&b, &got, tokens, &ticket));
    assert_said(b.tern, "group 'kv': a field has a different number of heads");
    assert_ok(b.tern, engine_end(&got));
    assert_ok(b.tern, engine_begin(&got, &b, tokens, TOKENS));
    assert_err(TERN_UNSUPPORTED, engine_fetch(&got, "source", PT, RIG_WAIT_MS));
    assert_said(b.tern, "group 'kv': a field has a different number of heads");
    assert_ok(b.tern, engine_end(&got));
    engine_close(&b);
    assert_ok(a.tern,
              tern_ticket_drop(a.tern, ticket.text, RIG_WAIT_MS)); /* or a drain waits for it */
    engine_close(&a);
}

struct refused {
    struct kv from, to;
    const char *words;
};

/* The refusal names the reason why pools of different page_tokens do not fit, and the remedy. */
TEST(n3_page_tokens_that_do_not_fit_are_refused_by_name)
{
    static const struct refused cases[] = {
        {{.heads = HEADS}, {.heads = HEADS, .pt = 64}, "open both with the same align_tokens"},
        {{.heads = HEADS, .align = 48},
         {.heads = HEADS, .pt = 24, .align = 48},
         "group 'kv': neither of the two page_tokens is a multiple of the other"}};

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct kv from = cases[i].from, to = cases[i].to;
        struct engine a, b;
        struct engine_session got;
        struct tern_ticket ticket;
        uint32_t tokens[LONG];

        from.tokens = to.tokens = LONG;
        a = opened(&source, "prefill", &from);
        b = opened(&dest, "decode", &to);
        tokens_from(100, tokens, LONG);
        ticket = hand_over(&from, &a, tokens);
        assert_err(TERN_UNSUPPORTED, fetched_all(&b, &got, tokens, LONG, &ticket));
        assert_said(b.tern, cases[i].words);
        assert_ok(b.tern, engine_end(&got));
        assert_ok(b.tern, engine_begin(&got, &b, tokens, LONG));
        assert_err(TERN_UNSUPPORTED, engine_fetch(&got, "source", LONG, RIG_WAIT_MS));
        assert_said(b.tern, cases[i].words);
        assert_ok(b.tern, engine_end(&got));
        engine_close(&b);
        assert_ok(a.tern,
                  tern_ticket_drop(a.tern, ticket.text, RIG_WAIT_MS)); /* or a drain waits for it */
        engine_close(&a);
    }
}

TEST(n3_pool_without_fields_is_fetched_from_an_equal_one_alone)
{
    struct kv from = {.heads = HEADS}, to = {.heads = HEADS};
    struct engine a = opened(&source, "prefill", &from), b = {.tern = NULL};
    struct engine_session got;
    struct tern_ticket ticket;
    uint32_t tokens[TOKENS];

    layout_of(&to);
    to.group.nfields = 0;
    assert_ok(b.tern, engine_open(&b, dest.socket, "decode", &to.layout, RIG_WAIT_MS));
    for (uint32_t i = 0; i < TOKENS; i++)
        tokens[i] = 100 + i;
    ticket = hand_over(&from, &a, tokens);
    assert_err(TERN_UNSUPPORTED, fetched(&b, &got, tokens, &ticket));
    assert_said(b.tern, "fields");
    assert_ok(b.tern, engine_end(&got));
    engine_close(&b);
    assert_ok(a.tern,
              tern_ticket_drop(a.tern, ticket.text, RIG_WAIT_MS)); /* or a drain waits for it */
    engine_close(&a);
}

TEST(n3_layout_that_makes_no_sense_opens_no_pool)
{
    struct kv kv = {.heads = HEADS, .overlap = 4};
    struct tern_group two[2];
    struct engine e = {.tern = NULL};

    assert_err(TERN_INVALID, engine_open(&e, dest.socket, "decode", layout_of(&kv), RIG_WAIT_MS));
    assert_said(e.tern, "group 'kv': the strides of a field let its elements overlap");
    kv.overlap = 0;
    layout_of(&kv);
    kv.layout.stages = 2;
    assert_err(TERN_INVALID, tern_pool_open(e.tern, &kv.layout, RIG_WAIT_MS, &e.pool, NULL));
    assert_said(e.tern, "group 'kv': the ranks of a pipeline stage must be 1, 2, 4 or 8");
    layout_of(&kv);
    kv.axes[2].name = "heads";
    assert_err(TERN_INVALID, tern_pool_open(e.tern, &kv.layout, RIG_WAIT_MS, &e.pool, NULL));
    assert_said(e.tern, "an axis of a field must be");
    layout_of(&kv);
    kv.group.page_bytes *= 2; /* fields, then bytes of no field, and one unit over both */
    assert_err(TERN_INVALID, tern_pool_open(e.tern, &kv.layout, RIG_WAIT_MS, &e.pool, NULL));
    assert_said(e.tern,
                "group 'kv': a unit of the source has bytes of a field and bytes of no field");
    layout_of(&kv);
    two[0] = two[1] = kv.group;
    two[1].name = "other";
    two[1].nfields = 0;
    kv.layout.groups = two;
    kv.layout.ngroups = 2;
    assert_err(TERN_INVALID, tern_pool_open(e.tern, &kv.layout, RIG_WAIT_MS, &e.pool, NULL));
    assert_said(e.tern, "only some groups of the pool");
    assert_ok(e.tern, tern_pool_open(e.tern, layout_of(&kv), RIG_WAIT_MS, &e.pool, NULL));
    engine_close(&e);
}
