/* Fetches that name no peer (X11): the daemon's question to its peer, and the peer's answer.
 * Arriving data is checked as for any fetch. */
#include "data.h"
#include "tickets.h"

/* Tenants that the daemon shares with its peer, a bit each: in some histories one alone. */
uint64_t tenants_shared(const struct sim *w)
{
    return w->cfg.seed_tokens % 7 == 0 ? 1 : 3;
}

static struct question *question_of(struct sim *w, uint32_t d, struct pull_id id)
{
    for (uint32_t i = 0; i < QUESTIONS; i++)
        if (w->d[d].question[i].id.gen != 0 && pull_id_equal(w->d[d].question[i].id, id))
            return &w->d[d].question[i];
    return NULL;
}

void question_asked(struct sim *w, uint32_t d, const struct peer_msg *msg)
{
    struct session *s = NULL;

    for (uint32_t i = 0; i < SESSIONS && !s; i++)
        if (w->d[d].session[i].used && w->d[d].session[i].turn == TURN_FETCHING &&
            w->d[d].session[i].fetch_request == msg->trace_id)
            s = &w->d[d].session[i];
    EXPECT(s && s->fetch_any && !s->fetch_asked, "question_unasked",
           "no fetch that names no peer is under way");
    EXPECT(msg->tenant == s->tenant && namespace_number(w, msg->ns) == s->ns, "question_of_another",
           "tenant %u namespace %u, asked for by one of %u and %u", msg->tenant,
           namespace_number(w, msg->ns), s->tenant, s->ns);
    EXPECT((tenants_shared(w) >> msg->tenant & 1) != 0, "question_to_stranger",
           "the peer has nothing of tenant %u", msg->tenant);
    EXPECT(msg->from == 0 && msg->at == 0 && msg->to == msg->each && msg->to <= s->fetch_depth,
           "question_range", "%u tokens of %u, prefixes of %u", msg->to, s->fetch_depth, msg->each);
    s->fetch_asked = 1;
    w->d[d].question[w->d[d].nquestions++ % QUESTIONS] = (struct question){
        .id = msg->pull, .tenant = s->tenant, .ns = s->ns, .variant = s->variant, .to = msg->to};
    MARK(peers_asked);
}

/* The most tokens of the sequence that the daemon has in that pool. */
static uint32_t most_in(struct sim *w, uint32_t d, uint32_t pool, const struct question *q)
{
    uint32_t space = w->d[d].space_of[q->tenant][q->ns], k = 1;

    for (; space != NO_SPACE && k * w->L <= q->to; k++) {
        const struct chunk *c = chunk_at(w, d, pool, space, q->variant, k);

        /* During a load no answer has named the chunks that are on the device again. */
        if (!(c->present && chunk_visible(w, d, c)) && !host_has(c))
            break;
    }
    return (k - 1) * w->L;
}

void question_answered(struct sim *w, uint32_t d, const struct peer_msg *msg)
{
    const struct question *q = question_of(w, sim_far(w, d), msg->pull);
    uint32_t most = 0, told;

    EXPECT(msg->nruns == 0 && msg->serve.gen == 0 && msg->to == 0, "answer_offers",
           "%u runs, serve %u.%u", msg->nruns, msg->serve.slot, msg->serve.gen);
    if (!q || msg->err != TERN_OK)
        return;
    told = msg->tokens[0];
    for (uint32_t p = 0; p < POOLS; p++)
        if (w->d[d].pool[p].open && w->d[d].pool[p].tenant == q->tenant &&
            most_in(w, d, p, q) > most)
            most = most_in(w, d, p, q);
    EXPECT(told % w->L == 0 && told <= q->to, "answer_range", "%u of %u tokens", told, q->to);
    /* The model does not know chunks that a fetch has published and no answer has named. */
    EXPECT(told <= most || (w->d[d].fetched >> q->tenant & 1) != 0, "answer_beyond",
           "%u tokens of tenant %u namespace %u sequence %u, and there are %u", told, q->tenant,
           q->ns, q->variant, most);
    if (told > 0)
        MARK(peer_has_it);
}

/* T22: the questions under way belong to sessions that fetch and name no peer. */
void check_asks_full(struct sim *w, uint32_t d, const struct session *of)
{
    uint32_t used[TENANTS] = {0};

    for (uint32_t set = sessions_live(&w->d[d], 1u << TURN_FETCHING, ENGINES_ALL); set;) {
        const struct session *s = &w->d[d].session[session_next(&set, 0)];

        used[s->tenant] += s != of && s->fetch_asked;
    }
    EXPECT(share_used_up(w, w->limits.asks, used, of->tenant), "ask_share",
           "tenant %u is refused a question, %u and %u of %u are under way", of->tenant, used[0],
           used[1], w->limits.asks);
    MARK(asks_full);
}
