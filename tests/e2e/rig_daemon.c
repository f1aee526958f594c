/* A daemon for a test, and raw sockets. See rig_daemon.h. */
#include "rig_daemon.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <inttypes.h>
#include <poll.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/hash.h"
#include "engine/admin.h"
#include "engine/json.h"
#include "engine/proc.h"
#include "engine/stats.h"

uint64_t rig_now_ms(void)
{
    return clock_ns() / 1000000;
}

/* ---- the daemon ---- */

struct rig_deadlines rig_deadlines;
uint64_t rig_record_memory;
uint64_t rig_memory;

static void write_deadline(FILE *f, const char *name, uint32_t ms)
{
    if (ms)
        fprintf(f, "  %s: %u\n", name, ms);
}

/* `other`: t1's socket; NULL: no such tenant. */
static void write_config(const struct daemon *d, const char *node, const char *other,
                         const char *extra)
{
    FILE *f = fopen(d->config, "w");

    assert_non_null(f);
    fprintf(f, "node: %s\nlog_level: debug\nframe_body_max: %u\nworkers: 1\nhuge_pages: false\n",
            node, RIG_BODY_MAX);
    fprintf(f, "admin:\n  socket: %s\n", d->admin);
    fprintf(f, "deadlines:\n  drain_ms: %d\n", RIG_DRAIN_MS);
    write_deadline(f, "progress_ms", rig_deadlines.progress_ms);
    write_deadline(f, "step_alarm_ms", rig_deadlines.step_alarm_ms);
    write_deadline(f, "turn_ms", rig_deadlines.turn_ms);
    fprintf(f,
            "tenants:\n  - name: t0\n    socket: %s\n    memory: %" PRIu64 "\n    conns_max: %d\n",
            d->socket, rig_memory ? rig_memory : RIG_MEMORY, RIG_CONNS_MAX);
    fprintf(f, "    record_memory: %" PRIu64 "\n", rig_record_memory);
    if (other)
        fprintf(f,
                "  - name: t1\n    socket: %s\n    memory: 16M\n    record_memory: %" PRIu64 "\n",
                other, rig_record_memory);
    fprintf(f, "%s", extra ? extra : "");
    assert_int_equal(fclose(f), 0);
}

bool rig_log_has(const struct daemon *d, const char *text, uint32_t ms)
{
    return rig_log_has_times(d, text, 1, ms);
}

bool rig_log_has_times(const struct daemon *d, const char *text, uint32_t times, uint32_t ms)
{
    return daemon_log_count(d, text, times, ms) >= times;
}

uint64_t rig_figure(struct tern *admin, const char *command, const char *path)
{
    json_t *answer = admin_ask(admin, command, NULL), *n = json_at(answer, path);
    json_int_t figure = json_integer_value(n);

    if (!json_is_integer(n))
        fail_msg("%s: no number at %s", command, path);
    json_decref(answer);
    return (uint64_t)figure;
}

json_t *rig_ctl(const char *arguments)
{
    const char *bin = getenv("TERN_BIN");
    char command[512];
    json_t *told;
    FILE *out;

    snprintf(command, sizeof command, "%s/ternctl --json %s", bin ? bin : "build/bin", arguments);
    out = popen(command, "r");
    assert_non_null(out);
    told = json_loadf(out, 0, NULL);
    pclose(out);
    assert_non_null(told);
    return told;
}

bool rig_ctl_says(const struct daemon *d, const char *command, const char *words)
{
    const char *bin = getenv("TERN_BIN");
    static char text[1 << 16];
    char line[512];
    FILE *out;

    snprintf(line, sizeof line, "%s/ternctl --socket %s %s", bin ? bin : "build/bin", d->admin,
             command);
    out = popen(line, "r");
    assert_non_null(out);
    text[fread(text, 1, sizeof text - 1, out)] = '\0';
    assert_int_equal(pclose(out), 0);
    return strstr(text, words) != NULL;
}

void rig_no_leak(struct tern *admin, uint64_t pool, uint64_t pages, uint32_t ms)
{
    struct daemon_status st;

    assert_true(admin_empty(admin, pool, ms, &st));
    assert_int_equal(st.transfers_active, 0);
    assert_int_equal(st.pages.quarantine, 0);
    assert_int_equal(st.pages.total, pages);
    assert_int_equal(st.pages.free, pages);
}

