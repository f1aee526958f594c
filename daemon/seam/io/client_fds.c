/* See client_fds.h. */
#include "seam/io/client_fds.h"

#include <sys/socket.h>

#ifndef SO_PASSRIGHTS
#define SO_PASSRIGHTS 83 /* Linux 6.16; not in every libc's headers */
#endif

bool client_fds_refuse(int fd)
{
    int off = 0;

    return setsockopt(fd, SOL_SOCKET, SO_PASSRIGHTS, &off, sizeof off) == 0;
}

/* A connection gets the option from its listener when the client connects, and keeps it. */
bool client_fds_may_come(int fd)
{
    int family = AF_UNSPEC, passed = 1;
    socklen_t n = sizeof family;

    if (getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &family, &n) == 0 && family != AF_UNIX)
        return false;
    n = sizeof passed;
    return getsockopt(fd, SOL_SOCKET, SO_PASSRIGHTS, &passed, &n) != 0 || passed != 0;
}
