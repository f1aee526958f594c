/* Part of tern.h: prefixes, sessions and what they do, batches, turns, and giving way. */
#ifndef TERN_SESSION_H
#define TERN_SESSION_H

#ifndef TERN_H
#error "include tern.h, which includes this"
#endif

/* ---- prefixes and sessions ---- */

/* What keeps prefixes apart that have equal tokens. Each part has at most 255 bytes, and NULL
 * stands for "". */
struct tern_namespace {
    const char *model, *revision, *kv_dtype, *lora, *salt;
};

/* Something beside a token that belongs to the prefix: an image's hash, prompt embeddings.
 * Positions are absolute, ascending, and among the list's own tokens [base, base + n). `zero`
 * is 0. */
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
 * tells one use of a page from the next; an engine need not look at it. */
struct tern_page {
    uint32_t index, generation;
};

/* A change of the session's table: at [group][first ...] it now has these pages. Those of a WINDOW
 * group before its window are neither named nor taken back by name: valid are those of the tokens
 * from written - window on, as far as pages are allocated. What lies before is the session's no
 * more when the step of the commit or slide has passed. A RECURRENT group has one page, and first
 * is 0. Where from.index is not 0, the engine copies page `from` into that page, in stream order,
 * before it continues; `from` is a state that the tree keeps, and it is never written. A page
 * without `from` holds the state of the written length; where nothing is written, as in the answer
 * to the first tern_extend of a session that begins at its first token, it is empty. */
struct tern_run {
    uint32_t group, first, n;
    const struct tern_page *pages;
    struct tern_page from;
};

/* Why pages ran out, and what waiting would bring. The numbers are pages of `group`, one
 * that lacks some. Where `needed` is no more than `free` and `evictable` together, this
 * group has enough, and the other groups of the request need memory that those pages lie in. With
 * QUOTA it never fits: `needed` would be had at once, and `free` is the most that there could be.
 * All are 0 where records or bytes are what never suffices: tern_error_numbers has those. */
struct tern_shortage {
    uint32_t group, needed, free, evictable, retiring;
    uint64_t until_step; /* let all ranks pass it, then repeat; 0: no step will bring more */
};

/* An answer. Its arrays are borrowed until the next call on the connection. It is filled in
 * whenever the daemon answered, also with an error: then lengths and tokens are what the session
 * has now. Where all of these are 0 with an error, nothing was looked at, as for a handle that is
 * GONE; keep what you have of the session, if it lives on. (A fetch that was cancelled is GONE,
 * too, and tells them.) A call that got no answer leaves the result as it was. */
struct tern_result {
    enum tern_err err;
    struct tern_lengths lengths;
    uint32_t tokens;  /* in the session's list */
    uint32_t matched; /* Match: tokens that this call found in the tree; 0 on a resume, which looks
                         for none: lengths.written is what need not be computed */
    uint32_t fetched_kib; /* Fetch: KiB of pages that came over the network, from the disk or from
                             the host tier. Recover: KiB from the host tier */
    uint32_t retry_ms;   /* Fetch, if err is TERN_BUSY: repeat it after so many milliseconds. 0: the
                            daemon does not know */
    uint32_t host_depth; /* Match: the committed length that a tern_fetch from the host tier would
                            bring; 0 on a resume */
    uint32_t disk_depth; /* the same from the disk; 0, too, where that is no more than `matched` */
    const struct tern_run *runs;
    uint32_t nruns;
    uint32_t
        blob_bytes;   /* Fetch by ticket: what tern_handoff was given along; borrowed as `runs` */
    const void *blob; /* NULL: none */
    struct tern_shortage shortage; /* if err is TERN_POOL_EXHAUSTED, or TERN_QUOTA for pages */
    uint32_t align; /* L, if err is TERN_INVALID because the depth of a commit is no multiple of it;
                       else 0 */
    uint32_t handed;   /* Fetch by ticket, if err is TERN_INVALID: the length that was handed over,
                          where that is another one than the session's list has; else 0 */
    uint32_t arriving; /* tern_fetch_wait, _pages: what is still coming brings the session to so
                          many tokens; 0: nothing is coming */
    const char *host;  /* Fetch: the peer that pages came from, also by TERN_PEER_ANY or a ticket;
                          borrowed as `runs`. NULL: none */
};

