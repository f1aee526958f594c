/* Turn records: the mapping of the tenant's record memory, and the requests about records.
 * Invariant: every span returned to the caller lies in the mapping, whatever the daemon answers,
 * and the bytes of a record are copied at most once, from the caller's memory to their place. */
#include "internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/err.h"

#define WORD 4u /* bytes of a token id and of a log-probability */

_Static_assert(sizeof(uint32_t) == WORD && sizeof(float) == WORD, "they lie in words");
_Static_assert(TERN_RECORD_SPANS_MAX == WIRE_SPANS_MAX && TERN_BLOBS_MAX == WIRE_BLOBS_MAX,
               "what an answer may have fits");

/* ---- the mapping ---- */

/* Maps the record memory, once for a connection. */
static enum tern_err map_memory(struct tern *t, uint64_t deadline_ns)
{
    Tern__Wire__RecordMap ask = TERN__WIRE__RECORD_MAP__INIT;
    const ProtobufCMessage *msg;
    struct records m = {0};
    struct call_fds fds;
    enum tern_err err;

    if (t->records.base)
        return TERN_OK;
    ask.has_reserved_one = 1;
    ask.reserved_one = 1;
    TRY(call_whole_fds(t, FRAME_RECORD_MAP, &ask.base, deadline_ns, &fds, &msg));
    TRY(call_fds_are(t, &fds, 1));
    m.bytes = ((const Tern__Wire__RecordMapReply *)msg)->bytes;
    err = map_shared(fds.v[0], 0, m.bytes, &m.base);
    close(fds.v[0]);
    if (err != TERN_OK)
        return set_error(t, err,
                         "the record memory could not be mapped (no address space, or a wrong "
                         "answer of the daemon)");
    t->records = m;
    return TERN_OK;
}

void records_unmap(struct tern *t)
{
    if (t->records.base && is_owner(t)) /* a child may have another mapping at this address */
        munmap(t->records.base, t->records.bytes);
}

/* ---- places of records ---- */

struct page_run {
    uint32_t first, n; /* pages */
};

/* Run i of a section. */
static struct page_run run_at(const Tern__Wire__RecordSection *s, uint32_t i)
{
    uint32_t words[2];

    memcpy(words, s->runs.data + (size_t)i * WIRE_SPAN_BYTES, sizeof(words));
    return (struct page_run){.first = words[0], .n = words[1]};
}

static uint32_t nruns(const Tern__Wire__RecordSection *s)
{
    return s ? (uint32_t)(s->runs.len / WIRE_SPAN_BYTES) : 0;
}

/* Returns true if the section has that many bytes, in runs that lie in the mapping and have no
 * superfluous page. */
static bool section_holds(const struct records *m, const Tern__Wire__RecordSection *s,
                          uint64_t bytes)
{
    uint64_t pages = 0, all = m->bytes / WIRE_RECORD_PAGE;

    if ((s ? s->bytes : 0) != bytes || nruns(s) > TERN_RECORD_SPANS_MAX)
        return false;
    for (uint32_t i = 0; i < nruns(s); i++) {
        struct page_run run = run_at(s, i);

        if (run.n == 0 || run.first >= all || run.n > all - run.first)
            return false;
        pages += run.n;
    }
    return pages == bytes / WIRE_RECORD_PAGE + (bytes % WIRE_RECORD_PAGE != 0);
}

/* Returns the spans of the bytes [at, at + n) of a section that has them. */
static struct tern_section spans_of(const struct records *m, const Tern__Wire__RecordSection *s,
                                    uint64_t at, uint64_t n)
{
    struct tern_section ret = {.bytes = n};

    for (uint32_t i = 0; i < nruns(s) && n > 0; i++) {
        struct page_run run = run_at(s, i);
        uint64_t bytes = (uint64_t)run.n * WIRE_RECORD_PAGE, take;

        if (at >= bytes) {
            at -= bytes;
            continue;
        }
        take = bytes - at < n ? bytes - at : n;
        ret.span[ret.nspans++] = (struct tern_span){
            .at = m->base + (uint64_t)run.first * WIRE_RECORD_PAGE + at, .bytes = take};
        n -= take;
        at = 0;
    }
    return ret;
}

