/* Fuzz target: a tape's bytes through the reader into core_step. The tape's head is corrected,
 * unless the first byte is RAW, and so are the length, the kind and the time of each record: the
 * rest of a record is the input's. The core must accept every event that the reader passes on: the
 * target looks for failures of the core's own checks. Limits and tenants come from the tape's head
 * too, if an arena of them is small. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "client/ctl/tape/tape_read.h"
#include "client/ctl/tape/tape_text.h"
#include "core/core.h"
#include "core/query.h"
#include "fuzz/passed.h"
#include "shell/tape/tape_codec.h"
#include "testing/secret.h"
#include "unit/rig/rig.h"

#define ARENA_BYTES_MAX ((size_t)1 << 20)
#define RAW             0x74u /* replaces the first byte of the magic */
#define TENANTS         2u
#define CLOCK_MAX       ((uint64_t)1 << 62)
#define HEAD_BYTES      (sizeof(struct tape_file_head) + TENANTS * sizeof(struct tenant_config))
#define TIME_AT         4 /* bytes, of an event's time in its record: behind the kind */
#define RECORD_LEAST    (4 * RECORD_HEAD_WORDS + 16) /* bytes: kind and time, and a word beside */
#define TAPE_BYTES_MAX  ((size_t)1 << 20)
#define FLUSHES_MAX     64 /* timers after an event while the core has work left over */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct actions *actions;
static void *arena;

static bool playable(const struct tape_header *head)
{
    size_t bytes;

    if (core_size(&head->limits, &bytes) != TERN_OK || bytes > ARENA_BYTES_MAX ||
        head->tenants != head->limits.tenants)
        return false;
    for (uint32_t i = 0; i < head->tenants; i++)
        if (head->tenant[i].regions == 0 || head->tenant[i].regions > RANKS_MAX ||
            head->tenant[i].sessions_max == 0 || head->tenant[i].memory_bytes > (uint64_t)1 << 50)
            return false;
    return true;
}

static void start(const struct tape_header *head)
{
    const struct core_limits most = {.table_pages = TABLE_PAGES_MAX};
    struct hash_secret secret = secret_from(1);
    size_t bytes;

    check(core_size(&head->limits, &bytes) == TERN_OK);
    if (arena == NULL) {
        arena = aligned_alloc(64, ARENA_BYTES_MAX);
        actions = calloc(1, actions_bytes(&most));
        check(arena != NULL && actions != NULL);
    }
    actions_init(actions, &head->limits);
    memset(arena, 0, bytes);
    core_init(arena, &head->limits, head->tenant, head->incarnation, &secret);
}

/* The shell promises that a list has as many tokens as it declares; the reader checks that. Every
 * event that the reader returns can also be shown. */
static bool next(struct tape_reader *reader, struct event *ret)
{
    struct tape_line line;

    if (tape_next(reader, ret) != TERN_OK || ret->kind == 0)
        return false;
    tape_line(ret, &line);
    return true;
}

static void play(struct tape_reader *reader)
{
    uint32_t pools = tape_header(reader)->limits.pools;
    struct core *core = arena;
    struct event e;

    while (next(reader, &e)) {
        fuzz_passed();
        core_step(core, &e, actions);
        for (uint32_t i = 0; i < FLUSHES_MAX && core_deadline(core) == 0; i++) {
            struct event timer = {.kind = EV_TIMER, .now_ns = e.now_ns};

            core_step(core, &timer, actions);
        }
    }
    check(core_steps_over(core)->steps == 0 || tape_header(reader)->limits.step_visits != 0);
    for (uint32_t slot = 0; slot < pools; slot++) {
        struct pool_view v;

        if (!core_pool_view(core, slot, &v))
            continue;
        for (uint32_t g = 0; g < v.ngroups; g++) {
            const struct group_view *q = &v.group[g];

            check(q->total == q->free + q->leased + q->session + q->snapshot + q->reclaimable +
                                  q->transfer + q->ticket + q->retiring + q->zeroing +
                                  q->quarantine);
        }
    }
}

static bool fits(const struct tape_file_head *head)
{
    size_t bytes;

    return core_size(&head->limits, &bytes) == TERN_OK && bytes <= ARENA_BYTES_MAX &&
           head->limits.tenants == TENANTS;
}

/* The head's limits are used if their arena is small. */
static void right_head(uint8_t *bytes)
{
    struct tape_file_head head;
    struct tenant_config tenant;

    memcpy(&head, bytes, sizeof head);
    head.magic = TAPE_MAGIC;
    head.version = TAPE_VERSION;
    head.flags = TAPE_COMPLETE | (head.flags & TAPE_TOKENS_KEPT);
    head.limits_bytes = sizeof head.limits;
    head.tenants = TENANTS;
    head.first = 0;
    head.events = head.events ? head.events : UINT64_MAX;
    if (!fits(&head))
        head.limits = rig_small().limits;
    memcpy(bytes, &head, sizeof head);
    for (uint32_t i = 0; i < TENANTS; i++) {
        uint8_t *at = bytes + sizeof head + i * sizeof tenant;

        memcpy(&tenant, at, sizeof tenant);
        tenant.regions = 1 + tenant.regions % 2;
        tenant.sessions_max = 1 + tenant.sessions_max % 16;
        tenant.memory_bytes %= 1u << 21;
        tenant.host_bytes %= 1u << 21;
        if (tenant.record_bytes)
            tenant.record_bytes =
                (uint64_t)(head.limits.record_pages / 64 / TENANTS * 64) * RECORD_PAGE_BYTES;
        memcpy(at, &tenant, sizeof tenant);
    }
}

