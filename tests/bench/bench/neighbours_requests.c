/* Requests of tenant A of `tern-bench neighbours` of the largest allowed size: a Step of 1,024
 * operations, and a find of 4,096 blocks. Within its share A asks as often for one. */
#include <stdio.h>
#include <string.h>

#include "engine/op.h"
#include "engine/profile.h"
#include "neighbours_tables.h"
#include "tern_blocks.h"

#define PER_S        10    /* each may take the daemon 1 ms: so rare, it is not in p99 */
#define STEP_OPS     1024u /* of one Step: a get and a free for each session */
#define SESSIONS     (STEP_OPS / 2)
#define FIND_KEYS    TERN_BLOCKS_LIST_MAX
#define VALUE_BYTES  512
#define BLOCKS_BYTES (16ull << 20)
#define LIMITS                                                                                     \
    "  sessions: 8192\n  nodes: 200000\n  token_blocks: 600000\n  pages: 700000\n"                 \
    "  retires: 65536\n"

/* ---- a Step: each session gets a page and frees it ---- */

static bool sessions_open(struct tenant_a *a)
{
    bool ok = a_join(a, 2 * SESSIONS);

    while (ok && a->nheld < SESSIONS)
        ok = member_ok(&a->engine, "opening a session",
                       tern_session_open(a->engine.tern, a->engine.pool, &a->engine.ns, NULL,
                                         MEMBER_CALL_MS, &a->held[a->nheld++]));
    return ok;
}

static enum a_answer step(struct tenant_a *a, uint32_t sessions)
{
    static struct engine_op ops[STEP_OPS];
    static struct tern_result results[STEP_OPS];
    uint32_t n = 2 * sessions, done;
    enum tern_err err;

    for (uint32_t i = 0; i < sessions; i++) {
        ops[2 * i] = (struct engine_op){
            .kind = ENGINE_EXTEND, .session = a->held[i], .length = NEIGHBOUR_PAGE_TOKENS};
        ops[2 * i + 1] = (struct engine_op){
            .kind = ENGINE_REWIND, .session = a->held[i], .step = a->engine.step + 1};
    }
    err = ops_run(a->engine.batch, ops, n, MEMBER_CALL_MS, results, &done);
    for (uint32_t i = 0; i < n && err == TERN_OK; i++)
        err = results[i].err;
    if (err == TERN_OK)
        err = engine_publish(&a->engine);
    return a_answer_of(a, a->engine.tern, err);
}

static enum a_answer step_whole(struct tenant_a *a)
{
    return step(a, SESSIONS);
}

static enum a_answer step_of_one(struct tenant_a *a)
{
    return step(a, 1);
}

const struct a_table a_steps = {.name = "steps",
                                .limits = LIMITS,
                                .costs = true,
                                .per_s = PER_S,
                                .open = sessions_open,
                                .over = step_whole,
                                .within = step_of_one};

/* ---- finds: all keys are stored ---- */

static struct tern_block_set *set;
static uint32_t number[FIND_KEYS];
static struct tern_block_key keys[FIND_KEYS];

static bool blocks_open(struct tenant_a *a)
{
    const struct tern_block_config config = {.ns = {.model = "bench"},
                                             .group = "kv",
                                             .value_bytes = VALUE_BYTES,
                                             .pool_bytes = BLOCKS_BYTES};
    static uint8_t bytes[VALUE_BYTES], stored[FIND_KEYS];
    static struct tern_block_value values[FIND_KEYS];
    static struct iovec piece = {.iov_base = bytes, .iov_len = sizeof bytes};

    for (uint32_t i = 0; i < FIND_KEYS; i++) {
        number[i] = i;
        keys[i] = (struct tern_block_key){.bytes = &number[i], .n = sizeof number[i]};
        values[i] = (struct tern_block_value){.iov = &piece, .niov = 1};
    }
    if (tern_blocks_open(a->hosts->here.socket, &config, MEMBER_CALL_MS, &set) == TERN_OK &&
        tern_blocks_put(set, keys, values, FIND_KEYS, MEMBER_CALL_MS, stored) == TERN_OK)
        return true;
    fprintf(stderr, "tern-bench neighbours: blocks: %s\n", tern_blocks_error_text(set));
    return false;
}

static enum a_answer find(uint32_t n)
{
    static uint8_t places[FIND_KEYS];
    uint32_t front;
    enum tern_err err = tern_blocks_find(set, keys, n, MEMBER_CALL_MS, places, &front);

    return err == TERN_OK && front == n ? A_DONE : A_FAILED;
}

static enum a_answer find_all(struct tenant_a *a)
{
    (void)a;
    return find(FIND_KEYS);
}

static enum a_answer find_one(struct tenant_a *a)
{
    (void)a;
    return find(1);
}

const struct a_table a_finds = {.name = "finds",
                                .limits = LIMITS,
                                .costs = true,
                                .per_s = PER_S,
                                .open = blocks_open,
                                .over = find_all,
                                .within = find_one};
