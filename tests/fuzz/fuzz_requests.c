/* Fuzz target: frames of engines and of a peer, as the shell passes them to the core and the
 * answers back: decoded, turned into requests and messages, stepped, encoded. The core has an
 * engine, a pool with a prefix in it, sessions and a link to a second core, so that the objects
 * that a frame names can exist; a bit of each record replaces its handles by living ones. The audit
 * runs behind each record. The core's answers must fit their frames and be readable. */
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "fuzz/message.h"
#include "fuzz/passed.h"
#include "shell/wire/wire_in.h"
#include "shell/wire/wire_out.h"
#include "unit/rig/rig.h"

#define RECORDS_MAX 24
#define BODY_BYTES  65536u
#define SESSIONS    3
#define DEPTH       24u

/* A record: type, flags, length in two bytes, and the bytes that a readable body is made of, or
 * with RAW the body. */
enum { RAW = 1, LIVING_HANDLES = 2, LET_TIME_PASS = 4, HOLD_JOBS = 8, LINK_FALLS = 16 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static struct wire_in wire;
static struct config *config;
static uint8_t frame[FRAME_HEADER_BYTES + BODY_BYTES];
static struct budget budget;

static struct rig *rig[2];
static struct rig_engine engine[2];
static struct pool_id pool;
static struct rig_session *session[SESSIONS];

static void set_up(void)
{
    static const char text[] = "tenants:\n  - name: a\n    socket: /a\n    memory: 1M\n";
    static _Alignas(BUDGET_ALIGN) uint8_t memory[BUDGET_BYTES(BODY_BYTES)];
    char why[CONFIG_WHY_BYTES];

    if (config)
        return;
    check(config_load_text("fuzz", text, sizeof text - 1, &config, why, sizeof why) == TERN_OK);
    check(wire_in_init(&wire, config, BODY_BYTES) == TERN_OK);
    budget_init(&budget, memory, sizeof memory);
}

static void world_begin(void)
{
    struct rig_options o = rig_small();
    const struct group_layout groups[] = {rig_group(2, 64), rig_window(2, 9, 64)};

    for (uint32_t d = 0; d < 2; d++) {
        struct pool_id here;

        o.incarnation++;
        rig[d] = rig_create(&o);
        rig[d]->host_bytes = 2048;
        rig[d]->no_audit = true; /* an audit follows each record */
        engine[d] = rig_engine(rig[d], 0, "e", 1);
        check(rig_pool_open(rig[d], engine[d].conn[0], groups, 2, 4096, &here) == TERN_OK);
        rig_put(rig[d], &engine[d], here, 1 + d, DEPTH);
        if (d == 0)
            pool = here;
    }
    for (uint32_t i = 0; i < SESSIONS; i++)
        session[i] = rig_session(rig[0], &engine[0], pool, 1);
    check(rig_match(session[1], rig_tokens(1, DEPTH), DEPTH) == TERN_OK);
    rig_link_up(rig[0], 0, rig[1], 2);
}

/* ------------------------------------------------------------------ one frame */

/* A type that the core answers, or a peer's message. */
static uint16_t some_type(uint8_t which)
{
    static uint16_t types[MESSAGES_MAX + 1] = {FRAME_PEER_MSG};
    static uint32_t n;

    if (n == 0) {
        n = 1;
        for (uint16_t type = 1; type < FRAME_TYPES_END; type++)
            if (wire_in_op(type) != OP_NONE)
                types[n++] = type;
    }
    return types[which % n];
}

static void make_living(struct request *r, uint8_t what)
{
    struct session_id id = session[what / 32 % SESSIONS]->id;

    switch (r->op) {
    case OP_SESSION_OPEN: r->session_open.pool = pool; break;
    case OP_PEEK: r->peek.pool = pool; break;
    case OP_POOL_MAP: r->pool_map.pool = pool; break;
    case OP_STEP:
        for (uint32_t i = 0; i < r->step.n; i++) {
            check(&r->step.ops[i] == &wire.ops[i]);
            wire.ops[i].session = i % 2 ? id : session[0]->id;
        }
        break;
    default: break;
    }
}

static void answered(const struct reply *r)
{
    static const struct wire_region region = {.bytes = 4096, .device = "GPU-0"};
    struct frame_header h;
    const ProtobufCMessage *msg;
    size_t n;

    if (!r || !wire_out_type(r->op))
        return;
    n = wire_out_reply(r, &region, BODY_BYTES, frame);
    if (n == 0)
        return; /* larger than a frame may be */
    check(n >= FRAME_HEADER_BYTES && n <= sizeof frame);
    check(frame_decode(frame, BODY_BYTES, &h) == TERN_OK);
    check(h.type == wire_out_type(r->op) && h.length == n - FRAME_HEADER_BYTES);
    check(wire_decode(&budget, h.type, frame + FRAME_HEADER_BYTES, h.length, &msg) == TERN_OK);
}

static void request(const struct frame_header *h, const uint8_t *body, uint8_t what)
{
    struct request r;
    const char *text = NULL;
    enum tern_err err = wire_in_request(&wire, 0, h, body, &r, &text);

    check(text || err == TERN_OK);
    if (err != TERN_OK)
        return;
    fuzz_passed();
    if (what & LIVING_HANDLES)
        make_living(&r, what);
    answered(rig_request(rig[0], engine[0].conn[0], &r));
}

static void peer_message(const struct frame_header *h, const uint8_t *body, uint8_t what)
{
    struct event event = {.kind = EV_PEER_MSG};
    uint64_t sequence;

    if (!rig[0]->link[0].rig ||
        wire_in_peer_msg(&wire, h, body, 1, &event.peer.msg, &sequence) != TERN_OK)
        return;
    fuzz_passed();
    if (what & LIVING_HANDLES) {
        event.peer.msg.pull.slot %= 2;
        event.peer.msg.pull.gen = 1 + what / 32 % 2;
        event.peer.msg.serve.slot %= 2;
        event.peer.msg.serve.gen = 1 + what / 32 % 2;
    }
    rig_event(rig[0], &event);
}

static void one_record(const struct frame_header *h, const uint8_t *body, uint8_t what)
{
    rig[0]->automatic = what & HOLD_JOBS ? RIG_ALL & ~(RIG_PULL | RIG_COPY | RIG_SEAL) : RIG_ALL;
    if (what & LET_TIME_PASS)
        rig_advance(rig[0], 1000000000u);
    if (what & LINK_FALLS && rig[0]->link[0].rig)
        rig_link_down(rig[0], 0);
    if (h->type == FRAME_PEER_MSG)
        peer_message(h, body, what);
    else
        request(h, body, what);
    oracle_audit(rig[0]->core);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static uint8_t made[MADE_BODY_MAX];
    const uint8_t *from;

    fuzz_begin();
    set_up();
    world_begin();
    for (uint32_t i = 0; i < RECORDS_MAX && n >= 4; i++) {
        struct frame_header h = {.version = FRAME_VERSION, .type = data[0], .request_id = i + 1};
        uint8_t what = data[1], *body;
        size_t length = data[2] | (size_t)data[3] << 8;

        data += 4;
        n -= 4;
        length = length < n ? length : n;
        h.length = (uint32_t)length;
        h.session = session_id_pack(session[what / 32 % SESSIONS]->id);
        from = data;
        if (!(what & RAW)) {
            h.type = some_type((uint8_t)h.type);
            h.length = (uint32_t)made_body(&(struct fuzz_bytes){data, length}, h.type, made);
            from = made;
        }
        body = malloc(h.length ? h.length : 1); /* a copy: the sanitizer sees a byte too far */
        check(body);
        memcpy(body, from, h.length);
        one_record(&h, body, what);
        free(body);
        data += length;
        n -= length;
    }
    rig_destroy(rig[0]);
    rig_destroy(rig[1]);
    return 0;
}