/* bytes 0: any number. Returns false if the blob is invalid. */
static bool blob_of(const struct records *m, const Tern__Wire__RecordBlob *b, uint64_t bytes,
                    struct tern_record_blob *ret)
{
    size_t n = b->name ? strnlen(b->name, TERN_BLOB_NAME_MAX + 1) : 0;

    if (bytes == 0 && b->at)
        bytes = b->at->bytes;
    if (n == 0 || n > TERN_BLOB_NAME_MAX || (bytes == 0) != !!b->dropped ||
        !section_holds(m, b->at, bytes))
        return false;
    memcpy(ret->name, b->name, n + 1);
    ret->dropped = b->dropped;
    ret->at = spans_of(m, b->at, 0, bytes);
    return true;
}

/* Fills in all fields but `before`. blobs: the requested blobs, or NULL. Returns false if the
 * record is invalid. */
static bool record_of(const struct records *m, const Tern__Wire__Record *r,
                      const struct tern_blob *blobs, struct tern_record *ret)
{
    uint64_t tokens = (uint64_t)WORD * (r->length - r->from),
             logprobs = (uint64_t)WORD * r->logprobs;

    if (r->from > r->length || (logprobs != 0 && logprobs != tokens) ||
        r->n_blobs > TERN_BLOBS_MAX || !section_holds(m, r->own, tokens + logprobs))
        return false;
    *ret = (struct tern_record){.from = r->from, .length = r->length};
    ret->tokens = spans_of(m, r->own, 0, tokens);
    ret->logprobs = spans_of(m, r->own, tokens, logprobs);
    for (; ret->nblobs < r->n_blobs; ret->nblobs++) {
        const struct tern_blob *asked = blobs ? &blobs[ret->nblobs] : NULL;
        struct tern_record_blob *blob = &ret->blobs[ret->nblobs];

        if (!blob_of(m, r->blobs[ret->nblobs], asked ? asked->bytes : 0, blob) ||
            (asked && (strcmp(asked->name, blob->name) != 0 || blob->dropped)))
            return false;
    }
    return true;
}

/* ---- preparing ---- */

static enum tern_err check_blobs(struct tern *t, const struct tern_new_record *plan)
{
    if (plan->nblobs > TERN_BLOBS_MAX || (plan->nblobs && !plan->blobs))
        return set_error(t, TERN_INVALID,
                         "a record has at most TERN_BLOBS_MAX blobs, and `blobs` points to them");
    for (uint32_t i = 0; i < plan->nblobs; i++) {
        const struct tern_blob *b = &plan->blobs[i];
        size_t n = b->name ? strnlen(b->name, TERN_BLOB_NAME_MAX + 1) : 0;

        if (n == 0 || n > TERN_BLOB_NAME_MAX || b->bytes == 0)
            return set_error(t, TERN_INVALID,
                             "a blob has a name of 1 to 31 bytes, and at least one byte");
        for (uint32_t k = 0; k < i; k++)
            if (strcmp(plan->blobs[k].name, b->name) == 0)
                return set_error(t, TERN_INVALID, "two blobs of the record have one name");
    }
    return TERN_OK;
}

static enum tern_err check_plan(struct tern *t, const struct tern_new_record *plan)
{
    if (!plan)
        return set_error(t, TERN_INVALID, "a prepare needs a struct tern_new_record");
    if (plan->rollback && plan->nlogprobs)
        return set_error(t, TERN_INVALID,
                         "rollback and nlogprobs exclude each other: a rollback has only a list");
    if (plan->rollback && plan->nblobs)
        return set_error(t, TERN_INVALID,
                         "rollback and nblobs exclude each other: a rollback has only a list");
    if (plan->ntokens > WIRE_SESSION_TOKENS_MAX)
        return set_error(t, TERN_INVALID, "the list of a record has at most 4,194,304 tokens");
    return check_blobs(t, plan);
}

