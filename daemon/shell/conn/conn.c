/* The life of a local client's connection: accept, identify the process, check limits, greet, end.
 * See conn.h. Invariant: the core receives EV_CONN_OPENED once and EV_CONN_CLOSED once for each
 * connection that it knows; a slot is reused only after both. */
#include "shell/conn/conn.h"

#include <inttypes.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/check.h"
#include "base/container.h"
#include "base/err.h"
#include "base/undumped.h"
#include "shell/config/plan.h"
#include "shell/daemon.h"
#include "shell/log/log.h"
#include "shell/wire/wire_out.h"

#define CONN_WHY_BYTES 192 /* size of the reason for a refused connection */

static struct client_conn *conn_of(struct stream *s)
{
    return container_of(s, struct client_conn, stream);
}

enum door_verdict frame_at_door(void *ctx, const uint8_t *bytes, uint32_t n)
{
    struct frame_header h;

    (void)ctx;
    if (n < FRAME_HEADER_BYTES)
        return DOOR_WAIT;
    if (frame_decode(bytes, HELLO_BODY_MAX, &h) != TERN_OK)
        return DOOR_ENTER; /* the stream reports the fault */
    return n - FRAME_HEADER_BYTES >= h.length ? DOOR_ENTER : DOOR_WAIT;
}

static void left(void *ctx)
{
    struct conn_share *s = ctx;

    listen_again(&s->listener);
}

const char *conn_share_name(const struct conn_share *s)
{
    return s->tenant == NONE ? LISTEN_ADMIN : s->d->config->tenants[s->tenant].name;
}

void log_descriptors_sent(const char *name, uint64_t connections, int32_t pid)
{
    log_event(LEVEL_WARN, "descriptors_sent", "door=%s connections=%" PRIu64 " pid=%d reason=%s",
              name, connections, pid,
              "a client sent descriptors, which the daemon never accepts: its connection ends");
}

void door_log_change(const struct door_stats *now, const char *name, struct door_stats *shown)
{
    if (now->displaced != shown->displaced)
        log_event(LEVEL_WARN, "strangers_displaced",
                  "door=%s connections=%" PRIu64 " share=%u reason=%s", name,
                  now->displaced - shown->displaced, now->share,
                  "they had sent no Hello when others connected; each address or process may use a "
                  "quarter of the places at a door");
    if (now->overdue != shown->overdue)
        log_event(LEVEL_INFO, "strangers_overdue", "door=%s connections=%" PRIu64 " reason=%s",
                  name, now->overdue - shown->overdue, "no whole frame within the deadline");
    if (now->over_rate != shown->over_rate)
        log_event(LEVEL_WARN, "handshakes_over_rate", "door=%s connections=%" PRIu64 " reason=%s",
                  name, now->over_rate - shown->over_rate,
                  "their address began more TLS handshakes than one address may begin in a second");
    if (now->brought != shown->brought)
        log_descriptors_sent(name, now->brought - shown->brought, (int32_t)now->brought_by);
    *shown = *now;
}

static void free_if_quiet(struct client_conn *c)
{
    struct client_conns *cs = &c->d->conns;

    if (c->state != CLIENT_CONN_CLOSED || c->stream.state != STREAM_UNUSED ||
        c->bell.state != BELL_NONE || c->fds.ended >= 0 || c->fds.closing)
        return;
    client_conn_state_move(&c->state, CLIENT_CONN_FREE);
    c->next_free = cs->free;
    cs->free = c;
    c->share->held--;
    c->share->again = true;
}

enum tern_err conns_init(struct daemon *d)
{
    struct client_conns *cs = &d->conns;

