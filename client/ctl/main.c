/* ternctl, the operator's program: the command line. Each command has a parser of its own, so that
 * `ternctl COMMAND --help` covers only that command. */
#include "ctl.h"

#include <stdlib.h>
#include <string.h>
#include <tern_version.h>
#include <unistd.h>

#include "client/program.h"

const char *argp_program_version TERN_ARGP = "ternctl " TERN_VERSION;

#define DAY_S 86400u

static const struct number_range every_range = {100, 60000}; /* milliseconds, for top */

#define EXIT_STATUS                                                                                \
    "Exit status: 0 done, 1 refused or failed, 2 wrong command line, 3 no daemon answers, 4 "      \
    "drain --wait ended with sessions open."

/* As help shows them. */
const struct command *const ctl_groups[] = {
    show_commands, doctor_commands, top_commands, stats_commands, moves_commands, disk_commands,
    tree_commands, watch_commands,  act_commands, tape_commands,  end_commands,   NULL};

static const struct command *command_of(const char *name)
{
    for (size_t i = 0; ctl_groups[i]; i++)
        for (const struct command *c = ctl_groups[i]; c->name; c++)
            if (strcmp(c->name, name) == 0)
                return c;
    return NULL;
}

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
    uint32_t operands; /* so far */
    struct ctl *ctl;
    const struct command *command;
    bool verb_given;
};

static uint64_t number(struct argp_state *state, const char *option, const char *arg, uint64_t max)
{
    return program_number(state, option, arg, (struct number_range){1, max});
}

/* "90", "90s", "15m" or "2h", in seconds. */
static uint32_t seconds(struct argp_state *state, const char *option, const char *arg)
{
    static const char units[] = "smh";
    static const uint32_t each[] = {1, 60, 3600};
    size_t n = strspn(arg, "0123456789");
    const char *unit = arg[n] ? strchr(units, arg[n]) : units;
    uint64_t v = n > 0 && n < 6 ? strtoull(arg, NULL, 10) : 0;

    if (!unit || (arg[n] && arg[n + 1]) || v == 0 || v * each[unit - units] > DAY_S)
        argp_error(state, "%s takes a time from 1s to 24h, such as 60s, 15m or 2h, not '%s'",
                   option, arg);
    return (uint32_t)(v * each[unit - units]);
}

/* Returns the bytes of the command's words before its operand, as in "close SESSION".
 */
static size_t verb_of(const struct command *c)
{
    size_t n = strspn(c->args, "abcdefghijklmnopqrstuvwxyz");

    return c->args[n] == ' ' ? n : 0;
}

static void take_word(struct parse *p, struct argp_state *state, char *arg)
{
    const char *args = p->command->args;
    size_t verb = verb_of(p->command);

    if (verb && !p->verb_given) {
        if (strlen(arg) != verb || strncmp(arg, args, verb) != 0)
            argp_error(state, "'%s' is not an action: use `ternctl %s %s`", arg, p->command->name,
                       args);
        p->verb_given = true;
        return;
    }
    if (p->operands >= p->command->operands)
        argp_error(state, "'%s' is one argument too many", arg);
    *(p->operands == 0 ? &p->ctl->operand : &p->ctl->more[p->operands - 1]) = arg;
    p->operands++;
}

