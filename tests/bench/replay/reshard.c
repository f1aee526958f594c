/* The matrix of shardings: see reshard.h. Two daemons for all cells; each cell opens a pool at
 * both, computes a few sessions at one, fetches them at the other and compares. */
#include "reshard.h"

#include <argp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/admin.h"
#include "engine/daemon.h"
#include "engine/proc.h"
#include "reshard_end.h"

#define TOKENS_MAX   128 /* of a session: at least two chunks, and at least 64 */
#define PAGE_TOKENS  16u
#define RATIO_MOST   1.02       /* bytes moved for each needed byte */
#define MEMORY_BYTES (8u << 20) /* of a region; the core needs 27 times that: pages of 64 bytes */
#define PEER_MS      20000u

enum {
    KEY_RANKS = 256,
    KEY_STAGES,
    KEY_PAGE_TOKENS,
    KEY_KIND,
    KEY_SESSIONS,
    KEY_CORRUPT,
    KEY_FOLLOW,
    KEY_JSON
};

static const struct argp_option table[] = {
    {"ranks", KEY_RANKS, "P:D|all", 0,
     "Ranks of a stage at either end; all: each pair of 1, 2, 4, 8", 0},
    {"stages", KEY_STAGES, "P:D|all", 0, "Pipeline stages at either end, 1 or 2", 0},
    {"page-tokens", KEY_PAGE_TOKENS, "P:D|all", 0,
     "Tokens of a page at either end, a power of two from 16 to 64; all: 16:16, 16:64, 64:16, "
     "32:64 "
     "and 64:32",
     0},
    {"kind", KEY_KIND, "KIND|all", 0, "mha, gqa, mla, whole, recurrent, xbc, xb1, qkv or hybrid",
     0},
    {"sessions", KEY_SESSIONS, "N", 0, "Sessions of a cell", 0},
    {"corrupt", KEY_CORRUPT, "N", 0, "Flip a byte in N pages when they arrive", 0},
    {"follow", KEY_FOLLOW, 0, 0,
     "The destination follows each session by an early ticket, while the source computes it", 0},
    {"json", KEY_JSON, 0, 0, "Print the report as JSON", 0},
    {0}};

static const char *const kind_words[WORLD_KINDS] = {[WORLD_MHA] = "mha",
                                                    [WORLD_GQA] = "gqa",
                                                    [WORLD_MLA] = "mla",
                                                    [WORLD_WHOLE] = "whole",
                                                    [WORLD_RECURRENT] = "recurrent",
                                                    [WORLD_XBC] = "xbc",
                                                    [WORLD_XB1] = "xb1",
                                                    [WORLD_QKV] = "qkv",
                                                    [WORLD_HYBRID] = "hybrid"};

struct options {
    uint32_t ranks[2], stages[2], page_tokens[2]; /* 0: all */
    uint32_t kind;                                /* WORLD_KINDS: all */
    uint32_t sessions, corrupt;
    bool follow, json;
};

struct matrix {
    const struct options *options;
    struct daemon source, dest;
    struct tern *admin;
    uint32_t cells, left_out, failed, number;
    uint64_t moved, needed, overhead, wrong, corrupt;
    json_t *rows;
    char dir[64], why[SPAWN_WHY_BYTES];
};

struct cell {
    struct end_shape shape[2]; /* source, destination */
    uint32_t tokens;           /* of a session */
    uint64_t moved, needed, overhead, wrong;
    const char *failed; /* the failed call; NULL: success */
    char text[512];
};

/* ---- one cell ---- */

static bool failed(struct cell *c, const char *what, struct tern *t, enum tern_err err)
{
    c->failed = what;
    snprintf(c->text, sizeof c->text, "%s: %s", tern_strerror(err),
             t ? tern_error_text(t, NULL) : "");
    return false;
}

/* The session is committed before the destination fetches it. */
static bool fetches(struct cell *c, struct end ends[2], struct end_pages *pages,
                    struct engine_session *to)
{
    struct engine *a = &ends[0].engine, *b = &ends[1].engine;
    struct engine_session *from = pages->s;
    const uint32_t n = c->tokens;
    enum tern_err err = engine_extend(from, n, n);

