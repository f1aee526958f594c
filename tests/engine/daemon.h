/* Daemons started for one run: each has a directory of its own, real Unix and TCP sockets, and ends
 * with the run whatever happens. Each daemon makes its own memory: two daemons share nothing. */
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
    const char *name; /* NULL: end of the list */
    uint16_t port;
};

struct daemon_options {
    const char *node; /* its name for the peer; borrowed until daemon_start returns, as every
                       * pointer here */
    uint16_t port;    /* of its control listener on 127.0.0.1 */
    struct daemon_peer peer[DAEMON_PEERS_MAX];
    const char *tls;       /* folder of deploy/make-certs.sh with this node's; NULL: in the clear */
    uint64_t memory_bytes; /* of one region */
    uint64_t host_bytes;   /* of its host tier, for one region; 0: none */
    uint64_t record_bytes; /* record memory; 0: none */
    bool checks_on_owner;  /* fault injection: the owner reads turn records */
    uint32_t regions;      /* 0: 1 */
    uint64_t page_bytes_min;
    uint64_t token_blocks; /* 0: the daemon's own default, as for nodes */
    uint64_t nodes;
    uint32_t sums_per_page;
    uint64_t frame_body_max;  /* 0: the daemon's own default */
    uint64_t bytes_in_flight; /* of transfers; 0: the daemon's own default */
    uint32_t transfer_ms;     /* deadline of a transfer; 0: a minute */
    uint32_t connections;     /* to a peer, for pages; 0: the daemon's own default */
    bool second_tenant;       /* besides the first one, with as much memory: daemon.second */
    uint64_t corrupt_pages;   /* fault injection at its receive */
    int core;                 /* core that it runs on; -1: any */
};

struct daemon {
    pid_t pid; /* -1: not running */
    char node[32], dir[64], socket[SPAWN_PATH_BYTES], admin[SPAWN_PATH_BYTES],
        log[SPAWN_PATH_BYTES], config[SPAWN_PATH_BYTES];
    char second[SPAWN_PATH_BYTES];    /* socket of the second tenant, if any */
    uint16_t control_port, data_port; /* set with `says_ready`; 0 without a listener */
};

struct daemon_launch {
    int core;           /* core that it runs on; -1: any */
    const char *env;    /* NAME=VALUE for this daemon alone; NULL: none */
    uint32_t files_max; /* limit of descriptors; 0: its parent's */
    bool says_ready;    /* it logs at info, so its log reports that it is ready, and its ports */
};

/* Starts it in the existing directory `dir` and waits until it serves. Returns false with the
 * reason, which includes the end of its log. */
bool daemon_start(struct daemon *d, const char *dir, const struct daemon_options *options,
                  char *why);

/* Starts two daemons that are each other's peer: o[0] and o[1] lack only ports and peers. */
bool daemon_start_pair(struct daemon *first, struct daemon *second, const char *dir,
                       struct daemon_options o[2], char *why);
/* Starts n daemons; the first is the peer of each other one. */
bool daemon_start_star(struct daemon *d, uint32_t n, const char *dir, struct daemon_options *o,
                       char *why);

/* The two halves of daemon_start, for a caller with a configuration of its own: daemon_place sets
 * the paths, then the caller writes d->config and starts the daemon. */
void daemon_place(struct daemon *d, const char *dir, const char *node);
bool daemon_launch(struct daemon *d, const struct daemon_launch *how, char *why);
/* Runs another daemon on the same configuration, which cannot serve. Returns its exit status. */
int daemon_run_twin(const struct daemon *d);

/* Sends SIGTERM, then SIGKILL if it takes longer. Returns its exit status; -1: killed, or died. */
int daemon_end(struct daemon *d, uint32_t wait_ms);
/* The same with a long wait. Returns true if it ended by itself with status 0. */
bool daemon_stop(struct daemon *d);

/* Waits until its log has that text `times` times, at most that long. Returns the count. */
uint32_t daemon_log_count(const struct daemon *d, const char *text, uint32_t times,
                          uint32_t wait_ms);

/* Returns the number of its log lines that have both texts. */
uint32_t daemon_log_lines(const struct daemon *d, const char *event, const char *words);

/* Returns a TCP port on 127.0.0.1 that was free a moment ago; 0: none. */
uint16_t port_free(void);

#endif
