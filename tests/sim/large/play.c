/* Carries one choice out. A choice that has nothing to act on does nothing. */
#include "world.h"

#include "core/arena/arena.h"

static uint32_t magnitude(uint32_t most)
{
    uint32_t bits = 0, top;

    for (uint32_t n = most; n > 0; n /= 2)
        bits++;
    top = bits ? 1u << lpick(bits) : 1;
    return 1 + lpick(top > most ? most : top);
}

static struct lsession *session_in(enum lstate state)
{
    uint32_t at = lpick(LARGE_TRACKED);

    for (uint32_t i = 0; i < LARGE_TRACKED; i++)
        if (lw.session[(at + i) % LARGE_TRACKED].state == state)
            return &lw.session[(at + i) % LARGE_TRACKED];
    return NULL;
}

static uint32_t length_of_prompt(void)
{
    uint32_t n = lpick(3) ? lw.cfg.chunks * lw.cfg.align
                          : magnitude(lw.cfg.chunks) * lw.cfg.align + lpick(lw.cfg.align);

    return n < lw.prompt_tokens ? n : lw.prompt_tokens;
}

static bool do_prompt(void)
{
    struct lsession *s = lsession_new(lpick(LARGE_PROMPTS), length_of_prompt());

    return s && lsession_compute(s, s->tokens);
}

static bool do_grow(void)
{
    struct lsession *s = session_in(L_RUNS);
    uint32_t to;

    if (!s)
        return false;
    to = s->len.written + magnitude(lw.cfg.chunks) * lw.cfg.align;
    return lsession_compute(s, to < lw.prompt_tokens ? to : lw.prompt_tokens);
}

static bool do_close(void)
{
    struct lsession *s = session_in(lpick(4) ? L_RUNS : lpick(2) ? L_NEW : L_AWAY);

    return s && lsession_close(s);
}

static bool do_rewind(void)
{
    struct lsession *s = session_in(L_RUNS);

    return s && lsession_rewind(s, s->len.committed + lpick(s->len.written - s->len.committed + 1));
}

static bool do_step(void)
{
    bool any = lw.step > lw.passed;

    lpass(lpick(6) ? lw.step : lw.passed + lpick((uint32_t)(lw.step - lw.passed) + 1));
    if (lpick(2))
        lsettle();
    return any;
}

static bool do_work(void)
{
    uint32_t n = magnitude(lpick(3) ? 256 : 4 * lw.cfg.chunks + 64);
    bool any = lw.njobs > 0;

    for (; n > 0 && lw.njobs > 0; n--)
        ljob_finish(lpick(lw.njobs));
    lsettle();
    return any;
}

static bool do_time(void)
{
    lw.now += (uint64_t)magnitude(2 * lw.cfg.ticket_ms) * LARGE_MS;
    lsettle();
    return true;
}

static bool do_evict(void)
{
    struct request r = {.op = OP_EVICT, .conn = RANKS_MAX};
    const struct reply *reply;

    r.evict.pool.slot = NONE;
    r.evict.nodes = lpick(3) ? 0 : magnitude(lw.cfg.chunks);
    reply = lask(&r, 1);
    lsettle();
    return reply && reply->err == TERN_OK;
}

static bool do_retract(void)
{
    struct lsession *s = session_in(L_RUNS);

    return s && lsession_retract(s, lw.cfg.host_pages > 0 && lpick(3));
}

static bool do_recover(void)
{
    struct lsession *s = session_in(L_AWAY);

    return s && lsession_recover(s);
}

static bool do_store(void)
{
    struct lsession *s = session_in(L_RUNS);

    if (!s || lw.cfg.disk_chunks == 0)
        return false;
    lpass(lw.step);
    lsettle();
    for (uint32_t n = lpick(2) ? 64 : 4096; n > 0 && lw.njobs > 0; n--)
        ljob_finish(0);
    return lsession_store(s);
}

static bool do_fetch(void)
{
    uint32_t prompt = lpick(LARGE_PROMPTS), peer = lpick(2) ? PEER_DISK : PEER_HOST;
    struct lsession *s;

    if (lw.ticket.id.gen != 0 && lw.ticket_space == lw.space && lpick(2)) {
        s = lsession_new(lw.ticket_prompt, lw.ticket.length);
        return s && lsession_fetch(s, NONE, &lw.ticket);
    }
    s = lsession_new(prompt, length_of_prompt());
    return s && lsession_fetch(s, peer, NULL);
}

