/* The service manager's notification protocol. See notify.h. */
#include "shell/log/notify.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

void notify_service(const char *state)
{
    const char *path = getenv("NOTIFY_SOCKET");
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    struct timeval wait = {.tv_sec = NOTIFY_WAIT_S};
    size_t n = path ? strlen(path) : 0;
    int fd;

    if (n < 2 || n >= sizeof(addr.sun_path) || (path[0] != '/' && path[0] != '@'))
        return;
    memcpy(addr.sun_path, path, n);
    if (path[0] == '@')
        addr.sun_path[0] = '\0'; /* the abstract namespace */
    fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return;
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &wait, sizeof(wait));
    sendto(fd, state, strlen(state), MSG_NOSIGNAL, (struct sockaddr *)&addr,
           (socklen_t)(offsetof(struct sockaddr_un, sun_path) + n));
    close(fd);
}
