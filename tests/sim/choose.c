/* Carries one choice out. A choice that has nothing to act on does nothing: so any list of choices
 * is a history. */
#include "choices.h"
#include "disk.h"
#include "leases.h"
#include "records.h"
#include "tickets.h"

static uint32_t pick_engine(struct sim *w, uint32_t d)
{
    uint32_t n = w->cfg.tenants == 2 ? ENGINES : 2, e = pick(w, n);

    (void)d;
    return e;
}

static uint32_t pick_session(struct sim *w, uint32_t d, uint32_t turns)
{
    uint32_t at = pick(w, SESSIONS), set = sessions_usable(&w->d[d], turns, ENGINES_ALL);

    return set ? session_next(&set, at) : NO;
}

#define TURNS_IDLE (1u << TURN_NEW | 1u << TURN_FINISHED)

static void do_match(struct sim *w, uint32_t d)
{
    uint32_t s = pick_session(w, d, chance(w, 75) ? TURNS_IDLE : TURNS_ALL);

    if (s != NO)
        ask_match(w, d, s);
}

static void do_cancel(struct sim *w, uint32_t d)
{
    uint32_t s = pick_session(w, d, 1u << TURN_FETCHING | 1u << TURN_LOADING);

    if (s == NO)
        s = pick_session(w, d, TURNS_ALL);
    if (s != NO)
        ask_cancel(w, d, s);
}

static void do_retract(struct sim *w, uint32_t d)
{
    uint32_t turns = chance(w, 85) ? 1u << TURN_OPEN | 1u << TURN_FINISHED : TURNS_ALL,
             s = pick_session(w, d, turns);

    if (s != NO && !w->d[d].pool[w->d[d].session[s].pool].hgranules && !chance(w, 30))
        return;                            /* shows less without a host tier */
    for (uint32_t n = w->cfg.span ? 4 : 1; /* a long one, if there is one */
         n > 0 && s != NO && w->d[d].session[s].committed < w->cfg.span / 4 + 1 && chance(w, 80);
         n--)
        s = pick_session(w, d, turns);
    if (s != NO)
        ask_retract(w, d, s);
}

static void do_recover(struct sim *w, uint32_t d)
{
    uint32_t s = pick_session(w, d, 1u << TURN_AWAY);

    if (s == NO && chance(w, 20))
        s = pick_session(w, d, TURNS_ALL);
    if (s == NO)
        return;
    if (w->d[d].session[s].unpinned &&
        chance(w, 40)) /* its pages on the device were needed meanwhile */
        evict(w, d, chance(w, 70));
    ask_recover(w, d, s);
    if (w->d[d].session[s].turn != TURN_LOADING || !w->d[d].session[s].live)
        return;
    if (chance(w, 12))
        ask_cancel(w, d, s);
    else if (chance(w, 12))
        step_request(w, d, w->d[d].session[s].engine, chance(w, 50) ? WANT_ABORT : WANT_CLOSE);
}

static void do_turn(struct sim *w, uint32_t d)
{
    uint32_t at = pick(w, SESSIONS), set = sessions_live(&w->d[d], TURNS_ALL, ENGINES_ALL);

    if (set)
        ask_turn(w, d, session_next(&set, at));
}

static void do_record(struct sim *w, uint32_t d)
{
    uint32_t s = pick_session(w, d, TURNS_ALL);

    if (!w->cfg.records)
        return;
    records_write_late(w, d);
    if (chance(w, 60))
        record_work(w, d, pick(w, 4));
    if (chance(w, 10)) { /* a session with many consecutive turns has many records */
        for (uint32_t n = 4 + pick(w, 28); n > 0 && s != NO && w->d[d].session[s].live; n--) {
            ask_record(w, d, s);
            record_work(w, d, pick(w, 4));
        }
        return;
    }
    for (uint32_t n = 1 + pick(w, 4); n > 0 && s != NO; n--)
        ask_record(w, d, s);
}

static void do_job(struct sim *w, uint32_t d)
{
    for (uint32_t n = w->cfg.span ? 1 + pick(w, 8) : 1; n > 0; n--)
        job_finish(w, d, pick(w, JOBS));
    if (w->cfg.records)
        record_work(w, d, pick(w, 4));
    if (w->cfg.disk)
        disk_work(w, d);
}

