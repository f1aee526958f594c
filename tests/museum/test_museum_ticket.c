/* The prefill side holds blocks for a decode side and frees them too early: after a failed fetch,
 * so that the retry reads another prompt's blocks (vllm-ascend 13929, vllm 52234), and as soon as
 * the request is closed, before anybody has read (dynamo 826). docs/museum.md has the stories. */
#include "museum/museum.h"
#include "unit/rig/rig_ticket.h"

#define PROMPT  1
#define ANOTHER 2
#define N       3 /* blocks */

/* The prefill side has computed the prompt, and its request is over. */
static struct textbook_reference handed(struct textbook *prefill, struct textbook_fixes fixed,
                                        uint32_t *ret_request)
{
    struct textbook_reference ref;

    textbook_init(prefill, fixed, 1);
    *ret_request = textbook_admit(prefill, PROMPT, N);
    textbook_compute(prefill, *ret_request, 0, N);
    ref = textbook_reference(prefill, *ret_request);
    textbook_hand_over(prefill, *ret_request);
    return ref;
}

/* Another prompt takes the free blocks of the prefill side. */
static void another_takes(struct textbook *prefill, uint32_t n)
{
    uint32_t r = textbook_admit(prefill, ANOTHER, n);

    textbook_compute(prefill, r, 0, n);
}

/* A decode side reads all blocks; `fails` is the block whose receive fails, N for none. */
static struct textbook_answer fetched(struct textbook *decode, const struct textbook_reference *ref,
                                      uint32_t fails)
{
    uint32_t d, x[N];

    textbook_init(decode, (struct textbook_fixes){0}, 1);
    d = textbook_admit(decode, PROMPT, N);
    for (uint32_t i = 0; i < N; i++)
        x[i] = textbook_pull(decode, d, ref, i);
    for (uint32_t i = 0; i < N; i++)
        if (i == fails)
            textbook_fails(decode, x[i]);
        else
            textbook_lands(decode, x[i]);
    return textbook_answer(decode, d);
}

/* The first decode side fails and reports that it is done with the blocks; another prompt takes
 * them; the router sends the request to a second decode side with the same reference. */
static struct textbook_answer retried(bool fixed)
{
    struct textbook prefill, first, second;
    struct textbook_fixes f = {.failure_keeps_hold = fixed, .tail_is_held = true};
    struct textbook_answer a;
    uint32_t p;
    struct textbook_reference ref = handed(&prefill, f, &p);

    assert_int_equal(fetched(&first, &ref, 1).status, 500);
    textbook_fetched(&prefill, p, false);
    another_takes(&prefill, N);
    a = fetched(&second, &ref, N);
    textbook_fetched(&prefill, p, true);
    assert_int_equal(prefill.nfree, TEXTBOOK_BLOCKS - N); /* blocks of the other prompt */
    return a;
}

TEST(textbook_a_failed_fetch_consumes_what_the_retry_needs)
{
    struct textbook_answer a = retried(false);

    assert_int_equal(a.status, 200);
    assert_int_equal(a.wrong_blocks, N);
    a = retried(true);
    assert_int_equal(a.status, 200);
    assert_int_equal(a.wrong_blocks, 0);
}

/* The request is closed, and the blocks behind those that the cache keeps are free at once. */
static struct textbook_answer closed_before_it_was_read(bool fixed)
{
    struct textbook prefill, decode;
    uint32_t p;
    struct textbook_reference ref =
        handed(&prefill, (struct textbook_fixes){.tail_is_held = fixed}, &p);

    another_takes(&prefill, 1);
    return fetched(&decode, &ref, N);
}

TEST(textbook_the_tail_is_freed_when_its_request_closes)
{
    struct textbook_answer a = closed_before_it_was_read(false);

    assert_int_equal(a.status, 200);
    assert_int_equal(a.wrong_blocks, 1);
    a = closed_before_it_was_read(true);
    assert_int_equal(a.status, 200);
    assert_int_equal(a.wrong_blocks, 0);
}

#define FULL         40 /* whole chunks of 4 tokens */
#define LEN          42 /* handed over: half a page behind them */
#define SOURCE_PAGES 24
#define TAIL_BYTE    0x5a
#define BLOB         9 /* words */

/* Sequence 1 up to LEN is handed over at the source, which closes its session. */
static struct ticket handed_over(struct pair *p)
{
    struct rig_session *s = session_with(p->source, &p->se, p->sp, PROMPT, LEN);
    struct ticket t;

    run_and_commit(s, seq1, LEN, FULL, 0);
    write_last_page(s, 0, TAIL_BYTE);
    t = hand_over(s, 0, BLOB);
    assert_err(TERN_GONE, rig_close(s, 0));
    return t;
}

