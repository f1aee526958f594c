/* A whole model server in one file, without the model. It shows what an engine has to do to keep
 * its KV cache in Tern. Two conversations share their first tokens, and the second one finds what
 * the first has left behind.
 *
 *     gcc tiny_engine.c $(pkg-config --cflags --libs tern) -o tiny_engine
 *     ./tiny_engine /run/tern/mytenant.sock
 *
 * Read main() first, then conversation(). A real engine differs in three places: "compute" is a
 * kernel on a device, a step runs many sessions at once (a tern_batch takes all of their
 * operations), and done_step is published when the device has finished the step, not when the host
 * has queued it. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <tern.h>

#define PAGE_TOKENS 64   /* tokens whose KV lies in one page */
#define PAGE_BYTES  4096 /* of one page */
#define POOL_BYTES  (4u << 20)
#define PAGES_MAX   64 /* of one session here */

struct engine {
    struct tern *tern;
    uint64_t pool;            /* its handle, for requests */
    struct tern_pool *mapped; /* its bytes, for the kernels */
    uint32_t align;           /* L: prefixes are shared in whole multiples of L tokens */
    uint64_t step;            /* the number of the scheduler iteration that is running */
};

/* What the engine keeps of a session: which page holds tokens [i * PAGE_TOKENS, ...). */
struct block_table {
    uint32_t page[PAGES_MAX];
    uint32_t n;
};

/* Every call of libtern returns an error of one enum, and tern_error_text returns a text that
 * explains what to do. A real engine acts on the error instead of exiting. */
static void must(struct engine *e, enum tern_err err, const char *doing)
{
    if (err == TERN_OK)
        return;
    fprintf(stderr, "tiny_engine: %s: %s\n", doing,
            e->tern ? tern_error_text(e->tern, NULL) : tern_strerror(err));
    exit(1);
}

/* Each run of an answer says: "at [group][first ...] your table now has these pages". */
static void table_update(struct block_table *table, const struct tern_result *r)
{
    for (uint32_t i = 0; i < r->nruns; i++) {
        const struct tern_run *run = &r->runs[i];

        for (uint32_t k = 0; k < run->n && run->first + k < PAGES_MAX; k++)
            table->page[run->first + k] = run->pages[k].index;
        if (run->first + run->n > table->n)
            table->n = run->first + run->n;
    }
}

/* Page i of a group lies at i times the group's page bytes. Access needs no copy and no request,
 * because the memory is mapped. */
static uint8_t *page_at(const struct engine *e, uint32_t index)
{
    return tern_pool_info(e->mapped)->base + (size_t)index * PAGE_BYTES;
}

/* This stands for the attention kernels. The KV of each token goes to its place in its page. */
static void compute(const struct engine *e, const struct block_table *table, const uint32_t *tokens,
                    uint32_t from, uint32_t to)
{
    for (uint32_t i = from; i < to; i++) {
        uint8_t *page = page_at(e, table->page[i / PAGE_TOKENS]);

        memset(page + (i % PAGE_TOKENS) * (PAGE_BYTES / PAGE_TOKENS), (int)(tokens[i] & 0xff),
               PAGE_BYTES / PAGE_TOKENS);
    }
}

/* This stands for what a decode reads back. The KV of [0, to) must match the tokens, whoever
 * computed it. */
static uint32_t wrong_bytes(const struct engine *e, const struct block_table *table,
                            const uint32_t *tokens, uint32_t to)
{
    uint32_t wrong = 0;

    for (uint32_t i = 0; i < to; i++) {
        const uint8_t *kv = page_at(e, table->page[i / PAGE_TOKENS]) +
                            (i % PAGE_TOKENS) * (PAGE_BYTES / PAGE_TOKENS);

        for (uint32_t k = 0; k < PAGE_BYTES / PAGE_TOKENS; k++)
            wrong += kv[k] != (tokens[i] & 0xff);
    }
    return wrong;
}

static void start(struct engine *e, const char *socket)
{
    struct tern_group kv = {
        .name = "kv",
        .family = TERN_HISTORY,
        .page_tokens = PAGE_TOKENS,
        .page_bytes = PAGE_BYTES,
    };
    struct tern_layout layout = {.groups = &kv, .ngroups = 1, .bytes = POOL_BYTES};
    enum tern_err err = tern_connect(socket, 0, &e->tern);

    if (err != TERN_OK) {
        fprintf(stderr, "tiny_engine: %s: %s. Is ternd running, and is this a tenant's socket?\n",
                socket, tern_error_text(NULL, NULL));
        exit(1);
    }
    /* This one process is the scheduler and the only rank. With more ranks each process joins for
     * itself. */
    must(e, tern_join(e->tern, "tiny", TERN_BOTH, 0, 1, NULL, 0), "joining");
    must(e, tern_pool_open(e->tern, &layout, 0, &e->pool, &e->align), "opening a pool");
    must(e, tern_pool_map(e->tern, e->pool, 0, &e->mapped), "mapping the pool");
    printf("engine: %llu KiB mapped at %p, prefixes are shared in multiples of %u tokens\n",
           (unsigned long long)tern_pool_info(e->mapped)->bytes / 1024,
           (void *)tern_pool_info(e->mapped)->base, e->align);
}