/* Opens a session: one request, or all turns of one conversation. It has a token list and a table
 * of pages, both empty at first. It ends with tern_session_close, or with its engine; and one whose
 * answer comes after the deadline is closed.
 *   GONE     The pool was closed.
 *   INVALID  No process of this engine has opened or mapped the pool.
 *   QUOTA    The tenant has sessions_max sessions, of which each ticket that stands is one. Close
 *            one, or fetch or drop tickets.
 *   BUSY     The daemon is draining, or all session slots are in use. */
TERN_API enum tern_err tern_session_open(struct tern *t, uint64_t pool,
                                         const struct tern_namespace *ns, uint32_t deadline_ms,
                                         tern_session *ret);
/* What a session does with its turn records; zeroed is what tern_session_open opens. */
struct tern_session_options {
    uint32_t blobs_kept; /* so many of its last records keep their blobs, 1 to 16; 0 stands for 2 */
    bool merging;        /* all records keep their blobs, for several samples that are merged */
};
/* The same with options, which are borrowed for the call; NULL: as tern_session_open. Besides:
 *   INVALID  merging and blobs_kept exclude each other, or blobs_kept is above 16. */
TERN_API enum tern_err tern_session_open_with(struct tern *t, uint64_t pool,
                                              const struct tern_namespace *ns,
                                              const struct tern_session_options *options,
                                              uint32_t deadline_ms, tern_session *ret);

/* Tells how deep a prefix is in the tree, in tokens, without any effect. tokens->base is 0. A list
 * longer than one request can be is sent in pieces.
 *   BUSY  What the first pieces found was evicted again and again. Repeat the call. */
TERN_API enum tern_err tern_peek(struct tern *t, uint64_t pool, const struct tern_namespace *ns,
                                 const struct tern_tokens *tokens, uint32_t deadline_ms,
                                 uint32_t *ret_depth);
/* Tells, besides, how deep HISTORY alone reaches. */
TERN_API enum tern_err tern_peek_history(struct tern *t, uint64_t pool,
                                         const struct tern_namespace *ns,
                                         const struct tern_tokens *tokens, uint32_t deadline_ms,
                                         uint32_t *ret_depth, uint32_t *ret_history_depth);

/* Depths of one prefix, in tokens. `resumable` is the least of them, but for `disk`. */
struct tern_depths {
    uint32_t resumable; /* what a Match would find */
    uint32_t history;   /* of HISTORY alone: the STATE of a short tail may be computed anew */
    uint32_t host;      /* what a Match and a tern_fetch from the host tier would find */
    uint32_t disk; /* the same with a tern_fetch from the disk; 0: no more than `resumable`. Of a
                      list longer than one request can be, it may be more: it is looked for as
                      far as the request in which memory's part ends. A Match tells all */
};
TERN_API enum tern_err tern_peek_depths(struct tern *t, uint64_t pool,
                                        const struct tern_namespace *ns,
                                        const struct tern_tokens *tokens, uint32_t deadline_ms,
                                        struct tern_depths *ret);

/* Begins a turn. On an empty session it finds and pins the longest committed prefix, and ret->runs
 * names its pages. On a session that has written tokens it resumes at the shorter of the written
 * length and the common prefix, and it gives the pages behind that back. So does one that has pages
 * and has written nothing, which therefore finds nothing in the tree: tern_rewind to 0 first, and
 * it is empty. `step` is the last step that may still touch them, or TERN_STEP_NONE. Either way the
 * tokens behind ret->lengths.written are left to compute. The call may be repeated.
 * A list of more than 16,384 tokens, or longer than one request can be, may be sent in pieces, and
 * others are served between them. The
 * answer is that of one request at the time of the last piece; if the call fails before that, call
 * it again, or abort or close the session: nothing else works on it.
 *   INVALID   The request has fewer tokens in common with the session than are committed. A session
 *             is append-only: close it and open another. Or the session is retracted, or the STATE
 *             that is needed at the common length has left its table: abort it, then match anew.
 *   CONFLICT  tokens->base is beyond the tokens that the session has.
 *   BUSY      A fetch of this session is under way, or a table of the daemon is full. */
