/* How deep the inputs of a fuzz target reach. Each target marks where an input begins and where it
 * has passed the first check of the fuzzed code: a handshake, a header, a body that can be read. A
 * target whose inputs fail there finds nothing, so less than half is a failure: standalone.c judges
 * the corpus, and fuzz.sh a whole run. */
#ifndef FUZZ_PASSED_H
#define FUZZ_PASSED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Called first in LLVMFuzzerTestOneInput. */
void fuzz_begin(void);
/* Counts once for each input. */
void fuzz_passed(void);

/* Prints the counts since the start, or since the last call. Returns false if fewer than half
 * passed, or nothing was counted. */
bool fuzz_report(const char *what);

/* For a target that can decide it without side effects: would this input pass? The mutator then
 * draws again if most of its changes would not. */
__attribute__((weak)) bool fuzz_gets_past(const uint8_t *data, size_t n);

#endif
