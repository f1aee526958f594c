/* `ternctl top`: pools, rates, the slowest transfers and alarms, as they are now. Rates come from
 * two readings of counters that only grow, so the first screen has none. If the daemon is away, the
 * screen reports that above the last data, and each round tries to connect again. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "ctl.h"
#include "proto/shown.h"
#include "screen.h"

#define ASK_MS          1000 /* deadline of an answer: keys are not read meanwhile */
#define TRANSFERS_SHOWN 20   /* with --json, and on a screen of any length */
#define BAR_CELLS       16
#define PLAIN_ROWS      UINT32_MAX /* --once: all rows */
#define LINE_BYTES      1024
#define HEAD_ROWS       3

/* The daemon's answers of one round; owned. */
struct look {
    json_t *status, *transfers; /* NULL: none yet */
    double at_s;
};

struct view {
    struct ctl *ctl;
    struct look now, before;
    char away[256]; /* why the daemon is away; "": it is not */
    double away_since_s;
};

struct canvas {
    const struct ctl *ctl;
    FILE *out;
    uint32_t columns;
};

static double now_s(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

/* ---- looking ---- */

static void look_free(struct look *l)
{
    json_decref(l->status);
    json_decref(l->transfers);
    *l = (struct look){0};
}

/* Rates are computed within one incarnation of the daemon. */
static bool same_life(const struct look *a, const struct look *b)
{
    return a->status && b->status && a->at_s < b->at_s &&
           strcmp(j_str(a->status, "incarnation"), j_str(b->status, "incarnation")) == 0;
}

static json_t *ask(struct view *t, const char *command, const char *const *args, uint32_t nargs)
{
    const struct ctl_question q = {command, args, nargs, ASK_MS};
    enum tern_err err;
    json_t *answer = ctl_ask_within(t->ctl, &q, &err);

    if (!answer) {
        snprintf(t->away, sizeof t->away, "%s",
                 err == TERN_TIMED_OUT ? "the daemon does not answer: it is busy or stopped"
                                       : "the daemon closed the connection; its log has the cause");
        tern_destroy(t->ctl->tern);
        t->ctl->tern = NULL;
    }
    return answer;
}

/* Transfers are requested in one page: if there are more, only the first are compared. */
static void look(struct view *t)
{
    static const char *const args[] = {"limit=1024"};
    bool was_away = t->away[0] != '\0';
    const char *why = t->ctl->tern ? NULL : ctl_try_connect(t->ctl, ASK_MS);
    struct look l = {0};

    snprintf(t->away, sizeof t->away, "%s", why ? why : "");
    if (!why)
        l.status = ask(t, "status", NULL, 0);
    if (l.status)
        l.transfers = ask(t, "transfers", args, 1);
    l.at_s = now_s();
    if (l.transfers) {
        look_free(&t->before);
        t->before = t->now;
        t->now = l;
        return;
    }
    look_free(&l);
    if (!was_away)
        t->away_since_s = now_s();
}

/* ---- derived rows, the same for the screen and for --json ---- */

/* From a tenant's row of figures. */
static uint64_t matched(const json_t *figures)
{
    return found_tokens(figures) - j_u64(figures, "fetched_peer_tokens");
}

static uint64_t fetched(const json_t *figures)
{
    return j_u64(figures, "fetched_peer_tokens");
}

static uint64_t published(const json_t *figures)
{
    return j_u64(figures, "committed_tokens");
}

static uint64_t prompts(const json_t *figures)
{
    return j_u64(figures, "prompt_tokens");
}

static const json_t *figures_of(const json_t *status, const char *tenant)
{
    json_t *row;
    size_t i;

    json_array_foreach(json_object_get(status, "figures"), i, row)
    {
        if (strcmp(j_str(row, "tenant"), tenant) == 0)
            return row;
    }
    return NULL;
}

/* The found part of a prompt may be counted in a later interval than the prompt. */
static json_t *share_json(uint64_t part, uint64_t of)
{
    return of ? json_real(part < of ? (double)part / (double)of : 1) : json_null();
}

/* One row for each tenant. Hit rates are parts of the prompts' tokens: now, and since the daemon
 * started. */
static json_t *rates_of(const struct view *t)
{
    static const struct {
        const char *key;
        uint64_t (*of)(const json_t *figures);
    } rates[] = {{"prompt_tokens_per_s", prompts},
                 {"matched_tokens_per_s", matched},
                 {"fetched_tokens_per_s", fetched},
                 {"published_tokens_per_s", published}};
    bool two = same_life(&t->before, &t->now);
    double s = t->now.at_s - t->before.at_s;
    json_t *rows = json_array(), *now;
    size_t i;

    json_array_foreach(json_object_get(t->now.status, "figures"), i, now)
    {
        const json_t *was = two ? figures_of(t->before.status, j_str(now, "tenant")) : NULL;
        json_t *row = json_pack("{s:s}", "tenant", j_str(now, "tenant"));

        for (size_t k = 0; k < TITLES_N(rates); k++)
            json_object_set_new(row, rates[k].key,
                                was ? json_real((double)(rates[k].of(now) - rates[k].of(was)) / s)
                                    : json_null());
        json_object_set_new(
            row, "hit_rate",
            was ? share_json(found_tokens(now) - found_tokens(was), prompts(now) - prompts(was))
                : json_null());
        json_object_set_new(row, "hit_rate_since_start",
                            share_json(found_tokens(now), prompts(now)));
        json_array_append_new(rows, row);
    }
    return rows;
}

/* One row for each group of a pool. Pages in use are live or evictable. */
static json_t *pools_of(const struct view *t)
{
    json_t *rows = json_array(), *g;
    size_t i;

    json_array_foreach(json_object_get(t->now.status, "pools"), i, g)
    {
        uint64_t used = j_u64(g, "total") - j_u64(g, "free"), evictable = j_u64(g, "evictable");

        json_array_append_new(
            rows, json_pack("{s:s, s:s, s:s, s:s, s:I, s:I, s:I, s:I}", "pool", j_str(g, "pool"),
                            "tenant", j_str(g, "tenant"), "tier", j_str(g, "tier"), "group",
                            j_str(g, "group"), "total", (json_int_t)j_u64(g, "total"), "live",
                            (json_int_t)(used > evictable ? used - evictable : 0), "evictable",
                            (json_int_t)evictable, "free", (json_int_t)j_u64(g, "free")));
    }
    return rows;
}

/* Orders by the overall rate of bytes, lowest first; equal ones by age, oldest first. */
static int by_slowness(const void *a, const void *b)
{
    const json_t *const *p = a, *const *q = b;
    uint64_t x = j_u64(*p, "mean_bytes_per_s"), y = j_u64(*q, "mean_bytes_per_s");
    double older = j_f64(*p, "age_s") - j_f64(*q, "age_s");

    return x != y ? (x < y ? -1 : 1) : older > 0 ? -1 : older < 0;
}

static json_t *slowest_of(const struct view *t)
{
    json_t *all = json_object_get(t->now.transfers, "transfers"), *rows = json_array();
    size_t n = json_array_size(all);
    json_t **sorted = calloc(n + 1, sizeof(json_t *));

    if (!sorted)
        ctl_fail(CTL_FAILED, "no memory");
    for (size_t i = 0; i < n; i++)
        sorted[i] = json_array_get(all, i);
    qsort(sorted, n, sizeof(json_t *), by_slowness);
    for (size_t i = 0; i < n && i < TRANSFERS_SHOWN; i++)
        json_array_append(rows, sorted[i]);
    free(sorted);
    return rows;
}

static json_t *top_json(const struct view *t)
{
    static const char *const keys[] = {"node",     "version",  "incarnation",      "uptime_s",
                                       "draining", "sessions", "engines",          "prefix_nodes",
                                       "peers",    "peers_up", "transfers_active", "alarms_on",
                                       "alarms"};
    json_t *answer = json_object();

    for (size_t i = 0; i < TITLES_N(keys); i++)
        json_object_set(answer, keys[i], json_object_get(t->now.status, keys[i]));
    json_object_set_new(answer, "interval_s",
                        same_life(&t->before, &t->now) ? json_real(t->now.at_s - t->before.at_s)
                                                       : json_null());
    json_object_set_new(answer, "rates", rates_of(t));
    json_object_set_new(answer, "groups", pools_of(t));
    json_object_set_new(answer, "slowest", slowest_of(t));
    return answer;
}

/* ---- drawing ---- */

/* Writes one line, cut at the screen's width. */
static __attribute__((format(printf, 3, 4))) void put(const struct canvas *c, enum colour colour,
                                                      const char *format, ...)
{
    char text[LINE_BYTES], line[LINE_BYTES];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    shown(line, sizeof line, text);
    paint_to(c->out, c->ctl, colour, "%.*s", (int)shown_bytes(line, c->columns), line);
    fputc('\n', c->out);
}

static void table_of(struct table *t, const struct canvas *c, const char *const *titles, uint32_t n)
{
    table_init(t, c->ctl, titles, n);
    t->out = c->out;
    t->width = c->columns;
}

static void put_head(const struct canvas *c, const struct view *t)
{
    const json_t *s = t->now.status;

    if (t->away[0])
        put(c, RED, "NO DAEMON for %s: %s", human_age(now_s() - t->away_since_s), t->away);
    else
        put(c, BOLD, "%s  %s  up %s  every %s  q ends", j_str(s, "node"),
            j_bool(s, "draining") ? "DRAINING" : "serving", human_age((double)j_u64(s, "uptime_s")),
            human_us((uint64_t)t->ctl->every_ms * 1000));
    put(c, t->away[0] ? DIM : PLAIN,
        "sessions %s, engines %s, nodes %s, peers %s of %s up, transfers %s", num(s, "sessions"),
        num(s, "engines"), num(s, "prefix_nodes"), num(s, "peers_up"), num(s, "peers"),
        num(s, "transfers_active"));
    put(c, PLAIN, "%s", "");
}

static void add_rate(struct table *t, const json_t *row, const char *key)
{
    if (json_is_null(json_object_get(row, key)))
        table_add(t, DIM, "-");
    else
        table_count(t, PLAIN, (uint64_t)(j_f64(row, key) + 0.5));
}

static void add_share(struct table *t, const json_t *row, const char *key)
{
    if (json_is_null(json_object_get(row, key)))
        table_add(t, DIM, "-");
    else
        table_add(t, BOLD, "%.1f %%", 100 * j_f64(row, key));
}

static void put_rates(const struct canvas *c, const struct view *t, uint32_t rows)
{
    static const char *const titles[] = {"<TOKENS A SECOND", "PROMPTS", "MATCHED", "FETCHED",
                                         "PUBLISHED",        "HITS",    "ALL HITS"};
    json_t *all = rates_of(t), *row;
    struct table table;
    size_t i;

    table_of(&table, c, titles, TITLES_N(titles));
    json_array_foreach(all, i, row)
    {
        table_add(&table, PLAIN, "%s", j_str(row, "tenant"));
        add_rate(&table, row, "prompt_tokens_per_s");
        add_rate(&table, row, "matched_tokens_per_s");
        add_rate(&table, row, "fetched_tokens_per_s");
        add_rate(&table, row, "published_tokens_per_s");
        add_share(&table, row, "hit_rate");
        add_share(&table, row, "hit_rate_since_start");
    }
    table.rows_max = rows;
    table_print(&table, "no tenant is configured");
    json_decref(all);
}

/* "####++++....": live, evictable, free. */
static const char *bar(const json_t *g)
{
    static char cells[BAR_CELLS + 1];
    uint64_t total = j_u64(g, "total");
    uint64_t live = total ? BAR_CELLS * j_u64(g, "live") / total : 0;
    uint64_t used = total ? BAR_CELLS * (total - j_u64(g, "free")) / total : 0;

    for (uint32_t i = 0; i < BAR_CELLS; i++)
        cells[i] = i < live ? '#' : i < used ? '+' : '.';
    return cells;
}

static void put_pools(const struct canvas *c, const struct view *t, uint32_t rows)
{
    static const char *const titles[] = {"POOL", "<TENANT",   "<TIER", "<GROUP",          "TOTAL",
                                         "LIVE", "EVICTABLE", "FREE",  "=# LIVE + EVICT."};
    json_t *all = pools_of(t), *row;
    struct table table;
    size_t i;

    table_of(&table, c, titles, TITLES_N(titles));
    json_array_foreach(all, i, row)
    {
        /* The slot of the handle, which other commands also take. */
        table_add(&table, PLAIN, "%llu", strtoull(j_str(row, "pool"), NULL, 16) & UINT32_MAX);
        table_add(&table, PLAIN, "%s", j_str(row, "tenant"));
        table_add(&table, PLAIN, "%s", j_str(row, "tier"));
        table_add(&table, BOLD, "%s", j_str(row, "group"));
        table_num(&table, row, "total");
        table_num(&table, row, "live");
        table_num(&table, row, "evictable");
        table_count(&table, j_u64(row, "free") ? GREEN : YELLOW, j_u64(row, "free"));
        table_add(&table, PLAIN, "%s", bar(row));
    }
    table.rows_max = rows;
    table_print(&table, "no pool is open");
    json_decref(all);
}

static void put_transfers(const struct canvas *c, const struct view *t, uint32_t rows)
{
    static const char *const titles[] = {"=SLOWEST TRANSFER", "<DIRECTION", "<PEER", "<STAGE",
                                         "<WAITS FOR",        "AGE",        "BYTES", "MEAN RATE"};
    json_t *all = slowest_of(t), *row;
    struct table table;
    size_t i;

    table_of(&table, c, titles, TITLES_N(titles));
    json_array_foreach(all, i, row)
    {
        bool out = strcmp(j_str(row, "direction"), "out") == 0;

        table_add(&table, PLAIN, "%s", j_str(row, "transfer"));
        table_add(&table, PLAIN, "%s", j_str(row, "direction"));
        table_add(&table, BOLD, "%s", j_str(row, "peer"));
        table_add(&table, PLAIN, "%s", j_str(row, "stage"));
        table_add(&table, YELLOW, "%s", j_str(row, "waits_for"));
        table_add(&table, PLAIN, "%s", human_age(j_f64(row, "age_s")));
        table_add(&table, PLAIN, "%s",
                  human_bytes(j_u64(row, out ? "bytes_sent" : "bytes_verified")));
        table_add(&table, PLAIN, "%s/s", human_bytes(j_u64(row, "mean_bytes_per_s")));
    }
    table.rows_max = rows;
    table_print(&table, "no transfer is under way");
    json_decref(all);
}

static void put_alarms(const struct canvas *c, const struct view *t, uint32_t rows)
{
    json_t *all = json_object_get(t->now.status, "alarms"), *a;
    uint64_t on = j_u64(t->now.status, "alarms_on");
    size_t i;

    if (on == 0)
        put(c, GREEN, "no alarm is on");
    json_array_foreach(all, i, a)
    {
        if (i >= rows)
            break;
        put(c, RED, "alarm: %s%s%s, for %s: %s", j_str(a, "name"),
            j_str(a, "subject")[0] ? " of " : "", j_str(a, "subject"),
            human_age(j_f64(a, "since_s")), j_str(a, "text"));
    }
    if (on > i)
        put(c, RED, "%s more alarms are on", human_count(on - i));
}

/* Sections below the head, in this order, with an empty line behind each. */
enum { ALARMS, RATES, POOLS, TRANSFERS, SECTIONS };

/* The fewest lines of a cut section: titles, one row, "and N more", an empty line. */
#define LINES_CUT_MIN 4

/* Divides the lines of `room` among the sections: one by one in turn, until each has what it
 * wants. */
static void share_rows(uint32_t room, const uint32_t want[SECTIONS], uint32_t get[SECTIONS])
{
    bool more = true;

    memset(get, 0, SECTIONS * sizeof get[0]);
    while (more && room > 0) {
        more = false;
        for (uint32_t i = 0; i < SECTIONS && room > 0; i++) {
            if (get[i] == want[i])
                continue;
            get[i]++;
            room--;
            more = true;
        }
    }
}

static void put_sections(const struct canvas *c, const struct view *t, uint32_t lines)
{
    static void (*const sections[SECTIONS])(const struct canvas *, const struct view *,
                                            uint32_t) = {[ALARMS] = put_alarms,
                                                         [RATES] = put_rates,
                                                         [POOLS] = put_pools,
                                                         [TRANSFERS] = put_transfers};
    const json_t *s = t->now.status;
    uint32_t alarms = (uint32_t)json_array_size(json_object_get(s, "alarms"));
    uint32_t moving = (uint32_t)json_array_size(json_object_get(t->now.transfers, "transfers"));
    uint32_t want[SECTIONS] = {
        [ALARMS] = (alarms ? alarms : 1) + 1,
        [RATES] = (uint32_t)json_array_size(json_object_get(s, "figures")) + 2,
        [POOLS] = (uint32_t)json_array_size(json_object_get(s, "pools")) + 2,
        [TRANSFERS] = (moving < TRANSFERS_SHOWN ? moving : TRANSFERS_SHOWN) + 2};
    uint32_t get[SECTIONS];

    share_rows(lines, want, get);
    for (uint32_t i = 0; i < SECTIONS; i++) {
        bool all = get[i] == want[i];

        if (!all && get[i] < LINES_CUT_MIN && i != ALARMS)
            continue; /* not even one row */
        sections[i](c, t, all ? UINT32_MAX : get[i] < LINES_CUT_MIN ? 0 : get[i] - 3);
        put(c, PLAIN, "%s", "");
    }
}

/* The text is owned by the caller. */
static char *draw(const struct view *t, struct screen_size size)
{
    char *text = NULL;
    size_t bytes = 0;
    struct canvas c = {
        .ctl = t->ctl, .out = open_memstream(&text, &bytes), .columns = size.columns};

    if (!c.out)
        ctl_fail(CTL_FAILED, "no memory");
    put_head(&c, t);
    put_sections(&c, t, size.rows - HEAD_ROWS);
    if (fclose(c.out) != 0)
        ctl_fail(CTL_FAILED, "no memory");
    return text;
}

/* ---- the command ---- */

static void once(struct view *t)
{
    const struct timespec pause = {.tv_sec = t->ctl->every_ms / 1000,
                                   .tv_nsec = (long)(t->ctl->every_ms % 1000) * 1000000};
    json_t *answer;
    char *text;

    look(t);
    if (!t->away[0]) {
        nanosleep(&pause, NULL);
        look(t);
    }
    if (t->away[0])
        ctl_fail(CTL_UNREACHABLE, "%s: %s", t->ctl->socket, t->away);
    answer = top_json(t);
    if (!ctl_print_json(t->ctl, answer)) {
        text = draw(t, (struct screen_size){PLAIN_ROWS, TABLE_WIDTH});
        fputs(text, stdout);
        free(text);
    }
    json_decref(answer);
}

static void show(const struct view *t)
{
    char *text = draw(t, screen_size());

    screen_show(text);
    free(text);
}

static void on_screen(struct view *t)
{
    enum screen_heard heard = SCREEN_TIME;

    if (!screen_begin())
        ctl_fail(CTL_USAGE, "standard input or output is not a terminal: `ternctl top --once` "
                            "prints one screen, `ternctl top --json` the same for programs");
    while (heard != SCREEN_END) {
        if (heard == SCREEN_TIME)
            look(t);
        show(t);
        heard = screen_wait(t->ctl->every_ms);
    }
    screen_end();
}

static int run_top(struct ctl *ctl)
{
    struct view t = {.ctl = ctl};

    ctl_connect(ctl);
    if (ctl->once || ctl->json)
        once(&t);
    else
        on_screen(&t);
    look_free(&t.now);
    look_free(&t.before);
    return CTL_OK;
}

/* ---- the rows ---- */

static const struct argp_option top_options[] = {
    {"every", OPT_EVERY, "MS", 0, "Milliseconds between two samples, 100 to 60000; default: 1000",
     0},
    {"once", OPT_ONCE, NULL, 0, "Print one screen as text after two samples, and exit", 0},
    {0},
};

const struct command top_commands[] = {
    {"top", "", "Pools, rates, slow transfers and alarms, each second",
     "  ternctl top\n  ternctl top --once\n  ternctl top --every 5000 --json | jq .rates\n\nq or "
     "Ctrl-C ends it. Rates are tokens per second between the last two samples. PROMPTS counts "
     "the tokens of prompts; MATCHED and FETCHED count the prompt tokens that were matched or "
     "fetched; PUBLISHED counts the tokens that engines published. HITS is the hit rate of "
     "prompts, ALL HITS the hit rate since the "
     "daemon started. The slowest transfers are those with the lowest mean rate. While the daemon "
     "is down, ternctl retries the connection.\n",
     top_options, 0, run_top},
    {0},
};
