/* tern_blocks.h: the life of a set, and the calls that need no pages. */
#include "blocks.h"
#include "device.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/err.h"

/* A set that could not be opened has no object to keep its error text. */
static _Thread_local char open_text[QUICK_TEXT_MAX];

enum tern_err blocks_not_open(enum tern_err err, const char *text)
{
    snprintf(open_text, sizeof open_text, "%s", text && text[0] ? text : err_text(err));
    return err;
}

const char *tern_blocks_error_text(const struct tern_block_set *set)
{
    return set ? tern_error_text(set->t, NULL) : open_text;
}

/* ---- opening ---- */

static enum tern_err check_config(const struct tern_block_config *c)
{
    size_t group = c->group ? strnlen(c->group, TERN_BLOCK_GROUP_MAX + 1) : 0;

    if (group == 0 || group > TERN_BLOCK_GROUP_MAX || strchr(c->group, '/'))
        return blocks_not_open(TERN_INVALID, "a group has a name of 1 to 31 bytes without '/'");
    if (c->value_bytes < 8 || c->value_bytes > TERN_BLOCK_VALUE_MAX)
        return blocks_not_open(TERN_INVALID,
                               "a value has 8 bytes to TERN_BLOCK_VALUE_MAX (64 MiB)");
    if (c->threads > TERN_BLOCKS_THREADS_MAX)
        return blocks_not_open(TERN_INVALID, "at most TERN_BLOCKS_THREADS_MAX (64) threads copy");
    if (c->ns.salt && strnlen(c->ns.salt, TERN_BLOCK_SALT_MAX + 1) > TERN_BLOCK_SALT_MAX)
        return blocks_not_open(TERN_INVALID,
                               "the salt of a set has at most TERN_BLOCK_SALT_MAX bytes");
    if (c->hosts && strcmp(c->hosts, TERN_PEER_ANY) != 0 &&
        (c->hosts[0] == '\0' || c->hosts[0] == '/' ||
         strnlen(c->hosts, WIRE_STRING_MAX + 1) > WIRE_STRING_MAX))
        return blocks_not_open(TERN_INVALID, "`hosts` is NULL, TERN_PEER_ANY or a peer's name");
    return TERN_OK;
}

/* Makes the namespace of the set's prefixes: the group, which has no '/', goes before the salt. */
static enum tern_err name_set(struct tern_block_set *set, const struct tern_block_config *c)
{
    const char *const given[WIRE_NAMESPACE_PARTS] = {c->ns.model, c->ns.revision, c->ns.kv_dtype,
                                                     c->ns.lora, c->ns.salt};
    const char *parts[WIRE_NAMESPACE_PARTS];

    for (uint32_t i = 0; i < WIRE_NAMESPACE_PARTS; i++) {
        const char *from = given[i] ? given[i] : "";
        const char *before = i + 1 == WIRE_NAMESPACE_PARTS ? c->group : "";

        if (strnlen(from, WIRE_STRING_MAX + 1) > WIRE_STRING_MAX)
            return blocks_not_open(TERN_INVALID, "a part of a namespace has at most 255 bytes");
        snprintf(set->part[i], sizeof set->part[i], "%s%s%s", before, before[0] ? "/" : "", from);
        parts[i] = set->part[i];
    }
    set->ns = (struct tern_namespace){parts[0], parts[1], parts[2], parts[3], parts[4]};
    wire_namespace(parts, &set->ns_hash[0], &set->ns_hash[1]);
    return TERN_OK;
}

/* Each set in any process is an engine of its own, so its name is random. */
static enum tern_err join(struct tern_block_set *set, const struct tern_block_config *c,
                          uint64_t deadline_ns)
{
    char name[TERN_ENGINE_NAME_MAX + 1];
    uint64_t drawn;

    if (getrandom(&drawn, sizeof drawn, 0) != (ssize_t)sizeof drawn)
        return set_error(set->t, TERN_INTERNAL,
                         "the system has no random numbers (getrandom failed)");
    snprintf(name, sizeof name, "blocks-%d-%016" PRIx64, (int)getpid(), drawn);
    return tern_join(set->t, name, TERN_BOTH, 0, 1, c->device, blocks_left_ms(deadline_ns));
}

/* A daemon that supports blocks, and knows the peer, answers that there is no such pool. */
static enum tern_err check_daemon(struct tern_block_set *set, uint64_t deadline_ns)
{
    enum tern_err err;

    set->words[0][0] = 1;
    err = blocks_ask(set, set->asks[0] ? BLOCKS_ASK : BLOCKS_FIND, NULL, 1, deadline_ns);
    if (err == TERN_UNSUPPORTED)
        return set_error(set->t, err, "the daemon is too old for blocks: update the daemon");
    return err == TERN_GONE ? TERN_OK : err;
}