/* Another session takes and writes every page that the source can allocate. */
static struct rig_session *source_is_full(struct pair *p)
{
    struct rig_session *hog = rig_session(p->source, &p->se, p->sp, ANOTHER);

    takes_what_is_free(hog, ANOTHER);
    return hog;
}

static void assert_came_whole(struct rig_session *d)
{
    assert_lengths(d, FULL, LEN, LEN);
    assert_int_equal(rig_wrong(d, FULL), 0);
    assert_true(last_page_is(d, 0, TAIL_BYTE));
    assert_true(blob_came(d, BLOB));
}

static uint32_t tickets_left(struct pair *p)
{
    return rig_group_view(p->source, p->sp, 0).ticket;
}

/* Y2: however a fetch fails, the ticket remains for the next one, whatever the source does
 * meanwhile. The fetch that completes takes the ticket, once. */
TEST(tern_a_failed_fetch_leaves_the_ticket_for_the_retry)
{
    struct pair p = PAIR_LIMITED(limits.peer_bytes_in_flight = 4 * 512, 4, SOURCE_PAGES, 64);
    struct ticket t = handed_over(&p);
    struct rig_session *d, *hog;

    for (uint32_t how = 0; how < 3; how++) {
        d = asking(&p, PROMPT, LEN);
        p.dest->automatic = BY_HAND(RIG_PULL);
        ticket_fetch(d, t);
        if (how == 0) { /* a page arrives wrong repeatedly */
            p.dest->corrupt_pages = 4 * PULL_TRIES_MAX;
            rig_runs_free(p.dest);
            p.dest->corrupt_pages = 0;
            assert_err(TERN_CORRUPT, rig_fetched(d, d->fetch));
        } else if (how == 1) { /* the connection fails with pages on their way */
            rig_complete(p.dest, RIG_PULL);
            rig_link_down(p.dest, 0);
            assert_err(TERN_PEER_LOST, rig_fetched(d, d->fetch));
            rig_link_up(p.dest, 0, p.source, p.source->options.limits.peers);
        } else { /* the fetch is cancelled */
            rig_complete(p.dest, RIG_PULL);
            assert_ok(rig_fetch_cancel(d));
            assert_err(TERN_GONE, rig_fetched(d, d->fetch));
        }
        rig_runs_free(p.dest);
        assert_ok(rig_close(d, 0));
        assert_int_equal(tickets_left(&p), 1);
        hog = source_is_full(&p);
        assert_ok(rig_close(hog, 0));
    }
    d = asking(&p, PROMPT, LEN);
    assert_ok(ticket_fetched(d, t));
    assert_came_whole(d);
    assert_int_equal(tickets_left(&p), 0);
    assert_err(TERN_GONE, ticket_fetched(asking(&p, PROMPT, LEN), t));
    assert_ok(rig_close(d, 0));
}

/* Y1: closing frees neither the tail nor the blob. Another session gets every other page and none
 * of these; they are free once the ticket is taken. */
TEST(tern_a_tail_stays_behind_its_closed_session)
{
    struct pair p = PAIR_LIMITED(limits.peer_bytes_in_flight = 1 << 20, 4, SOURCE_PAGES, 64);
    struct ticket t = handed_over(&p);
    struct rig_session *hog = source_is_full(&p), *d = asking(&p, PROMPT, LEN);
    uint32_t got = hog->len.allocated;

    assert_int_equal(got, 4 * (SOURCE_PAGES - LEN / 4 - 1));
    assert_ok(ticket_fetched(d, t));
    assert_came_whole(d);
    assert_int_equal(rig_wrong(hog, hog->len.written), 0);
    takes_what_is_free(hog, ANOTHER);
    assert_true(hog->len.allocated > got);
    assert_ok(rig_close(hog, 0));
    assert_ok(rig_close(d, 0));
}

/* Y3: a deadline unpins and does nothing else; a later fetch gets the error, and no byte moves. */
TEST(tern_a_ticket_that_is_too_late_brings_nothing)
{
    struct pair p = PAIR_LIMITED(limits.peer_bytes_in_flight = 1 << 20, 4, SOURCE_PAGES, 64);
    struct ticket t = handed_over(&p);
    struct rig_session *d = asking(&p, PROMPT, LEN), *hog;

    rig_advance(p.source, p.source->options.limits.ticket_deadline_ns);
    assert_int_equal(tickets_left(&p), 0);
    hog = source_is_full(&p);
    assert_err(TERN_GONE, ticket_fetched(d, t));
    assert_int_equal(p.dest->pulled_pages, 0);
    assert_lengths(d, 0, 0, 0);
    assert_ok(rig_close(hog, 0));
    assert_ok(rig_close(d, 0));
}
