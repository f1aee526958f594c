/* Answers to frames. See wire_out.h. Invariant: a small buffer gives 0, never half a frame. */
#include "shell/wire/wire_out.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/err.h"
#include "proto/ticket.h"
#include "proto/writer.h"
#include "shell/config/config.h"
#include "shell/wire/wire_layout.h"

static void put_shortage(struct writer *w, uint32_t field, const struct shortage *s)
{
    uint8_t *from = put_begin(w, field, 0);

    put_number(w, 1, s->group);
    put_number(w, 2, s->needed);
    put_number(w, 3, s->free);
    put_number(w, 4, s->evictable);
    put_number(w, 5, s->retiring);
    put_number(w, 6, s->until_step);
    put_end(w, from, 0);
}

/* Writes a Status. The numbers are already in `text`, too. */
static void put_status(struct writer *w, enum tern_err err, const char *text,
                       const uint64_t number[REPLY_NUMBERS], const struct shortage *shortage)
{
    size_t n = text ? strlen(text) : 0;
    uint8_t *from;

    if (err == TERN_OK)
        return;
    from = put_begin(w, 1, n);
    put_number(w, 1, err);
    if (n)
        put_bytes(w, 2, text, n);
    if (err == TERN_POOL_EXHAUSTED || err == TERN_QUOTA)
        put_shortage(w, 3, shortage);
    put_number(w, 4, number[0]);
    put_number(w, 5, number[1]);
    put_number(w, 6, err == TERN_BUSY && shortage->goes_on);
    put_end(w, from, n);
}

static void put_run(struct writer *w, uint32_t field, const struct table_run *r)
{
    size_t refs = (size_t)r->n * sizeof(struct page_ref);
    uint8_t *from = put_begin(w, field, refs);

    put_number(w, 1, r->group);
    put_number(w, 2, r->first);
    put_bytes(w, 3, r->refs, refs);
    put_number(w, 4, r->from.index);
    put_number(w, 5, r->from.gen);
    put_end(w, from, refs);
}

static void put_runs(struct writer *w, uint32_t field, const struct reply *r)
{
    for (uint32_t i = 0; i < r->nruns; i++)
        put_run(w, field, &r->runs[i]);
}

static void put_lengths(struct writer *w, uint32_t field, const struct lengths *l)
{
    uint8_t *from = put_begin(w, field, 0);

    put_number(w, 1, l->committed);
    put_number(w, 2, l->written);
    put_number(w, 3, l->allocated);
    put_end(w, from, 0);
}

static void put_sums(struct writer *w, uint32_t field, const struct mem_brought *at)
{
    uint8_t *from = put_begin(w, field, 0);

    put_number(w, 1, at->offset);
    put_number(w, 2, at->entry_bytes);
    put_number(w, 3, at->page_bytes);
    put_end(w, from, 0);
}

static void put_result(struct writer *w, uint32_t field, const struct op_result *r,
                       const struct table_run *runs)
{
    uint8_t *from = put_begin(w, field, 0);
    char words[WIRE_OUT_WORDS];

    if (r->err != TERN_OK)
        put_status(w, r->err, wire_out_text(r->text, r->number, words), r->number, &r->shortage);
    put_number(w, 2, r->lengths.committed);
    put_number(w, 3, r->lengths.written);
    put_number(w, 4, r->lengths.allocated);
    put_number(w, 5, r->tokens);
    for (uint32_t i = 0; i < r->nruns; i++)
        put_run(w, 6, &runs[r->first_run + i]);
    put_number(w, 7, r->align);
    put_end(w, from, 0);
}

static_assert(WIRE_SPAN_BYTES == sizeof(struct record_run), "runs are written in place");
static_assert(WIRE_RECORDS_MAX >= RECORDS_TOLD_MAX && WIRE_SPANS_MAX >= RECORD_RUNS_MAX &&
                  WIRE_BLOBS_MAX >= RECORD_BLOBS_MAX,
              "a client takes what the core tells");
static_assert(WIRE_SESSION_TOKENS_MAX == SESSION_TOKENS_MAX &&
                  WIRE_RECORD_PAGE == RECORD_PAGE_BYTES,
              "a client counts as the core does");

