/* Attacks of tenant A of `tern-bench neighbours` on what it shares with the daemon: endless rings,
 * epolls on the bell and on the request socket, holes in a control page that is mapped very often,
 * descriptors that linger on close, and answers with descriptors that nobody reads. The A within
 * its share asks as often and does none of that. */
#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "engine/proc.h"
#include "neighbours_tables.h"
#include "proto/codec.h"

#define FRAME_CAP 256

static bool sleeps(struct tenant_a *a)
{
    (void)a;
    return true;
}

static void fds_raise(void)
{
    struct rlimit l;

    if (getrlimit(RLIMIT_NOFILE, &l) == 0) {
        l.rlim_cur = l.rlim_max;
        setrlimit(RLIMIT_NOFILE, &l);
    }
}

/* ---- the bell: found among the descriptors that joining has opened ---- */

#define FDS_MOST   4096
#define EPOLLS     8000
#define RINGS      50
#define SHARED_MAX 8

static int shared[SHARED_MAX]; /* sockets and eventfds that the daemon has open, too */
static uint32_t nshared;
static int epolls[EPOLLS];
static uint32_t nepolls;

static void open_fds(bool *ret)
{
    DIR *d = opendir("/proc/self/fd");
    struct dirent *e;

    memset(ret, 0, FDS_MOST);
    while (d && (e = readdir(d)))
        if (e->d_name[0] != '.' && atoi(e->d_name) < FDS_MOST && atoi(e->d_name) != dirfd(d))
            ret[atoi(e->d_name)] = true;
    if (d)
        closedir(d);
}

static bool is_shared(int fd)
{
    char path[64], to[64] = "";

    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    return readlink(path, to, sizeof to - 1) > 0 &&
           (strstr(to, "eventfd") || strncmp(to, "socket:", 7) == 0);
}

static bool bell_open(struct tenant_a *a)
{
    static bool before[FDS_MOST], after[FDS_MOST];

    fds_raise();
    open_fds(before);
    if (!a_join(a, 64))
        return false;
    open_fds(after);
    for (int fd = 0; fd < FDS_MOST; fd++)
        if (after[fd] && !before[fd] && nshared < SHARED_MAX && is_shared(fd))
            shared[nshared++] = fd;
    return nshared > 1;
}

/* Only a request rings the request socket. */
static void ring(const struct tenant_a *a)
{
    static const uint64_t one = 1;

    for (uint32_t i = 0; i < nshared; i++) {
        if (shared[i] == tern_fd(a->engine.tern, NULL))
            continue;
        if (write(shared[i], &one, sizeof one) < 0) /* an eventfd takes 8 bytes, a socket any */
            continue;
    }
}

static bool bell_prepare(struct tenant_a *a, bool over)
{
    (void)a;
    while (nepolls > 0)
        close(epolls[--nepolls]);
    while (over && nepolls < EPOLLS) {
        struct epoll_event ev = {.events = EPOLLIN | EPOLLOUT | EPOLLET};

        epolls[nepolls] = epoll_create1(EPOLL_CLOEXEC);
        if (epolls[nepolls] < 0)
            break;
        for (uint32_t i = 0; i < nshared; i++)
            epoll_ctl(epolls[nepolls], EPOLL_CTL_ADD, shared[i], &ev);
        nepolls++;
    }
    return true;
}

static enum a_answer bell_over(struct tenant_a *a)
{
    for (uint32_t i = 0; i < RINGS; i++)
        ring(a);
    return a_answer_of(a, a->engine.tern,
                       engine_publish(&a->engine)); /* and the way that an engine rings */
}

static enum a_answer bell_within(struct tenant_a *a)
{
    ring(a);
    return a_answer_of(a, a->engine.tern, engine_publish(&a->engine));
}

const struct a_table a_bell = {.name = "bell",
                               .costs = true,
                               .open = bell_open,
                               .prepare = bell_prepare,
                               .over = bell_over,
                               .within = bell_within};

/* ---- holes: libtern's mapping of the control page, and very many others of it ---- */

