/* Part of tern.h: turn records. */
#ifndef TERN_RECORD_H
#define TERN_RECORD_H

#ifndef TERN_H
#error "include tern.h, which includes this"
#endif

/* ---- turn records: what a turn leaves beside KV ----
 *
 * A turn may leave a record: the token ids of its new tokens, a log-probability of each, and up to
 * TERN_BLOBS_MAX named blobs, such as hidden states of the whole list. The records of a session
 * follow each other: record 0 begins at token 0, and each one where the record before it ends.
 * Token ids and log-probabilities stay until a rollback or the session's end. Of the blobs those of
 * the last records stay (blobs_kept of tern_session_open_with); each append drops those of the
 * record that is now one too many.
 *
 * Records lie in the tenant's record memory (record_memory in the daemon's configuration), which
 * every process of an engine can map. The engine writes their bytes there, and they stay where they
 * are: the daemon looks at them, and never copies them.
 *
 * Records are written and read within a turn, by the turn's handle. What the calls below have in
 * common:
 *   INVALID      This is the session's own handle: begin a turn.
 *   UNSUPPORTED  The tenant has no record memory. */

#define TERN_BLOBS_MAX        4  /* blobs of a record */
#define TERN_BLOB_NAME_MAX    31 /* bytes of a blob's name, of which there is at least one */
#define TERN_RECORD_SPANS_MAX 8  /* spans of a section */

/* Maps the tenant's record memory, readable and writable. The connection owns *ret, and
 * tern_records_unmap or tern_destroy ends it. This process has joined an engine before. */
TERN_API enum tern_err tern_records_map(struct tern *t, uint32_t deadline_ms,
                                        struct tern_records **ret);
/* Unmaps and sets *m to NULL, which it may be already. Spans point nowhere from then on. */
TERN_API void tern_records_unmap(struct tern_records **m);
/* How many bytes are mapped. */
TERN_API uint64_t tern_records_bytes(const struct tern_records *m);

/* Bytes that lie side by side in the mapping. Token ids and log-probabilities lie whole in one. */
struct tern_span {
    uint8_t *at;
    uint64_t bytes;
};

/* A range of bytes: one span behind the other. The spans of a record that was prepared are the
 * caller's to write until it is put. Those of one that was got may be read until the turn ends, and
 * those of its blobs until the next append or rollback of the turn. */
struct tern_section {
    uint64_t bytes; /* of all spans together; 0: it is empty */
    uint32_t nspans;
    struct tern_span span[TERN_RECORD_SPANS_MAX];
};

struct tern_record_blob {
    char name[TERN_BLOB_NAME_MAX + 1];
    bool dropped; /* it is no longer there, and `at` is empty */
    struct tern_section at;
};

/* Where a record lies. It is of the tokens [from, length) of the list that the session's records
 * have. */
struct tern_record {
    uint32_t from, length;
    struct tern_section before;   /* uint32_t: token ids of [0, from), while it is prepared; else
                                     empty */
    struct tern_section tokens;   /* uint32_t: token ids of [from, length) */
    struct tern_section logprobs; /* float: one of each of those, or empty */
    uint32_t nblobs;
    struct tern_record_blob blobs[TERN_BLOBS_MAX];
};

/* A blob of a record that is to be. */
struct tern_blob {
    const char *name; /* borrowed for the call; another one in each blob of a record */
    uint64_t bytes;   /* at least 1 */
    const void *from; /* tern_records_append copies it from here; else it is not looked at */
};

enum tern_record_part { TERN_PART_NONE = 0, TERN_PART_TOKENS = 1, TERN_PART_LOGPROBS = 2 };

/* What the session has recorded now. It is filled in whenever the daemon answered, also with an
 * error; then the two numbers are 0 if the session is not the turn's any more, or if nothing was
 * looked at. */
struct tern_recorded {
    uint32_t length;             /* tokens of all its records together */
    uint32_t records;            /* of the session */
    enum tern_record_part part;  /* with MALFORMED: what is wrong is element `index` of this part */
    uint32_t index;              /* a token of the whole list, a log-probability of the new ones */
    struct tern_lengths lengths; /* of the session: all 0 where a rollback gave its table up */
    uint32_t tokens;             /* in the session's list */
};

/* ---- turn records by hand: prepare, write, put ---- */

/* Gets pages for a record of a list of `length` tokens. logprobs: how many there will be, which is
 * 0 or the number of tokens behind the last record. *ret is the caller's and says where each
 * section is to be written; write all of it, `before` included, because the daemon compares the
 * whole list. What was prepared in this turn before, and not put, is given back, also by a prepare
 * that is refused.
 *   CONFLICT   The list is no longer than the one that is recorded. Roll back first.
 *   QUOTA      The record memory has no room. Close sessions, or have record_memory raised.
 *   MALFORMED  logprobs is neither 0 nor the number of new tokens.
 *   BUSY       A record that was put is still looked at, or all turn records are in use. */
