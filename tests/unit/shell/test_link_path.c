/* Messages of two daemons about RDMA paths: every field encoded and decoded, and in the frame;
 * refusals, who may ask, and what the log shows. The linker replaces the calls of link_path.c to
 * the transfer seam and to its stream by this file. */
#include <errno.h>
#include <string.h>

#include "base/prng.h"
#include "shell/daemon.h"
#include "shell/peers/link_internal.h"
#include "unit/rig/rig_log.h"

#define ROUNDS 2000
#define SLOT   1 /* of the link under test; slot 0 is another peer's */

enum { RED, BLUE, GREEN, TENANTS }; /* the link's peer may name blue and green */

static uint8_t mem[BUDGET_BYTES(FRAME_BODY_MAX)] __attribute__((aligned(64)));
static uint8_t frame[FRAME_HEADER_BYTES + FRAME_BODY_MAX];
static struct config config;
static struct daemon d;
static struct peer_link links[2];
static uint64_t due_ns[2];
static struct prng prng;

static struct {
    uint32_t frames, messages, closed;
    bool full;             /* the stream has no room */
    struct frame_header h; /* of the last frame sent */
    uint8_t body[FRAME_BODY_MAX];
    struct stream *stream;
    uint32_t link; /* of the last message for the seam */
    struct xfer_path_msg msg;
} seen;

bool __wrap_stream_put(struct stream *s, const uint8_t *bytes, size_t n, const int *fds,
                       uint32_t nfds);
void __wrap_xfer_path_msg(struct xfer *xfer, uint32_t link, const struct xfer_path_msg *msg);

bool __wrap_stream_fits(const struct stream *s, size_t n);
void __wrap_stream_close(struct stream *s, const char *why);
void __wrap_xfer_stats(const struct xfer *xfer, struct xfer_stats *ret);

bool __wrap_stream_fits(const struct stream *s, size_t n)
{
    (void)s, (void)n;
    return !seen.full;
}

void __wrap_stream_close(struct stream *s, const char *why)
{
    assert_string_equal(why, "reads too slowly: its send queue is full");
    seen.stream = s;
    seen.closed++;
}

void __wrap_xfer_stats(const struct xfer *xfer, struct xfer_stats *ret)
{
    (void)xfer;
    *ret = (struct xfer_stats){0};
}

bool __wrap_stream_put(struct stream *s, const uint8_t *bytes, size_t n, const int *fds,
                       uint32_t nfds)
{
    assert_false(seen.full); /* that would close the stream at once */
    assert_true(!fds && nfds == 0);
    assert_int_equal(frame_decode(bytes, FRAME_BODY_MAX, &seen.h), TERN_OK);
    assert_int_equal(n, FRAME_HEADER_BYTES + seen.h.length);
    memcpy(seen.body, bytes + FRAME_HEADER_BYTES, seen.h.length);
    seen.stream = s;
    seen.frames++;
    return true;
}

void __wrap_xfer_path_msg(struct xfer *xfer, uint32_t link, const struct xfer_path_msg *msg)
{
    assert_ptr_equal(xfer, d.xfer);
    seen.link = link;
    seen.msg = *msg;
    seen.messages++;
}

/* Before each test: the link is up, and no message was sent on it. */
FIXTURE(start)
{
    static const char *const names[TENANTS] = {"red", "blue", "green"};

    memset(&config, 0, sizeof config);
    memset(&d, 0, sizeof d);
    memset(links, 0, sizeof links);
    memset(&seen, 0, sizeof seen);
    prng_init(&prng, 11);
    config.ntenants = TENANTS;
    for (uint32_t i = 0; i < TENANTS; i++)
        strcpy(config.tenants[i].name, names[i]);
    config.npeers = 2;
    strcpy(config.peers[0].name, "west");
    config.peers[0].tenants = 1u << RED;
    strcpy(config.peers[1].name, "east");
    config.peers[1].tenants = 1u << BLUE | 1u << GREEN;
    d.config = &config;
    d.frame = frame;
    d.xfer = (struct xfer *)(void *)&d; /* passed on, never dereferenced */
    d.links = (struct peer_links){.v = links, .due_ns = due_ns, .n = 2, .peers = 2};
    for (uint32_t i = 0; i < 2; i++) {
        links[i].d = &d;
        links[i].slot = links[i].peer = i;
        links[i].state = PEER_LINK_UP;
    }
    log_start(LEVEL_DEBUG);
    return wire_in_init(&d.in, &config, FRAME_BODY_MAX) == TERN_OK ? 0 : -1;
}

