/* Three turns of a conversation, prefilled on one host and decoded on another, over two daemons.
 * Decode speculates, rewinds rejected drafts, is retracted and recovered, and aborts. Every byte is
 * checked. With one group, L is its page_tokens.
 *
 *     ./two_hosts PREFILL-SOCKET DECODE-SOCKET NAME-OF-THE-PREFILL-NODE */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <tern.h>

enum { L = 16, PAGE_BYTES = 1024, TOKEN_BYTES = PAGE_BYTES / L, PAGES = 32, TURN = 50, DRAFT = 4 };

struct host { /* an engine of one process, and the session that it runs */
    struct tern *tern;
    struct tern_pool *map;
    struct tern_result r; /* of the last call */
    uint64_t pool, step;
    tern_session session;
    uint32_t table[PAGES]; /* table[i]: the page of tokens [i * L, (i + 1) * L) */
};

static const struct tern_namespace ns = {.model = "two-hosts"};
static uint32_t tokens[PAGES * L];

static void must(struct host *h, enum tern_err err)
{
    if (err == TERN_OK)
        return;
    fprintf(stderr, "%s: %s\n", tern_strerror(err), tern_error_text(h->tern, NULL));
    exit(1);
}

/* Checks a call whose answer, h->r, may name pages, and copies these pages into the table. */
static void took(struct host *h, enum tern_err err)
{
    must(h, err);
    for (uint32_t i = 0; i < h->r.nruns; i++)
        for (uint32_t k = 0; k < h->r.runs[i].n; k++)
            h->table[h->r.runs[i].first + k] = h->r.runs[i].pages[k].index;
}

static uint8_t *kv(struct host *h, uint32_t token)
{
    return tern_pool_info(h->map)->base + (h->table[token / L] * L + token % L) * TOKEN_BYTES;
}

static void compute(struct host *h, uint32_t from, uint32_t to) /* this stands for the kernels */
{
    for (uint32_t t = from; t < to; t++)
        memset(kv(h, t), (int)(tokens[t] & 0xff), TOKEN_BYTES);
}

static void check(struct host *h, uint32_t to)
{
    for (uint32_t i = 0; i < to * TOKEN_BYTES; i++)
        if (kv(h, i / TOKEN_BYTES)[i % TOKEN_BYTES] != (tokens[i / TOKEN_BYTES] & 0xff))
            exit(2);
}

static void join(struct host *h, const char *socket, const char *name)
{
    struct tern_group group = {.name = "kv", .page_tokens = L, .page_bytes = PAGE_BYTES};
    struct tern_layout layout = {&group, 1, .bytes = 1 << 20, .host_bytes = 1 << 20};

    must(h, tern_connect(socket, 0, &h->tern));
    must(h, tern_join(h->tern, name, TERN_BOTH, 0, 1, NULL, 0));
    must(h, tern_pool_open(h->tern, &layout, 0, &h->pool, NULL));
    must(h, tern_pool_map(h->tern, h->pool, 0, &h->map));
}

/* Opens a session and matches the prompt. Returns how many tokens this host already has. */
static uint32_t begin(struct host *h, uint32_t n)
{
    struct tern_tokens prompt = {.v = tokens, .n = n};

    must(h, tern_session_open(h->tern, h->pool, &ns, NULL, 0, &h->session));
    took(h, tern_match(h->tern, h->session, &prompt, TERN_STEP_NONE, 0, &h->r));
    return h->r.lengths.written;
}

static uint32_t prefill(struct host *h, uint32_t n)
{
    uint32_t cached = begin(h, n);

    took(h, tern_extend(h->tern, h->session, NULL, n, n, 0, &h->r));
    compute(h, cached, n);
    took(h, tern_commit(h->tern, h->session, n / L * L, ++h->step, 0, &h->r));
    must(h, tern_done_step(h->map, h->step));
    must(h, tern_session_close(h->tern, h->session, h->step, 0, &h->r));
    return n;
}

static uint32_t decode(struct host *h, const char *peer, uint32_t n, struct tern_batch *batch)
{
    struct tern_fetch from = {.peer = peer, .at_least = n / L * L, .step = TERN_STEP_NONE};
    struct tern_tokens accepted = {.v = tokens + n, .n = 2, .base = n};
    const struct tern_result *results;
    struct tern_retracted away;
    uint32_t done;

    begin(h, n);
    took(h, tern_fetch(h->tern, h->session, &from, 10000, &h->r));
    took(h, tern_extend(h->tern, h->session, NULL, 0, n + DRAFT, 0, &h->r));
    compute(h, h->r.lengths.written, n + DRAFT); /* the rest of the prompt, and a draft */
    n += accepted.n;                             /* the model accepts two tokens of the draft */
    must(h, tern_batch_extend(batch, h->session, &accepted, n, 0));
    must(h, tern_batch_rewind(batch, h->session, n, ++h->step));
    must(h, tern_batch_run(batch, 0, &results, &done));
    must(h, results[0].err == TERN_OK ? results[1].err : results[0].err);
    must(h, tern_done_step(h->map, h->step));
    must(h, tern_retract(h->tern, h->session, TERN_RETRACT_HOST, h->step, 0, &away));
    took(h, tern_recover(h->tern, h->session, 0, &h->r));
    check(h, h->r.lengths.written);
    must(h, tern_abort(h->tern, h->session, h->step, 0, &h->r)); /* the user has gone */
    must(h, tern_session_close(h->tern, h->session, h->step, 0, &h->r));
    return n;
}

int main(int argc, char **argv)
{
    struct host a = {0}, b = {0};
    struct tern_batch *batch;
    uint32_t n = 0;

    for (uint32_t i = 0; i < PAGES * L; i++)
        tokens[i] = i * 7 + 1;
    join(&a, argc == 4 ? argv[1] : "", "prefill");
    join(&b, argv[2], "decode");
    must(&b, tern_batch_create(b.tern, &batch));
    for (int turn = 0; turn < 3; turn++)
        n = decode(&b, argv[3], prefill(&a, n + TURN), batch);
    tern_batch_destroy(batch);
    tern_destroy(b.tern); /* unmaps, leaves the engine, closes */
    tern_destroy(a.tern);
    return printf("two hosts: 3 turns, %u tokens, every byte as it was written\n", n) < 0;
}
