/* See tcp_listen.h. */
#include "seam/io/tcp_listen.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static int listen_on(const struct addrinfo *ai, int backlog)
{
    int one = 1, zero = 0, fd = socket(ai->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (fd < 0)
        return -1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (ai->ai_family == AF_INET6)
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &zero, sizeof zero);
    if (bind(fd, ai->ai_addr, ai->ai_addrlen) < 0 || listen(fd, backlog) < 0) {
        int cause = errno;

        close(fd);
        errno = cause;
        return -1;
    }
    return fd;
}

/* For all addresses IPv6 comes first: its socket accepts IPv4 too. */
static int listen_any(const struct addrinfo *list, int backlog, bool all)
{
    int fd = -1;

    for (const struct addrinfo *ai = list; all && ai && fd < 0; ai = ai->ai_next)
        if (ai->ai_family == AF_INET6)
            fd = listen_on(ai, backlog);
    for (const struct addrinfo *ai = list; ai && fd < 0; ai = ai->ai_next)
        fd = listen_on(ai, backlog);
    return fd;
}

int tcp_listen(const char *host, uint16_t port, int backlog, uint16_t *ret_port,
               const char **ret_why)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE}, *list = NULL;
    bool all = !host || !*host;
    struct sockaddr_storage at;
    socklen_t len = sizeof at;
    char service[8];
    int rc, fd, cause;

    snprintf(service, sizeof service, "%u", port);
    rc = getaddrinfo(all ? NULL : host, service, &hints, &list);
    if (rc != 0) {
        *ret_why = gai_strerror(rc);
        errno = 0;
        return -1;
    }
    fd = listen_any(list, backlog, all);
    cause = errno;
    freeaddrinfo(list);
    if (fd < 0)
        *ret_why = strerror(cause);
    else if (getsockname(fd, (struct sockaddr *)&at, &len) == 0)
        *ret_port = tcp_port(&at);
    errno = cause;
    return fd;
}

uint16_t tcp_port(const struct sockaddr_storage *addr)
{
    return ntohs(addr->ss_family == AF_INET6
                     ? ((const struct sockaddr_in6 *)(const void *)addr)->sin6_port
                     : ((const struct sockaddr_in *)(const void *)addr)->sin_port);
}