static void do_time(struct sim *w, uint64_t ns)
{
    w->now += ns;
    sim_timers(w, 0);
    sim_timers(w, 1);
}

/* Computes a list, runs its steps and computes its checksums, so that there is something to
 * store. */
static void converse(struct sim *w, uint32_t d, uint32_t e)
{
    engine_advance(w, d, e);
    if (chance(w, 20))
        ask_open(w, d, e);
    for (uint32_t n = pick(w, 10); n > 0; n--) {
        if (chance(w, 20))
            do_match(w, d);
        step_request(w, d, e, chance(w, 8) ? WANT_CLOSE : WANT_AUTO);
        for (uint32_t r = 0; r < w->ranks && chance(w, 90); r++) {
            engine_exec(w, d, e, r);
            engine_publish(w, d, e, r);
        }
    }
    for (uint32_t n = pick(w, 4); n > 0; n--)
        job_finish(w, d, pick(w, JOBS));
}

/* Other engines compute the prefix that the session reads from the disk, and it is stored while a
 * page of the read turns out to be wrong. */
static void store_what_is_read(struct sim *w, uint32_t d, uint32_t reads)
{
    const struct session *r = &w->d[d].session[reads];

    for (uint32_t n = 1 + pick(w, 4); n > 0; n--)
        converse(w, d, r->engine);
    for (uint32_t i = 0, set = sessions_usable(&w->d[d], 1u << TURN_OPEN | 1u << TURN_FINISHED,
                                               ENGINES_ALL);
         set && i < 3; i++) {
        const uint32_t at = session_next(&set, pick(w, SESSIONS));
        const struct session *s = &w->d[d].session[at];

        if (s->tenant == r->tenant && s->ns == r->ns && s->committed > 0)
            ask_store(w, d, at);
    }
    sim_timers(w, d);
    for (uint32_t n = 2 + pick(w, 6); n > 0; n--)
        data_move(w, d, chance(w, 70));
}

static void do_fetch(struct sim *w, uint32_t d)
{
    uint32_t at = pick(w, SESSIONS), s = NO;
    uint32_t set = sessions_usable(&w->d[d], TURNS_IDLE | 1u << TURN_OPEN, ENGINES_ALL);

    while (set) {
        const struct session *x = &w->d[d].session[s = session_next(&set, at)];

        if (x->turn != TURN_NEW && x->ntokens / w->L * w->L > x->written)
            break;
    }
    if (s == NO)
        return;
    ask_fetch(w, d, s);
    if (!w->d[d].session[s].fetch_disk || w->d[d].session[s].turn != TURN_FETCHING ||
        !w->d[d].session[s].live)
        return;
    if (chance(w, 4))
        ask_cancel(w, d, s);
    else if (chance(w, 6))
        data_break(w, d);
    else if (chance(w, 40))
        store_what_is_read(w, d, s);
}

static void do_disk(struct sim *w, uint32_t d)
{
    if (!disk_is_on(w, d))
        d = 1 - d;
    if (!disk_is_on(w, d))
        return;
    converse(w, d, pick_engine(w, d));
    if (chance(w, 12)) { /* the pages that leave memory next are stored */
        sim_timers(w, d);
        evict(w, d, false);
    }
    for (uint32_t n = 1 + pick(w, 3); n > 0; n--)
        disk_work(w, d);
    if (disk_pause(w, d) > w->now && chance(w, 15))
        do_time(w, disk_pause(w, d) - w->now);
    sim_timers(w, d);
    disk_check(w, d);
}

/* Most often for a session that has something to store. */
static void do_store(struct sim *w, uint32_t d)
{
    uint32_t s = NO;

    if (!disk_is_on(w, d) && chance(w, 90))
        d = 1 - d;
    for (uint32_t n = 4; w->cfg.disk && n > 0; n--) {
        s = pick_session(w, d, 1u << TURN_OPEN | 1u << TURN_FINISHED);
        if (s == NO || w->d[d].session[s].committed > 0)
            break;
    }
    if (s != NO)
        ask_store(w, d, s);
    sim_timers(w, d);
}

/* Most often while a file is being written. */
static void crash(struct sim *w, uint32_t d)
{
    for (uint32_t n = 4; n > 0 && !disk_writes(w, d) && chance(w, 80); n--) {
        converse(w, d, pick_engine(w, d));
        sim_timers(w, d);
    }
    daemon_restart(w, d);
}

