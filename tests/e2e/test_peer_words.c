/* A listed peer sends what no peer may send: as a source and as a puller every error number,
 * lengths and counts out of range, and messages out of turn. The engine gets only errors of the
 * table (core/transfer/peer_words.h), no alarm names this host, and the daemon continues. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "core/transfer/peer_words.h"
#include "engine/admin.h"
#include "engine/json.h"
#include "rig_daemon.h"
#include "testing/test.h"

#define ERRORS  40u /* numbers below that are sent */
#define TOKENS  64u
#define POOL    (4u << 20)
#define POLL_MS 50

static struct daemon rig;
static struct tern *admin;
static struct engine e;
static int listener;
static uint32_t prompts;

/* The source, a thread of its own: it answers each PULL_OPEN with `says`. */
static struct {
    pthread_t thread;
    uint16_t port;
    atomic_bool ends;
    atomic_uint opens, links;
    Tern__Wire__PeerMsg says;
    struct rig_answer got;
} source;

static void answer_open(int fd, uint64_t *sequence)
{
    const Tern__Wire__PeerMsg *open = rig_decoded(&source.got, FRAME_PEER_MSG);
    Tern__Wire__PeerMsg m = source.says;

    if (open->kind != PEER_PULL_OPEN)
        return;
    m.has_kind = m.has_pull = m.has_sequence = true;
    m.pull = open->pull;
    m.sequence = ++*sequence;
    source.opens++;
    rig_message(fd, FRAME_PEER_MSG, 0, 0, &m.base);
}

static void *serve(void *unused)
{
    uint64_t sequence = 0;
    int fd = -1;

    (void)unused;
    while (!source.ends) {
        enum rig_end end;

        if (fd < 0) {
            fd = rig_accept(listener, POLL_MS);
            if (fd < 0)
                continue;
            sequence = 0;
            if (!rig_hello_answered(fd, "other", source.port, false)) {
                close(fd); /* the daemon has given up this connection, and dials again */
                fd = -1;
                continue;
            }
            source.links++;
        }
        end = rig_read(fd, POLL_MS, &source.got);
        if (end == RIG_CLOSED) {
            close(fd);
            fd = -1;
        } else if (end == RIG_FRAME && source.got.h.type == FRAME_PING) {
            Tern__Wire__Empty m = TERN__WIRE__EMPTY__INIT;

            rig_message(fd, FRAME_PING_REPLY, source.got.h.request_id, 0, &m.base);
        } else if (end == RIG_FRAME && source.got.h.type == FRAME_PEER_MSG) {
            answer_open(fd, &sequence);
        }
    }
    if (fd >= 0)
        close(fd);
    return NULL;
}

FIXTURE(start)
{
    char extra[256];

    memset(&source, 0, sizeof source);
    listener = rig_listen(&source.port);
    snprintf(extra, sizeof extra,
             "listen: 127.0.0.1:0\ninsecure_peers: true\npeers:\n  - name: other\n"
             "    address: 127.0.0.1:%u\n    tenants: [t0]\n    transport: tcp\n",
             source.port);
    rig_start(&rig, extra, NULL);
    admin = rig_connected(rig.admin);
    assert_int_equal(pthread_create(&source.thread, NULL, serve, NULL), 0);
    rig_wait_linked(&rig, "other");
    e = rig_engine(rig.socket, "engine", TOKENS, POOL);
    return 0;
}

FIXTURE(stop)
{
    source.ends = true;
    pthread_join(source.thread, NULL);
    close(listener);
    engine_close(&e);
    tern_destroy(admin);
    assert_int_equal(rig_stop(&rig), 0);
    return 0;
}

/* Returns what the engine gets for a fetch of a prompt of its own. */
static enum tern_err heard(void)
{
    uint32_t tokens[TOKENS];
    struct engine_session s;
    enum tern_err err;

    for (uint32_t i = 0; i < TOKENS; i++)
        tokens[i] = prompts * TOKENS + i;
    prompts++;
    assert_ok(e.tern, engine_begin(&s, &e, tokens, TOKENS));
    err = engine_fetch(&s, "other", 0, RIG_WAIT_MS);
    assert_ok(e.tern, engine_end(&s));
    return err;
}

/* Counts the alarms that are on, except that of the peer's own link. */
static size_t alarms_of_us(void)
{
    json_t *status = admin_ask(admin, "status", NULL), *row;
    size_t i, n = 0;

    json_array_foreach(json_object_get(status, "alarms"), i, row)
    {
        n += !json_says(row, "name", "peer_down");
    }
    json_decref(status);
    return n;
}

