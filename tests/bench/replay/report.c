/* The report of a run: one JSON object, or a table for people; and the verdict, which is the same
 * for both. */
#include <stdio.h>
#include <stdlib.h>

#include "engine/json.h"
#include "run.h"

struct figures {
    uint64_t wrong, failed, leaked, transferred_bytes, socket_bytes, corrupt, lost_tickets;
    double match_p50_us, match_p99_us, transfer_gb_s, elapsed_s;
};

static int by_value(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

    return (x > y) - (x < y);
}

static double quantile_us(const uint32_t *sorted, uint64_t n, double q)
{
    uint64_t at = (uint64_t)(q * (double)n);

    return n ? sorted[at < n ? at : n - 1] / 1e3 : 0;
}

/* Counts the tickets on which the daemon's counters and the engines' disagree: those that the
 * daemon counts nowhere, those that still stand, those that it counts as taken and no engine
 * received, and those that an engine received and it does not count as taken. */
static uint64_t tickets_unaccounted(struct run *r)
{
    const struct ticket_counts *was = &r->tickets_before, *is = &r->tickets_after;
    struct board *b = r->board;
    uint64_t made = is->made - was->made, taken = is->taken - was->taken,
             dropped = is->dropped - was->dropped, expired = is->expired - was->expired,
             told = counted(&b->tickets), got = counted(&b->tickets_fetched),
             sure = counted(&b->tickets_taken), lost = is->standing - was->standing;

    lost += made > told ? made - told : told - made;
    lost += made > taken + dropped + expired ? made - taken - dropped - expired : 0;
    lost += taken > got ? taken - got : 0;
    lost += taken < sure ? sure - taken : 0;
    lost += dropped != counted(&b->tickets_dropped);
    return lost;
}

static struct figures work_out(struct run *r)
{
    struct board *b = r->board;
    const struct transfer_counts *was = &r->before.transfers, *is = &r->after[1].transfers;
    uint64_t n = counted(&b->match_n), ns = counted(&b->fetching_ns);
    struct figures f = {
        .wrong = counted(&b->wrong_bytes) + counted(&b->prefill_wrong_bytes),
        .failed = counted(&b->prefill_failed) + counted(&b->decode_failed),
        .transferred_bytes = is->payload_bytes_in - was->payload_bytes_in,
        .socket_bytes = is->socket_bytes_in - was->socket_bytes_in,
        .corrupt = is->corrupt_detected - was->corrupt_detected,
        .lost_tickets = counted(&b->lost_tickets) + tickets_unaccounted(r),
        .elapsed_s = (double)r->elapsed_ns / 1e9,
    };

    for (uint32_t i = 0; i < 2; i++)
        f.leaked += r->after[i].pages.total - r->after[i].pages.free + r->after[i].host.total -
                    r->after[i].host.free;
    n = n < BOARD_TIMES_MAX ? n : BOARD_TIMES_MAX;
    qsort(b->match_ns, n, sizeof b->match_ns[0], by_value);
    f.match_p50_us = quantile_us(b->match_ns, n, 0.5);
    f.match_p99_us = quantile_us(b->match_ns, n, 0.99);
    f.transfer_gb_s = ns ? (double)f.transferred_bytes / (double)ns : 0;
    return f;
}

static uint64_t history_groups(const struct run *r)
{
    uint64_t n = 1;

    for (uint32_t i = 0; i < r->options->profile->nmore; i++)
        n += r->options->profile->more[i].family == TERN_HISTORY;
    return n;
}

/* Returns NULL, or the check that failed. */
static const char *fault(struct run *r, const struct figures *f)
{
    struct board *b = r->board;

    if (f->wrong)
        return "bytes were wrong";
    if (f->failed)
        return "requests failed";
    for (uint32_t i = 0; i < 2; i++) {
        if (r->after[i].pages.total != r->pool_pages)
            return "a daemon does not count the pages of the run's pool";
        if ((r->after[i].host.total > 0) != (r->options->host_pages > 0))
            return "a daemon does not count the pages of the run's host tier";
    }
    if (f->leaked)
        return "pages leaked";
    if (f->lost_tickets)
        return "tickets were lost";
    if (counted(&b->finished) != r->survey.requests)
        return "requests were lost";
    if (counted(&b->prompt_pages) != r->survey.pages * history_groups(r))
        return "prompt pages were lost";
    if (counted(&b->unbalanced) ||
        counted(&b->prompt_pages) != counted(&b->decode_hit_pages) + counted(&b->transferred_pages))
        return "prompt pages are not decode-side hits and transferred pages together";
    if (counted(&b->verified_pages) != counted(&b->prompt_pages))
        return "not every prompt page was compared";
    if (f->corrupt != r->options->corrupt)
        return "the pages found corrupt are not those that were corrupted";
    if (!r->daemons_ended)
        return "a daemon did not end cleanly";
    return NULL;
}

