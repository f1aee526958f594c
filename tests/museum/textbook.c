#include "museum/textbook.h"

#include <string.h>

#include "base/hash.h"
#include "testing/test.h"

static uint64_t word_of(uint32_t prompt, uint32_t i)
{
    return hash_mix(prompt + 1, i + 1);
}

static uint64_t state_behind(uint32_t prompt, uint32_t n)
{
    uint64_t state = 0;

    for (uint32_t i = 0; i < n; i++)
        state = hash_mix(state, word_of(prompt, i));
    return state;
}

static struct textbook_request *request_at(struct textbook *t, uint32_t r)
{
    assert_true(r < TEXTBOOK_REQUESTS && t->request[r].state != REQUEST_NONE);
    return &t->request[r];
}

void textbook_init(struct textbook *t, struct textbook_fixes fixed, uint32_t groups)
{
    *t = (struct textbook){.fixed = fixed, .groups = groups};
    for (uint32_t b = TEXTBOOK_BLOCKS; b > 0; b--)
        t->free[t->nfree++] = b - 1;
}

static void give_back(struct textbook *t, uint32_t b)
{
    t->block[b].gen++;
    t->free[t->nfree++] = b;
}

/* Ends the request's references to its blocks. With `heeds_writers` blocks wait for writers. */
static void release(struct textbook *t, struct textbook_request *req, bool heeds_writers)
{
    for (uint32_t i = 0; i < req->n; i++) {
        struct textbook_block *block = &t->block[req->block[i]];

        if (--block->refs > 0)
            continue;
        block->waits = heeds_writers && block->writers > 0;
        if (!block->waits)
            give_back(t, req->block[i]);
    }
    req->n = 0;
}

uint32_t textbook_admit(struct textbook *t, uint32_t prompt, uint32_t n)
{
    struct textbook_request *req;
    uint32_t r = 0;

    while (r < TEXTBOOK_REQUESTS && t->request[r].state != REQUEST_NONE)
        r++;
    if (r == TEXTBOOK_REQUESTS || n > t->nfree)
        return TEXTBOOK_NONE;
    req = &t->request[r];
    *req = (struct textbook_request){.state = REQUEST_READY,
                                     .prompt = prompt,
                                     .recurrent = req->recurrent,
                                     .waits_until_s = UINT64_MAX};
    for (; req->n < n; req->n++) {
        req->block[req->n] = t->free[--t->nfree];
        t->block[req->block[req->n]].refs = 1;
    }
    return r;
}

void textbook_compute(struct textbook *t, uint32_t r, uint32_t from, uint32_t to)
{
    struct textbook_request *req = request_at(t, r);

    if (from == 0)
        req->recurrent = 0;
    for (uint32_t i = from; i < to; i++) {
        t->block[req->block[i]].word = word_of(req->prompt, i);
        req->recurrent = hash_mix(req->recurrent, word_of(req->prompt, i));
    }
}

struct textbook_answer textbook_answer(const struct textbook *t, uint32_t r)
{
    const struct textbook_request *req = &t->request[r];
    struct textbook_answer a = {0};

    if (t->crashed || req->state == REQUEST_WAITS || req->state == REQUEST_NONE)
        return a;
    a.status = req->state == REQUEST_READY ? 200 : 500;
    if (a.status != 200)
        return a;
    for (uint32_t i = 0; i < req->n; i++)
        a.wrong_blocks += t->block[req->block[i]].word != word_of(req->prompt, i);
    a.wrong_state = req->recurrent != state_behind(req->prompt, req->n);
    return a;
}

void textbook_end(struct textbook *t, uint32_t r)
{
    struct textbook_request *req = request_at(t, r);

    assert_int_equal(req->pending, 0);
    release(t, req, true);
    req->state = REQUEST_NONE;
}

void textbook_hand_over(struct textbook *t, uint32_t r)
{
    struct textbook_request *req = request_at(t, r), tail;

    req->state = REQUEST_HANDED;
    if (t->fixed.tail_is_held)
        return;
    tail = (struct textbook_request){.n = 1, .block = {req->block[--req->n]}};
    release(t, &tail, true);
}

void textbook_fetched(struct textbook *t, uint32_t r, bool ok)
{
    struct textbook_request *req = &t->request[r];

    if (req->state != REQUEST_HANDED || (!ok && t->fixed.failure_keeps_hold))
        return;
    release(t, req, true);
    req->state = REQUEST_NONE;
}

static void request_fails(struct textbook *t, struct textbook_request *req, bool heeds_writers)
{
    req->state = REQUEST_FAILED;
    release(t, req, heeds_writers);
}

void textbook_abort(struct textbook *t, uint32_t r)
{
    struct textbook_request *req = request_at(t, r);

    request_fails(t, req, t->fixed.writers_hold_blocks);
    if (req->peer && t->fixed.abort_is_told)
        request_fails(req->peer, request_at(req->peer, req->peer_request), true);
}

void textbook_pair(struct textbook *prefill, uint32_t p, struct textbook *decode, uint32_t d)
{
    struct textbook_request *half = request_at(prefill, p), *other = request_at(decode, d);

    half->peer = decode;
    half->peer_request = d;
    other->state = REQUEST_WAITS;
    other->waits_until_s = decode->now_s + TEXTBOOK_WAIT_S;
}

