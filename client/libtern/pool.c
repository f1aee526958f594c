/* Pools: opening, mapping, and the one store that publishes a step. The daemon's memory is mapped
 * directly, or by CUDA if it lies on a GPU (device.c). Invariant: a mapping never outlives
 * tern_destroy, no forked child can touch a mapping, and no descriptor of memory stays open after
 * the call (it could map the pool again when the daemon regards it as unmapped). The bell, by which
 * a rank wakes the daemon, is no memory: it stays open as long as the connection. */
#include "brought.h"
#include "device.h"
#include "steps.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/err.h"

/* ---- open and close ---- */

/* The parts of the message for each group; valid during the call that packs them. */
struct field_parts {
    Tern__Wire__Field field;
    Tern__Wire__Axis axes[WIRE_AXES_MAX], *axis_list[WIRE_AXES_MAX];
    Tern__Wire__Section sections[WIRE_SECTIONS_MAX], *section_list[WIRE_SECTIONS_MAX];
};

struct group_parts {
    Tern__Wire__Group group;
    Tern__Wire__Axis axes[WIRE_AXES_MAX], *axis_list[WIRE_AXES_MAX];
    struct field_parts fields[WIRE_FIELDS_MAX];
    Tern__Wire__Field *field_list[WIRE_FIELDS_MAX];
};

struct layout_parts {
    struct group_parts groups[TERN_GROUPS_MAX];
    Tern__Wire__Group *group_list[TERN_GROUPS_MAX];
};

static void put_axes(const struct tern_axis *from, uint32_t n, Tern__Wire__Axis *axes,
                     Tern__Wire__Axis **list)
{
    for (uint32_t i = 0; i < n; i++) {
        tern__wire__axis__init(&axes[i]);
        axes[i].name = (char *)(uintptr_t)from[i].name;
        axes[i].has_length = axes[i].has_stride_bytes = 1;
        axes[i].length = from[i].length;
        axes[i].stride_bytes = from[i].stride_bytes;
        list[i] = &axes[i];
    }
}

static void put_field(const struct tern_field *from, struct field_parts *parts)
{
    Tern__Wire__Field *to = &parts->field;

    tern__wire__field__init(to);
    to->name = (char *)(uintptr_t)from->name;
    to->has_over = to->has_element_bytes = to->has_offset = 1;
    to->over = (uint32_t)from->over;
    to->element_bytes = from->element_bytes;
    to->offset = from->offset;
    put_axes(from->axes, from->naxes, parts->axes, parts->axis_list);
    to->n_axes = from->naxes;
    to->axes = parts->axis_list;
    for (uint32_t i = 0; i < from->nsections; i++) {
        Tern__Wire__Section *s = parts->section_list[i] = &parts->sections[i];

        tern__wire__section__init(s);
        s->name = (char *)(uintptr_t)from->sections[i].name;
        s->has_count = s->has_width = 1;
        s->count = from->sections[i].count;
        s->width = from->sections[i].width;
    }
    to->n_sections = from->nsections;
    to->sections = parts->section_list;
}

static void put_group(const struct tern_group *from, struct group_parts *parts)
{
    Tern__Wire__Group *to = &parts->group;

    tern__wire__group__init(to);
    to->name = (char *)(uintptr_t)from->name;
    to->has_family = to->has_page_tokens = to->has_page_bytes = to->has_units = to->has_cap_pages =
        1;
    to->has_window = from->window != 0;
    to->window = from->window;
    to->has_reserve = from->reserve != 0;
    to->reserve = from->reserve;
    to->family = (uint32_t)from->family;
    to->page_tokens = from->page_tokens;
    to->page_bytes = from->page_bytes;
    to->units = from->units;
    to->cap_pages = from->cap_pages;
    put_axes(from->axes, from->naxes, parts->axes, parts->axis_list);
    to->n_axes = from->naxes;
    to->axes = parts->axis_list;
    for (uint32_t i = 0; i < from->nfields; i++) {
        put_field(&from->fields[i], &parts->fields[i]);
        parts->field_list[i] = &parts->fields[i].field;
    }
    to->n_fields = from->nfields;
    to->fields = parts->field_list;
}

