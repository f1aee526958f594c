/* tern_blocks_put. A piece of the list takes pages in one request, is copied, and is committed in
 * another one. Until then its pages are those of sessions that nobody sees, and if this process
 * dies they are free again. */
#include "blocks.h"

#include <string.h>

#include "base/err.h"

/* A put under way. */
struct put {
    struct tern_block_set *set;
    struct block_list list;
    uint8_t *stored;       /* NULL: nobody asks */
    enum tern_err refused; /* why the last block that found no page found none */
};

static void is_stored(struct put *p, uint32_t at)
{
    if (p->stored)
        p->stored[at] = 1;
}

/* Pages for the blocks at these places, one session each: ret_pages[i] is 0 where there is none. */
static enum tern_err take_pages(struct put *p, const uint32_t *at, uint32_t n, uint32_t *ret_pages)
{
    struct tern_block_set *set = p->set;
    const struct tern_result *results;
    uint32_t done;

    tern_batch_clear(set->batch);
    for (uint32_t i = 0; i < n; i++) {
        const struct tern_tokens key = {.v = set->words[at[i]], .n = BLOCK_TOKENS};

        TRY(tern_batch_extend(set->batch, set->session[i], &key, BLOCK_TOKENS, BLOCK_TOKENS));
    }
    set->counts.requests++;
    TRY(tern_batch_run(set->batch, blocks_left_ms(p->list.deadline_ns), &results, &done));
    for (uint32_t i = 0; i < n; i++) {
        bool has = i < done && results[i].err == TERN_OK && results[i].nruns == 1 &&
                   results[i].runs[0].n == 1;

        ret_pages[i] = has ? results[i].runs[0].pages[0].index : 0;
        if (i < done && results[i].err != TERN_OK)
            p->refused = set_error(set->t, results[i].err, tern_result_text(set->t, i));
    }
    return TERN_OK;
}

/* Those of the n sessions that have a page commit it, and all give up what they have. Places that
 * are not stored then are left in at[]: *ret_left. */
static enum tern_err commit_pages(struct put *p, uint32_t *at, uint32_t n, const uint32_t *pages,
                                  uint32_t *ret_left)
{
    struct tern_block_set *set = p->set;
    const struct tern_result *results;
    uint32_t done, op = 0, left = 0;

    tern_batch_clear(set->batch);
    for (uint32_t i = 0; i < n; i++) {
        if (pages[i] != 0)
            TRY(tern_batch_commit(set->batch, set->session[i], BLOCK_TOKENS, TERN_STEP_NONE));
        TRY(tern_batch_abort(set->batch, set->session[i], TERN_STEP_NONE));
    }
    set->counts.requests++;
    TRY(tern_batch_run(set->batch, blocks_left_ms(p->list.deadline_ns), &results, &done));
    for (uint32_t i = 0; i < n; i++) {
        bool committed = pages[i] != 0 && op < done && results[op].err == TERN_OK;

        if (pages[i] != 0 && op < done && results[op].err != TERN_OK)
            p->refused = set_error(set->t, results[op].err, tern_result_text(set->t, op));
        op += pages[i] != 0;
        if (op < done && results[op].err == TERN_OK)
            set->dirty &= ~(1ull << i);
        op++;
        if (committed)
            is_stored(p, at[i]);
        else
            at[left++] = at[i];
    }
    *ret_left = left;
    return TERN_OK;
}

/* One piece: *io_n places at at[], of which those that found no page are left. */
static enum tern_err put_piece(struct put *p, uint32_t *at, uint32_t *io_n)
{
    struct tern_block_set *set = p->set;
    uint32_t pages[BLOCKS_SESSIONS], n = *io_n, copies = 0;

    TRY(sessions_ready(set, n, p->list.deadline_ns));
    set->dirty |= n < 64 ? (1ull << n) - 1 : UINT64_MAX; /* until it is known that they are idle */
    TRY(take_pages(p, at, n, pages));
    for (uint32_t i = 0; i < n; i++)
        if (pages[i] != 0)
            TRY(block_copy_of(set, &p->list, at[i], pages[i], &set->copies[copies++]));
    copier_run(set->copier, set->copies, copies, COPY_TO_PAGES);
    return commit_pages(p, at, n, pages, io_n);
}

/* As many blocks as a piece may have. */
static uint32_t piece_most(const struct tern_block_set *set)
{
    uint64_t most = BLOCKS_PUT_BYTES / set->value_bytes;

    return most < 1 ? 1 : most < BLOCKS_SESSIONS ? (uint32_t)most : BLOCKS_SESSIONS;
}

/* What can be had in a moment: pages that jobs of the daemon hold, and records. */
static bool comes_back(enum tern_err err)
{
    return err == TERN_BUSY || err == TERN_POOL_EXHAUSTED;
}

/* The blocks at these places, piece by piece. What finds no page is tried again for as long as the
 * deadline allows. */
static enum tern_err put_missing(struct put *p, uint32_t *at, uint32_t n)
{
    while (n > 0) {
        uint32_t take = n < piece_most(p->set) ? n : piece_most(p->set), left = take;

        p->refused = TERN_OK;
        TRY(put_piece(p, at + n - take, &left));
        n -= take - left; /* what is left stands behind what was not tried yet */
        if (left == 0)
            continue;
        if (!comes_back(p->refused) || (left == take && !blocks_nap(p->list.deadline_ns)))
            return p->refused;
    }
    return TERN_OK;
}

enum tern_err tern_blocks_put(struct tern_block_set *set, const struct tern_block_key *keys,
                              const struct tern_block_value *values, uint32_t n,
                              uint32_t deadline_ms, uint8_t *ret_stored)
{
    ENTER(set->t);
    struct put p = {
        .set = set, .list = {keys, values, n, deadline_at(deadline_ms)}, .stored = ret_stored};
    uint32_t missing = 0;

    if (n > 0 && !values)
        return set_error(set->t, TERN_INVALID, "a put has values");
    TRY(blocks_begin(set, &p.list));
    if (ret_stored && n > 0)
        memset(ret_stored, 0, n);
    TRY(blocks_ask(set, BLOCKS_TOUCH, NULL, n, p.list.deadline_ns));
    for (uint32_t i = 0; i < n; i++) {
        if (block_is_there(set->page[i]))
            is_stored(&p, i);
        else
            set->todo[missing++] = i;
    }
    set->counts.puts += n;
    set->counts.there += n - missing;
    /* From the end of the list on: of blocks that were used at one time the older is evicted first.
     */
    return put_missing(&p, set->todo, missing);
}
