/* Replays a tape that a daemon recorded (`ternctl tape`) through a fresh core: one line an event,
 * and the state hash at the end, which is the daemon's own if the tape kept its tokens. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/err.h"
#include "client/ctl/tape/tape_read.h"
#include "client/ctl/tape/tape_text.h"
#include "core/core.h"
#include "replay.h"
#include "report.h"
#include "testing/secret.h"

#define ARENA_BYTES_MAX                                                                            \
    ((size_t)16 << 30) /* of a replayed core; limits on a tape are not trusted */

struct counts {
    uint64_t events, actions, replies, errors;
};

static void print_event(const struct event *ev)
{
    struct tape_line line;

    tape_line(ev, &line);
    fputs(line.event, stdout);
    tape_fields_print(&line, stdout);
}

static void print_step(const struct event *ev, const struct actions *out, uint64_t at,
                       struct counts *n)
{
    printf("%llu t=%llu ", (unsigned long long)at, (unsigned long long)ev->now_ns);
    print_event(ev);
    for (uint32_t i = 0; i < out->n; i++) {
        const struct action *a = &out->v[i];

        if (a->kind == ACT_REPLY)
            printf(" -> reply %s", err_name(a->reply.err));
        else
            printf(" -> action %u", a->kind);
    }
    putchar('\n');
    (void)n;
}

static void count_step(const struct actions *out, struct counts *n)
{
    n->events++;
    n->actions += out->n;
    for (uint32_t i = 0; i < out->n; i++)
        if (out->v[i].kind == ACT_REPLY) {
            n->replies++;
            n->errors += out->v[i].reply.err != TERN_OK;
        }
}

static void print_json(const struct tape_header *h, const struct counts *n, uint64_t hash)
{
    json_t *root = json_object();

    json_put(root, "events", n->events);
    json_put(root, "actions", n->actions);
    json_put(root, "replies", n->replies);
    json_put(root, "errors", n->errors);
    json_object_set_new(root, "incarnation",
                        json_sprintf("%016llx", (unsigned long long)h->incarnation));
    json_object_set_new(root, "complete", json_boolean(h->complete));
    json_object_set_new(root, "tokens_kept", json_boolean(h->tokens_kept));
    json_object_set_new(root, "state_hash", json_sprintf("%016llx", (unsigned long long)hash));
    json_end(root);
}

static enum tern_err play(struct tape_reader *r, struct core *core, struct actions *out, bool json,
                          struct counts *n)
{
    const struct tape_header *h = tape_header(r);
    struct event ev;

    for (uint64_t at = h->first;; at++) {
        TRY(tape_next(r, &ev));
        if (ev.kind == 0)
            return TERN_OK;
        if (core)
            core_step(core, &ev, out);
        else
            out->n = 0; /* the tape lacks its beginning: it can be printed, not replayed */
        count_step(out, n);
        if (!json)
            print_step(&ev, out, at, n);
    }
}

static enum tern_err core_create(const struct tape_header *h, void **ret_mem, struct core **ret)
{
    struct hash_secret secret = secret_from(1); /* any secret will do */
    struct tenant_config *tenants;
    size_t bytes;

    if (core_size(&h->limits, &bytes) != TERN_OK || bytes > ARENA_BYTES_MAX)
        return TERN_INVALID;
    *ret_mem = aligned_alloc(64, (bytes + 63) / 64 * 64);
    tenants = calloc(h->limits.tenants, sizeof *tenants);
    if (!*ret_mem || !tenants) {
        free(tenants);
        return TERN_QUOTA;
    }
    memset(*ret_mem, 0, bytes);
    memcpy(tenants, h->tenant,
           (h->tenants < h->limits.tenants ? h->tenants : h->limits.tenants) * sizeof *tenants);
    *ret = core_init(*ret_mem, &h->limits, tenants, h->incarnation, &secret);
    free(tenants);
    return TERN_OK;
}

bool tape_is_daemons(const char *path)
{
    char head[8] = "";
    FILE *f = fopen(path, "r");

    if (!f)
        return false;
    if (fread(head, 1, sizeof head, f) != sizeof head)
        head[0] = 0;
    fclose(f);
    return memcmp(head, "tern-sim", sizeof head) != 0;
}

int tape_replay(const char *path, bool json)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    struct tape_reader *r = NULL;
    struct counts n = {0};
    struct core *core = NULL;
    struct actions *out = NULL;
    void *mem = NULL;
    enum tern_err err;

    if (fd < 0) {
        perror(path);
        return 2;
    }
    err = tape_open_fd(fd, &r);
    close(fd);
    if (err != TERN_OK)
        goto out_report;
    if (tape_header(r)->complete)
        err = core_create(tape_header(r), &mem, &core);
    if (err == TERN_OK) {
        out = malloc(actions_bytes(&tape_header(r)->limits));
        if (out)
            actions_init(out, &tape_header(r)->limits);
        else
            err = TERN_QUOTA;
    }
    if (err == TERN_OK)
        err = play(r, core, out, json, &n);
    if (err == TERN_OK && json)
        print_json(tape_header(r), &n, core ? core_hash(core) : 0);
    else if (err == TERN_OK && core)
        printf("%llu events, state %016llx\n", (unsigned long long)n.events,
               (unsigned long long)core_hash(core));
    else if (err == TERN_OK)
        printf("%llu events; the ring had lost the first ones, so they were not replayed\n",
               (unsigned long long)n.events);
out_report:
    if (err != TERN_OK)
        fprintf(stderr, "tern-sim: %s: %s (%s)\n", path, err_text(err), err_name(err));
    tape_close(r);
    free(out);
    free(mem);
    return err == TERN_OK ? 0 : 2;
}
