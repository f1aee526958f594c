/* Part of tern.h: prefixes, sessions and their operations, batches, turns, retract and recover. */
#ifndef TERN_SESSION_H
#define TERN_SESSION_H

#ifndef TERN_H
#error "include tern.h, which includes this"
#endif

/* ---- prefixes and sessions ---- */

/* The namespace of a prefix: equal tokens in different namespaces are different prefixes. Each part
 * has at most 255 bytes, and NULL stands for "". */
struct tern_namespace {
    const char *model, *revision, *kv_dtype, *lora, *salt;
};

/* Content at a token that is part of the prefix's identity: the hash of an image or of prompt
 * embeddings. Positions are absolute, ascending, and among the list's own tokens [base, base + n).
 * Set `zero` to 0. */
struct tern_extra_key {
    uint32_t position, zero;
    uint64_t hi, lo;
};

struct tern_tokens {
    const uint32_t *v; /* borrowed for the call */
    uint32_t n;
    uint32_t base; /* the session's first `base` tokens stay, and v[0..n) follows them */
    const struct tern_extra_key *keys; /* borrowed for the call */
    uint32_t nkeys;                    /* at most TERN_KEYS_MAX */
};

/* The three lengths of a session, in tokens: committed <= written <= allocated. Committed tokens
 * were given to the prefix tree, written ones have KV that the session keeps, and allocated ones
 * are covered by pages. */
struct tern_lengths {
    uint32_t committed, written, allocated;
};

/* A page of a group lies at index * page_bytes of the mapping. Index 0 means none. The generation
 * distinguishes one use of a page from the next; an engine need not read it. */
struct tern_page {
    uint32_t index, generation;
};

/* A change of the session's table: the entries [group][first ...] of the table are now these pages.
 * A run of a WINDOW group never names pages before the window, neither when they are added nor when
 * they are removed. A page of the group is valid only if it covers a token at or after written -
 * window. Earlier pages no longer belong to the session when the step of the commit or slide has
 * passed. A RECURRENT group has one page, and first is 0. If from.index is not 0, the engine copies
 * page `from` into the run's page, in stream order, before it continues; `from` is a state that the
 * prefix tree keeps, and nobody writes it. Without `from`, the run's page has the state of the
 * written length; if nothing is written, the page is empty, as in the answer to the first
 * tern_extend of a session that begins at its first token. */
struct tern_run {
    uint32_t group, first, n;
    const struct tern_page *pages;
    struct tern_page from;
};

/* The reason for a lack of pages, and what waiting can free. The numbers are pages of `group`, one
 * group that lacks pages. If `needed` is at most `free` + `evictable`, this group could get its
 * pages, but other groups of the request need the same memory. With QUOTA the request never fits:
 * `needed` is the number required at once, and `free` is the most that there can be. All are 0 if
 * the limit is on records or bytes: tern_error_numbers has those numbers. */
struct tern_shortage {
    uint32_t group, needed, free, evictable, retiring;
    uint64_t until_step; /* let all ranks pass it, then retry; 0: no step will free more */
};

/* An answer. Its arrays are borrowed until the next call on the connection. The result is filled in
 * whenever the daemon answered, also with an error: then lengths and tokens are those of the
 * session now. An error with lengths and tokens that are all 0 means that the daemon did not look
 * at the session, for instance because the handle is GONE; keep your state of the session if it
 * still exists. (A cancelled fetch is GONE, too, but has lengths and tokens.) A call without an
 * answer leaves the result unchanged. */