static bool is_planned(const struct records *m, const struct tern_new_record *plan,
                       const Tern__Wire__Record *r, struct tern_record *ret)
{
    uint32_t before = plan->rollback ? plan->ntokens : r->from;

    if (r->length != plan->ntokens || r->logprobs != plan->nlogprobs ||
        r->n_blobs != plan->nblobs || !section_holds(m, r->before, (uint64_t)WORD * before))
        return false;
    if (plan->rollback)
        *ret = (struct tern_record){.length = r->length};
    else if (r->from == r->length || !record_of(m, r, plan->blobs, ret))
        return false;
    ret->before = spans_of(m, r->before, 0, (uint64_t)WORD * before);
    return true;
}

static enum tern_err prepare(struct tern *t, tern_session turn, const struct tern_new_record *plan,
                             uint64_t deadline_ns, struct tern_record *ret)
{
    Tern__Wire__RecordPrepare ask = TERN__WIRE__RECORD_PREPARE__INIT;
    Tern__Wire__Blob blobs[TERN_BLOBS_MAX], *list[TERN_BLOBS_MAX];
    const Tern__Wire__RecordPrepareReply *reply;
    const ProtobufCMessage *msg;
    struct tern_record record;
    struct call call;

    TRY(check_plan(t, plan));
    TRY(map_memory(t, deadline_ns));
    ask.has_kind = ask.has_length = ask.has_logprobs = 1;
    ask.kind = plan->rollback;
    ask.length = plan->ntokens;
    ask.logprobs = plan->nlogprobs;
    for (uint32_t i = 0; i < plan->nblobs; i++) {
        tern__wire__blob__init(&blobs[i]);
        blobs[i].name = (char *)(uintptr_t)plan->blobs[i].name;
        blobs[i].has_bytes = 1;
        blobs[i].bytes = plan->blobs[i].bytes;
        list[i] = &blobs[i];
    }
    ask.n_blobs = plan->nblobs;
    ask.blobs = list;
    TRY(call_start_by(t, FRAME_RECORD_PREPARE, deadline_ns, &call));
    TRY(call_put(t, &call, turn, &ask.base));
    TRY(call_answer(t, &call, &msg));
    reply = (const Tern__Wire__RecordPrepareReply *)msg;
    if (!reply->body || !is_planned(&t->records, plan, reply->body, &record))
        return not_an_answer(t, TERN_MALFORMED);
    *ret = record;
    return TERN_OK;
}

enum tern_err tern_record_prepare(struct tern *t, tern_session turn,
                                  const struct tern_new_record *record, uint32_t deadline_ms,
                                  struct tern_record *ret)
{
    ENTER(t);
    return prepare(t, turn, record, deadline_at(deadline_ms), ret);
}

/* ---- putting and rolling back ---- */

static enum tern_err malformed_at(struct tern *t, const struct tern_recorded *r)
{
    char text[QUICK_TEXT_MAX];

    if (r->part == TERN_PART_TOKENS)
        snprintf(text, sizeof(text),
                 "token %" PRIu32 " of the list is 2^31 or more: nothing was changed", r->index);
    else if (r->part == TERN_PART_LOGPROBS)
        snprintf(text, sizeof(text),
                 "log-probability %" PRIu32 " of the new tokens is not finite: nothing was stored",
                 r->index);
    else
        return TERN_MALFORMED;
    return set_error(t, TERN_MALFORMED, text);
}

/* Sends a put or a rollback: the daemon reads the prepared bytes. */
static enum tern_err look(struct tern *t, tern_session turn, uint16_t type,
                          const ProtobufCMessage *ask, uint64_t deadline_ns,
                          struct tern_recorded *ret)
{
    const Tern__Wire__RecordPutReply *reply;
    const ProtobufCMessage *msg = NULL;
    struct call call;
    enum tern_err err;

