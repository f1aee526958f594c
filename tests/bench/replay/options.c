/* Command line of tern-replay: see options.h. */
#include "options.h"

#include <argp.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tern_version.h>

const char *argp_program_version TERN_ARGP = "tern-replay " TERN_VERSION;

enum key {
    KEY_TRACE = 256,
    KEY_PROFILE,
    KEY_PAGE_BYTES,
    KEY_SEED,
    KEY_SESSIONS,
    KEY_TURNS,
    KEY_TURN_TOKENS,
    KEY_SPEED,
    KEY_LIMIT,
    KEY_CONCURRENCY,
    KEY_RANKS,
    KEY_POOL_PAGES,
    KEY_HOST_PAGES,
    KEY_PREFILL_TOKENS,
    KEY_SUPERSEDE,
    KEY_CORRUPT,
    KEY_TICKETS,
    KEY_ABORTS,
    KEY_SPAWN,
    KEY_TLS,
    KEY_PUSH,
    KEY_PREFILL,
    KEY_DECODE,
    KEY_PEER,
    KEY_JSON,
    KEY_RESHARD,
    KEY_FOLLOW,
    KEY_CHECKSUMS,
};

static const struct argp_option table[] = {
    {0, 0, 0, 0, "Workload", 1},
    {"trace", KEY_TRACE, "FILE", 0,
     "Play this Mooncake JSONL file; default: multi-turn sessions generated from a seed", 1},
    {"limit", KEY_LIMIT, "N", 0, "Only the first N requests", 1},
    {"speed", KEY_SPEED, "N|max", 0,
     "N times the trace's own pace; default: max, as fast as possible", 1},
    {"seed", KEY_SEED, "N", 0, "Seed of the generator (1)", 1},
    {"sessions", KEY_SESSIONS, "N", 0, "Sessions of the generator (16)", 1},
    {"turns", KEY_TURNS, "N", 0, "Turns of each generated session (8)", 1},
    {"turn-tokens", KEY_TURN_TOKENS, "N", 0,
     "Tokens of each generated user message; default: random, 1 to 400", 1},
    {0, 0, 0, 0, "Engines", 2},
    {"profile", KEY_PROFILE, "NAME", 0,
     "tiny, tiny-16, tiny-256, tiny-state, hybrid, llama-70b, deepseek-v3 or deepseek-v4 (tiny)",
     2},
    {"page-bytes", KEY_PAGE_BYTES, "N", 0,
     "Bytes of every group's pages over all ranks; default: the profile's", 2},
    {"supersede", KEY_SUPERSEDE, "lazy|eager|off", 0,
     "When STATE pages that a deeper resume point supersedes are freed (lazy)", 2},
    {"concurrency", KEY_CONCURRENCY, "N", 0, "Requests in flight on each side (1)", 2},
    {"ranks", KEY_RANKS, "P:D", 0,
     "Rank processes of the prefill and the decode engine; equal (1:1)", 2},
    {"pool-pages", KEY_POOL_PAGES, "N", 0,
     "Pages of each group and daemon; default: enough for all", 2},
    {"host-pages", KEY_HOST_PAGES, "N", 0,
     "Pages of each group in a host tier on each daemon; default: 0, no host tier", 2},
    {"prefill-tokens", KEY_PREFILL_TOKENS, "N", 0,
     "Tokens of a request that one step of the prefill engine computes, in whole pages; default: "
     "245760",
     2},
    {"corrupt", KEY_CORRUPT, "N", 0,
     "Flip a byte in N distinct pages when they arrive, once each; needs --spawn", 2},
    {"checksums", KEY_CHECKSUMS, 0, 0,
     "The engines compute the checksums of their commits by their own kernels; for pools on GPUs",
     2},
    {"tickets", KEY_TICKETS, 0, 0,
     "Hand over by ticket, with the last tokens, STATE of exactly that length and a blob of the "
     "engine; default: the decode side fetches whole pages by their tokens",
     2},
    {"aborts", KEY_ABORTS, "P", 0,
     "With --tickets: the part of hand-overs, from 0 to 1, in which a fault chosen by the seed "
     "occurs: sessions are aborted or retracted, fetches cancelled, tickets dropped, forged or not "
     "fetched (0)",
     2},
    {"reshard", KEY_RESHARD, 0, 0,
     "Play the matrix of shardings. Must be the first option, and has its own options: --reshard "
     "--help",
     2},
    {"follow", KEY_FOLLOW, 0, 0,
     "Measure the waits of decode when it follows prefill. Must be the first option, and has its "
     "own options: --follow --help",
     2},
    {0, 0, 0, 0, "Daemons", 3},
    {"spawn", KEY_SPAWN, 0, 0, "Start both daemons for this run, and end them after it", 3},
    {"tls", KEY_TLS, "DIR", 0,
     "Use TLS between the daemons, with the certificates of `deploy/make-certs.sh DIR prefill "
     "decode`",
     3},
    {"push", KEY_PUSH, 0, 0,
     "Require that the prefill daemon writes the pages by RDMA: with --spawn both daemons get "
     "`transport: verbs`, other daemons must have it",
     3},
    {"prefill", KEY_PREFILL, "SOCKET[,ADMIN]", 0,
     "Sockets of the prefill daemon; default for ADMIN: admin.sock in the same folder", 3},
    {"decode", KEY_DECODE, "SOCKET[,ADMIN]", 0, "Sockets of the decode daemon, likewise", 3},
    {"peer", KEY_PEER, "NAME", 0,
     "Name of the prefill daemon among the decode daemon's peers (prefill)", 3},
    {"json", KEY_JSON, 0, 0, "One JSON object on standard output instead of the summary", 3},
    {0},
};