enum tern_err pool_open_as(struct tern *t, const struct tern_layout *layout, bool shared,
                           uint32_t deadline_ms, uint64_t *ret_pool, uint32_t *ret_align_tokens)
{
    Tern__Wire__PoolOpen m = TERN__WIRE__POOL_OPEN__INIT;
    const Tern__Wire__PoolOpenReply *reply;
    const ProtobufCMessage *msg;
    struct layout_parts *parts;
    enum tern_err err;

    TRY(check_layout(t, layout));
    parts = malloc(sizeof(*parts));
    if (!parts)
        return set_error(t, TERN_INTERNAL, "this process has no memory for the layout");
    for (uint32_t g = 0; g < layout->ngroups; g++) {
        put_group(&layout->groups[g], &parts->groups[g]);
        parts->group_list[g] = &parts->groups[g].group;
    }
    m.n_groups = layout->ngroups;
    m.groups = parts->group_list;
    m.has_shard = m.has_bytes = 1;
    m.shard = (uint32_t)layout->shard;
    m.bytes = layout->bytes;
    m.has_supersede = layout->supersede != TERN_SUPERSEDE_LAZY;
    m.supersede = (uint32_t)layout->supersede;
    m.has_host_bytes = layout->host_bytes != 0;
    m.host_bytes = layout->host_bytes;
    m.has_stages = layout->stages > 1;
    m.stages = layout->stages;
    m.has_align_tokens = layout->align_tokens != 0;
    m.align_tokens = layout->align_tokens;
    m.has_shared = shared;
    m.shared = shared;
    err = call_whole(t, FRAME_POOL_OPEN, 0, &m.base, deadline_ms, &msg);
    free(parts);
    TRY(err);
    reply = (const Tern__Wire__PoolOpenReply *)msg;
    *ret_pool = reply->pool;
    if (ret_align_tokens)
        *ret_align_tokens = reply->align_tokens;
    return TERN_OK;
}

enum tern_err tern_pool_open(struct tern *t, const struct tern_layout *layout, uint32_t deadline_ms,
                             uint64_t *ret_pool, uint32_t *ret_align_tokens)
{
    ENTER(t);

    return pool_open_as(t, layout, false, deadline_ms, ret_pool, ret_align_tokens);
}

enum tern_err tern_pool_close(struct tern *t, uint64_t pool, uint32_t deadline_ms)
{
    ENTER(t);
    Tern__Wire__PoolRef m = TERN__WIRE__POOL_REF__INIT;
    const ProtobufCMessage *msg;

    m.has_pool = 1;
    m.pool = pool;
    return call_whole(t, FRAME_POOL_CLOSE, 0, &m.base, deadline_ms, &msg);
}

/* ---- map ---- */

/* A range beyond the descriptor's size would cause a SIGBUS at the engine's first touch. */
static bool fd_holds(int fd, uint64_t offset, uint64_t bytes)
{
    struct stat st;

    return bytes > 0 && offset + bytes >= offset && fstat(fd, &st) == 0 && st.st_size >= 0 &&
           (uint64_t)st.st_size >= offset + bytes;
}

/* Returns a free address that has the same place in a huge page as the offset; NULL: any. The
 * kernel can map a huge page of the file as one only at such an address. */
static void *huge_hint(uint64_t offset, uint64_t bytes)
{
    const uint64_t room = bytes + HUGE_PAGE_BYTES;
    uint8_t *at;

    if (bytes < HUGE_PAGE_BYTES)
        return NULL;
    at = mmap(NULL, room, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED || munmap(at, room) < 0)
        return NULL;
    return at + (offset - (uintptr_t)at) % HUGE_PAGE_BYTES;
}

enum tern_err map_shared(int fd, uint64_t offset, uint64_t bytes, uint8_t **ret)
{
    void *at;

    if (!fd_holds(fd, offset, bytes))
        return TERN_MALFORMED;
    /* Otherwise a forked child would keep pages mapped that the daemon regards as gone with this
     * process. A child that another thread forks before this call has the range without access to
     * it. */
    at = mmap(huge_hint(offset, bytes), bytes, PROT_NONE, MAP_SHARED, fd, (off_t)offset);
    if (at == MAP_FAILED)
        return TERN_INTERNAL;
    if (madvise(at, bytes, MADV_DONTFORK) < 0 || mprotect(at, bytes, PROT_READ | PROT_WRITE) < 0) {
        munmap(at, bytes);
        return TERN_INTERNAL;
    }
    *ret = at;
    return TERN_OK;
}

enum { FD_REGION, FD_CONTROL, FD_BELL, FD_SUMS }; /* SUMS: only if the answer names it */

static void unmap_region(struct tern_pool *pool, bool owner)
{
    if (pool->device)
        device_map_destroy(pool->device, owner);
    else if (owner)
        munmap(pool->info.base, pool->info.bytes);
}

