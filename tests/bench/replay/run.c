/* A run: see run.h. The parent plays no part in the traffic: it starts everything, watches, and
 * counts pages through the daemons' admin sockets once both engines have closed all their sessions
 * and before they leave. */
#include "run.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "engine/proc.h"
#include "engine/stats.h"
#include "handover.h"

#define LOOK_MS        50         /* between two checks of the engines */
#define SAMPLE_NS      200000000u /* between two samples of page counts */
#define EMPTY_MS       60000      /* for the last pages to become free */
#define TOKEN_SPARE    65536      /* token blocks for tokens fetched and retired meanwhile */
#define FRAME_DEFAULT  (1u << 20) /* frame_body_max */
#define FRAME_REST     65536u     /* of an answer, besides its page references */
#define PAGE_REF_BYTES 8u
#define PUSH_MS        10000 /* wait for a path */

static volatile sig_atomic_t interrupted;

static void on_signal(int sig)
{
    interrupted = sig;
}

/* Enough pages for every prefix of the workload and for the other pages of each request in flight;
 * for STATE groups, as if nothing were ever superseded. */
static uint32_t pages_needed(const struct run *r, const struct tern_group *g, uint32_t align)
{
    const struct options *o = r->options;
    uint64_t longest = r->survey.tokens_max / g->page_tokens + 2, chunk = align / g->page_tokens;
    uint64_t unique = r->survey.unique_pages, n, step = o->prefill_tokens;

    if (g->family == TERN_WINDOW && g->window < align)
        chunk = (g->window + g->page_tokens - 1) / g->page_tokens;
    if (g->family == TERN_WINDOW && (step + g->window) / g->page_tokens + 4 < longest)
        longest = (step + g->window) / g->page_tokens + 4; /* the window slides, step by step */
    if (g->family == TERN_RECURRENT) {
        unique = unique < r->survey.requests ? unique : r->survey.requests;
        longest = chunk = 1;
    }
    n = unique * chunk + 2 * o->concurrency * longest;
    return n < UINT32_MAX ? (uint32_t)n : UINT32_MAX;
}

static void size_pool(struct run *r, struct geometry *g)
{
    const struct options *o = r->options;

    geometry_init(g, o->profile, o->page_bytes, o->ranks, 1);
    r->pool_pages = 0;
    for (uint32_t i = 0; i < g->ngroups; i++) {
        r->group_pages[i] =
            o->pool_pages ? o->pool_pages : pages_needed(r, &g->groups[i], o->profile->page_tokens);
        r->pool_pages += r->group_pages[i];
    }
    geometry_caps(g, r->group_pages, o->host_pages);
}

/* An answer names all pages of a session: 0 if the daemon's default is enough. */
static uint64_t frame_needed(const struct run *r, const struct geometry *g)
{
    uint64_t refs = 0;

    for (uint32_t i = 0; i < g->ngroups; i++)
        refs += g->groups[i].family == TERN_HISTORY
                    ? r->survey.tokens_max / g->groups[i].page_tokens
                    : 0;
    refs = refs * PAGE_REF_BYTES + FRAME_REST;
    return refs <= FRAME_DEFAULT ? 0 : refs + refs / 8;
}

static bool start_daemons(struct run *r, const struct geometry *g)
{
    const struct options *o = r->options;
    uint64_t chunk = (o->profile->page_tokens + 63) / 64, sessions;
    uint32_t block = o->profile->page_tokens < 64 ? o->profile->page_tokens : 64;
    struct daemon_options d[2] = {{.node = "prefill", .tls = o->tls, .core = -1}};

    sessions = (uint64_t)o->concurrency * 2 * (r->survey.tokens_max / block + 2 * chunk);
    d[0].memory_bytes = (g->layout.bytes + (2u << 20)) & ~(uint64_t)4095;
    d[0].regions = o->ranks;
    d[0].page_bytes_min = g->region_bytes_min;
    d[0].host_bytes =
        g->layout.host_bytes ? (g->layout.host_bytes + (2u << 20)) & ~(uint64_t)4095 : 0;
    d[0].frame_body_max = frame_needed(r, g);
    d[0].nodes = (uint64_t)r->group_pages[0] + o->host_pages + 1024;
    d[0].token_blocks =
        ((uint64_t)r->group_pages[0] + o->host_pages) * chunk + sessions + TOKEN_SPARE;
    if (!tempdir_make(r->dir, sizeof r->dir, "tern-replay")) {
        snprintf(r->why, sizeof r->why, "no temporary directory: %s", strerror(errno));
        r->dir[0] = 0;
        return false;
    }
    d[1] = d[0];
    d[1].node = "decode";
    d[1].corrupt_pages = o->corrupt;
    return daemon_start_pair(&r->prefill, &r->decode, r->dir, d, r->why);
}

