/* Takes the answers to a lease's requests: pages for its stock, and results of its Steps'
 * operations. Any call that reads the socket may call it, so it sends nothing. See lease.h. */
#include "lease.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/err.h"

/* ---- pages for the stock ---- */

static bool take_pages(struct lease_group *g, const Tern__Wire__PageLeaseReply *m)
{
    size_t n = 0;

    for (size_t i = 0; i < m->n_runs; i++)
        n += m->runs[i]->refs.len / sizeof(struct tern_page);
    if (n != g->asked)
        return false;
    for (size_t i = 0; i < m->n_runs; i++) {
        size_t got = m->runs[i]->refs.len / sizeof(struct tern_page);

        memcpy(&g->page[g->n], m->runs[i]->refs.data, got * sizeof(struct tern_page));
        g->n += (uint32_t)got;
        g->held += (uint32_t)got;
    }
    return true;
}

static bool take_refill(struct tern *t, struct tern_lease *l, uint32_t group, const uint8_t *body,
                        uint32_t n)
{
    struct lease_group *g = &l->group[group];
    const Tern__Wire__PageLeaseReply *m;
    const ProtobufCMessage *msg;
    uint32_t err;

    if (wire_decode(&t->budget, FRAME_PAGE_LEASE_REPLY, body, n, &msg) != TERN_OK)
        return false;
    m = (const Tern__Wire__PageLeaseReply *)msg;
    err = m->status ? m->status->err : TERN_OK;
    g->err = err < TERN_ERR_COUNT ? (enum tern_err)err : TERN_INTERNAL;
    if (g->err == TERN_OK && !take_pages(g, m))
        return false;
    if (g->err == TERN_QUOTA && m->status->shortage && m->status->shortage->free > 0)
        g->total = m->status->shortage->free;
    if (g->err == TERN_OK)
        g->most = g->high;
    else if (g->err == TERN_POOL_EXHAUSTED || g->err == TERN_QUOTA)
        g->most = g->asked > 1 ? g->asked / 2 : 1;
    g->asked = 0;
    return true;
}

/* ---- results of operations ---- */

static size_t pages_of(const struct tern_result *r)
{
    size_t n = 0;

    for (uint32_t i = 0; i < r->nruns; i++)
        n += r->runs[i].n;
    return n;
}

/* The daemon's reason for a refusal: its text, and the numbers of the text. */
struct reason {
    const char *text;
    uint64_t numbers[2];
};

/* Keeps an answer with its runs for tern_lease_told. Returns false if there is no memory. */
static bool tell(struct tern_lease *l, uint32_t slot, const struct tern_result *r,
                 const struct reason *why, bool ends)
{
    size_t npages = pages_of(r), at = 0;
    struct lease_news *news = calloc(1, sizeof *news + r->nruns * sizeof(struct tern_run) +
                                            npages * sizeof(struct tern_page));
    struct tern_run *runs = (struct tern_run *)(void *)(news + 1);
    struct tern_page *pages;

    if (!news)
        return false;
    pages = (struct tern_page *)(void *)(runs + r->nruns);
    news->told = (struct tern_lease_told){
        .slot = slot, .session = l->slot[slot].session, .failed = ends, .result = *r};
    news->told.result.runs = runs;
    for (uint32_t i = 0; i < r->nruns; i++) {
        runs[i] = r->runs[i];
        runs[i].pages = pages + at;
        memcpy(pages + at, r->runs[i].pages, runs[i].n * sizeof *pages);
        at += runs[i].n;
    }
    strncat(news->text, why->text, sizeof news->text - 1);
    news->told.text = news->text;
    memcpy(news->told.numbers, why->numbers, sizeof why->numbers);
    *l->news_end = news;
    l->news_end = &news->next;
    l->cold[slot].news++;
    return true;
}

static void go_astray(struct tern_lease *l, const struct lease_step *s, uint32_t first,
                      const struct lease_op *op)
{
    for (uint32_t i = first; i < first + op->npages; i++)
        l->stray[l->nstray++] =
            (struct lease_stray){.page = s->page[i], .slot = op->slot, .group = s->group[i]};
    if (op->slot != UINT32_MAX)
        l->cold[op->slot].astray += op->npages;
}

static void let_go(struct tern_lease *l, const struct lease_step *s, uint32_t first, uint32_t n)
{
    for (uint32_t i = first; i < first + n; i++)
        l->group[s->group[i]].held--;
}

/* Writes the operation, the session, what the daemon has and what to do; the reason comes last,
 * because a too long text is cut at its end. */
static void say_refused(const struct lease_op *op, const struct tern_result *r, const char *why,
                        char *ret)
{
    const struct tern_lengths *has = &r->lengths;
    char asked[64], there[80] = "", rule[WORDS_WHY_MAX];

    words_why(&(struct asked){.kind = (uint8_t)op->kind, .length = op->length}, r, rule);
    if (op->kind == CLIENT_ASSIGN)
        snprintf(asked, sizeof asked, "extend to written %u, allocated %u", op->written,
                 op->length);
    else
        snprintf(asked, sizeof asked, "%s %u",
                 op->kind == CLIENT_COMMIT ? "commit of" : "rewind to", op->length);
    if (r->tokens > 0 || has->allocated > 0)
        snprintf(there, sizeof there, ", and the daemon has committed %u, written %u, allocated %u",
                 has->committed, has->written, has->allocated);
    snprintf(ret, QUICK_TEXT_MAX, "session %u of the lease: its %s is refused%s: %s. Why: %s",
             op->slot, asked, there,
             op->kind == CLIENT_COMMIT ? "the session continues"
                                       : "call tern_lease_remove with the last step that touches "
                                         "its pages, and continue from there",
             why[0] ? why : rule);
}

