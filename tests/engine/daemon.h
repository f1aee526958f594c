/* Daemons started for one run: a directory of their own, real Unix and TCP sockets, ended with the
 * run whatever happens. Each daemon makes its own memory: nothing is shared between two of them. */
#ifndef ENGINE_DAEMON_H
#define ENGINE_DAEMON_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "tern.h"

#define SPAWN_PATH_BYTES 108
#define SPAWN_WHY_BYTES  1024
#define SPAWN_TENANT     "bench"

struct daemon_options {
    const char *node; /* its name for the peer; borrowed until daemon_start returns, as all here */
    uint16_t port;    /* of its control listener on 127.0.0.1 */
    const char *peer; /* the other daemon's name; NULL: it has none */
    uint16_t peer_port;
    const char *tls;       /* folder of deploy/make-certs.sh with this node's; NULL: in the clear */
    uint64_t memory_bytes; /* of one region */
    uint64_t host_bytes;   /* of its host tier, likewise; 0: none */
    uint32_t regions;
    uint64_t page_bytes_min;
    uint64_t token_blocks; /* 0: the daemon's own default, as for nodes */
    uint64_t nodes;
    uint64_t bytes_in_flight; /* of transfers; 0: the daemon's own default */
    uint32_t transfer_ms;     /* deadline of a transfer; 0: a minute */
    uint64_t corrupt_pages;   /* fault injection at its receive */
    int core;                 /* where it runs; -1: anywhere */
};

struct daemon {
    pid_t pid; /* -1: not running */
    char node[32], dir[64], socket[SPAWN_PATH_BYTES], admin[SPAWN_PATH_BYTES],
        log[SPAWN_PATH_BYTES];
};

/* Starts it in the existing directory `dir` and waits until it serves. False with the reason, the
 * end of its log included. */
bool daemon_start(struct daemon *d, const char *dir, const struct daemon_options *options,
                  char *why);

/* SIGTERM, then SIGKILL if it takes too long. True if it ended by itself with status 0. */
bool daemon_stop(struct daemon *d);

/* A TCP port on 127.0.0.1 that was free a moment ago; 0: none. */
uint16_t port_free(void);

#endif
