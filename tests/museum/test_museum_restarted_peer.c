/* A peer restarts, and the survivor crashes because of what it kept: it uses a connection for the
 * next request while its transport tears the connection down (vllm 49238). docs/museum.md has the
 * story. */
#include "museum/museum.h"

#define PROMPT  1
#define ANOTHER 2

struct outcome {
    bool first, second;                 /* requests to the restarted peer: did they succeed? */
    struct textbook_answer of_somebody; /* of an unrelated request */
};

/* The survivor takes the connection for a request. Before it uses the connection, the transport has
 * seen that the old peer is gone. */
static struct outcome peer_restarts(bool fixed)
{
    struct textbook survivor;
    struct textbook_endpoint *e;
    struct outcome o;
    uint32_t somebody;

    textbook_init(&survivor, (struct textbook_fixes){.endpoint_is_checked = fixed}, 1);
    somebody = textbook_admit(&survivor, ANOTHER, 2);
    textbook_compute(&survivor, somebody, 0, 2);
    assert_true(textbook_unpack(&survivor, textbook_connect(&survivor)));

    e = textbook_connect(&survivor);
    textbook_teardown(&survivor);
    o.first = textbook_unpack(&survivor, e);
    o.second = !survivor.crashed && textbook_unpack(&survivor, textbook_connect(&survivor));
    o.of_somebody = textbook_answer(&survivor, somebody);
    return o;
}

TEST(textbook_survivor_falls_with_its_peer)
{
    struct outcome o = peer_restarts(false);

    assert_false(o.first || o.second);
    assert_int_equal(o.of_somebody.status, 0);
    o = peer_restarts(true);
    assert_false(o.first);
    assert_true(o.second);
    assert_int_equal(o.of_somebody.status, 200);
    assert_int_equal(o.of_somebody.wrong_blocks, 0);
}

#define TOKENS 64 /* 16 pages of 4 tokens */

/* The destination fetches PROMPT from a source that will restart and ANOTHER from one that does
 * not.
 */
struct fleet {
    struct pair p; /* the destination, and the source that restarts */
    struct rig *steady;
    struct rig_session *other;
    uint64_t fetch, other_fetch;
};

static struct rig *new_source(uint64_t incarnation, uint32_t seed, struct rig_engine *ret_engine,
                              struct pool_id *ret_pool)
{
    struct rig_options options = OPTIONS_WITH(incarnation = incarnation);
    struct rig *rig = rig_create(&options);

    *ret_engine = rig_engine(rig, 0, "prefill", 1);
    *ret_pool = rig_pool_pages(rig, ret_engine, 4, 128);
    rig_put(rig, ret_engine, *ret_pool, seed, TOKENS);
    return rig;
}

static struct fleet fleet_fetches(void)
{
    struct fleet f = {.p = pair_with(rig_defaults(), 4, 128, 64)};
    const uint32_t peers = f.p.dest->options.limits.peers;
    struct rig_engine engine;
    struct pool_id pool;

    f.steady = new_source(0x3003, ANOTHER, &engine, &pool);
    rig_link_up(f.p.dest, 1, f.steady, peers);
    pair_offer(&f.p, TOKENS);
    f.other = asking(&f.p, ANOTHER, TOKENS);
    f.fetch = fetch_held(&f.p, RIG_PULL | RIG_PULL_STOP);
    f.other_fetch = rig_fetch(f.other, 1, 0);
    assert_int_equal(rig_jobs(f.p.dest, RIG_PULL), 2);
    return f;
}

/* The source comes back at the same address as a new incarnation, with none of its memory. */
static void source_restarts(struct fleet *f)
{
    const uint32_t peers = f->p.dest->options.limits.peers;

    rig_link_down(f->p.dest, 0);
    f->p.source = new_source(0x2003, PROMPT, &f->p.se, &f->p.sp);
    rig_link_up(f->p.dest, 0, f->p.source, peers);
}

/* X6: messages of the old incarnation arrive late. */
static void old_life_speaks(struct pair *p, struct pull_id pull)
{
    struct peer_msg late[] = {{.kind = PEER_PULL_ABORT, .pull = pull, .err = TERN_GONE},
                              {.kind = PEER_PULL_OFFER, .pull = pull, .err = TERN_BUSY}};
    uint64_t changes = core_changes(p->dest->core);

    for (uint32_t i = 0; i < 2; i++)
        source_says(p, &late[i]);
    assert_true(core_changes(p->dest->core) == changes);
    assert_int_equal(p->dest->link_closes, 0);
}

/* X6: handles of the old incarnation name nothing in the new one, although a transfer in the same
 * slot serves a page of the same index. */
static void old_handles_are_gone(struct pair *p, struct serve_id serve, struct page_ref ref,
                                 const struct rig_job *now)
{
    uint32_t record;

    assert_int_equal(now->serve.slot, serve.slot);
    assert_ok(core_serve_page(p->source->core, now->serve, 0, now->refs[0], &record));
    assert_int_equal(now->refs[0].index, ref.index);
    assert_err(TERN_GONE, core_serve_page(p->source->core, serve, 0, now->refs[0], &record));
    assert_err(TERN_GONE, core_serve_page(p->source->core, serve, 0, ref, &record));
}

/* P2, X1, X6: the fetch from the restarted source ends with a typed error, and its pages wait for
 * the data path. The other fetch continues, and the next one from that source is like any other. */
TEST(tern_survivor_goes_on_with_its_peers_next_life)
{
    struct fleet f = fleet_fetches();
    struct pair *p = &f.p;
    struct rig_job *job = rig_job(p->dest, RIG_PULL, 0);
    struct pull_id old = job->pull;
    struct serve_id serve = job->serve;
    struct page_ref ref = job->refs[0];

    source_restarts(&f);
    assert_err(TERN_PEER_LOST, rig_fetched(p->d, f.fetch));
    assert_lengths(p->d, 0, 0, 0);
    assert_int_equal(quarantined(p), TOKENS / 4);
    old_life_speaks(p, old);
    rig_complete(p->dest, RIG_PULL); /* a batch of the old incarnation */
    assert_int_equal(rig_depth(p->d, seq1, TOKENS), 0);
    assert_int_equal(quarantined(p), TOKENS / 4);
    rig_complete(p->dest, RIG_PULL_STOP);
    assert_int_equal(quarantined(p), 0);

    rig_fetch(p->d, 0, 0);
    old_handles_are_gone(p, serve, ref, rig_job(p->dest, RIG_PULL, 1));
    complete_all(p->dest, RIG_PULL);
    assert_leaves_whole(rig_fetched(f.other, f.other_fetch), f.other, TOKENS);
    assert_leaves_whole(rig_fetched(p->d, p->d->fetch), p->d, TOKENS);
    complete_all(p->dest, RIG_PULL_STOP);
    assert_int_equal(rig_view(p->dest).pulls, 0);
    assert_int_equal(rig_view(f.steady).serves, 0);
    assert_int_equal(rig_view(p->source).serves, 0);
}
