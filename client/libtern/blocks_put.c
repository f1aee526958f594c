/* tern_blocks_put. Pages for a piece of the list are allocated in one request; the piece is copied
 * part by part, and each part is committed by a request while the next one is copied. Pages that
 * the set has allocated ahead are filled while the lookup of the keys and the allocation are under
 * way. Until the commit, private sessions own the pages, which are free again if this process
 * dies. */
#include "blocks.h"
#include "brought.h"

#include <stdio.h>
#include <string.h>

#include "base/err.h"

/* A put under way. */
struct put {
    struct tern_block_set *set;
    struct block_list list;
    uint8_t *stored;       /* NULL: not wanted */
    enum tern_err refused; /* error of the last block that got no page */
    /* For each session: the place whose value its page has, from 1 on, and the page's checksum; 0:
     * none. */
    uint32_t filled[BLOCKS_SESSIONS];
    uint64_t sum[BLOCKS_SESSIONS];
};

static void is_stored(struct put *p, uint32_t at)
{
    if (p->stored)
        p->stored[at] = 1;
}

static void refused_by(struct put *p, const struct tern_result *results, uint32_t i)
{
    p->refused = set_error(p->set->t, results[i].err, tern_error_text(p->set->t, &results[i]));
}

static const struct tern_page no_page;

/* Returns the page that extend i allocated, of `done` extends. */
static struct tern_page page_got(const struct tern_result *results, uint32_t i, uint32_t done)
{
    return i < done && results[i].err == TERN_OK && results[i].nruns == 1 &&
                   results[i].runs[0].n == 1
               ? results[i].runs[0].pages[0]
               : no_page;
}

/* Marks these sessions, one bit each, to be closed before their places are reused. It is unknown
 * whether such a session still has its page, so nothing is written there any more. */
static void give_up(struct tern_block_set *set, uint64_t which)
{
    set->puts.dirty |= which;
    for (uint32_t i = 0; i < BLOCKS_SESSIONS; i++)
        if (which & 1ull << i)
            set->held[i] = no_page;
}

/* Leaves the first n sessions their pages until this process ends, because a GPU may still write
 * there. */
static void leave_open(struct tern_block_set *set, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        set->puts.v[i] = 0;
        set->held[i] = no_page;
    }
}

/* Copies values to those pages of sessions [from, end) that do not have them yet. */
static enum tern_err fill_pages(struct put *p, uint32_t from, uint32_t end, const uint32_t *at)
{
    struct tern_block_set *set = p->set;
    uint32_t of[BLOCKS_SESSIONS], copies = 0;

    for (uint32_t i = from; i < end; i++) {
        if (set->held[i].index == 0 || p->filled[i] == at[i] + 1)
            continue;
        TRY(block_copy_of(set, &p->list, at[i], set->held[i].index, &set->copies[copies]));
        of[copies++] = i;
    }
    TRY(blocks_copy(set, copies, COPY_TO_PAGES));
    for (uint32_t k = 0; k < copies; k++) {
        p->filled[of[k]] = at[of[k]] + 1;
        p->sum[of[k]] = set->copies[k].sum;
    }
    return TERN_OK;
}

/* Allocates a page for each of the first n sessions that has none, and copies to the pages of the
 * others meanwhile. */
static enum tern_err take_pages(struct put *p, uint32_t n, const uint32_t *at)
{
    struct tern_block_set *set = p->set;
    const struct tern_result *results;
    uint32_t done, op = 0;
    struct call call;

    tern_batch_clear(set->batch);
    for (uint32_t i = 0; i < n; i++)
        if (set->held[i].index == 0)
            TRY(tern_batch_extend(set->batch, set->puts.v[i], NULL, 0, BLOCK_TOKENS));
    if (tern_batch_count(set->batch) == 0)
        return TERN_OK;
    set->counts.requests++;
    TRY(batch_send(set->batch, blocks_left_ms(p->list.deadline_ns), CALL_PIECES_MAX, &call));
    TRY(fill_pages(p, 0, n, at));
    call.sleep_ms = 0;
    TRY(batch_take(set->batch, &call, &results, &done));
    for (uint32_t i = 0; i < n; i++) {
        if (set->held[i].index != 0)
            continue;
        set->held[i] = page_got(results, op, done);
        if (op < done && results[op].err != TERN_OK)
            refused_by(p, results, op);
        op++;
    }
    return TERN_OK;
}

/* A part of a piece: blocks that are copied together, and committed by one request while those of
 * the next part are copied. */
struct part {
    uint32_t from, end; /* range of the piece's sessions and places */
    struct tern_batch *batch;
    struct call call; /* under way */
};

/* Copies the blocks of those sessions of a part that have a page, and leaves the checksums of the
 * pages for a step that is done when the commit is sent: the daemon takes them and reads no page.
 */
static enum tern_err copy_part(struct put *p, const struct part *part, const uint32_t *at)
{
    struct tern_block_set *set = p->set;
    const uint64_t step = set->t->last_step + 1;

