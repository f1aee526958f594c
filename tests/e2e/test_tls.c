/* TLS between daemons: two real ones that find each other, and a bare socket with OpenSSL that
 * plays everyone who must be refused: without a certificate, of another CA, of another name, with
 * an old protocol, in the clear, silent, and with recorded bytes. Each is refused, logged and
 * counted. deploy/make-certs.sh makes the certificates. */
#include <netinet/in.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "engine/admin.h"
#include "engine/json.h"
#include "rig_daemon.h"
#include "seam/io/door.h"
#include "seam/xfer/flow/data_wire.h"
#include "testing/test.h"

#define HALF_OPEN       60 /* more than TLS_HANDSHAKES_MAX */
#define HALF_OPEN_TRIES 5
#define SLACK_MS        4000 /* over a deadline, on a busy machine */
#define SAID_BYTES      65536

#define STORM          400
#define STORM_RATE     16 /* ADDRESS_HANDSHAKES_PER_S of link_door.c */
#define STORM_PIECE    8
#define STORM_PIECE_US 20000
#define STORM_OTHERS   8 /* handshakes with other peers meanwhile */

static char certs[64];
static struct daemon rig, other; /* rig: node e2e, the one under test; other: its real peer */
static struct tern *admin;

/* ---- certificates and daemons ---- */

static void shell(const char *format, ...)
{
    char command[2048];
    va_list args;

    va_start(args, format);
    vsnprintf(command, sizeof(command), format, args);
    va_end(args);
    assert_int_equal(system(command), 0);
}

static void make_certs(void)
{
    const char *source = getenv("TERN_SOURCE");
    char script[512];

    snprintf(script, sizeof(script), "%s/deploy/make-certs.sh", source ? source : ".");
    if (access(script, R_OK) != 0)
        snprintf(script, sizeof(script), "%s/deploy/make-certs.sh", TERN_SOURCE_DIR);
    strcpy(certs, "/tmp/tern-certs-XXXXXX");
    assert_non_null(mkdtemp(certs));
    shell("set -e; bash %s %s e2e other raw stranger; bash %s %s/evil e2e other raw; "
          "DAYS=-1 SAN=subjectAltName=DNS:raw bash %s %s late",
          script, certs, script, certs, script, certs);
    shell("cp %s/ca.pem %s/live-ca.pem; cp %s/e2e.pem %s/live.pem; cp %s/e2e.key %s/live.key",
          certs, certs, certs, certs, certs, certs);
}

/* TERN_PEER_TRANSPORT: the same over RDMA, in a guest that has a device. */
static const char *transport(void)
{
    const char *name = getenv("TERN_PEER_TRANSPORT");

    return name && *name ? name : "tcp";
}

static void start_other(uint16_t port, uint16_t rig_port, const char *from)
{
    char extra[2048];

    snprintf(extra, sizeof(extra),
             "listen: 127.0.0.1:%u\ntls:\n  ca: %s/ca.pem\n  cert: %s/other.pem\n  key: "
             "%s/other.key\npeers:\n  - {name: e2e, address: \"127.0.0.1:%u\", tenants: [t0], "
             "transport: %s}\n",
             port, certs, from, from, rig_port, transport());
    rig_start_node(&other, "other", extra, NULL);
}

FIXTURE(start)
{
    uint16_t port = port_free(), other_port = port_free();
    char extra[2048];

    rig_deadlines.progress_ms = RIG_TLS_MS;
    make_certs();
    snprintf(extra, sizeof(extra),
             "listen: 127.0.0.1:%u\ntls:\n  ca: %s/live-ca.pem\n  cert: %s/live.pem\n  key: "
             "%s/live.key\npeers:\n"
             "  - {name: other, address: \"127.0.0.1:%u\", tenants: [t0], transport: %s}\n"
             "  - {name: raw, address: \"127.0.0.1:1\", tenants: [t0], transport: %s}\n",
             port, certs, certs, certs, other_port, transport(), transport());
    rig_start(&rig, extra, NULL);
    start_other(other_port, port, certs);
    admin = rig_connected(rig.admin);
    return 0;
}

FIXTURE(stop)
{
    tern_destroy(admin);
    assert_int_equal(rig_stop(&rig), 0);
    assert_int_equal(rig_stop(&other), 0);
    shell("rm -rf '%s'", certs);
    return 0;
}

