/* See shard.h. */
#include "shard.h"

#include "oracle/carry.h"

static void layout_of(const struct shard_shape *s, struct reshard_layout *ret)
{
    const uint32_t tokens = s->page_tokens ? s->page_tokens : 1;
    struct reshard_field *f = &ret->field[0];

    *ret = (struct reshard_layout){.name = "pages",
                                   .ranks = s->ranks,
                                   .stages = 1,
                                   .page_tokens = s->page_tokens,
                                   .align_tokens = s->align_tokens,
                                   .units = 1,
                                   .page_bytes = tokens * s->token_bytes,
                                   .nfields = 1};
    *f = (struct reshard_field){.name = "kv",
                                .over = s->whole ? OVER_REPLICATED : OVER_DIVIDED,
                                .element_bytes = s->token_bytes / s->heads};
    f->axis[f->naxes++] = (struct reshard_axis){AXIS_HEAD, s->heads, f->element_bytes};
    if (s->page_tokens)
        f->axis[f->naxes++] = (struct reshard_axis){AXIS_TOKEN, tokens, s->token_bytes};
}

enum reshard_refusal shard_plan(const struct shard_shape *from, const struct shard_shape *to,
                                uint32_t number, struct reshard_part part, struct reshard_plan *ret)
{
    struct reshard_layout source, dest;
    enum reshard_refusal refusal;
    uint32_t n = 0;

    layout_of(from, &source);
    layout_of(to, &dest);
    refusal = reshard_plan(&(struct reshard_pair){&source, &dest}, number, ret);
    if (refusal != RESHARD_NONE)
        return refusal;
    for (uint32_t i = 0; i < ret->n; i++)
        if (ret->v[i].kind == PIECE_SPREAD || piece_moves(&ret->v[i], part))
            ret->v[n++] = ret->v[i];
    ret->n = n;
    return RESHARD_NONE;
}
