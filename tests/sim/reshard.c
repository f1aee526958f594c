/* Spans between pools of other layout or page_tokens (N3): the plan of daemon/reshard, carried out
 * over the pages of both daemons by its reference. The model knows the required result without the
 * plan: every rank of the destination has its part of each word that the source has, and data that
 * all ranks of an end have alike has moved once. */
#include "reshard.h"

#include "bytes.h"
#include "oracle/carry.h"
#include "shard.h"

#define PIECES     256
#define WORD_BYTES sizeof(uint32_t)

static const struct pool *pool_of(const struct sim *w, struct pool_at at)
{
    return &w->d[at.daemon].pool[at.pool];
}

static struct granule *granule_of(struct sim *w, struct pool_at at, uint32_t granule)
{
    return &w->d[at.daemon].granule[pool_of(w, at)->tenant][granule];
}

/* With fewer heads than ranks, the ranks with the same head take turns (X5). */
static bool has_copies(const struct sim *w, struct pool_at at)
{
    return !pool_whole(w, at.daemon) && w->cfg.heads < pool_of(w, at)->ranks;
}

bool pools_reshard(const struct sim *w, struct pool_at from, struct pool_at to)
{
    bool other = pool_of(w, from)->ranks != pool_of(w, to)->ranks ||
                 pool_whole(w, from.daemon) != pool_whole(w, to.daemon);

    for (uint32_t g = 0; g < w->ngroups; g++)
        other |= w->page_tokens[from.daemon][g] != w->page_tokens[to.daemon][g];
    return w->cfg.heads > 0 && (other || has_copies(w, from));
}

uint32_t pool_moves(const struct sim *w, struct pool_at of)
{
    return pool_whole(w, of.daemon) ? 1 : pool_of(w, of)->ranks;
}

uint32_t span_pages_at(const struct sim *w, uint32_t daemon, uint32_t group)
{
    uint32_t here = w->page_tokens[daemon][group],
             there = w->page_tokens[sim_far(w, daemon)][group];

    return there > here ? there / here : 1;
}

/* A RECURRENT state has one word, and no tokens. */
static struct shard_shape shape_of(const struct sim *w, struct pool_at at, uint32_t group)
{
    bool state = group >= w->cfg.ngroups && recurrent(w, group);

    return (struct shard_shape){.ranks = pool_of(w, at)->ranks,
                                .heads = w->cfg.heads,
                                .token_bytes = WORD_BYTES,
                                .page_tokens = state ? 0 : w->page_tokens[at.daemon][group],
                                .align_tokens = w->L,
                                .whole = pool_whole(w, at.daemon)};
}

static void plan_make(struct sim *w, const struct span_move *m, struct reshard_plan *ret)
{
    const struct shard_shape from = shape_of(w, m->from, m->group),
                             to = shape_of(w, m->to, m->group);
    enum reshard_refusal refusal =
        shard_plan(&from, &to, m->number, (struct reshard_part){.first = m->first, .n = m->n}, ret);

    EXPECT(refusal == RESHARD_NONE, "plan_refused", "%s", reshard_text(refusal));
}

/* Pages of the span that do not exist are NULL: nothing reads them. */
static void pages_of(struct sim *w, struct pool_at at, const uint32_t *granule, uint32_t first,
                     uint32_t n, uint8_t *ret[SLOTS * RANKS])
{
    uint32_t ranks = pool_of(w, at)->ranks;

    memset(ret, 0, SLOTS * RANKS * sizeof *ret);
    for (uint32_t i = first; i < first + n; i++)
        for (uint32_t r = 0; r < ranks; r++)
            ret[i * ranks + r] = (uint8_t *)tag_at(w, at.daemon, at.pool, r, granule[i])->v;
}

/* X5: every byte of the span at the source moved once, whichever rank has it. */
static void check_moved(struct sim *w, const struct span_move *m, const struct reshard_plan *plan)
{
    bool state = m->group >= w->cfg.ngroups && recurrent(w, m->group);
    uint64_t tokens = state ? 1 : m->n * w->page_tokens[m->from.daemon][m->group],
             moved = reshard_plan_bytes(plan, PIECE_MOVE);

    EXPECT(moved == tokens * WORD_BYTES, "moved_twice", "%u bytes of group %u for %u tokens",
           (unsigned)moved, m->group, (unsigned)tokens);
    if (reshard_plan_bytes(plan, PIECE_SPREAD) > 0)
        MARK(reshard_spread);
}

