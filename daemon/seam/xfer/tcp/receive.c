/* The destination's receive: one operation at a time on a connection, scattered over the rest of
 * the answer that is coming (sums, pages, tail) and the head of the next one, so that a piece of 1
 * MiB costs few calls. Bytes are looked at where they lie, as they come; each 4 KiB block of a page
 * is hashed as soon as it is whole. Every byte of an operation is on its way when it is posted (the
 * head before announced it), so it completes when all of them are there, or what the kernel holds
 * back at most, and not with the first segment; xfer_tick takes less from a peer that is slow.
 *
 * What must stay true: conn->recv_pull is set before an operation that may write pages is posted,
 * and cleared only in its completion. An answer whose pull has ended (asked.batch is NONE) goes to
 * the scratch buffer. */
#include <errno.h>

#include "base/check.h"
#include "seam/mem/mem_fault.h"
#include "seam/xfer/tcp/tcp.h"

/* ------------------------------------------------------------------ receiving: where the bytes go
 */

static struct asked *asked_now(struct xfer_conn *conn)
{
    return conn->out.nasked > 0 ? &conn->out.asked[conn->out.asked_at] : NULL;
}

static uint32_t head_bytes(const struct asked *asked)
{
    return asked ? XFER_HEAD_BYTES + XFER_STATUS_BYTES(asked->n) : XFER_HEAD_BYTES;
}

static void cursor_skip_unsent(struct cursor *c, const uint64_t *sent, uint32_t n)
{
    while (c->page < n && !xfer_bit(sent, c->page))
        c->page++;
}

/* Collects where the next bytes go, at most XFER_RECV_BYTES of them. */
struct target {
    struct iovec *iov;
    uint32_t n;
    uint64_t bytes;
};

static uint64_t target_add(struct target *t, void *at, uint64_t n)
{
    uint64_t room = XFER_RECV_BYTES - t->bytes;

    n = n < room ? n : room;
    if (n == 0 || t->n == XFER_IOVS)
        return 0;
    if (t->n > 0 && (uint8_t *)t->iov[t->n - 1].iov_base + t->iov[t->n - 1].iov_len == at)
        t->iov[t->n - 1].iov_len += n;
    else
        t->iov[t->n++] = (struct iovec){at, n};
    t->bytes += n;
    return n;
}

/* True if all of the piece's pages fit. */
static bool target_pages(struct xfer_conn *conn, const struct asked *asked, struct target *t)
{
    const struct mem *mem = conn->xfer->config.mem;
    const struct xfer_batch *batch = &conn->xfer->batch[asked->batch];
    uint32_t regions = mem_moved_regions(mem, batch->pool);
    struct cursor c = conn->out.cursor;

    for (; c.page < asked->n; c.page++, c.region = 0, c.at = 0) {
        const struct page_at *page = &batch->page[asked->first + c.page];
        uint64_t bytes = mem_page_bytes(mem, batch->pool, page->group);

        if (!xfer_bit(conn->out.sent, c.page))
            continue;
        for (; c.region < regions; c.region++, c.at = 0) {
            uint8_t *at = mem_page(mem, batch->pool, c.region, page->group, page->index);

            if (target_add(t, at + c.at, bytes - c.at) < bytes - c.at)
                return false;
        }
    }
    return true;
}

static bool target_body(struct xfer_conn *conn, const struct asked *asked, struct target *t)
{
    struct conn_out *out = &conn->out;

    if (asked->batch == NONE) {
        uint64_t left = out->body_left;

        while (left > 0 && t->n < XFER_IOVS_PAGES) {
            uint64_t n = left < XFER_SCRATCH ? left : XFER_SCRATCH;

            if (XFER_RECV_BYTES - t->bytes < n)
                return false;
            t->iov[t->n++] = (struct iovec){conn->xfer->scratch, n};
            t->bytes += n;
            left -= n;
        }
        return left == 0;
    }
    target_add(t, conn->meta + out->sums_at, out->sums_bytes - out->sums_at);
    if (out->cursor.page < asked->n)
        conn->recv_pull = conn->xfer->batch[asked->batch].pull;
    if (!target_pages(conn, asked, t))
        return false;
    return target_add(t, out->tail + out->tail_at, XFER_TAIL_BYTES - out->tail_at) ==
           XFER_TAIL_BYTES - out->tail_at;
}