struct tern_result {
    enum tern_err err;
    struct tern_lengths lengths;
    uint32_t tokens;  /* in the session's list */
    uint32_t matched; /* Match: tokens that this call found in the tree; 0 on a resume, which does
                         not search: the tokens up to lengths.written need no computation */
    uint32_t fetched_kib; /* Fetch: KiB of pages that arrived from the network, the disk or the host
                             tier. Recover: KiB from the host tier */
    uint32_t retry_ms;    /* Fetch, if err is TERN_BUSY: retry after that many milliseconds; 0:
                             unknown */
    uint32_t host_depth;  /* Match: committed length after a tern_fetch from the host tier; 0 on a
                             resume */
    uint32_t disk_depth;  /* the same for the disk; also 0 if the disk has no more than `matched` */
    const struct tern_run *runs;
    uint32_t nruns;
    uint32_t blob_bytes;           /* Fetch by ticket: size of `blob` */
    const void *blob;              /* NULL: none */
    struct tern_shortage shortage; /* if err is TERN_POOL_EXHAUSTED, or TERN_QUOTA for pages */
    uint32_t align; /* L, if err is TERN_INVALID because the depth of a commit is no multiple of it;
                       else 0 */
    uint32_t handed;   /* Fetch by ticket, if err is TERN_INVALID: the length that was handed over,
                          if it differs from the session's list; else 0 */
    uint32_t arriving; /* tern_fetch_wait, _pages: the session's tokens once everything has arrived;
                          0: nothing more will arrive */
    const char *host;  /* Fetch: the peer that sent pages, also for TERN_PEER_ANY or a ticket;
                          borrowed as `runs`; NULL: none */
};

/* A session's options for its turn records. */
struct tern_session_options {
    uint32_t blobs_kept; /* how many of its last records keep their blobs, 1 to 16; 0: 2 */
    bool merging;        /* all records keep their blobs, to merge several samples. Not with
                            blobs_kept */
};
/* Opens a session: one request, or all turns of one conversation. It has a token list and a table
 * of pages, both empty at first. It ends with tern_session_close or with its engine. If the answer
 * arrives after the deadline, the library closes the session. `options` is borrowed for the call;
 * NULL: all of them zero.
 *   GONE     The pool was closed.
 *   INVALID  No process of this engine has opened or mapped the pool; or both merging and
 *            blobs_kept are set, or blobs_kept is above 16.
 *   QUOTA    The tenant has sessions_max sessions; each valid ticket counts as one. Close a
 *            session, or fetch or drop tickets.
 *   BUSY     The daemon is draining, or all session slots are in use. */
TERN_API enum tern_err tern_session_open(struct tern *t, uint64_t pool,
                                         const struct tern_namespace *ns,
                                         const struct tern_session_options *options,
                                         uint32_t deadline_ms, tern_session *ret);

/* Depths of one prefix, in tokens. `resumable` is the least of them, except `disk`. */
struct tern_depths {
    uint32_t resumable; /* depth that a Match would find */
    uint32_t history;   /* of HISTORY alone: the engine may recompute the STATE of a short tail */
    uint32_t host;      /* depth after a Match and a tern_fetch from the host tier */
    uint32_t disk; /* depth after a Match and a tern_fetch from the disk; 0: not above `resumable`.
                      If the list is sent in pieces, the disk may have more, because the search
                      stops at the first piece that is not completely in memory. A Match returns the
                      full depth */
};
/* Returns how deep a prefix is in the tree, without any effect. tokens->base is 0. A list that is
 * too long for one request is sent in pieces.
 *   BUSY  The list was sent in pieces, and other requests repeatedly evicted the prefix between two
 *         pieces. Repeat the call. */
TERN_API enum tern_err tern_peek(struct tern *t, uint64_t pool, const struct tern_namespace *ns,
                                 const struct tern_tokens *tokens, uint32_t deadline_ms,
                                 struct tern_depths *ret);

