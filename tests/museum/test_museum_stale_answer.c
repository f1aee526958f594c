/* HTTP 200 for a transfer that failed, or for one that read blocks which its reference no longer
 * names (vllm 52234). docs/museum.md has the story. */
#include "museum/museum.h"

#define PROMPT  1
#define ANOTHER 2
#define N       3 /* blocks */

static struct textbook_reference prefilled(struct textbook *prefill, uint32_t *ret_request)
{
    *ret_request = textbook_admit(prefill, PROMPT, N);
    textbook_compute(prefill, *ret_request, 0, N);
    return textbook_reference(prefill, *ret_request);
}

/* One of three receives fails. The blocks belonged to another prompt before. */
static struct textbook_answer one_receive_fails(bool fixed, uint32_t groups)
{
    struct textbook prefill, decode;
    struct textbook_reference ref;
    uint32_t p, d, x[N];

    textbook_init(&prefill, (struct textbook_fixes){0}, groups);
    textbook_init(&decode, (struct textbook_fixes){.failure_names_the_request = fixed}, groups);
    d = textbook_admit(&decode, ANOTHER, N);
    textbook_compute(&decode, d, 0, N);
    textbook_end(&decode, d);

    ref = prefilled(&prefill, &p);
    d = textbook_admit(&decode, PROMPT, N);
    for (uint32_t i = 0; i < N; i++)
        x[i] = textbook_pull(&decode, d, &ref, i);
    textbook_lands(&decode, x[0]);
    textbook_lands(&decode, x[2]);
    textbook_fails(&decode, x[1]);
    return textbook_answer(&decode, d);
}

TEST(textbook_answers_from_a_failed_receive)
{
    struct textbook_answer a = one_receive_fails(false, 2);

    assert_int_equal(a.status, 200);
    assert_int_equal(a.wrong_blocks, 1);
    /* with one group the block numbers identify the request */
    assert_int_equal(one_receive_fails(false, 1).status, 500);
    assert_int_equal(one_receive_fails(true, 2).status, 500);
}

/* The reference outlives its blocks: the source allocates them to another prompt. */
static struct textbook_answer stale_reference(bool fixed)
{
    struct textbook prefill, decode;
    struct textbook_reference ref;
    uint32_t p, d, x[N];

    textbook_init(&prefill, (struct textbook_fixes){0}, 1);
    textbook_init(&decode, (struct textbook_fixes){.references_have_generation = fixed}, 1);
    ref = prefilled(&prefill, &p);
    textbook_end(&prefill, p);
    p = textbook_admit(&prefill, ANOTHER, N);
    textbook_compute(&prefill, p, 0, N);

    d = textbook_admit(&decode, PROMPT, N);
    for (uint32_t i = 0; i < N; i++)
        x[i] = textbook_pull(&decode, d, &ref, i);
    for (uint32_t i = 0; i < N; i++)
        textbook_lands(&decode, x[i]);
    return textbook_answer(&decode, d);
}

TEST(textbook_answers_from_a_stale_reference)
{
    struct textbook_answer a = stale_reference(false);

    assert_int_equal(a.status, 200);
    assert_int_equal(a.wrong_blocks, N);
    assert_int_equal(stale_reference(true).status, 500);
}

/* X3: the data path breaks after the first batch. The engine gets the error, no arrived page counts
 * as the prompt's, and no other session finds one; computing the prompt then is right. */
TEST(tern_a_failed_receive_is_told_and_publishes_nothing)
{
    struct pair p = hybrid_pair(1100);
    struct event broken = {.kind = EV_PULL_BROKEN};
    struct rig_session *other;
    uint64_t fetch;

    pair_offer(&p, 256);
    fetch = fetch_held(&p, RIG_PULL | RIG_PULL_STOP);
    rig_complete(p.dest, RIG_PULL);
    assert_true(p.dest->pulled_pages > 0);
    assert_err(TERN_BUSY, rig_fetched(p.d, fetch));

    broken.broken.pull = rig_job(p.dest, RIG_PULL, 0)->pull;
    broken.broken.err = TERN_PEER_LOST;
    rig_event(p.dest, &broken);
    assert_err(TERN_PEER_LOST, rig_fetched(p.d, fetch));
    assert_lengths(p.d, 0, 0, 0);
    other = asking(&p, 1, 256);
    assert_int_equal(other->matched, 0);
    assert_ok(rig_close(other, 0));
    rig_runs_free(p.dest);
    runs_right(p.d, seq1, 256);
    closes_whole(p.d, 256);
}

/* The source reuses its pages for another prompt while the destination still has their references:
 * the message that ends the transfer is still on the wire. */
static void source_moves_on(struct pair *p, struct rig_session *another)
{
    p->source->automatic = BY_HAND(RIG_MSG);
    rig_advance(p->source, p->source->options.limits.transfer_deadline_ns);
    assert_int_equal(rig_view(p->source).serves, 0);
    assert_int_equal(rig_evict(p->source, rig_connect_admin(p->source), p->sp, 0), 16);
    commits(another, ANOTHER, 64);
}

static bool has_index(const struct rig_session *s, uint32_t index)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < RIG_TABLE_MAX; i++)
        n += s->table[0][i].index == index;
    return n == 1;
}

/* X6, P1: a page has a generation, and a transfer has a handle of its own. A stale reference is
 * refused before a byte leaves, by the transfer that ended and by the one that has begun. */
TEST(tern_a_stale_reference_brings_no_byte)
{
    struct pair p = pair_with(rig_defaults(), 4, 16, 64);
    struct rig_session *another, *d2;
    struct page_ref old[16];
    struct rig_job *job;
    uint32_t record;
    uint64_t fetch;

    pair_offer(&p, 64);
    fetch = fetch_held(&p, RIG_PULL);
    job = rig_job(p.dest, RIG_PULL, 0);
    assert_int_equal(job->n, 16);
    memcpy(old, job->refs, sizeof old);
    another = rig_session(p.source, &p.se, p.sp, 1);
    source_moves_on(&p, another);
    for (uint32_t i = 0; i < 16; i++) {
        assert_true(has_index(another, old[i].index));
        assert_err(TERN_GONE, core_serve_page(p.source->core, job->serve, 0, old[i], &record));
    }
    complete_all(p.dest, RIG_PULL);
    assert_int_equal(p.dest->pulled_pages, 0);
    rig_runs_free(p.source);
    assert_err(TERN_TIMED_OUT, rig_fetched(p.d, fetch)); /* the source reports why it ended */
    assert_lengths(p.d, 0, 0, 0);

    d2 = asking(&p, ANOTHER, 64);
    rig_fetch(d2, 0, 0);
    job = rig_job(p.dest, RIG_PULL, 0);
    for (uint32_t i = 0; i < 16; i++) {
        assert_ok(core_serve_page(p.source->core, job->serve, 0, job->refs[i], &record));
        assert_err(TERN_GONE, core_serve_page(p.source->core, job->serve, 0, old[i], &record));
    }
    complete_all(p.dest, RIG_PULL);
    assert_leaves_whole(rig_fetched(d2, d2->fetch), d2, 64);
}
