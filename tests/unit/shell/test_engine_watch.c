/* The engines that the daemon looks at when ranks ring: those that rang, each once a turn of the
 * loop however often it rang. This file provides the control pages and the core. */
#include <stdlib.h>
#include <string.h>

#define mem_done_step     step_that_is_done
#define mem_want_step     step_is_wanted
#define mem_control_reset page_is_zeroed
#define daemon_event      core_is_told
#define core_engine_view  core_is_asked
#include "../../../daemon/shell/step/engine_watch.c"
#undef mem_done_step
#undef mem_want_step
#undef mem_control_reset
#undef daemon_event
#undef core_engine_view
#include "testing/test.h"

#define ENGINES 3u
#define WORLD   2u

static uint64_t done[ENGINES][WORLD]; /* contents of the pages */
static uint32_t looked, told;
static struct event last;
static struct engine_watch watches[ENGINES];
static struct daemon d;

uint64_t step_that_is_done(struct mem *mem, uint32_t tenant, uint32_t engine, uint32_t rank)
{
    (void)mem, (void)tenant;
    looked++;
    return done[engine][rank];
}

void step_is_wanted(struct mem *mem, uint32_t tenant, uint32_t engine, uint64_t step)
{
    (void)mem, (void)tenant, (void)engine, (void)step;
}

void page_is_zeroed(struct mem *mem, uint32_t tenant, uint32_t engine)
{
    (void)mem, (void)tenant;
    memset(done[engine], 0, sizeof done[engine]);
}

void core_is_told(struct daemon *of, struct event *ev)
{
    assert_ptr_equal(of, &d);
    told++;
    last = *ev;
}

bool core_is_asked(const struct core *core, uint32_t slot, struct engine_view *ret)
{
    (void)core;
    memset(ret, 0, sizeof *ret);
    ret->world = WORLD;
    ret->name[0] = (char)('a' + slot);
    return true;
}

FIXTURE(begin)
{
    memset(&d, 0, sizeof d);
    memset(watches, 0, sizeof watches);
    memset(done, 0, sizeof done);
    d.engines = watches;
    d.limits.engines = ENGINES;
    for (uint32_t i = 0; i < ENGINES; i++)
        engine_watch_begin(&d, (struct engine_id){.slot = i, .gen = 5});
    looked = told = 0;
    return 0;
}

TEST_EACH(begin, NULL);

TEST(e10_the_engine_that_rang_is_looked_at_once)
{
    done[1][1] = 7;
    done[2][0] = 9;
    engine_watch_rung(&d, 1);
    engine_watch_rung(&d, 1);
    engine_watch_hear(&d);
    assert_int_equal(looked, WORLD);
    assert_int_equal(told, 1);
    assert_int_equal(last.kind, EV_STEP_DONE);
    assert_int_equal(last.step_done.engine.slot, 1);
    assert_int_equal(last.step_done.engine.gen, 5);
    assert_int_equal(last.step_done.rank, 1);
    assert_int_equal(last.step_done.step, 7);
    engine_watch_hear(&d); /* nobody has rung since */
    assert_int_equal(looked, WORLD);
    engine_watch_rung(&d, 1);
    engine_watch_hear(&d); /* in vain: nothing has changed */
    assert_int_equal(looked, 2 * WORLD);
    assert_int_equal(told, 1);
}

TEST(e10_an_engine_that_has_ended_is_not_looked_at)
{
    struct config config = {.tenants = {{.name = "t"}}};

    d.config = &config;
    done[0][0] = 3;
    engine_watch_rung(&d, 0);
    assert_true(engine_watch_end(&d, (struct engine_id){.slot = 0, .gen = 5}));
    engine_watch_hear(&d);
    assert_int_equal(looked + told, 0);
}