    if (err != TERN_OK)
        return failed(c, "extend", a->tern, err);
    end_write(&ends[0], pages);
    err = end_publish(&ends[0]);
    if (err == TERN_OK)
        err = engine_commit(from, n);
    if (err != TERN_OK)
        return failed(c, "commit", a->tern, err);
    err = engine_begin_with(to, b, from->tokens, n, 1);
    if (err == TERN_OK)
        err = engine_fetch(to, "source", n, END_CALL_MS);
    return err == TERN_OK ? true : failed(c, "fetch", b->tern, err);
}

/* The source computes the session chunk by chunk, and the destination follows it. A STATE, which
 * each commit would take, is computed only at the end. */
static bool follows(struct cell *c, struct end ends[2], struct end_pages *pages,
                    struct engine_session *to)
{
    const uint32_t n = c->tokens, each = ends[0].ngroups > 1 ? n : c->shape[0].align;
    struct engine *a = &ends[0].engine, *b = &ends[1].engine;
    struct engine_session *from = pages->s;
    struct tern_answer answer = {.cookie = 0};
    struct tern_ticket ticket;
    enum tern_err err = tern_ticket_open(a->tern, from->id, 0, END_CALL_MS, &ticket);

    if (err != TERN_OK)
        return failed(c, "make a ticket", a->tern, err);
    err = engine_begin_with(to, b, from->tokens, n, 1);
    if (err == TERN_OK)
        err = tern_submit_fetch(
            b->tern, to->id,
            &(struct tern_fetch){.ticket = ticket.text, .follow = true, .step = TERN_STEP_NONE}, 1);
    if (err != TERN_OK)
        return failed(c, "follow", b->tern, err);
    for (pages->tokens = each; pages->tokens <= n && err == TERN_OK; pages->tokens += each) {
        err = engine_extend(from, pages->tokens, pages->tokens);
        if (err == TERN_OK)
            end_write(&ends[0], pages);
        if (err == TERN_OK)
            err = end_publish(&ends[0]);
        if (err == TERN_OK)
            err = engine_commit(from, pages->tokens);
    }
    pages->tokens = n;
    if (err == TERN_OK)
        err = tern_handoff(a->tern, from->id, a->step, NULL, 0, 0, END_CALL_MS, &ticket);
    if (err != TERN_OK)
        return failed(c, "compute and hand over", a->tern, err);
    err = answer_wait(b->tern, END_CALL_MS, &answer);
    if (err == TERN_OK)
        err = answer.results[0].err;
    if (err == TERN_OK)
        err = engine_take(to, &answer.results[0]);
    return err == TERN_OK ? true : failed(c, "follow", b->tern, err);
}

/* One session at the source, and the same at the destination. */
static bool session(struct matrix *m, struct cell *c, struct end ends[2], uint32_t i)
{
    struct engine *a = &ends[0].engine, *b = &ends[1].engine;
    struct engine_session from, to;
    struct end_pages pages = {.s = &from, .tokens = c->tokens};
    uint32_t tokens[TOKENS_MAX + 1], n = c->tokens;
    enum tern_err err;

    pages.salt = (uint8_t)(1 + m->number * 7 + i * 31);
    for (uint32_t k = 0; k <= n; k++)
        tokens[k] = i * 1000 + k;
    err = engine_begin_with(&from, a, tokens, n, 1);
    if (err != TERN_OK)
        return failed(c, "begin", a->tern, err);
    if (!(m->options->follow ? follows : fetches)(c, ends, &pages, &to))
        return false;
    err = engine_do(&to, (struct engine_op){.kind = ENGINE_EXTEND,
                                            .length = n + 1,
                                            .written = n,
                                            .tokens = {.v = tokens + n, .n = 1, .base = n}});
    if (err != TERN_OK)
        return failed(c, "extend what was fetched", b->tern, err);
    pages.s = &to;
    c->wrong += end_wrong(&ends[1], &pages);
    err = engine_end(&to);
    if (m->options->follow)
        engine_free(&from); /* its session was handed over */
    else if (err == TERN_OK)
        err = engine_end(&from);
    return err == TERN_OK ? true : failed(c, "close", NULL, err);
}

