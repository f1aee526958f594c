/* A23 through ternd and libtern: 1, 2, 4 and 8 conversations of 60 turns of 256 tokens on the
 * DeepSeek-V4 shape, with c128a_state capped at 2385 pages and each kind of supersession. Prints
 * the pages in use and the reclaimable ones after each turn; --svg FILE draws them. Every
 * combination has a daemon of its own. Exit status: 0 if the expectations of A23 held, 1 if not, 2
 * if it could not be run. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/admin.h"
#include "engine/bytes.h"
#include "engine/daemon.h"
#include "engine/engine.h"
#include "engine/json.h"
#include "engine/proc.h"
#include "engine/profile.h"
#include "engine/stats.h"

#define TURNS        60
#define TURN_TOKENS  256
#define WINDOW_PAGES 16 /* of c128a_state: 128 tokens, 8 a page */
#define STATE_CAP    2385
#define SESSIONS_MAX 8
#define PEEK_TURNS   30
#define PAGE_BYTES   512
#define CALL_MS      10000
#define SETTLE_MS    20000
#define MODES        3
#define COUNTS       4

enum group { C4A_KV, C128A_KV, C4A_STATE, C128A_STATE, GROUPS_N };

static const uint32_t counts[COUNTS] = {1, 2, 4, 8};
static const char *const mode_names[MODES] = {
    [TERN_SUPERSEDE_LAZY] = "lazy", [TERN_SUPERSEDE_EAGER] = "eager", [TERN_SUPERSEDE_OFF] = "off"};

struct sample {
    uint32_t used, reclaimable;
};

/* One combination. turns: those that completed; if below TURNS, `why` ended it. */
struct curve {
    struct sample at[TURNS];
    uint32_t turns, failures, leaked;
    enum tern_err why;
    uint32_t short_group;
};

struct bench {
    char dir[64];
    struct daemon daemon;
    struct engine e;
    struct tern *admin;
    struct engine_session session[SESSIONS_MAX];
};

static bool fails(const char *what, const char *text)
{
    fprintf(stderr, "a23: %s: %s\n", what, text);
    return false;
}

static bool open_all(struct bench *b, enum tern_supersede mode, uint32_t sessions)
{
    static uint32_t tokens[TURNS * TURN_TOKENS];
    uint32_t caps[GROUPS_N] = {SESSIONS_MAX * TURNS + 64, SESSIONS_MAX * TURNS + 64,
                               SESSIONS_MAX * (TURNS * 2 + 128), STATE_CAP};
    struct daemon_options d = {
        .node = "a23", .regions = 1, .page_bytes_min = PAGE_BYTES, .core = -1};
    char why[SPAWN_WHY_BYTES];
    struct geometry g;
    const char *text;
    enum tern_err err;

    text = geometry_init(&g, profile_find("deepseek-v4", &text), PAGE_BYTES, 1, 1);
    if (text)
        return fails("the profile", text);
    geometry_caps(&g, caps, 0);
    g.layout.supersede = mode;
    d.memory_bytes = (g.layout.bytes + (2u << 20)) & ~(uint64_t)4095;
    d.port = port_free();
    if (!tempdir_make(b->dir, sizeof b->dir, "tern-a23") ||
        !daemon_start(&b->daemon, b->dir, &d, why))
        return fails("a daemon", why);
    err = engine_open(&b->e, b->daemon.socket, "a23", &g.layout, CALL_MS);
    if (err == TERN_OK)
        err = tern_connect(b->daemon.admin, CALL_MS, &b->admin);
    for (uint32_t i = 0; err == TERN_OK && i < sessions; i++) {
        for (uint32_t t = 0; t < TURNS; t++)
            block_tokens((uint64_t)i << 32 | t, 0, TURN_TOKENS, tokens + t * TURN_TOKENS);
        err = engine_begin_with(&b->session[i], &b->e, tokens, 0, TURNS * TURN_TOKENS);
    }
    return err == TERN_OK ? true : fails("opening", b->e.tern ? engine_why(&b->e) : "");
}

static void close_all(struct bench *b)
{
    for (uint32_t i = 0; i < SESSIONS_MAX; i++)
        engine_free(&b->session[i]);
    engine_close(&b->e);
    tern_destroy(b->admin);
    if (b->daemon.pid > 0)
        daemon_stop(&b->daemon);
    if (b->dir[0])
        tempdir_remove(b->dir);
}

