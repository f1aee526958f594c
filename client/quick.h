/* The messages of the hot path (Match, Step, Fetch, Recover and their answers) written and read
 * without the generated code: an engine sends one Step an iteration, and building a tree of structs
 * for each would cost more than the request. The bytes are the same as protobuf's; test_client
 * compares both ways. Everything received is read by one bounded cursor and lands in arrays of a
 * fixed size. */
#ifndef CLIENT_QUICK_H
#define CLIENT_QUICK_H

#include "tern.h"

#define QUICK_RUNS_MAX 4096 /* runs of one answer */
#define QUICK_TEXT_MAX 256  /* bytes of an error's text, with the NUL */

/* Where the arrays of an answer go. `pages` has room for every ref that a body can hold. */
struct quick_store {
    struct tern_run *runs;   /* QUICK_RUNS_MAX */
    struct tern_page *pages; /* pages_max */
    uint32_t nruns, npages, pages_max;
    char *text; /* QUICK_TEXT_MAX: the last text that came with an error */
};

/* Bytes of the body; UINT64_MAX cannot occur. */
uint64_t quick_match_size(const struct tern_tokens *tokens, uint64_t step);
uint64_t quick_step_size(const struct tern_op *ops, uint32_t n);
uint64_t quick_fetch_size(const char *peer, uint32_t depth); /* NULL: the host tier */
uint64_t quick_recover_size(void);

/* Write exactly that many bytes and return the end. */
uint8_t *quick_match_put(uint8_t *p, const struct tern_tokens *tokens, uint64_t step);
uint8_t *quick_step_put(uint8_t *p, const struct tern_op *ops, uint32_t n);
uint8_t *quick_fetch_put(uint8_t *p, const char *peer, uint32_t depth);
uint8_t *quick_recover_put(uint8_t *p);

/* false: the bytes are no such message, or name more than fits. ret->err is the answer's own. */
bool quick_match_get(const uint8_t *body, uint32_t n, struct quick_store *store,
                     struct tern_result *ret);
bool quick_fetch_get(const uint8_t *body, uint32_t n, struct quick_store *store,
                     struct tern_result *ret);
bool quick_recover_get(const uint8_t *body, uint32_t n, struct quick_store *store,
                       struct tern_result *ret);
/* *ret_err: of the whole request; *ret_done <= max results were filled. */
bool quick_step_get(const uint8_t *body, uint32_t n, struct quick_store *store,
                    struct tern_result *ret, uint32_t max, uint32_t *ret_done,
                    enum tern_err *ret_err);

#endif