static const char doc[] =
    "Plays a workload through a prefill daemon and a decode daemon, with two engines in processes "
    "of their own, and compares every byte that arrives with the expected byte.\vOne request is "
    "one session on each side. If a pool is full, sessions are retracted, to the host tier if "
    "there is one, and recovered later; if that does not help, a request is aborted and retried, "
    "up to 200 times; then it has failed. Exit status: 0 nothing was wrong, failed or leaked and "
    "every prompt page was compared; 1 if not; 2 the run could not start.\n\nEnvironment: "
    "TERN_PREFILL_DEVICES and TERN_DECODE_DEVICES are NAME+NAME, the devices by which the ranks of "
    "each engine join; docs/programs.md has those for the daemons of --spawn.";

static uint64_t number(struct argp_state *state, const char *name, const char *text, uint64_t least,
                       uint64_t most)
{
    char *end;
    unsigned long long v;

    errno = 0;
    v = strtoull(text, &end, 10);
    if (errno || end == text || *end || *text == '-' || v < least || v > most)
        argp_error(state, "--%s takes a whole number from %llu to %llu", name,
                   (unsigned long long)least, (unsigned long long)most);
    return v;
}

static uint32_t u32(struct argp_state *state, const char *name, const char *text, uint32_t least,
                    uint32_t most)
{
    return (uint32_t)number(state, name, text, least, most);
}

static double speed(struct argp_state *state, const char *text)
{
    char *end;
    double v;

    if (strcmp(text, "max") == 0)
        return 0;
    v = strtod(text, &end);
    if (end == text || *end || !(v > 0 && v < 1e9))
        argp_error(state, "--speed takes a positive number or max");
    return v;
}

static double share(struct argp_state *state, const char *name, const char *text)
{
    char *end;
    double v = strtod(text, &end);

    if (end == text || *end || !(v >= 0 && v <= 1))
        argp_error(state, "--%s takes a number from 0 to 1", name);
    return v;
}

static uint32_t ranks(struct argp_state *state, const char *text)
{
    unsigned p = 0, d = 0;
    char rest;

    if (sscanf(text, "%u:%u%c", &p, &d, &rest) != 2 || p == 0 || p > TERN_RANKS_MAX)
        argp_error(state, "--ranks takes P:D, each from 1 to %u", TERN_RANKS_MAX);
    if (p != d)
        argp_error(
            state,
            "--ranks %s: both sides must have equal numbers of ranks; --reshard plays others",
            text);
    return p;
}

static void address(struct argp_state *state, const char *name, const char *text, char socket[108],
                    char admin[108])
{
    const char *comma = strchr(text, ','), *slash;
    size_t n = comma ? (size_t)(comma - text) : strlen(text);
    int got;

    if (n == 0 || n >= 108)
        argp_error(state, "--%s takes the path of a tenant's Unix socket", name);
    memcpy(socket, text, n);
    socket[n] = 0;
    slash = strrchr(socket, '/');
    if (comma)
        got = snprintf(admin, 108, "%s", comma + 1);
    else
        got = snprintf(admin, 108, "%.*sadmin.sock", slash ? (int)(slash + 1 - socket) : 0, socket);
    if (got < 0 || got >= 108)
        argp_error(state, "--%s: the admin socket's path is too long", name);
}

