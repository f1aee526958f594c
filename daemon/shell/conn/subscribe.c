/* See subscribe.h. */
#include "shell/conn/subscribe.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/err.h"
#include "shell/daemon.h"
#include "shell/log/log.h"
#include "shell/wire/wire_out.h"

static_assert(FRAME_HEADER_BYTES + SUBSCRIBE_OVERHEAD + SUBSCRIBE_EVENTS_MAX * WIRE_EVENT_BYTES <=
                  SEND_BUFFER_BYTES,
              "what a dead subscriber holds is a send buffer or the ends of two");
static_assert(SUBSCRIBE_EVENTS_MAX <= WIRE_EVENTS_MAX, "a frame can be read");
static_assert(CONFIG_TENANTS_MAX <= WIRE_NAMES_MAX, "all tenants can be named");

/* ---- the ring ---- */

static bool wanted(const struct event_reader *r, const struct tree_event_view *e)
{
    return !r->one_ns || (e->ns.hi == r->ns.hi && e->ns.lo == r->ns.lo);
}

/* The offset of a chunk's keys, after its tokens. */
static uint32_t keys_at(uint32_t at, uint32_t tokens)
{
    return (at + tokens * WIRE_TOKEN_BYTES + 7) / 8 * 8;
}

/* Returns false if the frame has no room for the chunk. A chunk that fits no frame is left out. */
static bool take_chunk(const struct core *core, const struct tree_event_view *e,
                       struct event_page *page)
{
    struct event_chunks *c = page->chunks;
    uint32_t head = WIRE_EVENT_BYTES + SUBSCRIBE_CHUNK_HEAD;
    uint32_t at = c->bytes, tokens = 0, keys = 0, end;

    if (e->kind != TREE_STORED || !core_event_chunk_size(core, e, &tokens, &keys) ||
        keys > SUBSCRIBE_CHUNK_BYTES / WIRE_KEY_BYTES)
        tokens = keys = 0;
    end = keys_at(at, tokens) + keys * WIRE_KEY_BYTES;
    if (page->n == 0 && (end > sizeof(c->data) || head + end > c->room))
        tokens = keys = end = 0;
    if (end > sizeof(c->data) || head + end - at > c->room)
        return false;
    c->of[page->n].at = at;
    c->of[page->n].tokens = tokens;
    c->of[page->n].keys = keys;
    if (tokens > 0)
        core_event_chunk(core, e, (uint32_t *)(void *)(c->data + at),
                         (struct extra_key *)(void *)(c->data + keys_at(at, tokens)));
    c->room -= head + end - at;
    c->bytes = end;
    return true;
}

/* Adds a change to the page if it is wanted. Returns false if it must begin the next page. */
static bool take(const struct core *core, const struct event_reader *r,
                 const struct tree_event_view *e, struct event_page *page)
{
    if (!wanted(r, e))
        return true;
    if (r->tokens && !take_chunk(core, e, page))
        return false;
    page->v[page->n++] = (struct wire_event){
        .number = e->seq,
        .chain = e->chain,
        .parent_chain = e->parent_chain,
        .ns_hi = e->ns.hi,
        .ns_lo = e->ns.lo,
        .pool = pool_id_pack((struct pool_id){.slot = e->pool, .gen = e->pool_gen}),
        .depth = e->depth,
        .tenant = r->tenant == NONE ? (uint16_t)e->tenant : 0,
        .kind = (uint8_t)e->kind,
        .tiers = (uint8_t)(e->on_device << TIER_DEVICE | e->on_host << TIER_HOST),
    };
    return true;
}

