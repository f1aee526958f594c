/* ternctl: the operator's program. Here: the command line. Each command has a parser of its own, so
 * that `ternctl COMMAND --help` tells about that command alone. */
#include "ctl.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <tern_version.h>
#include <unistd.h>

const char *argp_program_version TERN_ARGP = "ternctl " TERN_VERSION;

enum {
    OPT_POOL = 'p',
    OPT_NODES = 'n',
    OPT_COUNT = 'c',
    OPT_TOKENS = 't',
    OPT_FROM = 'f',
    OPT_CHANGES = 'm',
    OPT_SVG = 'g',
};

#define EXIT_STATUS                                                                                \
    "Exit status: 0 done, 1 refused or failed, 2 wrong command line, 3 no daemon answers there."

static const struct argp_option tree_options[] = {
    {"pool", OPT_POOL, "POOL", 0, "Only this pool: its handle or its slot (ternctl pools)", 0},
    {"svg", OPT_SVG, "FILE", 0,
     "Draws the tree into FILE instead: an icicle, one pool above the next", 0},
    {0},
};

static const struct argp_option evict_options[] = {
    {"pool", OPT_POOL, "POOL", 0, "Only this pool: its handle or its slot (ternctl pools)", 0},
    {"nodes", OPT_NODES, "N", 0, "At most N nodes; default: all that nobody holds", 0},
    {0},
};

static const struct argp_option watch_options[] = {
    {"from", OPT_FROM, "NUMBER", 0,
     "Begin with that change, if it is still kept; default: the next to come", 0},
    {"changes", OPT_CHANGES, "N", 0, "End after N changes", 0},
    {0},
};

static const struct argp_option tape_options[] = {
    {"tokens", OPT_TOKENS, NULL, 0,
     "Keep token ids, which are your users' text, instead of hashes of them", 0},
    {0},
};

static const struct argp_option ping_options[] = {
    {"count", OPT_COUNT, "N", 0, "So many times; default: 5", 0},
    {0},
};

const struct command commands[] = {
    {"status", "", "What the daemon is, holds and has refused",
     "  ternctl status\n  ternctl status --json | jq '.pools[] | {group, free, total}'\n", NULL,
     false, run_status},
    {"pools", "", "Pools and where their pages are", "  ternctl pools\n", NULL, false, run_pools},
    {"sessions", "", "Open sessions: committed, written and allocated tokens",
     "  ternctl sessions\n  ternctl sessions --json | jq '.sessions | length'\n", NULL, false,
     run_sessions},
    {"engines", "", "Engines, their live processes and the steps they finished",
     "  ternctl engines\n", NULL, false, run_engines},
    {"peers", "", "Other daemons and whether they can be reached", "  ternctl peers\n", NULL, false,
     run_peers},
    {"doctor", "", "What this host has of RDMA, what of it is used, and why", "  ternctl doctor\n",
     NULL, false, run_doctor},
    {"transfers", "", "Page transfers under way, in both directions", "  ternctl transfers\n", NULL,
     false, run_transfers},
    {"tree", "", "The prefix tree: pages, tier, who holds it and for how long",
     "  ternctl tree\n  ternctl tree --pool 0 --svg /tmp/tree.svg\n\nNodes in a row without a "
     "branch, alike and held by nobody, are one line with the depths from..to; NODE is the last of "
     "them, for `ternctl pin`. TIER: device, host, both, or on its way (device>host).\nIn the "
     "drawing width is pages, colour is the tier, a dot a point to resume from.\n",
     tree_options, false, run_tree},
    {"evict", "", "Gives back prefixes that nobody holds",
     "  ternctl evict\n  ternctl evict --pool 0 --nodes 100\n\nLeast recently used ones go "
     "first; those that are on the host too leave the device first, then the host, and count "
     "twice. Copies on the host of what is held on the device stay.\n",
     evict_options, false, run_evict},
    {"pin", "NODE", "Keeps a prefix on the device until it is unpinned",
     "  ternctl pin 0000000100000002\n\nNODE as `ternctl tree` shows it. The whole path to it "
     "stays. Pins of one node are counted.\n",
     NULL, true, run_pin},
    {"unpin", "NODE", "Takes one pin of a prefix back", "  ternctl unpin 0000000100000002\n", NULL,
     true, run_unpin},
    {"watch", "", "What changes in the prefix tree, as it happens",
     "  ternctl watch\n  ternctl watch --from 1 --json | jq -c 'select(.event == "
     "\"removed\")'\n\nThe daemon keeps the last limits.events changes; one that watches too "
     "slowly is told how many it lost. With --json one object a line: the first is the number to "
     "begin at, and with which incarnation of the daemon.\n",
     watch_options, false, run_watch},
    {"drain", "", "Takes no new sessions; ends the daemon after the last one",
     "  ternctl drain && ternctl sessions\n", NULL, false, run_drain},
    {"reload", "", "Reads the certificates anew, for connections to come",
     "  ternctl reload\n\nSo does SIGHUP. New connections use the new files. If one of them is "
     "wrong, "
     "what was in force stays, and the reason is told.\n",
     NULL, false, run_reload},
    {"tape", "FILE", "Writes the daemon's last events to FILE",
     "  ternctl tape /tmp/tern.tape && tern-sim --tape /tmp/tern.tape\n\nIt is the daemon that "
     "writes: FILE must be "
     "where it may. An earlier FILE is replaced once the new one is whole.\n",
     tape_options, true, run_tape},
    {"ping", "", "How long the daemon takes to answer",
     "  ternctl ping\n  ternctl ping --count 100 --json\n", ping_options, false, run_ping},
};

