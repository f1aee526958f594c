/* The names of prefixes in libtern equal those of the core. */
#include "shell/wire/wire_in.h"
#include "tern.h"
#include "unit/rig/rig_test.h"

#define CHUNKS 3

/* Commits `tokens` in the namespace and compares each chunk's chain with libtern's. */
static void compare(uint32_t align, const struct tern_namespace *ns,
                    const struct req_tokens *tokens)
{
    Tern__Wire__Namespace wire = TERN__WIRE__NAMESPACE__INIT;
    struct rig *rig = rig_create(NULL);
    struct rig_engine e = rig_engine(rig, 0, "e", 1);
    struct pool_id pool = rig_pool_pages(rig, &e, align, 16);
    struct request open = {.op = OP_SESSION_OPEN};
    struct rig_session *s = rig_session(rig, &e, pool, 1);
    struct tern_extra_key keys[RIG_KEYS_MAX];
    struct tern_tokens list = {
        .v = tokens->v, .n = tokens->n, .keys = keys, .nkeys = tokens->nkeys};
    uint64_t chains[CHUNKS + 1];
    struct tree_event_view event;

    wire.model = (char *)(uintptr_t)ns->model;
    wire.lora = (char *)(uintptr_t)ns->lora;
    open.session_open.pool = pool;
    open.session_open.ns = wire_in_namespace(&wire);
    s->id = rig_request(rig, e.conn[0], &open)->session_open.session;
    for (uint32_t k = 0; k < tokens->nkeys; k++)
        keys[k] = (struct tern_extra_key){.position = tokens->keys[k].position,
                                          .hi = tokens->keys[k].hi,
                                          .lo = tokens->keys[k].lo};
    assert_ok(rig_match_full(s, tokens, 0));
    assert_ok(rig_extend(s, tokens->n, tokens->n, NULL, 0));
    assert_ok(rig_commit(s, tokens->n / align * align, 0));
    assert_int_equal(tern_chains(ns, &list, align, chains, CHUNKS + 1), tokens->n / align);
    for (uint32_t i = 0; i < tokens->n / align; i++) {
        assert_true(rig_event_view(rig->core, i + 1, &event));
        assert_int_equal(event.depth, (i + 1) * align);
        assert_true(event.chain == chains[i]);
    }
}

TEST(chains_are_the_cores)
{
    static const uint32_t aligns[] = {16, 64, 100, 256}; /* below, at, beside and above a block */
    const struct tern_namespace ns[] = {{.model = "m"}, {.model = "m", .lora = "l"}, {0}};

    for (uint32_t a = 0; a < 4; a++)
        for (uint32_t i = 0; i < 3; i++) {
            uint32_t n = CHUNKS * aligns[a] + 5;
            struct req_tokens plain = {.v = seq1, .n = n};

            compare(aligns[a], &ns[i], &plain);
        }
}

TEST(chains_know_extra_keys)
{
    struct extra_key keys[] = {{.position = 0, .hi = 1, .lo = 2},
                               {.position = 63, .hi = 3, .lo = 4},
                               {.position = 64, .hi = 5, .lo = 6},
                               {.position = 190, .hi = 7, .lo = 8}};
    struct req_tokens keyed = {.v = seq1, .n = 200, .keys = keys, .nkeys = 4};
    struct tern_namespace ns = {.model = "m"};

    compare(64, &ns, &keyed);
}

TEST(chains_stop_where_there_is_no_room)
{
    struct tern_namespace ns = {.model = "m"};
    struct tern_tokens tokens = {.v = seq1, .n = 200};
    uint64_t all[3], two[3] = {0, 0, 7};

    assert_int_equal(tern_chains(&ns, &tokens, 64, all, 3), 3);
    assert_int_equal(tern_chains(&ns, &tokens, 64, two, 2), 2);
    assert_true(two[0] == all[0] && two[1] == all[1] && two[2] == 7);
    assert_int_equal(tern_chains(&ns, &tokens, 256, two, 2), 0);
    assert_int_equal(tern_chains(&ns, &tokens, 0, two, 2), 0);
}

TEST(chains_of_a_list_that_points_nowhere_are_none)
{
    struct tern_namespace ns = {.model = "m"};
    struct tern_tokens no_tokens = {.n = 200}, no_keys = {.v = seq1, .n = 200, .nkeys = 1},
                       whole = {.v = no_keys.v, .n = 200};
    uint64_t chain;

    assert_int_equal(tern_chains(&ns, &no_tokens, 64, &chain, 1), 0);
    assert_int_equal(tern_chains(&ns, &no_keys, 64, &chain, 1), 0);
    assert_int_equal(tern_chains(NULL, &whole, 64, &chain, 1), 0);
    assert_int_equal(tern_chains(&ns, NULL, 64, &chain, 1), 0);
}
