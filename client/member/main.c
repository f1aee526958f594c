/* tern-member: the command line, and the loop until a signal ends it. */
#include <argp.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tern_version.h>
#include <unistd.h>

#include "client/member/member.h"
#include "client/program.h"

#define SOCKET_DEFAULT "/run/tern/admin.sock"
#define PREFIX_DEFAULT "/tern"

enum member_exit {
    MEMBER_FAILED = 1, /* it cannot begin */
    MEMBER_USAGE = 2,
};

enum {
    OPT_CA = 256,
    OPT_CERT,
    OPT_KEY,
    OPT_TTL,
    OPT_GRACE,
    OPT_INTERVAL,
    OPT_DEADLINE,
};

const char *argp_program_version TERN_ARGP = "tern-member " TERN_VERSION;

static const struct argp_option options[] = {
    {"node", 'n', "NAME", 0, "This daemon's name, as in `node` of its configuration; required", 0},
    {"address", 'a', "HOST:PORT", 0,
     "HOST:PORT at which other daemons reach this daemon's `listen`; the name or address must be "
     "the same on every host; required",
     0},
    {"endpoint", 'e', "URL", 0,
     "URL of an etcd: http://HOST:PORT or https://HOST:PORT. May be given up to 8 times: if an "
     "etcd does not answer, the next one is used; required",
     0},
    {"prefix", 'p', "/PATH", 0,
     "Prefix of this cluster's keys in etcd, which are below /PATH/nodes/; "
     "default: " PREFIX_DEFAULT,
     0},
    {"allow", 'A', "NAME=TENANT+TENANT", 0,
     "Nodes of this name may become peers, for these tenants; NAME* matches all names that begin "
     "with NAME, and the first matching option applies. Without --allow this node is announced, "
     "and no peer is added",
     0},
    {"socket", 's', "PATH", 0,
     "The daemon's admin socket; default: $TERN_ADMIN_SOCKET, else " SOCKET_DEFAULT, 0},
    {"cacert", OPT_CA, "FILE", 0,
     "PEM file of the CA of etcd's certificate; default: the CAs that this host trusts", 1},
    {"cert", OPT_CERT, "FILE", 0, "PEM file of this host's client certificate for etcd", 1},
    {"key", OPT_KEY, "FILE", 0, "PEM file of the private key of --cert", 1},
    {"ttl", OPT_TTL, "S", 0,
     "Seconds without contact after which etcd removes the node's key; default: 15", 2},
    {"grace", OPT_GRACE, "S", 0,
     "Seconds after which a peer without a key is removed; until then it keeps its links; default: "
     "30",
     2},
    {"interval-ms", OPT_INTERVAL, "MS", 0,
     "Milliseconds between two requests to the daemon and to etcd; default: 1000", 2},
    {"deadline-ms", OPT_DEADLINE, "MS", 0,
     "Milliseconds that etcd may take for one answer; default: 1000", 2},
    {0},
};

struct settings {
    struct member *member;
    struct etcd_options etcd;
};

static uint32_t number(struct argp_state *state, const char *option, const char *arg,
                       struct number_range range)
{
    return (uint32_t)program_number(state, option, arg, range);
}

static void add_endpoint(struct argp_state *state, struct etcd_options *o, const char *arg)
{
    if (!etcd_endpoint_ok(arg))
        argp_error(state, "--endpoint takes http://HOST:PORT or https://HOST:PORT, not '%s'", arg);
    if (o->nendpoints == ETCD_ENDPOINTS_MAX)
        argp_error(state, "--endpoint may be given at most %u times", ETCD_ENDPOINTS_MAX);
    o->endpoints[o->nendpoints++] = arg;
}

static void add_rule(struct argp_state *state, struct rules *rules, const char *arg)
{
    if (rules->n == RULES_MAX)
        argp_error(state, "--allow may be given at most %u times", RULES_MAX);
    if (!rule_read(arg, &rules->v[rules->n++]))
        argp_error(state,
                   "--allow takes NAME=TENANT+TENANT, or NAME*=TENANT for all names that begin "
                   "with NAME, not '%s'",
                   arg);
}

static void set_names(struct argp_state *state, struct member *m, int key, const char *arg)
{
    static char address[NODE_ADDRESS_BYTES];

    if (key == 'n') {
        if (!node_name_ok(arg))
            argp_error(state, "--node takes 1 to 63 of the characters a-z A-Z 0-9 - _ ., not '%s'",
                       arg);
        memcpy(m->self.name, arg, strlen(arg) + 1);
    } else if (key == 'a') {
        if (!node_address_read(arg, address))
            argp_error(state,
                       "--address takes HOST:PORT, with a port of at most 65535 and an IPv6 "
                       "address in [brackets], not '%s'",
                       arg);
        memcpy(m->self.address, address, sizeof(address));
    } else {
        if (!gateway_prefix_ok(arg))
            argp_error(state,
                       "--prefix takes a path such as /tern/cluster, of at most %u bytes, "
                       "not '%s'",
                       GATEWAY_PREFIX_BYTES - 1, arg);
        m->prefix = arg;
    }
}

