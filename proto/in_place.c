/* Reading Match {tokens 1 {kept 1, tokens 2, keys 3}, step 2, trace_id 3}. See match.h. The fuzzer
 * holds it against protobuf-c. */
#include "proto/match.h"

#include "base/err.h"
#include "proto/codec.h"
#include "proto/reader.h"

static void take_array(struct reader *r, const struct field *f, ProtobufCBinaryData *ret)
{
    if (f->type != FIELD_BYTES)
        r->failed = true;
    else
        *ret = (ProtobufCBinaryData){f->v, (uint8_t *)(uintptr_t)f->bytes};
}

static void take_tokens(struct reader *outer, const struct field *list, struct wire_match *ret,
                        ProtobufCBinaryData *tokens, ProtobufCBinaryData *keys)
{
    struct reader r = reader_enter(outer, list);
    struct field f;

    while (reader_next(&r, &f)) {
        switch (f.number) {
        case 1: reader_u32(&r, &f, &ret->kept); break;
        case 2: take_array(&r, &f, tokens); break;
        case 3: take_array(&r, &f, keys); break;
        default: break; /* a newer client may say more */
        }
    }
    reader_leave(outer, &r);
}

enum tern_err wire_match(struct budget *budget, const uint8_t *body, size_t n,
                         struct wire_match *ret)
{
    ProtobufCBinaryData tokens = {0}, keys = {0};
    struct reader r = reader_of(body, n);
    struct field f;

    budget_start(budget, n);
    *ret = (struct wire_match){0};
    while (reader_next(&r, &f)) {
        switch (f.number) {
        case 1: take_tokens(&r, &f, ret, &tokens, &keys); break;
        case 2: reader_u64(&r, &f, &ret->step); break;
        case 3: reader_u64(&r, &f, &ret->trace_id); break;
        default: break;
        }
    }
    if (!reader_ok(&r))
        return TERN_MALFORMED;
    TRY(wire_array(budget, &tokens, WIRE_TOKEN_BYTES, &ret->tokens, &ret->ntokens));
    TRY(wire_array(budget, &keys, WIRE_KEY_BYTES, &ret->keys, &ret->nkeys));
    return ret->nkeys <= WIRE_KEYS_MAX ? TERN_OK : TERN_MALFORMED;
}