FIXTURE(stop)
{
    wire_in_finish(&d.in);
    return log_stop();
}

/* The last frame, as the peer would read it. */
static const Tern__Wire__PeerPath *sent(void)
{
    const ProtobufCMessage *m;
    struct budget budget;

    assert_int_equal(seen.h.type, FRAME_PEER_PATH);
    budget_init(&budget, mem, sizeof mem);
    assert_int_equal(wire_decode(&budget, seen.h.type, seen.body, seen.h.length, &m), TERN_OK);
    return (const Tern__Wire__PeerPath *)(const void *)m;
}

/* The peer sends it, as the message after `received` others. */
static enum tern_err say(const Tern__Wire__PeerPath *m, uint64_t received)
{
    static uint8_t out[FRAME_HEADER_BYTES + FRAME_BODY_MAX];
    struct frame_header h = {.version = FRAME_VERSION, .type = FRAME_PEER_PATH};
    uint64_t sequence = received + 1;
    size_t n;

    assert_int_equal(wire_encode(&h, &m->base, FRAME_BODY_MAX, out, sizeof out, &n), TERN_OK);
    h.length = (uint32_t)(n - FRAME_HEADER_BYTES);
    return link_path_read(&links[SLOT], &h, out + FRAME_HEADER_BYTES, sequence);
}

/* A valid offer, as the first message of a link. */
static Tern__Wire__PeerPath an_offer(const char *tenant)
{
    static uint8_t gid[WIRE_GID_BYTES] = {0xfe, 0x80};
    static struct xfer_mr chunk = {.addr = 4096, .bytes = 4096, .rkey = 7};
    Tern__Wire__PeerPath m = TERN__WIRE__PEER_PATH__INIT;

    m.has_kind = m.has_epoch = m.has_rail = m.has_sequence = m.has_gid = m.has_chunks = true;
    m.kind = XFER_PATH_OFFER;
    m.tenant = (char *)(uintptr_t)tenant;
    m.epoch = 41;
    m.rail = 2;
    m.sequence = 1;
    m.gid = wire_bytes(gid, sizeof gid);
    m.chunks = wire_bytes(&chunk, sizeof chunk);
    return m;
}

static uint32_t number32(void)
{
    return (uint32_t)(prng_u64(&prng) >> (32 + prng_below(&prng, 32)));
}

static struct xfer_path_msg a_message(enum xfer_path_kind kind)
{
    struct xfer_path_msg msg = {.kind = kind,
                                .tenant = prng_below(&prng, 2) ? BLUE : GREEN,
                                .rail = number32(),
                                .epoch = number32()};

    if (kind == XFER_PATH_REFUSE) {
        snprintf(msg.text, sizeof msg.text, "reason %u", number32());
        msg.push = prng_below(&prng, 2);
        return msg;
    }
    msg.qpn = number32();
    msg.psn = number32();
    msg.mtu = number32();
    msg.lid = number32();
    msg.push = prng_below(&prng, 2);
    for (uint32_t i = 0; i < XFER_PATH_GID_BYTES; i++)
        msg.gid[i] = (uint8_t)number32();
    msg.nmrs = prng_below(&prng, 4) ? prng_below(&prng, XFER_MRS_MAX + 1) : XFER_MRS_MAX;
    for (uint32_t i = 0; i < msg.nmrs; i++)
        msg.mr[i] = (struct xfer_mr){.addr = prng_u64(&prng),
                                     .bytes = prng_u64(&prng),
                                     .offset = prng_u64(&prng),
                                     .rkey = number32(),
                                     .region = number32()};
    msg.nmws = prng_below(&prng, 4) ? prng_below(&prng, XFER_MWS_MAX + 1) : 0;
    for (uint32_t i = 0; i < msg.nmws; i++)
        msg.mw_rkey[i] = number32();
    return msg;
}

