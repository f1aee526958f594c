/* The TLS layer: pieces of any size, every reason to refuse a peer, bytes changed, cut off and
 * repeated, exhausted memory, changed files. Fault 27 below the sequence numbers. */
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <openssl/err.h>

#include "base/prng.h"
#include "proto/frame.h"
#include "shell/tls/tls_arena.h"
#include "shell/tls/tls_openssl.h"
#include "testing/test.h"
#include "unit/rig/rig_tls.h"

#define RECORD_HEAD 5

/* ---- the rig ---- */

static struct tls *daemon_a, *daemon_b;
static struct wire to_server, to_client;
static struct end client, server;

FIXTURE(start)
{
    tls_rig_certs();
    daemon_a = tls_rig_daemon("a", "a", "ca");
    daemon_b = tls_rig_daemon("b", "b", "ca");
    return 0;
}

FIXTURE(stop)
{
    tls_destroy(daemon_a);
    tls_destroy(daemon_b);
    tls_rig_remove();
    return 0;
}

FIXTURE(both_close)
{
    end_close(&client);
    end_close(&server);
    return 0;
}

TEST_EACH(NULL, both_close);

/* a dials b, as daemons do; closes the former ends. */
static void both_ours(void)
{
    both_close(NULL);
    end_ours(&client, daemon_a, "b", &to_client, &to_server);
    end_ours(&server, daemon_b, NULL, &to_server, &to_client);
}

static void connected(void)
{
    both_ours();
    ends_run(&client, &server, SIZE_MAX);
    assert_true(client.secured && server.secured);
}

static void server_refused(enum tls_refusal why)
{
    assert_int_equal(server.last, TLS_FAILED);
    assert_string_equal(tls_refusal_name(tls_refusal_of(server.s)), tls_refusal_name(why));
    assert_false(tls_secured(server.s));
    assert_int_equal(server.plain_n, 0);
}

static void client_refused(enum tls_refusal why)
{
    assert_int_equal(client.last, TLS_FAILED);
    assert_string_equal(tls_refusal_name(tls_refusal_of(client.s)), tls_refusal_name(why));
    assert_false(client.secured);
}

/* ---- what has to work ---- */

static void fill(uint8_t *bytes, size_t n, uint32_t seed)
{
    for (size_t i = 0; i < n; i++)
        bytes[i] = (uint8_t)(i * 31 + seed + i / 251);
}

TEST_GROUP(start, stop);

TEST(tls_bytes_in_pieces_of_any_size_arrive_whole)
{
    static const size_t pieces[] = {1, 2, 3, 5, 7, 16, 17, 100, 1000, 16383, 16384, 16406, 65536};
    static uint8_t sent[100000];
    struct tls_peer p;

    fill(sent, sizeof(sent), 3);
    for (size_t i = 0; i < sizeof(pieces) / sizeof(pieces[0]); i++) {
        both_ours();
        ends_run(&client, &server, pieces[i]);
        assert_true(client.secured && server.secured);
        assert_true(end_put(&client, sent, sizeof(sent)));
        assert_true(end_put(&server, "x", 1));
        assert_true(end_put(&server, sent, 40000));
        ends_run(&client, &server, pieces[i]);
        assert_int_equal(server.plain_n, sizeof(sent));
        assert_memory_equal(server.plain, sent, sizeof(sent));
        assert_int_equal(client.plain_n, 40001);
        assert_memory_equal(client.plain + 1, sent, 40000);
        tls_peer(client.s, &p);
        assert_string_equal(p.version, "TLSv1.3");
        assert_true(strncmp(p.cipher, "TLS_", 4) == 0 && strlen(p.not_after) == 20);
    }
}

TEST(tls_names_are_exact)
{
    connected();
    assert_true(tls_names(server.s, "a"));
    assert_false(tls_names(server.s, "A"));
    assert_false(tls_names(server.s, "b"));
    assert_false(tls_names(server.s, ""));
    assert_true(tls_names(client.s, "b"));
}

/* ---- who has to be refused ---- */

static void bare_client(const char *cert, int version)
{
    both_close(NULL);
    end_bare(&client, true, cert, version, &to_client, &to_server);
    end_ours(&server, daemon_b, NULL, &to_server, &to_client);
    ends_run(&client, &server, SIZE_MAX);
}

