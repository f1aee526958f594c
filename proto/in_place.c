/* Reads by hand the request that an engine sends each iteration:
 *   Step {ops 1: {kind 1, barrier 2, session 3, step 4, length 5, written 6, tokens 7, pool 8,
 *         runs 9: {group 1, first 2, refs 3}}, trace_id 2, pieces 3}
 *   Tokens {kept 1, tokens 2, keys 3}
 * See in_place.h. The fuzzer compares it with protobuf-c. */
#include "proto/in_place.h"

#include "base/err.h"
#include "proto/reader.h"

static void take_array(struct reader *r, const struct field *f, uint32_t element_bytes,
                       protobuf_c_boolean *ret_has, ProtobufCBinaryData *ret)
{
    if (f->type != FIELD_BYTES || f->v % element_bytes != 0) {
        r->failed = true;
        return;
    }
    *ret_has = true;
    *ret = (ProtobufCBinaryData){f->v, (uint8_t *)(uintptr_t)f->bytes};
}

static void take_bool(struct reader *r, const struct field *f, protobuf_c_boolean *ret_has,
                      protobuf_c_boolean *ret)
{
    if (f->type != FIELD_VARINT)
        r->failed = true;
    *ret_has = true;
    *ret = f->v != 0;
}

static void take_u32(struct reader *r, const struct field *f, protobuf_c_boolean *ret_has,
                     uint32_t *ret)
{
    *ret_has = true;
    reader_u32(r, f, ret);
}

static void take_u64(struct reader *r, const struct field *f, protobuf_c_boolean *ret_has,
                     uint64_t *ret)
{
    *ret_has = true;
    reader_u64(r, f, ret);
}

/* A second list in one message is refused: protobuf would join the two, and protobuf-c does so
 * wrongly if the second has an empty field. Not inlined, because a Step of 256 extends takes 6 %
 * more instructions to read with this inlined. */
__attribute__((noinline)) static void take_tokens(struct reader *outer, const struct field *list,
                                                  Tern__Wire__Tokens *to, Tern__Wire__Tokens **ret)
{
    struct reader r = reader_enter(outer, list);
    struct field f;

    if (*ret)
        r.failed = true;
    *ret = to;
    while (reader_next(&r, &f)) {
        switch (f.number) {
        case 1: take_u32(&r, &f, &to->has_kept, &to->kept); break;
        case 2: take_array(&r, &f, WIRE_TOKEN_BYTES, &to->has_tokens, &to->tokens); break;
        case 3: take_array(&r, &f, WIRE_KEY_BYTES, &to->has_keys, &to->keys); break;
        default: break; /* a newer client may send more fields */
        }
    }
    if (to->keys.len / WIRE_KEY_BYTES > WIRE_KEYS_MAX)
        r.failed = true;
    reader_leave(outer, &r);
}

static void take_session(struct reader *r, const struct field *f, Tern__Wire__StepOp *ret)
{
    if (f->type != FIELD_FIXED64)
        r->failed = true;
    ret->has_session = true;
    ret->session = f->v;
}

static void take_pool(struct reader *r, const struct field *f, Tern__Wire__StepOp *ret)
{
    if (f->type != FIELD_FIXED64)
        r->failed = true;
    ret->has_pool = true;
    ret->pool = f->v;
}

/* Memory for the runs of a Step's operations: `n` of `max` are used. */
struct run_room {
    Tern__Wire__Run **list, *runs;
    size_t n, max;
};

static void take_run(struct reader *outer, const struct field *run, Tern__Wire__StepOp *ret,
                     struct run_room *room)
{
    struct reader r = reader_enter(outer, run);
    struct field f;
    Tern__Wire__Run *to;

    if (room->n == room->max) {
        outer->failed = true;
        return;
    }
    to = &room->runs[room->n];
    tern__wire__run__init(to);
    room->list[room->n++] = to;
    ret->n_runs++;
    while (reader_next(&r, &f)) {
        switch (f.number) {
        case 1: take_u32(&r, &f, &to->has_group, &to->group); break;
        case 2: take_u32(&r, &f, &to->has_first, &to->first); break;
        case 3: take_array(&r, &f, WIRE_REF_BYTES, &to->has_refs, &to->refs); break;
        case 4: take_u32(&r, &f, &to->has_from_index, &to->from_index); break;
        case 5: take_u32(&r, &f, &to->has_from_generation, &to->from_generation); break;
        default: break;
        }
    }
    reader_leave(outer, &r);
}