    cs->n = plan_conns(d->config);
    cs->internal = cs->n;
    cs->quiet = free_if_quiet;
    cs->v = undumped_take(cs->n * sizeof(*cs->v), false);
    if (!cs->v)
        return TERN_INTERNAL;
    for (uint32_t i = 0; i <= d->config->ntenants; i++) {
        cs->share[i].d = d;
        cs->share[i].tenant = i == d->config->ntenants ? NONE : i;
    }
    for (uint32_t i = cs->n; i-- > 0;) {
        cs->v[i].d = d;
        cs->v[i].slot = i;
        cs->v[i].bell.fd = cs->v[i].fds.given = cs->v[i].fds.ended = -1;
        cs->v[i].next_free = cs->free;
        cs->free = &cs->v[i];
    }
    return TERN_OK;
}

void conns_finish(struct daemon *d)
{
    for (uint32_t i = 0; i <= CONFIG_TENANTS_MAX; i++)
        listen_stop(&d->conns.share[i].listener);
    for (uint32_t i = 0; d->conns.v && i < d->conns.n; i++) {
        struct client_conn *c = &d->conns.v[i];
        int fds[] = {c->stream.fd, c->bell.fd, c->fds.given, c->fds.ended};

        for (size_t k = 0; c->state != CLIENT_CONN_FREE && k < sizeof fds / sizeof *fds; k++)
            if (fds[k] >= 0)
                closer_close(d->closer, 0, fds[k], NULL, NULL);
    }
    undumped_put(d->conns.v, d->conns.n * sizeof(*d->conns.v));
    d->conns.v = NULL;
}

/* ---- the end ---- */

static bool known_to_core(const struct client_conn *c)
{
    return c->state == CLIENT_CONN_GREETING || c->state == CLIENT_CONN_OPEN;
}

static void on_closed(struct stream *s, const char *why)
{
    struct client_conn *c = conn_of(s);
    struct daemon *d = c->d;
    bool known = known_to_core(c);
    struct event ev = {.kind = EV_CONN_CLOSED, .conn = {.conn = c->slot}};

    /* Users need the reason when we end a connection; a client's own end is only a debug event. */
    log_event(s->peer_closed ? LEVEL_DEBUG : LEVEL_INFO, "conn_closed", "conn=%u pid=%d reason=%s",
              c->slot, c->pid, why);
    client_conn_state_move(&c->state, CLIENT_CONN_CLOSED);
    d->conns.open--;
    c->share->open--;
    bell_end(c);
    conn_fds_end(c);
    d->conns.closed(c);
    if (known)
        daemon_later(d, &ev);
}

static void on_finished(struct stream *s)
{
    free_if_quiet(conn_of(s));
}

void conns_close_proc(struct daemon *d, uint32_t proc)
{
    for (uint32_t i = 0; i < d->conns.n; i++) {
        struct client_conn *c = &d->conns.v[i];

        if (known_to_core(c) && c->proc == proc) {
            c->stream.peer_closed = true;
            stream_close(&c->stream, "the client's process has exited");
        }
    }
}

struct client_conn *conn_for_reply(struct daemon *d, uint32_t slot)
{
    if (slot >= d->conns.n || d->conns.v[slot].state != CLIENT_CONN_OPEN)
        return NULL;
    return &d->conns.v[slot];
}

/* ---- frames ---- */

bool conn_send(struct client_conn *c, size_t n, const int *fds, uint32_t nfds)
{
    return stream_put(&c->stream, c->d->frame, n, fds, nfds);
}

bool conn_send_status(struct client_conn *c, const struct frame_header *request, enum tern_err err,
                      const char *text)
{
    size_t n = wire_out_status(request, err, text, c->d->config->frame_body_max, c->d->frame);

    check(n > 0);
    return conn_send(c, n, NULL, 0);
}

const void *conn_decode(struct client_conn *c, const struct frame_header *h, const uint8_t *body)
{
    const void *m = wire_in_message(&c->d->in, h, body);

    if (!m) {
        conn_send_status(c, h, TERN_MALFORMED, "the request cannot be read");
        stream_finish(&c->stream, "malformed body");
    }
    return m;
}