static void bare_server(const char *cert, int version)
{
    both_close(NULL);
    end_ours(&client, daemon_a, "b", &to_client, &to_server);
    end_bare(&server, false, cert, version, &to_server, &to_client);
    ends_run(&client, &server, SIZE_MAX);
}

static void client_is_refused(const char *cert, int version, enum tls_refusal why)
{
    bare_client(cert, version);
    server_refused(why);
}

static void server_is_refused(const char *cert, int version, enum tls_refusal why)
{
    bare_server(cert, version);
    client_refused(why);
}

TEST(tls_client_that_may_not_come_is_refused)
{
    bare_client("a", TLS1_3_VERSION); /* otherwise the others prove nothing */
    assert_true(server.secured);
    assert_int_equal(SSL_SESSION_is_resumable(SSL_get_session(client.ssl)), 0); /* no ticket */
    client_is_refused(NULL, TLS1_3_VERSION, TLS_NO_CERTIFICATE);
    client_is_refused("other/a", TLS1_3_VERSION, TLS_WRONG_CA);
    client_is_refused("c", TLS1_3_VERSION, TLS_WRONG_NAME);
    client_is_refused("ab", TLS1_3_VERSION, TLS_WRONG_NAME);
    client_is_refused("upper", TLS1_3_VERSION, TLS_WRONG_NAME);
    client_is_refused("star", TLS1_3_VERSION, TLS_WRONG_NAME);
    client_is_refused("cn", TLS1_3_VERSION, TLS_WRONG_NAME);
    client_is_refused("oldb", TLS1_3_VERSION, TLS_EXPIRED);
    client_is_refused("half", TLS1_3_VERSION, TLS_BAD_CERTIFICATE); /* for servers only */
    client_is_refused("a", TLS1_2_VERSION, TLS_OLD_VERSION);
}

TEST(tls_server_that_is_not_the_peer_is_refused)
{
    bare_server("b", TLS1_3_VERSION);
    assert_true(client.secured);
    server_is_refused("other/b", TLS1_3_VERSION, TLS_WRONG_CA);
    server_is_refused("a", TLS1_3_VERSION,
                      TLS_WRONG_NAME); /* one of our peers, but not the one that was dialled */
    server_is_refused("cn", TLS1_3_VERSION, TLS_WRONG_NAME);
    server_is_refused("oldb", TLS1_3_VERSION, TLS_EXPIRED);
    bare_server("b", TLS1_2_VERSION);
    assert_int_equal(client.last, TLS_FAILED);
    assert_false(client.secured);
}

/* OpenSSL's default place has a CA that made the stranger's certificate. */
TEST(tls_cas_of_the_system_are_not_trusted)
{
    struct tls *tls;
    char path[160];

    snprintf(path, sizeof(path), "%s/other/ca.pem", tls_dir);
    assert_int_equal(setenv("SSL_CERT_FILE", path, 1), 0);
    tls = tls_rig_daemon("b", "b", "ca");
    end_bare(&client, true, "other/a", TLS1_3_VERSION, &to_client, &to_server);
    end_ours(&server, tls, NULL, &to_server, &to_client);
    ends_run(&client, &server, SIZE_MAX);
    server_refused(TLS_WRONG_CA);
    both_close(NULL);
    tls_destroy(tls);
    assert_int_equal(unsetenv("SSL_CERT_FILE"), 0);
}

/* The refused side gets an alert, and reports which side refused. */
TEST(tls_refused_side_is_told)
{
    struct tls *stranger = tls_rig_daemon("a", "other/a", "ca");

    end_ours(&client, stranger, "b", &to_client, &to_server);
    end_ours(&server, daemon_b, NULL, &to_server, &to_client);
    ends_run(&client, &server, SIZE_MAX);
    assert_true(client.secured); /* it has done its part; the alert comes after that */
    assert_int_equal(client.last, TLS_FAILED);
    assert_int_equal(tls_refusal_of(client.s), TLS_PEER_REFUSED);
    assert_non_null(strstr(tls_detail(client.s), "unknown ca")); /* as in the alert */
    server_refused(TLS_WRONG_CA);
    assert_non_null(strstr(tls_detail(server.s), "issuer"));
    both_close(NULL);
    tls_destroy(stranger);
}

