/* Preloaded into a daemon: a kernel older than Linux 6.16, which cannot refuse descriptors that are
 * sent to a socket (SO_PASSRIGHTS). */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <sys/socket.h>

#define PASSRIGHTS 83

typedef int set_option(int, int, int, const void *, socklen_t);
typedef int get_option(int, int, int, void *, socklen_t *);

static int is_unknown(int level, int name)
{
    errno = ENOPROTOOPT;
    return level == SOL_SOCKET && name == PASSRIGHTS;
}

int setsockopt(int fd, int level, int name, const void *value, socklen_t n)
{
    set_option *system = (set_option *)dlsym(RTLD_NEXT, "setsockopt");

    return is_unknown(level, name) ? -1 : system(fd, level, name, value, n);
}

int getsockopt(int fd, int level, int name, void *value, socklen_t *n)
{
    get_option *system = (get_option *)dlsym(RTLD_NEXT, "getsockopt");

    return is_unknown(level, name) ? -1 : system(fd, level, name, value, n);
}
