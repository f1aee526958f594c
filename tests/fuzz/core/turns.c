/* Turns and their records, which are prepared, written, put, rolled back and read. The engine knows
 * by itself what each session has recorded, and the required answer to a put. A turn that timed
 * out, or ended with its process, still writes what it had prepared until the last of its engine's
 * processes is gone. See world.h. */
#include "fuzz/core/world.h"

static struct reply *ask(struct actor *a, struct request *r)
{
    rig_request(a->rig, a->e.conn[0], r);
    return (struct reply *)(uintptr_t)rig_reply_to(a->rig, r->request_id);
}

/* --- bytes --- */

static uint8_t *byte_at(const struct actor *a, const struct record_section *s, uint64_t at)
{
    uint32_t run = 0;

    for (; run < s->nruns && at >= (uint64_t)s->run[run].n * RECORD_PAGE_BYTES; run++)
        at -= (uint64_t)s->run[run].n * RECORD_PAGE_BYTES;
    expect(run < s->nruns);
    return a->rig->records[0] + (uint64_t)s->run[run].first * RECORD_PAGE_BYTES + at;
}

static void word_put(const struct actor *a, const struct record_section *s, uint32_t i, uint32_t v)
{
    memcpy(byte_at(a, s, 4ull * i), &v, sizeof v);
}

static bool word_is(const struct actor *a, const struct record_section *s, uint32_t i, uint32_t v)
{
    return memcmp(byte_at(a, s, 4ull * i), &v, sizeof v) == 0;
}

static uint32_t logprob_of(const struct record *r, uint32_t i)
{
    return 0xbf800000u + r->uid % 4096 * 64 + i;
}

/* A few words of each page name the owner of a blob. */
static void body_write(struct actor *a, const struct record *r)
{
    const struct record_body *b = &r->body;
    const uint32_t *ids = sequence(r->sequence);
    uint32_t before = r->kind == RECORD_APPEND ? b->from : b->length;

    for (uint32_t i = 0; i < before; i++)
        word_put(a, &b->before, i, i == r->bad ? 1u << 31 : ids[i]);
    for (uint32_t i = before; i < b->length; i++)
        word_put(a, &b->own, i - before, i == r->bad ? 1u << 31 : ids[i]);
    for (uint32_t i = 0; i < b->logprobs; i++)
        word_put(a, &b->own, b->length - before + i, logprob_of(r, i));
    for (uint32_t k = 0; k < b->nblobs; k++)
        for (uint64_t at = 0; at + 4 <= b->blob[k].at.bytes; at += RECORD_PAGE_BYTES / 2)
            word_put(a, &b->blob[k].at, (uint32_t)(at / 4), r->uid + k + (uint32_t)at);
}

static bool body_right(const struct actor *a, const struct record *r)
{
    const struct record_body *b = &r->body;
    const uint32_t *ids = sequence(r->sequence);
    bool right = true;

    for (uint32_t i = b->from; i < b->length; i++)
        right &= word_is(a, &b->own, i - b->from, ids[i]);
    for (uint32_t i = 0; i < b->logprobs; i++)
        right &= word_is(a, &b->own, b->length - b->from + i, logprob_of(r, i));
    for (uint32_t k = 0; k < b->nblobs && !r->dropped; k++)
        for (uint64_t at = 0; at + 4 <= b->blob[k].at.bytes; at += RECORD_PAGE_BYTES / 2)
            right &= word_is(a, &b->blob[k].at, (uint32_t)(at / 4), r->uid + k + (uint32_t)at);
    return right;
}

void verify_records(const struct actor *a)
{
    for (uint32_t i = 0; i < SESSIONS; i++)
        for (uint32_t k = 0; k < a->turn[i].n; k++)
            if (a->open[i] && !body_right(a, &a->turn[i].list[k]))
                rig_fail("M11: record %u of session %u of %s holds wrong bytes", k, i, a->name);
}

static void section_spoil(const struct actor *a, const struct record_section *s)
{
    for (uint64_t at = 0; at < s->bytes; at += RECORD_PAGE_BYTES) {
        uint8_t *page = byte_at(a, s, at);

        memset(page, 0xdd, 512);
        memset(page + RECORD_PAGE_BYTES / 2, 0xdd, 512);
    }
}

void write_prepared(struct actor *a)
{
    for (uint32_t i = 0; i < a->nghosts; i++) {
        section_spoil(a, &a->ghost[i].before);
        section_spoil(a, &a->ghost[i].own);
        for (uint32_t k = 0; k < a->ghost[i].nblobs; k++)
            section_spoil(a, &a->ghost[i].blob[k].at);
    }
}

/* --- ends --- */

static void turn_over(struct actor *a, uint32_t i, bool ended)
{
    struct turn *t = &a->turn[i];

    if (t->prepared && !t->put && !ended && a->nghosts < GHOSTS_MAX)
        a->ghost[a->nghosts++] = t->next.body;
    t->prepared = t->in = false;
    t->late |= t->put != 0;
    t->old = a->s[i]->id;
    a->s[i]->id = t->own;
}

