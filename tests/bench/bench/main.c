/* tern-bench: measures Tern beside raw baselines. Each sub-command has a file of its own. */
#include <argp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tern_version.h>

#include "bench.h"
#include "engine/json.h"

const char *argp_program_version TERN_ARGP = "tern-bench " TERN_VERSION;

enum key { KEY_JSON = 256, KEY_QUICK, KEY_TABLE, KEY_DIR, KEY_BYTES };

struct command {
    const char *name;
    int (*run)(const struct bench_args *args);
};

static const struct command commands[] = {
    {"blocks", bench_blocks},   {"health", bench_health},         {"index", bench_index},
    {"kernels", bench_kernels}, {"neighbours", bench_neighbours}, {"publish", bench_publish},
    {"reshard", bench_reshard}, {"retention", bench_retention},   {"rpc", bench_rpc},
    {"spill", bench_spill},     {"transfer", bench_transfer},
};

struct input {
    struct bench_args args;
    const struct command *command;
};

static const struct argp_option table[] = {
    {"json", KEY_JSON, 0, 0, "One JSON object on standard output instead of a table", 0},
    {"quick", KEY_QUICK, 0, 0, "Run fewer rounds: a test of the program, not a measurement", 0},
    {"table", KEY_TABLE, "NAME", 0,
     "neighbours: only this row; transfer: \"pages\", only the rows by page size", 0},
    {"dir", KEY_DIR, "DIR", 0, "spill: folder on the disk to measure (default: /var/tmp)", 0},
    {"bytes", KEY_BYTES, "N", 0, "spill: bytes of one pass; may end in K, M, G (default: 4G)", 0},
    {0},
};

static const char doc[] =
    "Measures Tern beside a raw baseline in the same run.\v"
    "blocks      values put, got and found by key against loops that copy and hash, and memcpy\n"
    "health      pings while turn records of 64 clients are checked, by workers and by the owner "
    "thread\n"
    "index       Match of 49,152 tokens in a tree 50 turns deep against memcmp of the same bytes; "
    "pin and unpin\n"
    "kernels     each kernel for GPUs against a copy of the same bytes from device to device\n"
    "neighbours  operations of one tenant while another tenant exhausts a table\n"
    "publish     from a rank's done step to the answer of a scheduler that waits for it\n"
    "reshard     a TCP stream of pieces that are scattered at one end: sent as stretches, and "
    "copied through a buffer\n"
    "retention   memory of the turn records of 64 sessions with and without all blobs; appending a "
    "record\n"
    "rpc         round trips through the daemon against an io_uring echo of the same frames\n"
    "spill       writes and reads of disk tier files against a plain O_DIRECT loop\n"
    "transfer    a Fetch between two daemons against one plain TCP stream\n"
    "\n"
    "Exit status: 0 every figure is within its limit, 1 a figure is not, 2 it could not be "
    "measured, 3 a figure that depends on no clock is not.";

/* Reads "4G", with K, M and G as powers of 1024. */
static bool read_bytes(const char *text, uint64_t *ret)
{
    static const char units[] = "KMG";
    char *end;
    const char *unit;

    *ret = strtoull(text, &end, 10);
    if (end == text || *ret == 0)
        return false;
    if (*end == '\0')
        return true;
    unit = strchr(units, *end);
    if (!unit || end[1])
        return false;
    *ret <<= 10 * (unit - units + 1);
    return true;
}

static error_t read_option(int key, char *arg, struct argp_state *state)
{
    struct input *in = state->input;

    switch (key) {
    case KEY_JSON: in->args.json = true; return 0;
    case KEY_QUICK: in->args.quick = true; return 0;
    case KEY_TABLE: in->args.table = arg; return 0;
    case KEY_DIR: in->args.dir = arg; return 0;
    case KEY_BYTES:
        if (!read_bytes(arg, &in->args.bytes))
            argp_error(state, "\"%s\" is not a number of bytes", arg);
        return 0;
    case ARGP_KEY_ARG:
        for (size_t i = 0; i < sizeof commands / sizeof commands[0] && !in->command; i++) {
            if (strcmp(commands[i].name, arg) == 0)
                in->command = &commands[i];
        }
        if (!in->command || state->arg_num > 0)
            argp_error(state,
                       "\"%s\" is not a benchmark: name blocks, health, index, kernels, "
                       "neighbours, publish, reshard, retention, rpc, spill and transfer",
                       arg);
        return 0;
    case ARGP_KEY_END:
        if (!in->command)
            argp_error(state, "name one benchmark: blocks, health, index, kernels, neighbours, "
                              "publish, reshard, retention, rpc, spill or transfer");
        return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

void bench_show(const struct bench_args *args, json_t *o, const struct bench_figure *v, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        json_put_f64(o, v[i].key, v[i].value);
        if (!args->json && v[i].row)
            printf("  %-26s %12.4g %-10s %s\n", v[i].row, v[i].value, v[i].unit,
                   v[i].limit ? v[i].limit : "");
    }
}

static bool miscounted;

bool bench_count(bool ok, const char *text)
{
    miscounted |= !ok;
    return bench_limit(ok, text);
}

bool bench_limit(bool ok, const char *text)
{
    if (!ok)
        fprintf(stderr, "tern-bench: outside its limit: %s\n", text);
    return ok;
}

int main(int argc, char **argv)
{
    static const struct argp parser = {
        .options = table,
        .parser = read_option,
        .args_doc =
            "blocks|health|index|kernels|neighbours|publish|reshard|retention|rpc|spill|transfer",
        .doc = doc};
    struct input in = {0};
    int status;

    argp_err_exit_status = 2;
    argp_parse(&parser, argc, argv, 0, NULL, &in);
    signal(SIGPIPE, SIG_IGN);
    status = in.command->run(&in.args);
    return status == 1 && miscounted ? 3 : status;
}
