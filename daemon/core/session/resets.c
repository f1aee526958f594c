/* Resets of namespaces spread to all daemons that this one could fetch from, directly or through
 * others (N1). A reset is sent on the link on which we fetch, before any later fetch, so that no
 * peer offers what was committed earlier. Each receiver resets its own namespace, sends the reset
 * to its own peers, and answers when they have answered. Called by the core's step.
 *
 * Invariant: the engine that began a reset is told of complete success only when each daemon that
 * old pages could come from has reset the namespace. A peer that is not connected is remembered,
 * and receives the reset when it is. A peer that confirmed only in part receives it again after its
 * link was lost, because it may have forgotten.
 *
 * Invariant: a reset takes effect once at a daemon, and never after a later one of the same origin.
 * The incarnation where it began and its number there order resets; the record of the last one
 * carried out stays while there is room. So a message that is late, repeated or out of order
 * removes nothing. A listed peer is trusted here, as it is with the bytes of pages.
 *
 * Invariant: a daemon waits only for daemons farther from the origin than itself (`hops`), so no
 * circle of daemons waits for one another. */
#include "core/session/resets.h"

#include <string.h>

#include "base/hash.h"
#include "core/disk/entries.h"
#include "core/tree/nodes.h"

static bool waited_for(const struct reset *r)
{
    return r->state == RESET_ASKED;
}

/* Returns true while the reset is spreading. */
static bool spreads(const struct reset *r)
{
    return r->state == RESET_ASKED || r->state == RESET_OWED;
}

/* Returns true if the same daemon began both, in the same namespace, and `r` first. Origin 0: the
 * peer's version does not send it. */
static bool is_before(const struct reset *r, const struct reset *later)
{
    return later->origin != 0 && r->origin == later->origin && r->number < later->number &&
           r->tenant == later->tenant && r->ns.hi == later->ns.hi && r->ns.lo == later->ns.lo;
}

/* Marks the reset: only a marked one has its peers examined, as there may be thousands of them. */
static void reset_changed(struct core *c, struct reset *r)
{
    c->resets_due += !r->due;
    r->due = 1;
}

/* Starts the time for peers' answers: equal for all resets, so the first to wait ends first. */
static void reset_wait(struct core *c, struct reset *r)
{
    r->until_ns = c->now_ns + RESET_WAIT_MS_MAX * NS_PER_MS;
    if (c->resets_until_ns == 0)
        c->resets_until_ns = r->until_ns;
}

static void reset_settled(struct core *c, struct reset *r)
{
    c->resets_due -= r->due;
    r->due = 0;
}

/* to: OVER; or EMPTY if some peers have not confirmed, or no other peer can send it to us. */
static void reset_end(struct core *c, struct reset *r, enum reset_state to)
{
    reset_settled(c, r);
    share_put(c, SHARE_RESETS, r->tenant);
    reset_state_move(&r->state, to);
    r->link = NONE;
    r->until_ns = to == RESET_OVER ? c->now_ns : 0;
    c->nspreading--;
    touch(c);
}

static void say_done(struct actions *out, uint32_t link, uint64_t id, enum tern_err err)
{
    struct peer_msg *m = peer_msg_add(out, link, PEER_RESET_DONE);

    m->reset = id;
    m->err = err;
}

/* A reset that begins here replaces one from a peer if the tenant has no other record: no peer can
 * make a tenant's own reset fail. That peer receives BUSY. */
static void room_make(struct core *c, struct actions *out, uint32_t tenant)
{
    for (uint32_t i = 0; i < c->limits.resets && share_room(c, SHARE_RESETS, tenant) == 0; i++) {
        struct reset *r = reset_at(c, i);

        if (!spreads(r) || r->own ||
            (r->tenant != tenant && share_common(share_holder(c, SHARE_RESETS, r->tenant)) == 0))
            continue;
        if (r->link != NONE)
            say_done(out, r->link, r->id, TERN_BUSY);
        reset_end(c, r, RESET_EMPTY);
    }
}

static void all_hear_anew(struct core *c, struct reset *r)
{
    for (uint32_t p = 0; p < c->limits.peers; p++)
        if (!link_at(c, p)->vacant && heard_of(c, r, p)->state == HEARD_ALL)
            heard_state_move(&heard_of(c, r, p)->state, HEARD_NOTHING);
}

