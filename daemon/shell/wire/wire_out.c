/* Answers to frames. See wire_out.h. What must stay true: the size of each submessage is computed
 * by the same fields in the same order as it is written; a buffer that is too small ends in 0,
 * never in half a frame. */
#include "shell/wire/wire_out.h"

#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/err.h"

#define TAG_VARINT(field)  ((uint8_t)((field) << 3 | 0))
#define TAG_FIXED64(field) ((uint8_t)((field) << 3 | 1))
#define TAG_BYTES(field)   ((uint8_t)((field) << 3 | 2))
#define VARINT_MAX         10u
#define PAD_BYTES          3u /* field 100, a varint of 0: no message has it, and a body is never empty */

struct writer {
    uint8_t *p, *end;
    bool overflow;
};

/* ---- sizes ---- */

static size_t varint_size(uint64_t v)
{
    return (size_t)(63 - __builtin_clzll(v | 1)) / 7 + 1;
}

/* A field that is absent when 0. */
static size_t number_size(uint64_t v)
{
    return v ? 1 + varint_size(v) : 0;
}

static size_t message_size(size_t n)
{
    return 1 + varint_size(n) + n;
}

static size_t shortage_size(const struct shortage *s)
{
    return number_size(s->group) + number_size(s->needed) + number_size(s->free) +
           number_size(s->reclaimable) + number_size(s->retiring) + number_size(s->until_step);
}

static size_t status_size(enum tern_err err, size_t text, const struct shortage *s)
{
    return number_size(err) + (text ? message_size(text) : 0) +
           (err == TERN_POOL_EXHAUSTED ? message_size(shortage_size(s)) : 0);
}

static size_t run_size(const struct table_run *r)
{
    return number_size(r->group) + number_size(r->first) +
           message_size((size_t)r->n * sizeof(struct page_ref)) + number_size(r->from.index) +
           number_size(r->from.gen);
}

static size_t lengths_size(const struct lengths *l)
{
    return number_size(l->committed) + number_size(l->written) + number_size(l->allocated);
}

static size_t result_size(const struct op_result *r, const struct table_run *runs)
{
    size_t n = lengths_size(&r->lengths) + number_size(r->tokens);

    if (r->err != TERN_OK)
        n += message_size(status_size(r->err, 0, &r->shortage));
    for (uint32_t i = 0; i < r->nruns; i++)
        n += message_size(run_size(&runs[r->first_run + i]));
    return n;
}

/* ---- writing ---- */

static bool room(struct writer *w, size_t n)
{
    if ((size_t)(w->end - w->p) < n)
        w->overflow = true;
    return !w->overflow;
}

static void put_varint(struct writer *w, uint64_t v)
{
    if (!room(w, VARINT_MAX))
        return;
    while (v >= 0x80) {
        *w->p++ = (uint8_t)(v | 0x80);
        v >>= 7;
    }
    *w->p++ = (uint8_t)v;
}

static void put_number(struct writer *w, uint32_t field, uint64_t v)
{
    if (!v || !room(w, 1 + VARINT_MAX))
        return;
    *w->p++ = TAG_VARINT(field);
    put_varint(w, v);
}

static void put_fixed64(struct writer *w, uint32_t field, uint64_t v)
{
    if (!room(w, 1 + sizeof(v)))
        return;
    *w->p++ = TAG_FIXED64(field);
    memcpy(w->p, &v, sizeof(v));
    w->p += sizeof(v);
}

/* The head of a submessage or of bytes, n bytes long. */
static void put_length(struct writer *w, uint32_t field, size_t n)
{
    if (!room(w, 1 + VARINT_MAX + n))
        return;
    *w->p++ = TAG_BYTES(field);
    put_varint(w, n);
}

static void put_bytes(struct writer *w, uint32_t field, const void *bytes, size_t n)
{
    put_length(w, field, n);
    if (w->overflow || n == 0)
        return;
    memcpy(w->p, bytes, n);
    w->p += n;
}

static void put_shortage(struct writer *w, uint32_t field, const struct shortage *s)
{
    put_length(w, field, shortage_size(s));
    put_number(w, 1, s->group);
    put_number(w, 2, s->needed);
    put_number(w, 3, s->free);
    put_number(w, 4, s->reclaimable);
    put_number(w, 5, s->retiring);
    put_number(w, 6, s->until_step);
}

static void put_status(struct writer *w, enum tern_err err, const char *text,
                       const struct shortage *s)
{
    size_t n = text ? strlen(text) : 0;

    if (err == TERN_OK)
        return;
    put_length(w, 1, status_size(err, n, s));
    put_number(w, 1, err);
    if (n)
        put_bytes(w, 2, text, n);
    if (err == TERN_POOL_EXHAUSTED)
        put_shortage(w, 3, s);
}

