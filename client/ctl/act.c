/* The commands that act: evict, pin, drain, undrain, reload, peer, ping. */
#include "ctl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static int run_evict(struct ctl *ctl)
{
    const char *args[2], *pool = ctl_pool_arg(ctl);
    char nodes[32];
    uint32_t n = 0;
    json_t *answer;

    if (pool)
        args[n++] = pool;
    if (ctl->nodes) {
        snprintf(nodes, sizeof(nodes), "nodes=%u", ctl->nodes);
        args[n++] = nodes;
    }
    answer = ctl_ask(ctl, "evict", args, n);
    if (!ctl_print_json(ctl, answer)) {
        printf("evicted %s nodes: %s pages of the device and %s of the host tier are free again\n",
               human_count(j_u64(answer, "nodes")), human_count(j_u64(answer, "pages")),
               human_count(j_u64(answer, "host_pages")));
        if (j_u64(answer, "nodes") == 0)
            printf("no prefix can be evicted: `ternctl tree` shows what uses and pins them\n");
    }
    json_decref(answer);
    return CTL_OK;
}

static int pin(struct ctl *ctl, bool on)
{
    char node[64];
    const char *args[] = {node, on ? "on=1" : "on=0"};
    json_t *answer;

    if (strspn(ctl->operand, "0123456789abcdefABCDEF") != strlen(ctl->operand) ||
        snprintf(node, sizeof(node), "node=%s", ctl->operand) >= (int)sizeof(node))
        ctl_fail(CTL_USAGE, "'%.40s' is not a node: `ternctl tree` shows their ids", ctl->operand);
    answer = ctl_ask(ctl, "pin", args, 2);
    if (!ctl_print_json(ctl, answer)) {
        printf("%s: %s; pins of operators: %s\n", ctl->operand, on ? "pinned" : "unpinned",
               human_count(j_u64(answer, "refs")));
    }
    json_decref(answer);
    return CTL_OK;
}

static int run_pin(struct ctl *ctl)
{
    return pin(ctl, true);
}

static int run_unpin(struct ctl *ctl)
{
    return pin(ctl, false);
}

static void show_drained(const json_t *answer)
{
    const char *left = human_count(j_u64(answer, "sessions"));

    if (!j_bool(answer, "draining"))
        printf("the drain was undone with %s sessions open\n", left);
    else if (j_u64(answer, "sessions") > 0)
        printf("the deadline passed with %s sessions open, and the daemon exits\n", left);
    else
        printf("drained: all sessions ended by themselves, and the daemon exits\n");
}

/* The daemon answers when the last session has ended, when its deadline passes, or when the drain
 * is undone. A missing answer is no proof that the sessions ended. */
static int drain_and_wait(struct ctl *ctl)
{
    static const char *const args[] = {"wait=1"};
    const struct ctl_question q = {"drain", args, 1, ctl->wait_s * 1000};
    int status = CTL_LEFT;
    enum tern_err lost;
    json_t *answer;

    ctl_connect(ctl);
    fprintf(stderr,
            "waiting for the sessions to end; after deadlines.drain_ms (which a reload may raise) "
            "the daemon exits even if some are open; an interrupt ends the wait, not the drain\n");
    answer = ctl_ask_within(ctl, &q, &lost);
    if (!answer)
        ctl_fail(CTL_LEFT, "drain: %s",
                 lost == TERN_TIMED_OUT ? "the wait ended, and the daemon is still draining: "
                                          "`ternctl sessions` shows the open sessions"
                                        : "the daemon ended without reporting the end of the last "
                                          "session: its log has the cause");
    if (j_bool(answer, "draining") && j_u64(answer, "sessions") == 0)
        status = CTL_OK;
    if (!ctl_print_json(ctl, answer))
        show_drained(answer);
    json_decref(answer);
    return status;
}

static int run_undrain(struct ctl *ctl)
{
    json_t *answer = ctl_ask(ctl, "undrain", NULL, 0);

    if (!ctl_print_json(ctl, answer))
        printf("the daemon accepts new sessions; %s are open\n",
               human_count(j_u64(answer, "sessions")));
    json_decref(answer);
    return CTL_OK;
}

static void show_draining(const json_t *answer)
{
    if (j_u64(answer, "sessions") == 0)
        printf("draining: no session is open, the daemon exits\n");
    else
        printf(
            "draining: no new sessions, %s still open (`ternctl sessions`); the daemon exits after "
            "the last, in %s at the latest\n",
            human_count(j_u64(answer, "sessions")),
            human_age((double)j_u64(answer, "left_ms") / 1000));
}

static int run_drain(struct ctl *ctl)
{
    json_t *answer;

    if (ctl->wait)
        return drain_and_wait(ctl);
    answer = ctl_ask(ctl, "drain", NULL, 0);
    if (!ctl_print_json(ctl, answer))
        show_draining(answer);
    json_decref(answer);
    return CTL_OK;
}

