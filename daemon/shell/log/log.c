/* Each event is one line, built in a buffer on the stack and written by one call, so that lines of
 * several processes on one terminal don't mix. Each event name has an allowance (a token bucket)
 * per level: LOG_BURST lines at once, then LOG_PER_SECOND. Lines beyond the allowance are counted,
 * and the event's next written line has the count. Invariant: no thread waits for the reader: a
 * line without room is lost and counted. A pipe that poll calls writable has room for PIPE_BUF
 * bytes, so the write does not block. */
#include "shell/log/log.h"

#include <assert.h>
#include <limits.h>
#include <poll.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "proto/shown.h"

static_assert(LOG_LINE_MAX < PIPE_BUF, "a line fits into a pipe that has room");

#define SECOND_NS     1000000000u
#define LINE_COST     (SECOND_NS / LOG_PER_SECOND) /* the allowance is counted in nanoseconds */
#define ALLOWANCE_MAX ((uint64_t)LINE_COST * LOG_BURST)
#define SPEC_MAX      24 /* one conversion: %, flags, width, length, letter */

struct bucket {
    const char *event; /* NULL: the bucket is unused */
    enum log_level level;
    uint64_t allowance_ns, seen_ns, suppressed;
};

static struct {
    enum log_level most;
    int fd;
    bool is_socket, torn; /* torn: the last line was written in part */
    uint64_t (*now_ns)(void);
    uint64_t suppressed, lost, lost_told;
    struct bucket bucket[LOG_EVENTS_MAX + 1]; /* the last one is for events without a bucket */
} logger = {.most = LEVEL_INFO, .fd = STDERR_FILENO};

struct line {
    char text[LOG_LINE_MAX];
    size_t len;
};

static const char *const level_names[] = {"error", "warn", "info", "debug"};

enum tern_err fail_with(char *why, size_t cap, enum tern_err err, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    vsnprintf(why, cap, format, args);
    va_end(args);
    return err;
}

const char *log_level_name(enum log_level level)
{
    return (size_t)level < sizeof level_names / sizeof *level_names ? level_names[level]
                                                                    : "unknown";
}

bool log_level_parse(const char *name, enum log_level *ret)
{
    for (size_t i = 0; i < sizeof level_names / sizeof *level_names; i++)
        if (strcmp(name, level_names[i]) == 0) {
            *ret = (enum log_level)i;
            return true;
        }
    return false;
}

void log_init(enum log_level most, int fd, uint64_t (*now_ns)(void))
{
    struct stat st;

    memset(&logger, 0, sizeof logger);
    logger.most = most;
    logger.fd = fd;
    logger.is_socket = fstat(fd, &st) == 0 && S_ISSOCK(st.st_mode);
    logger.now_ns = now_ns;
}

void log_level_set(enum log_level most)
{
    logger.most = most;
}

uint64_t log_suppressed(void)
{
    return logger.suppressed;
}

uint64_t log_lost(void)
{
    return logger.lost;
}

/* Lines show CLOCK_REALTIME, to compare hosts; allowances use CLOCK_MONOTONIC. */
static uint64_t now(clockid_t clock)
{
    struct timespec t;

    if (logger.now_ns != NULL)
        return logger.now_ns();
    clock_gettime(clock, &t);
    return (uint64_t)t.tv_sec * SECOND_NS + (uint64_t)t.tv_nsec;
}

static struct bucket *bucket_of(enum log_level level, const char *event, uint64_t now_ns)
{
    uint32_t i = 0;

    while (i < LOG_EVENTS_MAX && logger.bucket[i].event != NULL &&
           (logger.bucket[i].level != level || strcmp(logger.bucket[i].event, event) != 0))
        i++;
    if (logger.bucket[i].event == NULL)
        logger.bucket[i] = (struct bucket){
            .event = event, .level = level, .allowance_ns = ALLOWANCE_MAX, .seen_ns = now_ns};
    return &logger.bucket[i];
}

/* Returns true if this line may be written; *ret_suppressed is then the number of lines suppressed
 * before it. */
static bool admitted(enum log_level level, const char *event, uint64_t now_ns,
                     uint64_t *ret_suppressed)
{
    struct bucket *b = bucket_of(level, event, now_ns);
    uint64_t idle_ns = now_ns - b->seen_ns;

    b->seen_ns = now_ns;
    b->allowance_ns =
        idle_ns >= ALLOWANCE_MAX - b->allowance_ns ? ALLOWANCE_MAX : b->allowance_ns + idle_ns;
    if (b->allowance_ns < LINE_COST) {
        b->suppressed++;
        logger.suppressed++;
        return false;
    }
    b->allowance_ns -= LINE_COST;
    *ret_suppressed = b->suppressed;
    b->suppressed = 0;
    return true;
}

static void put_char(struct line *l, char c)
{
    if (l->len < sizeof l->text)
        l->text[l->len++] = c;
}

static void put_text(struct line *l, const char *text)
{
    while (*text != '\0')
        put_char(l, *text++);
}

/* Writes a plain word unchanged. Writes any other value in quotes, and escapes quotes, backslashes
 * and unprintable bytes. */
