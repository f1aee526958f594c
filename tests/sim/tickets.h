/* Tickets in the simulator (Y1 to Y6): see tickets.c for the tickets that a daemon gave,
 * ticket_serves.c and follows.c for transfers out that serve them, ticket_fetches.c for fetches by
 * ticket, and fetch_waits.c for the answers about a fetch that is under way. A session that was
 * handed over stays in its slot, in the turn TURN_HANDED, and its pages stay its own; the model of
 * its ticket hangs on the history as one block a daemon. */
#ifndef SIM_TICKETS_H
#define SIM_TICKETS_H

#include "sim.h"

#define SHOWN                                                                                      \
    32 /* tickets of a daemon that somebody may still show: those that stand, and some of          \
          those that do not */
#define ASKED      32  /* transfers by ticket of a daemon, by the question to the peer */
#define BLOB_WORDS 100 /* words of a blob, at most */

/* A ticket as a router knows it, and its outcome. In an early ticket the length stays open (0). */
struct shown {
    struct ticket ticket;
    uint32_t uid; /* 0: no ticket */
    uint32_t blob_bytes;
    uint8_t daemon, tenant, ns, variant, won;
};

/* The source's state of a ticket, by the slot of its session. */
struct tk {
    uint8_t stands, ends, sealing, sealed;
    uint8_t promised;        /* its session still runs */
    uint8_t left;            /* its step has passed: the engine no longer owns it */
    uint8_t own;             /* it has pages of its own */
    uint8_t served;          /* a transfer out serves it; `started`: and has offered it */
    uint8_t follows;         /* that transfer follows the session */
    uint8_t started, failed; /* failed: a transfer failed, and the ticket remained */
    uint8_t all;             /* the peer knows that all was offered */
    uint8_t still, told;     /* nothing reads it; the source knows how its fetch ended */
    uint8_t shown;
    struct pull_id server; /* the peer's pull that it serves */
    struct serve_id serve; /* valid once `started` */
    uint32_t link, step;
    uint64_t until;
};

/* A fetch by ticket under way, by the slot of its session. */
struct tfetch {
    uint8_t on, forged, follow;
    uint8_t local;      /* this daemon gave the ticket */
    enum tern_err want; /* the expected answer, where `local` */
    struct shown of;    /* the ticket as it was shown */
};

/* A FetchWait and its answers, by the slot of the session. */
struct fwait {
    uint64_t request, replaced; /* requests to be answered; 0: none */
    uint32_t conn, above;
    uint8_t pages; /* it asks for the indices of the pages still to come */
    uint8_t ended; /* it got the last lengths: the fetch is answered next, with the same */
    struct lengths last;
    uint32_t told;        /* written tokens of the answers so far, at most */
    uint32_t gen[CHUNKS]; /* of the first page of a published chunk, as it was answered; 0: never */
    uint32_t ncoming[GROUPS]; /* of tickets.coming */
};

/* Changes of the session's list since the source of a follower compared the tokens. A flag that is
 * set stays set, because the source's last message may be under way for long. */
struct led {
    uint32_t from, history, to;        /* of the question */
    uint32_t heard, told, cut, handed; /* tokens; handed: the other length, or 0 */
    uint8_t offers, wants, over;       /* over: the source has ended it, or knows that it is over */
    uint8_t unsure;                    /* the session fetches: no answer has named its length */
    uint8_t beyond, gone, reset, differs;
    uint64_t since; /* start of the source's timeout */
};

struct asked {
    struct pull_id pull; /* gen 0: unused */
    struct shown of;
    uint8_t tenant, variant, ns, ranks, forged;
    uint8_t answered, walking;  /* walking: the source asked for more tokens */
    uint8_t follow, refused;    /* refused: by the source, at once */
    uint8_t offered_all;        /* all was offered: `of` is the ticket as of then */
    uint32_t to, length;        /* tokens: of the question; of the hand-over */
    uint32_t delivered, handed; /* received by the destination */
    uint64_t since;             /* start of its timeout, at the latest */
    uint64_t word_ns;           /* 0, or deadline for the cause of a refused page */
    struct led led;
    enum tern_err said, answer; /* by the source; to the engine */
};

struct tickets {
    uint32_t closing;        /* some were closed: the next steps free their pages */
    uint32_t let_go[GROUPS]; /* granules of those that ended in the last step */
    uint32_t n, uid, next_shown, next_asked;
    struct tk tk[SESSIONS];
    struct shown shown[SHOWN];
    struct tfetch fetch[SESSIONS];
    struct fwait wait[SESSIONS];
    struct asked asked[ASKED];
    struct asked *judged; /* the source decides on its question in this step, from that link */
    uint32_t link;
    struct seal_id early; /* a job of a ticket that no answer has named yet; gen 0: none */
    bool may_serve, told; /* of it: the expected outcome; the source has answered */
    bool unsure;          /* and its session fetched then: no answer has named its length */
    uint64_t made[TENANTS], taken[TENANTS], dropped[TENANTS], expired[TENANTS];
    /* Promises that were followed beyond their time, and whose engine died: the core takes an
     * engine apart in pieces, and the follower may end before. */
    uint64_t outlasted[TENANTS];
    struct page_ref coming[SESSIONS][GROUPS][TABLE]; /* pages still to come, as answered */
};