static void same_on_the_wire(const Tern__Wire__PeerPath *m, const struct xfer_path_msg *msg)
{
    bool ends = msg->kind != XFER_PATH_REFUSE; /* with two queue pairs */

    assert_int_equal(m->kind, msg->kind);
    assert_string_equal(m->tenant, config.tenants[msg->tenant].name);
    assert_int_equal(m->epoch, msg->epoch);
    assert_int_equal(m->rail, msg->rail);
    assert_int_equal(m->has_qpn, ends);
    assert_int_equal(m->qpn, msg->qpn);
    assert_int_equal(m->psn, msg->psn);
    assert_int_equal(m->mtu, msg->mtu);
    assert_int_equal(m->lid, msg->lid);
    assert_int_equal(m->push, msg->push);
    assert_int_equal(m->gid.len, ends ? WIRE_GID_BYTES : 0);
    assert_memory_equal(m->gid.data, msg->gid, m->gid.len);
    assert_int_equal(m->chunks.len, msg->nmrs * WIRE_CHUNK_BYTES);
    assert_memory_equal(m->chunks.data, msg->mr, m->chunks.len);
    assert_int_equal(m->windows.len, msg->nmws * WIRE_WINDOW_BYTES);
    assert_memory_equal(m->windows.data, msg->mw_rkey, m->windows.len);
    assert_int_equal(m->text != NULL, !ends);
    if (!ends)
        assert_string_equal(m->text, msg->text);
}

static void same_in_the_seam(const struct xfer_path_msg *got, const struct xfer_path_msg *msg)
{
    assert_int_equal(got->kind, msg->kind);
    assert_int_equal(got->tenant, msg->tenant);
    assert_int_equal(got->rail, msg->rail);
    assert_int_equal(got->epoch, msg->epoch);
    assert_int_equal(got->qpn, msg->qpn);
    assert_int_equal(got->psn, msg->psn);
    assert_int_equal(got->mtu, msg->mtu);
    assert_int_equal(got->lid, msg->lid);
    assert_memory_equal(got->gid, msg->gid, sizeof msg->gid);
    assert_int_equal(got->push, msg->push);
    assert_int_equal(got->nmrs, msg->nmrs);
    assert_memory_equal(got->mr, msg->mr, sizeof msg->mr);
    assert_int_equal(got->nmws, msg->nmws);
    assert_memory_equal(got->mw_rkey, msg->mw_rkey, sizeof msg->mw_rkey);
    assert_string_equal(got->text, msg->text);
}

TEST_WITH(link_path_message_travels_with_every_field, start, stop)
{
    for (uint32_t i = 1; i <= ROUNDS; i++) {
        struct xfer_path_msg msg = a_message((enum xfer_path_kind)(XFER_PATH_OFFER + i % 3));
        uint64_t sequence = i;

        link_path_send(&d, SLOT, &msg);
        assert_int_equal(seen.frames, i);
        assert_ptr_equal(seen.stream, &links[SLOT].stream);
        assert_int_equal(sent()->sequence, i);
        same_on_the_wire(sent(), &msg);
        assert_int_equal(link_path_read(&links[SLOT], &seen.h, seen.body, sequence), TERN_OK);
        assert_int_equal(seen.messages, i);
        assert_int_equal(seen.link, SLOT);
        same_in_the_seam(&seen.msg, &msg);
    }
    assert_string_equal(logged(), ""); /* neither keys nor addresses */
}

TEST_WITH(link_path_message_of_a_link_that_is_down_is_dropped, start, stop)
{
    struct xfer_path_msg msg = a_message(XFER_PATH_OFFER);

    links[SLOT].state = PEER_LINK_GREETING;
    link_path_send(&d, SLOT, &msg);
    assert_int_equal(seen.frames, 0);
    assert_int_equal(links[SLOT].sent, 0); /* otherwise the peer would miss a number */
}

