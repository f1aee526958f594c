/* The common part of the prefill and the decode engine: the connection, the pool, its ranks, and
 * the requests in flight, which are called turns here. */
#ifndef REPLAY_ENGINE_H
#define REPLAY_ENGINE_H

#include "board.h"
#include "engine/op.h"
#include "engine/table.h"
#include "options.h"
#include "ranks.h"
#include "trouble.h"

static inline uint32_t div_up(uint32_t n, uint32_t d)
{
    return n / d + (n % d != 0);
}

#define CALL_MS  30000 /* a daemon without an answer for that long is lost */
#define FETCH_MS 60000

enum turn_state {
    TURN_IDLE = 0,
    TURN_WAITING,   /* its request will be begun again */
    TURN_MATCHED,   /* the session is open and the prefix found is pinned */
    TURN_EXTENDED,  /* pages allocated, bytes not written (decode: not compared) */
    TURN_WRITTEN,   /* prefill: the bytes are written and the step is done */
    TURN_COPYING,   /* prefill: committed; the state that the tree took must be copied back */
    TURN_HANDING,   /* prefill: computed and committed; it will be handed over */
    TURN_HANDED,    /* prefill: the decode side has it; by ticket, the session is gone */
    TURN_LOADING,   /* more of its match is loaded from the host tier; then MATCHED */
    TURN_FETCHING,  /* decode */
    TURN_ARRIVED,   /* decode: every whole page is in the table, none compared */
    TURN_CLOSING,   /* its session will be closed; then it is over */
    TURN_ABORTING,  /* the same; then it is WAITING */
    TURN_RETURNING, /* decode: the same; then the prefill engine hands it over anew */
    TURN_RETRACTED, /* its session was retracted; it resumes in the state `back` */
    TURN_RECOVERING,
};

/* Prefill: what the decode side knows of a request, which may have to be computed again later. */
enum turn_handed { HANDED_NO = 0, HANDED_SENT, HANDED_ANSWERED };

/* Decode: what it knows about the ticket. */
enum ticket_fate {
    FATE_STANDS = 0, /* not fetched as far as it knows, or no ticket */
    FATE_FETCHED,
    FATE_GONE, /* the source reported it */
};

/* Prefill: why a ticket that nobody fetched may be gone. */
enum ticket_excuse { EXCUSE_NONE = 0, EXCUSE_DROPPED, EXCUSE_BRIEF };

/* A request in flight. */
struct turn {
    enum turn_state state;
    struct prompt prompt;
    uint32_t *tokens; /* owned: PROMPT_TOKENS_MAX */
    struct block_table table;
    uint32_t whole_pages; /* of the prompt in HISTORY groups, up to `target` */
    uint32_t target;      /* tokens in whole chunks of L: these are committed and fetched */
    uint32_t matched;     /* tokens, including those from the host tier */
    uint32_t host_depth;  /* depth that the host tier could add; 0: no more than found here */
    uint32_t committed, written, room; /* T, C and A of its session */
    uint32_t ready;                    /* tokens whose pages hold their bytes */
    uint32_t history;                  /* decode: tokens whose HISTORY was here before the fetch */
    uint32_t best;                     /* prefill: tokens that an oracle would have matched */
    uint32_t hits, arrived;            /* decode: HISTORY pages that Match and Fetch named */
    tern_session session;
    uint64_t step; /* the last step that touched its pages; 0: none */
    uint32_t tries;
    uint64_t order;                        /* of its arrival: larger is younger */
    uint64_t seen_finished, not_before_ns; /* WAITING, RETRACTED, and while it is short of pages */
    uint32_t waits;                        /* in a row, while short of pages; 0: it is not */
    uint64_t away;                         /* RETRACTED: order of coming back */
    enum turn_state back;
    enum turn_handed handed;
    enum tern_err outcome;
    /* By ticket (see handing.h and fetches.h): */
    uint32_t handoff;     /* number of this request's hand-over, from 0 */
    enum trouble trouble; /* trouble that it will still meet */
    enum ticket_fate fate;
    enum ticket_excuse excuse;
    uint64_t due_ns; /* when its ticket is renewed or dropped, or its fetch cut short; 0: never */
    char ticket[TERN_TICKET_BYTES];
};

/* Counters that both engines have. */
struct engine_counts {
    _Atomic uint64_t *retries, *failed, *retracts, *recovers, *recovered_pages, *host_hit_tokens,
        *wrong;
};

