/* Operators: Admin requests on the admin socket and Stats on a tenant's. admin.c makes read-only
 * answers, core_acts.c requests the core's acts; all other commands are here. Invariant: a tenant
 * receives only its own data; the log has every command that changes something or writes a file,
 * with its author and its result. */
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/err.h"
#include "shell/admin/operator.h"
#include "shell/log/log.h"
#include "shell/wire/wire_out.h"

#define PIECE_BYTES    32768 /* JSON bytes in one frame */
#define PIECE_OVERHEAD 64    /* other bytes of the message, at most */
#define ACT_ARGS_BYTES 256   /* an operator's arguments, or a result, in the log */

#define OPERATOR   "operator"
#define MEMBERSHIP "membership"

/* ---- answers ---- */

/* Sends d->text in one or more frames. */
static void send_text(struct daemon *d, struct client_conn *c, uint16_t type, uint64_t request_id,
                      size_t n)
{
    uint32_t body_max = d->config->frame_body_max;
    size_t piece =
        PIECE_BYTES + PIECE_OVERHEAD <= body_max ? PIECE_BYTES : body_max - PIECE_OVERHEAD;
    size_t at = 0;

    do {
        Tern__Wire__AdminReply m = TERN__WIRE__ADMIN_REPLY__INIT;
        size_t len = n - at < piece ? n - at : piece, frame;
        char kept = d->text[at + len];

        d->text[at + len] = '\0';
        m.json = d->text + at;
        m.has_more = true;
        m.more = at + len < n;
        frame = wire_out_message(type, request_id, &m.base, body_max, d->frame);
        check(frame > 0);
        d->text[at + len] = kept;
        at += len;
        if (!conn_send(c, frame, NULL, 0))
            return;
    } while (at < n);
}

/* Reads the counters of TLS and of the disk, which may not exist, into the caller's structs. */
static void counts_take(const struct daemon *d, struct admin_ctx *ctx, struct tls_stats *tls,
                        struct disk_stats *disk)
{
    if (d->links.tls) {
        tls_stats(d->links.tls, tls);
        ctx->tls = tls;
    }
    if (d->disk) {
        disk_stats(d->disk, disk);
        ctx->disk = disk;
        ctx->recovery = &d->spill.recovery;
    }
    mem_stats(d->mem, &ctx->mem);
    if (d->xfer) {
        xfer_stats(d->xfer, &ctx->xfer);
        xfer_rdma_view(d->xfer, &ctx->rdma);
    }
    io_stats(d->io, &ctx->io);
    if (d->tape)
        tape_stats(d->tape, &ctx->tape);
}

static enum tern_err describe(struct daemon *d, struct asked *a, const char *command,
                              uint32_t tenant)
{
    struct event look = {.kind = EV_LOOK};
    uint32_t visits = ADMIN_VISITS_MAX;
    struct tls_stats tls;
    struct disk_stats disk;
    struct admin_ctx ctx = {
        .core = d->core,
        .config = d->config,
        .now_ns = io_now_ns(),
        .descriptors = conns_descriptors(d),
        .visits = &visits,
        .daemon = d,
    };

    daemon_event(d, &look);
    counts_take(d, &ctx, &tls, &disk);
    closer_stats(d->closer, &ctx.closer);
    return admin_answer(&ctx, command, a->m ? a->m->args : NULL, a->m ? a->m->n_args : 0, tenant,
                        &a->out, a->why);
}

/* ---- tape ---- */

static enum tern_err tape_command(struct daemon *d, struct asked *a)
{
    const char *path = d->config->tape_file;
    uint32_t tokens = d->config->tape_tokens;
    const struct admin_arg takes[] = {{.key = "path", .text = &path},
                                      {.key = "tokens", .number = &tokens, .max = 1}};
    struct tape_stats stats;
    enum tern_err err;
    bool keep;
    int cause;

