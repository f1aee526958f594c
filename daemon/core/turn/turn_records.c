/* See turns.h. A record is written in three short steps within a turn (M6): a prepare returns
 * pages, the engine writes them, and a put has a worker check them. An event returns the result,
 * and only then is anything stored. Any answer to a put or a rollback uses up what was prepared.
 *
 * A hash at the length of each record identifies the token list of a session's records. So a put
 * compares its list with the stored one (M4), and a rollback its prompt with the lists to roll back
 * to (M3), without a token on the owner thread. */
#include "core/turn/turns.h"

#include <string.h>

#include "core/arena/actions.h"
#include "core/memory/record_pages.h"
#include "core/session/call.h"
#include "core/session/engines.h"
#include "core/session/record.h"
#include "core/session/sessions.h"

static struct turn_record *last_of(const struct core *c, const struct session *s)
{
    return s->records.n > 0 ? turn_record_at(c, record_list_last(c, &s->records)) : NULL;
}

static uint32_t recorded(const struct core *c, const struct session *s)
{
    const struct turn_record *r = last_of(c, s);

    return r ? r->body.length : 0;
}

/* M3: number of records that may still be dropped before the next append. */
static uint32_t rollback_left(const struct session *s)
{
    uint32_t most = (s->blobs_kept ? s->blobs_kept : BLOBS_KEPT_MAX) - 1;

    return most > s->rolled ? most - s->rolled : 0;
}

static enum tern_err in_turn(const struct session *s, struct session_id id, struct reply *ret)
{
    return session_turn_is(s, id)
               ? TERN_OK
               : refuse(ret, TERN_INVALID,
                        "records are written and read within a turn: call TurnBegin, and name the "
                        "session by the handle that it returns");
}

static enum tern_err has_memory(const struct tenant *t, struct reply *ret)
{
    return t->record_pages > 0
               ? TERN_OK
               : refuse(ret, TERN_UNSUPPORTED,
                        "the tenant has no memory for turn records: set its record_memory");
}

enum tern_err record_map(struct core *c, struct call *call, struct reply *ret)
{
    const struct tenant *t = tenant_at(c, call->engine->tenant);

    TRY(has_memory(t, ret));
    ret->record_map.bytes = (uint64_t)t->record_pages * RECORD_PAGE_BYTES;
    return TERN_OK;
}

/* --- preparing --- */

static enum tern_err malformed(struct reply *ret, const char *text)
{
    return refuse(ret, TERN_MALFORMED, text);
}

static enum tern_err blobs_check(const struct req_blobs *b, struct reply *ret)
{
    if (b->n > RECORD_BLOBS_MAX)
        return malformed(ret, "a record has at most 4 blobs");
    for (uint32_t i = 0; i < b->n; i++) {
        if (b->v[i].name[0] == '\0' || b->v[i].bytes == 0)
            return malformed(ret, "a blob has a name of 1 to 31 bytes, and at least one byte");
        for (uint32_t k = 0; k < i; k++)
            if (memcmp(b->v[i].name, b->v[k].name, BLOB_NAME_MAX) == 0)
                return malformed(ret, "two blobs of the record have one name");
    }
    return TERN_OK;
}

static enum tern_err prepare_check(const struct core *c, const struct session *s,
                                   const struct req_record_prepare *r, struct reply *ret)
{
    uint32_t from = recorded(c, s);

    if (r->length > SESSION_TOKENS_MAX)
        return malformed(ret, "a list has at most 4,194,304 tokens");
    if (r->kind == RECORD_ROLLBACK)
        return r->logprobs > 0 || r->blobs.n > 0
                   ? malformed(ret, "a rollback takes a list of tokens and nothing else")
                   : TERN_OK;
    if (r->length <= from)
        return refuse(ret, TERN_CONFLICT,
                      "the list is not longer than the stored one: roll back first");
    if (r->logprobs != 0 && r->logprobs != r->length - from)
        return malformed(
            ret, "give a log-probability for each token behind the last record, or none at all");
    return blobs_check(&r->blobs, ret);
}

