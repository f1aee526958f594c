/* See report.h. */
#include "report.h"

#include <stdio.h>
#include <time.h>

#include "enough.h"

double cpu_seconds(void)
{
    struct timespec t;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

void report_history(struct report *r)
{
    r->histories++;
    for (uint32_t i = 0; i < r->nmarks; i++) {
        r->reached[i] += r->marks[i];
        r->marks[i] = false;
    }
}

void report_failure(struct report *r, uint64_t seed)
{
    r->violations++;
    if (r->nfailing < FAILING_MAX)
        r->failing[r->nfailing++] = seed;
}

static double per_second(const struct report *r)
{
    return (double)r->histories / (r->seconds + 1e-9);
}

/* Adds the names of the missed marks to the list, or prints them where there is no list. */
static uint32_t marks_missed(const struct report *r, json_t *list)
{
    uint32_t missed = 0;

    for (uint32_t i = 0; i < r->nmarks; i++) {
        const struct mark_row *row = &r->mark_row[i];

        if (!mark_missed(r->reached[i], row->least, r->histories))
            continue;
        missed++;
        if (list)
            json_array_append_new(list, json_string(row->name));
        else
            printf("mark missed: %s %llu\n", row->name, (unsigned long long)r->reached[i]);
    }
    return missed;
}

void json_put(json_t *object, const char *key, uint64_t value)
{
    json_object_set_new(object, key, json_integer((json_int_t)value));
}

static json_t *report_object(const struct report *r, uint32_t *ret_missed)
{
    json_t *root = json_object(), *seeds = json_array(), *faults = json_object(),
           *marks = json_object(), *list = json_array();

    *ret_missed = marks_missed(r, list);
    for (uint64_t i = 0; i < r->nfailing; i++)
        json_array_append_new(seeds, json_integer((json_int_t)r->failing[i]));
    for (uint32_t i = 0; i < r->nfaults; i++)
        json_put(faults, r->fault_name[i], r->faults[i]);
    for (uint32_t i = 0; i < r->nmarks; i++)
        json_put(marks, r->mark_row[i].name, r->reached[i]);
    json_put(root, "first", r->first);
    json_put(root, "histories", r->histories);
    json_put(root, "events", r->events);
    if (r->states)
        json_put(root, "states", r->states);
    json_put(root, "violations", r->violations);
    json_object_set_new(root, "failing_seeds", seeds);
    json_object_set_new(root, "histories_per_s", json_real(per_second(r)));
    json_object_set_new(root, "faults", faults);
    json_object_set_new(root, "marks", marks);
    json_object_set_new(root, "marks_missed", list);
    return root;
}

static bool print_text(const struct report *r)
{
    printf("%llu histories%s from seed %llu, %llu events, ", (unsigned long long)r->histories,
           r->over, (unsigned long long)r->first, (unsigned long long)r->events);
    if (r->states)
        printf("%llu states, ", (unsigned long long)r->states);
    printf("%llu violations, %.0f histories a second\n", (unsigned long long)r->violations,
           per_second(r));
    return marks_missed(r, NULL) > 0;
}

int report_print(const struct report *r, const struct report *large, bool json)
{
    bool missed = false;
    uint32_t n = 0, more = 0;
    json_t *root;

    if (json) {
        root = report_object(r, &n);
        if (large)
            json_object_set_new(root, "large", report_object(large, &more));
        json_end(root);
        missed = n + more > 0;
    } else {
        missed = print_text(r);
        missed = (large && print_text(large)) || missed;
    }
    return missed || r->violations || (large && large->violations) ? 1 : 0;
}

void json_end(json_t *root)
{
    json_dumpf(root, stdout, JSON_INDENT(2));
    putchar('\n');
    json_decref(root);
}