/* The link stays: an older configuration at the peer is no reason to lose its other tenants. */
TEST_WITH(link_path_tenant_that_is_not_the_peers_is_denied, start, stop)
{
    static const char *const tenants[] = {"red", "violet", ""};

    for (uint32_t i = 0; i < sizeof tenants / sizeof tenants[0]; i++) {
        Tern__Wire__PeerPath m = an_offer(tenants[i]);

        assert_int_equal(say(&m, 0), TERN_OK);
        assert_int_equal(seen.messages, 0);
        assert_non_null(strstr(logged(), "level=warn event=path_denied peer=east link=1\n"));
        assert_int_equal(seen.frames, i + 1);
        assert_int_equal(sent()->kind, XFER_PATH_REFUSE);
        assert_string_equal(sent()->tenant, tenants[i]);
        assert_int_equal(sent()->epoch, 41);
        assert_int_equal(sent()->rail, 2);
        assert_int_equal(sent()->sequence, i + 1);
        assert_string_equal(sent()->text, "the peer may not ask for that tenant");
        assert_false(sent()->has_qpn || sent()->has_chunks || sent()->has_windows);
    }
}

/* Two daemons that disagree must not refuse each other's refusals for ever. */
TEST_WITH(link_path_only_an_offer_is_answered_when_denied, start, stop)
{
    for (uint32_t kind = XFER_PATH_ANSWER; kind < XFER_PATH_KINDS; kind++) {
        Tern__Wire__PeerPath m = an_offer("red");

        m.kind = kind;
        assert_int_equal(say(&m, 0), TERN_OK);
        assert_non_null(strstr(logged(), "event=path_denied"));
    }
    assert_true(seen.messages == 0 && seen.frames == 0);
}

TEST_WITH(link_path_message_of_no_tenant_is_denied, start, stop)
{
    Tern__Wire__PeerPath m = an_offer(NULL);

    assert_int_equal(say(&m, 0), TERN_OK);
    assert_non_null(strstr(logged(), "event=path_denied"));
    assert_true(seen.messages == 0 && seen.frames == 0);
}

/* MALFORMED ends the link; no part of the message may have been used. */
static void unread(const Tern__Wire__PeerPath *m, uint64_t received)
{
    assert_int_equal(say(m, received), TERN_MALFORMED);
    assert_true(seen.messages == 0 && seen.frames == 0);
}

TEST_WITH(link_path_unknown_kind_is_malformed, start, stop)
{
    static const uint32_t kinds[] = {0, XFER_PATH_KINDS, 77, UINT32_MAX};
    Tern__Wire__PeerPath m = an_offer("blue");

    for (uint32_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        m.kind = kinds[i];
        unread(&m, 0);
    }
    m.has_kind = false;
    unread(&m, 0);
}

TEST_WITH(link_path_message_out_of_turn_is_malformed, start, stop)
{
    static const uint64_t received[] = {0, 1, 3, 4, UINT64_MAX - 1};
    Tern__Wire__PeerPath m = an_offer("blue");

    m.sequence = 3;
    for (uint32_t i = 0; i < sizeof received / sizeof received[0]; i++)
        unread(&m, received[i]);
    m.has_sequence = false;
    unread(&m, 2);
    m.has_sequence = true;
    assert_int_equal(say(&m, 2), TERN_OK);
    assert_int_equal(seen.messages, 1);
}

TEST_WITH(link_path_count_above_its_limit_is_malformed, start, stop)
{
    static struct xfer_mr chunks[XFER_MRS_MAX + 1];
    static uint32_t windows[XFER_MWS_MAX + 1];
    static const uint32_t gid[] = {0, 1, 15, 17, 32};
    Tern__Wire__PeerPath good = an_offer("blue"), m = good;

    m.chunks = wire_bytes(chunks, sizeof chunks);
    unread(&m, 0);
    m.chunks = wire_bytes(chunks, sizeof chunks[0] + 1);
    unread(&m, 0);
    m = good;
    m.has_windows = true;
    m.windows = wire_bytes(windows, sizeof windows);
    unread(&m, 0);
    m.windows = wire_bytes(windows, sizeof windows[0] + 1);
    unread(&m, 0);
    m = good;
    for (uint32_t i = 0; i < sizeof gid / sizeof gid[0]; i++) {
        m.gid = wire_bytes(chunks, gid[i]);
        unread(&m, 0);
    }
}

