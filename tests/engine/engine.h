/* One engine of one process over libtern: connected, joined as the only rank, with a pool of its
 * own that it has mapped; and its sessions, whose pages it writes and compares. Calls block. Every
 * call answers the daemon's error and leaves it to the caller what that means. */
#ifndef ENGINE_ENGINE_H
#define ENGINE_ENGINE_H

#include "engine/op.h"
#include "engine/table.h"

struct engine {
    struct tern *tern;        /* owned */
    struct tern_batch *batch; /* owned: for whoever has several operations */
    struct tern_pool *map;    /* owned by tern */
    uint64_t pool, step;      /* step: the last that was begun */
    uint32_t call_ms;
    struct tern_namespace ns;
    struct tern_group groups[TERN_GROUPS_MAX];
    uint32_t ngroups;
};

/* Connects, joins, opens the pool and maps it; what was reached is kept, also after an error. The
 * layout's pointers are borrowed until then, and the namespace's for good. */
enum tern_err engine_open(struct engine *e, const char *socket, const char *name,
                          const struct tern_layout *layout, uint32_t call_ms);
/* The same in the region of that device; NULL: in the first one. */
enum tern_err engine_open_on(struct engine *e, const char *socket, const char *name,
                             const char *device, const struct tern_layout *layout,
                             uint32_t call_ms);
/* The session's connection alone, for those that map nothing: engine_open without the last part. */
enum tern_err engine_open_pool(struct engine *e, const char *socket, const char *name,
                               const struct tern_layout *layout, uint32_t call_ms);
void engine_close(struct engine *e);
/* What the daemon said last, in words: of this connection, or of connecting. */
const char *engine_why(const struct engine *e);

/* Where it is mapped; its bytes are for pages.h. */
uint8_t *engine_page(const struct engine *e, uint32_t group, uint32_t index);
/* Another step has run on the device: nothing before it is in flight. */
enum tern_err engine_publish(struct engine *e);
/* The next answer on a connection, waited for; BUSY: none came within wait_ms. */
enum tern_err answer_wait(struct tern *t, uint32_t wait_ms, struct tern_answer *ret);

/* A session and what the engine keeps of it. */
struct engine_session {
    struct engine *engine;
    tern_session id;
    struct tern_lengths len;
    uint32_t matched, host_depth; /* by the Match that it began with */
    uint32_t *tokens;             /* owned */
    uint32_t ntokens;
    struct block_table table;
    struct tern_result last; /* of the last call; its runs are gone with the next */
};

/* Opens it and matches these tokens. After an error there is nothing to end, but engine_free is
 * fine. */
enum tern_err engine_begin(struct engine_session *s, struct engine *e, const uint32_t *tokens,
                           uint32_t n);
/* The same with room in the table for `more` tokens behind them, which are in the list, too. */
enum tern_err engine_begin_with(struct engine_session *s, struct engine *e, const uint32_t *tokens,
                                uint32_t n, uint32_t more);
/* Takes an answer in: lengths and pages. INTERNAL: its pages do not fit the tokens. */
enum tern_err engine_take(struct engine_session *s, const struct tern_result *r);
/* One operation on it, and what it answered. */
enum tern_err engine_do(struct engine_session *s, struct engine_op op);
/* The same again while the daemon is BUSY or the pool is exhausted. */
enum tern_err engine_do_within(struct engine_session *s, struct engine_op op, uint32_t wait_ms);
enum tern_err engine_extend(struct engine_session *s, uint32_t allocated, uint32_t written);
enum tern_err engine_commit(struct engine_session *s, uint32_t depth);
/* Room for all of its tokens, bytes in every page that is missing, a step, and a commit of them. */
enum tern_err engine_run(struct engine_session *s);
enum tern_err engine_fetch(struct engine_session *s, const char *peer, uint32_t depth,
                           uint32_t wait_ms);
enum tern_err engine_recover(struct engine_session *s, uint32_t wait_ms);
/* Closes it at the engine's step, and frees it. */
enum tern_err engine_end(struct engine_session *s);
void engine_free(struct engine_session *s);

/* The bytes of the pages that hold tokens of [from, to), as far as they are in the table. */
void engine_write(struct engine_session *s, uint32_t from, uint32_t to);
/* Bytes that are wrong in the pages that are needed to go on from `at`; of a page that is missing,
 * all. */
uint64_t engine_wrong(const struct engine_session *s, uint32_t at);

#endif
