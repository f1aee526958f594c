/* The destination's receive: one at a time on a connection. The owner receives a head that arrives
 * alone. A data thread receives the rest of an answer (sums, pages, tail), and the head of the next
 * one, as one task, so a piece of 1 MiB costs the owner one event. Page bytes are received at the
 * addresses that mem.h gives, and the thread that receives them lets the memory verify them
 * (tcp_landed). The owner learns which pages were right when the task returns (tcp_received). The
 * previous head has announced every byte of a receive. So the receive does not complete with the
 * first segment, but when all bytes have arrived, or as many as the kernel buffers. The tick
 * accepts fewer from a slow peer.
 *
 * Invariant: conn->recv_pull is set before a receive that may write pages is posted, and cleared
 * only when that receive has ended. An answer whose pull has ended (its batch is NONE) goes to the
 * scratch buffer. tcp_landed touches only the data thread's fields of tcp.h. */
#include "base/check.h"
#include "seam/xfer/tcp/tcp.h"

static struct tcp_asked *asked_now(struct tcp_caller *c)
{
    return c->nasked > 0 ? &c->asked[c->asked_at] : NULL;
}

static uint32_t head_bytes(const struct tcp_asked *asked)
{
    return asked ? XFER_HEAD_BYTES + XFER_STATUS_BYTES(asked->part.n) : XFER_HEAD_BYTES;
}

static void cursor_skip_refused(struct tcp_caller *c, uint32_t n)
{
    while (c->cursor.page < n && !xfer_bit(c->given, c->cursor.page))
        c->cursor.page++;
}

/* Lists where resharded pages go, stretch by stretch. */
static bool target_resharded(struct data_conn *conn, const struct batch_part *part,
                             struct data_gather *t)
{
    const struct tcp_caller *caller = tcp_caller_of(conn);
    const struct batch *batch = &conn->xfer->batch[part->batch];
    const struct pair *pair = conn->xfer->pull[batch->pull].pair;
    uint64_t at = caller->cursor.at;

    for (uint32_t i = caller->cursor.page; i < part->n; i++, at = 0) {
        const uint32_t k = part->first + i;
        const struct page_at *pages = batch_pages(batch, k);
        const struct reshard_part there = {batch->span[k].first, batch->span[k].n};
        const struct reshard_plan *plan =
            &pair_plan_of(pair, pages->group, batch->ref[k].index)->plan;
        struct reshard_cursor c = reshard_cursor_at(plan, there, at);
        struct reshard_run run;

        if (!xfer_bit(caller->given, i))
            continue;
        while (reshard_cursor_next(plan, there, &c, &run)) {
            uint8_t *to = mem_page(conn->xfer->config.mem, batch->pool, run.to.rank, pages->group,
                                   pages[run.to.page].index);

            if (t->n >= XFER_PIECE_PARTS ||
                data_gather_add(t, to + run.to.at, run.bytes) < run.bytes)
                return false;
        }
    }
    return true;
}

/* Returns true if all of the piece's pages fit. */
static bool target_pages(struct data_conn *conn, const struct batch_part *part,
                         struct data_gather *t)
{
    const struct tcp_caller *caller = tcp_caller_of(conn);
    const struct mem *mem = conn->xfer->config.mem;
    const struct batch *batch = &conn->xfer->batch[part->batch];
    uint32_t regions = mem_place(mem, batch->pool)->transfer_regions;
    struct page_cursor c = caller->cursor;

    if (conn->xfer->pull[batch->pull].pair)
        return target_resharded(conn, part, t);
    for (; c.page < part->n; c.page++, c.region = 0, c.at = 0) {
        const struct page_at *page = batch_pages(batch, part->first + c.page);

        if (!xfer_bit(caller->given, c.page))
            continue;
        for (; c.region < regions; c.region++, c.at = 0) {
            uint8_t *at = mem_page(mem, batch->pool, c.region, page->group, page->index);
            uint64_t n = mem_group(mem, batch->pool, page->group)->page_bytes - c.at;

            if (data_gather_add(t, at + c.at, n) < n)
                return false;
        }
    }
    return true;
}

/* For an answer to skip. Returns true if the rest of it fits. */
static bool target_scratch(struct data_conn *conn, struct data_gather *t)
{
    const struct tcp *tcp = conn->transport->own;

    return tcp_gather_again(t, tcp->scratch, tcp_caller_of(conn)->body_left, TCP_SKIP_PARTS);
}

static bool target_body(struct data_conn *conn, const struct batch_part *part,
                        struct data_gather *t)
{
    struct tcp_caller *c = tcp_caller_of(conn);

