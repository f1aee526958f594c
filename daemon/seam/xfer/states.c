/* The moves of the machines in states.h. */
#include "seam/xfer/states.h"

#include "base/check.h"
#include "seam/xfer/data_conn.h"
#include "seam/xfer/transfers.h"

#define X(name, next, comment) [INFLOW_##name] = (next),
static const uint32_t inflow_next[] = {INFLOW_STATE_TABLE(X)};
#undef X
#define X(name, next, comment) [OUTFLOW_##name] = (next),
static const uint32_t outflow_next[] = {OUTFLOW_STATE_TABLE(X)};
#undef X
#define X(name, next, comment) [BATCH_##name] = (next),
static const uint32_t batch_next[] = {BATCH_STATE_TABLE(X)};
#undef X
#define X(name, next, comment) [DATA_CONN_##name] = (next),
static const uint32_t data_conn_next[] = {DATA_CONN_STATE_TABLE(X)};
#undef X
#define X(name, next, comment) [REQUEST_##name] = (next),
static const uint32_t request_next[] = {REQUEST_STATE_TABLE(X)};
#undef X

void inflow_move(struct inflow *f, enum inflow_state to)
{
    check(inflow_next[f->state] >> to & 1);
    f->state = to;
}

void outflow_move(struct outflow *f, enum outflow_state to)
{
    check(outflow_next[f->state] >> to & 1);
    f->state = to;
}

void batch_move(struct batch *b, enum batch_state to)
{
    check(batch_next[b->state] >> to & 1);
    b->state = to;
}

void data_conn_move(struct data_conn *conn, enum data_conn_state to)
{
    check(data_conn_next[conn->state] >> to & 1);
    conn->state = to;
}

void request_move(struct data_request *r, enum request_state to)
{
    check(request_next[r->state] >> to & 1);
    r->state = to;
}