void tickets_create(struct sim *w);
void tickets_destroy(struct sim *w);
void tickets_clear(struct sim *w, uint32_t d);

/* ---- tickets.c: the source ---- */
/* Y1: opens a ticket of a session that still runs. Returns false if the daemon gave none. */
bool ask_ticket_open(struct sim *w, uint32_t d, uint32_t s);
/* Hands over a session that can be handed over. Returns false if it was not. */
bool ask_handoff(struct sim *w, uint32_t d, uint32_t s);
void ask_renew(struct sim *w, uint32_t d, bool forge);
void ask_drop(struct sim *w, uint32_t d, bool forge);
/* A ticket that the daemon gave, most often one that stands. NULL: it has given none. */
struct shown *ticket_pick(struct sim *w, uint32_t d);
/* The standing ticket of that id; NULL: none. */
struct tk *ticket_of(struct sim *w, uint32_t d, const struct ticket *t);
struct session *ticket_session(struct sim *w, uint32_t d, const struct tk *t);
/* After each step: a ticket whose step has passed leaves its engine; one at its deadline ends. */
void tickets_after(struct sim *w, uint32_t d);
/* The session's table was released, or it was closed: a promise is over. */
void promise_over(struct sim *w, uint32_t d, const struct session *s);
/* How many tokens the list of a session must have for a fetch by this ticket. */
uint32_t ticket_length(struct sim *w, uint32_t d, const struct shown *of);
/* The engine is gone: does the ticket of this session outlive it? */
bool ticket_outlives(struct sim *w, uint32_t d, uint32_t s);
void ticket_forget(struct sim *w, uint32_t d, uint32_t s);
void ticket_seal(struct sim *w, uint32_t d, const struct action *act);
void ticket_sealed_now(struct sim *w, uint32_t d, uint64_t job);
void tickets_check(struct sim *w, uint32_t d);
/* Blocks of the token store that blobs may take. */
uint32_t ticket_blocks(const struct sim *w, uint32_t d, uint32_t tenant);
/* The latest deadline in (from, to] of a standing ticket; `from`: none. */
uint64_t ticket_near(const struct sim *w, uint64_t from, uint64_t to);
/* Is the message that a ticket was taken on its way to the source? */
bool ticket_done_comes(const struct sim *w, uint32_t source);
/* The deadline of the last standing ticket; 0: none. */
uint64_t tickets_until(const struct sim *w);

/* ---- ticket_serves.c: what the source of a fetch receives and sends ---- */
/* Could a transfer begin to serve the ticket? */
bool ticket_ready(struct sim *w, uint32_t d, const struct tk *t);
/* The core has received the question and did not refuse it. */
void ticket_accepted(struct sim *w, uint32_t d);
void ticket_heard(struct sim *w, uint32_t d, const struct peer_msg *msg, uint32_t link);
/* Returns true if the message belongs to a fetch by ticket and its BUSY needs no further check. */
bool ticket_offered(struct sim *w, uint32_t d, const struct peer_msg *msg);
/* Is it the page at that place of the table of the ticket's session? */
bool ticket_page(struct sim *w, uint32_t d, struct pull_id pull, const struct granule *g,
                 uint32_t group, uint32_t at);
/* Does that transfer out serve the ticket that owns the page? */
bool ticket_serves(struct sim *w, uint32_t d, struct serve_id serve, const struct granule *g);
void ticket_quiet(struct sim *w, uint32_t d, struct serve_id serve);
void ticket_link_down(struct sim *w, uint32_t d, uint32_t link);

/* ---- of tickets.c and ticket_serves.c, for each other and for follows.c ---- */
struct shown *shown_of(struct sim *w, uint32_t d, const struct tk *t);
enum tern_err shown_expected(struct sim *w, uint32_t d, const struct ticket *t, uint32_t tenant);
/* Can the pages of the session go to the pool of the fetch? */
bool ticket_suits(const struct sim *w, uint32_t d, const struct asked *a, const struct session *s);
/* The ticket that is served to the peer's pull; NULL: none. */
struct tk *ticket_server(struct sim *w, uint32_t d, struct pull_id pull);