/* Writes the frame into d->frame and returns its bytes. */
static size_t hello_frame(struct daemon *d, uint32_t tenant, uint64_t request_id, enum tern_err err,
                          const char *text, uint32_t version)
{
    Tern__Wire__HelloReply m = TERN__WIRE__HELLO_REPLY__INIT;
    Tern__Wire__Status status;
    size_t n;

    m.status = wire_out_status_in(&status, err, text);
    m.has_incarnation = m.has_version = m.has_frame_body_max = true;
    m.incarnation = d->incarnation;
    m.version = version;
    m.frame_body_max = d->config->frame_body_max;
    m.tenant = tenant == NONE ? NULL : (char *)(uintptr_t)d->config->tenants[tenant].name;
    n = wire_out_message(FRAME_HELLO_REPLY, request_id, &m.base, HELLO_BODY_MAX, d->frame);
    check(n > 0);
    return n;
}

static void hello_reply(struct client_conn *c, const struct frame_header *h, enum tern_err err,
                        const char *text, uint32_t version)
{
    conn_send(c, hello_frame(c->d, c->tenant, h->request_id, err, text, version), NULL, 0);
}

static void greet(struct client_conn *c, const struct frame_header *h, const uint8_t *body)
{
    struct daemon *d = c->d;
    const Tern__Wire__Hello *hello;
    uint32_t version = 0;
    enum tern_err err;

    if (h->type != FRAME_HELLO) {
        stream_close(&c->stream, "a request arrived before Hello");
        return;
    }
    hello = wire_in_message(&d->in, h, body);
    if (!hello) {
        hello_reply(c, h, TERN_MALFORMED, "Hello cannot be read", 0);
        stream_finish(&c->stream, "malformed Hello");
        return;
    }
    err = c->state == CLIENT_CONN_REFUSED
              ? c->refusal
              : wire_negotiate(hello->version_min, hello->version_max, &version);
    if (err != TERN_OK) {
        hello_reply(c, h, err,
                    c->state == CLIENT_CONN_REFUSED
                        ? c->refusal_text
                        : "no protocol version in common: update the older side",
                    0);
        stream_finish(&c->stream, "refused");
        return;
    }
    log_event(LEVEL_DEBUG, "hello", "conn=%u pid=%d client=%s " LOG_TRACE, c->slot, c->pid,
              hello->client ? hello->client : "", hello->trace_id);
    client_conn_state_move(&c->state, CLIENT_CONN_OPEN);
    c->last_request = h->request_id;
    c->stream.splitter.body_max = d->config->frame_body_max;
    hello_reply(c, h, TERN_OK, "", version);
}

static void on_frame(struct stream *s, const struct frame_header *h, const uint8_t *body)
{
    struct client_conn *c = conn_of(s);

    if (c->state == CLIENT_CONN_OPEN)
        c->d->conns.frame(c, h, body);
    else
        greet(c, h, body);
}

static void on_refused(struct stream *s, const struct frame_header *h)
{
    struct client_conn *c = conn_of(s);

    if (h->request_id <= c->last_request) {
        conn_send_status(c, h, TERN_CONFLICT, "request ids ascend on a connection");
        return;
    }
    c->last_request = h->request_id;
    conn_send_status(
        c, h, TERN_BUSY,
        "this tenant's limit of large requests that arrive at a time is reached: retry");
}

static void on_brought(struct stream *s)
{
    struct client_conn *c = conn_of(s);

    c->d->conns.brought++;
    log_descriptors_sent(conn_share_name(c->share), 1, c->pid);
}

static size_t on_fds_refused(struct stream *s, const struct frame_header *h,
                             const uint8_t **ret_frame)
{
    struct client_conn *c = conn_of(s);
    struct frame_header request = *h;

    conn_fds_unsent(c);
    request.type--;
    *ret_frame = c->d->frame;
    return wire_out_status(&request, TERN_BUSY,
                           "the kernel accepts no more descriptors from the daemon's user: see "
                           "event=descriptors_in_flight in the daemon's log, and retry",
                           c->d->config->frame_body_max, c->d->frame);
}

