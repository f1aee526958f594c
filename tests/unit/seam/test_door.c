/* The door: who waits there, who is displaced by a newcomer, who is admitted. Callers come from
 * several addresses of the loopback network. */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "seam/io/door.h"
#include "testing/test.h"

#define PLACES  8
#define SHARE   4
#define WAIT_NS 1000000000u
#define CALLERS 48
#define PACED   15          /* callers of one origin that enters at a rate */
#define LATE_NS 5000000000u /* deadline for what must happen */

static struct io *io;
static struct door *door;
static int listener, caller[CALLERS], in[CALLERS];
static uint32_t ncallers, nin, attempts;
static bool room;
static uint32_t per_s, places = PLACES, share = SHARE;
static uint16_t port;

/* Three bytes are a first message, unless they begin with an x. */
static enum door_verdict look(void *ctx, const uint8_t *bytes, uint32_t n)
{
    (void)ctx;
    return bytes[0] == 'x' ? DOOR_REFUSE : n < 3 ? DOOR_WAIT : DOOR_ENTER;
}

static enum door_verdict enter(void *ctx, int fd)
{
    (void)ctx;
    attempts++;
    assert_true(attempts <= 2 * CALLERS);
    if (!room)
        return DOOR_WAIT;
    in[nin++] = fd;
    return DOOR_ENTER;
}

FIXTURE(set_up)
{
    struct io_config ring = {.entries = 64};
    struct door_config config = {.places = places,
                                 .share = share,
                                 .wait_ns = WAIT_NS,
                                 .look_bytes = 16,
                                 .per_s = per_s,
                                 .look = look,
                                 .enter = enter};
    struct sockaddr_in at = {.sin_family = AF_INET};
    socklen_t len = sizeof at;
    const char *why = "";

    ncallers = nin = attempts = 0;
    room = true;
    assert_int_equal(io_create(&ring, &io, &why), TERN_OK);
    config.io = io;
    assert_int_equal(door_create(&config, &door), TERN_OK);
    listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(listener, (struct sockaddr *)&at, len), 0);
    assert_int_equal(listen(listener, CALLERS), 0);
    assert_int_equal(getsockname(listener, (struct sockaddr *)&at, &len), 0);
    port = at.sin_port;
    return 0;
}

FIXTURE(tear_down)
{
    door_destroy(door);
    io_destroy(io);
    for (uint32_t i = 0; i < ncallers; i++)
        close(caller[i]);
    for (uint32_t i = 0; i < nin; i++)
        close(in[i]);
    close(listener);
    return 0;
}

/* Adds a caller from 127.0.0.`host`; returns its number. */
static uint32_t call(uint8_t host, const char *says)
{
    struct sockaddr_in from = {.sin_family = AF_INET,
                               .sin_addr.s_addr = htonl(INADDR_LOOPBACK - 1 + host)};
    struct sockaddr_in to = {
        .sin_family = AF_INET, .sin_port = port, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    assert_int_equal(bind(fd, (struct sockaddr *)&from, sizeof from), 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&to, sizeof to), 0);
    assert_int_equal(send(fd, says, strlen(says), MSG_NOSIGNAL), (ssize_t)strlen(says));
    caller[ncallers] = fd;
    door_arrived(door, accept(listener, NULL, NULL), 0);
    return ncallers++;
}

static bool waits(uint32_t number)
{
    char byte;

    return recv(caller[number], &byte, 1, MSG_DONTWAIT) < 0 && errno == EAGAIN;
}

static uint32_t waiting(void)
{
    struct door_stats s;

    door_stats(door, &s);
    return s.waiting;
}

TEST_WITH(door_origin_with_its_share_gives_its_own_oldest_for_a_newcomer, set_up, tear_down)
{
    for (uint32_t i = 0; i < SHARE; i++)
        call(1, i ? "" : "a");
    call(2, "");
    call(1, "");
    assert_false(waits(0));
    for (uint32_t i = 1; i < SHARE + 2; i++)
        assert_true(waits(i));
    assert_int_equal(waiting(), SHARE + 1);
}

TEST_WITH(door_that_is_full_gives_the_oldest_of_the_fullest_origin, set_up, tear_down)
{
    call(1, "");
    call(1, "");
    call(1, "");
    for (uint32_t i = 0; i < SHARE; i++)
        call(2, "");
    call(3, "");
    assert_int_equal(waiting(), PLACES);
    call(4, "");
    assert_false(waits(3)); /* the first of address 2 */
    assert_int_equal(waiting(), PLACES);
    for (uint32_t i = 0; i < ncallers; i++)
        assert_true(i == 3 || waits(i));
}

