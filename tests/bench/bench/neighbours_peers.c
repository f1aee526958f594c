/* Transfers that tenant A of `tern-bench neighbours` begins and does not end. A plays a peer of
 * `here`, in one of three ways: the daemon asks it for a prefix and it never answers, so the fetch
 * stays under way; or it asks for a prefix and reads no page, so the prefix stays pinned; or it
 * asks again and again, each time for a pool of another layout. */
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "core/core.h"
#include "engine/bytes.h"
#include "engine/proc.h"
#include "neighbours_tables.h"
#include "proto/codec.h"

#define LIMITS      "  peers: 2\n  pulls: 16\n" /* shares go by peer slots */
#define POOL_PAGES  64
#define FETCHES     15 /* to start: more than A's share; one more session fetches nothing */
#define TOKENS      NEIGHBOUR_PAGE_TOKENS
#define BODY_MAX    (64u << 10)
#define WAIT_MS     10000
#define INCARNATION 77u /* of the peer that A plays: any number */

/* Fields that A needs to ask for a prefix as a peer does; the daemon's own requests have them. */
struct asked {
    uint64_t ns_hi, ns_lo, layout_hash, fields_hash;
};

static int asked_of = -1, asking = -1; /* connections: the daemon dialled the first, A the other */
static struct asked asked;
static uint64_t sequence; /* of messages on `asking` */
static struct frame_header header;
static uint8_t body[BODY_MAX];
static uint8_t decoded[BUDGET_BYTES(BODY_MAX)] __attribute__((aligned(64)));
static struct engine_session session[FETCHES + 1];

/* ---- frames ---- */

static bool frame_send(int fd, uint16_t type, uint64_t id, const ProtobufCMessage *m)
{
    static uint8_t frame[FRAME_HEADER_BYTES + BODY_MAX];
    struct frame_header h = {.version = FRAME_VERSION, .type = type, .request_id = id};
    size_t n;

    return wire_encode(&h, m, BODY_MAX, frame, sizeof frame, &n) == TERN_OK &&
           proc_send(fd, frame, n);
}

/* Reads a frame into `header` and `body`. Returns false if none came, or at the end. */
static bool frame_read(int fd, uint32_t wait_ms)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};
    uint8_t head[FRAME_HEADER_BYTES];

    return poll(&p, 1, (int)wait_ms) > 0 && proc_recv(fd, head, sizeof head) &&
           frame_decode(head, BODY_MAX, &header) == TERN_OK && proc_recv(fd, body, header.length);
}

static const Tern__Wire__PeerMsg *peer_msg(void)
{
    const ProtobufCMessage *msg;
    struct budget budget;

    budget_init(&budget, decoded, sizeof decoded);
    if (header.type != FRAME_PEER_MSG ||
        wire_decode(&budget, header.type, body, header.length, &msg) != TERN_OK)
        return NULL;
    return (const Tern__Wire__PeerMsg *)(const void *)msg;
}

static bool answer_ping(int fd)
{
    Tern__Wire__Empty m = TERN__WIRE__EMPTY__INIT;

    return frame_send(fd, FRAME_PING_REPLY, header.request_id, &m.base);
}

/* ---- the peer that is asked for a prefix ---- */

static bool greet_back(struct tenant_a *a)
{
    Tern__Wire__PeerHelloReply m = TERN__WIRE__PEER_HELLO_REPLY__INIT;
    struct pollfd p = {.fd = a->hosts->mute_fd, .events = POLLIN};

    if (poll(&p, 1, WAIT_MS) <= 0)
        return false;
    asked_of = accept(a->hosts->mute_fd, NULL, NULL);
    m.has_version = m.has_incarnation = m.has_data_port = true;
    m.version = WIRE_VERSION;
    m.node = (char *)(uintptr_t) "mute";
    m.incarnation = INCARNATION;
    m.data_port = a->hosts->mute_port;
    return asked_of >= 0 && frame_read(asked_of, WAIT_MS) && header.type == FRAME_PEER_HELLO &&
           frame_send(asked_of, FRAME_PEER_HELLO_REPLY, header.request_id, &m.base);
}

/* Answers pings and nothing else. Returns false if the daemon has closed the connection. */
static bool attend(uint32_t wait_ms)
{
    while (frame_read(asked_of, wait_ms)) {
        const Tern__Wire__PeerMsg *m = peer_msg();

        if (header.type == FRAME_PING && !answer_ping(asked_of))
            return false;
        if (m && m->kind == PEER_PULL_OPEN) {
            asked = (struct asked){m->ns_hi, m->ns_lo, m->layout_hash, m->fields_hash};
            return true;
        }
    }
    return recv(asked_of, body, 1, MSG_PEEK | MSG_DONTWAIT) != 0;
}