/* If all ranks of the source that should have equal data do, so must those of the destination. Data
 * that was never written may differ. */
static void check_came(struct sim *w, const struct span_move *m)
{
    uint32_t pt = w->page_tokens[m->from.daemon][m->group],
             to = w->page_tokens[m->to.daemon][m->group], ranks = pool_of(w, m->to)->ranks;
    bool state = m->group >= w->cfg.ngroups && recurrent(w, m->group);

    for (uint32_t t = m->first * pt; t < (state ? 1 : (m->first + m->n) * pt); t++) {
        struct token_at there = {m->from.pool, m->group, m->there[t / pt], t % pt};
        uint32_t prefix;

        if (!tag_prefix(w, m->from.daemon, &there, &prefix))
            continue;
        for (uint32_t r = 0; r < ranks; r++) {
            struct tag_form form = tag_form(w, (struct holder){m->to.daemon, m->group, ranks, r});

            EXPECT(tag_is(&form, tag_at(w, m->to.daemon, m->to.pool, r, m->here[t / to])->v[t % to],
                          prefix),
                   "resharded_wrong", "group %u token %u of a span, rank %u of %u", m->group, t, r,
                   ranks);
        }
    }
}

/* The beginning may be missing: whole pages of small ones, or the first words of a large one. */
static void note_lacks(struct sim *w, const struct span_move *m)
{
    uint32_t pt = w->page_tokens[m->from.daemon][m->group],
             to = w->page_tokens[m->to.daemon][m->group],
             come = m->first * pt + granule_of(w, m->from, m->there[m->first])->lacks;

    for (uint32_t i = 0; i < span_pages_at(w, m->to.daemon, m->group); i++) {
        uint32_t lacks = come > i * to ? come - i * to : 0;

        for (uint32_t k = 0; k < w->page_granules[m->group]; k++)
            granule_of(w, m->to, m->here[i])[k].lacks = (uint8_t)(lacks < to ? lacks : to);
    }
    if (come > 0)
        MARK(span_lacks_beginning);
}

static void marks(struct sim *w, const struct span_move *m)
{
    uint32_t here = span_pages_at(w, m->to.daemon, m->group),
             there = span_pages_at(w, m->from.daemon, m->group), mine = pool_of(w, m->to)->ranks,
             theirs = pool_of(w, m->from)->ranks;

    if (mine > theirs)
        MARK(reshard_to_more_ranks);
    if (mine < theirs)
        MARK(reshard_to_fewer_ranks);
    if (pool_whole(w, m->to.daemon) != pool_whole(w, m->from.daemon))
        MARK(reshard_whole);
    if (here > 1)
        MARK(span_of_smaller_pages);
    if (there > 1)
        MARK(span_of_larger_page);
    if (m->n < there)
        MARK(span_in_part);
}

void span_carry(struct sim *w, const struct span_move *m)
{
    struct reshard_piece piece[PIECES];
    struct reshard_plan plan = {.v = piece, .room = PIECES};
    uint8_t *from[SLOTS * RANKS], *to[SLOTS * RANKS];
    uint32_t pages = span_pages_at(w, m->to.daemon, m->group);

    plan_make(w, m, &plan);
    check_moved(w, m, &plan);
    pages_of(w, m->from, m->there, m->first, m->n, from);
    pages_of(w, m->to, m->here, 0, pages, to);
    reshard_carry(&plan, &(struct reshard_memory){{from, pool_of(w, m->from)->ranks},
                                                  {to, pool_of(w, m->to)->ranks}});
    check_came(w, m);
    note_lacks(w, m);
    marks(w, m);
    for (uint32_t i = 0; i < pages; i++)
        for (uint32_t r = 0; r < pool_of(w, m->to)->ranks; r++)
            for (uint32_t k = 1; k < w->page_granules[m->group]; k++)
                *tag_at(w, m->to.daemon, m->to.pool, r, m->here[i] + k) =
                    *tag_at(w, m->to.daemon, m->to.pool, r, m->here[i]);
}
