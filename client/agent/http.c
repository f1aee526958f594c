/* See http.h. libmicrohttpd reads requests and sends answers on this thread, only in http_run. A
 * connection without an answered request for HTTP_CONNECTION_MS_MAX is closed, whatever it does
 * meanwhile. So even a client that sends or reads one byte at a time does not occupy its place for
 * longer. */
#include "client/agent/http.h"

#include <errno.h>
#include <microhttpd.h>
#include <netdb.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "client/agent/metrics.h"
#include "client/agent/page.h"

#define NS_PER_MS 1000000ull
#define TICK_MS   1000
#define TEXT_TYPE "text/plain; charset=utf-8"

struct http_conn {
    bool open;
    int fd;
    uint64_t since_ns; /* when it was opened, or last had a request answered */
};

struct http {
    struct agent *agent;
    const struct hosts *hosts;
    struct MHD_Daemon *mhd;
    int listen_fd, epoll_fd;
    struct http_conn conn[HTTP_CONNECTIONS_MAX];
};

struct answer {
    struct text text;
    unsigned status;
    const char *type;
};

/* ---- the answers of each path ---- */

static void write_word(struct answer *a, const char *word)
{
    text_format(&a->text, "%s\n", word);
}

static void health(struct http *h, const char *accept, struct answer *a)
{
    (void)accept;
    agent_answers(h->agent, AGENT_ALIVE);
    a->status = h->agent->ask.why == ASK_ANSWERED ? MHD_HTTP_OK : MHD_HTTP_SERVICE_UNAVAILABLE;
    write_word(a, ask_word(h->agent->ask.why));
}

static void ready(struct http *h, const char *accept, struct answer *a)
{
    const json_t *status = json_object_get(agent_answers(h->agent, AGENT_STATUS), "status");
    bool draining = json_is_true(json_object_get(status, "draining"));

    (void)accept;
    a->status = status && !draining ? MHD_HTTP_OK : MHD_HTTP_SERVICE_UNAVAILABLE;
    write_word(a, draining ? "draining" : status ? "ready" : ask_word(h->agent->ask.why));
}

static void metrics(struct http *h, const char *accept, struct answer *a)
{
    struct metrics_form form = {.openmetrics = metrics_accepts_openmetrics(accept),
                                .tenants = h->agent->tenants};

    a->type = form.openmetrics ? "application/openmetrics-text; version=1.0.0; charset=utf-8"
                               : "text/plain; version=0.0.4; charset=utf-8";
    if (!metrics_write(&a->text, agent_answers(h->agent, AGENT_METRICS), &form))
        a->text.failed = true;
}

static int add_json(const char *bytes, size_t n, void *text)
{
    text_add(text, bytes, n);
    return 0;
}

static void state(struct http *h, const char *accept, struct answer *a)
{
    (void)accept;
    a->type = "application/json";
    json_dump_callback(agent_answers(h->agent, AGENT_PAGE), add_json, &a->text, JSON_COMPACT);
}

static void page(struct http *h, const char *accept, struct answer *a)
{
    size_t n;
    const char *bytes = agent_page(&n);

    (void)h;
    (void)accept;
    a->type = "text/html; charset=utf-8";
    text_add(&a->text, bytes, n);
}

static const struct route {
    const char *path;
    void (*answer)(struct http *h, const char *accept, struct answer *a);
} routes[] = {
    {"/", page},          {"/state.json", state}, {"/metrics", metrics},
    {"/healthz", health}, {"/readyz", ready},
};

static void answer_path(struct http *h, const char *path, const char *accept, struct answer *a)
{
    for (size_t i = 0; i < sizeof(routes) / sizeof(*routes); i++) {
        if (strcmp(routes[i].path, path) == 0) {
            routes[i].answer(h, accept, a);
            return;
        }
    }
    a->status = MHD_HTTP_NOT_FOUND;
    text_word(&a->text, "not found: the paths are");
    for (size_t i = 0; i < sizeof(routes) / sizeof(*routes); i++)
        text_format(&a->text, " %s", routes[i].path);
    write_word(a, "");
}

/* ---- requests ---- */

/* Our pages load nothing from other hosts, and other pages must not embed them. */
static const char *const headers[][2] = {
    {"Cache-Control", "no-store"},
    {"X-Content-Type-Options", "nosniff"},
    {"Referrer-Policy", "no-referrer"},
    {"Content-Security-Policy",
     "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; connect-src "
     "'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"},
};

static enum MHD_Result send_answer(struct MHD_Connection *c, struct answer *a)
{
    struct MHD_Response *response;
    enum MHD_Result result = MHD_NO;