void out_await(struct xfer_conn *conn, uint64_t n)
{
    int bytes = (int)n;

    if (conn->awaited == bytes)
        return;
    conn->awaited = bytes;
    setsockopt(conn->fd, SOL_SOCKET, SO_RCVLOWAT, &bytes, sizeof bytes);
}

void out_recv(struct xfer_conn *conn)
{
    struct conn_out *out = &conn->out;
    struct asked *asked = asked_now(conn), *next;
    struct target t = {.iov = conn->iov};

    if (conn->receiving || conn->state != CONN_OPEN)
        return;
    check(conn->recv_pull == NONE);
    if (out->stage == ANSWER_HEAD) {
        target_add(&t, out->head + out->head_at, head_bytes(asked) - out->head_at);
    } else if (target_body(conn, asked, &t) && out->nasked > 1) {
        next = &out->asked[(out->asked_at + 1) % XFER_ASKED_MAX];
        t.iov[t.n] = (struct iovec){out->head, head_bytes(next)};
        t.bytes += t.iov[t.n++].iov_len;
    }
    if (conn->recv_pull != NONE)
        conn->xfer->pull[conn->recv_pull].receiving++;
    conn->msg.msg_iov = conn->iov;
    conn->msg.msg_iovlen = t.n;
    conn->msg.msg_flags = 0;
    conn->receiving = true;
    out_await(conn, t.bytes);
    io_recvmsg(conn->xfer->config.io, &conn->recv_op, conn->fd, &conn->msg);
}

/* ------------------------------------------------------------------ receiving: what the bytes say
 */

void page_inject(struct xfer *xfer, const struct page_at *page, uint32_t regions, uint32_t region,
                 uint8_t *base, uint64_t page_bytes, uint64_t from, uint64_t to)
{
    uint64_t where = (page->record * 2654435761u) % page_bytes;

    if (xfer->stats.corrupt_injected >= xfer->config.fault_corrupt_pages ||
        region != page->record % regions || where < from || where >= to ||
        xfer->injected[page->record] == (uint64_t)page->gen + 1)
        return;
    xfer->injected[page->record] = (uint64_t)page->gen + 1;
    xfer->stats.corrupt_injected++;
    base[where] ^= 0x20;
}

/* The bytes of the cursor's page and region are there up to `to`: hashes the blocks that became
 * whole. */
static void hash_to(struct xfer_conn *conn, const struct xfer_batch *batch,
                    const struct page_at *page, uint64_t to)
{
    struct conn_out *out = &conn->out;
    struct xfer *xfer = conn->xfer;
    const struct mem *mem = xfer->config.mem;
    uint32_t units = mem_units(mem, batch->pool, page->group), region = out->cursor.region;
    uint64_t page_bytes = mem_page_bytes(mem, batch->pool, page->group);
    uint8_t *base = mem_page(mem, batch->pool, region, page->group, page->index);

    while (out->hashed < to) {
        uint64_t unit_from, unit_to = checksum_unit_span(page_bytes, units, out->unit, &unit_from);
        uint64_t end = to < unit_to ? to : unit_to, n = end - out->hashed, sum;

        if (out->hashed == unit_from)
            checksum_begin(&out->sum);
        if (end < unit_to)
            n -= n % CHECKSUM_BLOCK;
        if (n == 0)
            return;
        if (xfer->injected)
            page_inject(xfer, page, mem_moved_regions(mem, batch->pool), region, base, page_bytes,
                        out->hashed, out->hashed + n);
        if (!mem_fault_feed(&out->sum, base + out->hashed, n))
            out->page_wrong = true;
        out->hashed += n;
        if (out->hashed < unit_to)
            continue;
        sum = checksum_end(&out->sum);
        mem_sums(xfer->config.mem, page->record)[region * units + out->unit] = sum;
        if (sum != xfer_get64(conn->meta + 8 * out->sum_next))
            out->page_wrong = true;
        out->sum_next++;
        out->unit++;
    }
}

