/* A committed prefix is stored on the disk and read back: into the same daemon once memory has lost
 * it, and into the next one. */
#include "unit/rig/rig_disk_bench.h"

#define SMALL                                                                                      \
    ((struct disk_shape){                                                                          \
        .page_tokens = 4, .pages = 64, .page_bytes = 512, .budget = 1u << 22, .interval = 64})

static struct rig_session *computed(struct disk_bench *b, uint32_t seed, uint32_t n)
{
    return rig_committed(b->rig, &b->e, b->pool, seed, n);
}

TEST(a_stored_prefix_comes_back_after_a_restart)
{
    struct disk_bench b = disk_bench(SMALL);
    struct rig_session *s = computed(&b, 1, 32);
    struct disk_entry_view entry;

    assert_ok(disk_stored(s, 32));
    assert_int_equal(disk_seen(&b).entries, 1);
    assert_int_equal(disk_seen(&b).used, spill_bytes(b.disk));
    disk_bench_restart(&b);
    assert_int_equal(disk_seen(&b).entries, 1);
    assert_int_equal(disk_seen(&b).counts.recovered, 1);
    assert_int_equal(disk_seen(&b).used, spill_bytes(b.disk));
    s = rig_session(b.rig, &b.e, b.pool, 1);
    matches(s, rig_tokens(1, 40), 40, 0);
    assert_int_equal(b.rig->last->match.disk_depth, 32);
    assert_ok(rig_fetched(s, rig_fetch(s, PEER_DISK, 0)));
    assert_whole(s, 32);
    assert_true(disk_entry(&b, 32, &entry));
    assert_int_equal(entry.hits, 1);
    disk_bench_end(&b);
}

/* A router asks before any session of the namespace was opened. */
TEST(a_peek_of_a_namespace_that_memory_does_not_know_is_told_what_the_disk_has)
{
    struct disk_bench b = disk_bench(SMALL);
    struct rig_session like = *computed(&b, 1, 32);
    uint32_t depth;

    assert_ok(disk_stored(computed(&b, 1, 32), 32));
    disk_bench_restart(&b);
    like.rig = b.rig;
    like.conn = b.e.conn[0];
    like.pool = b.pool;
    assert_ok(rig_peek(&like, rig_tokens(1, 30), 30, &depth));
    assert_int_equal(depth, 0);
    assert_int_equal(b.rig->last->peek.disk_depth, 28);
    like.ns.lo++;
    assert_ok(rig_peek(&like, rig_tokens(1, 30), 30, &depth));
    assert_int_equal(b.rig->last->peek.disk_depth, 0);
    disk_bench_end(&b);
}

/* Peeks at tokens [from, to) of the stored list, from the node that the last Peek reached. */
static const struct reply *peeked(struct disk_bench *b, uint32_t from, uint32_t to)
{
    struct request peek = {.op = OP_PEEK};
    struct node_id reached = from ? b->rig->last->peek.reached : (struct node_id){0};
    const struct reply *r;

    peek.peek =
        (struct req_peek){.pool = b->pool,
                          .ns = {.hi = 1, .lo = 1},
                          .from = reached,
                          .tokens = {.v = rig_tokens(1, 40) + from, .n = to - from, .base = from}};
    r = rig_request(b->rig, b->e.conn[0], &peek);
    assert_ok(r->err);
    return r;
}

/* Memory has 16 tokens and the disk 32: the piece in which memory's part ends also looks at the
 * disk, up to the end of that piece. */
TEST(a_peek_in_pieces_is_told_what_the_disk_has_behind_memory)
{
    struct disk_bench b = disk_bench(SMALL);
    struct rig_session *s;

    assert_ok(disk_stored(computed(&b, 1, 32), 32));
    disk_bench_restart(&b);
    s = rig_session(b.rig, &b.e, b.pool, 1);
    matches(s, rig_tokens(1, 40), 40, 0);
    assert_ok(rig_fetched(s, rig_fetch(s, PEER_DISK, 16)));
    assert_whole(s, 16);
    assert_int_equal(peeked(&b, 0, 16)->peek.walked, 16);
    assert_int_equal(b.rig->last->peek.disk_depth, 0);
    assert_int_equal(peeked(&b, 16, 40)->peek.depth, 16);
    assert_int_equal(b.rig->last->peek.disk_depth, 32);
    peeked(&b, 0, 16);
    assert_int_equal(peeked(&b, 16, 25)->peek.disk_depth, 24);
    disk_bench_end(&b);
}

/* D4: compared token by token. */
TEST(another_prompt_is_found_as_far_as_its_tokens_agree)
{
    struct disk_bench b = disk_bench(SMALL);
    uint32_t tokens[40];

    assert_ok(disk_stored(computed(&b, 1, 32), 32));
    disk_bench_restart(&b);
    memcpy(tokens, rig_tokens(1, 40), sizeof tokens);
    assert_int_equal(disk_depth_of(&b, tokens, 40), 32);
    assert_int_equal(disk_depth_of(&b, tokens, 30), 28);
    tokens[21]++;
    assert_int_equal(disk_depth_of(&b, tokens, 40), 20);
    tokens[0]++;
    assert_int_equal(disk_depth_of(&b, tokens, 40), 0);
    disk_bench_end(&b);
}

