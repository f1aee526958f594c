/* A malicious tenant attacks everything that a client shares with the daemon, as docs/rules.md
 * lists it. Each case is one line of that list, or several. After each, a neighbour of another
 * tenant is served in time; at the end SIGTERM ends the daemon in time, although children of the
 * attacker keep all of it open. With TERN_TEST_HOLES in the environment the daemon has no
 * CAP_LINUX_IMMUTABLE, so the kernel refuses no holes. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/capability.h>
#include <linux/falloc.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "rig_daemon.h"
#include "testing/test.h"

#define L             64u
#define PAGES         64u
#define LENGTH        (4 * L)
#define RECORD_MEMORY (8u << 20)
#define HARM_MS       300  /* duration of a case that needs time */
#define BREATH_US     3000 /* between two rounds of both, while the worker seals pages */
#define RINGS         50u
#define EPOLLS        1500u
#define CHILDREN      6u
#define WAITERS       3000u /* on each socket that is closed */
#define CLOSED        16u
#define PARTIAL_MS    500
#define UNREAD        2000u        /* requests whose answers nobody reads */
#define CLOSERS       "tern-close" /* the threads that close clients' sockets */
#define READERS       "iou-wrk"    /* threads of the kernel, which read bells */
#define READ_PERCENT  25           /* of the time; the last read of a tick is half of it */
#define MAPPERS       2u
#define MAPS          15000u /* of each */
#define HOLE          (FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE)

enum { REGION, CONTROL, BELL, RECORDS, REQUESTS, SHARED };

static struct daemon d;
static char other[SPAWN_PATH_BYTES]; /* the neighbour's socket */
static struct engine neighbour;
static struct rig_answer answer;
static int shared[SHARED]; /* the attacker's descriptors */
static uint64_t last_id, pool;
static bool holes; /* the kernel lets clients punch holes */
static pid_t children[CHILDREN];

static void answered(int fd, uint16_t type, uint64_t id, enum tern_err want)
{
    do
        assert_int_equal(rig_read(fd, RIG_WAIT_MS, &answer), RIG_FRAME);
    while (answer.h.request_id != id);
    assert_int_equal(answer.h.type, type + 1);
    assert_err(want, rig_status(&answer));
}

static void ask(uint16_t type, const ProtobufCMessage *m)
{
    assert_true(rig_message(shared[REQUESTS], type, ++last_id, 0, m));
    answered(shared[REQUESTS], type, last_id, TERN_OK);
}

/* ---- the neighbour ---- */

/* Ping, Match, pages, a step and a commit, of tokens that are new to everybody. */
static void neighbour_is_served(void)
{
    static uint32_t first;
    uint64_t begun_ms = rig_now_ms();
    struct engine_session s = {0};
    uint32_t tokens[LENGTH];

    for (uint32_t i = 0; i < LENGTH; i++)
        tokens[i] = ++first;
    assert_true(rig_alive(&d));
    assert_ok(neighbour.tern, tern_ping(neighbour.tern, RIG_WAIT_MS));
    assert_ok(neighbour.tern, engine_begin(&s, &neighbour, tokens, LENGTH));
    assert_ok(neighbour.tern, engine_run(&s));
    assert_ok(neighbour.tern, tern_wait_published(neighbour.tern, neighbour.step, RIG_WAIT_MS));
    assert_int_equal(engine_wrong(&s, LENGTH), 0);
    assert_ok(neighbour.tern, engine_end(&s));
    assert_true(rig_now_ms() - begun_ms < RIG_AT_ONCE_MS);
}

/* The attacker's own connection still works. */
static void attacker_is_served(void)
{
    Tern__Wire__Empty m = TERN__WIRE__EMPTY__INIT;

    ask(FRAME_PING, &m.base);
}

FIXTURE(served)
{
    neighbour_is_served();
    return 0;
}

/* ---- the attacker ---- */

