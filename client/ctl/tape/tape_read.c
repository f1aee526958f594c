/* Reads a tape, which is untrusted input. Invariant: before an event is returned, every count is
 * checked against the bytes available, every enum against its type and every slot against the
 * limits in the head. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/err.h"
#include "client/ctl/tape/tape_read.h"
#include "shell/tape/tape_codec.h"

#define READ_AT_ONCE ((size_t)1 << 20)
#define CLOCK_MAX    INT64_MAX /* ns: the core adds deadlines to the time of an event */

struct tape_reader {
    uint32_t *words; /* the whole file, 8-byte aligned */
    size_t nwords, at;
    uint64_t given, now_ns;
    bool broken, ragged; /* ragged: bytes behind the last whole word */
    struct tape_header header;
    struct codec_room room;
};

static enum tern_err read_head(struct tape_reader *r, size_t bytes)
{
    struct tape_file_head head;

    if (bytes < sizeof head)
        return TERN_MALFORMED;
    memcpy(&head, r->words, sizeof head);
    if (head.magic != TAPE_MAGIC)
        return TERN_MALFORMED;
    if (head.version != TAPE_VERSION || head.limits_bytes != sizeof head.limits)
        return TERN_UNSUPPORTED;
    if (head.tenants > TAPE_TENANTS_MAX ||
        (bytes - sizeof head) / sizeof(struct tenant_config) < head.tenants ||
        (head.flags & ~(TAPE_COMPLETE | TAPE_TOKENS_KEPT)) != 0 ||
        ((head.flags & TAPE_COMPLETE) != 0) != (head.first == 0) ||
        head.limits.tenants < head.tenants)
        return TERN_MALFORMED;
    r->header = (struct tape_header){.limits = head.limits,
                                     .tenants = head.tenants,
                                     .incarnation = head.incarnation,
                                     .first = head.first,
                                     .events = head.events,
                                     .complete = (head.flags & TAPE_COMPLETE) != 0,
                                     .tokens_kept = (head.flags & TAPE_TOKENS_KEPT) != 0};
    memcpy(r->header.tenant, (const char *)r->words + sizeof head,
           head.tenants * sizeof(struct tenant_config));
    r->at = (sizeof head + head.tenants * sizeof(struct tenant_config)) / sizeof(uint32_t);
    r->nwords = bytes / sizeof(uint32_t);
    r->ragged = bytes % sizeof(uint32_t) != 0;
    return TERN_OK;
}

/* Consumes `words`, also on failure. */
static enum tern_err open_words(uint32_t *words, size_t bytes, struct tape_reader **ret)
{
    struct tape_reader *r = calloc(1, sizeof *r);
    enum tern_err err;

    if (r == NULL) {
        free(words);
        return TERN_INTERNAL;
    }
    r->words = words;
    err = read_head(r, bytes);
    if (err != TERN_OK) {
        tape_close(r);
        return err;
    }
    *ret = r;
    return TERN_OK;
}

enum tern_err tape_open(const void *bytes, size_t n, struct tape_reader **ret)
{
    uint32_t *words = malloc(n + 8);

    if (words == NULL)
        return TERN_INTERNAL;
    if (n > 0)
        memcpy(words, bytes, n);
    return open_words(words, n, ret);
}

enum tern_err tape_open_fd(int fd, struct tape_reader **ret)
{
    size_t cap = READ_AT_ONCE, have = 0;
    char *bytes = malloc(cap), *larger;
    ssize_t n = 1;

    while (bytes != NULL && n > 0 && have < TAPE_FILE_MAX) {
        if (have == cap) {
            cap *= 2;
            larger = realloc(bytes, cap);
            if (larger == NULL)
                break;
            bytes = larger;
        }
        n = read(fd, bytes + have, cap - have);
        have += n > 0 ? (size_t)n : 0;
    }
    if (bytes == NULL || n > 0) { /* out of memory, or larger than TAPE_FILE_MAX */
        free(bytes);
        return TERN_INTERNAL;
    }
    if (n < 0) {
        free(bytes);
        return TERN_DISK;
    }
    return open_words((uint32_t *)(void *)bytes, have, ret);
}

void tape_close(struct tape_reader *reader)
{
    if (reader == NULL)
        return;
    free(reader->words);
    free(reader);
}

