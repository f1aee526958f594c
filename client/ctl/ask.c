/* Requests to the daemon: connects, sends one command, reads a paged list. A failure ends the
 * program with a line that names what to do. */
#include "ctl.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/err.h"
#include "proto/shown.h"

#define LIST_ARGS_MAX 6

static bool json_errors, told;

static void tell_json(const char *error, const char *text)
{
    json_t *answer = json_pack("{s:s, s:s}", "error", error, "text", text);

    json_dumpf(answer, stdout, JSON_PRESERVE_ORDER);
    printf("\n");
    json_decref(answer);
    told = true;
}

/* The parser of the command line ends the program by itself, with its message only on standard
 * error. */
static void tell_usage(int status, void *unused)
{
    const char text[] = "the command line is wrong, see standard error: `ternctl --help` lists the "
                        "commands, `ternctl COMMAND --help` their arguments";

    (void)unused;
    if (status == CTL_USAGE && !told)
        tell_json("USAGE", text);
}

void ctl_json_errors(void)
{
    if (!json_errors && on_exit(tell_usage, NULL) == 0)
        json_errors = true;
}

static _Noreturn __attribute__((format(printf, 3, 0))) void
fail(enum ctl_exit code, const char *error, const char *format, va_list args)
{
    char *raw = NULL, *text;

    if (vasprintf(&raw, format, args) < 0)
        abort();
    text = shown_copy(raw);
    free(raw);
    fflush(stdout);
    fprintf(stderr, "ternctl: %s\n", text);
    if (json_errors)
        tell_json(error, text);
    free(text);
    exit((int)code);
}

void ctl_fail(enum ctl_exit code, const char *format, ...)
{
    static const char *const error[] = {[CTL_FAILED] = "FAILED",
                                        [CTL_USAGE] = "USAGE",
                                        [CTL_UNREACHABLE] = "UNREACHABLE",
                                        [CTL_LEFT] = "LEFT"};
    va_list args;

    va_start(args, format);
    fail(code, error[code], format, args);
}

/* The same, for an error of the daemon or the library. */
static _Noreturn __attribute__((format(printf, 3, 4))) void
fail_with(enum ctl_exit code, enum tern_err err, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    fail(code, err_name(err), format, args);
}

void ctl_fail_as(enum tern_err err, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    fail(CTL_FAILED, err_name(err), format, args);
}

static bool is_no_socket(const char *path)
{
    struct stat st;

    return stat(path, &st) == 0 && !S_ISSOCK(st.st_mode);
}

static const char *why_not(const char *path, enum tern_err err, int number)
{
    if (err == TERN_TIMED_OUT)
        return "the daemon does not answer: it is busy or stopped";
    if (err == TERN_UNSUPPORTED)
        return "the daemon is of another version: use the ternctl of that version";
    if (err == TERN_INVALID)
        return "the path is too long for a socket: name another by --socket";
    if (err != TERN_DAEMON_LOST)
        return tern_error_text(NULL, NULL);
    switch (number) {
    case ENOENT:
        return "there is no such socket: is ternd running? Name its admin.socket by --socket or "
               "TERN_ADMIN_SOCKET";
    case EACCES:
    case EPERM:
        return "you may not open the socket: run as the user that runs ternd, or change its "
               "admin.mode";
    case ECONNREFUSED:
        if (is_no_socket(path))
            return "that is not a socket: name ternd's admin.socket by --socket or "
                   "TERN_ADMIN_SOCKET";
        return "no process listens there: ternd has ended; its log has the cause";
    case ECONNRESET: return "the daemon closed the connection: it is ending; its log has the cause";
    default: return strerror(number);
    }
}

const char *ctl_try_connect(struct ctl *ctl, uint32_t deadline_ms)
{
    enum tern_err err;

    errno = 0;
    err = tern_connect(ctl->socket, deadline_ms, &ctl->tern);
    return err == TERN_OK ? NULL : why_not(ctl->socket, err, errno);
}

void ctl_connect(struct ctl *ctl)
{
    const char *why = ctl_try_connect(ctl, CTL_DEADLINE_MS);

    if (why)
        ctl_fail(CTL_UNREACHABLE, "%s: %s", ctl->socket, why);
}

void ctl_refused(struct ctl *ctl, enum tern_err err)
{
    const char *what = ctl->command->name;

    if (err == TERN_DAEMON_LOST)
        fail_with(CTL_UNREACHABLE, err,
                  "%s: the daemon closed the connection; its log has the cause", what);
    fail_with(err == TERN_TIMED_OUT ? CTL_UNREACHABLE : CTL_FAILED, err, "%s: %s", what,
              tern_error_text(ctl->tern, NULL));
}