static void start_node(struct daemon *d, const char *node, char *ret_other, const char *extra,
                       const char *env)
{
    bool limits = env && strncmp(env, RIG_NOFILE, strlen(RIG_NOFILE)) == 0;
    struct daemon_launch how = {.core = -1, .says_ready = true, .env = limits ? NULL : env};
    char dir[64], why[SPAWN_WHY_BYTES] = "";

    if (limits)
        how.files_max = (uint32_t)atoi(env + strlen(RIG_NOFILE));
    assert_true(tempdir_make(dir, sizeof dir, "tern-e2e"));
    daemon_place(d, dir, node);
    if (ret_other)
        snprintf(ret_other, SPAWN_PATH_BYTES, "%s/t1.sock", dir);
    write_config(d, node, ret_other, extra);
    if (!daemon_launch(d, &how, why))
        fail_msg("%s", why);
}

void rig_start(struct daemon *d, const char *extra, const char *env)
{
    rig_start_node(d, "e2e", extra, env);
}

void rig_start_node(struct daemon *d, const char *node, const char *extra, const char *env)
{
    start_node(d, node, NULL, extra, env);
}

void rig_start_two(struct daemon *d, char ret_other[SPAWN_PATH_BYTES], const char *extra)
{
    start_node(d, "e2e", ret_other, extra, NULL);
}

void rig_start_pair(struct daemon *first, struct daemon *second, char ret_dir[RIG_DIR_BYTES],
                    struct daemon_options o[2])
{
    char why[SPAWN_WHY_BYTES] = "";

    first->pid = second->pid = -1;
    assert_true(tempdir_make(ret_dir, RIG_DIR_BYTES, "tern-e2e"));
    if (!daemon_start_pair(first, second, ret_dir, o, why))
        fail_msg("%s", why);
}

struct tern *rig_connected(const char *socket)
{
    struct tern *t;

    assert_err(TERN_OK, tern_connect(socket, RIG_WAIT_MS, &t));
    return t;
}

static bool is_linked(struct tern *admin, const char *peer)
{
    json_t *peers = admin_ask(admin, "peers", NULL),
           *row = json_row(json_object_get(peers, "peers"), "peer", peer);
    bool up = row && json_says(row, "state", "up");

    json_decref(peers);
    return up;
}

void rig_wait_linked(const struct daemon *d, const char *peer)
{
    struct tern *admin = rig_connected(d->admin);

    wait_until(is_linked(admin, peer));
    tern_destroy(admin);
}

static bool lets_go(struct tern *admin)
{
    struct daemon_status s;

    assert_true(admin_status(admin, 0, &s));
    return s.pages.session + s.pages.transfer + s.pages.retiring + s.pages.quarantine == 0;
}

void rig_wait_let_go(const struct daemon *d)
{
    struct tern *admin = rig_connected(d->admin);

    wait_until(lets_go(admin));
    tern_destroy(admin);
}

enum tern_err rig_fetch_ticket(struct engine_session *to, const struct tern_ticket *ticket,
                               struct tern_result *ret)
{
    enum tern_err err;

    do
        err = tern_fetch(to->engine->tern, to->id,
                         &(struct tern_fetch){.ticket = ticket->text, .step = TERN_STEP_NONE},
                         RIG_WAIT_MS, ret);
    while (err == TERN_BUSY);
    if (err == TERN_OK)
        assert_int_equal(engine_take(to, ret), TERN_OK);
    return err;
}

struct engine rig_engine(const char *socket, const char *name, uint32_t page_tokens, uint64_t bytes)
{
    struct tern_group kv = {.name = "kv", .page_tokens = page_tokens, .page_bytes = RIG_PAGE};
    struct tern_layout layout = {.groups = &kv, .ngroups = 1, .bytes = bytes};
    struct engine e = {0};

    assert_ok(e.tern, engine_open(&e, socket, name, &layout, RIG_WAIT_MS));
    return e;
}

uint32_t rig_fds(const struct daemon *d)
{
    char path[64];
    uint32_t n = 0;
    DIR *dir;

    snprintf(path, sizeof(path), "/proc/%d/fd", (int)d->pid);
    dir = opendir(path);
    assert_non_null(dir);
    for (struct dirent *e = readdir(dir); e; e = readdir(dir))
        n += e->d_name[0] != '.';
    closedir(dir);
    return n;
}

bool rig_alive(const struct daemon *d)
{
    return waitpid(d->pid, NULL, WNOHANG) == 0;
}