/* Begins a turn. On an empty session the call finds and pins the longest committed prefix, and
 * ret->runs names its pages. On a session that has written tokens the call resumes at the shorter
 * of the written length and the common prefix, and frees the pages behind that length. A session
 * that has pages but nothing written also resumes, and so finds nothing in the tree: call
 * tern_rewind to 0 first to empty the session. `step` is the last step that may still touch the
 * freed pages, or TERN_STEP_NONE. In each case compute the tokens behind ret->lengths.written. The
 * call may be repeated. A list of more than 16,384 tokens, or one too long for one request, may be
 * sent in pieces, and the daemon serves other requests between them. The answer is that of one
 * request at the time of the last piece. If the call fails before the last piece, retry, or
 * abort or close the session: no other call works on the session then.
 *   INVALID   The request has fewer tokens in common with the session than are committed. A session
 *             is append-only: close it and open another. Or the session is retracted, or the STATE
 *             needed at the common length has left its table: abort it, then match anew. Or the
 *             table would be too long (tern_error_text has the limit).
 *   CONFLICT  tokens->base is beyond the tokens that the session has.
 *   BUSY      A fetch of this session is under way, or a table of the daemon is full. */
TERN_API enum tern_err tern_match(struct tern *t, tern_session s, const struct tern_tokens *tokens,
                                  uint64_t step, uint32_t deadline_ms, struct tern_result *ret);

/* ---- operations on a session: one, or a batch of them ----
 *
 * All lengths are of the whole session, in tokens, and never relative to a turn or to each other.
 * `step` is the last step that may touch the pages that the operation frees, or TERN_STEP_NONE; 0
 * is refused. Each operation takes effect wholly or not at all. *ret is filled in whenever the
 * daemon answered, also with an error; tern_error_text returns the reason of a refusal, with the
 * numbers. All operations may return these errors:
 *   POOL_EXHAUSTED  There are not enough pages. ret->shortage has what to wait for. The session is
 *                   unchanged, and nothing was evicted for this request. Evictions by an earlier
 *                   request that returned BUSY remain.
 *   QUOTA           The request never fits: the session's table would have more pages of a group
 *                   than the pool (ret->shortage), or its list or path would take more records than
 *                   this tenant can have. tern_error_numbers has the number needed and the most
 *                   there can be. Request less; waiting does not help.
 *   INVALID         The lengths do not fit the session, or the session is retracted.
 *   BUSY            A record that the operation needs is not free, for instance because too many
 *                   releases wait for a step: retry after the next step. Or the operation would
 *                   have to evict more than one request may, or to wait for a copy to the host
 *                   tier, or a submitted batch is too much work at once: retry in a millisecond.
 *
 * A session before and after each call. C, W, A: its committed, written and allocated length. T:
 * the tokens in its list. F: the part of the list that the last tern_finish kept (see tern_abort).
 * R: the length of the turn records that a rollback leaves. C <= W <= A and W <= T hold always.
 *
 *   call                   needs              committed  written        allocated    tokens
 *   tern_session_open                         0          0              0            0
 *   tern_match, empty      A = 0              matched    matched        matched      the prompt
 *   tern_match, resumed    common >= C        C          min(W, common) as written   the prompt
 *   tern_extend            no length shrinks  C          `written`      `allocated`  T + append
 *   tern_commit            C <= depth <= W    depth      W              A            T
 *   tern_rewind            C <= length <= A   C          min(W, length) length       min(T, length)
 *   tern_finish, in a turn C <= length <= A   C          min(W, length) length       min(T, length)
 *   tern_slide             next_commit > C    C          W              A            T
 *   tern_snapshot_release                     C          W              A            T
 *   tern_record_rollback   C > R              0          0              0            min(F, R)
 *   tern_record_rollback   C <= R             C          W              A            T
 *   tern_fetch, replaced   matched            fetched    as committed   as committed T
 *   tern_fetch, unchanged                     C          W              A            T
 *   tern_abort, in a turn  (always)           0          0              0            F
 *   tern_abort, no turn    (always)           C          W              A            T
 *   tern_session_close     no turn in flight  the handle is GONE
 *   tern_retract, DROP     no fetch under way C          C              C; away      T
 *   tern_retract, HOST     no fetch under way C          W              W; away      T
 *   tern_recover           away               C          what remained  as written   T
 *
 * A turn begins with tern_match, tern_extend, or a fetch that was not answered at once, whatever
 * its result. A turn ends with tern_finish, which may be repeated. Before the first turn and after
 * tern_abort, tern_finish is INVALID. A session that is away counts as in a turn: tern_abort of it
 * drops the table, also if tern_finish came before the tern_retract. tern_recover restores the
 * session as it was, in a turn or finished. With a RECURRENT group a match or a finish that would
 * leave less than W returns to C, and a rewind between C and W is INVALID. After tern_retract with
 * DROP the tokens behind C are still in the list and must be written again.
 *
 * While a session is away, or a fetch or a recover is under way, only tern_recover, tern_retract,
 * tern_fetch_cancel, tern_abort and tern_session_close may be called on it. */

