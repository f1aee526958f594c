/* What a subscription keeps while nobody polls: the last TERN_EVENTS_KEPT changes of each, since a
 * synchronous call has to read past them. What must stay true: `lost` always lies before the first
 * change that is kept. */
#include "internal.h"

#include <stdlib.h>
#include <string.h>

#define TIER_DEVICE_BIT 1u
#define TIER_HOST_BIT   2u

struct subscription {
    struct tern_event v[TERN_EVENTS_KEPT];
    struct tern_events kept; /* v, n, lost, next: as handed out */
    bool given;              /* `kept` was handed out: the next answer begins it anew */
    enum tern_err err;       /* not OK: it has ended */
    char text[QUICK_TEXT_MAX];
    char *names; /* owned: of the tenants, nnames times WIRE_STRING_MAX + 1 bytes; admin socket */
    uint32_t nnames;
};

struct subscription *subscription_new(void)
{
    return calloc(1, sizeof(struct subscription));
}

void subscription_free(struct subscription *sub)
{
    if (sub)
        free(sub->names);
    free(sub);
}

static void take_names(struct subscription *sub, const Tern__Wire__SubscribeReply *m)
{
    char *names = calloc(m->n_tenants, WIRE_STRING_MAX + 1);

    if (!names)
        return; /* they are for people: without them tenants have none */
    for (size_t i = 0; i < m->n_tenants; i++)
        memcpy(names + i * (WIRE_STRING_MAX + 1), m->tenants[i], strlen(m->tenants[i]));
    free(sub->names);
    sub->names = names;
    sub->nnames = (uint32_t)m->n_tenants;
}

/* One that joined since the subscription began has none here. */
static const char *name_of(const struct subscription *sub, uint32_t tenant)
{
    const char *name = tenant < sub->nnames ? sub->names + tenant * (WIRE_STRING_MAX + 1u) : NULL;

    return name && *name ? name : NULL;
}

static void take_event(struct subscription *sub, const uint8_t *bytes)
{
    struct wire_event w;

    memcpy(&w, bytes, sizeof(w));
    sub->v[sub->kept.n++] = (struct tern_event){
        .number = w.number,
        .kind = (enum tern_event_kind)w.kind,
        .depth = w.depth,
        .chain = w.chain,
        .parent_chain = w.parent_chain,
        .ns_hi = w.ns_hi,
        .ns_lo = w.ns_lo,
        .pool = w.pool,
        .on_device = w.tiers & TIER_DEVICE_BIT,
        .on_host = w.tiers & TIER_HOST_BIT,
        .tenant = name_of(sub, w.tenant),
    };
}

/* Makes room by forgetting the oldest. Where changes were missed behind some that are kept, those
 * are forgotten, too: they may have changed since. */
static void take_events(struct subscription *sub, const Tern__Wire__SubscribeReply *m)
{
    uint32_t n = (uint32_t)(m->events.len / WIRE_EVENT_BYTES), skip = 0, drop = 0;
    struct tern_events *kept = &sub->kept;

    if (n > TERN_EVENTS_KEPT)
        skip = n - TERN_EVENTS_KEPT;
    if (kept->n + n - skip > TERN_EVENTS_KEPT)
        drop = kept->n + n - skip - TERN_EVENTS_KEPT;
    if (m->lost > 0)
        drop = kept->n;
    memmove(sub->v, sub->v + drop, (kept->n - drop) * sizeof(sub->v[0]));
    kept->n -= drop;
    kept->lost += drop + skip + m->lost;
    for (uint32_t i = skip; i < n; i++)
        take_event(sub, m->events.data + (size_t)i * WIRE_EVENT_BYTES);
    kept->next = m->next;
}

static void take_error(struct subscription *sub, const Tern__Wire__Status *status)
{
    sub->err = status->err < TERN_ERR_COUNT ? (enum tern_err)status->err : TERN_INTERNAL;
    sub->text[0] = '\0';
    if (status->text)
        strncat(sub->text, status->text, sizeof(sub->text) - 1);
}

bool subscription_take(struct tern *t, struct pending *p, const uint8_t *body, uint32_t n)
{
    struct subscription *sub = p->sub;
    const Tern__Wire__SubscribeReply *m;
    const ProtobufCMessage *msg;

    if (wire_decode(&t->budget, p->type, body, n, &msg) != TERN_OK)
        return false;
    m = (const Tern__Wire__SubscribeReply *)msg;
    if (sub->given) {
        sub->given = false;
        sub->kept.n = 0;
        sub->kept.lost = 0;
    }
    if (m->n_tenants > 0 && !sub->names) /* changes that are kept borrow the names */
        take_names(sub, m);
    take_events(sub, m);
    if (m->status && m->status->err)
        take_error(sub, m->status);
    return true;
}

enum tern_err subscription_give(struct tern *t, struct pending *p, struct tern_answer *ret)
{
    struct subscription *sub = p->sub;

    sub->given = true;
    sub->kept.v = sub->v;
    *ret = (struct tern_answer){.cookie = p->cookie, .err = sub->err};
    if (sub->err == TERN_OK)
        ret->events = &sub->kept;
    else
        set_error(t, sub->err, sub->text[0] ? sub->text : NULL);
    return sub->err;
}
