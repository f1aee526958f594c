/* What leaves by slots: pages of GPUs whose memory no NIC knows. A data thread copies the pages of
 * a request to slots of the tenant's ring, in the order of its runs, and they are written to the
 * peer from there. Meanwhile the request waits, as one does whose path has no room. The peer cannot
 * tell; whether a page was still the one it asked for, its CONFIRM asks as ever.
 *
 * What must stay true: a parcel keeps its slots until its task is back and what was posted of it is
 * done, well or not, or its queue pair destroyed, whatever became of its request and of its
 * connection. While the task is away it holds its serve, whose pages the thread reads. */
#include "base/check.h"
#include "base/container.h"
#include "seam/mem/mem_pack.h"
#include "seam/xfer/verbs/verbs.h"

/* ------------------------------------------------------------------ on a data thread */

/* Pages in the order of the runs, cut where a slot ends. */
struct packing {
    struct verbs_parcel *parcel;
    uint64_t at;   /* bytes of the parcel before the first stretch */
    uint64_t left; /* of its slot */
    uint64_t bytes;
    uint32_t n;
    struct iovec stretches[XFER_PIECE_PARTS];
};

static void pack_now(struct packing *k)
{
    const struct verbs_parcel *parcel = k->parcel;
    const struct verbs *v = parcel->v;
    uint64_t rest;
    uint8_t *to;

    if (k->n == 0)
        return;
    to = ring_at(v, parcel->tenant, parcel->slots, k->at, &rest);
    check(k->bytes <= rest);
    k->parcel->whole = mem_pack(v->xfer->config.mem, to, k->stretches, k->bytes) && parcel->whole;
    k->at += k->bytes;
    k->left = rest - k->bytes > 0 ? rest - k->bytes : XFER_SLOT_BYTES;
    k->bytes = k->n = 0;
}

static void pack_page(struct packing *k, uint8_t *from, uint64_t bytes)
{
    while (bytes > 0) {
        uint64_t room = k->left - k->bytes, n = bytes < room ? bytes : room;

        k->stretches[k->n++] = (struct iovec){.iov_base = from, .iov_len = n};
        k->bytes += n;
        from += n;
        bytes -= n;
        if (k->bytes == k->left || k->n == XFER_PIECE_PARTS)
            pack_now(k);
    }
}

static bool pack(struct io_task *task, int32_t res)
{
    struct verbs_parcel *parcel = container_of(task, struct verbs_parcel, task);
    const struct mem *mem = parcel->v->xfer->config.mem;
    uint32_t regions = mem_transfer_regions(mem, parcel->pool);
    struct packing k = {.parcel = parcel, .left = XFER_SLOT_BYTES};

    (void)res;
    for (uint32_t r = 0; r < regions; r++)
        for (uint32_t i = 0; i < parcel->n; i++) {
            const struct xfer_entry *e = &parcel->entry[i];

            pack_page(&k, mem_page(mem, parcel->pool, r, e->group, e->index),
                      mem_page_bytes(mem, parcel->pool, e->group));
        }
    pack_now(&k);
    return false;
}

/* ------------------------------------------------------------------ on the owner thread */

static bool waits_for(const struct data_conn *conn, uint64_t number)
{
    return conn->state == DATA_CONN_OPEN && conn->request &&
           conn->request->state == DATA_REQUEST_WAITS && conn->request->parcel == number;
}

static struct data_conn *conn_of(const struct verbs *v, const struct verbs_parcel *parcel)
{
    return &v->xfer->conns->conn[parcel->conn];
}

static void packed(struct io_task *task, int32_t res)
{
    struct verbs_parcel *parcel = container_of(task, struct verbs_parcel, task);
    struct verbs *v = parcel->v;
    struct data_conn *conn = conn_of(v, parcel);
    uint32_t serve = parcel->serve;

    (void)res;
    parcel_state_move(&parcel->state, PARCEL_PACKED);
    if (waits_for(conn, parcel->number))
        write_go_on(v, conn);
    outflow_release(v->xfer, serve);
    rings_go_on(v); /* its request may have ended */
}

