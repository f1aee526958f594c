/* The source of requests: a trace file (Mooncake JSONL) or the generator. Both are streams: one
 * request at a time, bounded memory, and the same stream again after source_open with the same
 * options. */
#ifndef REPLAY_SOURCE_H
#define REPLAY_SOURCE_H

#include <stdbool.h>
#include <stdint.h>

#define PROMPT_TOKENS_MAX 4194304 /* tokens of a session */
#define BLOCK_TOKENS_MAX  65536
#define BLOCK_DEFAULT     512
#define SOURCE_WHY_BYTES  512
#define ID_OF_TAIL        (UINT64_C(1) << 63) /* tokens behind the last block: new to every cache */

/* One request. ids[] is owned by whoever owns the struct: PROMPT_TOKENS_MAX entries at most, as a
 * block has at least one token. */
struct prompt {
    uint64_t index; /* in the stream, from 0 */
    uint64_t timestamp_ms;
    uint32_t input_length, output_length; /* tokens */
    uint32_t block_size, nblocks;
    uint64_t *ids; /* owned; room for ids_cap */
    uint32_t ids_cap;
};

struct source;

struct source_options {
    const char *trace; /* NULL: generate */
    uint64_t limit;    /* requests; 0: all */
    uint64_t seed;
    uint32_t sessions, turns; /* of the generator */
    uint32_t turn_tokens;     /* likewise, of each user message; 0: MESSAGE_TOKENS at most */
};

/* Returns NULL with the reason in why[SOURCE_WHY_BYTES]. Copies the options; borrows trace. */
struct source *source_open(const struct source_options *options, char *why);
void source_close(struct source *s);

/* Returns 1: *p is the next request; 0: the end; -1: why has FILE:LINE and the error there. */
int source_next(struct source *s, struct prompt *p, char *why);

void prompt_finish(struct prompt *p);
/* Makes room for n ids and keeps the present ones. */
void prompt_reserve(struct prompt *p, uint32_t n);

/* Makes all input_length tokens: block b depends on ids[b] alone, tokens behind the last block on
 * the index. */
void prompt_tokens(const struct prompt *p, uint32_t *out);

#endif
