/* Ranks: see ranks.h. The scheduler sends each rank process orders of at most ORDER_JOBS pages,
 * works on its own share meanwhile and waits for all reports, so that a step is done in every rank
 * before the next one begins. */
#include "ranks.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "engine/bytes.h"
#include "engine/pages.h"
#include "engine/proc.h"

#define ORDER_JOBS 4096
#define JOIN_MS    30000
#define DEVICE_MAX 48

enum order_work { ORDER_PAGES = 1, ORDER_MAP }; /* MAP: step is the pool's handle */

struct order {
    uint32_t work, n;
    uint64_t step; /* 0: none */
    uint64_t more; /* 1: more orders of this step follow */
};

struct report {
    uint64_t wrong;
    uint64_t err; /* enum tern_err of ORDER_MAP and of publishing the step */
};

/* Returns NULL for an index outside the pool. */
static uint8_t *page_of(const struct rank_place *at, uint32_t group, uint32_t index)
{
    uint64_t bytes = at->page_bytes[group], offset = index * bytes;

    if (index == 0 || offset + bytes > tern_pool_info(at->map)->bytes)
        return NULL;
    return tern_pool_info(at->map)->base + offset;
}

/* Returns the wrong bytes of one page; of a page outside the pool, all its bytes. */
static uint64_t do_page(const struct rank_place *at, const struct page_job *job)
{
    uint64_t seed = page_seed(job->prefix, job->page, at->rank), bytes;
    uint8_t *page, *from;

    if (job->group >= at->ngroups)
        return 1;
    bytes = at->page_bytes[job->group];
    page = page_of(at, job->group, job->index);
    if (!page)
        return bytes;
    switch ((enum rank_work)job->work) {
    case RANK_WRITE: pool_page_fill(at->map, page, bytes, seed); return 0;
    case RANK_COMPARE: return pool_page_compare(at->map, page, bytes, seed);
    case RANK_COPY:
        from = page_of(at, job->group, job->from);
        if (!from || from == page)
            return bytes;
        pool_page_copy(at->map, page, from, bytes);
        return 0;
    }
    return bytes;
}

static uint64_t do_pages(const struct rank_place *at, const struct page_job *jobs, uint32_t n)
{
    uint64_t wrong = 0;

    for (uint32_t i = 0; i < n; i++)
        wrong += do_page(at, &jobs[i]);
    return wrong;
}

/* Brings the checksums of the written pages, group by group. */
static enum tern_err bring(const struct rank_place *at, const struct page_job *jobs, uint32_t n,
                           uint64_t step)
{
    static struct tern_page pages[ORDER_JOBS];
    enum tern_err err = TERN_OK;

    for (uint32_t g = 0; err == TERN_OK && g < at->ngroups; g++) {
        struct tern_checksums of = {
            .step = step, .page_bytes = at->page_bytes[g], .units = at->units[g], .pages = pages};

        for (uint32_t i = 0; i < n; i++)
            if (jobs[i].group == g && jobs[i].work != RANK_COMPARE)
                pages[of.n++] =
                    (struct tern_page){.index = jobs[i].index, .generation = jobs[i].gen};
        if (of.n > 0)
            err = pool_bring(at->map, &of);
    }
    return err;
}

/* Ends an order: brings the checksums of its writes before the step is done. */
static enum tern_err finish(const struct rank_place *at, const struct order *o,
                            const struct page_job *jobs)
{
    enum tern_err err = TERN_OK;

    if (o->step && at->brings)
        err = bring(at, jobs, o->n, o->step);
    if (err == TERN_OK && o->step && !o->more)
        err = tern_done_step(at->map, o->step);
    return err;
}

static struct report obey(struct tern *t, struct rank_place *at, const struct order *o,
                          const struct page_job *jobs)
{
    struct report r = {0};

    if (o->work == ORDER_MAP) {
        r.err = tern_pool_map(t, o->step, JOIN_MS, &at->map);
        return r;
    }
    r.wrong = do_pages(at, jobs, o->n);
    r.err = finish(at, o, jobs);
    return r;
}

static struct rank_place place_of(const struct geometry *g, uint32_t rank, bool brings)
{
    struct rank_place at = {.rank = rank, .ngroups = g->ngroups, .brings = brings};

    for (uint32_t i = 0; i < g->ngroups; i++) {
        at.page_bytes[i] = g->groups[i].page_bytes;
        at.units[i] = g->groups[i].units;
    }
    return at;
}

/* Returns the i-th name of NAME+NAME; NULL: there are fewer. */
static const char *named(const char *list, uint32_t i, char ret[DEVICE_MAX])
{
    for (; list && i > 0; i--) {
        list = strchr(list, '+');
        list += list != NULL;
    }
    if (!list)
        return NULL;
    snprintf(ret, DEVICE_MAX, "%.*s", (int)strcspn(list, "+"), list);
    return ret;
}