static void attacker_joins(void)
{
    Tern__Wire__EngineJoin join = TERN__WIRE__ENGINE_JOIN__INIT;
    Tern__Wire__Group group = TERN__WIRE__GROUP__INIT, *list[1] = {&group};
    Tern__Wire__PoolOpen open = TERN__WIRE__POOL_OPEN__INIT;
    Tern__Wire__PoolRef map = TERN__WIRE__POOL_REF__INIT;
    Tern__Wire__RecordMap records = TERN__WIRE__RECORD_MAP__INIT;

    shared[REQUESTS] = rig_greeted(d.socket);
    last_id = 1;
    join.name = (char *)(uintptr_t) "attacker";
    join.has_role = join.has_world = true;
    join.role = TERN_WORKER;
    join.world = 1;
    ask(FRAME_ENGINE_JOIN, &join.base);
    group.name = (char *)(uintptr_t) "kv";
    group.has_page_tokens = group.has_page_bytes = true;
    group.page_tokens = L;
    group.page_bytes = RIG_PAGE;
    open.n_groups = 1;
    open.groups = list;
    open.has_bytes = true;
    open.bytes = PAGES * RIG_PAGE;
    ask(FRAME_POOL_OPEN, &open.base);
    pool = ((const Tern__Wire__PoolOpenReply *)rig_decoded(&answer, FRAME_POOL_OPEN_REPLY))->pool;
    map.has_pool = true;
    map.pool = pool;
    ask(FRAME_POOL_MAP, &map.base);
    assert_int_equal(answer.nfds, 3);
    for (uint32_t i = REGION; i <= BELL; i++)
        shared[i] = answer.fds[i];
    records.has_reserved_one = 1;
    records.reserved_one = 1;
    ask(FRAME_RECORD_MAP, &records.base);
    assert_int_equal(answer.nfds, 1);
    shared[RECORDS] = answer.fds[0];
}

static uint64_t size_of(int fd)
{
    struct stat st;

    assert_int_equal(fstat(fd, &st), 0);
    return (uint64_t)st.st_size;
}

