/* Faults of the host tier, resets of namespaces, operators' pins. See world.h. */
#include "fuzz/core/world.h"

static uint32_t daemon_of(const struct world *w, const struct actor *a)
{
    return a->rig == w->rig[1];
}

/* Repeats the acknowledgement (T16), whatever its node is now. */
static void copied_again(struct world *w, uint32_t d)
{
    struct event event = w->copied[d];

    if (event.kind == EV_COPIED)
        rig_event(w->rig[d], &event);
}

void note_copied(void *ctx, const struct event *event)
{
    if (event->kind == EV_COPIED)
        *(struct event *)ctx = *event;
}

/* N1: none of its prefixes is found any more, on either tier. The answer may come later, when the
 * other daemon knows the reset; here it takes effect at once. */
static void reset(struct world *w, struct actor *a)
{
    uint64_t ns = 1 + take(w) % 2;
    struct request r = {.op = OP_NAMESPACE_RESET, .namespace_reset.ns = {.hi = 1, .lo = ns}};
    const struct reply *reply;

    if (!a->alive)
        return;
    reply = rig_request(a->rig, a->e.conn[0], &r);
    if (reply && reply->err != TERN_OK) /* too many wait for the other daemon: nothing was reset */
        return;
    for (uint32_t k = 0; k < 8; k++) {
        r = (struct request){.op = OP_PEEK};
        r.peek = (struct req_peek){
            .pool = a->pool, .ns = {1, ns}, .tokens = {.v = sequence(k), .n = SEQUENCE}};
        reply = rig_request(a->rig, a->e.conn[0], &r);
        if (reply->err != TERN_OK || reply->peek.depth || reply->peek.history_depth ||
            reply->peek.host_depth)
            rig_fail("N1: a namespace that was reset is found at %u", reply->peek.depth);
    }
}

static void pin(struct world *w, uint32_t d)
{
    const struct core_limits *l = &w->rig[d]->options.limits;
    uint32_t slot = take(w) % l->nodes;
    struct node_view v;

    if (w->npins[d] == PINS_MAX || !core_node_view(w->rig[d]->core, slot, &v) || v.depth == 0)
        return;
    if (rig_pin(w->rig[d], w->admin[d], v.id, true) == TERN_OK)
        w->pin[d][w->npins[d]++] = v.id;
}

/* A pin keeps its node, which must exist. */
void unpin(struct world *w, uint32_t d)
{
    if (w->npins[d])
        expect(rig_pin(w->rig[d], w->admin[d], w->pin[d][--w->npins[d]], false) == TERN_OK);
}

void host_op(struct world *w, struct actor *a, uint32_t which)
{
    static const enum tern_err errs[] = {TERN_CORRUPT, TERN_INTERNAL};
    uint32_t d = daemon_of(w, a), x = take(w);

    switch (which) {
    case 1: pin(w, d); break;
    case 2: unpin(w, d); break;
    case 3:
        if (x % 4 == 0)
            reset(w, a);
        break;
    case 4: copied_again(w, d); break;
    default: a->rig->copies_to_fail = x % 3; a->rig->copy_err = errs[x / 4 % 2];
    }
}

/* Several kinds of operation share the numbers of fetch (9), cancel (10) and evict (13). */