/* Reads the ring of one tenant, whose changes no other tenant can displace. */
static void read_own(const struct core *core, struct event_reader *r, struct event_page *page,
                     uint64_t numbers)
{
    struct tree_event_view e;
    uint64_t first, next;

    core_event_own_range(core, r->tenant, &first, &next);
    if (r->own == 0) {
        r->own = core_event_own_at(core, r->tenant, r->at);
        r->lost += core_event_own_lost(core, r->tenant, r->at);
    } else if (r->own < first) {
        r->lost += first - r->own;
        r->own = first;
    }
    for (uint32_t i = 0; i < SUBSCRIBE_SCAN_MAX && r->own < next && page->n < page->max; i++) {
        check(core_event_own_view(core, r->tenant, r->own, &e));
        if (!take(core, r, &e, page))
            return;
        r->at = e.seq + 1;
        r->own++;
    }
    if (r->own == next)
        r->at = numbers;
}

/* Reads the rings of all tenants in the order of numbers. A number in no ring was overwritten. */
static void read_all(const struct core *core, struct event_reader *r, struct event_page *page,
                     uint64_t numbers)
{
    uint32_t tenants = core_limits_of(core)->tenants, from = 0;
    struct tree_event_view next[CONFIG_TENANTS_MAX], *e;
    uint64_t own[CONFIG_TENANTS_MAX];

    check(tenants <= CONFIG_TENANTS_MAX);
    for (uint32_t t = 0; t < tenants; t++) {
        own[t] = core_event_own_at(core, t, r->at);
        if (!core_event_own_view(core, t, own[t], &next[t]))
            next[t].seq = numbers;
    }
    for (uint32_t i = 0; i < SUBSCRIBE_SCAN_MAX && r->at < numbers && page->n < page->max; i++) {
        for (uint32_t t = 0; t < tenants; t++)
            from = next[t].seq < next[from].seq ? t : from;
        e = &next[from];
        if (e->seq > r->at && page->n > 0)
            break; /* report lost changes before the changes that follow */
        r->lost += e->seq - r->at;
        r->at = e->seq;
        if (e->seq == numbers || !take(core, r, e, page))
            break;
        r->at++;
        if (!core_event_own_view(core, from, ++own[from], e))
            e->seq = numbers;
    }
}

uint32_t subscribe_read(const struct core *core, struct event_reader *r, struct event_page *page)
{
    uint64_t first, numbers;

    core_event_range(core, &first, &numbers);
    page->n = 0;
    if (r->tenant == NONE)
        read_all(core, r, page, numbers);
    else
        read_own(core, r, page, numbers);
    return page->n;
}

enum tern_err subscribe_init(struct daemon *d)
{
    d->subs.cap = (d->config->ntenants + 1) * SUBSCRIPTIONS_SHARE_MAX;
    d->subs.v = calloc(d->subs.cap, sizeof(*d->subs.v));
    return d->subs.v ? TERN_OK : TERN_INTERNAL;
}

void subscribe_finish(struct daemon *d)
{
    free(d->subs.v);
    d->subs.n = 0;
}

static void take_out(struct daemon *d, uint32_t i)
{
    d->subs.v[i] = d->subs.v[--d->subs.n];
}

void subscribe_forget(struct client_conn *c)
{
    for (uint32_t i = c->d->subs.n; i-- > 0;)
        if (c->d->subs.v[i].conn == c->slot)
            take_out(c->d, i);
}

/* Writes the frame into d->frame and returns its bytes; 0 if it is too large. */
static size_t encode(struct daemon *d, uint64_t request_id, const Tern__Wire__SubscribeReply *m)
{
    return wire_out_message(FRAME_SUBSCRIBE_REPLY, request_id, &m->base, d->config->frame_body_max,
                            d->frame);
}

/* Bytes of a frame's body for events and chunks. */
static uint32_t frame_room(const struct daemon *d)
{
    uint32_t most = SEND_BUFFER_BYTES - FRAME_HEADER_BYTES;

    return (d->config->frame_body_max < most ? d->config->frame_body_max : most) -
           SUBSCRIBE_OVERHEAD;
}

