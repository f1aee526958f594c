/* Names off the owner thread: so many lookups at a time and no more, what is forgotten is not
 * taken, a lookup that hangs keeps nobody waiting at the end. A lookup here is held until the test
 * lets it go. */
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>

#include "seam/io/resolve.h"
#include "testing/test.h"

#define SLOTS   7u
#define WAIT_MS 20000

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t moved = PTHREAD_COND_INITIALIZER;
static uint32_t inside, most, calls, allowed; /* allowed: lookups that may return, of all so far */
static uint32_t returned;

static void held_lookup(const char *host, uint16_t port, struct resolve_answer *ret)
{
    struct sockaddr_in *in = (struct sockaddr_in *)(void *)&ret->addr[0];

    pthread_mutex_lock(&lock);
    calls++;
    inside++;
    most = inside > most ? inside : most;
    pthread_cond_broadcast(&moved);
    while (returned >= allowed)
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

static void until_inside(uint32_t n)
{
    pthread_mutex_lock(&lock);
    while (inside != n)
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

static struct resolver *start(void)
{
    struct resolver *r;

    inside = most = calls = allowed = returned = 0;
    assert_int_equal(resolver_create(SLOTS, held_lookup, &r), TERN_OK);
    return r;
}

/* The next answer, waiting for it. */
static uint32_t take(struct resolver *r, struct resolve_answer *ret)
{
    struct pollfd p = {.fd = resolver_event_fd(r), .events = POLLIN};
    uint32_t slot;

    while (!resolver_take(r, &slot, ret))
        assert_int_equal(poll(&p, 1, WAIT_MS), 1);
    return slot;
}

TEST(lookups_are_so_many_at_a_time_and_all_come)
{
    struct resolver *r = start();
    struct resolve_answer a;
    uint32_t seen = 0;

    for (uint32_t i = 0; i < SLOTS; i++)
        assert_true(resolver_ask(r, i, (const char[]){(char)('a' + i), '\0'}, (uint16_t)i));
    until_inside(RESOLVE_THREADS);
    assert_false(resolver_take(r, &seen, &a)); /* which does not wait */
    let(SLOTS);
    for (uint32_t i = 0; i < SLOTS; i++) {
        uint32_t slot = take(r, &a);
        const struct sockaddr_in *in = (const struct sockaddr_in *)(const void *)&a.addr[0];

        assert_int_equal(a.err, TERN_OK);
        assert_int_equal(in->sin_addr.s_addr, 'a' + slot);
        assert_int_equal(in->sin_port, slot);
        seen |= 1u << slot;
    }
    assert_int_equal(seen, (1u << SLOTS) - 1);
    assert_int_equal(most, RESOLVE_THREADS);
    resolver_destroy(r);
}

/* A queued one never begins; one that a thread has is not taken, and its slot is not free before
 * it has come back. */
TEST(what_is_forgotten_is_not_taken)
{
    struct resolver *r = start();
    struct pollfd ready = {.fd = resolver_event_fd(r), .events = POLLIN};
    struct resolve_answer a;
    uint32_t slot;

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
    while (!resolver_ask(r, 2, "z", 3)) /* its thread may not have noted it yet */
        ;
    let(1);
    assert_int_equal(take(r, &a), 2);
    assert_int_equal(((const struct sockaddr_in *)(const void *)&a.addr[0])->sin_port, 3);
    assert_true(resolver_ask(r, SLOTS - 1, "z", 4)); /* and what is there already is not either */
    let(1);
    assert_int_equal(poll(&ready, 1, WAIT_MS), 1);
    resolver_cancel(r, SLOTS - 1);
    assert_false(resolver_take(r, &slot, &a));
    resolver_destroy(r);
}

/* Every thread hangs: destroying does not, and they give back what there is when they are done. */
TEST(the_end_waits_for_no_lookup)
{
    struct resolver *r = start();

    for (uint32_t i = 0; i < SLOTS; i++)
        assert_true(resolver_ask(r, i, "x", 1));
    until_inside(RESOLVE_THREADS);
    resolver_destroy(r);
    assert_int_equal(called(), RESOLVE_THREADS);
    let(RESOLVE_THREADS);
    until_inside(0);
    assert_int_equal(called(), RESOLVE_THREADS); /* those that were queued never begin */
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

/* What no name service is asked for: not every machine knows even localhost. */
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