/* ---- reports of the daemon ---- */

/* peer NULL: of peers whose name was unknown. */
static uint64_t refused(const char *peer, const char *reason)
{
    json_t *answer = admin_ask(admin, "peers", NULL), *n;
    uint64_t count;

    n = peer ? json_at(json_row(json_object_get(answer, "peers"), "peer", peer), "tls.refused")
             : json_at(answer, "tls.refused_unnamed");
    assert_true(json_is_integer(json_object_get(n, reason)));
    count = json_get_u64(n, reason);
    json_decref(answer);
    return count;
}

static bool counted(const char *peer, const char *reason, uint64_t more_than)
{
    for (uint64_t end = rig_now_ms() + RIG_WAIT_MS; rig_now_ms() < end; usleep(10000))
        if (refused(peer, reason) > more_than)
            return true;
    return false;
}

/* Links to and from that peer that have ended. */
static uint32_t link_downs(const char *peer)
{
    char words[64];

    snprintf(words, sizeof words, "peer=%s ", peer);
    return daemon_log_lines(&rig, "event=link_down", words);
}

static bool logged(const char *reason)
{
    char line[128];

    snprintf(line, sizeof(line), "reason=%s ", reason);
    return rig_log_has(&rig, "event=tls_refused", RIG_WAIT_MS) &&
           rig_log_has(&rig, line, RIG_WAIT_MS);
}

/* ---- a false peer ---- */

struct raw {
    int fd;
    SSL_CTX *ctx;
    SSL *ssl;
    uint8_t said[SAID_BYTES]; /* everything it sent */
    size_t nsaid;
    uint64_t token, incarnation; /* assigned by the daemon */
};

static bool raw_flush(struct raw *r)
{
    uint8_t *at = r->said + r->nsaid;
    int n;

    while ((n = BIO_read(SSL_get_wbio(r->ssl), at, (int)(SAID_BYTES - r->nsaid))) > 0) {
        r->nsaid += (size_t)n;
        if (!rig_write(r->fd, at, (size_t)n))
            return false;
        at += n;
    }
    return true;
}

/* Waits for bytes of the daemon. Returns false if it closed, or sent nothing in time. */
static bool raw_fill(struct raw *r, uint32_t ms)
{
    struct pollfd pf = {.fd = r->fd, .events = POLLIN};
    uint8_t buf[4096];
    ssize_t n;

    if (poll(&pf, 1, (int)ms) <= 0)
        return false;
    n = recv(r->fd, buf, sizeof(buf), 0);
    return n > 0 && BIO_write(SSL_get_rbio(r->ssl), buf, (int)n) == (int)n;
}

static void raw_begin(struct raw *r)
{
    SSL_free(r->ssl);
    r->ssl = SSL_new(r->ctx);
    SSL_set_bio(r->ssl, BIO_new(BIO_s_mem()), BIO_new(BIO_s_mem()));
    SSL_set_connect_state(r->ssl);
}

/* cert: a path without its suffix; NULL: none. */
static void raw_open(struct raw *r, const char *cert, int version_max)
{
    char path[256];

    memset(r, 0, sizeof(*r));
    r->fd = rig_connect_tcp(rig.control_port);
    r->ctx = SSL_CTX_new(TLS_client_method());
    SSL_CTX_set_max_proto_version(r->ctx, version_max);
    if (cert) {
        snprintf(path, sizeof(path), "%s/%s.pem", certs, cert);
        assert_int_equal(SSL_CTX_use_certificate_file(r->ctx, path, SSL_FILETYPE_PEM), 1);
        snprintf(path, sizeof(path), "%s/%s.key", certs, cert);
        assert_int_equal(SSL_CTX_use_PrivateKey_file(r->ctx, path, SSL_FILETYPE_PEM), 1);
    }
    raw_begin(r);
}

static void raw_close(struct raw *r)
{
    SSL_free(r->ssl);
    SSL_CTX_free(r->ctx);
    close(r->fd);
}

static bool raw_handshake(struct raw *r)
{
    int rc;

    while ((rc = SSL_do_handshake(r->ssl)) != 1) {
        bool more = SSL_get_error(r->ssl, rc) == SSL_ERROR_WANT_READ;

        if (!raw_flush(r) || !more || !raw_fill(r, RIG_WAIT_MS))
            return false;
    }
    return raw_flush(r);
}