TEST(a_page_that_is_not_what_was_written_is_not_handed_on)
{
    struct disk_bench b = disk_bench(SMALL);
    struct rig_session *s;

    assert_ok(disk_stored(computed(&b, 1, 32), 32));
    disk_bench_restart(&b);
    s = rig_session(b.rig, &b.e, b.pool, 1);
    matches(s, rig_tokens(1, 32), 32, 0);
    b.disk->reads_to_spoil = 1; /* read a second time */
    assert_ok(rig_fetched(s, rig_fetch(s, PEER_DISK, 16)));
    assert_whole(s, 16);
    b.disk->reads_to_spoil = 64;
    assert_err(TERN_CORRUPT, rig_fetched(s, rig_fetch(s, PEER_DISK, 0)));
    assert_int_equal(s->len.committed, 16);
    b.disk->reads_to_spoil = 0;
    rig_timers(b.rig);
    assert_int_equal(disk_seen(&b).entries, 0); /* its path contains the bad chunk */
    disk_bench_end(&b);
}

TEST(a_prefix_that_memory_has_lost_is_fetched_again)
{
    struct disk_bench b = disk_bench(SMALL);
    struct rig_session *s = computed(&b, 1, 32);
    uint32_t admin = rig_connect_admin(b.rig);

    assert_ok(disk_stored(s, 32));
    assert_ok(rig_close(s, 0));
    rig_evict(b.rig, admin, b.pool, 100);
    s = rig_session(b.rig, &b.e, b.pool, 1);
    matches(s, rig_tokens(1, 32), 32, 0);
    assert_int_equal(b.rig->last->match.disk_depth, 32);
    assert_ok(rig_fetched(s, rig_fetch(s, PEER_DISK, 0)));
    assert_whole(s, 32);
    disk_bench_end(&b);
}

TEST(a_store_that_the_disk_refuses_changes_nothing_and_is_made_later)
{
    struct disk_bench b = disk_bench(SMALL);
    struct rig_session *s = computed(&b, 1, 32);
    uint64_t again;

    b.disk->writes_to_fail = 1;
    b.disk->err = TERN_POOL_EXHAUSTED;
    assert_err(TERN_POOL_EXHAUSTED, disk_stored(s, 32));
    assert_int_equal(disk_seen(&b).used, 0);
    assert_int_equal(disk_seen(&b).chunks, 0);
    assert_int_equal(disk_seen(&b).files, 0);
    assert_int_equal(disk_seen(&b).counts.failed, 1);
    again = disk_store(s, 32);
    assert_null(rig_reply_to(b.rig, again)); /* until the pause is over */
    rig_advance(b.rig, DISK_PAUSE_MS * NS_PER_MS);
    assert_ok(rig_reply_to(b.rig, again)->err);
    assert_int_equal(disk_seen(&b).entries, 1);
    disk_bench_end(&b);
}

TEST(a_reset_namespace_is_gone_from_the_disk_before_it_is_answered)
{
    struct disk_bench b = disk_bench(SMALL);
    struct rig_session *s = computed(&b, 1, 32);
    struct request reset = {.op = OP_NAMESPACE_RESET, .namespace_reset.ns = s->ns};

    assert_ok(disk_stored(s, 32));
    b.rig->automatic = BY_HAND(RIG_DISK_DROP);
    assert_null(rig_request(b.rig, b.e.conn[0], &reset));
    assert_null(rig_reply_to(b.rig, reset.request_id));
    assert_int_equal(disk_depth_of(&b, rig_tokens(1, 32), 32), 0);
    rig_complete(b.rig, RIG_DISK_DROP);
    assert_non_null(rig_reply_to(b.rig, reset.request_id));
    assert_int_equal(spill_bytes(b.disk), 0);
    disk_bench_end(&b);
}

/* Stores that wait for their turn when the namespace is reset have content of the old weights: a
 * store without a file yet, and the next file of one that has some. */
TEST(a_store_that_waits_while_its_namespace_is_reset_writes_nothing)
{
    struct disk_bench b = disk_bench((struct disk_shape){
        .page_tokens = 4, .pages = 512, .page_bytes = 512, .budget = 1u << 22, .interval = 4096});
    struct rig_session *first = computed(&b, 1, 4 * (DISK_WRITE_EXTENTS / 2 + 8)),
                       *second = computed(&b, 2, 32);
    struct request reset = {.op = OP_NAMESPACE_RESET, .namespace_reset.ns = first->ns};
    uint64_t one, two;

    b.rig->automatic = BY_HAND(RIG_DISK_WRITE);
    one = disk_store(first, 4 * (DISK_WRITE_EXTENTS / 2 + 8));
    two = disk_store(second, 32);
    assert_null(rig_request(b.rig, b.e.conn[0], &reset));
    rig_complete(b.rig, RIG_DISK_WRITE);
    assert_non_null(rig_reply_to(b.rig, one));
    assert_err(TERN_GONE, rig_reply_to(b.rig, one)->err);
    assert_err(TERN_GONE, rig_reply_to(b.rig, two)->err);
    assert_non_null(rig_reply_to(b.rig, reset.request_id));
    assert_int_equal(spill_bytes(b.disk), 0);
    assert_int_equal(disk_depth_of(&b, rig_tokens(2, 32), 32), 0);
    disk_bench_end(&b);
}