static void put_run(struct writer *w, uint32_t field, const struct table_run *r)
{
    put_length(w, field, run_size(r));
    put_number(w, 1, r->group);
    put_number(w, 2, r->first);
    put_bytes(w, 3, r->refs, (size_t)r->n * sizeof(struct page_ref));
    put_number(w, 4, r->from.index);
    put_number(w, 5, r->from.gen);
}

static void put_runs(struct writer *w, uint32_t field, const struct reply *r)
{
    for (uint32_t i = 0; i < r->nruns; i++)
        put_run(w, field, &r->runs[i]);
}

static void put_lengths(struct writer *w, uint32_t field, const struct lengths *l)
{
    put_length(w, field, lengths_size(l));
    put_number(w, 1, l->committed);
    put_number(w, 2, l->written);
    put_number(w, 3, l->allocated);
}

static void put_result(struct writer *w, uint32_t field, const struct op_result *r,
                       const struct table_run *runs)
{
    put_length(w, field, result_size(r, runs));
    put_status(w, r->err, NULL, &r->shortage);
    put_number(w, 2, r->lengths.committed);
    put_number(w, 3, r->lengths.written);
    put_number(w, 4, r->lengths.allocated);
    put_number(w, 5, r->tokens);
    for (uint32_t i = 0; i < r->nruns; i++)
        put_run(w, 6, &runs[r->first_run + i]);
}

/* ---- whole answers ---- */

static uint16_t reply_type(enum op op)
{
    switch (op) {
    case OP_ENGINE_JOIN: return FRAME_ENGINE_JOIN_REPLY;
    case OP_ENGINE_LEAVE: return FRAME_ENGINE_LEAVE_REPLY;
    case OP_POOL_OPEN: return FRAME_POOL_OPEN_REPLY;
    case OP_POOL_MAP: return FRAME_POOL_MAP_REPLY;
    case OP_POOL_CLOSE: return FRAME_POOL_CLOSE_REPLY;
    case OP_SESSION_OPEN: return FRAME_SESSION_OPEN_REPLY;
    case OP_PEEK: return FRAME_PEEK_REPLY;
    case OP_MATCH: return FRAME_MATCH_REPLY;
    case OP_STEP: return FRAME_STEP_REPLY;
    case OP_FETCH: return FRAME_FETCH_REPLY;
    case OP_RETRACT: return FRAME_RETRACT_REPLY;
    case OP_RECOVER: return FRAME_RECOVER_REPLY;
    case OP_NAMESPACE_RESET: return FRAME_NAMESPACE_RESET_REPLY;
    default: check(op == OP_FETCH_CANCEL); return FRAME_FETCH_CANCEL_REPLY;
    }
}

/* What follows the status. Lengths and runs come with errors too: they say what stayed. */
static void put_answer(struct writer *w, const struct reply *r, uint64_t region_bytes)
{
    switch (r->op) {
    case OP_ENGINE_JOIN: put_fixed64(w, 2, engine_id_pack(r->join.engine)); break;
    case OP_POOL_OPEN:
        put_fixed64(w, 2, pool_id_pack(r->pool_open.pool));
        put_number(w, 3, r->pool_open.align_tokens);
        put_number(w, 4, r->pool_open.bytes);
        break;
    case OP_POOL_MAP:
        put_number(w, 2, r->pool_map.region);
        put_number(w, 3, r->pool_map.offset);
        put_number(w, 4, r->pool_map.bytes);
        put_number(w, 5, region_bytes);
        break;
    case OP_SESSION_OPEN: put_fixed64(w, 2, session_id_pack(r->session_open.session)); break;
    case OP_PEEK:
        put_number(w, 2, r->peek.depth);
        put_number(w, 3, r->peek.history_depth);
        put_number(w, 4, r->peek.host_depth);
        break;
    case OP_MATCH:
        put_lengths(w, 2, &r->match.lengths);
        put_number(w, 3, r->match.tokens);
        put_number(w, 4, r->match.matched);
        put_runs(w, 5, r);
        put_number(w, 6, r->match.host_depth);
        break;
    case OP_STEP:
        for (uint32_t i = 0; i < r->step.n; i++)
            put_result(w, 2, &r->step.results[i], r->runs);
        break;
    case OP_FETCH:
        put_lengths(w, 2, &r->fetch.lengths);
        put_runs(w, 3, r);
        put_number(w, 4, r->fetch.bytes_kib);
        break;
    case OP_RETRACT:
        put_lengths(w, 2, &r->retract.lengths);
        put_number(w, 3, r->retract.free_now);
        put_number(w, 4, r->retract.free_at_step);
        break;
    case OP_RECOVER:
        put_lengths(w, 2, &r->recover.lengths);
        put_number(w, 3, r->recover.tokens);
        put_runs(w, 4, r);
        put_number(w, 5, r->recover.bytes_kib);
        break;
    case OP_NAMESPACE_RESET: put_number(w, 2, r->namespace_reset.nodes); break;
    default: break; /* only a status */
    }
}