static void do_crash(struct sim *w, uint32_t d)
{
    if (!disk_is_on(w, d))
        d = 1 - d;
    if (!disk_is_on(w, d))
        return;
    if (chance(w, 20))
        ask_reset(w, d, pick_engine(w, d));
    else if (disk_shutting(w, d) || chance(w, 60))
        crash(w, d);
    else if (chance(w, 50))
        disk_shut(w, d);
    sim_timers(w, d);
}

static void do_exec(struct sim *w, uint32_t d)
{
    uint32_t e = pick_engine(w, d), rank = pick(w, w->ranks), n = 1 + pick(w, 3);

    while (n--)
        engine_exec(w, d, e, rank);
    if (chance(w, 55))
        engine_publish(w, d, e, rank);
}

static void do_deliver(struct sim *w, uint32_t d)
{
    uint32_t dir = pick(w, 2), n = 1 + pick(w, 3);

    if (w->link[d].n[dir] == 0) {
        d = 1 - d;
        if (w->link[d].n[dir] == 0)
            dir = 1 - dir;
    }
    while (n--)
        net_deliver(w, d, dir);
}

static void do_reap(struct sim *w, uint32_t d, uint32_t e)
{
    struct engine *g = &w->d[d].engine[e];
    uint32_t seat = pick(w, PROCS);

    /* An engine that lost a process is ended by its operator, one process after another. */
    if (g->dying && chance(w, 60))
        engine_kill(w, d, e, 1u << pick(w, PROCS));
    for (uint32_t i = 0; i < PROCS && g->used; i++, seat = (seat + 1) % PROCS)
        if (seat < g->nprocs && g->proc[seat].state == PROC_DEAD) {
            engine_reap(w, d, e, seat);
            return;
        }
}

static void do_conn_close(struct sim *w, uint32_t d)
{
    uint32_t conn = 1 + pick(w, CONNS - 1), s = pick_session(w, d, 1u << TURN_FETCHING);

    if (s != NO && chance(w, 60)) /* a caller waits there for an answer */
        conn = w->d[d].session[s].fetch_conn;

    if (!w->d[d].conn[conn].open)
        return;
    FAULT(connection_closed);
    conn_close(w, d, conn);
}

static void do_step_back(struct sim *w, uint32_t d, uint32_t e)
{
    struct engine *g = &w->d[d].engine[e];
    struct event ev = {.kind = EV_STEP_DONE};
    uint32_t rank = pick(w, w->ranks);

    if (!g->used || !g->seen || g->done[rank] == 0)
        return;
    FAULT(step_went_back);
    ev.step_done.engine = g->id;
    ev.step_done.rank = rank;
    ev.step_done.step = pick(w, g->done[rank]);
    sim_step(w, d, &ev);
    MARK(step_back_refused);
}

/* E7: a rank publishes a step that it cannot have finished, until it publishes its next step. The
 * model counts no further step as finished. */
static void do_step_jump(struct sim *w, uint32_t d, uint32_t e)
{
    struct engine *g = &w->d[d].engine[e];
    struct event ev = {.kind = EV_STEP_DONE};
    uint32_t rank = pick(w, w->ranks), kind = pick(w, 3);

    rank %= g->world ? g->world : 1;
    if (!g->used || !(g->seen >> rank & 1) || g->proc[rank].state == PROC_NONE)
        return;
    FAULT(step_jumped);
    g->jumped |= (uint8_t)(1u << rank);
    ev.step_done.engine = g->id;
    ev.step_done.rank = rank;
    ev.step_done.step = kind == 0   ? UINT64_MAX
                        : kind == 1 ? (uint64_t)w->now | 1ull << 40
                                    : g->step + (2ull << 24);
    TRACE("  engine %u.%u rank %u shows %llu\n", d, e, rank, (unsigned long long)ev.step_done.step);
    sim_step(w, d, &ev);
}