const size_t commands_n = sizeof(commands) / sizeof(commands[0]);

static const struct argp_option common_options[] = {
    {"socket", 's', "PATH", 0,
     "The daemon's admin socket; default: $TERN_ADMIN_SOCKET, else " CTL_SOCKET_DEFAULT, 0},
    {"json", 'j', NULL, 0, "Print one JSON object, for programs", 0},
    {0},
};

static error_t parse_common(int key, char *arg, struct argp_state *state)
{
    struct ctl *ctl = state->input;

    switch (key) {
    case 's': ctl->socket = arg; return 0;
    case 'j': ctl->json = true; return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp common = {.options = common_options, .parser = parse_common};

/* ---- one command ---- */

struct parse {
    struct ctl *ctl;
    const struct command *command;
};

static uint64_t number(struct argp_state *state, const char *option, const char *arg, uint64_t max)
{
    char *end;
    unsigned long long v;

    errno = 0;
    v = strtoull(arg, &end, 10);
    if (*arg < '0' || *arg > '9' || *end || v == 0 || v > max || errno)
        argp_error(state, "%s takes a number from 1 to %llu, not '%s'", option,
                   (unsigned long long)max, arg);
    return v;
}

static error_t parse_command(int key, char *arg, struct argp_state *state)
{
    struct parse *p = state->input;

    switch (key) {
    case ARGP_KEY_INIT: state->child_inputs[0] = p->ctl; return 0;
    case OPT_POOL: p->ctl->pool = arg; return 0;
    case OPT_NODES: p->ctl->nodes = (uint32_t)number(state, "--nodes", arg, UINT32_MAX); return 0;
    case OPT_COUNT: p->ctl->count = (uint32_t)number(state, "--count", arg, UINT32_MAX); return 0;
    case OPT_SVG: p->ctl->svg = arg; return 0;
    case OPT_FROM: p->ctl->from = number(state, "--from", arg, INT64_MAX); return 0;
    case OPT_CHANGES:
        p->ctl->changes = (uint32_t)number(state, "--changes", arg, UINT32_MAX);
        return 0;
    case OPT_TOKENS: p->ctl->tokens = true; return 0;
    case ARGP_KEY_ARG:
        if (!p->command->takes_operand || p->ctl->operand)
            argp_error(state, "'%s' is one argument too many", arg);
        p->ctl->operand = arg;
        return 0;
    case ARGP_KEY_END:
        if (p->command->takes_operand && !p->ctl->operand)
            argp_error(state, "%s is missing", p->command->args);
        return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

static int run_command(const struct command *command, struct ctl *ctl, int argc, char **argv)
{
    struct argp_child children[] = {{&common, 0, "Common options:", 1}, {0}};
    char name[64], doc[1024];
    struct parse p = {.ctl = ctl, .command = command};
    struct argp argp = {
        .options = command->options,
        .parser = parse_command,
        .args_doc = command->args,
        .doc = doc,
        .children = children,
    };

    snprintf(name, sizeof(name), "ternctl %s", command->name);
    snprintf(doc, sizeof(doc), "%s.\vExamples:\n%s\n" EXIT_STATUS, command->summary,
             command->examples);
    argv[0] = name;
    argp_err_exit_status = CTL_USAGE;
    argp_parse(&argp, argc, argv, 0, NULL, &p);
    return command->run(ctl);
}

/* ---- ternctl itself ---- */

struct top {
    struct ctl *ctl;
    const struct command *command;
    int at; /* of the command in argv */
};

static char *help_filter(int key, const char *text, void *input)
{
    char *out = NULL;
    size_t n = 0;
    FILE *f;

    (void)input;
    if (key != ARGP_KEY_HELP_POST_DOC || !(f = open_memstream(&out, &n)))
        return (char *)(uintptr_t)text;
    fprintf(f, "Commands:\n");
    for (size_t i = 0; i < commands_n; i++)
        fprintf(f, "  %-9s %-5s %s\n", commands[i].name, commands[i].args, commands[i].summary);
    fprintf(f, "\n`ternctl COMMAND --help` tells more. Examples:\n  ternctl status\n"
               "  ternctl --socket /run/tern/admin.sock tree\n  ternctl pools --json | jq "
               ".\n\n" EXIT_STATUS);
    fclose(f);
    return out;
}

static error_t parse_top(int key, char *arg, struct argp_state *state)
{
    struct top *top = state->input;

    switch (key) {
    case ARGP_KEY_INIT: state->child_inputs[0] = top->ctl; return 0;
    case ARGP_KEY_ARG:
        for (size_t i = 0; i < commands_n; i++) {
            if (strcmp(commands[i].name, arg) == 0)
                top->command = &commands[i];
        }
        if (!top->command)
            argp_error(state, "there is no command '%s'", arg);
        top->at = state->next - 1;
        state->next = state->argc; /* the rest is the command's own */
        return 0;
    case ARGP_KEY_NO_ARGS:
        argp_state_help(state, stderr, ARGP_HELP_STD_HELP & ~ARGP_HELP_EXIT_OK);
        exit(CTL_USAGE);
        return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

int main(int argc, char **argv)
{
    struct argp_child children[] = {{&common, 0, NULL, 0}, {0}};
    const char *from_env = getenv("TERN_ADMIN_SOCKET"), *no_colour = getenv("NO_COLOR"),
               *terminal = getenv("TERM");
    struct ctl ctl = {.socket = from_env && *from_env ? from_env : CTL_SOCKET_DEFAULT, .count = 5};
    struct top top = {.ctl = &ctl};
    struct argp argp = {
        .parser = parse_top,
        .args_doc = "COMMAND [OPTION...]",
        .doc = "ternctl looks into a Tern daemon and tells it what to do.\v ",
        .children = children,
        .help_filter = help_filter,
    };
    int status;

    ctl.colour = isatty(STDOUT_FILENO) && !(no_colour && *no_colour) &&
                 !(terminal && strcmp(terminal, "dumb") == 0);
    argp_err_exit_status = CTL_USAGE;
    argp_parse(&argp, argc, argv, ARGP_IN_ORDER, NULL, &top);
    status = run_command(top.command, &ctl, argc - top.at, argv + top.at);
    tern_destroy(ctl.tern);
    /* A full disk or a closed pipe behind standard output is a failure of what was asked for. */
    if (fflush(stdout) != 0 || ferror(stdout))
        return CTL_FAILED;
    return status;
}
