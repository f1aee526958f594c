/* Engines side by side on a tenant of 8 regions, and an engine of 64 ranks, through a real daemon.
 * The ranks name their devices; each engine has all the memory of its regions. Every rank is a
 * connection of this process. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/proc.h"
#include "rig_daemon.h"
#include "tern.h"
#include "testing/test.h"

#define REGIONS   8
#define CALL_MS   10000
#define PAGE      4096u
#define WHOLE     (4u << 20) /* of a region */
#define RANKS_ALL TERN_RANKS_MAX

struct apart {
    uint32_t world;
    struct tern *rank[RANKS_ALL];
    struct tern_pool *map[RANKS_ALL];
    uint64_t pool;
};

static char dir[64];
static struct daemon d;

/* `devices`: the regions are named gpu-0 and so on, instead of by their index. */
static void daemon_up(uint32_t regions, bool devices)
{
    const struct daemon_launch how = {.core = -1, .says_ready = true};
    char why[SPAWN_WHY_BYTES] = "";
    FILE *f;

    assert_true(tempdir_make(dir, sizeof dir, "tern-e2e"));
    daemon_place(&d, dir, "regions");
    f = fopen(d.config, "w");
    assert_non_null(f);
    fprintf(f,
            "node: regions\nadmin: {socket: %s}\npage_bytes_min: %u\n"
            "tenants:\n  - {name: t, socket: %s, memory: %u, regions: %u",
            d.admin, PAGE, d.socket, WHOLE, regions);
    for (uint32_t i = 0; devices && i < regions; i++)
        fprintf(f, "%sgpu-%u", i ? "+" : ", devices: ", i);
    fprintf(f, "}\n");
    assert_int_equal(fclose(f), 0);
    if (!daemon_launch(&d, &how, why))
        fail_msg("%s", why);
}

FIXTURE(set_up)
{
    d.pid = -1;
    return 0;
}

FIXTURE(tear_down)
{
    proc_end(&d.pid);
    tempdir_remove(dir);
    return 0;
}

/* Joins rank r on device gpu-(first + r); without naming one if first is UINT32_MAX. */
static void join(struct apart *e, const char *name, uint32_t world, uint32_t first)
{
    char device[16];

    memset(e, 0, sizeof *e);
    e->world = world;
    for (uint32_t r = 0; r < world; r++) {
        snprintf(device, sizeof device, "gpu-%u", first + r);
        assert_ok(NULL, tern_connect(d.socket, CALL_MS, &e->rank[r]));
        assert_ok(e->rank[r], tern_join(e->rank[r], name, r ? TERN_WORKER : TERN_BOTH, r, world,
                                        first == UINT32_MAX ? NULL : device, CALL_MS));
    }
}

/* Opens a pool of all memory of its regions; freed memory is being zeroed meanwhile. */
static enum tern_err pool_open(struct apart *e)
{
    struct tern_group kv = {.name = "kv", .page_tokens = 64, .page_bytes = PAGE};
    struct tern_layout layout = {.groups = &kv, .ngroups = 1, .bytes = WHOLE};
    enum tern_err err = TERN_BUSY;

    for (uint64_t end_ms = rig_now_ms() + RIG_WAIT_MS; err == TERN_BUSY && rig_now_ms() < end_ms;) {
        err = tern_pool_open(e->rank[0], &layout, CALL_MS, &e->pool, NULL);
        usleep(err == TERN_BUSY ? 1000 : 0);
    }
    return err;
}

static void pool_map(struct apart *e)
{
    for (uint32_t r = 0; r < e->world; r++) {
        assert_ok(e->rank[r], tern_pool_map(e->rank[r], e->pool, CALL_MS, &e->map[r]));
        assert_int_equal(tern_pool_info(e->map[r])->bytes, WHOLE);
    }
}

static uint64_t word_of(uint32_t engine, uint32_t rank, uint64_t at)
{
    return (uint64_t)(engine + 1) << 56 | (uint64_t)rank << 48 | at;
}

/* Compares every byte of every rank. The words are of `engine`, or 0 if nobody has written yet. */
static void holds(const struct apart *e, uint32_t engine, bool zero)
{
    for (uint32_t r = 0; r < e->world; r++) {
        const uint64_t *words = (const uint64_t *)(const void *)tern_pool_info(e->map[r])->base;

        for (uint64_t i = 0; i < WHOLE / sizeof *words; i++)
            if (words[i] != (zero ? 0 : word_of(engine, r, i)))
                fail_msg("engine %u rank %u word %llu is %llx", engine, r, (unsigned long long)i,
                         (unsigned long long)words[i]);
    }
}

