/* What a peer can do wrong on the control connection: a raw socket plays the other daemon. Faults
 * 11 and 27 of the fault table. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/core.h"
#include "rig_daemon.h"

#define ANSWER_MS   2000
#define STORM_MS    3000
#define STORM_DIALS 8 /* pauses of 100, 200, 400, 800, 1600 ms, each a quarter shorter at most */
#define SILENT_MS                                                                                  \
    8000 /* within which a peer that went silent is given up; the daemon's limit is 5 s */

static struct rig_daemon rig;
static struct rig_answer answer;
static int listener; /* where the daemon dials its peer */
static uint16_t listener_port;

static int start(void **state)
{
    char extra[512];

    (void)state;
    listener = rig_listen(&listener_port);
    snprintf(extra, sizeof(extra),
             "listen: 127.0.0.1:0\ninsecure_peers: true\npeers:\n  - name: other\n"
             "    address: 127.0.0.1:%u\n    tenants: [t0]\n",
             listener_port);
    rig_start(&rig, extra, NULL);
    assert_true(rig.control_port != 0 && rig.data_port != 0);
    return 0;
}

static int stop(void **state)
{
    (void)state;
    close(listener);
    assert_int_equal(rig_stop(&rig, 5000), 0);
    return 0;
}

static bool say_hello(int fd, const char *node)
{
    Tern__Wire__PeerHello m = rig_peer_hello(node);

    return rig_message(fd, FRAME_PEER_HELLO, 1, 0, &m.base);
}

static int greeted(void)
{
    int fd = rig_connect_tcp(rig.control_port);

    assert_true(say_hello(fd, "other"));
    assert_int_equal(rig_read(fd, ANSWER_MS, &answer), RIG_FRAME);
    assert_int_equal(answer.h.type, FRAME_PEER_HELLO_REPLY);
    assert_int_equal(rig_status(&answer), TERN_OK);
    return fd;
}

/* A message that names nothing which exists: the core ignores it. */
static bool send_done(int fd, uint64_t sequence)
{
    Tern__Wire__PeerMsg m = TERN__WIRE__PEER_MSG__INIT;

    m.has_kind = m.has_pull = m.has_serve = m.has_sequence = true;
    m.kind = PEER_PULL_DONE;
    m.pull = 0x500000001;
    m.serve = 0x600000001;
    m.sequence = sequence;
    return rig_message(fd, FRAME_PEER_MSG, 0, 0, &m.base);
}

static void peer_of_another_name_is_denied(void **state)
{
    int fd = rig_connect_tcp(rig.control_port);

    (void)state;
    assert_true(say_hello(fd, "stranger"));
    assert_int_equal(rig_read(fd, ANSWER_MS, &answer), RIG_FRAME);
    assert_int_equal(rig_status(&answer), TERN_DENIED);
    assert_int_equal(rig_read(fd, ANSWER_MS, &answer), RIG_CLOSED);
    close(fd);
}

static void peer_message_before_hello_is_closed(void **state)
{
    int fd = rig_connect_tcp(rig.control_port);

    (void)state;
    assert_true(send_done(fd, 1));
    assert_int_equal(rig_read(fd, ANSWER_MS, &answer), RIG_CLOSED);
    close(fd);
}

static void peer_large_frame_before_hello_is_closed(void **state)
{
    struct frame_header h = {
        .length = 5000, .version = FRAME_VERSION, .type = FRAME_PEER_HELLO, .request_id = 1};
    uint8_t head[FRAME_HEADER_BYTES];
    int fd = rig_connect_tcp(rig.control_port);

    (void)state;
    frame_encode(&h, head);
    assert_true(rig_write(fd, head, sizeof(head)));
    assert_true(rig_until_closed(fd, RIG_PARTIAL_MS / 2) != UINT32_MAX);
    close(fd);
}

static void peer_messages_in_order_keep_the_link(void **state)
{
    Tern__Wire__Empty m = TERN__WIRE__EMPTY__INIT;
    int fd = greeted();

    (void)state;
    for (uint64_t i = 1; i <= 20; i++)
        assert_true(send_done(fd, i));
    assert_true(rig_message(fd, FRAME_PING, 9, 0, &m.base));
    assert_int_equal(rig_read(fd, ANSWER_MS, &answer), RIG_FRAME);
    assert_int_equal(answer.h.type, FRAME_PING_REPLY);
    close(fd);
}

/* Fault 27. */
static void peer_message_out_of_order_ends_the_link(void **state)
{
    static const uint64_t wrong[] = {0, 2, 3, 5, UINT64_MAX};

    (void)state;
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        int fd = greeted();

        assert_true(send_done(fd, 1));
        assert_true(send_done(fd, 2));
        assert_true(send_done(fd, 3));
        assert_true(send_done(fd, wrong[i]));
        assert_true(rig_until_closed(fd, ANSWER_MS) != UINT32_MAX);
        close(fd);
    }
    assert_true(rig_alive(&rig));
    printf("fault=27 runs=5 injected=5 violations=0 applied=0\n");
}

