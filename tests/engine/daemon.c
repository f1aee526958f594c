/* Daemons of a run: see daemon.h. The daemon's program is taken from TERND or from beside the
 * caller's own. Its log goes to a file in the run's directory, and the log's end is shown when
 * something fails. */
#include "engine/daemon.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "engine/proc.h"
#include "engine/stats.h"

#define START_MS    120000 /* gigabytes of memory are written before it serves */
#define TRANSFER_MS 60000
#define STOP_MS     60000
#define LOG_SHOWN   600
#define PORT_FIRST  10000u
#define PORT_BLOCK  1024u

/* Returns the bound port; 0: it is in use. */
static uint16_t port_bind(uint16_t port)
{
    struct sockaddr_in at = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof at;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool ok;

    if (fd < 0)
        return 0;
    ok = bind(fd, (struct sockaddr *)&at, sizeof at) == 0 &&
         getsockname(fd, (struct sockaddr *)&at, &len) == 0;
    close(fd);
    return ok ? ntohs(at.sin_port) : 0;
}

/* Returns the first port of the range that the kernel assigns to outgoing connections. */
static uint32_t dialling_from(void)
{
    FILE *f = fopen("/proc/sys/net/ipv4/ip_local_port_range", "re");
    uint32_t first = 0;

    if (f && fscanf(f, "%u", &first) != 1)
        first = 0;
    if (f)
        fclose(f);
    return first;
}

/* Claims a block of ports below that range for this process until it ends. Returns the block's
 * first port; 0: none. Scripts claim theirs in the same way (tests/e2e/with_ternd.sh), so tests
 * that run at once share no port. */
static uint32_t block_claim(uint32_t blocks)
{
    uint32_t at = 0;
    char path[64];

    if (getrandom(&at, sizeof at, 0) != sizeof at)
        at = (uint32_t)getpid();
    for (uint32_t i = 0; i < blocks; i++) {
        uint32_t first = PORT_FIRST + (at % blocks + i) % blocks * PORT_BLOCK;
        int fd;

        snprintf(path, sizeof path, "/tmp/tern-ports-%u", first);
        fd = open(path, O_RDONLY | O_CREAT | O_CLOEXEC, 0666);
        if (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0)
            return first; /* the lock stays */
        if (fd >= 0)
            close(fd);
    }
    return 0;
}

/* Returns a port that no connection, other test or earlier call has before the daemon listens. */
uint16_t port_free(void)
{
    static uint32_t first, next;
    uint32_t end = dialling_from();

    if (first == 0 && end >= PORT_FIRST + PORT_BLOCK)
        first = block_claim((end - PORT_FIRST) / PORT_BLOCK);
    for (uint32_t i = 0; first > 0 && i < PORT_BLOCK; i++) {
        uint16_t port = port_bind((uint16_t)(first + next++ % PORT_BLOCK));

        if (port)
            return port;
    }
    return port_bind(0);
}

/* The path in TERND; else beside this program, or in sbin when both are installed; else in
 * TERN_BIN, for test programs that lie elsewhere. */
static bool daemon_path(char *path, size_t cap)
{
    const char *named = getenv("TERND"), *folder = getenv("TERN_BIN");
    ssize_t n;
    char *slash;

    if (named && *named)
        return (size_t)snprintf(path, cap, "%s", named) < cap;
    n = readlink("/proc/self/exe", path, cap - 1);
    if (n <= 0)
        return false;
    path[n] = 0;
    slash = strrchr(path, '/');
    if (!slash || (size_t)(slash - path) + sizeof "/../sbin/ternd" > cap)
        return false;
    memcpy(slash, "/ternd", sizeof "/ternd");
    if (access(path, X_OK) == 0)
        return true;
    memcpy(slash, "/../sbin/ternd", sizeof "/../sbin/ternd");
    if (access(path, X_OK) != 0 && folder)
        return (size_t)snprintf(path, cap, "%s/ternd", folder) < cap;
    return true;
}