/* Allocates pages, sets the written length and appends tokens: a decode loop does all three in one
 * call. append: tokens to append to the session's list; its base is the number of tokens in the
 * list; NULL: none. written, allocated: the new lengths; 0: unchanged. Neither can shrink.
 *   CONFLICT  append->base is not the end of the session's list. */
TERN_API enum tern_err tern_extend(struct tern *t, tern_session s, const struct tern_tokens *append,
                                   uint32_t written, uint32_t allocated, uint32_t deadline_ms,
                                   struct tern_result *ret);
/* Commits whole chunks of L tokens to the prefix tree, up to `depth`, a multiple of L. `step` is
 * the step that writes the pages. If a later step that uses the pages was dispatched already, name
 * that step, because the answer may replace pages, and the replaced pages are free when `step` has
 * passed. TERN_STEP_NONE: the pages are written already; a step that has passed means the same.
 * Then the commit is published at once. A commit cannot be undone. If another session of this
 * engine has committed the same chunk by a step that has not passed, this session takes over that
 * session's pages. Kernels that read these pages must run behind that other step. Neither these
 * pages nor the chunks that this session commits behind them are published before that other step
 * has passed, whatever `step` is. ret->lengths.committed is the new committed length; a depth that
 * was committed before changes nothing. A long commit takes several requests, and each may take
 * deadline_ms. Even if the call ends with BUSY, the tokens up to ret->lengths.committed are
 * committed, and ret->runs has replaced pages. */
TERN_API enum tern_err tern_commit(struct tern *t, tern_session s, uint32_t depth, uint64_t step,
                                   uint32_t deadline_ms, struct tern_result *ret);
/* Frees the pages behind `length` and truncates the list of tokens there, even if no page becomes
 * free. Use it for rejected speculative tokens.
 *   INVALID  Also: there is no STATE to continue from `length`. A WINDOW group can rewind by its
 *            reserve. A RECURRENT group has the state of the written length and, where a commit
 *            made it a resume point, of the committed length: rewind to one of these lengths, or
 *            abort. */
TERN_API enum tern_err tern_rewind(struct tern *t, tern_session s, uint32_t length, uint64_t step,
                                   uint32_t deadline_ms, struct tern_result *ret);
/* Ends a turn and keeps the session for the next one. length: the number of tokens to keep, from
 * the first on; the pages behind them are freed. The call never increases the written length. A
 * RECURRENT group has only the state of the written length. With such a group, a `length` below the
 * written length takes the session's pages back to the committed length. */
TERN_API enum tern_err tern_finish(struct tern *t, tern_session s, uint32_t length, uint64_t step,
                                   uint32_t deadline_ms, struct tern_result *ret);
/* Removes STATE pages that have left the window from the table; a commit does so by itself.
 * next_commit: the depth of the next commit; 0 stands for the committed length + L. */
TERN_API enum tern_err tern_slide(struct tern *t, tern_session s, uint32_t next_commit,
                                  uint64_t step, uint32_t deadline_ms, struct tern_result *ret);
/* Promises that nobody will resume from the committed length: the STATE of that length may then be
 * evicted before other STATE. */
