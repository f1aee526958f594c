/* Checks whether the daemon could start on this host. See loop.h. Each check does what the
 * start does, as far as that leaves no trace: it reads files, examines folders, resolves names, and
 * briefly binds `listen` to a port that the kernel chooses. */
#include "shell/loop/loop.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "seam/disk/disk_crypt.h"
#include "seam/io/io.h"
#include "seam/io/resolve.h"
#include "seam/io/tcp_listen.h"
#include "shell/config/plan.h"
#include "shell/stream/listen.h"
#include "shell/tls/tls.h"

#define PEER_NAMES_NS 30000000000u /* for all names */

struct findings {
    FILE *out;
    uint32_t n;
};

__attribute__((format(printf, 2, 3))) static void wrong(struct findings *f, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    fputs("ternd: ", f->out);
    vfprintf(f->out, format, args);
    fputc('\n', f->out);
    va_end(args);
    f->n++;
}

static void socket_place(struct findings *f, const char *path)
{
    char why[CONFIG_WHY_BYTES];

    if (listen_unix_place(path, why, sizeof why) != TERN_OK)
        wrong(f, "%s", why);
}

/* Only a warning: the daemon starts without the folder, but a crash loses its last events. */
static void tape_place(struct findings *f, const struct config *config)
{
    char folder[sizeof config->tape_file], *end;

    snprintf(folder, sizeof folder, "%s", config->tape_file);
    end = strrchr(folder, '/'); /* paths are absolute */
    end[end == folder] = '\0';
    if (config->tape_bytes > 0 && faccessat(AT_FDCWD, folder, W_OK | X_OK, AT_EACCESS) != 0)
        fprintf(
            f->out,
            "ternd: warning: tape.file %s: %s: %s; a crash will leave no tape: make the folder, "
            "or name another file\n",
            config->tape_file, folder, strerror(errno));
}

/* Checks the folder and the key without a trace: does not try the lock. */
static void spill_place(struct findings *f, const struct config *config)
{
    uint8_t key[DISK_KEY_BYTES];
    char why[DISK_KEY_WHY];
    struct stat st;

    if (!config->spill_dir[0])
        return;
    if (stat(config->spill_dir, &st) != 0)
        wrong(f, "spill.dir %s: %s: make the folder, for this user alone", config->spill_dir,
              strerror(errno));
    else if (!S_ISDIR(st.st_mode))
        wrong(f, "spill.dir %s: is not a folder", config->spill_dir);
    else if (faccessat(AT_FDCWD, config->spill_dir, R_OK | W_OK | X_OK, AT_EACCESS) != 0)
        wrong(f, "spill.dir %s: this user may not write there: %s", config->spill_dir,
              strerror(errno));
    else if (spill_lacks(config) > 0)
        fprintf(f->out,
                "ternd: warning: spill.bytes: the file system of %s lacks %" PRIu64
                " bytes for spill.bytes and spill.headroom: it will be full before anything is "
                "evicted\n",
                config->spill_dir, spill_lacks(config));
    if (config->spill_key_file[0] && disk_key_read(config->spill_key_file, key, why) != TERN_OK)
        wrong(f, "spill.encrypt_key_file: %s", why);
    explicit_bzero(key, sizeof key);
}

static void tls_files(struct findings *f, const struct config *config)
{
    const struct tls_config tls = {.files.ca = config->tls_ca,
                                   .files.cert = config->tls_cert,
                                   .files.key = config->tls_key,
                                   .node = config->node,
                                   .sessions = 1};
    char why[CONFIG_WHY_BYTES] = "";
    struct tls *made = NULL;
    struct tls_stats own;

    if (!config->tls_cert[0])
        return;
    if (tls_create(&tls, &made, why, sizeof why) != TERN_OK) {
        wrong(f, "%s", why);
        return;
    }
    tls_stats(made, &own);
    if (!own.own.own_ca)
        fprintf(f->out,
                "ternd: warning: tls: %s: no CA in %s has issued it: peers that trust the same CA "
                "refuse it\n",
                config->tls_cert, config->tls_ca);
    tls_destroy(made);
}

static void listen_address(struct findings *f, const struct config *config)
{
    const char *host = config->listen.host, *why;
    uint16_t port;
    int fd;

    if (!host[0])
        return;
    fd = tcp_listen(host, 0, 1, &port, &why);
    if (fd < 0)
        wrong(f, "listen: %s: %s: it must be an address of this host", host, why);
    else
        close(fd);
}

/* Only a warning: the daemon starts without the name and resolves it again. */
static void peer_name(struct findings *f, const struct config_peer *peer)
{
    struct resolve_answer answer = {0};

    resolve_system(peer->address.host, peer->address.port, &answer);
    if (answer.err != TERN_OK)
        fprintf(f->out,
                "ternd: warning: peer %s: %s: %s (a running daemon resolves the name again)\n",
                peer->name, peer->address.host, answer.text);
}

/* Each of thousands of names may take seconds, so names left at the deadline are only counted. */
static void peer_names(struct findings *f, const struct config *config)
{
    uint64_t until_ns = io_now_ns() + PEER_NAMES_NS;
    uint32_t i = 0;

    for (; i < config->npeers && io_now_ns() < until_ns; i++)
        peer_name(f, &config->peers[i]);
    if (i < config->npeers)
        fprintf(f->out,
                "ternd: warning: the name service is slow: the names of %" PRIu32
                " peers were not checked\n",
                config->npeers - i);
}

/* Only a warning: the daemon starts with fewer descriptors, and refuses connections without one. */
static void descriptors(struct findings *f, const struct config *config)
{
    uint64_t most = plan_descriptors(config), flight = plan_descriptors_in_flight(config);
    struct rlimit files;

    if (getrlimit(RLIMIT_NOFILE, &files) == 0 && (files.rlim_max < most || files.rlim_max < flight))
        fprintf(f->out,
                "ternd: warning: up to %" PRIu64 " descriptors can be open at a time, and %" PRIu64
                " can be in unread answers; this process may have %" PRIu64
                " of each: raise LimitNOFILE= or ulimit -Hn\n",
                most, flight, (uint64_t)files.rlim_max);
}

uint32_t preflight(const struct config *config, FILE *out)
{
    struct findings f = {.out = out};

    socket_place(&f, config->admin_socket);
    for (uint32_t i = 0; i < config->ntenants; i++)
        if (!config_tenant_free(config, i))
            socket_place(&f, config->tenants[i].socket);
    if (f.n == 0)
        tape_place(&f, config); /* by default beside the admin socket */
    spill_place(&f, config);
    tls_files(&f, config);
    listen_address(&f, config);
    descriptors(&f, config);
    peer_names(&f, config);
    return f.n;
}
