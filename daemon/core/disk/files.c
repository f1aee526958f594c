/* The files of the disk tier, and what is removed of them. A file without needed extents is
 * deleted; until then each unneeded extent becomes a hole. Removals are queued and sent in a few
 * actions a step. A store writes nothing while the queue is not empty, so the queue never needs
 * more records than there are extents. See index.h. */
#include "core/arena/actions.h"
#include "core/disk/index.h"

uint32_t disk_file_take(struct core *c, const struct disk_file_new *f)
{
    uint32_t at;

    if (share_room(c, SHARE_DISK_FILES, f->tenant) == 0)
        return NONE;
    at = disk_file_slot_take(c, f->tenant);
    *disk_file_at(c, at) = (struct disk_file){.tenant = f->tenant,
                                              .number = f->number,
                                              .ns = f->ns,
                                              .in_list = {.next = NONE, .prev = NONE}};
    touch(c);
    return at;
}

void disk_files_reset(struct core *c, uint32_t tenant, struct namespace_id ns)
{
    uint32_t left = share_holder(c, SHARE_DISK_FILES, tenant)->used;

    for (uint32_t i = 0; left > 0; i++, c->visits++) {
        struct disk_file *f = disk_file_at(c, i);

        if (f->state == DISK_FILE_EMPTY || f->tenant != tenant)
            continue;
        left--;
        if (f->ns.hi != ns.hi || f->ns.lo != ns.lo || f->reset)
            continue;
        f->reset = 1;
        tenant_at(c, tenant)->disk_resets++;
        touch(c);
    }
}

void disk_file_free(struct core *c, uint32_t file)
{
    struct disk_file *f = disk_file_at(c, file);

    disk_file_state_move(&f->state, DISK_FILE_EMPTY);
    if (f->reset)
        disk_reset_over(c, f->tenant);
    c->disk_lost -= f->lost;
    disk_file_slot_put(c, file, f->tenant);
    touch(c);
}

void disk_reset_over(struct core *c, uint32_t tenant)
{
    if (--tenant_at(c, tenant)->disk_resets == 0)
        c->disk_resets_over = 1;
}

static void gone(struct core *c, struct disk_gone what)
{
    uint32_t at = disk_gone_slot_pop(c);

    what.next = NONE;
    *disk_gone_at(c, at) = what;
    if (c->disk_gone_first == NONE)
        c->disk_gone_first = at;
    else
        disk_gone_at(c, c->disk_gone_last)->next = at;
    c->disk_gone_last = at;
    touch(c);
}

void disk_file_offer(struct core *c, uint32_t file)
{
    struct disk_file *f = disk_file_at(c, file);

    if (f->state != DISK_FILE_KEPT || f->extents > 0)
        return;
    disk_file_state_move(&f->state, DISK_FILE_LEAVING);
    tenant_at(c, f->tenant)->disk_leaving++;
    disk_leaving_list_push(c, &c->disk_leaving, file);
    gone(c, (struct disk_gone){.file = file});
}

void disk_extent_gone(struct core *c, uint32_t file, uint64_t offset, uint64_t bytes)
{
    struct disk_file *f = disk_file_at(c, file);

    check(f->extents > 0);
    f->extents--;
    if (f->extents > 0 && c->free_disk_gones.n > c->limits.disk_files)
        gone(c, (struct disk_gone){.file = file, .offset = offset, .bytes = bytes});
    disk_file_offer(c, file);
}

bool disk_gone_flush(struct core *c, struct actions *out)
{
    uint32_t end = piece_begin(c);

    for (uint32_t said = 0; c->disk_gone_first != NONE;) {
        uint32_t at = c->disk_gone_first;
        const struct disk_gone *g = disk_gone_at(c, at);
        const struct disk_file *f = disk_file_at(c, g->file);

        if (c->visits++ >= end || visits_left(c) == 0)
            return false;
        if (g->offset == 0 || f->state != DISK_FILE_LEAVING) {
            struct action *a;

            if (actions_room(out) == 0 || said++ == DISK_DROPS_MAX)
                return false;
            a = action_add(out, ACT_DISK_DROP);
            a->disk_drop = (struct disk_drop){
                .tenant = f->tenant, .bytes = g->bytes, .place = {f->number, g->offset}};
        }
        c->disk_gone_first = g->next;
        disk_gone_slot_push(c, at);
        touch(c);
    }
    return true;
}

/* Marks files as lost: disk_bad_flush marks the chunks that have extents in them as bad. */
static void lost(struct core *c, uint64_t number)
{
    for (uint32_t i = 0; i < c->limits.disk_files; i++, c->visits++) {
        struct disk_file *f = disk_file_at(c, i);

        if (f->state != DISK_FILE_KEPT || f->lost || (number != 0 && f->number != number))
            continue;
        f->lost = 1;
        c->disk_lost++;
        c->disk_bad_left = c->limits.disk_chunks;
        touch(c);
    }
}

void disk_file_dropped(struct core *c, uint64_t number)
{
    uint32_t at = c->disk_leaving.head;

    for (; at != NONE && disk_file_at(c, at)->number != number; c->visits++)
        at = disk_leaving_list_next(c, at);
    if (at == NONE) {
        lost(c, number);
        return;
    }
    tenant_at(c, disk_file_at(c, at)->tenant)->disk_leaving--;
    disk_leaving_list_remove(c, &c->disk_leaving, at);
    disk_file_free(c, at);
    disk_let_go(c);
}
