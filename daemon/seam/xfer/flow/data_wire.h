/* The frames of a data connection, all little-endian. The destination connects, sends HELLO and
 * then requests; the source answers each REQUEST in order:
 *
 *   HELLO    head{n 0, a: incarnation of the daemon called, b: token that it issued on the link}
 *   REQUEST  head{n pages, seq, a: serve, b: pull}  n x {group, index, generation}
 *   ANSWER   head{n, seq, a: page bytes, b: bytes of sums}  n x status, padded to 8 bytes
 *            sums of the pages whose status is 0, in order, [region][unit]
 *            bytes of those pages, in order, region after region
 *            tail{bit i: page i was given up while it was being sent}
 *
 * If the pools have different layouts, or several of their ranks hold the same data:
 *
 *   REQUEST_PLAN  as REQUEST, but each entry is a span: as many tokens as the larger of the two
 *                 pages has. The entry names the first page of the span that the source has, its
 *                 place in the span, and how many pages the source has from there on. The answer
 *                 is an ANSWER with the sums of the source's whole pages and the bytes that move
 *                 by the plan of the two layouts, in the plan's order (reshard/stream.h). The
 *                 index of the named page selects the plan
 *
 * If the source writes the pages by RDMA, a connection beside the path carries everything else:
 *
 *   REQUEST_WRITE head{n, seq, a: serve, b: runs | epoch of the path << 32}  n x {group, index,
 *                 generation}  runs x {window and the key bound to it, region, offset, bytes}
 *   ANSWER_WRITE  head{n, seq, a: where the pool begins in its tenant's regions, b: bytes of sums
 *                 and regions}  statuses and sums as in ANSWER; where a page is given, the number
 *                 of the source's region that each rank's bytes lie in, a byte each, padded to 8
 *   CONFIRM       as REQUEST, with the pages that were written
 *   CONFIRMED     head{n, seq}  tail{bit i: page i was given up before this was written}
 *
 * The answer to REQUEST_WRITE is sent when all its writes were posted. The pool's begin and the
 * regions are for older daemons, which could read; nobody uses them now. The runs receive the bytes
 * of the requested pages, region after region and in each page after page; the last write carries
 * seq as its immediate. All pages of such a piece are written or none. Neither an address nor a key
 * travels here: the offer of the path named both, under TLS if that is on.
 *
 * The destination chooses the size of each request, so it knows the size of each answer and can
 * receive in place. A head's size does not depend on a pool, so an answer can be skipped when its
 * pull has ended. Only seam/xfer and its tests include this. */
#ifndef SEAM_XFER_WIRE_H
#define SEAM_XFER_WIRE_H

#include <assert.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "core/limits.h"

#define XFER_MAGIC   0x586e7254u /* "TrnX" */
#define XFER_VERSION 3u

enum xfer_frame {
    XFER_HELLO = 1,
    XFER_REQUEST = 2,
    XFER_ANSWER = 3,
    XFER_ANSWER_WRITE = 5, /* 4: used by older daemons, which could read */
    XFER_CONFIRM = 6,
    XFER_CONFIRMED = 7,
    XFER_REQUEST_WRITE = 8,
    XFER_REQUEST_PLAN = 9, /* 10, 11: used by older daemons, which moved units of pages */
};

#define XFER_HEAD_BYTES        32u
#define XFER_ENTRY_BYTES       12u
#define XFER_TAIL_BYTES        40u
#define XFER_PAGES_MAX         PULL_BATCH_PAGES
#define XFER_REQUEST_BYTES     (XFER_HEAD_BYTES + XFER_PAGES_MAX * XFER_ENTRY_BYTES)
#define XFER_RUN_BYTES         24u
#define XFER_RUNS_MAX          32u /* of a piece: a page with more uses another transport */
#define XFER_WRITE_BYTES       (XFER_REQUEST_BYTES + XFER_RUNS_MAX * XFER_RUN_BYTES)
#define XFER_STATUS_BYTES(n)   (((n)*4u + 7u) & ~7u)
#define XFER_REGION_BYTES(n)   (((n) + 7u) & ~7u)
#define XFER_ANSWER_HEAD_BYTES (XFER_HEAD_BYTES + XFER_STATUS_BYTES(XFER_PAGES_MAX))
#define XFER_MASK_WORDS        (XFER_PAGES_MAX / 64)

static_assert(XFER_TAIL_BYTES == XFER_MASK_WORDS * 8 + 8,
              "a bit for each page, a magic and a sequence number");

struct xfer_head {
    uint16_t type;
    uint32_t n, seq;
    uint64_t a, b;
};

