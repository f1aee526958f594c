/* Connections: opening, joining an engine, ending, and calls off an engine's hot path. */
#include "steps.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tern_version.h>
#include <unistd.h>

#include "base/err.h"

const char *tern_strerror(enum tern_err err)
{
    return err_text(err);
}

enum tern_err_category tern_category(enum tern_err err)
{
    return err_category(err);
}

const char *tern_version(void)
{
    return TERN_VERSION;
}

/* A connection that could not be made has no object to keep its error text. */
static _Thread_local char connect_text[QUICK_TEXT_MAX];

const char *tern_error_text(struct tern *t, const struct tern_result *result)
{
    const char *refused = t ? use_refused(t) : NULL;

    return refused ? refused : t ? error_text(t, result) : connect_text;
}

uint64_t tern_incarnation(const struct tern *t)
{
    return t->incarnation;
}

void tern_trace(struct tern *t, uint64_t trace_id)
{
    t->trace_id = trace_id;
}

/* ---- life ---- */

/* Allocates all arrays of a connection, except the JSON of an operator's answer, so that no call
 * allocates. */
static enum tern_err alloc_arrays(struct tern *t)
{
    size_t budget_bytes = BUDGET_BYTES(t->socket.recv_max);
    void *budget = aligned_alloc(BUDGET_ALIGN, budget_bytes / BUDGET_ALIGN * BUDGET_ALIGN);

    t->store.pages_max = t->socket.recv_max / sizeof(struct tern_page);
    t->store.pages = malloc(QUICK_ANSWERS_MAX * t->store.pages_max * sizeof(struct tern_page));
    t->store.runs = malloc(QUICK_ANSWERS_MAX * QUICK_RUNS_MAX * sizeof(struct tern_run));
    t->store.texts = malloc(QUICK_TEXTS_MAX);
    t->store.blob = malloc(TERN_BLOB_BYTES);
    t->store.text_at = malloc(QUICK_ANSWERS_MAX * TERN_BATCH_OPS_MAX * sizeof(*t->store.text_at));
    t->results = malloc(QUICK_ANSWERS_MAX * TERN_BATCH_OPS_MAX * sizeof(struct tern_result));
    t->asked = malloc(TERN_BATCH_OPS_MAX * sizeof(struct asked));
    t->store.text = t->text;
    if (budget)
        budget_init(&t->budget, budget, budget_bytes / BUDGET_ALIGN * BUDGET_ALIGN);
    return budget && t->store.pages && t->store.runs && t->store.texts && t->store.blob &&
                   t->store.text_at && t->results && t->asked
               ? TERN_OK
               : TERN_INTERNAL;
}

static void free_arrays(struct tern *t)
{
    free(t->budget.mem);
    free(t->store.pages);
    free(t->store.runs);
    free(t->store.texts);
    free(t->store.blob);
    free(t->store.text_at);
    free(t->results);
    free(t->asked);
    t->budget.mem = NULL;
    t->store.pages = NULL;
    t->store.runs = NULL;
    t->store.texts = NULL;
    t->store.blob = NULL;
    t->store.text_at = NULL;
    t->results = NULL;
    t->asked = NULL;
}

static enum tern_err hello(struct tern *t, uint32_t deadline_ms)
{
    Tern__Wire__Hello m = TERN__WIRE__HELLO__INIT;
    const Tern__Wire__HelloReply *reply;
    const ProtobufCMessage *msg;
    char name[WIRE_STRING_MAX + 1];

    snprintf(name, sizeof(name), "%s", program_invocation_short_name);
    m.has_version_min = m.has_version_max = 1;
    m.version_min = WIRE_VERSION_MIN;
    m.version_max = WIRE_VERSION;
    m.client = name;
    TRY(call_whole(t, FRAME_HELLO, 0, &m.base, deadline_ms, &msg));
    reply = (const Tern__Wire__HelloReply *)msg;
    if (reply->version < WIRE_VERSION_MIN || reply->version > WIRE_VERSION)
        return set_error(
            t, TERN_UNSUPPORTED,
            "the daemon and this library have no protocol version in common: update the older one");
    t->incarnation = reply->incarnation;
    return client_socket_set_body_max(&t->socket, reply->frame_body_max);
}