static void write_limits(FILE *f, const struct daemon_options *o)
{
    fprintf(f, "limits:\n  pulls: 256\n");
    if (o->sums_per_page)
        fprintf(f, "  sums_per_page: %u\n", o->sums_per_page);
    if (o->token_blocks)
        fprintf(f, "  token_blocks: %" PRIu64 "\n", o->token_blocks);
    if (o->nodes)
        fprintf(f, "  nodes: %" PRIu64 "\n", o->nodes);
    if (o->bytes_in_flight)
        fprintf(f, "  peer_bytes_in_flight: %" PRIu64 "\n  tenant_bytes_in_flight: %" PRIu64 "\n",
                o->bytes_in_flight, o->bytes_in_flight);
}

/* Adds the settings of how pages travel from the environment, for tests. TERN_PEER_TRANSPORT: no
 * fallback to another transport; TERN_RDMA_DEVICE_NODE: each node's own device. */
static void write_peers(FILE *f, const struct daemon_options *o)
{
    const char *transport = getenv("TERN_PEER_TRANSPORT"), *device;
    char name[64];

    fprintf(f, "peers:\n");
    for (uint32_t i = 0; i < DAEMON_PEERS_MAX && o->peer[i].name; i++) {
        fprintf(f, "  - name: %s\n    address: 127.0.0.1:%u\n    tenants: [%s%s]\n",
                o->peer[i].name, o->peer[i].port, SPAWN_TENANT,
                o->second_tenant ? ", " SPAWN_TENANT "-second" : "");
        if (transport)
            fprintf(f, "    transport: %s\n", transport);
    }
    snprintf(name, sizeof name, "TERN_RDMA_DEVICE_%s", o->node);
    device = getenv(name);
    if (device)
        fprintf(f, "rdma_device: %s\n", device);
}

/* TERN_DEVICE_MEMORY, for tests: the UUIDs of GPUs, NAME+NAME, on which the tenant's regions lie.
 */
static void write_devices(FILE *f, uint32_t regions)
{
    const char *devices = getenv("TERN_DEVICE_MEMORY"), *end = devices;

    if (!devices)
        return;
    for (uint32_t i = 0; i < regions && *end; i++) {
        end = strchrnul(end, '+');
        end += i + 1 < regions && *end ? 1 : 0;
    }
    fprintf(f, "    devices: %.*s\n    device_memory: true\n", (int)(end - devices), devices);
}

static bool write_config(const char *path, const struct daemon *d, const struct daemon_options *o)
{
    const char *level = getenv("TERND_LOG_LEVEL"); /* to log more of the daemon's work */
    bool has_peer = o->peer[0].name != NULL;
    FILE *f = fopen(path, "we");

    if (!f)
        return false;
    fprintf(f, "node: %s\nlog_level: %s\npage_bytes_min: %" PRIu64 "\n", o->node,
            level && *level ? level : "warn", o->page_bytes_min);
    if (has_peer)
        fprintf(f, "listen: 127.0.0.1:%u\n", o->port);
    if (has_peer && o->tls)
        fprintf(f, "tls:\n  ca: %s/ca.pem\n  cert: %s/%s.pem\n  key: %s/%s.key\n", o->tls, o->tls,
                o->node, o->tls, o->node);
    else if (has_peer)
        fprintf(f, "insecure_peers: true\n");
    fprintf(f, "admin:\n  socket: %s\n", d->admin);
    fprintf(f, "deadlines:\n  transfer_ms: %u\n", o->transfer_ms ? o->transfer_ms : TRANSFER_MS);
    fprintf(f, "tenants:\n  - name: %s\n    socket: %s\n    memory: %" PRIu64 "\n    regions: %u\n",
            SPAWN_TENANT, d->socket, o->memory_bytes, o->regions ? o->regions : 1);
    write_devices(f, o->regions ? o->regions : 1);
    if (o->host_bytes)
        fprintf(f, "    host_memory: %" PRIu64 "\n", o->host_bytes);
    if (o->record_bytes)
        fprintf(f, "    record_memory: %" PRIu64 "\n", o->record_bytes);
    if (o->second_tenant)
        fprintf(f, "  - name: %s-second\n    socket: %s\n    memory: %" PRIu64 "\n", SPAWN_TENANT,
                d->second, o->memory_bytes);
    if (has_peer)
        write_peers(f, o);
    if (o->connections)
        fprintf(f, "transfer:\n  connections: %u\n", o->connections);
    write_limits(f, o);
    if (o->frame_body_max)
        fprintf(f, "frame_body_max: %" PRIu64 "\n", o->frame_body_max);
    if (o->corrupt_pages || o->checks_on_owner)
        fprintf(f, "faults:\n  corrupt_pages: %" PRIu64 "\n  checks_on_owner: %s\n",
                o->corrupt_pages, o->checks_on_owner ? "true" : "false");
    return fclose(f) == 0;
}