TERN_API enum tern_err tern_snapshot_release(struct tern *t, tern_session s, uint32_t deadline_ms,
                                             struct tern_result *ret);
/* Drops the pages that are not committed, unpins the committed ones and empties the table. The
 * session stays open: a later match finds what it had committed, as any other session's match
 * would. Its list is truncated to the part that the last tern_finish kept; matches and rewinds
 * after that tern_finish may have shortened that part. The list is empty if no turn was finished or
 * the daemon had no room to keep the part (see ret->tokens). After tern_finish there is no turn
 * until the next tern_match, tern_extend, fetch or tern_retract. Without a turn the call drops
 * nothing: list, lengths and table stay as tern_finish left them. */
TERN_API enum tern_err tern_abort(struct tern *t, tern_session s, uint64_t step,
                                  uint32_t deadline_ms, struct tern_result *ret);
/* Closes the session. Its committed prefix stays in the tree for others, as long as there is room.
 * Only err of *ret is filled in. While a turn is in flight, the session's own handle is GONE at
 * once, and the call waits for the end of that turn; the close stays in effect also if deadline_ms
 * passes first (tern_batch_session_close returns BUSY instead). The session's pages are free when
 * both the step of the close and the step of the turn's end have passed. A close by the turn's
 * handle closes the session at once.
 *   BUSY  The turn ended without tern_turn_end, so its last step is unknown. The session stays
 *         open: close it with the last step that may touch its pages. */
TERN_API enum tern_err tern_session_close(struct tern *t, tern_session s, uint64_t step,
                                          uint32_t deadline_ms, struct tern_result *ret);

/* ---- turns: two requests race on one session ----
 *
 * An engine may have several clients for one conversation: a user who sends again before the answer
 * arrives, or an agent that asks twice. A turn gives one client exclusive use of the session. A
 * single scheduler that runs the requests of a session one after the other needs no turns, and
 * always uses the session's own handle. */

/* Claims the session. *ret is the turn's handle: use it as the session, in every call and on every
 * connection of the engine, until the turn ends. Meanwhile a call on the session's own handle
 * returns BUSY at once, before any work is done. The turn ends by tern_turn_end, at
 * deadlines.turn_ms of the daemon's configuration, with the connection that began it, with the
 * engine, and when the session is closed. From then on the turn's handle is GONE, so a late call
 * frees nothing. The end changes only who may use the session: pages, lengths and requests under
 * way stay. If this call returns TIMED_OUT, the daemon may still begin the turn, although nobody
 * has its handle. The library ends such a turn in the next call on this connection after the late
 * answer has arrived; else deadlines.turn_ms ends it.
 *   BUSY      Another turn of this session is in flight. Wait for its end, or refuse your client.
 *   GONE      The session was closed, or is to be closed when the turn in flight has ended.
 *   CONFLICT  This is the handle of a turn. */
TERN_API enum tern_err tern_turn_begin(struct tern *t, tern_session s, uint32_t deadline_ms,
                                       tern_session *ret);
/* Ends the turn. `step` is the last step that may touch the session's pages, or TERN_STEP_NONE:
 * pages that the session releases later, at a close or an abort, are not free before that step has
 * passed. Only the turn's handle can end the turn. The call may be repeated and then returns GONE.
 *   GONE     The turn has ended already, or the session was closed.
 *   BUSY     This is the session's own handle, and a turn is in flight.
 *   INVALID  This is the session's own handle, and no turn is in flight. */
TERN_API enum tern_err tern_turn_end(struct tern *t, tern_session turn, uint64_t step,
                                     uint32_t deadline_ms);

/* ---- batches ---- */

/* The operations of one scheduler iteration, in order, for one request to the daemon. A batch
 * belongs to its connection; destroy the batch before the connection. */
struct tern_batch;

