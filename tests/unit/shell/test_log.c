/* Log lines: their form, quoting, and the number of lines of one kind. */
#include <string.h>

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include "unit/rig/rig_log.h"

FIXTURE(setup)
{
    clock_ns = 1234567890;
    log_start(LEVEL_INFO);
    return 0;
}

FIXTURE(teardown)
{
    return log_stop();
}

static uint32_t count_lines(const char *text)
{
    uint32_t n = 0;

    for (; *text != '\0'; text++)
        n += *text == '\n';
    return n;
}

TEST_WITH(log_line_has_its_form, setup, teardown)
{
    logged();
    log_event(LEVEL_WARN, "conn_closed", "conn=%u reason=%s bytes=%zu left=%d " LOG_TRACE, 7u,
              "half_frame", (size_t)12, -3, (uint64_t)0xabc);
    assert_string_equal(
        logged(),
        "ts=1.234567 level=warn event=conn_closed conn=7 reason=half_frame bytes=12 left=-3 "
        "trace=0000000000000abc\n");
}

TEST_WITH(log_values_that_would_break_the_line_are_quoted, setup, teardown)
{
    const char *text;

    logged();
    log_event(LEVEL_INFO, "values", "a=%s b=%s c=%s d=%s e=%s", "two words", "", "x=y", "a\"b\\c",
              "one\nlevel=error");
    text = logged();
    assert_non_null(strstr(
        text, "a=\"two words\" b=\"\" c=\"x=y\" d=\"a\\\"b\\\\c\" e=\"one\\x0alevel=error\"\n"));
    assert_int_equal(count_lines(text), 1);
}

TEST_WITH(log_names_keep_their_letters_and_cannot_steer, setup, teardown)
{
    char value[LOG_LINE_MAX + 1];
    size_t end;

    logged();
    log_event(LEVEL_INFO, "names", "a=%s b=%s c=%s", "Zo\xc3\xab", "\xe2\x80\xae",
              "\xc2\x9b\xff\x1b");
    assert_non_null(strstr(logged(), "a=\"Zo\xc3\xab\" b=\"\\u202e\" c=\"\\u009b\\xff\\x1b\"\n"));
    for (size_t shift = 0; shift < 2; shift++) { /* a full line ends at a whole letter */
        const char *text;

        memset(value, 'v', sizeof value);
        for (size_t i = shift; i + 2 < sizeof value; i += 2)
            memcpy(value + i, "\xc3\xab", 2);
        value[sizeof value - 1 - (sizeof value - 1 - shift) % 2] = '\0';
        log_event(LEVEL_INFO, "cut", "a=%s", value);
        text = logged();
        end = strlen(text) - strlen("...\n");
        assert_string_equal(text + end, "...\n");
        assert_true((unsigned char)text[end - 1] == 0xab);
    }
}

TEST_WITH(log_above_its_level_is_silent, setup, teardown)
{
    logged();
    log_event(LEVEL_DEBUG, "detail", "a=%d", 1);
    assert_string_equal(logged(), "");
    log_event(LEVEL_ERROR, "bad", "a=%d", 1);
    assert_int_equal(count_lines(logged()), 1);
}

TEST_WITH(log_long_line_is_cut_and_ended, setup, teardown)
{
    char value[4096];
    const char *text;

    memset(value, 'v', sizeof value - 1);
    value[sizeof value - 1] = '\0';
    logged();
    log_event(LEVEL_INFO, "long", "a=%s b=%s", value, value);
    text = logged();
    assert_int_equal(strlen(text), LOG_LINE_MAX);
    assert_string_equal(text + LOG_LINE_MAX - 4, "...\n");
}

TEST_WITH(log_event_that_repeats_is_cut_off_and_counted, setup, teardown)
{
    const char *text;

    logged();
    for (int i = 0; i < 1000; i++)
        log_event(LEVEL_INFO, "noisy", "i=%d", i);
    assert_int_equal(count_lines(logged()), LOG_BURST);
    assert_int_equal(log_suppressed(), 1000 - LOG_BURST);
    log_event(LEVEL_INFO, "other", "i=%d", 1); /* another event is unaffected */
    assert_int_equal(count_lines(logged()), 1);

    clock_ns += 1000000000;
    for (int i = 0; i < 1000; i++)
        log_event(LEVEL_INFO, "noisy", "i=%d", i);
    text = logged();
    assert_int_equal(count_lines(text), LOG_PER_SECOND);
    assert_non_null(strstr(text, "event=noisy suppressed=980 i=0\n"));
    assert_null(strstr(text, "suppressed=0"));

    clock_ns += (uint64_t)3600 * 1000000000; /* the allowance is full again, and no larger */
    for (int i = 0; i < 1000; i++)
        log_event(LEVEL_INFO, "noisy", "i=%d", i);
    assert_int_equal(count_lines(logged()), LOG_BURST);
}

