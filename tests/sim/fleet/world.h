/* The simulator's fleets: three daemons of which each may fetch from each, and from itself, and
 * which join, leave, lose each other and are restarted, with other limits, budgets and layouts.
 * What counts here is what daemons know through others: resets over two hops (N1), and prefixes
 * that came from more than one source.
 *
 * A history is a struct fconfig and a list of choices. Every choice is legal in every state, so a
 * failing list can be shrunk by leaving choices out. config.c draws both, play.c carries the
 * choices out over the rig of the unit tests, model.c says what may be found where, and which reset
 * may take effect; it takes nothing from the core but what is found. */
#ifndef FLEET_WORLD_H
#define FLEET_WORLD_H

#include <setjmp.h>
#include <stdio.h>
#include <string.h>

#include "base/prng.h"
#include "unit/rig/rig_spill.h"

#define FLEET          3u
#define FLEET_CHOICES  128u
#define FLEET_SPACES   2u
#define FLEET_VARIANTS 2u
#define FLEET_UNIT     16u /* tokens: of each layout's page the multiple */
#define FLEET_UNITS    4u  /* of a sequence */
#define FLEET_RESETS   64u
#define FLEET_ASKS     4u /* fetches of a daemon at a time */

/* X(name): what a history runs with. away: bit 3 i + k: i and k are no peers at first. own: a bit
 * for each daemon that is its own peer. by_hand: messages wait until a choice delivers them. */
#define FLEET_FIELDS(X)                                                                            \
    X(seed)                                                                                        \
    X(away)                                                                                        \
    X(own)                                                                                         \
    X(by_hand)                                                                                     \
    X(ample)                                                                                       \
    X(disk)                                                                                        \
    X(layouts)

struct fconfig {
#define X(name) uint32_t name;
    FLEET_FIELDS(X)
#undef X
};

/* X(name, weight, least): what a history can do; in how many of 10,000 fleets it has to have done
 * something. */
#define FLEET_KINDS(X)                                                                             \
    X(commit, 40, 5000)                                                                            \
    X(fetch, 40, 4000)                                                                             \
    X(again, 30, 500) /* a session goes on from another source */                                  \
    X(reset, 10, 5000)                                                                             \
    X(repeat, 10, 2000) /* of the last reset, as an engine does whose peers were away */           \
    X(up, 30, 5000)                                                                                \
    X(down, 10, 4000)                                                                              \
    X(deliver, 90, 3000)                                                                           \
    X(work, 40, 2000)                                                                              \
    X(restart, 8, 4000)                                                                            \
    X(leave, 4, 500)                                                                               \
    X(join, 5, 500)                                                                                \
    X(evict, 3, 500)                                                                               \
    X(time, 4, 1500)

enum fkind {
#define X(name, weight, least) FLEET_##name,
    FLEET_KINDS(X)
#undef X
        FLEET_KIND_COUNT
};

/* Named states that histories have to reach, beside those of the kinds. */
#define FLEET_MARKS(X)                                                                             \
    X(reset_over_two_hops, 500)                                                                    \
    X(reset_heard_by_all, 3000)                                                                    \
    X(reset_told_again, 500) /* and it took no effect */                                           \
    X(two_sources, 100)                                                                            \
    X(other_layout, 500)                                                                           \
    X(disk_outlives_a_life, 20)

enum fmark {
    FMARK_BEGIN = FLEET_KIND_COUNT - 1,
#define X(name, least) FMARK_##name,
    FLEET_MARKS(X)
#undef X
        FMARK_END
};

struct fchoice {
    uint8_t kind;
    uint32_t a, r;
};

struct fhistory {
    uint64_t seed;
    struct fconfig cfg;
    uint32_t n;
    struct fchoice choice[FLEET_CHOICES];
};

/* ---- config.c ---- */
void fhistory_make(uint64_t seed, struct fhistory *ret);
bool fhistory_write(const struct fhistory *h, const char *path, const char *why);
bool fhistory_read(const char *path, struct fhistory *h);