/* ---- follows.c: transfers out that follow a session ---- */
/* Only the first n tokens of the session's list stay unchanged. */
void follow_cut(struct sim *w, uint32_t d, const struct session *s, uint32_t n);
/* The session's list changes, and no answer shows how. */
void follow_unsure(struct sim *w, uint32_t d, const struct session *s);
/* Before each step: records the changes of the followed sessions. */
void follows_look(struct sim *w, uint32_t d);
/* Before the core receives it. Returns true if the core may accept the question. */
bool follow_heard(struct sim *w, uint32_t d, const struct peer_msg *msg, struct asked *a);
void follow_refused(struct sim *w, uint32_t d, struct asked *a, const struct peer_msg *msg);
void follow_over(struct sim *w, uint32_t d, struct pull_id pull);
void follow_accepted(struct sim *w, uint32_t d, struct tk *t, struct asked *a);
void follow_offered(struct sim *w, uint32_t d, struct tk *t, struct asked *a,
                    const struct peer_msg *msg);
bool follow_page(struct sim *w, uint32_t d, const struct tk *t, const struct granule *g,
                 uint32_t group, uint32_t at);
/* The destination receives an offer, or the end of the transfer with its cause. */
void follow_told(struct sim *w, uint32_t d, const struct peer_msg *msg);
/* The timeout of the destination begins anew, for a fetch that follows. */
void follow_goes_on(struct sim *w, uint32_t d, struct pull_id pull);
void follow_promise_over(struct sim *w, uint32_t d, const struct tk *t);
/* When nothing else is under way: has a source forgotten to offer something? */
void follows_check(struct sim *w, uint32_t d);

/* ---- fetch_waits.c ---- */
void ask_fetch_wait(struct sim *w, uint32_t d, uint32_t s, bool pages);
void fetch_wait_answered(struct sim *w, uint32_t d, const struct reply *r);
void fetch_waits_clear(struct sim *w, uint32_t d, uint32_t s);
void fetch_waits_conn_left(struct sim *w, uint32_t d, uint32_t conn);
/* The answer to the fetch, before and after the session has applied it. */
void fetch_waits_end(struct sim *w, uint32_t d, const struct session *s, const struct reply *r);
void fetch_waits_kept(struct sim *w, uint32_t d, const struct session *s);
/* A page that the transfer asks for is one of those that FetchWait named. */
void fetch_waits_page(struct sim *w, uint32_t d, struct pull_id pull, uint32_t group,
                      struct page_ref ref);

/* ---- ticket_local.c: at the daemon that gave it ---- */
/* Do the pages move over the daemon's link to itself, because the pool is another one? */
bool ticket_moves(struct sim *w, uint32_t d, const struct session *s, const struct tfetch *f);
/* The expected answer, as far as the model is sure; the session has no tail that it needs. */
enum tern_err ticket_local_expected(struct sim *w, uint32_t d, const struct session *s,
                                    const struct tfetch *f);
void ticket_local(struct sim *w, uint32_t d, struct session *s, const struct tfetch *f,
                  const struct reply *r);

/* ---- ticket_fetches.c: the destination ---- */
/* All of it has arrived: the session resumes there. `of` and n: what was handed over. */
void ticket_take(struct sim *w, uint32_t d, struct session *s, const struct tfetch *f,
                 const struct shown *of, uint32_t n, const struct reply *r);
/* `follow`: while the session may still run. */
void ask_ticket(struct sim *w, uint32_t d, bool follow);
/* When nothing goes wrong any more: the other daemon fetches the ticket of that slot, if it can.
 * Returns the session there. NO: no such ticket, or no session for it. */
uint32_t ticket_fetch_last(struct sim *w, uint32_t d, uint32_t i);
void ticket_came_last(struct sim *w, uint32_t d, uint32_t i, uint32_t by);
void ticket_opened(struct sim *w, uint32_t d, const struct peer_msg *msg, const struct session *s);
struct asked *ticket_asked(struct sim *w, uint32_t d, struct pull_id pull);
/* A page of that pull was refused: its source has to send the cause. */
void ticket_page_refused(struct sim *w, uint32_t d, struct pull_id pull);
void ticket_done(struct sim *w, uint32_t d, const struct peer_msg *msg);
/* Returns false if it was no fetch by ticket. */
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
/* Likewise for questions to peers (asks.c). */
void check_asks_full(struct sim *w, uint32_t d, const struct session *of);
void match_these(struct sim *w, uint32_t d, uint32_t s, uint32_t variant, uint32_t n);
void step_commit(struct sim *w, uint32_t d, uint32_t s);
void queue_copies(struct sim *w, uint32_t d, struct session *s);
/* The fetch was served at the other daemon. */
void state_whole_from(struct sim *w, uint32_t d, struct session *s, uint32_t from, uint32_t at);
/* Releases the STATE that the ticket of a session at its written length does not need. */
void state_hand_over(struct sim *w, uint32_t d, struct session *s, uint32_t step);
/* Applies the STATE of an answer to resume at `at`, which may be no multiple of L: the STATE of the
 * path to `depth`, and the session's own. */
void state_arrived_at(struct sim *w, uint32_t d, struct session *s, uint32_t from, uint32_t depth,
                      uint32_t at, const struct table_run *runs, uint32_t nruns);

#endif
