/* The causes of a BUSY answer: each refusal names its cause, and the model checks the cause as far
 * as it knows its subject. An unknown cause is a violation, so BUSY excuses nothing by itself. The
 * texts are the core's own constants, so a new wording is no new cause. */
#include "causes.h"

#include "core/arena/shares.h"
#include "core/busy.h"
#include "disk.h"
#include "records.h"
#include "state.h"
#include "tickets.h"

static bool says(const struct reply *r, const char *text)
{
    return r->err == TERN_BUSY && strcmp(r->text, text) == 0;
}

static bool any_copy_or_seal(const struct daemon *m)
{
    for (uint32_t i = 0; i < m->njobs; i++)
        if (m->job[i].kind != JOB_ZERO)
            return true;
    return false;
}

bool busy_for_stores(struct sim *w, uint32_t d, uint32_t tenant, const char *text)
{
    if (!text || strcmp(text, STORED_FIRST) != 0)
        return false;
    EXPECT(disk_has_part(w, d, tenant), "busy_for_nothing", "%s", text);
    return true;
}

/* Eviction in pieces, pages that checksum jobs or copies use, or pages of tickets that ended. The
 * model does not see the copies that the core begins in this step. */
static bool room_is_made(const struct sim *w, uint32_t d, const struct session *s)
{
    return w->cfg.give_back || any_copy_or_seal(&w->d[d]) ||
           (w->cfg.ticket_ms && w->tickets[d]->closing) ||
           (w->cfg.host_behind && w->d[d].pool[s->pool].hgranules > 0);
}

/* Records of releases: only a small table can be used up, by releases that wait for a step. */
static bool retires_full(const struct sim *w)
{
    return w->cfg.tight == 3;
}

/* A reset that was begun here, or at the peer, which spreads it in its turn. */
static bool resets_spread(const struct sim *w)
{
    for (uint32_t d = 0; d < DAEMONS; d++)
        for (uint32_t i = 0; i < TENANTS * NAMESPACES; i++)
            if (w->d[d].own_reset[i / NAMESPACES][i % NAMESPACES] >
                w->d[d].heard_reset[i / NAMESPACES][i % NAMESPACES])
                return true;
    return false;
}

/* Does a chunk of the session's list, or STATE of one, wait for its step? */
static bool path_pending(struct sim *w, uint32_t d, const struct session *s)
{
    for (uint32_t k = 1; k * w->L <= s->ntokens; k++) {
        const struct chunk *c = chunk_at(w, d, s->pool, s->space, s->variant, k);

        if (c->present && !chunk_visible(w, d, c))
            return true;
        for (STATE_GROUPS(w, g))
            if (c->present && !state_visible_of(w, d, c, g))
                return true;
    }
    return false;
}

static bool pull_cause_holds(const struct sim *w, uint32_t d, const struct session *s,
                             enum pull_busy why)
{
    switch (why) {
    case PULL_BUSY_QUEUE: return s->fetch_behind;
    case PULL_BUSY_SOURCE: return s->fetch_source_busy;
    case PULL_BUSY_LAYOUTS: return w->cfg.heads > 0;
    case PULL_BUSY_RETIRES: return retires_full(w);
    case PULL_BUSY_NODES: return !w->ample;
    case PULL_BUSY_BLOB: return !w->ample && w->cfg.ticket_ms;
    case PULL_BUSY_ROOM: return room_is_made(w, d, s);
    case PULL_BUSY_STORES: return disk_has_part(w, d, s->tenant);
    case PULL_BUSY_STATE: return w->cfg.nstate > 0;
    }
    return false;
}

