/* See agent.h. */
#include "client/agent/agent.h"

#include <time.h>

#define NS_PER_MS 1000000ull
#define NS_PER_US 1000.0
#define NS_PER_S  1e9

/* A restarted daemon has another incarnation, and its counts begin at 0. */
static void note_life(struct agent *a, const json_t *status)
{
    uint64_t incarnation = tern_incarnation(a->ask.tern);
    struct timespec now;

    if (incarnation == a->incarnation)
        return;
    clock_gettime(CLOCK_REALTIME, &now);
    a->incarnation = incarnation;
    a->start_time_s = (double)now.tv_sec + (double)now.tv_nsec / NS_PER_S -
                      json_number_value(json_object_get(status, "uptime_s"));
    spaces_restart(&a->spaces);
}

static bool add_list(struct agent *a, json_t *to, const char *list, uint32_t rows)
{
    json_t *answer;

    return ask_list(&a->ask, list, rows, &answer) && json_object_set_new(to, list, answer) == 0;
}

static bool add_answer(struct agent *a, json_t *to, const char *command)
{
    json_t *answer;

    return ask_for(&a->ask, command, &answer) && json_object_set_new(to, command, answer) == 0;
}

/* Namespaces are requested before the tenants' counts, so that these are never smaller. */
static bool ask_metrics(struct agent *a, json_t *to)
{
    json_t *spaces, *tenants;

    if (!add_list(a, to, "peers", UINT32_MAX) ||
        !ask_list(&a->ask, "namespaces", a->spaces.limit, &spaces))
        return false;
    if (!add_answer(a, to, "stats")) {
        json_decref(spaces);
        return false;
    }
    tenants = json_object_get(json_object_get(to, "stats"), "tenants");
    json_object_set_new(
        to, "namespaces",
        spaces_update(&a->spaces, json_object_get(spaces, "namespaces"), tenants, a->tenants));
    json_decref(spaces);
    return true;
}

static bool ask_page(struct agent *a, json_t *to)
{
    return add_answer(a, to, "stats") && add_list(a, to, "peers", AGENT_VIEW_ROWS_MAX) &&
           add_list(a, to, "sessions", AGENT_VIEW_ROWS_MAX) &&
           add_list(a, to, "transfers", AGENT_VIEW_ROWS_MAX) &&
           add_list(a, to, "tree", AGENT_VIEW_NODES_MAX);
}

static bool ask_view(struct agent *a, enum agent_view view, json_t *to)
{
    if (!ask_begin(&a->ask))
        return false;
    if (view == AGENT_ALIVE)
        return ask_ping(&a->ask);
    if (!add_answer(a, to, "status"))
        return false;
    note_life(a, json_object_get(to, "status"));
    return view == AGENT_STATUS || (view == AGENT_METRICS ? ask_metrics : ask_page)(a, to);
}

static json_t *agent_row(const struct agent *a, bool up)
{
    json_t *failures = json_object(), *row;

    for (uint32_t i = 0; i < ASK_ANSWERED; i++)
        json_object_set_new(failures, ask_word((enum ask_reason)i),
                            json_integer((json_int_t)a->ask.failures[i]));
    row = json_pack("{s:b, s:s, s:f, s:o}", "up", up, "state", ask_word(a->ask.why), "asked_us",
                    a->asked_us, "failures", failures);
    if (up && a->incarnation)
        json_object_set_new(row, "start_time_s", json_real(a->start_time_s));
    return row;
}

const json_t *agent_answers(struct agent *a, enum agent_view view)
{
    uint64_t now_ns = ask_now_ns();
    json_t *answers;
    bool up;

    if (a->kept[view].answers && a->ask.why == ASK_ANSWERED &&
        now_ns - a->kept[view].taken_ns < AGENT_FRESH_MS * NS_PER_MS)
        return a->kept[view].answers;
    answers = json_object();
    up = ask_view(a, view, answers);
    if (up)
        a->asked_us = (double)(ask_now_ns() - now_ns) / NS_PER_US;
    else
        json_object_clear(answers);
    json_object_set_new(answers, "agent", agent_row(a, up));
    json_decref(a->kept[view].answers);
    a->kept[view].answers = answers;
    a->kept[view].taken_ns = ask_now_ns();
    return answers;
}

void agent_end(struct agent *a)
{
    for (uint32_t i = 0; i < AGENT_VIEWS; i++)
        json_decref(a->kept[i].answers);
    ask_end(&a->ask);
}
