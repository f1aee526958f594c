/* All alarms of a daemon with their states: one for each kind and each of its subjects. The tick
 * examines a bounded number of alarms; the log reports each beginning and each end, and operators
 * see the alarms that are on. Nothing here changes the core. Owner thread. */
#ifndef SHELL_ALARMS_H
#define SHELL_ALARMS_H

#include "base/states.h"
#include "core/query.h"
#include "shell/alarm/alarm_table.h"
#include "shell/config/config.h"
#include "shell/log/log.h"

/* ---- one alarm: its row of the table, its state, and the condition of each kind as a function
 * over views of the core. Nothing here logs or changes anything but the alarm itself. ---- */

/* The states of an alarm. */
#define ALARM_STATE_TABLE(X)                                                                       \
    X(ALARM, CLEAR, TO(ALARM, RISING), "its condition is false")                                   \
    X(ALARM, RISING, TO(ALARM, CLEAR) | TO(ALARM, ON),                                             \
      "its condition is true, but not for long enough")                                            \
    X(ALARM, ON, TO(ALARM, FALLING),                                                               \
      "its beginning is logged; its condition is true, or nearly so")                              \
    X(ALARM, FALLING, TO(ALARM, ON) | TO(ALARM, CLEAR),                                            \
      "its condition is false, but not for long enough")

STATE_MACHINE(alarm, ALARM, ALARM_STATE_TABLE)

#define ALARM_QUARANTINE_NS 10000000000u /* a data path without progress ends earlier */
#define ALARM_REFUSED_NS    10000000000u /* how long a refusal counts */
#define ALARM_BACKLOG_PARTS 4 /* parts of the records: 3 of 4 begin it, less than 2 end it */

enum alarm_kind {
#define X(NAME, ...) ALARM_KIND_##NAME,
    ALARM_TABLE(X)
#undef X
        ALARM_KINDS
};

/* The subjects that have one alarm each. */
enum alarm_of {
    ALARM_OF_DAEMON,
    ALARM_OF_ENGINE,
    ALARM_OF_TENANT,
    ALARM_OF_SHARE,
    ALARM_OF_PEER,
    ALARM_OF_GPU
};

/* The value of a condition. NEARLY neither begins nor ends an alarm. */
enum alarm_fact { ALARM_IS_NOT, ALARM_IS_NEARLY, ALARM_IS };

struct alarm_asked;

struct alarm_row {
    const char *name, *ended; /* events of the log */
    enum alarm_of of;
    enum log_level severity;
    enum alarm_fact (*fact)(const struct alarm_asked *a); /* evaluates the condition */
    uint64_t begin_ns, end_ns;
    const char *means, *action; /* for operators */
};
extern const struct alarm_row alarm_row[ALARM_KINDS];

struct alarm {
    enum alarm_state state;
    enum alarm_kind kind;
    uint64_t since_ns;   /* when its condition was first true; from RISING on */
    uint64_t falling_ns; /* when its condition became false; in FALLING */
};

static inline enum alarm_fact alarm_fact_of(bool is)
{
    return is ? ALARM_IS : ALARM_IS_NOT;
}

enum alarm_news { ALARM_NO_NEWS, ALARM_BEGAN, ALARM_ENDED };

static inline bool alarm_on(const struct alarm *a)
{
    return a->state == ALARM_ON || a->state == ALARM_FALLING;
}

enum alarm_news alarm_look(struct alarm *a, enum alarm_fact fact, uint64_t now_ns);
/* Ends an alarm whose subject is gone. */
enum alarm_news alarm_end(struct alarm *a);

enum alarm_fact alarm_quarantine(const struct core_view *v, uint64_t now_ns);
enum alarm_fact alarm_backlog(const struct core_view *v, uint32_t retires);
/* last_ns: time of the last refusal; 0: none. */
enum alarm_fact alarm_refused(uint64_t last_ns, uint64_t now_ns);

/* ---- all of a daemon ---- */

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
