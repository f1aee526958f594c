/* The messages of the hot path (Match, Step, Fetch, Recover and their answers) written and read
 * without the generated code: an engine sends one Step an iteration, and building a tree of structs
 * for each would cost more than the request. The bytes are the same as protobuf's; test_client
 * compares both ways. Both go through the bounded cursors of proto/, and what is received lands in
 * arrays of a fixed size. */
#ifndef CLIENT_QUICK_H
#define CLIENT_QUICK_H

#include "proto/frame.h"
#include "proto/messages.h"
#include "proto/writer.h"
#include "tern.h"

#define QUICK_RUNS_MAX      4096   /* runs of one answer */
#define QUICK_ANSWERS_MAX   2      /* whose arrays are kept at a time: see `more` */
#define QUICK_TEXT_MAX      512    /* bytes of an error's text, with the NUL */
#define QUICK_TEXTS_MAX     16384u /* bytes of all texts that came with the results of one Step */
#define QUICK_NUMBERS_BYTES 16     /* behind each of them */

/* Where the arrays of an answer go. `pages` has room for every ref that a body can hold. The arrays
 * have room for those of QUICK_ANSWERS_MAX answers. */
struct quick_store {
    struct tern_run *runs;   /* QUICK_RUNS_MAX of an answer */
    struct tern_page *pages; /* pages_max of an answer */
    uint32_t nruns, npages, pages_max;
    uint32_t taken; /* tokens of a match that were the piece; 0: all that were sent */
    char *text;     /* QUICK_TEXT_MAX: the last text that came with an error */
    char *texts;    /* QUICK_TEXTS_MAX: those of results, one behind the other; the first is "" */
    char host[WIRE_STRING_MAX + 1]; /* the peer that the last answer named */
    uint8_t *blob;                  /* TERN_BLOB_BYTES: that of the last answer which had one */
    uint32_t *text_at; /* TERN_BATCH_OPS_MAX of an answer: where in texts that of a result begins,
                          0: it has none, or it found no room */
    uint32_t texts_end;
    uint64_t numbers[2]; /* that `text` came with; behind each of texts there are its own */
    bool goes_on;        /* what was answered last is BUSY, and goes on at once if repeated */
    bool more;           /* the runs and texts of the next Step's answer go behind those there */
    uint32_t at;         /* where its results go, and text_at of them */
};

/* Is there room for one answer more? */
static inline bool quick_has_room(const struct quick_store *store)
{
    return store->nruns <= QUICK_RUNS_MAX && store->npages <= store->pages_max;
}

/* An operation of a Step, as the wire has it. */
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
};

/* A request of the hot path. Its arrays are borrowed until it is written. */
struct quick_request {
    uint16_t type; /* FRAME_MATCH, _STEP, _FETCH, _FETCH_WAIT, _RECOVER or _WAIT_PUBLISHED */
    tern_session session;
    union {
        struct {
            const struct tern_tokens *tokens;
            uint64_t step;
            uint32_t earlier; /* tokens of this match in the pieces before this one */
            bool more;        /* pieces follow */
            bool pieces;      /* the daemon may take the first tokens alone: quick_store.taken */
        } match;
        struct {
            const struct client_op *ops;
            uint32_t n;
            bool pieces; /* end where one goes on */
        } step;
        struct {
            const char *peer;   /* NULL: the host tier; TERN_PEER_DISK: the disk */
            const char *ticket; /* NULL: none */
            uint32_t depth, at_least, wait_ms;
            bool prefetch;
            uint64_t step;
            bool follow;
        } fetch;
        struct {
            uint32_t above;
            bool pages;
        } fetch_wait;
        uint64_t wait_step; /* not 0: a body is never empty */
    };
};

/* Bytes of the body, which quick_put writes. */
size_t quick_size(const struct quick_request *q);
size_t quick_op_size(const struct client_op *op); /* what one operation adds to that of a Step */
void quick_put(struct writer *w, const struct quick_request *q);

/* Reads the answer to one of them but a Step; `type` is the frame type of that answer.
 * ret->err is what the daemon answered. False: the bytes are no such message, or name more than
 * fits. */
bool quick_get(uint16_t type, const uint8_t *body, uint32_t n, struct quick_store *store,
               struct tern_result *ret);
/* The same for the answer to a Step. *ret_err is what the daemon answered to the whole request;
 * ret[at .. at + *ret_done), with store->at, are the results of its operations, at most `max`;
 * their texts are in store->texts. */
bool quick_step_get(const uint8_t *body, uint32_t n, struct quick_store *store,
                    struct tern_result *ret, uint32_t max, uint32_t *ret_done,
                    enum tern_err *ret_err);

/* The numbers that came with the text of result i of that. */
void quick_numbers(const struct quick_store *store, uint32_t i, uint64_t ret[2]);

/* On the wire 0 says that nothing is in flight. */
static inline uint64_t wire_step(uint64_t step)
{
    return step == TERN_STEP_NONE ? 0 : step;
}

#endif