uint64_t rig_cpu_ms(const struct daemon *d)
{
    struct timespec ts;
    clockid_t clock;

    assert_int_equal(clock_getcpuclockid(d->pid, &clock), 0);
    assert_int_equal(clock_gettime(clock, &ts), 0);
    return (uint64_t)ts.tv_sec * 1000 + (uint64_t)ts.tv_nsec / 1000000;
}

int rig_stop(struct daemon *d)
{
    char command[128];
    int status;

    if (d->pid <= 0)
        return -1;
    status = daemon_end(d, RIG_STOP_MS);
    snprintf(command, sizeof(command), "rm -rf '%s'", d->dir);
    assert_int_equal(system(command), 0);
    return status;
}

int rig_end(struct daemon *d)
{
    if (d->pid > 0)
        assert_int_equal(rig_stop(d), 0);
    d->pid = -1;
    return 0;
}

uint64_t rig_rss_kib(const struct daemon *d)
{
    char path[64], line[256];
    unsigned long kib = 0;
    FILE *f;

    snprintf(path, sizeof(path), "/proc/%d/status", (int)d->pid);
    f = fopen(path, "r");
    assert_non_null(f);
    while (fgets(line, sizeof(line), f)) {
        if (sscanf(line, "VmRSS: %lu", &kib) == 1)
            break;
    }
    fclose(f);
    assert_true(kib > 0);
    return kib;
}

/* ---- raw sockets ---- */

int rig_connect(const char *path)
{
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    assert_true(fd >= 0);
    snprintf(addr.sun_path, sizeof(addr.sun_path), "%s", path);
    assert_int_equal(connect(fd, (struct sockaddr *)&addr, sizeof(addr)), 0);
    return fd;
}

int rig_connect_tcp(uint16_t port)
{
    struct sockaddr_in addr = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    assert_true(fd >= 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&addr, sizeof(addr)), 0);
    return fd;
}

bool rig_write(int fd, const void *bytes, size_t n)
{
    return proc_send(fd, bytes, n);
}

bool rig_frame(int fd, uint16_t type, uint64_t id, const void *body, size_t n)
{
    struct frame_header h = {
        .length = (uint32_t)n, .version = FRAME_VERSION, .type = type, .request_id = id};
    uint8_t head[FRAME_HEADER_BYTES];

    frame_encode(&h, head);
    return rig_write(fd, head, sizeof(head)) && rig_write(fd, body, n);
}

bool rig_message(int fd, uint16_t type, uint64_t id, uint64_t session, const ProtobufCMessage *m)
{
    static _Thread_local uint8_t frame[FRAME_HEADER_BYTES + RIG_BODY_MAX];
    struct frame_header h = {
        .version = FRAME_VERSION, .type = type, .request_id = id, .session = session};
    size_t n;

    assert_int_equal(wire_encode(&h, m, RIG_BODY_MAX, frame, sizeof(frame), &n), TERN_OK);
    return rig_write(fd, frame, n);
}

void rig_stats_frames(uint8_t *ret, uint32_t n, uint64_t first_id)
{
    for (uint32_t i = 0; i < n; i++, ret += RIG_STATS_BYTES) {
        struct frame_header h = {
            .length = 3, .version = FRAME_VERSION, .type = FRAME_STATS, .request_id = first_id + i};

        frame_encode(&h, ret);
        memcpy(ret + FRAME_HEADER_BYTES, "\xa0\x06", 3); /* an unknown field */
    }
}

static void take_fds(struct msghdr *msg, struct rig_answer *ret)
{
    for (struct cmsghdr *c = CMSG_FIRSTHDR(msg); c; c = CMSG_NXTHDR(msg, c)) {
        size_t n = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);

        assert_true(c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS);
        assert_true(ret->nfds + n <= RIG_FDS_MAX);
        memcpy(&ret->fds[ret->nfds], CMSG_DATA(c), n * sizeof(int));
        ret->nfds += (uint32_t)n;
    }
}

static enum rig_end read_bytes(int fd, uint64_t end_ms, void *buf, size_t n, struct rig_answer *ret)
{
    uint8_t *p = buf;

