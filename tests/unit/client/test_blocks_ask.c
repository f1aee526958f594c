/* How libtern divides lists of keys that are longer than a request. The daemon is scripted: it has
 * every block in the page that the key's first word names. */
#include <string.h>
#include <unistd.h>

#include "client/libtern/blocks.h"
#include "unit/rig/rig_client.h"

#define WAIT_MS  20000u
#define REQUESTS 16u
#define MOST     1024u          /* keys of one request */
#define SMALL    (MOST / 2 + 1) /* most keys for a small body */

static struct {
    bool is_slow;
    uint32_t requests;
    struct {
        uint32_t what, first, n;
    } asked[REQUESTS];
} daemon_was;

static void serve(struct fake *f)
{
    const Tern__Wire__Blocks *m;

    while ((m = (const void *)fake_read(f)) != NULL) {
        static struct tern_page pages[TERN_BLOCKS_LIST_MAX];
        const uint32_t n = (uint32_t)(m->keys->tokens.len / (BLOCK_TOKENS * sizeof(uint32_t)));
        Tern__Wire__BlocksReply r = TERN__WIRE__BLOCKS_REPLY__INIT;
        Tern__Wire__Run run, *runs[] = {&run};

        check(f->h.type == FRAME_BLOCKS && n > 0 && n <= TERN_BLOCKS_LIST_MAX);
        check(daemon_was.requests < REQUESTS);
        for (uint32_t i = 0; i < n; i++) {
            pages[i].generation = 1;
            memcpy(&pages[i].index, m->keys->tokens.data + i * BLOCK_TOKENS * sizeof(uint32_t),
                   sizeof pages[i].index);
        }
        daemon_was.asked[daemon_was.requests].what = m->what;
        daemon_was.asked[daemon_was.requests].first = pages[0].index;
        daemon_was.asked[daemon_was.requests++].n = n;
        if (daemon_was.is_slow)
            usleep(2000);
        run = fake_run(0, 0, pages, n);
        r.n_runs = 1;
        r.runs = runs;
        fake_reply(f, &r);
    }
}

static struct tern_block_set *set;
static struct tern_block_key keys[TERN_BLOCKS_LIST_MAX];
static uint32_t number[TERN_BLOCKS_LIST_MAX]; /* from 1 on */

static void set_begin(uint32_t body_max)
{
    memset(&daemon_was, 0, sizeof daemon_was);
    fake.body_max = body_max;
    start(serve, NULL);
    set = calloc(1, sizeof *set);
    assert_true(set);
    set->t = t;
    set->ns = (struct tern_namespace){"m", "", "", "", ""};
    for (uint32_t i = 0; i < TERN_BLOCKS_LIST_MAX; i++) {
        number[i] = i + 1;
        keys[i] = (struct tern_block_key){&number[i], sizeof number[i]};
    }
}

FIXTURE(set_end)
{
    client_stop(state);
    free(set);
    return 0;
}

TEST_EACH(client_setup, set_end);

/* Requests have at most `most` keys each, the last keys first, and each key has its page. */
static void assert_divided(enum blocks_what what, uint32_t n, uint32_t most)
{
    uint32_t left = n;

    for (uint32_t i = 0; i < daemon_was.requests; i++) {
        assert_int_equal(daemon_was.asked[i].what, what);
        assert_true(daemon_was.asked[i].n <= most);
        left -= daemon_was.asked[i].n;
        assert_int_equal(daemon_was.asked[i].first, number[left]);
    }
    assert_int_equal(left, 0);
    for (uint32_t i = 0; i < n; i++)
        assert_int_equal(set->page[i].index, number[i]);
    daemon_was.requests = 0;
}

TEST(blocks_are_asked_about_1024_at_a_time_from_the_end_on)
{
    static uint8_t places[TERN_BLOCKS_LIST_MAX];
    uint32_t front = 0, found = 0;

    set_begin(0);
    for (uint32_t n = MOST - 1; n <= MOST + 1; n++) {
        assert_ok(tern_blocks_touch(set, keys, n, WAIT_MS, &found));
        assert_int_equal(found, n);
        assert_int_equal(daemon_was.requests, n > MOST ? 2 : 1);
        assert_divided(BLOCKS_TOUCH, n, MOST);
    }
    assert_ok(tern_blocks_find(set, keys, TERN_BLOCKS_LIST_MAX, WAIT_MS, places, &front));
    assert_int_equal(front, TERN_BLOCKS_LIST_MAX);
    assert_int_equal(daemon_was.requests, TERN_BLOCKS_LIST_MAX / MOST);
    assert_divided(BLOCKS_FIND, TERN_BLOCKS_LIST_MAX, MOST);
    for (uint32_t i = 0; i < TERN_BLOCKS_LIST_MAX; i++)
        assert_int_equal(places[i], TERN_BLOCK_IN_POOL);
}

TEST(blocks_that_a_small_body_has_no_room_for_are_asked_about_from_the_end_on)
{
    uint32_t found;

    set_begin(SMALL * BLOCK_TOKENS * sizeof(uint32_t));
    assert_ok(tern_blocks_touch(set, keys, TERN_BLOCKS_LIST_MAX, WAIT_MS, &found));
    assert_true(daemon_was.requests > TERN_BLOCKS_LIST_MAX / MOST);
    assert_divided(BLOCKS_TOUCH, TERN_BLOCKS_LIST_MAX, SMALL);
}

/* While polls are in vain, 1, 3, 7 ... calls sleep at once after them. */
TEST(blocks_that_poll_in_vain_poll_less_often)
{
    set_begin(CLIENT_BODY_MIN);
    set->words[0][0] = 1;
    daemon_was.is_slow = true;
    t->poll_ns = 1;
    for (uint32_t i = 1; i < 15; i++) {
        assert_ok(blocks_ask(set, BLOCKS_FIND, NULL, 1, deadline_at(WAIT_MS)));
        assert_int_equal(set->page[0].index, 1);
        assert_int_equal(t->polls_skip, i < 3 ? 1 : i < 7 ? 3 : 7);
    }
    t->poll_ns = 4000000000u;
    assert_ok(blocks_ask(set, BLOCKS_FIND, NULL, 1, deadline_at(WAIT_MS)));
    assert_int_equal(set->page[0].index, 1);
    assert_int_equal(t->polls_skip, 0);
}
