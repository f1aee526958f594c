/* Telling the service manager: one datagram to $NOTIFY_SOCKET, if there is one. No library needed,
 * so it works in every build. */
#ifndef SHELL_NOTIFY_H
#define SHELL_NOTIFY_H

#define NOTIFY_WAIT_S 1 /* for room in a manager's queue; then it is not told */

/* "READY=1", "STOPPING=1". Best effort: a manager that does not listen is not our fault. */
void notify_service(const char *state);

#endif