static void put_value(struct line *l, const char *value)
{
    const size_t plain = shown_plain(value, " \"=\\");
    char quoted[sizeof l->text];

    if (plain > 0 && value[plain] == '\0') {
        put_text(l, value);
        return;
    }
    put_char(l, '"');
    put_text(l, shown_quoted(quoted, sizeof quoted, value));
    put_char(l, '"');
}

/* Reads the integer argument of a conversion, by the conversion's length, and widens it. */
static uint64_t take_integer(const char *lengths, bool is_signed, va_list *args)
{
    if (strcmp(lengths, "ll") == 0 || strcmp(lengths, "j") == 0)
        return is_signed ? (uint64_t)va_arg(*args, long long) : va_arg(*args, unsigned long long);
    if (strcmp(lengths, "l") == 0)
        return is_signed ? (uint64_t)va_arg(*args, long) : va_arg(*args, unsigned long);
    if (strcmp(lengths, "z") == 0)
        return is_signed ? (uint64_t)va_arg(*args, ptrdiff_t) : va_arg(*args, size_t);
    return is_signed ? (uint64_t)(int64_t)va_arg(*args, int) : va_arg(*args, unsigned);
}

/* Writes the conversion at `f`, after the %. Returns the rest of the format, or NULL for a form
 * that log.h does not allow. */
static const char *put_conversion(struct line *l, const char *f, va_list *args)
{
    char spec[SPEC_MAX + 4] = "%", text[64], lengths[3] = "";
    size_t flags = strspn(f, "0-+# 123456789"), letters = strspn(f + flags, "hlzj");
    char letter = f[flags + letters];

    if (flags > SPEC_MAX / 2 || letters > 2)
        return NULL;
    memcpy(spec + 1, f, flags);
    memcpy(lengths, f + flags, letters);
    if (letter == '%') {
        put_char(l, '%');
    } else if (letter == 's') {
        const char *value = va_arg(*args, const char *);

        put_value(l, value == NULL ? "(null)" : value);
    } else if (letter == 'c') {
        put_value(l, (const char[]){(char)va_arg(*args, int), '\0'});
    } else if (letter != '\0' && strchr("diuxX", letter) != NULL) {
        bool is_signed = letter == 'd' || letter == 'i';

        strcat(spec, (const char[]){'j', letter, '\0'});
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral" /* built from a checked part of the format */
        snprintf(text, sizeof text, spec, take_integer(lengths, is_signed, args));
#pragma GCC diagnostic pop
        put_text(l, text);
    } else {
        return NULL;
    }
    return f + flags + letters + 1;
}

static void put_format(struct line *l, const char *format, va_list *args)
{
    while (*format != '\0') {
        if (*format != '%') {
            put_char(l, *format++);
            continue;
        }
        format = put_conversion(l, format + 1, args);
        if (format == NULL) {
            put_text(l, "format_error"); /* further arguments cannot be located */
            return;
        }
    }
}

static void end_line(struct line *l)
{
    static const char cut[] = "...";

    if (l->len >= sizeof l->text) {
        l->len = sizeof l->text - sizeof cut;
        while (((unsigned char)l->text[l->len] & 0xc0) == 0x80)
            l->len--; /* do not split a character */
        put_text(l, cut);
    }
    put_char(l, '\n');
}

/* Returns false if the line was not written completely. */
static bool put_line(const struct line *l)
{
    struct pollfd p = {.fd = logger.fd, .events = POLLOUT};
    ssize_t n = -1;

    if (logger.is_socket)
        n = send(logger.fd, l->text, l->len, MSG_DONTWAIT | MSG_NOSIGNAL);
    else if (poll(&p, 1, 0) == 1 && p.revents & POLLOUT)
        n = write(logger.fd, l->text, l->len);
    if (n > 0)
        logger.torn = (size_t)n < l->len;
    return n == (ssize_t)l->len;
}

static void put_count(struct line *l, const char *name, uint64_t n)
{
    char text[48];

    if (n == 0)
        return;
    snprintf(text, sizeof text, " %s=%" PRIu64, name, n);
    put_text(l, text);
}

void log_event(enum log_level level, const char *event, const char *format, ...)
{
    struct line l = {.len = 0};
    uint64_t now_ns, suppressed = 0;
    char head[96];
    va_list args;

    if (level > logger.most || !admitted(level, event, now(CLOCK_MONOTONIC), &suppressed))
        return;
    now_ns = now(CLOCK_REALTIME);
    if (logger.torn)
        put_char(&l, '\n');
    snprintf(head, sizeof head, "ts=%" PRIu64 ".%06" PRIu64 " level=%s event=", now_ns / SECOND_NS,
             now_ns % SECOND_NS / 1000, log_level_name(level));
    put_text(&l, head);
    put_text(&l, event);
    put_count(&l, "suppressed", suppressed);
    put_count(&l, "lost", logger.lost - logger.lost_told);
    if (*format != '\0')
        put_char(&l, ' ');
    va_start(args, format);
    put_format(&l, format, &args);
    va_end(args);
    end_line(&l);
    if (put_line(&l))
        logger.lost_told = logger.lost;
    else
        logger.lost++;
}
