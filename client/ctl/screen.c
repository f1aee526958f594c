/* See screen.h. */
#include "screen.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

#define KEY_CTRL_C      3
#define ROWS_DEFAULT    24 /* for a terminal of unknown size */
#define COLUMNS_DEFAULT 80

/* Switches to the alternate screen without cursor and line wrap, and back. */
#define ENTER "\033[?1049h\033[?25l\033[?7l"
#define LEAVE "\033[?7h\033[?25h\033[?1049l"

static struct termios before;
static int signals = -1;
static bool on;

static int end_and_resize_signals(void)
{
    sigset_t set;

    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGHUP);
    sigaddset(&set, SIGWINCH);
    sigprocmask(SIG_BLOCK, &set, NULL);
    return signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

bool screen_begin(void)
{
    struct termios keys;

    if (!isatty(STDOUT_FILENO) || tcgetattr(STDIN_FILENO, &before) != 0)
        return false;
    signals = end_and_resize_signals();
    if (signals < 0)
        return false;
    on = true;
    atexit(screen_end);
    keys = before;
    keys.c_lflag &= ~(tcflag_t)(ICANON | ECHO | ISIG);
    keys.c_cc[VMIN] = 1;
    keys.c_cc[VTIME] = 0;
    tcsetattr(STDIN_FILENO, TCSAFLUSH, &keys);
    fputs(ENTER, stdout);
    fflush(stdout);
    return true;
}

void screen_end(void)
{
    if (!on)
        return;
    on = false;
    fputs(LEAVE, stdout);
    fflush(stdout);
    tcsetattr(STDIN_FILENO, TCSAFLUSH, &before);
}

struct screen_size screen_size(void)
{
    struct winsize w = {0};
    struct screen_size size = {ROWS_DEFAULT, COLUMNS_DEFAULT};

    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &w) == 0 && w.ws_row > 0 && w.ws_col > 0)
        size = (struct screen_size){w.ws_row, w.ws_col};
    size.rows = size.rows < SCREEN_ROWS_MIN ? SCREEN_ROWS_MIN : size.rows;
    size.columns = size.columns < SCREEN_COLUMNS_MIN ? SCREEN_COLUMNS_MIN : size.columns;
    return size;
}

/* Each line is cleared before it is written: clearing after a line of full width would clear its
 * last letter. */
void screen_show(const char *text)
{
    fputs("\033[H", stdout);
    while (*text) {
        size_t n = strcspn(text, "\n");

        printf("\033[2K%.*s", (int)n, text);
        text += n + (text[n] == '\n');
        if (*text)
            fputs("\r\n", stdout);
    }
    /* Clear the rest of a longer earlier screen. */
    fputs("\r\n\033[J", stdout);
    fflush(stdout);
}

static uint64_t now_ms(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000 + (uint64_t)ts.tv_nsec / 1000000;
}

/* Reads all keys that were pressed. */
static bool end_was_pressed(void)
{
    char keys[64];
    ssize_t n = read(STDIN_FILENO, keys, sizeof keys);

    for (ssize_t i = 0; i < n; i++) {
        if (keys[i] == 'q' || keys[i] == KEY_CTRL_C)
            return true;
    }
    return n == 0 || (n < 0 && errno != EINTR);
}

enum screen_heard screen_wait(uint32_t ms)
{
    struct pollfd fds[] = {{.fd = STDIN_FILENO, .events = POLLIN},
                           {.fd = signals, .events = POLLIN}};
    uint64_t end = now_ms() + ms, now;
    struct signalfd_siginfo info;

    while ((now = now_ms()) < end) {
        if (poll(fds, 2, (int)(end - now)) <= 0)
            continue;
        if (fds[0].revents && end_was_pressed())
            return SCREEN_END;
        if (fds[1].revents && read(signals, &info, sizeof info) == sizeof info)
            return info.ssi_signo == SIGWINCH ? SCREEN_RESIZED : SCREEN_END;
    }
    return SCREEN_TIME;
}