json_t *ctl_ask_within(struct ctl *ctl, const struct ctl_question *q, enum tern_err *ret_lost)
{
    const char *text;
    enum tern_err err;
    json_error_t where;
    json_t *answer;

    if (!ctl->tern)
        ctl_connect(ctl);
    err = tern_admin(ctl->tern, q->command, q->args, q->nargs, q->deadline_ms, &text);
    if (err == TERN_DENIED)
        fail_with(CTL_FAILED, err, "%s is a tenant's socket: name the daemon's admin.socket",
                  ctl->socket);
    *ret_lost = err;
    if (err == TERN_TIMED_OUT || err == TERN_DAEMON_LOST)
        return NULL;
    if (err != TERN_OK)
        ctl_refused(ctl, err);
    answer = json_loads(text, JSON_REJECT_DUPLICATES, &where);
    if (!json_is_object(answer))
        ctl_fail(CTL_FAILED,
                 "%s: the daemon's answer is not a JSON object (%s): report this as a bug",
                 q->command, where.text);
    return answer;
}

json_t *ctl_ask(struct ctl *ctl, const char *command, const char *const *args, uint32_t nargs)
{
    const struct ctl_question q = {command, args, nargs, CTL_DEADLINE_MS};
    enum tern_err err;
    json_t *answer = ctl_ask_within(ctl, &q, &err);

    if (!answer)
        ctl_refused(ctl, err);
    return answer;
}

/* Adds "KEY=NAME" to args if the command line has that name. */
static void add_filter(const char **args, uint32_t *n, const char *key, const char *name)
{
    char *arg;

    if (!name)
        return;
    if (asprintf(&arg, "%s=%s", key, name) < 0)
        ctl_fail(CTL_FAILED, "no memory");
    args[(*n)++] = arg;
}

json_t *ctl_list(struct ctl *ctl, const char *list, const char *arg)
{
    json_t *whole = json_object(), *rows = json_array();
    char from[32], limit[] = "limit=1024";
    const char *args[LIST_ARGS_MAX] = {from, limit, arg};
    uint32_t nargs = arg ? 3 : 2;
    uint64_t next = 0;

    add_filter(args, &nargs, "tenant", ctl->tenant);
    add_filter(args, &nargs, "engine", ctl->engine);
    add_filter(args, &nargs, "peer", ctl->peer);

    json_object_set_new(whole, list, rows);
    for (uint32_t page = 0; page < CTL_PAGES_MAX; page++) {
        json_t *answer, *value;

        snprintf(from, sizeof(from), "from=%llu", (unsigned long long)next);
        answer = ctl_ask(ctl, list, args, nargs);
        json_array_extend(rows, json_object_get(answer, list));
        if (page == 0) { /* members of the list besides its rows */
            json_object_update_missing(whole, answer);
            json_object_del(whole, "slots");
            json_object_del(whole, "next");
        }
        value = json_object_get(answer, "next");
        if (!json_is_integer(value) || (uint64_t)json_integer_value(value) <= next) {
            json_decref(answer);
            return whole;
        }
        next = (uint64_t)json_integer_value(value);
        json_decref(answer);
    }
    ctl_fail(CTL_FAILED, "%s: the daemon's list does not end: report this as a bug", list);
}

const char *ctl_pool_arg(struct ctl *ctl)
{
    static char arg[32];
    json_t *pools, *row;
    size_t i;

    if (!ctl->pool)
        return NULL;
    pools = ctl_list(ctl, "pools", NULL);
    json_array_foreach(json_object_get(pools, "pools"), i, row)
    {
        char slot[24];

        snprintf(slot, sizeof(slot), "%llu", (unsigned long long)j_u64(row, "slot"));
        if (strcmp(ctl->pool, slot) == 0 || strcasecmp(ctl->pool, j_str(row, "pool")) == 0) {
            snprintf(arg, sizeof(arg), "pool=%s", slot);
            json_decref(pools);
            return arg;
        }
    }
    ctl_fail(CTL_FAILED, "no open pool is called '%s': `ternctl pools` lists handles and slots",
             ctl->pool);
}

const char *ctl_id_of(struct ctl *ctl, const struct ctl_named *what, const char *name)
{
    static char id[24];
    json_t *answer = ctl_list(ctl, what->list, NULL), *row;
    size_t i, found = 0;

    json_array_foreach(json_object_get(answer, what->list), i, row)
    {
        char slot[24];

        snprintf(slot, sizeof(slot), "%llu", (unsigned long long)j_u64(row, "slot"));
        if (strcasecmp(name, j_str(row, what->id)) != 0 &&
            strcmp(name, what->key ? j_str(row, what->key) : slot) != 0)
            continue;
        snprintf(id, sizeof(id), "%s", j_str(row, what->id));
        found++;
    }
    json_decref(answer);
    if (found == 0)
        ctl_fail(CTL_FAILED, "there is no '%.40s': `ternctl %s` lists what exists", name,
                 what->list);
    if (found > 1)
        ctl_fail(CTL_USAGE,
                 "%zu rows of `ternctl %s` have the name '%.40s': name one by its handle", found,
                 what->list, name);
    return id;
}

bool ctl_print_json(const struct ctl *ctl, const json_t *answer)
{
    if (!ctl->json)
        return false;
    json_dumpf(answer, stdout, JSON_INDENT(2) | JSON_PRESERVE_ORDER | JSON_REAL_PRECISION(12));
    printf("\n");
    return true;
}
