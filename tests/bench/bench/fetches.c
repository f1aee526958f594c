/* Fetches of a benchmark: see fetches.h. */
#include "fetches.h"

#include <poll.h>
#include <stdlib.h>
#include <unistd.h>

#include "engine/admin.h"
#include "engine/bytes.h"
#include "engine/proc.h"
#include "engine/profile.h"
#include "engine/stats.h"

#define UNDER_WAY  4 /* fetches in flight */
#define PEER_UP_MS 10000
#define EVICT_MS   5000

void fetches_init(struct fetches *f, uint32_t page_bytes, uint64_t bytes)
{
    *f = (struct fetches){.page_bytes = page_bytes,
                          .pages = (uint32_t)(bytes / FETCH_SESSIONS / page_bytes)};
    f->tokens = mem_need((size_t)f->pages * FETCH_PAGE_TOKENS, sizeof *f->tokens);
}

uint64_t fetches_memory(const struct fetches *f)
{
    return pool_bytes_for((uint64_t)FETCH_SESSIONS * f->pages, f->page_bytes) + (2u << 20);
}

uint64_t fetches_token_blocks(const struct fetches *f)
{
    return 3u * FETCH_SESSIONS * f->pages + 65536;
}

static enum tern_err begin(struct fetches *f, struct engine *e, uint32_t number,
                           struct engine_session *ret)
{
    block_tokens(1000 + f->seed + number, 0, f->pages * FETCH_PAGE_TOKENS, f->tokens);
    return engine_begin(ret, e, f->tokens, f->pages * FETCH_PAGE_TOKENS);
}

/* ---- the engine at a source ---- */

_Noreturn static void filler_main(struct fetches *f, const char *socket, int fd)
{
    struct engine e;
    bool ok = member_start(&e, socket, f->seed ? "flood" : "source", FETCH_PAGE_TOKENS,
                           f->page_bytes, FETCH_SESSIONS * f->pages);
    char byte = 0;

    for (uint32_t i = 0; ok && i < FETCH_SESSIONS; i++) {
        struct engine_session s;

        ok = member_ok(&e, "a Match at the source", begin(f, &e, i, &s)) &&
             member_ok(&e, "a commit at the source", engine_run(&s));
        engine_free(&s); /* the session stays open and pins its pages */
    }
    if (ok && proc_send(fd, &byte, 1))
        proc_recv(fd, &byte, 1);
    engine_close(&e);
    _exit(ok ? 0 : 1);
}

bool fetches_add_source(struct fetches *f, const struct daemon *source)
{
    uint32_t i = f->sources++;
    char byte;

    f->source[i] = source->node;
    f->filler_fd[i] = -1;
    f->filler[i] = proc_fork_linked(&f->filler_fd[i]);
    if (f->filler[i] == 0)
        filler_main(f, source->socket, f->filler_fd[i]);
    return f->filler[i] > 0 && proc_recv(f->filler_fd[i], &byte, 1);
}

/* ---- the engine at the destination ---- */

bool fetches_open(struct fetches *f, const struct daemon *dest)
{
    bool ok = member_start(&f->engine, dest->socket, f->seed ? "flood" : "dest", FETCH_PAGE_TOKENS,
                           f->page_bytes, FETCH_SESSIONS * f->pages) &&
              tern_connect(dest->admin, MEMBER_CALL_MS, &f->admin) == TERN_OK;

    for (uint32_t i = 0; ok && i < f->sources; i++)
        ok = admin_wait_peer(f->admin, f->source[i], PEER_UP_MS);
    return ok;
}

void fetches_close(struct fetches *f)
{
    engine_close(&f->engine);
    tern_destroy(f->admin);
    f->admin = NULL;
    for (uint32_t i = 0; i < f->sources; i++) {
        if (f->filler_fd[i] >= 0)
            close(f->filler_fd[i]);
        proc_end(&f->filler[i]);
    }
    f->sources = 0;
    free(f->tokens);
    f->tokens = NULL;
}

static bool begin_sessions(struct fetches *f, struct engine_session *sessions)
{
    for (uint32_t i = 0; i < FETCH_SESSIONS; i++) {
        enum tern_err err = begin(f, &f->engine, i, &sessions[i]);

        if (!member_ok(&f->engine, "a Match", err) || sessions[i].matched != 0)
            return false;
    }
    return true;
}

static bool submit(struct fetches *f, const struct engine_session *s, const char *source,
                   uint64_t cookie)
{
    const struct tern_fetch fetch = {
        .peer = source, .step = TERN_STEP_NONE, .prefetch = f->prefetch};

    return member_ok(&f->engine, "a Fetch",
                     tern_submit_fetch(f->engine.tern, s->id, &fetch, cookie));
}