static void on_aside(struct stream *s, uint64_t ns)
{
    const struct client_conn *c = conn_of(s);

    log_event(LEVEL_WARN, "conn_aside", "conn=%u pid=%d send_us=%" PRIu64 " reason=%s", c->slot,
              c->pid, ns / 1000,
              "calls on the client's socket take long, or the client sends a few bytes at a time, "
              "so a kernel thread serves the socket: let few epolls and threads wait on it");
}

static const struct stream_ops conn_stream_ops = {.frame = on_frame,
                                                  .refused = on_refused,
                                                  .closed = on_closed,
                                                  .finished = on_finished,
                                                  .brought = on_brought,
                                                  .fds_refused = on_fds_refused,
                                                  .aside = on_aside};

/* ---- the beginning ---- */

/* Reads the process and the user of the connection, for the log. */
static void know_caller(struct client_conn *c, int fd)
{
    struct ucred cred = {.uid = UINT32_MAX};
    socklen_t len = sizeof(cred);

    (void)getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &len);
    c->pid = cred.pid;
    c->uid = cred.uid;
}

/* Decides whether the connection is allowed, and identifies its process. */
static enum tern_err admit(struct daemon *d, uint32_t tenant, int fd, uint32_t *ret_proc,
                           const char **ret_why)
{
    if (tenant == NONE) {
        *ret_proc = NONE;
        return TERN_OK;
    }
    if (d->state != DAEMON_SERVING) {
        *ret_why = "the daemon is draining: connect to another one";
        return TERN_BUSY;
    }
    return proc_take(&d->procs, fd, tenant, d->config->tenants[tenant].conns_max, ret_proc,
                     ret_why);
}

static uint32_t conns_max(const struct conn_share *s)
{
    return s->tenant == NONE ? CONFIG_ADMIN_CONNS : s->d->config->tenants[s->tenant].conns_max;
}

static enum tern_err has_room(const struct conn_share *s, char why[CONN_WHY_BYTES])
{
    if (s->open + s->unread < conns_max(s))
        return TERN_OK;
    if (s->tenant == NONE)
        return fail_with(why, CONN_WHY_BYTES, TERN_BUSY,
                         "%u operators are connected, the maximum: end one of these connections",
                         s->open);
    if (s->open >= conns_max(s))
        return fail_with(why, CONN_WHY_BYTES, TERN_QUOTA,
                         "tenant %s has %u connections, and may have no more: close one, or raise "
                         "its conns_max",
                         conn_share_name(s), s->open);
    return fail_with(why, CONN_WHY_BYTES, TERN_QUOTA,
                     "tenant %s has %u connections, and %u ended ones with an unread answer that "
                     "carries descriptors: read those answers, or close the sockets",
                     conn_share_name(s), s->open, s->unread);
}

/* Refuses a connection without using a slot and without waiting for the other side; then the door
 * closes the socket. The thread that closes the socket first writes the refusal. No request was
 * read, so the refusal answers request 0, a number that no request has. */
static void refuse_early(struct daemon *d, uint32_t tenant, int fd, enum tern_err err,
                         const char *why)
{
    size_t n = hello_frame(d, tenant, 0, err, why, 0);
    bool said = closer_say(d->closer, fd, d->frame, n);

    d->conns.refused++;
    log_event(LEVEL_WARN, "conn_limit", "tenant=%s err=%s reason=%s said=%d",
              tenant == NONE ? "" : d->config->tenants[tenant].name, err_name(err), why, said);
}

/* Takes a client from the door, since its Hello is whole. DOOR_WAIT: ended connections still use
 * the last slots. */
static enum door_verdict enter(void *share, int fd)
{
    struct conn_share *s = share;
    struct daemon *d = s->d;
    struct client_conns *cs = &d->conns;
    struct event ev = {.kind = EV_CONN_OPENED};
    struct client_conn *c = cs->free;
    const uint32_t tenant = s->tenant;
    char why[CONN_WHY_BYTES];
    enum tern_err err = has_room(s, why);