/* first, n: which pages of a span the source has. On the wire they lie in the upper half of the
 * group's word, n one less, so that a single page is one of a span of one. */
struct xfer_entry {
    uint32_t group, index, gen;
    uint8_t first, n; /* n 0: written, it means 1; read, it means none and is refused */
};

/* A stretch of the destination's memory that one memory window opens. */
struct xfer_run {
    uint32_t mw; /* number << 8 | the part of the key that changes with each binding */
    uint32_t region;
    uint64_t offset, bytes; /* in that region */
};

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "numbers travel as they lie in memory");

static inline void xfer_put32(uint8_t *p, uint32_t v)
{
    memcpy(p, &v, sizeof v);
}

static inline void xfer_put64(uint8_t *p, uint64_t v)
{
    memcpy(p, &v, sizeof v);
}

static inline uint32_t xfer_get32(const uint8_t *p)
{
    uint32_t v;

    memcpy(&v, p, sizeof v);
    return v;
}

static inline uint64_t xfer_get64(const uint8_t *p)
{
    uint64_t v;

    memcpy(&v, p, sizeof v);
    return v;
}

static inline void xfer_put_head(uint8_t *p, const struct xfer_head *h)
{
    xfer_put32(p, XFER_MAGIC);
    xfer_put32(p + 4, XFER_VERSION | (uint32_t)h->type << 16);
    xfer_put32(p + 8, h->n);
    xfer_put32(p + 12, h->seq);
    xfer_put64(p + 16, h->a);
    xfer_put64(p + 24, h->b);
}

/* Returns false if this is not a head of this protocol and version. */
static inline bool xfer_get_head(const uint8_t *p, struct xfer_head *ret)
{
    uint32_t word = xfer_get32(p + 4);

    if (xfer_get32(p) != XFER_MAGIC || (word & 0xffffu) != XFER_VERSION)
        return false;
    ret->type = (uint16_t)(word >> 16);
    ret->n = xfer_get32(p + 8);
    ret->seq = xfer_get32(p + 12);
    ret->a = xfer_get64(p + 16);
    ret->b = xfer_get64(p + 24);
    return true;
}

static inline void xfer_put_entry(uint8_t *p, const struct xfer_entry *e)
{
    xfer_put32(p, e->group | (uint32_t)e->first << 16 | (uint32_t)(e->n ? e->n - 1 : 0) << 24);
    xfer_put32(p + 4, e->index);
    xfer_put32(p + 8, e->gen);
}

static inline void xfer_get_entry(const uint8_t *p, struct xfer_entry *ret)
{
    ret->group = xfer_get32(p) & 0xffff;
    ret->first = (uint8_t)(xfer_get32(p) >> 16);
    ret->n = (uint8_t)((xfer_get32(p) >> 24) + 1);
    ret->index = xfer_get32(p + 4);
    ret->gen = xfer_get32(p + 8);
}

static inline void xfer_put_run(uint8_t *p, const struct xfer_run *r)
{
    xfer_put32(p, r->mw);
    xfer_put32(p + 4, r->region);
    xfer_put64(p + 8, r->offset);
    xfer_put64(p + 16, r->bytes);
}

static inline void xfer_get_run(const uint8_t *p, struct xfer_run *ret)
{
    ret->mw = xfer_get32(p);
    ret->region = xfer_get32(p + 4);
    ret->offset = xfer_get64(p + 8);
    ret->bytes = xfer_get64(p + 16);
}

static inline void xfer_put_tail(uint8_t *p, uint32_t seq, const uint64_t stale[XFER_MASK_WORDS])
{
    for (uint32_t i = 0; i < XFER_MASK_WORDS; i++)
        xfer_put64(p + 8 * i, stale[i]);
    xfer_put32(p + 8 * XFER_MASK_WORDS, XFER_MAGIC);
    xfer_put32(p + 8 * XFER_MASK_WORDS + 4, seq);
}

static inline bool xfer_get_tail(const uint8_t *p, uint32_t seq,
                                 uint64_t ret_stale[XFER_MASK_WORDS])
{
    if (xfer_get32(p + 8 * XFER_MASK_WORDS) != XFER_MAGIC ||
        xfer_get32(p + 8 * XFER_MASK_WORDS + 4) != seq)
        return false;
    for (uint32_t i = 0; i < XFER_MASK_WORDS; i++)
        ret_stale[i] = xfer_get64(p + 8 * i);
    return true;
}

static inline bool xfer_bit(const uint64_t *mask, uint32_t i)
{
    return (mask[i / 64] >> (i % 64) & 1) != 0;
}

static inline void xfer_set_bit(uint64_t *mask, uint32_t i)
{
    mask[i / 64] |= 1ull << (i % 64);
}

#endif
