/* Counts inputs and those that passed the first check, for both drivers: see passed.h. libFuzzer
 * ends by exit(), where the counts of the run are printed. */
#include "fuzz/passed.h"

#include <stdio.h>
#include <string.h>

#define TRIES_MAX   16
#define INPUT_BYTES (1u << 20)
#define FAILING     8 /* one in so many mutations need not pass */

size_t LLVMFuzzerMutate(uint8_t *data, size_t n, size_t max) __attribute__((weak));
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t n, size_t max, unsigned seed);

static unsigned long inputs, passed;
static bool counted; /* this input */

void fuzz_begin(void)
{
    inputs++;
    counted = false;
}

void fuzz_passed(void)
{
    passed += !counted;
    counted = true;
}

bool fuzz_report(const char *what)
{
    bool enough = inputs > 0 && 2 * passed >= inputs;

    fprintf(stderr, "passed: %lu of %lu %s got past the first check%s\n", passed, inputs, what,
            enough ? "" : ": fewer than half");
    inputs = passed = 0;
    return enough;
}

__attribute__((destructor)) static void report_the_rest(void)
{
    if (inputs > 0)
        fuzz_report("inputs");
}

/* Draws again until the input passes, since most changes break the first check. */
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t n, size_t max, unsigned seed)
{
    static uint8_t before[INPUT_BYTES];
    size_t made;

    if (!fuzz_gets_past || seed % FAILING == 0 || n > sizeof before)
        return LLVMFuzzerMutate(data, n, max);
    memcpy(before, data, n);
    for (int i = 0; i < TRIES_MAX; i++) {
        made = LLVMFuzzerMutate(data, n, max);
        if (fuzz_gets_past(data, made))
            return made;
        memcpy(data, before, n);
    }
    return LLVMFuzzerMutate(data, n, max);
}