/* ---- bytes ---- */

TEST(tls_garbage_is_refused)
{
    static const char http[] = "GET / HTTP/1.1\r\nHost: x\r\n\r\n";
    struct prng p;

    prng_init(&p, 1);
    for (uint32_t i = 0; i < 400; i++) {
        size_t n = 1 + prng_below(&p, 3000);

        both_ours();
        end_step(&client, 0);
        to_server.got = to_server.put = 0;
        for (size_t k = 0; k < n; k++)
            to_server.bytes[k] = to_client.bytes[k] = (uint8_t)prng_u64(&p);
        if (i % 2) { /* a head that looks valid */
            memcpy(to_server.bytes, "\x16\x03\x01\x00\x80\x01\x00\x00\x7c\x03\x03", 11);
            memcpy(to_client.bytes, "\x16\x03\x03\x00\x80\x02\x00\x00\x7c\x03\x03", 11);
        }
        to_server.put = to_client.put = n;
        end_step(&server, SIZE_MAX);
        end_step(&client, SIZE_MAX);
        assert_false(client.secured || server.secured);
    }
    both_ours();
    memcpy(to_server.bytes, http, sizeof(http) - 1);
    to_server.put = sizeof(http) - 1;
    end_step(&server, SIZE_MAX);
    server_refused(TLS_BAD_RECORD);
}

/* A clear-text peer gets a TLS alert, whoever dialled. */
TEST(tls_clear_text_is_known_by_its_first_bytes)
{
    const struct frame_header h = {.length = 40, .version = FRAME_VERSION, .type = 1};
    uint8_t bytes[FRAME_HEADER_BYTES + 40] = {0};

    frame_encode(&h, bytes);
    both_ours();
    memcpy(to_server.bytes, bytes, sizeof bytes);
    to_server.put = sizeof bytes;
    end_step(&server, SIZE_MAX);
    server_refused(TLS_CLEAR_TEXT);
    assert_int_equal(to_client.put, 7);
    assert_memory_equal(to_client.bytes, "\x15\x03\x03\x00\x02\x02\x46", 7);
    both_ours();
    end_step(&client, SIZE_MAX); /* it has sent its first message */
    memcpy(to_client.bytes, bytes, sizeof bytes);
    to_client.put = sizeof bytes;
    end_step(&client, SIZE_MAX);
    assert_int_equal(tls_refusal_of(client.s), TLS_CLEAR_TEXT);
}

/* One bit of either side's messages, anywhere: neither side accepts the other. The version in a
 * record's head is the exception: its lower byte is not read before the keys exist. */
TEST(tls_changed_handshake_is_refused)
{
    size_t flights[2];
    uint32_t runs = 0;

    connected();
    flights[0] = to_server.put;
    flights[1] = to_client.put;
    for (uint32_t dir = 0; dir < 2; dir++) {
        for (size_t at = 0; at < flights[dir]; at += 5, runs++) {
            struct wire *w = dir ? &to_client : &to_server;
            struct end *hit = dir ? &client : &server;

            both_ours();
            end_step(&client, 0);
            while (w->put <= at && end_step(&server, SIZE_MAX) && end_step(&client, SIZE_MAX) &&
                   (to_server.got < to_server.put || to_client.got < to_client.put))
                ;
            if (w->put > at && w->got <= at) {
                bool version = at == 2;

                w->bytes[at] ^= 0x10;
                ends_run(&client, &server, SIZE_MAX);
                if (!version)
                    assert_false(hit->secured && hit->last != TLS_FAILED && client.secured &&
                                 server.secured);
            }
        }
    }
    printf("changed handshakes: %u\n", runs);
    assert_true(runs > 400);
}

/* Every byte of a record counts: its head, its text, its tag. */
TEST(tls_changed_record_is_refused)
{
    size_t n;

    connected();
    to_server.put = to_server.got = 0;
    assert_true(end_put(&client, "twelve bytes", 12));
    n = to_server.put;
    for (size_t at = 0; at < n; at++) {
        connected();
        to_server.put = to_server.got = 0;
        assert_true(end_put(&client, "twelve bytes", 12));
        to_server.bytes[at] ^= 1;
        ends_run(&client, &server, SIZE_MAX);
        assert_int_equal(server.plain_n, 0);
        if (server.last != TLS_FAILED) { /* a longer one: it waits, and the next bytes show it */
            assert_int_equal(at, 3);
            assert_true(end_put(&client, to_client.bytes, 1000));
            ends_run(&client, &server, SIZE_MAX);
            assert_int_equal(server.plain_n, 0);
        }
        assert_int_equal(server.last, TLS_FAILED);
        assert_int_equal(tls_refusal_of(server.s), TLS_BAD_RECORD);
    }
}