static bool raw_put(struct raw *r, const void *bytes, size_t n)
{
    return SSL_write(r->ssl, bytes, (int)n) == (int)n && raw_flush(r);
}

static bool raw_get(struct raw *r, void *bytes, size_t n)
{
    uint8_t *at = bytes;

    while (n > 0) {
        int rc = SSL_read(r->ssl, at, (int)n);

        if (rc > 0) {
            at += rc;
            n -= (size_t)rc;
        } else if (SSL_get_error(r->ssl, rc) != SSL_ERROR_WANT_READ || !raw_fill(r, RIG_WAIT_MS)) {
            return false;
        }
    }
    return true;
}

static bool raw_message(struct raw *r, uint16_t type, uint64_t id, const ProtobufCMessage *m)
{
    static uint8_t frame[FRAME_HEADER_BYTES + 4096];
    struct frame_header h = {.version = FRAME_VERSION, .type = type, .request_id = id};
    size_t n;

    assert_int_equal(wire_encode(&h, m, 4096, frame, sizeof(frame), &n), TERN_OK);
    return raw_put(r, frame, n);
}

static bool raw_hello(struct raw *r, const char *node)
{
    Tern__Wire__PeerHello m = rig_peer_hello(node);

    return raw_message(r, FRAME_PEER_HELLO, 1, &m.base);
}

static const struct rig_answer *raw_read(struct raw *r)
{
    static struct rig_answer a;
    uint8_t head[FRAME_HEADER_BYTES];

    assert_true(raw_get(r, head, sizeof(head)));
    assert_int_equal(frame_decode(head, RIG_BODY_MAX, &a.h), TERN_OK);
    assert_true(raw_get(r, a.body, a.h.length));
    return &a;
}

/* Greets with the certificate of the peer "raw" and that name. Returns the daemon's answer. */
static enum tern_err raw_greets(struct raw *r, const char *node)
{
    const Tern__Wire__PeerHelloReply *m;

    raw_open(r, "raw", TLS1_3_VERSION);
    assert_true(raw_handshake(r));
    assert_true(raw_hello(r, node));
    m = rig_decoded(raw_read(r), FRAME_PEER_HELLO_REPLY);
    r->token = m->data_token;
    r->incarnation = m->incarnation;
    return m->status ? (enum tern_err)m->status->err : TERN_OK;
}

static void raw_up(struct raw *r)
{
    assert_int_equal(raw_greets(r, "raw"), TERN_OK);
}

static bool raw_closed(struct raw *r)
{
    return rig_until_closed(r->fd, RIG_WAIT_MS) != UINT32_MAX;
}

/* ---- the tests ---- */

TEST_GROUP(start, stop);

TEST(tls_two_daemons_find_each_other)
{
    json_t *answer, *tls;

    assert_true(admin_wait_peer(admin, "other", RIG_WAIT_MS));
    answer = admin_ask(admin, "peers", NULL);
    tls = json_at(answer, "peers.0.tls");
    assert_string_equal(json_string_value(json_object_get(tls, "version")), "TLSv1.3");
    assert_non_null(json_string_value(json_object_get(tls, "cipher")));
    assert_string_equal(json_string_value(json_object_get(tls, "peer_name")), "other");
    assert_int_equal(strlen(json_string_value(json_object_get(tls, "not_after"))), 20);
    assert_true(json_is_null(json_at(answer, "peers.1.tls.version"))); /* its peer is down */
    json_decref(answer);
    assert_true(rig_log_has(&other, "event=link_up", RIG_WAIT_MS));
    assert_true(rig_log_has(&rig, "dir=in", RIG_WAIT_MS)); /* and the peer dialled too */
}

static void comes_in_vain(const char *cert, int version, const char *reason)
{
    uint64_t before = refused(NULL, reason);
    static struct raw r;

    raw_open(&r, cert, version);
    if (raw_handshake(&r)) /* our side ends before the daemon has checked the certificate */
        raw_hello(&r, "raw");
    assert_true(raw_closed(&r));
    raw_close(&r);
    if (!counted(NULL, reason, before) || !logged(reason))
        fail_msg("%s: %s was not counted or not logged", cert ? cert : "none", reason);
}

