/* Part of tern.h: leases. */
#ifndef TERN_LEASE_H
#define TERN_LEASE_H

#ifndef TERN_H
#error "include tern.h, which includes this"
#endif

/* ---- decode without waiting: pages that are leased ahead of need ----
 *
 * A decode step that crosses a page boundary needs a page, and tern_extend waits for the daemon to
 * allocate it. A lease keeps a stock of pages before they are needed. The scheduler's thread takes
 * pages from the stock. Afterwards one request, a Step, reports all operations of the iteration to
 * the daemon; nobody waits for its answer. The stock is refilled in the background.
 *
 * tern_lease_submit makes no system call in the common case. A library thread, "tern-lease", sends:
 * it predicts the next Step from the pace of the Steps before, and looks for a submitted Step
 * shortly after the predicted time. The daemon receives a Step 0.1 ms after its submit if the Steps
 * are regular, else at most 4 ms after its submit (later if no processor is free). After a second
 * without a Step the thread sleeps, and the next submit wakes it. The thread starts with the first
 * lease of a connection and ends with the last. The thread handles no signal, and touches only data
 * that is to be sent. If another call on the connection sends a request, it first sends everything
 * that was submitted earlier, so requests on one connection keep their order. On another
 * connection, use a session that left the lease only after tern_lease_wait. tern_lease_told
 * receives the answers: call it in each step, while the device computes.
 *
 * Speculation: keep `allocated` ahead of the accepted tokens, and do not rewind rejected tokens:
 * the next step overwrites them. tern_finish or tern_session_close frees the rest at the end.
 *
 * A lease belongs to its connection and to the thread that uses the connection. The other calls of
 * the connection keep their order with the Steps that the lease has submitted. While a session is
 * in a lease, the lease keeps its lengths. So any other call on the session returns CONFLICT and
 * sends nothing; after the session has left the lease, such a call returns BUSY until the removal
 * is submitted. Pages of the stock stay the engine's until tern_lease_end, or until the engine is
 * gone. */
struct tern_lease;

#define TERN_LEASE_SESSIONS_MAX 4096 /* sessions of one lease */
#define TERN_LEASE_TOKENS_MAX   24   /* tokens of one tern_lease_extend; for more, call it again */

/* The marks of one group: when the stock has `low` pages or fewer, it is refilled to `high` pages.
 * `low` pages should last for as many steps as the refill may take. `high` is at most 4,096; at
 * most twice `high` pages are leased. Both are 0 for a RECURRENT group, whose pages are not leased.
 */
struct tern_lease_marks {
    uint32_t low, high;
};

/* Begins a lease of pages of a pool that this engine has opened or mapped, for at most `sessions`
 * sessions at a time. marks: one for each group of the layout; the layout is borrowed for the call.
 * The call requests the first pages and does not wait for them: tern_lease_wait does. The
 * connection owns *ret, and tern_lease_end or tern_destroy ends it. A lease takes 2 MiB of this
 * process's memory, more with thousands of sessions or pages. An engine may lease at most
 * limits.lease_pages pages of a pool (in the daemon's configuration). The stock does not reach its
 * marks if they are above that limit, or if the pool has no room.
 *   INTERNAL  The sending thread cannot be started, or this process has no memory. */
TERN_API enum tern_err tern_lease_begin(struct tern *t, uint64_t pool,
                                        const struct tern_layout *layout,
                                        const struct tern_lease_marks *marks, uint32_t sessions,
                                        struct tern_lease **ret);
/* Returns all pages of the stock to the daemon, ends the lease and sets *l to NULL; NULL is
 * allowed. None of these pages was written, so the call takes no step. An error leaves the lease
 * unchanged.
 *   CONFLICT  The lease has sessions. Remove them. */
TERN_API enum tern_err tern_lease_end(struct tern_lease **l, uint32_t deadline_ms);

/* Adds a session to the lease. `now`: the result of the last call on the session; only its lengths
 * and tokens are used. With a RECURRENT group, the session must have been extended in its turn
 * before. *ret is the session's number in the calls below.
 *   BUSY      The lease has as many sessions as it was begun for. Or this session has left a lease
 *             and its removal is not submitted yet: call tern_lease_submit.
 *   CONFLICT  The session is in a lease of this connection already. */
TERN_API enum tern_err tern_lease_add(struct tern_lease *l, tern_session s,
                                      const struct tern_result *now, uint32_t *ret);
/* Removes the session from the lease. The next tern_lease_submit that returns OK sends the
 * session's last operations; after it, all calls can use the session again. The session's pages
 * stay its own. `step`: the last step that may touch pages which the session took and which the
 * daemon refused to assign; these pages are free when that step has passed. */
TERN_API enum tern_err tern_lease_remove(struct tern_lease *l, uint32_t session, uint64_t step);

