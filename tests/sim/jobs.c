/* The memory's jobs: checksums, zeroing, and copies between the tiers (host.c). They end at moments
 * that the simulator chooses. */
#include "data.h"
#include "tickets.h"

#define LOAD_LINGERS 70 /* percent of attempts that leave a load running */

struct job *job_add(struct sim *w, uint32_t d, enum job_kind kind, uint64_t id, uint32_t pool)
{
    struct daemon *m = &w->d[d];
    struct job *j = &m->job[m->njobs];

    EXPECT(m->njobs < JOBS, "too_many_jobs", "%u jobs", m->njobs);
    m->njobs++;
    j->kind = (uint8_t)kind;
    j->pool = (uint8_t)pool;
    j->id = id;
    j->n = 0;
    return j;
}

void take_seal(struct sim *w, uint32_t d, const struct action *act)
{
    uint32_t pool = pool_of_slot(w, d, act->seal.pool), running = 0;
    struct job *j = job_add(w, d, JOB_SEAL, seal_id_pack(act->seal.job), pool);

    for (uint32_t i = 0; i < w->d[d].njobs; i++)
        running += w->d[d].job[i].kind == JOB_SEAL;
    EXPECT(running <= w->cfg.lim_seals, "seal_jobs", "%u checksum jobs, the limit is %u", running,
           w->cfg.lim_seals);
    EXPECT(act->seal.n <= BATCH_PAGES, "seal_pages", "%u pages", act->seal.n);
    if (act->seal.job.slot >= w->limits.nodes)
        ticket_seal(w, d, act);
    for (uint32_t i = 0; i < act->seal.n; i++) {
        const struct page_at *p = &act->seal.pages[i];
        struct granule *g = page_granule(w, d, pool, p->group, p->index);

        EXPECT(p->record < RECORDS, "record", "record %u", p->record);
        EXPECT(g->gen == p->gen, "seal_stale",
               "a checksum of group %u page %u of generation %u, which is %u", p->group, p->index,
               p->gen, g->gen);
        for (uint32_t k = 0; k < w->page_granules[p->group]; k++)
            g[k].sealing++;
        j->granule[j->n] = (uint16_t)at_of(w, d, pool, g);
        j->record[j->n++] = (uint16_t)p->record;
    }
}

void take_zero(struct sim *w, uint32_t d, const struct action *act)
{
    uint32_t pool = pool_of_slot(w, d, act->zero.pool.slot);
    struct pool *p = &w->d[d].pool[pool];

    EXPECT(pool_id_equal(act->zero.pool, p->id), "zero_stale", "pool %u.%u", act->zero.pool.slot,
           act->zero.pool.gen);
    EXPECT(p->closing || p->engines == 0, "zero_open_pool",
           "pool %u is zeroed, but nobody closed it", pool);
    p->closing = 1; /* nobody maps it: it may go */
    EXPECT(p->engines == 0, "zero_mapped_pool", "pool %u is zeroed, but engines %x may still write",
           pool, p->engines);
    host_close(w, d, pool);
    job_add(w, d, JOB_ZERO, pool_id_pack(act->zero.pool), pool);
}

static void finish_seal(struct sim *w, uint32_t d, const struct job *j, struct event *ev)
{
    struct daemon *m = &w->d[d];
    uint32_t tenant = tenant_of(w, d, j->pool);

    for (uint32_t i = 0; i < j->n; i++) {
        struct granule *g = &m->granule[tenant][j->granule[i]];

        for (uint32_t k = 0, n = w->page_granules[g->group]; k < n; k++) {
            g[k].sealing--;
            g[k].sealed = 1;
        }
        for (uint32_t r = 0; r < m->pool[j->pool].ranks; r++)
            m->sum[j->record[i]][r] = *tag_at(w, d, j->pool, r, j->granule[i]);
        m->sum_known[j->record[i]] = 1;
    }
    if (seal_id_unpack(j->id).slot >= w->limits.nodes)
        ticket_sealed_now(w, d, j->id);
    ev->sealed.job[ev->sealed.n++] = seal_id_unpack(j->id);
}

