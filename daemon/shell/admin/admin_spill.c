/* The disk tier, for operators and tenants. See admin.h. */
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
         NUM(v, entries), NUM(v, chunks), NUM(v, files), NUM(v, stores), OPEN_OBJECT("stored"));
    for (uint32_t i = 0; i < DISK_REASONS; i++)
        TEXT(out, U64(reasons[i], v.counts.stored[i]));
    TEXT(out, CLOSE_OBJECT, NUM(v.counts, written_bytes), NUM(v.counts, failed),
         NUM(v.counts, refused), NUM(v.counts, pruned), NUM(v.counts, evicted), NUM(v.counts, hits),
         NUM(v.counts, fetched_pages), NUM(v.counts, recovered), NUM(v.counts, dropped),
         CLOSE_OBJECT);
}

static void put_recovery(const struct disk_recovery *r, struct text_out *out)
{
    TEXT(out, OPEN_OBJECT("recovery"), /* at this start */
         U64("ms", r->ns / 1000000), NUM(*r, files), NUM(*r, extents), NUM(*r, bytes),
         NUM(*r, holes), NUM(*r, unfinished), NUM(*r, removed_files), OPEN_OBJECT("faults"));
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

void admin_spill(const struct admin_ctx *ctx, uint32_t tenant, struct text_out *out)
{
    const struct disk_stats *s = ctx->disk;

    (void)tenant;
    if (s == NULL) {
        TEXT(out, STR("spill", NULL));
        return;
    }
    TEXT(out, OPEN_OBJECT("spill"), STR("dir", ctx->config->spill_dir), FLAG(*s, direct),
         BOOL("encrypted", ctx->config->spill_key_file[0] != '\0'),
         STR("state", s->gone      ? "gone"
                      : s->failing ? "failing"
                      : s->full    ? "full"
                                   : "ok"),
         STR("error", s->error ? strerror(s->error) : NULL),
         U64("budget_bytes", ctx->config->spill_bytes), U64("used_bytes", used_bytes(ctx)),
         NUM(*s, free_bytes), U64("headroom_bytes", ctx->config->spill_headroom),
         NUM(*s, files_written), NUM(*s, bytes_written), NUM(*s, extents_read), NUM(*s, bytes_read),
         NUM(*s, write_errors), NUM(*s, read_errors), NUM(*s, corrupt), NUM(*s, dropped_files),
         NUM(*s, punched_bytes), NUM(*s, syncs));
    put_recovery(ctx->recovery, out);
    TEXT(out, CLOSE_OBJECT);
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
    TEXT(out, HEX("chain", e.chain), NUM(e, depth), STR("reason", reasons[e.reason]), NUM(e, hits),
         NUM(e, bytes), NUM(e, own_bytes), F64("age_s", (double)e.age_ns / NS_PER_S),
         F64("score", (double)e.score / SCORE_UNIT), /* tokens per MiB; the lowest goes first */
         BOOL("in_use", e.read), CLOSE_OBJECT);
    return true;
}
