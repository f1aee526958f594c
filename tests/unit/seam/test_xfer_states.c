/* The state machines of the transfers are tables: every state must be reachable from the first one,
 * and must lead back to it. */
#include "testing/test.h"

#include "seam/xfer/tcp/tcp.h"
#include "seam/xfer/verbs/verbs.h"

#define STATES_MAX 16

struct state {
    uint32_t next;
};

#define X(machine, name, next, comment) {next},
static const struct state pull[] = {XFER_PULL_STATE_TABLE(X)};
static const struct state serve[] = {XFER_SERVE_STATE_TABLE(X)};
static const struct state batch[] = {BATCH_STATE_TABLE(X)};
static const struct state data_conn[] = {DATA_CONN_STATE_TABLE(X)};
static const struct state request[] = {DATA_REQUEST_STATE_TABLE(X)};
static const struct state tcp_answer[] = {TCP_ANSWER_STATE_TABLE(X)};
static const struct state path[] = {PATH_STATE_TABLE(X)};
static const struct state piece[] = {PIECE_STATE_TABLE(X)};
#undef X

#define MACHINE(table)                                                                             \
    {                                                                                              \
        table, sizeof(table) / sizeof(table)[0]                                                    \
    }
static const struct machine {
    const struct state *state;
    uint32_t n;
} machines[] = {
    MACHINE(pull),    MACHINE(serve),      MACHINE(batch), MACHINE(data_conn),
    MACHINE(request), MACHINE(tcp_answer), MACHINE(path),  MACHINE(piece),
};
#define MACHINES (sizeof machines / sizeof machines[0])

static uint32_t reach(const struct machine *m, uint32_t from)
{
    uint32_t set = 1u << from, last = 0;

    while (set != last) {
        last = set;
        for (uint32_t s = 0; s < m->n; s++)
            if (set >> s & 1)
                set |= m->state[s].next;
    }
    return set;
}

/* HELLO occurs only at the start of a request's life, which ends with its connection. */
TEST(states_of_the_transfers_are_all_reached_and_lead_back)
{
    for (size_t i = 0; i < MACHINES; i++) {
        const struct machine *m = &machines[i];
        uint32_t home = m->state == request ? (uint32_t)DATA_REQUEST_NONE : 0;

        assert_true(m->n <= STATES_MAX);
        assert_int_equal(reach(m, 0), (1u << m->n) - 1);
        for (uint32_t s = 0; s < m->n; s++)
            assert_true(reach(m, s) >> home & 1);
    }
}
