/* All alarms of a daemon, each with its state: one for each kind and each thing that it may be
 * about. The tick looks at a bounded number of them, the log hears of each beginning and each end,
 * and operators are told which are on. Nothing here changes the core. Owner thread. */
#ifndef SHELL_ALARMS_H
#define SHELL_ALARMS_H

#include "shell/alarm/alarm.h"
#include "shell/config/config.h"

#define ALARM_PASS_NS       500000000u /* all are looked at once in so long, or as soon as may be */
#define ALARM_LOOKS         512        /* in one tick */
#define ALARMS_SHOWN        256        /* in one answer to operators */
#define ALARM_SUBJECT_BYTES (CONFIG_NAME_BYTES + ENGINE_NAME_MAX)
#define ALARM_DETAIL_BYTES  (PROCS_PER_ENGINE_MAX * 12)
#define ALARM_TEXT_BYTES    (ALARM_DETAIL_BYTES + 256)

struct daemon;

struct alarms {
    struct alarm *v;             /* owned; those of a kind in a row */
    uint32_t n, next;            /* next: where the next tick goes on */
    uint64_t pass_ns;            /* when to begin with the first again */
    uint32_t on;                 /* how many are */
    uint32_t on_of[ALARM_KINDS]; /* of each kind */
    uint32_t first[ALARM_KINDS]; /* of each kind */
};

/* An alarm that is on, as operators see it. */
struct alarm_view {
    const char *name, *severity, *action;
    char subject[ALARM_SUBJECT_BYTES]; /* "": the daemon */
    char text[ALARM_TEXT_BYTES];       /* what it means, and what is known now */
    uint64_t since_ns;
};

enum tern_err alarms_init(struct daemon *d);
void alarms_finish(struct daemon *d);
void alarms_tick(struct daemon *d, uint64_t now_ns);
/* Looks at those of that engine at once. */
void alarms_engine(struct daemon *d, uint32_t slot, uint64_t now_ns);
/* At those of all GPUs. */
void alarms_gpus(struct daemon *d, uint64_t now_ns);
/* That engine is gone, and its slot may be another's next. */
void alarms_engine_gone(struct daemon *d, uint32_t slot, uint64_t now_ns);
/* That peer leaves, and its slot may be another's next. */
void alarms_peer_left(struct daemon *d, uint32_t slot, uint64_t now_ns);
/* The first that is on from *at (0 at first), which becomes the place behind it. False: no more. */
bool alarms_view(struct daemon *d, uint32_t *at, uint64_t now_ns, struct alarm_view *ret);

#endif