static bool open_admin(struct run *r, uint32_t side, const char *path)
{
    enum tern_err err = tern_connect(path, CALL_MS, &r->admin[side]);

    if (err == TERN_OK)
        return true;
    snprintf(r->why, sizeof r->why, "%s: %s", path, connect_why(err));
    return false;
}

static bool no_status(struct run *r, uint32_t side)
{
    snprintf(r->why, sizeof r->why, "a daemon answers no status: %s",
             tern_error_text(r->admin[side], NULL));
    return false;
}

/* Notes the daemons' counters so far, then closes the connections: the engines are forked without
 * them. */
static bool note_before(struct run *r)
{
    bool ok =
        open_admin(r, 0, r->options->prefill_admin) && open_admin(r, 1, r->options->decode_admin);

    if (ok && !admin_status(r->admin[1], 0, &r->before))
        ok = no_status(r, 1);
    if (ok && !admin_tickets(r->admin[0], &r->tickets_before))
        ok = no_status(r, 0);
    for (uint32_t i = 0; i < 2; i++) {
        tern_destroy(r->admin[i]);
        r->admin[i] = NULL;
    }
    return ok;
}

static bool start_engines(struct run *r)
{
    int peer[2];

    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, peer) != 0)
        return false;
    for (uint32_t i = 0; i < 2; i++) {
        r->engine[i] = proc_fork_linked(&r->control[i]);
        if (r->engine[i] == 0) {
            close(peer[1 - i]);
            if (i == 1)
                close(r->control[0]);
            _exit((i == 0 ? prefill_main : decode_main)(r->options, r->board, r->group_pages,
                                                        peer[i], r->control[i]));
        }
        if (r->engine[i] < 0)
            return false;
    }
    close(peer[0]);
    close(peer[1]);
    return true;
}

bool run_start(struct run *r)
{
    struct options *o = r->options;
    struct geometry g;
    struct sigaction act = {.sa_handler = on_signal};

    r->prefill.pid = r->decode.pid = r->engine[0] = r->engine[1] = -1;
    r->control[0] = r->control[1] = -1;
    r->daemons_ended = true;
    sigaction(SIGINT, &act, NULL);
    sigaction(SIGTERM, &act, NULL);
    signal(SIGPIPE, SIG_IGN);
    if (!survey_run(&o->source, o->profile->page_tokens, &r->survey, r->why))
        return false;
    size_pool(r, &g);
    r->board = proc_shared(sizeof *r->board);
    if (o->spawn) {
        if (o->push) /* daemon.c takes it from the environment of tests */
            setenv("TERN_PEER_TRANSPORT", "verbs", 1);
        if (!start_daemons(r, &g))
            return false;
        snprintf(o->prefill_socket, sizeof o->prefill_socket, "%s", r->prefill.socket);
        snprintf(o->prefill_admin, sizeof o->prefill_admin, "%s", r->prefill.admin);
        snprintf(o->decode_socket, sizeof o->decode_socket, "%s", r->decode.socket);
        snprintf(o->decode_admin, sizeof o->decode_admin, "%s", r->decode.admin);
    }
    if (!note_before(r)) /* the engines begin at once */
        return false;
    r->start_ns = clock_ns();
    if (!start_engines(r)) { /* before we have connections of our own */
        snprintf(r->why, sizeof r->why, "cannot start the engines: %s", strerror(errno));
        return false;
    }
    if (!open_admin(r, 0, o->prefill_admin) || !open_admin(r, 1, o->decode_admin))
        return false;
    return !o->push || admin_wait_push(r->admin[1], o->peer, PUSH_MS, r->why, sizeof r->why);
}

