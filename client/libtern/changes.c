/* The changes that a subscription keeps until tern_poll: the last TERN_EVENTS_KEPT, because a
 * synchronous call has to read past them. Invariant: changes counted in `lost` come before the
 * first kept change. */
#include "internal.h"

#include <stdlib.h>
#include <string.h>

#define TIER_DEVICE_BIT 1u
#define TIER_HOST_BIT   2u

struct subscription {
    struct tern_event v[TERN_EVENTS_KEPT]; /* the tokens of each, with keys behind them, are
                                              owned */
    size_t chunks;                         /* bytes of them all */
    struct tern_events kept;               /* v, n, lost, next: as returned by tern_poll */
    bool given;                            /* `kept` was returned: the next answer begins it anew */
    enum tern_err err;                     /* not OK: it has ended */
    char text[QUICK_TEXT_MAX];
    char *names; /* owned: names of tenants, nnames times WIRE_STRING_MAX + 1 bytes; admin socket */
    uint32_t nnames;
};

struct subscription *subscription_new(void)
{
    return calloc(1, sizeof(struct subscription));
}

/* Returns the bytes of a chunk's tokens, rounded up so that keys can follow them. */
static size_t token_bytes(uint32_t n)
{
    return ((size_t)n * WIRE_TOKEN_BYTES + 7) / 8 * 8;
}

static size_t chunk_bytes(uint32_t tokens, uint32_t keys)
{
    return token_bytes(tokens) + (size_t)keys * WIRE_KEY_BYTES;
}

static uint32_t told_tokens(const Tern__Wire__Tokens *m)
{
    return (uint32_t)(m->tokens.len / WIRE_TOKEN_BYTES);
}

static uint32_t told_keys(const Tern__Wire__Tokens *m)
{
    return (uint32_t)(m->keys.len / WIRE_KEY_BYTES);
}

/* Drops the oldest n. */
static void forget(struct subscription *sub, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        sub->chunks -= chunk_bytes(sub->v[i].ntokens, sub->v[i].nkeys);
        free((void *)(uintptr_t)sub->v[i].tokens);
    }
    memmove(sub->v, sub->v + n, (sub->kept.n - n) * sizeof(sub->v[0]));
    sub->kept.n -= n;
}

void subscription_free(struct subscription *sub)
{
    if (sub) {
        forget(sub, sub->kept.n);
        free(sub->names);
    }
    free(sub);
}

static void take_names(struct subscription *sub, const Tern__Wire__SubscribeReply *m)
{
    char *names = calloc(m->n_tenants, WIRE_STRING_MAX + 1);

    if (!names)
        return; /* names only help people: without memory tenants have none */
    for (size_t i = 0; i < m->n_tenants; i++)
        memcpy(names + i * (WIRE_STRING_MAX + 1), m->tenants[i], strlen(m->tenants[i]));
    free(sub->names);
    sub->names = names;
    sub->nnames = (uint32_t)m->n_tenants;
}

/* A tenant that joined after the subscription began has no name here. */
static const char *name_of(const struct subscription *sub, uint32_t tenant)
{
    const char *name = tenant < sub->nnames ? sub->names + tenant * (WIRE_STRING_MAX + 1u) : NULL;

    return name && *name ? name : NULL;
}

/* False: there is no memory. */
static bool take_chunk(struct subscription *sub, const Tern__Wire__Tokens *m,
                       struct tern_event *event)
{
    uint32_t tokens = told_tokens(m), keys = told_keys(m);
    char *at;

    if (tokens == 0)
        return true;
    at = malloc(chunk_bytes(tokens, keys));
    if (!at)
        return false;
    memcpy(at, m->tokens.data, m->tokens.len);
    if (keys > 0)
        memcpy(at + token_bytes(tokens), m->keys.data, m->keys.len);
    event->tokens = (const uint32_t *)(void *)at;
    event->keys = (const struct tern_extra_key *)(void *)(at + token_bytes(tokens));
    event->ntokens = tokens;
    event->nkeys = keys;
    sub->chunks += chunk_bytes(tokens, keys);
    return true;
}

/* False: there is no memory. */
static bool take_event(struct subscription *sub, const Tern__Wire__SubscribeReply *m, uint32_t i)
{
    struct wire_event w;
    struct tern_event event;

    memcpy(&w, m->events.data + (size_t)i * WIRE_EVENT_BYTES, sizeof(w));
    event = (struct tern_event){
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
    if (m->n_chunks > 0 && !take_chunk(sub, m->chunks[i], &event))
        return false;
    sub->v[sub->kept.n++] = event;
    return true;
}

static size_t told_bytes(const Tern__Wire__SubscribeReply *m, uint32_t i)
{
    return m->n_chunks > 0 ? chunk_bytes(told_tokens(m->chunks[i]), told_keys(m->chunks[i])) : 0;
}

/* Makes room by dropping the oldest. If changes were missed behind some that are kept, the kept
 * ones are dropped, too, because they may be outdated. Returns false if there is no memory. */
static bool take_events(struct subscription *sub, const Tern__Wire__SubscribeReply *m)
{
    uint32_t n = (uint32_t)(m->events.len / WIRE_EVENT_BYTES), skip = n, drop = 0;
    struct tern_events *kept = &sub->kept;
    size_t told = 0, left = sub->chunks;

    while (skip > 0 && n - skip < TERN_EVENTS_KEPT &&
           told + told_bytes(m, skip - 1) <= TERN_CHUNKS_KEPT)
        told += told_bytes(m, --skip);
    while (drop < kept->n &&
           (kept->n - drop + n - skip > TERN_EVENTS_KEPT || left + told > TERN_CHUNKS_KEPT)) {
        left -= chunk_bytes(sub->v[drop].ntokens, sub->v[drop].nkeys);
        drop++;
    }
    if (m->lost > 0 || skip > 0)
        drop = kept->n;
    forget(sub, drop);
    kept->lost += drop + skip + m->lost;
    for (uint32_t i = skip; i < n; i++)
        if (!take_event(sub, m, i))
            return false;
    kept->next = m->next;
    return true;
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
        forget(sub, sub->kept.n);
        sub->kept.lost = 0;
    }
    if (m->n_tenants > 0 && !sub->names) /* kept changes borrow the names */
        take_names(sub, m);
    if ((m->n_chunks > 0 && m->n_chunks != m->events.len / WIRE_EVENT_BYTES) ||
        !take_events(sub, m))
        return false;
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
