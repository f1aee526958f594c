/* What operators and tenants are told about the disk tier. See admin.h. */
#include <string.h>

#include "shell/admin/admin_rows.h"

#define NS_PER_S   1000000000.0
#define SCORE_UNIT 16.0 /* from 1/2^24 tokens a byte to tokens a MiB */

static const char *const reasons[DISK_REASONS] = {[DISK_COLD] = "cold",
                                                  [DISK_CONTINUED] = "continued",
                                                  [DISK_EVICT] = "evict",
                                                  [DISK_SHUTDOWN] = "shutdown"};

/* ---- of a tenant ---- */

void admin_spill_tenant(const struct admin_ctx *ctx, uint32_t tenant, struct text_out *out)
{
    struct disk_view v;

    if (ctx->disk == NULL) {
        text_str(out, "spill", NULL);
        return;
    }
    core_disk(ctx->core, tenant, &v);
    text_object(out, "spill");
    text_u64(out, "budget_bytes", v.budget);
    text_u64(out, "used_bytes", v.used);
    text_u64(out, "entries", v.entries);
    text_u64(out, "chunks", v.chunks);
    text_u64(out, "files", v.files);
    text_u64(out, "stores", v.stores);
    text_object(out, "stored");
    for (uint32_t i = 0; i < DISK_REASONS; i++)
        text_u64(out, reasons[i], v.counts.stored[i]);
    text_object_end(out);
    text_u64(out, "written_bytes", v.counts.written_bytes);
    text_u64(out, "failed", v.counts.failed);
    text_u64(out, "refused", v.counts.refused);
    text_u64(out, "pruned", v.counts.pruned);
    text_u64(out, "evicted", v.counts.evicted);
    text_u64(out, "hits", v.counts.hits);
    text_u64(out, "fetched_pages", v.counts.fetched_pages);
    text_u64(out, "recovered", v.counts.recovered);
    text_u64(out, "dropped", v.counts.dropped);
    text_object_end(out);
}

/* ---- of the daemon ---- */

static void put_recovery(const struct disk_recovery *r, struct text_out *out)
{
    text_object(out, "recovery"); /* of this start */
    text_u64(out, "ms", r->ns / 1000000);
    text_u64(out, "files", r->files);
    text_u64(out, "extents", r->extents);
    text_u64(out, "bytes", r->bytes);
    text_u64(out, "holes", r->holes);
    text_u64(out, "unfinished", r->unfinished);
    text_u64(out, "removed_files", r->removed_files);
    text_object(out, "faults");
    for (uint32_t i = DISK_FAULT_NONE + 1; i < DISK_FAULTS; i++)
        text_u64(out, disk_fault_word((enum disk_fault)i), r->faults[i]);
    text_object_end(out);
    text_object_end(out);
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
        text_str(out, "spill", NULL);
        return;
    }
    text_object(out, "spill");
    text_str(out, "dir", ctx->config->spill_dir);
    text_bool(out, "direct", s->direct);
    text_bool(out, "encrypted", ctx->config->spill_key_file[0] != '\0');
    text_str(out, "state", s->failing ? "failing" : s->full ? "full" : "ok");
    text_str(out, "error", s->error ? strerror(s->error) : NULL);
    text_u64(out, "budget_bytes", ctx->config->spill_bytes);
    text_u64(out, "used_bytes", used_bytes(ctx));
    text_u64(out, "free_bytes", s->free_bytes);
    text_u64(out, "headroom_bytes", ctx->config->spill_headroom);
    text_u64(out, "files_written", s->files_written);
    text_u64(out, "bytes_written", s->bytes_written);
    text_u64(out, "extents_read", s->extents_read);
    text_u64(out, "bytes_read", s->bytes_read);
    text_u64(out, "write_errors", s->write_errors);
    text_u64(out, "read_errors", s->read_errors);
    text_u64(out, "corrupt", s->corrupt);
    text_u64(out, "dropped_files", s->dropped_files);
    text_u64(out, "punched_bytes", s->punched_bytes);
    text_u64(out, "syncs", s->syncs);
    put_recovery(ctx->recovery, out);
    text_object_end(out);
}

void admin_disk_head(const struct admin_ctx *ctx, uint32_t tenant, struct text_out *out)
{
    (void)tenant;
    admin_spill(ctx, out);
}

/* ---- entries ---- */

bool admin_disk_row(const struct admin_ctx *ctx, uint32_t slot, const struct admin_filter *only,
                    struct text_out *out)
{
    struct disk_entry_view e;

    if (!core_disk_entry_view(ctx->core, slot, &e) ||
        (only->tenant != NONE && e.tenant != only->tenant))
        return false;
    text_object(out, NULL);
    text_str(out, "tenant", ctx->config->tenants[e.tenant].name);
    admin_namespace(out, e.ns);
    text_hex(out, "chain", e.chain);
    text_u64(out, "depth", e.depth);
    text_str(out, "reason", reasons[e.reason]);
    text_u64(out, "hits", e.hits);
    text_u64(out, "bytes", e.bytes);
    text_u64(out, "own_bytes", e.own_bytes);
    text_f64(out, "age_s", (double)e.age_ns / NS_PER_S);
    text_f64(out, "score", (double)e.score / SCORE_UNIT); /* tokens a MiB: the lowest goes first */
    text_bool(out, "in_use", e.read);
    text_object_end(out);
    return true;
}
