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

#define DAEMON_PEERS_MAX 4

struct daemon_peer {
    const char *name; /* NULL: there are no more of them */
    uint16_t port;
};

struct daemon_options {
    const char *node; /* its name for the peer; borrowed until daemon_start returns, as all here */
    uint16_t port;    /* of its control listener on 127.0.0.1 */
    struct daemon_peer peer[DAEMON_PEERS_MAX];
    const char *tls;       /* folder of deploy/make-certs.sh with this node's; NULL: in the clear */
    uint64_t memory_bytes; /* of one region */
    uint64_t host_bytes;   /* of its host tier, likewise; 0: none */
    uint64_t record_bytes; /* record memory; 0: none */
    bool checks_on_owner;  /* fault injection: the owner looks at turn records */
    uint32_t regions;      /* 0: 1 */
    uint64_t page_bytes_min;
    uint64_t token_blocks; /* 0: the daemon's own default, as for nodes */
    uint64_t nodes;
    uint32_t sums_per_page;
    uint64_t frame_body_max;  /* likewise */
    uint64_t bytes_in_flight; /* of transfers; 0: the daemon's own default */
    uint32_t transfer_ms;     /* deadline of a transfer; 0: a minute */
    uint32_t connections;     /* to a peer, for pages; 0: the daemon's own default */
    bool second_tenant;       /* beside the first one, with as much memory: daemon.second */
    uint64_t corrupt_pages;   /* fault injection at its receive */
    int core;                 /* where it runs; -1: anywhere */
};

struct daemon {
    pid_t pid; /* -1: not running */
    char node[32], dir[64], socket[SPAWN_PATH_BYTES], admin[SPAWN_PATH_BYTES],
        log[SPAWN_PATH_BYTES], config[SPAWN_PATH_BYTES];
    char second[SPAWN_PATH_BYTES];    /* socket of the second tenant, if there is one */
    uint16_t control_port, data_port; /* with `says_ready`; 0 without a listener */
};

/* How it is run. */
struct daemon_launch {
    int core;           /* where it runs; -1: anywhere */
    const char *env;    /* NAME=VALUE for it alone; NULL: none */
    uint32_t files_max; /* descriptors; 0: as many as its parent may have */
    bool says_ready;    /* it logs at info: its log says that it serves, and where */
};

/* Starts it in the existing directory `dir` and waits until it serves. False with the reason, the
 * end of its log included. */
bool daemon_start(struct daemon *d, const char *dir, const struct daemon_options *options,
                  char *why);

/* Two that are each other's peer: o[0] and o[1] say all but their ports and peers. */
bool daemon_start_pair(struct daemon *first, struct daemon *second, const char *dir,
                       struct daemon_options o[2], char *why);
/* n of them, of which the first is the peer of each other one. */
bool daemon_start_star(struct daemon *d, uint32_t n, const char *dir, struct daemon_options *o,
                       char *why);

/* The two halves of it, for a caller with a configuration of its own: where its files lie, of which
 * d->config is then written; and the start. */
void daemon_place(struct daemon *d, const char *dir, const char *node);
bool daemon_launch(struct daemon *d, const struct daemon_launch *how, char *why);
/* Runs one more on the same configuration, which cannot serve; its exit status. */
int daemon_run_twin(const struct daemon *d);

/* SIGTERM, then SIGKILL if it takes longer. Its exit status; -1: it had to be killed, or died. */
int daemon_end(struct daemon *d, uint32_t wait_ms);
/* The same with patience. True if it ended by itself with status 0. */
bool daemon_stop(struct daemon *d);

/* How often its log holds that text: waits until it is `times`, at most that long. */
uint32_t daemon_log_count(const struct daemon *d, const char *text, uint32_t times,
                          uint32_t wait_ms);

/* Lines of its log that hold both. */
uint32_t daemon_log_lines(const struct daemon *d, const char *event, const char *words);

/* A TCP port on 127.0.0.1 that was free a moment ago; 0: none. */
uint16_t port_free(void);

#endif
