/* See member.h. */
#include "client/member/member.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define NS_PER_MS   1000000ull
#define NS_PER_S    1000000000ull
#define LINE_BYTES  1024
#define SHIFT_MAX   16u
#define KEEPS_A_TTL 3u /* keep-alives of a lease within its TTL */

static uint64_t now_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * NS_PER_S + (uint64_t)t.tv_nsec;
}

/* Writes one line of the log. The service manager adds the time. */
static __attribute__((format(printf, 3, 4))) void say(const char *level, const char *event,
                                                      const char *format, ...)
{
    char line[LINE_BYTES];
    int n = snprintf(line, sizeof(line), "level=%s event=%s ", level, event), more;
    va_list args;

    va_start(args, format);
    more = vsnprintf(line + n, sizeof(line) - (size_t)n - 1, format, args);
    va_end(args);
    n = more < (int)sizeof(line) - n - 1 ? n + more : (int)sizeof(line) - 2;
    line[n++] = '\n';
    if (write(STDERR_FILENO, line, (size_t)n) < 0)
        return; /* a closed log does not end the program */
}

static uint64_t backoff_ms(const struct member *m, uint32_t failures, uint64_t most)
{
    uint64_t ms = (uint64_t)m->interval_ms << (failures < SHIFT_MAX ? failures : SHIFT_MAX);

    return ms < most ? ms : most;
}

/* ---- this host's daemon ---- */

static void look(struct member *m)
{
    uint64_t incarnation = m->self.incarnation;
    bool healthy = m->self.healthy, answers = local_status(&m->local, &m->self);

    if (!answers) {
        m->self.healthy = false;
        m->self.capacity = (struct capacity){.pages = 0};
        m->has_peers = false;
    }
    if (answers == m->local_said) {
        if (answers)
            say("info", "daemon_back", "socket=%s", m->local.socket);
        else
            say("warn", "daemon_lost", "socket=%s reason=\"%s\"", m->local.socket, m->local.why);
        m->local_said = !answers;
    }
    if (m->self.incarnation != incarnation)
        m->has_peers = false;
    if (m->self.healthy != healthy || m->self.incarnation != incarnation)
        say(m->self.healthy ? "info" : "warn", "health", "node=%s incarnation=%016llx healthy=%s",
            m->self.name, (unsigned long long)m->self.incarnation,
            m->self.healthy ? "true" : "false");
}

/* ---- the lease and the key ---- */

static bool understood(struct member *m, bool ok)
{
    if (!ok)
        etcd_misread(m->etcd);
    return ok;
}

static bool grant(struct member *m)
{
    json_t *answer;
    bool ok;

    if (!etcd_ask(m->etcd, GATEWAY_GRANT, gateway_grant(m->ttl_s), &answer))
        return false;
    ok = understood(m, gateway_granted(answer, &m->lease));
    json_decref(answer);
    if (ok)
        say("info", "lease_granted", "lease=%llx ttl_s=%u", (unsigned long long)m->lease.id,
            m->lease.ttl_s);
    return ok;
}

/* Returns true if the lease is valid: granted or kept within a third of its TTL. */
static bool keep(struct member *m)
{
    uint64_t begin_ns = now_ns();
    struct lease kept = {.id = 0};
    json_t *answer;
    bool ok;

    if (m->lease.id && begin_ns - m->lease_kept_ns < m->lease.ttl_s * NS_PER_S / KEEPS_A_TTL)
        return true;
    if (m->lease.id) {
        if (!etcd_ask(m->etcd, GATEWAY_KEEP, gateway_lease(m->lease.id), &answer))
            return false;
        ok = understood(m, gateway_kept(answer, &kept) && kept.id == m->lease.id);
        json_decref(answer);
        if (!ok)
            return false;
        if (kept.ttl_s == 0) {
            say("warn", "lease_lost", "lease=%llx", (unsigned long long)m->lease.id);
            m->lease.id = 0;
        }
    }
    if (!m->lease.id) {
        m->has_written = false;
        if (!grant(m))
            return false;
    }
    m->lease_kept_ns = begin_ns;
    return true;
}