/* PULL_BUSY_..., or NO. */
static uint32_t pull_cause(const struct reply *r)
{
#define X(name, text) text,
    static const char *const texts[] = {PULL_BUSY_TABLE(X)}, *const said[] = {TICKET_BUSY_TABLE(X)};
#undef X

    for (uint32_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
        if (says(r, texts[i]))
            return i;
    for (uint32_t i = 0; i < sizeof said / sizeof said[0]; i++)
        if (says(r, said[i]))
            return PULL_BUSY_SOURCE;
    return says(r, TICKET_STILL_RUNS) ? PULL_BUSY_SOURCE : NO;
}

bool busy_of_pull(const struct reply *r)
{
    return pull_cause(r) != NO;
}

bool busy_for_records(const struct reply *r)
{
    uint32_t why = pull_cause(r);

    return why == PULL_BUSY_RETIRES || why == PULL_BUSY_NODES;
}

/* Loads from the host tier. */
static bool load_cause_holds(struct sim *w, uint32_t d, const struct session *s,
                             const struct reply *r)
{
    const struct daemon *m = &w->d[d];

    if (says(r, LOAD_AWAITS_COMMIT))
        return path_pending(w, d, s);
    if (says(r, LOAD_AWAITS_COPY))
        return w->cfg.give_back || any_copy_or_seal(m);
    if (says(r, LOAD_COPY_FAILED))
        return m->copies_failed > 0;
    if (says(r, MAKING_ROOM))
        return room_is_made(w, d, s);
    if (busy_for_stores(w, d, s->tenant, r->text))
        return true;
    return says(r, share_refused(SHARE_RETIRES)) && retires_full(w) && s->fetch_tail;
}

void check_busy_fetch(struct sim *w, uint32_t d, const struct session *s, const struct reply *r)
{
    uint32_t pull = pull_cause(r);
    bool load = s->fetch_host && !s->fetch_bad_peer;

    if (says(r, share_refused(SHARE_ASKS)) && s->fetch_any)
        check_asks_full(w, d, s);
    else if (says(r, share_refused(SHARE_PULLS)) && !load)
        check_pulls_full(w, d, s->tenant);
    else if (pull != NO && !load)
        EXPECT(pull_cause_holds(w, d, s, (enum pull_busy)pull), "busy_for_nothing", "%s", r->text);
    else if (says(r, PEER_HEARS_RESETS))
        EXPECT(!s->fetch_disk && resets_spread(w), "busy_for_nothing", "%s", r->text);
    else if (says(r, RELEASING))
        EXPECT(w->cfg.give_back, "busy_for_nothing", "%s", r->text);
    else
        EXPECT(load && load_cause_holds(w, d, s, r), "busy_for_nothing", "%s", r->text);
}

void check_busy_recover(struct sim *w, uint32_t d, const struct session *s, const struct reply *r)
{
    EXPECT(load_cause_holds(w, d, s, r) || (says(r, RELEASING) && w->cfg.give_back),
           "busy_for_nothing", "%s", r->text);
}

/* Stores that nobody asked for have records, too, and the model does not know the stores that are
 * due: it cannot know whether the table is full. */
void check_busy_store(struct sim *w, uint32_t d, const struct reply *r)
{
    EXPECT((says(r, STORE_TIME_OVER) && disk_shutting(w, d)) ||
               says(r, share_refused(SHARE_DISK_STORES)) ||
               (says(r, RELEASING) && w->cfg.give_back),
           "busy_for_nothing", "%s", r->text);
}

void check_busy_handoff(struct sim *w, uint32_t d, const struct session *s,
                        const struct req_handoff *h, const struct reply *r)
{
    uint32_t step = late_step(s, (uint32_t)h->step);

    if (says(r, share_refused(SHARE_RETIRES)))
        EXPECT(step > w->d[d].engine[s->engine].min_done, "handoff_busy",
               "BUSY at step %u, all have done %u", step, w->d[d].engine[s->engine].min_done);
    else if (says(r, RELEASING))
        EXPECT(w->cfg.give_back, "busy_for_nothing", "%s", r->text);
    else if (says(r, SPARES_TOO_MANY))
        EXPECT(w->cfg.give_back, "busy_for_nothing", "%s", r->text);
    else
        EXPECT(says(r, share_refused(SHARE_TOKEN_BLOCKS)) && h->blob_bytes > 0 && !w->ample,
               "busy_for_nothing", "%s", r->text);
}
