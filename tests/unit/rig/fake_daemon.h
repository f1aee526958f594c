/* A daemon for tests of the client: a thread listens on a socket of its own, answers Hello and then
 * runs the test's script on the connection. The script reads requests and sends any bytes, split
 * anywhere, and uses check(): cmocka's assertions belong to the thread of the test. */
#ifndef TEST_FAKE_DAEMON_H
#define TEST_FAKE_DAEMON_H

#include <errno.h>
#include <linux/sockios.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/check.h"
#include "proto/codec.h"

#define FAKE_INCARNATION 0x1122334455667788u

struct fake {
    char path[64];
    int listener, fd;
    pthread_t thread;
    void (*serve)(struct fake *f); /* runs after Hello; the connection is closed when it returns */
    void *ctx;
    uint32_t version, body_max, hello_err; /* of the answer to Hello */
    const char *hello_text;                /* of an error; NULL: none */
    bool unasked, unread;  /* Hello is answered before it comes or is read; then close */
    struct frame_header h; /* the request read last */
    uint8_t body[FRAME_BODY_MAX];
    uint8_t budget_mem[BUDGET_BYTES(FRAME_BODY_MAX)] __attribute__((aligned(BUDGET_ALIGN)));
    struct budget budget;
};

static inline bool fake_read_all(struct fake *f, void *to, size_t n)
{
    size_t have = 0;

    while (have < n) {
        ssize_t got = read(f->fd, (uint8_t *)to + have, n - have);

        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return false;
        have += (size_t)got;
    }
    return true;
}

/* The next request, or NULL when the client has closed. */
static inline const ProtobufCMessage *fake_read(struct fake *f)
{
    uint8_t head[FRAME_HEADER_BYTES];
    const ProtobufCMessage *msg;

    if (!fake_read_all(f, head, sizeof(head)))
        return NULL;
    check(frame_decode(head, FRAME_BODY_MAX, &f->h) == TERN_OK);
    if (!fake_read_all(f, f->body, f->h.length))
        return NULL;
    check(wire_decode(&f->budget, f->h.type, f->body, f->h.length, &msg) == TERN_OK);
    return msg;
}

static inline void fake_write(struct fake *f, const void *bytes, size_t n)
{
    size_t sent = 0;

    while (sent < n) {
        ssize_t put = send(f->fd, (const uint8_t *)bytes + sent, n - sent, MSG_NOSIGNAL);

        if (put < 0 && errno == EINTR)
            continue;
        if (put <= 0)
            return; /* the client is gone: the test checks its own side */
        sent += (size_t)put;
    }
}

/* Returns when the client has received every byte. */
static inline void fake_drained(struct fake *f)
{
    int left = 1;

    while (ioctl(f->fd, SIOCOUTQ, &left) == 0 && left > 0)
        usleep(20);
}

/* Packs an answer to request `id` into buf; returns the bytes of the frame. */
static inline size_t fake_pack(uint16_t type, uint64_t id, const void *msg, uint8_t *buf,
                               size_t cap)
{
    struct frame_header h = {.version = FRAME_VERSION, .type = type, .request_id = id};
    size_t n;

    check(wire_encode(&h, (const ProtobufCMessage *)msg, FRAME_BODY_MAX, buf, cap, &n) == TERN_OK);
    return n;
}

/* Answers the request read last. */
static inline void fake_reply(struct fake *f, const void *msg)
{
    static _Thread_local uint8_t buf[FRAME_HEADER_BYTES + FRAME_BODY_MAX];
    size_t n = fake_pack((uint16_t)(f->h.type + 1), f->h.request_id, msg, buf, sizeof(buf));

    fake_write(f, buf, n);
}

static inline void fake_reply_empty(struct fake *f)
{
    Tern__Wire__Empty m = TERN__WIRE__EMPTY__INIT;

    fake_reply(f, &m);
}

/* Parts of answers, owned by the caller. */
static inline Tern__Wire__Status fake_status(uint32_t err, const char *text,
                                             Tern__Wire__Shortage *shortage)
{
    Tern__Wire__Status s = TERN__WIRE__STATUS__INIT;

    s.has_err = 1;
    s.err = err;
    s.text = (char *)(uintptr_t)text;
    s.shortage = shortage;
    return s;
}

