/* Shared by the files of ternctl: the options of a command, requests to the daemon, printing. One
 * process runs one command, so memory is kept until the exit. The daemon makes its answers as JSON,
 * and tables are made from the output of --json, so the two never disagree. ternctl adds only the
 * holders of the tree's nodes (forest.h). */
#ifndef CTL_H
#define CTL_H

#include <argp.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "tern.h"

#define CTL_SOCKET_DEFAULT "/run/tern/admin.sock"
#define CTL_DEADLINE_MS    10000
#define CTL_EVERY_MS       1000  /* of top */
#define CTL_OPERANDS_MAX   2     /* after the first */
#define CTL_PAGES_MAX      65536 /* pages read of one list, which a daemon may never end */

enum ctl_exit {
    CTL_OK = 0,
    CTL_FAILED = 1,      /* the daemon answered with an error, or a file could not be written */
    CTL_USAGE = 2,       /* the command line */
    CTL_UNREACHABLE = 3, /* no daemon at that socket, or it no longer answers */
    CTL_LEFT = 4,        /* drain --wait: sessions were still open when the wait ended */
};

struct ctl {
    const struct command *command; /* the running command */
    const char *socket;
    bool json;                              /* print one JSON object and nothing else */
    bool colour;                            /* standard output is a terminal that supports colour */
    const char *tenant, *engine, *peer;     /* list only rows of these; NULL: all */
    const char *pool, *operand, *svg, *key; /* as on the command line; NULL: not given */
    uint32_t nodes, count;
    const char *more[CTL_OPERANDS_MAX]; /* operands after the first; NULL: not given */
    const char *transport, *tenants;    /* peer add */
    bool tokens, wait, dry_run, once;
    uint32_t every_ms; /* top */
    bool wide;         /* tables show all columns, uncut, and whole numbers */
    uint32_t wait_s;   /* drain */
    uint64_t from;     /* watch: a number */
    uint32_t changes;  /* watch: end after that many; 0: never */
    struct tern *tern;
};

struct command {
    const char *name, *args, *summary, *examples;
    const struct argp_option *options; /* NULL: only --socket and --json */
    uint32_t operands; /* most operands behind the lower-case words of `args`; one is required */
    int (*run)(struct ctl *ctl);
};

/* Keys of the commands' options, which main.c parses. */
enum {
    OPT_POOL = 'p',
    OPT_NODES = 'n',
    OPT_COUNT = 'c',
    OPT_TOKENS = 't',
    OPT_FROM = 'f',
    OPT_CHANGES = 'm',
    OPT_SVG = 'g',
    OPT_KEY = 'k',
    OPT_WAIT = 'w',
    OPT_TENANT = 'a',
    OPT_ENGINE = 'e',
    OPT_PEER = 'r',
    OPT_DRY_RUN = 'd',
    OPT_TRANSPORT = 'T',
    OPT_TENANTS = 'A',
    OPT_WIDE = 'W',
    OPT_EVERY = 'i',
    OPT_ONCE = '1',
};

/* Options of lists, which select rows. */
#define OPTION_TENANT                                                                              \
    {                                                                                              \
        "tenant", OPT_TENANT, "NAME", 0, "Only rows of this tenant", 0                             \
    }
#define OPTION_ENGINE                                                                              \
    {                                                                                              \
        "engine", OPT_ENGINE, "NAME", 0, "Only rows of this engine", 0                             \
    }
#define OPTION_PEER                                                                                \
    {                                                                                              \
        "peer", OPT_PEER, "NAME", 0, "Only this peer", 0                                           \
    }

/* For commands that print tables. */
#define OPTION_WIDE                                                                                \
    {                                                                                              \
        "wide", OPT_WIDE, NULL, 0, "All columns, full names and full numbers", 0                   \
    }

/* The commands of each file; the last one has no name. */
extern const struct command show_commands[], doctor_commands[], top_commands[], stats_commands[],
    moves_commands[], disk_commands[], tree_commands[], watch_commands[], act_commands[],
    tape_commands[], end_commands[];
extern const struct command *const ctl_groups[]; /* all of these, in the help's order; then NULL */

/* Shows the disk tier, from `spill` of an answer, and the tenants' shares; tenants NULL: none.
 */
void show_spill(const struct ctl *ctl, const json_t *spill, const json_t *tenants);

/* Returns the tokens that sessions did not have to compute, from a row of figures. */
uint64_t found_tokens(const json_t *row);

/* ---- requests; on failure each ends the program with a message that names what to do ---- */