TEST(tls_peers_that_prove_nothing_are_refused)
{
    static struct raw r;

    raw_up(&r); /* a good one is let in, else the others prove nothing */
    raw_close(&r);
    comes_in_vain(NULL, TLS1_3_VERSION, "no_certificate");
    comes_in_vain("evil/raw", TLS1_3_VERSION, "wrong_ca");
    comes_in_vain("stranger", TLS1_3_VERSION, "wrong_name");
    assert_true(rig_log_has(&rig, "from=127.0.0.1:", RIG_WAIT_MS));
    assert_true(rig_log_has(&rig, "its certificate names \\\"stranger\\\", which is not a peer",
                            RIG_WAIT_MS));
    comes_in_vain("late", TLS1_3_VERSION, "expired");
    comes_in_vain("raw", TLS1_2_VERSION, "old_version");
    assert_true(rig_alive(&rig));
}

/* A certificate of one peer, the name of another. */
TEST(tls_hello_has_to_be_of_the_name_in_the_certificate)
{
    uint64_t before = refused(NULL, "wrong_name");
    static struct raw r;

    assert_int_equal(raw_greets(&r, "other"), TERN_DENIED);
    assert_int_equal(r.token, 0);
    assert_true(raw_closed(&r));
    raw_close(&r);
    assert_true(counted(NULL, "wrong_name", before));
}

TEST(tls_peer_in_the_clear_is_refused)
{
    Tern__Wire__PeerHello m = TERN__WIRE__PEER_HELLO__INIT;
    uint64_t before = refused(NULL, "clear_text");
    int fd = rig_connect_tcp(rig.control_port);

    m.node = (char *)(uintptr_t) "raw";
    assert_true(rig_message(fd, FRAME_PEER_HELLO, 1, 0, &m.base));
    assert_closed(fd, RIG_WAIT_MS);
    assert_true(counted(NULL, "clear_text", before) && logged("clear_text"));
}

TEST(tls_peer_that_says_nothing_is_given_up)
{
    uint64_t before = refused(NULL, "timeout"), start_ms = rig_now_ms();
    int fd = rig_connect_tcp(rig.control_port);

    assert_true(rig_until_closed(fd, RIG_TLS_MS + SLACK_MS) != UINT32_MAX);
    assert_true(rig_now_ms() - start_ms >= RIG_TLS_MS / 2);
    close(fd);
    assert_true(counted(NULL, "timeout", before) && logged("timeout"));
}

/* Returns how long a peer took while more stalled handshakes than the maximum were open. */
static uint64_t up_behind_half_open_ms(void)
{
    static struct raw half, good;
    uint64_t start_ms, took_ms;
    int fd[HALF_OPEN];

    raw_open(&half, "raw", TLS1_3_VERSION);
    SSL_do_handshake(half.ssl);
    assert_true(raw_flush(&half));
    start_ms = rig_now_ms();
    for (uint32_t i = 0; i < HALF_OPEN; i++) {
        fd[i] = rig_connect_tcp(rig.control_port);
        rig_write(fd[i], half.said, half.nsaid);
    }
    raw_up(&good);
    took_ms = rig_now_ms() - start_ms;
    for (uint32_t i = 0; i < HALF_OPEN; i++)
        close(fd[i]);
    raw_close(&good);
    raw_close(&half);
    return took_ms;
}

/* Handshakes that stall after a good first record are dropped long before their deadline, for a
 * peer that continues. A machine that stalled meanwhile proves nothing. */
TEST(tls_handshakes_that_stand_still_keep_no_peer_out)
{
    uint32_t tries = 0;

    while (up_behind_half_open_ms() >= RIG_TLS_MS)
        assert_true(++tries < HALF_OPEN_TRIES);
}

static uint64_t handshakes(void)
{
    json_t *answer = admin_ask(admin, "peers", NULL);
    uint64_t n = json_get_u64(json_object_get(answer, "tls"), "handshakes");

    json_decref(answer);
    return n;
}

static uint64_t over_rate(void)
{
    json_t *answer = admin_ask(admin, "status", NULL);
    uint64_t n =
        json_get_u64(json_row(json_object_get(answer, "doors"), "door", "peers"), "over_rate");

    json_decref(answer);
    return n;
}