/* Completions of jobs that no longer exist must change nothing. */
static void do_stale_completion(struct sim *w, uint32_t d)
{
    struct event ev = {.kind = EV_SEALED};
    uint64_t slot = pick(w, 4), gen = pick(w, 3), id = gen << 32 | slot;
    uint64_t before = core_changes(w->d[d].core);

    if (core_deadline(w->d[d].core) <= w->now + STEP_NS)
        return; /* something is due by then */
    switch (pick(w, w->cfg.records ? 7 : 6)) {
    case 6:
        ev.kind = EV_RECORD_CHECKED;
        ev.checked = (struct record_checked){.id = record_stale_id(w, d), .nhashes = 2};
        break;
    case 5:
        ev.kind = EV_COPIED;
        id = chance(w, 50) && w->d[d].last_copy.gen ? copy_id_pack(w->d[d].last_copy) : id;
        ev.copied.job = copy_id_unpack(id);
        break;
    case 0:
        ev.sealed.job[0] = seal_id_unpack(id);
        ev.sealed.n = 1;
        break;
    case 1:
        ev.kind = EV_PULL_QUIET;
        ev.pull_quiet.pull = pull_id_unpack(id);
        break;
    case 2:
        ev.kind = EV_SERVE_QUIET;
        ev.serve_quiet.serve = serve_id_unpack(id);
        break;
    case 3:
        ev.kind = EV_ZEROED;
        ev.zeroed.pool = pool_id_unpack(id);
        break;
    default:
        ev.kind = EV_PULLED;
        ev.pulled.pull = pull_id_unpack(id);
        ev.pulled.ok[0] = ~0ull;
    }
    for (uint32_t i = 0; i < PULLS * 2; i++) /* an id that could be real */
        if (w->d[d].pull[i].used && pull_id_pack(w->d[d].pull[i].id) == id)
            return;
    for (uint32_t i = 0; i < SERVES * 2; i++)
        if (w->d[d].serve[i].used && serve_id_pack(w->d[d].serve[i].id) == id)
            return;
    for (uint32_t i = 0; i < w->d[d].njobs; i++)
        if (w->d[d].job[i].id == id)
            return;
    FAULT(stale_completion);
    sim_step(w, d, &ev);
    EXPECT(before == core_changes(w->d[d].core), "stale_completion_taken",
           "event %u for %u.%u changed the state", ev.kind, (uint32_t)id, (uint32_t)(id >> 32));
}

static void do_kill(struct sim *w, uint32_t d, uint32_t kind, uint32_t e)
{
    const struct engine *g = &w->d[d].engine[e];
    uint32_t leader = g->nprocs > g->world ? g->world : 0;

    if (!g->used || !g->seen || g->dying)
        return;
    if (kind == CHOICE_kill) {
        FAULT(process_killed);
        engine_kill(w, d, e, 1u << pick(w, g->nprocs));
    } else if (kind == CHOICE_kill_leader) {
        FAULT(leader_killed);
        engine_kill(w, d, e, 1u << leader);
    } else {
        FAULT(engine_killed);
        engine_kill(w, d, e, 0xff);
    }
}

/* A client that lost an answer sends its request again: nothing happens twice (S8, fault 26). */
static void do_repeat(struct sim *w, uint32_t d, uint32_t e)
{
    uint32_t s = pick_session(w, d, 1u << TURN_OPEN | 1u << TURN_FINISHED);

    FAULT(request_repeated);
    if (s != NO && chance(w, 70))
        ask_again(w, d, s);
    else
        engine_repeat(w, d, e);
}

/* Most often a session that has a tail, and whose chunks are committed. */
static void do_handoff(struct sim *w, uint32_t d)
{
    uint32_t i = NO;

    if (!w->cfg.ticket_ms)
        return;
    if (chance(w, 4)) {
        i = pick_session(w, d, TURNS_ALL);
        if (i != NO)
            ask_handoff(w, d, i);
        return;
    }
    for (uint32_t n = 4; n > 0; n--) {
        const struct session *s;

        i = pick_session(w, d, 1u << TURN_OPEN | 1u << TURN_FINISHED);
        if (i == NO) {
            converse(w, d, pick_engine(w, d));
            continue;
        }
        s = &w->d[d].session[i];
        if (s->written >= s->committed + w->L)
            step_commit(w, d, i);
        if (s->live && s->written > 0 && s->written < s->committed + w->L &&
            (s->written > s->committed || chance(w, 25)))
            break;
        if (chance(w, 50))
            step_request(w, d, s->engine, WANT_AUTO);
        i = NO;
    }
    if (i != NO)
        ask_handoff(w, d, i);
}

