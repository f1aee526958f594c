/* Pins of a node of the prefix tree. Their functions stand in a header, so they count where they
 * are called. */
#include "bench/core_rig.h"
#include "core/tree/nodes.h"
#include "engine/bytes.h"
#include "stages.h"

#define PAGE_TOKENS 64u
#define PAGES       64u
#define PAIRS       1000u

static uint32_t a_leaf(const struct core *core)
{
    struct node_view v;

    for (uint32_t slot = 0; slot < core_limits_of(core)->nodes; slot++)
        if (core_node_view(core, slot, &v) && v.children == 0)
            return slot;
    wrong("there is a leaf");
}

static void pairs(struct core *core, uint32_t leaf, const char *name)
{
    stages_begin(name);
    stage("core");
    for (uint32_t i = 0; i < PAIRS; i++) {
        node_pin(core, leaf, REF_DEVICE);
        node_unpin(core, leaf, REF_DEVICE);
    }
    stages_begin(NULL);
}

void count_pins(void)
{
    static const struct req_pool_open layout = {.ngroups = 1,
                                                .group = {{.page_tokens = PAGE_TOKENS}}};
    static uint32_t tokens[PAGE_TOKENS];
    struct session_id s;
    struct core_rig rig;
    uint32_t leaf;
    double us;

    block_tokens(1, 0, PAGE_TOKENS, tokens);
    must(core_rig_init(&rig, &layout, PAGES) && core_rig_open(&rig, &s) &&
         core_rig_turn(&rig, s, tokens, 0, PAGE_TOKENS, &us));
    core_rig_settle(&rig);
    must(core_rig_close(&rig, s));
    leaf = a_leaf(rig.core);
    pairs(rig.core, leaf, "1,000 pins of an idle namespace");
    must(core_rig_open(&rig, &s));
    pairs(rig.core, leaf, "1,000 pins of one in use");
    core_rig_finish(&rig);
}