TERN_API enum tern_err tern_match(struct tern *t, tern_session s, const struct tern_tokens *tokens,
                                  uint64_t step, uint32_t deadline_ms, struct tern_result *ret);

/* ---- what a session does: one operation, or a batch of them ----
 *
 * All lengths are of the whole session, in tokens, and never relative to a turn or to each other.
 * `step` is the last step that may touch the pages that the operation gives back, or
 * TERN_STEP_NONE; 0 is refused. Each operation takes effect wholly or not at all. *ret is filled in
 * whenever the daemon answered, also with an error; tern_error_text says why it was refused, with
 * the numbers. The errors that operations have in common:
 *   POOL_EXHAUSTED  There are not enough pages. ret->shortage says what to wait for. The session is
 *                   as it was, and nothing was evicted for this request. What an earlier one
 *                   evicted that was answered BUSY stays evicted.
 *   QUOTA           It never fits: the session's table would have more pages of a group than the
 *                   pool (ret->shortage), or its list or path more records than this tenant can
 *                   have. tern_error_numbers has what is needed, and what there can be at most. Ask
 *                   for less; waiting does not help.
 *   INVALID         The lengths do not fit the session, or the session is retracted.
 *   BUSY            A record that the daemon needs is not free, for instance because too many
 *                   releases wait for a step: repeat the operation after the next step. Or more has
 *                   to be evicted than one request may, or is copied to the host tier first, or
 *                   a submitted batch is too much work: repeat it in a millisecond.
 *
 * What a session is before and after; C, W, A: committed, written and allocated length; T: tokens
 * in its list. C <= W <= A and W <= T hold always.
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
 *   tern_record_rollback   C > what is left   0          0              0            of the last
 *                                                                                    finished turn
 *   tern_record_rollback   else               C          W              A            T
 *   tern_fetch, it came    matched            what came  as committed   as committed T
 *   tern_fetch, it did not                    C          W              A            T
 *   tern_abort, in a turn  (always)           0          0              0            of the last
 *                                                                                    finished turn
 *   tern_abort, no turn    (always)           C          W              A            T
 *   tern_session_close     no turn in flight  the handle is GONE
 *   tern_retract, DROP     no fetch under way C          C              C; away      T
 *   tern_retract, HOST     no fetch under way C          W              W; away      T
 *   tern_recover           away               C          what is there  as written   T
 *
 * A turn begins with tern_match, tern_extend, or a fetch that was not answered at once, whatever it
 * brought, and ends with tern_finish, which is INVALID before the first turn and after tern_abort.
 * A tern_finish may be repeated. A session that is away counts as in a turn: tern_abort of it gives
 * up the table, also where tern_finish came before the tern_retract. tern_recover brings it back as
 * it was, in a turn or finished. With a RECURRENT group a match or a finish that would leave less
 * than W goes back to C, and a rewind is INVALID between the two. After tern_retract with DROP the
 * tokens behind C are still in the list, and are to be written again.
 *
 * While a session is away, or a fetch or a recover is under way, only tern_recover, tern_retract,
 * tern_fetch_cancel, tern_abort and tern_session_close may be used on it. */

/* Gets pages, and says what is written and what the tokens are: a decode loop does all three in one
 * call. append: tokens behind the session's list, whose base is the number of tokens that it has;
 * NULL: none. written, allocated: the new lengths; 0 leaves one as it is. Neither can become less.
 *   CONFLICT  The tokens begin at another base than the session's list ends at. */
TERN_API enum tern_err tern_extend(struct tern *t, tern_session s, const struct tern_tokens *append,
                                   uint32_t written, uint32_t allocated, uint32_t deadline_ms,
                                   struct tern_result *ret);
