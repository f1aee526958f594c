/* The model of a fleet: when the content that each daemon may find was computed, and which resets
 * each has carried out. Time is a count of events. */
#include "world.h"

static void least(uint64_t *stamp, uint64_t other)
{
    if (other && (!*stamp || other < *stamp))
        *stamp = other;
}

uint32_t fmodel_found(const struct fdaemon *d, uint32_t space, uint32_t variant)
{
    static struct rig_session like;

    like.rig = d->rig;
    like.pool = d->pool;
    like.conn = d->e.conn[0];
    like.ns = (struct namespace_id){.hi = 1, .lo = space};
    return rig_depth(&like, fw.tokens[variant], FLEET_TOKENS);
}

/* --- what is where --- */

/* From now on the fetched content may be found at the session's daemon. */
static void comes(struct fdaemon *d, const struct fask *a, const fstamps from)
{
    if (a->epoch != d->epoch[a->space])
        return;
    for (uint32_t u = 0; u < FLEET_UNITS; u++) {
        least(&d->may[a->space][a->variant][u], from[a->space][a->variant][u]);
        least(&d->disk[a->space][a->variant][u], from[a->space][a->variant][u]);
    }
}

void fmodel_committed(struct fdaemon *d, uint32_t space, uint32_t variant, uint32_t tokens)
{
    for (uint32_t u = 0; u * FLEET_UNIT < tokens; u++) {
        if (!d->may[space][variant][u])
            d->may[space][variant][u] = fw.clock;
        least(&d->disk[space][variant][u], d->may[space][variant][u]);
    }
    if (fw.cfg.ample && d->sure[space][variant] < tokens / FLEET_UNIT)
        d->sure[space][variant] = (uint8_t)(tokens / FLEET_UNIT);
    for (uint32_t i = 0; i < FLEET * FLEET_ASKS; i++) { /* a follower gets it, too */
        struct fdaemon *to = &fw.d[i / FLEET_ASKS];
        struct fask *a = &to->ask[i % FLEET_ASKS];

        if (a->s && a->request && a->opened && a->follow && a->peer == fdaemon_number(d) &&
            a->space == space && a->variant == variant)
            comes(to, a, d->may);
    }
}

void fmodel_evicted(struct fdaemon *d)
{
    memset(d->sure, 0, sizeof d->sure);
}

/* A disk that is kept may again have what a reset had not yet dropped there. */
void fmodel_started(struct fdaemon *d, bool keeps_disk)
{
    for (uint32_t i = 0; i < sizeof(fstamps) / sizeof(uint64_t); i++) {
        uint64_t *disk = &((uint64_t *)d->disk)[i];

        least(disk, ((uint64_t *)d->doomed)[i]);
        if (!keeps_disk)
            *disk = 0;
    }
    memset(d->doomed, 0, sizeof d->doomed);
    memset(d->may, 0, sizeof d->may);
    memset(d->sure, 0, sizeof d->sure);
    memset(d->carried, 0, sizeof d->carried);
    memset(d->epoch, 0, sizeof d->epoch);
    d->seen = 0;
    d->last.kind = 0;
}

void fmodel_from_disk(struct fdaemon *d, const struct fask *a)
{
    comes(d, a, d->disk);
}

/* A peer asks this daemon, which serves what it has by now. */
static void opened(struct fdaemon *source, const struct event *ev)
{
    struct fdaemon *d;

    if (ev->peer.link < FLEET || ev->peer.link >= 2 * FLEET)
        return;
    d = &fw.d[ev->peer.link - FLEET];
    for (uint32_t i = 0; i < FLEET_ASKS; i++)
        if (d->ask[i].s && d->ask[i].request && d->ask[i].peer == fdaemon_number(source) &&
            d->ask[i].trace == ev->peer.msg.trace_id) {
            d->ask[i].opened = 1;
            comes(d, &d->ask[i], source->may);
        }
}

/* --- resets --- */

