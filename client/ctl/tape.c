/* `ternctl tape`: has the daemon write its last events to a file, and reads such a file, which
 * needs no daemon. A tape is read to its end or to the first damaged record; everything before is
 * printed, so that the tape of a crash on a full disk is still useful. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/ctl/tape/tape_read.h"
#include "client/ctl/tape/tape_text.h"
#include "ctl.h"

/* ---- writing ---- */

/* The daemon writes the file, so a relative path is made absolute with our own folder. */
static int write_tape(struct ctl *ctl)
{
    char cwd[PATH_MAX] = "", path[PATH_MAX + 8];
    const char *args[2] = {path, "tokens=1"};
    json_t *answer;

    if (ctl->operand[0] != '/' && !getcwd(cwd, sizeof(cwd)))
        ctl_fail(CTL_FAILED, "the current folder has no name: give an absolute path");
    if (snprintf(path, sizeof(path), "path=%s%s%s", cwd, cwd[0] ? "/" : "", ctl->operand) > 255)
        ctl_fail(CTL_USAGE, "%s: the path is longer than the 250 bytes that the daemon accepts",
                 ctl->operand);
    answer = ctl_ask(ctl, "tape", args, ctl->tokens ? 2 : 1);
    if (!ctl_print_json(ctl, answer)) {
        printf("%s: %s events%s: ternctl tape read %s shows them\n", j_str(answer, "path"),
               human_count(j_u64(answer, "recorded")),
               j_bool(answer, "tokens_kept") ? ", with token ids" : "", j_str(answer, "path"));
        if (j_bool(answer, "complete"))
            printf("complete since the start: tern-sim --tape %s replays it\n",
                   j_str(answer, "path"));
        else
            printf("the first %s events were overwritten: the tape can be read, not replayed "
                   "(raise tape.bytes)\n",
                   human_count(j_u64(answer, "dropped")));
    }
    json_decref(answer);
    return CTL_OK;
}

/* ---- reading ---- */

static struct tape_reader *open_tape(const char *path)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    struct tape_reader *reader;
    enum tern_err err;

    if (fd < 0)
        ctl_fail(CTL_FAILED, "%s: %s", path, strerror(errno));
    errno = 0;
    err = tape_open_fd(fd, &reader);
    if (err == TERN_MALFORMED)
        ctl_fail_as(err, "%s: the file is not a daemon's tape", path);
    if (err == TERN_UNSUPPORTED)
        ctl_fail_as(
            err, "%s: a daemon of another version wrote the tape: use the ternctl of that version",
            path);
    if (err == TERN_DISK)
        ctl_fail_as(err, "%s: the file cannot be read: %s", path, strerror(errno));
    if (err != TERN_OK)
        ctl_fail_as(err, "%s: the file is larger than %zu GiB, or there is no memory to read it",
                    path, TAPE_FILE_MAX >> 30);
    close(fd);
    return reader;
}

static void print_object(json_t *object)
{
    json_dumpf(object, stdout, JSON_COMPACT | JSON_PRESERVE_ORDER);
    printf("\n");
    json_decref(object);
}

static void show_head(const struct ctl *ctl, const char *path, const struct tape_header *h)
{
    if (ctl->json) {
        print_object(json_pack("{s:s, s:o, s:I, s:I, s:I, s:b, s:b}", "tape", path, "incarnation",
                               json_sprintf("%016llx", (unsigned long long)h->incarnation), "first",
                               (json_int_t)h->first, "events", (json_int_t)h->events, "tenants",
                               (json_int_t)h->tenants, "complete", h->complete, "tokens_kept",
                               h->tokens_kept));
        return;
    }
    printf("%s: %s events of incarnation %016llx, %s; token ids are %s\n", path,
           human_count(h->events), (unsigned long long)h->incarnation,
           h->complete ? "from the daemon's start" : "without its beginning, which was overwritten",
           h->tokens_kept ? "kept" : "replaced by hashes");
}

