/* A real ternd of its own folder and configuration, and raw sockets to say wrong things to it. For
 * end-to-end tests; everything fails the test by itself (cmocka), so callers need not look at
 * errors. */
#ifndef E2E_RIG_DAEMON_H
#define E2E_RIG_DAEMON_H

#include <jansson.h>

#include "base/err.h"
#include "engine/daemon.h"
#include "engine/engine.h"
#include "proto/codec.h"

#define RIG_WAIT_MS     60000 /* for what must come: a limit alone, not to be waited for */
#define RIG_AT_ONCE_MS  4000  /* below the daemon's own deadlines: none of them has come */
#define RIG_PARTIAL_MS  600   /* deadlines, where a test sets them: short enough to wait for */
#define RIG_SLOW_MS     600
#define RIG_TLS_MS      2500 /* a handshake has to fit in it, on a slow machine too */
#define RIG_DRAIN_MS    1500
#define RIG_STOP_MS     9000 /* for a daemon to end: less than its own drain_ms is */
#define RIG_CONNS_MAX   24   /* of the one tenant */
#define RIG_BODY_MAX    (1u << 20)
#define RIG_NOFILE      "RIG_NOFILE="
#define RIG_FDS_MAX     4
#define RIG_PAGE        4096 /* bytes of rig_engine's pages */
#define RIG_DIR_BYTES   64
#define RIG_MEMORY      (16u << 20)
#define RIG_STATS_BYTES (FRAME_HEADER_BYTES + 3)
#define RIG_PEER        77u /* of the incarnations of peers that tests play */