#define MAPS         60000 /* below vm.max_map_count */
#define CONTROL_SIZE 8192
#define PAUSE_MS     5 /* between two holes */

static uint8_t *page, *maps[MAPS];
static uint32_t nmaps;
static atomic_bool punches;
static pthread_t puncher;

/* Punches holes; the daemon may refuse them. */
static void *punch(void *unused)
{
    (void)unused;
    while (atomic_load(&punches)) {
        (void)madvise(page, CONTROL_SIZE, MADV_REMOVE);
        sleep_ms(PAUSE_MS);
    }
    return NULL;
}

static bool page_find(void)
{
    FILE *f = fopen("/proc/self/maps", "re");
    char line[256];

    while (f && !page && fgets(line, sizeof line, f))
        if (strstr(line, "memfd:tern-control") && sscanf(line, "%p", (void **)&page) != 1)
            page = NULL;
    if (f)
        fclose(f);
    return page != NULL;
}

static bool holes_open(struct tenant_a *a)
{
    return bell_open(a) && page_find();
}

/* An old size of 0 maps the same pages once more. */
static bool holes_prepare(struct tenant_a *a, bool over)
{
    (void)a;
    if (atomic_exchange(&punches, false))
        pthread_join(puncher, NULL);
    while (nmaps > 0)
        munmap(maps[--nmaps], CONTROL_SIZE);
    for (; over && nmaps < MAPS; nmaps++) {
        maps[nmaps] = mremap(page, 0, CONTROL_SIZE, MREMAP_MAYMOVE);
        if (maps[nmaps] == MAP_FAILED)
            break;
    }
    if (!over)
        return true;
    atomic_store(&punches, true);
    return nmaps >= MAPS / 2 && pthread_create(&puncher, NULL, punch, NULL) == 0;
}

/* At each ring the daemon reads the page. */
static enum a_answer ring_once(struct tenant_a *a)
{
    ring(a);
    return A_DONE;
}

const struct a_table a_holes = {.name = "holes",
                                .costs = true,
                                .open = holes_open,
                                .prepare = holes_prepare,
                                .over = ring_once,
                                .within = ring_once};

/* ---- descriptors: half a Hello carries a socket that takes a second to close ---- */

#define LINGER_S     1
#define CONNECTS     4 /* a second */
#define SOCKET_BYTES 4096

/* The peer does not read; *ret_peer and *ret_fd are the caller's. */
static bool lingering(int *ret_fd, int *ret_peer)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct linger l = {.l_onoff = 1, .l_linger = LINGER_S};
    socklen_t len = sizeof at;
    int door = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), bytes = SOCKET_BYTES;
    static const char full[SOCKET_BYTES];

    *ret_fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    setsockopt(door, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof bytes);
    setsockopt(*ret_fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes);
    if (door < 0 || *ret_fd < 0 || bind(door, (struct sockaddr *)&at, len) != 0 ||
        listen(door, 1) != 0 || getsockname(door, (struct sockaddr *)&at, &len) != 0 ||
        connect(*ret_fd, (struct sockaddr *)&at, len) != 0)
        return false;
    *ret_peer = accept4(door, NULL, NULL, SOCK_CLOEXEC);
    close(door);
    while (send(*ret_fd, full, sizeof full, MSG_DONTWAIT | MSG_NOSIGNAL) > 0)
        ;
    setsockopt(*ret_fd, SOL_SOCKET, SO_LINGER, &l, sizeof l);
    return *ret_peer >= 0;
}

/* fd -1: without a descriptor. */
static bool half_a_hello(int conn, int fd)
{
    char bytes[3] = {16, 0, 0}, control[CMSG_SPACE(sizeof fd)] = {0};
    struct iovec iov = {.iov_base = bytes, .iov_len = sizeof bytes};
    struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1};

    if (fd >= 0) {
        struct cmsghdr *c;

        m.msg_control = control;
        m.msg_controllen = sizeof control;
        c = CMSG_FIRSTHDR(&m);
        *c = (struct cmsghdr){
            .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(sizeof fd)};
        memcpy(CMSG_DATA(c), &fd, sizeof fd);
    }
    /* The send fails if the kernel refuses descriptors for the daemon (SO_PASSRIGHTS). */
    return sendmsg(conn, &m, MSG_NOSIGNAL) >= 0 || errno == EPERM;
}

