/* Writes Match, Step, Fetch and Recover with the bounded writer. Sizes are computed first, so that
 * the caller reserves room and the body is written once, directly into the socket's buffer; tokens
 * are copied once, from the caller's array. */
#include "quick.h"

#include <string.h>

#include "base/check.h"

_Static_assert(sizeof(struct tern_extra_key) == 24, "as the wire's extra key");

/* ---- Tokens {kept 1, tokens 2, keys 3} ---- */

static size_t tokens_size(const struct tern_tokens *t)
{
    size_t n = number_size(t->base);

    if (t->n)
        n += bytes_size((size_t)t->n * sizeof(uint32_t));
    if (t->nkeys)
        n += bytes_size((size_t)t->nkeys * sizeof(struct tern_extra_key));
    return n;
}

static void put_tokens(struct writer *w, uint32_t field, const struct tern_tokens *t)
{
    put_message(w, field, tokens_size(t));
    put_number(w, 1, t->base);
    if (t->n)
        put_bytes(w, 2, t->v, (size_t)t->n * sizeof(uint32_t));
    if (t->nkeys)
        put_bytes(w, 3, t->keys, (size_t)t->nkeys * sizeof(struct tern_extra_key));
}

/* ---- StepOp {kind 1, barrier 2, session 3, step 4, length 5, written 6, tokens 7, pool 8,
 * runs 9: {group 1, first 2, refs 3}} ---- */

_Static_assert(sizeof(struct tern_page) == WIRE_REF_BYTES, "as the wire's page");

static size_t run_size(const struct tern_run *r)
{
    return number_size(r->group) + number_size(r->first) +
           bytes_size((size_t)r->n * sizeof(struct tern_page));
}

static void put_run(struct writer *w, uint32_t field, const struct tern_run *r)
{
    put_message(w, field, run_size(r));
    put_number(w, 1, r->group);
    put_number(w, 2, r->first);
    put_bytes(w, 3, r->pages, (size_t)r->n * sizeof(struct tern_page));
}

static bool has_tokens(const struct client_op *op)
{
    return op->tokens.n || op->tokens.nkeys || op->tokens.base;
}

static size_t op_count(const struct client_op *op)
{
    size_t n = number_size((uint32_t)op->kind) + number_size(op->barrier) + fixed64_size() +
               number_size(wire_step(op->step)) + number_size(op->length) +
               number_size(op->written);

    if (has_tokens(op))
        n += bytes_size(tokens_size(&op->tokens));
    if (op->pool)
        n += fixed64_size();
    for (uint32_t i = 0; i < op->nruns; i++)
        n += bytes_size(run_size(&op->runs[i]));
    return n;
}

static size_t op_size(const struct client_op *op)
{
    return op->bytes ? op->bytes : op_count(op);
}

size_t quick_op_measure(struct client_op *op)
{
    op->bytes = (uint32_t)op_count(op);
    return bytes_size(op->bytes);
}

static void put_op(struct writer *w, uint32_t field, const struct client_op *op)
{
    put_message(w, field, op_size(op));
    put_number(w, 1, (uint32_t)op->kind);
    put_number(w, 2, op->barrier);
    put_fixed64(w, 3, op->session);
    put_number(w, 4, wire_step(op->step));
    put_number(w, 5, op->length);
    put_number(w, 6, op->written);
    if (has_tokens(op))
        put_tokens(w, 7, &op->tokens);
    if (op->pool)
        put_fixed64(w, 8, op->pool);
    for (uint32_t i = 0; i < op->nruns; i++)
        put_run(w, 9, &op->runs[i]);
}

/* ---- whole bodies ---- */

static size_t ops_size(const struct client_op *ops, uint32_t n)
{
    size_t size = 0;

    for (uint32_t i = 0; i < n; i++)
        size += bytes_size(op_size(&ops[i]));
    return size;
}

_Static_assert(__builtin_strcmp(TERN_PEER_DISK, WIRE_DISK) == 0, "the disk's name on the wire");
_Static_assert(__builtin_strcmp(TERN_PEER_ANY, WIRE_ANY_PEER) == 0, "likewise of any peer");

/* An empty name means the host tier; an absent field would name nothing. */
static const char *name_of(const struct tern_fetch *f)
{
    return f->peer ? f->peer : "";
}

static size_t fetch_size(const struct tern_fetch *f, uint32_t wait_ms)
{
    return bytes_size(strlen(name_of(f))) + number_size(f->depth) + number_size(f->at_least) +
           number_size(wait_ms) + number_size(wire_step(f->step)) +
           (f->ticket ? bytes_size(strlen(f->ticket)) : 0) + number_size(f->follow) +
           number_size(f->prefetch);
}

/* {peer 1, depth 2, at_least 4, wait_ms 5, step 6, ticket 7, follow 8, prefetch 9} */
static void put_fetch(struct writer *w, const struct tern_fetch *f, uint32_t wait_ms)
{
    put_bytes(w, 1, name_of(f), strlen(name_of(f)));
    put_number(w, 2, f->depth);
    put_number(w, 4, f->at_least);
    put_number(w, 5, wait_ms);
    put_number(w, 6, wire_step(f->step));
    if (f->ticket)
        put_bytes(w, 7, f->ticket, strlen(f->ticket));
    put_number(w, 8, f->follow);
    put_number(w, 9, f->prefetch);
}

size_t quick_size(const struct quick_request *q)
{
    switch (q->type) {
    case FRAME_MATCH:
        return bytes_size(tokens_size(q->match.tokens)) + number_size(wire_step(q->match.step)) +
               number_size(q->match.earlier) + number_size(q->match.more) +
               number_size(q->match.pieces);
    case FRAME_STEP: return ops_size(q->step.ops, q->step.n) + number_size(q->step.pieces);
    case FRAME_FETCH: return fetch_size(q->fetch.of, q->fetch.wait_ms);
    case FRAME_FETCH_WAIT:
        return number_size(q->fetch_wait.above) + number_size(q->fetch_wait.pages) + number_size(1);
    case FRAME_WAIT_PUBLISHED: return number_size(q->wait_step);
    default: check(q->type == FRAME_RECOVER); return number_size(1);
    }
}

void quick_put(struct writer *w, const struct quick_request *q)
{
    switch (q->type) {
    case FRAME_MATCH: /* {tokens 1, step 2, earlier 4, more 5, pieces 6} */
        put_tokens(w, 1, q->match.tokens);
        put_number(w, 2, wire_step(q->match.step));
        put_number(w, 4, q->match.earlier);
        put_number(w, 5, q->match.more);
        put_number(w, 6, q->match.pieces);
        return;
    case FRAME_STEP: /* {ops 1, pieces 3} */
        for (uint32_t i = 0; i < q->step.n; i++)
            put_op(w, 1, &q->step.ops[i]);
        put_number(w, 3, q->step.pieces);
        return;
    case FRAME_FETCH: put_fetch(w, q->fetch.of, q->fetch.wait_ms); return;
    case FRAME_FETCH_WAIT: /* {above 1, pages 2, reserved_one 4} */
        put_number(w, 1, q->fetch_wait.above);
        put_number(w, 2, q->fetch_wait.pages);
        put_number(w, 4, 1);
        return;
    case FRAME_WAIT_PUBLISHED: /* {step 1} */ put_number(w, 1, q->wait_step); return;
    default: /* Recover {reserved_one 2}: a body is never empty */ put_number(w, 2, 1);
    }
}
