/* Requests of an engine on their whole way: libtern, a stream of the daemon over a socket pair, the
 * reader of requests, the core, the writer of answers, and back. One thread: where libtern would
 * wait, the linker puts functions of this file that run the daemon's side. The shell's connections
 * and its loop are left out, as they need a whole daemon, whose threads valgrind does not run
 * beside an io_uring. */
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "bench/core_rig.h"
#include "client/libtern/socket.h"
#include "engine/bytes.h"
#include "proto/codec.h"
#include "seam/io/io.h"
#include "shell/stream/stream.h"
#include "shell/wire/wire_in.h"
#include "shell/wire/wire_out.h"
#include "stages.h"
#include "tern.h"

#define PAGE_TOKENS  64u
#define TREE_TOKENS  49152u /* 768 pages, as `tern-bench index` and `rpc` have */
#define TURNS        50u
#define MISS_TOKENS  4096u
#define NEW_TOKENS   64u /* after those of the session, as in `tern-bench rpc` */
#define STEP_OPS     256u
#define WARM         2u /* calls before the counted one: buffers and caches are filled then */
#define POOL_PAGES   4096u
#define CALL_MS      1000u
#define IO_BYTES     65536u
#define SEND_BUFFERS 64u

enum tern_err __wrap_client_socket_open(struct client_socket *c, const char *path, uint32_t ms);
enum tern_err __wrap_client_socket_recv(struct client_socket *c, uint32_t wait_ms);
enum tern_err __real_client_socket_recv(struct client_socket *c, uint32_t wait_ms);

static struct core_rig rig;
static struct wire_in in;
static struct config *config;
static struct io *io;
static struct stream_pool *pool;
static struct stream stream;
static struct tern *client;
static uint8_t frame[FRAME_HEADER_BYTES + FRAME_BODY_MAX];
static uint32_t tree[TREE_TOKENS + NEW_TOKENS], other[MISS_TOKENS];

/* ------------------------------------------------------------------ the daemon's side */

static void say_hello(struct stream *s, const struct frame_header *h)
{
    struct frame_header answer = {
        .version = FRAME_VERSION, .type = FRAME_HELLO + 1, .request_id = h->request_id};
    Tern__Wire__HelloReply m = TERN__WIRE__HELLO_REPLY__INIT;
    size_t n;

    m.has_version = m.has_incarnation = m.has_frame_body_max = 1;
    m.version = WIRE_VERSION;
    m.incarnation = 1;
    m.frame_body_max = FRAME_BODY_MAX;
    must(wire_encode(&answer, &m.base, FRAME_BODY_MAX, frame, sizeof frame, &n) == TERN_OK);
    must(stream_put(s, frame, n, NULL, 0));
    s->splitter.body_max = FRAME_BODY_MAX;
}

static void on_frame(struct stream *s, const struct frame_header *h, const uint8_t *body)
{
    struct request request;
    struct reply reply;
    const struct reply *answered;
    const char *text;
    size_t n;

    if (h->type == FRAME_HELLO) {
        say_hello(s, h);
        return;
    }
    stage("wire in");
    must(wire_in_request(&in, 0, h, body, &request, &text) == TERN_OK);
    stage("core");
    request.conn = 0;
    answered = core_rig_ask(&rig, &request);
    stage("wire out");
    must(answered);
    reply = *answered;
    reply.request_id = h->request_id;
    n = wire_out_reply(&reply, NULL, FRAME_BODY_MAX, frame);
    stage("stream");
    must(n > 0 && stream_put(s, frame, n, NULL, 0));
}

static void on_end(struct stream *s, const char *why)
{
    (void)s, (void)why;
}

static void on_finished(struct stream *s)
{
    (void)s;
}

/* Does with the streams what the daemon's loop does. */
static void daemon_turn(void)
{
    io_run(io, 0);
    do {
        stream_pool_serve(pool);
    } while (stream_pool_has_input(pool));
    stream_pool_flush(pool);
    io_run(io, 0);
}

static void daemon_open(int fd)
{
    static const struct stream_ops ops = {
        .frame = on_frame, .closed = on_end, .finished = on_finished};
    static const char text[] = "tenants:\n  - name: a\n    socket: /a\n    memory: 1M\n";
    const struct io_config rings = {
        .entries = 64, .groups = 1, .buffers = 16, .buffer_bytes = IO_BYTES};
    struct stream_config streams = {.streams = 1,
                                    .send_buffers_reserved = {SEND_BUFFERS},
                                    .shares = 1,
                                    .bodies = {1},
                                    .big_bytes = FRAME_BODY_MAX,
                                    .partial_ns = UINT64_MAX / 2,
                                    .slow_ns = UINT64_MAX / 2};
    char why[CONFIG_WHY_BYTES];
    const char *reason;

    must(io_create(&rings, &io, &reason) == TERN_OK);
    streams.io = io;
    must(stream_pool_create(&streams, &pool) == TERN_OK);
    must(config_load_text("instructions", text, sizeof text - 1, &config, why, sizeof why) ==
         TERN_OK);
    must(wire_in_init(&in, config, FRAME_BODY_MAX) == TERN_OK);
    stream_open(&stream, pool, &ops, fd, 0, FRAME_BODY_MAX, SEND_BUFFERS);
    stream_pool_flush(pool);
    io_run(io, 0);
}

/* ---- where libtern meets the daemon's side ---- */

enum tern_err __wrap_client_socket_open(struct client_socket *c, const char *path, uint32_t ms)
{
    int fd[2];

