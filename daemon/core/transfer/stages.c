#include "core/transfer/serves.h"

#include "core/transfer/pulls.h"

static enum transfer_stage pull_stage(const struct pull *p)
{
    switch (p->state) {
    case PULL_RUNNING: return p->batches > 0 ? STAGE_WIRE : STAGE_QUEUED;
    case PULL_GIVEN_UP: return STAGE_ENDING;
    case PULL_ASKED_ENDS:
    case PULL_RUNNING_ENDS:
    case PULL_STOPPING: return p->err == TERN_OK ? STAGE_PUBLISHED : STAGE_ENDING;
    default: return STAGE_QUEUED;
    }
}

static enum transfer_wait pull_waits_for(const struct core *c, const struct pull *p)
{
    switch (p->state) {
    case PULL_ASKED:
    case PULL_GIVEN_UP: return WAIT_SOURCE;
    case PULL_PUT_OFF: return WAIT_BUSY;
    case PULL_WAITING: return p->seeks ? WAIT_SOURCE : WAIT_COMMIT;
    case PULL_RUNNING:
        if (pull_lacks_credit(c, p))
            return WAIT_CREDIT;
        return p->batches > 0 ? WAIT_NOTHING : WAIT_SOURCE; /* the source names the next pages */
    case PULL_STOPPING: return WAIT_PROOF;
    default: return WAIT_NOTHING;
    }
}

static enum transfer_stage serve_stage(const struct serve *s)
{
    switch (s->state) {
    case SERVE_WALKING: return STAGE_WALKING;
    case SERVE_SEALING: return STAGE_SEALING;
    case SERVE_OPEN: return STAGE_OFFERED;
    default: return s->err == TERN_OK ? STAGE_RELEASED : STAGE_ENDING;
    }
}

static enum transfer_wait serve_waits_for(const struct serve *s)
{
    if (s->follow && (s->state == SERVE_SEALING || s->state == SERVE_OPEN) && s->told < s->to &&
        s->avail == s->told)
        return s->wait_node == NONE ? WAIT_COMMIT : WAIT_SEAL;
    switch (s->state) {
    case SERVE_WALKING: return WAIT_TOKENS;
    case SERVE_SEALING: return s->wait_node == NONE ? WAIT_NOTHING : WAIT_SEAL;
    case SERVE_STOPPING: return WAIT_PROOF;
    default: return WAIT_NOTHING;
    }
}

static void settle(const struct core *c, struct transfer_times *t, enum transfer_stage stage,
                   enum transfer_wait wait)
{
    if (t->stage != stage) {
        t->stage_ns[t->stage] += c->now_ns - t->stage_since_ns;
        t->stage_since_ns = c->now_ns;
        t->stage = stage;
    }
    if (t->wait != wait) {
        t->wait_ns[t->wait] += c->now_ns - t->wait_since_ns;
        t->wait_since_ns = c->now_ns;
        t->wait = wait;
    }
}

void stages_settle(struct core *c)
{
    if (!c->touched)
        return; /* nothing changed */
    c->visits += c->pulls_active.n + c->serves_active.n;
    for (uint32_t i = c->pulls_active.head; i != NONE; i = pull_list_next(c, i)) {
        struct pull *p = pull_at(c, i);

        settle(c, &p->times, pull_stage(p), pull_waits_for(c, p));
    }
    for (uint32_t i = c->serves_active.head; i != NONE; i = serve_list_next(c, i)) {
        struct serve *s = serve_at(c, i);

        settle(c, &s->times, serve_stage(s), serve_waits_for(s));
    }
}