static void page_end(struct xfer_conn *conn, const struct xfer_batch *batch,
                     const struct page_at *page)
{
    struct conn_out *out = &conn->out;
    struct xfer_stats *stats = &conn->xfer->stats;

    if (out->page_wrong || !mem_spread(conn->xfer->config.mem, batch->pool, page)) {
        stats->corrupt_detected++;
    } else {
        xfer_set_bit(out->right, out->cursor.page);
        stats->pages_in++;
    }
    out->page_wrong = false;
}

/* Takes up to n bytes that lie in the pages; returns how many. */
static uint64_t take_page_bytes(struct xfer_conn *conn, const struct asked *asked, uint64_t n)
{
    struct conn_out *out = &conn->out;
    const struct mem *mem = conn->xfer->config.mem;
    const struct xfer_batch *batch = &conn->xfer->batch[asked->batch];
    const struct page_at *page = &batch->page[asked->first + out->cursor.page];
    uint64_t bytes = mem_page_bytes(mem, batch->pool, page->group);

    n = n < bytes - out->cursor.at ? n : bytes - out->cursor.at;
    hash_to(conn, batch, page, out->cursor.at + n);
    out->cursor.at += n;
    conn->xfer->stats.payload_bytes_in += n;
    if (out->cursor.at < bytes)
        return n;
    out->cursor.at = out->hashed = 0;
    out->unit = 0;
    if (++out->cursor.region == mem_moved_regions(mem, batch->pool)) {
        page_end(conn, batch, page);
        out->cursor.region = 0;
        out->cursor.page++;
        cursor_skip_unsent(&out->cursor, out->sent, asked->n);
    }
    return n;
}

static uint64_t take_body(struct xfer_conn *conn, const struct asked *asked, uint64_t n)
{
    struct conn_out *out = &conn->out;

    if (asked->batch == NONE)
        return n;
    if (out->sums_at < out->sums_bytes) {
        n = n < out->sums_bytes - out->sums_at ? n : out->sums_bytes - out->sums_at;
        out->sums_at += (uint32_t)n;
        return n;
    }
    if (out->cursor.page < asked->n)
        return take_page_bytes(conn, asked, n);
    out->tail_at += (uint32_t)n; /* the rest of a body is its tail */
    return n;
}

/* What the source must have announced for the pages that it did not refuse. */
static bool head_agrees(struct xfer_conn *conn, const struct asked *asked,
                        const struct xfer_head *head)
{
    struct xfer_batch *batch = &conn->xfer->batch[asked->batch];
    uint64_t pages = 0, sums = 0;

    memset(conn->out.sent, 0, sizeof conn->out.sent);
    memset(conn->out.right, 0, sizeof conn->out.right);
    for (uint32_t i = 0; i < asked->n; i++) {
        if (xfer_get32(conn->out.head + XFER_HEAD_BYTES + 4 * i) != TERN_OK) {
            batch->gone = true;
            conn->xfer->stats.gone_answers++;
            continue;
        }
        xfer_set_bit(conn->out.sent, i);
        pages += batch_page_bytes(conn->xfer, batch, asked->first + i);
        sums += batch_page_sums(conn->xfer, batch, asked->first + i) * sizeof(uint64_t);
    }
    return head->a == pages && head->b == sums;
}

