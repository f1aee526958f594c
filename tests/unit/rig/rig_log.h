/* The log in a file of the test, with a clock that the test sets. Header only. */
#ifndef TEST_RIG_LOG_H
#define TEST_RIG_LOG_H

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "shell/log/log.h"
#include "testing/test.h"

static uint64_t clock_ns;
static int log_fd;

static inline uint64_t test_clock(void)
{
    return clock_ns;
}

static inline void log_start(enum log_level level)
{
    char path[] = "/tmp/tern-log-XXXXXX";

    log_fd = mkstemp(path);
    assert_true(log_fd >= 0);
    unlink(path);
    log_init(level, log_fd, test_clock);
}

static inline int log_stop(void)
{
    log_init(LEVEL_INFO, STDERR_FILENO, NULL);
    return close(log_fd);
}

static inline const char *logged_so_far(void)
{
    static char text[1 << 16];
    ssize_t n = pread(log_fd, text, sizeof text - 1, 0);

    text[n < 0 ? 0 : n] = '\0';
    return text;
}

/* Everything since the last call. */
static inline const char *logged(void)
{
    const char *text = logged_so_far();

    assert_int_equal(ftruncate(log_fd, 0), 0);
    assert_int_equal(lseek(log_fd, 0, SEEK_SET), 0);
    return text;
}

#endif
