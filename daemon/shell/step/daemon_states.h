/* The states of the daemon (base/states.h says how to read the table). */
#ifndef SHELL_DAEMON_STATES_H
#define SHELL_DAEMON_STATES_H

#include "base/states.h"

#define DAEMON_STATE_TABLE(X)                                                                      \
    X(DAEMON, STARTING, TO(DAEMON, SERVING) | TO(DAEMON, STOPPED),                                 \
      "memory, core and sockets are being made; a failure ends it")                                \
    X(DAEMON, SERVING, TO(DAEMON, DRAINING) | TO(DAEMON, LEAVING) | TO(DAEMON, STOPPED),           \
      "the daemon is ready")                                                                       \
    X(DAEMON, DRAINING, TO(DAEMON, SERVING) | TO(DAEMON, STORING) | TO(DAEMON, STOPPED),           \
      "an operator's wish: it takes no new sessions and waits for the others to end")              \
    X(DAEMON, LEAVING, TO(DAEMON, STORING) | TO(DAEMON, STOPPED),                                  \
      "likewise by a signal, and nobody takes it back")                                            \
    X(DAEMON, STORING, TO(DAEMON, STOPPED), "what is cached is being stored on the disk")          \
    X(DAEMON, STOPPED, 0, "the loop ends, and the core is stepped no more")

STATE_MACHINE(daemon, DAEMON, DAEMON_STATE_TABLE)

#endif