static error_t read_source(int key, char *arg, struct argp_state *state)
{
    struct options *o = state->input;

    switch (key) {
    case KEY_TRACE: o->source.trace = arg; return 0;
    case KEY_LIMIT: o->source.limit = number(state, "limit", arg, 1, UINT32_MAX); return 0;
    case KEY_SPEED: o->speed = speed(state, arg); return 0;
    case KEY_SEED: o->source.seed = number(state, "seed", arg, 0, UINT64_MAX); return 0;
    case KEY_SESSIONS: o->source.sessions = u32(state, "sessions", arg, 1, 100000); return 0;
    case KEY_TURN_TOKENS:
        o->source.turn_tokens = u32(state, "turn-tokens", arg, 1, PROMPT_TOKENS_MAX);
        return 0;
    case KEY_TURNS: o->source.turns = u32(state, "turns", arg, 1, 100000); return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

static void check_all(struct argp_state *state, const struct options *o)
{
    struct geometry g;
    const char *why = geometry_init(&g, o->profile, o->page_bytes, o->ranks, 1);

    if (why)
        argp_error(state, "--profile %s --ranks %u: %s", o->profile->name, o->ranks, why);
    if (o->spawn == (o->prefill_socket[0] || o->decode_socket[0]))
        argp_error(state, "give either --spawn, or --prefill and --decode");
    if (!o->spawn && !(o->prefill_socket[0] && o->decode_socket[0]))
        argp_error(state, "--prefill and --decode must be given together");
    if (o->tls && !o->spawn)
        argp_error(state, "--tls needs --spawn: running daemons have their own configuration");
    if (o->aborts > 0 && !o->tickets)
        argp_error(state, "--aborts needs --tickets: it makes hand-overs by ticket fail");
    if (o->corrupt && !o->spawn)
        argp_error(state, "--corrupt needs --spawn: only the daemons of this run may flip bytes");
}

static enum tern_supersede supersede(struct argp_state *state, const char *text)
{
    if (strcmp(text, "eager") == 0)
        return TERN_SUPERSEDE_EAGER;
    if (strcmp(text, "off") == 0)
        return TERN_SUPERSEDE_OFF;
    if (strcmp(text, "lazy") != 0)
        argp_error(state, "--supersede takes lazy, eager or off");
    return TERN_SUPERSEDE_LAZY;
}

static error_t read_option(int key, char *arg, struct argp_state *state)
{
    struct options *o = state->input;
    const char *why;

    switch (key) {
    case KEY_PROFILE:
        o->profile = profile_find(arg, &why);
        if (!o->profile)
            argp_error(state, "--profile %s: %s", arg, why);
        return 0;
    case KEY_PAGE_BYTES: o->page_bytes = number(state, "page-bytes", arg, 64, 1u << 30); return 0;
    case KEY_CONCURRENCY:
        o->concurrency = u32(state, "concurrency", arg, 1, CONCURRENCY_MAX);
        return 0;
    case KEY_SUPERSEDE: o->supersede = supersede(state, arg); return 0;
    case KEY_RANKS: o->ranks = ranks(state, arg); return 0;
    case KEY_POOL_PAGES: o->pool_pages = u32(state, "pool-pages", arg, 1, 1u << 28); return 0;
    case KEY_HOST_PAGES: o->host_pages = u32(state, "host-pages", arg, 0, 1u << 28); return 0;
    case KEY_PREFILL_TOKENS:
        o->prefill_tokens = u32(state, "prefill-tokens", arg, 1, PROMPT_TOKENS_MAX);
        return 0;
    case KEY_CORRUPT: o->corrupt = u32(state, "corrupt", arg, 0, 1u << 28); return 0;
    case KEY_CHECKSUMS: o->checksums = true; return 0;
    case KEY_TICKETS: o->tickets = true; return 0;
    case KEY_ABORTS: o->aborts = share(state, "aborts", arg); return 0;
    case KEY_SPAWN: o->spawn = true; return 0;
    case KEY_PUSH: o->push = true; return 0;
    case KEY_TLS:
        o->tls = realpath(arg, NULL); /* never freed */
        if (!o->tls)
            argp_error(state, "--tls %s: %s", arg, strerror(errno));
        return 0;
    case KEY_PREFILL: address(state, "prefill", arg, o->prefill_socket, o->prefill_admin); return 0;
    case KEY_DECODE: address(state, "decode", arg, o->decode_socket, o->decode_admin); return 0;
    case KEY_PEER: o->peer = arg; return 0;
    case KEY_JSON: o->json = true; return 0;
    case KEY_FOLLOW: argp_error(state, "--follow must be the first option"); return 0;
    case KEY_RESHARD: argp_error(state, "--reshard must be the first option"); return 0;
    case ARGP_KEY_ARG:
        argp_error(state, "\"%s\" is not an option; name a trace with --trace", arg);
        return 0;
    case ARGP_KEY_END: check_all(state, o); return 0;
    default: return read_source(key, arg, state);
    }
}

void options_read(int argc, char **argv, struct options *ret)
{
    static const struct argp parser = {.options = table, .parser = read_option, .doc = doc};
    const char *why;

    *ret = (struct options){
        .source = {.seed = 1, .sessions = 16, .turns = 8},
        .profile = profile_find("tiny", &why),
        .concurrency = 1,
        .prefill_tokens = PREFILL_TOKENS,
        .ranks = 1,
        .peer = "prefill",
    };
    argp_err_exit_status = 2;
    argp_parse(&parser, argc, argv, 0, NULL, ret);
}
