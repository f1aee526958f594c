/* The text of a tape's events: every kind and every operation has its word and names its subject,
 * and nothing contains users' text. */
#include "client/ctl/tape/tape_text.h"

#include <string.h>

#include "testing/test.h"
#include "unit/rig/rig_event.h"

static const struct tape_field *field(const struct tape_line *l, const char *key)
{
    for (uint32_t i = 0; i < l->n; i++) {
        if (strcmp(l->field[i].key, key) == 0)
            return &l->field[i];
    }
    return NULL;
}

static void filled(struct event *e, enum event_kind kind, enum op op)
{
    static struct lent lent;
    struct prng p;

    prng_init(&p, 1);
    event_fill(&p, e, kind, op, &lent);
}

TEST(every_kind_and_every_op_has_its_word)
{
    struct tape_line l;
    struct event e;

    for (uint32_t kind = 1; kind < EV_COUNT; kind++) {
        for (uint32_t op = 1; op < (kind == EV_REQUEST ? OP_COUNT : 2); op++) {
            filled(&e, (enum event_kind)kind, (enum op)op);
            tape_line(&e, &l);
            assert_string_not_equal(l.event, "unknown");
            assert_true(l.now_ns == e.now_ns);
            assert_int_equal(l.n > 0, kind != EV_TIMER && kind != EV_LOOK);
            for (uint32_t i = 0; i < l.n; i++) {
                assert_ptr_equal(field(&l, l.field[i].key), &l.field[i]); /* no key twice */
                if (l.field[i].word)
                    assert_true(l.field[i].word[0] && strcmp(l.field[i].word, "unknown") != 0);
            }
        }
    }
}

TEST(a_request_names_its_session)
{
    struct tape_line l;
    struct event e;

    filled(&e, EV_REQUEST, OP_MATCH);
    tape_line(&e, &l);
    assert_string_equal(field(&l, "op")->word, "match");
    assert_int_equal(field(&l, "conn")->number, e.request.conn);
    assert_true(field(&l, "session")->number == session_id_pack(e.request.match.session));
    assert_int_equal(field(&l, "session")->hex_digits, 16);

    filled(&e, EV_REQUEST, OP_EVICT);
    tape_line(&e, &l);
    assert_null(field(&l, "session"));
}

TEST(an_end_says_its_error)
{
    struct tape_line l;
    struct event e;

    filled(&e, EV_COPIED, OP_NONE);
    e.copied.err = TERN_CORRUPT;
    tape_line(&e, &l);
    assert_string_equal(field(&l, "err")->word, "CORRUPT");
    assert_true(field(&l, "job")->number == copy_id_pack(e.copied.job));

    filled(&e, EV_SEALED, OP_NONE);
    tape_line(&e, &l);
    assert_int_equal(field(&l, "jobs")->number, e.sealed.n);
    assert_true(field(&l, "job")->number == seal_id_pack(e.sealed.job[0]));

    filled(&e, EV_PULLED, OP_NONE);
    memset(e.pulled.ok, 0, sizeof e.pulled.ok);
    e.pulled.ok[0] = 7;
    tape_line(&e, &l);
    assert_int_equal(field(&l, "right")->number, 3);
}