/* Returns NULL if the tenant has all its records, each remembered for absent peers. `as` replaces
 * those that the same daemon began before it in the same namespace; those that somebody waits for
 * end with it (earlier_over). One of another daemon stays: a peer may have received `as` before
 * that one began, and would keep what it committed in between. */
static struct reset *reset_take(struct core *c, const struct reset *as)
{
    struct reset *found = NULL;

    for (uint32_t i = 0; i < c->limits.resets; i++) {
        struct reset *r = reset_at(c, i);

        if (r->state == RESET_OWED && r->link == NONE && is_before(r, as))
            reset_end(c, r, RESET_EMPTY);
        if (!spreads(r) && (!found || r->until_ns < found->until_ns))
            found = r; /* an empty one, or the one over for longest */
    }
    if (!found || share_room(c, SHARE_RESETS, as->tenant) == 0)
        return NULL;
    share_take(c, SHARE_RESETS, as->tenant);
    *found = *as;
    reset_state_move(&found->state, RESET_ASKED);
    for (uint32_t p = 0; p < c->limits.peers; p++) {
        *heard_of(c, found, p) = (struct heard){0};
        if (link_at(c, p)->vacant)
            heard_state_move(&heard_of(c, found, p)->state, HEARD_ALL);
    }
    c->nspreading++;
    reset_wait(c, found);
    reset_changed(c, found);
    touch(c);
    return found;
}

/* Returns a later reset of the same origin that this daemon carried out, preferably one that is
 * over; or NULL. */
static const struct reset *reset_later(const struct core *c, const struct reset *than)
{
    const struct reset *found = NULL;

    for (uint32_t i = 0; i < c->limits.resets; i++) {
        const struct reset *r = reset_at(c, i);

        if (r->state != RESET_EMPTY && is_before(than, r) && (!found || r->state == RESET_OVER))
            found = r;
    }
    return found;
}

/* A daemon that carried `r` out needs none of the resets that began before it. */
static void earlier_over(struct core *c, const struct reset *r)
{
    for (uint32_t i = 0; i < c->limits.resets; i++) {
        struct reset *e = reset_at(c, i);

        if (!is_before(e, r) || e->state == RESET_EMPTY)
            continue;
        if (e->state == RESET_OVER) {
            reset_state_move(&e->state, RESET_EMPTY);
            e->until_ns = 0;
            continue;
        }
        for (uint32_t p = 0; p < c->limits.peers; p++)
            heard_state_move(&heard_of(c, e, p)->state, HEARD_ALL);
        reset_changed(c, e);
    }
}

/* A peer can compute others' ids, so an id alone identifies no reset. */
static struct reset *reset_told(struct core *c, const struct peer_msg *m)
{
    for (uint32_t i = 0; i < c->limits.resets; i++) {
        struct reset *r = reset_at(c, i);

        if (r->state != RESET_EMPTY && r->id == m->reset && r->tenant == m->tenant &&
            r->ns.hi == m->ns.hi && r->ns.lo == m->ns.lo)
            return r;
    }
    return NULL;
}

/* Returns the reset with that id that this peer received and has not confirmed in full. */
static struct reset *reset_awaited(struct core *c, uint32_t link, uint64_t id)
{
    for (uint32_t i = 0; i < c->limits.resets; i++) {
        struct reset *r = reset_at(c, i);

        if (spreads(r) && r->id == id && heard_of(c, r, link)->state != HEARD_NOTHING &&
            heard_of(c, r, link)->state != HEARD_ALL)
            return r;
    }
    return NULL;
}

/* N1, on every tier. Returns the number of nodes before. */
static uint32_t reset_here(struct core *c, uint32_t tenant, struct namespace_id ns)
{
    disk_reset(c, tenant, ns);
    return spaces_reset(c, tenant, ns);
}

/* Returns true if there are no peers, and the disk has nothing left that a restart could find. */
static bool is_over_at_once(const struct core *c, uint32_t tenant)
{
    return c->members == 0 && tenant_at(c, tenant)->disk_resets == 0;
}

enum tern_err request_reset(struct core *c, struct call *call, struct reply *ret)
{
    const struct request *req = call->req;
    uint32_t tenant = call->engine->tenant;
    struct reset *r;