/* ---- fetches ---- */

/* Opens sessions that want tokens which nobody has. */
static bool sessions_open(struct tenant_a *a)
{
    uint32_t tokens[TOKENS];
    bool ok = greet_back(a);

    for (uint32_t i = 0; ok && i <= FETCHES; i++) {
        block_tokens(i + 1, 0, TOKENS, tokens);
        ok =
            member_ok(&a->engine, "a Match", engine_begin(&session[i], &a->engine, tokens, TOKENS));
    }
    return ok;
}

static bool pulls_open(struct tenant_a *a)
{
    return a_join(a, POOL_PAGES) && sessions_open(a);
}

static enum a_answer fetch_begin(struct tenant_a *a)
{
    struct tern_answer answer;
    enum tern_err err;

    if (a->nheld >= FETCHES || !attend(0))
        return A_FAILED;
    err = tern_submit_fetch(a->engine.tern, session[a->nheld].id,
                            &(struct tern_fetch){.peer = "mute", .step = TERN_STEP_NONE}, a->nheld);
    if (err == TERN_OK) /* a refusal comes before the answer to the next request */
        err = tern_ping(a->engine.tern, MEMBER_CALL_MS);
    if (err == TERN_OK)
        err = tern_poll(a->engine.tern, &answer);
    if (err == TERN_BUSY) { /* it is under way */
        a->nheld++;
        return A_DONE;
    }
    return a_answer_of(a, a->engine.tern, err == TERN_OK ? answer.err : err);
}

static enum a_answer fetch_nothing(struct tenant_a *a)
{
    if (!attend(0))
        return A_FAILED;
    return a_answer_of(a, a->engine.tern,
                       engine_fetch(&session[FETCHES], "there", 0, MEMBER_CALL_MS));
}

static bool fetches_cancel(struct tenant_a *a)
{
    struct tern_answer answer;

    for (; a->nheld > 0; a->nheld--)
        if (tern_fetch_cancel(a->engine.tern, session[a->nheld - 1].id, MEMBER_CALL_MS) !=
                TERN_OK ||
            answer_wait(a->engine.tern, MEMBER_CALL_MS, &answer) != TERN_OK)
            return false;
    return true;
}

const struct a_table a_pulls = {.name = "pulls",
                                .limits = LIMITS,
                                .says = "limits.pulls",
                                .mute = true,
                                .open = pulls_open,
                                .over = fetch_begin,
                                .within = fetch_nothing,
                                .release = fetches_cancel};

/* ---- the peer that asks for a prefix ---- */