static uint32_t events_max(const struct daemon *d)
{
    uint32_t fit = frame_room(d) / WIRE_EVENT_BYTES;

    return fit < SUBSCRIBE_EVENTS_MAX ? fit : SUBSCRIBE_EVENTS_MAX;
}

/* Reads the next changes into d->subs and refers to them from the answer. */
static uint32_t read_changes(struct daemon *d, struct event_reader *r,
                             Tern__Wire__SubscribeReply *ret)
{
    struct subscriptions *subs = &d->subs;
    struct event_chunks *c = &subs->chunks;
    struct event_page page = {.v = subs->events, .max = events_max(d), .chunks = c};
    uint32_t n;

    c->room = frame_room(d);
    c->bytes = 0;
    n = subscribe_read(d->core, r, &page);
    for (uint32_t i = 0; i < n; i++)
        subs->events[i].number += core_event_base(d->core);
    ret->has_events = true;
    ret->events = wire_bytes(subs->events, n * sizeof(*subs->events));
    if (!r->tokens)
        return n;
    for (uint32_t i = 0; i < n; i++) {
        const uint8_t *at = c->data + c->of[i].at;
        const uint8_t *keys = c->data + keys_at(c->of[i].at, c->of[i].tokens);
        Tern__Wire__Tokens *to = &subs->chunk[i];

        tern__wire__tokens__init(to);
        to->has_tokens = c->of[i].tokens > 0;
        to->tokens = wire_bytes(at, c->of[i].tokens * WIRE_TOKEN_BYTES);
        to->has_keys = c->of[i].keys > 0;
        to->keys = wire_bytes(keys, c->of[i].keys * WIRE_KEY_BYTES);
        subs->chunk_list[i] = to;
    }
    ret->chunks = subs->chunk_list;
    ret->n_chunks = n;
    return n;
}

/* Sends the next frame of changes if the last was sent. Returns true if more can be read now. */
static bool send_changes(struct daemon *d, struct subscription *s)
{
    Tern__Wire__SubscribeReply m = TERN__WIRE__SUBSCRIBE_REPLY__INIT;
    struct client_conn *c = &d->conns.v[s->conn];
    uint64_t first, next;
    uint32_t n;
    size_t frame;

    if (c->state != CLIENT_CONN_OPEN || !stream_sent(&c->stream, s->mark) ||
        !stream_has_spare_buffer(&c->stream))
        return false; /* the loop calls again when the send has ended */
    n = read_changes(d, &s->reader, &m);
    core_event_range(d->core, &first, &next);
    if (n == 0 && s->reader.lost == 0)
        return s->reader.at < next;
    m.has_next = true;
    m.next = core_event_base(d->core) + s->reader.at;
    m.has_lost = s->reader.lost > 0;
    m.lost = s->reader.lost;
    frame = encode(d, s->request_id, &m);
    check(frame > 0);
    if (!stream_put_no_deadline(&c->stream, d->frame, frame))
        return false; /* the stream ends, and `s` with it */
    if (s->reader.lost > 0)
        log_event(LEVEL_DEBUG, "subscriber_slow", "conn=%u lost=%" PRIu64, s->conn, s->reader.lost);
    d->subs.sent += n;
    d->subs.lost += s->reader.lost;
    s->reader.lost = 0;
    s->mark = c->stream.queued_bytes;
    return false;
}

void subscribe_pump(struct daemon *d)
{
    d->subs.more = false;
    for (uint32_t i = 0; i < d->subs.n; i++)
        d->subs.more |= send_changes(d, &d->subs.v[i]);
}

/* `from` 0: the next change; 1: the oldest one kept. */
static enum tern_err find_start(const struct core *core, uint64_t from, uint64_t *ret)
{
    const uint64_t base = core_event_base(core);
    uint64_t first, next;

    core_event_range(core, &first, &next);
    *ret = from > 1 ? from - base : from == 0 ? next : 1;
    return from <= 1 || (from > base && from - base <= next) ? TERN_OK : TERN_GONE;
}