/* CUDA maps whole allocations, so this maps the region and not only the pool. */
static enum tern_err map_device(struct tern *t, int fd, const Tern__Wire__PoolMapReply *reply,
                                struct tern_pool *pool)
{
    const struct device_range range = {.uuid = reply->device, .region_bytes = reply->region_bytes};

    if (reply->bytes == 0 || reply->offset > reply->region_bytes ||
        reply->bytes > reply->region_bytes - reply->offset)
        return set_error(t, TERN_MALFORMED, "the pool lies outside its region");
    TRY(device_map_create(t, fd, &range, &pool->device));
    pool->info.base = device_map_base(pool->device) + reply->offset;
    pool->info.device = device_map_uuid(pool->device);
    pool->info.ordinal = device_map_ordinal(pool->device);
    return TERN_OK;
}

static enum tern_err map_region(struct tern *t, int fd, const Tern__Wire__PoolMapReply *reply,
                                struct tern_pool *pool)
{
    enum tern_err err;

    pool->info = (struct tern_pool_info){.bytes = reply->bytes, .ordinal = -1};
    if (reply->device && reply->device[0])
        return map_device(t, fd, reply, pool);
    err = map_shared(fd, reply->offset, reply->bytes, &pool->info.base);
    if (err != TERN_OK)
        set_error(t, err,
                  "the pool's region could not be mapped (no address space, or a wrong answer of "
                  "the daemon)");
    return err;
}

static enum tern_err map_sums(struct tern *t, int fd, const Tern__Wire__BroughtSums *at,
                              struct tern_pool *pool)
{
    struct brought_range range;
    uint8_t *map;
    enum tern_err err = brought_range(pool, at, &range)
                            ? map_shared(fd, range.from, range.bytes, &map)
                            : TERN_MALFORMED;

    if (err != TERN_OK)
        return set_error(t, err, "the memory for checksums could not be mapped");
    err = brought_begin(pool, at, map);
    if (err != TERN_OK)
        munmap(map, range.bytes);
    return err;
}

static enum tern_err map_both(struct tern *t, const int *fds, const Tern__Wire__PoolMapReply *reply,
                              struct tern_pool *pool)
{
    enum tern_err err;

    TRY(map_region(t, fds[FD_REGION], reply, pool));
    err = map_shared(fds[FD_CONTROL], 0, CONTROL_BYTES, &pool->control);
    if (err != TERN_OK) {
        set_error(t, err, "the control page could not be mapped");
        goto out_region;
    }
    if (control_load(pool->control, CONTROL_INCARNATION_AT) != t->incarnation) {
        err = set_error(t, TERN_GONE,
                        "the control page belongs to another incarnation of the daemon");
        goto out_control;
    }
    if (reply->sums)
        err = map_sums(t, fds[FD_SUMS], reply->sums, pool);
    if (err != TERN_OK)
        goto out_control;
    return TERN_OK;

out_control:
    munmap(pool->control, CONTROL_BYTES);
out_region:
    unmap_region(pool, true);
    return err;
}

/* Closes the answer's descriptors in any case: a mapping does not need them. */
static enum tern_err map_answer(struct tern *t, const struct call_fds *fds,
                                const Tern__Wire__PoolMapReply *reply, struct tern_pool *pool)
{
    enum tern_err err;

    TRY(call_fds_are(t, fds, reply->sums ? FD_SUMS + 1 : FD_SUMS));
    err = map_both(t, fds->v, reply, pool);
    close(fds->v[FD_REGION]);
    close(fds->v[FD_CONTROL]);
    if (reply->sums)
        close(fds->v[FD_SUMS]);
    if (err == TERN_OK && t->bell < 0)
        t->bell = fds->v[FD_BELL]; /* kept; a later answer has another descriptor there */
    else
        close(fds->v[FD_BELL]);
    return err;
}

static void pool_link(struct tern *t, struct tern_pool *pool)
{
    uint64_t published = control_load(pool->control, t->rank * CONTROL_RANK_STRIDE);

    /* A rank that connects again continues at its last step. */
    if (t->member == MEMBER_RANK && published > t->last_step)
        t->last_step = published;
    pool->next = t->pools;
    t->pools = pool;
}

enum tern_err tern_pool_map(struct tern *t, uint64_t handle, uint32_t deadline_ms,
                            struct tern_pool **ret)
{
    ENTER(t);
    Tern__Wire__PoolRef m = TERN__WIRE__POOL_REF__INIT;
    const ProtobufCMessage *msg;
    struct tern_pool *pool;
    struct call_fds fds;
    enum tern_err err;