    TRY(ASKED_ARGS(a, takes));
    keep = d->config->tape_tokens || tokens == 1;
    if (!d->tape)
        return admin_refuse(a->why, TERN_UNSUPPORTED,
                            "this daemon records no tape: set tape.bytes and restart");
    err = tape_save(d->tape, path, keep, &cause);
    if (err != TERN_OK)
        return admin_refuse(a->why, err, "%s: the tape cannot be written: %s: %s", path,
                            strerror(cause), tape_save_hint(cause));
    tape_stats(d->tape, &stats);
    /* A replay must end with this hash, if the tape is complete and kept its tokens. */
    TEXT(&a->out, OBJECT(NULL, STR("path", path), NUM(stats, recorded), NUM(stats, dropped),
                         BOOL("complete", stats.dropped == 0), BOOL("tokens_kept", keep),
                         HEX("core_hash", core_hash(d->core))));
    return TERN_OK;
}

/* ---- drain, undrain ---- */

static void put_drain(const struct daemon *d, struct text_out *out)
{
    bool draining = d->state != DAEMON_SERVING;
    uint64_t now_ns = io_now_ns();

    TEXT(out, OBJECT(NULL, BOOL("draining", draining), U64("sessions", drain_sessions(d)),
                     NUM(d->config->deadlines, drain_ms),
                     U64("left_ms",
                         draining && d->drain_ns > now_ns ? (d->drain_ns - now_ns) / 1000000 : 0)));
}

/* If the operator waits, operator_drained answers. */
static enum tern_err drain_command(struct daemon *d, struct asked *a)
{
    uint32_t wait = 0;
    const struct admin_arg takes[] = {{.key = "wait", .number = &wait, .max = 1}};

    TRY(ASKED_ARGS(a, takes));
    if (wait && a->c->drain_request != 0)
        return admin_refuse(a->why, TERN_BUSY,
                            "this connection already waits for the end of a drain");
    drain_begin(d, DAEMON_DRAINING);
    if (wait && drain_sessions(d) > 0 && d->state != DAEMON_STORING)
        a->c->drain_request = a->h->request_id;
    else
        put_drain(d, &a->out);
    return TERN_OK;
}

static enum tern_err undrain_command(struct daemon *d, struct asked *a)
{
    const char *why;

    TRY(admin_args(a->m->command, a->m->args, a->m->n_args, NULL, 0, a->why));
    if (drain_undo(d, &why) != TERN_OK)
        return admin_refuse(a->why, TERN_CONFLICT, "%s", why);
    operator_drained(d);
    put_drain(d, &a->out);
    return TERN_OK;
}

/* ---- peer-add, peer-remove: peers that operators add are in no file. They are lost when the
 * daemon ends, and a reload does not change them. ---- */

static void put_member(const struct daemon *d, const struct config_peer *peer, struct text_out *out)
{
    TEXT(out,
         OBJECT(NULL, STR("peer", peer->name), WORD(peer->address, host), NUM(peer->address, port),
                STR("origin", config_peer_origin(peer)), FLAG(*peer, leaving),
                U64("peers", config_peers(d->config)), U64("limit", d->limits.peers)));
}

static enum tern_err member_add(struct daemon *d, struct asked *a)
{
    struct config_peer_text text = {.name = NULL};
    const char *origin = OPERATOR;
    const struct admin_arg takes[] = {{.key = "name", .text = &text.name},
                                      {.key = "address", .text = &text.address},
                                      {.key = "transport", .text = &text.transport},
                                      {.key = "tenants", .text = &text.tenants},
                                      {.key = "origin", .text = &origin}};
    struct config_peer peer;
    const char *unfit;
    uint32_t slot;

