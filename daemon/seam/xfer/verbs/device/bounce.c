/* Pages on GPUs that a peer writes to us. A registration of GPU memory takes no memory windows, so
 * the tenant has a ring of slots in host memory, and windows are bound to slots instead of pages.
 * When a piece has arrived, its windows are closed and it is confirmed; the data thread that
 * verifies it first copies its slots to its pages. Peers see no difference: they write the runs
 * that they are granted.
 *
 * Invariant: a slot belongs to one piece from the binding of its windows until these are closed, or
 * destroyed with their queue pair, and no copy out of the slot is running. So a late write finds a
 * closed window, and never the slot of another piece. */
#include <errno.h>
#include <stdio.h>

#include "base/check.h"
#include "base/undumped.h"
#include "seam/mem/mem_pack.h"
#include "seam/xfer/verbs/verbs.h"

static_assert(XFER_RING_SLOTS <= 64, "a bit each");
static_assert(XFER_RING_SLOTS <= XFER_RUNS_MAX, "slots that lie apart are a run each");
static_assert(XFER_RING_SHARE <= XFER_RING_SLOTS, "of one link");

/* ------------------------------------------------------------------ the ring */

static bool ring_make(struct verbs_ring *ring)
{
    if (!ring->base)
        ring->base = undumped_take(XFER_RING_BYTES, false);
    return ring->base != NULL;
}

void ring_open(struct verbs *v, struct verbs_rail *rail, uint32_t tenant)
{
    struct verbs_domain *d = &rail->domain[tenant];
    struct verbs_ring *ring = &v->ring[tenant];

    if (!rail->view.memory_windows) {
        snprintf(d->no_ring, sizeof d->no_ring, "%s",
                 rail->windows_refused
                     ? "self-test: the device refused a memory window over host memory"
                     : "the device has no memory windows of type 2B");
        return;
    }
    if (!ring_make(ring)) {
        snprintf(d->no_ring, sizeof d->no_ring, "mmap: %s", strerror(errno));
        return;
    }
    d->ring = (struct verbs_mr){.bytes = XFER_RING_BYTES, .base = ring->base};
    d->ring.mr = (ibv_reg_mr)(d->pd, d->ring.base, d->ring.bytes,
                              (int)IBV_ACCESS_LOCAL_WRITE | (int)IBV_ACCESS_MW_BIND);
    if (!d->ring.mr) {
        snprintf(d->no_ring, sizeof d->no_ring, "ibv_reg_mr: %s", strerror(errno));
        return;
    }
    rail->view.registrations++;
    rail->view.registered_bytes += d->ring.bytes;
}

void ring_unregister(struct verbs_rail *rail, uint32_t tenant, const char *why)
{
    struct verbs_domain *d = &rail->domain[tenant];

    rail->view.registrations--;
    rail->view.registered_bytes -= d->ring.bytes;
    (void)ibv_dereg_mr(d->ring.mr); /* fails if the device is lost */
    d->ring = (struct verbs_mr){.mr = NULL};
    snprintf(d->no_ring, sizeof d->no_ring, "self-test: %s", why);
}

void rings_close(struct verbs *v)
{
    for (uint32_t t = 0; t < v->tenants; t++) {
        undumped_put(v->ring[t].base, XFER_RING_BYTES);
        v->ring[t].base = NULL;
    }
}

static uint32_t count(uint64_t slots)
{
    return (uint32_t)__builtin_popcountll(slots);
}

/* Returns how many slots of the tenant's ring the link's pieces have. */
static uint32_t slots_of_link(struct verbs *v, uint32_t link, uint32_t tenant)
{
    uint32_t n = 0;

    for (const struct verbs_piece *piece = NULL; (piece = piece_next(v, link, piece));)
        if (piece->tenant == tenant)
            n += count(piece->slots);
    return n;
}

static uint64_t slots_free(const struct verbs *v, uint32_t tenant)
{
    return ~v->ring[tenant].taken & ~(uint64_t)0 >> (64 - XFER_RING_SLOTS);
}