static void put_section(struct writer *w, uint32_t field, const struct record_section *s)
{
    size_t runs = s->nruns * sizeof(struct record_run);
    uint8_t *from = put_begin(w, field, runs);

    put_number(w, 1, s->bytes);
    put_bytes(w, 2, s->run, runs);
    put_end(w, from, runs);
}

static void put_record(struct writer *w, uint32_t field, const struct record_body *b)
{
    uint8_t *from = put_begin(w, field, 0), *blob;

    put_number(w, 1, b->from);
    put_number(w, 2, b->length);
    put_number(w, 3, b->logprobs);
    put_section(w, 4, &b->before);
    put_section(w, 5, &b->own);
    for (uint32_t i = 0; i < b->nblobs; i++) {
        blob = put_begin(w, 6, 0);
        put_bytes(w, 1, b->blob[i].name, strlen(b->blob[i].name));
        put_section(w, 2, &b->blob[i].at);
        put_number(w, 3, b->blob[i].dropped);
        put_end(w, blob, 0);
    }
    put_end(w, from, 0);
}

/* Writes the records that fit, at least one; the client requests the next ones. */
static void put_records(struct writer *w, uint32_t field, const struct reply *r)
{
    for (uint32_t i = 0; i < r->record_get.n; i++) {
        const struct writer before = *w;

        put_record(w, field, &r->record_get.list[i]);
        if (i > 0 && !writer_ok(w)) {
            *w = before;
            return;
        }
    }
}

uint16_t wire_out_type(enum op op)
{
    switch (op) {
#define X(number, NAME, ...)                                                                       \
    case OP_##NAME: return FRAME_##NAME##_REPLY;
        REQUEST_TABLE(X)
#undef X
    default: return 0;
    }
}

static void put_results(struct writer *w, uint32_t field, const struct reply *r)
{
    for (uint32_t i = 0; i < r->step.n; i++)
        put_result(w, field, &r->step.results[i], r->runs);
}

static void ticket_text(const struct ticket *t, char ret[WIRE_TICKET_MAX])
{
    wire_ticket_text(&(struct wire_ticket){.incarnation = t->incarnation,
                                           .id = session_id_pack(t->id),
                                           .key = {t->key[0], t->key[1]},
                                           .length = t->length},
                     ret);
}

/* Writes the ticket; the answer of an error has none. */
static void put_ticket(struct writer *w, uint32_t field, const struct ticket *t)
{
    char text[WIRE_TICKET_MAX];

    if (t->id.gen == 0)
        return;
    ticket_text(t, text);
    put_bytes(w, field, text, strlen(text));
}

struct hosts {
    const uint32_t *v;
    uint32_t n;
};

static void put_hosts(struct writer *w, uint32_t field, struct hosts hosts,
                      const struct wire_region *region)
{
    for (uint32_t i = 0; i < hosts.n; i++)
        put_bytes(w, field, region->peers[hosts.v[i]].name, strlen(region->peers[hosts.v[i]].name));
}

/* Encoders of each kind of field of messages.h: `of` is the struct of the answer. */
#define OUT_U32(of, number, member)     put_number(w, number, (of).member);
#define OUT_U64(of, number, member)     put_number(w, number, (of).member);
#define OUT_ENGINE(of, number, member)  put_fixed64(w, number, engine_id_pack((of).member));
#define OUT_POOL(of, number, member)    put_fixed64(w, number, pool_id_pack((of).member));
#define OUT_NODE(of, number, member)    put_fixed64(w, number, node_id_pack((of).member));
#define OUT_SESSION(of, number, member) put_fixed64(w, number, session_id_pack((of).member));
#define OUT_TOKENS(of, number, member)                                                             \
    put_message(w, number, bytes_size((size_t)(of).member.n *WIRE_TOKEN_BYTES));                   \
    put_bytes(w, 2, (of).member.v, (size_t)(of).member.n *WIRE_TOKEN_BYTES);
#define OUT_LENGTHS(of, number, member) put_lengths(w, number, &(of).member);
#define OUT_RUNS(of, number, member)    put_runs(w, number, r);
#define OUT_RESULTS(of, number, member) put_results(w, number, r);
#define OUT_RECORDS(of, number, member) put_records(w, number, r);
#define OUT_RECORD(of, number, member)                                                             \
    if ((of).member)                                                                               \
        put_record(w, number, (of).member);
