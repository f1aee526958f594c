/* The token store: raw tokens and extra keys in fixed records. A session's tail and a node's chunk
 * have the same shape, so a commit hands blocks over without copying a token. */
#ifndef CORE_TOKENS_H
#define CORE_TOKENS_H

#include "core/arena/arena.h"

/* A sequence that is not in one place: the first `base` tokens in a session's buffer (which must
 * begin at or before the first position asked for), the rest in a request. buf NULL: all in the
 * request. */
struct token_view {
    const struct core *c;
    const struct token_buf *buf;
    uint32_t align, base, end;
    const uint32_t *v; /* positions [base, end) */
    const struct extra_key *keys;
    uint32_t nkeys;
    uint32_t cursor_block,
        cursor_at; /* where buf was read last: readers go forward. Start at {buf->head, 0} */
    uint32_t cursor_key, cursor_i; /* likewise: the first keys that are not before keys_from, of buf
                                      while its ends are these, and of `keys` */
    uint32_t keys_from, keys_first, keys_end;
};

uint32_t tokens_blocks_per_chunk(uint32_t align);
/* Blocks of the first n tokens of a list, in such chunks as the buffer's. */
uint32_t tokens_blocks_of(const struct token_buf *b, uint32_t n);
/* Blocks that appending n tokens would take. */
uint32_t tokens_blocks_needed(const struct token_buf *b, uint32_t n);
/* Empties a buffer, whose `align` and `tenant` are set; it goes on at position `first`. */
void tokens_init(struct token_buf *b, uint32_t first);
/* BUSY and no change if the tenant's share of the store is used up. Keys must be ascending, within
 * [b->end, b->end + n). */
enum tern_err tokens_append(struct core *c, struct token_buf *b, const uint32_t *v, uint32_t n,
                            const struct extra_key *keys, uint32_t nkeys);
/* Copies all of it there. */
void tokens_copy(const struct core *c, const struct token_buf *b, uint32_t *to);
/* Copies the L tokens of a node there, and its extra keys, if `keys` is not NULL. */
void tokens_copy_chunk(const struct core *c, const struct node *n, uint32_t *to,
                       struct extra_key *keys);
/* A buffer to look at, with the node's chunk. */
struct token_buf tokens_of_node(const struct core *c, const struct node *n);
void tokens_truncate(struct core *c, struct token_buf *b, uint32_t end);
/* Takes the first whole chunk out of the buffer: heads of its blocks and keys. */
void tokens_take_chunk(struct core *c, struct token_buf *b, uint32_t *ret_blocks,
                       uint32_t *ret_keys);
/* The same, and frees it. */
void tokens_drop_chunk(struct core *c, struct token_buf *b);
/* Puts a copy of the node's first `take` tokens in front of the buffer, which is empty or begins
 * where they end. There must be room: node_blocks and node_keys of it. */
void tokens_prepend(struct core *c, struct token_buf *b, const struct node *n, uint32_t take);
uint32_t tokens_count_keys(const struct core *c, uint32_t head);
/* The first of a chain of blocks and of one of keys; NONE for none. */
struct token_heads {
    uint32_t blocks, keys;
};

void tokens_free(struct core *c, uint32_t tenant, struct token_heads heads);

/* `n` tokens at `pos`, none of them across a block boundary of the chunk that starts at `chunk`.
 * Copied to scratch only where they straddle buffer and request. */
const uint32_t *view_piece(struct token_view *w, uint32_t pos, uint32_t scratch[TOKEN_BLOCK],
                           uint32_t n);
bool view_equals_chunk(struct token_view *w, uint32_t start, struct token_heads of);
/* path: keyed, of the path to a chunk. content: public, what the chunk adds to a chain. */
struct view_hashes {
    uint64_t path, content;
};
/* parent: the path's hash up to the chunk. content false: that of the chunk is not wanted. */
struct view_hashes view_hash(struct token_view *w, uint32_t start, uint64_t parent, bool content);

/* How many tokens from `pos` agree with v[0..n) (extra keys too), up to the buffer's end. */
uint32_t tokens_common(const struct core *c, const struct token_buf *b, uint32_t pos,
                       const struct req_tokens *req);

/* Leaves the tokens, and the keys, from there on. */
void tokens_skip_to(struct req_tokens *t, uint32_t at);
/* Returns how many tokens of the session's list, the committed ones with them, agree with the
 * request, as far as both go; at least its base. */
uint32_t tokens_list_common(const struct core *c, const struct session *s,
                            const struct req_tokens *t);

/* INVALID: they do not ascend, strictly, within [base, base + n). */
enum tern_err keys_in_order(const struct req_tokens *req, struct reason *ret);

#endif
