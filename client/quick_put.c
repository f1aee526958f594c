/* Writing Match, Step, Fetch and Recover. Sizes first, so that nested lengths are known and the
 * body is written once, straight into the socket's buffer; tokens are copied from the caller's
 * array and nowhere else. */
#include "quick.h"

#include <string.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "arrays travel as little-endian bytes");
_Static_assert(sizeof(struct tern_extra_key) == 24, "as the wire's extra key");

/* Field numbers of tern.proto with their wire types. */
enum tag {
    VARINT = 0,
    FIXED64 = 1,
    BYTES = 2,
};
#define TAG(field, type) ((uint8_t)((field) << 3 | (type)))

static uint32_t varint_size(uint64_t v)
{
    return (uint32_t)((63 - __builtin_clzll(v | 1)) * 9 + 73) / 64;
}

static uint8_t *put_varint(uint8_t *p, uint64_t v)
{
    while (v >= 0x80) {
        *p++ = (uint8_t)(v | 0x80);
        v >>= 7;
    }
    *p++ = (uint8_t)v;
    return p;
}

/* A field whose absence means 0. */
static uint32_t uint_size(uint64_t v)
{
    return v ? 1 + varint_size(v) : 0;
}

static uint8_t *put_uint(uint8_t *p, uint32_t field, uint64_t v)
{
    if (!v)
        return p;
    *p++ = TAG(field, VARINT);
    return put_varint(p, v);
}

static uint64_t bytes_size(uint64_t n)
{
    return 1 + varint_size(n) + n;
}

static uint8_t *put_bytes(uint8_t *p, uint32_t field, const void *bytes, uint64_t n)
{
    *p++ = TAG(field, BYTES);
    p = put_varint(p, n);
    memcpy(p, bytes, n);
    return p + n;
}

/* ---- Tokens {base 1, tokens 2, keys 3} ---- */

static uint64_t tokens_size(const struct tern_tokens *t)
{
    uint64_t n = uint_size(t->base);

    if (t->n)
        n += bytes_size((uint64_t)t->n * sizeof(uint32_t));
    if (t->nkeys)
        n += bytes_size((uint64_t)t->nkeys * sizeof(struct tern_extra_key));
    return n;
}

static uint8_t *put_tokens(uint8_t *p, uint32_t field, const struct tern_tokens *t, uint64_t size)
{
    *p++ = TAG(field, BYTES);
    p = put_varint(p, size);
    p = put_uint(p, 1, t->base);
    if (t->n)
        p = put_bytes(p, 2, t->v, (uint64_t)t->n * sizeof(uint32_t));
    if (t->nkeys)
        p = put_bytes(p, 3, t->keys, (uint64_t)t->nkeys * sizeof(struct tern_extra_key));
    return p;
}

/* ---- Match {tokens 1, step 2} ---- */

uint64_t quick_match_size(const struct tern_tokens *tokens, uint64_t step)
{
    return bytes_size(tokens_size(tokens)) + uint_size(step);
}

uint8_t *quick_match_put(uint8_t *p, const struct tern_tokens *tokens, uint64_t step)
{
    p = put_tokens(p, 1, tokens, tokens_size(tokens));
    return put_uint(p, 2, step);
}

/* ---- Step {ops 1: {kind 1, barrier 2, session 3, step 4, length 5, written 6, tokens 7}} ---- */

static bool has_tokens(const struct tern_op *op)
{
    return op->tokens.n || op->tokens.nkeys || op->tokens.base;
}

static uint64_t op_size(const struct tern_op *op)
{
    uint64_t n = uint_size((uint32_t)op->kind) + (op->barrier ? 2u : 0u) + 9 + uint_size(op->step) +
                 uint_size(op->length) + uint_size(op->written);

    if (has_tokens(op))
        n += bytes_size(tokens_size(&op->tokens));
    return n;
}

static uint8_t *put_op(uint8_t *p, const struct tern_op *op)
{
    p = put_uint(p, 1, (uint32_t)op->kind);
    p = put_uint(p, 2, op->barrier);
    *p++ = TAG(3, FIXED64);
    memcpy(p, &op->session, sizeof(op->session));
    p += sizeof(op->session);
    p = put_uint(p, 4, op->step);
    p = put_uint(p, 5, op->length);
    p = put_uint(p, 6, op->written);
    if (has_tokens(op))
        p = put_tokens(p, 7, &op->tokens, tokens_size(&op->tokens));
    return p;
}

uint64_t quick_step_size(const struct tern_op *ops, uint32_t n)
{
    uint64_t size = 0;

    for (uint32_t i = 0; i < n; i++)
        size += bytes_size(op_size(&ops[i]));
    return size;
}

uint8_t *quick_step_put(uint8_t *p, const struct tern_op *ops, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        *p++ = TAG(1, BYTES);
        p = put_varint(p, op_size(&ops[i]));
        p = put_op(p, &ops[i]);
    }
    return p;
}

/* ---- Fetch {peer 1, depth 2}. A peer of no bytes, which is not the same as none, is the host
 * tier.
 * ---- */

uint64_t quick_fetch_size(const char *peer, uint32_t depth)
{
    return bytes_size(peer ? strlen(peer) : 0) + uint_size(depth);
}

uint8_t *quick_fetch_put(uint8_t *p, const char *peer, uint32_t depth)
{
    const char *name = peer ? peer : "";

    p = put_bytes(p, 1, name, strlen(name));
    return put_uint(p, 2, depth);
}

/* ---- Recover {reserved_one 2}: a body is never empty ---- */

uint64_t quick_recover_size(void)
{
    return uint_size(1);
}

uint8_t *quick_recover_put(uint8_t *p)
{
    return put_uint(p, 2, 1);
}
