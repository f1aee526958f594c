/* The one table of the phases of the daemon: name, legal next phases, what it means. daemon_move in
 * step.c checks it; docs/states.md shows it. */
#ifndef SHELL_DAEMON_PHASES_H
#define SHELL_DAEMON_PHASES_H

#define DAEMON_TO(s) (1u << DAEMON_##s)

/* X(name, legal next, comment) */
#define DAEMON_STATE_TABLE(X)                                                                      \
    X(STARTING, DAEMON_TO(SERVING) | DAEMON_TO(STOPPED),                                           \
      "memory, core and sockets are being made; a failure ends it")                                \
    X(SERVING, DAEMON_TO(DRAINING) | DAEMON_TO(STOPPED), "the daemon is ready")                    \
    X(DRAINING, DAEMON_TO(STOPPED), "it takes no new sessions and waits for the others to end")    \
    X(STOPPED, 0, "the loop ends, and the core is stepped no more")

enum daemon_phase {
#define X(name, next, comment) DAEMON_##name,
    DAEMON_STATE_TABLE(X)
#undef X
        DAEMON_STATES
};

#endif