    TRY(call_start_by(t, type, deadline_ns, &call));
    TRY(call_put(t, &call, turn, ask));
    err = call_answer(t, &call, &msg);
    if (!msg)
        return err;
    reply = (const Tern__Wire__RecordPutReply *)msg;
    *ret = (struct tern_recorded){.length = reply->length,
                                  .records = reply->records,
                                  .index = reply->index,
                                  .tokens = reply->tokens};
    if (reply->lengths)
        ret->lengths = (struct tern_lengths){reply->lengths->committed, reply->lengths->written,
                                             reply->lengths->allocated};
    if (reply->part <= TERN_PART_LOGPROBS)
        ret->part = (enum tern_record_part)reply->part;
    return err == TERN_MALFORMED ? malformed_at(t, ret) : err;
}

static enum tern_err put(struct tern *t, tern_session turn, uint64_t deadline_ns,
                         struct tern_recorded *ret)
{
    Tern__Wire__RecordPut ask = TERN__WIRE__RECORD_PUT__INIT;

    ask.has_reserved_one = 1;
    ask.reserved_one = 1;
    return look(t, turn, FRAME_RECORD_PUT, &ask.base, deadline_ns, ret);
}

static enum tern_err rollback(struct tern *t, tern_session turn, uint64_t step,
                              uint64_t deadline_ns, struct tern_recorded *ret)
{
    Tern__Wire__Rollback ask = TERN__WIRE__ROLLBACK__INIT;

    ask.has_step = 1;
    ask.step = wire_step(step);
    return look(t, turn, FRAME_ROLLBACK, &ask.base, deadline_ns, ret);
}

/* ---- reading ---- */

/* Makes one request: returns records from `first` on, at most `max` of those in the answer. */
static enum tern_err get(struct tern *t, tern_session turn, uint32_t first, struct tern_record *ret,
                         uint32_t max, uint64_t deadline_ns, uint32_t *ret_n, uint32_t *ret_records)
{
    Tern__Wire__RecordGet ask = TERN__WIRE__RECORD_GET__INIT;
    const Tern__Wire__RecordGetReply *reply;
    const ProtobufCMessage *msg;
    struct call call;

    ask.has_first = 1;
    ask.first = first;
    TRY(call_start_by(t, FRAME_RECORD_GET, deadline_ns, &call));
    TRY(call_put(t, &call, turn, &ask.base));
    TRY(call_answer(t, &call, &msg));
    reply = (const Tern__Wire__RecordGetReply *)msg;
    if (first > reply->records || reply->n_list > reply->records - first ||
        (reply->n_list == 0 && first < reply->records))
        return not_an_answer(t, TERN_MALFORMED);
    *ret_n = reply->n_list < max ? (uint32_t)reply->n_list : max;
    *ret_records = reply->records;
    for (uint32_t i = 0; i < *ret_n; i++)
        if (!record_of(&t->records, reply->list[i], NULL, &ret[i]) || ret[i].from == ret[i].length)
            return not_an_answer(t, TERN_MALFORMED);
    return TERN_OK;
}

enum tern_err tern_record_get(struct tern *t, tern_session turn, uint32_t first,
                              struct tern_record *ret, uint32_t max, uint32_t deadline_ms,
                              uint32_t *ret_n, uint32_t *ret_records)
{
    ENTER(t);
    uint64_t deadline_ns = deadline_at(deadline_ms);
    uint32_t n = 0, got = 0, records = 0;

    TRY(map_memory(t, deadline_ns));
    do {
        TRY(get(t, turn, first + n, ret ? ret + n : NULL, max - n, deadline_ns, &got, &records));
        n += got;
    } while (n < max && first + n < records);
    *ret_n = n;
    if (ret_records)
        *ret_records = records;
    return TERN_OK;
}

/* ---- sections, whatever their spans are ---- */

/* Returns the bytes from *at on that lie in one span, at most n; advances *at and *span. */
static uint8_t *side_by_side(const struct tern_section *s, uint32_t *span, uint64_t *at,
                             uint64_t *n)
{
    uint8_t *p;

    for (; *at >= s->span[*span].bytes; (*span)++)
        *at -= s->span[*span].bytes;
    p = s->span[*span].at + *at;
    if (*n > s->span[*span].bytes - *at)
        *n = s->span[*span].bytes - *at;
    *at += *n;
    return p;
}

static bool holds(const struct tern_section *s, uint64_t at, uint64_t n)
{
    return at <= s->bytes && n <= s->bytes - at;
}