static bool is_due(const struct member *m)
{
    uint64_t age_ns = now_ns() - m->written_ns;

    return !m->has_written || !node_same(&m->self, &m->written) ||
           age_ns >= MEMBER_REFRESH_MS * NS_PER_MS ||
           (age_ns >= MEMBER_CAPACITY_MS * NS_PER_MS &&
            memcmp(&m->self.capacity, &m->written.capacity, sizeof(m->self.capacity)) != 0);
}

static void claim_held(struct member *m, const struct claim *claim)
{
    if (m->taken > 0)
        say("info", "name_free", "node=%s", m->self.name);
    m->taken = 0;
    m->taken_again_ns = 0;
    m->revision = claim->revision;
    m->has_claimed = true;
    m->written = m->self;
    m->written_ns = now_ns();
    m->has_written = true;
}

/* Handles a key that is not as this program wrote it last. The next round overwrites the key if it
 * is gone, if the answer to our write was lost, or if an earlier tern-member left it behind for the
 * same daemon. Any other key belongs to another node of the same name. */
static void claim_lost(struct member *m, const struct claim *claim)
{
    bool left_behind = !m->has_claimed && claim->is_node && m->self.incarnation != 0 &&
                       claim->node.incarnation == m->self.incarnation;

    m->has_written = false;
    if (claim->revision == 0 || claim->lease == m->lease.id || left_behind) {
        m->revision = claim->revision;
        return;
    }
    if (m->taken++ == 0)
        say("error", "name_taken",
            "node=%s address=%s lease=%llx reason=\"another tern-member has this name, or left its "
            "key: this node is not announced until the key is gone. Give each host its own --node; "
            "delete a key without a lease\"",
            m->self.name, claim->is_node ? claim->node.address : "-",
            (unsigned long long)claim->lease);
    m->taken_again_ns = now_ns() + backoff_ms(m, m->taken, MEMBER_TAKEN_MS_MAX) * NS_PER_MS;
}

static bool publish(struct member *m)
{
    struct claim_by by = {.lease = m->lease.id, .revision = m->revision};
    struct claim claim;
    json_t *answer;
    bool ok;

    if (m->local.misnamed || !is_due(m) || now_ns() < m->taken_again_ns)
        return true;
    if (!etcd_ask(m->etcd, GATEWAY_CLAIM, gateway_claim(m->prefix, &m->self, by), &answer)) {
        m->lease_kept_ns = 0; /* the lease may be gone: check it first */
        return false;
    }
    ok = understood(m, gateway_claimed(answer, m->prefix, &claim));
    json_decref(answer);
    if (ok && claim.written)
        claim_held(m, &claim);
    else if (ok)
        claim_lost(m, &claim);
    return ok;
}

/* ---- the other nodes ---- */

static void say_nodes(struct member *m)
{
    if (m->nodes.cut != m->cut_said && m->nodes.cut)
        say("warn", "nodes_cut",
            "prefix=%s limit=%u reason=\"etcd has more keys than the limit: no peer is removed, "
            "and some are not added\"",
            m->prefix, NODES_MAX);
    m->cut_said = m->nodes.cut;
    if (m->nodes.ignored != m->ignored_said && m->nodes.ignored > 0)
        say("warn", "keys_ignored",
            "prefix=%s keys=%u reason=\"the values of these keys are not nodes\"", m->prefix,
            m->nodes.ignored);
    m->ignored_said = m->nodes.ignored;
}

/* Checks this node's own key in etcd's list: it may have been deleted or overwritten. */
static void own_seen(struct member *m)
{
    const struct node *own = nodes_find(&m->nodes, m->self.name);

    if (own && m->has_written && !node_same(own, &m->written))
        m->has_written = false;
    if (own || m->nodes.cut)
        return;
    m->has_written = false;
    m->taken_again_ns = 0;
}

