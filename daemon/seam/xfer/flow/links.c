/* Peer links: decides who may call us and which transport a link's batches use, and reports links
 * to operators. Called by the shell's owner thread and by the transports. */
#include "base/check.h"
#include "seam/xfer/flow/transfers.h"

const struct xfer_transport_kind xfer_transport_kind[XFER_TRANSPORTS] = {
#define X(name, word, by_paths)                                                                    \
    [XFER_##name] = {word, "transport: " word " is configured", by_paths},
    XFER_TRANSPORT_TABLE(X)
#undef X
};

bool xfer_link_is_own(const struct xfer *xfer, uint32_t number)
{
    const struct xfer_link *link = &xfer->link[number];

    return link->up && link->peer_incarnation == xfer->config.incarnation;
}

uint32_t xfer_link_admitted(const struct xfer *xfer, uint64_t token)
{
    uint32_t found = NONE;

    for (uint32_t i = 0; token && i < xfer->config.links; i++)
        if (xfer->link[i].admitted == token)
            found = i;
    return found;
}

const char *xfer_link_unwanted(const struct xfer *xfer, uint32_t number, const struct transport *t)
{
    enum xfer_transport wanted = xfer->link[number].wanted;

    return wanted == XFER_AUTO || wanted == t->ops->asked_for || t->ops->asked_for == XFER_AUTO
               ? NULL
               : xfer_transport_kind[wanted].configured;
}

/* Returns the next transport that is in use and allowed for that link. */
static struct transport *transport_after(const struct xfer *xfer, uint32_t number,
                                         const struct transport *after)
{
    for (uint32_t i = after ? after->lane + 1 : 0; i < xfer->ntransports; i++) {
        struct transport *t = (struct transport *)&xfer->transport[i];

        if (t->own && !xfer_link_unwanted(xfer, number, t))
            return t;
    }
    return NULL;
}

struct transport *transport_for(struct xfer *xfer, uint32_t number, uint32_t pool,
                                const struct transport *after)
{
    struct transport *t = transport_after(xfer, number, after);

    while (t && t->ops->takes && !t->ops->takes(t, number, pool))
        t = transport_after(xfer, number, t);
    return t;
}

struct transport *transport_reshards(struct xfer *xfer)
{
    for (uint32_t i = 0; i < xfer->ntransports; i++)
        if (xfer->transport[i].own && xfer->transport[i].ops->reshards)
            return &xfer->transport[i];
    return NULL;
}

static const char resharded[] = "pages of pools of another layout arrive by tcp";

void xfer_link_resharded(struct xfer *xfer, uint32_t number, uint32_t pool)
{
    const struct transport *t = transport_for(xfer, number, pool, NULL);

    if (!t || t->ops->reshards || xfer->link[number].by_tcp)
        return;
    xfer->link[number].by_tcp = true;
    if (xfer->config.rdma.path_note)
        xfer->config.rdma.path_note(
            xfer->config.ctx, number,
            &(struct xfer_note){.tenant = mem_place(xfer->config.mem, pool)->tenant,
                                .transport = transport_reshards(xfer)->ops->name,
                                .reason = resharded,
                                .kind = XFER_NOTE_PART});
}

/* Fills *ret with the first transport after `after` that carries the link's pages. */
static void find_carrier(const struct xfer *xfer, uint32_t number, const struct transport *after,
                         struct xfer_link_view *ret)
{
    const struct transport *t = transport_after(xfer, number, after);

    for (ret->transport = NULL; t && !ret->transport; t = transport_after(xfer, number, t)) {
        if (!t->ops->link_view)
            ret->transport = t->ops->name;
        else
            t->ops->link_view(t, number, ret);
    }
}

void xfer_note_fallback(const struct xfer *xfer, uint32_t number, const struct transport *after,
                        struct xfer_note *note)
{
    struct xfer_link_view view;

    find_carrier(xfer, number, after, &view);
    note->transport = view.transport;
    note->kind = xfer->link[number].wanted == XFER_AUTO ? XFER_NOTE_FALLBACK : XFER_NOTE_WAY;
    xfer->config.rdma.path_note(xfer->config.ctx, number, note);
}

static void paths_view(const struct xfer *xfer, uint32_t peer_link, struct xfer_link_view *ret)
{
    for (uint32_t k = 0; k < xfer->ntransports; k++)
        for (uint32_t i = 0; i < xfer->config.connections; i++) {
            enum data_path_state state = xfer->link[peer_link].lane[k].path[i].state;

            ret->conns_up += state == DATA_PATH_UP;
            ret->conns_calling += state == DATA_PATH_CALLING;
            ret->conns_retired += state == DATA_PATH_RETIRED;
        }
    /* A daemon's link to itself needs connections only for pages of pools of another layout. */
    if (!xfer_link_is_own(xfer, peer_link) ||
        ret->conns_up + ret->conns_calling + ret->conns_retired > 0)
        ret->connections = xfer->config.connections;
}

void xfer_link_view(const struct xfer *xfer, uint32_t number, struct xfer_link_view *ret)
{
    enum xfer_transport wanted = xfer->link[number].wanted;

    check(number < xfer->config.links);
    *ret = (struct xfer_link_view){.transport = "none", .reason = ""};
    if (!xfer->link[number].up)
        return;
    if (!xfer_transport_kind[wanted].by_paths)
        ret->reason = xfer_transport_kind[wanted].configured;
    find_carrier(xfer, number, NULL, ret);
    paths_view(xfer, number, ret);
    if (!ret->transport)
        ret->transport = "none";
    if (xfer->link[number].by_tcp) /* a path's transport is reported with the path */
        ret->reason = resharded;
    if (xfer->link[number].call_errno != 0)
        ret->reason = xfer->link[number].call_text;
}

bool xfer_link_bytes(const struct xfer *xfer, uint32_t number, uint32_t i,
                     const char **ret_transport, uint64_t *ret_bytes)
{
    check(number < xfer->config.links);
    if (i >= xfer->ntransports)
        return false;
    *ret_transport = xfer->transport[i].ops->name;
    *ret_bytes = transport_lane(&xfer->transport[i], number)->bytes_in;
    return true;
}

void xfer_link_forget(struct xfer *xfer, uint32_t number)
{
    struct xfer_link *link = &xfer->link[number];

    check(number < xfer->config.links && !link->up);
    link->call_errno = 0;
    link->call_text[0] = '\0';
    for (uint32_t i = 0; i < xfer->ntransports; i++)
        transport_lane(&xfer->transport[i], number)->bytes_in = 0;
}

const char *const xfer_registered_word[XFER_REGISTERED_WAYS] = {
#define X(name, word) [XFER_REGISTERED_##name] = (word),
    XFER_REGISTERED_TABLE(X)
#undef X
};

const char *const xfer_self_test_word[XFER_SELF_TEST_RESULTS] = {
#define X(name, word) [XFER_SELF_TEST_##name] = (word),
    XFER_SELF_TEST_TABLE(X)
#undef X
};