/* Events between a hand-over and its end. */
static void meddle(struct sim *w, uint32_t source)
{
    uint32_t to = 1 - source;

    sim_timers(w, source);
    sim_timers(w, to);
    switch (pick(w, 14)) {
    case 0:
    case 1: do_cancel(w, to); break;
    case 2: ask_ticket(w, source, w->cfg.early && chance(w, 40)); break;
    case 3: evict(w, source, true); break;
    case 4: evict(w, to, true); break;
    case 5: ask_drop(w, source, chance(w, 30)); break;
    case 6: ask_renew(w, source, chance(w, 30)); break;
    case 7: do_time(w, (1 + pick(w, w->cfg.ticket_ms)) * MS); break;
    case 8: data_move(w, to, true); break;
    case 9: converse(w, source, pick_engine(w, source)); break;
    case 10: do_retract(w, to); break;
    case 11:
        if (chance(w, 30))
            do_kill(w, chance(w, 60) ? source : to, CHOICE_kill_engine, pick_engine(w, source));
        break;
    case 12:
        if (!chance(w, 30) || !w->link[to].alive)
            break;
        FAULT(link_cut);
        net_cut(w, to);
        if (chance(w, 70)) {
            net_notice(w, to, 0);
            net_notice(w, to, 1);
        }
        break;
    default:
        if (chance(w, 12))
            daemon_restart(w, source);
        else if (chance(w, 12))
            ask_reset(w, source, pick_engine(w, source));
    }
}

/* Both daemons continue the work under way. */
static void go_on(struct sim *w, uint32_t source, uint32_t n)
{
    for (; n > 0; n--) {
        uint32_t d = chance(w, 50) ? source : 1 - source;

        switch (pick(w, 6)) {
        case 0: do_exec(w, d); break;
        case 1:
            for (uint32_t e = 0; e < ENGINES && chance(w, 80); e++)
                for (uint32_t r = 0; r < w->ranks; r++)
                    engine_publish(w, source, e, r);
            break;
        case 2: job_finish(w, d, pick(w, JOBS)); break;
        case 3: data_move(w, 1 - source, false); break;
        case 4: data_quiet(w, d); break;
        default: net_deliver(w, 1 - source, 0); net_deliver(w, 1 - source, 1);
        }
    }
}

static void do_ticket(struct sim *w, uint32_t source)
{
    if (!w->cfg.ticket_ms)
        return;
    if (w->tickets[source]->n == 0)
        source = 1 - source;
    if (chance(w, 50))
        go_on(w, source, pick(w, 12));
    if (chance(w, 75))
        ask_ticket(w, source, w->cfg.early && chance(w, 20));
    for (uint32_t n = pick(w, 5); n > 0; n--) {
        go_on(w, source, pick(w, 12));
        if (chance(w, 25))
            meddle(w, source);
        if (chance(w, 20) &&
            ticket_done_comes(w, source)) /* it arrives after the source's own end */
            do_time(w, w->cfg.deadline_ms * MS);
    }
    sim_timers(w, 0);
    sim_timers(w, 1);
}

/* A session with a promised ticket. NO: none. */
static uint32_t pick_promised(struct sim *w, uint32_t d)
{
    uint32_t at = pick(w, SESSIONS), set = sessions_usable(&w->d[d], TURNS_ALL, ENGINES_ALL);

    while (set) {
        uint32_t i = session_next(&set, at);

        if (w->tickets[d]->tk[i].stands && w->tickets[d]->tk[i].promised)
            return i;
    }
    return NO;
}

/* Computes the session's list and hands it over when the list is complete, now and then before. */
static void compute_followed(struct sim *w, uint32_t d, uint32_t i)
{
    const struct session *s = &w->d[d].session[i];

    for (uint32_t n = 1 + pick(w, 3); n > 0 && s->live; n--) {
        turns_near(w); /* time passes with each */
        step_compute(w, d, i);
    }
    turns_near(w);
    if (!s->live || (s->turn != TURN_OPEN && s->turn != TURN_FINISHED) ||
        (s->written < s->ntokens && !chance(w, 4)) || !chance(w, 50))
        return;
    if (s->written >= s->committed + w->L)
        step_commit(w, d, i);
    turns_near(w);
    if (s->live && s->written > 0)
        ask_handoff(w, d, i);
}

static void ask_how_far(struct sim *w, uint32_t d)
{
    uint32_t i = pick_session(w, d, 1u << TURN_FETCHING);

    if (i == NO && chance(w, 10))
        i = pick_session(w, d, TURNS_ALL);
    if (i != NO)
        ask_fetch_wait(w, d, i, chance(w, 25));
}