static void finish(struct argp_state *state, const struct settings *s)
{
    if (!s->member->self.name[0] || !s->member->self.address[0] || s->etcd.nendpoints == 0)
        argp_error(state, "--node, --address and --endpoint are required");
    if (!s->etcd.cert != !s->etcd.key)
        argp_error(state, "--cert and --key must be given together");
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
    static const struct number_range ttl = {MEMBER_TTL_S_MIN, MEMBER_TTL_S_MAX};
    static const struct number_range grace = {1, MEMBER_GRACE_S_MAX};
    static const struct number_range interval = {MEMBER_INTERVAL_MS_MIN, MEMBER_INTERVAL_MS_MAX};
    struct settings *s = state->input;
    struct member *m = s->member;

    switch (key) {
    case 'n':
    case 'a':
    case 'p': set_names(state, m, key, arg); return 0;
    case 'e': add_endpoint(state, &s->etcd, arg); return 0;
    case 'A': add_rule(state, &m->rules, arg); return 0;
    case 's': m->local.socket = arg; return 0;
    case OPT_CA: s->etcd.ca = arg; return 0;
    case OPT_CERT: s->etcd.cert = arg; return 0;
    case OPT_KEY: s->etcd.key = arg; return 0;
    case OPT_TTL: m->ttl_s = number(state, "--ttl", arg, ttl); return 0;
    case OPT_GRACE: m->grace_s = number(state, "--grace", arg, grace); return 0;
    case OPT_INTERVAL: m->interval_ms = number(state, "--interval-ms", arg, interval); return 0;
    case OPT_DEADLINE:
        s->etcd.deadline_ms =
            number(state, "--deadline-ms", arg, (struct number_range){1, ETCD_DEADLINE_MS_MAX});
        return 0;
    case ARGP_KEY_ARG: argp_error(state, "'%s' is one argument too many", arg); return 0;
    case ARGP_KEY_END: finish(state, s); return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

static bool files_ok(const struct etcd_options *o)
{
    const char *const files[] = {o->ca, o->cert, o->key};

    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
        if (files[i] && access(files[i], R_OK) != 0) {
            fprintf(stderr, "tern-member: %s: %s\n", files[i], strerror(errno));
            return false;
        }
    }
    return true;
}

int main(int argc, char **argv)
{
    static struct member member = {.ttl_s = MEMBER_TTL_S,
                                   .grace_s = MEMBER_GRACE_S,
                                   .interval_ms = MEMBER_INTERVAL_MS,
                                   .prefix = PREFIX_DEFAULT,
                                   .local = {.deadline_ms = LOCAL_DEADLINE_MS}};
    const char *from_env = getenv("TERN_ADMIN_SOCKET");
    struct settings settings = {.member = &member, .etcd = {.deadline_ms = ETCD_DEADLINE_MS}};
    const struct argp argp = {
        .options = options,
        .parser = parse,
        .doc = "tern-member announces this host's Tern daemon in etcd (its address, health and "
               "free pages, under a lease), and adds the nodes that it finds in etcd and that "
               "--allow names to the daemon's peers. It removes a node whose key is gone. While "
               "etcd does not answer, nothing changes.\vExit status: 0 ended by a signal, 1 it "
               "cannot start, 2 wrong command line.",
    };
    char why[ETCD_WHY_BYTES];
    struct pollfd wake;

    member.local.socket = from_env && *from_env ? from_env : SOCKET_DEFAULT;
    argp_err_exit_status = MEMBER_USAGE;
    argp_parse(&argp, argc, argv, 0, NULL, &settings);
    member.rules.self = member.self.name;
    if (!files_ok(&settings.etcd))
        return MEMBER_FAILED;
    wake = (struct pollfd){.fd = program_end_signals(), .events = POLLIN};
    member.etcd = etcd_create(&settings.etcd, why);
    if (!member.etcd || wake.fd < 0) {
        fprintf(stderr, "tern-member: %s\n", member.etcd ? strerror(errno) : why);
        return MEMBER_FAILED;
    }
    while (poll(&wake, 1, (int)member_round(&member)) == 0)
        ;
    member_end(&member);
    etcd_destroy(member.etcd);
    return 0;
}
