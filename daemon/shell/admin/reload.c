/* See operator.h. */
#include "shell/admin/operator.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/container.h"
#include "base/err.h"
#include "seam/io/io_threads.h"
#include "shell/log/log.h"

#define RELOAD_STOP_NS 2000000000u /* wait at the end for a read in progress */

#define ROWS_MAX 1024 /* rows of an answer, which fit ADMIN_TEXT_BYTES */

/* A comparison in progress. */
struct reloading {
    struct daemon *d;
    const struct config *is;
    bool dry_run;
    struct tls_own own; /* the certificate read; not_after "": peers talk in the clear */
    struct text_out out;
    uint32_t rows, joining;     /* joining: peers that a dry run would give slots */
    char why[TENANT_WHY_BYTES]; /* about a tenant that joins or cannot join */
    struct reload_result *result;
};

/* A thread reads the file, because a disk may be slow and loading allocates. The thread writes only
 * this struct, not the daemon's: a disk may block the thread beyond the daemon's end. */
struct reload_reader {
    struct io_task task;
    struct io_threads *threads; /* owned: one */
    struct daemon *d;
    reload_read_done *read_done;
    bool reading;
    /* Used by the thread while it reads: */
    int argc;
    char **argv; /* borrowed until the process ends */
    struct config *config;
    enum tern_err err;
    char why[CONFIG_WHY_BYTES];
};

static bool read_file(struct io_task *task, int32_t res)
{
    struct reload_reader *r = container_of(task, struct reload_reader, task);

    (void)res;
    r->err = config_load(r->argc, r->argv, &r->config, r->why, sizeof r->why);
    return false;
}

static void file_read(struct io_task *task, int32_t res)
{
    struct reload_reader *r = container_of(task, struct reload_reader, task);

    (void)res;
    r->reading = false;
    r->read_done(r->d);
}

enum tern_err reload_init(struct daemon *d, reload_read_done *read_done, char *why, size_t cap)
{
    const struct io_threads_config threads = {
        .io = d->io, .threads = 1, .tasks = 1, .works = 1, .name = "tern-config"};
    struct reload_reader *r = d->reload.reader = calloc(1, sizeof *r);
    const char *missing = "no memory";

    if (r) {
        r->task.work = read_file;
        r->task.done = file_read;
        r->d = d;
        r->read_done = read_done;
        r->argc = d->config->argc;
        r->argv = d->config->argv;
        if (io_threads_create(&threads, &r->threads, &missing) == TERN_OK)
            return TERN_OK;
    }
    return fail_with(why, cap, TERN_INTERNAL,
                     "the thread that reads the configuration again cannot be started: %s",
                     missing);
}

/* If a disk blocks the thread, the thread and its memory stay. */
void reload_end(struct daemon *d)
{
    struct reload_reader *r = d->reload.reader;

    if (!r || !io_threads_end(r->threads, io_now_ns() + RELOAD_STOP_NS))
        return;
    config_destroy(r->config);
    free(r);
}

bool reload_begin(struct daemon *d, bool dry_run)
{
    struct reload_reader *r = d->reload.reader;

    if (r->reading)
        return false;
    r->reading = true;
    io_threads_submit(r->threads, &r->task, IO_TASK_WORK, 0, -1);
    d->reload.dry_run = dry_run;
    d->reload.by_signal = false;
    return true;
}

void reload_by_signal(struct daemon *d)
{
    char state[NOTIFY_STATE_BYTES];

    d->reload.again = !reload_begin(d, false);
    if (d->reload.again)
        return;
    d->reload.by_signal = true;
    if (d->state != DAEMON_SERVING)
        return; /* otherwise the manager would regard an ending daemon as ready again */
    snprintf(state, sizeof state, "RELOADING=1\nMONOTONIC_USEC=%" PRIu64, io_now_ns() / 1000);
    notify_state(state);
}

/* The new entry of a peer, with its tenants as slots of this configuration. */
static struct config_peer peer_of(const struct reloading *r, const struct config_change *change)
{
    struct config_peer peer =
        r->is->peers[change->of == CHANGE_OF_PEER_ADDED ? change->slot : change->from];

    peer.tenants = change->tenants;
    return peer;
}

static const char *why_not_peer(const struct reloading *r, const struct config_change *change)
{
    const struct config_peer peer = peer_of(r, change);
    const char *unfit = links_unfit(r->d, &peer);

    if (unfit || change->of != CHANGE_OF_PEER_ADDED)
        return unfit;
    return links_free(r->d) > r->joining ? NULL
                                         : "all slots of limits.peers are in use or closing: "
                                           "reload again in a moment, or raise limits.peers";
}

/* Reasons in addition to the row's: TLS is set up at start or never, and a peer needs a slot. */
static const char *why_not(struct reloading *r, const struct config_change *change)
{
    bool had = r->d->links.tls != NULL, has = r->is->tls_cert[0] != '\0';

    if (change->of == CHANGE_OF_PEER_ADDED || change->of == CHANGE_OF_PEER)
        return why_not_peer(r, change);
    if (change->of == CHANGE_OF_TENANT_ADDED)
        return tenant_needs_restart(r->d, change, r->why);
    if (change->of == CHANGE_OF_SETTING && strncmp(change->setting, "tls.", 4) == 0 && had != has)
        return had ? "this daemon started with certificates"
                   : "this daemon started without certificates";
    return change->why;
}

