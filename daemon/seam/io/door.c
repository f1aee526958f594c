/* See door.h. Invariant: a descriptor is in one place, or it was passed on or closed; a place is
 * free as soon as its descriptor is, since the ring has no operation on it. A connection is
 * accepted only while a place is free, because a connection that is sent away for it may not free
 * its place at once. */
#include "seam/io/door.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/check.h"
#include "base/container.h"
#include "base/rate.h"
#include "seam/io/io_states.h"

#define EVENTS_MAX 32
#define NEWS       (EPOLLIN | EPOLLRDHUP | EPOLLET) /* of a waiting connection */

struct origin {
    uint32_t family;
    uint64_t net;
};

/* The time of the next entry; DOOR_BURST_S earlier if all of the burst is left. */
struct pace {
    struct origin origin;
    uint64_t next_ns;
};

struct place {
    struct door *door;
    enum door_place_state state;
    int fd;
    bool hung_up;
    bool paced; /* HELD for the rate of its origin, or of all origins */
    struct origin origin;
    uint64_t since_ns, order;
};

struct door {
    struct door_config config;
    int epoll_fd;
    struct io_op op;
    bool ending;
    uint64_t order;
    uint32_t waiting; /* or held */
    struct door_stats stats;
    struct pace pace[DOOR_PACED], all;
    uint8_t bytes[DOOR_LOOK_BYTES];
    uint32_t nplaces; /* config.places of them are for waiting connections */
    struct place place[];
};

static struct origin origin_of(int fd)
{
    struct sockaddr_storage at;
    struct origin from = {.family = AF_UNSPEC};
    socklen_t n = sizeof at;
    struct ucred who;

    memset(&at, 0, sizeof at);
    if (getpeername(fd, (struct sockaddr *)&at, &n) != 0)
        return from;
    from.family = at.ss_family;
    if (at.ss_family == AF_INET) {
        from.net = ((struct sockaddr_in *)(void *)&at)->sin_addr.s_addr;
    } else if (at.ss_family == AF_INET6) {
        const struct in6_addr *a = &((struct sockaddr_in6 *)(void *)&at)->sin6_addr;
        bool v4 = IN6_IS_ADDR_V4MAPPED(a);
        uint32_t low;

        memcpy(&low, a->s6_addr + 12, sizeof low);
        from.family = v4 ? AF_INET : AF_INET6;
        memcpy(&from.net, a->s6_addr, sizeof from.net);
        if (v4)
            from.net = low;
    } else {
        n = sizeof who;
        if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &n) == 0)
            from.net = (uint64_t)who.pid;
    }
    return from;
}

static bool same(const struct origin *a, const struct origin *b)
{
    return a->family == b->family && a->net == b->net;
}

static bool waits(const struct place *p)
{
    return p->state == DOOR_PLACE_WAITING || p->state == DOOR_PLACE_HELD;
}

static uint32_t count_of(const struct door *door, const struct origin *from)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < door->nplaces; i++)
        n += waits(&door->place[i]) && same(&door->place[i].origin, from);
    return n;
}

/* Returns the pace of an origin; an unknown origin gets the entry that has been quiet longest. */
static struct pace *pace_of(struct door *door, const struct origin *from)
{
    struct pace *quiet = &door->pace[0];

    for (uint32_t i = 0; i < DOOR_PACED; i++) {
        if (same(&door->pace[i].origin, from))
            return &door->pace[i];
        if (door->pace[i].next_ns < quiet->next_ns)
            quiet = &door->pace[i];
    }
    *quiet = (struct pace){.origin = *from};
    return quiet;
}

static bool in_pace(const struct pace *pace, uint64_t now_ns)
{
    return pace_kept(pace->next_ns, now_ns, DOOR_BURST_S * RATE_SPAN_NS);
}

static bool may_enter(struct door *door, const struct origin *from, uint64_t now_ns)
{
    return door->config.per_s == 0 ||
           (in_pace(&door->all, now_ns) && in_pace(pace_of(door, from), now_ns));
}

static void note_entered(struct door *door, const struct origin *from)
{
    uint64_t now_ns;

    if (door->config.per_s == 0)
        return;
    now_ns = io_now_ns();
    pace_spend(&pace_of(door, from)->next_ns, now_ns, RATE_SPAN_NS / door->config.per_s);
    pace_spend(&door->all.next_ns, now_ns,
               RATE_SPAN_NS / ((uint64_t)door->config.per_s * DOOR_ORIGINS));
}

static void left(void *ctx)
{
    struct place *p = ctx;

    door_place_state_move(&p->state, DOOR_PLACE_FREE);
    if (p->door->config.left)
        p->door->config.left(p->door->config.ctx);
}

static void send_away(struct door *door, struct place *p)
{
    if (waits(p))
        door->waiting--;
    if (door->config.closer)
        (void)epoll_ctl(door->epoll_fd, EPOLL_CTL_DEL, p->fd, NULL);
    door_place_state_move(&p->state, DOOR_PLACE_CLOSING);
    if (closer_close(door->config.closer, door->config.lane, p->fd, left, p))
        door_place_state_move(&p->state, DOOR_PLACE_FREE);
}