/* When the content of each unit was computed, somewhere; 0: there is none. */
typedef uint64_t fstamps[FLEET_SPACES][FLEET_VARIANTS][FLEET_UNITS];

struct fask {              /* a fetch */
    struct rig_session *s; /* NULL: none */
    uint64_t request;      /* 0: it is answered */
    uint64_t trace;        /* goes with what is sent for it */
    uint32_t space, variant, peer, epoch, again;
    uint32_t from[2]; /* tokens that came from the first source, and then from another */
};

struct freset {
    uint64_t origin, id, began, request; /* request 0: it was answered */
    uint32_t daemon, space;
    uint8_t zero, reach; /* it was answered that all had heard, and who that was */
};

struct fdaemon {
    struct rig *rig;
    struct rig_engine e;
    struct pool_id pool;
    struct spill *spill;        /* NULL: it has no disk */
    uint64_t incarnation, seen; /* resets that took effect in this life */
    uint32_t lives, page_tokens, admin;
    uint32_t epoch[FLEET_SPACES];
    fstamps may, disk, doomed; /* what may be found; may lie on the disk; lay there at a reset */
    uint8_t sure[FLEET_SPACES][FLEET_VARIANTS]; /* units that must be found */
    uint8_t carried[FLEET_RESETS];
    struct event last; /* whose step may have carried a reset out; kind 0: none */
    struct fask ask[FLEET_ASKS];
};

struct fworld {
    struct fconfig cfg;
    struct fdaemon d[FLEET];
    uint64_t member[FLEET][FLEET]; /* since when; 0: they are no peers */
    uint64_t up[FLEET][FLEET];     /* 1: i calls k */
    struct freset reset[FLEET_RESETS];
    uint32_t nresets, tokens[FLEET_VARIANTS][FLEET_UNIT * FLEET_UNITS];
    uint64_t clock, rng, secret, events, traces, left; /* left: when a peer did last */
    uint32_t at_choice;
    bool verbose, ends, marks[FMARK_END];
    char what[48], text[400];
    jmp_buf failed;
};

extern struct fworld fw;

_Noreturn void fviolation(const char *what, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
#define FEXPECT(cond, what, ...)                                                                   \
    do {                                                                                           \
        if (__builtin_expect(!(cond), 0))                                                          \
            fviolation(what, __VA_ARGS__);                                                         \
    } while (0)
#define FMARK(name) (fw.marks[FMARK_##name] = true)
#define FTRACE(...)                                                                                \
    do {                                                                                           \
        if (fw.verbose)                                                                            \
            fprintf(stderr, __VA_ARGS__);                                                          \
    } while (0)

static inline uint32_t fpick(uint32_t n) /* in [0, n) */
{
    return n == 0 ? 0 : (uint32_t)((prng_splitmix(&fw.rng) >> 32) * n >> 32);
}

/* ---- model.c ---- */
void fmodel_event(void *daemon, const struct event *ev);         /* before each step of a rig */
struct freset *fmodel_begins(struct fdaemon *d, uint32_t space); /* ahead of the request */
void fmodel_look(void);       /* behind each choice: what took effect, and was answered */
void fmodel_found_look(void); /* and what is found */
void fmodel_committed(struct fdaemon *d, uint32_t space, uint32_t variant, uint32_t tokens);
void fmodel_started(struct fdaemon *d, bool keeps_disk);
void fmodel_evicted(struct fdaemon *d);
void fmodel_from_disk(struct fdaemon *d, const struct fask *a);
uint32_t fmodel_found(const struct fdaemon *d, uint32_t space, uint32_t variant);

/* ---- play.c ---- */
void fplay(const struct fchoice *choice);
void fworld_begin(const struct fhistory *h);
void fworld_end(void); /* everything comes to rest */

#endif
