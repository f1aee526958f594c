/* A real ternd with its own folder and configuration, and raw sockets to send it wrong input. For
 * end-to-end tests; every function fails the test by itself (cmocka), so callers need not check
 * errors. */
#ifndef E2E_RIG_DAEMON_H
#define E2E_RIG_DAEMON_H

#include <jansson.h>

#include "base/err.h"
#include "engine/daemon.h"
#include "engine/engine.h"
#include "proto/codec.h"

#define RIG_WAIT_MS     60000 /* for expected events: an upper limit, never waited for */
#define RIG_AT_ONCE_MS  4000  /* below the daemon's own deadlines: none has passed by then */
#define RIG_PARTIAL_MS  600   /* deadlines, where a test sets them: short enough to wait for */
#define RIG_SLOW_MS     600
#define RIG_TLS_MS      2500 /* a handshake must fit in it, even on a slow machine */
#define RIG_DRAIN_MS    1500
#define RIG_STOP_MS     9000 /* for a daemon to end: less than its own drain_ms */
#define RIG_CONNS_MAX   24   /* of the one tenant */
#define RIG_BODY_MAX    (1u << 20)
#define RIG_NOFILE      "RIG_NOFILE="
#define RIG_FDS_MAX     4
#define RIG_PAGE        4096 /* bytes of rig_engine's pages */
#define RIG_DIR_BYTES   64
#define RIG_MEMORY      (16u << 20)
#define RIG_STATS_BYTES (FRAME_HEADER_BYTES + 3)
#define RIG_PEER        77u /* of the incarnations of peers that tests play */