/* A decode engine follows a prefill that still runs. */
static void do_follow(struct sim *w, uint32_t source)
{
    uint32_t i;

    if (!w->cfg.early)
        return;
    i = chance(w, 85) ? pick_promised(w, source) : NO;
    if (i == NO) {
        i = pick_session(w, source, 1u << TURN_OPEN | 1u << TURN_FINISHED);
        if (i == NO || !ask_ticket_open(w, source, i)) {
            converse(w, source, pick_engine(w, source));
            return;
        }
    }
    if (chance(w, 60))
        ask_ticket(w, source, true);
    for (uint32_t n = 1 + pick(w, 8); n > 0; n--) {
        if (chance(w, 50) && w->d[source].session[i].live)
            compute_followed(w, source, i);
        go_on(w, source, pick(w, 12));
        if (chance(w, 12))
            meddle(w, source);
        if (chance(w, 25))
            ask_how_far(w, 1 - source);
    }
    sim_timers(w, 0);
    sim_timers(w, 1);
}

static void do_cut(struct sim *w, uint32_t d)
{
    if (w->link[d].alive)
        FAULT(link_cut);
    net_cut(w, d);
}

static void do_one_way(struct sim *w, uint32_t d) /* fault 28 */
{
    if (!w->link[d].alive)
        return;
    FAULT(link_one_way);
    w->link[d].one_way |= (uint8_t)(1u << pick(w, 2));
}

static void do_broken(struct sim *w, uint32_t d)
{
    if (data_break(w, d) && chance(w, 30))
        do_time(w, w->cfg.deadline_ms * MS);
}

static void do_fault(struct sim *w, uint32_t d, uint32_t kind)
{
    uint32_t e = pick_engine(w, d);

    switch (kind) {
    case CHOICE_cancel: do_cancel(w, d); break;
    case CHOICE_cut: do_cut(w, d); break;
    case CHOICE_one_way: do_one_way(w, d); break;
    case CHOICE_corrupt:
        for (uint32_t n = 1 + pick(w, 4); n > 0; n--) /* perhaps the same pages again */
            data_move(w, d, true);
        break;
    case CHOICE_broken: do_broken(w, d); break;
    case CHOICE_stale_data: data_stale(w, d); break;
    case CHOICE_kill:
    case CHOICE_kill_leader:
    case CHOICE_kill_engine: do_kill(w, d, kind, e); break;
    case CHOICE_leave: engine_depart(w, d, e, pick(w, PROCS)); break;
    case CHOICE_conn_close: do_conn_close(w, d); break;
    case CHOICE_restart:
        if (chance(w, 40))
            daemon_restart(w, d);
        break;
    case CHOICE_repeat: do_repeat(w, d, e); break;
    case CHOICE_stale: stale_request(w, d); break;
    case CHOICE_bad: bad_request(w, d); break;
    case CHOICE_step_back: do_step_back(w, d, e); break;
    case CHOICE_step_jump: do_step_jump(w, d, e); break;
    case CHOICE_stale_completion: do_stale_completion(w, d); break;
    case CHOICE_pool_close: pool_shut(w, d, pick(w, POOLS)); break;
    case CHOICE_drain:
        if (chance(w, 50))
            drain(w, d);
        else
            operator_ends(w, d);
        break;
    case CHOICE_reset:
        if (chance(w, 40))
            ask_reset(w, d, e);
        break;
    case CHOICE_jump:
        if (!chance(w, 25))
            break;
        FAULT(clock_jumped); /* fault 32: the host was suspended for 60 s */
        do_time(w, 60000 * MS);
        break;
    default: break;
    }
}

/* All possible work was done with the event that made it possible: an early timer, or an operator's
 * look, finds nothing. The step takes time itself: work that becomes due during it was not
 * forgotten. */
static void check_idle(struct sim *w, uint32_t d)
{
    struct event ev = {.kind = w->now / STEP_NS % 2 ? EV_LOOK : EV_TIMER};
    uint64_t before = core_changes(w->d[d].core);

    if (core_deadline(w->d[d].core) <= w->now + STEP_NS)
        return;
    sim_step(w, d, &ev);
    EXPECT(core_changes(w->d[d].core) == before && w->out->n == 0, "work_forgotten",
           "an event that nobody asked for made %u actions", w->out->n);
}

