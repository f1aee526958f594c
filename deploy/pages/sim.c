/* The part of tern-sim that reads its command line. */
#include "tests/sim/options.h"

int main(int argc, char **argv)
{
    struct options options;

    options_read(argc, argv, &options);
    return 0;
}