static struct verbs_parcel *parcel_free(struct verbs *v)
{
    for (uint32_t i = 0; i < VERBS_PARCELS; i++)
        if (v->parcel[i].state == PARCEL_FREE)
            return &v->parcel[i];
    return NULL;
}

/* False: there is no room for another one, or too few slots. */
static bool parcel_begin(struct verbs *v, struct data_conn *conn)
{
    struct data_request *in = conn->request;
    const struct verbs_path *p = &v->path[in->path];
    struct verbs_parcel *parcel = parcel_free(v);
    uint64_t bytes = 0, slots;

    if (!parcel) {
        v->ring[p->tenant].waited_for = true;
        v->ring[p->tenant].given = false;
        return false;
    }
    for (uint32_t i = 0; i < in->nruns; i++)
        bytes += in->runs[i].bytes;
    if (!ring_fit(v, p, bytes, &slots))
        return false;
    parcel_state_move(&parcel->state, PARCEL_PACKING);
    in->parcel = parcel->number = ++v->parcels;
    parcel->conn = (uint32_t)(conn - v->xfer->conns->conn);
    parcel->link = p->link;
    parcel->tenant = p->tenant;
    parcel->pool = data_request_pool(conn);
    parcel->serve = in->serve.slot;
    parcel->path = in->path;
    parcel->epoch = p->epoch;
    parcel->last = p->completed; /* nothing of it is posted yet */
    parcel->slots = slots;
    v->ring[p->tenant].taken |= slots;
    parcel->at = 0;
    parcel->whole = true;
    parcel->n = in->n;
    memcpy(parcel->entry, in->entry, in->n * sizeof in->entry[0]);
    parcel->task.work = pack;
    parcel->task.done = packed;
    outflow_hold(v->xfer, parcel->serve);
    v->xfer->stats.ring_bytes_out += bytes;
    io_threads_work(v->xfer->threads, &parcel->task, (uint32_t)(parcel - v->parcel));
    return true;
}

enum parcel_ready parcel_for(struct verbs *v, struct data_conn *conn, struct verbs_parcel **ret)
{
    uint64_t number = conn->request->parcel;

    if (number == 0) {
        (void)parcel_begin(v, conn); /* else it goes on when there is room */
        return PARCEL_COMES;
    }
    for (uint32_t i = 0; i < VERBS_PARCELS; i++) {
        struct verbs_parcel *parcel = &v->parcel[i];

        if (parcel->state == PARCEL_FREE || parcel->number != number)
            continue;
        *ret = parcel;
        if (parcel->state == PARCEL_PACKING)
            return PARCEL_COMES;
        return parcel->whole ? PARCEL_THERE : PARCEL_LOST;
    }
    check_failed("a parcel that its request has", __FILE__, __LINE__);
}

static bool writes_over(const struct verbs *v, const struct verbs_parcel *parcel)
{
    const struct verbs_path *p = &v->path[parcel->path];

    return p->epoch != parcel->epoch || (int32_t)(p->completed - parcel->last) >= 0;
}

void parcels_sweep(struct verbs *v)
{
    for (uint32_t i = 0; i < VERBS_PARCELS; i++) {
        struct verbs_parcel *parcel = &v->parcel[i];

        if (parcel->state != PARCEL_PACKED || waits_for(conn_of(v, parcel), parcel->number) ||
            !writes_over(v, parcel))
            continue;
        parcel_state_move(&parcel->state, PARCEL_FREE);
        v->ring[parcel->tenant].taken &= ~parcel->slots;
        parcel->slots = 0;
        for (uint32_t t = 0; t < v->tenants; t++) /* some may have waited for a parcel */
            v->ring[t].given = true;
    }
}

void parcels_go_on(struct verbs *v, uint32_t tenant)
{
    for (uint32_t i = 0; i < v->xfer->config.data_conns_max; i++) {
        struct data_conn *conn = &v->xfer->conns->conn[i];

        if (waits_for(conn, 0) && conn->request->kind == XFER_REQUEST_WRITE &&
            v->path[conn->request->path].tenant == tenant &&
            path_parcels(v, &v->path[conn->request->path]))
            write_go_on(v, conn);
    }
}