TEST(tls_truncated_record_gives_nothing)
{
    connected();
    to_server.put = to_server.got = 0;
    assert_true(end_put(&client, "twelve bytes", 12));
    to_server.put--;
    assert_true(end_step(&server, SIZE_MAX));
    assert_int_equal(server.last, TLS_WANTS);
    assert_int_equal(server.plain_n, 0);
    to_server.put++;
    assert_true(end_step(&server, SIZE_MAX));
    assert_int_equal(server.plain_n, 12);
}

TEST(tls_record_longer_than_allowed_is_refused)
{
    static const uint8_t head[] = {0x17, 0x03, 0x03, 0xff, 0xff};

    connected();
    to_server.put = to_server.got = 0;
    memcpy(to_server.bytes, head, sizeof(head));
    to_server.put = sizeof(head);
    assert_false(end_step(&server, SIZE_MAX));
    assert_int_equal(tls_refusal_of(server.s), TLS_BAD_RECORD);
}

TEST(tls_repeated_left_out_and_swapped_records_are_refused)
{
    uint8_t first[256], second[256];
    size_t n;

    for (uint32_t kind = 0; kind < 3; kind++) {
        connected();
        to_server.put = to_server.got = 0;
        assert_true(end_put(&client, "first", 5));
        n = to_server.put;
        memcpy(first, to_server.bytes, n);
        to_server.put = 0;
        assert_true(end_put(&client, "secnd", 5));
        assert_int_equal(to_server.put, n);
        memcpy(second, to_server.bytes, n);
        memcpy(to_server.bytes, kind == 0 ? first : second, n); /* kind 1: the first is left out */
        memcpy(to_server.bytes + n, first, n);                  /* 0: repeated; 2: swapped */
        to_server.put = 2 * n;
        assert_false(end_step(&server, SIZE_MAX));
        assert_int_equal(tls_refusal_of(server.s), TLS_BAD_RECORD);
        assert_int_equal(server.plain_n, kind == 0 ? 5 : 0);
    }
    printf("fault=27 runs=3 injected=3 violations=0 applied=0\n");
}

/* All that a good client sent, once more: the server's part of the secret differs. */
TEST(tls_replayed_connection_is_refused)
{
    static uint8_t said[WIRE_BYTES];
    size_t n;

    connected();
    assert_true(end_put(&client, "hello", 5));
    ends_run(&client, &server, SIZE_MAX);
    assert_int_equal(server.plain_n, 5);
    n = to_server.put;
    memcpy(said, to_server.bytes, n);
    for (uint32_t pieces = 0; pieces < 2; pieces++) {
        both_ours();
        memcpy(to_server.bytes, said, n);
        to_server.put = n;
        while (to_server.got < n && end_step(&server, pieces ? 1 : SIZE_MAX))
            ;
        assert_false(server.secured);
        server_refused(TLS_BAD_RECORD);
    }
}

/* ---- limits ---- */

TEST(tls_handshakes_at_a_time_are_limited)
{
    static struct tls_session *open[TLS_HANDSHAKES_MAX];
    struct tls_session *more = NULL;

    both_ours();
    end_close(&server);
    for (uint32_t i = 0; i < TLS_HANDSHAKES_MAX; i++)
        assert_int_equal(tls_open(daemon_b, NULL, wire_put, &server, &open[i]), TERN_OK);
    assert_int_equal(tls_open(daemon_b, NULL, wire_put, &server, &more), TERN_BUSY);
    assert_int_equal(tls_open(daemon_b, "a", wire_put, &server, &more), TERN_OK); /* our own */
    tls_close(more);
    for (uint32_t i = 0; i < TLS_HANDSHAKES_MAX; i++)
        tls_close(open[i]);
    end_close(&client);
    for (uint32_t i = 0; i < 3 * TLS_HANDSHAKES_MAX; i++) { /* ended ones no longer count */
        bare_client(i % 2 ? "a" : NULL, TLS1_3_VERSION);
    }
    connected();
}

