/* The simulator's fleets: three daemons, each of which may fetch from each and from itself. They
 * join, leave, lose each other and are restarted, with other limits, budgets and layouts. The
 * subject is what daemons know through others: resets over two hops (N1), prefixes that came from
 * more than one source, and tickets that are followed, fetched and handed on (Y1 to Y6) between
 * pools whose pages have other page_tokens or lie over other ranks (N3).
 *
 * A history is a struct fconfig and a list of choices. Every choice is legal in every state, so a
 * failing list can be shrunk by leaving choices out. config.c draws both. play.c carries the
 * choices out over the rig of the unit tests, with hand.c for sessions that run or are handed over,
 * lease.c for leases, turn.c for turn records and bytes.c for page contents. model.c knows what may
 * be found where and which reset may take effect, tickets.c how a fetch by ticket may end. They
 * take only answers, messages and found prefixes from the cores. */
#ifndef FLEET_WORLD_H
#define FLEET_WORLD_H

#include <stdio.h>
#include <string.h>

#include "../pieces.h"
#include "base/prng.h"
#include "unit/rig/rig_spill.h"

#define FLEET          3u
#define FLEET_CHOICES  128u
#define FLEET_SPACES   2u
#define FLEET_VARIANTS 2u
#define FLEET_UNIT     64u /* tokens: L of each pool, a multiple of each layout's page */
#define FLEET_UNITS    4u  /* of a sequence */
#define FLEET_TOKENS   (FLEET_UNIT * FLEET_UNITS)
#define FLEET_RESETS   64u
#define FLEET_ASKS     4u  /* fetches of a daemon at a time */
#define FLEET_RUNS     2u  /* sessions of a daemon that compute at a time */
#define FLEET_LEASED   48u /* pages of a daemon's engine, at most */
#define FLEET_RANKS    2u
#define FLEET_TICKETS  160u
#define FLEET_RECORDS  4u   /* of a session */
#define FLEET_TRACES   512u /* fetches of a history, at most */
#define FLEET_HEADS    4u
#define FLEET_TOKEN    64u /* bytes of a token in a page */

/* X(name): the settings of a history. away: bit 3 i + k: i and k are no peers at first. own: a bit
 * for each daemon that is its own peer. by_hand: messages wait until a choice delivers them. */
#define FLEET_FIELDS(X)                                                                            \
    X(seed)                                                                                        \
    X(away)                                                                                        \
    X(own)                                                                                         \
    X(by_hand)                                                                                     \
    X(ample)                                                                                       \
    X(disk)                                                                                        \
    X(layouts) /* page_tokens differ in each life of a daemon */                                   \
    X(ranks)   /* and pages lie over one rank or two */

struct fconfig {
#define X(name) uint32_t name;
    FLEET_FIELDS(X)
#undef X
};

/* X(name, weight, least): the kinds of choices; of 10,000 fleets, at least that many must have
 * acted on one. */
#define FLEET_KINDS(X)                                                                             \
    X(commit, 40, 5000)                                                                            \
    X(fetch, 40, 4000)                                                                             \
    X(again, 30, 500) /* a session continues from another source */                                \
    X(reset, 10, 5000)                                                                             \
    X(repeat, 10, 1800) /* of the last reset, as after an answer with unreached peers */           \
    X(up, 30, 5000)                                                                                \
    X(down, 10, 3400)                                                                              \
    X(deliver, 90, 3000)                                                                           \
    X(work, 40, 2000)                                                                              \
    X(restart, 8, 4000)                                                                            \
    X(leave, 4, 500)                                                                               \
    X(join, 5, 500)                                                                                \
    X(evict, 3, 500)                                                                               \
    X(time, 4, 1500)                                                                               \
    X(prefill, 40, 500) /* a session begins, most often with a ticket, or continues */             \
    X(handoff, 24, 500)                                                                            \
    X(take, 40, 500) /* a ticket is fetched, or followed */                                        \
    X(cancel, 3, 100)                                                                              \
    X(drop, 3, 100)                                                                                \
    X(lease, 10, 500)                                                                              \
    X(unlease, 10, 500)                                                                            \
    X(turn, 24, 500)                                                                               \
    X(step, 10, 300) /* ranks do all steps that are named */                                       \
    X(die, 3, 500)   /* an engine; another of its kind takes its pool over */

enum fkind {
#define X(name, weight, least) FLEET_##name,
    FLEET_KINDS(X)
#undef X
        FLEET_KIND_COUNT
};