static void take_op(struct reader *outer, const struct field *op, Tern__Wire__StepOp *ret,
                    Tern__Wire__Tokens *tokens, struct run_room *runs)
{
    struct reader r = reader_enter(outer, op);
    struct field f;

    ret->runs = runs->list + runs->n;
    while (reader_next(&r, &f)) {
        switch (f.number) {
        case 1: take_u32(&r, &f, &ret->has_kind, &ret->kind); break;
        case 2: take_bool(&r, &f, &ret->has_barrier, &ret->barrier); break;
        case 3: take_session(&r, &f, ret); break;
        case 4: take_u64(&r, &f, &ret->has_step, &ret->step); break;
        case 5: take_u32(&r, &f, &ret->has_length, &ret->length); break;
        case 6: take_u32(&r, &f, &ret->has_written, &ret->written); break;
        case 7: take_tokens(&r, &f, tokens, &ret->tokens); break;
        case 8: take_pool(&r, &f, ret); break;
        case 9: take_run(&r, &f, ret, runs); break;
        default: break;
        }
    }
    reader_leave(outer, &r);
}

static size_t count_runs(struct reader *outer, const struct field *op)
{
    struct reader r = reader_enter(outer, op);
    struct field f;
    size_t n = 0;

    while (reader_next(&r, &f))
        n += f.number == 9;
    reader_leave(outer, &r);
    return n;
}

static size_t count_ops(const uint8_t *body, size_t n, size_t *ret_runs)
{
    struct reader r = reader_of(body, n);
    struct field f;
    size_t ops = 0;

    *ret_runs = 0;
    while (reader_next(&r, &f)) {
        ops += f.number == 1;
        *ret_runs += f.number == 1 ? count_runs(&r, &f) : 0;
    }
    return ops;
}

/* An operation with its optional list, so that both are adjacent. */
struct op_room {
    Tern__Wire__StepOp op;
    Tern__Wire__Tokens tokens;
};

static enum tern_err decode_step(struct budget *budget, const uint8_t *body, size_t n,
                                 const ProtobufCMessage **ret)
{
    struct run_room runs = {.n = 0};
    size_t ops = count_ops(body, n, &runs.max), taken = 0;
    struct reader r = reader_of(body, n);
    struct op_room *room;
    Tern__Wire__Step *m;
    struct field f;

    if (ops > WIRE_OPS_MAX || runs.max > WIRE_RUNS_MAX)
        return TERN_MALFORMED;
    m = budget_take(budget, sizeof(*m));
    room = budget_take(budget, ops * sizeof(*room));
    runs.list = budget_take(budget, runs.max * sizeof(*runs.list));
    runs.runs = budget_take(budget, runs.max * sizeof(*runs.runs));
    if (!m || !room || !runs.list || !runs.runs)
        return TERN_MALFORMED;
    tern__wire__step__init(m);
    m->ops = budget_take(budget, ops * sizeof(*m->ops));
    if (!m->ops)
        return TERN_MALFORMED;
    while (reader_next(&r, &f)) {
        if (f.number == 1 && taken < ops) {
            tern__wire__step_op__init(&room[taken].op);
            tern__wire__tokens__init(&room[taken].tokens);
            take_op(&r, &f, &room[taken].op, &room[taken].tokens, &runs);
            m->ops[taken] = &room[taken].op;
            taken++;
        } else if (f.number == 2) {
            take_u64(&r, &f, &m->has_trace_id, &m->trace_id);
        } else if (f.number == 3) {
            take_bool(&r, &f, &m->has_pieces, &m->pieces);
        }
    }
    if (!reader_ok(&r))
        return TERN_MALFORMED;
    m->n_ops = taken;
    *ret = &m->base;
    return TERN_OK;
}

enum tern_err wire_decode_in_place(struct budget *budget, uint16_t type, const uint8_t *body,
                                   size_t n, const ProtobufCMessage **ret)
{
    if (type != FRAME_STEP)
        return wire_decode(budget, type, body, n, ret);
    TRY(wire_begin(budget, type, body, n));
    return decode_step(budget, body, n, ret);
}