static void fill(const struct apart *e, uint32_t engine)
{
    for (uint32_t r = 0; r < e->world; r++) {
        uint64_t *words = (uint64_t *)(void *)tern_pool_info(e->map[r])->base;

        for (uint64_t i = 0; i < WHOLE / sizeof *words; i++)
            words[i] = word_of(engine, r, i);
    }
}

static void end(struct apart *e)
{
    for (uint32_t r = 0; r < e->world; r++)
        tern_destroy(e->rank[r]);
}

/* The operators' view: for each open pool the device of rank 0 and that of its last rank. */
static void shown(uint32_t engines, uint32_t first, uint32_t world)
{
    struct tern *admin;
    const char *json;
    char from[24], to[24];

    assert_ok(NULL, tern_connect(d.admin, CALL_MS, &admin));
    assert_ok(admin, tern_admin(admin, "pools", NULL, 0, CALL_MS, &json));
    for (uint32_t i = 0; i < engines; i++) {
        snprintf(from, sizeof from, "[\"gpu-%u\"", first + i * world);
        snprintf(to, sizeof to, "\"gpu-%u\"]", first + i * world + world - 1);
        assert_non_null(strstr(json, from));
        assert_non_null(strstr(json, to));
    }
    tern_destroy(admin);
}

/* Runs `engines` engines of that world on consecutive devices from gpu-`first` on, all at once,
 * each with all its memory, in pages of the smallest size. One more engine has no room beside the
 * last. */
static void side_by_side(uint32_t engines, uint32_t world, uint32_t first)
{
    struct apart e[REGIONS], more;
    char name[16];

    for (uint32_t i = 0; i < engines; i++) {
        snprintf(name, sizeof name, "e%u-%u", world, i);
        join(&e[i], name, world, first + i * world);
        assert_ok(e[i].rank[0], pool_open(&e[i]));
        pool_map(&e[i]);
        holds(&e[i], i, true);
        fill(&e[i], i);
    }
    shown(engines, first, world);
    join(&more, "more", world, first + (engines - 1) * world);
    assert_err(TERN_QUOTA, pool_open(&more));
    for (uint32_t i = 0; i < engines; i++)
        holds(&e[i], i, false);
    end(&more);
    for (uint32_t i = 0; i < engines; i++)
        end(&e[i]);
}

TEST_WITH(regions_engines_of_1_4_and_8_ranks_live_side_by_side, set_up, tear_down)
{
    daemon_up(REGIONS, true);
    side_by_side(2, 1, 3);
    side_by_side(2, 4, 0);
    side_by_side(1, 8, 0);
    side_by_side(8, 1, 0);
}

TEST_WITH(regions_a_device_that_is_none_or_anothers_is_refused, set_up, tear_down)
{
    struct tern *t, *second;
    struct apart e;

    daemon_up(2, true);
    assert_ok(NULL, tern_connect(d.socket, CALL_MS, &t));
    assert_ok(NULL, tern_connect(d.socket, CALL_MS, &second));
    assert_err(TERN_INVALID, tern_join(t, "e", TERN_BOTH, 0, 2, "gpu-2", CALL_MS));
    assert_err(TERN_INVALID, tern_join(t, "e", TERN_BOTH, 0, 2, "0", CALL_MS));
    assert_ok(t, tern_join(t, "e", TERN_BOTH, 0, 2, "gpu-1", CALL_MS));
    assert_err(TERN_CONFLICT, tern_join(second, "e", TERN_WORKER, 1, 2, "gpu-1", CALL_MS));
    assert_err(TERN_CONFLICT, tern_join(second, "e", TERN_WORKER, 1, 2, NULL, CALL_MS));
    assert_ok(second, tern_join(second, "e", TERN_WORKER, 1, 2, "gpu-0", CALL_MS));
    tern_destroy(second);
    tern_destroy(t);
    join(&e, "plain", 2, UINT32_MAX);
    assert_ok(e.rank[0], pool_open(&e));
    end(&e);
}

TEST_WITH(regions_64_ranks_join_map_and_step, set_up, tear_down)
{
    struct apart e;

    daemon_up(RANKS_ALL, false);
    join(&e, "wide", RANKS_ALL, UINT32_MAX);
    assert_ok(e.rank[0], pool_open(&e));
    pool_map(&e);
    fill(&e, 0);
    for (uint32_t r = 0; r < RANKS_ALL; r++)
        assert_ok(e.rank[r], tern_done_step(e.map[r], r + 1));
    holds(&e, 0, false);
    end(&e);
}
