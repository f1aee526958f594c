/* Data that tenant A of `tern-bench neighbours` leaves unread: answers, which wait in send buffers,
 * and changes of the prefix tree, which wait in A's ring. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "engine/admin.h"
#include "engine/json.h"
#include "engine/proc.h"
#include "neighbours_tables.h"
#include "proto/codec.h"

/* ---- send buffers: connections that ask and do not read ---- */

#define UNREAD_CONNS 8
#define FRAME_CAP    256

/* Returns a connection that has sent its Hello and whose answer nobody reads; -1 on failure. */
static int connect_mute(const char *path)
{
    Tern__Wire__Hello m = TERN__WIRE__HELLO__INIT;
    struct frame_header h = {.version = FRAME_VERSION, .type = FRAME_HELLO, .request_id = 1};
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    uint8_t frame[FRAME_CAP];
    size_t n;

    m.has_version_min = m.has_version_max = true;
    m.version_min = WIRE_VERSION_MIN;
    m.version_max = WIRE_VERSION;
    snprintf(addr.sun_path, sizeof addr.sun_path, "%s", path);
    if (fd < 0 || connect(fd, (struct sockaddr *)&addr, sizeof addr) != 0 ||
        wire_encode(&h, &m.base, FRAME_CAP, frame, sizeof frame, &n) != TERN_OK ||
        !proc_send(fd, frame, n)) {
        fprintf(stderr, "tern-bench: %s: %s\n", path, strerror(errno));
        if (fd >= 0)
            close(fd);
        return -1;
    }
    return fd;
}

/* Also DONE if the daemon takes no more for now; REFUSED: it has closed the connection. */
static enum a_answer ask_stats(int fd, uint64_t id)
{
    Tern__Wire__Empty m = TERN__WIRE__EMPTY__INIT;
    struct frame_header h = {.version = FRAME_VERSION, .type = FRAME_STATS, .request_id = id};
    uint8_t frame[FRAME_CAP];
    size_t n;
    ssize_t sent;

    if (wire_encode(&h, &m.base, FRAME_CAP, frame, sizeof frame, &n) != TERN_OK)
        return A_FAILED;
    sent = send(fd, frame, n, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent == (ssize_t)n || (sent < 0 && errno == EAGAIN))
        return A_DONE;
    return sent < 0 ? A_REFUSED : A_FAILED;
}

static enum a_answer stats_unread(struct tenant_a *a)
{
    uint32_t i = (uint32_t)(a->serial++ % UNREAD_CONNS);
    enum a_answer answer;

    if (a->fds[i] <= 0) {
        a->fds[i] = connect_mute(a->hosts->here.socket);
        return a->fds[i] > 0 ? A_DONE : A_FAILED;
    }
    answer = ask_stats(a->fds[i], 2 + a->serial);
    if (answer != A_REFUSED)
        return answer;
    close(a->fds[i]);
    a->fds[i] = 0;
    return A_REFUSED;
}

static enum a_answer stats_read(struct tenant_a *a)
{
    const char *json;

    return a_answer_of(a, a->conns[0], tern_stats(a->conns[0], MEMBER_CALL_MS, &json));
}

static bool send_buffers_open(struct tenant_a *a)
{
    return tern_connect(a->hosts->here.socket, MEMBER_CALL_MS, &a->conns[0]) == TERN_OK &&
           tern_connect(a->hosts->here.admin, MEMBER_CALL_MS, &a->conns[1]) == TERN_OK;
}

/* Checks that closed connections were closed for the share, not for being slow. */
static bool send_buffers_release(struct tenant_a *a)
{
    json_t *status = admin_ask(a->conns[1], "status", NULL);
    uint64_t made_way = json_get_u64(json_object_get(status, "send_buffers"), "made_way");

    json_decref(status);
    for (uint32_t i = 0; i < UNREAD_CONNS; i++) {
        if (a->fds[i] > 0)
            close(a->fds[i]);
        a->fds[i] = 0;
    }
    return a->serial == 0 || made_way > 0;
}

const struct a_table a_send_buffers = {.name = "send buffers",
                                       .limits = "  send_buffers: 32\n",
                                       .open = send_buffers_open,
                                       .over = stats_unread,
                                       .within = stats_read,
                                       .release = send_buffers_release};

/* ---- changes of the tree: more at once than A's ring has room for ---- */

#define RING        288 /* more than B's pool has pages: closing that pool is one burst */
#define CHURN_PAGES (2 * RING)
#define CHURN       (CHURN_PAGES - RING / 4) /* chunks, whose eviction is one burst of changes */

