/* Reading Match {tokens 1 {kept 1, tokens 2, keys 3}, step 2, trace_id 3}. See in_place.h. The
 * fuzzer holds it against protobuf-c. */
#include "proto/in_place.h"

#include "base/err.h"
#include "proto/reader.h"

static void take_array(struct reader *r, const struct field *f, uint32_t element_bytes,
                       ProtobufCBinaryData *ret)
{
    if (f->type != FIELD_BYTES || f->v % element_bytes != 0)
        r->failed = true;
    else
        *ret = (ProtobufCBinaryData){f->v, (uint8_t *)(uintptr_t)f->bytes};
}

static void take_tokens(struct reader *outer, const struct field *list, Tern__Wire__Tokens *ret)
{
    struct reader r = reader_enter(outer, list);
    struct field f;

    while (reader_next(&r, &f)) {
        switch (f.number) {
        case 1: reader_u32(&r, &f, &ret->kept); break;
        case 2: take_array(&r, &f, WIRE_TOKEN_BYTES, &ret->tokens); break;
        case 3: take_array(&r, &f, WIRE_KEY_BYTES, &ret->keys); break;
        default: break; /* a newer client may say more */
        }
    }
    if (ret->keys.len / WIRE_KEY_BYTES > WIRE_KEYS_MAX)
        r.failed = true;
    reader_leave(outer, &r);
}

static enum tern_err decode_match(struct budget *budget, const uint8_t *body, size_t n,
                                  const ProtobufCMessage **ret)
{
    struct reader r = reader_of(body, n);
    Tern__Wire__Tokens *tokens;
    Tern__Wire__Match *m;
    struct field f;

    budget_start(budget, n);
    m = budget_take(budget, sizeof(*m));
    tokens = budget_take(budget, sizeof(*tokens));
    if (!m || !tokens)
        return TERN_MALFORMED;
    tern__wire__match__init(m);
    tern__wire__tokens__init(tokens);
    while (reader_next(&r, &f)) {
        switch (f.number) {
        case 1:
            m->tokens = tokens;
            take_tokens(&r, &f, tokens);
            break;
        case 2: reader_u64(&r, &f, &m->step); break;
        case 3: reader_u64(&r, &f, &m->trace_id); break;
        default: break;
        }
    }
    if (!reader_ok(&r))
        return TERN_MALFORMED;
    *ret = &m->base;
    return TERN_OK;
}

enum tern_err wire_decode_in_place(struct budget *budget, uint16_t type, const uint8_t *body,
                                   size_t n, const ProtobufCMessage **ret)
{
    return type == FRAME_MATCH ? decode_match(budget, body, n, ret)
                               : wire_decode(budget, type, body, n, ret);
}
