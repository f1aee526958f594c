/* Fuzz target: the answers of a daemon to libtern. The bytes choose the calls of an engine and the
 * answer to each: the right frame, one with another id or type, half a frame, more than one, with
 * descriptors or without, the end. Whatever arrives, a call returns an error of the table with a
 * text, its outputs can be read, and nothing is leaked.
 *
 * No daemon and no thread: the linker puts this file's functions where the library would connect,
 * wait and send. A frame that the library sends is answered at once into the other end of a pair of
 * sockets; if nothing has arrived a wait is over at once. */
#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/check.h"
#include "client/libtern/internal.h"
#include "fuzz/message.h"
#include "fuzz/passed.h"
#include "proto/codec.h"
#include "tern.h"

#define CALLS_MAX   24
#define OPS         5
#define BODY_MAX    16384u
#define MAPPED      8192u
#define INCARNATION 0x1122334455667788u
#define BIG_BYTES   65536u
#define BIGS_MAX    32

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);
enum tern_err __wrap_client_socket_open(struct client_socket *c, const char *path, uint32_t ms);
enum tern_err __wrap_client_socket_wait(struct client_socket *c, uint64_t deadline_ns);
enum tern_err __real_client_socket_recv(struct client_socket *c, uint32_t wait_ms);
enum tern_err __wrap_client_socket_recv(struct client_socket *c, uint32_t wait_ms);
ssize_t __wrap_send(int fd, const void *bytes, size_t n, int flags);
ssize_t __real_send(int fd, const void *bytes, size_t n, int flags);

void *__real_malloc(size_t n);
void *__wrap_malloc(size_t n);
void *__real_aligned_alloc(size_t align, size_t n);
void *__wrap_aligned_alloc(size_t align, size_t n);
void __real_free(void *p);
void __wrap_free(void *p);

/* How an answer differs from the right one. */
enum {
    OTHER_ID = 1,
    OTHER_TYPE = 2,
    CUT = 4,
    TWICE = 8,
    WITH_FDS = 16,
    SILENT = 32,
    THEN_END = 64,
    MADE = 128, /* the body can be read; for Hello: the input makes the answer */
};

static const uint8_t *in;
static size_t left;
static int daemon_fd = -1;

static uint8_t take(void)
{
    if (left == 0)
        return 0;
    left--;
    return *in++;
}

/* ------------------------------------------------------------------ the daemon's side */

static int some_memory(uint32_t bytes, uint64_t incarnation)
{
    int fd = memfd_create("fuzz", MFD_CLOEXEC);

    check(fd >= 0 && ftruncate(fd, bytes) == 0);
    if (bytes >= sizeof incarnation)
        check(pwrite(fd, &incarnation, sizeof incarnation, CONTROL_INCARNATION_AT) > 0);
    return fd;
}

static void say_with_fds(const void *bytes, size_t n)
{
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(3 * sizeof(int))];
    } control = {0};
    uint32_t fds = 1 + take() % 3, size = take() % 4 * (MAPPED / 2);
    struct iovec iov = {.iov_base = (void *)(uintptr_t)bytes, .iov_len = n};
    struct msghdr msg = {.msg_iov = &iov,
                         .msg_iovlen = 1,
                         .msg_control = control.bytes,
                         .msg_controllen = CMSG_SPACE(fds * sizeof(int))};
    struct cmsghdr *m = CMSG_FIRSTHDR(&msg);
    int fd[3];

    m->cmsg_level = SOL_SOCKET;
    m->cmsg_type = SCM_RIGHTS;
    m->cmsg_len = CMSG_LEN(fds * sizeof(int));
    for (uint32_t i = 0; i < fds; i++) {
        fd[i] = some_memory(size, take() % 4 ? INCARNATION : 7);
        memcpy(CMSG_DATA(m) + i * sizeof(int), &fd[i], sizeof(int));
    }
    (void)sendmsg(daemon_fd, &msg, MSG_NOSIGNAL | MSG_DONTWAIT);
    for (uint32_t i = 0; i < fds; i++)
        close(fd[i]);
}