    TRY(ASKED_ARGS(a, takes));
    if (strcmp(origin, OPERATOR) != 0 && strcmp(origin, MEMBERSHIP) != 0)
        return admin_refuse(a->why, TERN_INVALID,
                            "origin is " OPERATOR " or " MEMBERSHIP ", not '%.64s'", origin);
    TRY(config_peer_read(d->config, &text, &peer, a->why));
    if (config_peer_slot(d->config, peer.name, &slot) == TERN_OK)
        return admin_refuse(a->why, TERN_CONFLICT,
                            "%s is already a peer, added by %s: remove it first", peer.name,
                            d->config->peers[slot].by_member     ? "tern-member"
                            : d->config->peers[slot].by_operator ? "an operator"
                                                                 : "the configuration");
    unfit = links_unfit(d, &peer);
    if (unfit)
        return admin_refuse(a->why, TERN_UNSUPPORTED, "the change needs a restart: %s", unfit);
    if (links_free(d) == 0)
        return admin_refuse(a->why, TERN_BUSY,
                            "all %u slots of limits.peers are in use or closing: remove a peer, "
                            "retry in a moment, or raise limits.peers and restart",
                            d->limits.peers);
    peer.by_operator = true;
    peer.by_member = strcmp(origin, MEMBERSHIP) == 0;
    links_join(d, &peer);
    put_member(d, &peer, &a->out);
    return TERN_OK;
}

static enum tern_err member_remove(struct daemon *d, struct asked *a)
{
    const char *name = "";
    const struct admin_arg takes[] = {{.key = "name", .text = &name}};
    uint32_t slot;

    TRY(ASKED_ARGS(a, takes));
    if (config_peer_slot(d->config, name, &slot) != TERN_OK)
        return admin_refuse(a->why, TERN_INVALID,
                            "no peer is called '%.64s': `ternctl peers` shows them", name);
    member_leave(d, slot);
    put_member(d, &d->config->peers[slot], &a->out);
    return TERN_OK;
}

/* ---- reload ---- */

/* operator_reloaded answers. */
static enum tern_err reload_command(struct daemon *d, struct asked *a)
{
    uint32_t dry_run = 0;
    const struct admin_arg takes[] = {{.key = "dry_run", .number = &dry_run, .max = 1}};

    TRY(ASKED_ARGS(a, takes));
    if (!reload_begin(d, dry_run == 1))
        return admin_refuse(a->why, TERN_BUSY, "a reload is already under way: retry in a moment");
    a->c->reload_request = a->h->request_id;
    return TERN_OK;
}

typedef enum tern_err command_run(struct daemon *d, struct asked *a);

/* Finds a command that changes something or writes a file; NULL: another command. */
static command_run *act_of(const char *command)
{
    static const struct {
        const char *command;
        command_run *run;
    } acts[] = {{"drain", drain_command},   {"undrain", undrain_command},
                {"reload", reload_command}, {"tape", tape_command},
                {"peer-add", member_add},   {"peer-remove", member_remove}};

    for (size_t i = 0; i < sizeof acts / sizeof *acts; i++)
        if (strcmp(command, acts[i].command) == 0)
            return acts[i].run;
    return core_act_is(command) ? core_act : NULL;
}

/* ---- the log of what operators do ---- */

static void log_asked(const struct client_conn *c, uint64_t request, const Tern__Wire__Admin *m)
{
    char args[ACT_ARGS_BYTES] = "";
    size_t at = 0;

    for (size_t i = 0; i < m->n_args && at < sizeof args; i++)
        at += (size_t)snprintf(args + at, sizeof args - at, "%s%s", i ? " " : "", m->args[i]);
    log_event(LEVEL_INFO, "operator_asks",
              "act=%s pid=%d uid=%u conn=%u request=%" PRIu64 " args=%s", m->command, c->pid,
              c->uid, c->slot, request, args);
}

static void log_done(const struct client_conn *c, uint64_t request, const char *act,
                     enum tern_err err, const char *result)
{
    log_event(LEVEL_INFO, "operator_done",
              "act=%s pid=%d uid=%u conn=%u request=%" PRIu64 " err=%s result=%s", act, c->pid,
              c->uid, c->slot, request, err_name(err), result);
}

