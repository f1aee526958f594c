/* One history: creates the world, carries the choices out one after another, sends each event to a
 * core and processes its actions. */
#include "disk.h"
#include "records.h"
#include "tickets.h"
#include "work.h"

#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/time.h>
#include <unistd.h>

#include "base/check.h"
#include "base/hash.h"
#include "base/prng.h"
#include "oracle/oracle.h"
#include "testing/secret.h"

#define GIVE_BACK_STEPS 4096
#define HISTORY_S       10 /* of processor time, whatever the load; most take 1 ms */

static struct sim *running; /* for the hook of check() */

void violation(struct sim *w, const char *what, const char *format, ...)
{
    va_list ap;

    snprintf(w->what, sizeof w->what, "%s", what);
    va_start(ap, format);
    vsnprintf(w->text, sizeof w->text, format, ap);
    va_end(ap);
    longjmp(w->failed, 1);
}

/* Prints the prefix trees of the cores. */
static void print_trees(const struct sim *w)
{
    struct node_view v;

    for (uint32_t d = 0; d < DAEMONS; d++)
        for (uint32_t i = 0; i < w->limits.nodes; i++)
            if (core_node_view(w->d[d].core, i, &v) && v.depth)
                printf("  daemon %u node %u.%u under %u: depth %u pages %u (%u of STATE) host %u, "
                       "device %d host %d copying %d visible %d sealed %d reclaimable %d "
                       "resumable %d, refs %u/%u/%u/%u/%u/%u borrowers %u\n",
                       d, i, v.id.gen, v.parent, v.depth, v.pages, v.state_pages, v.host_pages,
                       v.on_device, v.on_host, v.copying, v.visible, v.sealed, v.reclaimable,
                       v.resumable, v.refs[0], v.refs[1], v.refs[2], v.refs[3], v.refs[4],
                       v.refs[5], v.borrowers);
}

static void on_check(const char *text)
{
    struct sim *w = running;

    if (w)
        violation(w, "check", "%s", text);
}

static void on_audit(const char *text)
{
    if (running)
        violation(running, "audit", "%s", text);
}

/* A core that reads an invalid address, or hangs, has failed like any other: the history can be
 * shrunk. */
static void on_crash(int sig)
{
    struct sim *w = running;

    if (!w) {
        signal(sig, SIG_DFL);
        raise(sig);
        return;
    }
    if (sig == SIGPROF)
        violation(w, "hang", "a history takes longer than %u s", HISTORY_S);
    violation(w, "crash", "signal %d inside a core", sig);
}

/* --- set-up --- */

static void *arena_take(size_t bytes)
{
    void *p = aligned_alloc(64, (bytes + 63) / 64 * 64);

    if (!p) {
        fprintf(stderr, "tern-sim: out of memory\n");
        exit(2);
    }
    return p;
}

#define ARENA_MAX (3u << 19)

void sim_create(struct sim *w)
{
    memset(w, 0, sizeof *w);
    w->secret = 1;
    for (uint32_t d = 0; d < DAEMONS; d++)
        w->d[d].arena = arena_take(ARENA_MAX);
    records_create(w);
    tickets_create(w);
    disks_create(w);
    w->out = arena_take(actions_bytes(&w->limits));
    actions_init(w->out, &w->limits);
    oracle_fail_hook = on_audit;
    sigaction(SIGSEGV, &(struct sigaction){.sa_handler = on_crash, .sa_flags = SA_NODEFER}, NULL);
    sigaction(SIGBUS, &(struct sigaction){.sa_handler = on_crash, .sa_flags = SA_NODEFER}, NULL);
    sigaction(SIGPROF, &(struct sigaction){.sa_handler = on_crash, .sa_flags = SA_NODEFER}, NULL);
}

void sim_destroy(struct sim *w)
{
    for (uint32_t d = 0; d < DAEMONS; d++)
        free(w->d[d].arena);
    records_destroy(w);
    tickets_destroy(w);
    disks_destroy(w);
    free(w->out);
}

/* X8: in some histories a tenant may have fewer bytes under way from the peer than in all; where
 * one of two sources is slow, pages from each must fit. */