static uint8_t *mapped(int fd)
{
    void *at = mmap(NULL, size_of(fd), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

    assert_ptr_not_equal(at, MAP_FAILED);
    return at;
}

/* Each memory that the attacker shares. */
static const uint32_t memories[] = {REGION, CONTROL, RECORDS};
#define MEMORIES (sizeof memories / sizeof *memories)

/* Returns true if a daemon that starts now refuses holes. */
static bool refuses_holes(void)
{
    if (getenv("TERN_TEST_HOLES"))
        (void)prctl(PR_CAPBSET_DROP, CAP_LINUX_IMMUTABLE); /* fails for users without it */
    return geteuid() == 0 && prctl(PR_CAPBSET_READ, CAP_LINUX_IMMUTABLE) == 1;
}

FIXTURE(start)
{
    holes = !refuses_holes();
    signal(SIGIO, SIG_IGN);
    signal(SIGUSR1, SIG_IGN);
    signal(SIGPIPE, SIG_IGN);
    rig_record_memory = RECORD_MEMORY;
    rig_deadlines.progress_ms = PARTIAL_MS;
    rig_start_two(&d, other, NULL);
    rig_record_memory = 0;
    neighbour = rig_engine(other, "neighbour", L, 16 * PAGES * RIG_PAGE);
    attacker_joins();
    neighbour_is_served();
    assert_int_equal(rig_log_has(&d, "event=client_memory with_holes=0", 0), !holes);
    return 0;
}

FIXTURE(stop)
{
    int status = rig_stop(&d);

    engine_close(&neighbour);
    for (uint32_t i = 0; i < CHILDREN; i++)
        if (children[i] > 0 && kill(children[i], SIGKILL) == 0)
            waitpid(children[i], NULL, 0);
    assert_int_equal(status, 0);
    return 0;
}

TEST_GROUP(start, stop);
TEST_EACH(NULL, served);

/* ---- open file descriptions ---- */

TEST(shared_flags_owners_and_offsets)
{
    static const int flags[] = {O_NONBLOCK, O_APPEND, O_ASYNC, O_DIRECT, O_NOATIME, 0};

    for (uint32_t i = 0; i < SHARED; i++)
        for (size_t k = 0; k < sizeof flags / sizeof *flags; k++) {
            (void)fcntl(shared[i], F_SETFL, O_RDWR | flags[k]);
            (void)fcntl(shared[i], F_SETOWN, k % 2 ? (int)d.pid : (int)getpid());
            (void)fcntl(shared[i], F_SETSIG, k % 2 ? SIGUSR1 : SIGIO);
            (void)lseek(shared[i], 12345, SEEK_SET);
            attacker_is_served();
        }
    neighbour_is_served();
    for (uint32_t i = 0; i < SHARED; i++) {
        (void)fcntl(shared[i], F_SETFL, O_RDWR);
        (void)fcntl(shared[i], F_SETOWN, 0);
    }
    attacker_is_served();
}

TEST(shared_locks_and_leases)
{
    struct flock all = {.l_type = F_WRLCK, .l_whence = SEEK_SET};

    for (uint32_t i = 0; i < SHARED; i++) {
        (void)flock(shared[i], LOCK_EX | LOCK_NB);
        (void)fcntl(shared[i], F_OFD_SETLK, &all);
        (void)fcntl(shared[i], F_SETLK, &all);
        (void)fcntl(shared[i], F_SETLEASE, F_WRLCK);
    }
    attacker_is_served();
    neighbour_is_served(); /* all of them are held */
}

TEST(shared_sizes_and_seals_are_fixed)
{
    for (size_t i = 0; i < MEMORIES; i++) {
        int fd = shared[memories[i]];
        uint64_t bytes = size_of(fd);

        assert_int_equal(ftruncate(fd, 0), -1);
        assert_int_equal(errno, EPERM);
        assert_int_equal(ftruncate(fd, (off_t)bytes * 2), -1);
        assert_int_equal(fallocate(fd, 0, (off_t)bytes, 4096), -1);
        assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE), -1);
        assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_FUTURE_WRITE), -1);
        assert_int_equal(errno, EPERM);
        assert_true(size_of(fd) == bytes);
    }
    attacker_is_served();
}

TEST(shared_pages_stay)
{
    static const int modes[] = {HOLE,
                                FALLOC_FL_ZERO_RANGE,
                                FALLOC_FL_ZERO_RANGE | FALLOC_FL_KEEP_SIZE,
                                FALLOC_FL_COLLAPSE_RANGE,
                                FALLOC_FL_INSERT_RANGE,
                                FALLOC_FL_UNSHARE_RANGE};

    if (holes)
        skip();
    for (size_t i = 0; i < MEMORIES; i++) {
        int fd = shared[memories[i]];
        uint8_t *at = mapped(fd);

        for (size_t k = 0; k < sizeof modes / sizeof *modes; k++) {
            assert_int_equal(fallocate(fd, modes[k], 0, 4096), -1);
            assert_int_equal(errno, EPERM);
        }
        assert_int_equal(madvise(at, size_of(fd), MADV_REMOVE), -1);
        assert_int_equal(errno, EPERM);
        (void)posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
        munmap(at, size_of(fd));
    }
    attacker_is_served();
}

/* ---- memory ---- */

static atomic_bool harming;
static atomic_ullong punched;

static void *punches(void *unused)
{
    (void)unused;
    while (atomic_load(&harming))
        for (size_t i = 0; i < MEMORIES; i++)
            if (fallocate(shared[memories[i]], HOLE, 0, (off_t)size_of(shared[memories[i]])) == 0)
                atomic_fetch_add(&punched, 1);
    return NULL;
}