static bool failed(struct tern_lease *l, const struct lease_op *op, const struct tern_result *r,
                   struct reason why)
{
    const uint32_t at = op->slot;
    struct lease_cold *cold = &l->cold[at];

    if (cold->err != TERN_OK)
        return true; /* later refusals follow from the first */
    cold->err = r->err;
    say_refused(op, r, why.text, cold->text);
    memcpy(cold->numbers, why.numbers, sizeof cold->numbers);
    if (l->slot[at].state == LEASE_SLOT_LIVE)
        lease_slot_state_move(&l->slot[at].state, LEASE_SLOT_FAILED);
    why.text = cold->text;
    return tell(l, at, r, &why, true);
}

/* Takes the answer to returned pages: they are returned again if the daemon could not take them
 * now. */
static void given_back(struct tern_lease *l, const struct lease_step *s, uint32_t first,
                       const struct lease_op *op, enum tern_err err)
{
    if (err == TERN_BUSY)
        go_astray(l, s, first, op);
    else
        let_go(l, s, first, op->npages);
}

static bool committed(struct tern_lease *l, const struct lease_op *op, const struct tern_result *r,
                      struct reason why)
{
    char text[QUICK_TEXT_MAX] = "";

    if (r->err != TERN_OK)
        say_refused(op, r, why.text, text);
    why.text = text;
    return tell(l, op->slot, r, &why, false);
}

static bool answered(struct tern_lease *l, const struct lease_step *s, uint32_t first,
                     const struct lease_op *op, const struct tern_result *r,
                     const struct reason *why)
{
    switch (op->kind) {
    case CLIENT_UNLEASE: given_back(l, s, first, op, r->err); return true;
    case CLIENT_COMMIT: return committed(l, op, r, *why);
    case CLIENT_ASSIGN:
        if (r->err == TERN_OK)
            let_go(l, s, first, op->npages);
        else
            go_astray(l, s, first, op);
        break;
    default: break;
    }
    return r->err == TERN_OK || failed(l, op, r, *why);
}

void slot_rests(struct tern_lease *l, uint32_t at)
{
    const struct lease_cold *c = &l->cold[at];

    if (l->slot[at].state == LEASE_SLOT_LEAVING && c->under_way == 0 && c->astray == 0 &&
        c->news == 0 && !c->commits) {
        lease_slot_state_move(&l->slot[at].state, LEASE_SLOT_FREE);
        leased_again(l);
    }
}

/* A call that waits for another answer may have runs in the store already (`more`): they stay
 * unchanged, and tell() keeps those of this answer. */
static bool take_step(struct tern *t, struct tern_lease *l, struct lease_step *s,
                      const uint8_t *body, uint32_t n)
{
    const uint32_t nruns = t->store.nruns, npages = t->store.npages, was_at = t->store.at,
                   texts_end = t->store.texts_end, at = t->store.more ? TERN_BATCH_OPS_MAX : 0;
    uint32_t done, first = 0;
    enum tern_err err;
    bool told = true;

    t->store.at = at;
    if (!quick_step_get(body, n, &t->store, t->results, s->nops, &done, &err))
        return false;
    for (uint32_t i = 0; i < s->nops; i++) {
        const struct tern_result all = {.err = err != TERN_OK ? err : TERN_INTERNAL};
        const struct tern_result *r = i < done ? &t->results[at + i] : &all;
        struct reason why = {i < done ? t->store.texts + t->store.text_at[at + i] : t->store.text,
                             {t->store.numbers[0], t->store.numbers[1]}};

        if (i < done)
            quick_numbers(&t->store, at + i, why.numbers);
        told = answered(l, s, first, &s->op[i], r, &why) && told;
        if (s->op[i].slot != UINT32_MAX) {
            l->cold[s->op[i].slot].under_way--;
            l->cold[s->op[i].slot].rewinds -= s->op[i].kind == CLIENT_REWIND;
            slot_rests(l, s->op[i].slot);
        }
        first += s->op[i].npages;
    }
    t->store.at = was_at;
    if (t->store.more) {
        t->store.nruns = nruns;
        t->store.npages = npages;
        t->store.texts_end = texts_end;
    }
    s->used = false;
    return told;
}

bool stock_take(struct tern *t, struct pending *p, const uint8_t *body, uint32_t n)
{
    struct tern_lease *l = p->lease;
    bool taken = p->lease_part >= LEASE_REFILL
                     ? take_refill(t, l, p->lease_part - LEASE_REFILL, body, n)
                     : take_step(t, l, &l->step[p->lease_part], body, n);

    check(l->under_way > 0);
    l->under_way--;
    t->text[0] = '\0';
    t->nresults = 0;
    return taken;
}
