/* `ternctl watch` shows the changes of the prefix tree as they happen, each as a line, or with
 * --json as an object. It runs until it is interrupted, the daemon ends or it has shown --changes
 * changes. */
#include "ctl.h"

#include <poll.h>
#include <stdio.h>
#include <string.h>

#define WATCH_COOKIE 1
#define TENANT_SHOWN 10 /* bytes of a name, so that a line fits 100 columns */

static const char *kind_name(enum tern_event_kind kind)
{
    switch (kind) {
    case TERN_STORED: return "stored";
    case TERN_TIER: return "tier";
    case TERN_REMOVED: return "removed";
    default: return "unknown";
    }
}

static const char *tier_name(const struct tern_event *e)
{
    if (e->on_device)
        return e->on_host ? "both" : "device";
    return e->on_host ? "host" : "gone";
}

static enum colour kind_colour(enum tern_event_kind kind)
{
    return kind == TERN_STORED ? GREEN : kind == TERN_REMOVED ? RED : YELLOW;
}

static void line_json(json_t *object)
{
    json_dumpf(object, stdout, JSON_COMPACT | JSON_PRESERVE_ORDER);
    printf("\n");
    json_decref(object);
}

static json_t *hex(uint64_t v)
{
    return json_sprintf("%016llx", (unsigned long long)v);
}

static void show(const struct ctl *ctl, const struct tern_event *e)
{
    if (ctl->json) {
        line_json(json_pack(
            "{s:s, s:I, s:s?, s:o, s:o, s:I, s:b, s:b, s:o, s:o}", "event", kind_name(e->kind),
            "number", (json_int_t)e->number, "tenant", e->tenant, "pool", hex(e->pool), "namespace",
            json_sprintf("%016llx%016llx", (unsigned long long)e->ns_hi,
                         (unsigned long long)e->ns_lo),
            "depth", (json_int_t)e->depth, "device", e->on_device, "host", e->on_host, "chain",
            hex(e->chain), "parent_chain", hex(e->parent_chain)));
        return;
    }
    printf("%16llu  ", (unsigned long long)e->number);
    paint(ctl, kind_colour(e->kind), "%-7s", kind_name(e->kind));
    printf("  %-6s  %-*.*s  %08x  %10u  %016llx  %016llx\n", tier_name(e), TENANT_SHOWN,
           TENANT_SHOWN, e->tenant ? e->tenant : "-", (unsigned)(e->ns_hi >> 32), e->depth,
           (unsigned long long)e->chain, (unsigned long long)e->parent_chain);
}

static void show_lost(const struct ctl *ctl, uint64_t lost)
{
    if (ctl->json)
        line_json(json_pack("{s:s, s:I}", "event", "lost", "changes", (json_int_t)lost));
    else
        paint(ctl, RED, "%16s  %s changes were overwritten before they could be sent\n", "lost",
              human_count(lost));
}

static void show_begin(const struct ctl *ctl, uint64_t next)
{
    if (ctl->json) {
        line_json(json_pack("{s:s, s:I, s:o}", "event", "begin", "next", (json_int_t)next,
                            "incarnation", hex(tern_incarnation(ctl->tern))));
        return;
    }
    paint(ctl, BOLD, "%16s  %-7s  %-6s  %-*s  %-8s  %10s  %-16s  %-16s\n", "NUMBER", "CHANGE",
          "TIER", TENANT_SHOWN, "TENANT", "SPACE", "DEPTH", "CHAIN", "PARENT");
    fprintf(stderr, "waiting for changes from number %llu; interrupt to end\n",
            (unsigned long long)next);
}

/* Shows the changes of one answer. Returns false once the requested number has been shown. */
static bool show_batch(struct ctl *ctl, const struct tern_events *events)
{
    if (events->lost)
        show_lost(ctl, events->lost);
    for (uint32_t i = 0; i < events->n; i++) {
        show(ctl, &events->v[i]);
        if (ctl->changes && --ctl->changes == 0)
            return false;
    }
    return true;
}

/* Waits for the next answer. */
static void next_answer(struct ctl *ctl, struct tern_answer *ret)
{
    struct pollfd p;
    enum tern_err err;

    while ((err = tern_poll(ctl->tern, ret)) == TERN_BUSY) {
        p.fd = tern_fd(ctl->tern, &p.events);
        poll(&p, 1, -1);
    }
    if (err != TERN_OK || ret->err != TERN_OK)
        ctl_refused(ctl, err != TERN_OK ? err : ret->err);
}

static int run_watch(struct ctl *ctl)
{
    struct tern_answer answer;

    ctl_connect(ctl);
    if (tern_subscribe(ctl->tern, &(struct tern_subscription){.from = ctl->from}, WATCH_COOKIE) !=
        TERN_OK)
        ctl_fail(CTL_FAILED, "watch: %s", tern_error_text(ctl->tern, NULL));
    next_answer(ctl, &answer);
    show_begin(ctl, answer.events->next);
    /* A closed pipe or a full disk ends the program, because further output is lost. */
    while (show_batch(ctl, answer.events) && fflush(stdout) == 0 && !ferror(stdout))
        next_answer(ctl, &answer);
    return CTL_OK;
}

/* ---- the rows ---- */

static const struct argp_option watch_options[] = {
    {"from", OPT_FROM, "NUMBER", 0,
     "Number of the first change, if the daemon still has it; 1: the oldest kept change; default: "
     "the next change",
     0},
    {"changes", OPT_CHANGES, "N", 0, "End after N changes", 0},
    {0},
};

const struct command watch_commands[] = {
    {"watch", "", "Changes of the prefix tree, as they happen",
     "  ternctl watch\n  ternctl watch --from 1 --json | jq -c 'select(.event == "
     "\"removed\")'\n\nThe daemon keeps the last limits.events changes; a slow watcher gets the "
     "number of changes that it lost. With --json each line is one object: the first has the "
     "number of the first change and the daemon's incarnation.\n",
     watch_options, 0, run_watch},
    {0},
};