static bool sections_take(struct core *c, struct turn_record *r, const struct req_blobs *blobs)
{
    struct record_body *b = &r->body;
    uint64_t own = r->kind == RECORD_APPEND ? b->length - b->from + (uint64_t)b->logprobs : 0;
    uint32_t before = r->kind == RECORD_APPEND ? b->from : b->length;

    if (!section_take(c, r, &b->before, 4ull * before) || !section_take(c, r, &b->own, 4 * own))
        return false;
    for (uint32_t i = 0; i < blobs->n; i++) {
        memcpy(b->blob[i].name, blobs->v[i].name, BLOB_NAME_MAX);
        b->nblobs++;
        if (!section_take(c, r, &b->blob[i].at, blobs->v[i].bytes))
            return false;
    }
    return true;
}

enum tern_err record_prepare(struct core *c, struct call *call, struct reply *ret)
{
    const struct req_record_prepare *req = &call->req->record_prepare;
    struct session *s = call->session;
    const struct tenant *t = tenant_at(c, call->engine->tenant);
    struct turn_record *r;

    TRY(in_turn(s, req->session, ret));
    if (s->prepared != NONE && turn_record_at(c, s->prepared)->state != TURN_RECORD_PREPARED)
        return refuse(ret, TERN_BUSY,
                      "the record that was put last is still being checked: wait for that answer");
    if (s->prepared != NONE)
        record_free(c, turn_record_at(c, s->prepared));
    TRY(prepare_check(c, s, req, ret));
    TRY(has_memory(t, ret));
    if (share_room(c, SHARE_TURN_RECORDS, call->engine->tenant) == 0)
        return refuse(ret, TERN_BUSY, share_refused(SHARE_TURN_RECORDS));
    r = record_take(c, s);
    r->kind = req->kind;
    r->body.from = req->kind == RECORD_APPEND ? recorded(c, s) : 0;
    r->body.length = req->length;
    r->body.logprobs = req->logprobs;
    if (!sections_take(c, r, &req->blobs)) {
        record_free(c, r);
        ret->shortage.free = t->record_pages - t->record_used;
        return refuse(ret, TERN_QUOTA,
                      "the tenant's record memory has too little room for the record: close "
                      "sessions, roll them back, write smaller blobs, or raise record_memory");
    }
    s->records_lent = 1;
    call->out->records[0] = r->body;
    ret->record_prepare.body = &call->out->records[0];
    return TERN_OK;
}

/* For a rollback: the lengths of the records where it may end, the deepest last. */
static void rollback_points(const struct core *c, const struct session *s, struct record_job *job)
{
    uint32_t n = rollback_left(s) + 1, at = record_list_last(c, &s->records);

    n = n < s->records.n ? n : s->records.n;
    for (uint32_t i = n; i-- > 0; at = record_list_before(c, &s->records, at)) {
        uint32_t length = turn_record_at(c, at)->body.length;

        job->at[i] = length < job->length ? length : job->length;
    }
    job->nat = n;
}

static enum tern_err check_ready(const struct core *c, const struct session *s,
                                 struct session_id id, enum record_kind kind, struct reply *ret)
{
    TRY(in_turn(s, id, ret));
    if (s->prepared == NONE || turn_record_at(c, s->prepared)->kind != kind)
        return refuse(ret, TERN_INVALID,
                      kind == RECORD_APPEND
                          ? "no record is prepared: prepare a record, write it, then put it"
                          : "no rollback is prepared: prepare a record of that kind, write its "
                            "tokens, then roll back");
    if (turn_record_at(c, s->prepared)->state != TURN_RECORD_PREPARED)
        return refuse(ret, TERN_BUSY, "the record is already being checked: wait for that answer");
    if (share_room(c, SHARE_RECORD_JOBS, engine_at(c, s->engine)->tenant) == 0)
        return refuse(ret, TERN_BUSY, share_refused(SHARE_RECORD_JOBS));
    return TERN_OK;
}

/* Has a worker check the session's prepared record. */
static void check_begin(struct core *c, struct call *call, uint64_t step)
{
    struct session *s = call->session;
    struct turn_record *r = turn_record_at(c, s->prepared);
    struct record_job *job = &call->out->checks[0];

    turn_record_state_move(&r->state, TURN_RECORD_CHECKING);
    share_take(c, SHARE_RECORD_JOBS, r->tenant);
    record_list_push(c, &c->checks, s->prepared);
    r->reply = call_later(call);
    r->step = step;
    *job = (struct record_job){.id = {.slot = s->prepared, .gen = r->gen},
                               .tenant = r->tenant,
                               .kind = r->kind,
                               .from = r->body.from,
                               .length = r->body.length,
                               .logprobs = r->body.logprobs,
                               .before = r->body.before,
                               .own = r->body.own};
    if (r->kind == RECORD_ROLLBACK)
        rollback_points(c, s, job);
    else
        job->at[job->nat++] = r->body.from;
    job->at[job->nat++] = r->body.length;
    action_add(call->out, ACT_RECORD_CHECK)->record = job;
    touch(c);
}

