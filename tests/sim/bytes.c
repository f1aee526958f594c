/* The bytes of pages. A page has a word for each of its tokens, on each rank, made of the prefix
 * that ends with the token, so that torn, stale and foreign bytes are visible. When pools of other
 * layout exchange pages (N3), all ranks together have the word of the prefix: cfg.heads heads, of
 * which each rank has its own, or all ranks have all. */
#include "bytes.h"

static uint32_t tag_mix(uint32_t rank, uint32_t group)
{
    return rank * 0x9e3779b1u ^ (group + 1) * 0x85ebca6bu;
}

struct tag *tag_at(struct sim *w, uint32_t d, uint32_t pool, uint32_t rank, uint32_t granule)
{
    const struct pool *p = &w->d[d].pool[pool];

    return &w->d[d].tag[p->tenant][p->region[rank]][granule % w->cfg.granules];
}

struct tag *htag_at(struct sim *w, uint32_t d, uint32_t pool, uint32_t rank, uint32_t hgranule)
{
    const struct pool *p = &w->d[d].pool[pool];

    return &w->d[d].htag[p->tenant][p->region[rank]][hgranule % w->cfg.host];
}

/* Neighbouring ranks have the same head where there are fewer heads than ranks. */
struct tag_form tag_form(const struct sim *w, struct holder of)
{
    uint32_t bits, n;

    if (w->cfg.heads == 0)
        return (struct tag_form){.mix = tag_mix(of.rank, of.group), .mask = UINT32_MAX};
    if (pool_whole(w, of.daemon) || of.ranks == 1)
        return (struct tag_form){.mix = tag_mix(0, of.group), .mask = UINT32_MAX};
    bits = 32 / w->cfg.heads;
    n = w->cfg.heads > of.ranks ? w->cfg.heads / of.ranks : 1;
    return (struct tag_form){.mix = tag_mix(0, of.group),
                             .shift = of.rank * w->cfg.heads / of.ranks * bits,
                             .mask = UINT32_MAX >> (32 - n * bits)};
}

bool tag_prefix(struct sim *w, uint32_t d, const struct token_at *at, uint32_t *ret)
{
    uint32_t ranks = w->d[d].pool[at->pool].ranks, known = 0, word = 0, mix = 0;

    for (uint32_t r = 0; r < ranks; r++) {
        struct tag_form form = tag_form(w, (struct holder){d, at->group, ranks, r});
        uint32_t v = (tag_at(w, d, at->pool, r, at->granule)->v[at->slot] & form.mask)
                     << form.shift,
                 bits = form.mask << form.shift;

        mix = form.mix;
        if (known & bits && (word & bits) != v)
            return false;
        known |= bits;
        word |= v;
        if (w->cfg.heads == 0)
            break; /* each rank has all, mixed with its own number */
    }
    *ret = word ^ mix;
    return true;
}

void check_page_words(struct sim *w, uint32_t d, const struct words *of, const char *what)
{
    const uint32_t *want = w->prefix[of->tenant][of->ns][of->variant] + of->pos + 1;
    uint32_t pool = of->host ? w->d[d].host[of->tenant][of->granule].pool
                             : w->d[d].granule[of->tenant][of->granule].pool,
             ranks = w->d[d].pool[pool].ranks;

    for (uint32_t r = 0; r < ranks; r++) {
        struct tag_form form = tag_form(w, (struct holder){d, of->group, ranks, r});

        for (uint32_t k = 0; k < w->page_granules[of->group]; k++) {
            const struct tag *tag = of->host ? htag_at(w, d, pool, r, of->granule + k)
                                             : tag_at(w, d, pool, r, of->granule + k);

            for (uint32_t i = of->from; i < of->to; i++)
                EXPECT(tag_is(&form, tag->v[i], want[i]), what,
                       "daemon %u rank %u granule %u token %u: not the bytes of that prefix", d, r,
                       of->granule + k, of->pos + i);
        }
    }
}

void check_page(struct sim *w, uint32_t d, uint32_t tenant, uint32_t granule, uint32_t group,
                uint32_t ns, uint32_t variant, uint32_t pos, uint32_t n, const char *what)
{
    check_page_words(w, d, &(struct words){tenant, granule, group, ns, variant, pos, 0, n, false},
                     what);
}