/* Sets the parts in the record's head to what its event takes of the remaining words, if those can
 * be read; else the head's own parts are kept, within these words. */
static void right_parts(uint32_t *record, uint32_t left)
{
    static struct codec_room room;
    struct codec c = {
        .reading = true, .words = record + RECORD_HEAD_WORDS, .n = left, .lists = room.lists};
    uint32_t *head = record;
    uint64_t keys = 0, tokens = 0;
    struct event e = {0};

    codec_event(&c, &e, &room);
    for (uint32_t i = 0; !c.bad && i < c.nlists; i++) {
        keys += c.lists[i].nkeys;
        tokens += c.lists[i].n;
    }
    head[1] = c.bad ? head[1] % 1024 & ~1u : (uint32_t)(c.at + 1) & ~1u;
    head[1] = head[1] < left ? head[1] : left & ~1u;
    left -= head[1];
    head[2] = c.bad ? head[2] : (uint32_t)keys;
    head[2] = keys <= UINT32_MAX && head[2] <= left / KEY_WORDS ? head[2] : 0;
    left -= head[2] * (uint32_t)KEY_WORDS;
    head[3] = c.bad ? head[3] : (uint32_t)tokens;
    head[3] = tokens <= UINT32_MAX && head[3] <= left ? head[3] : 0;
    head[0] = (RECORD_HEAD_WORDS + head[1] + head[2] * (uint32_t)KEY_WORDS + head[3] + 1) / 2 * 8;
}

/* Each record's parts end at the latest with the bytes, its kind exists, and time does not run
 * backwards. */
static void right_records(uint8_t *bytes, size_t n)
{
    uint64_t now_ns = 0, at_ns;
    size_t at = HEAD_BYTES;
    uint32_t kind;

    while (n - at >= RECORD_LEAST) {
        uint8_t *body = bytes + at + 4 * RECORD_HEAD_WORDS;
        uint32_t *record = (uint32_t *)(void *)(bytes + at);

        memcpy(&kind, body, sizeof kind);
        if (kind < EV_TIMER || kind >= EV_COUNT)
            kind = EV_TIMER + kind % (EV_COUNT - EV_TIMER);
        memcpy(body, &kind, sizeof kind);
        memcpy(&at_ns, body + TIME_AT, sizeof at_ns);
        at_ns %= CLOCK_MAX;
        if (at_ns < now_ns)
            at_ns = now_ns + at_ns % 1000000000u;
        now_ns = at_ns;
        memcpy(body + TIME_AT, &at_ns, sizeof at_ns);
        right_parts(record, (uint32_t)((n - at) / 8 * 2) - RECORD_HEAD_WORDS);
        at += record[0];
    }
}

/* Makes a tape of the bytes: those too short for a head and a record are padded with zeros. */
static enum tern_err open_made(const uint8_t *data, size_t size, struct tape_reader **ret)
{
    static _Alignas(8) uint8_t tape[TAPE_BYTES_MAX];

    memcpy(tape, data, size);
    if (data[0] == RAW) {
        tape[0] = (uint8_t)TAPE_MAGIC;
        return tape_open(tape, size, ret);
    }
    if (size < HEAD_BYTES + RECORD_LEAST) {
        memset(tape + size, 0, HEAD_BYTES + RECORD_LEAST - size);
        size = HEAD_BYTES + RECORD_LEAST;
    }
    right_head(tape);
    right_records(tape, size);
    return tape_open(tape, size, ret);
}

/* Can its head be played, and its first event read? */
bool fuzz_gets_past(const uint8_t *data, size_t size)
{
    struct tape_reader *reader = NULL;
    struct event e;
    bool ok;

    if (size == 0 || size > TAPE_BYTES_MAX || open_made(data, size, &reader) != TERN_OK)
        return false;
    ok = playable(tape_header(reader)) && next(reader, &e);
    tape_close(reader);
    return ok;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct tape_reader *reader = NULL;
    struct event e;

    fuzz_begin();
    if (size == 0 || size > TAPE_BYTES_MAX || open_made(data, size, &reader) != TERN_OK)
        return 0;
    if (playable(tape_header(reader))) {
        start(tape_header(reader));
        play(reader);
    } else {
        while (next(reader, &e))
            ;
    }
    tape_close(reader);
    return 0;
}