/* One turn of one session: extend, write, step done, commit. The prefix must have its bytes. */
static enum tern_err one_turn(struct bench *b, uint32_t i, uint32_t turn, struct curve *ret)
{
    struct engine_session *s = &b->session[i];
    uint32_t before = turn * TURN_TOKENS, depth = before + TURN_TOKENS;
    enum tern_err err;

    ret->failures += engine_wrong(s, before) > 0;
    err = engine_do(s, (struct engine_op){
                           .kind = ENGINE_EXTEND,
                           .length = depth,
                           .tokens = {.v = s->tokens + before, .n = TURN_TOKENS, .base = before}});
    if (err != TERN_OK) {
        ret->short_group = s->last.shortage.group;
        return err;
    }
    engine_write(s, before, depth);
    err = engine_publish(&b->e);
    if (err == TERN_OK)
        err = engine_extend(s, 0, depth);
    if (err == TERN_OK)
        err = engine_commit(s, depth);
    ret->failures += err == TERN_OK && s->len.committed != depth;
    return err;
}

static bool look(struct bench *b, struct sample *ret, uint64_t *ret_retiring)
{
    json_t *status = admin_ask(b->admin, "status", NULL),
           *g = json_row(json_object_get(status, "pools"), "group", "c128a_state");
    bool found = g != NULL;

    *ret = (struct sample){.used = (uint32_t)json_get_u64(g, "snapshot"),
                           .reclaimable = (uint32_t)json_get_u64(g, "reclaimable")};
    *ret_retiring = json_get_u64(g, "retiring");
    json_decref(status);
    return found;
}

/* Samples the pages in use after a turn, once the daemon has seen its last step pass. Waits at most
 * SETTLE_MS for `most` or fewer. */
static bool settle(struct bench *b, uint32_t most, struct sample *ret)
{
    uint64_t until = clock_ns() + SETTLE_MS * UINT64_C(1000000), retiring = 1;

    while (look(b, ret, &retiring)) {
        if (clock_ns() >= until || (retiring == 0 && ret->used <= most))
            return true;
        sleep_ms(1);
    }
    return fails("status", tern_error_text(b->admin, NULL));
}

/* Checks what another session would find of session 0's first PEEK_TURNS turns: HISTORY always; a
 * resume point only if nothing has been freed yet. */
static bool peek_back(struct bench *b, enum tern_supersede mode, struct curve *ret)
{
    const struct tern_tokens list = {.v = b->session[0].tokens, .n = PEEK_TURNS * TURN_TOKENS};
    struct tern_depths depths = {0};

    if (tern_peek(b->e.tern, b->e.pool, &b->e.ns, &list, CALL_MS, &depths) != TERN_OK)
        return fails("a Peek", engine_why(&b->e));
    ret->failures +=
        depths.history != list.n || depths.resumable != (mode == TERN_SUPERSEDE_EAGER ? 0 : list.n);
    return true;
}

static bool leaves_nothing(struct bench *b, uint32_t sessions, struct curve *ret)
{
    struct daemon_status s;

    for (uint32_t i = 0; i < sessions; i++)
        if (engine_end(&b->session[i]) != TERN_OK)
            return fails("closing a session", engine_why(&b->e));
    if (!admin_empty(b->admin, b->e.pool, SETTLE_MS, &s))
        return fails("evicting", tern_error_text(b->admin, NULL));
    ret->leaked = (uint32_t)(s.pages.total - s.pages.free);
    return true;
}

static bool play(enum tern_supersede mode, uint32_t sessions, struct curve *ret)
{
    struct bench b = {.daemon = {.pid = -1}};
    bool ok = open_all(&b, mode, sessions);

    *ret = (struct curve){0};
    while (ok && ret->turns < TURNS && ret->why == TERN_OK) {
        for (uint32_t i = 0; i < sessions && ret->why == TERN_OK; i++)
            ret->why = one_turn(&b, i, ret->turns, ret);
        if (ret->why == TERN_OK)
            ok = settle(&b, mode == TERN_SUPERSEDE_OFF ? UINT32_MAX : sessions * WINDOW_PAGES,
                        &ret->at[ret->turns++]);
    }
    if (sessions == 1)
        ok = ok && peek_back(&b, mode, ret);
    ok = ok && leaves_nothing(&b, sessions, ret);
    close_all(&b);
    return ok;
}

