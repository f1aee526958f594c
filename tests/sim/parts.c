/* A Match or a Peek in pieces, as a client sends it when the prompt is longer than a frame.
 * ask_match and peek_at know the result of a whole one; this file has the pieces, the events
 * between them, and the end of a session whose remaining pieces are never sent. */
#include "tickets.h"

static void no_extend(struct sim *w, uint32_t d, struct session *s, uint32_t conn)
{
    struct step_op op = {.kind = STEP_EXTEND, .session = s->handle, .length = 1};
    struct event ev;

    request_init(w, d, &ev, OP_STEP, conn);
    ev.request.step.ops = &op;
    ev.request.step.n = 1;
    sim_ask(w, d, &ev, "step_answer");
    EXPECT(w->reply->step.results[0].err == TERN_INVALID, "extend_between_pieces", "err %u",
           w->reply->step.results[0].err);
}

/* Tokens of the next piece of a Match; 0: the rest is the last piece. If the daemon splits the
 * Match, only one token is left for the last piece. */
static uint32_t match_part(const struct sim *w, uint32_t left)
{
    const uint32_t size = w->cfg.cut ? left - 1 : w->cfg.piece;

    return size < left ? size : 0;
}

uint32_t match_parts(struct sim *w, uint32_t d, struct session *s, struct event *ev)
{
    const struct req_tokens whole = ev->request.match.tokens;
    uint32_t at = whole.base, end = whole.base + whole.n, conn = ev->request.conn;
    struct event piece;
    uint32_t committed, n;
    bool again = false; /* at most once, or a long one would never end */

    s->piece_end = s->piece_holds = 0;
    while ((n = match_part(w, end - at)) > 0) {
        request_init(w, d, &piece, OP_MATCH, conn);
        piece.request.match = ev->request.match;
        piece.request.match.tokens = tokens_of(w, s->piece_variant, at, at + n);
        piece.request.match.earlier = at - whole.base;
        piece.request.match.more = true;
        piece.request.match.pieces = w->cfg.cut;
        sim_ask(w, d, &piece, "match_answer");
        EXPECT(w->reply->match.taken < n, "piece_taken", "%u of %u", w->reply->match.taken, n);
        if (w->reply->match.taken > 0) {
            n = w->reply->match.taken;
            MARK(match_is_cut);
        }
        TRACE("    piece %u..%u: err %u, committed %u, tokens %u\n", at, at + n, w->reply->err,
              w->reply->match.lengths.committed, w->reply->match.tokens);
        follow_unsure(w, d, s); /* its list until the last piece is sent */
        if (w->reply->err != TERN_OK)
            return at;
        if (s->piece_end < at + n)
            s->piece_end = at + n;
        EXPECT(w->reply->nruns == 0, "piece_tells_pages", "%u runs", w->reply->nruns);
        at += n;
        committed = w->reply->match.lengths.committed;
        if (s->allocated == 0 && chance(w, 10))
            no_extend(w, d, s, conn);
        if (chance(w, 15))
            evict(w, d, chance(w, 50));
        MARK(match_in_pieces);
        if (again || (s->allocated > 0 && s->committed == 0) || !chance(w, 10))
            continue;
        again = true;
        /* The answer was lost: the client starts again. Only the tree now covers the repeated
         * tokens. */
        at = whole.base;
        if (s->allocated == 0 && committed > at && s->finished > at)
            s->finished = at;
    }
    ev->request.match.tokens = tokens_of(w, s->piece_variant, at, end);
    ev->request.match.earlier = at - whole.base;
    request_init(w, d, ev, OP_MATCH, conn);
    return end;
}

void match_given_up(struct sim *w, uint32_t d, struct session *s, uint32_t conn)
{
    struct step_op op = {.kind = STEP_ABORT, .session = s->handle};
    const struct op_result *r;
    struct event ev;

    request_init(w, d, &ev, OP_STEP, conn);
    ev.request.step.ops = &op;
    ev.request.step.n = 1;
    sim_ask(w, d, &ev, "step_answer");
    r = &w->reply->step.results[0];
    EXPECT(r->err == TERN_OK && r->lengths.allocated == 0 && r->tokens <= s->ntokens,
           "match_given_up", "err %u, allocated %u, %u of %u tokens", r->err, r->lengths.allocated,
           r->tokens, s->ntokens);
    promise_over(w, d, s); /* as with any abort */
    s->ntokens = s->finished = r->tokens;
    s->turn = TURN_NEW;
    MARK(match_given_up);
}

static void peek_piece(struct sim *w, uint32_t d, struct event *ev)
{
    uint64_t before = core_changes(w->d[d].core);
    bool due = core_deadline(w->d[d].core) <= w->now + 1000; /* of a transfer, just now */

    request_init(w, d, ev, OP_PEEK, ev->request.conn);
    sim_ask(w, d, ev, "peek_answer");
    EXPECT(w->reply->err != TERN_OK || due || before == core_changes(w->d[d].core), "peek_changes",
           "a Peek changed the state");
}

void peek_parts(struct sim *w, uint32_t d, struct event *ev, uint32_t variant, uint32_t n)
{
    uint32_t at = 0, size = w->cfg.piece ? w->cfg.piece : n;
    const struct reply *r;

    for (;;) {
        uint32_t end = n - at > size ? at + size : n;

        if (at == 0)
            ev->request.peek.from = (struct node_id){0};
        ev->request.peek.tokens = tokens_of(w, variant, at, end);
        ev->request.peek.pieces = w->cfg.cut;
        peek_piece(w, d, ev);
        r = w->reply;
        if (r->err == TERN_OK && r->peek.taken > 0) {
            EXPECT(r->peek.taken < end - at, "piece_taken", "%u of %u", r->peek.taken, end - at);
            end = at + r->peek.taken;
            MARK(peek_is_cut);
        }
        if (r->err == TERN_BUSY && at > 0) { /* the node that it continues was evicted */
            at = 0;
            size *= 4; /* a long one would never end */
            MARK(peek_begins_anew);
            continue;
        }
        if (r->err != TERN_OK || end == n || r->peek.reached.gen == 0)
            return;
        if (r->peek.walked > at) {
            at = r->peek.walked;
            ev->request.peek.from = r->peek.reached;
            MARK(peek_in_pieces);
        } else {
            size *= 2; /* it is smaller than a chunk */
        }
        if (chance(w, 15))
            evict(w, d, chance(w, 50));
    }
}
