/* What operators and tenants are told about the disk tier. See admin.h. */
#include <string.h>

#include "shell/admin/admin_rows.h"

#define NS_PER_S   1000000000.0
#define SCORE_UNIT 16.0 /* from 1/2^24 tokens a byte to tokens a MiB */

static const char *const reasons[DISK_REASONS] = {[DISK_COLD] = "cold",
                                                  [DISK_CONTINUED] = "continued",
                                                  [DISK_EVICT] = "evict",
                                                  [DISK_SHUTDOWN] = "shutdown"};

void admin_spill_tenant(const struct admin_ctx *ctx, uint32_t tenant, struct text_out *out)
{
    struct disk_view v;

    if (ctx->disk == NULL) {
        TEXT(out, STR("spill", NULL));
        return;
    }
    core_disk(ctx->core, tenant, &v);
    TEXT(out, OPEN_OBJECT("spill"), U64("budget_bytes", v.budget), U64("used_bytes", v.used),
         U64("entries", v.entries), U64("chunks", v.chunks), U64("files", v.files),
         U64("stores", v.stores), OPEN_OBJECT("stored"));
    for (uint32_t i = 0; i < DISK_REASONS; i++)
        TEXT(out, U64(reasons[i], v.counts.stored[i]));
    TEXT(out, CLOSE_OBJECT, U64("written_bytes", v.counts.written_bytes),
         U64("failed", v.counts.failed), U64("refused", v.counts.refused),
         U64("pruned", v.counts.pruned), U64("evicted", v.counts.evicted),
         U64("hits", v.counts.hits), U64("fetched_pages", v.counts.fetched_pages),
         U64("recovered", v.counts.recovered), U64("dropped", v.counts.dropped), CLOSE_OBJECT);
}

static void put_recovery(const struct disk_recovery *r, struct text_out *out)
{
    TEXT(out, OPEN_OBJECT("recovery"), /* of this start */
         U64("ms", r->ns / 1000000), U64("files", r->files), U64("extents", r->extents),
         U64("bytes", r->bytes), U64("holes", r->holes), U64("unfinished", r->unfinished),
         U64("removed_files", r->removed_files), OPEN_OBJECT("faults"));
    for (uint32_t i = DISK_FAULT_NONE + 1; i < DISK_FAULTS; i++)
        TEXT(out, U64(disk_fault_word((enum disk_fault)i), r->faults[i]));
    TEXT(out, CLOSE_OBJECT, CLOSE_OBJECT);
}

static uint64_t used_bytes(const struct admin_ctx *ctx)
{
    struct disk_view v;
    uint64_t used = 0;

    for (uint32_t i = 0; i < ctx->config->ntenants; i++) {
        core_disk(ctx->core, i, &v);
        used += v.used;
    }
    return used;
}

void admin_spill(const struct admin_ctx *ctx, struct text_out *out)
{
    const struct disk_stats *s = ctx->disk;

    if (s == NULL) {
        TEXT(out, STR("spill", NULL));
        return;
    }
    TEXT(out, OPEN_OBJECT("spill"), STR("dir", ctx->config->spill_dir), BOOL("direct", s->direct),
         BOOL("encrypted", ctx->config->spill_key_file[0] != '\0'),
         STR("state", s->gone      ? "gone"
                      : s->failing ? "failing"
                      : s->full    ? "full"
                                   : "ok"),
         STR("error", s->error ? strerror(s->error) : NULL),
         U64("budget_bytes", ctx->config->spill_bytes), U64("used_bytes", used_bytes(ctx)),
         U64("free_bytes", s->free_bytes), U64("headroom_bytes", ctx->config->spill_headroom),
         U64("files_written", s->files_written), U64("bytes_written", s->bytes_written),
         U64("extents_read", s->extents_read), U64("bytes_read", s->bytes_read),
         U64("write_errors", s->write_errors), U64("read_errors", s->read_errors),
         U64("corrupt", s->corrupt), U64("dropped_files", s->dropped_files),
         U64("punched_bytes", s->punched_bytes), U64("syncs", s->syncs));
    put_recovery(ctx->recovery, out);
    TEXT(out, CLOSE_OBJECT);
}

void admin_disk_head(const struct admin_ctx *ctx, uint32_t tenant, struct text_out *out)
{
    (void)tenant;
    admin_spill(ctx, out);
}

bool admin_disk_row(const struct admin_ctx *ctx, uint32_t slot, const struct admin_filter *only,
                    struct text_out *out)
{
    struct disk_entry_view e;

    if (!core_disk_entry_view(ctx->core, slot, &e) ||
        (only->tenant != NONE && e.tenant != only->tenant))
        return false;
    TEXT(out, OPEN_OBJECT(NULL), STR("tenant", ctx->config->tenants[e.tenant].name));
    admin_namespace(out, e.ns);
    TEXT(out, HEX("chain", e.chain), U64("depth", e.depth), STR("reason", reasons[e.reason]),
         U64("hits", e.hits), U64("bytes", e.bytes), U64("own_bytes", e.own_bytes),
         F64("age_s", (double)e.age_ns / NS_PER_S),
         F64("score", (double)e.score / SCORE_UNIT), /* tokens a MiB: the lowest goes first */
         BOOL("in_use", e.read), CLOSE_OBJECT);
    return true;
}