/* One change a line, as the daemon's log has it. */
static void show_change(const struct ctl *ctl, const json_t *change, bool dry_run)
{
    bool not_done = json_is_string(json_object_get(change, "why"));

    printf("%s: %s -> %s: ", j_str(change, "setting"), j_str(change, "was"), j_str(change, "is"));
    if (not_done)
        paint(ctl, YELLOW, "%s, for %s", j_str(change, "outcome"), j_str(change, "why"));
    else
        paint(ctl, GREEN, "%s", dry_run ? "would be done" : j_str(change, "outcome"));
    printf("\n");
}

static void show_certificate(const json_t *answer, bool dry_run)
{
    if (!json_is_string(json_object_get(answer, "not_after")))
        return;
    printf("the certificates were %s; this node's is valid until %s\n",
           dry_run ? "checked" : "read again", j_str(answer, "not_after"));
    if (!j_bool(answer, "own_ca"))
        printf("warning: no CA in tls.ca has issued this node's certificate: peers that trust the "
               "same CA refuse it, and lost links cannot be opened again\n");
}

static int run_reload(struct ctl *ctl)
{
    char not_done[64] = "";
    static const char *const args[] = {"dry_run=1"};
    json_t *answer = ctl_ask(ctl, "reload", args, ctl->dry_run ? 1 : 0), *change;
    uint64_t done, restart, failed;
    size_t i;

    if (!ctl_print_json(ctl, answer)) {
        done = j_u64(answer, "done");
        restart = j_u64(answer, "restart");
        failed = j_u64(answer, "failed");
        json_array_foreach(json_object_get(answer, "changes"), i, change)
            show_change(ctl, change, ctl->dry_run);
        if (j_u64(answer, "left_out") > 0)
            printf("and %s more\n", human_count(j_u64(answer, "left_out")));
        if (failed > 0)
            snprintf(not_done, sizeof not_done, "; %s %s", human_count(failed),
                     ctl->dry_run ? "would fail" : "failed");
        if (done + restart + failed == 0)
            printf("no setting differs from those in force\n");
        else
            printf("%s %s; %s need a restart%s\n", human_count(done),
                   ctl->dry_run ? "would be done" : "done", human_count(restart), not_done);
        show_certificate(answer, ctl->dry_run);
    }
    json_decref(answer);
    return CTL_OK;
}

#define PEER_ARG_BYTES 4352 /* of one argument, which has at most the names of all tenants */

/* Adds "KEY=VALUE" if the value was given. */
static void peer_arg(const char **args, uint32_t *n, const char *key, const char *value)
{
    static char text[5][PEER_ARG_BYTES];

    if (!value)
        return;
    if (snprintf(text[*n], PEER_ARG_BYTES, "%s=%s", key, value) >= PEER_ARG_BYTES)
        ctl_fail(CTL_USAGE, "%s is too long", key);
    args[*n] = text[*n];
    (*n)++;
}

static int peer_add(struct ctl *ctl)
{
    const char *args[5];
    json_t *answer;
    uint32_t n = 0;

    if (!ctl->more[1])
        ctl_fail(CTL_USAGE, "peer add NAME HOST:PORT --tenants NAME+NAME");
    peer_arg(args, &n, "name", ctl->more[0]);
    peer_arg(args, &n, "address", ctl->more[1]);
    peer_arg(args, &n, "tenants", ctl->tenants);
    peer_arg(args, &n, "transport", ctl->transport);
    answer = ctl_ask(ctl, "peer-add", args, n);
    if (!ctl_print_json(ctl, answer))
        printf("%s is now a peer, until it is removed or the daemon ends; %s of %s slots are in "
               "use: `ternctl peers` shows its link\n",
               j_str(answer, "peer"), human_count(j_u64(answer, "peers")),
               human_count(j_u64(answer, "limit")));
    json_decref(answer);
    return CTL_OK;
}

static int peer_remove(struct ctl *ctl)
{
    const char *args[1];
    json_t *answer;
    uint32_t n = 0;

    if (!ctl->more[0] || ctl->more[1])
        ctl_fail(CTL_USAGE, "peer remove NAME");
    peer_arg(args, &n, "name", ctl->more[0]);
    answer = ctl_ask(ctl, "peer-remove", args, n);
    if (!ctl_print_json(ctl, answer)) {
        printf("%s is no longer a peer; its transfers end\n", j_str(answer, "peer"));
        if (strcmp(j_str(answer, "origin"), "file") == 0)
            printf("the daemon's configuration names this peer: unless you remove its entry, a "
                   "reload adds it again\n");
    }
    json_decref(answer);
    return CTL_OK;
}

static int run_peer(struct ctl *ctl)
{
    if (strcmp(ctl->operand, "add") == 0)
        return peer_add(ctl);
    if (strcmp(ctl->operand, "remove") == 0)
        return peer_remove(ctl);
    ctl_fail(CTL_USAGE, "'%.40s' is neither add nor remove", ctl->operand);
}