/* In the child. */
static _Noreturn void run_daemon(const struct daemon *d, const struct daemon_launch *how)
{
    struct rlimit files = {.rlim_cur = how->files_max, .rlim_max = how->files_max};
    char path[4096];
    int log = open(d->log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);

    if (log < 0 || dup2(log, STDERR_FILENO) < 0 || dup2(log, STDOUT_FILENO) < 0 ||
        !proc_pin(how->core) || (how->files_max && setrlimit(RLIMIT_NOFILE, &files) != 0))
        _exit(126);
    if (how->env)
        putenv((char *)(uintptr_t)how->env);
    if (daemon_path(path, sizeof path))
        execl(path, "ternd", "--config", d->config, (char *)NULL);
    fprintf(stderr, "cannot run %s: %s; build ternd beside this program or set TERND\n", path,
            strerror(errno));
    _exit(127);
}

/* Returns the whole log, ended by a zero and owned by the caller. NULL: it cannot be read. */
static char *read_log(const struct daemon *d)
{
    FILE *f = fopen(d->log, "re");
    char *text = NULL;
    size_t cap = 0;

    if (f && getdelim(&text, &cap, 0, f) < 0 && text)
        text[0] = 0;
    if (f)
        fclose(f);
    return text;
}

uint32_t daemon_log_count(const struct daemon *d, const char *text, uint32_t times,
                          uint32_t wait_ms)
{
    uint64_t until = clock_ns() + (uint64_t)wait_ms * 1000000u;

    for (;;) {
        char *log = read_log(d);
        uint32_t found = 0;

        for (const char *at = log ? strstr(log, text) : NULL; at; at = strstr(at + 1, text))
            found++;
        free(log);
        if (found >= times || clock_ns() >= until)
            return found;
        sleep_ms(5);
    }
}

uint32_t daemon_log_lines(const struct daemon *d, const char *event, const char *words)
{
    char *log = read_log(d), *rest = log, *line;
    uint32_t n = 0;

    while ((line = strsep(&rest, "\n")) != NULL)
        n += strstr(line, event) && strstr(line, words);
    free(log);
    return n;
}

/* Returns true once the log says that the daemon is ready. */
static bool is_ready(struct daemon *d)
{
    char *log = read_log(d), *at = log ? strstr(log, "event=ready") : NULL, *port;

    if (at) {
        port = strstr(at, "control_port=");
        d->control_port = port ? (uint16_t)atoi(port + strlen("control_port=")) : 0;
        port = strstr(at, "data_port=");
        d->data_port = port ? (uint16_t)atoi(port + strlen("data_port=")) : 0;
    }
    free(log);
    return at != NULL;
}

static bool serves(const struct daemon *d)
{
    struct tern *t = NULL;
    bool ok = tern_connect(d->socket, 1000, &t) == TERN_OK;

    tern_destroy(t);
    return ok;
}

static void add_log(const struct daemon *d, char *why)
{
    size_t used = strlen(why), n;
    char text[LOG_SHOWN];
    FILE *f = fopen(d->log, "re");

    if (!f)
        return;
    if (fseek(f, -(LOG_SHOWN - 1), SEEK_END) != 0)
        rewind(f);
    n = fread(text, 1, sizeof text - 1, f);
    text[n] = 0;
    fclose(f);
    snprintf(why + used, SPAWN_WHY_BYTES - used, "\n%s", text);
}