/* ---- results ---- */

static void print_cell(const struct curve *s, uint32_t turn)
{
    if (turn < s->turns)
        printf("  %6u %6u", s->at[turn].used, s->at[turn].reclaimable);
    else
        printf("  %6s %6s", turn == s->turns ? "full" : "", "");
}

static void print_table(struct curve all[COUNTS][MODES])
{
    for (uint32_t c = 0; c < COUNTS; c++) {
        printf("\n%u session%s: c128a_state pages after each turn, in use and reclaimable\n%4s",
               counts[c], counts[c] == 1 ? "" : "s", "turn");
        for (uint32_t m = 0; m < MODES; m++)
            printf("  %13s", mode_names[m]);
        printf("\n");
        for (uint32_t t = 0; t < TURNS; t++) {
            printf("%4u", t + 1);
            for (uint32_t m = 0; m < MODES; m++)
                print_cell(&all[c][m], t);
            printf("\n");
        }
    }
}

static bool expect(bool holds, const char *mode, uint32_t sessions, const char *what, uint32_t n)
{
    if (!holds)
        fprintf(stderr, "a23: %s, %u sessions: %s (%u)\n", mode, sessions, what, n);
    return holds;
}

/* The turn in which a session's Extend finds no room if nothing is ever freed: an Extend takes two
 * windows, and its commit frees one of them. */
static uint32_t off_turn(uint32_t sessions)
{
    uint32_t turn = 1;

    while (WINDOW_PAGES * (sessions * turn + 1) <= STATE_CAP)
        turn++;
    return turn;
}

static bool as_expected(const struct curve *s, enum tern_supersede mode, uint32_t sessions)
{
    const char *name = mode_names[mode];
    uint32_t full = mode == TERN_SUPERSEDE_OFF ? off_turn(sessions) : TURNS + 1;
    bool ok = expect(s->failures == 0, name, sessions, "a window, a commit or a Peek was wrong",
                     s->failures);

    ok &= expect(s->leaked == 0, name, sessions, "pages leaked", s->leaked);
    if (full <= TURNS) {
        ok &= expect(s->why == TERN_POOL_EXHAUSTED && s->short_group == C128A_STATE, name, sessions,
                     "not exhausted, but", (uint32_t)s->why);
        return ok & expect(s->turns + 1 == full, name, sessions, "exhausted at another turn",
                           s->turns + 1);
    }
    ok &= expect(s->turns == TURNS, name, sessions, "ended at turn", s->turns + 1);
    for (uint32_t t = 0; mode != TERN_SUPERSEDE_OFF && t < s->turns; t++)
        ok &= expect(s->at[t].used <= sessions * WINDOW_PAGES, name, sessions,
                     "more in use than the windows of its sessions", s->at[t].used);
    return ok;
}

/* ---- the plot: a panel for each number of sessions ---- */

#define PANEL_W 420
#define PANEL_H 280
#define PLOT_W  340
#define PLOT_H  200

static const char *const colours[MODES] = {[TERN_SUPERSEDE_LAZY] = "#1a7f37",
                                           [TERN_SUPERSEDE_EAGER] = "#0a5fb4",
                                           [TERN_SUPERSEDE_OFF] = "#c4341c"};

static double plot_y(uint32_t pages, uint32_t top)
{
    return PLOT_H - (double)pages * PLOT_H / top;
}

static void svg_line(FILE *f, const struct curve *s, const char *colour, bool reclaimable,
                     uint32_t top)
{
    fprintf(f, "<polyline fill=\"none\" stroke=\"%s\" stroke-width=\"%s\"%s points=\"", colour,
            reclaimable ? "1" : "2", reclaimable ? " stroke-dasharray=\"4 3\"" : "");
    for (uint32_t t = 0; t < s->turns; t++)
        fprintf(f, "%.1f,%.1f ", (double)(t + 1) * PLOT_W / TURNS,
                plot_y(reclaimable ? s->at[t].reclaimable : s->at[t].used, top));
    fprintf(f, "\"/>\n");
}