static bool do_handoff(void)
{
    struct lsession *s = session_in(L_RUNS);

    return s && lsession_handoff(s);
}

/* --- many sessions that only hold a ticket --- */

static void held_close(uint32_t keep)
{
    static struct step_op ops[STEP_OPS_MAX];

    while (lw.nheld > keep) {
        struct request r = {.op = OP_STEP, .step = {.ops = ops}};

        for (; r.step.n < STEP_OPS_MAX && lw.nheld > keep; r.step.n++)
            ops[r.step.n] = (struct step_op){.kind = STEP_CLOSE, .session = lw.held[--lw.nheld]};
        lask(&r, r.step.n);
    }
}

static bool held_open(void)
{
    struct request r = {.op = OP_SESSION_OPEN};
    const struct reply *reply;

    r.session_open.pool = lw.pool;
    r.session_open.ns = (struct namespace_id){.hi = 1, .lo = lw.space};
    reply = lask(&r, 1);
    if (!reply || reply->err != TERN_OK)
        return false;
    lw.held[lw.nheld++] = reply->session_open.session;
    r = (struct request){.op = OP_MATCH};
    r.match.session = lw.held[lw.nheld - 1];
    r.match.tokens = (struct req_tokens){.v = lw.tokens[0], .n = 1};
    lask(&r, 1);
    r = (struct request){.op = OP_TICKET_OPEN};
    r.ticket_open.session = lw.held[lw.nheld - 1];
    r.ticket_open.deadline_ms = 1 + lpick(lw.cfg.ticket_ms);
    r.ticket_open.key[0] = lw.now;
    reply = lask(&r, 1);
    return reply && reply->err == TERN_OK;
}

static bool do_tickets(void)
{
    uint32_t n = magnitude(lw.cfg.lim_sessions);
    bool any = false;

    if (lpick(3) == 0) {
        any = lw.nheld > 0;
        held_close(lpick(lw.nheld + 1));
        return any;
    }
    for (; n > 0 && lw.nheld < LARGE_HELD && held_open(); n--)
        any = true;
    return any;
}

static bool do_turns(void)
{
    struct lsession *s = session_in(L_RUNS);

    return s && lsession_turn(s);
}

static bool do_reset(void)
{
    struct request r = {.op = OP_NAMESPACE_RESET};
    const struct reply *reply;

    r.namespace_reset.ns = (struct namespace_id){.hi = 1, .lo = lw.space};
    reply = lask(&r, 1);
    if (reply && reply->err != TERN_OK)
        return false;
    lw.space++;
    lrestarted(false); /* nor has the disk anything of the new content */
    lsettle();
    return reply != NULL;
}

static bool do_kill(void)
{
    lengine_lost();
    return true;
}

static bool do_restart(void)
{
    lworld_restart(lpick(4) > 0);
    return true;
}

static bool do_idle(void)
{
    struct event ev = {.kind = EV_STEP_DONE};

    lsettle();
    ev.step_done.engine = lw.engine;
    for (uint32_t i = 0; i < 4 && core_deadline(lw.core) > lw.now + 1; i++)
        lstep(&ev, 0);
    ev = (struct event){.kind = EV_TIMER};
    for (uint32_t i = 0; i < 4 && core_deadline(lw.core) > lw.now + 1; i++)
        lstep(&ev, 0);
    return true;
}

static bool do_far(void)
{
    struct lsession *s = lsession_new(0, lw.cfg.chunks * lw.cfg.align);
    bool away;

    if (!s || !lsession_compute(s, s->tokens))
        return false;
    while (lsession_commit(s))
        ;
    lpass(lw.step);
    lsettle();
    away = lsession_retract(s, lw.cfg.host_pages > 0);
    if (lpick(2))
        lsettle();
    for (uint32_t n = lpick(4) ? 4096 : 2 * lw.cfg.chunks; n > 0 && lw.njobs > 0; n--)
        ljob_finish(lpick(lw.njobs));
    return away && s->len.committed == lw.cfg.chunks * lw.cfg.align;
}

void lplay(const struct lchoice *c)
{
    static bool (*const does[])(void) = {
#define X(name, weight, least) do_##name,
        LARGE_KINDS(X)
#undef X
    };

    lw.rng = (uint64_t)c->r << 32 | c->a;
    if (does[c->kind]())
        lw.marks[c->kind] = true;
}
