/* Turn records (M1, M4) of a fleet's running sessions: each turn records the tokens that are
 * written by then, and all records are read again. */
#include "unit/rig/rig_section.h"
#include "world.h"

static const struct reply *asks(const struct fdaemon *d, struct request request)
{
    rig_request(d->rig, d->e.conn[0], &request);
    return rig_reply_to(d->rig, request.request_id);
}

/* The log-probabilities behind the tokens stay 0. */
static void body_writes(const struct fdaemon *d, const struct record_body *b, const uint32_t *list)
{
    for (uint32_t i = 0; i < b->from; i++)
        rig_section_put(d->rig, 0, &b->before, i, list[i]);
    for (uint32_t i = b->from; i < b->length; i++)
        rig_section_put(d->rig, 0, &b->own, i - b->from, list[i]);
}

static void check_records(const struct fdaemon *d, const struct frun *run, struct session_id turn)
{
    const struct reply *r =
        asks(d, (struct request){.op = OP_RECORD_GET, .record_get.session = turn});

    FEXPECT(r && r->err == TERN_OK && r->record_get.n == run->nrecords, "records", "%u of %u",
            r ? r->record_get.n : 0, run->nrecords);
    for (uint32_t i = 0; i < run->nrecords; i++) {
        const struct record_body *b = &r->record_get.list[i];

        FEXPECT(b->length == run->record[i] && b->from == (i ? run->record[i - 1] : 0),
                "record_length", "[%u, %u)", b->from, b->length);
        for (uint32_t t = b->from; t < b->length; t++)
            FEXPECT(rig_section_word(d->rig, 0, &b->own, t - b->from) == fw.tokens[run->variant][t],
                    "record_tokens", "token %u", t);
        FMARK(record_read);
    }
}

/* Returns false if there is no room for its record. */
static bool records(const struct fdaemon *d, struct frun *run, struct session_id turn)
{
    const uint32_t length = run->s->len.written;
    const struct reply *r =
        asks(d, (struct request){.op = OP_RECORD_PREPARE,
                                 .record_prepare = {.session = turn, .length = length}});
    struct record_body b;

    FEXPECT(r && !fwrong(r->err) && r->err != TERN_INVALID, "record_prepare", "%s",
            r ? r->text : "no answer");
    if (r->err != TERN_OK)
        return false;
    b = *r->record_prepare.body;
    body_writes(d, &b, fw.tokens[run->variant]);
    r = asks(d, (struct request){.op = OP_RECORD_PUT, .record_put.session = turn});
    FEXPECT(r && r->err == TERN_OK && r->record_put.length == length, "record_put", "%s",
            r ? r->text : "no answer");
    run->record[run->nrecords++] = length;
    return true;
}

bool fturn(struct fdaemon *d, struct frun *run)
{
    const struct reply *r;
    struct session_id turn;
    bool ok = false;

    r = asks(d, (struct request){.op = OP_TURN_BEGIN, .turn_begin.session = run->s->id});
    FEXPECT(r && r->err == TERN_OK, "turn_begin", "%s", r ? r->text : "no answer");
    turn = r->turn_begin.turn;
    if (run->nrecords < FLEET_RECORDS &&
        run->s->len.written > (run->nrecords ? run->record[run->nrecords - 1] : 0))
        ok = records(d, run, turn);
    check_records(d, run, turn);
    r = asks(d, (struct request){.op = OP_TURN_END, .turn_end.session = turn});
    FEXPECT(r && r->err == TERN_OK, "turn_end", "%s", r ? r->text : "no answer");
    return ok;
}

bool do_turn(void)
{
    struct fdaemon *d = &fw.d[fpick(FLEET)];
    struct frun *run = frun_some(d);

    return run->s && fturn(d, run);
}
