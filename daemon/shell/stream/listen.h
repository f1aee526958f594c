/* Listening sockets: Unix paths for tenants and operators, TCP for peers. Accepts in the ring; when
 * descriptors run out it pauses, so that the connections that are there live on, and resumes. */
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
    char path[108];     /* unlinked at the end; "" for TCP */
    /* Takes fd over. */
    void (*accepted)(struct listener *l, int fd);
    void *ctx;
    uint32_t tag; /* the owner's: which tenant */
};

/* A stale socket file whose daemon is gone is replaced; one that still answers is CONFLICT. why:
 * text. */
enum tern_err listen_unix(struct listener *l, const char *path, uint32_t mode, char *why,
                          size_t cap);
/* host "" or NULL: all addresses. *ret_port: the port taken. */
enum tern_err listen_tcp(struct listener *l, const char *host, uint16_t port, uint16_t *ret_port,
                         char *why, size_t cap);
void listen_start(struct listener *l, struct io *io, void (*accepted)(struct listener *, int fd),
                  void *ctx, uint32_t tag);
void listen_tick(struct listener *l, uint64_t now_ns); /* resumes a paused one */
void listen_stop(struct listener *l); /* no ring any more, or not started: closes and unlinks */

#endif