/* Retracts the session, as if others needed its pages more urgently, and recovers it.
 * TERN_RETRACT_DROP frees the pages that are not committed. In a pool with host_bytes,
 * TERN_RETRACT_HOST would copy the committed pages to the host tier. Returns the number of tokens
 * that have KV after the recover; a real engine computes the others again.
 */
static uint32_t retract_and_recover(struct engine *e, const char *name, tern_session session,
                                    struct block_table *table)
{
    struct tern_retracted gone;
    struct tern_result r;

    /* `step` is the last step that may touch the pages. They are free when it has passed. */
    must(e, tern_retract(e->tern, session, TERN_RETRACT_DROP, e->step, 0, &gone), "retracting");
    table->n = 0; /* the pages that it had must not be used any more */

    must(e, tern_recover(e->tern, session, 0, &r), "recovering");
    table_update(table, &r); /* the answer names the whole table, as after a match */
    printf("%s: released %u pages, then recovered %u tokens in %u pages\n", name,
           gone.free_now + gone.free_at_step, r.lengths.written, table->n);
    return r.lengths.written;
}

/* Runs one request: a prompt comes in, its KV goes to pages, and its prefix is left for others.
 * Returns how many tokens need not be computed. */
static uint32_t conversation(struct engine *e, const char *name, const uint32_t *prompt, uint32_t n)
{
    struct tern_namespace ns = {.model = "tiny-model", .revision = "1", .kv_dtype = "u8"};
    struct tern_tokens tokens = {.v = prompt, .n = n};
    struct block_table table = {.n = 0};
    struct tern_result r;
    tern_session session;
    struct tern_depths depths;
    uint32_t cached, kept, wrong;

    /* Ask how deep the prefix is before anything is pinned. A scheduler sorts its queue by this. */
    must(e, tern_peek(e->tern, e->pool, &ns, &tokens, 0, &depths), "peeking");

    /* Find the longest prefix that someone has committed, and pin it. Its pages come first in our
     * table. */
    must(e, tern_session_open(e->tern, e->pool, &ns, NULL, 0, &session), "opening a session");
    must(e, tern_match(e->tern, session, &tokens, TERN_STEP_NONE, 0, &r), "matching");
    cached = r.lengths.written; /* also correct for a resumed session, where r.matched is 0 */
    table_update(&table, &r);
    printf("%s: %u tokens, peek says %u, match found %u in %u pages\n", name, n, depths.resumable,
           cached, table.n);

    /* Get room for the rest of the prompt. The pages are ours to write until we commit them. */
    must(e, tern_extend(e->tern, session, NULL, n, n, 0, &r), "extending");
    table_update(&table, &r);

    /* Run the step, and publish when the device is done with it: only then do others see what it
     * wrote. */
    e->step++;
    compute(e, &table, prompt, cached, n);
    must(e, tern_done_step(e->mapped, e->step), "publishing the step");
    printf("%s: computed tokens %u..%u in step %llu\n", name, cached, n,
           (unsigned long long)e->step);

    /* Commit the whole chunks of L tokens to the tree, under the step that wrote them. If another
     * session has committed the same chunk, the answer names its pages, and ours are released. */
    must(e, tern_commit(e->tern, session, n / e->align * e->align, e->step, 0, &r), "committing");
    table_update(&table, &r);
    wrong = wrong_bytes(e, &table, prompt, n); /* while we still hold them */
    printf("%s: committed %u tokens, %u bytes of KV are wrong\n", name, r.lengths.committed, wrong);

    kept = retract_and_recover(e, name, session, &table);
    wrong += wrong_bytes(e, &table, prompt, kept);

    /* End the turn and keep the first `kept` tokens. The conversation could continue, but here it
     * ends as well. */
    must(e, tern_finish(e->tern, session, kept, e->step, 0, &r), "finishing");
    must(e, tern_session_close(e->tern, session, e->step, 0, &r), "closing the session");
    return wrong ? UINT32_MAX : cached;
}

int main(int argc, char **argv)
{
    enum {
        SHARED = 640,
        OWN = 300
    }; /* a system prompt that both have, then what each user wrote */
    uint32_t prompt[SHARED + OWN], first, second;
    struct engine e = {0};

    if (argc != 2) {
        fprintf(stderr, "usage: tiny_engine SOCKET-OF-YOUR-TENANT\n");
        return 2;
    }
    start(&e, argv[1]);
    for (uint32_t i = 0; i < SHARED; i++)
        prompt[i] = 1000 + i * 7;
    for (uint32_t i = 0; i < OWN; i++)
        prompt[SHARED + i] = 50000 + i;
    first = conversation(&e, "first ", prompt, SHARED + OWN);
    for (uint32_t i = 0; i < OWN; i++)
        prompt[SHARED + i] = 90000 + i * 3;
    second = conversation(&e, "second", prompt, SHARED + OWN);

    printf("the second conversation reused %u of %d shared tokens\n", second, SHARED);
    must(&e, tern_pool_close(e.tern, e.pool, 0), "closing the pool");
    tern_destroy(e.tern); /* unmaps, leaves the engine, closes */
    return first == 0 && second == SHARED / e.align * e.align ? 0 : 1;
}
