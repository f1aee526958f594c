/* The machines of the core as they call each other: engines and steps, sessions, commits,
 * transfers. step.c feeds them events and requests; each answers by filling a reply or by emitting
 * an action. */
#ifndef CORE_MACHINE_H
#define CORE_MACHINE_H

#include "core/arena/actions.h"
#include "core/session/call.h"
#include "core/tree/nodes.h"

/* --- engines.c --- */

struct engine *engine_find(const struct core *c, struct engine_id id);
uint32_t engine_slot(const struct core *c, const struct engine *e);
enum tern_err engine_join(struct core *c, struct actions *out, struct call *call,
                          struct reply *ret);
enum tern_err engine_leave(struct core *c, struct actions *out, struct call *call,
                           struct reply *ret);
void engine_proc_gone(struct core *c, struct actions *out, uint32_t proc);
void engine_conn_closed(struct core *c, uint32_t conn);
void engine_step_done(struct core *c, struct engine_id engine, uint32_t rank, uint64_t step);
void engine_attach(struct core *c, struct engine *e, uint32_t pool);

/* --- retires.c: what waits for a step --- */

/* True if a release at `step` needs no record or there is one. */
bool retire_ready(const struct core *c, const struct engine *e, uint64_t step);
/* Gives back pages and at most one DEVICE pin, with the STATE that was borrowed along its path,
 * when every rank has passed `step`; at once if they have. retire_ready must hold. The list is
 * emptied. pin.node NONE: no pin. */
void retire_release(struct core *c, struct engine *e, uint64_t step, struct list *pages,
                    struct path pin);
/* Nodes chained by pending_next become visible when `step` has passed. */
void retire_publish(struct core *c, struct engine *e, uint64_t step, uint32_t nodes);
void retire_advance(struct core *c, struct engine *e); /* applies what has passed */
void retire_drop_all(struct core *c,
                     struct engine *e); /* the engine is gone: pending nodes go, the rest is free */
uint64_t retire_until(const struct core *c, const struct engine *e, uint32_t pool, uint32_t group,
                      uint32_t missing);

/* --- seals.c: checksums of published nodes --- */

void seal_queue(struct core *c, uint32_t node);
void seal_done(struct core *c, struct seal_id job);
bool seal_flush(struct core *c, struct actions *out); /* false: work is left for want of room */

/* --- sessions.c, session_ops.c --- */

struct session *session_find(const struct core *c, struct session_id id);
uint32_t session_slot(const struct core *c, const struct session *s);
enum tern_err session_open(struct core *c, struct actions *out, struct call *call,
                           struct reply *ret);
enum tern_err session_peek(struct core *c, struct actions *out, struct call *call,
                           struct reply *ret);
enum tern_err session_match(struct core *c, struct actions *out, struct call *call,
                            struct reply *ret);
void session_op(struct core *c, struct actions *out, struct engine *e, const struct step_op *op,
                struct op_result *ret);
/* Gives everything back: at `step` for a live engine, at once for one that is gone. */
void session_close(struct core *c, struct session *s, uint64_t step, bool engine_gone);
/* S4, the only place: takes the pages of [ceil_page(p), A) into `list`, then A = p and C = min(C,
 * p). */
void session_free_tail(struct core *c, struct session *s, uint32_t p, struct list *list);
void session_use(struct core *c, struct session *s);
/* What it owns of a group, as one run; none if that is nothing. */
void session_owned_run(const struct core *c, struct actions *out, const struct session *s,
                       uint32_t group);
/* The whole table as runs: what it borrows from token `from` on, then what it owns. */
void session_runs(const struct core *c, struct actions *out, const struct session *s,
                  uint32_t from);
/* T5: takes STATE pages that are wholly below the window of min(written, next) into `list`. Returns
 * the node, pinned for the caller's retire_release, up to which borrowed segments end (from the
 * session's `state_from` before the call); NONE: none do. */
uint32_t session_slide(struct core *c, struct session *s, uint64_t step, uint32_t next,
                       struct list *list);
/* Pages of a WINDOW group below `first` leave the table; steps up to `step` may still read them. */
void session_slid_to(struct session *s, uint32_t group, uint32_t first, uint64_t step);
/* May the session go on from length p? Not where STATE that it would need has left its table. */
bool session_can_return(const struct core *c, const struct session *s, uint32_t p);
bool has_recurrent(const struct pool *p);
uint32_t session_table_refs(const struct pool *p, uint32_t tokens);
struct token_view session_view(const struct core *c, const struct session *s, uint32_t base,
                               const struct req_tokens *req);
struct pool *session_pool(const struct core *c, const struct session *s);
struct lengths session_lengths(const struct session *s);

/* --- room.c --- */

/* Makes `need[g]` pages of each group free, evicting; all or nothing but for what was evicted. */
enum tern_err pages_make_room(struct core *c, struct engine *e, struct pool *p,
                              const uint32_t *need, struct shortage *ret);