/* Writes noise all over the control page: done steps, the wanted step, the incarnation. */
static void *scribbles_control(void *unused)
{
    uint64_t *words = (uint64_t *)(void *)mapped(shared[CONTROL]), noise = 88172645463325252u;
    size_t n = size_of(shared[CONTROL]) / sizeof *words;

    (void)unused;
    while (atomic_load(&harming))
        for (size_t i = 0; i < n; i++) {
            noise ^= noise << 13;
            noise ^= noise >> 7;
            noise ^= noise << 17;
            atomic_store((_Atomic uint64_t *)(void *)&words[i], noise >> noise % 64);
        }
    munmap(words, n * sizeof *words);
    return NULL;
}

static void *scribbles_records(void *unused)
{
    uint8_t *at = mapped(shared[RECORDS]);

    (void)unused;
    for (uint8_t v = 0xff; atomic_load(&harming); v--)
        memset(at, v, size_of(shared[RECORDS]));
    munmap(at, size_of(shared[RECORDS]));
    return NULL;
}

/* Both tenants continue while a thread of the attacker does that. */
static void goes_on_beside(void *(*harm)(void *), void (*attacker)(void))
{
    uint64_t until = rig_now_ms() + HARM_MS;
    pthread_t thread;

    atomic_store(&harming, true);
    assert_int_equal(pthread_create(&thread, NULL, harm, NULL), 0);
    while (rig_now_ms() < until) {
        attacker();
        neighbour_is_served();
        usleep(BREATH_US);
    }
    atomic_store(&harming, false);
    pthread_join(thread, NULL);
    attacker_is_served();
}

TEST(shared_memory_with_holes)
{
    goes_on_beside(punches, attacker_is_served);
    assert_int_equal(atomic_load(&punched) > 0, holes);
}

/* A child that maps each memory many times; every other mapping has a different protection, since
 * equal neighbours would be merged. */
static pid_t maps_often(void)
{
    pid_t child = fork();

    if (child != 0)
        return child;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (uint32_t i = 0; i < MAPS; i++)
        (void)mmap(NULL, 4096, PROT_READ | (i % 2 ? PROT_WRITE : 0), MAP_SHARED,
                   shared[memories[i % MEMORIES]], 0);
    kill(getpid(), SIGSTOP);
    _exit(0);
}

/* At each ring the owner reads the control page. */
static void rings_and_asks(void)
{
    (void)send(shared[BELL], "", 1, MSG_DONTWAIT | MSG_NOSIGNAL);
    attacker_is_served();
}

TEST(shared_memory_mapped_very_often_with_holes)
{
    pid_t child[MAPPERS];
    int status;

    for (uint32_t i = 0; i < MAPPERS; i++) {
        child[i] = maps_often();
        assert_int_equal(waitpid(child[i], &status, WUNTRACED), child[i]);
        assert_true(WIFSTOPPED(status));
    }
    atomic_store(&punched, 0);
    do
        goes_on_beside(punches, rings_and_asks);
    while (holes && !rig_log_has(&d, "event=memory_waited tenant=t0", 0));
    assert_int_equal(atomic_load(&punched) > 0, holes);
    for (uint32_t i = 0; i < MAPPERS; i++) {
        kill(child[i], SIGKILL);
        waitpid(child[i], NULL, 0);
    }
    assert_int_equal(rig_log_has(&d, "event=memory_waited", 0), holes);
}

TEST(shared_control_page_full_of_noise)
{
    goes_on_beside(scribbles_control, attacker_is_served);
}