void textbook_clock(struct textbook *t, uint64_t now_s)
{
    t->now_s = now_s;
    for (uint32_t r = 0; r < TEXTBOOK_REQUESTS; r++)
        if (t->request[r].state == REQUEST_WAITS && t->request[r].waits_until_s <= now_s)
            request_fails(t, &t->request[r], true);
}

struct textbook_reference textbook_reference(struct textbook *t, uint32_t r)
{
    const struct textbook_request *req = request_at(t, r);
    struct textbook_reference ref = {.source = t, .n = req->n};

    for (uint32_t i = 0; i < req->n; i++) {
        ref.block[i] = req->block[i];
        ref.gen[i] = t->block[req->block[i]].gen;
    }
    return ref;
}

uint32_t textbook_pull(struct textbook *t, uint32_t r, const struct textbook_reference *ref,
                       uint32_t i)
{
    struct textbook_request *req = request_at(t, r);
    uint32_t x = 0;

    while (x < TEXTBOOK_TRANSFERS && t->transfer[x].live)
        x++;
    assert_true(x < TEXTBOOK_TRANSFERS && i < ref->n && i < req->n);
    t->transfer[x] = (struct textbook_transfer){.live = true,
                                                .request = r,
                                                .to = req->block[i],
                                                .source = ref->source,
                                                .from = ref->block[i],
                                                .from_gen = ref->gen[i]};
    t->block[req->block[i]].writers++;
    req->state = REQUEST_WAITS;
    req->pending++;
    return x;
}

/* Returns true if the scheduler learns of a failure. A failure names the request or the numbers of
 * its blocks; the numbers are ambiguous where each group counts its own, and are left out then. */
static bool is_heard(const struct textbook *t)
{
    return t->fixed.failure_names_the_request || t->groups == 1;
}

static void transfer_ends(struct textbook *t, struct textbook_transfer *x)
{
    struct textbook_request *req = &t->request[x->request];
    struct textbook_block *to = &t->block[x->to];

    x->live = false;
    if (--to->writers == 0 && to->waits) {
        to->waits = false;
        give_back(t, x->to);
    }
    req->pending--;
    if (req->state != REQUEST_WAITS)
        return;
    if (req->failed && is_heard(t)) {
        if (req->pending == 0 || !t->fixed.failure_waits_for_siblings)
            request_fails(t, req, false);
    } else if (req->pending == 0) {
        req->state = REQUEST_READY;
        req->recurrent = state_behind(req->prompt, req->n); /* the state arrived with the blocks */
    }
}

void textbook_lands(struct textbook *t, uint32_t x)
{
    struct textbook_transfer *transfer = &t->transfer[x];
    const struct textbook_block *from = &transfer->source->block[transfer->from];

    assert_true(transfer->live);
    if (t->fixed.references_have_generation && from->gen != transfer->from_gen)
        t->request[transfer->request].failed = true;
    else
        t->block[transfer->to].word = from->word; /* whichever request owns that block by now */
    transfer_ends(t, transfer);
}

void textbook_fails(struct textbook *t, uint32_t x)
{
    assert_true(t->transfer[x].live);
    t->request[t->transfer[x].request].failed = true;
    transfer_ends(t, &t->transfer[x]);
}

void textbook_store(struct textbook *t, uint32_t r, enum textbook_tier tier,
                    struct textbook_stored what)
{
    const struct textbook_request *req = request_at(t, r);

    what.prompt = req->prompt;
    what.recurrent = req->recurrent;
    for (uint32_t i = 0; i < what.kv; i++)
        what.word[i] = t->block[req->block[i]].word;
    t->stored[tier] = what;
}

/* How deep the stored part of the prompt reaches, in KV or in states. */
static uint32_t depth_of(const struct textbook *t, uint32_t prompt, bool by_state)
{
    uint32_t depth = 0;

    for (uint32_t i = 0; i < TEXTBOOK_TIERS; i++) {
        const struct textbook_stored *s = &t->stored[i];
        uint32_t reaches = by_state ? s->state_at : s->kv;

        if (s->prompt == prompt && reaches > depth)
            depth = reaches;
    }
    return depth;
}

uint32_t textbook_resume(struct textbook *t, uint32_t r)
{
    struct textbook_request *req = request_at(t, r);
    uint32_t state_at = depth_of(t, req->prompt, true);
    uint32_t hit = t->fixed.hit_ends_at_state ? state_at : depth_of(t, req->prompt, false);

    for (uint32_t tier = 0; tier < TEXTBOOK_TIERS; tier++) {
        const struct textbook_stored *s = &t->stored[tier];

        if (s->prompt != req->prompt)
            continue;
        for (uint32_t i = 0; i < hit && i < s->kv; i++)
            t->block[req->block[i]].word = s->word[i];
        if (state_at > 0 && s->state_at == state_at)
            req->recurrent = s->recurrent;
    }
    return hit;
}

struct textbook_endpoint *textbook_connect(struct textbook *t)
{
    t->endpoint.open = true;
    return &t->endpoint;
}

void textbook_teardown(struct textbook *t)
{
    t->endpoint.open = false;
}

bool textbook_unpack(struct textbook *t, const struct textbook_endpoint *e)
{
    if (e->open)
        return true;
    if (!t->fixed.endpoint_is_checked)
        t->crashed = true; /* what e points to is no longer an endpoint */
    return false;
}