void turns_pass(struct actor *a)
{
    for (uint32_t i = 0; i < SESSIONS; i++)
        if (a->open[i] && a->turn[i].in && a->turn[i].begun + TURN_NS <= a->rig->now_ns)
            turn_over(a, i, false);
}

void turn_opened(struct actor *a, uint32_t i)
{
    a->turn[i] = (struct turn){.own = a->s[i]->id};
}

/* The session is closed; nobody receives the answer to a put. */
void turn_closed(struct actor *a, uint32_t i)
{
    a->turn[i] = (struct turn){.own = a->turn[i].own};
}

void turns_lost(struct actor *a)
{
    for (uint32_t i = 0; i < SESSIONS; i++) {
        if (a->open[i] && a->turn[i].in)
            turn_over(a, i, false);
        turn_closed(a, i);
    }
}

bool rolling_back(const struct actor *a, uint32_t i)
{
    return a->turn[i].put && a->turn[i].next.kind == RECORD_ROLLBACK;
}

/* --- what it comes to --- */

static bool begins_with(const struct record *list, const struct record *first)
{
    uint32_t want[SEQUENCE];

    if (first->body.length > list->body.length)
        return false;
    memcpy(want, sequence(first->sequence), sizeof want);
    return memcmp(sequence(list->sequence), want, first->body.length * sizeof want[0]) == 0;
}

/* M1: two records keep their blobs. */
static void appended(struct turn *t, const struct reply *r)
{
    expect(t->n < RECORDS_MAX);
    t->list[t->n++] = t->next;
    t->rolled = 0;
    if (t->n > 2)
        t->list[t->n - 3].dropped = true;
    expect(r->record_put.records == t->n && r->record_put.length == t->next.body.length);
}

/* M3 */
static void rolled_back(struct actor *a, uint32_t i, const struct reply *r)
{
    struct turn *t = &a->turn[i];
    struct session_view v;
    uint32_t left = t->n;

    while (left > 0 && !begins_with(&t->next, &t->list[left - 1]))
        left--;
    if (r->err == TERN_BUSY && (left == t->n || t->n - left + t->rolled <= 1))
        return; /* no room for the release */
    expect(r->err == (left < t->n && t->n - left + t->rolled > 1 ? TERN_INVALID : TERN_OK));
    if (r->err != TERN_OK)
        return;
    t->rolled += t->n - left;
    t->n = left;
    expect(r->rollback.records == left &&
           r->rollback.length == (left ? t->list[left - 1].body.length : 0));
    expect(core_session_view(a->rig->core, t->own.slot, &v));
    if (v.lengths.committed == 0 && a->s[i]->len.committed > 0)
        table_lost(a, i, t->step);
}

static void answered(struct actor *a, uint32_t i, const struct reply *r)
{
    struct turn *t = &a->turn[i];
    const struct record *last = t->n ? &t->list[t->n - 1] : NULL;

    t->put = 0;
    t->prepared = false;
    if (t->late) {
        expect(r->err == TERN_GONE);
    } else if (t->next.bad < t->next.body.length) {
        expect(r->err == TERN_MALFORMED);
    } else if (t->next.kind == RECORD_ROLLBACK) {
        rolled_back(a, i, r);
    } else if (last && !begins_with(&t->next, last)) {
        expect(r->err == TERN_CONFLICT);
    } else {
        expect(r->err == TERN_OK);
        appended(t, r);
    }
    t->late = false;
}

void puts_answered(struct actor *a)
{
    for (uint32_t i = 0; i < SESSIONS; i++) {
        const struct reply *r =
            a->open[i] && a->turn[i].put ? rig_reply_to(a->rig, a->turn[i].put) : NULL;

        if (r)
            answered(a, i, r);
    }
}

/* --- requests --- */

static void begin_or_end(struct actor *a, uint32_t i, uint64_t step)
{
    struct request r = {.op = OP_TURN_BEGIN, .turn_begin.session = a->s[i]->id};
    struct turn *t = &a->turn[i];
    const struct reply *reply;

    if (t->in) {
        r.op = OP_TURN_END;
        r.turn_end = (struct req_turn_end){.session = a->s[i]->id, .step = step};
        turn_over(a, i, true);
        reply = ask(a, &r);
        expect(reply && reply->err == TERN_OK);
        return;
    }
    if (t->put)
        return; /* of the turn before: the model has one */
    reply = ask(a, &r);
    expect(reply && reply->err == TERN_OK);
    a->s[i]->id = reply->turn_begin.turn;
    t->in = true;
    t->begun = a->rig->now_ns;
}