/* A call of libtern on connection `t` succeeds; else the test fails with its error text. */
#define assert_ok(t, expr)                                                                         \
    do {                                                                                           \
        enum tern_err err_ = (expr);                                                               \
        if (err_ != TERN_OK)                                                                       \
            fail_msg("%s: %s: %s", #expr, err_name(err_), tern_error_text(t, NULL));               \
    } while (0)

/* The daemon closes connection `fd` within `ms`, whatever it sends before. */
#define assert_closed(fd, ms)                                                                      \
    do {                                                                                           \
        assert_true(rig_until_closed(fd, ms) != UINT32_MAX);                                       \
        close(fd);                                                                                 \
    } while (0)

/* The daemon closes the connection and sends nothing before. */
#define assert_closed_at_once(fd)                                                                  \
    do {                                                                                           \
        assert_int_equal(rig_read(fd, RIG_AT_ONCE_MS, &answer), RIG_CLOSED);                       \
        close(fd);                                                                                 \
    } while (0)

/* Loops until the condition holds; the test fails if it never does. */
#define wait_until(condition)                                                                      \
    for (uint64_t end_ms_ = rig_now_ms() + RIG_WAIT_MS; !(condition); usleep(1000))                \
        if (rig_now_ms() >= end_ms_)                                                               \
    fail_msg("waited in vain until %s", #condition)

#define assert_err(want, expr) assert_string_equal(err_name(expr), err_name(want))

/* Settings of daemons started from now on; 0: the daemon's own, which a test does not reach. */
struct rig_deadlines {
    uint32_t progress_ms, step_alarm_ms, turn_ms;
};
extern struct rig_deadlines rig_deadlines;
/* Likewise for each tenant: bytes for turn records; 0: none. */
extern uint64_t rig_record_memory;
/* Likewise for t0: bytes for pages; 0: RIG_MEMORY. */
extern uint64_t rig_memory;

/* `extra`: YAML at the top level. `env`: one NAME=VALUE for the daemon, or NULL; RIG_NOFILE
 * followed by a number sets its limit of descriptors. */
void rig_start(struct daemon *d, const char *extra, const char *env);
/* The same with another name than "e2e". */
void rig_start_node(struct daemon *d, const char *node, const char *extra, const char *env);
/* With a second tenant, t1, whose socket is beside t0's. `extra` continues the settings of t1. */
void rig_start_two(struct daemon *d, char ret_other[SPAWN_PATH_BYTES], const char *extra);
/* Two daemons that are each other's peer, in a folder of their own: see daemon_start_pair. */
void rig_start_pair(struct daemon *first, struct daemon *second, char ret_dir[RIG_DIR_BYTES],
                    struct daemon_options o[2]);
/* Returns a connection, to be freed with tern_destroy. */
struct tern *rig_connected(const char *socket);
/* Waits until its link to that peer is up. */
void rig_wait_linked(const struct daemon *d, const char *peer);
/* Waits until no session and no transfer of it has pages. */
void rig_wait_let_go(const struct daemon *d);
/* Repeats the fetch while the daemon is BUSY, and applies its answer to the session. */
enum tern_err rig_fetch_ticket(struct engine_session *to, const struct tern_ticket *ticket,
                               struct tern_result *ret);
/* An engine of one process and its pool: one group of full attention, pages of RIG_PAGE bytes. */
struct engine rig_engine(const char *socket, const char *name, uint32_t page_tokens,
                         uint64_t bytes);
/* Sends SIGTERM and removes the folder. Returns the exit status, -1 if killed after RIG_STOP_MS. */
int rig_stop(struct daemon *d);
/* For fixtures: the same if the daemon runs. The exit status must be 0. Returns 0. */
int rig_end(struct daemon *d);
uint32_t rig_fds(const struct daemon *d); /* open in it */
bool rig_alive(const struct daemon *d);
uint64_t rig_cpu_ms(const struct daemon *d); /* used by all its threads */
uint64_t rig_rss_kib(const struct daemon *d);
/* The number at that path in the answer to an admin command; the test fails if there is none. */
uint64_t rig_figure(struct tern *admin, const char *command, const char *path);
/* Output of `ternctl --json` with these arguments, whatever its exit status; the test fails if it
 * is not JSON. */
json_t *rig_ctl(const char *arguments);
/* Runs `ternctl` with that command on that daemon, which must exit with 0. Returns true if its
 * output for people has these words. */
bool rig_ctl_says(const struct daemon *d, const char *command, const char *words);
/* Within `ms` everything possible is freed: nothing is in transfer or in quarantine, and all pages
 * of the pool (0: of all pools), `pages` of them, are free. */
void rig_no_leak(struct tern *admin, uint64_t pool, uint64_t pages, uint32_t ms);
/* Waits until the log has that text. */
bool rig_log_has(const struct daemon *d, const char *text, uint32_t ms);
/* The same, for that many occurrences. */
bool rig_log_has_times(const struct daemon *d, const char *text, uint32_t times, uint32_t ms);

/* ---- raw sockets ---- */

struct rig_answer {
    struct frame_header h;
    uint8_t body[RIG_BODY_MAX];
    int fds[RIG_FDS_MAX];
    uint32_t nfds;
};

enum rig_end { RIG_FRAME = 1, RIG_CLOSED = 0, RIG_NOTHING = -1 };

uint64_t rig_now_ms(void);
int rig_connect(const char *path);
int rig_connect_tcp(uint16_t port);
/* Returns false if the daemon had closed the connection. */
bool rig_write(int fd, const void *bytes, size_t n);
bool rig_frame(int fd, uint16_t type, uint64_t id, const void *body, size_t n);
bool rig_message(int fd, uint16_t type, uint64_t id, uint64_t session, const ProtobufCMessage *m);
/* Waits `ms` for a frame to begin, then reads all of it, however slowly it arrives. */
enum rig_end rig_read(int fd, uint32_t ms, struct rig_answer *ret);
/* Makes n Stats requests with ids from first_id on, RIG_STATS_BYTES each. */
void rig_stats_frames(uint8_t *ret, uint32_t n, uint64_t first_id);
/* The error in field 1 of any answer. */
enum tern_err rig_status(const struct rig_answer *a);
/* The message in a frame, which must be of that type. Valid until the next call. */
const void *rig_decoded(const struct rig_answer *a, uint16_t type);
/* Returns a socket that daemons can dial, on that port; 0: on a free one, which is returned. */
int rig_listen(uint16_t *port);
/* Returns a connection that arrives within `ms`; -1: none. */
int rig_accept(int listener, uint32_t ms);
/* Returns the next dial: the daemon has given up those in the backlog, or will. */
int rig_accept_fresh(int listener);
/* Reads the hello of the daemon that dialled, and answers as that node. Returns false if the
 * connection has ended. For threads of tests, where no assertion may fail. */
bool rig_hello_answered(int fd, const char *node, uint16_t data_port, bool understands_rdma);
/* The same, which must succeed. */
void rig_answer_hello(int fd, const char *node, uint16_t data_port, bool understands_rdma);
/* The first message of a peer of that name; borrows the name. */
Tern__Wire__PeerHello rig_peer_hello(const char *node);
/* Dials the daemon as a peer of that name, and reads its answer. */
int rig_peer_dials(const struct daemon *d, const char *node, struct rig_answer *ret);
/* Connected and greeted, with request id 1. */
int rig_greeted(const char *path);
/* The same, repeated while the daemon is BUSY or out of connections (QUOTA): until it has seen
 * others leave. */
int rig_greeted_in_time(const char *path);
/* Ping is answered OK within `ms`. */
bool rig_ping(int fd, uint64_t id, uint32_t ms);
/* Discards input until the daemon closes. Returns the milliseconds that it took, or UINT32_MAX. */
uint32_t rig_until_closed(int fd, uint32_t ms);
/* Nests length-delimited field `field` in itself `levels` times; ends at `end`. Returns bytes. */
size_t rig_nest(uint8_t *end, uint32_t field, uint32_t levels);

#endif