/* An allowed large first message (64 KiB: not every OpenSSL takes twice that) that never ends: a
 * limited number of bytes is read. */
TEST(tls_bytes_of_a_handshake_are_limited)
{
    static const uint8_t head[] = {0x16, 0x03, 0x01, 0x40, 0x00, 0x01, 0x01, 0x00, 0x00};
    size_t fed = 0;

    both_ours();
    memset(to_server.bytes, 0, RECORD_HEAD + 16384);
    memcpy(to_server.bytes, head, sizeof(head));
    to_server.put = RECORD_HEAD + 16384;
    while (end_step(&server, SIZE_MAX) && fed < 4 * TLS_HANDSHAKE_BYTES_MAX) {
        fed += to_server.put;
        to_server.got = 0;
        memset(to_server.bytes + RECORD_HEAD, 0, sizeof(head) - RECORD_HEAD);
    }
    assert_true(fed > TLS_HANDSHAKE_BYTES_MAX / 2 && fed <= TLS_HANDSHAKE_BYTES_MAX);
    server_refused(TLS_NO_ROOM);
}

/* As many sessions as configured, and as many again, after strangers have made OpenSSL allocate
 * large buffers as often as possible: the arena is large enough for all. */
TEST(tls_arena_holds_all_sessions)
{
    static struct end many[2][64];
    static const uint8_t head[] = {0x16, 0x03, 0x01, 0x40, 0x00, 0x01, 0x01, 0x00, 0x00};
    struct tls_arena_stats stats;

    for (uint32_t i = 0; i < TLS_HANDSHAKES_MAX; i++) {
        end_ours(&many[0][i], daemon_b, NULL, &to_server, &to_client);
        memset(to_server.bytes, 0, RECORD_HEAD + 16384);
        memcpy(to_server.bytes, head, sizeof(head));
        for (uint32_t k = 0; k < 3; k++) {
            to_server.got = 0;
            to_server.put = RECORD_HEAD + 16384;
            assert_true(end_step(&many[0][i], SIZE_MAX));
            memset(to_server.bytes + RECORD_HEAD, 0, sizeof(head) - RECORD_HEAD);
        }
    }
    for (uint32_t i = 0; i < TLS_HANDSHAKES_MAX; i++)
        end_close(&many[0][i]);
    for (uint32_t i = 0; i < 64; i++) {
        end_ours(&many[1][i], daemon_a, "b", &to_client, &to_server);
        end_ours(&many[0][i], daemon_b, NULL, &to_server, &to_client);
        ends_run(&many[1][i], &many[0][i], SIZE_MAX);
        assert_true(many[0][i].secured && many[1][i].secured);
    }
    tls_arena_stats(&stats);
    printf("arena: 128 sessions and what was before: %llu of %llu bytes\n",
           (unsigned long long)stats.used, (unsigned long long)stats.cap);
    assert_int_equal(stats.cap, TLS_ARENA_BASE_BYTES + 64 * TLS_ARENA_SESSION_BYTES);
    for (uint32_t i = 0; i < 64; i++) {
        end_close(&many[0][i]);
        end_close(&many[1][i]);
    }
}

TEST(tls_queue_without_room_ends_the_session)
{
    connected();
    to_server.put = WIRE_BYTES - 10;
    assert_false(end_put(&client, "twelve bytes", 12));
    assert_int_equal(tls_refusal_of(client.s), TLS_NO_ROOM);
}

/* The n-th allocation fails, for every n: that handshake fails, nothing else does, and all memory
 * is freed. */