static uint32_t least(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

/* Returns how many slots the link may take now: its share, which leaves slots to other peers. A
 * link without slots may take all, for one larger piece. */
static uint32_t slots_to_have(struct verbs *v, const struct verbs_path *p)
{
    uint32_t of_link = slots_of_link(v, p->link, p->tenant), rest = count(slots_free(v, p->tenant));
    uint32_t share = of_link > 0 ? XFER_RING_SHARE : XFER_RING_SLOTS;

    return least(rest, of_link < share ? share - of_link : 0);
}

bool ring_whole(struct verbs *v, const struct verbs_path *p)
{
    return slots_to_have(v, p) == XFER_RING_SLOTS;
}

bool ring_fit(struct verbs *v, const struct verbs_path *p, uint64_t bytes, uint64_t *ret_slots)
{
    uint64_t n = (bytes + XFER_SLOT_BYTES - 1) / XFER_SLOT_BYTES, rest = slots_free(v, p->tenant);

    *ret_slots = 0;
    if (n > slots_to_have(v, p)) {
        v->ring[p->tenant].waited_for = true;
        v->ring[p->tenant].given = false;
        return false;
    }
    for (; n > 0; n--, rest &= rest - 1)
        *ret_slots |= rest & -rest;
    return true;
}

uint8_t *ring_at(const struct verbs *v, uint32_t tenant, uint64_t slots, uint64_t at,
                 uint64_t *ret_bytes)
{
    for (uint64_t skip = at / XFER_SLOT_BYTES; skip > 0; skip--)
        slots &= slots - 1;
    check(slots != 0);
    *ret_bytes = XFER_SLOT_BYTES - at % XFER_SLOT_BYTES;
    return v->ring[tenant].base + (uint64_t)__builtin_ctzll(slots) * XFER_SLOT_BYTES +
           at % XFER_SLOT_BYTES;
}

void slots_take(struct verbs *v, struct verbs_piece *piece)
{
    struct verbs_ring *ring = &v->ring[piece->tenant];

    check(piece->slots == 0);
    for (uint32_t i = 0; i < piece->nruns; i++)
        for (uint64_t at = 0; at < piece->run[i].bytes; at += XFER_SLOT_BYTES)
            piece->slots |= (uint64_t)1 << (piece->run[i].offset + at) / XFER_SLOT_BYTES;
    check((ring->taken & piece->slots) == 0);
    ring->taken |= piece->slots;
}

void slots_give(struct verbs *v, struct verbs_piece *piece)
{
    struct verbs_ring *ring;

    if (piece->slots == 0)
        return;
    ring = &v->ring[piece->tenant];
    check(!piece_held(piece) && (ring->taken & piece->slots) == piece->slots);
    ring->taken &= ~piece->slots;
    ring->given = true;
    piece->slots = 0;
}

/* ------------------------------------------------------------------ on a data thread */

/* Position in the pages of a piece: region after region, page after page. */
struct landing {
    const struct verbs_piece *piece;
    const struct batch *batch;
    struct page_cursor at;
    uint32_t regions;
};

/* Lists where the next `bytes` go, at most XFER_PIECE_PARTS stretches. Returns the bytes listed. */
static uint64_t landing_next(struct landing *l, const struct mem *mem, uint64_t bytes,
                             struct iovec *stretches)
{
    uint64_t some = 0;

    for (uint32_t n = 0; some < bytes && l->at.region < l->regions && n < XFER_PIECE_PARTS; n++) {
        const struct page_at *page = &l->batch->page[l->piece->first + l->at.page];
        uint64_t page_bytes = mem_group(mem, l->batch->pool, page->group)->page_bytes,
                 rest = page_bytes - l->at.at, take = rest < bytes - some ? rest : bytes - some;
        uint8_t *to = mem_page(mem, l->batch->pool, l->at.region, page->group, page->index);

        stretches[n] = (struct iovec){.iov_base = to + l->at.at, .iov_len = take};
        some += take;
        l->at.at += take;
        if (l->at.at < page_bytes)
            continue;
        l->at.at = 0;
        if (++l->at.page == l->piece->n) {
            l->at.page = 0;
            l->at.region++;
        }
    }
    return some;
}

bool slots_land(const struct verbs_piece *piece)
{
    const struct verbs *v = piece->v;
    const struct mem *mem = v->xfer->config.mem;
    const struct batch *batch = &v->xfer->batch[piece->verified];
    struct landing l = {
        .piece = piece, .batch = batch, .regions = mem_place(mem, batch->pool)->transfer_regions};
    struct iovec stretches[XFER_PIECE_PARTS];
    uint64_t at = 0, n;
    bool all = true;

    while (l.at.region < l.regions) {
        const uint8_t *from = ring_at(v, piece->tenant, piece->slots, at, &n);

        n = landing_next(&l, mem, n, stretches);
        all = mem_unpack(mem, stretches, from, n) && all;
        at += n;
    }
    return all;
}