/* A call of libtern on connection `t`: its own words where it fails. */
#define assert_ok(t, expr)                                                                         \
    do {                                                                                           \
        enum tern_err err_ = (expr);                                                               \
        if (err_ != TERN_OK)                                                                       \
            fail_msg("%s: %s: %s", #expr, err_name(err_), tern_error_text(t));                     \
    } while (0)

/* The daemon closes connection `fd` within `ms`, whatever it says before. */
#define assert_closed(fd, ms)                                                                      \
    do {                                                                                           \
        assert_true(rig_until_closed(fd, ms) != UINT32_MAX);                                       \
        close(fd);                                                                                 \
    } while (0)

/* The same with nothing more that it says. */
#define assert_closed_at_once(fd)                                                                  \
    do {                                                                                           \
        assert_int_equal(rig_read(fd, RIG_AT_ONCE_MS, &answer), RIG_CLOSED);                       \
        close(fd);                                                                                 \
    } while (0)

/* Loops until that holds; a test fails that waits in vain. */
#define wait_until(condition)                                                                      \
    for (uint64_t end_ms_ = rig_now_ms() + RIG_WAIT_MS; !(condition); usleep(1000))                \
        if (rig_now_ms() >= end_ms_)                                                               \
    fail_msg("waited in vain until %s", #condition)

#define assert_err(want, expr) assert_string_equal(err_name(expr), err_name(want))

/* Of daemons that are started from now on; 0: the daemon's own, which a test does not run into. */
struct rig_deadlines {
    uint32_t partial_frame_ms, slow_reader_ms, step_alarm_ms, tls_handshake_ms, turn_ms;
};
extern struct rig_deadlines rig_deadlines;
/* Of each tenant, likewise: bytes for turn records; 0: none. */
extern uint64_t rig_record_memory;
/* Of t0, likewise: bytes for pages; 0: RIG_MEMORY. */
extern uint64_t rig_memory;

/* `extra`: YAML at the top level. `env`: one NAME=VALUE for the daemon, or NULL; RIG_NOFILE with a
 * number behind it is its limit of descriptors. */
void rig_start(struct daemon *d, const char *extra, const char *env);
/* The same with another name than "e2e". */
void rig_start_node(struct daemon *d, const char *node, const char *extra, const char *env);
/* With a second tenant, t1, whose socket lies beside that of t0. `extra` goes on with t1. */
void rig_start_two(struct daemon *d, char ret_other[SPAWN_PATH_BYTES], const char *extra);
/* Two that are each other's peer, in a folder of their own: see daemon_start_pair. */
void rig_start_pair(struct daemon *first, struct daemon *second, char ret_dir[RIG_DIR_BYTES],
                    struct daemon_options o[2]);
/* Connected, to be let go with tern_destroy. */
struct tern *rig_connected(const char *socket);
/* Until its link to that peer is up. */
void rig_wait_linked(const struct daemon *d, const char *peer);
/* Until no session or transfer has pages of it any more. */
void rig_wait_let_go(const struct daemon *d);
/* Fetches it again while the daemon is BUSY, and takes what came. */
enum tern_err rig_fetch_ticket(struct engine_session *to, const struct tern_ticket *ticket,
                               struct tern_result *ret);
/* An engine of one process and its pool: one group of full attention, pages of RIG_PAGE bytes. */
struct engine rig_engine(const char *socket, const char *name, uint32_t page_tokens,
                         uint64_t bytes);
/* SIGTERM; the exit status, -1 if it had to be killed after RIG_STOP_MS. Removes the folder. */
int rig_stop(struct daemon *d);
/* For fixtures: the same, if the daemon runs. The exit status has to be 0. Returns 0. */
int rig_end(struct daemon *d);
uint32_t rig_fds(const struct daemon *d); /* that it holds */
bool rig_alive(const struct daemon *d);
uint64_t rig_cpu_ms(const struct daemon *d); /* that it has computed, all threads together */
uint64_t rig_rss_kib(const struct daemon *d);
/* The number at that path of what an admin command answers; the test fails where there is none. */
uint64_t rig_figure(struct tern *admin, const char *command, const char *path);
/* What `ternctl --json` prints with these arguments, whatever it ends with; the test fails where
 * that is no JSON. */
json_t *rig_ctl(const char *arguments);
/* Does `ternctl` print these words for people, with that command to that daemon? It ends with 0. */
bool rig_ctl_says(const struct daemon *d, const char *command, const char *words);
/* Whatever can go has gone within `ms`: nothing is transferred or in quarantine, and every page of
 * the pool (0: of all), as many as that, is free. */
void rig_no_leak(struct tern *admin, uint64_t pool, uint64_t pages, uint32_t ms);
/* Waits until the log holds that text. */
bool rig_log_has(const struct daemon *d, const char *text, uint32_t ms);
/* The same, so many times. */
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
/* False if the daemon had closed it. */
bool rig_write(int fd, const void *bytes, size_t n);
bool rig_frame(int fd, uint16_t type, uint64_t id, const void *body, size_t n);
bool rig_message(int fd, uint16_t type, uint64_t id, uint64_t session, const ProtobufCMessage *m);
/* Waits `ms` for a frame to begin, and reads all of it: what comes slowly is not left in the
 * middle. */
enum rig_end rig_read(int fd, uint32_t ms, struct rig_answer *ret);
/* So many Stats requests with that id and the next ones, RIG_STATS_BYTES each. */
void rig_stats_frames(uint8_t *ret, uint32_t n, uint64_t first_id);
/* The error in field 1 of any answer. */
enum tern_err rig_status(const struct rig_answer *a);
/* The message in a frame, which has to be of that type. Valid until the next call. */
const void *rig_decoded(const struct rig_answer *a, uint16_t type);
/* A socket that daemons can dial, on that port; 0: on one that is set. */
int rig_listen(uint16_t *port);
/* Who dials it within `ms`; -1: nobody. */
int rig_accept(int listener, uint32_t ms);
/* The next dial: those that wait have been given up by the daemon, or will be. */
int rig_accept_fresh(int listener);
/* Reads the hello of the daemon that dialled, and answers as that node. False: the connection has
 * ended. A thread of its own asks so, since no assertion may fail there. */
bool rig_hello_answered(int fd, const char *node, uint16_t data_port, bool understands_rdma);
/* The same, which has to succeed. */
void rig_answer_hello(int fd, const char *node, uint16_t data_port, bool understands_rdma);
/* What a peer of that name says first; borrows it. */
Tern__Wire__PeerHello rig_peer_hello(const char *node);
/* Dials the daemon as a peer of that name, and reads what it answers to that. */
int rig_peer_dials(const struct daemon *d, const char *node, struct rig_answer *ret);
/* Connected and greeted, with request id 1. */
int rig_greeted(const char *path);
/* The same, asked again while the daemon is BUSY or has connections enough (QUOTA): until it has
 * seen who went. */
int rig_greeted_in_time(const char *path);
/* Ping is answered OK within `ms`. */
bool rig_ping(int fd, uint64_t id, uint32_t ms);
/* Reads and throws away until the daemon closes; milliseconds it took, or UINT32_MAX. */
uint32_t rig_until_closed(int fd, uint32_t ms);
/* Field `field`, length-delimited, inside itself so many times; ends at `end`. Its bytes. */
size_t rig_nest(uint8_t *end, uint32_t field, uint32_t levels);

#endif