    if (a->text.failed) {
        text_end(&a->text);
        text_begin(&a->text, HTTP_ANSWER_BYTES_MAX);
        a->status = MHD_HTTP_INTERNAL_SERVER_ERROR;
        a->type = TEXT_TYPE;
        write_word(a, "the answer is too large, or there is no memory for it");
    }
    response = MHD_create_response_from_buffer(a->text.bytes, a->text.at, MHD_RESPMEM_MUST_FREE);
    if (!response) {
        text_end(&a->text);
        return MHD_NO;
    }
    if (MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, a->type) == MHD_YES)
        result = MHD_YES;
    for (size_t i = 0; i < sizeof(headers) / sizeof(*headers); i++)
        if (MHD_add_response_header(response, headers[i][0], headers[i][1]) != MHD_YES)
            result = MHD_NO;
    if (a->status == MHD_HTTP_METHOD_NOT_ALLOWED)
        MHD_add_response_header(response, MHD_HTTP_HEADER_ALLOW, "GET, HEAD");
    if (result == MHD_YES)
        result = MHD_queue_response(c, a->status, response);
    MHD_destroy_response(response);
    return result;
}

static const char *header(struct MHD_Connection *c, const char *name)
{
    return MHD_lookup_connection_value(c, MHD_HEADER_KIND, name);
}

/* A request with a body is refused before the body is read; MHD then ends the connection. */
static bool has_body(struct MHD_Connection *c)
{
    const char *length = header(c, MHD_HTTP_HEADER_CONTENT_LENGTH);

    return header(c, MHD_HTTP_HEADER_TRANSFER_ENCODING) || (length && strcmp(length, "0") != 0);
}

static bool called_rightly(const struct http *h, struct MHD_Connection *c)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(c, MHD_CONNECTION_INFO_CONNECTION_FD);
    struct sockaddr_storage local = {.ss_family = AF_UNSPEC};
    socklen_t n = sizeof(local);

    if (info)
        getsockname(info->connect_fd, (struct sockaddr *)&local, &n);
    return hosts_allow(h->hosts, header(c, MHD_HTTP_HEADER_HOST), (struct sockaddr *)&local);
}

/* MHD calls it once when the headers have arrived, and once more when the request is complete. */
static enum MHD_Result on_request(void *ctx, struct MHD_Connection *c, const char *path,
                                  const char *method, const char *version, const char *body,
                                  size_t *body_bytes, void **state_of)
{
    static char seen;
    struct answer a = {.status = MHD_HTTP_OK, .type = TEXT_TYPE};

    (void)version;
    (void)body;
    (void)body_bytes;
    text_begin(&a.text, HTTP_ANSWER_BYTES_MAX);
    if (!called_rightly(ctx, c)) {
        a.status = MHD_HTTP_MISDIRECTED_REQUEST;
        write_word(&a, "the Host of the request is not tern-agent's: use the address at which it "
                       "listens, localhost, or a name of its option --host");
    } else if (strcmp(method, MHD_HTTP_METHOD_GET) != 0 &&
               strcmp(method, MHD_HTTP_METHOD_HEAD) != 0) {
        a.status = MHD_HTTP_METHOD_NOT_ALLOWED;
        write_word(&a, "only GET and HEAD are allowed: tern-agent changes nothing");
    } else if (has_body(c)) {
        a.status = MHD_HTTP_CONTENT_TOO_LARGE;
        write_word(&a, "requests to tern-agent must have no body");
    } else if (!*state_of) {
        *state_of = &seen;
        return MHD_YES;
    } else {
        answer_path(ctx, path, header(c, MHD_HTTP_HEADER_ACCEPT), &a);
    }
    return send_answer(c, &a);
}

/* ---- connections ---- */

static void on_connection(void *ctx, struct MHD_Connection *c, void **slot,
                          enum MHD_ConnectionNotificationCode what)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(c, MHD_CONNECTION_INFO_CONNECTION_FD);
    struct http *h = ctx;
    struct http_conn *conn = *slot;

    if (what == MHD_CONNECTION_NOTIFY_CLOSED) {
        if (conn)
            conn->open = false;
        return;
    }
    for (size_t i = 0; i < HTTP_CONNECTIONS_MAX && !*slot; i++) {
        if (h->conn[i].open)
            continue;
        h->conn[i] = (struct http_conn){true, info->connect_fd, ask_now_ns()};
        *slot = &h->conn[i];
    }
}

static void on_answered(void *ctx, struct MHD_Connection *c, void **state_of,
                        enum MHD_RequestTerminationCode how)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(c, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    struct http_conn *conn = info ? info->socket_context : NULL;

    (void)ctx;
    (void)state_of;
    if (conn && how == MHD_REQUEST_TERMINATED_COMPLETED_OK)
        conn->since_ns = ask_now_ns();
}

static void end_overdue(struct http *h)
{
    uint64_t now_ns = ask_now_ns();

    for (size_t i = 0; i < HTTP_CONNECTIONS_MAX; i++) {
        const struct http_conn *c = &h->conn[i];

        if (c->open && now_ns - c->since_ns > HTTP_CONNECTION_MS_MAX * NS_PER_MS)
            shutdown(c->fd, SHUT_RDWR);
    }
}