static bool fetch_all(struct fetches *f, uint32_t sources, struct engine_session *sessions)
{
    uint32_t submitted = 0, answered = 0;
    struct tern_answer a;

    for (; answered < FETCH_SESSIONS; answered++) {
        for (; submitted < FETCH_SESSIONS && submitted - answered < UNDER_WAY; submitted++)
            if (!submit(f, &sessions[submitted], f->source[submitted % sources], submitted))
                return false;
        if (!member_ok(&f->engine, "a Fetch", answer_wait(f->engine.tern, MEMBER_CALL_MS, &a)) ||
            !member_ok(&f->engine, "a Fetch", a.err) ||
            !member_ok(&f->engine, "pages", engine_take(&sessions[a.cookie], &a.results[0])))
            return false;
    }
    return true;
}

static bool end_sessions(struct fetches *f, struct engine_session *sessions)
{
    struct daemon_status status;

    for (uint32_t i = 0; i < FETCH_SESSIONS; i++)
        if (!member_ok(&f->engine, "closing a session", engine_end(&sessions[i])))
            return false;
    return admin_empty(f->admin, f->engine.pool, EVICT_MS, &status) &&
           status.pages.total == status.pages.free;
}

bool fetches_pass(struct fetches *f, uint32_t sources, bool compare, double *ret_gb_s)
{
    uint64_t bytes = (uint64_t)FETCH_SESSIONS * f->pages * f->page_bytes, start;
    struct engine_session sessions[FETCH_SESSIONS];

    if (!begin_sessions(f, sessions))
        return false;
    start = clock_ns();
    if (!fetch_all(f, sources, sessions))
        return false;
    *ret_gb_s = (double)bytes / (double)(clock_ns() - start);
    for (uint32_t i = 0; compare && i < FETCH_SESSIONS; i++)
        f->wrong += engine_wrong(&sessions[i], sessions[i].ntokens);
    return end_sessions(f, sessions);
}

bool fetches_paced(struct fetches *f, uint64_t period_ns, struct series *ret_ms)
{
    struct engine_session sessions[FETCH_SESSIONS];
    struct tern_answer a;
    uint64_t next = clock_ns(), start;

    if (!begin_sessions(f, sessions))
        return false;
    for (uint32_t i = 0; i < FETCH_SESSIONS; i++) {
        start = clock_ns();
        if (start < next)
            sleep_ms((uint32_t)((next - start) / 1000000u));
        next += period_ns;
        start = clock_ns();
        if (!submit(f, &sessions[i], f->source[0], i) ||
            !member_ok(&f->engine, "a Fetch", answer_wait(f->engine.tern, MEMBER_CALL_MS, &a)) ||
            !member_ok(&f->engine, "a Fetch", a.err))
            return false;
        series_add(ret_ms, (double)(clock_ns() - start) / 1e6);
        if (!member_ok(&f->engine, "pages", engine_take(&sessions[i], &a.results[0])))
            return false;
        f->wrong += engine_wrong(&sessions[i], sessions[i].ntokens);
    }
    return end_sessions(f, sessions);
}

/* ---- a load ---- */

struct load_report {
    double gb_s;
    uint64_t wrong;
    bool ok;
};

static bool told_to_end(int fd)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};

    return poll(&p, 1, 0) > 0;
}

_Noreturn static void load_main(struct fetches *f, const struct fetch_flood *flood, int fd)
{
    struct load_report report = {.ok = fetches_add_source(f, flood->source) &&
                                       fetches_open(f, flood->dest)};
    uint64_t start = clock_ns(), passes = 0;
    char byte = 0;
    double gb_s;

    if (!report.ok || !proc_send(fd, &byte, 1))
        _exit(1);
    for (bool last = false; report.ok && !last; passes++) {
        last = told_to_end(fd);
        if (last)
            report.gb_s = (double)(passes * FETCH_SESSIONS * f->pages) * f->page_bytes /
                          (double)(clock_ns() - start);
        report.ok = fetches_pass(f, 1, last, &gb_s);
    }
    report.wrong = f->wrong;
    proc_send(fd, &report, sizeof report);
    fetches_close(f);
    _exit(0);
}

bool fetch_load_start(struct fetch_load *l, const struct fetch_flood *flood, uint32_t page_bytes,
                      uint64_t bytes)
{
    struct fetches f;
    char byte;

    l->pid = proc_fork_linked(&l->fd);
    if (l->pid == 0) {
        fetches_init(&f, page_bytes, bytes);
        f.prefetch = flood->prefetch;
        f.seed = 500;
        load_main(&f, flood, l->fd);
    }
    return l->pid > 0 && proc_recv(l->fd, &byte, 1);
}

bool fetch_load_stop(struct fetch_load *l, double *ret_gb_s)
{
    struct load_report report = {0};
    char byte = 0;
    bool ok = l->pid > 0 && proc_send(l->fd, &byte, 1) && proc_recv(l->fd, &report, sizeof report);

    if (l->fd >= 0)
        close(l->fd);
    l->fd = -1;
    proc_end(&l->pid);
    *ret_gb_s = report.gb_s;
    return ok && report.ok && report.wrong == 0;
}
