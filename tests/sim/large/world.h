/* The simulator's large geometries: one core with the layout and limits of the largest hosts, an
 * engine of up to 64 ranks, and few events. The subject is the cost of a step; a model of lengths
 * and HISTORY pages, linear in what a request names, checks the answers.
 *
 * A history is a struct lconfig and a list of choices. Every choice is legal in every state, so a
 * failing list can be shrunk by leaving choices out. config.c draws both, play.c carries the
 * choices out, asks.c makes the requests, steps.c sends events to the core and checks the bounds,
 * seams.c plays the memory and the disk, table.c is the model. */
#ifndef LARGE_WORLD_H
#define LARGE_WORLD_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "../pieces.h"
#include "base/prng.h"
#include "core/core.h"

#define LARGE_CHOICES  64u
#define LARGE_PROMPTS  4u
#define LARGE_TRACKED  8u /* sessions in the model; the others only have a ticket */
#define LARGE_JOBS     2048u
#define LARGE_HELD     4096u /* sessions or tickets made in bulk */
#define LARGE_EXTENTS  8192u
#define LARGE_SEAL_MAX 64u
#define LARGE_ARENA    ((size_t)3 << 29) /* of one core */
#define LARGE_MS       1000000ull

/* X(name): the settings of a history. lim_: limits of the core. window of group g; 0: HISTORY, 1:
 * RECURRENT. */
#define LARGE_FIELDS(X)                                                                            \
    X(ranks)                                                                                       \
    X(align)                                                                                       \
    X(ngroups)                                                                                     \
    X(chunks)                                                                                      \
    X(supersede)                                                                                   \
    X(pages)                                                                                       \
    X(host_pages)                                                                                  \
    X(seed)                                                                                        \
    X(lim_sessions)                                                                                \
    X(lim_nodes)                                                                                   \
    X(lim_blocks)                                                                                  \
    X(lim_table)                                                                                   \
    X(lim_retires)                                                                                 \
    X(disk_chunks)                                                                                 \
    X(disk_files)                                                                                  \
    X(disk_mib)                                                                                    \
    X(disk_interval)                                                                               \
    X(ticket_ms)                                                                                   \
    X(give_back)

struct lconfig {
#define X(name) uint32_t name;
    LARGE_FIELDS(X)
#undef X
    uint32_t page_tokens[GROUPS_MAX], window[GROUPS_MAX];
};

/* X(name, weight, least): the kinds of choices; in how many of 10,000 large histories one must have
 * been answered with success. */
#define LARGE_KINDS(X)                                                                             \
    X(prompt, 40, 4900) /* a session matches, computes and commits a long prompt at once */        \
    X(grow, 20, 2000)   /* a session computes and commits some more chunks */                      \
    X(close, 14, 2500)                                                                             \
    X(rewind, 8, 800)                                                                              \
    X(step, 30, 4500) /* every rank passes the step, which frees pages */                          \
    X(work, 24, 3600) /* the seams finish their jobs */                                            \
    X(time, 8, 3000)                                                                               \
    X(evict, 10, 1500)                                                                             \
    X(retract, 10, 1500)                                                                           \
    X(recover, 12, 1000)                                                                           \
    X(store, 14, 600)                                                                              \
    X(fetch, 12, 100)                                                                              \
    X(handoff, 8, 800)                                                                             \
    X(tickets, 10, 500) /* many sessions promise a ticket, or their tickets end */                 \
    X(turns, 6, 800)                                                                               \
    X(reset, 6, 500)                                                                               \
    X(kill, 3, 500)                                                                                \
    X(restart, 4, 800)                                                                             \
    X(idle, 16, 5000) /* events without any work */                                                \
    /* A session with as many chunks as it may have, of a pool with a host tier, goes there: a     \
     * history that is drawn for it begins so. */                                                  \
    X(far, 0, 200)

enum lkind {
#define X(name, weight, least) LARGE_##name,
    LARGE_KINDS(X)
#undef X
        LARGE_KIND_COUNT
};

struct lchoice {
    uint8_t kind;
    uint32_t a, r;
};

struct lhistory {
    uint64_t seed;
    struct lconfig cfg;
    uint32_t n;
    struct lchoice choice[LARGE_CHOICES];
};

/* ---- config.c ---- */
void lhistory_make(uint64_t seed, struct lhistory *ret);
bool lhistory_write(const struct lhistory *h, const char *path, const char *why);
bool lhistory_read(const char *path, struct lhistory *h);

enum lstate { L_IDLE, L_NEW, L_RUNS, L_AWAY, L_WAITS }; /* WAITS: for an answer */

/* A page of a HISTORY group in the model. */
struct lpage {
    uint32_t gen, users;  /* users: number of live tables with it */
    uint32_t prompt, end; /* contents: tokens of that prompt up to `end`; end 0: unknown */
    uint64_t fence;       /* the last step that may touch it */
};

struct lsession {
    struct session_id id;
    enum lstate state;
    uint32_t prompt, tokens, space;
    struct lengths len;
    uint64_t waits_for;          /* the request without an answer yet */
    uint32_t *table[GROUPS_MAX]; /* of HISTORY groups: page indices */
    uint32_t n[GROUPS_MAX];
    uint64_t fence; /* the last step that may touch its pages */
};