void http_run(struct http *h, int wake_fd)
{
    struct pollfd wait[] = {{.fd = h->epoll_fd, .events = POLLIN},
                            {.fd = wake_fd, .events = POLLIN}};
    MHD_UNSIGNED_LONG_LONG most = TICK_MS;

    if (MHD_get_timeout(h->mhd, &most) != MHD_YES || most > TICK_MS)
        most = TICK_MS;
    poll(wait, 2, (int)most);
    MHD_run(h->mhd);
    end_overdue(h);
}

/* ---- listening ---- */

/* getaddrinfo accepts a port beyond 65535 and truncates it. */
static bool is_port(const char *text)
{
    size_t n = strspn(text, "0123456789");

    return n > 0 && n <= strlen("65535") && !text[n] && strtoul(text, NULL, 10) <= UINT16_MAX;
}

struct addrinfo *http_listen_address(const char *listen, char why[HTTP_WHY_BYTES])
{
    const struct addrinfo hints = {.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV | AI_PASSIVE,
                                   .ai_socktype = SOCK_STREAM};
    const char *colon = strrchr(listen, ':');
    char host[64];
    struct addrinfo *found = NULL;
    bool bracket = listen[0] == '[' && colon && colon > listen && colon[-1] == ']';
    size_t n = colon ? (size_t)(colon - listen) - (bracket ? 2 : 0) : 0;

    if (n > 0 && n < sizeof(host) && is_port(colon + 1)) {
        memcpy(host, listen + (bracket ? 1 : 0), n);
        host[n] = '\0';
        if (getaddrinfo(host, colon + 1, &hints, &found) != 0)
            found = NULL;
    }
    if (!found)
        snprintf(why, HTTP_WHY_BYTES,
                 "--listen takes ADDRESS:PORT, such as 127.0.0.1:7003 or [::1]:7003, with a port "
                 "of at most 65535 and no host name, not '%.64s'",
                 listen);
    return found;
}

static int listen_at(const struct addrinfo *at, char why[HTTP_WHY_BYTES])
{
    int fd, on = 1;

    fd = socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) != 0 ||
        bind(fd, at->ai_addr, at->ai_addrlen) != 0 || listen(fd, HTTP_LISTEN_BACKLOG) != 0) {
        snprintf(why, HTTP_WHY_BYTES, "%s: choose another address by --listen", strerror(errno));
        if (fd >= 0)
            close(fd);
        fd = -1;
    }
    return fd;
}

struct http *http_create(struct agent *agent, const struct addrinfo *listen,
                         const struct hosts *hosts, char why[HTTP_WHY_BYTES])
{
    struct http *h = calloc(1, sizeof(*h));

    if (!h) {
        snprintf(why, HTTP_WHY_BYTES, "there is no memory");
        return NULL;
    }
    h->agent = agent;
    h->hosts = hosts;
    h->listen_fd = listen_at(listen, why);
    if (h->listen_fd < 0)
        goto out_free;
    h->mhd = MHD_start_daemon(MHD_USE_EPOLL, 0, NULL, NULL, on_request, h, MHD_OPTION_LISTEN_SOCKET,
                              h->listen_fd, MHD_OPTION_CONNECTION_LIMIT, HTTP_CONNECTIONS_MAX,
                              MHD_OPTION_PER_IP_CONNECTION_LIMIT, HTTP_CONNECTIONS_OF_ONE,
                              MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)HTTP_REQUEST_BYTES_MAX,
                              MHD_OPTION_NOTIFY_CONNECTION, on_connection, h,
                              MHD_OPTION_NOTIFY_COMPLETED, on_answered, h, MHD_OPTION_END);
    if (!h->mhd) {
        snprintf(why, HTTP_WHY_BYTES, "libmicrohttpd does not start: %s", strerror(errno));
        goto out_close;
    }
    h->epoll_fd = MHD_get_daemon_info(h->mhd, MHD_DAEMON_INFO_EPOLL_FD)->epoll_fd;
    return h;

out_close:
    close(h->listen_fd);
out_free:
    free(h);
    return NULL;
}

void http_address(const struct http *h, char ret[HTTP_WHY_BYTES])
{
    struct sockaddr_storage at;
    socklen_t n = sizeof(at);
    char host[NI_MAXHOST], port[NI_MAXSERV];

    if (getsockname(h->listen_fd, (struct sockaddr *)&at, &n) != 0 ||
        getnameinfo((struct sockaddr *)&at, n, host, sizeof(host), port, sizeof(port),
                    NI_NUMERICHOST | NI_NUMERICSERV) != 0)
        snprintf(ret, HTTP_WHY_BYTES, "?");
    else
        snprintf(ret, HTTP_WHY_BYTES, at.ss_family == AF_INET6 ? "[%.128s]:%.16s" : "%.128s:%.16s",
                 host, port);
}

void http_destroy(struct http *h)
{
    if (!h)
        return;
    MHD_stop_daemon(h->mhd); /* also closes listen_fd */
    free(h);
}