/* Events that clients cause at a lower level suppress no line that an operator waits for. */
TEST_WITH(log_levels_of_one_event_have_allowances_of_their_own, setup, teardown)
{
    log_init(LEVEL_DEBUG, log_fd, test_clock);
    for (int i = 0; i < 100; i++)
        log_event(LEVEL_DEBUG, "conn_closed", "i=%d", i);
    logged();
    log_event(LEVEL_INFO, "conn_closed", "i=%d", 100);
    assert_non_null(strstr(logged(), "level=info event=conn_closed i=100\n"));
    assert_int_equal(log_suppressed(), 100 - LOG_BURST);
}

TEST_WITH(log_more_events_than_it_counts_share_one_allowance, setup, teardown)
{
    static char names[LOG_EVENTS_MAX + 200][24];

    logged();
    for (int i = 0; i < LOG_EVENTS_MAX + 200; i++) {
        snprintf(names[i], sizeof names[i], "event_%d", i);
        log_event(LEVEL_INFO, names[i], "i=%d", i);
    }
    assert_int_equal(count_lines(logged()), LOG_EVENTS_MAX + LOG_BURST);
}

TEST(log_level_names_are_read_back)
{
    enum log_level level;

    for (int i = LEVEL_ERROR; i <= LEVEL_DEBUG; i++) {
        assert_true(log_level_parse(log_level_name((enum log_level)i), &level));
        assert_int_equal(level, i);
    }
    assert_false(log_level_parse("loud", &level));
}

/* Reads all that is in the pipe or socket now. */
static size_t drained(int fd, char *text, size_t bytes)
{
    size_t n = 0;
    ssize_t got;

    while (n < bytes - 1 && (got = read(fd, text + n, bytes - 1 - n)) > 0)
        n += (size_t)got;
    text[n] = '\0';
    return n;
}

/* The reader has stopped: nobody waits for it, every line is whole or missing, and the first one
 * that comes through has the number of missing lines. */
static void expect_no_wait(int reader, int writer)
{
    static char text[1 << 20];
    char value[512], *last, expected[64];
    uint32_t written_lines, all = 0;

    assert_int_equal(fcntl(reader, F_SETFL, O_NONBLOCK), 0);
    log_init(LEVEL_INFO, writer, test_clock);
    memset(value, 'v', sizeof value - 1);
    value[sizeof value - 1] = '\0';
    for (; all < 5000; all++, clock_ns += 1000000000u)
        log_event(LEVEL_INFO, "many", "i=%u a=%s", all, value);
    drained(reader, text, sizeof text);
    written_lines = count_lines(text);
    assert_true(written_lines > 10);
    assert_int_equal(log_lost(), all - written_lines);
    assert_true(log_lost() > 0);
    log_event(LEVEL_INFO, "again", "a=1");
    drained(reader, text, sizeof text);
    snprintf(expected, sizeof expected, " event=again lost=%u a=1\n", all - written_lines);
    last = strstr(text, " event=again");
    assert_non_null(last);
    assert_string_equal(last, expected);
    log_event(LEVEL_INFO, "again", "a=2");
    drained(reader, text, sizeof text);
    assert_null(strstr(text, "lost="));
}

TEST_WITH(log_waits_for_no_reader_of_a_pipe, setup, teardown)
{
    int fd[2];

    assert_int_equal(pipe(fd), 0);
    alarm(20);
    expect_no_wait(fd[0], fd[1]);
    alarm(0);
    close(fd[0]);
    close(fd[1]);
}

TEST_WITH(log_waits_for_no_reader_of_a_socket, setup, teardown)
{
    int fd[2];

    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fd), 0);
    alarm(20);
    expect_no_wait(fd[0], fd[1]);
    alarm(0);
    close(fd[0]);
    close(fd[1]);
}

/* A full disk takes a part of a line: the next one begins on a new line. */
TEST_WITH(log_line_that_was_cut_short_is_lost_and_ended, setup, teardown)
{
    struct rlimit limit, old;
    const char *text;

    logged();
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    limit = old;
    limit.rlim_cur = 10;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    log_event(LEVEL_INFO, "first", "a=1");
    log_event(LEVEL_INFO, "second", "a=1");
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
    assert_int_equal(log_lost(), 2);
    log_event(LEVEL_INFO, "third", "a=1");
    text = logged();
    assert_int_equal(count_lines(text), 2);
    assert_memory_equal(text, "ts=1.23456\nts=", 14);
    assert_non_null(strstr(text, "event=third lost=2 a=1\n"));
}