static uint64_t flow_bytes(const struct config *c)
{
    if (c->slow)
        return (2 + (uint64_t)c->seed_tokens / 5 % 4) * c->world0 * GRANULE_BYTES;
    return c->seed_tokens % 5 == 0 ? (1 + (uint64_t)c->seed_tokens / 5 % 6) * GRANULE_BYTES : 0;
}

static void set_limits(struct sim *w)
{
    const struct config *c = &w->cfg;

    w->ample = records_ample(c);
    w->limits =
        (struct core_limits){.tenants = TENANTS,
                             .conns = CONNS,
                             .engines = ENGINES,
                             .pools = POOLS * (c->host ? 2 : 1),
                             .sessions = c->lim_sessions,
                             .nodes = c->lim_nodes,
                             .namespaces = c->lim_spaces,
                             .token_blocks = c->lim_blocks,
                             .extra_keys = c->lim_keys,
                             .pages = c->places ? RECORDS
                                      : c->host ? 256
                                                : 192,
                             .slabs = c->places ? RECORDS
                                      : c->host ? 256
                                                : 192,
                             .retires = c->lim_retires,
                             .groups = GROUPS,
                             .turn_records = c->records ? c->lim_records : 12,
                             .record_pages = 128,
                             .record_jobs = 1 + c->lim_records % 3,
                             .resets = 64,
                             .asks = 1 + c->lim_pulls % 3,
                             .links = LINKS,
                             .peers = 1,
                             .pulls = c->lim_pulls,
                             .serves = c->lim_serves,
                             .open_tokens = c->open_tokens,
                             .offer_pages = c->offer_pages,
                             .seal_jobs = c->lim_seals,
                             .copy_jobs = c->lim_copies ? c->lim_copies : 1,
                             .events = 16,
                             .sums_per_page = RANKS,
                             .reserved_percent = c->reserved,
                             .busy_retry_ms = 5,
                             .give_back_visits = c->give_back,
                             .lease_pages = c->leases,
                             .peer_bytes_in_flight = (uint64_t)c->peer_pages * GRANULE_BYTES,
                             .tenant_bytes_in_flight = (uint64_t)c->tenant_pages * GRANULE_BYTES,
                             .flow_bytes_in_flight = flow_bytes(c),
                             .prefetch_every = 2 + (uint32_t)c->seed_tokens / 32 % 3,
                             .tenant_batches = c->lim_batches,
                             .turn_deadline_ns = c->turn_ms * MS,
                             .transfer_deadline_ns = c->deadline_ms * MS,
                             .ticket_deadline_ns = (c->ticket_ms ? c->ticket_ms : 1) * MS};
}

/* Sequences with common beginnings: each has one parent, and a token from which they differ. */
static void make_tokens(struct sim *w)
{
    struct prng p;

    prng_init(&p, w->cfg.seed_tokens);
    for (uint32_t v = 0; v < w->cfg.variants; v++) {
        uint32_t from = v ? prng_below(&p, v) : 0, at = prng_below(&p, w->cfg.tokens_max);
        uint32_t common = v ? at : 0, key = NONE;

        if (v)
            memcpy(w->tokens[v], w->tokens[from], common * sizeof w->tokens[v][0]);
        for (uint32_t i = common; i < w->span; i++)
            w->tokens[v][i] = v ? w->tokens[from][i] : i + 1;
        w->keys[v] = (struct extra_key){.position = NONE};
        if (v && w->keys[from].position < at)
            w->keys[v] = w->keys[from];
        if (v && w->cfg.keys && w->keys[v].position == NONE && prng_below(&p, 2) == 0)
            key = at; /* same tokens, another image */
        if (key != NONE)
            w->keys[v] = (struct extra_key){.position = key, .hi = v, .lo = 7};
        else if (v)
            w->tokens[v][at] = 1000 + v;
        for (uint32_t u = 0; u < v; u++) {
            uint32_t n = u == from ? at : w->common[from][u] < at ? w->common[from][u] : at;

            w->common[u][v] = w->common[v][u] = (uint8_t)n;
        }
        w->common[v][v] = (uint8_t)w->span;
        for (uint32_t k = 0; k <= CHUNKS; k++) {
            uint32_t u = 0;

            while (u < v && w->common[u][v] < k * w->L)
                u++;
            w->canon[v][k] = (uint8_t)u;
        }
    }
}

