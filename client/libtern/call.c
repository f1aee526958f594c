/* One synchronous call: queue a request, wait for its answer until the deadline, keep other answers
 * that arrive. Every call of tern.h that blocks uses it. The common case makes two system calls: a
 * send, and a receive that sleeps. */
#include "internal.h"

#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/err.h"

#define FDS_TRIES      16u /* tries of a call whose answer carries descriptors, while it is BUSY */
#define FDS_NAP_NS     1000000u /* between two tries */
#define POLLS_SKIP_MAX 63u

enum tern_err call_start(struct tern *t, uint16_t type, uint32_t deadline_ms, struct call *ret)
{
    t->text[0] = '\0';
    t->nresults = 0;
    if (t->socket.state != CLIENT_SOCKET_UP)
        return set_error(t, TERN_DAEMON_LOST, NULL);
    pending_end_unheld(t);
    ret->sleep_ms = deadline_ms ? deadline_ms : TERN_DEADLINE_DEFAULT_MS;
    ret->deadline_ns = client_socket_now_ns() + (uint64_t)ret->sleep_ms * 1000000u;
    ret->reply_type = (uint16_t)(type + 1);
    ret->id = new_id(t, ID_SYNC);
    ret->pieces = CALL_PIECES_MAX;
    return TERN_OK;
}

uint64_t deadline_at(uint32_t deadline_ms)
{
    return client_socket_now_ns() +
           (uint64_t)(deadline_ms ? deadline_ms : TERN_DEADLINE_DEFAULT_MS) * 1000000u;
}

enum tern_err call_start_by(struct tern *t, uint16_t type, uint64_t deadline_ns, struct call *ret)
{
    uint64_t now = client_socket_now_ns();

    if (now >= deadline_ns)
        return set_error(t, TERN_TIMED_OUT, NULL);
    return call_start(t, type, (uint32_t)((deadline_ns - now) / 1000000u + 1), ret);
}

bool call_again(struct tern *t, enum tern_err err, struct call *call)
{
    const uint32_t pieces = call->pieces;

    if (err != TERN_BUSY || !t->store.goes_on || pieces <= 1 ||
        client_socket_now_ns() >= call->deadline_ns ||
        call_start_by(t, (uint16_t)(call->reply_type - 1), call->deadline_ns, call) != TERN_OK)
        return false;
    call->pieces = pieces - 1;
    return true;
}

/* A daemon that accepts no further connection refuses before it reads anything: it answers request
 * 0. */
static bool is_answer(const struct call *call, const struct frame_header *h)
{
    return h->request_id == call->id ||
           (h->request_id == 0 && h->type == FRAME_HELLO_REPLY && h->type == call->reply_type);
}

/* Takes every whole frame that has arrived. OK: the call's own answer was among them. BUSY: it was
 * not.
 */
static enum tern_err take_frames(struct tern *t, const struct call *call, const uint8_t **ret_body,
                                 uint32_t *ret_n)
{
    struct frame_header h;
    const uint8_t *body;
    enum tern_err err;

    while ((err = client_socket_frame(&t->socket, &h, &body)) == TERN_OK) {
        if (ret_body && is_answer(call, &h)) {
            if (h.type != call->reply_type)
                return not_an_answer(t, TERN_MALFORMED);
            *ret_body = body;
            *ret_n = h.length;
            return TERN_OK;
        }
        pending_take(t, &h, body);
    }
    if (err != TERN_BUSY)
        return not_an_answer(t, err);
    return t->socket.state == CLIENT_SOCKET_UP ? TERN_BUSY : set_error(t, TERN_DAEMON_LOST, NULL);
}

/* Waits once and moves bytes both ways, because a daemon that cannot write to us would not read
 * either. */
static enum tern_err move_bytes(struct tern *t, const struct call *call)
{
    enum tern_err err = client_socket_wait(&t->socket, call->deadline_ns);

    if (err != TERN_OK)
        return set_error(t, err, NULL);
    err = client_socket_recv(&t->socket, 0);
    if (err == TERN_OK || err == TERN_BUSY)
        err = client_socket_send(&t->socket);
    return err == TERN_BUSY ? TERN_OK : err;
}

