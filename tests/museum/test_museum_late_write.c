/* A write is under way when its request ends, and lands in pages of the next request: after an
 * abort (sglang 24527), and after the first of several transfers failed (vllm 56104).
 * docs/museum.md has the stories. */
#include "museum/museum.h"

#define PROMPT  1
#define ANOTHER 2
#define N       3 /* blocks */

struct outcome {
    struct textbook_answer next; /* of the request admitted next */
    uint32_t free;               /* blocks, once no transfer runs */
};

/* Starts transfers of a request, ends it by `ends`, and admits another, which gets blocks. */
static struct outcome late_write(struct textbook_fixes fixed,
                                 void (*ends)(struct textbook *decode, uint32_t d, uint32_t x))
{
    struct textbook prefill, decode;
    struct textbook_reference ref;
    struct outcome o;
    uint32_t p, d, next, x[N];

    textbook_init(&prefill, (struct textbook_fixes){0}, 1);
    textbook_init(&decode, fixed, 1);
    p = textbook_admit(&prefill, PROMPT, N);
    textbook_compute(&prefill, p, 0, N);
    ref = textbook_reference(&prefill, p);
    d = textbook_admit(&decode, PROMPT, N);
    for (uint32_t i = 0; i < N; i++)
        x[i] = textbook_pull(&decode, d, &ref, i);
    ends(&decode, d, x[0]);
    next = textbook_admit(&decode, ANOTHER, N);
    textbook_compute(&decode, next, 0, N);
    for (uint32_t i = 0; i < N; i++)
        if (decode.transfer[x[i]].live)
            textbook_lands(&decode, x[i]);
    assert_int_equal(textbook_answer(&decode, d).status, 500);
    o.next = textbook_answer(&decode, next);
    textbook_end(&decode, next);
    o.free = decode.nfree;
    return o;
}

static void by_abort(struct textbook *decode, uint32_t d, uint32_t x)
{
    (void)x;
    textbook_abort(decode, d);
}

static void by_the_first_failure(struct textbook *decode, uint32_t d, uint32_t x)
{
    (void)d;
    textbook_fails(decode, x);
}

#define assert_harm(o, wrong)                                                                      \
    do {                                                                                           \
        assert_int_equal((o).next.status, 200);                                                    \
        assert_int_equal((o).next.wrong_blocks, (wrong));                                          \
        assert_int_equal((o).free, TEXTBOOK_BLOCKS);                                               \
    } while (0)

TEST(textbook_a_write_lands_after_an_abort)
{
    assert_harm(late_write((struct textbook_fixes){0}, by_abort), N);
    assert_harm(late_write((struct textbook_fixes){.writers_hold_blocks = true}, by_abort), 0);
}

TEST(textbook_a_write_lands_after_its_sibling_failed)
{
    struct textbook_fixes fix_of_aborts = {.writers_hold_blocks = true};
    struct textbook_fixes fixed = {.failure_waits_for_siblings = true};

    assert_harm(late_write((struct textbook_fixes){0}, by_the_first_failure), N - 1);
    assert_harm(late_write(fix_of_aborts, by_the_first_failure), N - 1);
    assert_harm(late_write(fixed, by_the_first_failure), 0);
}

#define DEST_PAGES 24

/* The next session gets none of the `pages` that are still written, however much time passes, and
 * gets all of them once the data path has reported that it is done. */
static void next_one_is_untouched(struct pair *p, uint32_t pages)
{
    struct rig_session *next = rig_session(p->dest, &p->de, p->dp, 2);
    uint32_t got;

    assert_true(pages > 0);
    takes_what_is_free(next, ANOTHER);
    got = next->len.allocated;
    rig_advance(p->dest, 60000 * NS_PER_MS); /* no timer frees them */
    takes_what_is_free(next, ANOTHER);
    assert_int_equal(late_writes(p->dest), pages);
    assert_int_equal(rig_wrong(next, next->len.written), 0);
    assert_int_equal(next->len.allocated, got);
    assert_true(quarantined(p) >= pages);

    rig_complete(p->dest, RIG_PULL_STOP);
    assert_int_equal(quarantined(p), 0);
    takes_what_is_free(next, ANOTHER);
    assert_true(next->len.allocated >= got + 4 * pages);
    closes_whole(next, next->len.allocated);
}

static struct pair dest_is_small(void)
{
    struct pair p = PAIR_LIMITED(limits.peer_bytes_in_flight = 8 * 512, 4, 128, DEST_PAGES);

    pair_offer(&p, 64);
    return p;
}

/* P2, X1 */
TEST(tern_a_write_after_an_abort_lands_in_nobodys_page)
{
    struct pair p = dest_is_small();
    uint64_t fetch = fetch_held(&p, RIG_PULL | RIG_PULL_STOP);
    uint32_t pages = late_writes(p.dest);

    assert_ok(rig_abort(p.d, 0));
    assert_err(TERN_GONE, rig_fetched(p.d, fetch));
    next_one_is_untouched(&p, pages);
    assert_ok(rig_close(p.d, 0));
}

/* p.d's fetch has two batches on their way; the second uses the room that another fetch left. */
static uint64_t two_batches_under_way(struct pair *p)
{
    struct rig_session *first = asking_source(p, 3, 8);
    uint64_t fetch;

    p->dest->automatic = BY_HAND(RIG_PULL | RIG_PULL_STOP);
    rig_fetch(first, 0, 0);
    fetch = rig_fetch(p->d, 0, 0);
    assert_int_equal(rig_jobs(p->dest, RIG_PULL), 2);
    last_batch_comes(first);
    closes_whole(first, 8);
    rig_complete(p->dest, RIG_PULL_STOP);
    assert_int_equal(rig_jobs(p->dest, RIG_PULL), 2);
    return fetch;
}

/* P2, X1: a page of one batch arrives wrong twice while the other batch is under way. */
TEST(tern_a_write_after_a_sibling_failed_lands_in_nobodys_page)
{
    struct pair p = dest_is_small();
    uint64_t fetch = two_batches_under_way(&p);
    uint32_t sibling = rig_job(p.dest, RIG_PULL, 1)->batch;

    p.dest->corrupt_group_index = rig_job(p.dest, RIG_PULL, 0)->pages[0].index;
    p.dest->corrupt_pages = 2;
    rig_complete(p.dest, RIG_PULL);
    assert_err(TERN_BUSY, rig_fetched(p.d, fetch)); /* asked for once more */
    rig_complete_nth(p.dest, RIG_PULL, rig_jobs(p.dest, RIG_PULL) - 1);
    assert_err(TERN_CORRUPT, rig_fetched(p.d, fetch));
    assert_int_equal(rig_job(p.dest, RIG_PULL, 0)->batch, sibling);
    next_one_is_untouched(&p, late_writes(p.dest));
    assert_ok(rig_close(p.d, 0));
}
