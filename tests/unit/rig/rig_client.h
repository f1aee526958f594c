/* What the tests of libtern's calls begin with: cmocka, a daemon that the test scripts, and a
 * client that is connected to it. */
#ifndef TEST_RIG_CLIENT_H
#define TEST_RIG_CLIENT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/err.h"
#include "tern.h"
#include "unit/rig/fake_daemon.h"

#define assert_err(want, expr) assert_string_equal(err_name(expr), err_name(want))
#define assert_ok(expr)        assert_err(TERN_OK, expr)

static struct fake fake;

static inline struct tern *start(void (*serve)(struct fake *f), void *ctx)
{
    struct tern *t;

    fake.version = fake.body_max = fake.hello_err = 0;
    fake_start(&fake, serve, ctx);
    assert_ok(tern_connect(fake.path, 2000, &t));
    return t;
}

static inline void stop(struct tern *t)
{
    tern_destroy(t);
    fake_stop(&fake);
}

/* The next answer, within half a minute or so. */
static inline struct tern_answer polled(struct tern *t)
{
    struct tern_answer answer = {0};
    enum tern_err err = TERN_BUSY;

    for (int i = 0; i < 200000 && err == TERN_BUSY; i++) {
        err = tern_poll(t, &answer);
        if (err == TERN_BUSY)
            usleep(100);
    }
    assert_ok(err);
    return answer;
}

#endif
