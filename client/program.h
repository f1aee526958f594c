/* What the programs beside libtern have in common: numbers on the command line, and the signals
 * that end a program which runs until then. */
#ifndef CLIENT_PROGRAM_H
#define CLIENT_PROGRAM_H

#include <argp.h>
#include <errno.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/signalfd.h>

struct number_range {
    uint64_t min, max;
};

/* A wrong command line ends the program: argp_error. */
static inline uint64_t program_number(struct argp_state *state, const char *option, const char *arg,
                                      struct number_range range)
{
    char *end;
    unsigned long long v;

    errno = 0;
    v = strtoull(arg, &end, 10);
    if (*arg < '0' || *arg > '9' || *end || v < range.min || v > range.max || errno)
        argp_error(state, "%s takes a number from %llu to %llu, not '%s'", option,
                   (unsigned long long)range.min, (unsigned long long)range.max, arg);
    return v;
}

/* A descriptor that can be read when the program is to end; -1: there is none, errno says why.
 * Whoever does not read what the program writes ends nothing. */
static inline int program_end_signals(void)
{
    sigset_t set;

    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    sigprocmask(SIG_BLOCK, &set, NULL);
    signal(SIGPIPE, SIG_IGN);
    return signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

#endif