static bool view(struct member *m)
{
    struct stamp stamp;
    json_t *answer;
    bool ok;

    if (!etcd_ask(m->etcd, GATEWAY_RANGE, gateway_newest(m->prefix), &answer))
        return false;
    ok = understood(m, gateway_stamp(answer, &stamp));
    json_decref(answer);
    if (!ok || (m->has_nodes && memcmp(&stamp, &m->stamp, sizeof(stamp)) == 0))
        return ok;
    if (!etcd_ask(m->etcd, GATEWAY_RANGE, gateway_all(m->prefix), &answer))
        return false;
    m->has_nodes = ok = understood(m, gateway_nodes(answer, m->prefix, &m->nodes));
    json_decref(answer);
    if (!ok)
        return false;
    m->stamp = stamp;
    say_nodes(m);
    own_seen(m);
    return true;
}

/* ---- peers that follow ---- */

/* Returns false if the daemon refused or did not answer. */
static bool change(struct member *m, const struct change *c)
{
    bool add = c->kind == CHANGE_ADD;

    if (!local_change(&m->local, c)) {
        say("warn", add ? "peer_not_added" : "peer_not_removed", "peer=%s reason=\"%s\"", c->name,
            m->local.why);
        return false;
    }
    if (add)
        say("info", "peer_added", "peer=%s address=%s tenants=%s", c->name, c->address, c->tenants);
    else
        say("info", "peer_removed", "peer=%s", c->name);
    return true;
}

static void follow(struct member *m)
{
    struct seen seen = {&m->nodes, &m->peers, now_ns(), m->grace_s * NS_PER_S};
    struct change changes[CHANGES_MAX];
    bool refused = false;
    uint32_t n;

    if (m->local_said || seen.now_ns < m->peers_again_ns)
        return;
    if (!m->has_peers || seen.now_ns - m->peers_ns >= MEMBER_PEERS_MS * NS_PER_MS) {
        m->has_peers = local_peers(&m->local, &m->peers);
        m->peers_ns = seen.now_ns;
        if (!m->has_peers)
            return;
    }
    n = decide(&seen, &m->rules, &m->absences, changes);
    for (uint32_t i = 0; i < n; i++)
        refused = !change(m, &changes[i]) || refused;
    m->has_peers = m->has_peers && n == 0;
    m->peers_refused = refused ? m->peers_refused + 1 : 0;
    m->peers_again_ns = 0;
    if (refused)
        m->peers_again_ns =
            seen.now_ns + backoff_ms(m, m->peers_refused, MEMBER_REFUSED_MS_MAX) * NS_PER_MS;
}

/* ---- rounds ---- */

static void etcd_answers(struct member *m)
{
    if (m->etcd_said)
        say("info", "etcd_back", "endpoint=%s", etcd_endpoint(m->etcd));
    m->etcd_said = false;
    m->etcd_failures = 0;
}

/* The pauses grow only after every endpoint was tried. */
static void etcd_fails(struct member *m)
{
    uint64_t most = (uint64_t)m->ttl_s * 1000 / KEEPS_A_TTL;

    if (!m->etcd_said)
        say("warn", "etcd_lost", "endpoint=%s reason=\"%s\"", etcd_endpoint(m->etcd),
            etcd_why(m->etcd));
    m->etcd_said = true;
    m->etcd_again_ns =
        now_ns() +
        NS_PER_MS * backoff_ms(m, m->etcd_failures++ / etcd_endpoints(m->etcd),
                               most < MEMBER_BACKOFF_MS_MAX ? most : MEMBER_BACKOFF_MS_MAX);
    absences_forget(&m->absences);
}

uint32_t member_round(struct member *m)
{
    look(m);
    if (now_ns() < m->etcd_again_ns)
        return m->interval_ms;
    if (keep(m) && publish(m) && view(m)) {
        etcd_answers(m);
        follow(m);
    } else {
        etcd_fails(m);
    }
    return m->interval_ms;
}

void member_end(struct member *m)
{
    json_t *answer;

    if (m->lease.id && etcd_ask(m->etcd, GATEWAY_REVOKE, gateway_lease(m->lease.id), &answer)) {
        json_decref(answer);
        say("info", "left", "node=%s", m->self.name);
    }
    local_end(&m->local);
}
