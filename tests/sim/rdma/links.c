/* Links between the nodes' cores, and the messages of the two ends of a path over them: in order,
 * or never once the link went down; a cut cable delays them. Each end learns of the link at its own
 * time. */
#include "world.h"

#include <netinet/in.h>

#include "base/check.h"

enum change { DOWN_HERE, DOWN_THERE, UP_THERE, UP_HERE, CHANGES };

uint32_t link_out(uint32_t puller, uint32_t source)
{
    return source < puller ? source : source - 1;
}

uint32_t link_in(uint32_t puller, uint32_t source)
{
    return NODES - 1 + link_out(source, puller);
}

uint32_t link_peer(uint32_t node, uint32_t link)
{
    uint32_t at = link % (NODES - 1);

    return at < node ? at : at + 1;
}

static void change_later(uint64_t delay, uint32_t puller, uint32_t source, enum change change)
{
    rw.link[puller][source].changing++;
    rw_post(delay, T_LINK, (puller * NODES + source) * CHANGES + change,
            rw.link[puller][source].epoch);
}

static void try_up(uint32_t puller, uint32_t source)
{
    const struct rlink *l = &rw.link[puller][source];

    if (rw.node[puller].alive && rw.node[source].alive && !l->up_here && !l->up_there)
        change_later(MS * rw_between(1, rw.faults ? 300 : 50), puller, source, UP_THERE);
}

static void down_here(uint32_t puller, uint32_t source)
{
    struct rlink *l = &rw.link[puller][source];

    if (!l->up_here || !rw.node[puller].alive)
        return;
    l->up_here = false;
    rw.current = puller;
    xfer_link_down(rw.node[puller].xfer, link_out(puller, source));
    pulls_link_down(puller, link_out(puller, source));
}

static void down_there(uint32_t puller, uint32_t source)
{
    struct rlink *l = &rw.link[puller][source];

    if (!l->up_there || !rw.node[source].alive)
        return;
    l->up_there = false;
    rw.current = source;
    xfer_dismiss(rw.node[source].xfer, link_in(puller, source));
    xfer_peer_down(rw.node[source].xfer, link_in(puller, source));
    serves_link_down(source, link_in(puller, source));
}

static void up_there(uint32_t puller, uint32_t source)
{
    struct rlink *l = &rw.link[puller][source];

    if (!rw.node[puller].alive || !rw.node[source].alive || l->up_there || l->up_here)
        return;
    l->epoch++; /* messages of the old link are dropped */
    l->token = rw_u64() | 1;
    l->up_there = true;
    rw.current = source;
    xfer_admit(rw.node[source].xfer, link_in(puller, source), l->token);
    change_later(rw_soon(), puller, source, UP_HERE);
}

static void up_here(uint32_t puller, uint32_t source)
{
    struct rlink *l = &rw.link[puller][source];
    struct sockaddr_in addr = {.sin_family = AF_INET, .sin_port = htons(rw.node[source].port)};
    uint64_t tenants = (1u << rw.cfg.tenants) - 1;

    if (!rw.node[puller].alive || !l->up_there)
        return;
    l->up_here = true;
    rw.current = puller;
    check(xfer_link_up(rw.node[puller].xfer, link_out(puller, source),
                       (struct sockaddr *)(void *)&addr, sizeof addr, rw.node[source].incarnation,
                       l->token) == TERN_OK);
    xfer_link_transport(rw.node[puller].xfer, link_out(puller, source),
                        rw.cfg.transport[puller][source], tenants, true);
}

void links_change(uint32_t a, uint32_t epoch)
{
    uint32_t puller = a / CHANGES / NODES, source = a / CHANGES % NODES;

    rw.link[puller][source].changing--;
    if (rw.link[puller][source].epoch != epoch)
        return;
    switch ((enum change)(a % CHANGES)) {
    case DOWN_HERE: down_here(puller, source); break;
    case DOWN_THERE: down_there(puller, source); break;
    case UP_THERE: up_there(puller, source); return;
    default: up_here(puller, source); return;
    }
    try_up(puller, source);
}

void links_down(uint32_t puller, uint32_t source)
{
    struct rlink *l = &rw.link[puller][source];

    if (!l->up_here || !l->up_there)
        return;
    l->epoch++;
    change_later(rw_soon() + 1000ull * rw_below(5000), puller, source, DOWN_HERE);
    change_later(rw_soon() + 1000ull * rw_below(5000), puller, source, DOWN_THERE);
}

void links_node(uint32_t node, bool started)
{
    for (uint32_t other = 0; other < rw.cfg.nodes; other++) {
        if (other == node)
            continue;
        if (started) {
            try_up(node, other);
            try_up(other, node);
            continue;
        }
        rw.link[node][other].up_here = rw.link[other][node].up_there = false;
        rw.link[node][other].epoch++;
        rw.link[other][node].epoch++;
        change_later(MS * rw_between(1, 1000), node, other, DOWN_THERE);
        change_later(MS * rw_between(1, 1000), other, node, DOWN_HERE);
    }
}

/* ------------------------------------------------------------------ the control connection */

void links_path_send(void *ctx, uint32_t link, const struct xfer_path_msg *msg)
{
    const struct rnode *node = ctx;
    bool back = link >= NODES - 1;
    uint32_t other = link_peer(node->number, link);
    uint32_t from = back ? other : node->number, to = back ? node->number : other, i = 0;
    struct rlink *l = &rw.link[from][to];
    uint64_t cut_until = rw.cut_until[node->number][other];
    uint64_t at = (cut_until > rw.now_ns ? cut_until : rw.now_ns) + rw_soon();

    if (back ? !l->up_there : !l->up_here)
        return;
    while (i < CONTROLS && rw.control[i].used)
        i++;
    check(i < CONTROLS);
    rw.control[i] = (struct control){
        .used = true, .epoch = l->epoch, .from = from, .to = to, .back = back, .msg = *msg};
    if (rw.cfg.old[node->number] && msg->kind != XFER_PATH_REFUSE)
        rw.control[i].msg.push = false; /* it wants to read, or can only be read */
    at = at > l->last_ns[back] ? at : l->last_ns[back];
    l->last_ns[back] = at;
    rw_post(at - rw.now_ns, T_CONTROL, i, 0);
}

void links_control(uint32_t slot)
{
    struct control *c = &rw.control[slot];
    const struct rlink *l = &rw.link[c->from][c->to];
    uint32_t node = c->back ? c->from : c->to;

    c->used = false;
    if (l->epoch != c->epoch || !(c->back ? l->up_here : l->up_there))
        return;
    rw.current = node;
    xfer_path_msg(rw.node[node].xfer, c->back ? link_out(c->from, c->to) : link_in(c->from, c->to),
                  &c->msg);
}

void links_path_note(void *ctx, uint32_t link, const struct xfer_note *note)
{
    (void)ctx, (void)link;
    rw_mark(note->transport && strcmp(note->transport, "verbs") == 0 ? RM_path_ready
                                                                     : RM_fell_back_to_tcp);
}
