/* tern-agent: the command line, and the loop until a signal ends it. */
#include <argp.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/signalfd.h>
#include <tern_version.h>
#include <unistd.h>

#include "client/agent/http.h"
#include "client/agent/metrics.h"
#include "client/program.h"
#include "proto/host_name.h"

#define SOCKET_DEFAULT  "/run/tern/admin.sock"
#define LISTEN_DEFAULT  "127.0.0.1:7003"
#define DEADLINE_MS_MAX 60000

enum agent_exit {
    AGENT_FAILED = 1, /* it cannot listen there */
    AGENT_USAGE = 2,
};

enum {
    OPT_DEADLINE = 256,
    OPT_TENANTS,
    OPT_NAMESPACES,
    OPT_METRICS,
    OPT_HOST,
};

const char *argp_program_version TERN_ARGP = "tern-agent " TERN_VERSION;

static const struct argp_option options[] = {
    {"listen", 'l', "ADDRESS:PORT", 0,
     "ADDRESS:PORT to listen at; default: " LISTEN_DEFAULT
     ". Anyone who can connect may read it: it is HTTP without TLS",
     0},
    {"socket", 's', "PATH", 0,
     "The daemon's admin socket; default: $TERN_ADMIN_SOCKET, else " SOCKET_DEFAULT, 0},
    {"host", OPT_HOST, "NAME", 0,
     "A name or address that requests may have in Host, in addition to the address of --listen and "
     "localhost; any other Host gets 421, so that web pages of other sites cannot read the agent. "
     "May be given 16 times",
     0},
    {"deadline-ms", OPT_DEADLINE, "MS", 0,
     "Milliseconds that the daemon may take for all answers that one request needs; default: 1000",
     0},
    {"tenants", OPT_TENANTS, "N", 0,
     "Tenants with series of their own; the others are summed as `other`; default: 64", 0},
    {"namespaces", OPT_NAMESPACES, "N", 0,
     "Namespaces with series of their own; the others are summed as `other`; default: 100", 0},
    {"metrics", OPT_METRICS, NULL, 0, "Print the table of all metrics and exit", 0},
    {0},
};

struct settings {
    const char *listen;
    struct addrinfo *address; /* from `listen` */
    struct hosts hosts;
    struct agent *agent;
};

static uint32_t number(struct argp_state *state, const char *option, const char *arg, uint32_t max)
{
    return (uint32_t)program_number(state, option, arg, (struct number_range){1, max});
}

static void print_metrics(void)
{
    struct text text;

    text_begin(&text, METRICS_BYTES_MAX);
    metrics_describe(&text);
    fwrite(text.at, 1, text.bytes, stdout);
    exit(text.failed || fflush(stdout) != 0 ? AGENT_FAILED : 0);
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct settings *s = state->input;
    struct agent *a = s->agent;
    char why[HTTP_WHY_BYTES];

    switch (key) {
    case 'l': s->listen = arg; return 0;
    case 's': a->ask.socket = arg; return 0;
    case OPT_DEADLINE:
        a->ask.deadline_ms = number(state, "--deadline-ms", arg, DEADLINE_MS_MAX);
        return 0;
    case OPT_TENANTS: a->tenants = number(state, "--tenants", arg, SPACES_TENANTS_MAX); return 0;
    case OPT_NAMESPACES: a->spaces.limit = number(state, "--namespaces", arg, SPACES_MAX); return 0;
    case OPT_METRICS: print_metrics(); return 0;
    case OPT_HOST:
        if (!hosts_add(&s->hosts, arg))
            argp_error(state,
                       "--host takes a host's name or address, at most %u times, not "
                       "'%s': " HOST_NAME_WANTED,
                       HOSTS_MAX, arg);
        return 0;
    case ARGP_KEY_END:
        s->address = http_listen_address(s->listen, why);
        if (!s->address)
            argp_error(state, "%s", why);
        return 0;
    case ARGP_KEY_ARG: argp_error(state, "'%s' is one argument too many", arg); return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

/* Logs when the daemon stops answering, answers again, or fails for another reason than before. */
static void tell(const struct agent *a, enum ask_reason *told)
{
    if (a->ask.why == *told)
        return;
    *told = a->ask.why;
    fprintf(stderr, "tern-agent: %s: %s\n", a->ask.socket,
            *told == ASK_ANSWERED ? "the daemon answers" : ask_word(*told));
}

int main(int argc, char **argv)
{
    static struct agent agent = {.tenants = SPACES_TENANTS_MAX,
                                 .ask = {.deadline_ms = AGENT_DEADLINE_MS, .why = ASK_ANSWERED},
                                 .spaces = {.limit = AGENT_NAMESPACES}};
    const char *from_env = getenv("TERN_ADMIN_SOCKET");
    struct settings settings = {.listen = LISTEN_DEFAULT, .agent = &agent};
    const struct argp argp = {
        .options = options,
        .parser = parse,
        .doc =
            "tern-agent serves the metrics and state of a Tern daemon over HTTP: /metrics "
            "(Prometheus and OpenMetrics), /healthz and /readyz (200, or 503 with the cause in a "
            "word), and / (a page that shows the daemon, and reads /state.json). It changes "
            "nothing.\vExit status: 0 ended by a signal, 1 it cannot listen, 2 wrong command line.",
    };
    enum ask_reason told = ASK_ANSWERED;
    struct signalfd_siginfo signal_got;
    char text[HTTP_WHY_BYTES];
    struct http *http;
    int wake;

    agent.ask.socket = from_env && *from_env ? from_env : SOCKET_DEFAULT;
    argp_err_exit_status = AGENT_USAGE;
    argp_parse(&argp, argc, argv, 0, NULL, &settings);
    http = http_create(&agent, settings.address, &settings.hosts, text);
    freeaddrinfo(settings.address);
    if (!http) {
        fprintf(stderr, "tern-agent: %s: %s\n", settings.listen, text);
        return AGENT_FAILED;
    }
    http_address(http, text);
    fprintf(stderr, "tern-agent: listens at http://%s/\n", text);
    wake = program_end_signals();
    while (wake >= 0 && read(wake, &signal_got, sizeof(signal_got)) < 0) {
        http_run(http, wake);
        tell(&agent, &told);
    }
    http_destroy(http);
    agent_end(&agent);
    return 0;
}
