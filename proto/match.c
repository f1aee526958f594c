/* Reading Match {tokens 1 {kept 1, tokens 2, keys 3}, step 2, trace_id 3}. See match.h. The fuzzer
 * holds it against protobuf-c. */
#include "proto/match.h"

#include "base/err.h"
#include "proto/codec.h"
#include "proto/fields.h"

static bool tokens_field(const struct field *f, struct wire_match *ret, ProtobufCBinaryData *tokens,
                         ProtobufCBinaryData *keys)
{
    if (f->number == 1)
        return field_u32(f, &ret->kept);
    if (f->number != 2 && f->number != 3)
        return true; /* a newer client may say more */
    *(f->number == 2 ? tokens : keys) = (ProtobufCBinaryData){f->v, (uint8_t *)(uintptr_t)f->bytes};
    return f->type == FIELD_BYTES;
}

enum tern_err wire_match(struct budget *budget, const uint8_t *body, size_t n,
                         struct wire_match *ret)
{
    struct fields c = {.p = body, .end = body + n}, inner;
    ProtobufCBinaryData tokens = {0}, keys = {0};
    struct field f, g;
    int rc, in = 0;

    budget_start(budget, n);
    *ret = (struct wire_match){0};
    while ((rc = fields_next(&c, &f)) > 0) {
        if (f.number == 1) {
            inner = fields_inside(&f);
            while ((in = fields_next(&inner, &g)) > 0)
                if (!tokens_field(&g, ret, &tokens, &keys))
                    return TERN_MALFORMED;
            if (in < 0 || f.type != FIELD_BYTES)
                return TERN_MALFORMED;
        } else if (f.number == 2 || f.number == 3) {
            if (f.type != FIELD_VARINT)
                return TERN_MALFORMED;
            *(f.number == 2 ? &ret->step : &ret->trace_id) = f.v;
        }
    }
    if (rc < 0)
        return TERN_MALFORMED;
    TRY(wire_array(budget, &tokens, WIRE_TOKEN_BYTES, &ret->tokens, &ret->ntokens));
    TRY(wire_array(budget, &keys, WIRE_KEY_BYTES, &ret->keys, &ret->nkeys));
    return ret->nkeys <= WIRE_KEYS_MAX ? TERN_OK : TERN_MALFORMED;
}
