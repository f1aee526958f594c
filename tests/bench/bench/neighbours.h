/* The parts of `tern-bench neighbours`: two daemons with two tenants. Tenant A fills a table in a
 * process of its own, and tenant B works beside it. `here` is the measured daemon, with small
 * limits; `there` is its peer. */
#ifndef BENCH_NEIGHBOURS_H
#define BENCH_NEIGHBOURS_H

#include "engine/daemon.h"
#include "engine/stats.h"
#include "member.h"

#define NEIGHBOUR_PAGE_TOKENS 64
#define NEIGHBOUR_PAGE_BYTES  4096
#define NEIGHBOUR_A           "a"
#define NEIGHBOUR_B           "b"
#define A_PER_S               1000u
#define A_HOLDS_MAX           512u

struct hosts {
    char dir[64];
    struct daemon here, there;      /* their sockets are tenant A's */
    char b_here[128], b_there[128]; /* tenant B's */
    struct tern *admin;             /* of `here`; owned */
    uint16_t control_port, data_port,
        mute_port; /* of `here`; mute_port: where `here` dials the mute peer */
    int mute_fd;   /* a listener for the mute peer, owned; -1: no such peer */
};

/* Set-up of `here`. large: small pages, and more memory; spills: a disk tier. */
struct hosts_needs {
    const char *limits; /* lines below `limits:` */
    bool mute;          /* one more peer, which its caller plays */
    bool large, spills;
};

/* Returns false with a message on standard error; hosts_stop is due in any case. */
bool hosts_start(struct hosts *h, const struct hosts_needs *needs);
void hosts_stop(struct hosts *h);

/* ---- tenant A ---- */

enum a_answer { A_DONE, A_REFUSED, A_FAILED };

struct a_tally {
    uint64_t requests, refused, failed, ns;
};

struct a_table;

/* Starts it; *ret_fd is for the calls below. */
pid_t a_start(const struct hosts *h, const struct a_table *table, int *ret_fd);
/* From now on over its share, or within it. Returns once the table is full, or A has freed what it
 * held; *ret has what A did until then. Returns false if A reached neither. */
bool a_turn(int fd, bool over, struct a_tally *ret);

/* ---- tenant B ---- */

enum b_kind {
    B_JOIN,
    B_CONNECT,
    B_MATCH,
    B_EXTEND,
    B_COMMIT,
    B_FETCH,
    B_CLOSE,
    B_TRANSFER,
    B_KINDS
};

#define B_PREFIXES 256 /* of its engine there: more than fit here */

struct tenant_b {
    const struct hosts *hosts;
    struct engine here, there;
    struct tern *changes; /* owned: subscribed to the changes here */
    struct engine_session kept[B_PREFIXES];
    uint32_t serial;
    uint64_t operations, failed, wrong; /* wrong: bytes that a fetch delivered wrong */
    struct series slice;                /* us, of the operations since b_begin */
    struct series kind[B_KINDS];
};

bool b_start(struct tenant_b *b, const struct hosts *h);
void b_stop(struct tenant_b *b);
/* One round: a connection that opens and closes, a conversation that is committed and closed, one
 * that is fetched from there, and one that the other daemon fetches from here. Lost changes of the
 * tree count as failed operations. */
void b_round(struct tenant_b *b);
/* Begins a turn: clears the times of the previous turn and joins an engine of B here. Returns false
 * if it cannot. At the end of the turn the engine leaves and frees everything, so that A can take
 * whatever is not reserved for B before the next engine joins. */
bool b_begin(struct tenant_b *b);
void b_leave(struct tenant_b *b);
/* Runs Matches for `ns` between b_begin and b_leave, one due each millisecond. Times count from
 * when each was due, so a stalled daemon is seen by every Match that had to wait for it. */
void b_watch(struct tenant_b *b, uint64_t ns);
const char *b_kind_name(enum b_kind kind);

#endif