/* Good first records from one address, one connection after the other: the daemon signs at a
 * limited rate, and closes the rest. A peer of another address gets in meanwhile. */
TEST(tls_handshakes_of_an_address_have_a_rate)
{
    static struct raw half, good;
    const struct sockaddr_in from = {.sin_family = AF_INET,
                                     .sin_addr.s_addr = htonl(INADDR_LOOPBACK + 8)},
                             to = {.sin_family = AF_INET,
                                   .sin_port = htons(rig.control_port),
                                   .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    uint64_t before = handshakes(), start_ms = rig_now_ms(), most;
    int fd[STORM];

    raw_open(&half, NULL, TLS1_3_VERSION);
    SSL_do_handshake(half.ssl);
    assert_true(raw_flush(&half));
    for (uint32_t i = 0; i < STORM; i++) {
        fd[i] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        assert_int_equal(bind(fd[i], (const struct sockaddr *)&from, sizeof from), 0);
        assert_int_equal(connect(fd[i], (const struct sockaddr *)&to, sizeof to), 0);
        rig_write(fd[i], half.said, half.nsaid);
        shutdown(fd[i], SHUT_WR); /* ends a handshake that has begun, which frees its place */
        if (i % STORM_PIECE == 0)
            usleep(STORM_PIECE_US); /* as many as can be in a handshake at a time */
    }
    raw_up(&good);
    assert_true(rig_log_has(&rig, "event=handshakes_over_rate door=peers", RIG_WAIT_MS));
    assert_true(over_rate() > 0);
    most = STORM_RATE * (DOOR_BURST_S + 1 + (rig_now_ms() - start_ms) / 1000) + STORM_OTHERS;
    assert_in_range(handshakes() - before, STORM_RATE, most);
    for (uint32_t i = 0; i < STORM; i++)
        close(fd[i]);
    raw_close(&good);
    raw_close(&half);
}

/* Fault 27: somebody who has recorded all bytes of a good peer replays them. */
TEST(tls_recorded_connection_said_again_is_refused)
{
    static struct raw r;
    uint32_t runs = 0;
    uint64_t before;

    raw_up(&r);
    close(r.fd);
    before = refused(NULL, "bad_record");
    for (; runs < 3; runs++) {
        int fd = rig_connect_tcp(rig.control_port);

        rig_write(fd, r.said, r.nsaid);
        assert_closed(fd, RIG_WAIT_MS);
        assert_true(counted(NULL, "bad_record", before + runs));
    }
    r.fd = -1;
    raw_close(&r);
    printf("fault=27 runs=%u injected=%u violations=0 applied=0\n", runs, runs);
}

/* One record is sent twice on a link that is up, by someone in between. */
TEST(tls_record_said_again_ends_the_link)
{
    Tern__Wire__Empty m = TERN__WIRE__EMPTY__INIT;
    uint64_t before = refused("raw", "bad_record");
    static struct raw r;
    size_t at;

    raw_up(&r);
    at = r.nsaid;
    assert_true(raw_message(&r, FRAME_PING, 9, &m.base));
    assert_int_equal(raw_read(&r)->h.type, FRAME_PING_REPLY);
    assert_true(rig_write(r.fd, r.said + at, r.nsaid - at));
    assert_true(raw_closed(&r));
    raw_close(&r);
    assert_true(counted("raw", "bad_record", before));
}

/* ---- the data port ---- */

/* Returns true if a connection that sends that on the data port is closed within `ms`. */
static bool data_closed(uint64_t incarnation, uint64_t token, uint32_t ms)
{
    uint8_t head[XFER_HEAD_BYTES];
    int fd = rig_connect_tcp(rig.data_port);
    bool closed;

    xfer_put_head(head, &(struct xfer_head){.type = XFER_HELLO, .a = incarnation, .b = token});
    assert_true(rig_write(fd, head, sizeof(head)));
    closed = rig_until_closed(fd, ms) != UINT32_MAX;
    close(fd);
    return closed;
}

static void data_refused(uint64_t incarnation, uint64_t token)
{
    assert_true(data_closed(incarnation, token, RIG_AT_ONCE_MS));
}

TEST(tls_data_port_needs_the_token_of_a_link_that_is_up)
{
    static struct raw r;
    uint32_t downs;

    raw_up(&r);
    assert_true(r.token != 0);
    assert_false(data_closed(r.incarnation, r.token, 300)); /* let in */
    data_refused(r.incarnation, 0);
    data_refused(r.incarnation, r.token ^ 2);
    data_refused(r.incarnation, RIG_PEER);
    data_refused(r.incarnation ^ 1, r.token);
    assert_true(rig_log_has(&rig, "event=data_refused", RIG_WAIT_MS));
    downs = link_downs("raw");
    shutdown(r.fd, SHUT_RDWR);
    raw_close(&r);
    wait_until(link_downs("raw") > downs);
    data_refused(r.incarnation, r.token); /* it ended with the link */
}

/* ---- other files ---- */

static void live(const char *from)
{
    shell("cp %s/%s/e2e.pem %s/live.pem; cp %s/%s/e2e.key %s/live.key", certs, from, certs, certs,
          from, certs);
}

static bool server_is_of(const char *ca)
{
    static struct raw r;
    char path[256];
    bool yes;

    raw_open(&r, "raw", TLS1_3_VERSION);
    snprintf(path, sizeof(path), "%s/%s", certs, ca);
    SSL_CTX_load_verify_locations(r.ctx, path, NULL);
    raw_begin(&r);
    assert_true(raw_handshake(&r));
    yes = SSL_get_verify_result(r.ssl) == X509_V_OK;
    raw_close(&r);
    return yes;
}

TEST(tls_reload_keeps_links_and_bad_files_change_nothing)
{
    const char *not_after;
    uint32_t downs;
    json_t *answer;

    assert_true(admin_wait_peer(admin, "other", RIG_WAIT_MS));
    downs = link_downs("other");
    shell("echo nonsense > %s/live.pem", certs);
    kill(rig.pid, SIGHUP);
    assert_true(rig_log_has(&rig, "event=reload_failed", RIG_WAIT_MS));
    assert_null(admin_ask(admin, "reload", NULL)); /* and the operator gets the reason */
    assert_non_null(strstr(tern_error_text(admin, NULL), "live.pem"));
    assert_true(server_is_of("ca.pem"));
    live("evil"); /* of another CA: it still has our name */
    kill(rig.pid, SIGHUP);
    assert_true(rig_log_has(&rig, "event=reloaded", RIG_WAIT_MS));
    assert_false(server_is_of("ca.pem"));
    assert_true(server_is_of("evil/ca.pem"));
    live(".");
    answer = admin_ask(admin, "reload", NULL);
    not_after = json_string_value(json_object_get(answer, "not_after"));
    assert_non_null(not_after); /* a date: 2031-11-29T08:35:07Z */
    assert_int_equal(strlen(not_after), 20);
    assert_int_equal(strspn(not_after, "0123456789-T:Z"), 20);
    json_decref(answer);
    assert_true(server_is_of("ca.pem"));
    usleep(300000);
    assert_int_equal(link_downs("other"), downs);
    assert_true(admin_peer_up(admin, "other"));
}

/* Checks the reported reason why "other", the first of the peers, is down. */
static void assert_last_error(const char *begins)
{
    json_t *answer = admin_ask(admin, "peers", NULL),
           *error = json_at(answer, "peers.0.last_error");

    if (!begins)
        assert_true(json_is_null(error));
    else
        assert_memory_equal(json_string_value(error), begins, strlen(begins));
    json_decref(answer);
}

/* The peer comes back with a certificate of another CA, at the right address and with the right
 * name. */
TEST(tls_real_peer_of_another_ca_is_refused_both_ways)
{
    uint16_t port = other.control_port;
    char evil[128];

    assert_int_equal(rig_stop(&other), 0);
    snprintf(evil, sizeof(evil), "%s/evil", certs);
    start_other(port, rig.control_port, evil);
    assert_true(counted("other", "wrong_ca", 0)); /* we dialled it */
    assert_last_error("TLS refused: wrong_ca: ");
    assert_true(rig_log_has(&other, "reason=refused_by_peer", RIG_WAIT_MS));
    assert_false(admin_peer_up(admin, "other"));
    assert_int_equal(rig_stop(&other), 0);
    start_other(port, rig.control_port, certs);
    assert_true(admin_wait_peer(admin, "other", RIG_WAIT_MS));
    assert_last_error(NULL);
}
