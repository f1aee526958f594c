/* Part of tern.h: turn records. */
#ifndef TERN_RECORD_H
#define TERN_RECORD_H

#ifndef TERN_H
#error "include tern.h, which includes this"
#endif

/* ---- turn records: data of a turn beside KV ----
 *
 * A turn may leave a record: the token ids of its new tokens, a log-probability of each, and up to
 * TERN_BLOBS_MAX named blobs, such as hidden states of the whole list. The records of a session are
 * contiguous: record 0 begins at token 0, and each record begins where the one before it ends.
 * Token ids and log-probabilities stay until a rollback or the session's end. Only the last records
 * keep their blobs (blobs_kept of tern_session_open); each append drops the blobs of the oldest
 * record beyond that number.
 *
 * Records lie in the tenant's record memory (record_memory in the daemon's configuration). The
 * first call about records maps it, readable and writable, until tern_destroy. The engine writes
 * the bytes of records there, and they stay in place: the daemon reads them and never copies them.
 *
 * Records are written and read within a turn, by the turn's handle. All calls below may return:
 *   INVALID      This is the session's own handle: begin a turn. Or an argument is wrong, such as a
 *                list of more than 4,194,304 tokens, or two blobs of one name.
 *   UNSUPPORTED  The tenant has no record memory. */

#define TERN_BLOBS_MAX        4  /* blobs of one record */
#define TERN_BLOB_NAME_MAX    31 /* bytes of a blob's name; it has at least one */
#define TERN_RECORD_SPANS_MAX 8  /* spans of one section */

/* Contiguous bytes in the mapping. A token id or log-probability never crosses a span's end. */
struct tern_span {
    uint8_t *at;
    uint64_t bytes;
};

/* A range of bytes, as one or more spans in their order. The caller may write the spans of a
 * prepared record until it is put. It may read the spans of a record from tern_record_get until the
 * turn ends, and the spans of that record's blobs until the next append or rollback of the turn. */
struct tern_section {
    uint64_t bytes; /* of all spans together; 0: it is empty */
    uint32_t nspans;
    struct tern_span span[TERN_RECORD_SPANS_MAX];
};

struct tern_record_blob {
    char name[TERN_BLOB_NAME_MAX + 1];
    bool dropped; /* the blob was dropped, and `at` is empty */
    struct tern_section at;
};

/* The place of a record, which covers the tokens [from, length) of the recorded list. */
struct tern_record {
    uint32_t from, length;
    struct tern_section before;   /* uint32_t: token ids of [0, from), in a prepared record; else
                                     empty */
    struct tern_section tokens;   /* uint32_t: token ids of [from, length) */
    struct tern_section logprobs; /* float: one for each of these tokens, or empty */
    uint32_t nblobs;
    struct tern_record_blob blobs[TERN_BLOBS_MAX];
};

/* A blob of a record to be appended. */
struct tern_blob {
    const char *name; /* borrowed for the call; unique among the blobs of a record */
    uint64_t bytes;   /* at least 1 */
    const void *from; /* tern_record_put copies the blob from here; tern_record_prepare does not */
};

/* A record to be appended, or a list to roll back to. All pointers are borrowed for the call;
 * tern_record_prepare ignores `tokens` and `logprobs`, which its caller writes in place. */
struct tern_new_record {
    const uint32_t *tokens; /* the whole list from its first token */
    uint32_t ntokens;
    uint32_t nlogprobs;    /* 0, or the number of tokens behind the last record */
    const float *logprobs; /* of the last nlogprobs tokens */
    const struct tern_blob *blobs;
    uint32_t nblobs;
    bool rollback; /* only for tern_record_prepare: a list to roll back to. Not with nlogprobs, and
                      not with nblobs */
};

enum tern_record_part { TERN_PART_NONE = 0, TERN_PART_TOKENS = 1, TERN_PART_LOGPROBS = 2 };

/* The records of the session now. They are filled in whenever the daemon answered, also with an
 * error. With an error, length and records are 0 if the turn no longer has the session, or if the
 * daemon did not look at the session. */
struct tern_recorded {
    uint32_t length;             /* of all its records together, in tokens */
    uint32_t records;            /* number of the session's records */
    enum tern_record_part part;  /* with MALFORMED: the part whose element `index` is wrong */
    uint32_t index;              /* a token of the whole list, a log-probability of the new ones */
    struct tern_lengths lengths; /* of the session; all 0 if a rollback dropped its table */
    uint32_t tokens;             /* in the session's list */
};