static json_t *field_json(const struct tape_field *f)
{
    if (f->word)
        return json_string(f->word);
    if (f->hex_digits)
        return json_sprintf("%0*llx", (int)f->hex_digits, (unsigned long long)f->number);
    return json_integer((json_int_t)(f->number < INT64_MAX ? f->number : INT64_MAX));
}

static void show_json(uint64_t number, const struct tape_line *line)
{
    json_t *object = json_pack("{s:I, s:I, s:s}", "number", (json_int_t)number, "at_ns",
                               (json_int_t)line->now_ns, "event", line->event);

    for (uint32_t i = 0; i < line->n; i++)
        json_object_set_new(object, line->field[i].key, field_json(&line->field[i]));
    print_object(object);
}

/* `since_ns`: the first event's time. */
static void show_line(const struct ctl *ctl, uint64_t number, const struct tape_line *line,
                      uint64_t since_ns)
{
    printf("%12s  %14.6f s  ", human_count(number), (double)(line->now_ns - since_ns) / 1e9);
    paint(ctl, BOLD, "%s", line->event);
    tape_fields_print(line, stdout);
    printf("\n");
}

static int read_tape(struct ctl *ctl, const char *path)
{
    struct tape_reader *reader = open_tape(path);
    const struct tape_header *h = tape_header(reader);
    uint64_t since_ns = 0, first = h->first, events = h->events, number = first;
    struct tape_line line;
    struct event event;
    enum tern_err err;

    show_head(ctl, path, h);
    /* A closed pipe or a full disk ends the program, because further output is lost. */
    while ((err = tape_next(reader, &event)) == TERN_OK && event.kind != 0 && !ferror(stdout)) {
        tape_line(&event, &line);
        since_ns = number == first ? line.now_ns : since_ns;
        if (ctl->json)
            show_json(number, &line);
        else
            show_line(ctl, number, &line, since_ns);
        number++;
    }
    tape_close(reader);
    if (err != TERN_OK)
        ctl_fail_as(err,
                    "%s: the tape is damaged or cut off behind event %llu; it should have %llu "
                    "events, and %llu are intact",
                    path, (unsigned long long)number, (unsigned long long)events,
                    (unsigned long long)(number - first));
    return CTL_OK;
}

static int run_tape(struct ctl *ctl)
{
    bool reads = strcmp(ctl->operand, "read") == 0;

    if (reads && !ctl->more[0])
        ctl_fail(CTL_USAGE,
                 "name the tape: tape read FILE (to write a file called read: tape ./read)");
    if (!reads && ctl->more[0])
        ctl_fail(CTL_USAGE, "'%.40s' is one argument too many", ctl->more[0]);
    if (reads && ctl->tokens)
        ctl_fail(CTL_USAGE, "--tokens applies only when a tape is written: `tape read` shows token "
                            "ids if the tape has them");
    return reads ? read_tape(ctl, ctl->more[0]) : write_tape(ctl);
}

/* ---- the rows ---- */

static const struct argp_option tape_options[] = {
    {"tokens", OPT_TOKENS, NULL, 0,
     "Store token ids in place of their hashes; token ids are your users' text", 0},
    {0},
};

const struct command tape_commands[] = {
    {"tape", "[read] FILE", "Writes the daemon's last events to FILE, or shows it",
     "  ternctl tape /tmp/tern.tape && ternctl tape read /tmp/tern.tape | tail\n  ternctl tape "
     "read /tmp/tern.tape --json | jq -c 'select(.event == \"request\")'\n\nThe daemon writes "
     "FILE, so its user must be allowed to. An earlier FILE is replaced when the new one is "
     "complete. Reading needs no daemon; each event has its number and the time since the first "
     "event. With --json the first line describes the tape, then each line is one event.\n",
     tape_options, 2, run_tape},
    {0},
};