    (void)path, (void)ms;
    must(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fd) == 0);
    for (int i = 0; i < 2; i++) { /* a whole frame is sent and received at once */
        int bytes = 4 << 20;

        must(setsockopt(fd[i], SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes) == 0);
    }
    daemon_open(fd[1]);
    return client_socket_adopt(c, fd[0]);
}

enum tern_err __wrap_client_socket_recv(struct client_socket *c, uint32_t wait_ms)
{
    enum tern_err err;

    (void)wait_ms;
    do {
        stage("stream");
        daemon_turn();
        stage("client");
        err = __real_client_socket_recv(c, 0);
    } while (err == TERN_BUSY);
    return err;
}

/* ------------------------------------------------------------------ the requests */

static tern_session open_session(void)
{
    struct session_id id;

    must(core_rig_open(&rig, &id));
    return session_id_pack(id);
}

static void close_session(tern_session s)
{
    must(core_rig_close(&rig, session_id_unpack(s)));
}

/* Starts the stages of the request in the last round only. */
static void counts(const char *name, uint32_t round)
{
    stages_begin(round == WARM ? name : NULL);
    stage("client");
}

static void counted(void)
{
    stages_begin(NULL);
    core_rig_settle(&rig);
}

static void match(const char *name, const struct tern_tokens *tokens, uint32_t found)
{
    struct tern_result result;

    for (uint32_t round = 0; round <= WARM; round++) {
        tern_session s = open_session();

        counts(name, round);
        must(tern_match(client, s, tokens, TERN_STEP_NONE, CALL_MS, &result) == TERN_OK);
        counted();
        must(result.matched == found);
        close_session(s);
    }
}

/* New tokens on a session that has the whole tree, as `tern-bench rpc` measures. */
static void match_more(void)
{
    struct tern_tokens all = {.v = tree, .n = TREE_TOKENS},
                       more = {.v = tree + TREE_TOKENS, .n = NEW_TOKENS, .base = TREE_TOKENS};
    tern_session s = open_session();
    struct tern_result result;

    must(tern_match(client, s, &all, TERN_STEP_NONE, CALL_MS, &result) == TERN_OK);
    for (uint32_t round = 0; round <= WARM; round++) {
        counts("match of 64 more tokens", round);
        must(tern_match(client, s, &more, TERN_STEP_NONE, CALL_MS, &result) == TERN_OK);
        counted();
        must(result.tokens == TREE_TOKENS + NEW_TOKENS);
    }
    close_session(s);
}

/* One token for each session. The first token takes a page, the others lie in it. */
static void step(void)
{
    static tern_session session[STEP_OPS];
    const struct tern_result *results;
    struct tern_batch *batch;
    uint32_t done;

    must(tern_batch_create(client, &batch) == TERN_OK);
    for (uint32_t i = 0; i < STEP_OPS; i++)
        session[i] = open_session();
    for (uint32_t round = 0; round <= WARM; round++) {
        struct tern_tokens token = {.v = other + round, .n = 1, .base = round};

        counts("step of 256 extends", round);
        for (uint32_t i = 0; i < STEP_OPS; i++)
            must(tern_batch_extend(batch, session[i], &token, round + 1, round + 1) == TERN_OK);
        must(tern_batch_run(batch, CALL_MS, &results, &done) == TERN_OK && done == STEP_OPS);
        counted();
        for (uint32_t i = 0; i < STEP_OPS; i++)
            must(results[i].err == TERN_OK && results[i].lengths.written == round + 1);
    }
    for (uint32_t i = 0; i < STEP_OPS; i++)
        close_session(session[i]);
    tern_batch_destroy(batch);
}

static void commit(void)
{
    tern_session s = open_session();
    struct tern_result result;

    for (uint32_t round = 0; round <= WARM; round++) {
        uint32_t from = round * PAGE_TOKENS, to = from + PAGE_TOKENS;
        struct tern_tokens tokens = {.v = other + from, .n = PAGE_TOKENS, .base = from};

        must(tern_extend(client, s, &tokens, to, to, CALL_MS, &result) == TERN_OK);
        counts("commit of one chunk", round);
        must(tern_commit(client, s, to, TERN_STEP_NONE, CALL_MS, &result) == TERN_OK);
        counted();
        must(result.lengths.committed == to);
    }
    close_session(s);
}

static void grow_tree(void)
{
    struct session_id s;
    uint32_t from = 0;
    double us;

    must(core_rig_open(&rig, &s));
    for (uint32_t turn = 1; turn <= TURNS; turn++) {
        uint32_t to = TREE_TOKENS / PAGE_TOKENS * turn / TURNS * PAGE_TOKENS;

        must(core_rig_turn(&rig, s, tree, from, to, &us));
        core_rig_settle(&rig);
        from = to;
    }
    must(core_rig_close(&rig, s));
}

void count_requests(void)
{
    static const struct req_pool_open layout = {.ngroups = 1,
                                                .group = {{.page_tokens = PAGE_TOKENS}}};
    static const struct core_rig_records limits = {.sessions = STEP_OPS + 16, .records = 64};
    struct tern_tokens hit = {.v = tree, .n = TREE_TOKENS}, miss = {.v = other, .n = MISS_TOKENS};

    block_tokens(1, 0, TREE_TOKENS + NEW_TOKENS, tree);
    block_tokens(2, 0, MISS_TOKENS, other);
    must(core_rig_init_records(&rig, &layout, POOL_PAGES, &limits));
    grow_tree();
    must(tern_connect("/instructions", CALL_MS, &client) == TERN_OK);
    match("match of 49,152 tokens", &hit, TREE_TOKENS);
    match("match of 4,096 tokens that misses", &miss, 0);
    match_more();
    step();
    commit();
}
