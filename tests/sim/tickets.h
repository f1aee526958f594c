/* Tickets in the simulator (Y1 to Y6): see tickets.c for those that a daemon gave, ticket_serves.c
 * and follows.c for transfers out that serve them, ticket_fetches.c for who fetches by a ticket,
 * and fetch_waits.c for what is told of a fetch that is under way. A session that was handed over
 * stays in its slot, in the turn TURN_HANDED, and its pages stay its own; what is kept of its
 * ticket hangs on the history as one block a daemon. */
#ifndef SIM_TICKETS_H
#define SIM_TICKETS_H

#include "sim.h"

#define SHOWN                                                                                      \
    32 /* tickets of a daemon that somebody may still show: those that stand, and some of          \
          those that do not */
#define ASKED      32  /* transfers by ticket of a daemon, by the question to the peer */
#define BLOB_WORDS 100 /* of a blob, at most */

/* What a router knows of a ticket, and what is to come of it. The length of an early one stays open
 * (0) in what it shows. */
struct shown {
    struct ticket ticket;
    uint32_t uid; /* 0: there is none */
    uint32_t blob_bytes;
    uint8_t daemon, tenant, ns, variant, won;
};

/* By the slot of its session. */
struct tk {
    uint8_t stands, ends, sealing, sealed;
    uint8_t promised;        /* its session still runs */
    uint8_t left;            /* its step has passed: it is its engine's no more */
    uint8_t own;             /* it has pages of its own */
    uint8_t served;          /* a transfer out serves it; `started`: and has offered it */
    uint8_t follows;         /* and it follows the session */
    uint8_t started, failed; /* failed: one did, and it was there afterwards */
    uint8_t all;             /* and what the peer was told is all of it */
    uint8_t still, told;     /* nothing reads it; how its fetch ended was heard */
    uint8_t shown;
    struct pull_id server; /* of the peer: the one that is served */
    struct serve_id serve; /* once it started */
    uint32_t link, step;
    uint64_t until;
};

/* A fetch by ticket under way, by the slot of its session. */
struct tfetch {
    uint8_t on, forged, follow;
    uint8_t local;      /* this very daemon gave it */
    enum tern_err want; /* and that is what is said */
    struct shown of;    /* with the ticket as it was shown */
};

/* Who waits for how far a fetch has come, and what was told of it, by the slot of its session. */
struct fwait {
    uint64_t request, replaced; /* that are to be answered; 0: none */
    uint32_t conn, above;
    uint8_t pages; /* it asks for the pages that are still to come */
    uint8_t ended; /* it was told the last lengths: the fetch is answered next, with the same */
    struct lengths last;
    uint32_t told; /* written tokens, at most */
    uint32_t
        gen[CHUNKS]; /* of the first page of a published chunk, as it was told; 0: it was not */
    uint32_t ncoming[GROUPS]; /* of struct tickets */
};

/* What the source of a follower has seen of the session's list since it compared the tokens. Once
 * set, what is here stays, for the source's last word may be on its way for long. */
struct led {
    uint32_t from, history, to;        /* of the question */
    uint32_t heard, told, cut, handed; /* tokens; handed: the other length, or 0 */
    uint8_t offers, wants, over; /* over: the source has given it up, or was told that it is */
    uint8_t unsure;              /* the session fetches: how far it is, no answer has told */
    uint8_t beyond, gone, reset, differs;
    uint64_t since; /* that the source's time counts from */
};

struct asked {
    struct pull_id pull; /* gen 0: unused */
    struct shown of;
    uint8_t tenant, variant, ns, ranks, forged;
    uint8_t answered, walking;  /* walking: the source asked for more tokens */
    uint8_t follow, refused;    /* refused: by the source, at once */
    uint8_t offered_all;        /* what it has is known: `of` has what the ticket had then */
    uint32_t to, length;        /* tokens: of the question; that were handed over */
    uint32_t delivered, handed; /* the destination has heard */
    uint64_t since;             /* that its time counts from, at the latest */
    uint64_t word_ns;           /* 0, or until when a source that refused a page may say why */
    struct led led;
    enum tern_err said, answer; /* by the source; to the engine */
};