/* The axis distinguishes this pool from pools of other groups and of other engines. */
static enum tern_err open_pool(struct tern_block_set *set, const struct tern_block_config *c,
                               uint64_t deadline_ns)
{
    struct tern_axis axes[] = {{.name = "tern-blocks", .length = 1, .stride_bytes = 1},
                               {.name = c->group, .length = c->value_bytes, .stride_bytes = 1}};
    struct tern_group group = {.name = c->group,
                               .page_tokens = BLOCK_TOKENS,
                               .page_bytes = set->page_bytes,
                               .axes = axes,
                               .naxes = 2};
    struct tern_layout layout = {.groups = &group,
                                 .ngroups = 1,
                                 .bytes = c->pool_bytes,
                                 .host_bytes = c->host_bytes,
                                 .align_tokens = BLOCK_TOKENS};
    enum tern_err err;

    do
        err = pool_open_as(set->t, &layout, true, blocks_left_ms(deadline_ns), &set->pool, NULL);
    while (err == TERN_BUSY && blocks_nap(set, deadline_ns));
    TRY(err);
    TRY(tern_pool_map(set->t, set->pool, blocks_left_ms(deadline_ns), &set->map));
    if (set->map->device)
        set->far = (struct block_far){device_map_driver(set->map->device),
                                      device_map_device(set->map->device)};
    else if (c->populate) /* if it fails, pages are mapped when they are touched */
        (void)madvise(tern_pool_info(set->map)->base, tern_pool_info(set->map)->bytes,
                      MADV_POPULATE_WRITE);
    return TERN_OK;
}

/* Returns the number of pages that the set may allocate ahead for its next put. */
static uint32_t ahead_of(const struct tern_block_set *set)
{
    uint64_t bytes = BLOCKS_AHEAD_BYTES / set->value_bytes,
             part = tern_pool_info(set->map)->bytes / set->page_bytes / BLOCKS_AHEAD_PART;
    uint64_t n = bytes < part ? bytes : part;

    return n < BLOCKS_AHEAD ? (uint32_t)n : BLOCKS_AHEAD;
}

static enum tern_err begin(struct tern_block_set *set, const struct tern_block_config *c,
                           uint64_t deadline_ns)
{
    uint32_t copies;

    TRY(join(set, c, deadline_ns));
    TRY(check_daemon(set, deadline_ns));
    TRY(open_pool(set, c, deadline_ns));
    set->ahead = ahead_of(set);
    TRY(tern_batch_create(set->t, &set->batch));
    for (uint32_t i = 0; i < BLOCKS_PARTS; i++)
        TRY(tern_batch_create(set->t, &set->commit[i]));
    if (copier_create(c->threads ? c->threads : 1, c->value_bytes,
                      set->far.driver ? &set->far : NULL, &set->copier) != TERN_OK)
        return set_error(set->t, TERN_INTERNAL, "this process lacks memory or threads for copies");
    copies = copier_most(set->copier);
    set->copies = calloc(copies > BLOCKS_SESSIONS ? copies : BLOCKS_SESSIONS, sizeof *set->copies);
    return set->copies ? TERN_OK : set_error(set->t, TERN_INTERNAL, NULL);
}

enum tern_err tern_blocks_open(const char *socket_path, const struct tern_block_config *config,
                               uint32_t deadline_ms, struct tern_block_set **ret)
{
    const uint64_t deadline_ns = deadline_at(deadline_ms);
    struct tern_block_set *set;
    enum tern_err err;

    TRY(check_config(config));
    set = calloc(1, sizeof *set);
    if (!set)
        return blocks_not_open(TERN_INTERNAL, "no memory");
    set->value_bytes = config->value_bytes;
    snprintf(set->asks, sizeof set->asks, "%s", config->hosts ? config->hosts : "");
    set->page_bytes = block_page_bytes(config->value_bytes);
    err = name_set(set, config);
    if (err != TERN_OK)
        goto out;
    err = tern_connect(socket_path, blocks_left_ms(deadline_ns), &set->t);
    if (err != TERN_OK) {
        blocks_not_open(err, tern_error_text(NULL, NULL));
        goto out;
    }
    err = begin(set, config, deadline_ns);
    if (err == TERN_OK) {
        *ret = set;
        return TERN_OK;
    }
    blocks_not_open(err, tern_error_text(set->t, NULL));
out:
    tern_blocks_close(set);
    return err;
}

void tern_blocks_close(struct tern_block_set *set)
{
    if (!set)
        return;
    if (set->copier && set->map)
        set->map->copies_left = copier_is_loose(set->copier);
    copier_destroy(set->copier, set->t && !is_owner(set->t));
    tern_batch_destroy(set->batch);
    for (uint32_t i = 0; i < BLOCKS_PARTS; i++)
        tern_batch_destroy(set->commit[i]);
    tern_destroy(set->t);
    pins_free(set);
    free(set->copies);
    free(set);
}