    TRY(fill_pages(p, part->from, part->end, at));
    for (uint32_t i = part->from; i < part->end; i++)
        if (set->held[i].index != 0)
            brought_leave(set->map, set->page_bytes, &set->held[i], p->sum[i], step);
    return tern_done_step(set->map, step);
}

/* Adds the end of a piece for one session: the session commits its block, becomes empty, and with
 * `again` gets a page for the next block. A session without a page is unchanged. */
static enum tern_err ask_commit(const struct put *p, struct tern_batch *batch, uint32_t i,
                                uint32_t at, bool again)
{
    const struct tern_block_set *set = p->set;
    const struct tern_tokens key = {.v = set->words[at], .n = BLOCK_TOKENS};
    const tern_session s = set->puts.v[i];

    TRY(tern_batch_extend(batch, s, &key, BLOCK_TOKENS, 0));
    TRY(tern_batch_commit(batch, s, BLOCK_TOKENS, set->t->last_step));
    TRY(tern_batch_abort(batch, s, TERN_STEP_NONE));
    return again ? tern_batch_extend(batch, s, NULL, 0, BLOCK_TOKENS) : TERN_OK;
}

/* Indices of their results among a session's results, after that of the first extend. */
enum { OP_COMMIT = 1, OP_ABORT, OP_AGAIN };

/* Commits the pages of the part's sessions. Sessions before `next` get another page. */
static enum tern_err send_commit(struct put *p, struct part *part, const uint32_t *at,
                                 uint32_t next)
{
    struct tern_block_set *set = p->set;

    tern_batch_clear(part->batch);
    for (uint32_t i = part->from; i < part->end; i++)
        if (set->held[i].index != 0)
            TRY(ask_commit(p, part->batch, i, at[i], i < next));
    if (tern_batch_count(part->batch) == 0)
        return TERN_OK;
    set->counts.requests++;
    /* Other batches are under way, so this call repeats no operation that continues. */
    return batch_send(part->batch, blocks_left_ms(p->list.deadline_ns), 1, &part->call);
}

/* Takes the answer. Appends places that are not stored to the *io_left places in at[]. */
static enum tern_err take_commit(struct put *p, struct part *part, uint32_t *at, uint32_t next,
                                 uint32_t *io_left)
{
    struct tern_block_set *set = p->set;
    const struct tern_result *results = NULL;
    uint32_t done = 0, op = 0;

    if (tern_batch_count(part->batch) > 0)
        TRY(batch_take(part->batch, &part->call, &results, &done));
    for (uint32_t i = part->from; i < part->end; i++) {
        bool had = set->held[i].index != 0, whole = had && op + OP_ABORT < done;

        if (whole && results[op + OP_COMMIT].err == TERN_OK) {
            is_stored(p, at[i]);
        } else {
            if (whole)
                refused_by(p, results, results[op].err != TERN_OK ? op : op + OP_COMMIT);
            at[(*io_left)++] = at[i];
        }
        if (!had)
            continue;
        if (!whole || results[op + OP_ABORT].err != TERN_OK)
            set->broken |= 1ull << i;
        set->held[i] = i < next ? page_got(results, op + OP_AGAIN, done) : no_page;
        op += i < next ? OP_AGAIN + 1 : OP_AGAIN;
    }
    return TERN_OK;
}

/* Returns the number of blocks in the first part of a piece of n. The last part is small, because
 * the put waits for its commit; each further part costs the time of a request. */
static uint32_t first_part(const struct tern_block_set *set, uint32_t n)
{
    uint32_t last = (uint32_t)(BLOCKS_PART_BYTES / set->value_bytes);

    last = last < n / 2 ? last : n / 2;
    last = last > n / 4 ? last : n / 4;
    return n * set->value_bytes > BLOCKS_PART_BYTES ? n - last : n;
}

/* Puts one piece: *io_n places at at[]; places that got no page remain there. `next`: number of
 * blocks in the next piece. */
static enum tern_err put_piece(struct put *p, uint32_t *at, uint32_t *io_n, uint32_t next)
{
    struct tern_block_set *set = p->set;
    const uint32_t n = *io_n;
    struct part parts[BLOCKS_PARTS];
    uint32_t nparts = 0, left = 0;
    enum tern_err err = TERN_OK;

    next = next > set->ahead ? next : set->ahead;
    TRY(take_pages(p, n, at));
    for (uint32_t from = 0, take; from < n && err == TERN_OK; from += take) {
        struct part *part = &parts[nparts];

        take = nparts == 0 ? first_part(set, n) : n - from;
        *part = (struct part){.from = from, .end = from + take, .batch = set->commit[nparts]};
        err = copy_part(p, part, at);
        if (err == TERN_OK)
            err = send_commit(p, part, at, next);
        nparts += err == TERN_OK;
    }
    for (uint32_t i = 0; i < nparts && err == TERN_OK; i++)
        err = take_commit(p, &parts[i], at, next, &left);
    memset(p->filled, 0, sizeof p->filled);
    *io_n = left;
    return err;
}