static bool play(struct matrix *m, struct cell *c, struct end ends[2])
{
    char model[32];
    const struct tern_namespace ns = {.model = model};
    struct daemon_status before = {0}, after = {0};
    enum tern_err err;

    snprintf(model, sizeof model, "cell-%u", m->number);
    err = end_open(&ends[0], m->source.socket, "prefill", &ns);
    if (err != TERN_OK)
        return failed(c, "open the source's pool", ends[0].tern[0], err);
    err = end_open(&ends[1], m->dest.socket, "decode", &ns);
    if (err != TERN_OK)
        return failed(c, "open the destination's pool", ends[1].tern[0], err);
    if (!admin_status(m->admin, 0, &before))
        return failed(c, "ask the daemon", m->admin, TERN_INTERNAL);
    for (uint32_t i = 0; i < m->options->sessions; i++)
        if (!session(m, c, ends, i))
            return false;
    if (!admin_status(m->admin, 0, &after))
        return failed(c, "ask the daemon", m->admin, TERN_INTERNAL);
    c->moved = after.transfers.payload_bytes_in - before.transfers.payload_bytes_in;
    c->overhead = after.transfers.socket_bytes_in - before.transfers.socket_bytes_in - c->moved;
    for (uint32_t g = 0; g < ends[0].ngroups; g++)
        c->needed += m->options->sessions *
                     world_bytes(ends[0].world[g].kind,
                                 world_is_state(ends[0].world[g].kind) ? 1 : c->tokens);
    return true;
}

static bool went_well(const struct matrix *m, const struct cell *c)
{
    bool again = m->options->corrupt > 0; /* flipped pages move once more */

    return !c->failed && c->wrong == 0 && c->moved >= c->needed &&
           (again || (double)c->moved <= RATIO_MOST * (double)c->needed);
}

static void tell(struct matrix *m, const struct cell *c)
{
    const struct end_shape *p = &c->shape[0], *d = &c->shape[1];

    if (!m->options->json) {
        printf("%-10s %u:%u  %u:%u  %3u:%u  %2u:%-2u %12llu %12llu %10llu  %s %s\n",
               kind_words[p->kind], p->ranks, d->ranks, p->stages, d->stages, p->order, d->order,
               p->page_tokens, d->page_tokens, (unsigned long long)c->moved,
               (unsigned long long)c->needed, (unsigned long long)c->overhead,
               c->failed         ? c->failed
               : c->wrong        ? "WRONG BYTES"
               : went_well(m, c) ? "right"
                                 : "TOO MUCH",
               c->text);
        return;
    }
    json_array_append_new(
        m->rows, json_pack("{s:s, s:i, s:i, s:i, s:i, s:i, s:i, s:I, s:I, s:I, s:I, s:b}", "kind",
                           kind_words[p->kind], "p", p->ranks, "d", d->ranks, "p_stages", p->stages,
                           "d_stages", d->stages, "p_page_tokens", p->page_tokens, "d_page_tokens",
                           d->page_tokens, "bytes_moved", (json_int_t)c->moved, "bytes_needed",
                           (json_int_t)c->needed, "bytes_overhead", (json_int_t)c->overhead,
                           "wrong_bytes", (json_int_t)c->wrong, "right", went_well(m, c)));
}

static void cell(struct matrix *m, struct cell *c)
{
    static struct end ends[2];

    m->number++;
    for (int i = 0; i < 2; i++)
        if (!end_shape(&ends[i], &c->shape[i])) {
            m->left_out++;
            return;
        }
    play(m, c, ends);
    end_close(&ends[1]);
    end_close(&ends[0]);
    m->cells++;
    m->failed += !went_well(m, c);
    m->moved += c->moved;
    m->needed += c->needed;
    m->overhead += c->overhead;
    m->wrong += c->wrong;
    tell(m, c);
}

/* ---- all of them ---- */

