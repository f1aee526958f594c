/* Tickets in the simulator (Y1 to Y3, Y6): see tickets.c for those that a daemon gave, and
 * ticket_fetches.c for who fetches by them. A session that was handed over stays in its slot, in
 * the turn TURN_HANDED, and its pages stay its own; what is kept of its ticket hangs on the history
 * as one block a daemon. */
#ifndef SIM_TICKETS_H
#define SIM_TICKETS_H

#include "sim.h"

#define SHOWN                                                                                      \
    32 /* tickets of a daemon that somebody may still show: those that stand, and some of          \
          those that do not */
#define ASKED      16  /* transfers by ticket of a daemon, by the question to the peer */
#define BLOB_WORDS 100 /* of a blob, at most */

/* What a router knows of a ticket, and what is to come of it. */
struct shown {
    struct ticket ticket;
    uint32_t uid; /* 0: there is none */
    uint32_t blob_bytes;
    uint8_t daemon, tenant, ns, variant, won;
};

/* By the slot of its session. */
struct tk {
    uint8_t stands, ends, sealing, sealed;
    uint8_t left;            /* its step has passed: it is its engine's no more */
    uint8_t own;             /* it has pages of its own */
    uint8_t served;          /* a transfer out serves it; `started`: and has offered it */
    uint8_t started, failed; /* failed: one did, and it was there afterwards */
    uint8_t shown;
    struct pull_id server; /* of the peer: the one that is served */
    struct serve_id serve; /* once it started */
    uint32_t link, step;
    uint64_t until;
};

/* A fetch by ticket under way, by the slot of its session. */
struct tfetch {
    uint8_t on, forged;
    struct shown of; /* with the ticket as it was shown */
};

struct asked {
    struct pull_id pull; /* gen 0: unused */
    struct shown of;
    uint8_t tenant, variant, ns, ranks, forged;
    uint8_t offered, answered, walking; /* walking: the source asked for more tokens */
    enum tern_err said, answer;         /* by the source; to the engine */
};

struct tickets {
    uint32_t closing; /* some were closed: what they hold comes free in the next steps */
    uint32_t n, uid, next_shown, next_asked;
    struct tk tk[SESSIONS];
    struct shown shown[SHOWN];
    struct tfetch fetch[SESSIONS];
    struct asked asked[ASKED];
    const struct asked *judged; /* its question is with the source in this step, from that link */
    uint32_t link;
    struct seal_id early; /* a job of a ticket of which no answer has told yet; gen 0: none */
    bool may_serve, told; /* of it: what was expected; the source has said something */
    uint64_t made[TENANTS], taken[TENANTS], dropped[TENANTS], expired[TENANTS];
};

void tickets_create(struct sim *w);
void tickets_destroy(struct sim *w);
void tickets_clear(struct sim *w, uint32_t d);

/* ---- tickets.c: the source ---- */
/* A session that could be handed over is. False: it was not. */
bool ask_handoff(struct sim *w, uint32_t d, uint32_t s);
void ask_renew(struct sim *w, uint32_t d, bool forge);
void ask_drop(struct sim *w, uint32_t d, bool forge);
/* One that was given by the daemon, most often one that stands. NULL: it has given none. */
struct shown *ticket_pick(struct sim *w, uint32_t d);
/* The ticket that stands of that id. NULL: none does. */
struct tk *ticket_of(struct sim *w, uint32_t d, const struct ticket *t);
struct session *ticket_session(struct sim *w, uint32_t d, const struct tk *t);
/* After each step: whose step has passed leaves its engine, whose time is over ends. */
void tickets_after(struct sim *w, uint32_t d);
/* Of an engine that is gone: does this one outlive it? */
bool ticket_outlives(struct sim *w, uint32_t d, uint32_t s);
void ticket_forget(struct sim *w, uint32_t d, uint32_t s);
void ticket_seal(struct sim *w, uint32_t d, const struct action *act);
void ticket_sealed_now(struct sim *w, uint32_t d, uint64_t job);
void tickets_check(struct sim *w, uint32_t d);
/* Of the token store, that blobs may take. */
uint32_t ticket_blocks(const struct sim *w, uint32_t d, uint32_t tenant);
/* When the last of those ends that end in that time; `from`: none does. */
uint64_t ticket_near(const struct sim *w, uint64_t from, uint64_t to);
/* Is the news that one was taken on its way to the source? */
bool ticket_done_comes(const struct sim *w, uint32_t source);
/* The deadline of the last one that stands; 0: none does. */
uint64_t tickets_until(const struct sim *w);

/* ---- tickets.c: what the source of a fetch hears and says ---- */
void ticket_heard(struct sim *w, uint32_t d, const struct peer_msg *msg, uint32_t link);
/* True: it is of a fetch by ticket, and nothing more is to be asked of this BUSY. */
bool ticket_offered(struct sim *w, uint32_t d, const struct peer_msg *msg);
/* Is it the one that the ticket's session has in that place of its table? */
bool ticket_page(struct sim *w, uint32_t d, struct pull_id pull, const struct granule *g,
                 uint32_t group, uint32_t at);
/* The same of one that is asked for. */
bool ticket_serves(struct sim *w, uint32_t d, struct serve_id serve, const struct granule *g);
void ticket_quiet(struct sim *w, uint32_t d, struct serve_id serve);
void ticket_link_down(struct sim *w, uint32_t d, uint32_t link);

/* ---- ticket_fetches.c: the destination ---- */
void ask_ticket(struct sim *w, uint32_t d);
void ticket_opened(struct sim *w, uint32_t d, const struct peer_msg *msg, const struct session *s);
struct asked *ticket_asked(struct sim *w, uint32_t d, struct pull_id pull);
void ticket_done(struct sim *w, uint32_t d, const struct peer_msg *msg);
/* False: it was no fetch by ticket. */
bool ticket_fetched(struct sim *w, uint32_t d, struct session *s, const struct reply *r);
uint32_t blob_word(uint32_t uid, uint32_t i);

/* ---- of fetches.c, sessions.c, state.c, steps.c and away.c, for them ---- */
void fetch_send(struct sim *w, uint32_t d, struct session *s, struct event *ev, uint32_t conn);
void fetch_marks(struct sim *w, const struct session *s, const struct reply *r, uint32_t before);
void fetch_take(struct sim *w, uint32_t d, struct session *s, const struct reply *r);
void fetch_ended(struct sim *w, uint32_t d, struct session *s, const struct reply *r);
void fetch_tail_stays(struct sim *w, const struct session *s, const struct reply *r);
void fetch_owned(struct sim *w, uint32_t d, struct session *s, const struct reply *r);
void check_pulls_full(struct sim *w, uint32_t d, uint32_t tenant);
void match_these(struct sim *w, uint32_t d, uint32_t s, uint32_t variant, uint32_t n);
void step_commit(struct sim *w, uint32_t d, uint32_t s);
void queue_copies(struct sim *w, uint32_t d, struct session *s);
/* STATE that the ticket of a session at its written length does not need is given back. */
void state_hand_over(struct sim *w, uint32_t d, struct session *s, uint32_t step);
/* What an answer gives of STATE to go on from `at`, which may be no multiple of L: of the path to
 * `depth`, and of the session's own. */
void state_arrived_at(struct sim *w, uint32_t d, struct session *s, uint32_t from, uint32_t depth,
                      uint32_t at, const struct table_run *runs, uint32_t nruns);

#endif