/* Gives whole chunks of L tokens to the prefix tree, up to `depth`, a multiple of L. step: the step
 * that writes the pages, or a later one if that was dispatched on them, because pages that the
 * answer replaces are given back behind it. TERN_STEP_NONE: they are written already. So says a
 * step that all ranks have passed, too: the commit is published at once. It cannot be taken back.
 * Where another session of this engine has committed the same chunk by a step that has not passed,
 * the session takes those pages over, and neither they nor what it commits behind them are
 * published before that step, whatever this call names: let kernels that read them run behind it.
 * ret->lengths.committed says how far it got; a depth that was committed before changes nothing. A
 * long commit takes several requests, each with that deadline; also where it ends as BUSY, what the
 * lengths say is committed, and ret->runs has replaced pages. */
TERN_API enum tern_err tern_commit(struct tern *t, tern_session s, uint32_t depth, uint64_t step,
                                   uint32_t deadline_ms, struct tern_result *ret);
/* Gives back the pages behind `length`, and cuts the list of tokens there, also where no page comes
 * free: speculative tokens that were rejected.
 *   INVALID  Also: no STATE is there to go on from `length`. A WINDOW group goes back by its
 *            reserve. A RECURRENT group has the state of the written length and, where a commit
 *            made it a resume point, of the committed length: rewind to that, or abort. */
TERN_API enum tern_err tern_rewind(struct tern *t, tern_session s, uint32_t length, uint64_t step,
                                   uint32_t deadline_ms, struct tern_result *ret);
/* Ends a turn and keeps the session for the next one. length: the tokens that it keeps, from the
 * first on; pages behind them are given back. The written length does not grow by it. With a
 * RECURRENT group, whose one state is that of the written length, a length below that takes the
 * session's pages back to the committed length. */
TERN_API enum tern_err tern_finish(struct tern *t, tern_session s, uint32_t length, uint64_t step,
                                   uint32_t deadline_ms, struct tern_result *ret);
/* Takes STATE pages that have left the window out of the table; a commit does so by itself.
 * next_commit: the depth of the next commit; 0 stands for the committed length + L. */
TERN_API enum tern_err tern_slide(struct tern *t, tern_session s, uint32_t next_commit,
                                  uint64_t step, uint32_t deadline_ms, struct tern_result *ret);
/* Says that nobody will come back to the committed length, so its STATE may be the first to go. */
TERN_API enum tern_err tern_snapshot_release(struct tern *t, tern_session s, uint32_t deadline_ms,
                                             struct tern_result *ret);
/* Drops what is not committed, unpins the rest and empties the table. The session stays open: it
 * may be matched again, and finds what it had committed as anybody else would. Its list is cut to
 * what the last tern_finish kept, as far as later matches and rewinds left that; it is empty if no
 * turn was finished, and where the daemon had no room to keep it (ret->tokens says so).
 * Between tern_finish and the next tern_match, tern_extend, fetch or tern_retract there is no turn.
 * Then nothing is dropped: list, lengths and table stay as tern_finish left them. */
TERN_API enum tern_err tern_abort(struct tern *t, tern_session s, uint64_t step,
                                  uint32_t deadline_ms, struct tern_result *ret);
/* Ends the session. Its committed prefix stays in the tree for others, as long as there is room.
 * Of *ret only err is filled in. While a turn is in flight, the session's own handle is GONE at
 * once, and the call waits for the end of that turn, in the daemon also when deadline_ms has passed
 * (tern_batch_session_close is BUSY). What the session held is free when the steps that both of
 * them named have passed. The turn's handle closes the session at once.
 *   BUSY  The turn ended without tern_turn_end, so nobody knows what it had in flight. The session
 *         is open as before: close it by the last step that may touch its pages. */
TERN_API enum tern_err tern_session_close(struct tern *t, tern_session s, uint64_t step,
                                          uint32_t deadline_ms, struct tern_result *ret);

/* ---- turns: two requests race on one session ----
 *
 * An engine may have several clients for one conversation: a user who sends again before the answer
 * is there, or an agent that asks twice. A turn is what one of them does with the session while
 * nobody else can use it. A single scheduler that runs one request of a session after the other
 * begins no turn, and uses the session's own handle all the time. */