/* The arrays fit the cap before Hello; a daemon with a larger cap needs larger ones. */
static enum tern_err agree(struct tern *t, uint32_t deadline_ms)
{
    uint32_t before = t->socket.recv_max;

    TRY(alloc_arrays(t));
    TRY(hello(t, deadline_ms));
    if (t->socket.recv_max == before)
        return TERN_OK;
    free_arrays(t);
    return alloc_arrays(t);
}

/* Returns what to do about a socket that cannot be connected to; "" if the system's text
 * suffices. */
static const char *connect_hint(int error)
{
    return error == ENOENT ? ": check that ternd is running and that this is its tenant's socket"
           : error == ECONNREFUSED ? ": no process listens there; check that ternd is running"
           : error == EACCES ? ": the mode, owner and group of the socket decide who may connect"
                             : "";
}

/* Keeps errno, which is part of the result. text "": the system's text, or the error table's. */
static enum tern_err not_connected(enum tern_err err, const char *text)
{
    bool of_system = !text[0] && (err == TERN_DAEMON_LOST || err == TERN_INTERNAL);
    int saved = errno;

    if (!text[0])
        text = of_system ? strerror(saved) : err_text(err);
    snprintf(connect_text, sizeof(connect_text), "%s%s", text,
             of_system ? connect_hint(saved) : "");
    errno = saved;
    return err;
}

enum tern_err tern_connect(const char *socket_path, uint32_t deadline_ms, struct tern **ret)
{
    uint32_t ms = deadline_ms ? deadline_ms : TERN_DEADLINE_DEFAULT_MS;
    uint64_t start_ns = client_socket_now_ns(), gone_ms;
    enum tern_err err = TERN_INTERNAL;
    struct tern *t;

    if (!socket_path)
        return not_connected(TERN_INVALID, "");
    t = calloc(1, sizeof(*t));
    if (!t)
        return not_connected(TERN_INTERNAL, "");
    t->pending_free = UINT64_MAX;
    t->kept_head = t->kept_tail = NO_SLOT;
    t->bell = -1;
    err = use_create(t);
    if (err != TERN_OK)
        goto out_free;
    err = client_socket_open(&t->socket, socket_path, ms);
    if (err != TERN_OK)
        goto out_free;
    gone_ms = (client_socket_now_ns() - start_ns) / 1000000u;
    err = agree(t, gone_ms < ms ? ms - (uint32_t)gone_ms : 1);
    if (err != TERN_OK)
        goto out_close;
    connect_text[0] = '\0';
    *ret = t;
    return TERN_OK;

out_close:
    free_arrays(t);
    client_socket_close(&t->socket);
    if (err == TERN_DAEMON_LOST)
        errno = ECONNRESET;
out_free:
    not_connected(err, t->text);
    use_finish(t);
    free(t);
    return err;
}

void tern_destroy(struct tern *t)
{
    Tern__Wire__EngineLeave m = TERN__WIRE__ENGINE_LEAVE__INIT;
    const ProtobufCMessage *msg;
    bool left;

    if (!t)
        return;
    /* In this order: leaving promises that this process can touch no page any more. */
    pool_unmap_all(t);
    records_unmap(t);
    m.has_reserved_one = 1;
    m.reserved_one = 1;
    left = steps_left_behind(t);
    if (t->member != MEMBER_NONE && t->socket.state == CLIENT_SOCKET_UP && is_owner(t) && !left &&
        !t->kernels_left)
        (void)call_whole(t, FRAME_ENGINE_LEAVE, 0, &m.base, LEAVE_DEADLINE_MS, &msg);
    sender_stop(&t->sender, !is_owner(t));
    pending_finish(t);
    leases_free_all(t);
    free_arrays(t);
    free(t->json);
    if (t->bell >= 0 && !left)
        close(t->bell);
    steps_finish(t);
    client_socket_close(&t->socket);
    use_finish(t);
    free(t);
}