static bool events_open(struct tenant_a *a)
{
    struct tern_answer answer;

    return a_join(a, CHURN_PAGES) &&
           tern_connect(a->hosts->here.socket, MEMBER_CALL_MS, &a->conns[0]) == TERN_OK &&
           tern_subscribe(a->conns[0], NULL, 1) == TERN_OK &&
           answer_wait(a->conns[0], MEMBER_CALL_MS, &answer) == TERN_OK && answer.err == TERN_OK &&
           member_ok(&a->engine, "opening a session",
                     tern_session_open(a->engine.tern, a->engine.pool, &a->engine.ns, NULL,
                                       MEMBER_CALL_MS, &a->held[0]));
}

/* Reads the subscription. REFUSED: some changes are lost. */
static enum a_answer hear(struct tenant_a *a)
{
    enum a_answer heard = A_DONE;
    struct tern_answer answer;
    enum tern_err err;

    while ((err = tern_poll(a->conns[0], &answer)) == TERN_OK) {
        if (answer.err != TERN_OK)
            return A_FAILED;
        if (answer.events->lost > 0)
            heard = A_REFUSED;
    }
    return err == TERN_BUSY ? heard : A_FAILED;
}

/* Repeats the step while pending checksums pin pages. The first operation is a barrier, so nothing
 * was done if that one failed. */
static enum tern_err step(struct tenant_a *a, struct engine_op *ops, uint32_t n)
{
    uint64_t until = clock_ns() + MEMBER_CALL_MS * UINT64_C(1000000);
    struct tern_result results[3];
    enum tern_err err;
    uint32_t done;

    do {
        err = ops_run(a->engine.batch, ops, n, MEMBER_CALL_MS, results, &done);
        for (uint32_t i = 0; err == TERN_OK && i < done; i++)
            err = results[i].err;
    } while ((err == TERN_POOL_EXHAUSTED || err == TERN_BUSY) && clock_ns() < until);
    return err;
}

/* Adds a new chunk to the tree; then the session is empty again. */
static enum a_answer put(struct tenant_a *a)
{
    uint32_t tokens[NEIGHBOUR_PAGE_TOKENS] = {(uint32_t)a->serial++};
    struct engine_op ops[] = {
        {.kind = ENGINE_EXTEND,
         .barrier = true,
         .session = a->held[0],
         .length = NEIGHBOUR_PAGE_TOKENS,
         .written = NEIGHBOUR_PAGE_TOKENS,
         .tokens = {.v = tokens, .n = NEIGHBOUR_PAGE_TOKENS}},
        {.kind = ENGINE_COMMIT,
         .step = TERN_STEP_NONE,
         .session = a->held[0],
         .length = NEIGHBOUR_PAGE_TOKENS},
        {.kind = ENGINE_CLOSE, .step = TERN_STEP_NONE, .session = a->held[0]}};
    enum tern_err err = step(a, ops, 3);

    if (err == TERN_OK)
        err = tern_session_open(a->engine.tern, a->engine.pool, &a->engine.ns, NULL, MEMBER_CALL_MS,
                                &a->held[0]);
    return a_answer_of(a, a->engine.tern, err);
}

/* Allocates all pages to one session, which evicts the whole tree, then frees them. */
static enum a_answer evict(struct tenant_a *a)
{
    struct engine_op ops[] = {
        {.kind = ENGINE_EXTEND,
         .barrier = true,
         .session = a->held[0],
         .length = CHURN * NEIGHBOUR_PAGE_TOKENS},
        {.kind = ENGINE_REWIND, .step = TERN_STEP_NONE, .session = a->held[0]}};

    return a_answer_of(a, a->engine.tern, step(a, ops, 2));
}

static enum a_answer changes_in_bursts(struct tenant_a *a)
{
    enum a_answer answer = ++a->nheld % CHURN == 0 ? evict(a) : put(a);

    return answer == A_DONE ? hear(a) : answer;
}

static enum a_answer changes_one_by_one(struct tenant_a *a)
{
    enum a_answer answer = put(a);

    return answer == A_DONE ? hear(a) : answer;
}

static bool events_release(struct tenant_a *a)
{
    return hear(a) != A_FAILED;
}

const struct a_table a_events = {.name = "events",
                                 .limits = "  events: 288\n",
                                 .open = events_open,
                                 .over = changes_in_bursts,
                                 .within = changes_one_by_one,
                                 .release = events_release};