enum ljob_kind { LJOB_SEAL, LJOB_COPY, LJOB_ZERO, LJOB_WRITE, LJOB_DROP, LJOB_PULL, LJOB_STOP };

struct ljob {
    enum ljob_kind kind;
    uint32_t n, batch;
    uint64_t id; /* packed, or a file */
};

struct lextent {
    struct disk_extent e;
    uint32_t *tokens; /* owned */
    bool durable;
};

struct lworld {
    struct lconfig cfg;
    struct core_limits limits;
    struct core *core; /* inside arena */
    void *arena;
    size_t arena_bytes;
    struct actions *out;
    size_t out_bytes;
    uint64_t now, request_id, step, passed, incarnation, events, rng;
    uint32_t conns; /* of the engine: one a rank */
    struct engine_id engine;
    struct pool_id pool;
    uint32_t prompt_tokens, common[LARGE_PROMPTS], known[LARGE_PROMPTS];
    uint32_t disk_known[LARGE_PROMPTS]; /* what the disk may have of earlier lives */
    uint32_t *tokens[LARGE_PROMPTS];
    struct lsession session[LARGE_TRACKED];
    struct lpage *page[GROUPS_MAX];
    uint32_t npages[GROUPS_MAX];
    struct ljob job[LARGE_JOBS];
    uint32_t njobs;
    struct session_id held[LARGE_HELD];
    struct ticket ticket; /* of the last hand-over; id.gen 0: none */
    uint32_t ticket_prompt, ticket_space;
    uint32_t nheld, space;
    struct lextent extent[LARGE_EXTENTS];
    uint32_t nextents;
    uint64_t file_max;
    const struct reply *reply; /* of the request of the last step; NULL: it comes later */
    uint32_t kind;
    bool marks[LARGE_KIND_COUNT];
    uint64_t secret;                 /* its number: no outcome depends on it */
    uint64_t most_visits, most_work; /* of a step of this history */
    const char *most_event;          /* of most_work */
    struct playing run;
};

extern struct lworld lw;

_Noreturn void lviolation(const char *what, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
#define LEXPECT(cond, what, ...)                                                                   \
    do {                                                                                           \
        if (__builtin_expect(!(cond), 0))                                                          \
            lviolation(what, __VA_ARGS__);                                                         \
    } while (0)

static inline uint32_t lpick(uint32_t n) /* in [0, n) */
{
    return n == 0 ? 0 : (uint32_t)((prng_splitmix(&lw.rng) >> 32) * n >> 32);
}

static inline bool lhistory_group(uint32_t g)
{
    return lw.cfg.window[g] == 0;
}

/* ---- steps.c ---- */
/* `items`: tokens, operations and pages that the event itself names. */
void lstep(struct event *event, uint64_t items);
/* Returns the answer, or NULL where it comes later. */
const struct reply *lask(struct request *request, uint64_t items);
void lruns_on(void); /* the hook of work.h */
/* The core does all leftover work. */
void lsettle(void);
void lworld_begin(const struct lhistory *h);
void lworld_restart(bool keep_disk);
void lengine_start(void);
void lengine_lost(void);

/* ---- seams.c ---- */
void laction(const struct action *action);
void ljob_finish(uint32_t i);
void lpass(uint64_t step);
void ldisk_found(void);
void ldisk_clear(bool all);

/* ---- table.c ---- */
void ltable_clear(struct lsession *s, uint64_t fence);
/* Applies the lengths and runs of an answer to the session. `fresh`: the pages are new ones. */
void ltable_told(struct lsession *s, const struct lengths *l, const struct table_run *runs,
                 uint32_t nruns, bool fresh, uint64_t fence);
void ltable_written(struct lsession *s, uint32_t from, uint32_t to);
void lpages_clear(void);
/* The longest prefix of the prompt that any session has committed since the namespace began. */
uint32_t lknown(uint32_t prompt);
void lcommitted(uint32_t prompt, uint32_t depth);
void lrestarted(bool keep_disk); /* memory is empty; the disk may have its former contents */
void lfetched(uint32_t prompt);  /* and a fetch makes them known again */

/* ---- asks.c ---- */
void llate(const struct reply *reply);                           /* a late answer */
struct lsession *lsession_new(uint32_t prompt, uint32_t tokens); /* matched; NULL: refused */
/* Computes the tokens up to `to` and commits what it can. Returns false if it was refused. */
bool lsession_compute(struct lsession *s, uint32_t to);
bool lsession_commit(struct lsession *s);
bool lsession_close(struct lsession *s);
bool lsession_rewind(struct lsession *s, uint32_t to);
bool lsession_retract(struct lsession *s, bool host);
bool lsession_recover(struct lsession *s);
bool lsession_store(struct lsession *s);
bool lsession_fetch(struct lsession *s, uint32_t peer, const struct ticket *ticket);
bool lsession_handoff(struct lsession *s);
bool lsession_turn(struct lsession *s);

/* ---- play.c ---- */
void lplay(const struct lchoice *choice);

#endif
