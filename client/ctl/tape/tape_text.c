/* See tape_text.h. */
#include "client/ctl/tape/tape_text.h"

#include <inttypes.h>
#include <stddef.h>

#include "base/check.h"
#include "base/err.h"
#include "core/core.h"
#include "shell/tape/tape.h"

#define HANDLE_DIGITS 16

static const char *const messages[PEER_MSG_COUNT] = {
    [PEER_PULL_OPEN] = "pull_open", [PEER_PULL_OFFER] = "pull_offer",
    [PEER_PULL_DONE] = "pull_done", [PEER_PULL_ABORT] = "pull_abort",
    [PEER_RESET] = "reset",         [PEER_RESET_DONE] = "reset_done",
    [PEER_PULL_MORE] = "pull_more", [PEER_PULL_TOKENS] = "pull_tokens",
    [PEER_PULL_NEXT] = "pull_next", [PEER_PULL_EARLY] = "pull_early"};

static void add(struct tape_line *l, struct tape_field field)
{
    check(l->n < TAPE_FIELDS_MAX);
    l->field[l->n++] = field;
}

static void number(struct tape_line *l, const char *key, uint64_t v)
{
    add(l, (struct tape_field){.key = key, .number = v});
}

static void hex(struct tape_line *l, const char *key, uint64_t v)
{
    add(l, (struct tape_field){.key = key, .number = v, .hex_digits = HANDLE_DIGITS});
}

static void word(struct tape_line *l, const char *key, const char *text)
{
    add(l, (struct tape_field){.key = key, .word = text});
}

/* The session that the request names; NULL: none. */
static const struct session_id *session_of(const struct request *r)
{
    switch (r->op) {
#define ANY         NULL
#define OPERATOR    NULL
#define ENGINE      NULL
#define SESSION(op) &r->op.session
#define RECORDS(op) &r->op.session
#define ANYHOW(op)  &r->op.session
#define X(NAME, name, answers, who, when)                                                          \
    case OP_##NAME: return who;
        OP_TABLE(X)
#undef X
#undef ANY
#undef OPERATOR
#undef ENGINE
#undef SESSION
#undef RECORDS
#undef ANYHOW
    default: return NULL;
    }
}

static void request(struct tape_line *l, const struct request *r)
{
    const struct session_id *session = session_of(r);

    word(l, "op", op_name(r->op));
    number(l, "conn", r->conn);
    number(l, "id", r->request_id);
    if (session)
        hex(l, "session", session_id_pack(*session));
}

static void peer_msg(struct tape_line *l, uint32_t link, const struct peer_msg *m)
{
    number(l, "link", link);
    word(l, "message",
         (uint32_t)m->kind < PEER_MSG_COUNT && messages[m->kind] ? messages[m->kind] : "unknown");
    hex(l, "pull", pull_id_pack(m->pull));
    hex(l, "serve", serve_id_pack(m->serve));
    number(l, "from", m->from);
    number(l, "to", m->to);
    word(l, "err", err_name(m->err));
}

static uint32_t bits(const uint64_t *words, size_t n)
{
    uint32_t sum = 0;

    for (size_t i = 0; i < n; i++)
        sum += (uint32_t)__builtin_popcountll(words[i]);
    return sum;
}

static void of_processes(struct tape_line *l, const struct event *e)
{
    switch (e->kind) {
    case EV_CONN_OPENED:
        number(l, "conn", e->conn.conn);
        if (e->conn.admin)
            word(l, "of", "operator");
        else
            number(l, "tenant", e->conn.tenant);
        number(l, "proc", e->conn.proc);
        break;
    case EV_CONN_CLOSED: number(l, "conn", e->conn.conn); break;
    case EV_PROC_GONE: number(l, "proc", e->proc.proc); break;
    case EV_STEP_DONE:
        hex(l, "engine", engine_id_pack(e->step_done.engine));
        number(l, "rank", e->step_done.rank);
        number(l, "step", e->step_done.step);
        break;
    case EV_REQUEST: request(l, &e->request); break;
    default: break;
    }
}

static void of_peers(struct tape_line *l, const struct event *e)
{
    switch (e->kind) {
    case EV_LINK_UP:
    case EV_LINK_DOWN:
        number(l, "link", e->link.link);
        number(l, "peer", e->link.peer);
        hex(l, "incarnation", e->link.incarnation);
        break;
    case EV_PEER_MSG: peer_msg(l, e->peer.link, &e->peer.msg); break;
    case EV_PULLED:
        hex(l, "pull", pull_id_pack(e->pulled.pull));
        number(l, "batch", e->pulled.batch);
        number(l, "right", bits(e->pulled.ok, sizeof e->pulled.ok / sizeof e->pulled.ok[0]));
        break;
    case EV_PULL_BROKEN:
        hex(l, "pull", pull_id_pack(e->broken.pull));
        word(l, "err", err_name(e->broken.err));
        break;
    case EV_PULL_QUIET: hex(l, "pull", pull_id_pack(e->pull_quiet.pull)); break;
    case EV_SERVE_QUIET: hex(l, "serve", serve_id_pack(e->serve_quiet.serve)); break;
    case EV_PEER_LEFT:
    case EV_PEER_JOINED: number(l, "peer", e->member.peer); break;
    default: break;
    }
}

static void of_memory_and_disk(struct tape_line *l, const struct event *e)
{
    switch (e->kind) {
    case EV_SEALED:
        number(l, "jobs", e->sealed.n);
        hex(l, "job", seal_id_pack(e->sealed.job[0]));
        break;
    case EV_ZEROED: hex(l, "pool", pool_id_pack(e->zeroed.pool)); break;
    case EV_COPIED:
        hex(l, "job", copy_id_pack(e->copied.job));
        word(l, "err", err_name(e->copied.err));
        break;
    case EV_RECORD_CHECKED:
        hex(l, "record", record_id_pack(e->checked.id));
        word(l, "err", err_name(e->checked.err));
        break;
    case EV_DISK_FOUND:
        number(l, "tenant", e->found.extent.tenant);
        number(l, "file", e->found.extent.place.file);
        number(l, "offset", e->found.extent.place.offset);
        number(l, "depth", e->found.extent.depth);
        break;
    case EV_DISK_READY: number(l, "next_file", e->ready.next_file); break;
    case EV_DISK_WRITTEN:
        hex(l, "store", store_id_pack(e->written.store));
        word(l, "err", err_name(e->written.err));
        break;
    case EV_DISK_DROPPED: number(l, "file", e->dropped.file); break;
    case EV_SHUTDOWN: number(l, "deadline_ns", e->shutdown.deadline_ns); break;
    default: break;
    }
}

void tape_line(const struct event *event, struct tape_line *ret)
{
    uint32_t kind = (uint32_t)event->kind;

    *ret = (struct tape_line){.event = tape_event_word(kind), .now_ns = event->now_ns};
    of_processes(ret, event);
    of_peers(ret, event);
    of_memory_and_disk(ret, event);
}

void tape_fields_print(const struct tape_line *line, FILE *out)
{
    for (uint32_t i = 0; i < line->n; i++) {
        const struct tape_field *f = &line->field[i];

        if (f->word)
            fprintf(out, " %s=%s", f->key, f->word);
        else if (f->hex_digits)
            fprintf(out, " %s=%0*" PRIx64, f->key, (int)f->hex_digits, f->number);
        else
            fprintf(out, " %s=%" PRIu64, f->key, f->number);
    }
}
