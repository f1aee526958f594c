/* Listening sockets: Unix paths for tenants and operators, TCP for peers. The ring accepts
 * connections, one a turn of the loop. When descriptors run out a listener pauses for a time, and
 * connections live on. */
#ifndef SHELL_LISTEN_H
#define SHELL_LISTEN_H

#include <stdbool.h>
#include <stdint.h>

#include "base/tern_err.h"
#include "seam/io/io.h"

#define LISTEN_BACKLOG  128
#define LISTEN_PAUSE_NS 100000000u /* after EMFILE, ENFILE, ENOBUFS, ENOMEM */

struct listener {
    struct io *io;
    struct io_op op;
    int fd;
    uint64_t resume_ns; /* paused until then; 0: the ring accepts */
    char path[108];     /* "" for TCP */
    bool given;         /* by the service manager: the file stays, else it is unlinked at the end */
    bool refuses;       /* the kernel refuses descriptors of those that connect: client_fds.h */
    bool waits;         /* for has_place */
    /* A client's socket has it set before listen_start: there is a place for one more, since none
     * is free before a thread has closed it. */
    bool (*has_place)(const struct listener *l);
    /* Takes fd over. */
    void (*accepted)(struct listener *l, int fd);
    void *ctx;
    uint32_t tag; /* the owner's: which tenant */
};

/* Replaces a stale socket file. CONFLICT: a daemon answers on it. why: the text of what failed. */
enum tern_err listen_unix(struct listener *l, const char *path, uint32_t mode, char *why,
                          size_t cap);
/* INVALID: the folder of the socket, or what lies in its place, does not allow one. */
enum tern_err listen_unix_place(const char *path, char *why, size_t cap);
/* The same, and CONFLICT: a daemon answers there. Nothing is changed. */
enum tern_err listen_unix_may(const char *path, char *why, size_t cap);
/* host "" or NULL: all addresses. *ret_port: the port taken. */
enum tern_err listen_tcp(struct listener *l, const char *host, uint16_t port, uint16_t *ret_port,
                         char *why, size_t cap);
void listen_start(struct listener *l, struct io *io, void (*accepted)(struct listener *, int fd),
                  void *ctx, uint32_t tag);
void listen_again(struct listener *l);                 /* there is a place, perhaps */
void listen_tick(struct listener *l, uint64_t now_ns); /* resumes a paused listener */
void listen_stop(struct listener *l); /* closes, unlinks; before the start or without the ring */

#endif
