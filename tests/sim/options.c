/* Command line of tern-sim: see options.h. */
#include "options.h"

#include <argp.h>
#include <errno.h>
#include <stdlib.h>
#include <tern_version.h>

#include "bugrun.h"

const char *argp_program_version TERN_ARGP = "tern-sim " TERN_VERSION;

enum key {
    KEY_SEEDS = 256,
    KEY_FIRST,
    KEY_JSON,
    KEY_TWICE,
    KEY_SHRINK,
    KEY_TAPE,
    KEY_VERBOSE,
    KEY_AUDIT,
    KEY_KEEP_GOING,
    KEY_RDMA,
    KEY_LARGE,
    KEY_FLEET,
    KEY_BUG,
    KEY_RUNS,
};

static const struct argp_option table[] = {
    {"seeds", KEY_SEEDS, "N", 0, "Play N histories; default: 1000", 0},
    {"first", KEY_FIRST, "SEED", 0,
     "The first seed; default: 1. Seed S is the same history everywhere", 0},
    {"json", KEY_JSON, NULL, 0, "One JSON object on standard output", 0},
    {"twice", KEY_TWICE, NULL, 0,
     "Play each history twice, under two secrets, and compare the state hashes", 0},
    {"shrink", KEY_SHRINK, "DIR", 0, "Shrink each failing history and write it to DIR", 0},
    {"tape", KEY_TAPE, "FILE", 0, "Replay a shrunk history, or a tape that a daemon recorded", 0},
    {"verbose", KEY_VERBOSE, NULL, 0, "Print every choice and its effect", 0},
    {"audit", KEY_AUDIT, "N", 0, "Audit the cores' memory after every Nth step; default: 0, never",
     0},
    {"keep-going", KEY_KEEP_GOING, NULL, 0, "Do not stop after 8 failing seeds", 0},
    {"rdma", KEY_RDMA, NULL, 0,
     "Play histories of transfers only, over modelled NICs and sockets; --bug N plants one of the "
     "seam's bugs",
     0},
    {"large", KEY_LARGE, NULL, 0,
     "Play only histories with large geometries: one core with tables and windows near their "
     "limits, with a check of each step's cost. Without --large, every eighth seed also plays one",
     0},
    {"fleet", KEY_FLEET, NULL, 0,
     "Play histories of three daemons: resets over two hops, two sources, tickets that are "
     "followed and handed on, leases, peers that join and leave, and restarts with other limits, "
     "budgets and layouts",
     0},
    {"bug", KEY_BUG, "N|all", 0,
     "Plant bug N and print how many seeds found it (tern-sim-bugs only). --shrink DIR writes a "
     "short history of each bug, --tape FILE replays one",
     0},
    {"runs", KEY_RUNS, "N", 0,
     "Search for each planted bug N times, from first seeds far apart; default: 5", 0},
    {0},
};

static const char doc[] =
    "Plays histories of two Tern cores under faults and checks every promise after every "
    "event.\vHistories per second are per second of this process's CPU time.\n\nExit status: 0 no "
    "violation and no mark missed; 1 if not; 2 wrong command line or unreadable file.";

/* A mistyped number must not become an empty run that passes. */
static uint64_t number(struct argp_state *state, const char *name, const char *text, uint64_t least)
{
    char *end;
    uint64_t v;

    errno = 0;
    v = strtoull(text, &end, 0);
    if (*text < '0' || *text > '9' || *end || errno || v < least)
        argp_error(state, "--%s takes a whole number from %llu", name, (unsigned long long)least);
    return v;
}

static error_t read_option(int key, char *arg, struct argp_state *state)
{
    struct options *o = state->input;

    switch (key) {
    case KEY_SEEDS: o->seeds = number(state, "seeds", arg, 1); return 0;
    case KEY_FIRST: o->first = number(state, "first", arg, 0); return 0;
    case KEY_AUDIT: o->audit_every = number(state, "audit", arg, 0); return 0;
    case KEY_JSON: o->json = true; return 0;
    case KEY_TWICE: o->twice = true; return 0;
    case KEY_SHRINK: o->shrink_to = arg; return 0;
    case KEY_TAPE: o->tape = arg; return 0;
    case KEY_VERBOSE: o->verbose = true; return 0;
    case KEY_KEEP_GOING: o->keep_going = true; return 0;
    case KEY_BUG: o->bug = arg; return 0;
    case KEY_RUNS:
        o->runs = number(state, "runs", arg, 1);
        if (o->runs > BUG_RUNS_MAX)
            argp_error(state, "--runs takes at most %u", BUG_RUNS_MAX);
        return 0;
    case KEY_FLEET: o->fleet = true; return 0;
    case KEY_LARGE: o->large = true; return 0;
    case KEY_RDMA: o->rdma = true; return 0;
    case ARGP_KEY_ARG: argp_error(state, "\"%s\" is not an option", arg); return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

void options_read(int argc, char **argv, struct options *ret)
{
    static const struct argp parser = {.options = table, .parser = read_option, .doc = doc};

    *ret = (struct options){.seeds = 1000, .first = 1, .runs = BUG_RUNS_MAX};
    argp_err_exit_status = 2;
    argp_parse(&parser, argc, argv, 0, NULL, ret);
}