/* The job has ended, and perhaps other checksum jobs with it. */
static void finish_seals(struct sim *w, uint32_t d, const struct job *j, struct event *ev)
{
    struct daemon *m = &w->d[d];
    uint32_t most = w->cfg.together ? 1 + pick(w, SEALED_JOBS_MAX) : 1;

    *ev = (struct event){.kind = EV_SEALED, .sealed.n = 0};
    finish_seal(w, d, j, ev);
    for (uint32_t i = 0; i < m->njobs && ev->sealed.n < most;) {
        struct job other = m->job[i];

        if (other.kind != JOB_SEAL) {
            i++;
            continue;
        }
        m->job[i] = m->job[--m->njobs];
        TRACE("  daemon %u finishes with it %u.%u\n", d, (uint32_t)other.id,
              (uint32_t)(other.id >> 32));
        finish_seal(w, d, &other, ev);
        MARK(sealed_together);
    }
}

static void finish_zero(struct sim *w, uint32_t d, const struct job *j, struct event *ev)
{
    struct daemon *m = &w->d[d];
    struct pool *p = &m->pool[j->pool];

    for (uint32_t i = p->base; i < p->base + p->granules; i++) {
        for (uint32_t r = 0; r < p->ranks; r++)
            memset(tag_at(w, d, j->pool, r, i), 0, sizeof(struct tag));
        memset(&m->granule[p->tenant][i], 0, sizeof m->granule[p->tenant][i]);
    }
    p->open = 0;
    pins_forget(w, d, j->pool);
    memset(m->known[j->pool], 0, sizeof m->known[j->pool]);
    MARK(pool_closed_zeroed);
    ev->kind = EV_ZEROED;
    ev->zeroed.pool = pool_id_unpack(j->id);
}

/* A chance in percent: there are many copies to the host, and few loads. */
static bool spoils(struct sim *w, const struct job *j)
{
    uint32_t chances = j->back ? w->cfg.spoil : 4 * w->cfg.spoil;

    return !w->quiet_phase && w->cfg.spoil && chance(w, chances);
}

void job_finish(struct sim *w, uint32_t d, uint32_t i)
{
    struct daemon *m = &w->d[d];
    struct event ev;
    struct job j;
    uint64_t before;

    if (m->njobs == 0)
        return;
    i %= m->njobs;
    j = m->job[i];
    if (j.kind == JOB_COPY && !j.back && !w->quiet_phase && chance(w, LOAD_LINGERS))
        return; /* so that other events happen during it */
    m->job[i] = m->job[--m->njobs];
    TRACE("  daemon %u finishes job %u.%u of kind %u\n", d, (uint32_t)j.id, (uint32_t)(j.id >> 32),
          j.kind);
    if (j.kind == JOB_SEAL)
        finish_seals(w, d, &j, &ev);
    else if (j.kind == JOB_ZERO)
        finish_zero(w, d, &j, &ev);
    else
        finish_copy(w, d, &j, &ev, spoils(w, &j));
    m->copies_failed += j.kind == JOB_COPY && ev.copied.err != TERN_OK;
    sim_step(w, d, &ev);
    if (j.kind != JOB_COPY)
        return;
    copy_ended(w, d, &j, ev.copied.err);
    m->last_copy = copy_id_unpack(j.id);
    if (w->quiet_phase || !w->cfg.spoil || !chance(w, 10) ||
        core_deadline(m->core) <= w->now + STEP_NS) /* it would continue its leftover work */
        return;
    before = core_changes(m->core); /* T16: the acknowledgement comes again */
    sim_step(w, d, &ev);
    EXPECT(core_changes(m->core) == before, "second_ack_taken", "job %u.%u", (uint32_t)j.id,
           (uint32_t)(j.id >> 32));
    FAULT(copy_acked_twice);
    MARK(copy_acked_twice);
}