struct tickets {
    uint32_t closing;        /* some were closed: what they hold comes free in the next steps */
    uint32_t let_go[GROUPS]; /* granules that those had which ended in the last step */
    uint32_t n, uid, next_shown, next_asked;
    struct tk tk[SESSIONS];
    struct shown shown[SHOWN];
    struct tfetch fetch[SESSIONS];
    struct fwait wait[SESSIONS];
    struct asked asked[ASKED];
    struct asked *judged; /* its question is with the source in this step, from that link */
    uint32_t link;
    struct seal_id early; /* a job of a ticket of which no answer has told yet; gen 0: none */
    bool may_serve, told; /* of it: what was expected; the source has said something */
    bool unsure;          /* and its session fetched then: how long its list is, nobody has told */
    uint64_t made[TENANTS], taken[TENANTS], dropped[TENANTS], expired[TENANTS];
    /* Promises that somebody followed beyond their time, and whose engine died: an engine is taken
     * apart in pieces, and who followed may end before. */
    uint64_t outlasted[TENANTS];
    struct page_ref coming[SESSIONS][GROUPS][TABLE]; /* pages that are to come, as they were told */
};

void tickets_create(struct sim *w);
void tickets_destroy(struct sim *w);
void tickets_clear(struct sim *w, uint32_t d);

/* ---- tickets.c: the source ---- */
/* Y1: a ticket of a session that still runs. False: there is none. */
bool ask_ticket_open(struct sim *w, uint32_t d, uint32_t s);
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
/* The session's table was given up, or it was closed: a promise is over. */
void promise_over(struct sim *w, uint32_t d, const struct session *s);
/* How many tokens a fetch by it has to have in its list. */
uint32_t ticket_length(struct sim *w, uint32_t d, const struct shown *of);
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

/* ---- ticket_serves.c: what the source of a fetch hears and says ---- */
/* Could a transfer begin to serve it? */
bool ticket_ready(struct sim *w, uint32_t d, const struct tk *t);
/* The question was heard, and nothing was said against it. */
void ticket_accepted(struct sim *w, uint32_t d);
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

/* ---- of tickets.c and ticket_serves.c, for each other and for follows.c ---- */
struct shown *shown_of(struct sim *w, uint32_t d, const struct tk *t);
enum tern_err shown_expected(struct sim *w, uint32_t d, const struct ticket *t, uint32_t tenant);
/* The transfer out that serves the peer's. NULL: none does. */
/* Can its pages go to the pool of who asks? */
bool ticket_suits(const struct sim *w, uint32_t d, const struct asked *a, const struct session *s);
struct tk *ticket_server(struct sim *w, uint32_t d, struct pull_id pull);

/* ---- follows.c: transfers out that follow a session ---- */
/* Of the session's list only the first n tokens stay what they were. */
void follow_cut(struct sim *w, uint32_t d, const struct session *s, uint32_t n);
/* Its list changes, and no answer tells how. */
void follow_unsure(struct sim *w, uint32_t d, const struct session *s);
/* Before each step: what the sessions that are followed have come to. */
void follows_look(struct sim *w, uint32_t d);
/* Before the core hears it. True: the peer's question may be accepted. */
bool follow_heard(struct sim *w, uint32_t d, const struct peer_msg *msg, struct asked *a);
void follow_refused(struct sim *w, uint32_t d, struct asked *a, const struct peer_msg *msg);
void follow_over(struct sim *w, uint32_t d, struct pull_id pull);
void follow_accepted(struct sim *w, uint32_t d, struct tk *t, struct asked *a);
void follow_offered(struct sim *w, uint32_t d, struct tk *t, struct asked *a,
                    const struct peer_msg *msg);
bool follow_page(struct sim *w, uint32_t d, const struct tk *t, const struct granule *g,
                 uint32_t group, uint32_t at);
/* The destination hears how far it was offered, or that it is over, and why. */
void follow_told(struct sim *w, uint32_t d, const struct peer_msg *msg);
/* The destination's time begins anew, for one that follows. */
void follow_goes_on(struct sim *w, uint32_t d, struct pull_id pull);
void follow_promise_over(struct sim *w, uint32_t d, const struct tk *t);
/* With nothing else to do, has a source forgotten to offer what there is? */
void follows_check(struct sim *w, uint32_t d);