enum tern_err rank_join(struct tern *t, const char *engine, enum tern_role role, uint32_t rank,
                        uint32_t ranks, uint32_t ms)
{
    bool decode = strcmp(engine, ENGINE_DECODE) == 0;
    char device[DEVICE_MAX];

    return tern_join(
        t, engine, role, rank, ranks,
        named(getenv(decode ? "TERN_DECODE_DEVICES" : "TERN_PREFILL_DEVICES"), rank, device), ms);
}

_Noreturn static void rank_main(int fd, const char *socket, const char *engine,
                                const struct geometry *g, uint32_t rank, bool brings)
{
    static struct page_job jobs[ORDER_JOBS];
    struct rank_place at =
        place_of(g, g->profile->shard == TERN_SHARD_REPLICATED ? 0 : rank, brings);
    struct report r = {0};
    struct tern *t = NULL;
    struct order o;

    r.err = tern_connect(socket, JOIN_MS, &t);
    if (r.err == TERN_OK)
        r.err = rank_join(t, engine, TERN_WORKER, rank, g->ranks, JOIN_MS);
    while (proc_send(fd, &r, sizeof r) && proc_recv(fd, &o, sizeof o) && o.n <= ORDER_JOBS &&
           proc_recv(fd, jobs, o.n * sizeof jobs[0]))
        r = obey(t, &at, &o, jobs);
    tern_destroy(t);
    _exit(0);
}

const char *team_start(struct team *team, const char *socket, const char *engine,
                       const struct geometry *g, bool brings)
{
    struct report r;

    *team = (struct team){.ranks = g->ranks, .own = place_of(g, 0, brings)};
    for (uint32_t i = 0; i < TERN_RANKS_MAX; i++)
        team->fd[i] = team->pid[i] = -1;
    for (uint32_t i = 1; i < g->ranks; i++) {
        team->pid[i] = proc_fork_linked(&team->fd[i]);
        if (team->pid[i] == 0) {
            for (uint32_t j = 1; j < i; j++)
                close(team->fd[j]);
            rank_main(team->fd[i], socket, engine, g, i, brings);
        }
        if (team->pid[i] < 0)
            return "cannot fork a rank process";
    }
    for (uint32_t i = 1; i < g->ranks; i++) {
        if (!proc_recv(team->fd[i], &r, sizeof r) || r.err != TERN_OK)
            return "a rank process could not join";
    }
    return NULL;
}

static bool gather(struct team *team, uint64_t *wrong)
{
    struct report r;

    for (uint32_t i = 1; i < team->ranks; i++) {
        if (!proc_recv(team->fd[i], &r, sizeof r) || r.err != TERN_OK)
            return false;
        *wrong += r.wrong;
    }
    return true;
}

static bool send_order(struct team *team, struct order o, const struct page_job *jobs)
{
    for (uint32_t i = 1; i < team->ranks; i++) {
        if (!proc_send(team->fd[i], &o, sizeof o) ||
            !proc_send(team->fd[i], jobs, o.n * sizeof *jobs))
            return false;
    }
    return true;
}

const char *team_map(struct team *team, uint64_t pool, struct tern_pool *own)
{
    uint64_t wrong = 0;

    team->own.map = own;
    if (!send_order(team, (struct order){.work = ORDER_MAP, .step = pool}, NULL) ||
        !gather(team, &wrong))
        return "a rank process could not map its region";
    return NULL;
}

bool team_run(struct team *team, const struct page_job *jobs, uint32_t n, uint64_t step,
              uint64_t *ret_wrong)
{
    uint32_t at = 0;

    *ret_wrong = 0;
    do {
        struct order o = {
            .work = ORDER_PAGES, .n = n - at < ORDER_JOBS ? n - at : ORDER_JOBS, .step = step};

        o.more = at + o.n < n;
        if (!send_order(team, o, jobs + at))
            return false;
        *ret_wrong += do_pages(&team->own, jobs + at, o.n);
        if (finish(&team->own, &o, jobs + at) != TERN_OK)
            return false;
        if (!gather(team, ret_wrong))
            return false;
        at += o.n;
    } while (at < n);
    return true;
}

void team_end(struct team *team)
{
    int status;

    for (uint32_t i = 1; i < team->ranks; i++) {
        if (team->fd[i] >= 0)
            close(team->fd[i]);
        if (!proc_wait(&team->pid[i], 2000, &status))
            proc_end(&team->pid[i]);
        team->fd[i] = -1;
    }
}