/* Extends the session as tern_extend does, with pages of the stock and without a request: appends n
 * tokens to the list and sets the new lengths, neither of which may shrink. The runs are the pages
 * that the table gained, borrowed until the next tern_lease_submit; the engine may write to these
 * pages at once.
 *   BUSY            The stock does not have enough pages, and more were requested; or the Step is
 *                   full. Nothing was taken. Call tern_lease_submit with step 0, then
 *                   tern_lease_wait.
 *   POOL_EXHAUSTED  Neither the stock nor the pool has enough pages: retract a session.
 *   QUOTA           It never fits: the pool, or the stock at its high mark, has fewer pages.
 *   INVALID         The lengths do not fit, or n is above TERN_LEASE_TOKENS_MAX.
 *   GONE            The lease has no session of that number: it was removed.
 *   any other       An earlier operation of this session was refused: remove the session. */
TERN_API enum tern_err tern_lease_extend(struct tern_lease *l, uint32_t session,
                                         const uint32_t *tokens, uint32_t n, uint32_t written,
                                         uint32_t allocated, const struct tern_run **ret_runs,
                                         uint32_t *ret_nruns);
/* Rewinds as tern_rewind does. The pages do not go to the stock: they are free when `step` has
 * passed. The errors are those of tern_lease_extend. */
TERN_API enum tern_err tern_lease_rewind(struct tern_lease *l, uint32_t session, uint32_t length,
                                         uint64_t step);
/* Commits as tern_commit does; tern_lease_told returns the answer, which may be a refusal of a
 * wrong depth. The runs in the answer replace pages of the table, and the replaced pages are free
 * when `step` has passed. So `step` is the last step that you may dispatch before you apply that
 * answer. Name a step some steps ahead; tern_lease_submit refuses a later step until the answer was
 * taken.
 *
 * With a RECURRENT group and a depth that is the written length, the tree takes over the session's
 * state, and each further step of the device would overwrite that state. So `step` is the step that
 * wrote the state, and tern_lease_submit lets no further step begin before the answer is taken. The
 * run in the answer names the page to continue in and the page to copy from.
 *   BUSY      A commit of this session is under way, or a rewind has no answer yet.
 *   CONFLICT  A later step may have overwritten the state: a step after `step` was submitted, or
 *             any step since the session was extended to that length. Extend the session to the
 *             length written now (its lengths may stay the same), and commit that length before
 *             the next submit. */
TERN_API enum tern_err tern_lease_commit(struct tern_lease *l, uint32_t session, uint32_t depth,
                                         uint64_t step);
/* Submits the gathered operations to the sending thread as one Step, and requests more pages if the
 * stock is low. The call never blocks. It receives answers only if tern_lease_told has left too
 * many of them. `step`: the step that the engine dispatches next; 0: none, for instance if the
 * engine only waits for pages. After an error the operations stay gathered for the next call,
 * except as stated below.
 *   BUSY  The daemon has not answered the last Steps yet, or the socket is full. Or, with a step,
 *         the answer to a commit must be taken first, because the commit named an earlier step or
 *         hands over a RECURRENT state. In that case the operations are sent, but do not dispatch
 *         the step: its kernels would use pages that are freed, or overwrite that state. In all
 *         cases call tern_lease_wait, then tern_lease_told until it returns BUSY, then this
 *         function again. */
TERN_API enum tern_err tern_lease_submit(struct tern_lease *l, uint64_t step);
/* Sends what was submitted, and waits for all its answers. */
TERN_API enum tern_err tern_lease_wait(struct tern_lease *l, uint32_t deadline_ms);
/* Returns the number of pages of a group in the stock. */
TERN_API uint32_t tern_lease_stock(const struct tern_lease *l, uint32_t group);

struct tern_lease_told {
    uint32_t slot; /* the session's number in the lease */
    tern_session session;
    bool failed;               /* an operation was refused: every further call on the session
                                  returns its error */
    struct tern_result result; /* of the refused operation, or of a commit. A refused commit has its
                                  err, and the session continues */
    const char *text;          /* the refused operation, what the daemon has, what to do, the
                                  reason; or "" */
    uint64_t numbers[2];       /* of the daemon's reason, as from tern_error_numbers; or 0 */
};

/* Receives the daemon's answers and returns one of them: the answer to a commit, or an operation
 * that the daemon refused after the call that gathered it had returned OK. The call never blocks.
 * Call it until it returns BUSY, in each step after the launch: the answers also contain pages for
 * the stock. *ret is borrowed until the next call of this function. Pages that were not assigned
 * stay the engine's until the session is removed.
 *   BUSY         There is no answer.
 *   DAEMON_LOST  There is no answer, and none will arrive. */
TERN_API enum tern_err tern_lease_told(struct tern_lease *l, struct tern_lease_told *ret);

#endif