/* Named states that histories have to reach, beside those of the kinds. */
#define FLEET_MARKS(X)                                                                             \
    X(reset_over_two_hops, 500)                                                                    \
    X(reset_heard_by_all, 2500)                                                                    \
    X(reset_told_again, 500) /* without a second effect */                                         \
    X(two_sources, 100)                                                                            \
    X(other_layout, 500)                                                                           \
    X(disk_outlives_a_life, 60)                                                                    \
    X(ticket_fetched, 100)                                                                         \
    X(ticket_with_tail, 100)                                                                       \
    X(ticket_here, 10) /* at the daemon that gave it */                                            \
    X(ticket_two_hops, 50)                                                                         \
    X(ticket_taken_once, 10) /* a second fetch ends with GONE */                                   \
    X(ticket_busy, 10)                                                                             \
    X(ticket_expired, 10)                                                                          \
    X(ticket_of_former_life, 10)                                                                   \
    X(ticket_survives_fetcher, 1) /* which was restarted during the fetch */                       \
    X(ticket_of_reset, 10)                                                                         \
    X(ticket_denied, 10)                                                                           \
    X(ticket_word_late, 300) /* the message of its success */                                      \
    X(ticket_last, 10)       /* it stands, so it arrives */                                        \
    X(followed, 10)                                                                                \
    X(followed_by_two, 50)     /* of whom one waits */                                             \
    X(followed_after_other, 1) /* whose fetch failed */                                            \
    X(spans_of_smaller, 10)                                                                        \
    X(spans_of_larger, 10)                                                                         \
    X(other_ranks, 10)                                                                             \
    X(lease_assigned, 10)                                                                          \
    X(lease_handed, 300)                                                                           \
    X(lease_named_twice, 300)                                                                      \
    X(lease_left_at_step, 500)                                                                     \
    X(lease_of_dead_engine, 300)                                                                   \
    X(record_read, 10)                                                                             \
    X(all_together, 40) /* records, leased pages, a disk, and a ticket into another layout */

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

/* When the content of each unit was computed, somewhere; 0: never. */
typedef uint64_t fstamps[FLEET_SPACES][FLEET_VARIANTS][FLEET_UNITS];

struct fask {              /* a fetch */
    struct rig_session *s; /* NULL: none */
    uint64_t request;      /* 0: answered */
    uint64_t trace;        /* in all messages about it */
    uint32_t space, variant, peer, epoch, again;
    uint32_t from[2]; /* tokens that came from the first source, and then from another */
    uint32_t ticket;  /* fw.ticket[ticket - 1]; 0: none */
    uint32_t length;  /* of its list at the request */
    uint64_t asked_ns;
    uint8_t follow, forged, early, over; /* early, over: at the request */
    uint8_t lost, cancelled;             /* its link was down; the engine cancelled it */
    uint8_t opened;                      /* its source was asked */
};

/* A session that computes its list in pieces. */
struct frun {
    struct rig_session *s; /* NULL: none */
    uint32_t space, variant, to, epoch, ticket, nrecords;
    uint32_t record[FLEET_RECORDS]; /* lengths */
    uint8_t leased;                 /* pages of a lease are in its table */
};

/* Leased pages that were unleased at a step that ranks have not done yet. */
struct fleaving {
    uint32_t n, step, passed[FLEET_RANKS]; /* step: the last one that was named */
    uint32_t of[FLEET_LEASED];             /* the step of each */
    struct page_ref page[FLEET_LEASED];
};

struct fticket {
    struct ticket t;
    uint64_t until; /* by the clock of the daemon that gave it */
    uint32_t daemon, life, space, variant, epoch;
    uint32_t length; /* 0: its session runs */
    uint32_t words;  /* of its blob, made from `blob` */
    uint32_t blob;
    uint32_t hops; /* tickets that the session came through */
    uint32_t asks, wins;
    uint8_t over;     /* it was dropped, or its session has ended otherwise */
    uint8_t won;      /* a fetch ended with OK */
    uint8_t heard;    /* and its daemon knows */
    uint8_t lossy;    /* or perhaps never will */
    uint8_t orphan;   /* its fetcher was restarted */
    uint8_t failed;   /* a follower's fetch failed */
    uint8_t replaced; /* its session was handed over with another key */
    uint8_t leased, recorded;
    uint8_t proved; /* is used up, by the daemon's answer */
};

struct freset {
    uint64_t origin, id, began, request; /* request 0: answered */
    uint32_t daemon, space;
    uint8_t zero, reach; /* the answer was that all knew it, and who that was */
};

struct fdaemon {
    struct rig *rig;
    struct rig_engine e;
    struct pool_id pool;
    struct spill *spill;        /* NULL: no disk */
    uint64_t incarnation, seen; /* resets that took effect in this life */
    uint32_t lives, page_tokens, pool_pages, ranks, admin, nleased;
    struct page_ref leased[FLEET_LEASED];
    struct fleaving leaving;
    struct frun run[FLEET_RUNS];
    uint32_t epoch[FLEET_SPACES];
    fstamps may, disk, doomed; /* may be found; may lie on the disk; lay there at a reset */
    uint8_t sure[FLEET_SPACES][FLEET_VARIANTS]; /* units that must be found */
    uint8_t carried[FLEET_RESETS];
    struct event last; /* event whose step may have carried a reset out; kind 0: none */
    struct fask ask[FLEET_ASKS];
};

