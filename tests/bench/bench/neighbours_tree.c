/* The tables around the prefix tree that tenant A of `tern-bench neighbours` fills with what its
 * sessions hold: namespaces, prefix nodes, token blocks and extra keys. */
#include <stdio.h>

#include "engine/bytes.h"
#include "neighbours_tables.h"

#define L           NEIGHBOUR_PAGE_TOKENS
#define POOL_PAGES  512
#define LIST_TOKENS (16 * L) /* of a session that uses token blocks */
#define KEYS        64
#define FIXED_ID    3000000u

static bool join(struct tenant_a *a)
{
    return a_join(a, POOL_PAGES);
}

static enum tern_err session_open(struct tenant_a *a, const struct tern_namespace *ns)
{
    return tern_session_open(a->engine.tern, a->engine.pool, ns, NULL, MEMBER_CALL_MS,
                             &a->held[a->nheld]);
}

static enum tern_err session_close(struct tenant_a *a, uint64_t session)
{
    struct engine_op op = {.kind = ENGINE_CLOSE, .step = TERN_STEP_NONE, .session = session};
    struct tern_result r;

    return op_do(a->engine.tern, &op, MEMBER_CALL_MS, &r);
}

/* Closes all but the first `keep`. */
static bool sessions_close(struct tenant_a *a, uint32_t keep)
{
    while (a->nheld > keep)
        if (session_close(a, a->held[--a->nheld]) != TERN_OK)
            return false;
    return true;
}

/* ---- namespaces: a session in each ---- */

static enum a_answer space_open(struct tenant_a *a)
{
    char salt[32];
    struct tern_namespace ns = {.model = "bench", .salt = salt};
    enum a_answer answer;

    snprintf(salt, sizeof salt, "%llu", (unsigned long long)a->serial++);
    answer = a_answer_of(a, a->engine.tern, session_open(a, &ns));
    a->nheld += answer == A_DONE;
    return answer;
}

static enum a_answer space_open_and_close(struct tenant_a *a)
{
    if (a->nheld == 0)
        return space_open(a);
    return a_answer_of(a, a->engine.tern, session_close(a, a->held[--a->nheld]));
}

static bool spaces_close(struct tenant_a *a)
{
    return sessions_close(a, 0);
}

const struct a_table a_namespaces = {.name = "namespaces",
                                     .limits = "  namespaces: 64\n",
                                     .says = "limits.namespaces",
                                     .open = join,
                                     .over = space_open,
                                     .within = space_open_and_close,
                                     .release = spaces_close};

/* ---- token blocks and extra keys: used by matches of sessions; the last one matches anew ---- */

static bool lists_open(struct tenant_a *a)
{
    return join(a) && member_ok(&a->engine, "opening a session", session_open(a, &a->engine.ns));
}

/* Matches new tokens, and as many new keys, in place of the last session's. */
static enum a_answer match_new(struct tenant_a *a, uint32_t n, uint32_t nkeys)
{
    uint32_t tokens[LIST_TOKENS];
    struct tern_extra_key keys[KEYS];
    struct tern_tokens list = {.v = tokens, .n = n, .keys = keys, .nkeys = nkeys};
    struct tern_result r;

    block_tokens(++a->serial, 0, n, tokens);
    for (uint32_t i = 0; i < nkeys; i++)
        keys[i] = (struct tern_extra_key){.position = i, .hi = a->serial, .lo = i};
    return a_answer_of(
        a, a->engine.tern,
        tern_match(a->engine.tern, a->held[a->nheld], &list, TERN_STEP_NONE, MEMBER_CALL_MS, &r));
}

/* The session keeps them, and a new session becomes the last one. */
static enum a_answer keep(struct tenant_a *a, enum a_answer answer)
{
    if (answer != A_DONE)
        return answer;
    if (++a->nheld == A_HOLDS_MAX)
        return A_FAILED;
    return a_answer_of(a, a->engine.tern, session_open(a, &a->engine.ns));
}

static enum a_answer tokens_kept(struct tenant_a *a)
{
    return keep(a, match_new(a, LIST_TOKENS, 0));
}

