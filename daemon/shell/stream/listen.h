/* Listening sockets: Unix paths for tenants and operators, TCP for peers. The ring accepts
 * connections, one a turn of the loop. Without descriptors it pauses; connections stay. */
#ifndef SHELL_LISTEN_H
#define SHELL_LISTEN_H

#include <stdbool.h>
#include <stdint.h>

#include "base/tern_err.h"
#include "seam/io/io.h"
#include "shell/config/config.h"

#define LISTEN_BACKLOG  128
#define LISTEN_PAUSE_NS 100000000u /* after EMFILE, ENFILE, ENOBUFS, ENOMEM */

struct listener {
    struct io *io;
    struct io_op op;
    int fd;
    uint64_t resume_ns; /* paused until then; 0: the ring accepts */
    char path[108];     /* "" for TCP */
    bool given;         /* by the service manager: the file stays; else it is unlinked at the end */
    bool refuses;       /* the kernel refuses descriptors that clients send: client_fds.h */
    bool waits;         /* waits for has_place */
    /* Set before listen_start for clients' sockets. Returns true if there is a place for one more
     * connection; a place is free only after a thread has closed the last socket there. */
    bool (*has_place)(const struct listener *l);
    /* Takes over fd. */
    void (*accepted)(struct listener *l, int fd);
    void *ctx; /* the owner's */
};

/* Replaces a stale socket file. CONFLICT: a daemon answers on it. `why` receives what failed. */
enum tern_err listen_unix(struct listener *l, const char *path, uint32_t mode, char *why,
                          size_t cap);
/* INVALID: the socket's folder, or a file in the socket's place, does not allow a socket. */
enum tern_err listen_unix_place(const char *path, char *why, size_t cap);
/* The same, and CONFLICT: a daemon answers there. Changes nothing. */
enum tern_err listen_unix_may(const char *path, char *why, size_t cap);
/* host "" or NULL: all addresses. *ret_port: the port in use. */
enum tern_err listen_tcp(struct listener *l, const char *host, uint16_t port, uint16_t *ret_port,
                         char *why, size_t cap);
void listen_start(struct listener *l, struct io *io, void (*accepted)(struct listener *, int fd),
                  void *ctx);
void listen_again(struct listener *l);                 /* a place may be free */
void listen_tick(struct listener *l, uint64_t now_ns); /* resumes a paused listener */
void listen_stop(struct listener *l); /* closes, unlinks; before the start or without the ring */

/* ---- Listening sockets that a service manager made and passed to this process, as
 * in sd_listen_fds(3). They begin at descriptor 3, and $LISTEN_FDNAMES names each. The manager owns
 * their files and modes, so connections wait in them while no daemon runs. ---- */

#define LISTEN_FDS_MAX    (CONFIG_TENANTS_MAX + 1)
#define LISTEN_ADMIN      "admin"   /* the name of the operators' socket */
#define LISTEN_TENANT     "tenant-" /* prefix of a tenant's socket name */
#define LISTEN_NAME_BYTES (sizeof(LISTEN_TENANT) + CONFIG_NAME_BYTES)

struct listen_fds {
    uint32_t n;
    struct {
        char name[LISTEN_NAME_BYTES];
        int fd; /* -1: taken */
    } v[LISTEN_FDS_MAX];
};

/* Reads the sockets passed to this process; none if the environment is for another process. */
enum tern_err listen_fds_read(struct listen_fds *ret, char *why, size_t cap);
/* Takes the socket of that name, which must listen at `path`; l->fd -1: no socket has the name. */
enum tern_err listen_fds_take(struct listen_fds *fds, const char *name, const char *path,
                              struct listener *l, char *why, size_t cap);
/* INVALID: a socket is left that was not taken. */
enum tern_err listen_fds_all_taken(const struct listen_fds *fds, char *why, size_t cap);

#endif
