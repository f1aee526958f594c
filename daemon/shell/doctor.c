/* `ternctl doctor`: what this host has of RDMA, what of it is used, and what to do where it is not.
 * See admin_rows.h. */
#include "shell/admin_rows.h"

static void devices(const struct xfer_rdma_view *v, struct text_out *out)
{
    text_array(out, "devices");
    for (uint32_t i = 0; i < v->ndevices; i++) {
        text_object(out, NULL);
        text_str(out, "device", v->found[i].name);
        text_str(out, "state", v->found[i].state);
        text_object_end(out);
    }
    text_array_end(out);
}

/* null: none. What JSON's readers take for a whole number ends at 63 bits. */
static void limit(struct text_out *out, const char *key, uint64_t bytes)
{
    if (bytes > INT64_MAX)
        text_str(out, key, NULL);
    else
        text_u64(out, key, bytes);
}

enum tern_err admin_doctor(const struct admin_ctx *ctx, struct text_out *out)
{
    const struct xfer_rdma_view *v = &ctx->rdma;

    text_object(out, NULL);
    text_object(out, "rdma");
    text_bool(out, "built", v->built);
    text_bool(out, "in_use", v->open);
    text_str(out, "reason", v->why);
    devices(v, out);
    if (v->open) {
        text_str(out, "device", v->device);
        text_u64(out, "port", v->port);
        text_u64(out, "gid_index", v->gid_index);
        text_u64(out, "mtu", v->mtu);
        text_u64(out, "rd_atomic", v->rd_atomic);
        text_u64(out, "send_queue", v->send_queue);
        text_u64(out, "completion_queue", v->completion_queue);
        text_u64(out, "registered_bytes", v->registered_bytes);
        text_u64(out, "registrations", v->registrations);
        limit(out, "registration_bytes_max", v->max_mr_bytes);
    }
    limit(out, "memlock_bytes", v->memlock_bytes);
    text_bool(out, "memlock_exempt", v->memlock_exempt);
    text_object_end(out);
    text_object_end(out);
    return text_whole(out) ? TERN_OK : TERN_BUSY;
}