static error_t parse_command(int key, char *arg, struct argp_state *state)
{
    struct parse *p = state->input;

    switch (key) {
    case ARGP_KEY_INIT: state->child_inputs[0] = p->ctl; return 0;
    case OPT_POOL: p->ctl->pool = arg; return 0;
    case OPT_TENANT: p->ctl->tenant = arg; return 0;
    case OPT_ENGINE: p->ctl->engine = arg; return 0;
    case OPT_PEER: p->ctl->peer = arg; return 0;
    case OPT_NODES: p->ctl->nodes = (uint32_t)number(state, "--nodes", arg, UINT32_MAX); return 0;
    case OPT_COUNT: p->ctl->count = (uint32_t)number(state, "--count", arg, UINT32_MAX); return 0;
    case OPT_SVG: p->ctl->svg = arg; return 0;
    case OPT_KEY: p->ctl->key = arg; return 0;
    case OPT_FROM: p->ctl->from = number(state, "--from", arg, INT64_MAX); return 0;
    case OPT_CHANGES:
        p->ctl->changes = (uint32_t)number(state, "--changes", arg, UINT32_MAX);
        return 0;
    case OPT_WAIT:
        p->ctl->wait = true;
        p->ctl->wait_s = arg ? seconds(state, "--wait", arg) : DAY_S;
        return 0;
    case OPT_TOKENS: p->ctl->tokens = true; return 0;
    case OPT_DRY_RUN: p->ctl->dry_run = true; return 0;
    case OPT_TRANSPORT: p->ctl->transport = arg; return 0;
    case OPT_TENANTS: p->ctl->tenants = arg; return 0;
    case OPT_EVERY:
        p->ctl->every_ms = (uint32_t)program_number(state, "--every", arg, every_range);
        return 0;
    case OPT_ONCE: p->ctl->once = true; return 0;
    case OPT_WIDE: p->ctl->wide = true; return 0;
    case ARGP_KEY_ARG: take_word(p, state, arg); return 0;
    case ARGP_KEY_END:
        if (p->command->operands > 0 && !p->ctl->operand)
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
    if (ctl->json)
        ctl_json_errors();
    ctl->command = command;
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
    for (size_t i = 0; ctl_groups[i]; i++)
        for (const struct command *c = ctl_groups[i]; c->name; c++)
            fprintf(f, "  %-10s %-5s %s\n", c->name, c->args, c->summary);
    fprintf(f,
            "\n`ternctl COMMAND --help` explains a command. Examples:\n  ternctl status\n  ternctl "
            "--socket /run/tern/admin.sock tree\n  ternctl pools --json | jq .\n\n" EXIT_STATUS);
    fclose(f);
    return out;
}

static error_t parse_top(int key, char *arg, struct argp_state *state)
{
    struct top *top = state->input;

    switch (key) {
    case ARGP_KEY_INIT: state->child_inputs[0] = top->ctl; return 0;
    case ARGP_KEY_ARG:
        top->command = command_of(arg);
        if (strcmp(arg, "log-level") == 0)
            argp_error(state, "log-level was retired: set log_level in the configuration, then "
                              "`ternctl reload`");
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

/* Errors of the command line itself are also printed as JSON, so --json is looked up before
 * parsing. */
static bool asks_json(int argc, char **argv)
{
    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++) {
        if (strcmp(argv[i], "--json") == 0 || strcmp(argv[i], "-j") == 0)
            return true;
    }
    return false;
}

int main(int argc, char **argv)
{
    struct argp_child children[] = {{&common, 0, NULL, 0}, {0}};
    const char *from_env = getenv("TERN_ADMIN_SOCKET"), *no_colour = getenv("NO_COLOR"),
               *terminal = getenv("TERM");
    struct ctl ctl = {.socket = from_env && *from_env ? from_env : CTL_SOCKET_DEFAULT,
                      .count = 5,
                      .every_ms = CTL_EVERY_MS};
    struct top top = {.ctl = &ctl};
    struct argp argp = {
        .parser = parse_top,
        .args_doc = "COMMAND [OPTION...]",
        .doc = "ternctl inspects and controls a Tern daemon.\v ",
        .children = children,
        .help_filter = help_filter,
    };
    int status;

    ctl.colour = isatty(STDOUT_FILENO) && !(no_colour && *no_colour) &&
                 !(terminal && strcmp(terminal, "dumb") == 0);
    argp_err_exit_status = CTL_USAGE;
    if (asks_json(argc, argv))
        ctl_json_errors();
    argp_parse(&argp, argc, argv, ARGP_IN_ORDER, NULL, &top);
    status = run_command(top.command, &ctl, argc - top.at, argv + top.at);
    tern_destroy(ctl.tern);
    /* A full disk or a closed pipe behind standard output is a failure of the command. */
    if (fflush(stdout) != 0 || ferror(stdout))
        return CTL_FAILED;
    return status;
}