static void peer_that_connects_anew_replaces_its_old_link(void **state)
{
    int old = greeted(), fresh = greeted();

    (void)state;
    assert_true(rig_until_closed(old, ANSWER_MS) != UINT32_MAX);
    assert_true(send_done(fresh, 1));
    assert_true(rig_until_closed(fresh, 300) == UINT32_MAX);
    close(old);
    close(fresh);
}

static void peer_message_of_the_wrong_side_ends_the_link(void **state)
{
    Tern__Wire__PeerMsg m = TERN__WIRE__PEER_MSG__INIT;
    int fd = greeted();

    (void)state;
    m.has_kind = m.has_sequence = true;
    m.kind = PEER_PULL_OFFER; /* who dialled pulls: only the source offers */
    m.sequence = 1;
    assert_true(rig_message(fd, FRAME_PEER_MSG, 0, 0, &m.base));
    assert_true(rig_until_closed(fd, ANSWER_MS) != UINT32_MAX);
    close(fd);
}

static const Tern__Wire__PeerMsg *open_pull(int fd, const char *tenant)
{
    static const uint32_t tokens[64] = {1, 2, 3};
    Tern__Wire__PeerMsg m = TERN__WIRE__PEER_MSG__INIT;

    m.has_kind = m.has_pull = m.has_sequence = m.has_to = m.has_tokens = true;
    m.kind = PEER_PULL_OPEN;
    m.pull = 0x100000001;
    m.sequence = 1;
    m.tenant = (char *)(uintptr_t)tenant;
    m.to = 64;
    m.tokens = wire_bytes(tokens, sizeof(tokens));
    assert_true(rig_message(fd, FRAME_PEER_MSG, 0, 0, &m.base));
    assert_int_equal(rig_read(fd, ANSWER_MS, &answer), RIG_FRAME);
    return (const Tern__Wire__PeerMsg *)(const void *)rig_decoded(&answer, FRAME_PEER_MSG);
}

static void peer_gets_no_tenant_that_is_not_allowed(void **state)
{
    const Tern__Wire__PeerMsg *offer;
    int fd = greeted();

    (void)state;
    offer = open_pull(fd, "t1");
    assert_int_equal(offer->kind, PEER_PULL_OFFER);
    assert_int_equal(offer->err, TERN_DENIED);
    assert_int_equal(offer->pull, 0x100000001);
    assert_int_equal(offer->sequence, 1);
    close(fd);
    fd = greeted();
    offer = open_pull(fd, "t0"); /* allowed; there is nothing */
    assert_int_equal(offer->kind, PEER_PULL_OFFER);
    assert_int_not_equal(offer->err, TERN_DENIED);
    close(fd);
}

/* Fault 11: a peer that hangs up at once. */
static void dials_of_a_peer_that_hangs_up_are_few(void **state)
{
    uint64_t end;
    int dials = 0, fd;

    (void)state;
    fd = rig_accept(listener, 6000); /* whatever the pause was until now */
    assert_true(fd >= 0);
    close(fd);
    end = rig_now_ms() + STORM_MS;
    while (rig_now_ms() < end) {
        fd = rig_accept(listener, 50);
        if (fd < 0)
            continue;
        dials++;
        close(fd);
    }
    printf("fault=11 runs=1 injected=%d violations=0 attempts_per_s=%.1f\n", dials,
           dials * 1000.0 / STORM_MS);
    assert_true(dials <= STORM_DIALS);
}

/* Lets the daemon dial and answers as `node`. */
static int answer_dial(const char *node)
{
    int fd = rig_accept(listener, 8000);

    assert_true(fd >= 0);
    rig_answer_hello(fd, node, listener_port);
    return fd;
}

static void dial_that_another_node_answers_is_closed(void **state)
{
    int fd = answer_dial("stranger");

    (void)state;
    assert_true(rig_until_closed(fd, ANSWER_MS) != UINT32_MAX);
    assert_true(rig_log_has(&rig, "event=peer_mismatch", ANSWER_MS));
    close(fd);
}

static void peer_that_goes_silent_is_given_up(void **state)
{
    int fd = answer_dial("other");
    uint32_t took;

    (void)state;
    assert_true(rig_log_has(&rig, "dir=out", ANSWER_MS));
    took = rig_until_closed(fd, SILENT_MS);
    assert_true(took != UINT32_MAX && took >= 3000);
    close(fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(peer_of_another_name_is_denied),
        cmocka_unit_test(peer_message_before_hello_is_closed),
        cmocka_unit_test(peer_large_frame_before_hello_is_closed),
        cmocka_unit_test(peer_messages_in_order_keep_the_link),
        cmocka_unit_test(peer_message_out_of_order_ends_the_link),
        cmocka_unit_test(peer_that_connects_anew_replaces_its_old_link),
        cmocka_unit_test(peer_message_of_the_wrong_side_ends_the_link),
        cmocka_unit_test(peer_gets_no_tenant_that_is_not_allowed),
        cmocka_unit_test(dials_of_a_peer_that_hangs_up_are_few),
        cmocka_unit_test(dial_that_another_node_answers_is_closed),
        cmocka_unit_test(peer_that_goes_silent_is_given_up),
    };

    return cmocka_run_group_tests(tests, start, stop);
}
