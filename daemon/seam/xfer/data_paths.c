/* The paths of a lane: the data connections to a peer that a transport spreads its transfers over.
 * The first one is called when something is to be asked for, another one when no path has room for
 * what waits. One that fails is retired: the others go on, and it is called again after a pause
 * that doubles. Where none is left the pause does not count, since whatever waits has no other way.
 * Called by the transports and by data_conn.c. */
#include "base/check.h"
#include "seam/xfer/data_conn.h"

struct data_conn *data_path_conn(const struct transport *t, uint32_t peer_link, uint32_t path)
{
    uint32_t number = transport_lane(t, peer_link)->path[path].conn;

    return number == NONE ? NULL : &t->xfer->conns->conn[number];
}

struct data_conn *data_conn_of_lane(const struct transport *t, uint32_t peer_link)
{
    return data_path_conn(t, peer_link, 0);
}

static struct data_path *path_of(const struct data_conn *conn)
{
    return &transport_lane(conn->transport, conn->peer_link)->path[conn->path];
}

bool data_paths_several(const struct xfer *xfer)
{
    return xfer->config.connections > 1;
}

bool data_paths_alive(const struct transport *t, uint32_t peer_link)
{
    for (uint32_t i = 0; i < t->xfer->config.connections; i++)
        if (transport_lane(t, peer_link)->path[i].conn != NONE)
            return true;
    return false;
}

/* The first connections of all peers have their slots; what is beyond those is for the others. */
static bool room_for_extra(const struct xfer *xfer)
{
    uint32_t lanes = 0;

    for (uint32_t i = 0; i < xfer->ntransports; i++)
        lanes += xfer->transport[i].own && xfer->transport[i].ops->conn_bytes > 0;
    return xfer->conns->extra + lanes * xfer->config.peers < xfer->conns->outbound_max;
}

/* Of those that are not called, the one that may be called first. */
static uint32_t next_path(const struct xfer *xfer, const struct lane *lane)
{
    uint32_t next = NONE;

    for (uint32_t i = 0; i < xfer->config.connections; i++)
        if (lane->path[i].conn == NONE &&
            (next == NONE || lane->path[i].dial_ns < lane->path[next].dial_ns))
            next = i;
    return next;
}

static bool one_is_called(const struct xfer *xfer, const struct lane *lane)
{
    for (uint32_t i = 0; i < xfer->config.connections; i++)
        if (lane->path[i].state == DATA_PATH_CALLING)
            return true;
    return false;
}

void data_paths_call(struct transport *t, uint32_t peer_link, const struct data_caller *caller)
{
    const struct lane *lane = transport_lane(t, peer_link);
    uint32_t path = next_path(t->xfer, lane);

    if (path == NONE || one_is_called(t->xfer, lane))
        return;
    if (data_paths_alive(t, peer_link) &&
        (io_now_ns() < lane->path[path].dial_ns || !room_for_extra(t->xfer)))
        return;
    data_conn_call(t, peer_link, path, caller);
}

void data_path_taken(struct transport *t, struct data_conn *conn)
{
    conn->extra = data_paths_alive(t, conn->peer_link);
    t->xfer->conns->extra += conn->extra ? 1 : 0;
    data_path_state_move(&path_of(conn)->state, DATA_PATH_CALLING);
    path_of(conn)->conn = (uint32_t)(conn - t->xfer->conns->conn);
}

void data_path_up(struct data_conn *conn)
{
    data_path_state_move(&path_of(conn)->state, DATA_PATH_UP);
}

void data_path_carried(struct data_conn *conn)
{
    path_of(conn)->failures = 0;
}

static void pause_begin(struct data_path *path)
{
    uint64_t ms = XFER_REDIAL_MS_MIN;

    for (uint32_t i = 0; i < path->failures && ms < XFER_REDIAL_MS_MAX; i++)
        ms *= 2;
    path->failures++;
    path->dial_ns = io_now_ns() + (ms < XFER_REDIAL_MS_MAX ? ms : XFER_REDIAL_MS_MAX) * NS_PER_MS;
}

void data_path_left(struct data_conn *conn, bool failed)
{
    struct data_path *path = path_of(conn);

    path->conn = NONE;
    data_path_state_move(&path->state, failed ? DATA_PATH_RETIRED : DATA_PATH_NONE);
    if (!failed)
        return;
    conn->xfer->stats.conns_retired++;
    pause_begin(path);
}

void data_path_put_off(struct data_path *path)
{
    check(path->conn == NONE);
    pause_begin(path);
}

void data_paths_reset(struct xfer *xfer, uint32_t peer_link)
{
    for (uint32_t k = 0; k < xfer->ntransports; k++)
        for (uint32_t i = 0; i < xfer->config.connections; i++) {
            struct data_path *path = &xfer->link[peer_link].lane[k].path[i];

            check(path->conn == NONE);
            path->failures = 0;
            path->dial_ns = 0;
            if (path->state == DATA_PATH_RETIRED)
                data_path_state_move(&path->state, DATA_PATH_NONE);
        }
}

void data_paths_view(const struct xfer *xfer, uint32_t peer_link, struct xfer_link_view *ret)
{
    for (uint32_t k = 0; k < xfer->ntransports; k++)
        for (uint32_t i = 0; i < xfer->config.connections; i++) {
            enum data_path_state state = xfer->link[peer_link].lane[k].path[i].state;

            ret->conns_up += state == DATA_PATH_UP;
            ret->conns_calling += state == DATA_PATH_CALLING;
            ret->conns_retired += state == DATA_PATH_RETIRED;
        }
    /* A daemon's link to itself needs none, but for pages of pools of another layout. */
    if (!xfer_link_is_own(xfer, peer_link) ||
        ret->conns_up + ret->conns_calling + ret->conns_retired > 0)
        ret->connections = xfer->config.connections;
}
