/* The messages of the hot path (Match, Step, Fetch, Recover and their answers) written and read
 * without the generated code: an engine sends one Step an iteration, and building a tree of structs
 * for each would cost more than the request. The bytes are the same as protobuf's; test_client
 * compares both ways. Both use the bounded cursors of proto/, and received data goes to arrays of a
 * fixed size. */
#ifndef CLIENT_QUICK_H
#define CLIENT_QUICK_H

#include "proto/frame.h"
#include "proto/messages.h"
#include "proto/writer.h"
#include "tern.h"

#define QUICK_RUNS_MAX      4096   /* runs of one answer */
#define QUICK_ANSWERS_MAX   2      /* answers whose arrays are kept at a time: see `more` */
#define QUICK_TEXT_MAX      512    /* bytes of an error's text, with the NUL */
#define QUICK_TEXTS_MAX     16384u /* bytes of all texts in the results of one Step */
#define QUICK_NUMBERS_BYTES 16     /* bytes of the numbers behind each of these texts */

/* The arrays of answers, with room for QUICK_ANSWERS_MAX answers. `pages` has room for every ref
 * that a body can have. */
struct quick_store {
    struct tern_run *runs;   /* QUICK_RUNS_MAX for each answer */
    struct tern_page *pages; /* pages_max for each answer */
    uint32_t nruns, npages, pages_max;
    uint32_t taken; /* tokens of a match that the daemon took as the piece; 0: all that were sent */
    char *text;     /* QUICK_TEXT_MAX: the text of the last error */
    char *texts;    /* QUICK_TEXTS_MAX: texts of results, one behind the other; the first is "" */
    char host[WIRE_STRING_MAX + 1]; /* the peer that the last answer named */
    uint8_t *blob;                  /* TERN_BLOB_BYTES: the last blob received */
    uint32_t *text_at; /* TERN_BATCH_OPS_MAX for each answer: offset in `texts` of each result's
                          text; 0: none, or no room for it */
    uint32_t texts_end;
    uint64_t numbers[2]; /* numbers of `text`; the numbers of each text in `texts` follow it */
    bool goes_on;        /* the last answer is BUSY, and a repeat continues at once */
    bool more;           /* runs and texts of the next Step's answer are appended */
    uint32_t at;         /* index of its first result, and of its text_at */
};

/* Returns true if there is room for one more answer. */
static inline bool quick_has_room(const struct quick_store *store)
{
    return store->nruns <= QUICK_RUNS_MAX && store->npages <= store->pages_max;
}

/* The kinds of a Step's operation, as on the wire. */
enum client_op_kind {
    CLIENT_EXTEND = 1,
    CLIENT_REWIND,
    CLIENT_COMMIT,
    CLIENT_FINISH,
    CLIENT_ABORT,
    CLIENT_CLOSE,
    CLIENT_SLIDE,
    CLIENT_SNAPSHOT_RELEASE,
    CLIENT_ASSIGN,
    CLIENT_UNLEASE,
};

struct client_op {
    enum client_op_kind kind;
    bool barrier;
    tern_session session;
    uint64_t step;
    uint32_t length, written;
    struct tern_tokens tokens;
    uint64_t pool;               /* UNLEASE */
    const struct tern_run *runs; /* ASSIGN, UNLEASE */
    uint32_t nruns;
    uint32_t bytes; /* of its message, as quick_op_measure set it; 0: not measured */
};

/* A request of the hot path. Its arrays are borrowed until the request is written. */
struct quick_request {
    uint16_t type; /* FRAME_MATCH, _STEP, _FETCH, _FETCH_WAIT, _RECOVER or _WAIT_PUBLISHED */
    tern_session session;
    union {
        struct {
            const struct tern_tokens *tokens;
            uint64_t step;
            uint32_t earlier; /* tokens of this match in the pieces before this one */
            bool more;        /* pieces follow */
            bool pieces;      /* the daemon may take only the first tokens: quick_store.taken */
        } match;
        struct {
            const struct client_op *ops;
            uint32_t n;
            bool pieces; /* stop at an operation that continues in the next request */
        } step;
        struct {
            const struct tern_fetch *of;
            uint32_t wait_ms;
        } fetch;
        struct {
            uint32_t above;
            bool pages;
        } fetch_wait;
        uint64_t wait_step; /* not 0: a body is never empty */
    };
};

/* Returns the bytes of the body that quick_put writes. */
size_t quick_size(const struct quick_request *q);
/* Returns the bytes that one operation adds to a Step, and keeps them in op->bytes. After a later
 * change of the operation, call it again. */
size_t quick_op_measure(struct client_op *op);
void quick_put(struct writer *w, const struct quick_request *q);

/* Reads the answer to any of these requests but Step; `type` is the frame type of the answer.
 * ret->err is the daemon's error. Returns false if the bytes are no such message, or have more than
 * fits. */
bool quick_get(uint16_t type, const uint8_t *body, uint32_t n, struct quick_store *store,
               struct tern_result *ret);
/* Reads the answer to a Step. *ret_err is the daemon's error for the whole request; ret[at .. at +
 * *ret_done), with store->at, are the results of its operations, at most `max`; their texts are in
 * store->texts. */
bool quick_step_get(const uint8_t *body, uint32_t n, struct quick_store *store,
                    struct tern_result *ret, uint32_t max, uint32_t *ret_done,
                    enum tern_err *ret_err);

/* Returns the numbers of the text of that Step's result i. */
void quick_numbers(const struct quick_store *store, uint32_t i, uint64_t ret[2]);

/* On the wire 0 means that nothing is in flight. */
static inline uint64_t wire_step(uint64_t step)
{
    return step == TERN_STEP_NONE ? 0 : step;
}

#endif
