/* See reshard_end.h. */
#include "reshard_end.h"

#include <stdio.h>
#include <string.h>

#include "engine/pages.h"
#include "engine/proc.h"

#define POOL_BYTES (4u << 20)
#define TRIES      4000 /* a millisecond each, until an older pool is freed */

/* ---- its shape ---- */

bool end_shape(struct end *e, const struct end_shape *s)
{
    enum world_kind kinds[END_GROUPS] = {WORLD_MHA, s->kind};
    bool state = world_is_state(s->kind);

    *e = (struct end){.ranks = s->ranks * s->stages,
                      .ngroups = state ? 2 : 1,
                      .page_tokens = s->page_tokens,
                      .align = s->align};
    if (!state)
        kinds[0] = s->kind;
    for (uint32_t g = 0; g < e->ngroups; g++) {
        struct reshard_layout *l = &e->layout[g];

        e->world[g] = (struct world_end){.kind = kinds[g],
                                         .ranks = s->ranks,
                                         .stages = s->stages,
                                         .page_tokens = s->page_tokens,
                                         .order = s->order,
                                         .units = s->units,
                                         .whole = s->whole};
        world_layout(&e->world[g], l);
        if (l->page_bytes % 8 != 0 || l->page_bytes % l->units != 0)
            return false;
    }
    return true;
}

static const char *const axis_names[AXIS_KINDS] = {
    [AXIS_LAYER] = "layer",     [AXIS_KV] = "kv",   [AXIS_TOKEN] = "token", [AXIS_HEAD] = "head",
    [AXIS_CHANNEL] = "channel", [AXIS_DIM] = "dim", [AXIS_STATE] = "state",
};

struct told {
    struct tern_field field[RESHARD_FIELDS_MAX];
    struct tern_axis axis[RESHARD_FIELDS_MAX][AXIS_KINDS];
    struct tern_channels section[RESHARD_FIELDS_MAX][RESHARD_SECTIONS_MAX];
};

static void tell_field(const struct reshard_field *f, struct told *t, uint32_t i)
{
    for (uint32_t k = 0; k < f->naxes; k++)
        t->axis[i][k] =
            (struct tern_axis){axis_names[f->axis[k].kind], f->axis[k].length, f->axis[k].stride};
    for (uint32_t k = 0; k < f->nsections; k++)
        t->section[i][k] =
            (struct tern_channels){f->section[k].name, f->section[k].count, f->section[k].width};
    t->field[i] = (struct tern_field){.name = f->name,
                                      .over = f->over == OVER_REPLICATED ? TERN_OVER_REPLICATED
                                                                         : TERN_OVER_DIVIDED,
                                      .element_bytes = f->element_bytes,
                                      .offset = f->offset,
                                      .axes = t->axis[i],
                                      .naxes = f->naxes,
                                      .sections = f->nsections ? t->section[i] : NULL,
                                      .nsections = f->nsections};
}

static struct tern_group tell_group(const struct end *e, uint32_t g, struct told *t)
{
    const struct reshard_layout *l = &e->layout[g];

    for (uint32_t i = 0; i < l->nfields; i++)
        tell_field(&l->field[i], t, i);
    return (struct tern_group){.name = l->name,
                               .family =
                                   world_is_state(e->world[g].kind) ? TERN_RECURRENT : TERN_HISTORY,
                               .page_tokens = e->page_tokens,
                               .page_bytes = l->page_bytes,
                               .units = l->units,
                               .fields = t->field,
                               .nfields = l->nfields};
}

/* ---- its life ---- */

static enum tern_err join(struct end *e, const char *socket, const char *name)
{
    enum tern_err err = TERN_OK;

    for (uint32_t r = 0; r < e->ranks && err == TERN_OK; r++) {
        err = tern_connect(socket, END_CALL_MS, &e->tern[r]);
        if (err == TERN_OK)
            err = tern_join(e->tern[r], name, r == 0 ? TERN_BOTH : TERN_WORKER, r, e->ranks, NULL,
                            END_CALL_MS);
    }
    e->engine.tern = e->tern[0];
    return err;
}

