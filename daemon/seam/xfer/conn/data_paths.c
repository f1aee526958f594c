/* The paths of a lane: the data connections to a peer over which a transport spreads its transfers.
 * A path that fails is retired: the others continue, and it is called again after a pause that
 * doubles. If no path is left, the pause does not apply, since waiting work has no other way.
 * Called by the transports and by data_conn.c. */
#include "base/check.h"
#include "seam/xfer/conn/data_conn.h"

struct data_conn *data_path_conn(const struct transport *t, uint32_t peer_link, uint32_t path)
{
    uint32_t number = transport_lane(t, peer_link)->path[path].conn;

    return number == NONE ? NULL : &t->xfer->conns->conn[number];
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
