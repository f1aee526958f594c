/* The main() of every test program that has none of its own. */
#include "testing/test.h"

int main(int argc, char **argv)
{
    return test_run(argc, argv);
}