    if (err != TERN_OK) {
        refuse_early(d, tenant, fd, err, why);
        return DOOR_REFUSE;
    }
    if (s->held >= conns_max(s))
        return DOOR_WAIT;
    check(c);
    cs->open++;
    s->open++;
    s->held++;
    cs->free = c->next_free;
    c->share = s;
    c->tenant = tenant;
    c->engine = NONE;
    c->last_request = 0;
    c->drain_request = c->reload_request = 0;
    c->fds.unread_at = 0;
    c->refusal_text = "";
    c->proc = NONE;
    know_caller(c, fd);
    c->refusal = admit(d, tenant, fd, &c->proc, &c->refusal_text);
    client_conn_state_move(&c->state,
                           c->refusal == TERN_OK ? CLIENT_CONN_GREETING : CLIENT_CONN_REFUSED);
    if (c->refusal != TERN_OK) {
        cs->refused++;
        log_event(LEVEL_WARN, "conn_refused", "conn=%u err=%s reason=%s", c->slot,
                  err_name(c->refusal), c->refusal_text);
    }
    stream_open(&c->stream, d->streams, &conn_stream_ops, fd,
                tenant == NONE ? d->config->ntenants : tenant, HELLO_BODY_MAX,
                tenant == NONE ? ADMIN_SEND_BUFFERS_MAX : CONN_SEND_BUFFERS_MAX);
    if (c->refusal != TERN_OK)
        return DOOR_ENTER;
    ev.conn.conn = c->slot;
    ev.conn.tenant = tenant == NONE ? 0 : tenant;
    ev.conn.proc = c->proc;
    ev.conn.admin = tenant == NONE;
    daemon_event(d, &ev);
    return DOOR_ENTER;
}

/* ---- the doors (seam/io/door.h): a client whose Hello is not whole yet waits at its tenant's
 * door, with a share for each process, and uses none of the tenant's connections ---- */

static enum tern_err doors_create(struct daemon *d)
{
    const struct config *c = d->config;

    for (uint32_t i = 0; i <= c->ntenants; i++) {
        struct conn_share *s = &d->conns.share[i];
        const struct door_config config = {.io = d->io,
                                           .places = CONFIG_STRANGERS,
                                           .wait_ns = plan_hello_ns(c),
                                           .look_bytes = FRAME_HEADER_BYTES + HELLO_BODY_MAX,
                                           .look = frame_at_door,
                                           .enter = enter,
                                           .left = left,
                                           .ctx = s,
                                           .closer = d->closer,
                                           .lane = i};

        TRY(door_create(&config, &s->door));
    }
    return TERN_OK;
}

void conn_doors_destroy(struct daemon *d)
{
    for (uint32_t i = 0; i <= CONFIG_TENANTS_MAX; i++) {
        door_destroy(d->conns.share[i].door);
        d->conns.share[i].door = NULL;
    }
}

static void doors_tick(struct daemon *d, uint64_t now_ns)
{
    for (uint32_t i = 0; i <= d->config->ntenants; i++) {
        struct conn_share *s = &d->conns.share[i];
        struct door_stats now;

        door_tick(s->door, now_ns);
        door_stats(s->door, &now);
        d->conns.brought += now.brought - s->shown.brought;
        door_log_change(&now, conn_share_name(s), &s->shown);
    }
}

void conn_doors_again(struct daemon *d)
{
    for (uint32_t i = 0; i <= d->config->ntenants; i++) {
        if (!d->conns.share[i].again)
            continue;
        d->conns.share[i].again = false;
        door_again(d->conns.share[i].door);
    }
}

static void accepted(struct listener *l, int fd)
{
    struct conn_share *s = l->ctx;
    struct daemon *d = s->d;
    char why[CONN_WHY_BYTES];
    enum tern_err err = has_room(s, why);

    if (d->state == DAEMON_STOPPED) { /* the door may be destroyed */
        closer_close(d->closer, 0, fd, NULL, NULL);
    } else if (err != TERN_OK) {
        refuse_early(d, s->tenant, fd, err, why);
        door_turn_away(s->door, fd);
    } else {
        door_arrived(s->door, fd, io_now_ns());
    }
}

