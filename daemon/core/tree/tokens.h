/* The token store: raw tokens and extra keys in fixed records. A session's tail and a node's chunk
 * have the same shape, so a commit moves blocks without copying a token. */
#ifndef CORE_TOKENS_H
#define CORE_TOKENS_H

#include "core/arena/arena.h"

/* A sequence in two parts: the first `base` tokens are in a session's buffer (which must begin at
 * or before the first position read), the rest is in a request. buf NULL: all is in the request. */
struct token_view {
    const struct core *c;
    const struct token_buf *buf;
    uint32_t align, base, end;
    const uint32_t *v; /* positions [base, end) */
    const struct extra_key *keys;
    uint32_t nkeys;
    uint32_t cursor_block,
        cursor_at;                 /* last read of buf: reads go forward. Start: {buf->head, 0} */
    uint32_t cursor_key, cursor_i; /* the first keys at or behind keys_from, of buf (valid while its
                                      ends are these) and of `keys` */
    uint32_t keys_from, keys_first, keys_end;
};

uint32_t tokens_blocks_per_chunk(uint32_t align);
/* Returns the blocks of a list's first n tokens, in chunks like the buffer's. */
uint32_t tokens_blocks_of(const struct token_buf *b, uint32_t n);
/* Returns the blocks that appending n tokens would take. */
uint32_t tokens_blocks_needed(const struct token_buf *b, uint32_t n);
/* Empties a buffer, whose `align` and `owner` are set; its next token is at position `first`. */
void tokens_init(struct token_buf *b, uint32_t first);
/* BUSY, without any change, if the owner's share of the store is used up. Keys must ascend within
 * [b->end, b->end + n). */
enum tern_err tokens_append(struct core *c, struct token_buf *b, const uint32_t *v, uint32_t n,
                            const struct extra_key *keys, uint32_t nkeys);
/* Copies all tokens of the buffer to `to`. */
void tokens_copy(const struct core *c, const struct token_buf *b, uint32_t *to);
/* Copies a node's L tokens to `to`, and its extra keys if `keys` is not NULL. */
void tokens_copy_chunk(const struct core *c, const struct node *n, uint32_t *to,
                       struct extra_key *keys);
/* Returns a read-only buffer with the node's chunk. */
struct token_buf tokens_of_node(const struct core *c, const struct node *n);
void tokens_truncate(struct core *c, struct token_buf *b, uint32_t end);
/* Removes the first whole chunk from the buffer and returns the heads of its blocks and keys. */
void tokens_take_chunk(struct core *c, struct token_buf *b, uint32_t *ret_blocks,
                       uint32_t *ret_keys);
/* Removes the first whole chunk and frees it. */
void tokens_drop_chunk(struct core *c, struct token_buf *b);
/* Puts a copy of the node's first `take` tokens in front of the buffer, which is empty or begins
 * where they end. There must be room for the node's blocks and keys. */
void tokens_prepend(struct core *c, struct token_buf *b, const struct node *n, uint32_t take);
uint32_t tokens_count_keys(const struct core *c, uint32_t head);
/* Heads of a chain of blocks and of a chain of keys; NONE for none. */
struct token_heads {
    uint32_t blocks, keys;
};

void tokens_free(struct core *c, struct token_owner owner, struct token_heads heads);

/* Returns `n` tokens at `pos` that cross no block boundary of their chunk. They are copied to
 * scratch only if they straddle buffer and request. */
const uint32_t *view_piece(struct token_view *w, uint32_t pos, uint32_t scratch[TOKEN_BLOCK],
                           uint32_t n);
bool view_equals_chunk(struct token_view *w, uint32_t start, struct token_heads of);
/* path: keyed hash of the path to a chunk. content: public hash of the chunk, for its chain. */
struct view_hashes {
    uint64_t path, content;
};
/* parent: the path's hash up to the chunk. content: whether `content` is computed. */
struct view_hashes view_hash(struct token_view *w, uint32_t start, uint64_t parent, bool content);

/* Returns how many tokens from `pos` match v[0..n), extra keys included, up to the buffer's end. */
uint32_t tokens_common(const struct core *c, const struct token_buf *b, uint32_t pos,
                       const struct req_tokens *req);

/* Drops the tokens and keys before `at`. */
void tokens_skip_to(struct req_tokens *t, uint32_t at);
/* Returns how many tokens of the session's list, with the committed ones, match the request up to
 * the end of the shorter one; at least the request's base. */
uint32_t tokens_list_common(const struct core *c, const struct session *s,
                            const struct req_tokens *t);

/* INVALID: the keys do not strictly ascend within [base, base + n). */
enum tern_err keys_in_order(const struct req_tokens *req, struct reason *ret);

#endif
