/* The world of fuzz_core: two daemons, three engines, and the late accesses of their devices. The
 * files of this folder are the engines' side; fuzz_core.c parses the bytes, makes the faults and
 * checks the end. */
#ifndef FUZZ_CORE_WORLD_H
#define FUZZ_CORE_WORLD_H

#include <string.h>

#include "unit/rig/rig.h"

#define ACTORS      3
#define SESSIONS    4 /* of an actor */
#define LATE_MAX    256
#define SEQUENCE    40 /* tokens */
#define GROUPS      4
#define PINS_MAX    8
#define RECORDS_MAX 16 /* of a session */
#define GHOSTS_MAX  32
#define TURN_NS     3000000000u
#define expect(x)   ((x) ? (void)0 : rig_fail("%s:%d: %s", __FILE__, __LINE__, #x))

enum { SHAPE_SHORT = 1, SHAPE_LONG = 2, SHAPE_RECURRENT = 4, SHAPE_STATE = 7 };

/* A page that an engine may still write, or still reads, until each of its ranks has done
 * `step`. */
struct late {
    uint64_t step;
    uint32_t group, index, ranks; /* ranks: bits of those that have not passed yet */
    const struct rig_session *of; /* RETRACT: a Recover returns the page to it. Else NULL */
    bool reads;
    uint8_t bytes[64]; /* contents that it reads there */
};

/* A turn record, in the engine's knowledge. */
struct record {
    struct record_body body;
    enum record_kind kind;
    uint32_t sequence, uid, bad; /* bad: the invalid token; NONE: all are valid */
    bool dropped;
};

struct turn {
    struct session_id own, old; /* own: the session's handle; old: of the last turn that is over */
    bool in, prepared, late;    /* late: the turn was over before its put was answered */
    uint64_t begun, put, step;  /* put: request id; 0: none is under way */
    uint32_t n, rolled;
    struct record next, list[RECORDS_MAX];
};

struct actor {
    struct rig *rig;
    const char *name;
    uint32_t world, shares; /* shares: the actor whose pool this one maps, or itself */
    bool alive, dying; /* dying: some of its processes live on, and write wherever they could */
    struct rig_engine e;
    struct pool_id pool;
    uint64_t done[RANKS_MAX];
    struct rig_session *s[SESSIONS];
    bool open[SESSIONS];
    uint64_t fetch[SESSIONS];   /* request id of a fetch that has no answer; 0: none */
    bool away[SESSIONS];        /* retracted, and not recovered */
    uint64_t recover[SESSIONS]; /* as fetch */
    uint64_t left[SESSIONS];    /* the step until which a Retract's pages are in use */
    struct late late[LATE_MAX];
    uint32_t nlate, ngroups, nghosts, uid;
    struct turn turn[SESSIONS];
    struct record_body ghost[GHOSTS_MAX]; /* prepared by turns that never ended */
    struct group_layout groups[GROUPS];
};

struct world {
    struct rig *rig[2];
    struct actor actor[ACTORS];
    const uint8_t *in;
    size_t n;
    uint32_t respawns, admin[2], shape; /* shape: which groups the pools have */
    struct event copied[2];             /* the last acknowledgement of a copy */
    struct node_id pin[2][PINS_MAX];
    uint32_t npins[2];
};
/* The next byte; 0 at the end. */
uint32_t take(struct world *w);
/* Eight sequences that differ from token 8, 16 or 20 on. */
const uint32_t *sequence(uint32_t k);

/* ---- device.c: what steps under way still read and write ---- */

/* Remembers page `ref`, which the table has lost, until every rank has passed `step`. */
void remember(struct actor *a, uint64_t step, uint32_t group, struct page_ref ref, bool reads);
void rank_done(struct actor *a, uint32_t rank, uint64_t step);
uint64_t done_min(const struct actor *a);
void write_late(struct actor *a);
/* Writes where an unfinished transfer or copy may write at any time. */
void scribble(struct rig *rig, enum rig_job_kind kind); /* RIG_PULL or RIG_COPY */

/* ---- sessions.c ---- */

/* Operations on a session, by number: 0 to 12, and these. */
enum { GIVE_WAY = 13, COME_BACK, FETCH_HOST };

void play_session(struct world *w, struct actor *a, uint32_t kind);
/* P1: every running session has its own bytes. play_session checks the one that it plays. */
void verify(struct actor *a);
/* Processes late answers. */
void fetches(struct actor *a);
void recovers(struct actor *a);

/* The daemon has dropped the session's table: pages may be in use until `step`. */
void table_lost(struct actor *a, uint32_t i, uint64_t step);

/* ---- turns.c ---- */

void turn_op(struct world *w, struct actor *a, uint32_t which);
void turn_opened(struct actor *a, uint32_t i);
void turn_closed(struct actor *a, uint32_t i);
void turns_pass(struct actor *a); /* time has passed */
void turns_lost(struct actor *a); /* its connection is closed */
void puts_answered(struct actor *a);
/* A session waits until it knows whether it still has its table. */
bool rolling_back(const struct actor *a, uint32_t i);
void verify_records(const struct actor *a);
void write_prepared(struct actor *a);

/* ---- host.c: faults of the host tier, resets, pins ---- */

void host_op(struct world *w, struct actor *a, uint32_t which);
void unpin(struct world *w, uint32_t d);
void note_copied(void *ctx, const struct event *event);

#endif