/* Puts one piece, and on any failure marks each session that may have something left, so that it is
 * not reused. */
static enum tern_err put_safely(struct put *p, uint32_t *at, uint32_t *io_n, uint32_t next)
{
    struct tern_block_set *set = p->set;
    const uint32_t n = *io_n;
    enum tern_err err;

    if (copier_is_loose(set->copier))
        return blocks_gpu_failed(set);
    TRY(sessions_ready(set, &set->puts, n, p->list.deadline_ns));
    set->broken = 0;
    err = put_piece(p, at, io_n, next);
    if (copier_is_loose(set->copier))
        leave_open(set, n);
    else
        give_up(set, err == TERN_OK ? set->broken : sessions_below(n));
    return err;
}

/* Returns the most blocks of a piece. */
static uint32_t piece_most(const struct tern_block_set *set)
{
    uint64_t most = BLOCKS_PUT_BYTES / set->value_bytes;

    return most < 1 ? 1 : most < BLOCKS_SESSIONS ? (uint32_t)most : BLOCKS_SESSIONS;
}

/* Returns true for errors that may pass, because jobs of the daemon keep pages and records only for
 * moments. */
static bool comes_back(enum tern_err err)
{
    return err == TERN_BUSY || err == TERN_POOL_EXHAUSTED;
}

/* Puts the blocks at these places, piece by piece. Blocks that get no page are retried until the
 * deadline. */
static enum tern_err put_missing(struct put *p, uint32_t *at, uint32_t n)
{
    const uint32_t most = piece_most(p->set);

    while (n > 0) {
        uint32_t take = n < most ? n : most, left = take, done;

        p->refused = TERN_OK;
        TRY(put_safely(p, at, &left, n - take < most ? n - take : most));
        done = take - left;
        memmove(at + done, at, left * sizeof *at);
        at += done;
        n -= done;
        if (left == 0)
            continue;
        if (!comes_back(p->refused) || (done == 0 && !blocks_nap(p->set, p->list.deadline_ns)))
            return p->refused;
    }
    return TERN_OK;
}

/* Frees the pages that were allocated for pieces that were not put. The error text stays that of
 * the put. */
static void give_back(struct tern_block_set *set, enum tern_err err)
{
    char text[QUICK_TEXT_MAX];

    snprintf(text, sizeof text, "%s", set->t->text);
    for (uint32_t i = set->ahead; i < BLOCKS_SESSIONS; i++)
        if (set->held[i].index != 0)
            give_up(set, 1ull << i);
    (void)sessions_ready(set, &set->puts, 0, deadline_at(BLOCKS_END_MS));
    set_error(set->t, err, text);
}

/* Copies the first blocks to pages that the set has while the daemon looks up the keys. If all
 * blocks of the last put were new, these are likely to be new, too; the copies of blocks that are
 * not new are not committed. An error recurs at the next copy. */
static void fill_ahead(void *arg)
{
    struct put *p = arg;
    const struct tern_block_set *set = p->set;
    uint32_t at[BLOCKS_AHEAD], most = (uint32_t)(BLOCKS_GUESS_BYTES / set->value_bytes), n = 0;

    if (!set->fresh || set->far.driver)
        return;
    most = most < (set->ahead + 1) / 2 ? most : (set->ahead + 1) / 2;
    for (; n < p->list.n && n < most; n++)
        at[n] = p->list.n - 1 - n;
    (void)fill_pages(p, 0, n, at);
}

static enum tern_err put_list(struct put *p)
{
    struct tern_block_set *set = p->set;
    const uint32_t n = p->list.n;
    uint32_t missing = 0;
    enum tern_err err;

    TRY(blocks_begin(set, &p->list));
    if (p->stored && n > 0)
        memset(p->stored, 0, n);
    TRY(blocks_ask_while(set, BLOCKS_TOUCH, NULL, n, p->list.deadline_ns, fill_ahead, p));
    /* Begin at the end of the list: among blocks put together, those put first are evicted first.
     */
    for (uint32_t i = n; i-- > 0;) {
        if (block_is_there(set->page[i]))
            is_stored(p, i);
        else
            set->todo[missing++] = i;
    }
    set->counts.puts += n;
    set->counts.there += n - missing;
    set->fresh = n > 0 && missing == n;
    err = put_missing(p, set->todo, missing);
    if (err != TERN_OK)
        give_back(set, err);
    return err;
}

enum tern_err tern_blocks_put(struct tern_block_set *set, const struct tern_block_key *keys,
                              const struct tern_block_value *values, uint32_t n,
                              uint32_t deadline_ms, uint8_t *ret_stored)
{
    ENTER(set->t);
    struct put p = {
        .set = set, .list = {keys, values, n, deadline_at(deadline_ms)}, .stored = ret_stored};
    enum tern_err err;

    if (n > 0 && !values)
        return set_error(set->t, TERN_INVALID, "a put needs values");
    blocks_poll(set, n);
    err = put_list(&p);
    blocks_poll(set, 0);
    return err;
}
