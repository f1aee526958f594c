/* Requests that wait for their answers, and answers that are kept until they are polled. */
#include "unit/rig/rig_client.h"

/* Answers a Match twice, just before the answer of the Ping behind it. */
static void serve_match_twice(struct fake *f)
{
    Tern__Wire__MatchReply reply = TERN__WIRE__MATCH_REPLY__INIT;
    struct frame_header match = {0}, ping;

    while (fake_read(f)) {
        if (f->h.type == FRAME_MATCH) {
            match = f->h;
            continue;
        }
        ping = f->h;
        f->h = match;
        fake_reply(f, &reply);
        fake_reply(f, &reply);
        f->h = ping;
        fake_reply_empty(f);
    }
}

/* The second answer belongs to no request, even while the first one is kept. */
TEST(async_answer_that_comes_twice_ends_the_connection)
{
    static const uint32_t tokens[64];
    static struct fake other;
    struct tern_tokens list = {.v = tokens, .n = 64};
    struct tern *client;

    fake_start(&other, serve_match_twice, NULL);
    assert_ok(tern_connect(other.path, 2000, &client));
    assert_ok(tern_submit_match(client, 100, &list, TERN_STEP_NONE, 1));
    (void)tern_ping(client, 2000); /* its answer may come with the second one */
    assert_err(TERN_DAEMON_LOST, tern_ping(client, 2000));
    tern_destroy(client);
    fake_stop(&other);
}