static void put_tickets(struct run *r, const struct figures *f, json_t *o)
{
    static const char *const names[TROUBLE_KINDS] = {
#define X(name, key) key,
        TROUBLE_TABLE(X)
#undef X
    };
    const struct ticket_counts *was = &r->tickets_before, *is = &r->tickets_after;
    struct board *b = r->board;
    json_t *troubles = json_object();

    json_put_u64(o, "tickets", counted(&b->tickets));
    json_put_u64(o, "tickets_taken", is->taken - was->taken);
    json_put_u64(o, "tickets_dropped", is->dropped - was->dropped);
    json_put_u64(o, "tickets_expired", is->expired - was->expired);
    json_put_u64(o, "lost_tickets", f->lost_tickets);
    json_put_u64(o, "handed_again", counted(&b->handed_again));
    json_put_u64(o, "cancelled_fetches", counted(&b->cancelled));
    for (uint32_t i = TROUBLE_NONE + 1; i < TROUBLE_KINDS; i++)
        json_put_u64(troubles, names[i], counted(&b->troubles[i]));
    json_object_set_new(o, "troubles", troubles);
}

static void print_json(struct run *r, const struct figures *f)
{
    struct board *b = r->board;
    json_t *o = json_object();

    json_put_u64(o, "requests", counted(&b->finished));
    json_put_u64(o, "prompt_tokens", r->survey.prompt_tokens);
    json_put_u64(o, "matched_tokens", counted(&b->matched_tokens));
    json_put_u64(o, "lost_resumable_tokens", counted(&b->lost_resumable_tokens));
    json_put_u64(o, "prompt_pages", counted(&b->prompt_pages));
    json_put_u64(o, "decode_hit_pages", counted(&b->decode_hit_pages));
    json_put_u64(o, "transferred_pages", counted(&b->transferred_pages));
    json_put_u64(o, "transferred_bytes", f->transferred_bytes);
    json_put_u64(o, "socket_bytes", f->socket_bytes);
    json_put_u64(o, "bytes_moved", f->transferred_bytes);
    json_put_u64(o, "bytes_needed", counted(&b->bytes_needed));
    json_put_u64(o, "verified_pages", counted(&b->verified_pages));
    json_put_u64(o, "verified_tail_pages", counted(&b->verified_tail_pages));
    json_put_u64(o, "verified_state_pages", counted(&b->verified_state_pages));
    json_put_u64(o, "wrong_bytes", f->wrong);
    json_put_u64(o, "corrupt_detected", f->corrupt);
    json_put_u64(o, "failed_requests", f->failed);
    json_put_u64(o, "retries", counted(&b->prefill_retries) + counted(&b->decode_retries));
    json_put_u64(o, "retracts", counted(&b->prefill_retracts) + counted(&b->decode_retracts));
    json_put_u64(o, "recovers", counted(&b->prefill_recovers) + counted(&b->decode_recovers));
    json_put_u64(o, "recovered_pages",
                 counted(&b->prefill_recovered_pages) + counted(&b->decode_recovered_pages));
    json_put_u64(o, "host_hit_tokens",
                 counted(&b->prefill_host_hit_tokens) + counted(&b->decode_host_hit_tokens));
    json_put_u64(o, "leaked_pages", f->leaked);
    json_put_u64(o, "state_pages_peak", r->peak_state);
    json_put_u64(o, "state_reclaimable_peak", r->peak_reclaimable);
    json_put_u64(o, "history_pages_peak", r->peak_pages);
    json_put_u64(o, "pool_pages", r->pool_pages);
    put_tickets(r, f, o);
    json_put_f64(o, "match_us_p50", f->match_p50_us);
    json_put_f64(o, "match_us_p99", f->match_p99_us);
    json_put_f64(o, "transfer_gb_s", f->transfer_gb_s);
    json_put_f64(o, "elapsed_s", f->elapsed_s);
    json_print(o);
    json_decref(o);
}