static bool dial(struct tenant_a *a)
{
    struct sockaddr_in at = {.sin_family = AF_INET,
                             .sin_port = htons(a->hosts->control_port),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    Tern__Wire__PeerHello m = TERN__WIRE__PEER_HELLO__INIT;

    asking = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    setsockopt(asking, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
    m.has_version_min = m.has_version_max = m.has_incarnation = m.has_data_port = true;
    m.version_min = WIRE_VERSION_MIN;
    m.version_max = WIRE_VERSION;
    m.node = (char *)(uintptr_t) "mute";
    m.incarnation = INCARNATION;
    m.data_port = a->hosts->mute_port;
    return asking >= 0 && connect(asking, (struct sockaddr *)&at, sizeof at) == 0 &&
           frame_send(asking, FRAME_PEER_HELLO, 1, &m.base) && frame_read(asking, WAIT_MS) &&
           header.type == FRAME_PEER_HELLO_REPLY;
}

/* A fetch of A's own from the peer that A plays shows the form of such a request; then commits a
 * prefix to ask for. */
static bool prefix_open(struct tenant_a *a)
{
    uint32_t tokens[TOKENS];

    if (fetch_begin(a) != A_DONE || !attend(WAIT_MS) || asked.layout_hash == 0 ||
        !fetches_cancel(a) || !dial(a))
        return false;
    block_tokens(0, 0, TOKENS, tokens);
    return member_ok(&a->engine, "a Match",
                     engine_begin(&session[0], &a->engine, tokens, TOKENS)) &&
           member_ok(&a->engine, "a commit", engine_run(&session[0]));
}

static bool serves_open(struct tenant_a *a)
{
    return pulls_open(a) && prefix_open(a);
}

/* A pool of the peer that A plays, with its hash; NULL: like A's own pool here. */
struct their_pool {
    Tern__Wire__Group *group;
    uint32_t ranks;
    uint64_t layout_hash;
};

static bool ask(uint64_t pull, const struct their_pool *p)
{
    Tern__Wire__PeerMsg m = TERN__WIRE__PEER_MSG__INIT;
    uint32_t tokens[TOKENS];
    Tern__Wire__Group *groups[1];

    block_tokens(0, 0, TOKENS, tokens);
    m.has_kind = m.has_pull = m.has_sequence = true;
    m.kind = PEER_PULL_OPEN;
    m.pull = pull;
    m.sequence = ++sequence;
    m.has_ns_hi = m.has_ns_lo = m.has_layout_hash = m.has_to = m.has_tokens = true;
    m.tenant = (char *)(uintptr_t)NEIGHBOUR_A;
    m.ns_hi = asked.ns_hi;
    m.ns_lo = asked.ns_lo;
    m.layout_hash = p ? p->layout_hash : asked.layout_hash;
    m.to = TOKENS;
    m.tokens = wire_bytes(tokens, sizeof tokens);
    if (p) {
        groups[0] = p->group;
        m.groups = groups;
        m.n_groups = 1;
        m.has_fields_hash = m.has_ranks = m.has_stages = m.has_align_tokens = true;
        m.fields_hash = asked.fields_hash;
        m.ranks = p->ranks;
        m.stages = 1;
        m.align_tokens = TOKENS;
    }
    return frame_send(asking, FRAME_PEER_MSG, 0, &m.base);
}

static bool ask_no_more(uint64_t pull, uint64_t serve)
{
    Tern__Wire__PeerMsg m = TERN__WIRE__PEER_MSG__INIT;

    m.has_kind = m.has_pull = m.has_sequence = m.has_serve = true;
    m.kind = PEER_PULL_DONE;
    m.pull = pull;
    m.serve = serve;
    m.sequence = ++sequence;
    return frame_send(asking, FRAME_PEER_MSG, 0, &m.base);
}

/* Reads the daemon's answer to one request; *ret_serve is set if it offers the prefix. */
static enum a_answer offer(struct tenant_a *a, const struct their_pool *p, uint64_t *ret_pull,
                           uint64_t *ret_serve)
{
    const Tern__Wire__PeerMsg *m = NULL;

    *ret_pull = ++a->serial << 32 | 1;
    if (!attend(0) || !ask(*ret_pull, p))
        return A_FAILED;
    while (!m) {
        if (!frame_read(asking, WAIT_MS))
            return A_FAILED;
        m = peer_msg();
        if (m && (m->kind != PEER_PULL_OFFER || m->pull != *ret_pull))
            return A_FAILED;
    }
    *ret_serve = m->serve;
    if (m->err == TERN_OK && m->to == TOKENS)
        return A_DONE;
    if (m->err == TERN_BUSY)
        return A_REFUSED;
    fprintf(stderr, "tern-bench: tenant A, %s: %s, %u tokens\n", a->table->name,
            tern_strerror((enum tern_err)m->err), m->to);
    return A_FAILED;
}

static enum a_answer ask_and_keep(struct tenant_a *a)
{
    uint64_t pull, serve;
    enum a_answer answer = offer(a, NULL, &pull, &serve);

    if (answer != A_DONE || a->nheld + 2 > A_HOLDS_MAX)
        return answer;
    a->held[a->nheld++] = pull;
    a->held[a->nheld++] = serve;
    return A_DONE;
}

static enum a_answer ask_and_end(struct tenant_a *a)
{
    uint64_t pull, serve;
    enum a_answer answer = offer(a, NULL, &pull, &serve);

    if (answer == A_DONE && !ask_no_more(pull, serve))
        return A_FAILED;
    return answer;
}

static bool offers_end(struct tenant_a *a)
{
    for (; a->nheld > 0; a->nheld -= 2)
        if (!ask_no_more(a->held[a->nheld - 2], a->held[a->nheld - 1]))
            return false;
    return true;
}

const struct a_table a_serves = {.name = "serves",
                                 .limits = LIMITS,
                                 .mute = true,
                                 .open = serves_open,
                                 .over = ask_and_keep,
                                 .within = ask_and_end,
                                 .release = offers_end};

/* ---- the peer with ever new layouts ---- */

#define FIELDS      8 /* of a page: the maximum */
#define LAYERS      2
#define HEADS       8
#define THEIR_RANKS 8
#define FIELD_BYTES                                                                                \
    (LAYERS * TOKENS * HEADS) /* of one page of all ranks, by one byte an element                  \
                               */

/* Pages of 64 tokens on one rank here: layer, token, head. */
static bool layouts_open(struct tenant_a *a)
{
    static const struct tern_axis axes[] = {
        {"layer", LAYERS, TOKENS * HEADS}, {"token", TOKENS, HEADS}, {"head", HEADS, 1}};
    static const char *const names[FIELDS] = {"a", "b", "c", "d", "e", "f", "g", "h"};
    struct tern_field fields[FIELDS];
    const struct tern_group group = {.name = "kv",
                                     .page_tokens = TOKENS,
                                     .page_bytes = FIELDS * FIELD_BYTES,
                                     .fields = fields,
                                     .nfields = FIELDS};
    const struct tern_layout layout = {
        .groups = &group, .ngroups = 1, .bytes = (uint64_t)POOL_PAGES * FIELDS * FIELD_BYTES};

    for (uint32_t f = 0; f < FIELDS; f++)
        fields[f] = (struct tern_field){.name = names[f],
                                        .element_bytes = 1,
                                        .offset = (uint64_t)f * FIELD_BYTES,
                                        .axes = axes,
                                        .naxes = 3};
    a->engine = (struct engine){.ns = {.model = "bench"}};
    return member_ok(
               &a->engine, "joining",
               engine_open(&a->engine, a->hosts->here.socket, "a-here", &layout, MEMBER_CALL_MS)) &&
           sessions_open(a) && prefix_open(a) && asked.fields_hash != 0;
}

/* Asks for pages of one token on each of eight ranks there, so 64 of them make a span. `more` bytes
 * outside all fields make a new layout. */
static enum a_answer ask_resharded(struct tenant_a *a, uint64_t more)
{
    static const struct {
        const char *name;
        uint64_t length, stride;
    } axes[] = {{"layer", LAYERS, 1}, {"token", 1, LAYERS}, {"head", HEADS, LAYERS}};
    Tern__Wire__Axis axis[3], *axis_at[3];
    Tern__Wire__Field field[FIELDS], *field_at[FIELDS];
    Tern__Wire__Group group = TERN__WIRE__GROUP__INIT;
    const struct their_pool pool = {&group, THEIR_RANKS, more + 1};
    uint64_t pull, serve;
    char names[FIELDS][2];
    enum a_answer answer;

    for (uint32_t i = 0; i < 3; i++) {
        tern__wire__axis__init(axis_at[i] = &axis[i]);
        axis[i].name = (char *)(uintptr_t)axes[i].name;
        axis[i].has_length = axis[i].has_stride_bytes = true;
        axis[i].length = axes[i].length;
        axis[i].stride_bytes = axes[i].stride;
    }
    for (uint32_t f = 0; f < FIELDS; f++) {
        tern__wire__field__init(field_at[f] = &field[f]);
        memcpy(names[f], (char[]){(char)('a' + f), '\0'}, 2);
        field[f].name = names[f];
        field[f].has_element_bytes = field[f].has_offset = true;
        field[f].element_bytes = 1;
        field[f].offset = (uint64_t)f * LAYERS;
        field[f].axes = axis_at;
        field[f].n_axes = 3;
    }
    group.name = (char *)(uintptr_t) "kv";
    group.has_page_tokens = group.has_page_bytes = group.has_units = true;
    group.page_tokens = 1;
    group.page_bytes = 8 * (FIELDS * LAYERS + more);
    group.units = 1;
    group.fields = field_at;
    group.n_fields = FIELDS;
    answer = offer(a, &pool, &pull, &serve);
    if (answer == A_DONE && !ask_no_more(pull, serve))
        return A_FAILED;
    return answer == A_REFUSED ? A_DONE : answer; /* BUSY affects A alone */
}

static enum a_answer ask_anew(struct tenant_a *a)
{
    return ask_resharded(a, a->serial + 1);
}

static enum a_answer ask_the_same(struct tenant_a *a)
{
    return ask_resharded(a, 0);
}

const struct a_table a_peer_layouts = {.name = "peer layouts",
                                       .limits = LIMITS,
                                       .mute = true,
                                       .costs = true,
                                       .open = layouts_open,
                                       .over = ask_anew,
                                       .within = ask_the_same};
