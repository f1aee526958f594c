/* The rows of transfers: what the core knows of one (its stage, what it waits for, pages and bytes)
 * and what the data path does. That pages have come and wait for their verdict the data path alone
 * knows: in the core they are on the wire. */
#include <string.h>

#include "base/rate.h"
#include "proto/messages.h"
#include "shell/admin/admin_rows.h"

#define SECOND_NS      1000000000.0
#define STAGE_VERIFIES "verifying"

/* A word, and of which transfers. */
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

static bool verifies(const struct transfer_view *t, const struct xfer_flow_view *flow)
{
    return !t->outgoing && t->times.stage == STAGE_WIRE && flow->verifying;
}

/* Seconds in each stage. */
static void put_stages(const struct admin_ctx *ctx, const struct transfer_view *t,
                       const struct xfer_flow_view *flow, struct text_out *out)
{
    text_object(out, "stage_s");
    for (uint32_t i = 0; i < TRANSFER_STAGES; i++) {
        uint64_t ns = transfer_stage_ns(&t->times, (enum transfer_stage)i, ctx->now_ns);

        if (!is_of(&stages[i], t))
            continue;
        if (i == STAGE_WIRE)
            ns = ns > flow->verifying_ns ? ns - flow->verifying_ns : 0;
        text_f64(out, stages[i].word, (double)ns / SECOND_NS);
        if (i == STAGE_WIRE)
            text_f64(out, STAGE_VERIFIES, (double)flow->verifying_ns / SECOND_NS);
    }
    text_object_end(out);
}

/* Seconds of each wait, and of all. */
static void put_waits(const struct admin_ctx *ctx, const struct transfer_view *t,
                      struct text_out *out)
{
    uint64_t all = 0;

    text_str(out, "waits_for", t->times.wait == WAIT_NOTHING ? NULL : waits[t->times.wait].word);
    text_object(out, "wait_s");
    for (uint32_t i = WAIT_NOTHING + 1; i < TRANSFER_WAITS; i++) {
        uint64_t ns = transfer_wait_ns(&t->times, (enum transfer_wait)i, ctx->now_ns);

        if (!is_of(&waits[i], t))
            continue;
        text_f64(out, waits[i].word, (double)ns / SECOND_NS);
        all += ns;
    }
    text_object_end(out);
    text_f64(out, "waited_s", (double)all / SECOND_NS);
}

static void put_amounts(const struct admin_ctx *ctx, const struct transfer_view *t,
                        const struct xfer_flow_view *flow, struct text_out *out)
{
    double age_s = admin_age_s(ctx, t->started_ns);
    uint64_t moved = t->outgoing ? flow->bytes : t->bytes_verified;

    text_u64(out, "pages", t->pages);
    text_u64(out, "bytes", t->bytes);
    if (t->outgoing) {
        text_u64(out, "pages_sent", flow->pages);
        text_u64(out, "bytes_sent", flow->bytes);
    } else {
        text_u64(out, "pages_asked", t->pages_asked);
        text_u64(out, "bytes_asked", t->bytes_asked);
        /* From the disk they come with their verdict. */
        text_u64(out, "pages_arrived", t->peer == NONE ? t->pages_verified : flow->pages);
        text_u64(out, "bytes_arrived", t->peer == NONE ? t->bytes_verified : flow->bytes);
        text_u64(out, "pages_verified", t->pages_verified);
        text_u64(out, "bytes_verified", t->bytes_verified);
        text_u64(out, "pages_published", t->pages_published);
        text_u64(out, "bytes_published", t->bytes_published);
    }
    text_u64(out, "bytes_per_s", rate_of(t->outgoing ? flow->rate : t->rate, ctx->now_ns));
    text_u64(out, "mean_bytes_per_s", age_s > 0 ? (uint64_t)((double)moved / age_s) : 0);
}

static void put_named(const struct admin_ctx *ctx, const struct transfer_view *t,
                      struct text_out *out)
{
    text_hex(out, "transfer", t->outgoing ? serve_id_pack(t->serve) : pull_id_pack(t->pull));
    text_str(out, "direction", t->outgoing ? "out" : "in");
    text_str(out, "tier", t->peer == NONE ? "disk" : "peer");
    text_str(out, "peer", peer_name(ctx, t));
    text_u64(out, "link", t->link);
    text_str(out, "tenant", admin_tenant_name(ctx, t->tenant));
    text_bool(out, "ticket", t->ticket);
    text_str(out, "class", t->prefetch ? "prefetch" : "decode");
    text_hex(out, "trace_id", t->trace_id);
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
    if (ctx->flow == NULL || !ctx->flow(ctx->ctx, &t, &flow))
        flow = (struct xfer_flow_view){0};
    text_object(out, NULL);
    put_named(ctx, &t, out);
    text_str(out, "state", t.state_word);
    text_str(out, "stage", verifies(&t, &flow) ? STAGE_VERIFIES : stages[t.times.stage].word);
    put_stages(ctx, &t, &flow, out);
    put_waits(ctx, &t, out);
    text_u64(out, "from", t.from);
    text_u64(out, "to", t.to);
    text_u64(out, "published", t.published);
    put_amounts(ctx, &t, &flow, out);
    holds = core_node_view(ctx->core, t.node, &node);
    admin_id(out, "node_id", holds, node_id_pack(node.id));
    text_f64(out, "age_s", admin_age_s(ctx, t.started_ns));
    text_f64(out, "left_s",
             t.deadline_ns > ctx->now_ns ? (double)(t.deadline_ns - ctx->now_ns) / SECOND_NS : 0);
    text_object_end(out);
    return true;
}
