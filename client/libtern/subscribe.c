/* Subscriptions: a request with many answers, which tern_poll returns. */
#include "internal.h"

#include "base/err.h"

static enum tern_err subscribe(struct tern *t, const Tern__Wire__Subscribe *m, uint64_t cookie,
                               struct subscription *sub)
{
    struct outgoing o;

    TRY(async_room(t, message_size(&m->base), &o));
    put_whole(&o.body, &m->base);
    async_submit(t, &o, FRAME_SUBSCRIBE, 0, cookie, sub);
    return TERN_OK;
}

enum tern_err tern_subscribe(struct tern *t, const struct tern_subscription *to, uint64_t cookie)
{
    ENTER(t);
    const struct tern_subscription wanted = to ? *to : (struct tern_subscription){0};
    Tern__Wire__Subscribe m = TERN__WIRE__SUBSCRIBE__INIT;
    Tern__Wire__Namespace wire_ns;
    struct subscription *sub;
    enum tern_err err;

    if (wanted.ns)
        TRY(put_namespace(t, wanted.ns, &wire_ns));
    m.ns = wanted.ns ? &wire_ns : NULL;
    m.has_from = 1;
    m.from = wanted.from;
    m.has_tokens = m.tokens = wanted.tokens;
    sub = subscription_new();
    if (!sub)
        return set_error(t, TERN_INTERNAL, "this process has no memory for a subscription");
    err = subscribe(t, &m, cookie, sub);
    if (err != TERN_OK)
        subscription_free(sub);
    return err;
}

static struct pending *find_cookie(struct tern *t, uint64_t cookie)
{
    for (uint32_t i = 0; i < TERN_INFLIGHT_MAX; i++)
        if (t->pending[i].state == PENDING_STREAM && t->pending[i].cookie == cookie)
            return &t->pending[i];
    return NULL;
}

enum tern_err tern_unsubscribe(struct tern *t, uint64_t cookie, uint32_t deadline_ms)
{
    ENTER(t);
    Tern__Wire__Subscribe m = TERN__WIRE__SUBSCRIBE__INIT;
    struct pending *p = find_cookie(t, cookie);
    const ProtobufCMessage *msg;

    if (!p)
        return set_error(t, TERN_GONE, "no subscription has that cookie");
    m.has_cancel = 1;
    m.cancel = p->id;
    TRY(call_whole(t, FRAME_SUBSCRIBE, 0, &m.base, deadline_ms, &msg));
    pending_end(t, (uint32_t)(p - t->pending)); /* its last answer arrived before this one */
    return TERN_OK;
}