TEST(tls_memory_that_runs_out_fails_one_handshake)
{
    struct tls_arena_stats before, after;
    uint32_t failed = 0, n;

    connected();
    both_close(NULL);
    tls_arena_stats(&before);
    for (n = 1; n < 20000; n += 3) {
        tls_arena_fail(n);
        client.last = server.last = TLS_WANTS;
        client.s = server.s = NULL;
        end_init(&client, &to_client, &to_server);
        end_init(&server, &to_server, &to_client);
        if (tls_open(daemon_a, "b", wire_put, &client, &client.s) == TERN_OK &&
            tls_open(daemon_b, NULL, wire_put, &server, &server.s) == TERN_OK)
            ends_run(&client, &server, SIZE_MAX);
        tls_arena_stats(&after);
        if (after.refused == before.refused + failed) {
            tls_arena_fail(0);
            both_close(NULL);
            break; /* n is beyond all of them */
        }
        failed++;
        tls_arena_fail(0);
        both_close(NULL);
    }
    tls_arena_stats(&after);
    printf("requests without memory: %u\n", failed);
    assert_true(failed > 100 && n < 20000);
    assert_true(after.used <= before.used + 4096); /* OpenSSL's error records come and go */
    connected();
    assert_true(end_put(&client, "still", 5));
    ends_run(&client, &server, SIZE_MAX);
    assert_int_equal(server.plain_n, 5);
}

TEST(tls_arena_gives_back_and_is_bounded)
{
    static void *held[4096];
    struct tls_arena_stats before, after;
    struct prng p;

    prng_init(&p, 9);
    tls_arena_stats(&before);
    assert_null(tls_arena_take(0, "", 0));
    assert_null(tls_arena_take(TLS_ARENA_BLOCK_MAX, "", 0));
    for (uint32_t i = 0; i < 60000; i++) {
        uint32_t k = prng_below(&p, 4096), n = 1 + prng_below(&p, prng_below(&p, 8) ? 200 : 4000);

        if (held[k] && prng_below(&p, 3) == 0) {
            uint8_t *q = tls_arena_resize(held[k], n, "", 0);

            assert_non_null(q);
            assert_int_equal(q[0], k & 0xff);
            memset(q, (int)(k & 0xff), n);
            held[k] = q;
        } else if (held[k]) {
            assert_int_equal(*(uint8_t *)held[k], k & 0xff);
            tls_arena_put(held[k], "", 0);
            held[k] = NULL;
        } else {
            held[k] = tls_arena_take(n, "", 0);
            assert_non_null(held[k]);
            assert_int_equal((uintptr_t)held[k] % 16, 0);
            memset(held[k], (int)(k & 0xff), n);
        }
    }
    for (uint32_t k = 0; k < 4096; k++)
        tls_arena_put(held[k], "", 0);
    tls_arena_stats(&after);
    assert_int_equal(after.used, before.used);
    assert_true(after.cut <= after.cap);
}

/* ---- files ---- */

static void refused_file(const char *node, const char *cert, const char *key, const char *ca,
                         const char *words)
{
    struct tls *tls = NULL;
    char why[512] = "";

    assert_int_equal(tls_rig_create(node, cert, key, ca, &tls, why, sizeof(why)), TERN_INVALID);
    assert_null(tls);
    if (!strstr(why, words))
        fail_msg("wanted \"%s\", got \"%s\"", words, why);
}

static void write_file(const char *name, const char *from, size_t cut_at)
{
    char path[160], command[512];

    snprintf(path, sizeof(path), "%s/%s", tls_dir, name);
    snprintf(command, sizeof(command), "cp '%s/%s' '%s'", tls_dir, from, path);
    assert_int_equal(system(command), 0);
    if (cut_at)
        assert_int_equal(truncate(path, (off_t)cut_at), 0);
}

TEST(tls_own_files_that_no_peer_would_accept_are_refused)
{
    refused_file("a", "none", "a", "ca", "No such file");
    refused_file("a", "a", "b", "ca", "not the key");
    refused_file("a", "b", "b", "ca", "DNS:a");
    refused_file("cn", "cn", "cn", "ca", "DNS:cn");
    refused_file("old", "old", "old", "ca", "expired");
    refused_file("b", "half", "half", "ca", "client and server");
    refused_file("a", "a", "a", "a.key/../a", "");
    write_file("cut.pem", "a.pem", 200);
    refused_file("a", "cut", "a", "ca", "no certificate");
    refused_file("a", "a", "a", "cut", "no certificate");
    write_file("empty.pem", "a.pem", 1);
    refused_file("a", "a", "a", "empty", "no certificate");
}