enum tern_err call_take(struct tern *t)
{
    enum tern_err err = client_socket_recv(&t->socket, 0);

    if (err != TERN_OK && err != TERN_BUSY)
        return set_error(t, err, NULL);
    return take_frames(t, NULL, NULL, NULL);
}

enum tern_err call_round(struct tern *t, uint64_t deadline_ns)
{
    const struct call call = {.deadline_ns = deadline_ns};
    enum tern_err err = move_bytes(t, &call);

    if (err == TERN_OK)
        err = take_frames(t, NULL, NULL, NULL);
    if (err == TERN_DAEMON_LOST)
        return set_error(t, err, NULL);
    return err == TERN_BUSY ? TERN_OK : err;
}

/* Reserves room in the send buffer, waiting until the call's deadline. */
static enum tern_err call_room(struct tern *t, struct call *call, size_t body, struct outgoing *ret)
{
    enum tern_err err;

    while ((err = send_room(t, body, ret)) == TERN_BUSY) {
        call->sleep_ms = 0;
        err = client_socket_send(&t->socket);
        if (err == TERN_OK)
            continue;
        if (err == TERN_BUSY)
            err = move_bytes(t, call);
        if (err == TERN_OK)
            err = take_frames(t, call, NULL, NULL);
        if (err != TERN_OK && err != TERN_BUSY)
            return err == TERN_DAEMON_LOST ? set_error(t, err, NULL) : err;
    }
    return err;
}

enum tern_err call_put(struct tern *t, struct call *call, uint64_t session,
                       const ProtobufCMessage *msg)
{
    struct outgoing o;

    TRY(check_leased(t, session));
    TRY(call_room(t, call, message_size(msg), &o));
    put_whole(&o.body, msg);
    send_queue(t, &o, (uint16_t)(call->reply_type - 1), call->id, session);
    return TERN_OK;
}

enum tern_err call_put_quick(struct tern *t, struct call *call, const struct quick_request *q)
{
    struct outgoing o;

    TRY(check_leased(t, q->session));
    TRY(call_room(t, call, quick_size(q), &o));
    quick_put(&o.body, q);
    send_queue(t, &o, q->type, call->id, q->session);
    return TERN_OK;
}

/* Receives without sleeping, because waking up may take longer than the daemon needs for its
 * answer. If polls are in vain, for example because no core is free for the daemon, more and more
 * calls do not poll. BUSY: nothing has arrived. */
static enum tern_err poll_answer(struct tern *t)
{
    uint64_t until = client_socket_now_ns() + t->poll_ns;
    enum tern_err err = TERN_BUSY;

    if (t->polls_skipped < t->polls_skip) {
        t->polls_skipped++;
        return TERN_BUSY;
    }
    while (err == TERN_BUSY && client_socket_now_ns() < until)
        err = client_socket_recv(&t->socket, 0);
    t->polls_skipped = 0;
    t->polls_skip = err != TERN_BUSY                 ? 0
                    : t->polls_skip < POLLS_SKIP_MAX ? 2 * t->polls_skip + 1
                                                     : POLLS_SKIP_MAX;
    return err;
}

enum tern_err call_wait(struct tern *t, struct call *call, const uint8_t **ret_body,
                        uint32_t *ret_n)
{
    enum tern_err err = client_socket_send(&t->socket);

    /* The common case: everything is sent, and the answer is the next frame to arrive. Sleep in the
     * receive itself. */
    if (err == TERN_OK && t->socket.in_head == t->socket.in_tail) {
        err = t->poll_ns ? poll_answer(t) : TERN_BUSY;
        if (err == TERN_BUSY)
            err = client_socket_recv(&t->socket, call->sleep_ms);
    }
    call->sleep_ms = 0; /* an answer may have further frames */
    if (err == TERN_DAEMON_LOST)
        return set_error(t, err, NULL);
    for (;;) {
        err = take_frames(t, call, ret_body, ret_n);
        if (err == TERN_OK)
            pending_end_unheld(t);
        if (err != TERN_BUSY)
            return err;
        err = move_bytes(t, call);
        if (err != TERN_OK)
            return err == TERN_DAEMON_LOST ? set_error(t, err, NULL) : err;
    }
}

