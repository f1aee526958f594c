/* What `tern-bench neighbours` is made of: two daemons with two tenants, of which tenant A fills a
 * table in a process of its own and tenant B works beside it. `here` is the measured daemon, with
 * small limits; `there` is its peer. */
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
};

/* `limits` goes below `limits:` of `here`. False with a message on standard error; hosts_stop is
 * due in any case. */
bool hosts_start(struct hosts *h, const char *limits);
void hosts_stop(struct hosts *h);

/* ---- tenant A ---- */

enum a_answer { A_DONE, A_REFUSED, A_FAILED };

struct a_tally {
    uint64_t requests, refused, failed, ns;
};

struct a_table;

/* Lives in A's own process. */
struct tenant_a {
    const struct a_table *table;
    const struct hosts *hosts;
    struct engine engine; /* here */
    struct a_tally tally;
    uint64_t serial; /* of what must be new each time */
    bool turn;       /* of two requests that undo each other, the second is due */
    uint64_t held[A_HOLDS_MAX];
    struct tern *conns[A_HOLDS_MAX];
    uint32_t nheld, nconns;
};

/* A table that tenants share and how A uses it. `over` takes a record and keeps it; `within` is a
 * request of the same kind that keeps nothing. */
struct a_table {
    const char *name;   /* in the JSON */
    const char *limits; /* of `here`; NULL: none that matter */
    const char *says;   /* a refusal's words, without which it is none; NULL: it has none */
    bool (*open)(struct tenant_a *a);
    enum a_answer (*over)(struct tenant_a *a);
    enum a_answer (*within)(struct tenant_a *a);
    bool (*release)(struct tenant_a *a); /* of all that `over` keeps */
};

/* That many tables, in the order of the rows. */
const struct a_table *a_tables(uint32_t *ret_n);

/* Starts it; *ret_fd is for the calls below. */
pid_t a_start(const struct hosts *h, const struct a_table *table, int *ret_fd);
/* From now on over its share, or within it: returns once the table is full, or A has given back
 * what it held. What it did until then is in *ret. False: it came to neither. */
bool a_turn(int fd, bool over, struct a_tally *ret);

/* ---- tenant B ---- */

enum b_kind { B_MATCH, B_EXTEND, B_COMMIT, B_FETCH, B_CLOSE, B_TRANSFER, B_KINDS };

#define B_PREFIXES 256 /* that its engine there keeps: more than fit here */

struct tenant_b {
    struct engine here, there;
    struct engine_session kept[B_PREFIXES];
    uint32_t serial;
    uint64_t operations, failed, wrong; /* wrong: bytes that a fetch brought */
    struct series slice;                /* us, of the operations since b_clear */
    struct series kind[B_KINDS];
};

bool b_start(struct tenant_b *b, const struct hosts *h);
void b_stop(struct tenant_b *b);
/* One conversation that is committed and closed, one that is fetched from there, and one that the
 * other daemon fetches from here. */
void b_round(struct tenant_b *b);
void b_clear(struct tenant_b *b);
const char *b_kind_name(enum b_kind kind);

#endif