/* Daemons that could be fetched from, directly or through others, by peers of that time. */
static uint8_t reach(uint32_t from, uint64_t since)
{
    uint8_t all = (uint8_t)(1u << from);

    for (uint32_t round = 0; round < FLEET; round++)
        for (uint32_t i = 0; i < FLEET; i++)
            for (uint32_t k = 0; k < FLEET; k++)
                if ((all >> i & 1) && fw.member[i][k] && fw.member[i][k] <= since)
                    all |= (uint8_t)(1u << k);
    return all;
}

static void carried_out(struct fdaemon *d, struct freset *r)
{
    const uint32_t space = r->space;

    d->carried[r - fw.reset] = 1;
    d->epoch[space]++;
    for (uint32_t i = 0; i < FLEET_VARIANTS * FLEET_UNITS; i++) {
        least(&((uint64_t *)d->doomed[space])[i], ((uint64_t *)d->disk[space])[i]);
        ((uint64_t *)d->disk[space])[i] = ((uint64_t *)d->may[space])[i] = 0;
    }
    memset(d->sure[space], 0, sizeof d->sure[space]);
}

/* The request's trace id goes with all messages about it. */
static struct freset *reset_of(const struct peer_msg *m)
{
    FEXPECT(m->trace_id > 0 && m->trace_id <= fw.nresets &&
                fw.reset[m->trace_id - 1].space == m->ns.lo,
            "reset_unknown", "%llu of space %llu was never asked for",
            (unsigned long long)m->trace_id, (unsigned long long)m->ns.lo);
    fw.reset[m->trace_id - 1].id = m->reset;
    return &fw.reset[m->trace_id - 1];
}

/* N1: a reset takes effect once, not behind a later one of the same daemon, not where it began, and
 * not at daemons that an answer has named as informed. */
static void check_effect(const struct fdaemon *d, const struct freset *r, uint32_t teller)
{
    const uint32_t at = fdaemon_number(d);

    FEXPECT(r->origin != d->incarnation, "reset_comes_back",
            "reset %u to daemon %u, where it began", (uint32_t)(r - fw.reset), at);
    FEXPECT(!d->carried[r - fw.reset], "reset_twice", "reset %u takes effect at %u again",
            (uint32_t)(r - fw.reset), at);
    for (uint32_t i = (uint32_t)(r - fw.reset); i < fw.nresets; i++) {
        const struct freset *later = &fw.reset[i];

        if (later->origin != r->origin || later->space != r->space)
            continue;
        FEXPECT(!d->carried[i], "reset_out_of_order", "reset %u behind %u at %u",
                (uint32_t)(r - fw.reset), i, at);
        FEXPECT(!(later->zero && (later->reach >> at & 1) && (later->reach >> teller & 1) &&
                  fw.member[teller][at] && fw.member[teller][at] <= later->began),
                "reset_comes_back", "reset %u at %u, told by %u, and all had heard of %u",
                (uint32_t)(r - fw.reset), at, teller, i);
    }
}

/* Did the step of the last event carry a reset out? */
static void effect_seen(struct fdaemon *d)
{
    struct event ev = d->last;
    struct core_view v;
    struct freset *r;

    d->last.kind = 0;
    if (!d->rig || ev.kind == 0)
        return;
    core_view(d->rig->core, &v);
    if (ev.kind == EV_REQUEST) {
        d->seen = v.namespaces_reset;
        return;
    }
    r = reset_of(&ev.peer.msg);
    if (v.namespaces_reset == d->seen) {
        if (d->carried[r - fw.reset])
            FMARK(reset_told_again);
        return;
    }
    d->seen = v.namespaces_reset;
    FTRACE("  daemon %u carries reset %u out\n", fdaemon_number(d), (uint32_t)(r - fw.reset));
    if (ev.peer.msg.hops > 0)
        FMARK(reset_over_two_hops);
    check_effect(d, r, ev.peer.link - FLEET);
    carried_out(d, r);
}

/* A peer that reports the end has nothing older on its disk either. */
static void said_over(struct fdaemon *by, const struct peer_msg *m)
{
    for (uint32_t i = 0; i < fw.nresets && m->err == TERN_OK; i++)
        if (fw.reset[i].id == m->reset)
            memset(by->doomed[fw.reset[i].space], 0, sizeof by->doomed[0]);
}