const struct tape_header *tape_header(const struct tape_reader *reader)
{
    return &reader->header;
}

/* Slots that the shell chose must lie within its limits, because the core trusts them. A process is
 * only a number to the core. */
static bool within_limits(const struct event *e, const struct core_limits *limits)
{
    switch (e->kind) {
    case EV_CONN_OPENED:
        return e->conn.conn < limits->conns && (e->conn.admin || e->conn.tenant < limits->tenants);
    case EV_CONN_CLOSED: return e->conn.conn < limits->conns;
    case EV_REQUEST:
        if (e->request.op == OP_FETCH && e->request.fetch.peer >= limits->peers &&
            e->request.fetch.peer != NONE && e->request.fetch.peer != PEER_HOST &&
            e->request.fetch.peer != PEER_DISK && e->request.fetch.peer != PEER_ANY)
            return false;
        return e->request.conn < limits->conns && e->request.op != OP_NONE;
    case EV_LINK_UP:
    case EV_LINK_DOWN:
        return e->link.link < limits->links && (e->link.peer < limits->peers || e->link.peer == 0);
    case EV_PEER_LEFT:
    case EV_PEER_JOINED: return e->member.peer < limits->peers;
    case EV_DISK_FOUND: return e->found.extent.tenant < limits->tenants;
    case EV_PEER_MSG:
        return e->peer.link < limits->links &&
               (e->peer.msg.tenant < limits->tenants || e->peer.msg.tenant == NONE);
    default: return true;
    }
}

/* Assigns each token list its part of the record's keys and tokens; nothing may be left over. */
static bool place_lists(const struct codec *c, const uint32_t *keys, uint32_t nkeys,
                        const uint32_t *tokens, uint32_t ntokens)
{
    for (uint32_t i = 0; i < c->nlists; i++) {
        const struct codec_list *list = &c->lists[i];

        if (list->nkeys > nkeys || list->n > ntokens)
            return false;
        *list->tokens = tokens;
        *list->keys = (const struct extra_key *)(const void *)keys;
        keys += list->nkeys * KEY_WORDS;
        nkeys -= list->nkeys;
        tokens += list->n;
        ntokens -= list->n;
    }
    return nkeys == 0 && ntokens == 0;
}

static enum tern_err read_record(struct tape_reader *r, struct event *e)
{
    const uint32_t *head = r->words + r->at;
    uint64_t left = r->nwords - r->at, words, wanted;
    struct codec c = {.reading = true, .lists = r->room.lists};

    if (left < RECORD_HEAD_WORDS)
        return TERN_MALFORMED;
    words = head[0] / sizeof(uint32_t);
    wanted = RECORD_HEAD_WORDS + (uint64_t)head[1] + (uint64_t)head[2] * KEY_WORDS + head[3];
    if (head[0] % 8 != 0 || words > left || head[1] % 2 != 0 || (wanted + 1) / 2 * 2 != words)
        return TERN_MALFORMED;
    memset(e, 0, sizeof *e);
    c.words = r->words + r->at + RECORD_HEAD_WORDS;
    c.n = head[1];
    codec_event(&c, e, &r->room);
    if (c.bad || c.n - c.at > 1 || e->now_ns < r->now_ns || e->now_ns > CLOCK_MAX ||
        !within_limits(e, &r->header.limits) ||
        !place_lists(&c, c.words + c.n, head[2], c.words + c.n + (size_t)head[2] * KEY_WORDS,
                     head[3]))
        return TERN_MALFORMED;
    r->now_ns = e->now_ns;
    r->at += words;
    r->given++;
    return TERN_OK;
}

enum tern_err tape_next(struct tape_reader *reader, struct event *ret)
{
    struct event e = {.kind = 0};
    enum tern_err err = reader->broken ? TERN_MALFORMED : TERN_OK;

    if (err == TERN_OK && reader->given < reader->header.events)
        err = read_record(reader, &e);
    else if (err == TERN_OK && (reader->at != reader->nwords || reader->ragged))
        err = TERN_MALFORMED; /* more bytes than the head announced */
    if (err != TERN_OK) {
        reader->broken = true;
        return err;
    }
    *ret = e;
    return TERN_OK;
}