static bool has_place(const struct listener *l)
{
    const struct conn_share *s = l->ctx;

    return s->d->state != DAEMON_STOPPED && door_has_place(s->door);
}

static void open_listener(struct conn_share *s)
{
    s->listener.has_place = has_place;
    listen_start(&s->listener, s->d->io, accepted, s);
}

/* The path and the mode of its socket; NULL: it is a free slot of tenants, which has none. */
static const char *socket_of(const struct conn_share *s, uint32_t *ret_mode)
{
    const struct config *config = s->d->config;

    *ret_mode = s->tenant == NONE ? config->admin_mode : config->tenants[s->tenant].mode;
    if (s->tenant == NONE)
        return config->admin_socket;
    return config_tenant_free(config, s->tenant) ? NULL : config->tenants[s->tenant].socket;
}

/* Takes the service manager's sockets and makes ours for the rest. Reports a wrongly named socket
 * before it blocks ours. */
static enum tern_err listen_all(struct daemon *d, char *why, size_t cap)
{
    struct listen_fds fds;
    char name[LISTEN_NAME_BYTES];
    const char *path;
    uint32_t mode;

    TRY(listen_fds_read(&fds, why, cap));
    for (uint32_t i = 0; i <= d->config->ntenants; i++) {
        struct conn_share *s = &d->conns.share[i];

        snprintf(name, sizeof(name), "%s%s", s->tenant == NONE ? "" : LISTEN_TENANT,
                 conn_share_name(s));
        path = socket_of(s, &mode);
        if (path)
            TRY(listen_fds_take(&fds, name, path, &s->listener, why, cap));
    }
    TRY(listen_fds_all_taken(&fds, why, cap));
    for (uint32_t i = 0; i <= d->config->ntenants; i++) {
        struct conn_share *s = &d->conns.share[i];

        path = socket_of(s, &mode);
        if (path && s->listener.fd < 0)
            TRY(listen_unix(&s->listener, path, mode, why, cap));
    }
    return TERN_OK;
}

enum tern_err conns_listen(struct daemon *d, char *why, size_t cap)
{
    struct conn_share *share = d->conns.share;

    if (doors_create(d) != TERN_OK)
        return fail_with(why, cap, TERN_INTERNAL,
                         "no memory or no descriptor to accept connections");
    TRY(listen_all(d, why, cap));
    for (uint32_t i = 0; i <= d->config->ntenants; i++)
        if (share[i].listener.fd >= 0)
            open_listener(&share[i]);
    log_event(share[d->config->ntenants].listener.refuses ? LEVEL_INFO : LEVEL_WARN,
              "client_descriptors", "mode=%s", conns_descriptors(d));
    return TERN_OK;
}

enum tern_err conns_join(struct daemon *d, uint32_t tenant, const struct config_tenant *with,
                         char *why, size_t cap)
{
    struct conn_share *s = &d->conns.share[tenant];

    TRY(listen_unix(&s->listener, with->socket, with->mode, why, cap));
    open_listener(s);
    return TERN_OK;
}

const char *conns_descriptors(const struct daemon *d)
{
    return d->conns.share[d->config->ntenants].listener.refuses
               ? "refused by the kernel"
               : "searched for, because the kernel is older than Linux 6.16";
}

void conns_tick(struct daemon *d, uint64_t now_ns)
{
    for (uint32_t i = 0; i <= d->config->ntenants; i++) {
        listen_tick(&d->conns.share[i].listener, now_ns);
        d->conns.share[i].reads.passed_ns = 0;
        d->conns.share[i].reads.since_ns = now_ns;
    }
    for (uint32_t i = 0; i < d->conns.n; i++) {
        bell_tick(&d->conns.v[i]);
        conn_fds_look(&d->conns.v[i]);
    }
    doors_tick(d, now_ns);
}