enum tern_err tern_section_write(const struct tern_section *s, uint64_t at, const void *from,
                                 uint64_t n)
{
    const uint8_t *bytes = from;
    uint32_t span = 0;

    if (!holds(s, at, n))
        return TERN_INVALID;
    for (uint64_t done = 0, k; done < n; done += k) {
        uint8_t *to;

        k = n - done;
        to = side_by_side(s, &span, &at, &k);
        memcpy(to, bytes + done, k);
    }
    return TERN_OK;
}

enum tern_err tern_section_read(const struct tern_section *s, uint64_t at, void *to, uint64_t n)
{
    uint8_t *bytes = to;
    uint32_t span = 0;

    if (!holds(s, at, n))
        return TERN_INVALID;
    for (uint64_t done = 0, k; done < n; done += k) {
        const uint8_t *from;

        k = n - done;
        from = side_by_side(s, &span, &at, &k);
        memcpy(bytes + done, from, k);
    }
    return TERN_OK;
}

/* ---- putting and rolling back: a prepared record, or all in one call ---- */

static enum tern_err check_new(struct tern *t, const struct tern_new_record *r)
{
    if (r->rollback)
        return set_error(t, TERN_INVALID,
                         "rollback is for tern_record_prepare: roll back by tern_record_rollback");
    if ((r->ntokens && !r->tokens) || (r->nlogprobs && !r->logprobs))
        return set_error(t, TERN_INVALID, "a list of the record is NULL");
    if (r->nlogprobs > r->ntokens)
        return set_error(t, TERN_INVALID, "more log-probabilities than tokens");
    for (uint32_t i = 0; i < r->nblobs && r->nblobs <= TERN_BLOBS_MAX && r->blobs; i++)
        if (!r->blobs[i].from)
            return set_error(t, TERN_INVALID, "the bytes of a blob are NULL");
    return TERN_OK;
}

/* Writes a whole section. */
static void fill(const struct tern_section *s, const void *from)
{
    (void)tern_section_write(s, 0, from, s->bytes);
}

static enum tern_err prepare_new(struct tern *t, tern_session turn,
                                 const struct tern_new_record *record, uint64_t deadline_ns)
{
    struct tern_record at;

    TRY(check_new(t, record));
    TRY(prepare(t, turn, record, deadline_ns, &at));
    fill(&at.before, record->tokens);
    fill(&at.tokens, record->tokens + at.from);
    fill(&at.logprobs, record->logprobs);
    for (uint32_t i = 0; i < at.nblobs; i++)
        fill(&at.blobs[i].at, record->blobs[i].from);
    return TERN_OK;
}

enum tern_err tern_record_put(struct tern *t, tern_session turn,
                              const struct tern_new_record *record, uint32_t deadline_ms,
                              struct tern_recorded *ret)
{
    ENTER(t);
    uint64_t deadline_ns = deadline_at(deadline_ms);

    if (record)
        TRY(prepare_new(t, turn, record, deadline_ns));
    return put(t, turn, deadline_ns, ret);
}

static enum tern_err prepare_list(struct tern *t, tern_session turn, const struct tern_tokens *list,
                                  uint64_t deadline_ns)
{
    struct tern_new_record plan = {.ntokens = list->n, .rollback = true};
    struct tern_record at;

    TRY(check_tokens(t, list));
    if (list->base || list->nkeys)
        return set_error(t, TERN_INVALID,
                         "a list to roll back to must be whole: set base and nkeys to 0");
    TRY(prepare(t, turn, &plan, deadline_ns, &at));
    fill(&at.before, list->v);
    return TERN_OK;
}

enum tern_err tern_record_rollback(struct tern *t, tern_session turn,
                                   const struct tern_tokens *list, uint64_t step,
                                   uint32_t deadline_ms, struct tern_recorded *ret)
{
    ENTER(t);
    uint64_t deadline_ns = deadline_at(deadline_ms);

    TRY(check_step(t, step));
    if (list)
        TRY(prepare_list(t, turn, list, deadline_ns));
    return rollback(t, turn, step, deadline_ns, ret);
}