static void send_away_for(struct door *door, struct place *p, uint64_t *count)
{
    *(p->paced ? &door->stats.over_rate : count) += 1;
    send_away(door, p);
}

/* A peek does not receive descriptors beside the bytes, and the kernel reports them. */
static enum door_verdict look(struct door *door, const struct place *p)
{
    struct iovec iov = {door->bytes, door->config.look_bytes};
    struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};
    ssize_t n = recvmsg(p->fd, &msg, MSG_PEEK | MSG_DONTWAIT | MSG_NOSIGNAL);

    if (n < 0)
        return errno == EAGAIN || errno == EINTR ? DOOR_WAIT : DOOR_REFUSE;
    if (msg.msg_flags & MSG_CTRUNC) {
        door->stats.brought++;
        door->stats.brought_by = p->origin.net;
        return DOOR_REFUSE;
    }
    return n == 0 ? DOOR_REFUSE : door->config.look(door->config.ctx, door->bytes, (uint32_t)n);
}

/* The first message is complete. On DOOR_ENTER the connection has a new owner. */
static enum door_verdict let_in(struct door *door, struct place *p)
{
    struct epoll_event ev = {.events = NEWS, .data.u32 = (uint32_t)(p - door->place)};
    enum door_verdict verdict = DOOR_WAIT;

    if (epoll_ctl(door->epoll_fd, EPOLL_CTL_DEL, p->fd, NULL) == 0)
        verdict = door->config.enter(door->config.ctx, p->fd);
    if (verdict == DOOR_WAIT && epoll_ctl(door->epoll_fd, EPOLL_CTL_ADD, p->fd, &ev) != 0)
        verdict = DOOR_REFUSE;
    return verdict;
}

/* Lets the connection in or sends it away, if that can be decided. Returns false if it stays. */
static bool decide(struct door *door, struct place *p)
{
    enum door_verdict verdict = look(door, p);

    p->paced = verdict == DOOR_ENTER && !may_enter(door, &p->origin, io_now_ns());
    if (p->state == DOOR_PLACE_HELD)
        door_place_state_move(&p->state, DOOR_PLACE_WAITING);
    if (verdict == DOOR_WAIT && p->hung_up)
        verdict = DOOR_REFUSE; /* the missing bytes never arrive */
    if (verdict == DOOR_WAIT)
        return false;
    if (verdict == DOOR_ENTER)
        verdict = p->paced ? DOOR_WAIT : let_in(door, p);
    if (verdict == DOOR_WAIT) {
        door_place_state_move(&p->state, DOOR_PLACE_HELD);
        return false;
    }
    if (verdict == DOOR_REFUSE) {
        send_away(door, p);
        return true;
    }
    door_place_state_move(&p->state, DOOR_PLACE_FREE);
    door->waiting--;
    note_entered(door, &p->origin);
    return true;
}

/* Returns the connection to send away, of `from` or, if NULL, of all origins: the oldest without a
 * complete message. */
static struct place *oldest(struct door *door, const struct origin *from)
{
    struct place *found = NULL;

    for (uint32_t i = 0; i < door->nplaces; i++) {
        struct place *p = &door->place[i];

        if (!waits(p) || (from && !same(&p->origin, from)))
            continue;
        if (!found || found->state > p->state ||
            (found->state == p->state && p->order < found->order))
            found = p;
    }
    return found;
}

static const struct origin *fullest(const struct door *door)
{
    const struct origin *found = NULL;
    uint32_t most = 0;

    for (uint32_t i = 0; i < door->nplaces; i++) {
        uint32_t n = waits(&door->place[i]) ? count_of(door, &door->place[i].origin) : 0;

        if (n <= most)
            continue;
        most = n;
        found = &door->place[i].origin;
    }
    return found;
}

/* Makes room for one more of that origin. Checks the victim again: its message may have arrived. */
static void make_room(struct door *door, const struct origin *from)
{
    bool share = count_of(door, from) >= door->config.share;
    struct place *p;

    if (!share && door->waiting < door->config.places)
        return;
    p = oldest(door, share ? from : fullest(door));
    if (!decide(door, p))
        send_away_for(door, p, &door->stats.displaced);
}

static struct place *free_place(struct door *door)
{
    for (uint32_t i = 0; i < door->nplaces; i++)
        if (door->place[i].state == DOOR_PLACE_FREE)
            return &door->place[i];
    return NULL;
}

bool door_has_place(const struct door *door)
{
    return free_place((struct door *)(uintptr_t)door) != NULL;
}