    m.has_pool = m.has_sums = 1;
    m.pool = handle;
    m.sums = 1;
    pool = calloc(1, sizeof(*pool));
    if (!pool)
        return set_error(t, TERN_INTERNAL, "no memory");
    pool->owner = t;
    err = call_whole_fds(t, FRAME_POOL_MAP, &m.base, deadline_at(deadline_ms), &fds, &msg);
    if (err == TERN_OK)
        err = map_answer(t, &fds, (const Tern__Wire__PoolMapReply *)msg, pool);
    if (err != TERN_OK)
        goto out_free;
    pool_link(t, pool);
    *ret = pool;
    return TERN_OK;

out_free:
    free(pool);
    return err;
}

void tern_pool_unmap(struct tern_pool **pool)
{
    struct tern_pool *p = *pool, **at;
    bool quiet;

    if (!p)
        return;
    for (at = &p->owner->pools; *at != p; at = &(*at)->next)
        ;
    *at = p->next;
    quiet = brought_end(p) && !p->copies_left;
    p->owner->kernels_left = p->owner->kernels_left || !quiet;
    if (!is_owner(p->owner)) { /* a child may have other mappings at these addresses */
        unmap_region(p, false);
        free(p->stream_page);
    } else if (steps_page_end(p) && quiet) {
        unmap_region(p, true);
        munmap(p->control, CONTROL_BYTES);
    } /* else a device may still use both: they stay mapped until the process ends */
    free(p);
    *pool = NULL;
}

void pool_unmap_all(struct tern *t)
{
    while (t->pools) {
        struct tern_pool *p = t->pools;

        tern_pool_unmap(&p);
    }
}

const struct tern_pool_info *tern_pool_info(const struct tern_pool *p)
{
    return &p->info;
}

void tern_copy_blocks(const struct tern_blocks *to, const struct tern_blocks *from, uint32_t n,
                      uint64_t bytes)
{
    for (uint32_t i = 0; i < n; i++)
        memcpy(to->base + to->at[i] * to->stride, from->base + from->at[i] * from->stride, bytes);
}

static enum tern_err step_goes_back(struct tern *t, uint64_t step)
{
    char text[QUICK_TEXT_MAX];

    snprintf(text, sizeof(text),
             "step %" PRIu64
             " cannot be published, because this rank has already published step %" PRIu64
             ": publish that step or a later one",
             step, t->last_step);
    return set_error(t, TERN_INVALID, text);
}

/* Checks that this rank may publish that step, by itself or by a stream. */
static enum tern_err check_done(struct tern *t, uint64_t step)
{
    if (t->member != MEMBER_RANK)
        return set_error(t, TERN_DENIED, "a pure scheduler has no rank, and publishes no step");
    if (step == TERN_STEP_NONE)
        return set_error(t, TERN_INVALID, "a rank cannot publish TERN_STEP_NONE");
    return step < t->last_step ? step_goes_back(t, step) : TERN_OK;
}

enum tern_err tern_done_step(struct tern_pool *p, uint64_t step)
{
    ENTER(p->owner);
    struct tern *t = p->owner;

    TRY(check_done(t, step));
    if (steps_in_stream(t, p->control))
        return set_error(t, TERN_CONFLICT,
                         "an earlier step in a stream is not done: put this step into a stream, "
                         "too, or wait for the earlier step");
    t->text[0] = '\0';
    t->last_step = step;
    control_publish(p->control, t->rank, step, t->bell);
    return TERN_OK;
}

enum tern_err tern_checksums_on_stream(struct tern_pool *p, const struct tern_checksums *of,
                                       void *cu_stream)
{
    ENTER(p->owner);
    struct tern *t = p->owner;

    TRY(check_done(t, of->step));
    if (of->step == t->last_step)
        return set_error(t, TERN_INVALID,
                         "the step is already done or in a stream: request its checksums earlier");
    TRY(brought_put(p, of, cu_stream));
    t->text[0] = '\0';
    return TERN_OK;
}

enum tern_err tern_done_step_on_stream(struct tern_pool *p, uint64_t step, void *cu_stream,
                                       enum tern_step_by *ret_by)
{
    ENTER(p->owner);
    struct tern *t = p->owner;

    TRY(check_done(t, step));
    TRY(steps_put(p, step, cu_stream, ret_by));
    t->text[0] = '\0';
    t->last_step = step;
    return TERN_OK;
}
