/* Part of tern.h: leases. */
#ifndef TERN_LEASE_H
#define TERN_LEASE_H

#ifndef TERN_H
#error "include tern.h, which includes this"
#endif

/* ---- decode without waiting: pages that are held ahead of need ----
 *
 * A decode step that crosses a page boundary needs a page, and tern_extend waits for the daemon to
 * name it. A lease holds pages before they are needed. The scheduler's thread takes them from its
 * stock, and one Step tells the daemon afterwards, which nobody waits for. The stock is filled up
 * in the background.
 *
 * tern_lease_submit makes no system call in the common case. A thread of the library's,
 * "tern-lease", sends: it looks for what was submitted shortly after it is due by the pace of the
 * Steps before. So the daemon has a Step 0.1 ms later where they are regular, and 4 ms at most
 * (later where no processor is free). After a second without one it sleeps, and the next submit
 * wakes it. It begins with the first lease of a connection, ends with
 * the last, handles no signal, and touches nothing but what is to be sent. Any other call on the
 * connection that asks the daemon something sends what lies before it first. So the order is kept
 * on one connection; on another one, use a session that left the lease after tern_lease_wait.
 * tern_lease_told takes the answers: call it in each step, while the device computes.
 *
 * Speculation: keep `allocated` ahead of what is accepted, and let rejected tokens be: the next
 * step writes over them. There is nothing to rewind and to give back in each step; what is left at
 * the end goes back by tern_finish or tern_session_close.
 *
 * A lease belongs to its connection and to the thread of that. The other calls of the connection
 * keep their order with what the lease has submitted. While a session is in a lease its lengths are
 * the lease's. So any other call on it is CONFLICT, and nothing is sent; and BUSY once it has left
 * the lease, until that is submitted. Pages of the stock stay the engine's until tern_lease_end, or
 * until the engine is gone. */
struct tern_lease;

#define TERN_LEASE_SESSIONS_MAX 4096 /* of one lease */
#define TERN_LEASE_TOKENS_MAX   24   /* of one tern_lease_extend; of more, call it again */

/* For a group: the stock is filled up to `high` pages, at most 4,096, when it has `low` or fewer.
 * `high` should last for as many steps as an answer may take; twice as many are leased at most.
 * Both are 0 for a RECURRENT group, whose pages are not leased. */
struct tern_lease_marks {
    uint32_t low, high;
};

/* Begins a lease of pages of a pool that this engine has opened or mapped, for so many sessions at
 * a time. marks: one for each group of the layout, which is borrowed for the call. It asks for the
 * first pages and does not wait for them: tern_lease_wait does. *ret is the connection's, and ends
 * with tern_lease_end or tern_destroy. It takes 2 MiB of this process, more with thousands of
 * sessions or pages. How much an engine may hold is limits.lease_pages of the
 * daemon's configuration; marks above that are not reached, and neither are those for which the
 * pool has no room.
 *   INTERNAL  The sending thread cannot be begun, or this process has no memory. */
TERN_API enum tern_err tern_lease_begin(struct tern *t, uint64_t pool,
                                        const struct tern_layout *layout,
                                        const struct tern_lease_marks *marks, uint32_t sessions,
                                        struct tern_lease **ret);
/* Gives all that the stock has back, and sets *l to NULL, which it may be already. Nothing of it
 * was written, so no step is named. After an error the lease is as it was.
 *   CONFLICT  Sessions are in it. Remove them. */
TERN_API enum tern_err tern_lease_end(struct tern_lease **l, uint32_t deadline_ms);

/* A session comes under the lease. `now`: what the last call on it has answered; its lengths and
 * tokens count. With a RECURRENT group, the session has been extended in its turn before. *ret is
 * the session's number in the calls below.
 *   BUSY      The lease has as many sessions as it was begun for. Or this one has left a lease, and
 *             that was not submitted: tern_lease_submit.
 *   CONFLICT  It is in a lease of this connection already. */
TERN_API enum tern_err tern_lease_add(struct tern_lease *l, tern_session s,
                                      const struct tern_result *now, uint32_t *ret);
/* The session leaves the lease: what the daemon has not heard of it yet is gathered, and behind the
 * next tern_lease_submit that is OK it can be used by all calls again. Its pages stay its own.
 * `step`: the last that may touch pages which it took and which the daemon refused to assign; they
 * are given back behind it. */
TERN_API enum tern_err tern_lease_remove(struct tern_lease *l, uint32_t session, uint64_t step);

