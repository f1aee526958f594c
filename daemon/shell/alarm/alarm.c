/* See alarms.h. */
#include "shell/alarm/alarms.h"

#define MS_NS UINT64_C(1000000)

static const struct alarm_row rows[ALARM_KINDS] = {
#define X(NAME, word, of, severity, begin_ms, end_ms, begins, ends, means, action)                 \
    [ALARM_KIND_##NAME] = {                                                                        \
        #word,          #word "_ended", ALARM_OF_##of, LEVEL_##severity, begin_ms * MS_NS,         \
        end_ms * MS_NS, means,          action},
    ALARM_TABLE(X)
#undef X
};

const struct alarm_row *alarm_row(enum alarm_kind kind)
{
    return &rows[kind];
}

static void follow(struct alarm *a, enum alarm_fact fact, uint64_t now_ns)
{
    if (a->state == ALARM_CLEAR && fact == ALARM_IS) {
        alarm_state_move(&a->state, ALARM_RISING);
        a->since_ns = now_ns;
    } else if (a->state == ALARM_RISING && fact != ALARM_IS) {
        alarm_state_move(&a->state, ALARM_CLEAR);
    } else if (a->state == ALARM_ON && fact == ALARM_IS_NOT) {
        alarm_state_move(&a->state, ALARM_FALLING);
        a->falling_ns = now_ns;
    } else if (a->state == ALARM_FALLING && fact != ALARM_IS_NOT) {
        alarm_state_move(&a->state, ALARM_ON);
    }
}

enum alarm_news alarm_look(struct alarm *a, enum alarm_fact fact, uint64_t now_ns)
{
    const struct alarm_row *row = &rows[a->kind];

    follow(a, fact, now_ns);
    if (a->state == ALARM_RISING && now_ns - a->since_ns >= row->begin_ns) {
        alarm_state_move(&a->state, ALARM_ON);
        return ALARM_BEGAN;
    }
    if (a->state == ALARM_FALLING && now_ns - a->falling_ns >= row->end_ns) {
        alarm_state_move(&a->state, ALARM_CLEAR);
        return ALARM_ENDED;
    }
    return ALARM_NO_NEWS;
}

enum alarm_news alarm_end(struct alarm *a)
{
    bool was_on = alarm_on(a);

    if (a->state == ALARM_ON)
        alarm_state_move(&a->state, ALARM_FALLING);
    if (a->state != ALARM_CLEAR)
        alarm_state_move(&a->state, ALARM_CLEAR);
    return was_on ? ALARM_ENDED : ALARM_NO_NEWS;
}

enum alarm_fact alarm_quarantine(const struct core_view *v, uint64_t now_ns)
{
    uint64_t since_ns = v->oldest_quarantine_ns;

    if (since_ns != 0 && since_ns + ALARM_QUARANTINE_NS <= now_ns)
        return ALARM_IS;
    return since_ns != 0 && since_ns + ALARM_QUARANTINE_NS / 2 <= now_ns ? ALARM_IS_NEARLY
                                                                         : ALARM_IS_NOT;
}

enum alarm_fact alarm_backlog(const struct core_view *v, uint32_t retires)
{
    uint64_t used = (uint64_t)(retires - v->retires_free) * ALARM_BACKLOG_PARTS;

    if (used >= (uint64_t)retires * 3)
        return ALARM_IS;
    return used >= (uint64_t)retires * 2 ? ALARM_IS_NEARLY : ALARM_IS_NOT;
}

enum alarm_fact alarm_refused(uint64_t last_ns, uint64_t now_ns)
{
    return alarm_fact_of(last_ns != 0 && now_ns - last_ns < ALARM_REFUSED_NS);
}