void fmodel_event(void *daemon, const struct event *ev)
{
    struct fdaemon *d = daemon;

    fw.events++;
    fw.clock++;
    effect_seen(d);
    if (ev->kind == EV_REQUEST && ev->request.op == OP_NAMESPACE_RESET)
        d->last.kind = EV_REQUEST;
    if (ev->kind != EV_PEER_MSG)
        return;
    if (ev->peer.msg.kind == PEER_RESET)
        d->last = *ev;
    if (ev->peer.msg.kind == PEER_PULL_OPEN)
        opened(d, ev);
    if (ev->peer.msg.kind == PEER_PULL_DONE)
        fticket_done(&ev->peer.msg);
    if (ev->peer.msg.kind == PEER_RESET_DONE && ev->peer.link < FLEET)
        said_over(&fw.d[ev->peer.link], &ev->peer.msg);
}

struct freset *fmodel_begins(struct fdaemon *d, uint32_t space)
{
    struct freset *r = &fw.reset[fw.nresets++];

    *r = (struct freset){
        .origin = d->incarnation, .began = fw.clock, .daemon = fdaemon_number(d), .space = space};
    effect_seen(d);
    carried_out(d, r);
    FTRACE("  daemon %u begins reset %u of space %u\n", fdaemon_number(d), fw.nresets - 1, space);
    return r;
}

/* No daemon that knows the reset finds anything older. */
static void check_heard(const struct freset *r)
{
    for (uint32_t i = 0; i < FLEET; i++)
        for (uint32_t v = 0; v < FLEET_VARIANTS && (r->reach >> i & 1); v++) {
            uint32_t found = fmodel_found(&fw.d[i], r->space, v);

            for (uint32_t u = 0; u * FLEET_UNIT < found; u++)
                FEXPECT(fw.d[i].may[r->space][v][u] >= r->began, "reset_heard_by_all",
                        "reset %u of space %u: daemon %u has unit %u of %u from before",
                        (uint32_t)(r - fw.reset), r->space, i, u, v);
        }
}

static void answers_look(void)
{
    for (uint32_t i = 0; i < fw.nresets; i++) {
        struct freset *r = &fw.reset[i];
        const struct reply *reply;

        if (!r->request)
            continue;
        reply = rig_reply_to(fw.d[r->daemon].rig, r->request);
        if (!reply)
            continue;
        r->request = 0;
        FEXPECT(reply->err == TERN_OK, "reset_refused", "%s", reply->text);
        /* N1: a daemon reached through one that left meanwhile may not know the reset. */
        r->zero = reply->namespace_reset.unreached == 0 && fw.left <= r->began;
        r->reach = reach(r->daemon, r->began);
        FTRACE("  reset %u is answered, %u unreached\n", i, reply->namespace_reset.unreached);
        if (!r->zero)
            continue;
        memset(fw.d[r->daemon].doomed[r->space], 0, sizeof fw.d[r->daemon].doomed[r->space]);
        FMARK(reset_heard_by_all);
        check_heard(r);
    }
}

static void found_look(const struct fdaemon *d)
{
    for (uint32_t n = 0; n < FLEET_SPACES; n++)
        for (uint32_t v = 0; v < FLEET_VARIANTS; v++) {
            uint32_t found = fmodel_found(d, n, v);

            for (uint32_t u = 0; u * FLEET_UNIT < found; u++)
                FEXPECT(d->may[n][v][u], "found_unknown",
                        "daemon %u has unit %u of sequence %u in space %u, and nobody put it there",
                        fdaemon_number(d), u, v, n);
            FEXPECT(found >= d->sure[n][v] * FLEET_UNIT, "lost",
                    "daemon %u has %u tokens of sequence %u in space %u, and had %u units",
                    fdaemon_number(d), found, v, n, d->sure[n][v]);
        }
}

void fmodel_look(void)
{
    for (uint32_t i = 0; i < FLEET; i++)
        effect_seen(&fw.d[i]);
    answers_look();
}

void fmodel_found_look(void)
{
    for (uint32_t i = 0; i < FLEET; i++)
        found_look(&fw.d[i]);
}