enum tern_err record_put(struct core *c, struct call *call, struct reply *ret)
{
    TRY(check_ready(c, call->session, call->req->record_put.session, RECORD_APPEND, ret));
    check_begin(c, call, 0);
    return TERN_OK;
}

enum tern_err record_rollback(struct core *c, struct call *call, struct reply *ret)
{
    const struct req_rollback *r = &call->req->rollback;

    TRY(check_ready(c, call->session, r->session, RECORD_ROLLBACK, ret));
    step_named(c, call->engine, r->step);
    check_begin(c, call, r->step);
    return TERN_OK;
}

/* M1: drops the blobs of the record that no rollback reaches since the last append. Earlier records
 * have lost their blobs already. */
static void strip(struct core *c, struct session *s)
{
    uint32_t at = record_list_last(c, &s->records);
    struct turn_record *r;

    if (s->blobs_kept == 0 || s->records.n <= s->blobs_kept)
        return;
    for (uint32_t i = 0; i < s->blobs_kept; i++)
        at = record_list_before(c, &s->records, at);
    r = turn_record_at(c, at);
    for (uint32_t i = 0; i < r->body.nblobs; i++) {
        r->body.blob[i].dropped = 1;
        if (!record_exposed(c, r)) /* else freed with the record */
            section_free(c, r, &r->body.blob[i].at);
    }
}

static bool stripped(const struct turn_record *r)
{
    return r->body.nblobs > 0 && r->body.blob[0].dropped;
}

static bool hash_equal(struct list_hash a, struct list_hash b)
{
    return a.hi == b.hi && a.lo == b.lo;
}

static enum tern_err append(struct core *c, struct session *s, struct turn_record *r,
                            const struct record_checked *found, struct op_result *ret)
{
    const struct turn_record *last = last_of(c, s);

    if (recorded(c, s) != r->body.from || found->nhashes != 2)
        return refuse_op(ret, TERN_INTERNAL,
                         "the stored list changed while the record was checked");
    if (last && !hash_equal(last->hash, found->hash[0]))
        return refuse_op(
            ret, TERN_CONFLICT,
            "the stored list is not a prefix of this one: roll back to their common prefix");
    record_list_remove(c, &c->checks, turn_record_slot(c, r));
    section_free(c, r, &r->body.before);
    r->hash = found->hash[1];
    turn_record_state_move(&r->state, TURN_RECORD_KEPT);
    record_list_push(c, &s->records, turn_record_slot(c, r));
    s->prepared = NONE;
    s->rolled = 0;
    strip(c, s);
    return TERN_OK;
}

/* Number of the last records that are not prefixes of the prompt. */
static uint32_t behind_prompt(const struct core *c, const struct session *s,
                              const struct turn_record *r, const struct record_checked *found)
{
    uint32_t n = found->nhashes - 1, at = record_list_last(c, &s->records);

    for (uint32_t i = n; i-- > 0; at = record_list_before(c, &s->records, at))
        if (turn_record_at(c, at)->body.length <= r->body.length &&
            hash_equal(turn_record_at(c, at)->hash, found->hash[i]))
            return n - 1 - i;
    return s->records.n;
}

static enum tern_err roll_back(struct core *c, struct actions *out, struct session *s,
                               const struct turn_record *r, const struct record_checked *found,
                               struct op_result *ret)
{
    uint32_t behind, at, length;