struct fworld {
    struct fconfig cfg;
    struct fdaemon d[FLEET];
    uint64_t member[FLEET][FLEET]; /* since when; 0: no peers */
    uint64_t up[FLEET][FLEET];     /* 1: i calls k */
    struct freset reset[FLEET_RESETS];
    struct fticket ticket[FLEET_TICKETS];
    uint32_t of_trace[FLEET_TRACES]; /* the ticket of a fetch */
    uint32_t nresets, ntickets, tokens[FLEET_VARIANTS][FLEET_TOKENS];
    uint64_t clock, rng, secret, events, traces, left; /* left: time of a peer's last leave */
    bool ends, marks[FMARK_END];
    struct playing run;
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
        if (fw.run.verbose)                                                                        \
            fprintf(stderr, __VA_ARGS__);                                                          \
    } while (0)

static inline uint32_t fpick(uint32_t n) /* in [0, n) */
{
    return n == 0 ? 0 : (uint32_t)((prng_splitmix(&fw.rng) >> 32) * n >> 32);
}

/* ---- model.c ---- */
void fmodel_event(void *daemon, const struct event *ev);         /* before each step of a rig */
struct freset *fmodel_begins(struct fdaemon *d, uint32_t space); /* ahead of the request */
void fmodel_look(void);       /* after each choice: effects and answers */
void fmodel_found_look(void); /* and found prefixes */
void fmodel_committed(struct fdaemon *d, uint32_t space, uint32_t variant, uint32_t tokens);
void fmodel_started(struct fdaemon *d, bool keeps_disk);
void fmodel_evicted(struct fdaemon *d);
void fmodel_from_disk(struct fdaemon *d, const struct fask *a);
uint32_t fmodel_found(const struct fdaemon *d, uint32_t space, uint32_t variant);

static inline uint32_t fdaemon_number(const struct fdaemon *d)
{
    return (uint32_t)(d - fw.d);
}

/* ---- tickets.c ---- */
void fticket_asked(struct fdaemon *d, struct fask *a); /* ahead of the request */
void fticket_judge(struct fdaemon *d, const struct fask *a, const struct reply *r);
void fticket_link_down(uint32_t from, uint32_t to);
void fticket_done(const struct peer_msg *m); /* the source learns how a fetch ended */
bool fticket_over(const struct fticket *t);  /* it certainly can be fetched no more */
void fticket_look(void);                     /* a used-up one stays so */
uint32_t fticket_word(uint32_t blob, uint32_t i);

/* ---- hand.c ---- */
struct frun *frun_some(struct fdaemon *d); /* one that runs, if any */
bool do_prefill(void);
bool do_handoff(void);
bool do_take(void);
bool do_cancel(void);
bool do_drop(void);
void fruns_end(void);
void fruns_lost(struct fdaemon *d); /* with their engine */
void ftickets_last(void);           /* each surely standing one reaches some session */

/* ---- lease.c ---- */
bool do_lease(void);
bool flease_more(struct fdaemon *d);
bool do_unlease(void);
bool do_step(void);
void flease_steps_end(struct fdaemon *d); /* every rank does all named steps */
/* Gives the session leased pages for as many tokens as possible, up to `to`. Returns false if
 * none. */
bool flease_assign(struct fdaemon *d, struct rig_session *s, uint32_t to);
void flease_look(const struct fdaemon *d);

/* ---- turn.c ---- */
bool do_turn(void);
bool fturn(struct fdaemon *d, struct frun *run); /* of a running session */

/* ---- bytes.c ---- */
void fbytes_write(struct rig_session *s, uint32_t from, uint32_t to);
/* Number of tokens of [0, to) with wrong bytes. */
uint32_t fbytes_wrong(struct rig_session *s, uint32_t to);
void fbytes_reshard(const struct rig_move *m);
void fbytes_mark(struct fdaemon *d, struct page_ref page);         /* of a leased page */
bool fbytes_marked(const struct fdaemon *d, struct page_ref page); /* still as marked */

/* ---- play.c ---- */
bool fwrong(enum tern_err err); /* an error that no request may end with */
struct rig_session *fopens(struct fdaemon *d, uint32_t space);
void fsession_ends(struct rig_session *s);
/* Computes the missing tokens and commits whole chunks; there may be room for a part only. epoch:
 * of the namespace, when the session was opened. */
bool fcomputes(struct fdaemon *d, struct rig_session *s, uint32_t space, uint32_t variant,
               uint32_t to, uint32_t epoch);
struct fask *fask_free(struct fdaemon *d);
struct fask *fask_answered(struct fdaemon *d); /* any of them; NULL: none */
void fasks(struct fdaemon *d, struct fask *a, uint32_t peer);
void fsettle(void);
void fplay(const struct fchoice *choice);
void fworld_begin(const struct fhistory *h);
void fworld_end(void); /* everything comes to rest */

#endif
