/* Turn records in tests: how an engine writes and reads them, with bytes that identify their owner.
 * Header only. */
#ifndef TEST_RIG_RECORD_H
#define TEST_RIG_RECORD_H

#include "unit/rig/rig_section.h"
#include "unit/rig/rig_turn.h"

#define BLOB_TOKEN_BYTES 1000u /* bytes of a blob for each token of the whole list */

/* A session whose turns leave records. The helpers need a turn in flight. */
struct recorder {
    struct rig *rig;
    uint32_t conn, tenant;
    struct session_id session, turn;
    uint32_t seed; /* of the tokens that it records */
};

static inline struct reply *record_ask(struct recorder *r, struct request request)
{
    rig_request(r->rig, r->conn, &request);
    return (struct reply *)(uintptr_t)rig_reply_to(r->rig, request.request_id);
}

static inline void recorder_begin(struct recorder *r)
{
    assert_ok(turn_begin(r->rig, r->conn, r->session, &r->turn));
}

static inline void recorder_end(struct recorder *r)
{
    assert_ok(turn_end(r->rig, r->conn, r->turn, 0));
}

/* Kinds of section bytes beside blobs, whose kind is their number. */
enum { BYTES_TOKENS = 100, BYTES_LOGPROBS };

static inline uint8_t *record_byte(const struct recorder *r, const struct record_section *s,
                                   uint64_t at)
{
    return rig_section_byte(r->rig, r->tenant, s, at);
}

static inline void record_word_put(const struct recorder *r, const struct record_section *s,
                                   uint64_t i, uint32_t word)
{
    rig_section_put(r->rig, r->tenant, s, i, word);
}

static inline uint32_t record_word(const struct recorder *r, const struct record_section *s,
                                   uint64_t i)
{
    return rig_section_word(r->rig, r->tenant, s, i);
}

static inline uint32_t logprob_bits(uint32_t at)
{
    float v = -(float)(at % 977) / 64;
    uint32_t bits;

    memcpy(&bits, &v, sizeof bits);
    return bits;
}

static inline uint8_t blob_byte(const struct recorder *r, uint32_t length, uint64_t at)
{
    return (uint8_t)(r->session.slot * 31 + length * 7 + at / 251 + at);
}

/* Prepares and writes a record of `length` tokens with one blob. Returns NULL if it is refused:
 * r->rig->last has the reason. */
static inline const struct record_body *record_write(struct recorder *r, uint32_t length,
                                                     uint64_t blob_bytes)
{
    struct request request = {.op = OP_RECORD_PREPARE,
                              .record_prepare = {.session = r->turn, .length = length}};
    struct req_record_prepare *p = &request.record_prepare;
    static struct record_body b;
    const struct reply *reply;

    p->logprobs = 0;
    if (blob_bytes) {
        p->blobs.n = 1;
        strcpy(p->blobs.v[0].name, "hidden");
        p->blobs.v[0].bytes = blob_bytes;
    }
    reply = record_ask(r, request);
    if (reply->err != TERN_OK)
        return NULL;
    request.record_prepare.logprobs = length - reply->record_prepare.body->from;
    request.request_id = 0;
    reply = record_ask(r, request); /* a repetition returns the pages prepared before */
    if (reply->err != TERN_OK)
        return NULL;
    b = *reply->record_prepare.body;
    for (uint32_t i = 0; i < b.from; i++)
        record_word_put(r, &b.before, i, rig_tokens(r->seed, length)[i]);
    for (uint32_t i = b.from; i < length; i++) {
        record_word_put(r, &b.own, i - b.from, rig_tokens(r->seed, length)[i]);
        record_word_put(r, &b.own, length - b.from + i - b.from, logprob_bits(i));
    }
    for (uint64_t i = 0; i < blob_bytes; i++)
        *record_byte(r, &b.blob[0].at, i) = blob_byte(r, length, i);
    return &b;
}

/* Returns the answer, which must be there. */
static inline const struct reply *record_put_now(struct recorder *r)
{
    const struct reply *reply =
        record_ask(r, (struct request){.op = OP_RECORD_PUT, .record_put.session = r->turn});

    assert_non_null(reply);
    return reply;
}