void door_arrived(struct door *door, int fd, uint64_t now_ns)
{
    struct origin from = origin_of(fd);
    struct epoll_event ev = {.events = NEWS};
    struct place *p;

    if (door->ending) {
        door_turn_away(door, fd);
        return;
    }
    make_room(door, &from);
    p = free_place(door);
    check(p);
    p->fd = fd;
    p->hung_up = p->paced = false;
    p->origin = from;
    p->since_ns = now_ns;
    p->order = ++door->order;
    ev.data.u32 = (uint32_t)(p - door->place);
    if (epoll_ctl(door->epoll_fd, EPOLL_CTL_ADD, fd, &ev) != 0) {
        send_away(door, p);
        return;
    }
    door_place_state_move(&p->state, DOOR_PLACE_WAITING);
    door->waiting++;
    decide(door, p);
}

void door_turn_away(struct door *door, int fd)
{
    struct place *p = free_place(door);

    check(p);
    p->fd = fd;
    send_away(door, p);
}

/* ---- time and the ring ---- */

/* A held connection has sent enough: door_again lets it in. An attempt to let it in here would
 * fail, and would add it to the epoll again, which then reports it at once. */
static void heard(struct door *door, struct place *p, uint32_t events)
{
    p->hung_up = p->hung_up || events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR);
    if (p->state == DOOR_PLACE_WAITING)
        decide(door, p);
    else if (p->state == DOOR_PLACE_HELD && look(door, p) == DOOR_REFUSE)
        send_away(door, p);
}

/* The epoll reports places in turn, so after `nplaces` events each place with news was handled. The
 * ring reports later news. */
static void look_at_news(struct door *door)
{
    struct epoll_event ev[EVENTS_MAX];
    uint32_t events = 0;
    int n;

    do {
        n = epoll_wait(door->epoll_fd, ev, EVENTS_MAX, 0);
        for (int i = 0; i < n; i++, events++)
            heard(door, &door->place[ev[i].data.u32], ev[i].events);
    } while (n == EVENTS_MAX && events < door->nplaces);
}

static void news(struct io_op *op, int32_t res, uint32_t flags, uint32_t buffer)
{
    struct door *door = container_of(op, struct door, op);

    (void)res, (void)flags, (void)buffer;
    if (!door->ending)
        look_at_news(door);
}

/* Skips connections that wait for the rate alone. */
void door_again(struct door *door)
{
    const uint64_t now_ns = io_now_ns();

    for (uint32_t i = 0; i < door->nplaces; i++)
        if (door->place[i].paced)
            door->place[i].paced = !may_enter(door, &door->place[i].origin, now_ns);
    for (uint32_t k = 0; k < door->nplaces; k++) {
        struct place *found = NULL;

        for (uint32_t i = 0; i < door->nplaces; i++) {
            struct place *p = &door->place[i];

            if (p->state == DOOR_PLACE_HELD && !p->paced && (!found || p->order < found->order))
                found = p;
        }
        if (!found || (!decide(door, found) && !found->paced))
            return;
    }
}

void door_tick(struct door *door, uint64_t now_ns)
{
    look_at_news(door);
    door_again(door);
    for (uint32_t i = 0; i < door->nplaces; i++) {
        struct place *p = &door->place[i];

        if (!waits(p) || now_ns < p->since_ns || now_ns - p->since_ns < door->config.wait_ns)
            continue;
        send_away_for(door, p, &door->stats.overdue);
    }
}

void door_stats(const struct door *door, struct door_stats *ret)
{
    *ret = door->stats;
    ret->places = door->config.places;
    ret->share = door->config.share;
    ret->waiting = door->waiting;
}

static uint32_t places_of(uint32_t places)
{
    return (places ? places : DOOR_PLACES) + DOOR_LEAVING;
}

uint64_t door_bytes(uint32_t places)
{
    return sizeof(struct door) + places_of(places) * sizeof(struct place);
}

enum tern_err door_create(const struct door_config *config, struct door **ret)
{
    struct door *door = calloc(1, door_bytes(config->places));

    if (!door)
        return TERN_INTERNAL;
    check(config->look_bytes <= DOOR_LOOK_BYTES);
    door->config = *config;
    if (!config->places)
        door->config.places = DOOR_PLACES;
    if (!config->share)
        door->config.share = (door->config.places + DOOR_SHARES - 1) / DOOR_SHARES;
    if (!config->wait_ns)
        door->config.wait_ns = DOOR_WAIT_NS;
    door->nplaces = places_of(config->places);
    for (uint32_t i = 0; i < door->nplaces; i++)
        door->place[i].door = door;
    door->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (door->epoll_fd < 0) {
        free(door);
        return TERN_INTERNAL;
    }
    door->op.done = news;
    io_poll_in(config->io, &door->op, door->epoll_fd, true);
    *ret = door;
    return TERN_OK;
}

void door_destroy(struct door *door)
{
    if (!door)
        return;
    door->ending = true;
    for (uint32_t i = 0; i < door->nplaces; i++)
        if (waits(&door->place[i]))
            send_away(door, &door->place[i]);
    io_stop(door->config.io, &door->op);
    close(door->epoll_fd);
    free(door);
}
