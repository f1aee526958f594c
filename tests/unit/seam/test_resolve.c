/* Names off the owner thread: a limited number of lookups at a time, no answer to a forgotten one,
 * and no wait for a hanging lookup at the end. A lookup here waits until the test releases it. */
#include <netinet/in.h>
#include <pthread.h>

#include "seam/io/io.h"
#include "seam/io/resolve.h"
#include "testing/test.h"

#define SLOTS 7u

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t moved = PTHREAD_COND_INITIALIZER;
static uint32_t inside, most, calls, allowed; /* allowed: lookups that may return, of all so far */
static uint32_t returned;
static char hung; /* the host whose lookup waits until let_hung; 0: none */

static void held_lookup(const char *host, uint16_t port, struct resolve_answer *ret)
{
    struct sockaddr_in *in = (struct sockaddr_in *)(void *)&ret->addr[0];

    pthread_mutex_lock(&lock);
    calls++;
    inside++;
    most = inside > most ? inside : most;
    pthread_cond_broadcast(&moved);
    while (returned >= allowed || host[0] == hung)
        pthread_cond_wait(&moved, &lock);
    returned++;
    inside--;
    pthread_cond_broadcast(&moved);
    pthread_mutex_unlock(&lock);
    in->sin_family = AF_INET;
    in->sin_port = port;
    in->sin_addr.s_addr = (in_addr_t)host[0];
    ret->len[0] = sizeof *in;
    ret->n = 1;
}

static void let(uint32_t n)
{
    pthread_mutex_lock(&lock);
    allowed += n;
    pthread_cond_broadcast(&moved);
    pthread_mutex_unlock(&lock);
}

static void let_hung(void)
{
    pthread_mutex_lock(&lock);
    hung = 0;
    pthread_cond_broadcast(&moved);
    pthread_mutex_unlock(&lock);
}

static void until_inside(uint32_t n)
{
    pthread_mutex_lock(&lock);
    while (inside != n)
        pthread_cond_wait(&moved, &lock);
    pthread_mutex_unlock(&lock);
}

/* Before the end of a resolver whose threads a later test would count. */
static void until_returned(uint32_t n)
{
    pthread_mutex_lock(&lock);
    while (returned != n)
        pthread_cond_wait(&moved, &lock);
    pthread_mutex_unlock(&lock);
}

static uint32_t called(void)
{
    uint32_t n;

    pthread_mutex_lock(&lock);
    n = calls;
    pthread_mutex_unlock(&lock);
    return n;
}

static struct io *io;
static uint32_t seen; /* slots that were answered, a bit each */
static struct resolve_answer answers[SLOTS];

static void answered(void *ctx, uint32_t slot, const struct resolve_answer *answer)
{
    assert_null(ctx);
    seen |= 1u << slot;
    answers[slot] = *answer;
}

static const struct sockaddr_in *addr_of(uint32_t slot)
{
    return (const struct sockaddr_in *)(const void *)&answers[slot].addr[0];
}

static struct resolver *start(void)
{
    const struct io_config ring = {.entries = 8};
    struct resolver_config config = {.slots = SLOTS, .lookup = held_lookup, .answered = answered};
    struct resolver *r;
    const char *why;

    inside = most = calls = allowed = returned = seen = 0;
    assert_int_equal(io_create(&ring, &io, &why), TERN_OK);
    config.io = io;
    assert_int_equal(resolver_create(&config, &r), TERN_OK);
    return r;
}

static void end(struct resolver *r)
{
    resolver_destroy(r);
    io_destroy(io);
}

/* Waits for that many more answers. */
static void until_seen(uint32_t n)
{
    n += (uint32_t)__builtin_popcount(seen);
    while ((uint32_t)__builtin_popcount(seen) < n)
        io_run(io, UINT64_MAX);
}

TEST(lookups_are_so_many_at_a_time_and_all_come)
{
    struct resolver *r = start();

    for (uint32_t i = 0; i < SLOTS; i++)
        assert_true(resolver_ask(r, i, (const char[]){(char)('a' + i), '\0'}, (uint16_t)i));
    until_inside(RESOLVE_THREADS);
    io_run(io, 0);
    assert_int_equal(seen, 0);
    let(SLOTS);
    until_seen(SLOTS);
    assert_int_equal(seen, (1u << SLOTS) - 1);
    for (uint32_t i = 0; i < SLOTS; i++) {
        assert_int_equal(answers[i].err, TERN_OK);
        assert_int_equal(addr_of(i)->sin_addr.s_addr, 'a' + i);
        assert_int_equal(addr_of(i)->sin_port, i);
    }
    assert_int_equal(most, RESOLVE_THREADS);
    end(r);
}