static double now_us(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (double)ts.tv_sec * 1e6 + (double)ts.tv_nsec / 1e3;
}

static int run_ping(struct ctl *ctl)
{
    double least = 0, most = 0, sum = 0;
    char incarnation[24];
    enum tern_err err;
    json_t *answer;

    ctl_connect(ctl);
    for (uint32_t i = 0; i < ctl->count; i++) {
        double before = now_us(), took;

        err = tern_ping(ctl->tern, CTL_DEADLINE_MS);
        if (err != TERN_OK)
            ctl_refused(ctl, err);
        took = now_us() - before;
        least = i == 0 || took < least ? took : least;
        most = took > most ? took : most;
        sum += took;
    }
    snprintf(incarnation, sizeof(incarnation), "%016llx",
             (unsigned long long)tern_incarnation(ctl->tern));
    answer = json_pack("{s:s, s:I, s:f, s:f, s:f}", "incarnation", incarnation, "count",
                       (json_int_t)ctl->count, "us_min", least, "us_mean", sum / ctl->count,
                       "us_max", most);
    if (!ctl_print_json(ctl, answer))
        printf("%u answers from incarnation %s: %.1f us at best, %.1f us on average, %.1f us at "
               "worst\n",
               ctl->count, incarnation, least, sum / ctl->count, most);
    json_decref(answer);
    return CTL_OK;
}

/* ---- the rows ---- */

static const struct argp_option evict_options[] = {
    {"pool", OPT_POOL, "POOL", 0, "Only this pool: its handle or its slot (ternctl pools)", 0},
    {"nodes", OPT_NODES, "N", 0, "At most N nodes; default: all that are not in use", 0},
    {0},
};

static const struct argp_option drain_options[] = {
    {"wait", OPT_WAIT, "TIME", OPTION_ARG_OPTIONAL,
     "Wait for the end, at most TIME: 60s, 15m, 2h; default: 24h", 0},
    {0},
};

static const struct argp_option reload_options[] = {
    {"dry-run", OPT_DRY_RUN, NULL, 0, "Change nothing: only report what would be done", 0},
    {0},
};

static const struct argp_option peer_options[] = {
    {"tenants", OPT_TENANTS, "NAME+NAME", 0, "add: the tenants whose pages the peer may fetch", 0},
    {"transport", OPT_TRANSPORT, "TRANSPORT", 0, "add: transport of the peer's pages; default: tcp",
     0},
    {0},
};

static const struct argp_option ping_options[] = {
    {"count", OPT_COUNT, "N", 0, "Number of pings; default: 5", 0},
    {0},
};

const struct command act_commands[] = {
    {"evict", "", "Evicts prefixes that are not in use",
     "  ternctl evict\n  ternctl evict --pool 0 --nodes 100\n\nThe least recently used are evicted "
     "first. A node that is on the host too is evicted from the device first, then from the host, "
     "and counts twice. Host copies of nodes that are in use on the device stay.\n",
     evict_options, 0, run_evict},
    {"pin", "NODE", "Keeps a prefix on the device until it is unpinned",
     "  ternctl pin 0000000100000002\n\nNODE as `ternctl tree` shows it. The whole path to it "
     "stays. Pins of one node are counted.\n",
     NULL, 1, run_pin},
    {"unpin", "NODE", "Removes one pin of a prefix", "  ternctl unpin 0000000100000002\n", NULL, 1,
     run_unpin},
    {"drain", "", "Refuses new sessions; ends the daemon after the last one",
     "  ternctl drain && ternctl sessions\n  ternctl drain --wait=60s\n\nWith --wait the exit "
     "status is 0 once all sessions ended by themselves, and 4 if some were open when TIME or the "
     "daemon's deadline passed, the drain was undone or the daemon ended.\n",
     drain_options, 0, run_drain},
    {"undrain", "", "Accepts new sessions again, while the daemon drains",
     "  ternctl undrain\n\nA drain that a signal started cannot be undone.\n", NULL, 0,
     run_undrain},
    {"reload", "", "Reads the configuration and the certificates again",
     "  ternctl reload --dry-run\n  ternctl reload\n\nSIGHUP does the same. Each difference is "
     "listed: done, or needs a restart, and why. New connections use the new certificates. If the "
     "file or a certificate is wrong, nothing changes, and the cause is printed.\n",
     reload_options, 0, run_reload},
    {"peer", "ACTION NAME", "Adds or removes a peer, without a restart",
     "  ternctl peer add host3 host3:7000 --tenants default\n  ternctl peer remove host3\n\nAn "
     "added peer is in no file: it lasts until the daemon ends, and a reload does not change it. "
     "Transfers with a removed peer end as when its link is lost.\n",
     peer_options, 1 + CTL_OPERANDS_MAX, run_peer},
    {"ping", "", "Measures how long the daemon takes to answer",
     "  ternctl ping\n  ternctl ping --count 100 --json\n", ping_options, 0, run_ping},
    {0},
};