/* New files apply to new sessions; existing ones stay; a bad file changes nothing. */
TEST(tls_reload_changes_new_sessions_only)
{
    char path[3][160], why[512] = "";
    struct tls_config config = {.files.ca = path[0],
                                .files.cert = path[1],
                                .files.key = path[2],
                                .node = "b",
                                .peers = tls_rig_peers,
                                .npeers = 2,
                                .sessions = 8};
    struct tls_stats stats;
    struct tls *tls = NULL;
    struct tls_own own;

    snprintf(path[0], 160, "%s/live-ca.pem", tls_dir);
    snprintf(path[1], 160, "%s/live.pem", tls_dir);
    snprintf(path[2], 160, "%s/live.key", tls_dir);
    write_file("live-ca.pem", "ca.pem", 0);
    write_file("live.pem", "b.pem", 0);
    write_file("live.key", "b.key", 0);
    assert_int_equal(tls_create(&config, &tls, why, sizeof(why)), TERN_OK);
    end_ours(&client, daemon_a, "b", &to_client, &to_server);
    end_ours(&server, tls, NULL, &to_server, &to_client);
    ends_run(&client, &server, SIZE_MAX);
    assert_true(server.secured);

    write_file("live.pem", "b.pem", 100); /* half a file */
    assert_int_equal(tls_reload(tls, &config.files, false, &own, why, sizeof(why)), TERN_INVALID);
    assert_non_null(strstr(why, "live.pem"));
    write_file("live.pem", "other/b.pem", 0); /* its key is still the old one */
    assert_int_equal(tls_reload(tls, &config.files, false, &own, why, sizeof(why)), TERN_INVALID);
    assert_non_null(strstr(why, "not the key"));
    tls_stats(tls, &stats);
    assert_int_equal(stats.reloads_failed, 2);
    {
        static struct end c2, s2;
        static struct wire w1, w2;

        end_ours(&c2, daemon_a, "b", &w1, &w2); /* the former files stay in force */
        end_ours(&s2, tls, NULL, &w2, &w1);
        ends_run(&c2, &s2, SIZE_MAX);
        assert_true(c2.secured && s2.secured);
        end_close(&c2);
        end_close(&s2);
        write_file("live.key", "other/b.key", 0);
        assert_int_equal(tls_reload(tls, &config.files, true, &own, why, sizeof(why)), TERN_OK);
        assert_false(own.own_ca); /* peers with this CA would refuse it: reported */
        tls_stats(tls, &stats);
        assert_true(stats.own.own_ca && stats.reloads == 0);
        write_file("live-ca.pem", "other/ca.pem", 0);
        assert_int_equal(tls_reload(tls, &config.files, false, &own, why, sizeof(why)), TERN_OK);
        assert_true(own.own_ca);
        end_ours(&c2, daemon_a, "b", &w1, &w2); /* a has the old CA: neither accepts the other */
        end_ours(&s2, tls, NULL, &w2, &w1);
        ends_run(&c2, &s2, SIZE_MAX);
        assert_int_equal(c2.last, TLS_FAILED);
        assert_int_equal(tls_refusal_of(c2.s), TLS_WRONG_CA);
        end_close(&c2);
        end_close(&s2);
    }
    assert_true(end_put(&client, "still here", 10));
    ends_run(&client, &server, SIZE_MAX);
    assert_int_equal(server.plain_n, 10);
    for (uint32_t i = 0; i < 200; i++) /* without a leak */
        assert_int_equal(tls_reload(tls, &config.files, false, &own, why, sizeof(why)), TERN_OK);
    both_close(NULL);
    tls_destroy(tls);
}

TEST(a_time_of_a_certificate_is_told_as_a_date)
{
    ASN1_TIME *at = ASN1_TIME_new();
    char text[TLS_TIME_BYTES];

    assert_int_equal(ASN1_TIME_set_string_X509(at, "20311129083507Z"), 1);
    tls_time_text(at, text);
    assert_string_equal(text, "2031-11-29T08:35:07Z");
    ASN1_TIME_free(at);
}

TEST(tls_that_is_destroyed_leaves_no_memory_behind)
{
    size_t before = 0;

    for (uint32_t round = 0; round < 4; round++) {
        tls_destroy(tls_rig_daemon("a", "a", "ca"));
        if (round == 1)
            before = mallinfo2().uordblks + mallinfo2().hblkhd;
    }
    assert_int_equal(mallinfo2().uordblks + mallinfo2().hblkhd, before);
}