/* The two most common memory orders lie at either end in turn, and a third one now and then. */
static void cells_of(struct matrix *m, enum world_kind kind, const uint32_t ranks[2],
                     const uint32_t stages[2], const uint32_t page_tokens[2])
{
    uint32_t align = page_tokens[0] > page_tokens[1] ? page_tokens[0] : page_tokens[1];
    struct cell c = {.tokens = 2 * align < 64 ? 64 : 2 * align};

    for (int i = 0; i < 2; i++)
        c.shape[i] =
            (struct end_shape){.kind = kind,
                               .ranks = ranks[i],
                               .stages = stages[i],
                               .page_tokens = page_tokens[i],
                               .align = align,
                               .order = (m->number + (uint32_t)i * (m->number / 3)) % WORLD_ORDERS,
                               .units = ranks[i] * stages[i] <= 8 && m->number % 2 ? 2 : 1,
                               .whole = (m->number + (uint32_t)i) % 2 != 0};
    cell(m, &c);
}

static bool wanted(uint32_t asked, uint32_t v)
{
    return asked == 0 || asked == v;
}

static void all_of(struct matrix *m, enum world_kind kind, const uint32_t page_tokens[2])
{
    const struct options *o = m->options;

    for (uint32_t p = 1; p <= RESHARD_RANKS_MAX; p *= 2)
        for (uint32_t d = 1; d <= RESHARD_RANKS_MAX; d *= 2)
            for (uint32_t sp = 1; sp <= RESHARD_STAGES_MAX; sp++)
                for (uint32_t sd = 1; sd <= RESHARD_STAGES_MAX; sd++)
                    if (wanted(o->ranks[0], p) && wanted(o->ranks[1], d) &&
                        wanted(o->stages[0], sp) && wanted(o->stages[1], sd))
                        cells_of(m, kind, (uint32_t[2]){p, d}, (uint32_t[2]){sp, sd}, page_tokens);
}

static void all_kinds(struct matrix *m, const uint32_t page_tokens[2])
{
    for (uint32_t kind = 0; kind < WORLD_KINDS; kind++)
        if (m->options->kind == WORLD_KINDS || m->options->kind == kind)
            all_of(m, (enum world_kind)kind, page_tokens);
}

static void all_page_tokens(struct matrix *m)
{
    static const uint32_t all[][2] = {{16, 16}, {16, 64}, {64, 16}, {32, 64}, {64, 32}};
    const uint32_t *asked = m->options->page_tokens;

    for (size_t i = 0; asked[0] == 0 && i < sizeof all / sizeof *all; i++)
        all_kinds(m, all[i]);
    if (asked[0] != 0)
        all_kinds(m, asked);
}

static bool start(struct matrix *m)
{
    struct daemon_options d[2] = {{.node = "source",
                                   .memory_bytes = MEMORY_BYTES,
                                   .regions = END_RANKS_MAX,
                                   .page_bytes_min = 64,
                                   .core = -1}};

    d[1] = d[0];
    d[1].node = "dest";
    d[1].corrupt_pages = m->options->corrupt;
    if (!tempdir_make(m->dir, sizeof m->dir, "tern-reshard")) {
        snprintf(m->why, sizeof m->why, "no temporary directory");
        return false;
    }
    if (!daemon_start_pair(&m->source, &m->dest, m->dir, d, m->why))
        return false;
    if (tern_connect(m->dest.admin, END_CALL_MS, &m->admin) == TERN_OK &&
        admin_wait_peer(m->admin, "source", PEER_MS))
        return true;
    snprintf(m->why, sizeof m->why, "the destination did not connect to the source");
    return false;
}

static void report(struct matrix *m)
{
    struct daemon_status s = {0};
    json_t *all;

    admin_status(m->admin, 0, &s);
    if (!m->options->json) {
        printf("cells %u, left out %u, failed %u; bytes_moved %llu, bytes_needed %llu, "
               "bytes_overhead %llu, wrong_bytes %llu, corrupt_detected %llu\n",
               m->cells, m->left_out, m->failed, (unsigned long long)m->moved,
               (unsigned long long)m->needed, (unsigned long long)m->overhead,
               (unsigned long long)m->wrong, (unsigned long long)s.transfers.corrupt_detected);
        return;
    }
    all = json_pack("{s:i, s:i, s:i, s:I, s:I, s:I, s:I, s:I, s:O}", "cells", m->cells, "left_out",
                    m->left_out, "failed", m->failed, "bytes_moved", (json_int_t)m->moved,
                    "bytes_needed", (json_int_t)m->needed, "bytes_overhead",
                    (json_int_t)m->overhead, "wrong_bytes", (json_int_t)m->wrong,
                    "corrupt_detected", (json_int_t)s.transfers.corrupt_detected, "rows", m->rows);
    json_dumpf(all, stdout, JSON_INDENT(1));
    json_decref(all);
    putchar('\n');
}