size_t wire_out_reply(const struct reply *r, uint64_t region_bytes, uint32_t body_max, uint8_t *out)
{
    static const uint8_t pad[PAD_BYTES] = {0xa0, 0x06, 0x00};
    uint8_t *body = out + FRAME_HEADER_BYTES;
    struct writer w = {.p = body, .end = body + body_max};
    struct frame_header h = {.version = FRAME_VERSION, .type = reply_type(r->op)};

    put_status(&w, r->err, r->text, &r->shortage);
    put_answer(&w, r, region_bytes);
    if (w.p == body && room(&w, PAD_BYTES)) {
        memcpy(w.p, pad, PAD_BYTES);
        w.p += PAD_BYTES;
    }
    if (w.overflow)
        return 0;
    h.length = (uint32_t)(w.p - body);
    h.request_id = r->request_id;
    frame_encode(&h, out);
    return FRAME_HEADER_BYTES + h.length;
}

size_t wire_out_status(const struct frame_header *request, enum tern_err err, const char *text,
                       uint32_t body_max, uint8_t *out)
{
    Tern__Wire__Status status = TERN__WIRE__STATUS__INIT;
    Tern__Wire__Empty m = TERN__WIRE__EMPTY__INIT;
    struct frame_header h = {
        .version = FRAME_VERSION,
        .type = (uint16_t)(request->type + 1),
        .request_id = request->request_id,
    };
    char cut[WIRE_TEXT_MAX + 1]; /* a longer one would be no status to who reads it */
    size_t n;

    snprintf(cut, sizeof(cut), "%s", text);
    status.has_err = true;
    status.err = err;
    status.text = *cut ? cut : NULL;
    if (err != TERN_OK)
        m.status = &status;
    return wire_encode(&h, &m.base, body_max, out, FRAME_HEADER_BYTES + (size_t)body_max, &n) ==
                   TERN_OK
               ? n
               : 0;
}

/* ---- peers ---- */

static void fill_peer_runs(const struct peer_msg *msg, Tern__Wire__Run *runs,
                           Tern__Wire__Run **list)
{
    for (uint32_t i = 0; i < msg->nruns; i++) {
        Tern__Wire__Run init = TERN__WIRE__RUN__INIT;

        runs[i] = init;
        runs[i].has_group = runs[i].has_first = runs[i].has_refs = true;
        runs[i].group = msg->runs[i].group;
        runs[i].first = msg->runs[i].first;
        runs[i].refs =
            wire_bytes(msg->runs[i].refs, (size_t)msg->runs[i].n * sizeof(struct page_ref));
        list[i] = &runs[i];
    }
}

size_t wire_out_peer_msg(const struct peer_msg *msg, const char *tenant, uint64_t sequence,
                         uint32_t body_max, uint8_t *out)
{
    Tern__Wire__PeerMsg m = TERN__WIRE__PEER_MSG__INIT;
    Tern__Wire__Run runs[GROUPS_MAX], *list[GROUPS_MAX];
    struct frame_header h = {.version = FRAME_VERSION, .type = FRAME_PEER_MSG};
    size_t n;

    check(msg->nruns <= GROUPS_MAX);
    fill_peer_runs(msg, runs, list);
    m.has_kind = m.has_pull = m.has_serve = m.has_sequence = true;
    m.kind = msg->kind;
    m.pull = pull_id_pack(msg->pull);
    m.serve = serve_id_pack(msg->serve);
    m.sequence = sequence;
    m.has_trace_id = msg->trace_id != 0;
    m.trace_id = msg->trace_id;
    m.has_err = msg->err != TERN_OK;
    m.err = msg->err;
    m.has_retry_ms = msg->retry_ms != 0;
    m.retry_ms = msg->retry_ms;
    m.has_from = m.has_to = true;
    m.has_history = msg->history != 0;
    m.history = msg->history;
    m.from = msg->from;
    m.to = msg->to;
    if (msg->kind == PEER_PULL_OPEN) {
        m.tenant = (char *)(uintptr_t)tenant;
        m.has_ns_hi = m.has_ns_lo = m.has_layout_hash = m.has_tokens = m.has_keys = true;
        m.ns_hi = msg->ns.hi;
        m.ns_lo = msg->ns.lo;
        m.layout_hash = msg->layout_hash;
        m.tokens = wire_bytes(msg->tokens, (size_t)msg->to * sizeof(uint32_t));
        m.keys = wire_bytes(msg->keys, (size_t)msg->nkeys * sizeof(struct extra_key));
    }
    m.n_runs = msg->nruns;
    m.runs = list;
    return wire_encode(&h, &m.base, body_max, out, FRAME_HEADER_BYTES + (size_t)body_max, &n) ==
                   TERN_OK
               ? n
               : 0;
}