static void make_prefixes(struct sim *w)
{
    for (uint32_t t = 0; t < w->cfg.tenants; t++)
        for (uint32_t n = 0; n < w->cfg.namespaces; n++)
            for (uint32_t v = 0; v < w->cfg.variants; v++) {
                uint32_t *h = w->prefix[t][n][v], seed = (t * 2 + n) * 0x9e3779b1u + 12345;

                for (uint32_t i = 0; i < w->span; i++) {
                    seed = (seed ^ w->tokens[v][i]) * 0x85ebca6bu;
                    if (w->keys[v].position == i)
                        seed += (uint32_t)w->keys[v].hi * 0xc2b2ae35u + 1;
                    seed ^= seed >> 15;
                    h[i + 1] = seed | 1;
                }
            }
}

void daemon_start(struct sim *w, uint32_t d)
{
    struct daemon *m = &w->d[d];
    struct core_limits limits = w->limits;
    struct tenant_config tenants[TENANTS];
    struct event ev = {.kind = EV_CONN_OPENED};
    struct hash_secret secret = secret_from(w->secret);
    size_t bytes;

    disk_limits(w, d, &limits);

    for (uint32_t t = 0; t < TENANTS; t++)
        tenants[t] =
            (struct tenant_config){.memory_bytes = (uint64_t)w->cfg.granules * GRANULE_BYTES,
                                   .host_bytes = (uint64_t)w->cfg.host * GRANULE_BYTES,
                                   .disk_bytes = disk_budget(w, d, t),
                                   .record_bytes = (uint64_t)w->cfg.records * RECORD_PAGE_BYTES,
                                   .regions = w->regions,
                                   .sessions_max = w->cfg.sessions_max,
                                   .host_write = w->cfg.host_behind};
    EXPECT(core_size(&limits, &bytes) == TERN_OK && bytes <= ARENA_MAX, "sim_limits",
           "limits refused, or %zu bytes", bytes);
    memset(m->arena, 0, bytes);
    m->arena_bytes = bytes;
    m->incarnation = 0x1000 * (d + 1) + m->restarts + (uint64_t)w->cfg.seed_tokens * 0x100000;
    m->core = core_init(m->arena, &limits, tenants, m->incarnation, &secret);
    disk_start(w, d);
    m->conn[0] = (struct conn){.open = 1, .admin = 1};
    ev.conn.tenant = NONE;
    ev.conn.proc = NONE;
    ev.conn.admin = true;
    sim_step(w, d, &ev);
}

static void daemon_clear(struct sim *w, uint32_t d)
{
    struct daemon *m = &w->d[d];
    uint32_t n = w->cfg.granules;

    memset(m->conn, 0, sizeof m->conn);
    for (uint32_t e = 0; e < ENGINES; e++)
        memset(&m->engine[e], 0, offsetof(struct engine, work));
    for (uint32_t s = 0; s < SESSIONS; s++)
        memset(&m->session[s], 0, offsetof(struct session, table));
    memset(m->pool, 0, sizeof m->pool);
    for (uint32_t i = 0; i < PULLS * 2; i++)
        m->pull[i].used = 0;
    for (uint32_t i = 0; i < SERVES * 2; i++)
        m->serve[i].used = 0;
    memset(m->walking, 0, sizeof m->walking);
    m->npulls = m->njobs = m->procs_used = m->resets = m->spoilt = 0;
    m->host_unsure = m->waiting = 0;
    memset(m->open_resets, 0, sizeof m->open_resets);
    memset(m->opened, 0, sizeof m->opened);
    memset(m->reset_asked, 0, sizeof m->reset_asked);
    memcpy(m->own_reset, m->heard_reset, sizeof m->own_reset);
    for (uint32_t t = 0; t < TENANTS; t++)
        for (uint32_t i = 0; i < NAMESPACES; i++)
            m->content[t][i] = w->resets; /* none */
    memset(m->question, 0, sizeof m->question);
    m->fetched = 0;
    memset(m->urgent_row, 0, sizeof m->urgent_row);
    m->last_copy = (struct copy_id){0, 0};
    memset(m->pin, 0, sizeof m->pin);
    memset(&m->kept, 0, sizeof m->kept);
    m->draining = 0;
    for (uint32_t t = 0; t < TENANTS; t++)
        for (uint32_t i = 0; i < NAMESPACES; i++)
            m->space_of[t][i] = (uint8_t)i;
    for (uint32_t t = 0; t < w->cfg.tenants; t++) {
        memset(m->granule[t], 0, w->granules * sizeof m->granule[t][0]);
        for (uint32_t r = 0; r < w->regions; r++)
            memset(m->tag[t][r], 0, n * sizeof m->tag[t][r][0]);
        memset(m->host[t], 0, w->hosts * sizeof m->host[t][0]);
    }
    records_clear(w, d);
    tickets_clear(w, d);
    memset(m->sum_known, 0, sizeof m->sum_known);
    memset(m->known, 0, sizeof m->known);
}

