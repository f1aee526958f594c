/* All alarms of a daemon with their states: one for each kind and each of its subjects. The tick
 * examines a bounded number of alarms; the log reports each beginning and each end, and operators
 * see the alarms that are on. Nothing here changes the core. Owner thread. */
#ifndef SHELL_ALARMS_H
#define SHELL_ALARMS_H

#include "shell/alarm/alarm.h"
#include "shell/config/config.h"

#define ALARM_PASS_NS       500000000u /* period in which all are examined, if ticks suffice */
#define ALARM_LOOKS         512        /* alarms examined per tick */
#define ALARMS_SHOWN        256        /* alarms in one answer to operators */
#define ALARM_SUBJECT_BYTES (CONFIG_NAME_BYTES + ENGINE_NAME_MAX)
#define ALARM_DETAIL_BYTES  (PROCS_PER_ENGINE_MAX * 12)
#define ALARM_TEXT_BYTES    (ALARM_DETAIL_BYTES + 256)

struct daemon;

struct alarms {
    struct alarm *v;             /* owned; grouped by kind */
    uint32_t n, next;            /* next: where the next tick continues */
    uint64_t pass_ns;            /* start of the next pass */
    uint32_t on;                 /* number of alarms on */
    uint32_t on_of[ALARM_KINDS]; /* of each kind */
    uint32_t first[ALARM_KINDS]; /* of each kind */
};

/* An alarm that is on, for operators. */
struct alarm_view {
    const char *name, *severity, *action;
    char subject[ALARM_SUBJECT_BYTES]; /* "": the daemon */
    char text[ALARM_TEXT_BYTES];       /* its meaning and current details */
    uint64_t since_ns;
};

enum tern_err alarms_init(struct daemon *d);
void alarms_finish(struct daemon *d);
void alarms_tick(struct daemon *d, uint64_t now_ns);
/* Examines that engine's alarms at once. */
void alarms_engine(struct daemon *d, uint32_t slot, uint64_t now_ns);
/* Examines the alarms of all GPUs at once. */
void alarms_gpus(struct daemon *d, uint64_t now_ns);
/* Ends the alarms of an engine that is gone, whose slot may be reused. */
void alarms_engine_gone(struct daemon *d, uint32_t slot, uint64_t now_ns);
/* Ends the alarms of a peer that leaves, whose slot may be reused. */
void alarms_peer_left(struct daemon *d, uint32_t slot, uint64_t now_ns);
/* Finds the next alarm on from *at (0 at first), and sets *at after it. Returns false if none. */
bool alarms_view(struct daemon *d, uint32_t *at, uint64_t now_ns, struct alarm_view *ret);

#endif
