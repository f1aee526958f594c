/* One engine of one process over libtern, connected and joined as the only rank, with a mapped pool
 * of its own; and its sessions, whose pages it writes and compares. Calls block. Every call returns
 * the daemon's error for the caller to judge. */
#ifndef ENGINE_ENGINE_H
#define ENGINE_ENGINE_H

#include "engine/op.h"
#include "engine/table.h"

struct engine {
    struct tern *tern;        /* owned */
    struct tern_batch *batch; /* owned: for callers with several operations */
    struct tern_pool *map;    /* owned by tern */
    uint64_t pool, step;      /* step: the last one begun */
    uint32_t call_ms;
    struct tern_namespace ns;
    struct tern_group groups[TERN_GROUPS_MAX];
    uint32_t ngroups;
};

/* Connects, joins, opens the pool and maps it; after an error it keeps what it has reached. The
 * layout's pointers are borrowed until it returns, and the namespace's for good. */
enum tern_err engine_open(struct engine *e, const char *socket, const char *name,
                          const struct tern_layout *layout, uint32_t call_ms);
/* The same with the pool in the region of that device; NULL: in the first region. */
enum tern_err engine_open_on(struct engine *e, const char *socket, const char *name,
                             const char *device, const struct tern_layout *layout,
                             uint32_t call_ms);
/* Connects, joins and opens the pool without mapping it, for engines that map nothing. */
enum tern_err engine_open_pool(struct engine *e, const char *socket, const char *name,
                               const struct tern_layout *layout, uint32_t call_ms);
void engine_close(struct engine *e);
/* The text of the daemon's last error on this connection, or of connecting. */
const char *engine_why(const struct engine *e);

/* Returns the mapped address of a page; access its bytes by pages.h. */
uint8_t *engine_page(const struct engine *e, uint32_t group, uint32_t index);
/* Publishes another step as passed on the device: nothing before it is in flight. */
enum tern_err engine_publish(struct engine *e);
/* Waits for the next answer on a connection; BUSY: none came within wait_ms. */
enum tern_err answer_wait(struct tern *t, uint32_t wait_ms, struct tern_answer *ret);

/* A session and its engine's records of it. */
struct engine_session {
    struct engine *engine;
    tern_session id;
    struct tern_lengths len;
    uint32_t matched, host_depth; /* of its first Match */
    uint32_t *tokens;             /* owned */
    uint32_t ntokens;
    struct block_table table;
    struct tern_result last; /* of the last call; its runs are borrowed until the next call */
};

/* Opens a session and matches these tokens. After an error there is nothing to end; engine_free is
 * allowed. */
enum tern_err engine_begin(struct engine_session *s, struct engine *e, const uint32_t *tokens,
                           uint32_t n);
/* The same with room in the table for `more` tokens after them, which are also in the list. */
enum tern_err engine_begin_with(struct engine_session *s, struct engine *e, const uint32_t *tokens,
                                uint32_t n, uint32_t more);
/* Applies an answer: lengths and pages. INTERNAL: its pages do not fit the tokens. */
enum tern_err engine_take(struct engine_session *s, const struct tern_result *r);
/* Runs one operation and returns its error. */
enum tern_err engine_do(struct engine_session *s, struct engine_op op);
/* Repeats the operation while the daemon is BUSY or the pool is exhausted. */
enum tern_err engine_do_within(struct engine_session *s, struct engine_op op, uint32_t wait_ms);
enum tern_err engine_extend(struct engine_session *s, uint32_t allocated, uint32_t written);
enum tern_err engine_commit(struct engine_session *s, uint32_t depth);
/* Allocates pages for all its tokens, writes the missing ones, runs a step and commits. */
enum tern_err engine_run(struct engine_session *s);
enum tern_err engine_fetch(struct engine_session *s, const char *peer, uint32_t depth,
                           uint32_t wait_ms);
enum tern_err engine_recover(struct engine_session *s, uint32_t wait_ms);
/* Closes the session at the engine's step, and frees it. */
enum tern_err engine_end(struct engine_session *s);
void engine_free(struct engine_session *s);

/* Writes the pages that have tokens of [from, to), as far as they are in the table. */
void engine_write(struct engine_session *s, uint32_t from, uint32_t to);
/* Counts the wrong bytes in the pages needed to resume from `at`; every byte of a missing page
 * counts. */
uint64_t engine_wrong(const struct engine_session *s, uint32_t at);

#endif