    while (n > 0) {
        _Alignas(struct cmsghdr) char control[CMSG_SPACE(RIG_FDS_MAX * sizeof(int))];
        struct iovec iov = {p, n};
        struct msghdr msg = {.msg_iov = &iov,
                             .msg_iovlen = 1,
                             .msg_control = control,
                             .msg_controllen = sizeof(control)};
        struct pollfd pf = {.fd = fd, .events = POLLIN};
        uint64_t now = rig_now_ms();
        ssize_t got;

        if (now >= end_ms || poll(&pf, 1, (int)(end_ms - now)) == 0)
            return RIG_NOTHING;
        got = recvmsg(fd, &msg, MSG_CMSG_CLOEXEC);
        if (got <= 0)
            return RIG_CLOSED;
        take_fds(&msg, ret);
        p += got;
        n -= (size_t)got;
    }
    return RIG_FRAME;
}

enum rig_end rig_read(int fd, uint32_t ms, struct rig_answer *ret)
{
    struct pollfd pf = {.fd = fd, .events = POLLIN};
    uint64_t end = rig_now_ms() + ms + RIG_WAIT_MS;
    uint8_t head[FRAME_HEADER_BYTES];
    enum rig_end got;

    ret->nfds = 0;
    if (poll(&pf, 1, (int)ms) == 0)
        return RIG_NOTHING;
    got = read_bytes(fd, end, head, sizeof(head), ret);
    if (got != RIG_FRAME)
        return got;
    assert_int_equal(frame_decode(head, RIG_BODY_MAX, &ret->h), TERN_OK);
    return read_bytes(fd, end, ret->body, ret->h.length, ret);
}

enum tern_err rig_status(const struct rig_answer *a)
{
    static uint8_t mem[BUDGET_BYTES(RIG_BODY_MAX)] __attribute__((aligned(64)));
    const ProtobufCMessage *msg;
    const Tern__Wire__Status *status;
    struct budget budget;
    bool answers = a->h.type % 2 == 0 && wire_descriptor(a->h.type);
    uint16_t type = answers ? a->h.type : FRAME_PING_REPLY;

    budget_init(&budget, mem, sizeof(mem));
    assert_int_equal(wire_decode(&budget, type, a->body, a->h.length, &msg), TERN_OK);
    /* Status is field 1 of every answer and the first member of every struct. */
    status = ((const Tern__Wire__Empty *)(const void *)msg)->status;
    return status ? (enum tern_err)status->err : TERN_OK;
}

const void *rig_decoded(const struct rig_answer *a, uint16_t type)
{
    static uint8_t mem[BUDGET_BYTES(RIG_BODY_MAX)] __attribute__((aligned(64)));
    const ProtobufCMessage *msg;
    struct budget budget;

    assert_int_equal(a->h.type, type);
    budget_init(&budget, mem, sizeof(mem));
    assert_int_equal(wire_decode(&budget, type, a->body, a->h.length, &msg), TERN_OK);
    return msg;
}

/* Nobody else gets the port while its listener is closed, so it can be made again. */
int rig_listen(uint16_t *port)
{
    struct sockaddr_in addr = {.sin_family = AF_INET,
                               .sin_port = htons(*port ? *port : port_free()),
                               .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof(addr);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1;

    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
    assert_int_equal(bind(fd, (struct sockaddr *)&addr, sizeof(addr)), 0);
    assert_int_equal(listen(fd, 16), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&addr, &len), 0);
    *port = ntohs(addr.sin_port);
    return fd;
}

int rig_accept(int listener, uint32_t ms)
{
    struct pollfd pf = {.fd = listener, .events = POLLIN};

    return poll(&pf, 1, (int)ms) > 0 ? accept4(listener, NULL, NULL, SOCK_CLOEXEC) : -1;
}

int rig_accept_fresh(int listener)
{
    int fd;

    while ((fd = rig_accept(listener, 0)) >= 0)
        close(fd);
    fd = rig_accept(listener, RIG_WAIT_MS);
    assert_true(fd >= 0);
    return fd;
}

/* A different one for each name. */
static uint64_t peer_incarnation(const char *node)
{
    uint64_t life = RIG_PEER;

    for (; *node; node++)
        life = hash_mix(life, (unsigned char)*node);
    return life;
}

bool rig_hello_answered(int fd, const char *node, uint16_t data_port, bool rdma)
{
    static _Thread_local struct rig_answer answer;
    Tern__Wire__PeerHelloReply m = TERN__WIRE__PEER_HELLO_REPLY__INIT;

    if (rig_read(fd, RIG_WAIT_MS, &answer) != RIG_FRAME || answer.h.type != FRAME_PEER_HELLO)
        return false;
    m.has_version = m.has_incarnation = m.has_data_port = m.has_rdma = true;
    m.version = WIRE_VERSION;
    m.node = (char *)(uintptr_t)node;
    m.incarnation = peer_incarnation(node);
    m.data_port = data_port;
    m.rdma = rdma;
    return rig_message(fd, FRAME_PEER_HELLO_REPLY, answer.h.request_id, 0, &m.base);
}