static void prepare(struct actor *a, uint32_t i, enum record_kind kind, uint32_t x, uint32_t y)
{
    struct turn *t = &a->turn[i];
    uint32_t from = t->n && kind == RECORD_APPEND ? t->list[t->n - 1].body.length : 0;
    struct request r = {.op = OP_RECORD_PREPARE,
                        .record_prepare = {.session = a->s[i]->id, .kind = kind}};
    struct req_record_prepare *p = &r.record_prepare;
    const struct reply *reply;

    p->length = x % (SEQUENCE + 1);
    if (kind == RECORD_APPEND) {
        p->length = from + 1 + x % 8;
        p->logprobs = y & 1 ? p->length - from : 0;
        p->blobs.n = y / 2 % 4;
    }
    if (p->length > SEQUENCE)
        return;
    for (uint32_t k = 0; k < p->blobs.n; k++) {
        p->blobs.v[k].name[0] = (char)('a' + k);
        p->blobs.v[k].bytes = 1 + (y / 8 % 8) * 9000 + k;
    }
    reply = ask(a, &r);
    expect(reply);
    if (t->put) {
        expect(reply->err == TERN_BUSY);
        return;
    }
    t->prepared = reply->err == TERN_OK;
    expect(t->prepared || reply->err == TERN_BUSY || reply->err == TERN_QUOTA);
    if (!t->prepared)
        return;
    t->next = (struct record){.body = *reply->record_prepare.body,
                              .kind = kind,
                              .sequence = y / 64 % 2 ? x / 8 % 8
                                          : t->n     ? t->list[t->n - 1].sequence
                                                     : x % 2,
                              .uid = ++a->uid << 8,
                              .bad = y >= 240 ? x % SEQUENCE : NONE};
    expect(t->next.body.from == from && t->next.body.length == p->length);
    body_write(a, &t->next);
}

static void put(struct actor *a, uint32_t i, uint64_t step)
{
    struct turn *t = &a->turn[i];
    bool back = t->next.kind == RECORD_ROLLBACK;
    struct request r = {.op = back ? OP_ROLLBACK : OP_RECORD_PUT};
    const struct reply *reply;

    if (back)
        r.rollback = (struct req_rollback){.session = a->s[i]->id, .step = step};
    else
        r.record_put.session = a->s[i]->id;
    if (t->put || !t->prepared) {
        reply = ask(a, &r);
        expect(reply && reply->err == (t->put ? TERN_BUSY : TERN_INVALID));
        return;
    }
    t->step = step;
    rig_request(a->rig, a->e.conn[0], &r);
    t->put = r.request_id;
    reply = rig_reply_to(a->rig, r.request_id);
    if (reply && reply->err == TERN_BUSY && strstr(reply->text, "turn records under check"))
        t->put = 0; /* it is still prepared */
    fetches(a);
}

static void get(struct actor *a, uint32_t i)
{
    struct turn *t = &a->turn[i];
    struct request r = {.op = OP_RECORD_GET, .record_get.session = a->s[i]->id};
    const struct reply *reply = ask(a, &r);

    expect(reply && reply->err == TERN_OK && reply->record_get.records == t->n &&
           reply->record_get.n == t->n);
    for (uint32_t k = 0; k < t->n; k++) {
        const struct record_body *b = &reply->record_get.list[k], *mine = &t->list[k].body;

        expect(b->from == mine->from && b->length == mine->length &&
               b->logprobs == mine->logprobs && b->nblobs == mine->nblobs);
        expect(memcmp(&b->own, &mine->own, sizeof b->own) == 0);
        for (uint32_t n = 0; n < b->nblobs; n++)
            expect(b->blob[n].dropped == t->list[k].dropped &&
                   (b->blob[n].dropped ||
                    memcmp(&b->blob[n], &mine->blob[n], sizeof b->blob[n]) == 0));
    }
    verify_records(a);
}

/* By the handle of a turn that is over, or by the session's own while a turn is in flight. */
static void refused(struct actor *a, uint32_t i, uint32_t x)
{
    const struct turn *t = &a->turn[i];
    struct request r = {.op = x & 1 ? OP_RECORD_PUT : OP_TURN_END};
    struct session_id id = x & 2 ? t->old : t->own;
    const struct reply *reply;

    if (id.gen == 0 || (!(x & 2) && !t->in))
        return;
    if (r.op == OP_TURN_END)
        r.turn_end.session = id;
    else
        r.record_put.session = id;
    reply = ask(a, &r);
    expect(reply && reply->err == (x & 2 ? TERN_GONE : TERN_BUSY));
}

void turn_op(struct world *w, struct actor *a, uint32_t which)
{
    uint32_t n = take(w), i = n % SESSIONS, x = take(w), y = take(w);
    uint64_t step = done_min(a) + (n >> 4) % 4;

    if (!a->alive || !a->open[i])
        return;
    rig_settle(a->rig); /* a worker's result comes before the request, or behind it */
    fetches(a);
    if (step < a->left[i])
        step = a->left[i];
    if (!a->turn[i].in || which == 0) {
        begin_or_end(a, i, step);
        if (which == 0 || !a->turn[i].in)
            return;
    }
    switch (which) {
    case 1:
    case 3:
        prepare(a, i, which == 1 ? RECORD_APPEND : RECORD_ROLLBACK, x, y);
        if (a->turn[i].prepared && y & 32)
            put(a, i, step);
        break;
    case 2: put(a, i, step); break;
    default:
        if (x % 4)
            get(a, i);
        else
            refused(a, i, y);
    }
}
