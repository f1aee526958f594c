/* The settings of the disk tier: derived values, and checks that they fit each other. */
#include <inttypes.h>

#include "base/err.h"
#include "shell/config/config_table.h"

#define DISK_CHUNKS_MIN  1024u
#define DISK_CHUNKS_MAX  (1u << 18) /* 256 GiB of chunks of 1 MiB: some hundred MiB of records */
#define CHUNKS_PER_FILE  4u  /* a store writes the files that it needs, seldom one per chunk */
#define BLOCKS_PER_CHUNK 4u  /* enough for L = 256 */
#define TRIM_PARTS       64u /* of `align`: left out at a prompt's end */
#define LEAST_PARTS      4u  /* of `align`: with less left, the whole prompt is stored */
#define STORES_EACH      2u
#define STORES_MIN       4u

/* Each tenant without spill_bytes gets an equal part of what the others leave. */
static void derive_parts(struct config *c)
{
    uint64_t left = c->spill_bytes;
    uint32_t open = 0;

    for (uint32_t i = 0; i < c->ntenants; i++) {
        uint64_t part = c->tenants[i].spill_bytes;

        open += part == SPILL_PART;
        if (part != SPILL_PART)
            left -= part < left ? part : left;
    }
    for (uint32_t i = 0; i < c->ntenants; i++)
        if (c->tenants[i].spill_bytes == SPILL_PART) {
            c->tenants[i].spill_bytes = left / open;
            c->spill_parts |= (uint64_t)1 << i;
        }
}

/* Chunks that fit if each is an extent's header and one page of the smallest size. */
static uint64_t likely_chunks(const struct config *c)
{
    uint64_t pages = (c->page_bytes_min + DISK_BLOCK - 1) / DISK_BLOCK * DISK_BLOCK,
             n = c->spill_bytes / (DISK_BLOCK + pages);

    return n < DISK_CHUNKS_MIN ? DISK_CHUNKS_MIN : n > DISK_CHUNKS_MAX ? DISK_CHUNKS_MAX : n;
}

void config_derive_spill(struct config *c)
{
    struct core_limits *l = &c->limits;
    uint32_t align = l->disk_align;

    derive_parts(c);
    l->disk_trim = align / TRIM_PARTS;
    l->disk_least = align / LEAST_PARTS;
    l->disk_interval = (l->disk_interval + align - 1) / align * align;
    if (l->disk_interval > SESSION_TOKENS_MAX) /* not a multiple of every `align` */
        l->disk_interval -= align;
    if (c->spill_dir[0] == '\0') {
        l->disk_chunks = 0;
        return;
    }
    if (l->disk_chunks == 0)
        l->disk_chunks = (uint32_t)likely_chunks(c);
    l->disk_files = (l->disk_chunks + CHUNKS_PER_FILE - 1) / CHUNKS_PER_FILE;
    if (l->disk_files > DISK_FILES_MAX)
        l->disk_files = DISK_FILES_MAX;
    if (l->disk_files < c->ntenants)
        l->disk_files = c->ntenants; /* T22 */
    l->disk_blocks = l->disk_chunks < COUNT_MAX / BLOCKS_PER_CHUNK
                         ? l->disk_chunks * BLOCKS_PER_CHUNK
                         : COUNT_MAX;
    l->disk_keys = l->extra_keys;
    l->disk_stores =
        c->ntenants * STORES_EACH > STORES_MIN ? c->ntenants * STORES_EACH : STORES_MIN;
}

static enum tern_err check_tenants(struct loader *l)
{
    const struct config *c = l->config;
    uint64_t total = 0;

    for (uint32_t i = 0; i < c->ntenants; i++) {
        const struct config_tenant *t = &c->tenants[i];

        total += t->spill_bytes;
        if (total > c->spill_bytes)
            return tenant_fail(l, i, "spill_bytes",
                               "with this tenant's %" PRIu64 " bytes, all tenants need %" PRIu64
                               " bytes of the disk tier; spill.bytes is %" PRIu64,
                               t->spill_bytes, total, c->spill_bytes);
        if (c->spill_dir[0] != '\0' && t->name[0] == '.')
            return tenant_fail(l, i, "name",
                               "begins with a dot, and each tenant has a folder of its name in "
                               "spill.dir: choose another name");
    }
    return TERN_OK;
}

enum tern_err config_check_spill(struct loader *l)
{
    const struct config *c = l->config;

    TRY(check_tenants(l));
    if (c->spill_dir[0] == '\0') {
        if (c->spill_bytes > 0)
            return setting_fail(l, "spill", "bytes",
                                "is set without spill.dir: name a folder with --spill.dir");
        if (c->spill_key_file[0] != '\0')
            return setting_fail(l, "spill", "encrypt_key_file",
                                "is set without spill.dir: name a folder with --spill.dir");
        return TERN_OK;
    }
    if (c->spill_bytes == 0)
        return setting_fail(l, "spill", "dir",
                            "needs spill.bytes, the size of the disk tier (--spill.bytes)");
    return TERN_OK;
}
