/* The progress bar: see progress.h. One thread draws; nothing is written if standard error is no
 * terminal. */
#include "progress.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "engine/stats.h"

#define BAR_CELLS   30
#define DRAW_GAP_NS 100000000u

void progress_start(struct progress *p, const char *what, uint64_t total)
{
    *p = (struct progress){
        .what = what, .total = total, .start_ns = clock_ns(), .terminal = isatty(STDERR_FILENO)};
}

static void draw(const struct progress *p, uint64_t done, uint64_t now, const char *note)
{
    double s = (double)(now - p->start_ns) / 1e9;
    double rate = s > 0 ? (double)done / s : 0;
    double left = rate > 0 && p->total > done ? (double)(p->total - done) / rate : 0;
    unsigned cells = p->total ? (unsigned)(done * BAR_CELLS / p->total) : 0;
    char bar[BAR_CELLS + 1];

    memset(bar, '.', BAR_CELLS);
    memset(bar, '#', cells < BAR_CELLS ? cells : BAR_CELLS);
    bar[BAR_CELLS] = 0;
    fprintf(stderr, "\r\033[K[%s] %llu/%llu %s  %.0f/s  %u:%02u left  %s", bar,
            (unsigned long long)done, (unsigned long long)p->total, p->what, rate,
            (unsigned)left / 60, (unsigned)left % 60, note);
    fflush(stderr);
}

void progress_show(struct progress *p, uint64_t done, const char *note)
{
    uint64_t now = clock_ns();

    if (!p->terminal || now - p->drawn_ns < DRAW_GAP_NS)
        return;
    p->drawn_ns = now;
    draw(p, done, now, note);
}

void progress_end(struct progress *p)
{
    if (p->terminal && p->drawn_ns)
        fputs("\r\033[K", stderr);
}
