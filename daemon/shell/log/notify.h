/* Messages to the service manager, as in sd_notify(3): datagrams to $NOTIFY_SOCKET, if that is set.
 * The protocol needs no library, and nothing here waits or allocates: a message without room in the
 * manager's queue is sent again with the next tick. One daemon per process uses it. */
#ifndef SHELL_NOTIFY_H
#define SHELL_NOTIFY_H

#include <stdint.h>

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