static void says_each_error(enum peer_msg_kind kind)
{
    uint64_t before = rig_figure(admin, "peers", "peers.0.breaches");
    const uint32_t opens = source.opens, links = source.links;
    uint32_t refused = 0;

    source.says = (Tern__Wire__PeerMsg)TERN__WIRE__PEER_MSG__INIT;
    source.says.has_err = true;
    source.says.kind = kind;
    for (uint32_t word = 0; word <= ERRORS; word++) {
        source.says.err = word;
        refused += peer_err_heard(kind, word) != word;
        assert_err(peer_err_heard(kind, word), heard());
    }
    assert_int_equal(source.opens - opens, ERRORS + 1);
    assert_int_equal(source.links, links);
    assert_int_equal(rig_figure(admin, "peers", "peers.0.breaches") - before, refused);
    assert_true(rig_log_has(&rig, "event=peer_word_refused peer=other", RIG_WAIT_MS));
    assert_int_equal(alarms_of_us(), 0);
    assert_int_equal(rig_figure(admin, "status", "errors.INTERNAL"), 0);
    assert_int_equal(rig_figure(admin, "status", "errors.DAEMON_LOST"), 0);
}

TEST_GROUP(start, stop);

TEST(offers_of_a_source_say_no_error_of_this_host)
{
    says_each_error(PEER_PULL_OFFER);
    assert_true(rig_log_has(&rig, "word=15 err=DAEMON_LOST heard=PEER_LOST", RIG_WAIT_MS));
}

TEST(aborts_of_a_source_say_no_error_of_this_host)
{
    says_each_error(PEER_PULL_ABORT);
}

/* An empty offer with one field out of range: the link ends, and so does the fetch. */
static void ends_link(const Tern__Wire__PeerMsg *wrong, const char *reason)
{
    uint32_t links = source.links;
    char line[128];

    source.says = *wrong;
    assert_err(TERN_PEER_LOST, heard());
    snprintf(line, sizeof line, "dir=out reason=\"%s\"", reason);
    assert_true(rig_log_has(&rig, line, RIG_WAIT_MS));
    wait_until(source.links > links);
    rig_wait_linked(&rig, "other");
}

TEST(lengths_and_counts_of_a_source_have_bounds)
{
    Tern__Wire__PeerMsg m = TERN__WIRE__PEER_MSG__INIT, none = m;
    Tern__Wire__Run run = TERN__WIRE__RUN__INIT, *runs[] = {&run};

    none.kind = PEER_PULL_OFFER;
    none.has_handed = none.has_from = none.has_to = none.has_until = none.has_at = none.has_err =
        none.has_retry_ms = true;
    m = none;
    m.handed = UINT32_MAX;
    m.err = TERN_INVALID;
    ends_link(&m, "the message has a length above that of the longest possible session");
    m = none;
    m.to = SESSION_TOKENS_MAX + 1;
    ends_link(&m, "the message has a length above that of the longest possible session");
    m = none;
    m.from = TOKENS;
    ends_link(&m, "the message's lengths are not in ascending order");
    m = none;
    m.until = UINT32_MAX;
    ends_link(&m, "the message's lengths are not in ascending order");
    m = none;
    m.n_runs = 1;
    m.runs = runs;
    run.has_group = true;
    run.group = UINT32_MAX;
    ends_link(&m, "the message names pages of a group that no pool has");
    m = none;
    m.kind = PEER_PULL_MORE;
    m.err = TERN_INTERNAL;
    ends_link(&m, "the message has an error, and its kind allows none");
    m = none;
    m.kind = PEER_PULL_OPEN; /* only the puller sends that */
    m.to = 0;
    source.says = m;
    assert_err(TERN_PEER_LOST, heard());
    m = none;
    m.err = TERN_BUSY;
    m.retry_ms = UINT32_MAX; /* no pause is longer than PULL_RETRY_MS_MAX */
    rig_wait_linked(&rig, "other");
    source.says = m;
    assert_err(TERN_BUSY, heard());
    assert_int_equal(alarms_of_us(), 0);
}

/* Every message with every error from the dialling side: the link ends, or the daemon ignores
 * it. */
TEST(puller_that_says_anything_harms_nobody)
{
    static struct rig_answer answer;

    for (uint32_t kind = 0; kind <= PEER_MSG_COUNT; kind++) {
        int fd = rig_peer_dials(&rig, "other", &answer);
        uint64_t sequence = 0;

        for (uint32_t word = 0; word <= ERRORS && fd >= 0; word++) {
            Tern__Wire__PeerMsg m = TERN__WIRE__PEER_MSG__INIT;

            m.has_kind = m.has_err = m.has_sequence = m.has_serve = m.has_pull = m.has_history =
                m.has_at_least = m.has_until = true;
            m.kind = kind;
            m.err = word;
            m.serve = UINT64_MAX;
            m.pull = UINT64_MAX;
            m.history = m.at_least = UINT32_MAX;
            m.until = word % 2 ? UINT32_MAX : 0;
            m.sequence = ++sequence;
            if (rig_message(fd, FRAME_PEER_MSG, 0, 0, &m.base))
                continue;
            close(fd);
            fd = rig_peer_dials(&rig, "other", &answer);
            sequence = 0;
        }
        if (fd >= 0)
            close(fd);
    }
    source.says = (Tern__Wire__PeerMsg)TERN__WIRE__PEER_MSG__INIT;
    source.says.kind = PEER_PULL_OFFER;
    assert_err(TERN_OK, heard());
    assert_int_equal(alarms_of_us(), 0);
    rig_no_leak(admin, 0, POOL / RIG_PAGE - 1, RIG_WAIT_MS);
}