static void say(const void *bytes, size_t n, bool fds)
{
    if (fds)
        say_with_fds(bytes, n);
    else /* the rest is lost, as with a daemon that dies */
        (void)__real_send(daemon_fd, bytes, n, MSG_NOSIGNAL | MSG_DONTWAIT);
}

/* Hello gets a good answer, unless the input says otherwise (MADE). */
static uint32_t good_hello(uint8_t *body)
{
    Tern__Wire__HelloReply m = TERN__WIRE__HELLO_REPLY__INIT;

    m.has_version = m.has_incarnation = m.has_frame_body_max = 1;
    m.version = WIRE_VERSION;
    m.incarnation = INCARNATION;
    m.frame_body_max = FRAME_BODY_MAX;
    return (uint32_t)tern__wire__hello_reply__pack(&m, body);
}

/* Makes an answer from n bytes of the input. */
static uint32_t answer_made(uint16_t type, uint32_t n, uint8_t *body)
{
    static uint8_t made[MADE_BODY_MAX];
    struct fuzz_bytes from = {in, n};
    size_t bytes = made_body(&from, type, made);

    in += n;
    left -= n;
    if (bytes > BODY_MAX)
        bytes = 0;
    memcpy(body, made, bytes);
    return (uint32_t)bytes;
}

static void answer(const struct frame_header *request)
{
    static uint8_t frame[FRAME_HEADER_BYTES + BODY_MAX];
    struct frame_header h = {.version = FRAME_VERSION,
                             .type = (uint16_t)(request->type + 1),
                             .request_id = request->request_id};
    uint32_t how = take(), n = take();

    if (request->type == FRAME_HELLO && !(how & MADE))
        how = 0;
    if (how & SILENT)
        return;
    if (how & OTHER_ID)
        h.request_id = take() ? h.request_id ^ take() : 0;
    if (how & OTHER_TYPE)
        h.type = take();
    n |= (uint32_t)take() << 8;
    n = n < left ? n : (uint32_t)left;
    n = n < BODY_MAX ? n : BODY_MAX;
    if (request->type == FRAME_HELLO && (n == 0 || !(how & MADE))) {
        n = good_hello(frame + FRAME_HEADER_BYTES);
    } else if (how & MADE && request->type != FRAME_HELLO) {
        n = answer_made(h.type, n, frame + FRAME_HEADER_BYTES);
    } else {
        for (uint32_t i = 0; i < n; i++)
            frame[FRAME_HEADER_BYTES + i] = take();
    }
    h.length = n;
    frame_encode(&h, frame);
    n += FRAME_HEADER_BYTES;
    say(frame, how & CUT ? n - take() % n : n, how & WITH_FDS);
    if (how & TWICE)
        say(frame, n, false);
    if (how & THEN_END)
        shutdown(daemon_fd, SHUT_RDWR);
}

/* ------------------------------------------------------------------ where the library meets it */

/* A connection has a few buffers of megabytes, of the same sizes each time. They are reused:
 * registering new ones with the sanitizer takes ten times as long as the rest of an input. */
static struct big {
    void *p;
    size_t n;
    bool used;
} bigs[BIGS_MAX];

static void *big(size_t align, size_t n)
{
    for (uint32_t i = 0; i < BIGS_MAX; i++) {
        if (bigs[i].used || (bigs[i].p && bigs[i].n != n))
            continue;
        if (!bigs[i].p)
            bigs[i] = (struct big){.p = __real_aligned_alloc(align, (n + align - 1) & ~(align - 1)),
                                   .n = n};
        bigs[i].used = true;
        return bigs[i].p;
    }
    return __real_aligned_alloc(align, (n + align - 1) & ~(align - 1));
}

void *__wrap_malloc(size_t n)
{
    return n < BIG_BYTES ? __real_malloc(n) : big(sizeof(max_align_t), n);
}

void *__wrap_aligned_alloc(size_t align, size_t n)
{
    return n < BIG_BYTES ? __real_aligned_alloc(align, (n + align - 1) & ~(align - 1))
                         : big(align, n);
}

void __wrap_free(void *p)
{
    for (uint32_t i = 0; i < BIGS_MAX && p; i++)
        if (bigs[i].p == p) {
            check(bigs[i].used);
            bigs[i].used = false;
            return;
        }
    __real_free(p);
}