static void svg_axes(FILE *f, uint32_t top)
{
    fprintf(f, "<path d=\"M0 0V%d H%d\" fill=\"none\" stroke=\"#444\"/>\n", PLOT_H, PLOT_W);
    for (uint32_t t = 0; t <= TURNS; t += 20)
        fprintf(f, "<text x=\"%u\" y=\"%d\" text-anchor=\"middle\">%u</text>\n", t * PLOT_W / TURNS,
                PLOT_H + 14, t);
    for (uint32_t i = 0; i <= 4; i++)
        fprintf(f, "<text x=\"-5\" y=\"%.0f\" text-anchor=\"end\">%u</text>\n",
                plot_y(top * i / 4, top) + 4, top * i / 4);
}

static void svg_panel(FILE *f, struct curve all[MODES], uint32_t panel)
{
    uint32_t top = counts[panel] * WINDOW_PAGES * TURNS;

    top = top > STATE_CAP ? STATE_CAP : top;
    fprintf(f, "<g transform=\"translate(%u %u)\">\n", 55 + panel % 2 * PANEL_W,
            60 + panel / 2 * PANEL_H);
    fprintf(f, "<text x=\"0\" y=\"-8\" font-weight=\"bold\">%u session%s</text>\n", counts[panel],
            counts[panel] == 1 ? "" : "s");
    svg_axes(f, top);
    svg_line(f, &all[TERN_SUPERSEDE_LAZY], colours[TERN_SUPERSEDE_LAZY], true, top);
    for (uint32_t m = 0; m < MODES; m++) {
        const struct curve *s = &all[m];

        svg_line(f, s, colours[m], false, top);
        if (s->turns > 0 && s->turns < TURNS)
            fprintf(f, "<text x=\"%u\" y=\"%.0f\" fill=\"%s\">exhausted at turn %u</text>\n",
                    s->turns * PLOT_W / TURNS + 6, plot_y(s->at[s->turns - 1].used, top) + 4,
                    colours[m], s->turns + 1);
    }
    fprintf(f, "<text x=\"%d\" y=\"%d\" text-anchor=\"middle\">turns</text>\n</g>\n", PLOT_W / 2,
            PLOT_H + 30);
}

static bool write_svg(const char *path, struct curve all[COUNTS][MODES])
{
    FILE *f = fopen(path, "w");

    if (!f)
        return fails(path, "cannot be written");
    fprintf(
        f,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" "
        "font-family=\"sans-serif\" font-size=\"11\">\n"
        "<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n"
        "<text x=\"20\" y=\"20\" font-size=\"14\">c128a_state snapshot pages in use; %d tokens a "
        "turn, a cap of %d pages</text>\n",
        2 * PANEL_W + 20, 2 * PANEL_H + 60, TURN_TOKENS, STATE_CAP);
    for (uint32_t m = 0; m < MODES; m++)
        fprintf(f, "<text x=\"%u\" y=\"38\" fill=\"%s\">supersession %s</text>\n", 20 + m * 130,
                colours[m], mode_names[m]);
    fprintf(f, "<text x=\"%u\" y=\"38\" fill=\"%s\">dashed: reclaimable, lazy</text>\n",
            20 + MODES * 130, colours[TERN_SUPERSEDE_LAZY]);
    for (uint32_t c = 0; c < COUNTS; c++)
        svg_panel(f, all[c], c);
    fprintf(f, "</svg>\n");
    return fclose(f) == 0 ? true : fails(path, "cannot be written");
}

int main(int argc, char **argv)
{
    static struct curve all[COUNTS][MODES];
    const char *svg = NULL;
    bool ok = true;

    if (argc == 3 && strcmp(argv[1], "--svg") == 0)
        svg = argv[2];
    else if (argc != 1) {
        fprintf(stderr, "usage: a23 [--svg FILE]\n");
        return 2;
    }
    for (uint32_t c = 0; c < COUNTS; c++) {
        for (uint32_t m = 0; m < MODES; m++) {
            if (!play((enum tern_supersede)m, counts[c], &all[c][m]))
                return 2;
        }
    }
    print_table(all);
    for (uint32_t c = 0; c < COUNTS; c++) {
        for (uint32_t m = 0; m < MODES; m++)
            ok &= as_expected(&all[c][m], (enum tern_supersede)m, counts[c]);
    }
    if (svg && !write_svg(svg, all))
        return 2;
    return ok ? 0 : 1;
}