/* ---- options ---- */

static void pair(struct argp_state *state, const char *name, const char *text, uint32_t least,
                 uint32_t most, uint32_t ret[2])
{
    char rest;

    ret[0] = ret[1] = 0;
    if (strcmp(text, "all") == 0)
        return;
    if (sscanf(text, "%u:%u%c", &ret[0], &ret[1], &rest) != 2)
        argp_error(state, "--%s takes P:D, or all", name);
    for (int i = 0; i < 2; i++)
        if (ret[i] < least || ret[i] > most || (ret[i] & (ret[i] - 1)) != 0)
            argp_error(state, "--%s: a power of two from %u to %u", name, least, most);
}

static error_t read_option(int key, char *arg, struct argp_state *state)
{
    struct options *o = state->input;

    switch (key) {
    case KEY_RANKS: pair(state, "ranks", arg, 1, RESHARD_RANKS_MAX, o->ranks); return 0;
    case KEY_STAGES: pair(state, "stages", arg, 1, RESHARD_STAGES_MAX, o->stages); return 0;
    case KEY_PAGE_TOKENS:
        pair(state, "page-tokens", arg, PAGE_TOKENS, 64, o->page_tokens);
        return 0;
    case KEY_KIND:
        for (o->kind = 0; o->kind < WORLD_KINDS && strcmp(arg, kind_words[o->kind]) != 0; o->kind++)
            ;
        if (o->kind == WORLD_KINDS && strcmp(arg, "all") != 0)
            argp_error(state, "there is no such kind: %s", arg);
        return 0;
    case KEY_SESSIONS: o->sessions = (uint32_t)strtoul(arg, NULL, 10); return 0;
    case KEY_CORRUPT: o->corrupt = (uint32_t)strtoul(arg, NULL, 10); return 0;
    case KEY_FOLLOW: o->follow = true; return 0;
    case KEY_JSON: o->json = true; return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

int reshard_main(int argc, char **argv)
{
    static const struct argp parser = {
        .options = table,
        .parser = read_option,
        .doc = "Exchanges pages between pools of different sharding "
               "or page_tokens, through two daemons, and "
               "compares every byte.\vKinds: heads of KV divided "
               "over ranks (mha; gqa: fewer heads than ranks), held "
               "alike by all ranks (mla; whole: of some pools), recurrent state by heads, "
               "states of convolutions by channels of their sections "
               "(xbc, xb1, qkv), and hybrid, several of them. The "
               "table has a line for each pair of pools. P:D, stages "
               "and tokens: ranks, pipeline stages and tokens of a "
               "page at either end. order: of memory, 0 "
               "tokens-heads-dim, 1 heads-tokens-dim, 2 K and V apart. "
               "moved, needed and overhead: bytes that came, each "
               "element once, and what came beside pages. right: no "
               "byte was wrong, and at most 1.02 came for each that "
               "was needed. Exit status: 0 if all were, 1 if not, 2 if "
               "the run could not be made."};
    struct options o = {.stages = {1, 1},
                        .page_tokens = {PAGE_TOKENS, PAGE_TOKENS},
                        .kind = WORLD_KINDS,
                        .sessions = 2};
    struct matrix m = {.options = &o};
    bool started;

    argp_err_exit_status = 2;
    argp_parse(&parser, argc, argv, 0, NULL, &o);
    m.rows = json_array();
    started = start(&m);
    if (!started)
        fprintf(stderr, "tern-replay: %s\n", m.why);
    if (started && !o.json)
        printf("%skind       P:D  stages order tokens        moved       needed   overhead\n",
               o.follow ? "each session is followed while it is computed\n" : "");
    if (started) {
        all_page_tokens(&m);
        report(&m);
    }
    json_decref(m.rows);
    tern_destroy(m.admin);
    daemon_end(&m.dest, PEER_MS);
    daemon_end(&m.source, PEER_MS);
    if (m.dir[0])
        tempdir_remove(m.dir);
    return !started ? 2 : m.failed > 0;
}