TEST_WITH(link_path_long_names_and_texts_are_malformed, start, stop)
{
    static char text[WIRE_TEXT_MAX + 2];
    Tern__Wire__PeerPath m = an_offer("blue");

    memset(text, 'x', sizeof text - 1);
    m.text = text;
    unread(&m, 0);
    m = an_offer(text + sizeof text - 1 - (WIRE_STRING_MAX + 1));
    unread(&m, 0);
}

/* The peer's text appears in logs and terminals. */
TEST_WITH(link_path_reason_is_cut_and_cannot_steer_a_terminal, start, stop)
{
    static char text[WIRE_TEXT_MAX + 1];
    Tern__Wire__PeerPath m = an_offer("blue");

    memset(text, 'x', sizeof text - 1);
    memcpy(text, "a\x1b[2J\n\x7f\xc3\xa9 b", 11);
    m.kind = XFER_PATH_REFUSE;
    m.text = text;
    assert_int_equal(say(&m, 0), TERN_OK);
    assert_int_equal(seen.messages, 1);
    assert_int_equal(strlen(seen.msg.text), XFER_PATH_TEXT - 1);
    assert_memory_equal(seen.msg.text, "a\\x1b[2J\\x0a\\x7f\xc3\xa9 bx", 21);
}

static void note(uint32_t tenant, const char *transport, const char *reason,
                 enum xfer_note_kind kind)
{
    const struct xfer_note n = {
        .tenant = tenant, .transport = transport, .reason = reason, .kind = kind};

    link_path_note(&d, SLOT, &n);
}

TEST_WITH(link_path_transport_is_logged_with_its_reason, start, stop)
{
    note(GREEN, "verbs", "as \"asked\"", XFER_NOTE_WAY);
    assert_non_null(strstr(logged(), "level=info event=transport peer=east tenant=green "
                                     "transport=verbs reason=\"as \\\"asked\\\"\"\n"));
    note(BLUE, "tcp", "slow", XFER_NOTE_WAY);
    assert_non_null(strstr(logged(), "level=info event=transport peer=east tenant=blue "
                                     "transport=tcp reason=slow\n"));
    note(BLUE, NULL, "slow", XFER_NOTE_WAY);
    assert_non_null(strstr(logged(), "level=warn event=transport peer=east tenant=blue "
                                     "transport=none reason=slow\n"));
}

static uint32_t warnings(void)
{
    uint32_t n = 0;

    for (const char *at = logged_so_far(); (at = strstr(at, "level=warn event=transport ")); at++)
        n++;
    return n;
}

/* A warning once for each tenant and each beginning; a link that comes up again is no beginning. */
TEST_WITH(link_path_fallback_is_a_warning_when_it_begins, start, stop)
{
    d.links.v[SLOT].state = PEER_LINK_UP;
    note(BLUE, "verbs", "", XFER_NOTE_WAY);
    assert_false(link_falls_back(&d, SLOT));
    for (int i = 0; i < 3; i++)
        note(BLUE, "tcp", "no device", XFER_NOTE_FALLBACK);
    assert_int_equal(warnings(), 1);
    note(GREEN, "tcp", "no device", XFER_NOTE_FALLBACK);
    assert_int_equal(warnings(), 2);
    note(BLUE, "tcp", "of another layout", XFER_NOTE_PART); /* changes nothing */
    note(BLUE, "tcp", "no device", XFER_NOTE_FALLBACK);
    assert_int_equal(warnings(), 2);
    note(BLUE, "verbs", "", XFER_NOTE_WAY);
    assert_true(link_falls_back(&d, SLOT)); /* green, as before */
    note(GREEN, "tcp", "no device", XFER_NOTE_FALLBACK);
    assert_int_equal(warnings(), 2);
    note(GREEN, "tcp", "transport: tcp is configured", XFER_NOTE_WAY);
    assert_false(link_falls_back(&d, SLOT));
    note(BLUE, "tcp", "lost", XFER_NOTE_FALLBACK);
    assert_int_equal(warnings(), 3);
    d.links.v[SLOT].state = PEER_LINK_IDLE;
    assert_false(link_falls_back(&d, SLOT));
}