enum tern_err tern_join(struct tern *t, const char *name, enum tern_role role, uint32_t rank,
                        uint32_t world, const char *device, uint32_t deadline_ms)
{
    ENTER(t);
    Tern__Wire__EngineJoin m = TERN__WIRE__ENGINE_JOIN__INIT;
    const ProtobufCMessage *msg;

    if (!name || !name[0] || strlen(name) > TERN_ENGINE_NAME_MAX)
        return set_error(t, TERN_INVALID,
                         "an engine needs a name of 1 to TERN_ENGINE_NAME_MAX bytes");
    if (world == 0 || world > TERN_RANKS_MAX || (role != TERN_SCHEDULER && rank >= world))
        return set_error(t, TERN_INVALID,
                         "world must be 1 to TERN_RANKS_MAX (64), and rank below it");
    if (device && strlen(device) > DEVICE_NAME_MAX)
        return set_error(t, TERN_INVALID, "a device has a name of at most 47 bytes");
    m.name = (char *)(uintptr_t)name;
    m.device = (char *)(uintptr_t)device;
    m.has_role = m.has_rank = m.has_world = 1;
    m.role = (uint32_t)role;
    m.rank = rank;
    m.world = world;
    TRY(call_whole(t, FRAME_ENGINE_JOIN, 0, &m.base, deadline_ms, &msg));
    t->member = role == TERN_SCHEDULER ? MEMBER_SCHEDULER : MEMBER_RANK;
    t->rank = role == TERN_SCHEDULER ? 0 : rank;
    return TERN_OK;
}

/* ---- asking about the daemon ---- */

enum tern_err tern_ping(struct tern *t, uint32_t deadline_ms)
{
    ENTER(t);
    Tern__Wire__Empty m = TERN__WIRE__EMPTY__INIT;
    const ProtobufCMessage *msg;

    return call_whole(t, FRAME_PING, 0, &m.base, deadline_ms, &msg);
}

/* ---- answers that are JSON ---- */

static enum tern_err json_append(struct tern *t, size_t *used, const char *piece)
{
    size_t n = piece ? strlen(piece) : 0;

    if (n > TERN_ADMIN_JSON_MAX - *used)
        return set_error(t, TERN_MALFORMED,
                         "the daemon's answer does not end: report this as a bug");
    if (*used + n + 1 > t->json_cap) {
        size_t cap = 2 * (*used + n + 1);
        char *grown = realloc(t->json, cap);

        if (!grown)
            return set_error(t, TERN_INTERNAL, "no memory for the daemon's answer");
        t->json = grown;
        t->json_cap = cap;
    }
    if (n)
        memcpy(t->json + *used, piece, n);
    *used += n;
    t->json[*used] = '\0';
    return TERN_OK;
}

static enum tern_err ask_json(struct tern *t, uint16_t type, const ProtobufCMessage *m,
                              uint32_t deadline_ms, const char **ret)
{
    const Tern__Wire__AdminReply *reply;
    const ProtobufCMessage *msg;
    struct call call;
    size_t used = 0;

    TRY(call_start(t, type, deadline_ms, &call));
    TRY(call_put(t, &call, 0, m));
    do {
        TRY(call_answer(t, &call, &msg));
        reply = (const Tern__Wire__AdminReply *)msg;
        TRY(json_append(t, &used, reply->json));
    } while (reply->more);
    *ret = t->json;
    return TERN_OK;
}

enum tern_err tern_stats(struct tern *t, uint32_t deadline_ms, const char **ret_json)
{
    ENTER(t);
    Tern__Wire__Empty m = TERN__WIRE__EMPTY__INIT;

    return ask_json(t, FRAME_STATS, &m.base, deadline_ms, ret_json);
}

enum tern_err tern_admin(struct tern *t, const char *command, const char *const *args,
                         uint32_t nargs, uint32_t deadline_ms, const char **ret_json)
{
    ENTER(t);
    Tern__Wire__Admin m = TERN__WIRE__ADMIN__INIT;
    char *copies[WIRE_ARGS_MAX];

    if (!command || strnlen(command, WIRE_STRING_MAX + 1) > WIRE_STRING_MAX ||
        nargs > WIRE_ARGS_MAX || (nargs && !args))
        return set_error(t, TERN_INVALID, "a command has a name and at most 16 arguments");
    for (uint32_t i = 0; i < nargs; i++) {
        if (!args[i] || strnlen(args[i], WIRE_STRING_MAX + 1) > WIRE_STRING_MAX)
            return set_error(t, TERN_INVALID, "an argument has at most 255 bytes");
        copies[i] = (char *)(uintptr_t)args[i];
    }
    m.command = (char *)(uintptr_t)command;
    m.n_args = nargs;
    m.args = copies;
    return ask_json(t, FRAME_ADMIN, &m.base, deadline_ms, ret_json);
}