void tern_blocks_counts(const struct tern_block_set *set, struct tern_block_counts *ret)
{
    *ret = set->counts;
}

/* ---- calls that need no pages ---- */

const char *tern_blocks_host(const struct tern_block_set *set, uint32_t i)
{
    return i < TERN_BLOCKS_LIST_MAX ? block_host(set, i) : NULL;
}

static uint8_t place_of(struct tern_page p)
{
    if (p.index != 0)
        return TERN_BLOCK_IN_POOL;
    return p.generation == PLACE_HOST   ? TERN_BLOCK_ON_HOST
           : p.generation == PLACE_DISK ? TERN_BLOCK_ON_DISK
           : block_is_there(p)          ? TERN_BLOCK_ELSEWHERE
                                        : TERN_BLOCK_NOWHERE;
}

enum tern_err tern_blocks_find(struct tern_block_set *set, const struct tern_block_key *keys,
                               uint32_t n, uint32_t deadline_ms, uint8_t *ret_places,
                               uint32_t *ret_front)
{
    ENTER(set->t);
    const struct block_list list = {keys, NULL, n, deadline_at(deadline_ms)};
    uint32_t front = 0;

    TRY(blocks_begin(set, &list));
    TRY(blocks_ask(set, BLOCKS_FIND, NULL, n, list.deadline_ns));
    for (uint32_t i = 0; i < n; i++)
        set->todo[i] = i;
    TRY(blocks_ask_hosts(set, n, list.deadline_ns));
    while (front < n && block_is_there(set->page[front]))
        front++;
    for (uint32_t i = 0; ret_places && i < n; i++)
        ret_places[i] = place_of(set->page[i]);
    if (ret_front)
        *ret_front = front;
    return TERN_OK;
}

enum tern_err tern_blocks_touch(struct tern_block_set *set, const struct tern_block_key *keys,
                                uint32_t n, uint32_t deadline_ms, uint32_t *ret_found)
{
    ENTER(set->t);
    const struct block_list list = {keys, NULL, n, deadline_at(deadline_ms)};
    uint32_t found = 0;

    TRY(blocks_begin(set, &list));
    TRY(blocks_ask(set, BLOCKS_TOUCH, NULL, n, list.deadline_ns));
    for (uint32_t i = 0; i < n; i++)
        found += block_is_there(set->page[i]);
    if (ret_found)
        *ret_found = found;
    return TERN_OK;
}

/* Removes the blocks that can be removed, and keeps those in use in set->todo. */
static enum tern_err remove_round(struct tern_block_set *set, uint64_t deadline_ns, uint32_t *io_n,
                                  uint32_t *io_removed)
{
    uint32_t n = *io_n, held = 0;

    TRY(blocks_ask(set, BLOCKS_REMOVE, set->todo, n, deadline_ns));
    for (uint32_t i = 0; i < n; i++) {
        const struct tern_page p = set->page[set->todo[i]];

        *io_removed += block_is_there(p);
        if (p.index == 0 && p.generation == PLACE_HELD)
            set->todo[held++] = set->todo[i];
    }
    *io_n = held;
    return TERN_OK;
}

/* Repeats the rounds, because jobs of the daemon keep a block only for moments. */
static enum tern_err remove_all(struct tern_block_set *set, uint64_t deadline_ns, uint32_t n,
                                uint32_t *io_removed)
{
    enum tern_err err;
    uint32_t left = n;
    bool held = false;

    do {
        err = remove_round(set, deadline_ns, &left, io_removed);
        if (err == TERN_OK && left == 0)
            return TERN_OK;
        held |= err == TERN_OK;
    } while ((err == TERN_OK || err == TERN_BUSY) && blocks_nap(set, deadline_ns));
    return err == TERN_OK || (err == TERN_TIMED_OUT && held)
               ? set_error(set->t, TERN_BUSY,
                           "blocks were pinned or in use by another tier until the deadline: retry")
               : err;
}

enum tern_err tern_blocks_remove(struct tern_block_set *set, const struct tern_block_key *keys,
                                 uint32_t n, uint32_t deadline_ms, uint32_t *ret_removed)
{
    ENTER(set->t);
    const struct block_list list = {keys, NULL, n, deadline_at(deadline_ms)};
    uint32_t removed = 0;
    enum tern_err err;

    TRY(blocks_begin(set, &list));
    for (uint32_t i = 0; i < n; i++)
        set->todo[i] = i;
    sessions_close_left(set, list.deadline_ns); /* they would pin blocks to be removed */
    err = remove_all(set, list.deadline_ns, n, &removed);
    if (ret_removed)
        *ret_removed = removed;
    return err;
}