static void sample_pages(struct run *r)
{
    struct daemon_status s;

    for (uint32_t i = 0; i < 2; i++) {
        uint64_t used;

        if (!admin_status(r->admin[i], atomic_load(&r->board->pool[i]), &s))
            continue;
        used = s.pages.history_used > s.pages.peak ? s.pages.history_used : s.pages.peak;
        r->peak_pages = used > r->peak_pages ? used : r->peak_pages;
        used = s.pages.state_peak;
        r->peak_state = used > r->peak_state ? used : r->peak_state;
        used = s.pages.reclaimable;
        r->peak_reclaimable = used > r->peak_reclaimable ? used : r->peak_reclaimable;
    }
}

static bool engine_lost(struct run *r, uint32_t i)
{
    static const char *const name[2] = {"prefill", "decode"};
    const char *why = i == 0 ? r->board->prefill_why : r->board->decode_why;
    int status = 0;

    proc_wait(&r->engine[i], 2000, &status);
    snprintf(r->why, sizeof r->why, "the %s engine ended: %s", name[i],
             *why                  ? why
             : WIFSIGNALED(status) ? strsignal(WTERMSIG(status))
                                   : "it did not say why");
    return false;
}

static void show(struct run *r)
{
    char note[64];
    uint64_t done = counted(&r->board->finished) + counted(&r->board->prefill_failed);

    snprintf(note, sizeof note, "%llu pages compared, %llu wrong bytes",
             (unsigned long long)counted(&r->board->verified_pages),
             (unsigned long long)counted(&r->board->wrong_bytes));
    progress_show(&r->progress, done, note);
}

/* Watches until both engines have reported that they are done. */
static bool look_on(struct run *r)
{
    uint64_t sampled = 0;

    while (!r->done[0] || !r->done[1]) {
        struct pollfd fd[2];
        char byte;

        for (uint32_t i = 0; i < 2; i++)
            fd[i] = (struct pollfd){.fd = r->done[i] ? -1 : r->control[i], .events = POLLIN};
        if (interrupted) {
            snprintf(r->why, sizeof r->why, "interrupted");
            return false;
        }
        if (poll(fd, 2, LOOK_MS) < 0 && errno != EINTR)
            return false;
        for (uint32_t i = 0; i < 2; i++) {
            if (!(fd[i].revents & (POLLIN | POLLHUP)))
                continue;
            if (!proc_recv(fd[i].fd, &byte, 1))
                return engine_lost(r, i);
            r->done[i] = true;
        }
        if (clock_ns() - sampled >= SAMPLE_NS) {
            sampled = clock_ns();
            sample_pages(r);
        }
        show(r);
    }
    return true;
}

bool run_play(struct run *r)
{
    bool ok;

    progress_start(&r->progress, "requests", r->survey.requests);
    ok = look_on(r);
    r->elapsed_ns = clock_ns() - r->start_ns;
    progress_end(&r->progress);
    sample_pages(r);
    for (uint32_t i = 0; ok && i < 2; i++) {
        ok = admin_empty(r->admin[i], atomic_load(&r->board->pool[i]), EMPTY_MS, &r->after[i]);
        if (!ok)
            snprintf(r->why, sizeof r->why, "a daemon answers no evict: %s",
                     tern_error_text(r->admin[i], NULL));
    }
    if (ok && !admin_tickets(r->admin[0], &r->tickets_after))
        return no_status(r, 0);
    return ok;
}

void run_finish(struct run *r)
{
    int status;

    for (uint32_t i = 0; i < 2; i++) {
        if (r->control[i] >= 0)
            close(r->control[i]); /* lets the engine end */
        if (!proc_wait(&r->engine[i], r->done[i] ? 5000 : 0, &status))
            proc_end(&r->engine[i]);
        tern_destroy(r->admin[i]);
    }
    if (r->prefill.pid > 0)
        r->daemons_ended = daemon_stop(&r->prefill) && r->daemons_ended;
    if (r->decode.pid > 0)
        r->daemons_ended = daemon_stop(&r->decode) && r->daemons_ended;
    if (r->dir[0])
        tempdir_remove(r->dir);
}
