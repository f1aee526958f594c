/* Listening sockets that a service manager made and passed to this process, as in sd_listen_fds(3):
 * they begin at descriptor 3, and $LISTEN_FDNAMES names each. The manager owns their files and
 * modes, so connections wait in them while no daemon runs. */
#ifndef SHELL_LISTEN_FDS_H
#define SHELL_LISTEN_FDS_H

#include "shell/config/config.h"
#include "shell/stream/listen.h"

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