    if (part->batch == NONE)
        return target_scratch(conn, t);
    data_gather_add(t, conn->meta + c->sums_at, c->sums_bytes - c->sums_at);
    if (c->cursor.page < part->n)
        conn->recv_pull = conn->xfer->batch[part->batch].pull;
    if (!target_pages(conn, part, t))
        return false;
    return data_gather_add(t, c->tail + c->tail_at, XFER_TAIL_BYTES - c->tail_at) ==
           XFER_TAIL_BYTES - c->tail_at;
}

void tcp_receive(struct data_conn *conn)
{
    struct tcp_caller *c = tcp_caller_of(conn);
    struct tcp_asked *asked = asked_now(c), *next;
    struct data_gather t = {.iov = conn->iov, .bytes_max = UINT64_MAX};

    if (conn->receiving || conn->state != DATA_CONN_OPEN)
        return;
    check(conn->recv_pull == NONE);
    c->body_then = c->body_left;
    if (c->state == TCP_ANSWER_HEAD) {
        data_conn_receive(conn, c->head + c->head_at, head_bytes(asked) - c->head_at, true);
        return;
    }
    c->part = asked->part;
    if (target_body(conn, &asked->part, &t) && c->nasked > 1) {
        next = &c->asked[(c->asked_at + 1) % TCP_ASKED_MAX];
        t.iov[t.n] = (struct iovec){c->head, head_bytes(next)};
        t.bytes += t.iov[t.n++].iov_len;
    }
    data_conn_receive_pages(conn, t.n, t.bytes);
}

/* Returns the checksums of the page at the cursor. */
static const uint64_t *sums_of(const struct data_conn *conn)
{
    return (const uint64_t *)(const void *)conn->meta + tcp_caller_of(conn)->sum_next;
}

static void page_took(struct data_conn *conn, const struct batch_part *part, bool right)
{
    struct tcp_caller *c = tcp_caller_of(conn);

    if (right)
        xfer_set_bit(c->right, c->cursor.page);
    c->sum_next +=
        batch_page_sums(conn->xfer, &conn->xfer->batch[part->batch], part->first + c->cursor.page);
    c->cursor = (struct page_cursor){.page = c->cursor.page + 1};
    cursor_skip_refused(c, part->n);
}

/* For a resharded page, which is verified when all of it has arrived. */
static uint64_t take_resharded(struct data_conn *conn, const struct batch_part *part, uint64_t n)
{
    struct tcp_caller *c = tcp_caller_of(conn);
    const struct batch *batch = &conn->xfer->batch[part->batch];
    uint32_t i = part->first + c->cursor.page;
    uint64_t bytes = batch_page_bytes(conn->xfer, batch, i);

    n = n < bytes - c->cursor.at ? n : bytes - c->cursor.at;
    c->cursor.at += n;
    if (c->cursor.at == bytes)
        page_took(conn, part, arrival_resharded(conn->xfer, part->batch, i, sums_of(conn)));
    return n;
}

/* Takes up to n bytes received into the pages. Returns how many. */
static uint64_t take_page_bytes(struct data_conn *conn, const struct batch_part *part, uint64_t n)
{
    struct tcp_caller *c = tcp_caller_of(conn);
    const struct mem *mem = conn->xfer->config.mem;
    const struct batch *batch = &conn->xfer->batch[part->batch];
    uint32_t i = part->first + c->cursor.page;
    const uint64_t bytes = mem_group(mem, batch->pool, batch_pages(batch, i)->group)->page_bytes;

    if (c->cursor.at == 0 && c->cursor.region == 0)
        arrival_begin(&c->arrival, conn->xfer, part->batch, i, sums_of(conn));
    n = n < bytes - c->cursor.at ? n : bytes - c->cursor.at;
    c->cursor.at += n;
    arrival_reached(&c->arrival, c->cursor.region, c->cursor.at);
    if (c->cursor.at < bytes)
        return n;
    c->cursor.at = 0;
    if (++c->cursor.region == mem_place(mem, batch->pool)->transfer_regions)
        page_took(conn, part, mem_verify_landed(&c->arrival.verify));
    return n;
}

static uint64_t take_body(struct data_conn *conn, const struct batch_part *part, uint64_t n)
{
    struct tcp_caller *c = tcp_caller_of(conn);

    if (part->batch == NONE)
        return n;
    if (c->sums_at < c->sums_bytes) {
        n = n < c->sums_bytes - c->sums_at ? n : c->sums_bytes - c->sums_at;
        c->sums_at += (uint32_t)n;
        return n;
    }
    if (c->cursor.page < part->n)
        return conn->xfer->pull[conn->xfer->batch[part->batch].pull].pair
                   ? take_resharded(conn, part, n)
                   : take_page_bytes(conn, part, n);
    c->tail_at += (uint32_t)n; /* the rest of a body is its tail */
    return n;
}