/* A new incarnation: new memory, no state. The engines lost their connections and have to start
 * again. */
void daemon_restart(struct sim *w, uint32_t d)
{
    struct daemon *m = &w->d[d];

    for (uint32_t i = 0; i < SESSIONS; i++)
        if (m->session[i].live)
            m->old_session = m->session[i].id;
    for (uint32_t i = 0; i < POOLS; i++)
        if (m->pool[i].open)
            m->old_pool = m->pool[i].id;
    FAULT(daemon_restarted);
    w->link[d].incarnation = w->link[d].former = 0; /* it knows no incarnation of its peer */
    TRACE("  daemon %u restarts\n", d);
    w->events += core_changes(m->core);
    disk_crash(w, d);
    for (uint32_t c = 0; c < DAEMONS; c++) {
        if (c != d && sim_far(w, c) != d)
            continue;
        net_cut(w, c);
        for (uint32_t side = 0; side < 2; side++) /* its own side; the other learns later */
            if ((side == 0 ? c : sim_far(w, c)) == d)
                w->link[c].up[side] = 0;
    }
    memset(m->inbound_busy, 0, sizeof m->inbound_busy);
    m->restarts++;
    daemon_clear(w, d);
    daemon_start(w, d);
}

/* --- events --- */

/* E4: more records than the tenant can ever have, unlike too few pages by its numbers. Otherwise
 * the checks for a full table apply. */
static enum tern_err full_for_ever(enum tern_err err, const struct shortage *s,
                                   const uint64_t number[REPLY_NUMBERS])
{
    bool never = s->needed == 0 && number[0] > number[1] && number[1] > 0;

    return err == TERN_QUOTA && never ? TERN_BUSY : err;
}

static void records_that_never_suffice(struct reply *r)
{
    if (r->op == OP_MATCH || r->op == OP_FETCH || r->op == OP_HANDOFF)
        r->err = full_for_ever(r->err, &r->shortage, r->number);
    for (uint32_t i = 0; r->op == OP_STEP && r->err == TERN_OK && i < r->step.n; i++) {
        struct op_result *of = (struct op_result *)(uintptr_t)&r->step.results[i];

        of->err = full_for_ever(of->err, &of->shortage, of->number);
    }
}

static void take_reply(struct sim *w, uint32_t d, const struct reply *r)
{
    records_that_never_suffice((struct reply *)(uintptr_t)r);
    if (r->op == OP_FETCH)
        session_fetched(w, d, r);
    else if (r->op == OP_FETCH_WAIT)
        fetch_wait_answered(w, d, r);
    else if (r->op == OP_NAMESPACE_RESET)
        reset_answered(w, d, r);
    else if (r->op == OP_STORE)
        store_answered(w, d, r);
    else if (r->op == OP_WAIT_PUBLISHED)
        wait_answered(w, d, r);
    else if ((r->op != OP_RECOVER || !session_recovered(w, d, r)) &&
             (r->op != OP_SESSION_CLOSE || !session_closed(w, d, r)))
        w->reply = r;
}

