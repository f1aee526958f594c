/* The simulated world around two cores: clock, network, data path, memory jobs, engines of several
 * rank processes with steps in flight, and the model that checks what the cores answer. One struct
 * sim is one history; it is reused for the next, so nothing in it is allocated while histories run.
 *
 * A history is a struct config and a list of choices. Every choice is legal in every state (one
 * that has nothing to act on does nothing), so a failing list can be shrunk by leaving choices out.
 * The model takes from the core only what engines and peers receive (replies and actions); it reads
 * the views of query.h only when everything has come to rest. */
#ifndef SIM_SIM_H
#define SIM_SIM_H

#include <stdio.h>
#include <string.h>

#include "world.h"

/* ---- history.c ---- */
/* One choice. `r` seeds everything that the choice needs to decide. */
struct choice {
    uint8_t kind, daemon;
    uint16_t a;
    uint32_t r;
};

struct history {
    uint64_t seed;
    struct config cfg;
    uint32_t n;
    struct choice choice[OPS_MAX];
};
void history_make(uint64_t seed, struct history *ret);
/* Do these limits leave records for every history, so that no prefix is evicted for one? */
bool records_ample(const struct config *c);

/* ---- world.c ---- */
void sim_create(struct sim *w); /* allocates; once */
void sim_destroy(struct sim *w);
/* Runs the history. Returns true if nothing was wrong; *ret_hash: of both arenas at the end. */
bool sim_run(struct sim *w, const struct history *h, uint64_t *ret_hash);
#define STEP_NS 1000u /* duration of a step */
void sim_step(struct sim *w, uint32_t d, struct event *event);
/* Frees all that the core frees in pieces. */
void give_back_all(struct sim *w, uint32_t d);
/* Sends a request that must be answered at once. */
void sim_ask(struct sim *w, uint32_t d, struct event *event, const char *what);
void sim_ask_in_pieces(struct sim *w, uint32_t d, struct event *event, const char *what);
/* Compares the lengths in an answer with those of the model. */
void same_lengths(struct sim *w, const struct session *s, const struct lengths *l,
                  const char *what);
void same_tokens(struct sim *w, const struct session *s, uint32_t tokens, const char *what);
void sim_timers(struct sim *w, uint32_t d);
void daemon_start(struct sim *w, uint32_t d);
void daemon_restart(struct sim *w, uint32_t d);

/* ---- choose.c ---- */
void choose(struct sim *w, const struct choice *c);