/* Claims the session. *ret is the turn's handle: use it as the session, in every call and on every
 * connection of the engine, until the turn ends. Meanwhile the session's own handle is BUSY at
 * once, before any work is done. The turn ends by tern_turn_end, at deadlines.turn_ms of the
 * daemon's configuration, with the connection that began it, with the engine, and when the session
 * is closed. From then on the turn's handle is GONE, so a call that comes late releases nothing.
 * The end changes nothing but who may use the session: pages, lengths and what is under way stay.
 * After TIMED_OUT the turn may begin all the same, for nobody; the library ends it in the next call
 * on this connection after the late answer, or deadlines.turn_ms does.
 *   BUSY      Another turn of this session is in flight. Wait for that, or answer your client so.
 *   GONE      The session was closed, or is to be closed when the turn in flight has ended.
 *   CONFLICT  This is the handle of a turn. */
TERN_API enum tern_err tern_turn_begin(struct tern *t, tern_session s, uint32_t deadline_ms,
                                       tern_session *ret);
/* Ends the turn. `step` is the last step that may touch the session's pages, or TERN_STEP_NONE: no
 * page that the session gives back, at a close or an abort, is free before that step has passed.
 * Only whoever has the turn's handle can end it. The call may be repeated: then it is GONE.
 *   GONE     The turn has ended already, or the session was closed.
 *   BUSY     This is the session's own handle, and a turn is in flight.
 *   INVALID  This is the session's own handle, and no turn is in flight. */
TERN_API enum tern_err tern_turn_end(struct tern *t, tern_session turn, uint64_t step,
                                     uint32_t deadline_ms);

/* ---- batches ---- */

/* The operations of one scheduler iteration, in order, for one request to the daemon. A batch
 * belongs to its connection; destroy it before that. */
struct tern_batch;

/* *ret is owned by the caller, who ends it with tern_batch_destroy. NULL is allowed there. */
TERN_API enum tern_err tern_batch_create(struct tern *t, struct tern_batch **ret);
TERN_API void tern_batch_destroy(struct tern_batch *b);
/* Empties it. One that was sent is empty already. */
TERN_API void tern_batch_clear(struct tern_batch *b);
/* How many operations it has: the next one's result will be results[count]. */
TERN_API uint32_t tern_batch_count(const struct tern_batch *b);
/* Each adds one operation, with the arguments of the function of that name above. Tokens and keys
 * are copied. The batch is as it was after an error:
 *   INVALID         No step is named, the batch has TERN_BATCH_OPS_MAX operations, or all of it
 *                   would be larger than one request can be: run it, and begin the next.
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
/* If the operation that was added last fails, those behind it are not tried. */
TERN_API void tern_batch_barrier(struct tern_batch *b);
/* Carries out all of it. The call returns OK when the daemon has answered; each (*ret_results)[i]
 * has the err of its operation, and tern_result_text(t, i) says why. *ret_done: how many were
 * tried; so many results there are, borrowed until the next call on the connection. Afterwards the
 * batch is empty, also when no answer came; it is as it was if nothing was sent.
 *   INVALID         The batch has no operation.
 *   CONFLICT, BUSY  One of its sessions has come under a lease since its operation was added.
 *                   Nothing was sent: take the session out of the lease, or clear the batch. */
TERN_API enum tern_err tern_batch_run(struct tern_batch *b, uint32_t deadline_ms,
                                      const struct tern_result **ret_results, uint32_t *ret_done);
/* What became of result i of the batch that was run last, or of the batch whose answer tern_poll
 * handed out last: what was asked, what the session has, and what to do. "" if it is OK, or there
 * is none. Of any other answer that tern_poll hands out, tern_error_text has the words, until the
 * next call. Borrowed until the next call on the connection. */
TERN_API const char *tern_result_text(struct tern *t, uint32_t i);
/* The same of that result as tern_error_numbers. */
TERN_API void tern_result_numbers(struct tern *t, uint32_t i, uint64_t ret[2]);

/* ---- giving way: a running session gives up its device pages and comes back later ---- */

/* HOST: what the session has committed is copied to the pool's host tier and pinned there; then
 * whoever needs device pages can take its. It is for a session that will not run for a while.
 * DROP: nothing is copied. What is committed stays on the device, pinned, and only the rest is
 * given back. It is for a session that comes back within a few steps, and for pools without a host
 * tier.
 */
