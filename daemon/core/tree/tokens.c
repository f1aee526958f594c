/* The token store. See tokens.h. A chunk of L tokens is a chain of blocks, the last one partly
 * filled when L is no multiple of TOKEN_BLOCK; a session's buffer is a chain of such chunks. */
#include "core/tree/tokens.h"

#include <string.h>

#include "base/hash.h"
#include "core/arena/hashed.h"

#define KEYS_OUT_OF_ORDER                                                                          \
    "the extra key at position # follows one at position #: sort extra keys by position, at most " \
    "one for each"

#define KEY_OUTSIDE "the extra key at position # is outside of the request's own tokens"

static uint32_t min_u32(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

uint32_t tokens_blocks_per_chunk(uint32_t align)
{
    return div_up(align, TOKEN_BLOCK);
}

uint32_t tokens_blocks_of(const struct token_buf *b, uint32_t n)
{
    uint32_t align = b->align;

    return n / align * tokens_blocks_per_chunk(align) + div_up(n % align, TOKEN_BLOCK);
}

/* Returns the room, from `off` on, of the block that has this offset of a buffer. */
static uint32_t room_at(const struct token_buf *b, uint32_t off)
{
    uint32_t align = b->align, in_chunk = off % align, in_block = in_chunk % TOKEN_BLOCK;

    return min_u32(TOKEN_BLOCK - in_block, align - in_chunk);
}

uint32_t tokens_blocks_needed(const struct token_buf *b, uint32_t n)
{
    return tokens_blocks_of(b, b->end - b->first + n) - tokens_blocks_of(b, b->end - b->first);
}

void tokens_init(struct token_buf *b, uint32_t first)
{
    b->head = b->tail = b->keys = b->keys_tail = NONE;
    b->first = b->end = first;
    b->cut = b->cut < first ? b->cut : first;
}

static uint32_t block_take(struct core *c)
{
    uint32_t i = block_slot_pop(c);

    *block_next(c, i) = NONE;
    return i;
}

static struct share_of blocks_of(struct token_owner o)
{
    return (struct share_of){o.disk ? SHARE_DISK_BLOCKS : SHARE_TOKEN_BLOCKS, o.tenant};
}

static struct share_of keys_of(struct token_owner o)
{
    return (struct share_of){o.disk ? SHARE_DISK_KEYS : SHARE_EXTRA_KEYS, o.tenant};
}

void tokens_free(struct core *c, struct token_owner owner, struct token_heads heads)
{
    uint32_t blocks = 0, keys = 0;

    for (; heads.blocks != NONE; blocks++) {
        uint32_t next = *block_next(c, heads.blocks);

        block_slot_push(c, heads.blocks);
        heads.blocks = next;
    }
    for (; heads.keys != NONE; keys++) {
        uint32_t next = key_at(c, heads.keys)->next;

        key_slot_push(c, heads.keys);
        heads.keys = next;
    }
    share_put_n(c, blocks_of(owner), blocks);
    share_put_n(c, keys_of(owner), keys);
}

/* Returns where to search for the first key at or behind `pos`; NONE: there is no such key. */
static uint32_t keys_head(const struct core *c, const struct token_buf *b, uint32_t pos)
{
    return b->keys != NONE && key_at(c, b->keys_tail)->position >= pos ? b->keys : NONE;
}

static void key_append(struct core *c, struct token_buf *b, const struct extra_key *key)
{
    uint32_t i = key_slot_pop(c);
    struct key_record *k = key_at(c, i);

    share_take_n(c, keys_of(b->owner), 1);
    k->next = NONE;
    k->position = key->position;
    k->hi = key->hi;
    k->lo = key->lo;
    if (b->keys == NONE)
        b->keys = i;
    else
        key_at(c, b->keys_tail)->next = i;
    b->keys_tail = i;
}

enum tern_err tokens_append(struct core *c, struct token_buf *b, const uint32_t *v, uint32_t n,
                            const struct extra_key *keys, uint32_t nkeys)
{
    uint32_t blocks = tokens_blocks_needed(b, n);

    if (blocks > share_room(c, blocks_of(b->owner).table, b->owner.tenant) ||
        nkeys > share_room(c, keys_of(b->owner).table, b->owner.tenant))
        return TERN_BUSY;
    share_take_n(c, blocks_of(b->owner), blocks);
    while (n > 0) {
        uint32_t off = b->end - b->first, room = room_at(b, off), take = min_u32(room, n);

        if (off % b->align % TOKEN_BLOCK == 0) {
            uint32_t i = block_take(c);

            if (b->head == NONE)
                b->head = i;
            else
                *block_next(c, b->tail) = i;
            b->tail = i;
        }
        memcpy(block_at(c, b->tail)->v + off % b->align % TOKEN_BLOCK, v, take * sizeof *v);
        v += take;
        n -= take;
        b->end += take;
    }
    for (uint32_t i = 0; i < nkeys; i++)
        key_append(c, b, &keys[i]);
    return TERN_OK;
}

void tokens_truncate(struct core *c, struct token_buf *b, uint32_t end)
{
    uint32_t keep, last = NONE, at = b->head, key = keys_head(c, b, end), keys = 0;
    uint32_t last_key = key == NONE && b->keys != NONE ? b->keys_tail : NONE;
    struct token_heads rest;

    check(end >= b->first);
    if (end >= b->end)
        return;
    keep = tokens_blocks_of(b, end - b->first);
    if (keep == tokens_blocks_of(b, b->end - b->first)) {
        last = b->tail; /* like most rewinds: no block is freed */
        at = NONE;
    }
    for (uint32_t i = 0; i < keep && at != NONE; i++) {
        last = at;
        at = *block_next(c, at);
    }
    c->visits += tokens_blocks_of(b, b->end - b->first) / RECORDS_A_VISIT;
    rest.blocks = at;
    if (last == NONE)
        b->head = NONE;
    else
        *block_next(c, last) = NONE;
    b->tail = last;
    for (; key != NONE && key_at(c, key)->position < end; key = key_at(c, key)->next, keys++)
        last_key = key;
    c->visits += keys / RECORDS_A_VISIT;
    rest.keys = key;
    tokens_free(c, b->owner, rest);
    if (last_key == NONE)
        b->keys = NONE;
    else
        key_at(c, last_key)->next = NONE;
    b->keys_tail = last_key;
    b->end = end;
    b->cut = b->cut < end ? b->cut : end;
}

void tokens_take_chunk(struct core *c, struct token_buf *b, uint32_t *ret_blocks,
                       uint32_t *ret_keys)
{
    uint32_t last = b->head, key = b->keys, last_key = NONE;

    check(b->end - b->first >= b->align);
    *ret_blocks = b->head;
    for (uint32_t i = 1; i < tokens_blocks_per_chunk(b->align); i++)
        last = *block_next(c, last);
    b->head = *block_next(c, last);
    *block_next(c, last) = NONE;
    b->first += b->align;
    while (key != NONE && key_at(c, key)->position < b->first) {
        last_key = key;
        key = key_at(c, key)->next;
    }
    *ret_keys = last_key == NONE ? NONE : b->keys;
    if (last_key != NONE)
        key_at(c, last_key)->next = NONE;
    b->keys = key;
}

uint32_t tokens_count_keys(const struct core *c, uint32_t head)
{
    uint32_t n = 0;

    for (; head != NONE; head = key_at(c, head)->next)
        n++;
    return n;
}

void tokens_drop_chunk(struct core *c, struct token_buf *b)
{
    struct token_heads chunk;

    tokens_take_chunk(c, b, &chunk.blocks, &chunk.keys);
    tokens_free(c, b->owner, chunk);
}

void tokens_prepend(struct core *c, struct token_buf *b, const struct node *n, uint32_t take)
{
    uint32_t start = n->depth - b->align, from = n->tokens;
    struct token_buf front = *b;

    tokens_init(&front, start);
    front.cut = b->cut; /* nothing is cut off */
    for (uint32_t off = 0; off < take; off += TOKEN_BLOCK, from = *block_next(c, from))
        check(tokens_append(c, &front, block_at(c, from)->v, min_u32(TOKEN_BLOCK, take - off), NULL,
                            0) == TERN_OK);
    for (uint32_t k = n->keys; k != NONE; k = key_at(c, k)->next) {
        const struct key_record *r = key_at(c, k);
        const struct extra_key key = {.position = r->position, .hi = r->hi, .lo = r->lo};

        if (r->position < start + take)
            key_append(c, &front, &key);
    }
    if (b->head != NONE) {
        check(b->first == front.end);
        *block_next(c, front.tail) = b->head;
        front.tail = b->tail;
        front.end = b->end;
    }
    if (b->keys != NONE && front.keys != NONE)
        key_at(c, front.keys_tail)->next = b->keys;
    else if (b->keys != NONE)
        front.keys = b->keys;
    if (b->keys != NONE)
        front.keys_tail = b->keys_tail;
    *b = front;
}

/* Returns the tokens at offset `off`. The cursor only moves forward: ordered reads are linear. */
static const uint32_t *buf_at(const struct core *c, const struct token_buf *b, uint32_t off,
                              uint32_t *cursor_block, uint32_t *cursor_at)
{
    uint32_t at = off / b->align * tokens_blocks_per_chunk(b->align) + off % b->align / TOKEN_BLOCK;

    if (at < *cursor_at || *cursor_block == NONE) {
        *cursor_block = b->head;
        *cursor_at = 0;
    }
    for (; *cursor_at < at; (*cursor_at)++)
        *cursor_block = *block_next(c, *cursor_block);
    return block_at(c, *cursor_block)->v + off % b->align % TOKEN_BLOCK;
}

const uint32_t *view_piece(struct token_view *w, uint32_t pos, uint32_t scratch[TOKEN_BLOCK],
                           uint32_t n)
{
    const uint32_t *piece;
    uint32_t have;

    if (pos >= w->base)
        return w->v + (pos - w->base);
    have = w->base - pos;
    piece = buf_at(w->c, w->buf, pos - w->buf->first, &w->cursor_block, &w->cursor_at);
    if (have >= n)
        return piece;
    memcpy(scratch, piece, have * sizeof *scratch);
    memcpy(scratch + have, w->v, (n - have) * sizeof *scratch);
    return scratch;
}

/* Walks the keys of a view within [from, to): those of the buffer first, then the request's. */
struct key_walk {
    uint32_t at, i;
};

static void keys_start(struct token_view *w, uint32_t from, struct key_walk *k)
{
    uint32_t first = w->buf ? w->buf->first : 0, end = w->buf ? w->buf->end : 0;
    bool forward = w->keys_from > 0 && from >= w->keys_from;

    k->at = w->buf ? keys_head(w->c, w->buf, from) : NONE;
    if (forward && w->keys_first == first && w->keys_end == end)
        k->at = w->cursor_key;
    k->i = forward ? w->cursor_i : 0;
    while (k->at != NONE && key_at(w->c, k->at)->position < from)
        k->at = key_at(w->c, k->at)->next;
    while (k->i < w->nkeys && w->keys[k->i].position < from)
        k->i++;
    w->cursor_key = k->at;
    w->cursor_i = k->i;
    w->keys_from = from;
    w->keys_first = first;
    w->keys_end = end;
}

static bool keys_next(struct token_view *w, uint32_t to, struct key_walk *k, struct extra_key *ret)
{
    if (k->at != NONE && key_at(w->c, k->at)->position < (to < w->base ? to : w->base)) {
        const struct key_record *r = key_at(w->c, k->at);

        *ret = (struct extra_key){.position = r->position, .hi = r->hi, .lo = r->lo};
        k->at = r->next;
        return true;
    }
    if (k->i < w->nkeys && w->keys[k->i].position < to) {
        *ret = w->keys[k->i++];
        return true;
    }
    return false;
}

static bool has_keys(const struct token_view *w)
{
    return w->nkeys > 0 || (w->buf && w->buf->keys != NONE);
}

static bool keys_equal_chunk(struct token_view *w, uint32_t start, struct token_heads of)
{
    struct key_walk walk;
    struct extra_key key;
    uint32_t at = of.keys;

    keys_start(w, start, &walk);
    while (keys_next(w, start + w->align, &walk, &key)) {
        const struct key_record *r = at == NONE ? NULL : key_at(w->c, at);

        if (!r || r->position != key.position || r->hi != key.hi || r->lo != key.lo)
            return false;
        at = r->next;
    }
    return at == NONE;
}

static bool chunk_tokens_equal(struct token_view *w, uint32_t start, struct token_heads of)
{
    uint32_t scratch[TOKEN_BLOCK], at = of.blocks;
    uint32_t length = w->align;

    for (uint32_t off = 0; off < length; off += TOKEN_BLOCK) {
        uint32_t take = min_u32(TOKEN_BLOCK, length - off);
        const uint32_t *piece = view_piece(w, start + off, scratch, take);

        if (memcmp(block_at(w->c, at)->v, piece, take * sizeof *piece) != 0)
            return false;
        at = *block_next(w->c, at);
    }
    return true;
}

bool view_equals_chunk(struct token_view *w, uint32_t start, struct token_heads of)
{
    /* A fast path for the usual case: one block, all of it in the request. */
    if (w->align == TOKEN_BLOCK && start >= w->base) {
        if (memcmp(block_at(w->c, of.blocks)->v, w->v + (start - w->base),
                   sizeof(struct token_block)) != 0)
            return false;
    } else if (!chunk_tokens_equal(w, start, of)) {
        return false;
    }
    if (of.keys == NONE && !has_keys(w))
        return true;
    return keys_equal_chunk(w, start, of);
}

/* Adds the chunk's extra keys to both hashes. */
static void hash_keys(struct token_view *w, uint32_t start, struct view_hashes *h)
{
    const struct hash_secret *k = secret_of(w->c);
    struct key_walk walk;
    struct extra_key key;

    keys_start(w, start, &walk);
    while (keys_next(w, start + w->align, &walk, &key)) {
        const uint32_t words[] = {(uint32_t)key.hi, (uint32_t)(key.hi >> 32), (uint32_t)key.lo,
                                  (uint32_t)(key.lo >> 32)};

        h->path =
            keyed_fold(k, h->path, keyed_block(k, words, 4), KIND_KEY + (key.position - start));
        h->content = hash_mix(hash_mix(h->content, key.position - start), hash_mix(key.hi, key.lo));
    }
}

struct view_hashes view_hash(struct token_view *w, uint32_t start, uint64_t parent, bool content)
{
    static_assert(TOKEN_BLOCK == KEYED_BLOCK, "a piece of a view is a symbol");
    const struct hash_secret *k = secret_of(w->c);
    struct view_hashes h = {.path = parent};
    uint32_t scratch[TOKEN_BLOCK];

    for (uint32_t off = 0; off < w->align; off += TOKEN_BLOCK) {
        uint32_t take = min_u32(TOKEN_BLOCK, w->align - off);
        const uint32_t *piece = view_piece(w, start + off, scratch, take);

        h.path = keyed_fold(k, h.path, keyed_block(k, piece, take), off == 0 ? w->align : 0);
        if (content)
            h.content = hash_words(h.content, piece, take);
    }
    if (has_keys(w))
        hash_keys(w, start, &h);
    return h;
}

static uint32_t first_key_difference(const struct core *c, const struct token_buf *b, uint32_t pos,
                                     const struct req_tokens *req, uint32_t limit)
{
    uint32_t at = keys_head(c, b, pos), i = 0;

    while (at != NONE && key_at(c, at)->position < pos)
        at = key_at(c, at)->next;
    for (;;) {
        const struct key_record *r = at == NONE ? NULL : key_at(c, at);
        uint32_t mine = r ? r->position : UINT32_MAX,
                 theirs = i < req->nkeys ? req->keys[i].position : UINT32_MAX;
        uint32_t first = min_u32(mine, theirs);

        if (first >= limit)
            return limit;
        if (mine != theirs || r->hi != req->keys[i].hi || r->lo != req->keys[i].lo)
            return first;
        at = r->next;
        i++;
    }
}

uint32_t tokens_common(const struct core *c, const struct token_buf *b, uint32_t pos,
                       const struct req_tokens *req)
{
    uint32_t n = min_u32(req->n, b->end - pos), same = 0, cursor = b->head, cursor_at = 0;

    while (same < n) {
        uint32_t off = pos + same - b->first, take = min_u32(room_at(b, off), n - same);
        const uint32_t *mine = buf_at(c, b, off, &cursor, &cursor_at);

        if (memcmp(mine, req->v + same, take * sizeof *mine) == 0) {
            same += take;
            continue;
        }
        while (*mine == req->v[same]) {
            mine++;
            same++;
        }
        break;
    }
    return first_key_difference(c, b, pos, req, pos + same) - pos;
}

void tokens_skip_to(struct req_tokens *t, uint32_t at)
{
    uint32_t skip = at - t->base;

    check(at >= t->base && skip <= t->n);
    if (skip > 0)
        t->v += skip;
    t->n -= skip;
    t->base = at;
    while (t->nkeys > 0 && t->keys[0].position < at) {
        t->keys++;
        t->nkeys--;
    }
}

struct token_buf tokens_of_node(const struct core *c, const struct node *n)
{
    const uint32_t align = pool_at(c, n->pool)->align;
    struct token_buf b = {.align = align,
                          .head = n->tokens,
                          .keys = n->keys,
                          .keys_tail = n->keys,
                          .first = n->depth - align,
                          .end = n->depth};

    while (b.keys != NONE && key_at(c, b.keys_tail)->next != NONE)
        b.keys_tail = key_at(c, b.keys_tail)->next;
    return b;
}

uint32_t tokens_list_common(const struct core *c, const struct session *s,
                            const struct req_tokens *t)
{
    const uint32_t align = s->tokens.align, all = t->base + t->n,
                   end = all < s->committed ? all : s->committed;
    uint32_t key = t->nkeys, same = end > t->base ? end : t->base;
    struct req_tokens tail = *t;

    for (uint32_t at = node_above(c, (struct path){s->node, div_up(end, align) * align});
         node_at(c, at)->depth > t->base; at = node_at(c, at)->parent) {
        const struct node *n = node_at(c, at);
        struct token_buf b;
        const uint32_t above = n->depth - align, from = above > t->base ? above : t->base;
        struct req_tokens part = {.base = from};
        uint32_t agree;

        if (from >= end)
            continue;
        while (key > 0 && t->keys[key - 1].position >= from)
            key--;
        part.v = t->v + (from - t->base);
        part.n = (n->depth < end ? n->depth : end) - from;
        part.keys = key < t->nkeys ? t->keys + key : NULL;
        part.nkeys = t->nkeys - key;
        b = tokens_of_node(c, n);
        agree = tokens_common(c, &b, from, &part);
        if (agree < part.n)
            same = from + agree;
    }
    if (same < s->committed || same >= s->tokens.end)
        return same;
    tokens_skip_to(&tail, same);
    return same + tokens_common(c, &s->tokens, same, &tail);
}

void tokens_copy(const struct core *c, const struct token_buf *b, uint32_t *to)
{
    uint32_t cursor = b->head, cursor_at = 0;

    for (uint32_t off = 0, take; off < b->end - b->first; off += take) {
        take = min_u32(room_at(b, off), b->end - b->first - off);
        memcpy(to + off, buf_at(c, b, off, &cursor, &cursor_at), take * sizeof *to);
    }
}

void tokens_copy_chunk(const struct core *c, const struct node *n, uint32_t *to,
                       struct extra_key *keys)
{
    uint32_t left = pool_at(c, n->pool)->align;

    for (uint32_t at = n->tokens, take; left > 0;
         at = *block_next(c, at), left -= take, to += take) {
        take = min_u32(TOKEN_BLOCK, left);
        memcpy(to, block_at(c, at)->v, take * sizeof *to);
    }
    for (uint32_t at = n->keys; keys && at != NONE; at = key_at(c, at)->next) {
        const struct key_record *k = key_at(c, at);

        *keys++ = (struct extra_key){.position = k->position, .hi = k->hi, .lo = k->lo};
    }
}

enum tern_err keys_in_order(const struct req_tokens *req, struct reason *ret)
{
    for (uint32_t i = 0; i < req->nkeys; i++) {
        uint32_t p = req->keys[i].position, before = i > 0 ? req->keys[i - 1].position : 0;
        bool ascends = i == 0 || p > before;

        if (p >= req->base && p - req->base < req->n && ascends)
            continue;
        *ret = (struct reason){ascends ? KEY_OUTSIDE : KEYS_OUT_OF_ORDER, {p, before}};
        return TERN_INVALID;
    }
    return TERN_OK;
}