void rig_answer_hello(int fd, const char *node, uint16_t data_port, bool rdma)
{
    assert_true(rig_hello_answered(fd, node, data_port, rdma));
}

Tern__Wire__PeerHello rig_peer_hello(const char *node)
{
    Tern__Wire__PeerHello m = TERN__WIRE__PEER_HELLO__INIT;

    m.has_version_min = m.has_version_max = m.has_incarnation = m.has_data_port = true;
    m.version_min = WIRE_VERSION_MIN;
    m.version_max = WIRE_VERSION;
    m.node = (char *)(uintptr_t)node;
    m.incarnation = peer_incarnation(node);
    m.data_port = 1;
    return m;
}

int rig_peer_dials(const struct daemon *d, const char *node, struct rig_answer *ret)
{
    Tern__Wire__PeerHello m = rig_peer_hello(node);
    int fd = rig_connect_tcp(d->control_port);

    assert_true(rig_message(fd, FRAME_PEER_HELLO, 1, 0, &m.base));
    assert_int_equal(rig_read(fd, RIG_WAIT_MS, ret), RIG_FRAME);
    assert_int_equal(ret->h.type, FRAME_PEER_HELLO_REPLY);
    return fd;
}

/* Sends a Hello on fd. Returns the daemon's answer. */
static enum tern_err hello(int fd)
{
    static struct rig_answer answer;
    Tern__Wire__Hello m = TERN__WIRE__HELLO__INIT;

    m.has_version_min = m.has_version_max = true;
    m.version_min = WIRE_VERSION_MIN;
    m.version_max = WIRE_VERSION;
    (void)rig_message(fd, FRAME_HELLO, 1, 0, &m.base); /* above a limit it answers unread */
    assert_int_equal(rig_read(fd, RIG_WAIT_MS, &answer), RIG_FRAME);
    assert_int_equal(answer.h.type, FRAME_HELLO_REPLY);
    return rig_status(&answer);
}

int rig_greeted(const char *path)
{
    int fd = rig_connect(path);

    assert_int_equal(hello(fd), TERN_OK);
    return fd;
}

int rig_greeted_in_time(const char *path)
{
    for (uint64_t end = rig_now_ms() + RIG_WAIT_MS;; usleep(10000)) {
        int fd = rig_connect(path);
        enum tern_err err = hello(fd);

        if (err == TERN_OK)
            return fd;
        assert_true(err == TERN_BUSY || err == TERN_QUOTA);
        assert_true(rig_now_ms() < end);
        close(fd);
    }
}

bool rig_ping(int fd, uint64_t id, uint32_t ms)
{
    static struct rig_answer answer;
    Tern__Wire__Empty m = TERN__WIRE__EMPTY__INIT;

    return rig_message(fd, FRAME_PING, id, 0, &m.base) && rig_read(fd, ms, &answer) == RIG_FRAME &&
           answer.h.type == FRAME_PING_REPLY && answer.h.request_id == id &&
           rig_status(&answer) == TERN_OK;
}

uint32_t rig_until_closed(int fd, uint32_t ms)
{
    uint64_t start = rig_now_ms();
    char buf[4096];

    for (;;) {
        struct pollfd pf = {.fd = fd, .events = POLLIN};
        uint64_t took = rig_now_ms() - start;

        if (took >= ms || poll(&pf, 1, (int)(ms - took)) == 0)
            return UINT32_MAX;
        if (recv(fd, buf, sizeof(buf), 0) <= 0)
            return (uint32_t)(rig_now_ms() - start);
    }
}

size_t rig_nest(uint8_t *end, uint32_t field, uint32_t levels)
{
    uint8_t *p = end;

    for (uint32_t i = 0; i < levels; i++) {
        size_t n = (size_t)(end - p);
        uint8_t varint[5];
        size_t len = 0;

        do {
            varint[len++] = (uint8_t)(n & 0x7f);
            n >>= 7;
        } while (n);
        for (size_t k = 0; k < len; k++)
            *--p = (uint8_t)(varint[len - 1 - k] | (len - 1 - k == len - 1 ? 0 : 0x80));
        *--p = (uint8_t)(field << 3 | 2);
    }
    return (size_t)(end - p);
}
