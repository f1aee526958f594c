/* Rows of admin lists: one slot of one core table, as a JSON object. Internal to admin*.c. */
#ifndef SHELL_ADMIN_ROWS_H
#define SHELL_ADMIN_ROWS_H

#include "shell/admin/admin.h"
#include "shell/daemon.h"

/* Selects rows. A list may ignore some fields: see its filters in admin.c. */
struct admin_filter {
    uint32_t tenant, pool;     /* NONE: all */
    const char *engine, *peer; /* names; NULL: all */
};

/* Writes a row. Returns false, with nothing written, if the slot is empty or not selected. */
typedef bool admin_row(const struct admin_ctx *ctx, uint32_t slot, const struct admin_filter *only,
                       struct text_out *out);

admin_row admin_pool_row, admin_session_row, admin_ticket_row, admin_record_row, admin_engine_row,
    admin_peer_row, admin_transfer_row, admin_node_row, admin_disk_row, admin_namespace_row;

const char *admin_tenant_name(const struct admin_ctx *ctx, uint32_t tenant);
double admin_age_s(const struct admin_ctx *ctx, uint64_t then_ns);
void admin_namespace(struct text_out *out, struct namespace_id ns);

/* Writes the pids of the engine's live processes. */
void admin_engine_pids(const struct daemon *d, const struct engine_view *e, struct text_out *out);
/* Writes the daemon's TLS figures, before the rows of `peers`. */
void admin_peers_head(const struct admin_ctx *ctx, uint32_t tenant, struct text_out *out);

/* Writes the disk tier, for status and `disk`, and a tenant's part; null without a disk tier. */
void admin_spill(const struct admin_ctx *ctx, uint32_t tenant, struct text_out *out);
void admin_spill_tenant(const struct admin_ctx *ctx, uint32_t tenant, struct text_out *out);

/* Writes one flat object for each group of that pool, for status. */
void admin_pool_groups(const struct admin_ctx *ctx, uint32_t slot, uint32_t tenant,
                       struct text_out *out);

/* Writes the results of prompts: an array with one object per tenant. */
void admin_figures(const char *key, const struct admin_ctx *ctx, uint32_t tenant,
                   struct text_out *out);
enum tern_err admin_stats(const struct admin_ctx *ctx, uint32_t tenant, struct text_out *out);

/* Writes the RDMA devices: which of them are in use, and why the others are not. */
enum tern_err admin_doctor(const struct admin_ctx *ctx, struct text_out *out);

#endif