/* Appends a record: allocates pages for it, copies all of it from the caller's memory into the
 * record memory, and stores it. With record NULL, stores the record that was prepared and written
 * (tern_record_prepare). The daemon reads the bytes first. Any answer except BUSY uses up the
 * prepared record. Errors besides those of tern_record_prepare:
 *   INVALID    record is NULL, and nothing is prepared.
 *   CONFLICT   The recorded list is no prefix of this list. Nothing was stored: roll back to the
 *              common part.
 *   MALFORMED  A token id is 2^31 or more, or a log-probability is not finite. Nothing was stored.
 *              tern_error_text and *ret name the element. The connection stays usable.
 *   GONE       The turn is over, or the session is closed. Nothing was stored.
 *   CORRUPT    A page of the record memory was lost. Nothing was stored: prepare the record anew.
 *   BUSY       The daemon is already reading its maximum number of records. Retry.
 *
 * After TIMED_OUT or DAEMON_LOST call tern_record_get to see whether the record exists. A repeated
 * put appends nothing twice: with a record it returns CONFLICT if the record exists; with NULL it
 * returns INVALID, or BUSY while the daemon still reads the first. */
TERN_API enum tern_err tern_record_put(struct tern *t, tern_session turn,
                                       const struct tern_new_record *record, uint32_t deadline_ms,
                                       struct tern_recorded *ret);
/* Rolls the session back. The call keeps the records from record 0 on as long as their tokens
 * together are a prefix of `list`, and drops all later records. `list` is a whole list without
 * keys; n 0 drops all records. With list NULL it is the list that was prepared and written
 * (tern_record_prepare). If the session has committed more tokens than the kept records have, its
 * table is dropped, too: its pages are free when `step` has passed, the last step that may touch
 * them (or TERN_STEP_NONE). The call uses up the prepared list as a put does. Until the answer
 * arrives, all other calls on the session return BUSY, except tern_abort and the close. Afterwards
 * call tern_match with the prompt, whether the table was dropped (see ret->lengths) or not. The
 * call may be repeated, with NULL after a new prepare. Errors besides those of tern_record_prepare:
 *   INVALID    list is NULL, and no list to roll back to is prepared. Or more than blobs_kept - 1
 *              records would be dropped, counted over all rollbacks since the last append (15
 *              records for a session that merges), or the record that would be last has lost its
 *              blobs. Nothing was changed.
 *   MALFORMED  A token id is 2^31 or more. Nothing was changed. The connection stays usable.
 *   GONE, CORRUPT, BUSY  As for tern_record_put. */
TERN_API enum tern_err tern_record_rollback(struct tern *t, tern_session turn,
                                            const struct tern_tokens *list, uint64_t step,
                                            uint32_t deadline_ms, struct tern_recorded *ret);
/* Returns the places of the records from number `first` on, at most `max` of them. Dropped blobs
 * are listed too. ret[0..*ret_n) are the caller's. *ret_records (may be NULL): the number of the
 * session's records; with max 0 the call returns only that. The call may be repeated.
 *   INVALID  `first` is above the number of records. */
TERN_API enum tern_err tern_record_get(struct tern *t, tern_session turn, uint32_t first,
                                       struct tern_record *ret, uint32_t max, uint32_t deadline_ms,
                                       uint32_t *ret_n, uint32_t *ret_records);

/* Copy n bytes to or from the section, beginning at the section's byte `at`, across its spans. Any
 * thread may call them.
 *   INVALID  The section does not have that many bytes there. Nothing is copied. */
TERN_API enum tern_err tern_section_write(const struct tern_section *s, uint64_t at,
                                          const void *from, uint64_t n);
TERN_API enum tern_err tern_section_read(const struct tern_section *s, uint64_t at, void *to,
                                         uint64_t n);

/* ---- turn records by hand: prepare, write in place, put ---- */

/* Allocates pages for a record of a list of ntokens tokens, or for a list to roll back to. *ret is
 * the caller's and names the memory of each section; write all of them, including `before`, because
 * the daemon compares the whole list. A list to roll back to has only the section `before`, which
 * is the whole list. If an earlier record of this turn was prepared and not put, the call drops
 * that one, even if the call itself is refused.
 *   INVALID    Two fields of `record` exclude each other: tern_error_text names both.
 *   CONFLICT   The list is not longer than the recorded list. Roll back first.
 *   QUOTA      The record memory has no room. Close sessions, or have record_memory raised.
 *   MALFORMED  nlogprobs is neither 0 nor the number of new tokens.
 *   BUSY       The daemon still reads a record that was put, or all turn records are in use. */
TERN_API enum tern_err tern_record_prepare(struct tern *t, tern_session turn,
                                           const struct tern_new_record *record,
                                           uint32_t deadline_ms, struct tern_record *ret);

#endif