    if (c->members == 0) {
        ret->namespace_reset.nodes = reset_here(c, tenant, req->namespace_reset.ns);
        if (is_over_at_once(c, tenant))
            return TERN_OK;
    }
    room_make(c, call->out, tenant);
    r = reset_take(c, &(struct reset){.own = 1,
                                      .tenant = tenant,
                                      .ns = req->namespace_reset.ns,
                                      .id = hash_mix(c->incarnation, c->resets_begun + 1),
                                      .origin = c->incarnation,
                                      .number = c->resets_begun + 1,
                                      .link = NONE});
    if (!r)
        return refuse(ret, TERN_BUSY, share_refused(SHARE_RESETS));
    c->resets_begun++;
    r->nodes = c->members == 0 ? ret->namespace_reset.nodes : reset_here(c, tenant, r->ns);
    r->reply = call_later(call);
    return TERN_OK;
}

bool reset_is_due(const struct core *c, uint32_t link)
{
    for (uint32_t i = 0; i < c->limits.resets && c->nspreading > 0; i++)
        if (spreads(reset_at(c, i)) && heard_of(c, reset_at(c, i), link)->state == HEARD_NOTHING)
            return true;
    return false;
}

/* A peer sends a reset that we have. If it is as near to the origin as the peer that we answer, or
 * nearer, it may wait for the whole answer: our own peers may not have confirmed yet, and the disk
 * may still have what was reset. We may be waiting for any other peer. Such a peer need not wait
 * for us, because a nearer peer does. */
static void told_again(struct core *c, struct actions *out, uint32_t link, struct reset *r,
                       uint32_t hops)
{
    if (!spreads(r) || r->own || r->hops < hops || (r->hops == hops && r->link != NONE)) {
        say_done(out, link, r->id, TERN_OK);
        return;
    }
    if (r->link != NONE)
        say_done(out, r->link, r->id, TERN_OK);
    if (r->state == RESET_OWED) {
        reset_state_move(&r->state, RESET_ASKED);
        reset_wait(c, r);
    }
    if (hops < r->hops) /* some did not wait for us because we were farther than they were */
        all_hear_anew(c, r);
    r->hops = hops;
    r->link = link;
    reset_changed(c, r);
    touch(c);
}

static void told(struct core *c, struct actions *out, uint32_t link, const struct peer_msg *msg)
{
    const struct reset as = {.tenant = msg->tenant,
                             .ns = msg->ns,
                             .id = msg->reset,
                             .origin = msg->origin,
                             .number = msg->number,
                             .hops = msg->hops,
                             .link = link,
                             .reply = {.trace_id = msg->trace_id}};
    struct reset *r = reset_told(c, msg);
    const struct reset *later;

    if (msg->tenant >= c->limits.tenants || msg->origin == c->incarnation) {
        say_done(out, link, msg->reset, TERN_OK); /* our own was carried out before it was sent */
        return;
    }
    if (r) {
        told_again(c, out, link, r, msg->hops);
        return;
    }
    later = reset_later(c, &as);
    if (!later)
        reset_here(c, msg->tenant, msg->ns);
    if (later && later->state == RESET_OVER)
        say_done(out, link, msg->reset, TERN_OK);
    else if (!reset_take(c, &as))
        say_done(out, link, msg->reset, TERN_BUSY);
}

void reset_msg(struct core *c, struct actions *out, uint32_t link, const struct peer_msg *msg)
{
    struct reset *r;

    if (msg->kind == PEER_RESET) {
        told(c, out, link, msg);
        return;
    }
    r = reset_awaited(c, link, msg->reset);
    if (!r)
        return; /* too late */
    heard_state_move(&heard_of(c, r, link)->state, msg->err == TERN_OK ? HEARD_ALL : HEARD_PARTLY);
    reset_changed(c, r);
    touch(c);
}

void reset_link_up(struct core *c, uint32_t link)
{
    for (uint32_t i = 0; link < c->limits.peers && i < c->limits.resets && c->nspreading > 0; i++)
        if (spreads(reset_at(c, i)))
            reset_changed(c, reset_at(c, i));
}

void reset_link_down(struct core *c, uint32_t link)
{
    for (uint32_t i = 0; i < c->limits.resets && c->nspreading > 0; i++) {
        struct reset *r = reset_at(c, i);

        if (!spreads(r))
            continue;
        if (link < c->limits.peers && heard_of(c, r, link)->state != HEARD_ALL) {
            heard_state_move(&heard_of(c, r, link)->state, HEARD_NOTHING);
            reset_changed(c, r);
        }
        if (r->link == link)
            r->link = NONE;
    }
}

