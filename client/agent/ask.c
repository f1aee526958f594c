/* See ask.h. */
#include "client/agent/ask.h"

#include <errno.h>
#include <stdio.h>
#include <time.h>

#define NS_PER_MS 1000000ull
#define NS_PER_S  1000000000ull

uint64_t ask_now_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * NS_PER_S + (uint64_t)t.tv_nsec;
}

const char *ask_word(enum ask_reason reason)
{
    static const char *const words[] = {
#define X(name, word) [ASK_##name] = word,
        ASK_REASONS(X)
#undef X
            [ASK_ANSWERED] = "ok"};

    return words[reason];
}

static enum ask_reason reason_of(enum tern_err err, int number)
{
    switch (err) {
    case TERN_TIMED_OUT: return ASK_TIMED_OUT;
    case TERN_UNSUPPORTED: return ASK_VERSION;
    case TERN_DENIED: return ASK_DENIED;
    case TERN_DAEMON_LOST:
        if (number == ENOENT)
            return ASK_NO_SOCKET;
        if (number == EACCES || number == EPERM)
            return ASK_DENIED;
        return number == ECONNREFUSED ? ASK_NOBODY_LISTENS : ASK_LOST;
    default: return ASK_REFUSED;
    }
}

static bool failed(struct ask *a, enum ask_reason why)
{
    ask_end(a);
    a->why = why;
    a->failures[why]++;
    a->again_ns = ask_now_ns() + ASK_AGAIN_MS * NS_PER_MS;
    return false;
}

/* Returns the time left of the round, never 0, which would be libtern's own default. */
static uint32_t left_ms(const struct ask *a)
{
    uint64_t now_ns = ask_now_ns();

    return now_ns + NS_PER_MS < a->until_ns ? (uint32_t)((a->until_ns - now_ns) / NS_PER_MS) : 1;
}

static bool connected(struct ask *a)
{
    enum tern_err err;

    a->kept = false;
    errno = 0;
    err = tern_connect(a->socket, left_ms(a), &a->tern);
    return err == TERN_OK || failed(a, reason_of(err, errno));
}

bool ask_begin(struct ask *a)
{
    if (a->why != ASK_ANSWERED && ask_now_ns() < a->again_ns)
        return false;
    a->until_ns = ask_now_ns() + a->deadline_ms * NS_PER_MS;
    a->why = ASK_ANSWERED;
    a->kept = a->tern != NULL;
    return a->kept || connected(a);
}

/* A kept connection may be to a daemon that has ended since: then connects to the current daemon.
 * Returns false if the answer is final, or there is no daemon and no connection any more. */
static bool ask_anew(struct ask *a, enum tern_err err)
{
    bool anew = a->kept && err == TERN_DAEMON_LOST;

    a->kept = false;
    if (!anew)
        return false;
    ask_end(a);
    return connected(a);
}

bool ask_ping(struct ask *a)
{
    enum tern_err err = tern_ping(a->tern, left_ms(a));

    if (ask_anew(a, err))
        err = tern_ping(a->tern, left_ms(a));
    return err == TERN_OK || (a->tern && failed(a, reason_of(err, 0)));
}

static bool ask(struct ask *a, const char *command, const char *const *args, uint32_t nargs,
                json_t **ret)
{
    const char *text;
    enum tern_err err = tern_admin(a->tern, command, args, nargs, left_ms(a), &text);
    json_t *answer;

    if (ask_anew(a, err))
        err = tern_admin(a->tern, command, args, nargs, left_ms(a), &text);
    if (err != TERN_OK)
        return a->tern && failed(a, reason_of(err, 0));
    answer = json_loads(text, 0, NULL);
    if (!json_is_object(answer)) {
        json_decref(answer);
        return failed(a, ASK_REFUSED);
    }
    *ret = answer;
    return true;
}

bool ask_for(struct ask *a, const char *command, json_t **ret)
{
    return ask(a, command, NULL, 0, ret);
}

/* Adds one page of rows to `whole`; *from is the start of the next page, 0 at the end. */
static bool page(struct ask *a, const char *list, uint32_t rows, json_t *whole, uint64_t *from)
{
    char begin[32], limit[32];
    const char *const args[] = {begin, limit};
    const json_t *next;
    json_t *answer;

    snprintf(begin, sizeof(begin), "from=%llu", (unsigned long long)*from);
    snprintf(limit, sizeof(limit), "limit=%u", rows < ASK_PAGE_ROWS ? rows : ASK_PAGE_ROWS);
    if (!ask(a, list, args, 2, &answer))
        return false;
    json_array_extend(json_object_get(whole, list), json_object_get(answer, list));
    next = json_object_get(answer, "next");
    *from = (uint64_t)json_integer_value(next) > *from ? (uint64_t)json_integer_value(next) : 0;
    json_decref(answer);
    return true;
}

bool ask_list(struct ask *a, const char *list, uint32_t rows, json_t **ret)
{
    json_t *whole = json_object();
    uint32_t pages = 0, have;
    uint64_t from = 0;

    json_object_set_new(whole, list, json_array());
    do {
        have = (uint32_t)json_array_size(json_object_get(whole, list));
        if (have >= rows)
            break;
        if (!page(a, list, rows - have, whole, &from)) {
            json_decref(whole);
            return false;
        }
    } while (from > 0 && ++pages < ASK_PAGES_MAX);
    json_object_set_new(whole, "more", json_boolean(from > 0));
    *ret = whole;
    return true;
}

void ask_end(struct ask *a)
{
    tern_destroy(a->tern);
    a->tern = NULL;
}