TEST_WITH(door_lets_in_who_has_said_it_and_refuses_what_is_none, set_up, tear_down)
{
    uint64_t end = io_now_ns() + LATE_NS;
    uint32_t late = call(1, "ab"), bad = call(1, "xyz");
    char got[4] = "";

    assert_false(waits(bad));
    assert_int_equal(nin, 0);
    call(2, "abc");
    assert_int_equal(nin, 1);
    assert_int_equal(recv(in[0], got, sizeof got, MSG_DONTWAIT), 3); /* the door read nothing */
    assert_int_equal(send(caller[late], "c", 1, MSG_NOSIGNAL), 1);
    while (nin < 2 && io_now_ns() < end)
        io_run(io, end);
    assert_int_equal(nin, 2);
    assert_int_equal(waiting(), 0);
}

/* A caller that hangs up frees its place at once, whatever part of the first message came; one that
 * has sent all of it and will send no more is admitted. */
TEST_WITH(door_place_of_who_hangs_up_is_free_at_once, set_up, tear_down)
{
    uint64_t end = io_now_ns() + LATE_NS;
    const struct linger reset = {.l_onoff = 1};
    uint32_t part = call(1, "ab"), torn = call(1, "ab"), half = call(2, "a"), silent = call(2, "");

    assert_int_equal(waiting(), 4);
    close(caller[part]);
    assert_int_equal(setsockopt(caller[torn], SOL_SOCKET, SO_LINGER, &reset, sizeof reset), 0);
    close(caller[torn]);
    assert_int_equal(shutdown(caller[half], SHUT_WR), 0);
    while (waiting() > 1 && io_now_ns() < end)
        io_run(io, end);
    assert_int_equal(waiting(), 1);
    assert_true(waits(silent) && !waits(half));
    caller[part] = caller[torn] = -1;
    room = false;
    shutdown(caller[call(3, "abc")], SHUT_WR);
    while (!io_run(io, io_now_ns() + 1000000) && io_now_ns() < end)
        ;
    room = true;
    door_again(door);
    assert_int_equal(nin, 1);
}

TEST_WITH(door_holds_who_finds_no_room_and_asks_again, set_up, tear_down)
{
    room = false;
    call(1, "one");
    call(1, "two");
    call(1, "");
    call(1, "");
    call(1, ""); /* a silent one is displaced, though it came after those who spoke */
    assert_true(waits(0) && waits(1) && !waits(2));
    door_again(door);
    assert_int_equal(nin, 0);
    room = true;
    door_again(door);
    assert_int_equal(nin, 2);
    assert_int_equal(waiting(), 2);
}

FIXTURE(set_up_large)
{
    places = share = CALLERS;
    set_up(state);
    places = PLACES;
    share = SHARE;
    return 0;
}

/* More callers than one look at the epoll returns. A caller without room is tried again only by
 * door_again: not by itself, and not for more bytes that it sends. */
TEST_WITH(door_tries_who_is_held_only_when_there_may_be_room, set_up_large, tear_down)
{
    room = false;
    for (uint32_t i = 0; i < CALLERS; i++)
        call(1, "abc");
    assert_int_equal(attempts, CALLERS);
    for (uint32_t i = 0; i < 20; i++) {
        assert_int_equal(send(caller[i], "d", 1, MSG_NOSIGNAL), 1);
        io_run(io, io_now_ns() + 1000000);
    }
    assert_int_equal(attempts, CALLERS);
    assert_int_equal(waiting(), CALLERS);
    room = true;
    door_again(door);
    assert_int_equal(nin, CALLERS);
}

FIXTURE(set_up_paced)
{
    per_s = 1;
    set_up(state);
    per_s = 0;
    return 0;
}

/* A burst, then no more than one a second; the others wait in their share, and do not delay other
 * origins. */
TEST_WITH(door_origin_enters_at_its_rate, set_up_paced, tear_down)
{
    const uint64_t from = io_now_ns();
    struct door_stats s;
    uint32_t entered;

    for (uint32_t i = 0; i < PACED; i++)
        call(1, "abc");
    door_again(door);
    entered = nin;
    assert_in_range(waiting(), 1, SHARE);
    call(2, "abc");
    assert_true(nin > entered);
    assert_in_range(nin, DOOR_BURST_S + 2, DOOR_BURST_S + 2 + (io_now_ns() - from) / 1000000000);
    door_stats(door, &s);
    assert_int_equal(s.displaced, 0);
    assert_int_equal(s.over_rate + s.waiting + nin, PACED + 1);
    assert_true(s.over_rate > 0);
}

TEST_WITH(door_sends_away_at_the_deadline, set_up, tear_down)
{
    struct door_stats s;

    call(1, "");
    door_tick(door, WAIT_NS - 1);
    assert_true(waits(0));
    door_tick(door, WAIT_NS);
    assert_false(waits(0));
    door_stats(door, &s);
    assert_int_equal(s.overdue, 1);
    assert_int_equal(s.displaced, 0);
}