enum tern_err __wrap_client_socket_open(struct client_socket *c, const char *path, uint32_t ms)
{
    int fd[2];

    (void)path, (void)ms;
    check(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fd) == 0);
    daemon_fd = fd[1];
    return client_socket_adopt(c, fd[0]);
}

static bool has_come(const struct client_socket *c)
{
    char byte;

    return recv(c->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) >= 0 || errno != EAGAIN;
}

enum tern_err __wrap_client_socket_wait(struct client_socket *c, uint64_t deadline_ns)
{
    (void)deadline_ns;
    return has_come(c) ? TERN_OK : TERN_TIMED_OUT;
}

enum tern_err __wrap_client_socket_recv(struct client_socket *c, uint32_t wait_ms)
{
    enum tern_err err = __real_client_socket_recv(c, 0);

    return err == TERN_BUSY && wait_ms ? TERN_TIMED_OUT : err;
}

/* The library sends whole frames: those that it queued since the last time. */
ssize_t __wrap_send(int fd, const void *bytes, size_t n, int flags)
{
    const uint8_t *p = bytes;
    struct frame_header h;

    (void)fd, (void)flags;
    for (size_t at = 0; at < n; at += FRAME_HEADER_BYTES + h.length) {
        check(n - at >= FRAME_HEADER_BYTES);
        check(frame_decode(p + at, FRAME_BODY_MAX, &h) == TERN_OK);
        check(h.length <= n - at - FRAME_HEADER_BYTES);
        answer(&h);
    }
    return (ssize_t)n;
}

/* ------------------------------------------------------------------ the engine's side */

static uint64_t seen; /* so that every read happens */

static void look_at(const struct tern_result *r)
{
    check((unsigned)r->err < TERN_ERR_COUNT);
    seen += r->lengths.allocated + r->matched + r->shortage.until_step;
    for (uint32_t i = 0; i < r->nruns; i++) {
        check(r->runs[i].n == 0 || r->runs[i].pages);
        for (uint32_t k = 0; k < r->runs[i].n; k++)
            seen += r->runs[i].pages[k].index;
    }
}

static void look_at_events(const struct tern_events *e)
{
    for (uint32_t i = 0; i < e->n; i++)
        seen += e->v[i].chain + (e->v[i].tenant ? strlen(e->v[i].tenant) : 0);
}

static void poll_all(struct tern *t)
{
    struct tern_answer a = {0};

    for (uint32_t i = 0; i < CALLS_MAX && tern_poll(t, &a) == TERN_OK; i++) {
        check((unsigned)a.err < TERN_ERR_COUNT && a.cookie < CALLS_MAX);
        for (uint32_t k = 0; k < a.n && a.results; k++) {
            look_at(&a.results[k]);
            seen += strlen(tern_error_text(t, &a.results[k]));
        }
        if (a.events)
            look_at_events(a.events);
    }
}

static void use(struct tern_pool *pool)
{
    uint8_t *base = tern_pool_info(pool)->base;

    seen += base[0] + base[tern_pool_info(pool)->bytes - 1];
    (void)tern_done_step(pool, 1 + take());
    if (take() % 2)
        tern_pool_unmap(&pool);
}

static enum tern_err pool_call(struct tern *t, uint8_t which)
{
    struct tern_group group = {.name = "kv", .page_tokens = 16, .page_bytes = 64};
    struct tern_layout layout = {.groups = &group, .ngroups = 1, .bytes = 4096};
    struct tern_pool *pool = NULL;
    uint32_t align;
    uint64_t id;
    enum tern_err err;

    if (which == 0)
        return tern_pool_open(t, &layout, 1, &id, &align);
    if (which == 1)
        return tern_pool_close(t, 7, 1);
    err = tern_pool_map(t, 7, 1, &pool);
    check((err == TERN_OK) == (pool != NULL));
    if (pool)
        use(pool);
    return err;
}

static enum tern_err told(struct tern *t, uint8_t which)
{
    const char *json = NULL;
    enum tern_err err =
        which ? tern_admin(t, "status", NULL, 0, 1, &json) : tern_stats(t, 1, &json);