/* An engine of the attacker's tenant puts turn records whose bytes change meanwhile. */
static void records_are_put(void)
{
    static const float logprobs[LENGTH];
    struct engine e = rig_engine(d.socket, "recorder", L, PAGES * RIG_PAGE);
    struct tern_new_record record = {.ntokens = LENGTH, .logprobs = logprobs, .nlogprobs = LENGTH};
    struct tern_recorded recorded;
    uint32_t tokens[LENGTH] = {1};
    tern_session s, turn;

    record.tokens = tokens;
    assert_ok(e.tern, tern_session_open(e.tern, e.pool, &e.ns, NULL, RIG_WAIT_MS, &s));
    for (uint32_t i = 0; i < 8; i++) {
        assert_ok(e.tern, tern_turn_begin(e.tern, s, RIG_WAIT_MS, &turn));
        (void)tern_record_put(e.tern, turn, &record, RIG_WAIT_MS, &recorded); /* an error or OK */
        assert_ok(e.tern, tern_turn_end(e.tern, turn, TERN_STEP_NONE, RIG_WAIT_MS));
    }
    engine_close(&e);
}

TEST(shared_records_that_change_while_they_are_checked)
{
    goes_on_beside(scribbles_records, records_are_put);
    goes_on_beside(punches, records_are_put);
}

TEST(shared_mappings_advised_and_protected)
{
    static const int advice[] = {
        MADV_DONTNEED,          MADV_REMOVE, MADV_HUGEPAGE, MADV_RANDOM, MADV_FREE,
        25 /* MADV_COLLAPSE */, 21 /* MADV_PAGEOUT */};

    for (size_t i = 0; i < MEMORIES; i++) {
        int fd = shared[memories[i]];
        uint8_t *at = mapped(fd);

        (void)mlock(at, size_of(fd));
        for (size_t k = 0; k < sizeof advice / sizeof *advice; k++)
            (void)madvise(at, size_of(fd), advice[k]);
        assert_int_equal(mprotect(at, size_of(fd), PROT_NONE), 0);
        attacker_is_served();
        neighbour_is_served();
        munmap(at, size_of(fd));
    }
}

/* ---- processor time ---- */

static bool first_line(const char *path, char *ret, int bytes)
{
    FILE *f = fopen(path, "r");
    bool ok = f && fgets(ret, bytes, f);

    if (f)
        fclose(f);
    return ok;
}

/* Processor time of the daemon's threads whose names begin with that. */
static uint64_t cpu_us(const char *threads)
{
    char path[320], name[32] = "";
    uint64_t ns = 0;
    DIR *dir;

    snprintf(path, sizeof path, "/proc/%d/task", (int)d.pid);
    dir = opendir(path);
    assert_non_null(dir);
    for (struct dirent *e = readdir(dir); e; e = readdir(dir)) {
        char text[64] = "";

        snprintf(path, sizeof path, "/proc/%d/task/%s/comm", (int)d.pid, e->d_name);
        if (e->d_name[0] == '.' || !first_line(path, name, sizeof name) ||
            strncmp(name, threads, strlen(threads)) != 0)
            continue;
        snprintf(path, sizeof path, "/proc/%d/task/%s/schedstat", (int)d.pid, e->d_name);
        assert_true(first_line(path, text, sizeof text));
        ns += strtoull(text, NULL, 10);
    }
    closedir(dir);
    return ns / 1000;
}

/* ---- sockets ---- */

static bool rings(const void *bytes, size_t n)
{
    return send(shared[BELL], bytes, n, MSG_DONTWAIT | MSG_NOSIGNAL) > 0;
}

static void *rings_without_end(void *unused)
{
    static const char noise[4096];

    (void)unused;
    while (atomic_load(&harming)) {
        (void)rings(noise, 0);
        (void)rings(noise, 1);
        (void)rings(noise, sizeof noise);
    }
    return NULL;
}

TEST(shared_bell_rung_without_end)
{
    goes_on_beside(rings_without_end, attacker_is_served);
}