enum tern_err call_quick(struct tern *t, const struct quick_request *q, uint32_t deadline_ms,
                         const uint8_t **ret_body, uint32_t *ret_n)
{
    struct call call;

    TRY(call_start(t, q->type, deadline_ms, &call));
    TRY(call_put_quick(t, &call, q));
    return call_wait(t, &call, ret_body, ret_n);
}

enum tern_err call_status(struct tern *t, const ProtobufCMessage *msg)
{
    const ProtobufCFieldDescriptor *f = protobuf_c_message_descriptor_get_field(msg->descriptor, 1);
    const Tern__Wire__Status *status;
    enum tern_err err;

    memcpy(&status, (const uint8_t *)msg + f->offset, sizeof(status));
    if (!status || !status->err)
        return TERN_OK;
    err = status->err < TERN_ERR_COUNT ? (enum tern_err)status->err : TERN_INTERNAL;
    set_error(t, err, status->text && status->text[0] ? status->text : NULL);
    t->store.numbers[0] = status->first;
    t->store.numbers[1] = status->second;
    t->store.goes_on = status->goes_on;
    return err;
}

enum tern_err call_answer(struct tern *t, struct call *call, const ProtobufCMessage **ret)
{
    const uint8_t *body;
    uint32_t n;

    TRY(call_wait(t, call, &body, &n));
    if (wire_decode(&t->budget, call->reply_type, body, n, ret) != TERN_OK)
        return not_an_answer(t, TERN_MALFORMED);
    return call_status(t, *ret);
}

static enum tern_err call_answer_fds(struct tern *t, struct call *call, struct call_fds *ret_fds,
                                     const ProtobufCMessage **ret)
{
    enum tern_err err;

    t->socket.fds_expected++;
    err = call_answer(t, call, ret);
    /* A late answer may still bring descriptors; pending.c then drops them. */
    if (err == TERN_TIMED_OUT)
        return err;
    t->socket.fds_expected--;
    if (err == TERN_OK &&
        client_socket_take_fds(&t->socket, ret_fds->v, CLIENT_FDS_MAX, &ret_fds->n) != TERN_OK)
        err = set_error(t, TERN_MALFORMED, "the daemon's answer arrived without its descriptors");
    client_socket_drop_fds(&t->socket);
    return err;
}

/* The daemon allows one unread answer with descriptors in each connection, and returns BUSY to
 * later requests for descriptors, for instance behind a late answer to a call that timed out. By
 * then this call has read everything that arrived, so it retries. */
enum tern_err call_whole_fds(struct tern *t, uint16_t type, const ProtobufCMessage *msg,
                             uint64_t until_ns, struct call_fds *ret_fds,
                             const ProtobufCMessage **ret)
{
    enum tern_err err = TERN_BUSY;

    for (uint32_t tries = 0; err == TERN_BUSY && tries < FDS_TRIES; tries++) {
        struct call call;

        if (tries > 0)
            nanosleep(&(struct timespec){.tv_nsec = FDS_NAP_NS}, NULL);
        TRY(call_start_by(t, type, until_ns, &call));
        TRY(call_put(t, &call, 0, msg));
        err = call_answer_fds(t, &call, ret_fds, ret);
    }
    return err;
}

enum tern_err call_fds_are(struct tern *t, const struct call_fds *fds, uint32_t n)
{
    if (fds->n == n)
        return TERN_OK;
    for (uint32_t i = 0; i < fds->n; i++)
        close(fds->v[i]);
    return set_error(t, TERN_MALFORMED, "the daemon's answer arrived without its descriptors");
}

enum tern_err call_whole(struct tern *t, uint16_t type, uint64_t session,
                         const ProtobufCMessage *msg, uint32_t deadline_ms,
                         const ProtobufCMessage **ret)
{
    enum tern_err err;
    struct call call;

    TRY(call_start(t, type, deadline_ms, &call));
    do {
        TRY(call_put(t, &call, session, msg));
        err = call_answer(t, &call, ret);
    } while (call_again(t, err, &call));
    if (err == TERN_GONE)
        say_handle(t, session);
    return err;
}
