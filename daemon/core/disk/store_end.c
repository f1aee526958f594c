/* The end of a store: its pins and its answer. See stores.h. */
#include "core/arena/actions.h"
#include "core/busy.h"
#include "core/disk/stores.h"
#include "core/tree/state.h"

static const char *end_text(enum tern_err err)
{
    switch (err) {
    case TERN_OK: return "";
    case TERN_GONE:
        return "the prefix was evicted, or its namespace reset, before it was stored: compute it "
               "and retry";
    case TERN_POOL_EXHAUSTED:
        return "the disk is full, and serving continues: free space on it, or lower spill.bytes";
    case TERN_CORRUPT: return "a page in memory does not match its checksum: nothing was stored";
    case TERN_BUSY: return STORE_TIME_OVER;
    default:
        return "the disk could not be written; serving continues: the daemon's log has the cause";
    }
}

static void answer(const struct core *c, struct actions *out, const struct disk_store *s,
                   enum tern_err err, const struct reason *why, uint32_t depth)
{
    struct reply *r;

    if (!reply_waits(c, &s->reply))
        return;
    r = reply_late(out, s->reply, OP_STORE, err, end_text(err));
    if (why)
        refuse_why(r, err, why);
    r->store.depth = err == TERN_OK ? depth : 0;
    r->store.written = s->written;
}

/* Lets the store's session store again what this store did not (D1). */
static void session_told(const struct core *c, const struct disk_store *s)
{
    struct session *of;

    if (s->session.gen == 0)
        return;
    of = session_at(c, s->session.slot);
    if (of->state != SESSION_EMPTY && of->gen == s->session.gen)
        of->disk_stored = s->before;
}

/* The part that the store reads only from the host: others may drop the device's STATE there. */
static struct path on_host_alone(const struct core *c, const struct disk_store *s)
{
    uint32_t device = node_at(c, s->device)->depth;

    return (struct path){s->node, s->state_from > device ? s->state_from : device};
}

void store_hold(struct core *c, struct disk_store *s)
{
    node_pin(c, s->device, REF_TRANSFER);
    if (s->host != NONE)
        node_pin(c, s->host, REF_HOST);
    pool_at(c, s->pool)->host_stores += s->host != NONE;
    state_hold(c, (struct path){s->node, s->state_from});
    state_lend_host(c, on_host_alone(c, s), true, UINT32_MAX);
}

static void let_go(struct core *c, struct disk_store *s)
{
    state_lend_host(c, on_host_alone(c, s), false, UINT32_MAX);
    state_unhold(c, (struct path){s->node, s->state_from});
    if (s->host != NONE)
        node_unpin(c, s->host, REF_HOST);
    pool_at(c, s->pool)->host_stores -= s->host != NONE;
    node_unpin(c, s->device, REF_TRANSFER);
    s->device = s->host = NONE;
}

bool store_late(const struct core *c, uint64_t since_ns)
{
    return c->now_ns < c->disk_pause_ns || c->now_ns - since_ns >= DISK_KEEP_MS_MAX * NS_PER_MS;
}

void store_keep(struct core *c, struct disk_store *s, bool keep)
{
    const struct node *n = node_at(c, s->node);

    if (keep != s->keeps && n->used && n->gen == s->node_gen)
        node_due(c, s->node, keep);
    s->keeps = keep;
}

void store_put_off(struct core *c, struct disk_store *s)
{
    store_keep(c, s, !store_late(c, s->since_ns));
    let_go(c, s);
    s->tried = 0;
    s->awaits = NONE;
    s->after_ns = c->now_ns + DISK_PUT_OFF_MS * NS_PER_MS;
    disk_store_state_move(&s->state, DISK_STORE_DUE);
    touch(c);
}

void store_end(struct core *c, struct actions *out, struct disk_store *s, enum tern_err err,
               const struct reason *why)
{
    uint32_t slot = disk_store_slot(c, s), depth = 0;
    struct tenant *t = tenant_at(c, s->tenant);

    store_keep(c, s, false);
    if (s->state != DISK_STORE_DUE) {
        depth = node_at(c, s->node)->depth;
        let_go(c, s);
    }
    if (err != TERN_OK) {
        t->disk.failed++;
        t->disk.refused += err == TERN_QUOTA;
        session_told(c, s);
    }
    answer(c, out, s, err, why, depth);
    if (s->chunk != NONE)
        disk_unpin(c, s->chunk);
    disk_store_list_remove(c, &c->disk_stores, slot);
    disk_store_state_move(&s->state, DISK_STORE_EMPTY);
    disk_store_slot_put(c, slot, s->tenant);
    touch(c);
}