static void take_gone(struct sim *w, uint32_t d, struct engine_id id)
{
    for (uint32_t e = 0; e < ENGINES; e++)
        EXPECT(!w->d[d].engine[e].used || !w->d[d].engine[e].seen ||
                   !engine_id_equal(w->d[d].engine[e].id, id),
               "engine_gone_early",
               "engine %u is said to be gone while processes of it may be alive", e);
}

static void take(struct sim *w, uint32_t d, const struct action *a)
{
    switch (a->kind) {
    case ACT_REPLY: take_reply(w, d, &a->reply); break;
    case ACT_CLOSE_CONN:
    case ACT_LINK_CLOSE:
        violation(w, "closed_by_core", "daemon %u: action %u for what broke no protocol", d,
                  a->kind);
    case ACT_SEAL: take_seal(w, d, a); break;
    case ACT_ZERO: take_zero(w, d, a); break;
    case ACT_RECORD_CHECK: take_record_check(w, d, a); break;
    case ACT_COPY: take_copy(w, d, a); break;
    case ACT_PEER_SEND: net_send(w, d, a); break;
    case ACT_PULL: take_pull(w, d, a); break;
    case ACT_PULL_STOP: take_pull_stop(w, d, a); break;
    case ACT_SERVE_START: take_serve_start(w, d, a); break;
    case ACT_SERVE_STOP: take_serve_stop(w, d, a); break;
    case ACT_ENGINE_GONE: take_gone(w, d, a->engine.engine); break;
    case ACT_DISK_WRITE: take_disk_write(w, d, a); break;
    case ACT_DISK_DROP: take_disk_drop(w, d, a); break;
    case ACT_ENGINE_STUCK:
    case ACT_STEP_WANTED: break; /* the seed decides when ranks are read */
    }
}

/* Between two steps the core's memory is consistent. Without leftover work and passed time there is
 * nothing to do: an action now would be late. */
static void look_inside(struct sim *w, uint32_t d)
{
    struct event idle = {.kind = EV_TIMER, .now_ns = w->now};

    oracle_audit(w->d[d].core);
    if (core_deadline(w->d[d].core) <= w->now)
        return;
    core_step(w->d[d].core, &idle, w->out);
    EXPECT(w->out->n == 0, "forgotten", "daemon %u: action %u came with no event", d,
           w->out->v[0].kind);
}

static void step_once(struct sim *w, uint32_t d, struct event *event)
{
    event->now_ns = w->now;
    model_before_step(w, d);
    follows_look(w, d);
    turns_pass(w, d);
    disk_before(w, d);
    core_step(w->d[d].core, event, w->out);
    EXPECT(core_steps_over(w->d[d].core)->steps == 0, "step_over",
           "daemon %u: event %u looked at %u", d, event->kind,
           core_steps_over(w->d[d].core)->visits);
    fetches_look(w, d);
    for (uint32_t i = 0; i < w->out->n; i++)
        take(w, d, &w->out->v[i]);
    disk_after(w, d);
    turns_look(w, d);
    tickets_after(w, d);
    if (w->audit_every && ++w->steps % w->audit_every == 0)
        look_inside(w, d);
}

/* Pages that are freed in pieces become free before the next request: the model knows free and used
 * pages, and nothing in between. The audit checks each piece. */
void give_back_all(struct sim *w, uint32_t d)
{
    struct event ev = {.kind = EV_TIMER};

    for (uint32_t i = 0;
         (w->cfg.give_back || w->tickets[d]->closing) && core_deadline(w->d[d].core) <= w->now;
         i++) {
        EXPECT(i < GIVE_BACK_STEPS, "give_back_livelock", "it is given back for ever");
        step_once(w, d, &ev);
        if (w->cfg.give_back)
            MARK(gives_back_in_pieces);
    }
    w->tickets[d]->closing = 0;
}

void sim_step(struct sim *w, uint32_t d, struct event *event)
{
    if (event->kind == EV_REQUEST || event->kind == EV_RECORD_CHECKED)
        give_back_all(w, d);
    w->now += STEP_NS;
    w->reply = NULL;
    step_once(w, d, event);
}

