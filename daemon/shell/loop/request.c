/* Frames of a greeted connection: the shell answers or refuses them, or makes events of the core.
 * Invariant: a request id is used once; a malformed body is answered and ends the connection; an
 * unknown request is answered and does not end it. */
#include <stdio.h>
#include <string.h>

#include "reshard/plan.h"
#include "shell/admin/operator.h"
#include "shell/daemon.h"
#include "shell/loop/loop.h"

/* Returns why the connection may not make that request; NULL: it may, or it is unknown. */
static const char *denied(const struct client_conn *c, const struct message *m)
{
    if (!m || (m->from & FROM_CLIENT) == 0)
        return NULL;
    if (conn_is_admin(c) && !(m->from & FROM_OPERATOR))
        return "this is the admin socket: engines connect to a tenant's socket";
    if (!conn_is_admin(c) && !(m->from & FROM_ENGINE))
        return "only the admin socket accepts admin requests";
    return NULL;
}

/* M5: answers a request for a session that a turn has claimed, or that is closed, before its body
 * is read. Returns true if it was answered. */
static bool gate_refused(struct client_conn *c, const struct frame_header *h)
{
    struct reply said = {
        .op = wire_in_op(h->type), .conn = c->slot, .request_id = h->request_id, .text = ""};

    if (core_gate(c->d->core, session_id_unpack(h->session), &said) == TERN_OK)
        return false;
    dispatch_reply(c->d, &said);
    return true;
}

/* Why a layout makes no sense, or why resharded pages could not be verified; NONE: all are fine. */
static enum reshard_refusal layouts_check(struct daemon *d, const struct engine_view *e,
                                          struct req_pool_open *r, char ret_group[RESHARD_NAME_MAX])
{
    struct reshard_layout *l = d->in.layouts;

    for (uint32_t g = 0; g < r->ngroups; g++) {
        enum reshard_refusal refusal;

        l[g].ranks = e->world % l[g].stages ? 0 : e->world / l[g].stages;
        refusal = reshard_check_layout(&l[g]);
        if (refusal != RESHARD_NONE) {
            memcpy(ret_group, l[g].name, RESHARD_NAME_MAX);
            return refusal;
        }
        r->copies |= reshard_variants(&(struct reshard_pair){&l[g], &l[g]}) > 1;
    }
    return xfer_pool_refusal(d->xfer, l, r->ngroups, ret_group);
}

/* Checks a PoolOpen's layouts: its ranks are known now. Returns true if it refused one. */
static bool layouts_refused(struct client_conn *c, const struct frame_header *h,
                            struct req_pool_open *r)
{
    char text[RESHARD_NAME_MAX + 128], group[RESHARD_NAME_MAX];
    enum reshard_refusal refusal;
    struct engine_view e;

    if (!r->layouts || c->engine == NONE || !core_engine_view(c->d->core, c->engine, &e))
        return false; /* the core refuses a PoolOpen without an engine */
    refusal = layouts_check(c->d, &e, r, group);
    if (refusal == RESHARD_NONE)
        return false;
    snprintf(text, sizeof(text), "group '%.*s': %s", RESHARD_NAME_MAX - 1, group,
             reshard_text(refusal));
    conn_send_status(c, h, TERN_INVALID, text);
    return true;
}

/* Processes an operation of the core, or an unknown request. */
static void core_request(struct client_conn *c, const struct frame_header *h, const uint8_t *body)
{
    struct daemon *d = c->d;
    const uint64_t begun_ns = io_now_ns();
    struct event ev;
    const char *text;
    enum tern_err err;

    if (gate_refused(c, h))
        return;
    ev.kind = EV_REQUEST;
    err = wire_in_request(&d->in, conn_is_admin(c) ? NONE : c->tenant, h, body, &ev.request, &text);
    if (err != TERN_OK) {
        if (!conn_is_admin(c))
            refusals_note(&d->refusals[c->tenant],
                          &(struct reply){.op = wire_in_op(h->type), .err = err, .text = text},
                          io_now_ns());
        conn_send_status(c, h, err, text);
        if (err == TERN_MALFORMED)
            stream_finish(&c->stream, "malformed body");
        return;
    }
    if (ev.request.op == OP_POOL_OPEN && layouts_refused(c, h, &ev.request.pool_open))
        return;
    if ((ev.request.op == OP_POOL_MAP || ev.request.op == OP_RECORD_MAP) && conn_fds_unread(c)) {
        conn_send_status(c, h, TERN_BUSY,
                         "the last answer that carries descriptors, or one after it, has not been "
                         "read: read the answers, then retry");
        return;
    }
    ev.request.conn = c->slot;
    ev.request.request_id = h->request_id;
    if (ev.request.op == OP_ENGINE_LEAVE && c->engine != NONE)
        engine_log_leaves(d, c->engine, c->proc);
    if (c->engine != NONE)
        daemon_poll_engine(d, c->engine);
    daemon_event(d, &ev);
    histogram_add(&d->answered[ev.request.op], io_now_ns() - begun_ns);
}

void request_frame(struct client_conn *c, const struct frame_header *h, const uint8_t *body)
{
    const char *why;

    if (h->request_id <= c->last_request) {
        conn_send_status(c, h, TERN_CONFLICT, "request ids ascend on a connection");
        return;
    }
    c->last_request = h->request_id;
    why = denied(c, message_of(h->type));
    if (why) {
        conn_send_status(c, h, TERN_DENIED, why);
        return;
    }
    switch (h->type) {
    case FRAME_PING:
        if (conn_decode(c, h, body))
            conn_send_status(c, h, TERN_OK, "");
        break;
    case FRAME_STATS:
    case FRAME_ADMIN: operator_request(c->d, c, h, body); break;
    case FRAME_SUBSCRIBE: subscribe_request(c->d, c, h, body); break;
    default: core_request(c, h, body); break;
    }
}