struct engine {
    const struct options *options;
    struct board *board;
    char *why; /* BOARD_WHY_BYTES: the first failure's */
    struct geometry geometry;
    uint32_t page_tokens;  /* L: of the HISTORY groups */
    uint32_t nhistory;     /* HISTORY groups */
    int recurrent;         /* the RECURRENT group; -1: there is none */
    struct tern *tern;     /* owned */
    struct tern_pool *map; /* owned by tern */
    uint64_t pool, step, root[PROFILE_GROUPS_MAX], finished;
    uint64_t published; /* the last step that every rank has published */
    struct engine_counts counts;
    /* See pressure.h: the oldest request that found the pool full in this iteration. */
    struct turn *pressed;
    struct tern_shortage shortage;
    uint64_t orders, aways, calm_until_ns;
    struct tern_namespace ns;
    struct team team;
    struct turn *turns; /* owned: options->concurrency */
    uint32_t nturns;
    struct page_job *jobs; /* owned; of the present step */
    uint32_t njobs, jobs_cap;
    struct tern_batch *batch; /* owned */
    struct engine_op *ops;    /* owned: up to three a turn */
    struct tern_result *results;
    uint32_t *op_turn, nops;
};

/* Connects, joins, opens and maps the pool. Returns false with e->why; engine_finish is still
 * due. */
bool engine_start(struct engine *e, const struct options *o, struct board *board, char *why,
                  const char *socket, const char *name, const uint32_t *group_pages);
void engine_finish(struct engine *e);

/* Computes the tokens, prefix hashes and page counts of turn->prompt. */
void turn_load(struct engine *e, struct turn *turn);

/* Opens a session and matches the prompt; *ret_match_ns is the time of the Match. The pages found
 * are in the table. */
enum tern_err turn_begin(struct engine *e, struct turn *turn, uint64_t *ret_match_ns);

/* Puts the pages that an Extend from `from` to `to` tokens named into the table. Returns false
 * unless they are exactly the missing ones. */
bool turn_extended(struct engine *e, struct turn *turn, const struct tern_result *result,
                   uint32_t from, uint32_t to);

/* Loads what the host tier has beyond the match. Returns false if it has nothing, or the fetch
 * could not be submitted. */
bool turn_load_host(struct engine *e, struct turn *turn);
/* Takes any answer but BUSY: the turn is MATCHED, however much was loaded. Returns false if pages
 * are missing in the answer. */
bool turn_loaded(struct engine *e, struct turn *turn, const struct tern_answer *a);

/* Returns true if the turn may begin: always if nothing else is under way, else only if a request
 * has ended since it gave up. */
bool turn_may_begin(const struct engine *e, const struct turn *turn, uint64_t now_ns);

/* Gives the request up for now, or for good after TRIES_MAX, and counts it. The next Step closes
 * the session, if there is one. */
void turn_give_up(struct engine *e, struct turn *turn, enum tern_err err);

/* Adds jobs on the pages [first, end) of a HISTORY or WINDOW group. */
void engine_add_jobs(struct engine *e, const struct turn *turn, enum rank_work work, uint32_t group,
                     uint32_t first, uint32_t end);
/* Adds the RECURRENT page, if there is such a group, with its state at depth `at`. */
void engine_add_state(struct engine *e, const struct turn *turn, enum rank_work work, uint32_t at);
/* Computes the tokens from `from` to `to`: copies and compares the state to start from, and writes
 * all their pages, the RECURRENT one with its state at depth `at`. */
void engine_add_tail(struct engine *e, struct turn *turn, uint32_t from, uint32_t to, uint32_t at);
/* Copies the RECURRENT page if that is due, and adds a comparison of every page in the table that
 * has tokens of [from, at). */
void engine_add_table(struct engine *e, struct turn *turn, uint32_t from, uint32_t at);
/* Copies the tree's state at `at` into the RECURRENT page of the table, and compares it. */
void engine_copy_state(struct engine *e, struct turn *turn, uint32_t at);
/* Runs the jobs, counts wrong bytes (`what` names them), and publishes `step`; 0: none. */
bool engine_run_jobs(struct engine *e, uint64_t step, const char *what);
void engine_add_op(struct engine *e, const struct turn *turn, struct engine_op op);

/* Sends the gathered operations. Returns false if the daemon is lost. */
bool engine_step(struct engine *e);

/* Handles the error of an operation: the turn waits if the pool is short, else it is given up.
 * Returns true if there was none. */
bool turn_went_well(struct engine *e, struct turn *turn, const struct tern_result *result);

/* Returns how long to wait for a message: until `until_ns`, or until a turn may resume or has
 * pages; 0: not at all; -1: without limit. */
int engine_wait_ms(const struct engine *e, uint64_t now_ns, uint64_t until_ns);

bool engine_idle(const struct engine *e);

/* Keeps the text of the first failure. */
__attribute__((format(printf, 2, 3))) void engine_says(struct engine *e, const char *format, ...);

#endif
