/* The bytes in the pages of a fleet: each token has bytes at its place in a page, head by head,
 * whatever the page_tokens and the ranks that divide the heads. The bytes follow from the namespace
 * and all tokens up to that one, so a token in a wrong place is detected. Resharding is the plan of
 * daemon/reshard, carried out by its reference. */
#include "../shard.h"
#include "base/hash.h"
#include "oracle/carry.h"
#include "world.h"

#define PIECES   256u
#define MARK     0xa5 /* of a leased page without data */
#define HEAD     (FLEET_TOKEN / FLEET_HEADS)
#define MOVE_MAX (RIG_SPAN_PAGES * FLEET_RANKS)

static uint64_t head_word(uint64_t chain, uint32_t head)
{
    return hash_mix(chain, head + 1);
}

/* Writes the token in each rank's page, or compares it. Returns true if it is right. */
static bool token_does(struct rig_session *s, const struct pool_view *v, uint32_t t, uint64_t chain,
                       bool write)
{
    const uint32_t pt = v->group[0].layout.page_tokens, heads = FLEET_HEADS / v->regions;
    const struct page_at at = {.index = s->table[0][t / pt].index};
    bool right = at.index != 0;

    for (uint32_t r = 0; r < v->regions && right; r++) {
        uint64_t bytes;
        uint8_t *token = rig_page_at(s->rig, s->pool.slot, r, at, &bytes) + t % pt * FLEET_TOKEN;

        for (uint32_t h = 0; h < heads; h++) {
            uint64_t word[HEAD / 8];

            for (uint32_t i = 0; i < HEAD / 8; i++)
                word[i] = head_word(chain, r * heads + h) + i;
            if (write)
                memcpy(token + h * HEAD, word, HEAD);
            else
                right = right && memcmp(token + h * HEAD, word, HEAD) == 0;
        }
    }
    return right;
}

static uint32_t tokens_do(struct rig_session *s, uint32_t from, uint32_t to, bool write)
{
    struct pool_view v = rig_pool_view(s->rig, s->pool);
    uint64_t chain = hash_mix(s->ns.lo, s->ns.hi);
    uint32_t wrong = 0;

    for (uint32_t t = 0; t < to; t++) {
        chain = hash_mix(chain, s->tokens[t] + 1);
        if (t >= from)
            wrong += !token_does(s, &v, t, chain, write);
    }
    return wrong;
}

void fbytes_write(struct rig_session *s, uint32_t from, uint32_t to)
{
    uint32_t wrong = tokens_do(s, from, to, true);

    FEXPECT(wrong == 0, "no_page", "%u tokens of [%u, %u) have none", wrong, from, to);
}

uint32_t fbytes_wrong(struct rig_session *s, uint32_t to)
{
    return tokens_do(s, 0, to, false);
}

/* --- resharding --- */

static struct shard_shape shape_of(const struct pool_view *v)
{
    return (struct shard_shape){.ranks = v->regions,
                                .heads = FLEET_HEADS,
                                .token_bytes = FLEET_TOKEN,
                                .page_tokens = v->group[0].layout.page_tokens,
                                .align_tokens = v->align_tokens};
}

static void pages_of(struct rig *rig, uint32_t pool, uint32_t ranks, const uint32_t *index,
                     uint32_t first, uint32_t n, uint8_t *ret[MOVE_MAX])
{
    memset(ret, 0, MOVE_MAX * sizeof *ret);
    for (uint32_t i = 0; i < n * ranks; i++) {
        uint64_t bytes;

        ret[first * ranks + i] =
            rig_page_at(rig, pool, i % ranks, (struct page_at){.index = index[i / ranks]}, &bytes);
    }
}

void fbytes_reshard(const struct rig_move *m)
{
    static struct reshard_piece piece[PIECES];
    struct reshard_plan plan = {.v = piece, .room = PIECES};
    uint8_t *from[MOVE_MAX], *to[MOVE_MAX];
    struct pool_view source, dest;
    struct shard_shape there, here;
    enum reshard_refusal refusal;

    if (!core_pool_view(m->from->core, m->from_pool, &source) ||
        !core_pool_view(m->to->core, m->to_pool, &dest))
        fviolation("reshard", "pages of a pool that is not there");
    there = shape_of(&source);
    here = shape_of(&dest);
    refusal =
        shard_plan(&there, &here, 0, (struct reshard_part){.first = m->first, .n = m->n}, &plan);
    FEXPECT(refusal == RESHARD_NONE, "plan_refused", "%s", reshard_text(refusal));
    pages_of(m->from, m->from_pool, there.ranks, m->there, m->first, m->n, from);
    pages_of(m->to, m->to_pool, here.ranks, m->here, 0, m->pages, to);
    reshard_carry(&plan, &(struct reshard_memory){{from, there.ranks}, {to, here.ranks}});
    if (there.page_tokens < here.page_tokens)
        FMARK(spans_of_smaller);
    if (there.page_tokens > here.page_tokens)
        FMARK(spans_of_larger);
    if (there.ranks != here.ranks)
        FMARK(other_ranks);
}

/* --- leased pages --- */

static uint8_t *leased_page(const struct fdaemon *d, struct page_ref page, uint64_t *ret_bytes)
{
    return rig_page(d->rig, d->pool.slot, 0, page.index, ret_bytes);
}

void fbytes_mark(struct fdaemon *d, struct page_ref page)
{
    uint64_t bytes;
    uint8_t *v = leased_page(d, page, &bytes);

    memset(v, MARK, bytes);
}

bool fbytes_marked(const struct fdaemon *d, struct page_ref page)
{
    uint64_t bytes;
    const uint8_t *v = leased_page(d, page, &bytes);

    for (uint64_t i = 0; i < bytes; i++)
        if (v[i] != MARK)
            return false;
    return true;
}
