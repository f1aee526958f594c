/* Notifies the service manager: one datagram to $NOTIFY_SOCKET, if that is set. No library is
 * needed, so it works in every build. */
#ifndef SHELL_NOTIFY_H
#define SHELL_NOTIFY_H

#define NOTIFY_WAIT_S 1 /* how long to wait for room in the manager's queue */

/* Sends "READY=1" or "STOPPING=1". This is best effort: a manager that does not listen is not our
 * fault. */
void notify_service(const char *state);

#endif