#define OUT_REGION_BYTES(of, number, member) put_number(w, number, region->bytes);
#define OUT_REGION_DEVICE(of, number, member)                                                      \
    if (region->device)                                                                            \
        put_bytes(w, number, region->device, strlen(region->device));
#define OUT_REGION_SUMS(of, number, member)                                                        \
    if (region->sums.fd >= 0)                                                                      \
        put_sums(w, number, &region->sums);
#define OUT_HOSTS(of, number, member)                                                              \
    put_hosts(w, number, (struct hosts){(of).member, (of).n##member}, region);
#define OUT_TICKET(of, number, member) put_ticket(w, number, &(of).member);
#define OUT_BLOB(of, number, member)                                                               \
    if ((of).member##_bytes > 0)                                                                   \
        put_bytes(w, number, (of).member, (of).member##_bytes);

/* Writes the fields after the status. An error has lengths and runs too: those that remained. */
static void put_answer(struct writer *w, const struct reply *r, const struct wire_region *region)
{
    switch (r->op) {
#define F(op, number, member, KIND) OUT_##KIND(r->op, number, member)
#define X(number, NAME, ...)                                                                       \
    case OP_##NAME: REPLY_##NAME(F) break;
        REQUEST_TABLE(X)
#undef X
#undef F
    default: break;
    }
}

size_t wire_out_reply(const struct reply *r, const struct wire_region *region, uint32_t body_max,
                      uint8_t *out)
{
    uint8_t *body = out + FRAME_HEADER_BYTES;
    struct writer w = writer_of(body, body_max);
    struct frame_header h = {
        .version = FRAME_VERSION, .type = wire_out_type(r->op), .request_id = r->request_id};

    check(h.type != 0);
    put_status(&w, r->err, r->text, r->number, &r->shortage);
    put_answer(&w, r, region);
    put_pad(&w, body);
    if (!writer_ok(&w))
        return 0;
    h.length = (uint32_t)(w.p - body);
    frame_encode(&h, out);
    return FRAME_HEADER_BYTES + h.length;
}

const char *wire_out_text(const char *text, const uint64_t number[REPLY_NUMBERS],
                          char buf[WIRE_OUT_WORDS])
{
    uint32_t n = 0;
    size_t at = 0;

    if (!text || !strchr(text, '#'))
        return text;
    for (const char *c = text; *c && at + 1 < WIRE_OUT_WORDS; c++)
        if (*c == '#' && n < REPLY_NUMBERS)
            at += (size_t)snprintf(buf + at, WIRE_OUT_WORDS - at, "%" PRIu64, number[n++]);
        else
            buf[at++] = *c;
    buf[at < WIRE_OUT_WORDS ? at : WIRE_OUT_WORDS - 1] = '\0';
    return buf;
}

size_t wire_out_message(uint16_t type, uint64_t request_id, const ProtobufCMessage *m,
                        uint32_t body_max, uint8_t *out)
{
    const struct frame_header h = {
        .version = FRAME_VERSION, .type = type, .request_id = request_id};
    size_t n;

    return wire_encode(&h, m, body_max, out, FRAME_HEADER_BYTES + (size_t)body_max, &n) == TERN_OK
               ? n
               : 0;
}

Tern__Wire__Status *wire_out_status_in(Tern__Wire__Status *status, enum tern_err err,
                                       const char *text)
{
    tern__wire__status__init(status);
    status->has_err = true;
    status->err = err;
    status->text = *text ? (char *)(uintptr_t)text : NULL;
    return err == TERN_OK ? NULL : status;
}

size_t wire_out_status(const struct frame_header *request, enum tern_err err, const char *text,
                       uint32_t body_max, uint8_t *out)
{
    Tern__Wire__Status status;
    Tern__Wire__Empty m = TERN__WIRE__EMPTY__INIT;
    char cut[WIRE_TEXT_MAX + 1]; /* a reader would refuse a longer one */

    snprintf(cut, sizeof(cut), "%s", text);
    m.status = wire_out_status_in(&status, err, cut);
    return wire_out_message((uint16_t)(request->type + 1), request->request_id, &m.base, body_max,
                            out);
}

static void fill_peer_runs(const struct peer_msg *msg, Tern__Wire__Run *runs,
                           Tern__Wire__Run **list)
{
    for (uint32_t i = 0; i < msg->nruns; i++) {
        Tern__Wire__Run init = TERN__WIRE__RUN__INIT;

        runs[i] = init;
        runs[i].has_group = runs[i].has_first = runs[i].has_refs = true;
        runs[i].group = msg->runs[i].group;
        runs[i].first = msg->runs[i].first;
        runs[i].refs =
            wire_bytes(msg->runs[i].refs, (size_t)msg->runs[i].n * sizeof(struct page_ref));
        list[i] = &runs[i];
    }
}

/* Fills in the tenant and the namespace of a request for a transfer or a reset. */
static void fill_peer_identity(const struct peer_msg *msg, const char *tenant,
                               Tern__Wire__PeerMsg *m)
{
    if (msg->kind == PEER_PULL_OPEN || msg->kind == PEER_RESET) {
        m->tenant = (char *)(uintptr_t)tenant;
        m->has_ns_hi = m->has_ns_lo = true;
        m->ns_hi = msg->ns.hi;
        m->ns_lo = msg->ns.lo;
    }
}

/* `told` must live as long as the message. */
static void fill_peer_layouts(const struct wire_layouts *layouts, struct wire_layout *told,
                              Tern__Wire__PeerMsg *m)
{
    if (layouts->n == 0)
        return;
    wire_layout_out(layouts->v, layouts->n, told);
    m->n_groups = layouts->n;
    m->groups = told->groups;
    m->has_ranks = m->has_stages = true;
    m->ranks = layouts->v->ranks;
    m->stages = layouts->v->stages;
    m->has_align_tokens = layouts->v->align_tokens != 0;
    m->align_tokens = layouts->v->align_tokens;
}

size_t wire_out_peer_msg(const struct peer_msg *msg, const char *tenant,
                         const struct wire_layouts *layouts, uint64_t sequence, uint32_t body_max,
                         uint8_t *out)
{
    struct wire_layout told;
    Tern__Wire__PeerMsg m = TERN__WIRE__PEER_MSG__INIT;
    Tern__Wire__Run runs[GROUPS_MAX], *list[GROUPS_MAX];
    char text[WIRE_TICKET_MAX];

    check(msg->nruns <= GROUPS_MAX);
    fill_peer_runs(msg, runs, list);
    m.has_kind = m.has_pull = m.has_serve = m.has_sequence = true;
    m.kind = msg->kind;
    m.pull = pull_id_pack(msg->pull);
    m.serve = serve_id_pack(msg->serve);
    m.sequence = sequence;
    m.has_err = msg->err != TERN_OK;
    m.err = msg->err;
#define F(member, KIND) m.has_##member = msg->member != 0, m.member = msg->member;
    PEER_MSG_NUMBERS(F)
#undef F
    fill_peer_identity(msg, tenant, &m);
    if (msg->kind == PEER_PULL_OPEN || msg->kind == PEER_PULL_TOKENS) {
        m.has_tokens = m.has_keys = true;
        m.tokens = wire_bytes(msg->tokens, (size_t)peer_msg_tokens(msg) * sizeof(uint32_t));
        m.keys = wire_bytes(msg->keys, (size_t)msg->nkeys * sizeof(struct extra_key));
    }
    if ((msg->kind == PEER_PULL_OPEN || msg->kind == PEER_PULL_DONE) && msg->ticket.id.gen != 0) {
        ticket_text(&msg->ticket, text);
        m.ticket = text;
    }
    m.has_blob = msg->kind == PEER_PULL_OFFER && msg->blob_bytes > 0;
    if (m.has_blob)
        m.blob = wire_bytes(msg->tokens, msg->blob_bytes);
    fill_peer_layouts(layouts, &told, &m);
    m.n_runs = msg->nruns;
    m.runs = list;
    return wire_out_message(FRAME_PEER_MSG, 0, &m.base, body_max, out);
}
