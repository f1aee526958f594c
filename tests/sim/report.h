/* The results of a run of many seeds: counted by the simulators of the core and of RDMA, printed in
 * one form. */
#ifndef SIM_REPORT_H
#define SIM_REPORT_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#define FAILING_MAX 64
#define STOP_AFTER  8 /* violations */
#define MARKS_MAX   512

/* A state that histories have to reach: `least` of 10,000 histories at least. */
struct mark_row {
    const char *name;
    uint32_t least;
};

struct report {
    const char *over; /* kind of the histories: "", " over RDMA", " with large geometries" */
    uint64_t first, histories, events, violations, nfailing, failing[FAILING_MAX];
    uint64_t states; /* distinct ones at the ends of histories; 0: not counted */
    double seconds;  /* processor time of this process */
    const char *const *fault_name;
    const struct mark_row *mark_row;
    const uint64_t *faults;
    bool *marks; /* reached by this history; report_history counts and clears them */
    uint64_t reached[MARKS_MAX];
    uint32_t nfaults, nmarks;
};

/* Counts a history that is over, played once or twice. */
void report_history(struct report *r);
void report_failure(struct report *r, uint64_t seed);
/* Returns the exit status: 0 if nothing failed and no mark was missed. `large`: report of the
 * histories with large geometries that were played beside; NULL: none were. */
int report_print(const struct report *r, const struct report *large, bool json);

double cpu_seconds(void);
void json_put(json_t *object, const char *key, uint64_t value);
/* Prints and frees it. */
void json_end(json_t *root);

#endif