/* Descriptors arrive with the ring if the kernel allows them; the daemon keeps none. */
TEST(shared_bell_with_descriptors)
{
    char control[CMSG_SPACE(sizeof(int))] = {0};
    struct iovec iov = {(char[1]){0}, 1};
    struct msghdr m = {
        .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    struct cmsghdr *cm = CMSG_FIRSTHDR(&m);
    uint32_t before = rig_fds(&d);

    cm->cmsg_level = SOL_SOCKET;
    cm->cmsg_type = SCM_RIGHTS;
    cm->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(cm), &(int){STDERR_FILENO}, sizeof(int));
    for (uint32_t i = 0; i < 1000; i++)
        (void)sendmsg(shared[BELL], &m, MSG_DONTWAIT | MSG_NOSIGNAL);
    wait_until(rig_fds(&d) <= before);
}

/* A child that waits on that socket in many ways until `stop`: each send and read of the daemon
 * wakes all waiters. */
static pid_t waits_on(int fd)
{
    pid_t child = fork();

    if (child != 0)
        return child;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (uint32_t i = 0; i < EPOLLS; i++) {
        struct epoll_event ev = {.events = EPOLLIN | EPOLLOUT | EPOLLET};

        if (epoll_ctl(epoll_create1(0), EPOLL_CTL_ADD, fd, &ev) < 0)
            break;
    }
    pause();
    _exit(0);
}

/* logged: expected text of the log in the end; NULL: none. */
static void epolls_on(int fd, void (*attacker)(void), const char *logged)
{
    pid_t child[2] = {waits_on(fd), waits_on(fd)};
    uint64_t begun = rig_now_ms();

    while (rig_now_ms() < begun + HARM_MS || (logged && !rig_log_has(&d, logged, 0))) {
        assert_true(rig_now_ms() < begun + RIG_WAIT_MS);
        attacker();
        neighbour_is_served();
        usleep(BREATH_US);
    }
    for (uint32_t i = 0; i < 2; i++) {
        kill(child[i], SIGKILL);
        waitpid(child[i], NULL, 0);
    }
}

static void ring(void)
{
    for (uint32_t i = 0; i < RINGS; i++)
        (void)rings("", 1);
}

TEST(shared_bell_with_thousands_of_waiters)
{
    uint64_t read_us = cpu_us(READERS), begun = rig_now_ms(), ms;

    epolls_on(shared[BELL], ring, NULL);
    read_us = cpu_us(READERS) - read_us;
    ms = rig_now_ms() - begun;
    printf("bells were read for %" PRIu64 " us of %" PRIu64 " ms\n", read_us, ms);
    assert_in_range(read_us, 0, ms * 1000 * READ_PERCENT / 100);
}

TEST(shared_request_socket_with_thousands_of_waiters)
{
    epolls_on(shared[REQUESTS], attacker_is_served, "event=conn_aside");
}

TEST(shared_request_socket_whose_answers_nobody_reads)
{
    Tern__Wire__PoolRef map = TERN__WIRE__POOL_REF__INIT;
    int fd = rig_greeted(d.socket);

    map.has_pool = true;
    map.pool = pool;
    for (uint64_t id = 2; id < UNREAD && rig_message(fd, FRAME_POOL_MAP, id, 0, &map.base); id++)
        ;
    neighbour_is_served();
    close(fd);
    attacker_is_served();
}

/* ---- sockets that the daemon closes ---- */

static int waiter[WAITERS];
static uint64_t closers_us;

static void waiters_begin(void)
{
    struct rlimit most;

    assert_int_equal(getrlimit(RLIMIT_NOFILE, &most), 0);
    most.rlim_cur = most.rlim_max;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &most), 0);
    for (uint32_t i = 0; i < WAITERS; i++)
        assert_true((waiter[i] = epoll_create1(EPOLL_CLOEXEC)) >= 0);
}

static void wait_on(int fd)
{
    for (uint32_t i = 0; i < WAITERS; i++) {
        struct epoll_event ev = {.events = EPOLLIN | EPOLLOUT | EPOLLET};

        assert_int_equal(epoll_ctl(waiter[i], EPOLL_CTL_ADD, fd, &ev), 0);
    }
}

