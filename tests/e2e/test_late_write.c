/* Fault 4: a process continues to write into a control page after its engine has left: it kept a
 * mapping. The next engine in that slot is another tenant's. If both had the same page, the late
 * write would count as the next engine's steps, and pages that its device still writes would be
 * allocated again. The next engine of the same tenant must not start with the late writes
 * either. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "engine/engine.h"
#include "rig_daemon.h"
#include "testing/test.h"

#define L             64
#define CONTROL_BYTES 4096
#define TENANTS       2
#define RUNS          8 /* the slot alternates between the tenants that often */
#define STEP          5

static struct daemon rig;
static char sockets[TENANTS][SPAWN_PATH_BYTES];

/* An engine gets the first free slot, so one slot goes from tenant to tenant. */
static void start(void)
{
    rig_start_two(&rig, sockets[1], "limits:\n  engines: 2\n");
    memcpy(sockets[0], rig.socket, sizeof rig.socket);
}

static void stop(void)
{
    assert_int_equal(rig_stop(&rig), 0);
}

/* Returns a second mapping of this process's one control page, unknown to libtern. */
static volatile uint64_t *control_kept(void)
{
    FILE *f = fopen("/proc/self/maps", "r");
    char line[512];
    void *at = NULL, *kept;

    assert_non_null(f);
    while (fgets(line, sizeof line, f))
        if (strstr(line, "memfd:tern-control")) {
            assert_null(at);
            at = (void *)(uintptr_t)strtoull(line, NULL, 16);
        }
    fclose(f);
    assert_non_null(at);
    kept = mremap(at, 0, CONTROL_BYTES, MREMAP_MAYMOVE);
    assert_ptr_not_equal(kept, MAP_FAILED);
    return kept;
}

/* Returns a session with room for many tokens; their values do not matter. */
static struct engine_session session(struct engine *e)
{
    static uint32_t tokens[64 * L];
    struct engine_session s;

    assert_ok(e->tern, engine_begin_with(&s, e, tokens, 0, 64 * L));
    return s;
}

static void close_session(struct engine_session *s, uint64_t step)
{
    s->engine->step = step;
    assert_ok(s->engine->tern, engine_end(s));
}

/* All pages of the engine wait for its step, `late` is written, and they must still wait. Returns
 * true if they do not. Late writes by the engine's own tenant in the previous run have no effect:
 * the engine's steps begin at 0. */
static bool handed_out_early(struct engine *e, volatile uint64_t *late)
{
    struct engine_session s = session(e);
    uint32_t all;
    bool early;

    assert_int_equal(engine_extend(&s, 1024 * L, 0), TERN_QUOTA); /* it has the free pages */
    all = s.last.shortage.free * L;
    assert_ok(e->tern, engine_extend(&s, all, 0));
    close_session(&s, STEP);
    *late = 1000;
    s = session(e);
    early = engine_extend(&s, all, 0) != TERN_POOL_EXHAUSTED; /* a request reads done_step */
    if (!early)
        assert_int_equal(s.last.shortage.until_step, STEP);
    assert_ok(e->tern, tern_done_step(e->map, STEP));
    if (!early)
        assert_ok(e->tern, engine_extend(&s, all, 0));
    close_session(&s, 0);
    return early;
}

TEST(fault_4_a_late_write_stays_inside_its_tenant)
{
    uint32_t early = 0, tenant = 0;
    volatile uint64_t *late;
    struct engine e;

    start();
    for (uint32_t run = 0; run < RUNS; run++, tenant = !tenant) {
        e = rig_engine(sockets[tenant], "e", L, 64 * RIG_PAGE);
        late = control_kept();
        engine_close(&e);
        e = rig_engine(sockets[!tenant], "e", L, 64 * RIG_PAGE);
        early += handed_out_early(&e, late);
        engine_close(&e);
        munmap((void *)(uintptr_t)late, CONTROL_BYTES);
    }
    printf("fault=4 runs=%d injected=%d violations=%u cross_tenant_bytes=%u\n", RUNS, RUNS, early,
           early * 8);
    assert_int_equal(early, 0);
    stop();
}