    if (err == TERN_OK)
        seen += strlen(json);
    return err;
}

static struct tern_batch *batch_of(struct tern *t)
{
    struct tern_batch *b;

    check(tern_batch_create(t, &b) == TERN_OK);
    for (uint32_t i = 0; i < OPS; i++)
        check(tern_batch_commit(b, 3, 32, TERN_STEP_NONE) == TERN_OK);
    return b;
}

static void look_at_all(struct tern *t, const struct tern_result *results, uint32_t n)
{
    check(n <= OPS);
    for (uint32_t i = 0; i < n; i++) {
        look_at(&results[i]);
        seen += strlen(tern_error_text(t, &results[i]));
    }
}

static enum tern_err batch(struct tern *t, bool wait, uint64_t cookie)
{
    const struct tern_result *results = NULL;
    struct tern_batch *b = batch_of(t);
    enum tern_err err;
    uint32_t done = 0;

    if (wait)
        err = tern_batch_run(b, 1, &results, &done);
    else
        err = tern_batch_submit(b, cookie);
    look_at_all(t, results, done);
    tern_batch_destroy(b);
    return err;
}

static enum tern_err submit(struct tern *t, uint8_t which, const struct tern_tokens *tokens,
                            uint64_t cookie)
{
    switch (which % 7) {
    case 0: return tern_submit_match(t, 3, tokens, TERN_STEP_NONE, cookie);
    case 1: return batch(t, false, cookie);
    case 2:
        return tern_submit_fetch(t, 3, &(struct tern_fetch){.peer = "peer", .step = TERN_STEP_NONE},
                                 cookie);
    case 3: return tern_submit_recover(t, 3, cookie);
    case 4: return tern_subscribe(t, NULL, cookie);
    case 5: return tern_submit_store(t, 3, 0, cookie);
    default: return tern_unsubscribe(t, take() % CALLS_MAX, 1);
    }
}

static enum tern_err one_call(struct tern *t, uint64_t cookie)
{
    static const uint32_t tokens[40];
    struct tern_tokens list = {.v = tokens, .n = 40};
    struct tern_namespace ns = {.model = "m"};
    struct tern_result result = {0};
    struct tern_retracted away;
    struct tern_depths depths;
    tern_session session;
    uint32_t nodes;
    uint8_t kind = take();
    enum tern_err err;

    switch (kind % 16) {
    case 0: return tern_join(t, "e", TERN_BOTH, 0, 1, NULL, 1);
    case 1:
    case 2:
    case 3: return pool_call(t, kind % 16 - 1);
    case 4: return tern_session_open(t, 7, &ns, NULL, 1, &session);
    case 5: return tern_peek(t, 7, &ns, &list, 1, &depths);
    case 6: err = tern_match(t, 3, &list, TERN_STEP_NONE, 1, &result); break;
    case 7: return batch(t, true, 0);
    case 8: err = tern_commit(t, 3, 32, TERN_STEP_NONE, 1, &result); break;
    case 9: err = tern_fetch(t, 3, &(struct tern_fetch){.step = TERN_STEP_NONE}, 1, &result); break;
    case 10: return tern_fetch_cancel(t, 3, 1);
    case 11: return tern_retract(t, 3, TERN_RETRACT_HOST, TERN_STEP_NONE, 1, &away);
    case 12: err = tern_recover(t, 3, 1, &result); break;
    case 13: return tern_namespace_reset(t, &ns, 1, &nodes, NULL);
    case 14: return told(t, kind / 16 % 2);
    default: return submit(t, kind / 16, &list, cookie);
    }
    look_at(&result);
    return err;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct tern *t = NULL;
    enum tern_err err;

    fuzz_begin();
    in = data;
    left = n;
    err = tern_connect("/fuzz", 1, &t);
    check((err == TERN_OK) == (t != NULL));
    for (uint32_t i = 0; t && i < CALLS_MAX && left; i++) {
        fuzz_passed();
        err = one_call(t, i);
        check((unsigned)err < TERN_ERR_COUNT);
        check(err == TERN_OK || tern_error_text(t, NULL)[0] != '\0');
        poll_all(t);
    }
    tern_destroy(t);
    close(daemon_fd);
    return 0;
}