static int connect_here(const struct tenant_a *a)
{
    struct sockaddr_un un = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    snprintf(un.sun_path, sizeof un.sun_path, "%s", a->hosts->here.socket);
    if (fd >= 0 && connect(fd, (struct sockaddr *)&un, sizeof un) == 0)
        return fd;
    if (fd >= 0)
        close(fd);
    return -1;
}

static enum a_answer come_with(struct tenant_a *a, bool descriptor)
{
    int conn = connect_here(a), fd = -1, *peer = &a->fds[a->serial++ % A_HOLDS_MAX];
    bool ok = conn >= 0;

    if (*peer > 0)
        close(*peer);
    *peer = 0;
    if (ok && descriptor)
        ok = lingering(&fd, peer);
    ok = ok && half_a_hello(conn, fd);
    if (fd >= 0)
        close(fd);
    if (conn >= 0)
        close(conn);
    return ok ? A_DONE : A_FAILED;
}

static enum a_answer with_descriptor(struct tenant_a *a)
{
    return come_with(a, true);
}

static enum a_answer without(struct tenant_a *a)
{
    return come_with(a, false);
}

const struct a_table a_descriptors = {.name = "descriptors",
                                      .costs = true,
                                      .per_s = CONNECTS,
                                      .open = sleeps,
                                      .over = with_descriptor,
                                      .within = without};

/* ---- answers with descriptors that nobody reads ---- */

#define MUTE_CONNS 4

/* The pools of a mute engine wait until A's process has ended: four more each turn. */

static struct engine mute[MUTE_CONNS];

static bool unread_prepare(struct tenant_a *a, bool over)
{
    char name[16];

    for (uint32_t i = 0; i < MUTE_CONNS; i++) {
        engine_close(&mute[i]);
        mute[i] = (struct engine){0};
        if (!over)
            continue;
        snprintf(name, sizeof name, "mute-%u", i);
        if (!member_start(&mute[i], a->hosts->here.socket, name, NEIGHBOUR_PAGE_TOKENS,
                          NEIGHBOUR_PAGE_BYTES, 64))
            return false;
    }
    return true;
}

static bool unread_open(struct tenant_a *a)
{
    return a_join(a, 64);
}

/* Also DONE if the daemon takes no more for now. */
static enum a_answer map_unread(struct tenant_a *a)
{
    const struct engine *e = &mute[a->serial % MUTE_CONNS];
    Tern__Wire__PoolRef m = TERN__WIRE__POOL_REF__INIT;
    struct frame_header h = {
        .version = FRAME_VERSION, .type = FRAME_POOL_MAP, .request_id = 1u << 20 | ++a->serial};
    uint8_t frame[FRAME_CAP];
    size_t n;

    m.has_pool = true;
    m.pool = e->pool;
    if (wire_encode(&h, &m.base, FRAME_CAP, frame, sizeof frame, &n) != TERN_OK)
        return A_FAILED;
    if (send(tern_fd(e->tern, NULL), frame, n, MSG_DONTWAIT | MSG_NOSIGNAL) == (ssize_t)n)
        return A_DONE;
    return errno == EAGAIN || errno == EPIPE || errno == ECONNRESET ? A_DONE : A_FAILED;
}

static enum a_answer map_read(struct tenant_a *a)
{
    struct tern_pool *pool = NULL;
    enum tern_err err = tern_pool_map(a->engine.tern, a->engine.pool, MEMBER_CALL_MS, &pool);

    tern_pool_unmap(&pool);
    return a_answer_of(a, a->engine.tern, err);
}

const struct a_table a_unread = {.name = "unread answers",
                                 .limits = "  engines: 32\n  pools: 64\n",
                                 .costs = true,
                                 .open = unread_open,
                                 .prepare = unread_prepare,
                                 .over = map_unread,
                                 .within = map_read};