void sim_ask(struct sim *w, uint32_t d, struct event *event, const char *what)
{
    sim_step(w, d, event);
    EXPECT(w->reply, what, "no answer");
}

/* As sim_ask, for requests that the core carries out in pieces: timers that are due at once
 * continue them. */
void sim_ask_in_pieces(struct sim *w, uint32_t d, struct event *event, const char *what)
{
    struct event ev = {.kind = EV_TIMER};

    sim_step(w, d, event);
    for (uint32_t i = 0; !w->reply && core_deadline(w->d[d].core) <= w->now; i++) {
        EXPECT(i < GIVE_BACK_STEPS, what, "no answer after %u timers", i);
        step_once(w, d, &ev);
    }
    EXPECT(w->reply, what, "no answer");
}

/* The shell calls the core at its deadline: for work that did not fit one step, or time that
 * passed. */
void sim_timers(struct sim *w, uint32_t d)
{
    struct event ev = {.kind = EV_TIMER};

    for (uint32_t i = 0; core_deadline(w->d[d].core) <= w->now; i++) {
        EXPECT(i < (w->cfg.give_back ? GIVE_BACK_STEPS : 64), "timer_livelock",
               "the core wants a timer at once, for ever");
        step_once(w, d, &ev);
    }
    for (uint32_t i = 0; i < SESSIONS; i++) {
        const struct session *s = &w->d[d].session[i];
        const struct tfetch *f = &w->tickets[d]->fetch[i];
        uint64_t longest = w->limits.transfer_deadline_ns;

        if (f->on && f->follow && w->limits.ticket_deadline_ns > longest)
            longest = w->limits.ticket_deadline_ns;
        EXPECT(!s->live || s->turn != TURN_FETCHING || s->fetch_host || s->deaf ||
                   w->d[d].engine[s->engine].dying || w->now < s->fetch_since + longest + MS,
               "fetch_overdue", "session %u waits since %llu ns", i,
               (unsigned long long)(w->now - s->fetch_since));
    }
}

/* --- the history --- */

/* `far`: at the other daemon; 0: the same. */
static void set_tokens(struct sim *w, uint32_t g, uint32_t near, uint32_t far)
{
    w->page_tokens[0][g] = near;
    w->page_tokens[1][g] = far ? far : near;
}

static void set_state(struct sim *w)
{
    const struct config *c = &w->cfg;
    const uint32_t tokens[] = {c->page_tokens2, c->page_tokens3},
                   far[] = {c->far_tokens2, c->far_tokens3},
                   granules[] = {c->page_granules2, c->page_granules3},
                   window[] = {c->window2, c->window3}, reserve[] = {c->reserve2, c->reserve3};

    w->ngroups = c->ngroups;
    w->reach = w->window_max = 0;
    for (uint32_t i = 0; i < c->nstate; i++) {
        uint32_t g = w->ngroups++, span = window[i] ? window[i] : 1;

        set_tokens(w, g, tokens[i], far[i]);
        w->page_granules[g] = granules[i];
        w->window[g] = window[i];
        w->reserve[g] = reserve[i];
        if ((span + w->L - 1) / w->L > w->reach)
            w->reach = (span + w->L - 1) / w->L;
        if (span > w->window_max)
            w->window_max = span;
    }
    w->slab = 1;
    for (uint32_t g = 0; g < w->ngroups; g++)
        w->slab = w->page_granules[g] > w->slab ? w->page_granules[g] : w->slab;
}

static void set_groups(struct sim *w)
{
    const struct config *c = &w->cfg;

    set_tokens(w, 0, c->page_tokens0, c->far_tokens0);
    set_tokens(w, 1, c->page_tokens1 ? c->page_tokens1 : 1, c->far_tokens1);
    w->page_granules[0] = c->page_granules0;
    w->page_granules[1] = c->ngroups == 2 ? c->page_granules1 : 1;
    w->L = w->page_tokens[0][0];
    while (w->L % w->page_tokens[0][1])
        w->L += w->page_tokens[0][0];
    set_state(w);
    w->span = c->span ? c->span : SPAN;
}

