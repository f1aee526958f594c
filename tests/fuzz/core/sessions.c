/* Engines and their sessions: every operation of a Step, fetches, retracts and recoveries. The
 * engine's own knowledge is compared with the answers. See world.h. */
#include "fuzz/core/world.h"

static void verify_session(struct actor *a, uint32_t i)
{
    if (a->open[i] && !a->away[i] && !rolling_back(a, i) &&
        rig_wrong(a->s[i], a->s[i]->len.written))
        rig_fail("P1: session %u of %s holds wrong bytes", i, a->name);
}

void verify(struct actor *a)
{
    for (uint32_t i = 0; i < SESSIONS; i++)
        verify_session(a, i);
    verify_records(a);
}

/* Does the engine only read a page that its table lost, until the step is done? Committed pages may
 * have another owner, and so may those that a commit took. */
static bool only_reads(const struct rig_session *s, const struct group_layout *l,
                       const struct step_op *op, const struct lengths *before, uint32_t p,
                       bool gone)
{
    if (l->family == FAMILY_RECURRENT)
        return op->kind == STEP_COMMIT;
    if (p < before->committed / l->page_tokens)
        return true;
    return op->kind == STEP_COMMIT && gone && p < s->len.committed / l->page_tokens;
}

/* T5: the window has passed the page. A page of the session's own has left the table already; the
 * rig counts all pages below T as borrowed, which leave by whole chunks. */
static bool slid(const struct actor *a, const uint32_t *below, uint32_t g, uint32_t p)
{
    return a->groups[g].family == FAMILY_WINDOW && p < below[g];
}

/* An operation that may release pages: those that the table loses are remembered as in use until
 * op.step. */
static void giving(struct actor *a, uint32_t i, struct step_op op)
{
    static struct page_ref before[GROUPS][SEQUENCE + 8];
    struct rig_session *s = a->s[i];
    struct lengths len = s->len;
    uint32_t below[GROUPS_MAX];
    enum tern_err err;

    memcpy(below, s->slid, sizeof below);
    for (uint32_t g = 0; g < a->ngroups; g++)
        memcpy(before[g], s->table[g], sizeof before[g]);
    err = rig_op(s, op);
    if (err == TERN_GONE)
        rig_fail("an open session is GONE");
    if (op.kind == STEP_CLOSE && err == TERN_OK) {
        a->open[i] = false;
        turn_closed(a, i);
        memset(s->table, 0, sizeof s->table);
    }
    if (a->away[i] && err == TERN_OK) { /* closed, or aborted */
        a->away[i] = false;
        a->recover[i] = 0;
    }
    for (uint32_t g = 0; g < a->ngroups && op.step; g++)
        for (uint32_t p = 0; p < SEQUENCE + 8; p++) {
            const struct page_ref *now = &s->table[g][p];

            if (before[g][p].index && memcmp(&before[g][p], now, sizeof *now) != 0 &&
                !slid(a, below, g, p))
                remember(a, op.step, g, before[g][p],
                         only_reads(s, &a->groups[g], &op, &len, p, now->index == 0));
        }
}

/* S2: the length that a resume must return, from the engine's own knowledge. */
static uint32_t resumed(const struct rig_session *s, const struct req_tokens *t)
{
    uint32_t same = t->base;
    bool had = s->nkeys > 0 && t->base <= 5, has = t->nkeys > 0;

    while (same < s->ntokens && same < t->base + t->n && s->tokens[same] == t->v[same - t->base])
        same++;
    if (had != has && same > 5)
        same = 5;
    return same < s->len.written ? same : s->len.written;
}

static void match(struct world *w, struct actor *a, uint32_t i)
{
    static const struct extra_key key = {.position = 5, .lo = 42};
    uint32_t what = take(w), n = SEQUENCE - take(w) % (what & 8 ? SEQUENCE : 4), want;
    struct req_tokens t = {.v = sequence(what % 8), .n = n};
    bool resume = a->s[i]->len.written > 0;

    if (what & 64 && n > 5) {
        t.keys = &key;
        t.nkeys = 1;
    }
    if (what & 128) { /* sends only the new tokens */
        t.base = a->s[i]->ntokens < n ? a->s[i]->ntokens : n;
        t.v += t.base;
        t.n -= t.base;
        t.nkeys = t.base <= 5 ? t.nkeys : 0;
    }
    want = resumed(a->s[i], &t);
    if (rig_match_full(a->s[i], &t, 0) == TERN_OK && resume && a->s[i]->len.written != want &&
        !(w->shape & SHAPE_RECURRENT && a->s[i]->len.written == a->s[i]->len.committed))
        rig_fail("S2: resumed at %u, not at %u", a->s[i]->len.written, want);
}