/* The counts that the model keeps as shortcuts equal the real counts. */
static void check_counts(struct sim *w, uint32_t d)
{
    const struct daemon *m = &w->d[d];
    uint32_t used = 0;

    for (uint32_t i = 0; i < PULLS * 2; i++)
        used += m->pull[i].used;
    EXPECT(used == m->npulls, "sim_pulls", "%u are used, not %u", used, m->npulls);
    EXPECT(m->waiting || !sessions_waiting(m), "sim_waiting", "sessions %x", sessions_waiting(m));
}

static void say_choice(const struct sim *w, const struct choice *c)
{
    static const char *const name[] = {
#define X(n, weight, fault) #n,
        CHOICES(X)
#undef X
    };

    printf("%u: %s on daemon %u\n", w->at_choice, name[c->kind], c->daemon);
}

/* Checks that cost too much after each choice run after some; the history draws which. */
static void look_around(struct sim *w, uint32_t d, uint32_t r)
{
    if ((r & 7) == 0)
        check_idle(w, d);
    if ((r & 0x18) == 0)
        state_look(w, d);
    if ((r & 0x7e0) == 0) {
        check_counts(w, d);
        waits_check(w, d);
        turns_check(w, d);
    }
    if (w->cfg.records && (r & 0x60) == 0)
        records_check(w, d);
    if (w->cfg.ticket_ms && (r & 0x60) == 0)
        tickets_check(w, d);
    if (w->cfg.early && (r & 0x3) == 0)
        follows_check(w, d);
}

void choose(struct sim *w, const struct choice *c)
{
    uint32_t d = c->daemon, e = pick_engine(w, d), conn;

    if (__builtin_expect(w->verbose, 0))
        say_choice(w, c);
    turns_near(w);
    switch (c->kind) {
    case CHOICE_join: engine_advance(w, d, e); break;
    case CHOICE_open: ask_open(w, d, e); break;
    case CHOICE_match: do_match(w, d); break;
    case CHOICE_peek: ask_peek(w, d, e); break;
    case CHOICE_step: step_request(w, d, e, WANT_AUTO); break;
    case CHOICE_abort: step_request(w, d, e, WANT_ABORT); break;
    case CHOICE_close: step_request(w, d, e, WANT_CLOSE); break;
    case CHOICE_fetch: do_fetch(w, d); break;
    case CHOICE_retract: do_retract(w, d); break;
    case CHOICE_recover: do_recover(w, d); break;
    case CHOICE_pin:
        if (chance(w, 50))
            ask_pin(w, d);
        else
            ask_unpin(w, d, pick(w, PINS));
        break;
    case CHOICE_exec: do_exec(w, d); break;
    case CHOICE_publish:
        engine_publish(w, d, e, pick(w, w->ranks));
        waits_check(w, d);
        break;
    case CHOICE_wait: ask_wait(w, d, e); break;
    case CHOICE_turn: do_turn(w, d); break;
    case CHOICE_record: do_record(w, d); break;
    case CHOICE_disk: do_disk(w, d); break;
    case CHOICE_store: do_store(w, d); break;
    case CHOICE_crash: do_crash(w, d); break;
    case CHOICE_lease: ask_lease(w, d, e); break;
    case CHOICE_handoff: do_handoff(w, d); break;
    case CHOICE_ticket: do_ticket(w, d); break;
    case CHOICE_follow: do_follow(w, d); break;
    case CHOICE_deliver: do_deliver(w, d); break;
    case CHOICE_data:
        for (uint32_t n = 1 + pick(w, 4); n > 0; n--)
            data_move(w, d, false);
        break;
    case CHOICE_job: do_job(w, d); break;
    case CHOICE_quiet: data_quiet(w, d); break;
    case CHOICE_time: do_time(w, (1 + pick(w, 12)) * MS); break;
    case CHOICE_connect: net_connect(w, d); break;
    case CHOICE_evict: evict(w, d, chance(w, 30)); break;
    case CHOICE_notice:
        conn = pick(w, DAEMONS);
        if (!w->link[conn].alive || w->link[conn].one_way)
            net_notice(w, conn, pick(w, 2));
        break;
    case CHOICE_reap: do_reap(w, d, e); break;
    default: do_fault(w, d, c->kind); break;
    }
    if (core_deadline(w->d[d].core) <= w->now)
        sim_timers(w, d);
    look_around(w, d, c->r);
}