/* --- retract.c: sessions that are away, or wait for the host tier --- */

enum tern_err session_retract(struct core *c, struct actions *out, struct call *call,
                              struct reply *ret);
enum tern_err session_recover(struct core *c, struct actions *out, struct call *call,
                              struct reply *ret);
enum tern_err session_fetch_host(struct core *c, struct call *call, struct reply *ret);
/* Ends the load of a session that has one; the asker is told GONE. There must be room for that.
 * `stays`: it was cancelled, the session is not aborted or closed. */
void load_end(struct core *c, struct actions *out, struct session *s, bool stays);
void load_conn_closed(struct core *c, uint32_t conn);
bool session_away(const struct session *s);
/* The step at which what the session gives back may be reused: not below that of its Retract,
 * nor of what it slid over. */
uint64_t session_step(const struct session *s, uint64_t step);
/* Gives back `pages` and whatever holds the session's prefix: at `step`, or at once for an engine
 * that is gone. */
void session_let_go(struct core *c, struct session *s, uint64_t step, struct list *pages,
                    bool engine_gone);
bool away_flush(struct core *c, struct actions *out); /* false: work is left for want of room */

/* --- commits.c --- */

/* Attaches or adopts the chunk that follows what is committed (T6-T8, T18), with the first pages of
 * `pages`. GONE stands for
 * "another engine is about to publish it". */
struct chunk_source {
    struct list *pages;      /* one list a group */
    uint32_t *base;          /* first logical page of each list */
    struct list *duplicates; /* collects what is to be given back */
    uint32_t *pending;       /* nodes to be published, chained */
    uint64_t *step;          /* in: the commit's; out: not below that of the path */
    uint32_t state_at;       /* the depth whose state a RECURRENT page holds */
    uint32_t handed;         /* out: RECURRENT groups whose page was handed over, as bits */
    uint32_t unread; /* out: groups, as bits, whose STATE in the last chunk waits for a step */
    bool arriving;   /* a transfer's: checksums are known, and the session gets no fresh RECURRENT
                        page */
};
enum tern_err chunk_attach(struct core *c, struct session *s, struct chunk_source *src,
                           bool *ret_adopted);
enum tern_err session_commit(struct core *c, struct actions *out, struct engine *e,
                             struct session *s, const struct step_op *op);

/* --- pool_requests.c --- */

enum tern_err pool_open(struct core *c, struct actions *out, struct call *call, struct reply *ret);
enum tern_err pool_map(struct core *c, struct actions *out, struct call *call, struct reply *ret);
enum tern_err pool_close(struct core *c, struct actions *out, struct call *call, struct reply *ret);
void pool_zeroed(struct core *c, struct pool_id pool);
/* Takes closing pools on: their prefixes go as pins end, then their range is zeroed and given back.
 */
bool pool_flush(struct core *c, struct actions *out);

/* --- pulls.c, serves.c --- */

enum tern_err pull_fetch(struct core *c, struct actions *out, struct call *call, struct reply *ret);
enum tern_err pull_cancel(struct core *c, struct actions *out, struct call *call,
                          struct reply *ret);
/* May the session fetch now, wherever from? */
enum tern_err fetch_ready(const struct session *s, struct reply *ret);
void pull_doom(struct core *c, struct pull *p, enum tern_err err);
void pull_orphan(
    struct core *c,
    uint32_t slot); /* its session is about to go: ends it now, the pages stay with it */
void pull_conn_closed(struct core *c, uint32_t conn);
void pull_msg(struct core *c, struct actions *out, uint32_t link, const struct peer_msg *msg);
void pull_arrived(struct core *c, const struct event *ev);
/* pull_data.c: takes in what is there, chunk by chunk; ends the pull when that is all. */
void pull_publish(struct core *c, struct pull *p);
void pull_broken(struct core *c, struct pull_id pull, enum tern_err err);
void pull_proved_quiet(struct core *c, struct pull_id pull);
void pull_link_down(struct core *c, uint32_t link);
bool pull_flush(struct core *c, struct actions *out);
uint64_t pull_deadline(const struct core *c);
struct pull *pull_find(const struct core *c, struct pull_id id);
struct pull_id pull_id(const struct core *c, const struct pull *p);
bool pull_issue(struct core *c, struct actions *out,
                struct pull *p); /* pull_data.c. False: no room */

void serve_msg(struct core *c, struct actions *out, uint32_t link, const struct peer_msg *msg);
void serve_proved_quiet(struct core *c, struct serve_id serve);
void serve_sealed(struct core *c, uint32_t node);
void serve_link_down(struct core *c, uint32_t link);
void serve_end_pool(struct core *c, uint32_t pool);
bool serve_flush(struct core *c, struct actions *out);
uint64_t serve_deadline(const struct core *c);

#endif