void ctl_connect(struct ctl *ctl);
/* Does not end the program: returns why there is no connection; NULL: there is one. */
const char *ctl_try_connect(struct ctl *ctl, uint32_t deadline_ms);
/* Runs one command and parses the answer, which the caller owns. */
json_t *ctl_ask(struct ctl *ctl, const char *command, const char *const *args, uint32_t nargs);
/* The same, but returns NULL without an answer: *ret_lost is TIMED_OUT or DAEMON_LOST. */
struct ctl_question {
    const char *command, *const *args;
    uint32_t nargs, deadline_ms;
};
json_t *ctl_ask_within(struct ctl *ctl, const struct ctl_question *q, enum tern_err *ret_lost);
/* Returns all pages of a list, joined: {"<list>": [...]}, with the rows of the command line. */
json_t *ctl_list(struct ctl *ctl, const char *list, const char *arg);
/* Returns "pool=SLOT" for --pool, which is a handle as in the tables, or a slot. NULL if it was not
 * given. Static. */
const char *ctl_pool_arg(struct ctl *ctl);
/* Returns the id of a listed object: `name` is an id already, or the value of `key` in one row of
 * the list. Ends the program if no row or several have it. Static. */
struct ctl_named {
    const char *list, *key, *id; /* id: the key of the row's handle */
};
const char *ctl_id_of(struct ctl *ctl, const struct ctl_named *what, const char *name);
/* Ends the program: the daemon's answer is an error, or there is none. */
_Noreturn void ctl_refused(struct ctl *ctl, enum tern_err err);
_Noreturn void ctl_fail(enum ctl_exit code, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* The same with that error's name, for an error that no daemon has returned. */
_Noreturn void ctl_fail_as(enum tern_err err, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* From now on a failure also prints an object to standard output: {"error": ..., "text": ...}. */
void ctl_json_errors(void);
/* Prints the object and returns true if --json was given. */
bool ctl_print_json(const struct ctl *ctl, const json_t *answer);

/* ---- reading an answer; an absent member reads as 0 or "-" ---- */

uint64_t j_u64(const json_t *object, const char *key);
double j_f64(const json_t *object, const char *key);
const char *j_str(const json_t *object, const char *key);
bool j_bool(const json_t *object, const char *key);

/* ---- printing ---- */

enum colour {
    PLAIN = 0,
    BOLD,
    DIM,
    RED,
    GREEN,
    YELLOW,
};

#define TABLE_COLUMNS_MAX 24
#define TITLES_N(titles)  (sizeof(titles) / sizeof((titles)[0]))
#define TABLE_WIDTH       100 /* the most columns of a table without --wide */

/* Columns are as wide as their widest cell. If the table is too wide the widest texts are cut,
 * marked by "..". The first character of a title is the kind of its column: '<' a text, '=' a text
 * that is never cut, such as a handle that another command takes, else a number. A '+' before it:
 * only with --wide.
 */
struct table {
    const struct ctl *ctl;
    const char *const *titles;
    FILE *out;         /* standard output, unless another is set */
    uint32_t width;    /* TABLE_WIDTH, unless another is set */
    uint32_t rows_max; /* further rows are only counted; by default all rows are printed */
    uint32_t columns, cells, cells_max;
    struct cell {
        const char *text; /* owned */
        enum colour colour;
    } * cell;
};

/* Returns the escaped text (proto/shown.h); owned by the caller. */
char *shown_copy(const char *text);

void table_init(struct table *t, const struct ctl *ctl, const char *const *titles,
                uint32_t columns);
void table_add(struct table *t, enum colour colour, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
void table_count(struct table *t, enum colour colour, uint64_t n);
void table_num(struct table *t, const json_t *row, const char *key); /* table_count of that */
/* "3 of 4" */
void table_part(struct table *t, enum colour colour, uint64_t n, uint64_t of);
void table_hex(struct table *t, const char *hex, int digits); /* that many, unless --wide */
void table_print(struct table *t, const char *if_empty);      /* also frees */

void paint_to(FILE *out, const struct ctl *ctl, enum colour colour, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
void paint(const struct ctl *ctl, enum colour colour, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Short forms for people; calls use eight buffers in turn. */
const char *human_bytes(uint64_t bytes);
const char *human_count(uint64_t n); /* 12,345 */
const char *human_short(uint64_t n); /* from a million on: 1.23 M */
const char *human_age(double seconds);
const char *human_us(uint64_t us); /* with microseconds; human_age begins with milliseconds */
const char *num(const json_t *row, const char *key); /* human_count of that */

#endif
