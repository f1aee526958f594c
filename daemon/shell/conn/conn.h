/* Connections of local clients: the processes of engines, and operators. They are accepted on Unix
 * sockets, greeted and counted; that of an engine is tied to its process. A connection's slot
 * number is its id in the core. conn.c moves it through its states; the layer above (request.c)
 * registers `ops` and decides what frames ask for. Owner thread only. */
#ifndef SHELL_CONN_H
#define SHELL_CONN_H

#include "core/core.h"
#include "shell/config/config.h"
#include "shell/conn/client_conn_states.h"
#include "shell/stream/listen.h"
#include "shell/stream/stream.h"

#define HELLO_BODY_MAX         4096 /* of a body before the greeting */
#define CONN_SEND_BUFFERS_MAX  160  /* of 16 KiB: answers that wait for one connection */
#define ADMIN_SEND_BUFFERS_MAX 320  /* an operator's answer is larger */

struct daemon;

struct client_conn {
    struct stream stream;
    struct daemon *d;
    enum client_conn_state state;
    uint32_t slot, tenant; /* tenant NONE: an operator */
    uint32_t proc;         /* NONE: an operator */
    uint32_t engine;       /* slot of the engine that it joined; NONE */
    uint64_t last_request;
    enum tern_err refusal;
    const char *refusal_text; /* static */
    struct client_conn *next_free;
};

/* What the layer above does; set before the first connection. */
struct client_conn_ops {
    /* A frame on a connection that has been greeted; header and body are borrowed for the call. */
    void (*frame)(struct client_conn *c, const struct frame_header *h, const uint8_t *body);
    /* Once, when no frame follows. */
    void (*closed)(struct client_conn *c);
};

struct client_conns {
    const struct client_conn_ops *ops; /* static */
    struct client_conn *v;             /* owned; [0, n) */
    uint32_t n, open;
    struct client_conn *free;
    uint32_t tenant_open[CONFIG_TENANTS_MAX], admin_open;
    uint64_t refused;  /* since the start: those above a limit, and those with a `refusal` */
    uint32_t internal; /* the core's slot for requests of the daemon itself: n */
    struct listener tenant[CONFIG_TENANTS_MAX], admin;
};

enum tern_err conns_init(struct daemon *d);
enum tern_err conns_listen(struct daemon *d, char *why, size_t cap);
void conns_tick(struct daemon *d, uint64_t now_ns);
void conns_finish(struct daemon *d);

/* NULL unless the core may answer on it. */
struct client_conn *conn_for_reply(struct daemon *d, uint32_t slot);
void conn_close(struct client_conn *c, const char *why);
/* Closes the connections of a process. Called before the core hears of its exit. */
void conns_close_proc(struct daemon *d, uint32_t proc);

static inline bool conn_is_admin(const struct client_conn *c)
{
    return c->tenant == NONE;
}

/* Sends the frame that d->frame holds. False: the connection is closed now. */
bool conn_send(struct client_conn *c, size_t n, const int *fds, uint32_t nfds);
bool conn_send_status(struct client_conn *c, const struct frame_header *request, enum tern_err err,
                      const char *text);

#endif