_Noreturn void violation(struct sim *w, const char *what, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
#define EXPECT(cond, what, ...)                                                                    \
    do {                                                                                           \
        if (__builtin_expect(!(cond), 0))                                                          \
            violation(w, what, __VA_ARGS__);                                                       \
    } while (0)
#define TRACE(...)                                                                                 \
    do {                                                                                           \
        if (__builtin_expect(w->verbose, 0))                                                       \
            printf(__VA_ARGS__);                                                                   \
    } while (0)
#define MARK(name)  (w->marks[MARK_##name] = true)
#define FAULT(name) (w->faults[FAULT_##name]++)

/* The daemon that d is a peer of. */
static inline uint32_t sim_far(const struct sim *w, uint32_t d)
{
    return w->cfg.own ? d : 1 - d;
}

static inline uint32_t pick(struct sim *w, uint32_t n)
{
    w->rng = w->rng * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(((w->rng >> 32) * n) >> 32);
}

static inline bool chance(struct sim *w, uint32_t percent)
{
    return pick(w, 100) < percent;
}

#define TURNS_ALL   ((1u << TURN_HANDED) - 1) /* those in which a session can be asked for */
#define ENGINES_ALL 0xffu

/* The live sessions of these turns and engines, bit a slot. Called at every event, on nearly random
 * data; hence without a branch. */
static inline uint32_t sessions_live(const struct daemon *m, uint32_t turns, uint32_t engines)
{
    uint32_t set = 0;

    for (uint32_t i = 0; i < SESSIONS; i++) {
        const struct session *s = &m->session[i];

        set |= (s->live & turns >> s->turn & engines >> s->engine & 1) << i;
    }
    return set;
}

/* The live sessions that can be used. */
static inline uint32_t sessions_usable(const struct daemon *m, uint32_t turns, uint32_t engines)
{
    uint32_t set = sessions_live(m, turns, engines);

    for (uint32_t i = 0; i < SESSIONS; i++)
        set &= ~((uint32_t)(m->session[i].gate >= GATE_CLOSED || m->session[i].rolling) << i);
    return set;
}

static inline uint32_t sessions_waiting(const struct daemon *m)
{
    return sessions_live(m, 1u << TURN_FETCHING | 1u << TURN_LOADING, ENGINES_ALL);
}

/* Takes the first slot out of a set of sessions, from slot `at` on and round the end. */
static inline uint32_t session_next(uint32_t *set, uint32_t at)
{
    uint32_t behind = *set >> at << at, s = (uint32_t)__builtin_ctz(behind ? behind : *set);

    *set &= ~(1u << s);
    return s;
}

_Static_assert(CHUNK_RECORDS % 64 == 0, "known is whole words");

/* The known chunks of a pool, one after another. */
static inline uint32_t chunk_next(const struct daemon *m, uint32_t pool, uint32_t from)
{
    for (; from < CHUNK_RECORDS; from = (from | 63) + 1) {
        uint64_t set = m->known[pool][from / 64] >> from % 64;

        if (set)
            return from + (uint32_t)__builtin_ctzll(set);
    }
    return CHUNK_RECORDS;
}
#define KNOWN_CHUNKS(m, pool, i)                                                                   \
    uint32_t i = chunk_next(m, pool, 0);                                                           \
    i < CHUNK_RECORDS;                                                                             \
    i = chunk_next(m, pool, i + 1)

/* ---- engines.c ---- */
void engine_advance(struct sim *w, uint32_t d,
                    uint32_t e); /* the next process joins, opens or maps */
void engine_repeat(struct sim *w, uint32_t d, uint32_t e);
void engine_exec(struct sim *w, uint32_t d, uint32_t e,
                 uint32_t rank); /* the device runs one step */
void engine_publish(struct sim *w, uint32_t d, uint32_t e, uint32_t rank);
void ask_wait(struct sim *w, uint32_t d, uint32_t e);
void wait_answered(struct sim *w, uint32_t d, const struct reply *r);
void waits_check(struct sim *w, uint32_t d); /* looks for a forgotten wait */
void engine_kill(struct sim *w, uint32_t d, uint32_t e, uint32_t seats);
void engine_reap(struct sim *w, uint32_t d, uint32_t e, uint32_t seat);
void engine_depart(struct sim *w, uint32_t d, uint32_t e, uint32_t seat);
void conn_close(struct sim *w, uint32_t d, uint32_t conn);
uint32_t engine_conn(struct sim *w, uint32_t d, uint32_t e); /* one that may schedule; NO: none */
void engine_gone(struct sim *w, uint32_t d, uint32_t e);     /* the end in the model */
void pool_shut(struct sim *w, uint32_t d, uint32_t p);
void engine_make_room(struct sim *w, uint32_t d,
                      uint32_t e); /* runs steps until one more may be dispatched */
struct work *engine_dispatch(struct sim *w, uint32_t d, uint32_t e);

/* ---- turns.c ---- */
void ask_turn(struct sim *w, uint32_t d, uint32_t s);
void turns_pass(struct sim *w, uint32_t d); /* before the core sees the present time */
void turns_near(struct sim *w);
void turns_conn_left(struct sim *w, uint32_t d, uint32_t conn, bool closed);
bool session_closed(struct sim *w, uint32_t d, const struct reply *r);
/* Is the session gone, or does the request under way end it? A session whose turn has ended, and
 * whose close waits for a record, continues until the core has processed the close. */
bool session_ends(const struct sim *w, uint32_t d, const struct session *s);
void turns_look(struct sim *w, uint32_t d);
void turns_check(struct sim *w, uint32_t d); /* looks for a forgotten close */
void turns_end(struct sim *w, uint32_t d);

/* ---- sessions.c ---- */
/* T22: the reserved part of each tenant in a table of `limit` records. */
uint32_t share_each(const struct sim *w, uint32_t limit);
/* Has the tenant used up its share of such a table, if each tenant has used at most so many? */
bool share_used_up(const struct sim *w, uint32_t limit, const uint32_t used[TENANTS],
                   uint32_t tenant);
void request_init(struct sim *w, uint32_t d, struct event *ev, enum op op, uint32_t conn);
/* Borrows pages [from, to) of an answer about [from, end). */
void take_borrowed(struct sim *w, uint32_t d, struct session *s, uint32_t from, uint32_t to,
                   uint32_t end, const struct table_run *runs, uint32_t nruns);
struct namespace_id namespace_of(uint32_t ns, bool by_hi);
struct req_tokens tokens_of(struct sim *w, uint32_t variant, uint32_t from, uint32_t to);
uint32_t release_step(struct sim *w, uint32_t d, const struct session *s);
void ask_open(struct sim *w, uint32_t d, uint32_t e);
void ask_match(struct sim *w, uint32_t d, uint32_t s);
/* Sends all pieces of a Match but the last, which `ev` is afterwards. Returns the end of the tokens
 * that were sent or are in `ev`: fewer than all where the reply refuses a piece. */
uint32_t match_parts(struct sim *w, uint32_t d, struct session *s, struct event *ev);
/* A Peek of n tokens, in pieces if this history has some; leaves the reply to the last piece. */
void peek_parts(struct sim *w, uint32_t d, struct event *ev, uint32_t variant, uint32_t n);
/* The rest of a Match of an empty session is never sent: the Match is aborted. */
void match_given_up(struct sim *w, uint32_t d, struct session *s, uint32_t conn);
void ask_peek(struct sim *w, uint32_t d, uint32_t e);
/* Returns false if the Peek was not sent, or was refused. */
bool peek_at(struct sim *w, uint32_t d, uint32_t e, uint32_t ns, uint32_t variant, uint32_t n);
void ask_fetch(struct sim *w, uint32_t d, uint32_t s);
void fetches_look(struct sim *w, uint32_t d);
void ask_cancel(struct sim *w, uint32_t d, uint32_t s);
void session_fetched(struct sim *w, uint32_t d, const struct reply *reply);
void evict(struct sim *w, uint32_t d, bool all);
/* ---- fetches.c, nonsense.c, operator.c ---- */
void match_unheard(struct sim *w, uint32_t d, struct session *s, uint32_t conn);
void ask_again(struct sim *w, uint32_t d, uint32_t s);
void drain(struct sim *w, uint32_t d);
void operator_ends(struct sim *w, uint32_t d);
void check_store_full(struct sim *w, uint32_t d, const struct session *asking, uint32_t tokens);
void stale_request(struct sim *w, uint32_t d);
void bad_request(struct sim *w, uint32_t d);

void check_host_depth(struct sim *w, uint32_t d, uint32_t pool, uint32_t space, uint32_t variant,
                      uint32_t n, uint32_t depth, uint32_t host_depth);
void ask_reset(struct sim *w, uint32_t d, uint32_t e);
void reset_heard(struct sim *w, uint32_t d, const struct peer_msg *msg);
void reset_answered(struct sim *w, uint32_t d, const struct reply *r);
uint32_t namespace_number(const struct sim *w, struct namespace_id ns);
bool space_ready(struct sim *w, uint32_t d, uint32_t tenant, uint32_t ns);
void ask_pin(struct sim *w, uint32_t d);
void ask_unpin(struct sim *w, uint32_t d, uint32_t i);
void unpin_all(struct sim *w, uint32_t d);
void pins_forget(struct sim *w, uint32_t d, uint32_t pool);
bool space_current(const struct sim *w, uint32_t d, uint32_t tenant, uint32_t space);

/* ---- host.c: the host tier ---- */
void take_copy(struct sim *w, uint32_t d, const struct action *act);
void finish_copy(struct sim *w, uint32_t d, const struct job *j, struct event *ev, bool spoil);
void copy_ended(struct sim *w, uint32_t d, const struct job *j, enum tern_err err);
void host_open(struct sim *w, uint32_t d, struct pool *p, uint32_t asked);
void host_close(struct sim *w, uint32_t d, uint32_t pool);
bool host_fits(struct sim *w, uint32_t d, uint32_t pool, const uint32_t need[GROUPS]);
bool host_has(const struct chunk *c);
/* May the core have resumed the session, or have other copies of it than the model assumes? */
static inline bool may_be_undone(const struct sim *w, uint32_t d, const struct session *s)
{
    return s->away == AWAY_HOST && (w->cfg.nstate || w->d[d].spoilt || s->undone);
}
bool chunk_loading(const struct sim *w, uint32_t d, uint32_t pool, const struct chunk *c);
void host_sync(struct sim *w, uint32_t d, struct session *s);
/* host_read: a reader of a page of the host tier begins; returns the page's first granule.
 * host_read_end: the reader ends. */
uint32_t host_read(struct sim *w, uint32_t d, uint32_t pool, const struct page_at *at);
void host_read_end(struct sim *w, uint32_t d, uint32_t tenant, uint32_t group, uint32_t granule);
bool host_pinned(const struct sim *w, uint32_t d, uint32_t pool, const struct chunk *c, uint32_t g);
uint32_t chunk_pages(const struct sim *w, uint32_t d, uint32_t g, const struct chunk *c);

/* ---- away.c: retract, recover ---- */
void ask_retract(struct sim *w, uint32_t d, uint32_t s);
void ask_recover(struct sim *w, uint32_t d, uint32_t s);
bool session_recovered(struct sim *w, uint32_t d, const struct reply *reply);
void away_settle(struct sim *w, uint32_t d); /* finds those that may leave now */

/* ---- steps.c ---- */
void trim(struct sim *w, uint32_t d, struct session *s, uint32_t p, uint32_t step);
enum want { WANT_AUTO = 0, WANT_CLOSE, WANT_ABORT };
void step_request(struct sim *w, uint32_t d, uint32_t e, enum want want);
void step_compute(struct sim *w, uint32_t d, uint32_t s);
void step_one(struct sim *w, uint32_t d, uint32_t s, const struct step_op *op);

/* ---- jobs.c, data.c, serves.c ---- */
struct job *job_add(struct sim *w, uint32_t d, enum job_kind kind, uint64_t id, uint32_t pool);
void take_seal(struct sim *w, uint32_t d, const struct action *act);
void take_zero(struct sim *w, uint32_t d, const struct action *act);
void take_pull(struct sim *w, uint32_t d, const struct action *act);
void take_pull_stop(struct sim *w, uint32_t d, const struct action *act);
void take_serve_start(struct sim *w, uint32_t d, const struct action *act);
void take_serve_stop(struct sim *w, uint32_t d, const struct action *act);
void job_finish(struct sim *w, uint32_t d, uint32_t i);
void data_move(struct sim *w, uint32_t d,
               bool corrupt); /* some pages of some pull, and its completion */
void data_stale(struct sim *w, uint32_t d);
void data_quiet(struct sim *w, uint32_t d); /* proof for a stopped pull or serve */
bool data_break(struct sim *w, uint32_t d); /* true: a path fell silent, until a timeout */
void pull_opened(struct sim *w, uint32_t d, const struct peer_msg *msg);
void pull_offered(struct sim *w, uint32_t d, const struct peer_msg *msg);
void pull_ended(struct sim *w, uint32_t d, struct pull_id id);
void pull_over(struct sim *w, uint32_t d, struct pull *p, bool orphaned);
void serve_offered(struct sim *w, uint32_t d, uint32_t link, const struct peer_msg *msg);
uint32_t data_pending(struct sim *w, uint32_t d);

/* ---- net.c ---- */
void net_connect(struct sim *w, uint32_t d);
void net_send(struct sim *w, uint32_t d, const struct action *act);
void net_deliver(struct sim *w, uint32_t conn, uint32_t dir);
void net_cut(struct sim *w, uint32_t conn);
void net_notice(struct sim *w, uint32_t conn, uint32_t side); /* that side learns of the end */
void net_closed_by(struct sim *w, uint32_t d, uint32_t link);

/* ---- model.c: pages, chunks, sessions ---- */
struct granule *page_granule(struct sim *w, uint32_t d, uint32_t pool, uint32_t group,
                             uint32_t index);
bool granule_busy(const struct sim *w, uint32_t d, uint32_t tenant, const struct granule *g);
/* T1, P2: the core allocates this page. Returns its granule, in state `own` of `owner`. */
uint32_t hand_out(struct sim *w, uint32_t d, uint32_t pool, uint32_t group, struct page_ref ref,
                  enum own own, uint32_t owner);
struct chunk *chunk_at(struct sim *w, uint32_t d, uint32_t pool, uint32_t space, uint32_t variant,
                       uint32_t k);
bool chunk_visible(const struct sim *w, uint32_t d, const struct chunk *c);
bool chunk_certain(struct sim *w, uint32_t d, uint32_t pool, const struct chunk *c);
/* Does a session or a worker use the chunk, or does it wait for its step? */
bool chunk_held(struct sim *w, uint32_t d, uint32_t pool, const struct chunk *c);
bool chunk_pinned(struct sim *w, uint32_t d, uint32_t pool, const struct chunk *c);
/* Does the core pin a path of a depth that the model does not know? That is the path of the tokens
 * that a peer sends in pieces, or, up to its last step, that of a session which ended in
 * mid-transfer: no answer names what its fetch had found by then. */
bool path_held_untold(const struct daemon *m);
void chunk_drop(struct sim *w, uint32_t d, uint32_t pool, struct chunk *c);
void give_back(struct sim *w, uint32_t d, struct session *s, uint32_t group, uint32_t from,
               uint32_t to, uint32_t step);
void session_forget(struct sim *w, uint32_t d, struct session *s, uint32_t step);
void chunk_commit(struct sim *w, uint32_t d, struct session *s, uint32_t k, uint32_t step);
void chunk_publish(struct sim *w, uint32_t d, uint32_t pool, struct chunk *c,
                   const struct table_run *runs, uint32_t nruns);
void borrow(struct sim *w, uint32_t d, struct session *s, uint32_t group, uint32_t at,
            const struct chunk *c, uint32_t page);
/* Free and evictable pages of a group: what the model is sure of, and the most possible. */
void count_pages(struct sim *w, uint32_t d, uint32_t pool, uint32_t group, uint32_t *ret_free,
                 uint32_t *ret_least, uint32_t *ret_most, uint32_t *ret_retiring);
void note_need(struct sim *w, uint32_t d, uint32_t pool, const uint32_t need[GROUPS]);
bool recover_fits(struct sim *w, uint32_t d, const struct session *s);
void check_cap(struct sim *w, uint32_t d, uint32_t pool);
void model_before_step(struct sim *w, uint32_t d);
/* The answer is QUOTA if and only if the pool could never have the pages; all: the pages of HISTORY
 * groups that the session would have, 0 for other groups. Returns true if it was QUOTA. */
bool check_never(struct sim *w, uint32_t d, uint32_t pool, const struct op_result *r,
                 const uint32_t all[GROUPS]);
void check_shortage(struct sim *w, uint32_t d, uint32_t pool, const struct shortage *sh,
                    const uint32_t need[GROUPS]);
void check_page(struct sim *w, uint32_t d, uint32_t tenant, uint32_t granule, uint32_t group,
                uint32_t ns, uint32_t variant, uint32_t pos, uint32_t n, const char *what);
/* Like check_page, for a page's words [from, to); the first word is that of token `pos`. */
struct words {
    uint32_t tenant, granule, group, ns, variant, pos, from, to;
    bool host; /* the granule is one of host memory */
};
void check_page_words(struct sim *w, uint32_t d, const struct words *of, const char *what);
/* The bytes of a pool's granule in the region of the rank. */
struct tag *tag_at(struct sim *w, uint32_t d, uint32_t pool, uint32_t rank, uint32_t granule);
struct tag *htag_at(struct sim *w, uint32_t d, uint32_t pool, uint32_t rank, uint32_t hgranule);
bool pools_meet(const struct pool *a, const struct pool *b); /* share a region */
uint32_t pool_home(const struct pool *p);
/* Two ranges of granules that do not overlap in a region of `all` granules. */
static inline bool apart(uint32_t a, uint32_t an, uint32_t b, uint32_t bn, uint32_t all)
{
    return a % all >= b % all + bn || b % all >= a % all + an;
}

/* Do all ranks of the daemon's pools have all heads? */
static inline bool pool_whole(const struct sim *w, uint32_t d)
{
    return w->cfg.whole >> d & 1;
}

/* ---- state.c: STATE groups ---- */
#define STATE_GROUPS(w, g)                                                                         \
    uint32_t g = (w)->cfg.ngroups;                                                                 \
    g < (w)->ngroups;                                                                              \
    g++
static inline bool recurrent(const struct sim *w, uint32_t g)
{
    return w->window[g] == 0;
}
static inline bool has_recurrent_state(const struct sim *w)
{
    for (STATE_GROUPS(w, g))
        if (recurrent(w, g))
            return true;
    return false;
}
/* Number of chunks that the window of a group reaches into. */
uint32_t reach_of(const struct sim *w, uint32_t g);
/* The first page that a session at length `at` reads. */
uint32_t window_begin(const struct sim *w, uint32_t d, uint32_t g, uint32_t at);
/* A page that a session reads when it resumes at `t`: its words up to `t`, except first words that
 * the page lacks and that lie before the window. */
struct window_page {
    uint32_t granule, group, at, t;
};
uint32_t window_skips(const struct sim *w, uint32_t d, uint32_t tenant,
                      const struct window_page *p);
/* Like window_skips, for a page that lacks its first words. */
uint32_t window_lacks(const struct sim *w, uint32_t d, const struct window_page *p, uint32_t lacks);
void check_window_page(struct sim *w, uint32_t d, const struct session *s,
                       const struct window_page *p, const char *what);
uint32_t seg_pages(const struct sim *w, uint32_t d, uint32_t g, uint32_t k);
/* Does a session need a page of chunk k to resume at t? */
bool state_counts(const struct sim *w, uint32_t d, const struct session *s, uint32_t g, uint32_t k);
bool in_window(const struct sim *w, uint32_t d, uint32_t g, uint32_t k, uint32_t t);
uint32_t state_most(struct sim *w, uint32_t d, uint32_t pool, uint32_t g);
void state_fetched(struct sim *w, uint32_t d, const struct session *s, uint32_t t);
bool state_copied(struct sim *w, uint32_t d, const struct session *s, uint32_t g);
void state_leave_device(struct sim *w, uint32_t d, struct session *s, uint32_t g);
void state_come_back(struct sim *w, uint32_t d, struct session *s, uint32_t g,
                     const struct table_run *runs, uint32_t nruns);
void state_release_entry(struct sim *w, uint32_t d, struct session *s, uint32_t g, uint32_t at,
                         uint32_t step);
void state_trim(struct sim *w, uint32_t d, struct session *s, uint32_t p, uint32_t step);
/* Likewise for all the STATE that the session owns, when it returns to its committed length. */
void state_disown(struct sim *w, uint32_t d, struct session *s, uint32_t step);
/* Does the session need its own STATE to resume at its committed length? */
bool state_needs_own(const struct sim *w, uint32_t d, const struct session *s);
void state_forget_session(struct sim *w, uint32_t d, struct session *s, uint32_t step);
void state_slide(struct sim *w, uint32_t d, struct session *s, uint32_t next, uint32_t step);
/* May the core refuse a resume at p? */
bool state_may_refuse(const struct sim *w, uint32_t d, const struct session *s, uint32_t p);
bool state_window_whole(const struct sim *w, uint32_t d, const struct session *s, uint32_t p);
/* The STATE of a chunk is gone: it is an error if somebody may have been reading it. */
void state_gone(struct sim *w, uint32_t d, uint32_t pool, struct chunk *c);
/* The core allocates a page of the STATE, which went with all of the node's, or alone long ago. */
void state_handed_on(struct sim *w, uint32_t d, uint32_t pool, struct chunk *c, uint32_t g);
bool state_visible_of(const struct sim *w, uint32_t d, const struct chunk *c, uint32_t g);
bool state_visible(const struct sim *w, uint32_t d, const struct chunk *c);
void state_engine_gone(struct sim *w, uint32_t d, uint32_t pool, struct chunk *c, uint32_t e);
bool state_certain(struct sim *w, uint32_t d, uint32_t pool, const struct chunk *c, uint32_t g);
/* Would the model bet that a match can end there? */
bool state_resumes(struct sim *w, uint32_t d, uint32_t pool, uint32_t space, uint32_t variant,
                   uint32_t k);
/* An answer borrows the window of the committed length for the session. */
void state_borrow(struct sim *w, uint32_t d, struct session *s, uint32_t from, uint32_t depth,
                  const struct table_run *runs, uint32_t nruns);
void state_commit(struct sim *w, uint32_t d, struct session *s, struct chunk *c, uint32_t step,
                  bool adopted, const struct table_run *runs, uint32_t nruns);
/* The pages of a window that no chunk took move to the chunks now. */
void state_give(struct sim *w, uint32_t d, struct session *s, uint32_t step, bool whole_answer,
                const struct table_run *runs, uint32_t nruns);
void state_handed(struct sim *w, uint32_t d, struct session *s, const struct table_run *runs,
                  uint32_t nruns);
void state_take_from(struct sim *w, uint32_t d, struct session *s, const struct table_run *run);
void state_touch_recurrent(struct sim *w, uint32_t d, struct work *k, struct session *s, uint32_t g,
                           uint32_t to, uint32_t step);
void state_look(struct sim *w, uint32_t d);
void state_ended(struct sim *w, uint32_t d, const struct session *s);
void state_release_point(struct sim *w, uint32_t d, const struct session *s);
const struct page_ref *find_page(const struct table_run *runs, uint32_t nruns, uint32_t group,
                                 uint32_t at);

/* ---- converge.c ---- */
void converge(struct sim *w);

/* ---- shrink.c ---- */
void history_shrink(struct sim *w, struct history *h); /* while it fails in the same way */
bool history_write(const struct history *h, const char *path, const char *why);
bool history_read(const char *path, struct history *ret);

#endif