/* Returns the processor time that this thread needs to close CLOSED sockets on which all wait. */
static uint64_t own_closes_us(void)
{
    struct timespec begin, end;
    int pair[CLOSED][2];

    for (uint32_t i = 0; i < CLOSED; i++) {
        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair[i]), 0);
        wait_on(pair[i][0]);
    }
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &begin);
    for (uint32_t i = 0; i < CLOSED; i++)
        close(pair[i][1]);
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &end);
    for (uint32_t i = 0; i < CLOSED; i++)
        close(pair[i][0]);
    return (uint64_t)((end.tv_sec - begin.tv_sec) * 1000000 + (end.tv_nsec - begin.tv_nsec) / 1000);
}

/* The closing threads woke all waiters: what remains for the owner is less than half of that work,
 * whatever else it did meanwhile. */
static void waiters_end(void)
{
    uint64_t own_us;

    closers_us = cpu_us(CLOSERS) - closers_us;
    own_us = own_closes_us();
    printf("closing threads %" PRIu64 " us, the same closes here %" PRIu64 " us\n", closers_us,
           own_us);
    assert_true(closers_us > own_us / 2);
    for (uint32_t i = 0; i < WAITERS; i++)
        close(waiter[i]);
    neighbour_is_served();
}

static void cpu_begin(void)
{
    closers_us = cpu_us(CLOSERS);
}

/* Each has half a frame under way when its time is over. */
TEST(shared_sockets_closed_at_their_deadline_with_thousands_of_waiters)
{
    int fd[CLOSED];

    waiters_begin();
    for (uint32_t i = 0; i < CLOSED; i++) {
        fd[i] = rig_greeted(d.socket);
        wait_on(fd[i]);
    }
    cpu_begin();
    for (uint32_t i = 0; i < CLOSED; i++)
        assert_true(rig_write(fd[i], "\1", 1));
    for (uint32_t i = 0; i < CLOSED; i++) {
        assert_int_equal(rig_read(fd[i], RIG_WAIT_MS, &answer), RIG_CLOSED);
        close(fd[i]);
    }
    waiters_end();
}

static int refused(void)
{
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    assert_true(fd >= 0);
    wait_on(fd); /* before it is connected */
    snprintf(addr.sun_path, sizeof addr.sun_path, "%s", d.socket);
    assert_int_equal(connect(fd, (struct sockaddr *)&addr, sizeof addr), 0);
    assert_int_equal(rig_read(fd, RIG_WAIT_MS, &answer), RIG_FRAME);
    assert_err(TERN_QUOTA, rig_status(&answer));
    assert_int_equal(rig_read(fd, RIG_WAIT_MS, &answer), RIG_CLOSED);
    return fd;
}

TEST(shared_sockets_refused_with_thousands_of_waiters)
{
    int fd[RIG_CONNS_MAX];
    uint32_t n = 0;

    waiters_begin();
    while (n < RIG_CONNS_MAX - 1) /* and the one of its requests */
        fd[n++] = rig_greeted(d.socket);
    cpu_begin();
    for (uint32_t i = 0; i < CLOSED; i++)
        close(refused());
    waiters_end();
    while (n > 0)
        close(fd[--n]);
}

/* The last case of the list: children that keep everything open after the attacker has ended, until
 * the daemon has. Their attacks count for nobody then. */
TEST(shared_descriptors_kept_by_children)
{
    for (uint32_t i = 0; i < CHILDREN; i++) {
        children[i] = fork();
        if (children[i] == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            for (;;) {
                (void)rings("", 1);
                (void)fallocate(shared[REGION], HOLE, 0, RIG_PAGE);
                usleep(1000);
            }
        }
    }
    assert_int_equal(shutdown(shared[REQUESTS], SHUT_RDWR), 0);
    for (uint32_t i = 0; i < SHARED; i++)
        close(shared[i]);
    neighbour_is_served();
}
