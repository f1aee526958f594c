/* One engine, a pool of L-token pages and a disk, for tests of the core's disk tier. Header
 * only. */
#ifndef TEST_RIG_DISK_BENCH_H
#define TEST_RIG_DISK_BENCH_H

#include "core/disk/entries.h"
#include "unit/rig/rig_spill.h"
#include "unit/rig/rig_test.h"

struct disk_bench {
    struct rig *rig;
    struct rig_engine e;
    struct pool_id pool;
    struct spill *disk;
    struct rig_options options;
    struct group_layout groups[GROUPS_MAX];
    uint32_t ngroups;
    uint64_t pool_bytes, host_bytes; /* host_bytes 0: the pool has no host tier */
    bool no_audit;
};

/* Starts a daemon over the disk; an engine opens its pool there. */
static inline void disk_bench_start(struct disk_bench *b)
{
    b->options.incarnation++;
    b->rig = rig_create(&b->options);
    b->rig->no_audit = b->no_audit;
    rig_spill(b->rig, b->disk);
    b->rig->host_bytes = b->host_bytes;
    b->e = rig_engine(b->rig, 0, "e", 1);
    assert_ok(rig_pool_open(b->rig, b->e.conn[0], b->groups, b->ngroups, b->pool_bytes, &b->pool));
    assert_ok(rig_map(b->rig, b->e.conn[0], b->pool));
}

/* Ends the daemon at this instant, and starts another one. */
static inline void disk_bench_restart(struct disk_bench *b)
{
    rig_destroy(b->rig);
    disk_bench_start(b);
}

struct disk_shape {
    uint32_t page_tokens, pages, interval; /* pages of the device; D1's interval, 0: 10240 */
    uint64_t page_bytes, budget;
};

static inline struct disk_bench disk_bench(struct disk_shape shape)
{
    struct disk_bench b = {.disk = spill_make(), .options = rig_defaults()};

    spill_limits(&b.options, shape.budget, shape.interval);
    b.groups[0] = rig_group(shape.page_tokens, shape.page_bytes);
    b.ngroups = 1;
    b.pool_bytes = shape.page_bytes * (shape.pages + 1);
    b.options.tenant[0].memory_bytes = b.pool_bytes + (4u << 20);
    b.options.limits.nodes = b.options.limits.pages = 4096;
    b.options.limits.token_blocks = 4096;
    b.options.limits.slabs = 4096;
    b.options.limits.peer_bytes_in_flight = b.options.limits.tenant_bytes_in_flight = 1u << 30;
    disk_bench_start(&b);
    return b;
}

static inline void disk_bench_end(struct disk_bench *b)
{
    rig_destroy(b->rig);
    spill_free(b->disk);
}

static inline struct disk_view disk_seen(const struct disk_bench *b)
{
    struct disk_view v;

    core_disk(b->rig->core, 0, &v);
    return v;
}

/* The entry of that depth. Returns false if there is none. */
static inline bool disk_entry(const struct disk_bench *b, uint32_t depth,
                              struct disk_entry_view *ret)
{
    const struct core *core = b->rig->core;

    for (uint32_t at = tenant_at(core, 0)->disk_entries.head; at != NONE;
         at = disk_entry_list_next(core, at))
        if (core_disk_entry_view(core, at, ret) && ret->depth == depth)
            return true;
    return false;
}

/* The entry that was stored first. */
static inline bool disk_entry_first(const struct disk_bench *b, struct disk_entry_view *ret)
{
    return core_disk_entry_view(b->rig->core, tenant_at(b->rig->core, 0)->disk_entries.head, ret);
}

/* Evicts an entry to make room. */
static inline enum disk_has_room disk_evict(struct disk_bench *b)
{
    struct disk_room any = {.for_it = {.chunk = NONE, .reason = DISK_EVICT}};

    return disk_room_more(b->rig->core, 0, &any);
}

/* Returns the request id of a Store. */
static inline uint64_t disk_store(struct rig_session *s, uint32_t depth)
{
    struct request request = {.op = OP_STORE, .store = {.session = s->id, .depth = depth}};

    rig_request(s->rig, s->conn, &request);
    return request.request_id;
}

static inline enum tern_err disk_stored(struct rig_session *s, uint32_t depth)
{
    const struct reply *r = rig_reply_to(s->rig, disk_store(s, depth));

    return r ? r->err : TERN_BUSY;
}

/* The depth on the disk, by a Match of n tokens. */
static inline uint32_t disk_depth_of(struct disk_bench *b, const uint32_t *tokens, uint32_t n)
{
    struct rig_session *s = rig_session(b->rig, &b->e, b->pool, 1);
    uint32_t depth;

    assert_ok(rig_match(s, tokens, n));
    depth = b->rig->last->match.disk_depth;
    assert_ok(rig_close(s, 0));
    rig_session_free(s);
    return depth;
}

#endif