/* --- giving way --- */

/* The table is dropped; steps under way still read the pages that stay and write those that go. */
static void retract(struct actor *a, uint32_t i, enum retract_mode mode, uint64_t step)
{
    static struct page_ref before[GROUPS][SEQUENCE + 8];
    struct rig_session *s = a->s[i];
    struct lengths len = s->len;
    uint32_t first = a->nlate;

    for (uint32_t g = 0; g < a->ngroups; g++)
        memcpy(before[g], s->table[g], sizeof before[g]);
    if (rig_retract(s, mode, step) != TERN_OK)
        return;
    if (s->len.committed != len.committed)
        rig_fail("S10: Retract moved T from %u to %u", len.committed, s->len.committed);
    if (a->away[i])
        return; /* repeated: nothing changes (S8) */
    a->away[i] = true;
    a->left[i] = step;
    for (uint32_t g = 0; g < a->ngroups && step; g++)
        for (uint32_t p = 0; p < SEQUENCE + 8; p++) {
            uint32_t from = p * a->groups[g].page_tokens;
            bool goes = a->groups[g].family != FAMILY_RECURRENT && from >= s->len.written;

            if (!slid(a, s->slid, g, p))
                remember(a, step, g, before[g][p], !goes);
        }
    while (first < a->nlate)
        a->late[first++].of = s;
}

/* The session may read and write the pages that are in the table again. */
static void back(struct actor *a, uint32_t i)
{
    const struct rig_session *s = a->s[i];

    a->away[i] = false;
    for (uint32_t k = 0; k < a->nlate; k++) {
        bool again = false;

        for (uint32_t p = 0; p < SEQUENCE + 8 && a->late[k].of == s; p++)
            again |= s->table[a->late[k].group][p].index == a->late[k].index;
        if (again)
            a->late[k--] = a->late[--a->nlate];
    }
    if (rig_wrong(a->s[i], s->len.written))
        rig_fail("P1: session %u of %s came back with wrong bytes", i, a->name);
}

void recovers(struct actor *a)
{
    for (uint32_t i = 0; i < SESSIONS; i++)
        if (a->recover[i] && rig_reply_to(a->rig, a->recover[i])) {
            if (a->open[i] && rig_recovered(a->s[i], a->recover[i]) == TERN_OK)
                back(a, i);
            a->recover[i] = 0;
        }
}

static void recover(struct actor *a, uint32_t i)
{
    struct request request = {.op = OP_RECOVER, .recover.session = a->s[i]->id};
    struct lengths before = a->s[i]->len;

    rig_request(a->rig, a->e.conn[0], &request);
    a->recover[i] = request.request_id;
    recovers(a);
    if (!a->away[i] && a->s[i]->len.committed != before.committed)
        rig_fail("S10: Recover moved T from %u to %u", before.committed, a->s[i]->len.committed);
}

/* While a session is away, all requests but Retract, Recover, cancel, Abort and Close must be
 * refused and change nothing. */
static void refused(struct actor *a, uint32_t i, uint32_t x)
{
    struct rig_session *s = a->s[i];
    struct lengths before = s->len;
    struct session_view v;
    enum tern_err err;

    expect(core_session_view(a->rig->core, s->id.slot, &v));
    if (strcmp(v.state_word, "retracting") != 0 && strcmp(v.state_word, "retracted") != 0 &&
        strcmp(v.state_word, "loading") != 0)
        return; /* its copies failed: it runs again, as a Recover will show */
    err = x % 2 ? rig_extend(s, x % SEQUENCE, 0, sequence(0), 0)
                : rig_match(s, sequence(x % 8), SEQUENCE);
    if (err != TERN_INVALID || memcmp(&before, &s->len, sizeof before) != 0)
        rig_fail("a session that is away answered %d", err);
}

void table_lost(struct actor *a, uint32_t i, uint64_t step)
{
    giving(a, i, (struct step_op){.kind = STEP_ABORT, .step = step});
}

void fetches(struct actor *a)
{
    recovers(a);
    for (uint32_t i = 0; i < SESSIONS; i++)
        if (a->fetch[i] && rig_reply_to(a->rig, a->fetch[i])) {
            if (a->open[i])
                rig_fetched(a->s[i], a->fetch[i]);
            a->fetch[i] = 0;
        }
    puts_answered(a);
}