static enum a_answer tokens_replaced(struct tenant_a *a)
{
    return match_new(a, LIST_TOKENS, 0);
}

static enum a_answer keys_kept(struct tenant_a *a)
{
    return keep(a, match_new(a, L, KEYS));
}

static enum a_answer keys_replaced(struct tenant_a *a)
{
    return match_new(a, L, KEYS);
}

static bool lists_close(struct tenant_a *a)
{
    a->nheld++; /* including the last one */
    return sessions_close(a, 0) && session_open(a, &a->engine.ns) == TERN_OK;
}

const struct a_table a_token_blocks = {.name = "token blocks",
                                       .limits = "  token_blocks: 2048\n",
                                       .says = "limits.token_blocks",
                                       .open = lists_open,
                                       .over = tokens_kept,
                                       .within = tokens_replaced,
                                       .release = lists_close};

const struct a_table a_extra_keys = {.name = "extra keys",
                                     .limits = "  extra_keys: 2048\n",
                                     .says = "limits.extra_keys",
                                     .open = lists_open,
                                     .over = keys_kept,
                                     .within = keys_replaced,
                                     .release = lists_close};

/* ---- nodes: one session that gets deeper by a chunk with each request ---- */

static enum a_answer step(struct tenant_a *a, struct engine_op *ops, uint32_t n)
{
    struct tern_result results[3];
    uint32_t done;
    enum tern_err err = ops_run(a->engine.batch, ops, n, MEMBER_CALL_MS, results, &done);

    for (uint32_t i = 0; err == TERN_OK && i < n; i++)
        err = results[i].err;
    return a_answer_of(a, a->engine.tern, err);
}

/* a->serial counts the committed chunks, a->nconns the written ones. */
static enum a_answer deeper(struct tenant_a *a)
{
    uint32_t tokens[L], depth = (uint32_t)a->serial * L;
    struct engine_op ops[] = {{.kind = ENGINE_EXTEND,
                               .session = a->held[0],
                               .length = depth + L,
                               .written = depth + L,
                               .tokens = {.v = tokens, .n = L, .base = depth}},
                              {.kind = ENGINE_COMMIT,
                               .step = TERN_STEP_NONE,
                               .session = a->held[0],
                               .length = depth + L}};
    bool written = a->nconns > a->serial;
    enum a_answer answer;

    block_tokens(FIXED_ID, depth, L, tokens);
    answer = written ? step(a, ops + 1, 1) : step(a, ops, 2);
    if (answer != A_FAILED)
        a->nconns = (uint32_t)a->serial + 1;
    a->serial += answer == A_DONE;
    return answer;
}

/* Commits the same chunk each time, which is in the tree from the first time on. */
static enum a_answer same_again(struct tenant_a *a)
{
    uint32_t tokens[L];
    struct engine_op ops[] = {
        {.kind = ENGINE_EXTEND,
         .session = a->held[0],
         .length = L,
         .written = L,
         .tokens = {.v = tokens, .n = L}},
        {.kind = ENGINE_COMMIT, .step = TERN_STEP_NONE, .session = a->held[0], .length = L},
        {.kind = ENGINE_CLOSE, .step = TERN_STEP_NONE, .session = a->held[0]}};
    enum a_answer answer;

    block_tokens(FIXED_ID, 0, L, tokens);
    answer = step(a, ops, 3);
    if (answer == A_DONE)
        answer = a_answer_of(a, a->engine.tern, session_open(a, &a->engine.ns));
    return answer;
}

static bool nodes_leave(struct tenant_a *a)
{
    uint32_t nodes;

    a->serial = a->nconns = 0;
    return session_close(a, a->held[0]) == TERN_OK &&
           tern_namespace_reset(a->engine.tern, &a->engine.ns, MEMBER_CALL_MS, &nodes, NULL) ==
               TERN_OK &&
           session_open(a, &a->engine.ns) == TERN_OK;
}

const struct a_table a_nodes = {.name = "nodes",
                                .limits = "  nodes: 512\n",
                                .open = lists_open,
                                .over = deeper,
                                .within = same_again,
                                .release = nodes_leave};