static enum tern_err open_pool(struct end *e)
{
    struct told told[END_GROUPS];
    struct tern_layout layout = {.groups = e->engine.groups,
                                 .ngroups = e->ngroups,
                                 .shard = TERN_SHARD_HEADS,
                                 .bytes = POOL_BYTES,
                                 .stages = e->layout[0].stages,
                                 .align_tokens = e->align};
    enum tern_err err = TERN_BUSY;

    for (uint32_t g = 0; g < e->ngroups; g++)
        e->engine.groups[g] = tell_group(e, g, &told[g]);
    for (int i = 0; i < TRIES && (err == TERN_BUSY || err == TERN_QUOTA); i++) {
        if (i > 0)
            sleep_ms(1);
        err = tern_pool_open(e->tern[0], &layout, END_CALL_MS, &e->engine.pool, NULL);
    }
    return err;
}

enum tern_err end_open(struct end *e, const char *socket, const char *name,
                       const struct tern_namespace *ns)
{
    enum tern_err err = join(e, socket, name);

    e->engine.ns = *ns;
    e->engine.call_ms = END_CALL_MS;
    e->engine.ngroups = e->ngroups;
    if (err == TERN_OK)
        err = tern_batch_create(e->tern[0], &e->engine.batch);
    if (err == TERN_OK)
        err = open_pool(e);
    for (uint32_t r = 0; r < e->ranks && err == TERN_OK; r++)
        err = tern_pool_map(e->tern[r], e->engine.pool, END_CALL_MS, &e->map[r]);
    e->engine.map = e->map[0];
    return err;
}

void end_close(struct end *e)
{
    if (e->engine.pool)
        tern_pool_close(e->tern[0], e->engine.pool, END_CALL_MS);
    tern_batch_destroy(e->engine.batch);
    e->engine.batch = NULL;
    for (uint32_t r = 0; r < e->ranks; r++) {
        tern_destroy(e->tern[r]);
        e->tern[r] = NULL;
    }
}

/* ---- its bytes ---- */

/* Makes page i of group g of a rank as it must be. Returns its bytes. */
static uint64_t page_like(const struct end *e, uint32_t g, uint32_t rank, uint32_t i, uint8_t salt,
                          uint8_t *page)
{
    uint64_t n = world_fill(&e->world[g], rank, i, page, NULL);

    for (uint64_t k = 0; k < n; k++)
        page[k] ^= salt;
    return n;
}

/* A state has one page: the session's own, or the one to copy into it. */
static uint32_t page_index(const struct end_pages *p, const struct end *e, uint32_t g, uint32_t i)
{
    const struct table_group *t = &p->s->table.group[g];

    if (!world_is_state(e->world[g].kind))
        return t->index[i];
    return t->from ? t->from : t->index[0];
}

static uint64_t pages_do(struct end *e, const struct end_pages *p, bool write)
{
    static uint8_t like[WORLD_PAGE_MAX], there[WORLD_PAGE_MAX];
    uint64_t wrong = 0;

    for (uint32_t g = 0; g < e->ngroups; g++) {
        uint32_t n = world_is_state(e->world[g].kind) ? 1 : p->tokens / e->page_tokens;

        for (uint32_t i = 0; i < n; i++)
            for (uint32_t r = 0; r < e->ranks; r++) {
                uint64_t bytes = page_like(e, g, r, i, p->salt, like);
                uint32_t index = page_index(p, e, g, i);
                uint8_t *page = tern_pool_info(e->map[r])->base + index * bytes;

                if (index == 0) {
                    wrong += bytes;
                } else if (write) {
                    pool_bytes_put(e->map[r], page, like, bytes);
                } else {
                    pool_bytes_get(e->map[r], there, page, bytes);
                    for (uint64_t k = 0; k < bytes; k++)
                        wrong += there[k] != like[k];
                }
            }
    }
    return wrong;
}

void end_write(struct end *e, const struct end_pages *p)
{
    pages_do(e, p, true);
}

uint64_t end_wrong(struct end *e, const struct end_pages *p)
{
    return pages_do(e, p, false);
}

enum tern_err end_publish(struct end *e)
{
    enum tern_err err = TERN_OK;

    e->engine.step++;
    for (uint32_t r = 0; r < e->ranks && err == TERN_OK; r++)
        err = tern_done_step(e->map[r], e->engine.step);
    return err;
}