static void set_worlds(struct sim *w)
{
    const struct config *c = &w->cfg;
    const uint32_t near[ENGINES] = {c->world0, c->world1, c->world2},
                   far[ENGINES] = {c->far_world0, c->far_world1, c->far_world2};

    w->ranks = 0;
    for (uint32_t e = 0; e < ENGINES; e++) {
        w->world[0][e] = near[e];
        w->world[1][e] = far[e] ? far[e] : near[e];
        for (uint32_t d = 0; d < DAEMONS; d++)
            w->ranks = w->world[d][e] > w->ranks ? w->world[d][e] : w->ranks;
    }
}

/* Regions of the ranks of each engine: by their numbers, or drawn. */
static void set_regions(struct sim *w)
{
    struct prng p;

    w->regions = w->cfg.regions > w->ranks ? w->cfg.regions : w->ranks;
    w->granules = w->cfg.granules * (w->cfg.places ? w->regions : 1);
    w->hosts = w->cfg.host * (w->cfg.places ? w->regions : 1);
    prng_init(&p, w->cfg.places);
    for (uint32_t d = 0; d < DAEMONS; d++)
        for (uint32_t e = 0; e < ENGINES; e++) {
            uint8_t *of = w->region[d][e];

            for (uint32_t r = 0; r < RANKS; r++)
                of[r] = (uint8_t)r;
            w->named[d][e] = w->cfg.places && prng_below(&p, 4) > 0;
            for (uint32_t r = 0; w->named[d][e] && r < w->regions; r++) {
                uint32_t other = r + prng_below(&p, w->regions - r);
                uint8_t was = of[r];

                of[r] = of[other];
                of[other] = was;
            }
        }
}

static void sim_begin(struct sim *w, const struct history *h)
{
    w->cfg = h->cfg;
    w->steps = 0;
    set_groups(w);
    set_worlds(w);
    set_regions(w);
    w->now = 1000 * MS;
    w->at_choice = 0;
    w->quiet_phase = 0;
    w->what[0] = w->text[0] = 0;
    w->resets = 0;
    memset(w->link, 0, offsetof(struct link, queue));
    memset(&w->link[1], 0, offsetof(struct link, queue));
    set_limits(w);
    make_tokens(w);
    make_prefixes(w);
    for (uint32_t d = 0; d < DAEMONS; d++) {
        w->d[d].restarts = 0;
        w->d[d].next_request = 0;
        w->d[d].old_session = (struct session_id){0, 0};
        w->d[d].old_pool = (struct pool_id){0, 0};
        w->d[d].old_engine = (struct engine_id){0, 0};
        memset(w->d[d].inbound_busy, 0, sizeof w->d[d].inbound_busy);
        memset(w->d[d].heard_reset, 0, sizeof w->d[d].heard_reset);
        disks_clear(w, d);
        daemon_clear(w, d);
        daemon_start(w, d);
    }
    net_connect(w, 0);
    net_connect(w, 1);
}

void history_watch(uint32_t seconds)
{
    setitimer(ITIMER_PROF, &(struct itimerval){.it_value.tv_sec = seconds}, NULL);
}

bool sim_run(struct sim *w, const struct history *h, uint64_t *ret_hash)
{
    running = w;
    check_set_hook(on_check); /* a check that fails removes it */
    history_watch(HISTORY_S);
    if (setjmp(w->failed)) {
        history_watch(0);
        running = NULL;
        if (w->verbose)
            print_trees(w);
        return false;
    }
    sim_begin(w, h);
    for (uint32_t i = 0; i < h->n; i++) {
        const struct choice *c = &h->choice[i];

        w->at_choice = i;
        w->rng = ((uint64_t)c->r << 32 | c->r) ^ 0x9e3779b97f4a7c15u;
        choose(w, c);
    }
    w->at_choice = h->n;
    converge(w);
    *ret_hash = hash_mix(core_hash(w->d[0].core), core_hash(w->d[1].core));
    w->events += core_changes(w->d[0].core) + core_changes(w->d[1].core);
    history_watch(0);
    running = NULL;
    return true;
}