static inline Tern__Wire__Lengths fake_lengths(uint32_t committed, uint32_t written,
                                               uint32_t allocated)
{
    Tern__Wire__Lengths l = TERN__WIRE__LENGTHS__INIT;

    l.has_committed = l.has_written = l.has_allocated = 1;
    l.committed = committed;
    l.written = written;
    l.allocated = allocated;
    return l;
}

/* Each field has a different value. */
static inline Tern__Wire__Shortage fake_shortage(void)
{
    Tern__Wire__Shortage s = TERN__WIRE__SHORTAGE__INIT;

    s.has_group = s.has_needed = s.has_free = 1;
    s.has_evictable = s.has_retiring = s.has_until_step = 1;
    s.group = 1;
    s.needed = 2;
    s.free = 3;
    s.evictable = 4;
    s.retiring = 5;
    s.until_step = UINT64_MAX;
    return s;
}

/* Returns a run of the n pages, each an index and a generation; `pages` is borrowed. */
static inline Tern__Wire__Run fake_run(uint32_t group, uint32_t first, const void *pages,
                                       uint32_t n)
{
    Tern__Wire__Run run = TERN__WIRE__RUN__INIT;

    run.has_group = run.has_first = run.has_refs = 1;
    run.group = group;
    run.first = first;
    run.refs = wire_bytes(pages, n * 2 * sizeof(uint32_t));
    return run;
}

static inline void fake_reply_err(struct fake *f, uint32_t err, const char *text)
{
    Tern__Wire__Empty m = TERN__WIRE__EMPTY__INIT;
    Tern__Wire__Status s = fake_status(err, text, NULL);

    m.status = &s;
    fake_reply(f, &m); /* Status is field 1 of every answer */
}

static inline void fake_hello(struct fake *f)
{
    struct pollfd come = {.fd = f->fd, .events = POLLIN};
    Tern__Wire__HelloReply m = TERN__WIRE__HELLO_REPLY__INIT;
    Tern__Wire__Status s = fake_status(f->hello_err, f->hello_text, NULL);

    f->h = (struct frame_header){.type = FRAME_HELLO};
    if (f->unread)
        check(poll(&come, 1, -1) == 1);
    else if (!f->unasked)
        check(fake_read(f) != NULL && f->h.type == FRAME_HELLO);
    m.status = &s;
    m.has_version = m.has_incarnation = m.has_frame_body_max = 1;
    m.version = f->version;
    m.incarnation = FAKE_INCARNATION;
    m.frame_body_max = f->body_max;
    fake_reply(f, &m);
}

static inline void *fake_main(void *arg)
{
    struct fake *f = arg;

    f->fd = accept(f->listener, NULL, NULL);
    if (f->fd < 0)
        return NULL;
    fake_hello(f);
    if (f->serve && !f->unasked && !f->unread)
        f->serve(f);
    close(f->fd);
    return NULL;
}

/* *f: zeroed except for what the test sets; version and body_max 0: those of this build. */
static inline void fake_start(struct fake *f, void (*serve)(struct fake *f), void *ctx)
{
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    static int number;

    f->serve = serve;
    f->ctx = ctx;
    f->version = f->version ? f->version : WIRE_VERSION;
    budget_init(&f->budget, f->budget_mem, sizeof(f->budget_mem));
    snprintf(f->path, sizeof(f->path), "/tmp/tern-fake-%d-%d.sock", (int)getpid(), number++);
    snprintf(addr.sun_path, sizeof(addr.sun_path), "%s", f->path);
    f->listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    check(f->listener >= 0);
    check(bind(f->listener, (const struct sockaddr *)&addr, sizeof(addr)) == 0);
    check(listen(f->listener, 4) == 0);
    check(pthread_create(&f->thread, NULL, fake_main, f) == 0);
}

/* The client has closed before, or the script has ended. */
static inline void fake_stop(struct fake *f)
{
    shutdown(f->listener, SHUT_RDWR);
    pthread_join(f->thread, NULL);
    close(f->listener);
    f->listener = 0;
    unlink(f->path);
}

#endif
