/* How deep the inputs of a fuzz target go. Each target says where an input begins and where it is
 * past the first check of what is fuzzed: a handshake, a header, a body that can be read. A target
 * whose inputs die there finds nothing, so less than half is a failure: standalone.c judges the
 * corpus, and fuzz.sh a whole run. */
#ifndef FUZZ_PASSED_H
#define FUZZ_PASSED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The first thing in LLVMFuzzerTestOneInput. */
void fuzz_begin(void);
/* Counts once for each input. */
void fuzz_passed(void);

/* Prints the counts since the start, or since the last call. False: fewer than half got past, or
 * nothing was counted. */
bool fuzz_report(const char *what);

/* Of a target that can say it without doing anything: would this input get past? The mutator then
 * draws again where most of what it makes would not. */
__attribute__((weak)) bool fuzz_gets_past(const uint8_t *data, size_t n);

#endif