/* Computes the session's tokens up to `to`, and commits what it can. */
static void run(struct actor *a, uint32_t i, uint32_t to, uint64_t step)
{
    struct rig_session *s = a->s[i];

    to = to > s->ntokens ? s->ntokens : to;
    if (s->ntokens > SEQUENCE || (to > s->len.written && rig_run_to(s, s->tokens, to) != TERN_OK))
        return;
    to -= to % rig_pool_view(a->rig, a->pool).align_tokens;
    giving(a, i, (struct step_op){.kind = STEP_COMMIT, .length = to, .step = step});
}

static void away_op(struct actor *a, uint32_t i, uint32_t kind, uint32_t x, uint64_t step)
{
    switch (kind) {
    case 7: giving(a, i, (struct step_op){.kind = STEP_ABORT, .step = step}); break;
    case 8: giving(a, i, (struct step_op){.kind = STEP_CLOSE, .step = step}); break;
    case 10: rig_fetch_cancel(a->s[i]); break;
    case GIVE_WAY: retract(a, i, x % 4 ? RETRACT_HOST : RETRACT_DROP, step); break;
    case 0:
    case 2:
    case COME_BACK:
        if (!a->recover[i])
            recover(a, i);
        break;
    default:
        if (!a->recover[i])
            refused(a, i, x);
    }
}

/* Interprets the bytes after `kind`, for session `which` % SESSIONS. */
static void play(struct world *w, struct actor *a, uint32_t kind, uint32_t which)
{
    uint32_t i = which % SESSIONS, x = take(w);
    uint64_t step = which & 128 ? 0 : done_min(a) + (which >> 4) % 4;
    struct rig_session *s = a->s[i];

    if (!a->open[i]) {
        a->open[i] = rig_session_open(a->rig, a->e.conn[0], a->pool, 1 + x % 9 / 8, s) == TERN_OK;
        a->left[i] = 0;
        turn_opened(a, i);
        if (a->open[i])
            match(w, a, i);
        return;
    }
    if (rolling_back(a, i))
        return;
    if (a->away[i]) {
        away_op(a, i, kind, x, step);
        return;
    }
    if (step < a->left[i]) /* the daemon knows that by itself while a session is away */
        step = a->left[i];
    if (a->fetch[i] && kind != 7 && kind != 8 && kind != 10)
        return;
    if (a->fetch[i]) /* no later step was begun on pages that may be replaced any time */
        step = s->fetch_step;
    else if (kind == 9 || kind == FETCH_HOST)
        s->fetch_step = step;
    switch (kind) {
    case 0:
    case 2: run(a, i, 1 + x % SEQUENCE, step); break;
    case 1: match(w, a, i); break;
    case 3: rig_extend(s, x % (SEQUENCE + 8), 0, sequence(x % 8) + s->ntokens % 8, x % 3); break;
    case 4:
        giving(a, i, (struct step_op){.kind = STEP_REWIND, .length = x % 48, .step = step});
        break;
    case 5:
        giving(a, i, (struct step_op){.kind = STEP_COMMIT, .length = x % 48, .step = step});
        break;
    case 6:
        giving(a, i, (struct step_op){.kind = STEP_FINISH, .length = x % 48, .step = step});
        break;
    case 7: giving(a, i, (struct step_op){.kind = STEP_ABORT, .step = step}); break;
    case 8: giving(a, i, (struct step_op){.kind = STEP_CLOSE, .step = step}); break;
    case 9:
        a->fetch[i] = rig_fetch(s, x % 8 == 6 ? PEER_ANY : x % 8 == 7, x & 128 ? x % 48 : 0);
        break;
    case 10: rig_fetch_cancel(s); break;
    case 11:
        giving(a, i, (struct step_op){.kind = STEP_SLIDE, .length = x % 48, .step = step});
        break;
    case 12: rig_snapshot_release(s); break;
    case GIVE_WAY: retract(a, i, x % 4 ? RETRACT_HOST : RETRACT_DROP, step); break;
    case COME_BACK: recover(a, i); break;
    case FETCH_HOST: a->fetch[i] = rig_fetch(s, PEER_HOST, x & 128 ? x % 48 : 0); break;
    default: break;
    }
}

/* Checks its bytes before they may leave it, and after. */
void play_session(struct world *w, struct actor *a, uint32_t kind)
{
    uint32_t which = take(w), i = which % SESSIONS;

    if (!a->alive) {
        take(w);
        return;
    }
    verify_session(a, i);
    play(w, a, kind, which);
    verify_session(a, i);
}