void operator_reply(struct daemon *d, struct client_conn *c, const struct reply *r)
{
    struct frame_header h = {.type = FRAME_ADMIN, .request_id = r->request_id};
    const char *act = core_act_name(r->op);
    char result[CORE_ACT_RESULT_BYTES];
    struct text_out out;

    if (act) {
        core_act_result(r, result);
        log_done(c, r->request_id, act, r->err, result);
    }
    if (r->err != TERN_OK || !act) {
        conn_send_status(c, &h, r->err, r->text);
        return;
    }
    text_init(&out, d->text, ADMIN_TEXT_BYTES);
    TEXT(&out, OPEN_OBJECT(NULL));
    core_act_answer(d, r, &out);
    TEXT(&out, CLOSE_OBJECT);
    send_text(d, c, FRAME_ADMIN_REPLY, r->request_id, out.len);
}

void operator_drained(struct daemon *d)
{
    for (uint32_t i = 0; i < d->conns.n; i++) {
        struct client_conn *c = conn_for_reply(d, i);
        char result[ACT_ARGS_BYTES];
        struct text_out out;

        if (!c || c->drain_request == 0)
            continue;
        snprintf(result, sizeof result, "%u sessions%s", drain_sessions(d),
                 d->state == DAEMON_SERVING ? ", taken back" : "");
        log_done(c, c->drain_request, "drain", TERN_OK, result);
        text_init(&out, d->text, ADMIN_TEXT_BYTES);
        put_drain(d, &out);
        send_text(d, c, FRAME_ADMIN_REPLY, c->drain_request, out.len);
        c->drain_request = 0;
    }
}

static void answer(struct daemon *d, struct client_conn *c, const struct frame_header *h,
                   enum tern_err err, const char *text, size_t n)
{
    if (err != TERN_OK)
        conn_send_status(c, h, err, text);
    else
        send_text(d, c, (uint16_t)(h->type + 1), h->request_id, n);
}

void operator_reloaded(struct daemon *d, const struct reload_result *result)
{
    for (uint32_t i = 0; i < d->conns.n; i++) {
        struct client_conn *c = conn_for_reply(d, i);
        const struct frame_header h = {.type = FRAME_ADMIN,
                                       .request_id = c ? c->reload_request : 0};
        char said[ACT_ARGS_BYTES];

        if (!c || c->reload_request == 0)
            continue;
        snprintf(said, sizeof said, "%u %s, %u need a restart, %u failed", result->done,
                 result->dry_run ? "would be done" : "done", result->restart, result->failed);
        log_done(c, h.request_id, "reload", result->err,
                 result->err == TERN_OK ? said : result->why);
        answer(d, c, &h, result->err, result->why, result->n);
        c->reload_request = 0;
    }
}

/* ---- requests ---- */

static void admin_request(struct daemon *d, struct asked *a)
{
    const char *command = a->m->command ? a->m->command : "";
    command_run *act = act_of(command);
    enum tern_err err;

    if (act)
        log_asked(a->c, a->h->request_id, a->m);
    err = act ? act(d, a) : describe(d, a, command, NONE);
    if (err == TERN_OK && a->out.len == 0)
        return; /* another function answers */
    if (act)
        log_done(a->c, a->h->request_id, command, err, err == TERN_OK ? "" : a->why);
    answer(d, a->c, a->h, err, a->why, a->out.len);
}

void operator_request(struct daemon *d, struct client_conn *c, const struct frame_header *h,
                      const uint8_t *body)
{
    const void *m = conn_decode(c, h, body);
    struct asked a = {.c = c, .h = h};
    enum tern_err err;

    if (!m)
        return;
    text_init(&a.out, d->text, ADMIN_TEXT_BYTES);
    if (h->type == FRAME_ADMIN) {
        a.m = m;
        admin_request(d, &a);
    } else {
        err = describe(d, &a, "status", c->tenant);
        answer(d, c, h, err, a.why, a.out.len);
    }
}