static void take_peer(struct reloading *r, const struct config_change *change)
{
    const struct config_peer peer = peer_of(r, change);

    if (change->of == CHANGE_OF_PEER_ADDED)
        links_join(r->d, &peer);
    else
        links_change(r->d, change->slot, &peer);
}

static const char *take_tenant(struct reloading *r, const struct config_change *change)
{
    const struct config_tenant *tenant = &r->is->tenants[change->from];
    enum tern_err err = r->dry_run ? tenant_may_join(r->d, tenant, r->why)
                                   : tenant_join(r->d, change->slot, tenant, r->why);

    return err == TERN_OK ? NULL : r->why;
}

void member_leave(struct daemon *d, uint32_t slot)
{
    alarms_peer_left(d, slot, io_now_ns());
    links_leave(d, slot);
}

/* Applies the change, unless this is a dry run. Returns why that failed; NULL: success. */
static const char *take(struct reloading *r, const struct config_change *change)
{
    struct daemon *d = r->d;

    if (change->of == CHANGE_OF_TENANT_ADDED)
        return take_tenant(r, change);
    if (r->dry_run)
        return NULL;
    if (change->of == CHANGE_OF_PEER_REMOVED) {
        member_leave(d, change->slot);
        return NULL;
    }
    if (change->of != CHANGE_OF_SETTING) {
        take_peer(r, change);
        return NULL;
    }
    config_take(d->config, r->is, change);
    log_level_set(d->config->log_level);
    drain_reloaded(d);
    return NULL;
}

static void row(struct reloading *r, const struct config_change *change, const char *outcome,
                const char *why)
{
    if (++r->rows > ROWS_MAX)
        return;
    TEXT(&r->out,
         OBJECT(NULL, WORD(*change, setting), STR("was", change->was[0] ? change->was : NULL),
                STR("is", change->is[0] ? change->is : NULL), STR("outcome", outcome),
                STR("why", why)));
}

static bool found(void *ctx, const struct config_change *change)
{
    struct reloading *r = ctx;
    const char *why = why_not(r, change), *outcome = why ? "needs a restart" : "done";

    r->result->restart += why != NULL;
    if (!why) {
        why = take(r, change);
        outcome = why ? "failed" : outcome;
        r->result->failed += why != NULL;
    }
    r->result->done += why == NULL;
    r->joining += r->dry_run && !why && change->of == CHANGE_OF_PEER_ADDED;
    row(r, change, outcome, why);
    if (!r->dry_run)
        log_event(why ? LEVEL_WARN : LEVEL_INFO, "setting_changed",
                  "setting=%s was=%s is=%s outcome=%s reason=%s", change->setting, change->was,
                  change->is, outcome, why ? why : "");
    return why == NULL;
}

static void compare(struct reloading *r)
{
    struct daemon *d = r->d;

    text_init(&r->out, d->text, ADMIN_TEXT_BYTES);
    TEXT(&r->out, OPEN_OBJECT(NULL), BOOL("reloaded", !r->dry_run), FLAG(*r, dry_run),
         STR("file", d->config->file[0] ? d->config->file : NULL),
         STR("not_after", r->own.not_after[0] ? r->own.not_after : NULL), FLAG(r->own, own_ca),
         OPEN_ARRAY("changes"));
    config_compare(d->config, r->is, found, r);
    TEXT(&r->out, CLOSE_ARRAY, NUM(*r->result, done), NUM(*r->result, restart),
         NUM(*r->result, failed), U64("left_out", r->rows > ROWS_MAX ? r->rows - ROWS_MAX : 0),
         CLOSE_OBJECT);
    r->result->n = r->out.len;
}

static void log_result(const struct reload_result *result)
{
    if (result->err != TERN_OK)
        log_event(LEVEL_ERROR, "reload_failed", "err=%s reason=%s kept=%s", err_name(result->err),
                  result->why, "the configuration and the certificates that were in force");
    else if (!result->dry_run)
        log_event(LEVEL_INFO, "reloaded", "done=%u restart=%u failed=%u", result->done,
                  result->restart, result->failed);
}

void reload_finish(struct daemon *d, struct reload_result *ret)
{
    struct reload_reader *read = d->reload.reader;
    struct config *is = read->config;
    struct reloading r = {.d = d, .is = is, .dry_run = d->reload.dry_run, .result = ret};

    *ret = (struct reload_result){
        .by_signal = d->reload.by_signal, .dry_run = d->reload.dry_run, .err = read->err};
    memcpy(ret->why, read->why, sizeof ret->why);
    read->config = NULL;
    if (ret->err == TERN_OK)
        ret->err = links_reload(d, r.is, r.dry_run, &r.own, ret->why, sizeof ret->why);
    if (ret->err == TERN_OK)
        compare(&r);
    log_result(ret);
    config_destroy(is);
}