TEST_WITH(link_path_state_is_logged_while_the_link_is_up, start, stop)
{
    struct xfer_path_view view = {
        .tenant = BLUE, .device = "rxe0", .reason = "lost", .state_word = "paused", .reads = true};

    link_path_changed(&d, SLOT, &view);
    assert_non_null(strstr(logged(), "level=warn event=path_failed peer=east tenant=blue "
                                     "device=rxe0 way=in reason=lost\n"));
    view.ready = true;
    view.reads = false;
    link_path_changed(&d, SLOT, &view);
    assert_non_null(strstr(logged(), "level=info event=path_ready peer=east tenant=blue "
                                     "device=rxe0 way=out reason=lost\n"));
    links[SLOT].state = PEER_LINK_CLOSED;
    link_path_changed(&d, SLOT, &view);
    assert_string_equal(logged(), "");
}

TEST_WITH(link_path_data_port_is_logged, start, stop)
{
    link_data_dialled(&d, SLOT, 7002, ECONNREFUSED);
    assert_non_null(strstr(logged(), "level=warn event=data_dial_failed peer=east port=7002 "
                                     "errno=111 reason=\"Connection refused\"\n"));
    link_data_dialled(&d, SLOT, 7002, 0);
    assert_non_null(strstr(logged(), "level=info event=data_dial_works peer=east port=7002\n"));
}

/* The seam is inside an operation when it sends this: the link ends with the tick. */
TEST_WITH(link_path_full_queue_closes_the_link_with_the_tick, start, stop)
{
    struct xfer_path_msg msg = {.kind = XFER_PATH_REFUSE, .tenant = BLUE, .text = "no"};

    links_tick(&d, 1);
    assert_int_equal(seen.closed, 0);
    seen.full = true;
    link_path_send(&d, SLOT, &msg);
    assert_int_equal(seen.closed, 0);
    assert_int_equal(links[SLOT].sent, 0);
    seen.full = false;
    link_path_send(&d, SLOT, &msg); /* the peer may not get the second without the first */
    assert_int_equal(seen.frames, 0);
    links_tick(&d, 1);
    assert_int_equal(seen.closed, 1);
    assert_ptr_equal(seen.stream, &links[SLOT].stream);
}

/* The fetch gets the answer of a busy source, and the link stays. */
TEST_WITH(link_full_of_tokens_is_told_to_the_fetch_as_a_busy_source, start, stop)
{
    static const uint32_t tokens[4];
    static struct event queue[1];
    const struct peer_msg msg = {.kind = PEER_PULL_OPEN,
                                 .pull = {3, 4},
                                 .trace_id = 9,
                                 .tenant = BLUE,
                                 .to = 4,
                                 .tokens = tokens};
    const struct peer_msg *told = &queue[0].peer.msg;

    d.queue = (struct event_queue){.v = queue, .cap = 1};
    config.limits.busy_retry_ms = 20;
    seen.full = true;
    link_send(&d, SLOT, &msg);
    assert_int_equal(d.queue.n, 1);
    assert_int_equal(queue[0].kind, EV_PEER_MSG);
    assert_int_equal(queue[0].peer.link, SLOT);
    assert_int_equal(told->kind, PEER_PULL_OFFER);
    assert_true(pull_id_equal(told->pull, msg.pull));
    assert_int_equal(told->trace_id, 9);
    assert_int_equal(told->err, TERN_BUSY);
    assert_int_equal(told->retry_ms, 20);
    links_tick(&d, 1);
    assert_int_equal(seen.closed, 0);
}