void reset_peer_changed(struct core *c, uint32_t peer)
{
    enum heard_state to = link_at(c, peer)->vacant ? HEARD_ALL : HEARD_NOTHING;

    for (uint32_t i = 0; i < c->limits.resets && c->nspreading > 0; i++) {
        struct reset *r = reset_at(c, i);

        if (!spreads(r))
            continue;
        heard_state_move(&heard_of(c, r, peer)->state, to);
        reset_changed(c, r);
    }
}

static void tell(struct core *c, struct actions *out, const struct reset *r, uint32_t peer)
{
    struct peer_msg *m = peer_msg_add(out, peer, PEER_RESET);

    m->reset = r->id;
    m->origin = r->origin;
    m->number = r->number;
    m->hops = r->own || r->hops == UINT32_MAX ? r->hops : r->hops + 1;
    m->trace_id = r->reply.trace_id;
    m->tenant = r->tenant;
    m->ns = r->ns;
    heard_state_move(&heard_of(c, r, peer)->state, HEARD_TOLD);
    touch(c);
}

static void answer(const struct core *c, struct actions *out, struct reset *r, uint32_t unreached)
{
    if (reply_waits(c, &r->reply)) {
        struct reply *reply = reply_late(out, r->reply, OP_NAMESPACE_RESET, TERN_OK, "");

        reply->namespace_reset.nodes = r->nodes;
        reply->namespace_reset.unreached = unreached;
        r->reply.gen = 0;
    }
    if (r->link != NONE)
        say_done(out, r->link, r->id, unreached ? TERN_PEER_LOST : TERN_OK);
}

/* Returns false if the actions have no room. */
static bool spread(struct core *c, struct actions *out, struct reset *r)
{
    const bool late = waited_for(r) && c->now_ns >= r->until_ns;
    uint32_t waiting = 0, unreached = 0;

    for (uint32_t p = 0; p < c->limits.peers; p++) {
        if (heard_of(c, r, p)->state == HEARD_NOTHING && link_at(c, p)->up) {
            if (actions_room(out) < 3)
                return false;
            tell(c, out, r, p);
        }
        if (late && heard_of(c, r, p)->state == HEARD_TOLD)
            heard_state_move(&heard_of(c, r, p)->state, HEARD_PARTLY);
        waiting += heard_of(c, r, p)->state == HEARD_TOLD;
        unreached +=
            heard_of(c, r, p)->state == HEARD_NOTHING || heard_of(c, r, p)->state == HEARD_PARTLY;
    }
    if (tenant_at(c, r->tenant)->disk_resets > 0)
        return true; /* examined again when the disk has dropped all of it */
    if (waiting > 0 || (unreached > 0 && !waited_for(r)))
        return true;
    if (actions_room(out) < 2)
        return false;
    answer(c, out, r, unreached);
    if (unreached == 0) {
        earlier_over(c, r);
        reset_end(c, r, r->own ? RESET_EMPTY : RESET_OVER);
    } else {
        reset_state_move(&r->state, RESET_OWED);
    }
    touch(c);
    return true;
}

/* Marks the resets whose peers' time is over. */
static void resets_expire(struct core *c)
{
    if (c->resets_until_ns == 0 || c->now_ns < c->resets_until_ns)
        return;
    c->resets_until_ns = 0;
    for (uint32_t i = 0; i < c->limits.resets; i++) {
        struct reset *r = reset_at(c, i);

        if (!waited_for(r))
            continue;
        if (c->now_ns >= r->until_ns)
            reset_changed(c, r);
        else if (c->resets_until_ns == 0 || r->until_ns < c->resets_until_ns)
            c->resets_until_ns = r->until_ns;
    }
}

bool reset_spread(struct core *c, struct actions *out)
{
    resets_expire(c);
    for (uint32_t i = 0; c->disk_resets_over && i < c->limits.resets; i++)
        if (spreads(reset_at(c, i)))
            reset_changed(c, reset_at(c, i));
    c->disk_resets_over = 0;
    for (uint32_t i = 0; i < c->limits.resets && c->resets_due > 0; i++) {
        struct reset *r = reset_at(c, i);

        if (!r->due)
            continue;
        if (visits_left(c) == 0)
            return false;
        c->visits += c->limits.peers;
        if (spread(c, out, r))
            reset_settled(c, r);
    }
    return c->resets_due == 0;
}