/* What tern_extend does, with pages of the stock and without a request: n tokens behind the list,
 * and the new lengths, neither of which shrinks. The runs are the pages that the table gained,
 * borrowed until the next tern_lease_submit; the engine may write them at once.
 *   BUSY            The stock has not so many pages, and more are on their way: tern_lease_submit
 *                   with step 0, then tern_lease_wait. Or one Step is full: the same. Nothing was
 *                   taken.
 *   POOL_EXHAUSTED  The same, and the pool has not so many: retract a session.
 *   QUOTA           It never fits: the pool, or the stock at its high mark, has not so many.
 *   INVALID         The lengths do not fit, or n is above TERN_LEASE_TOKENS_MAX.
 *   GONE            The lease has no session of that number: it was removed.
 *   any other       An earlier operation of this session was refused: remove it from the lease. */
TERN_API enum tern_err tern_lease_extend(struct tern_lease *l, uint32_t session,
                                         const uint32_t *tokens, uint32_t n, uint32_t written,
                                         uint32_t allocated, const struct tern_run **ret_runs,
                                         uint32_t *ret_nruns);
/* As tern_rewind. What is given back does not come to the stock: it is free when `step` has passed.
 * The errors are those of tern_lease_extend. */
TERN_API enum tern_err tern_lease_rewind(struct tern_lease *l, uint32_t session, uint32_t length,
                                         uint64_t step);
/* As tern_commit, and tern_lease_told brings the answer, which may be that a wrong depth is
 * refused. The runs in it take the place of pages of the table, which are given back behind `step`.
 * So `step` is the last step that may be dispatched before that answer was applied: name one some
 * steps ahead, and tern_lease_submit holds to it.
 *
 * With a RECURRENT group and a depth that is the written length, the session's state becomes the
 * tree's, and each step of the device would overwrite it. So `step` is the one that wrote it, and
 * tern_lease_submit lets no further step begin before the answer was taken, whose run names the
 * page to go on in and the one to copy from.
 *   BUSY      A commit of this session is under way, or a rewind is not answered yet.
 *   CONFLICT  A step was submitted since the session was extended to that length, or behind `step`,
 *             and may have overwritten the state. Extend it to what is written now (its lengths may
 *             be the same), and commit that before the next submit. */
TERN_API enum tern_err tern_lease_commit(struct tern_lease *l, uint32_t session, uint32_t depth,
                                         uint64_t step);
/* Leaves what was gathered to the sending thread, as one Step, and asks for more pages if the stock
 * is low. It waits for nothing, and takes answers only where too many were not taken by
 * tern_lease_told. `step`: the one that the engine dispatches next; 0: none, as where only pages
 * are waited for. After an error all stays gathered, and goes with the next call.
 *   BUSY  The daemon has not answered the last Steps yet, or the socket is full. Or, with a step,
 *         the answer to a commit which named a step before it, or which hands over a RECURRENT
 *         state, was not taken: then what was gathered is sent, and the step is not to be
 *         dispatched, since its kernels would use pages that are given back, or overwrite that
 *         state. In all cases tern_lease_wait, then tern_lease_told until it says BUSY, then this
 *         call again. */
TERN_API enum tern_err tern_lease_submit(struct tern_lease *l, uint64_t step);
/* Sends what was submitted, and waits until all of it is answered. */
TERN_API enum tern_err tern_lease_wait(struct tern_lease *l, uint32_t deadline_ms);
/* Pages of a group that the stock has. */
TERN_API uint32_t tern_lease_stock(const struct tern_lease *l, uint32_t group);

struct tern_lease_told {
    uint32_t slot; /* the session's number in the lease */
    tern_session session;
    bool failed;               /* an operation was refused: every further call on it returns that */
    struct tern_result result; /* of that operation, or else of a commit, which may be refused, too,
                                  and the session goes on */
    const char *text;          /* what was refused, what the daemon has, what to do, why; or "" */
    uint64_t numbers[2];       /* of the daemon's reason, as tern_error_numbers; or 0 */
};

/* Takes what the daemon has answered, and hands out one answer to a commit, or tells of an
 * operation that was refused later than the call that gathered it. It waits for nothing. Call it
 * until it says BUSY, in each step behind the launch: what comes meanwhile is also where pages for
 * the stock come from. *ret is borrowed until the next call of this function. Pages that were not
 * assigned stay the engine's until the session is removed.
 *   BUSY         There is none.
 *   DAEMON_LOST  There is none, and none will come. */
TERN_API enum tern_err tern_lease_told(struct tern_lease *l, struct tern_lease_told *ret);

#endif
