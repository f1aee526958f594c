/* tern-replay: plays a workload through a prefill daemon and a decode daemon as two engines would,
 * and compares every byte that arrives with what it must be. */
#include <stdio.h>
#include <string.h>

#include "follow.h"
#include "reshard.h"
#include "run.h"

int main(int argc, char **argv)
{
    static struct options options;
    static struct run run = {.options = &options};
    bool played;

    if (argc > 1 && strcmp(argv[1], "--reshard") == 0)
        return reshard_main(argc - 1, argv + 1);
    if (argc > 1 && strcmp(argv[1], "--follow") == 0)
        return follow_main(argc - 1, argv + 1);
    options_read(argc, argv, &options);
    played = run_start(&run) && run_play(&run);
    run_finish(&run);
    if (!played) {
        fprintf(stderr, "tern-replay: %s\n", run.why);
        return 2;
    }
    return report(&run) ? 0 : 1;
}