enum tern_retract_mode { TERN_RETRACT_HOST = 0, TERN_RETRACT_DROP = 1 };

/* Filled in whenever the daemon answered, also with an error. The two numbers are device pages of
 * all groups together: free at once, and free when `step` has passed. Pages that HOST makes
 * evictable are in neither: shortage.evictable of an answer that is OK has them, at most, for when
 * they are copied. Where all three are 0, nothing comes free: what is not committed stays with
 * HOST, so commit it before, or retract with DROP. */
struct tern_retracted {
    struct tern_lengths lengths; /* as they are when `step` has passed */
    uint32_t free_now, free_at_step;
    struct tern_shortage shortage; /* if POOL_EXHAUSTED or QUOTA: pages of the host tier */
};

/* Takes a session off the device. It waits neither for copies nor for the step. `step` is the last
 * step that may touch the session's pages, or TERN_STEP_NONE. Forget its table; tern_recover tells
 * it anew.
 *
 * If the copies cannot be made after all, the session runs on by itself and tern_recover answers at
 * once; tern_stats counts it for the tenant (host_tier.retracts_undone). A caller who waits for the
 * memory repeats this call: a session that is away stays away, and one that runs on is retracted
 * anew or the answer says why not.
 *   POOL_EXHAUSTED  The host tier has no room for the prefix. The session runs on, untouched.
 *   QUOTA           The prefix is larger than the host tier, and never fits: use DROP.
 *   UNSUPPORTED     HOST was asked for, and the pool has no host tier.
 *   INVALID         DROP was asked for, and the session has run so far beyond its committed length
 *                   that the STATE of that length has left its table. Use HOST, or abort.
 *   BUSY            The session is being fetched or recovered. Wait for that, or cancel it. Or the
 *                   host tier keeps prompts that are still to be stored on the disk, for up to 2 s
 *                   each: repeat it, or use DROP, which needs no room. */
TERN_API enum tern_err tern_retract(struct tern *t, tern_session s, enum tern_retract_mode mode,
                                    uint64_t step, uint32_t deadline_ms,
                                    struct tern_retracted *ret);

/* Brings a retracted session back. ret->lengths says what came back: the committed length is as it
 * was, the written one may be shorter, so write again what is missing. ret->runs is the whole
 * table, as tern_run describes it. The call returns when the pages are on the device again, at once
 * where they never left it. For a session that is not away it tells the table once more, so it may
 * be repeated. After an error the session is retracted as before.
 *   POOL_EXHAUSTED  The device has no room. ret->shortage says what to wait for.
 *   BUSY            Another copy or commit of that prefix is under way, or a copy of what makes way
 *                   for it. Repeat in a moment.
 *   TIMED_OUT       deadline_ms passed first, and the way back is cancelled.
 *   CORRUPT         The host's copy is damaged. Use tern_abort, and compute the prefix again. */
TERN_API enum tern_err tern_recover(struct tern *t, tern_session s, uint32_t deadline_ms,
                                    struct tern_result *ret);

/* ---- namespaces ---- */

/* Forgets a namespace, for new weights under an old name: nothing that was committed under `ns`, in
 * any pool of the tenant, is found from now on, here, on the disk or by a fetch from a peer.
 * Sessions that run on it finish. *ret_nodes (may be NULL): the prefix nodes that are still held
 * and go when nobody holds them. The call may be repeated. It waits until the peers that are
 * connected have forgotten the namespace, too, and so have theirs.
 *   BUSY  Too many resets wait for peers that are not connected. Nothing was reset. */
TERN_API enum tern_err tern_namespace_reset(struct tern *t, const struct tern_namespace *ns,
                                            uint32_t deadline_ms, uint32_t *ret_nodes);
/* *ret_unreached (may be NULL): how many peers are not connected and are told when they are, or are
 * themselves waiting for such a peer. With 0 the old content is gone for good. Else it stays gone
 * while this daemon lives; if it restarts before they were told, repeat the reset. */
TERN_API enum tern_err tern_namespace_reset_peers(struct tern *t, const struct tern_namespace *ns,
                                                  uint32_t deadline_ms, uint32_t *ret_nodes,
                                                  uint32_t *ret_unreached);

#endif