static bool wait_ready(struct daemon *d, bool says_ready, char *why)
{
    uint64_t until = clock_ns() + (uint64_t)START_MS * 1000000u;
    int status;

    for (;;) {
        if (says_ready ? is_ready(d) : serves(d))
            return true;
        if (proc_wait(&d->pid, 0, &status)) {
            snprintf(why, SPAWN_WHY_BYTES, "daemon \"%s\" ended while it started, by %s %d",
                     d->node, WIFSIGNALED(status) ? "signal" : "exit status",
                     WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
            return false;
        }
        if (clock_ns() >= until) {
            snprintf(why, SPAWN_WHY_BYTES, "daemon \"%s\" did not serve within %u s", d->node,
                     START_MS / 1000);
            return false;
        }
        sleep_ms(5);
    }
}

void daemon_place(struct daemon *d, const char *dir, const char *node)
{
    *d = (struct daemon){.pid = -1};
    snprintf(d->node, sizeof d->node, "%s", node);
    snprintf(d->dir, sizeof d->dir, "%s", dir);
    snprintf(d->socket, sizeof d->socket, "%s/%s.sock", d->dir, d->node);
    snprintf(d->second, sizeof d->second, "%s/%s.second.sock", d->dir, d->node);
    snprintf(d->admin, sizeof d->admin, "%s/%s.admin", d->dir, d->node);
    snprintf(d->log, sizeof d->log, "%s/%s.log", d->dir, d->node);
    snprintf(d->config, sizeof d->config, "%s/%s.yaml", d->dir, d->node);
}

bool daemon_launch(struct daemon *d, const struct daemon_launch *how, char *why)
{
    d->pid = proc_fork();
    if (d->pid == 0)
        run_daemon(d, how);
    if (d->pid < 0) {
        snprintf(why, SPAWN_WHY_BYTES, "fork: %s", strerror(errno));
        return false;
    }
    if (wait_ready(d, how->says_ready, why))
        return true;
    add_log(d, why);
    proc_end(&d->pid);
    return false;
}

bool daemon_start(struct daemon *d, const char *dir, const struct daemon_options *o, char *why)
{
    daemon_place(d, dir, o->node);
    unlink(d->log); /* of an earlier daemon */
    if (write_config(d->config, d, o))
        return daemon_launch(d, &(struct daemon_launch){.core = o->core}, why);
    snprintf(why, SPAWN_WHY_BYTES, "%s: %s", d->config, strerror(errno));
    return false;
}

bool daemon_start_pair(struct daemon *first, struct daemon *second, const char *dir,
                       struct daemon_options o[2], char *why)
{
    for (uint32_t i = 0; i < 2; i++) {
        o[i].port = o[1 - i].peer[0].port = port_free();
        o[i].peer[0].name = o[1 - i].node;
    }
    return daemon_start(first, dir, &o[0], why) && daemon_start(second, dir, &o[1], why);
}

bool daemon_start_star(struct daemon *d, uint32_t n, const char *dir, struct daemon_options *o,
                       char *why)
{
    bool ok = n <= DAEMON_PEERS_MAX + 1;

    for (uint32_t i = 0; ok && i < n; i++)
        o[i].port = port_free();
    for (uint32_t i = 1; ok && i < n; i++) {
        o[0].peer[i - 1] = (struct daemon_peer){.name = o[i].node, .port = o[i].port};
        o[i].peer[0] = (struct daemon_peer){.name = o[0].node, .port = o[0].port};
    }
    for (uint32_t i = 0; ok && i < n; i++)
        ok = daemon_start(&d[i], dir, &o[i], why);
    return ok;
}

int daemon_run_twin(const struct daemon *d)
{
    int status = -1;
    pid_t pid = proc_fork();

    if (pid == 0)
        run_daemon(d, &(struct daemon_launch){.core = -1});
    return proc_wait(&pid, START_MS, &status) && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

int daemon_end(struct daemon *d, uint32_t wait_ms)
{
    int status = 0;

    if (d->pid <= 0) /* never started: 0 would be this whole process group */
        return -1;
    kill(d->pid, SIGTERM);
    if (proc_wait(&d->pid, wait_ms, &status))
        return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    proc_end(&d->pid);
    return -1;
}

bool daemon_stop(struct daemon *d)
{
    return daemon_end(d, STOP_MS) == 0;
}
