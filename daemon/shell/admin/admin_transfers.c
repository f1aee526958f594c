/* Rows of transfers: the core's data (stage, wait, pages, bytes) and the data path's work. */
#include <string.h>

#include "base/rate.h"
#include "proto/messages.h"
#include "shell/admin/admin_rows.h"

#define SECOND_NS 1000000000.0

/* A word, and the transfers that have it. */
struct word {
    const char *word;
    bool in, out;
};

#define X(name, word, in, out) {word, in, out},
static const struct word stages[] = {TRANSFER_STAGE_TABLE(X)};
static const struct word waits[] = {TRANSFER_WAIT_TABLE(X)};
#undef X

static bool is_of(const struct word *w, const struct transfer_view *t)
{
    return t->outgoing ? w->out : w->in;
}

static const char *peer_name(const struct admin_ctx *ctx, const struct transfer_view *t)
{
    if (t->peer == NONE)
        return WIRE_DISK;
    return t->peer < ctx->config->npeers ? ctx->config->peers[t->peer].name : NULL;
}

/* Seconds in each stage. */
static void put_stages(const struct admin_ctx *ctx, const struct transfer_view *t,
                       struct text_out *out)
{
    TEXT(out, OPEN_OBJECT("stage_s"));
    for (uint32_t i = 0; i < TRANSFER_STAGES; i++) {
        uint64_t ns = transfer_stage_ns(&t->times, (enum transfer_stage)i, ctx->now_ns);

        if (is_of(&stages[i], t))
            TEXT(out, F64(stages[i].word, (double)ns / SECOND_NS));
    }
    TEXT(out, CLOSE_OBJECT);
}

/* Seconds of each wait, and of all. */
static void put_waits(const struct admin_ctx *ctx, const struct transfer_view *t,
                      struct text_out *out)
{
    uint64_t all = 0;

    TEXT(out, STR("waits_for", t->times.wait == WAIT_NOTHING ? NULL : waits[t->times.wait].word),
         OPEN_OBJECT("wait_s"));
    for (uint32_t i = WAIT_NOTHING + 1; i < TRANSFER_WAITS; i++) {
        uint64_t ns = transfer_wait_ns(&t->times, (enum transfer_wait)i, ctx->now_ns);

        if (!is_of(&waits[i], t))
            continue;
        TEXT(out, F64(waits[i].word, (double)ns / SECOND_NS));
        all += ns;
    }
    TEXT(out, CLOSE_OBJECT, F64("waited_s", (double)all / SECOND_NS));
}

static void put_amounts(const struct admin_ctx *ctx, const struct transfer_view *t,
                        const struct xfer_flow_view *flow, struct text_out *out)
{
    double age_s = admin_age_s(ctx, t->started_ns);
    uint64_t moved = t->outgoing ? flow->bytes : t->bytes_verified;

    TEXT(out, NUM(*t, pages), NUM(*t, bytes));
    if (t->outgoing) {
        TEXT(out, U64("pages_sent", flow->pages), U64("bytes_sent", flow->bytes));
    } else {
        TEXT(out, NUM(*t, pages_asked), NUM(*t, bytes_asked));
        /* Pages from the disk arrive verified. */
        TEXT(out, U64("pages_arrived", t->peer == NONE ? t->pages_verified : flow->pages),
             U64("bytes_arrived", t->peer == NONE ? t->bytes_verified : flow->bytes),
             NUM(*t, pages_verified), NUM(*t, bytes_verified), NUM(*t, pages_published),
             NUM(*t, bytes_published));
    }
    TEXT(out, U64("bytes_per_s", rate_of(t->outgoing ? flow->rate : t->rate, ctx->now_ns)),
         U64("mean_bytes_per_s", age_s > 0 ? (uint64_t)((double)moved / age_s) : 0));
}

static void put_named(const struct admin_ctx *ctx, const struct transfer_view *t,
                      struct text_out *out)
{
    TEXT(out, HEX("transfer", t->outgoing ? serve_id_pack(t->serve) : pull_id_pack(t->pull)),
         STR("direction", t->outgoing ? "out" : "in"),
         STR("tier", t->peer == NONE ? "disk" : "peer"), STR("peer", peer_name(ctx, t)),
         NUM(*t, link), STR("tenant", admin_tenant_name(ctx, t->tenant)), FLAG(*t, ticket),
         STR("class", t->prefetch ? "prefetch" : "decode"), HEX("trace_id", t->trace_id));
}

/* Inbound transfers have the slots [0, pulls), outbound ones those after them. */
bool admin_transfer_row(const struct admin_ctx *ctx, uint32_t slot, const struct admin_filter *only,
                        struct text_out *out)
{
    uint32_t pulls = core_limits_of(ctx->core)->pulls;
    struct xfer_flow_view flow = {0};
    struct node_view node = {0};
    struct transfer_view t;
    bool holds;

    if (!(slot < pulls ? core_pull_view(ctx->core, slot, &t)
                       : core_serve_view(ctx->core, slot - pulls, &t)))
        return false;
    if ((only->tenant != NONE && t.tenant != only->tenant) ||
        (only->peer && (!peer_name(ctx, &t) || strcmp(peer_name(ctx, &t), only->peer) != 0)))
        return false;
    if (ctx->daemon->xfer && !(t.outgoing ? xfer_serve_view(ctx->daemon->xfer, t.serve, &flow)
                                          : xfer_pull_view(ctx->daemon->xfer, t.pull, &flow)))
        flow = (struct xfer_flow_view){0};
    TEXT(out, OPEN_OBJECT(NULL));
    put_named(ctx, &t, out);
    TEXT(out, STR("state", t.state_word), STR("stage", stages[t.times.stage].word));
    put_stages(ctx, &t, out);
    put_waits(ctx, &t, out);
    TEXT(out, NUM(t, from), NUM(t, to), NUM(t, published));
    put_amounts(ctx, &t, &flow, out);
    holds = core_node_view(ctx->core, t.node, &node);
    TEXT(out, text_or_null(holds, HEX("node_id", node_id_pack(node.id))),
         F64("age_s", admin_age_s(ctx, t.started_ns)),
         F64("left_s",
             t.deadline_ns > ctx->now_ns ? (double)(t.deadline_ns - ctx->now_ns) / SECOND_NS : 0),
         CLOSE_OBJECT);
    return true;
}
