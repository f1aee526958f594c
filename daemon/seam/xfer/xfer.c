/* Transfers: tables and life, ticks and statistics, links that go up and down, and events that
 * concern several transports. Called by the shell's owner thread. */
#include <stdatomic.h>
#include <stdlib.h>

#include "base/check.h"
#include "seam/xfer/conn/data_conn.h"
#include "seam/xfer/flow/transfers.h"

static const struct transport_ops *const *transports_of(const struct xfer_config *c)
{
    return c->transports ? c->transports : transports_built;
}

/* A data connection has one task to receive and one to send. */
static struct io_threads_config threads_of(const struct xfer_config *c)
{
    const struct transport_ops *const *ops = transports_of(c);
    uint32_t works = 0;

    for (; *ops; ops++)
        works += (*ops)->works ? (*ops)->works(c) : 0;
    return (struct io_threads_config){.io = c->io,
                                      .threads = c->data_threads,
                                      .tasks = 2 * c->data_conns_max,
                                      .works = works,
                                      .name = "tern-data"};
}

void xfer_bytes(const struct xfer_config *c, uint32_t page_records, uint32_t sums_per_page,
                uint64_t *ret_shared, uint64_t *ret_rdma)
{
    const struct transport_ops *const *ops = transports_of(c);
    struct io_threads_config threads = threads_of(c);

    *ret_rdma = 0;
    *ret_shared = sizeof(struct xfer) + c->links * sizeof(struct xfer_link) +
                  c->pulls * sizeof(struct xfer_pull) + xfer_batches(c) * sizeof(struct batch) +
                  c->serves * sizeof(struct xfer_serve) + data_conns_bytes(c, sums_per_page, ops) +
                  io_threads_bytes(&threads) + pairs_bytes(c);
    if (c->fault_corrupt_pages > 0)
        *ret_shared += page_records * sizeof(uint64_t);
    for (; *ops; ops++)
        if ((*ops)->bytes)
            *((*ops)->rdma ? ret_rdma : ret_shared) += (*ops)->bytes(c, sums_per_page);
}

static bool create_tables(struct xfer *xfer)
{
    const struct xfer_config *c = &xfer->config;

    xfer->link = calloc(c->links, sizeof *xfer->link);
    xfer->pull = calloc(c->pulls, sizeof *xfer->pull);
    xfer->batch = calloc(xfer_batches(c), sizeof *xfer->batch);
    xfer->serve = calloc(c->serves, sizeof *xfer->serve);
    if (c->fault_corrupt_pages > 0)
        xfer->injected = calloc(mem_page_records(c->mem), sizeof *xfer->injected);
    if (!xfer->link || !xfer->pull || !xfer->batch || !xfer->serve ||
        (c->fault_corrupt_pages > 0 && !xfer->injected))
        return false;
    for (uint32_t i = 0; i < c->links; i++)
        for (uint32_t k = 0; k < XFER_TRANSPORTS_MAX; k++) {
            xfer->link[i].lane[k] = (struct lane){.queue = {NONE}};
            for (uint32_t n = 0; n < XFER_CONNECTIONS_MAX; n++)
                xfer->link[i].lane[k].path[n].conn = NONE;
        }
    pulls_init(xfer);
    return pairs_create(xfer) == TERN_OK && data_conns_create(xfer) == TERN_OK;
}

static bool create_transports(struct xfer *xfer)
{
    for (const struct transport_ops *const *ops = xfer->config.transports; *ops; ops++) {
        struct transport *t = &xfer->transport[xfer->ntransports];

        check(xfer->ntransports < XFER_TRANSPORTS_MAX);
        *t = (struct transport){.ops = *ops, .xfer = xfer, .lane = xfer->ntransports++};
        if (t->ops->create(t) != TERN_OK)
            return false;
    }
    return true;
}

enum tern_err xfer_create(const struct xfer_config *config, struct xfer **ret, const char **ret_why)
{
    struct io_threads_config threads;
    struct xfer *xfer;

    if (!config->io || !config->mem || config->links == 0 || config->pulls == 0 ||
        config->serves == 0 || config->data_conns_max < 2 || config->idle_ns == 0 ||
        config->data_threads == 0 || config->data_threads > XFER_THREADS_MAX ||
        config->connections > XFER_CONNECTIONS_MAX) {
        *ret_why = "transfers: a limit is 0, data_conns_max is below 2, data_threads above 64, or "
                   "connections above 16";
        return TERN_INVALID;
    }
    *ret_why = "no memory for the tables of the transfers";
    xfer = calloc(1, sizeof *xfer);
    if (!xfer)
        return TERN_INTERNAL;
    xfer->config = *config;
    xfer->config.transports = transports_of(config);
    xfer->config.connections = config->connections ? config->connections : 1;
    if (!create_tables(xfer))
        goto out_destroy;
    threads = threads_of(&xfer->config);
    if (io_threads_create(&threads, &xfer->threads, ret_why) != TERN_OK)
        goto out_destroy;
    if (!create_transports(xfer)) {
        *ret_why = xfer->transport[xfer->ntransports - 1].ops->rdma
                       ? "no memory for the tables of the RDMA paths"
                       : "no memory for the tables of the transfers";
        goto out_destroy;
    }
    *ret = xfer;
    return TERN_OK;

out_destroy:
    xfer_destroy(xfer);
    return TERN_INTERNAL;
}

