/* tern-replay: plays a workload through a prefill daemon and a decode daemon as two engines would,
 * and compares every byte that arrives with its expected value. */
#include <stdio.h>
#include <string.h>

#include "follow.h"
#include "reshard.h"
#include "run.h"

/* Runs one of the two modes with options of their own; messages name program and mode. */
static int play_other(int argc, char **argv, int (*play)(int argc, char **argv))
{
    static char name[64];

    snprintf(name, sizeof name, "tern-replay %s", argv[1]);
    argv[1] = name;
    return play(argc - 1, argv + 1);
}

int main(int argc, char **argv)
{
    static struct options options;
    static struct run run = {.options = &options};
    bool played;

    if (argc > 1 && strcmp(argv[1], "--reshard") == 0)
        return play_other(argc, argv, reshard_main);
    if (argc > 1 && strcmp(argv[1], "--follow") == 0)
        return play_other(argc, argv, follow_main);
    options_read(argc, argv, &options);
    played = run_start(&run) && run_play(&run);
    run_finish(&run);
    if (!played) {
        fprintf(stderr, "tern-replay: %s\n", run.why);
        return 2;
    }
    return report(&run) ? 0 : 1;
}