void tcp_landed(struct data_conn *conn, uint64_t n)
{
    struct tcp_caller *c = tcp_caller_of(conn);

    while (n > 0 && c->body_left > 0) { /* the rest belongs to the next head */
        uint64_t took = take_body(conn, &c->part, n < c->body_left ? n : c->body_left);

        c->body_left -= took;
        n -= took;
    }
}

/* Returns true if the head announces the right numbers of bytes and sums for the pages that it
 * gives. */
static bool head_agrees(struct data_conn *conn, const struct batch_part *part,
                        const struct xfer_head *head)
{
    struct tcp_caller *c = tcp_caller_of(conn);
    const struct batch *batch = &conn->xfer->batch[part->batch];
    uint64_t pages = 0, sums = 0;

    memset(c->given, 0, sizeof c->given);
    for (uint32_t i = 0; i < part->n; i++) {
        if (xfer_get32(c->head + XFER_HEAD_BYTES + 4 * i) != TERN_OK) {
            batch_gone(conn->xfer, part->batch);
            continue;
        }
        xfer_set_bit(c->given, i);
        pages += batch_page_bytes(conn->xfer, batch, part->first + i);
        sums += batch_page_sums(conn->xfer, batch, part->first + i) * sizeof(uint64_t);
    }
    return head->a == pages && head->b == sums;
}

static bool head_parse(struct data_conn *conn, const struct tcp_asked *asked)
{
    struct tcp_caller *c = tcp_caller_of(conn);
    struct xfer_head head;

    if (!xfer_get_head(c->head, &head) || head.type != XFER_ANSWER || head.n != asked->part.n ||
        head.seq != asked->seq || head.a > asked->part.page_bytes ||
        head.b > asked->part.sums_bytes)
        return false;
    if (asked->part.batch != NONE && !head_agrees(conn, &asked->part, &head))
        return false;
    tcp_answer_state_move(&c->state, TCP_ANSWER_BODY);
    c->head_at = 0;
    c->body_left = head.a + head.b + XFER_TAIL_BYTES;
    c->sums_bytes = (uint32_t)head.b;
    c->sums_at = c->sum_next = c->tail_at = c->told = 0;
    c->body_then = c->body_left;
    memset(c->right, 0, sizeof c->right);
    c->cursor = (struct page_cursor){0};
    cursor_skip_refused(c, asked->part.n);
    return true;
}

/* The whole answer has arrived. Returns false if its tail is not valid. */
static bool answer_end(struct data_conn *conn)
{
    struct tcp_caller *c = tcp_caller_of(conn);
    struct tcp_asked asked = *asked_now(c);
    bool wanted = asked.part.batch != NONE;
    uint64_t stale[XFER_MASK_WORDS];

    if (wanted && !xfer_get_tail(c->tail, asked.seq, stale))
        return false;
    tcp_answer_state_move(&c->state, TCP_ANSWER_HEAD);
    c->asked_at = (c->asked_at + 1) % TCP_ASKED_MAX;
    c->nasked--;
    c->asked_bytes -= asked.part.page_bytes;
    data_path_of(conn)->failures = 0; /* a complete answer arrived: the path works */
    if (!wanted)
        return true;
    for (uint32_t i = 0; i < asked.part.n; i++)
        if (xfer_bit(c->given, i) && xfer_bit(stale, i))
            batch_gone(conn->xfer, asked.part.batch);
    batch_answered(conn->xfer, asked.part.batch, asked.part.n);
    return true;
}

/* Reports to the batch the pages that have completely arrived since the last call. */
static void tell_batch(struct data_conn *conn, const struct batch_part *part)
{
    struct tcp_caller *c = tcp_caller_of(conn);

    for (; c->told < c->cursor.page; c->told++)
        if (part->batch != NONE && xfer_bit(c->given, c->told))
            arrival_end(conn->xfer, part->batch, part->first + c->told,
                        xfer_bit(c->right, c->told));
}

bool tcp_received(struct data_conn *conn, uint64_t n)
{
    struct tcp_caller *c = tcp_caller_of(conn);
    struct tcp_asked *asked = asked_now(c);

    if (!asked)
        return false; /* nothing was requested */
    if (c->state == TCP_ANSWER_BODY) {
        tell_batch(conn, &asked->part);
        n -= c->body_then - c->body_left;
        c->body_then = c->body_left;
        if (c->body_left > 0)
            return true;
        if (!answer_end(conn))
            return false;
        asked = asked_now(c);
    }
    c->head_at += (uint32_t)n;
    return !asked || c->head_at < head_bytes(asked) || head_parse(conn, asked);
}