/* Runs a turn that leaves a record of `length` tokens with a blob of 1,000 B a token. */
static inline void records_turn(struct recorder *r, uint32_t length)
{
    recorder_begin(r);
    assert_non_null(record_write(r, length, (uint64_t)length * BLOB_TOKEN_BYTES));
    assert_ok(record_put_now(r)->err);
    assert_int_equal(r->rig->last->record_put.length, length);
    recorder_end(r);
}

/* Within a turn: rolls back to what the first n tokens of sequence `seed` begin with. */
static inline const struct reply *rolls_back(struct recorder *r, uint32_t seed, uint32_t n,
                                             uint64_t step)
{
    const struct reply *reply = record_ask(
        r, (struct request){
               .op = OP_RECORD_PREPARE,
               .record_prepare = {.session = r->turn, .kind = RECORD_ROLLBACK, .length = n}});
    struct record_section before;

    assert_ok(reply->err);
    before = reply->record_prepare.body->before;
    for (uint32_t i = 0; i < n; i++)
        record_word_put(r, &before, i, rig_tokens(seed, n)[i]);
    reply = record_ask(
        r, (struct request){.op = OP_ROLLBACK, .rollback = {.session = r->turn, .step = step}});
    assert_non_null(reply);
    return reply;
}

/* Reads all records and compares each byte. Returns which have their blobs: bit i for record i. */
static inline uint32_t records_read(struct recorder *r, uint32_t n, const uint32_t *lengths)
{
    const struct reply *reply =
        record_ask(r, (struct request){.op = OP_RECORD_GET, .record_get.session = r->turn});
    uint32_t whole = 0;

    assert_ok(reply->err);
    assert_int_equal(reply->record_get.records, n);
    assert_int_equal(reply->record_get.n, n);
    for (uint32_t i = 0; i < n; i++) {
        const struct record_body *b = &reply->record_get.list[i];
        uint32_t k = b->length - b->from;

        assert_int_equal(b->length, lengths[i]);
        assert_int_equal(b->from, i ? lengths[i - 1] : 0);
        for (uint32_t at = 0; at < k; at++) {
            assert_int_equal(record_word(r, &b->own, at),
                             rig_tokens(r->seed, b->length)[b->from + at]);
            assert_int_equal(record_word(r, &b->own, k + at), logprob_bits(b->from + at));
        }
        assert_int_equal(b->nblobs, 1);
        assert_string_equal(b->blob[0].name, "hidden");
        if (b->blob[0].dropped) {
            assert_int_equal(b->blob[0].at.nruns, 0);
            continue;
        }
        whole |= 1u << i;
        assert_int_equal(b->blob[0].at.bytes, (uint64_t)b->length * BLOB_TOKEN_BYTES);
        for (uint64_t at = 0; at < b->blob[0].at.bytes; at++)
            assert_int_equal(*record_byte(r, &b->blob[0].at, at), blob_byte(r, b->length, at));
    }
    return whole;
}

/* ---- one engine of two ranks, one session with 64 pages of 4 tokens, its recorder ---- */

struct stand {
    struct rig *rig;
    struct rig_engine e;
    struct rig_session *s;
    struct recorder r;
};

static inline struct stand stand_with(struct rig_options o)
{
    struct stand t = {.rig = rig_create(&o)};

    t.e = rig_engine(t.rig, 0, "e", 2);
    t.s = rig_session(t.rig, &t.e, rig_pool_pages(t.rig, &t.e, 4, 64), 1);
    t.r = (struct recorder){.rig = t.rig, .conn = t.e.conn[0], .session = t.s->id, .seed = 1};
    return t;
}

static inline struct stand stand(void)
{
    return stand_with(rig_defaults());
}

static inline struct records_view stand_records(const struct stand *t)
{
    struct records_view v;

    v = core_tenant_view(t->rig->core, 0).records;
    return v;
}

#define assert_pages(t, used_, held_)                                                              \
    do {                                                                                           \
        assert_int_equal(stand_records(t).used, (used_));                                          \
        assert_int_equal(stand_records(t).held, (held_));                                          \
    } while (0)

#endif