/* Creates an empty batch, owned by the caller; end it with tern_batch_destroy (NULL is allowed). */
TERN_API enum tern_err tern_batch_create(struct tern *t, struct tern_batch **ret);
TERN_API void tern_batch_destroy(struct tern_batch *b);
/* Empties the batch. A batch that was sent is empty already. */
TERN_API void tern_batch_clear(struct tern_batch *b);
/* Returns the number of operations; the result of the next one added will be results[count]. */
TERN_API uint32_t tern_batch_count(const struct tern_batch *b);
/* Each call adds one operation, with the arguments of the function of that name above. Tokens and
 * keys are copied. After an error the batch is unchanged:
 *   INVALID         No step is named, the batch has TERN_BATCH_OPS_MAX operations, or it would be
 *                   too large for one request: run it, and begin the next.
 *   CONFLICT, BUSY  The session is in a lease, or has left one: see tern_lease.h. */
TERN_API enum tern_err tern_batch_extend(struct tern_batch *b, tern_session s,
                                         const struct tern_tokens *append, uint32_t written,
                                         uint32_t allocated);
TERN_API enum tern_err tern_batch_commit(struct tern_batch *b, tern_session s, uint32_t depth,
                                         uint64_t step);
TERN_API enum tern_err tern_batch_rewind(struct tern_batch *b, tern_session s, uint32_t length,
                                         uint64_t step);
TERN_API enum tern_err tern_batch_finish(struct tern_batch *b, tern_session s, uint32_t length,
                                         uint64_t step);
TERN_API enum tern_err tern_batch_slide(struct tern_batch *b, tern_session s, uint32_t next_commit,
                                        uint64_t step);
TERN_API enum tern_err tern_batch_snapshot_release(struct tern_batch *b, tern_session s);
TERN_API enum tern_err tern_batch_abort(struct tern_batch *b, tern_session s, uint64_t step);
TERN_API enum tern_err tern_batch_session_close(struct tern_batch *b, tern_session s,
                                                uint64_t step);
/* Makes the last added operation a barrier: if it fails, later operations are not tried. */
TERN_API void tern_batch_barrier(struct tern_batch *b);
/* Runs all operations of the batch. The call returns OK when the daemon has answered; each
 * (*ret_results)[i] has the err of its operation, and tern_error_text returns the reason for a
 * pointer to it. *ret_done: the number of operations tried, which is also the number of results;
 * they are borrowed until the next call on the connection. After an error *ret_results is NULL and
 * *ret_done is 0, although the daemon may have carried out operations. Afterwards the batch is
 * empty, also if no answer arrived; but if nothing was sent, the batch is unchanged.
 *   INVALID         The batch has no operation.
 *   CONFLICT, BUSY  One of its sessions was added to a lease after its operation was added. Nothing
 *                   was sent: remove the session from the lease, or clear the batch. */
TERN_API enum tern_err tern_batch_run(struct tern_batch *b, uint32_t deadline_ms,
                                      const struct tern_result **ret_results, uint32_t *ret_done);

/* ---- retract and recover: a session releases its device pages and gets them back later ---- */

/* HOST: what the session has committed is copied to the pool's host tier and pinned there; then its
 * device pages can be evicted. Use it for a session that will not run for a while. DROP: nothing is
 * copied. Committed pages stay on the device, pinned, and only the others are freed. Use it for a
 * session that resumes within a few steps, and for pools without a host tier. */
enum tern_retract_mode { TERN_RETRACT_HOST = 0, TERN_RETRACT_DROP = 1 };

/* Filled in whenever the daemon answered, also with an error. free_now and free_at_step are device
 * pages of all groups together: those free at once, and those free when `step` has passed. Neither
 * counts the pages that HOST makes evictable: with OK, shortage.evictable is the most pages that
 * can be evicted once they are copied. If free_now, free_at_step and shortage.evictable are all 0,
 * no page becomes free: HOST keeps the pages of tokens that are not committed, so commit these
 * before, or retract with DROP. */
