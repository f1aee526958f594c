/* Structured log lines on standard error: `ts=<seconds since 1970, UTC> level=info
 * event=conn_closed conn=7 reason="half a frame"`. Owner thread only. Logging allocates nothing and
 * never waits for the reader. Lines of an event name that is too frequent are dropped and counted,
 * so that no client can fill a disk with its mistakes. Invariant: no line has token ids, page bytes
 * or rkeys. Write trace ids as trace=%016llx or with LOG_TRACE. */
#ifndef SHELL_LOG_H
#define SHELL_LOG_H

#include <inttypes.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/tern_err.h"

enum log_level { LEVEL_ERROR = 0, LEVEL_WARN, LEVEL_INFO, LEVEL_DEBUG };

#define LOG_LINE_MAX 1024 /* bytes with the newline; a longer line ends in "..." */
#define LOG_EVENTS_MAX                                                                             \
    128 /* pairs of event name and level with their own counts; more pairs share one count */
#define LOG_BURST      20 /* lines of one event name and level allowed at once */
#define LOG_PER_SECOND 5  /* how fast that allowance refills */
#define LOG_TRACE      "trace=%016" PRIx64

/* now_ns NULL: the system's clocks; tests pass their own. fd is borrowed. Before this call lines up
 * to INFO are written to standard error. */
void log_init(enum log_level most, int fd, uint64_t (*now_ns)(void));

/* Sets the least important level that is written. */
void log_level_set(enum log_level most);

/* `event`: a static string of [a-z0-9_]. `format`: "key=%u key=%s ...", printf's %s %c %d %i %u %x
 * %X with flags, width, h, l, ll, z, j. %s is escaped (proto/shown.h), quoted if necessary. */
void log_event(enum log_level level, const char *event, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Lines dropped by their allowance since log_init, over all events. */
uint64_t log_suppressed(void);

/* Lines that could not be written since log_init: the reader is slow or gone, or the disk is full.
 * The next written line has `lost=N`. */
uint64_t log_lost(void);

/* Writes why something failed, for a line of the log or an answer, and returns `err`. */
enum tern_err fail_with(char *why, size_t cap, enum tern_err err, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

const char *log_level_name(enum log_level level);
bool log_level_parse(const char *name, enum log_level *ret);

/* ---- notify.c: messages to the service manager, as in sd_notify(3): datagrams to $NOTIFY_SOCKET,
 * if it is set. The protocol needs no library, and no function of it waits or allocates: a message
 * without room in the manager's queue is sent again with the next tick. One daemon per process uses
 * it. ---- */

#define NOTIFY_STATE_BYTES  64
#define NOTIFY_STATUS_BYTES 256

/* Reads the environment; call it before other threads exist. Best effort: a manager that cannot be
 * reached is logged and is not an error. */
void notify_open(void);
void notify_close(void);

/* "READY=1", "RELOADING=1", "STOPPING=1". A later state replaces one that has not been sent yet, so
 * the manager knows the last state. */
void notify_state(const char *state);
/* One line for people, shown by `systemctl status`. */
void notify_status(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Sends pending messages, and twice in $WATCHDOG_USEC that the owner thread is alive. */
void notify_tick(uint64_t now_ns);

#endif