static double percent(uint64_t part, uint64_t whole)
{
    return whole ? 100.0 * (double)part / (double)whole : 0;
}

static void line(const char *what, uint64_t n, const char *format, double note)
{
    printf("  %-28s %14llu  ", what, (unsigned long long)n);
    if (format)
        printf(format, note);
    putchar('\n');
}

static void print_table(struct run *r, const struct figures *f)
{
    struct board *b = r->board;
    uint64_t pages = counted(&b->prompt_pages);

    printf("%s, profile %s, %llu B a page, %u in flight, %u rank%s a side\n\n",
           r->options->source.trace ? r->options->source.trace : "generated sessions",
           r->options->profile->name,
           (unsigned long long)(r->options->page_bytes ? r->options->page_bytes
                                                       : r->options->profile->page_bytes),
           r->options->concurrency, r->options->ranks, r->options->ranks == 1 ? "" : "s");
    line("requests", counted(&b->finished), "%.1f a second",
         (double)counted(&b->finished) / f->elapsed_s);
    line("prompt tokens", r->survey.prompt_tokens, NULL, 0);
    line("matched before prefill", counted(&b->matched_tokens), "%.2f %% of the prompt tokens",
         percent(counted(&b->matched_tokens), r->survey.prompt_tokens));
    line("prompt pages", pages, NULL, 0);
    line("  already on the decode side", counted(&b->decode_hit_pages), "%.2f %%",
         percent(counted(&b->decode_hit_pages), pages));
    line("  transferred", counted(&b->transferred_pages), "%.2f %%",
         percent(counted(&b->transferred_pages), pages));
    line("transferred bytes", f->transferred_bytes, "%.2f GB/s while a fetch was under way",
         f->transfer_gb_s);
    line("bytes on the data sockets", f->socket_bytes, "%.2f %% of the transferred bytes",
         percent(f->socket_bytes, f->transferred_bytes));
    line("most pages in use", r->peak_pages, NULL, 0);
    line("restarted (full pools etc.)", counted(&b->prefill_retries) + counted(&b->decode_retries),
         NULL, 0);
    line("sessions retracted", counted(&b->prefill_retracts) + counted(&b->decode_retracts),
         "%.0f of them recovered, every byte compared",
         (double)(counted(&b->prefill_recovers) + counted(&b->decode_recovers)));
    if (r->options->tickets)
        line("tickets", counted(&b->tickets), "%.0f sessions handed over once more",
             (double)counted(&b->handed_again));
    if (r->options->host_pages > 0)
        line("tokens from the host tier",
             counted(&b->prefill_host_hit_tokens) + counted(&b->decode_host_hit_tokens), NULL, 0);
    printf("  %-28s %14s  p50 %.1f us, p99 %.1f us\n", "Match", "", f->match_p50_us,
           f->match_p99_us);
    printf("  %-28s %13.2fs\n\nchecked\n", "elapsed", f->elapsed_s);
    line("pages compared", counted(&b->verified_pages), "%.2f %% of the prompt pages, every byte",
         percent(counted(&b->verified_pages), pages));
    if (r->options->profile->nmore > 0) {
        line("lost resumable tokens", counted(&b->lost_resumable_tokens), NULL, 0);
        line("STATE pages compared", counted(&b->verified_state_pages), NULL, 0);
        line("STATE pages in use, at most", r->peak_state, "%.0f more reclaimable, at most",
             (double)r->peak_reclaimable);
    }
    line("wrong bytes", f->wrong, NULL, 0);
    line("corrupt pages caught", f->corrupt, "of %.0f injected", r->options->corrupt);
    line("failed requests", f->failed, NULL, 0);
    line("leaked pages", f->leaked, NULL, 0);
    if (r->options->tickets)
        line("lost tickets", f->lost_tickets, NULL, 0);
}

bool report(struct run *r)
{
    struct figures f = work_out(r);
    const char *wrong = fault(r, &f),
               *said = r->board->decode_why[0] ? r->board->decode_why : r->board->prefill_why;

    if (r->options->json)
        print_json(r, &f);
    else
        print_table(r, &f);
    if (wrong)
        fprintf(stderr, "tern-replay: %s%s%s\n", wrong, *said ? ": " : "", said);
    else if (!r->options->json)
        printf("\nall checks passed\n");
    return wrong == NULL;
}