static bool head_parse(struct xfer_conn *conn, const struct asked *asked)
{
    struct conn_out *out = &conn->out;
    struct xfer_head head;

    if (!xfer_get_head(out->head, &head) || head.type != XFER_ANSWER || head.n != asked->n ||
        head.seq != asked->seq || head.a > asked->page_bytes_max || head.b > asked->sums_bytes_max)
        return false;
    if (asked->batch != NONE && !head_agrees(conn, asked, &head))
        return false;
    out->stage = ANSWER_BODY;
    out->head_at = 0;
    out->body_left = head.a + head.b + XFER_TAIL_BYTES;
    out->sums_bytes = (uint32_t)head.b;
    out->sums_at = out->sum_next = out->tail_at = out->unit = 0;
    out->hashed = 0;
    out->page_wrong = false;
    out->cursor = (struct cursor){0};
    cursor_skip_unsent(&out->cursor, out->sent, asked->n);
    return true;
}

/* The whole answer is there. False: its tail is not one. */
static bool answer_end(struct xfer_conn *conn)
{
    struct conn_out *out = &conn->out;
    struct asked asked = *asked_now(conn);
    struct xfer_batch *batch = asked.batch == NONE ? NULL : &conn->xfer->batch[asked.batch];
    uint64_t stale[XFER_MASK_WORDS];

    if (batch && !xfer_get_tail(out->tail, asked.seq, stale))
        return false;
    out->stage = ANSWER_HEAD;
    out->asked_at = (out->asked_at + 1) % XFER_ASKED_MAX;
    out->nasked--;
    if (!batch)
        return true;
    for (uint32_t i = 0; i < asked.n; i++) {
        if (xfer_bit(out->sent, i) && xfer_bit(stale, i)) {
            batch->gone = true;
            conn->xfer->stats.gone_answers++;
        } else if (xfer_bit(out->right, i)) {
            xfer_set_bit(batch->ok, asked.first + i);
        }
    }
    batch->answered += asked.n;
    if (batch->answered == batch->n)
        batch_done(conn->xfer, asked.batch);
    return true;
}

/* n bytes of the stream lie where out_recv put them. False: this is not our protocol. */
static bool take_bytes(struct xfer_conn *conn, uint64_t n)
{
    struct conn_out *out = &conn->out;

    while (n > 0) {
        struct asked *asked = asked_now(conn);
        uint64_t took;

        if (!asked)
            return false; /* nobody asked */
        if (out->stage == ANSWER_HEAD) {
            took = head_bytes(asked) - out->head_at;
            took = took < n ? took : n;
            out->head_at += (uint32_t)took;
            if (out->head_at == head_bytes(asked) && !head_parse(conn, asked))
                return false;
        } else {
            took = take_body(conn, asked, n < out->body_left ? n : out->body_left);
            out->body_left -= took;
            if (out->body_left == 0 && !answer_end(conn))
                return false;
        }
        n -= took;
    }
    return true;
}

void out_recv_done(struct io_op *op, int32_t res, uint32_t flags, uint32_t buffer)
{
    struct xfer_conn *conn = conn_of_recv(op);
    struct xfer *xfer = conn->xfer;
    uint32_t pull = conn->recv_pull;
    bool lost = res == -EFAULT && pull != NONE; /* a page has no memory behind it */

    (void)flags, (void)buffer;
    conn->receiving = false;
    conn->recv_pull = NONE;
    if (pull != NONE)
        xfer->pull[pull].receiving--;
    if (conn->state == CONN_OPEN) {
        if (res > 0) {
            conn_progress(conn);
            xfer->stats.socket_bytes_in += (uint64_t)res;
        }
        if (lost) /* what comes of it goes to the scratch buffer */
            pull_break(xfer, pull, TERN_CORRUPT);
        if ((res <= 0 && res != -ECANCELED && !lost) ||
            (res > 0 && !take_bytes(conn, (uint64_t)res)))
            conn_fail(conn);
    }
    if (pull != NONE)
        pull_quiet(xfer, pull);
    if (conn->state == CONN_CLOSING) {
        conn_reap(conn);
        return;
    }
    out_recv(conn);
    link_pump(xfer, conn->out.link); /* an answer makes room to ask for more */
}