/* ---- fetch_waits.c ---- */
void ask_fetch_wait(struct sim *w, uint32_t d, uint32_t s, bool pages);
void fetch_wait_answered(struct sim *w, uint32_t d, const struct reply *r);
void fetch_waits_clear(struct sim *w, uint32_t d, uint32_t s);
void fetch_waits_conn_left(struct sim *w, uint32_t d, uint32_t conn);
/* The answer to the fetch, before and after the session has taken it in. */
void fetch_waits_end(struct sim *w, uint32_t d, const struct session *s, const struct reply *r);
void fetch_waits_kept(struct sim *w, uint32_t d, const struct session *s);
/* A page that the transfer asks for is one of those that were told. */
void fetch_waits_page(struct sim *w, uint32_t d, struct pull_id pull, uint32_t group,
                      struct page_ref ref);

/* ---- ticket_local.c: at the daemon that gave it ---- */
/* Into another pool its pages move over the link that the daemon has to itself. */
bool ticket_moves(struct sim *w, uint32_t d, const struct session *s, const struct tfetch *f);
/* What a fetch is told, as far as the model is sure; the session has no tail that it needs. */
enum tern_err ticket_local_expected(struct sim *w, uint32_t d, const struct session *s,
                                    const struct tfetch *f);
void ticket_local(struct sim *w, uint32_t d, struct session *s, const struct tfetch *f,
                  const struct reply *r);

/* ---- ticket_fetches.c: the destination ---- */
/* All of it has come: the session goes on from there. `of` and n: what was handed over. */
void ticket_take(struct sim *w, uint32_t d, struct session *s, const struct tfetch *f,
                 const struct shown *of, uint32_t n, const struct reply *r);
/* Follow: while the session may still run. */
void ask_ticket(struct sim *w, uint32_t d, bool follow);
/* When nothing goes wrong any more: whoever can fetches the ticket of that slot, at the other
 * daemon. Returns the session there. NO: there is no such ticket, or nobody who can. */
uint32_t ticket_fetch_last(struct sim *w, uint32_t d, uint32_t i);
void ticket_came_last(struct sim *w, uint32_t d, uint32_t i, uint32_t by);
void ticket_opened(struct sim *w, uint32_t d, const struct peer_msg *msg, const struct session *s);
struct asked *ticket_asked(struct sim *w, uint32_t d, struct pull_id pull);
/* Of that pull: its source has to say why. */
void ticket_page_refused(struct sim *w, uint32_t d, struct pull_id pull);
void ticket_done(struct sim *w, uint32_t d, const struct peer_msg *msg);
/* False: it was no fetch by ticket. */
bool ticket_fetched(struct sim *w, uint32_t d, struct session *s, const struct reply *r);
uint32_t blob_word(uint32_t uid, uint32_t i);

/* ---- of fetches.c, sessions.c, state.c, steps.c and away.c, for them ---- */
void fetch_send(struct sim *w, uint32_t d, struct session *s, struct event *ev, uint32_t conn);
void fetch_marks(struct sim *w, uint32_t d, const struct session *s, const struct reply *r,
                 uint32_t before);
void fetch_take(struct sim *w, uint32_t d, struct session *s, const struct reply *r);
void fetch_ended(struct sim *w, uint32_t d, struct session *s, const struct reply *r);
void fetch_tail_stays(struct sim *w, const struct session *s, const struct reply *r);
void fetch_owned(struct sim *w, uint32_t d, struct session *s, const struct reply *r);
void check_pulls_full(struct sim *w, uint32_t d, uint32_t tenant);
/* And of questions to peers (asks.c). */
void check_asks_full(struct sim *w, uint32_t d, const struct session *of);
void match_these(struct sim *w, uint32_t d, uint32_t s, uint32_t variant, uint32_t n);
void step_commit(struct sim *w, uint32_t d, uint32_t s);
void queue_copies(struct sim *w, uint32_t d, struct session *s);
/* STATE that the ticket of a session at its written length does not need is given back. */
/* Of a fetch that was served at the other daemon. */
void state_whole_from(struct sim *w, uint32_t d, struct session *s, uint32_t from, uint32_t at);
void state_hand_over(struct sim *w, uint32_t d, struct session *s, uint32_t step);
/* What an answer gives of STATE to go on from `at`, which may be no multiple of L: of the path to
 * `depth`, and of the session's own. */
void state_arrived_at(struct sim *w, uint32_t d, struct session *s, uint32_t from, uint32_t depth,
                      uint32_t at, const struct table_run *runs, uint32_t nruns);

#endif
