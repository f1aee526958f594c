/* Transfers of pages between two cores: the cores' steps, the messages between them through the
 * writer and the reader of both, and the checksum of a page, which both ends compute. Data
 * connections and their threads are left out. */
#include <stdlib.h>
#include <string.h>

#include "seam/mem/checksum.h"
#include "shell/wire/wire_in.h"
#include "shell/wire/wire_out.h"
#include "stages.h"
#include "unit/rig/rig.h"

#define PAGE_TOKENS 4u
#define FEW         1u /* pages */
#define MANY        65u
#define PAGE_BYTES  65536u
#define POOL_BYTES  (1u << 20)

static struct rig *rig[2]; /* the destination and the source */
static struct rig_engine engine[2];
static struct pool_id pool[2];
static struct wire_in in;
static struct config *config;
static uint8_t frame[FRAME_HEADER_BYTES + FRAME_BODY_MAX];

static void set_up(void)
{
    static const char text[] = "tenants:\n  - name: a\n    socket: /a\n    memory: 1M\n";
    const struct group_layout group = rig_group(PAGE_TOKENS, 512);
    char why[CONFIG_WHY_BYTES];

    must(config_load_text("instructions", text, sizeof text - 1, &config, why, sizeof why) ==
         TERN_OK);
    must(wire_in_init(&in, config, FRAME_BODY_MAX) == TERN_OK);
    for (uint32_t d = 0; d < 2; d++) {
        struct rig_options o = rig_defaults();

        o.incarnation += d;
        rig[d] = rig_create(&o);
        rig[d]->no_audit = true;
        rig[d]->automatic = RIG_ALL & ~(uint32_t)RIG_MSG;
        engine[d] = rig_engine(rig[d], 0, "e", 1);
        must(rig_pool_open(rig[d], engine[d].conn[0], &group, 1, POOL_BYTES, &pool[d]) == TERN_OK);
    }
    rig_link_up(rig[0], 0, rig[1], rig_defaults().limits.peers);
}

/* Writes and reads a message; the core then gets the rig's own copy of it. */
static void deliver(struct rig *from)
{
    static const struct wire_layouts none;
    const struct peer_msg *msg = &rig_job(from, RIG_MSG, 0)->msg;
    struct frame_header h;
    struct peer_msg read;
    uint64_t sequence;
    size_t n;

    stage("wire out");
    n = wire_out_peer_msg(msg, "a", &none, 1, FRAME_BODY_MAX, frame);
    stage(NULL);
    must(n > 0 && frame_decode(frame, FRAME_BODY_MAX, &h) == TERN_OK);
    stage("wire in");
    must(wire_in_peer_msg(&in, &h, frame + FRAME_HEADER_BYTES, 1, &read, &sequence) == TERN_OK);
    stage("core");
    rig_complete(from, RIG_MSG);
}

static void fetch(const char *name, uint32_t seed, uint32_t pages)
{
    uint32_t tokens = pages * PAGE_TOKENS;
    struct rig_session *s;
    uint64_t id;

    rig_put(rig[1], &engine[1], pool[1], seed, tokens);
    s = rig_session(rig[0], &engine[0], pool[0], 1);
    must(rig_match(s, rig_tokens(seed, tokens), tokens) == TERN_OK);
    stages_begin(name);
    stage("core");
    id = rig_fetch(s, 0, 0);
    while (rig_jobs(rig[0], RIG_MSG) || rig_jobs(rig[1], RIG_MSG))
        deliver(rig_jobs(rig[0], RIG_MSG) ? rig[0] : rig[1]);
    stages_begin(NULL);
    must(rig_fetched(s, id) == TERN_OK && s->len.committed == tokens);
}

static void page(void)
{
    static _Alignas(4096) uint8_t bytes[PAGE_BYTES];
    uint64_t sum;

    for (uint32_t i = 0; i < PAGE_BYTES; i++)
        bytes[i] = (uint8_t)(i * 31 + i / 256);
    sum = checksum_unit(bytes, PAGE_BYTES);
    stages_begin("a page of 64 KiB");
    stage("checksum");
    must(checksum_unit(bytes, PAGE_BYTES) == sum);
    stages_begin(NULL);
}

void count_fetches(void)
{
    set_up();
    fetch(NULL, 3, FEW);
    fetch("fetch of 1 page", 1, FEW);
    fetch("fetch of 65 pages", 2, MANY);
    page();
}