struct tern_retracted {
    struct tern_lengths lengths; /* when `step` has passed */
    uint32_t free_now, free_at_step;
    struct tern_shortage shortage; /* with POOL_EXHAUSTED or QUOTA: pages of the host tier */
};

/* Retracts a session from the device. The call waits neither for copies nor for the step. `step` is
 * the last step that may touch the session's pages, or TERN_STEP_NONE. Discard the session's table;
 * tern_recover returns it anew.
 *
 * If the copies cannot be made later, the daemon undoes the retract. tern_recover then answers at
 * once, and tern_stats counts the event for the tenant (host_tier.retracts_undone). A caller that
 * waits for the memory repeats this call. The repetition changes nothing if the session is still
 * away. If the retract was undone, the repetition retracts the session anew, or returns the reason
 * why it cannot.
 *   POOL_EXHAUSTED  The host tier has no room for the prefix. The session is unchanged.
 *   QUOTA           The prefix is larger than the host tier and never fits: use DROP.
 *   UNSUPPORTED     HOST was asked for, and the pool has no host tier.
 *   INVALID         DROP was asked for, and the session has run so far beyond its committed length
 *                   that the STATE of that length has left its table. Use HOST, or abort. Or the
 *                   session has more than 32,768 pages of its own: call tern_rewind to the
 *                   committed length first. Or only some pieces of its tern_match have arrived.
 *   BUSY            A fetch or a recover of the session is under way. Wait for it, or cancel it. Or
 *                   too many releases wait for a step: retry after the next step. Or the
 *                   host tier keeps prompts that are still to be stored on the disk, for up to 2 s
 *                   each: retry, or use DROP, which needs no room. */
TERN_API enum tern_err tern_retract(struct tern *t, tern_session s, enum tern_retract_mode mode,
                                    uint64_t step, uint32_t deadline_ms,
                                    struct tern_retracted *ret);

/* Recovers a retracted session. ret->lengths: the committed length is unchanged, the written length
 * may be shorter, so write the missing tokens again. ret->runs is the whole table, as tern_run
 * describes it. The call returns when the pages are on the device again, at once if they never left
 * it. For a session that is not away the call returns the table again, so it may be repeated. After
 * an error the session stays retracted.
 *   POOL_EXHAUSTED  The device has no room. ret->shortage has what to wait for.
 *   BUSY            That prefix is being copied or committed by another request; or a prefix that
 *                   has to be evicted for it is being copied. Retry in a moment.
 *   TIMED_OUT       deadline_ms passed first, and the recover is cancelled.
 *   CORRUPT         The host's copy is damaged. Use tern_abort, and compute the prefix again. */
TERN_API enum tern_err tern_recover(struct tern *t, tern_session s, uint32_t deadline_ms,
                                    struct tern_result *ret);

/* ---- namespaces ---- */

/* Resets a namespace, for new weights under an old name: from now on nothing that was committed
 * under `ns`, in any pool of the tenant, is found here, on the disk or by a fetch from a peer.
 * Sessions that run in the namespace can finish. The call may be repeated. It waits until the
 * connected peers, and their peers in turn, have reset the namespace, too.
 *
 * *ret_nodes (may be NULL): the number of prefix nodes that are still pinned; each is freed when
 * nobody pins it. *ret_unreached (may be NULL): the number of peers that the reset has not fully
 * reached: peers that are not connected and get the reset when they are, and peers that themselves
 * wait for such a peer. 0: the old content is gone for good. Else the old content stays gone as
 * long as this daemon runs; if the daemon restarts before these peers got the reset, retry.
 *   BUSY  Too many resets wait for peers that are not connected. Nothing was reset. */
TERN_API enum tern_err tern_namespace_reset(struct tern *t, const struct tern_namespace *ns,
                                            uint32_t deadline_ms, uint32_t *ret_nodes,
                                            uint32_t *ret_unreached);

#endif
