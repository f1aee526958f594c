/* What the service manager is told, as sd_notify(3) has it: datagrams to $NOTIFY_SOCKET, if that is
 * set. They are a few lines, so no library is needed, and nothing waits or allocates: what finds no
 * room in the manager's queue is sent again with the next tick. One daemon a process has it. */
#ifndef SHELL_NOTIFY_H
#define SHELL_NOTIFY_H

#include <stdint.h>

#define NOTIFY_STATE_BYTES  64
#define NOTIFY_STATUS_BYTES 256

/* Reads the environment; before there are other threads. Best effort: a manager that cannot be told
 * is not our fault, and the log says so. */
void notify_open(void);
void notify_close(void);

/* "READY=1", "RELOADING=1", "STOPPING=1". A later one takes the place of one that has not been sent
 * yet, so what is told last is what the manager knows. */
void notify_state(const char *state);
/* One line for people, shown by `systemctl status`. */
void notify_status(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Sends what is left, and twice in $WATCHDOG_USEC that the owner thread lives. */
void notify_tick(uint64_t now_ns);

#endif