TERN_API enum tern_err tern_record_prepare(struct tern_records *m, tern_session turn,
                                           uint32_t length, uint32_t logprobs,
                                           const struct tern_blob *blobs, uint32_t nblobs,
                                           uint32_t deadline_ms, struct tern_record *ret);
/* The same for the list to roll back to: all of it, `length` tokens, goes to ret->before, and the
 * record has nothing else. */
TERN_API enum tern_err tern_record_prepare_rollback(struct tern_records *m, tern_session turn,
                                                    uint32_t length, uint32_t deadline_ms,
                                                    struct tern_record *ret);
/* Appends the record that was prepared and written. The daemon looks at its bytes first. Whatever
 * the answer, what was prepared is used up by it, but for BUSY.
 *   INVALID    Nothing is prepared.
 *   CONFLICT   The recorded list is no prefix of this one. Nothing was stored: roll back to what
 *              the two have in common.
 *   MALFORMED  A token id is 2^31 or more, or a log-probability is not finite. Nothing was stored.
 *              tern_error_text and *ret say which one it is. The connection lives on.
 *   GONE       The turn is over, or the session is closed. Nothing was stored.
 *   CORRUPT    A page of the record memory was gone. Nothing was stored: prepare it anew.
 *   BUSY       The daemon looks at as many records as it may (limits.record_jobs). Repeat the put.
 *
 * After TIMED_OUT or DAEMON_LOST tern_record_get tells whether the record is there. A put that is
 * repeated appends nothing twice: it is INVALID, or BUSY while the first is still looked at. */
TERN_API enum tern_err tern_record_put(struct tern_records *m, tern_session turn,
                                       uint32_t deadline_ms, struct tern_recorded *ret);
/* Takes the session back to the deepest record whose whole list of tokens the prepared list begins
 * with, or to none: the records behind it go. Where the session has committed more than what is
 * left, its table is given up: it is free when `step` has passed, the last step that may touch its
 * pages (or TERN_STEP_NONE). What was prepared is used up as by a put. Until the answer has come,
 * all other calls on the session but tern_abort and closing it are BUSY. Then call tern_match with
 * the prompt, whether the table went or not: ret->lengths say. The call may be repeated after a new
 * prepare.
 *   INVALID    Nothing is prepared that could be rolled back to. Or more than blobs_kept - 1
 *              records would go, counted together since the last append (of a session that merges:
 *              more than 15), or the record that would be last has lost its blobs. Nothing was
 *              changed.
 *   MALFORMED  A token id is 2^31 or more. Nothing was changed. The connection lives on.
 *   GONE, CORRUPT, BUSY  As for tern_record_put. */
TERN_API enum tern_err tern_record_rollback(struct tern_records *m, tern_session turn,
                                            uint64_t step, uint32_t deadline_ms,
                                            struct tern_recorded *ret);
/* Says where the records from `first` on lie, `max` of them or all that there are. A blob that was
 * dropped is named too. ret[0..*ret_n) are the caller's. *ret_records (may be NULL): how many the
 * session has; with max 0 that is all. The call may be repeated.
 *   INVALID  `first` is above the number of records. */
TERN_API enum tern_err tern_record_get(struct tern_records *m, tern_session turn, uint32_t first,
                                       struct tern_record *ret, uint32_t max, uint32_t deadline_ms,
                                       uint32_t *ret_n, uint32_t *ret_records);

/* Copy n bytes, from byte `at` of the section on, whatever its spans are. Any thread may call them.
 *   INVALID  The section has not that many bytes there. Nothing is copied. */
TERN_API enum tern_err tern_section_write(const struct tern_section *s, uint64_t at,
                                          const void *from, uint64_t n);
TERN_API enum tern_err tern_section_read(const struct tern_section *s, uint64_t at, void *to,
                                         uint64_t n);

/* ---- turn records as a whole ---- */

struct tern_new_record {
    const uint32_t *tokens; /* the whole list, from the first token on */
    uint32_t ntokens;
    uint32_t nlogprobs;    /* 0, or the number of tokens behind the last record */
    const float *logprobs; /* of the last nlogprobs tokens */
    const struct tern_blob *blobs;
    uint32_t nblobs;
};

/* Prepares a record, copies all of it from the caller's memory into the record memory, and puts it.
 * Everything is borrowed for the call. The errors are those of tern_record_prepare and
 * tern_record_put. An append that is repeated appends nothing twice: it is CONFLICT if the record
 * is there. */
TERN_API enum tern_err tern_records_append(struct tern_records *m, tern_session turn,
                                           const struct tern_new_record *record,
                                           uint32_t deadline_ms, struct tern_recorded *ret);
/* The same for a rollback to a list of n tokens; with 0 all records go. The errors are those of
 * tern_record_prepare and tern_record_rollback. It may be repeated. */
TERN_API enum tern_err tern_records_rollback(struct tern_records *m, tern_session turn,
                                             const uint32_t *tokens, uint32_t n, uint64_t step,
                                             uint32_t deadline_ms, struct tern_recorded *ret);

#endif