static enum tern_err start(struct daemon *d, struct client_conn *c, const struct frame_header *h,
                           const Tern__Wire__Subscribe *m, const char **ret_text)
{
    uint32_t held = 0;
    uint64_t at;

    *ret_text = "no change since the daemon's start has that number: discard the earlier changes, "
                "and subscribe from 1, which begins with the oldest change that is kept";
    TRY(find_start(d->core, m->from, &at));
    for (uint32_t i = 0; i < d->subs.n; i++)
        held += d->conns.v[d->subs.v[i].conn].tenant == c->tenant;
    *ret_text =
        "tokens are sent only on a tenant's socket, and only with `events_tokens: true` for the "
        "tenant in ternd's configuration: subscribe without tokens, or set it and restart the "
        "daemon";
    if (m->tokens && (conn_is_admin(c) || !d->config->tenants[c->tenant].events_tokens))
        return TERN_DENIED;
    *ret_text = "the tenant, or the operators, may have no more subscriptions: end one";
    if (held >= SUBSCRIPTIONS_SHARE_MAX)
        return TERN_QUOTA;
    check(d->subs.n < d->subs.cap);
    d->subs.v[d->subs.n++] = (struct subscription){
        .reader = {.at = at,
                   .tenant = c->tenant,
                   .one_ns = m->ns != NULL,
                   .tokens = m->tokens,
                   .ns = wire_in_namespace(m->ns)},
        .conn = c->slot,
        .request_id = h->request_id,
    };
    return TERN_OK;
}

/* The first answer has the position where the subscription begins. Operators also receive all
 * tenants' names, unless a small frame_body_max has no room: then they see numbers. */
static void welcome(struct daemon *d, struct client_conn *c, const struct frame_header *h)
{
    Tern__Wire__SubscribeReply m = TERN__WIRE__SUBSCRIBE_REPLY__INIT;
    struct subscription *s = &d->subs.v[d->subs.n - 1];
    char *names[CONFIG_TENANTS_MAX];
    size_t n;

    for (uint32_t i = 0; i < d->config->ntenants; i++)
        names[i] = (char *)(uintptr_t)d->config->tenants[i].name;
    m.has_next = true;
    m.next = core_event_base(d->core) + s->reader.at;
    m.tenants = names;
    m.n_tenants = conn_is_admin(c) ? d->config->ntenants : 0;
    n = encode(d, h->request_id, &m);
    if (n == 0) {
        m.n_tenants = 0;
        n = encode(d, h->request_id, &m);
    }
    check(n > 0);
    if (conn_send(c, n, NULL, 0)) /* otherwise the subscription ended with the connection */
        s->mark = c->stream.queued_bytes;
}

/* Ends a subscription: no answer to `request_id` follows this one. An unknown subscription has
 * already ended. */
static void cancel(struct daemon *d, struct client_conn *c, const struct frame_header *h,
                   uint64_t request_id)
{
    Tern__Wire__SubscribeReply m = TERN__WIRE__SUBSCRIBE_REPLY__INIT;
    size_t n;

    for (uint32_t i = d->subs.n; i-- > 0;)
        if (d->subs.v[i].conn == c->slot && d->subs.v[i].request_id == request_id)
            take_out(d, i);
    m.has_ended = true;
    m.ended = true;
    n = encode(d, h->request_id, &m);
    check(n > 0);
    conn_send(c, n, NULL, 0);
}

void subscribe_request(struct daemon *d, struct client_conn *c, const struct frame_header *h,
                       const uint8_t *body)
{
    const Tern__Wire__Subscribe *m = conn_decode(c, h, body);
    const char *text = "";
    enum tern_err err;

    if (!m)
        return;
    if (m->cancel) {
        cancel(d, c, h, m->cancel);
        return;
    }
    err = start(d, c, h, m, &text);
    if (err != TERN_OK)
        conn_send_status(c, h, err, text);
    else
        welcome(d, c, h);
}