void xfer_destroy(struct xfer *xfer)
{
    if (!xfer)
        return;
    for (uint32_t i = 0; xfer->link && i < xfer->config.links; i++)
        for (uint32_t k = 0; k < XFER_TRANSPORTS_MAX; k++)
            lane_wait(xfer, &xfer->link[i].lane[k], 0);
    data_conns_stop(xfer);
    for (uint32_t i = 0; i < xfer->ntransports; i++)
        xfer->transport[i].ops->destroy(&xfer->transport[i]);
    io_threads_destroy(xfer->threads);
    data_conns_destroy(xfer);
    free(xfer->link);
    free(xfer->pull);
    free(xfer->batch);
    free(xfer->serve);
    free(xfer->injected);
    pairs_destroy(xfer);
    free(xfer);
}

static bool has_batches(const struct xfer *xfer, uint32_t slot)
{
    const uint32_t *batch = xfer->pull[slot].batch;

    for (uint32_t b = 0; b < PULL_BATCHES_MAX; b++)
        if (batch[b] != NONE && batch_used(&xfer->batch[batch[b]]))
            return true;
    return false;
}

void xfer_link_down(struct xfer *xfer, uint32_t number)
{
    struct xfer_link *link = &xfer->link[number];

    check(number < xfer->config.links);
    if (!link->up)
        return;
    link->up = false;
    for (uint32_t k = xfer->ntransports; k > 0; k--)
        for (uint32_t i = 0; i < xfer->config.connections; i++) {
            struct data_conn *conn = data_path_conn(&xfer->transport[k - 1], number, i);

            if (conn)
                data_conn_end(conn, false);
        }
    for (uint32_t slot = 0; slot < xfer->config.pulls; slot++)
        if (xfer->pull[slot].peer_link == number && has_batches(xfer, slot))
            pull_break(xfer, slot, TERN_PEER_LOST);
    for (uint32_t i = 0; i < xfer->ntransports; i++)
        if (xfer->transport[i].own && xfer->transport[i].ops->link_down)
            xfer->transport[i].ops->link_down(&xfer->transport[i], number);
}

enum tern_err xfer_link_up(struct xfer *xfer, uint32_t number, const struct sockaddr *addr,
                           socklen_t len, uint64_t peer_incarnation, uint64_t token)
{
    struct xfer_link *link;

    if (number >= xfer->config.links || len > sizeof link->addr ||
        (addr->sa_family != AF_INET && addr->sa_family != AF_INET6))
        return TERN_INVALID;
    xfer_link_down(xfer, number); /* requests to an earlier incarnation are void */
    link = &xfer->link[number];
    memcpy(&link->addr, addr, len);
    link->addr_len = len;
    link->peer_incarnation = peer_incarnation;
    link->token = token;
    link->call_errno = 0;
    link->by_tcp = false;
    link->up = true;
    data_paths_reset(xfer, number);
    return TERN_OK;
}

static bool waited_too_long(struct xfer *xfer, struct lane *lane, uint64_t now_ns)
{
    if (lane->waiting_ns == 0 || now_ns <= lane->waiting_ns ||
        now_ns - lane->waiting_ns <= xfer->config.idle_ns)
        return false;
    lane_wait(xfer, lane, 0);
    return true;
}

void xfer_link_tick(struct xfer *xfer, uint32_t number, uint64_t now_ns)
{
    bool waits = false;

    for (uint32_t k = xfer->ntransports; k > 0; k--) {
        struct lane *lane = &xfer->link[number].lane[k - 1];

        if (waited_too_long(xfer, lane, now_ns))
            queue_break(xfer, &lane->queue, TERN_BUSY);
        waits = waits || lane->waiting_ns != 0;
    }
    if (waits)
        data_conns_evict(xfer);
}

void xfer_admit(struct xfer *xfer, uint32_t number, uint64_t token)
{
    check(number < xfer->config.links && token != 0);
    xfer_dismiss(xfer, number);
    xfer->link[number].admitted = token;
}

void xfer_dismiss(struct xfer *xfer, uint32_t number)
{
    check(number < xfer->config.links);
    if (!xfer->link[number].admitted)
        return;
    xfer->link[number].admitted = 0;
    data_conns_dismiss(xfer, number);
}

void xfer_serve_stop(struct xfer *xfer, const struct action *act)
{
    serve_stop(xfer, act->serve.serve);
    data_conns_serve_stopped(xfer, act->serve.serve);
    serve_release(xfer, act->serve.serve.slot);
}

void xfer_tick(struct xfer *xfer, uint64_t now_ns)
{
    data_conns_tick(xfer, now_ns);
    for (uint32_t i = 0; i < xfer->config.links && xfer->lanes_waiting > 0; i++)
        xfer_link_tick(xfer, i, now_ns);
    for (uint32_t i = 0; i < xfer->ntransports; i++)
        if (xfer->transport[i].own && xfer->transport[i].ops->tick)
            xfer->transport[i].ops->tick(&xfer->transport[i], now_ns);
    data_conns_accept(xfer);
    door_tick(xfer->conns->door, now_ns);
}

bool xfer_poll(struct xfer *xfer)
{
    bool again = false;

    for (uint32_t i = 0; i < xfer->ntransports; i++)
        if (xfer->transport[i].own && xfer->transport[i].ops->poll)
            again = xfer->transport[i].ops->poll(&xfer->transport[i]) || again;
    return again;
}

void xfer_stats(const struct xfer *xfer, struct xfer_stats *ret)
{
    const struct data_conns *conns = xfer->conns;

    *ret = xfer->stats;
    ret->corrupt_injected = atomic_load(&xfer->injections);
    ret->socket_bytes_in += atomic_load(&xfer->landed_bytes);
    ret->inbound = conns->inbound;
    ret->inbound_max = conns->inbound_max;
    ret->inbound_min = conns->inbound_min;
    ret->inbound_common = conns->inbound_common;
    ret->inbound_common_max = conns->inbound_max - xfer->config.peers * conns->inbound_min;
    door_stats(conns->door, &ret->door);
    io_threads_stats(xfer->threads, &ret->threads);
}