    if (found->nhashes == 0 || found->nhashes - 1 > s->records.n)
        return refuse_op(ret, TERN_INTERNAL,
                         "the stored list changed while the rollback was checked");
    behind = behind_prompt(c, s, r, found);
    at = record_list_last(c, &s->records);
    for (uint32_t i = 0; i < behind && at != NONE; i++)
        at = record_list_before(c, &s->records, at);
    if (behind > rollback_left(s) || (at != NONE && stripped(turn_record_at(c, at))))
        return refuse_op(ret, TERN_INVALID,
                         "the rollback goes back beyond the records whose blobs are kept "
                         "(blobs_kept): nothing was changed; close the session and open another");
    length = at == NONE ? 0 : turn_record_at(c, at)->body.length;
    if (s->committed > length)
        TRY(session_table_end(c, out, s, r->step, length, ret));
    for (uint32_t i = 0; i < behind; i++)
        record_drop(c, last_of(c, s));
    if (s->records_exposed > length)
        s->records_exposed = length; /* later records behind it are not exposed yet */
    s->rolled += behind;
    return TERN_OK;
}

/* Returns the session, if it still exists in the turn that prepared the record. M8: a close that
 * waits for that turn takes precedence. */
static struct session *taker(const struct core *c, const struct turn_record *r)
{
    struct session *s = r->session == NONE ? NULL : session_at(c, r->session);

    return s && s->gate == GATE_CLAIMED && s->turn_gen == r->turn_gen ? s : NULL;
}

static enum tern_err take(struct core *c, struct actions *out, struct session *s,
                          struct turn_record *r, const struct record_checked *found,
                          struct op_result *ret)
{
    if (!s)
        return refuse_op(ret, TERN_GONE,
                         "the turn ended or its session was closed: nothing was stored");
    if (found->err == TERN_CORRUPT)
        return refuse_op(ret, TERN_CORRUPT,
                         "a page of the record memory was lost and nothing was stored: prepare the "
                         "record again");
    if (found->err != TERN_OK)
        return refuse_op(ret, found->err,
                         "the record is invalid and nothing was stored: a token id is 2^31 or "
                         "more, or a log-probability is not finite");
    return r->kind == RECORD_APPEND ? append(c, s, r, found, ret)
                                    : roll_back(c, out, s, r, found, ret);
}

static void tell(struct core *c, struct actions *out, const struct session *s,
                 const struct turn_record *r, const struct record_checked *found,
                 const struct op_result *why)
{
    bool put = r->kind == RECORD_APPEND;
    struct recorded *told;
    struct reply *ret;

    if (!reply_waits(c, &r->reply))
        return;
    ret = reply_late(out, r->reply, put ? OP_RECORD_PUT : OP_ROLLBACK, why->err, why->text);
    told = put ? &ret->record_put : &ret->rollback;
    if (why->err == TERN_MALFORMED) {
        told->part = found->part;
        told->index = found->index;
    }
    if (!s)
        return;
    told->length = recorded(c, s);
    told->records = s->records.n;
    reply_lengths(s, ret);
}

void record_checked(struct core *c, struct actions *out, const struct record_checked *found)
{
    struct turn_record *r;
    struct session *s;
    struct op_result why = {.text = ""};

    if (found->id.slot >= c->limits.turn_records)
        return;
    r = turn_record_at(c, found->id.slot);
    if (r->gen != found->id.gen ||
        (r->state != TURN_RECORD_CHECKING && r->state != TURN_RECORD_LEAVING))
        return;
    share_put(c, SHARE_RECORD_JOBS, r->tenant);
    s = taker(c, r);
    why.err = take(c, out, s, r, found, &why);
    tell(c, out, s, r, found, &why);
    if (r->state != TURN_RECORD_KEPT)
        record_free(c, r);
}

enum tern_err record_get(struct core *c, struct call *call, struct reply *ret)
{
    const struct req_record_get *req = &call->req->record_get;
    struct session *s = call->session;
    uint32_t at = s->records.head, n = 0;

    TRY(in_turn(s, req->session, ret));
    if (req->first > s->records.n)
        return refuse(ret, TERN_INVALID, "the session has fewer records");
    for (uint32_t i = 0; at != NONE && n < RECORDS_TOLD_MAX; i++) {
        struct record_body *b = &call->out->records[n];

        if (i >= req->first) {
            *b = turn_record_at(c, at)->body;
            for (uint32_t k = 0; k < b->nblobs; k++)
                if (b->blob[k].dropped)
                    b->blob[k].at = (struct record_section){0};
            n++;
        }
        at = record_list_next(c, at);
    }
    s->records_lent = s->records_lent || n > 0;
    touch(c);
    ret->record_get.records = s->records.n;
    ret->record_get.n = n;
    ret->record_get.list = call->out->records;
    return TERN_OK;
}
