/* See asks.h. */
#include "core/fetch/asks.h"

#include <string.h>

#include "core/session/resets.h"

static bool may_be_asked(const struct core *c, struct tenant_peer of)
{
    const struct link *l = link_at(c, of.peer);

    return l->up && l->incarnation != c->incarnation && (l->tenants >> of.tenant & 1) != 0 &&
           !reset_is_due(c, of.peer);
}

uint32_t ask_reaches(const struct core *c, struct tenant_peer from)
{
    while (from.peer < c->limits.peers && !may_be_asked(c, from))
        from.peer++;
    return from.peer < c->limits.peers ? from.peer : NONE;
}

/* Chooses the peers. If one question cannot go to all, each question begins at the next peer. */
static void choose_peers(struct core *c, struct ask *a, struct question of)
{
    const uint32_t first = c->ask_turn;

    for (uint32_t n = 0; n < c->limits.peers && a->npeers < ASK_PEERS_MAX &&
                         (a->npeers + 1) * of.tokens <= ASK_TOKENS_SENT;
         n++) {
        uint32_t peer = (first + n) % c->limits.peers;

        if ((of.peer != PEER_ANY && of.peer != peer) ||
            !may_be_asked(c, (struct tenant_peer){a->tenant, peer}))
            continue;
        a->asked[a->npeers++].peer = peer;
        c->ask_turn = (peer + 1) % c->limits.peers;
    }
}

struct ask *asks_open(struct core *c, struct actions *out, struct question of,
                      struct peer_msg **ret_first)
{
    struct ask *a = ask_at(c, ask_slot_take(c, of.tenant));
    const uint32_t gen = gen_next(a->gen);

    memset(a, 0, sizeof *a);
    a->gen = gen;
    a->tenant = of.tenant;
    a->until_ns = c->now_ns + ASK_MS * NS_PER_MS;
    ask_list_push(c, &c->asks, ask_slot(c, a));
    choose_peers(c, a, of);
    *ret_first = peer_msg_add(out, a->asked[0].peer, PEER_PULL_OPEN);
    (*ret_first)->pull = (struct pull_id){c->limits.pulls + ask_slot(c, a), a->gen};
    (*ret_first)->tenant = of.tenant;
    touch(c);
    return a;
}

void asks_send(struct actions *out, struct ask *a, const struct peer_msg *first)
{
    a->each = first->each;
    a->n = a->left = first->to / first->each;
    for (uint32_t i = 1; i < a->npeers; i++)
        *peer_msg_add(out, a->asked[i].peer, first->kind) = *first;
}

void asks_close(struct core *c, struct ask *a)
{
    ask_list_remove(c, &c->asks, ask_slot(c, a));
    ask_slot_put(c, ask_slot(c, a), a->tenant);
    a->n = 0;
    touch(c);
}

bool ask_is_over(const struct core *c, const struct ask *a)
{
    return a->answered == a->npeers || a->left == 0 || c->now_ns >= a->until_ns;
}

uint32_t ask_best(const struct core *c, struct ask *a, uint32_t above)
{
    struct asked *best = NULL;

    for (uint32_t i = 0; i < a->answered; i++)
        if (a->asked[i].depth > (best ? best->depth : above) &&
            may_be_asked(c, (struct tenant_peer){a->tenant, a->asked[i].peer}))
            best = &a->asked[i];
    if (!best)
        return NONE;
    best->depth = 0;
    return best->peer;
}

/* Returns NULL if the question is over, or never existed. */
static struct ask *ask_of(const struct core *c, struct pull_id id)
{
    const uint32_t slot = id.slot - c->limits.pulls;
    struct ask *a = id.slot >= c->limits.pulls && slot < c->limits.asks ? ask_at(c, slot) : NULL;

    return a && a->n > 0 && a->gen == id.gen ? a : NULL;
}

/* Moves the peer behind earlier ones. Returns false if it was not asked, or has answered. */
static bool answers(struct ask *a, uint32_t link)
{
    for (uint32_t i = a->answered; i < a->npeers; i++) {
        if (a->asked[i].peer != link)
            continue;
        a->asked[i] = a->asked[a->answered];
        a->asked[a->answered++] = (struct asked){.peer = link};
        return true;
    }
    return false;
}

/* How much of prefix i the peer has. A daemon that does not know questions offers the first. */
static uint32_t told_of(const struct ask *a, const struct peer_msg *m, uint32_t i)
{
    if (m->err != TERN_OK)
        return 0;
    if (m->each == 0)
        return a->n == 1 ? m->to : 0;
    return i < peer_msg_tokens(m) ? m->tokens[i] : 0;
}

void ask_heard(struct core *c, uint32_t link, const struct peer_msg *m)
{
    struct ask *a = ask_of(c, m->pull);

    if (!a || !answers(a, link))
        return;
    for (uint32_t i = 0; i < a->n; i++) {
        if (a->has[i] != 0 || told_of(a, m, i) < a->each)
            continue;
        a->has[i] = (uint8_t)a->answered;
        a->left--;
    }
    a->asked[a->answered - 1].depth = told_of(a, m, 0);
    touch(c);
}

void ask_link_down(struct core *c, uint32_t link)
{
    for (uint32_t i = c->asks.head; i != NONE; i = ask_list_next(c, i))
        if (answers(ask_at(c, i), link))
            touch(c);
}

/* Answers with the hosts, and which of them has each block. */
static void answer(struct core *c, struct actions *out, const struct ask *a)
{
    struct page_ref *refs = run_add(out, (struct table_run){.n = a->n});
    struct reply *r = reply_late(out, a->reply, OP_BLOCKS, TERN_OK, "");

    r->runs = out->runs + out->nruns - 1;
    r->nruns = 1;
    r->blocks.hosts = out->hosts + out->nhosts;
    r->blocks.nhosts = a->answered;
    for (uint32_t i = 0; i < a->answered; i++)
        out->hosts[out->nhosts++] = a->asked[i].peer;
    for (uint32_t i = 0; i < a->n; i++)
        refs[i] =
            (struct page_ref){0, a->has[i] ? BLOCK_ELSEWHERE + a->has[i] - 1u : BLOCK_NOWHERE};
    c->visits += a->n / NODES_A_VISIT;
}

bool asks_flush(struct core *c, struct actions *out)
{
    for (uint32_t i = c->asks.head, next; i != NONE; i = next) {
        struct ask *a = ask_at(c, i);

        next = ask_list_next(c, i);
        if (a->reply.gen == 0 || (reply_waits(c, &a->reply) && !ask_is_over(c, a)))
            continue;
        if (actions_room(out) == 0 || out->nhosts + a->answered > HOSTS_TOLD_MAX ||
            !refs_fit(out, (struct runs_wanted){.runs = 1, .refs = a->n}))
            return false;
        if (reply_waits(c, &a->reply))
            answer(c, out, a);
        asks_close(c, a);
    }
    return true;
}

uint64_t ask_deadline(const struct core *c)
{
    uint64_t first = UINT64_MAX;

    for (uint32_t i = c->asks.head; i != NONE; i = ask_list_next(c, i))
        if (ask_at(c, i)->reply.gen > 0 && ask_at(c, i)->until_ns < first)
            first = ask_at(c, i)->until_ns;
    return first;
}