/* A hanging lookup delays nobody but itself: the other threads take all that is queued. */
TEST(lookups_pass_one_that_hangs)
{
    struct resolver *r = start();

    hung = 'h';
    assert_true(resolver_ask(r, 0, "h", 0));
    until_inside(1);
    let(SLOTS);
    for (uint32_t i = 1; i < SLOTS; i++)
        assert_true(resolver_ask(r, i, "x", (uint16_t)i));
    until_seen(SLOTS - 1);
    assert_int_equal(seen, (1u << SLOTS) - 2);
    let_hung();
    until_seen(1);
    end(r);
}

/* A queued one never begins; the answer to a running one is dropped, and its slot is free only
 * after it has returned. */
TEST(what_is_forgotten_is_not_told)
{
    struct resolver *r = start();

    for (uint32_t i = 0; i < SLOTS; i++)
        assert_true(resolver_ask(r, i, "x", 1));
    until_inside(RESOLVE_THREADS);
    for (uint32_t i = 0; i < SLOTS; i++)
        resolver_cancel(r, i);
    for (uint32_t i = 0; i < RESOLVE_THREADS; i++)
        assert_false(resolver_ask(r, i, "y", 2));
    let(RESOLVE_THREADS);
    until_inside(0);
    assert_int_equal(called(), RESOLVE_THREADS);
    while (!resolver_ask(r, 2, "z", 3))
        io_run(io, UINT64_MAX);
    let(1);
    until_seen(1);
    assert_int_equal(seen, 1u << 2);
    assert_int_equal(addr_of(2)->sin_port, 3);
    assert_true(resolver_ask(r, SLOTS - 1, "z", 4)); /* nor is one that has arrived already */
    let(1);
    until_inside(0);
    resolver_cancel(r, SLOTS - 1);
    while (!resolver_ask(r, SLOTS - 1, "z", 5))
        io_run(io, UINT64_MAX);
    assert_int_equal(seen, 1u << 2);
    resolver_cancel(r, SLOTS - 1);
    let(1);
    until_returned(RESOLVE_THREADS + 3);
    end(r);
}

/* Every thread hangs: destroying does not, and queued lookups never begin. */
TEST(the_end_waits_for_no_lookup)
{
    struct resolver *r = start();

    for (uint32_t i = 0; i < SLOTS; i++)
        assert_true(resolver_ask(r, i, "x", 1));
    until_inside(RESOLVE_THREADS);
    end(r);
    assert_int_equal(called(), RESOLVE_THREADS);
    let(RESOLVE_THREADS);
    until_inside(0);
    assert_int_equal(called(), RESOLVE_THREADS);
    assert_int_equal(seen, 0);
}

TEST(numbers_are_told_from_names)
{
    static const char *const numbers[] = {"127.0.0.1", "10.0.0.2", "::1", "fe80::1%lo"};
    static const char *const names[] = {"localhost", "host-b.example", "1.2.3.4.example", ""};
    struct resolve_answer a;

    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        assert_true(resolve_number(numbers[i], 7001, &a));
        assert_int_equal(a.n, 1);
    }
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        assert_false(resolve_number(names[i], 7001, &a));
}

/* Addresses that need no name service: not every machine knows even localhost. */
TEST(the_systems_answer_is_taken_over)
{
    struct resolve_answer a = {0};
    const struct sockaddr_in *in = (const struct sockaddr_in *)(const void *)&a.addr[0];

    resolve_system("127.0.0.9", 7001, &a);
    assert_int_equal(a.err, TERN_OK);
    assert_int_equal(a.n, 1);
    assert_int_equal(a.len[0], sizeof *in);
    assert_int_equal(in->sin_addr.s_addr, htonl(0x7f000009));
    assert_int_equal(in->sin_port, htons(7001));
    a = (struct resolve_answer){0};
    resolve_system("fe80::1%nosuch0", 7001, &a);
    assert_int_not_equal(a.err, TERN_OK);
    assert_int_equal(a.n, 0);
    assert_true(a.text[0] != '\0');
}
