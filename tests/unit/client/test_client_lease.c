/* Leases of libtern against a daemon that the test scripts: requests in the background, the
 * contents of a Step, answers that come late or not at all, refusals. */
#include <dirent.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/wait.h>

#include "base/prng.h"
#include "client/libtern/pace.h"
#include "unit/rig/rig_client.h"

#define POOL    7u
#define HIGH    32u
#define LOW     8u
#define PT      16u /* tokens of a page */
#define OPS_MAX 4096u
#define REFS    4u
#define MANY    (1ull << 40)

/* The requests that the daemon has read, and how it answers. The test reads this after an answer,
 * or after `steps` was counted, and writes it while no request is under way. */
struct script {
    uint32_t given, leases, nops; /* given: leased pages */
    _Atomic uint32_t steps;
    uint32_t asked; /* by the last PageLease */
    struct {
        uint32_t kind, length, written, ntokens, base, nrefs, index[REFS];
        uint64_t session, step, pool;
    } op[OPS_MAX];
    enum tern_err lease_err, refuse; /* refuse: each ASSIGN of session 2 */
    char *why;         /* text of that refusal, with the numbers 7 and MANY; for each COMMIT, too */
    uint32_t hold;     /* Steps wait until so many are unanswered, or another request has come */
    bool runs;         /* commits return a page */
    _Atomic bool deaf; /* the daemon reads nothing */
};

static struct script script;

static void answer_lease(struct fake *f, const Tern__Wire__PageLease *m)
{
    Tern__Wire__PageLeaseReply r = TERN__WIRE__PAGE_LEASE_REPLY__INIT;
    Tern__Wire__Status status = TERN__WIRE__STATUS__INIT;
    static struct tern_page pages[256];
    Tern__Wire__Run run, *runs[] = {&run};

    script.leases++;
    script.asked = m->pages;
    check(m->pool == POOL && m->pages <= 256);
    if (script.lease_err != TERN_OK) {
        status.has_err = 1;
        status.err = script.lease_err;
        r.status = &status;
        fake_reply(f, &r);
        return;
    }
    for (uint32_t i = 0; i < m->pages; i++)
        pages[i] = (struct tern_page){.index = ++script.given, .generation = 1};
    run = fake_run(m->group, 0, pages, m->pages);
    r.n_runs = 1;
    r.runs = runs;
    fake_reply(f, &r);
}

static void note_op(const Tern__Wire__StepOp *o)
{
    uint32_t i = script.nops++ % OPS_MAX;

    script.op[i].kind = o->kind;
    script.op[i].session = o->session;
    script.op[i].step = o->step;
    script.op[i].length = o->length;
    script.op[i].written = o->written;
    script.op[i].pool = o->pool;
    script.op[i].base = o->tokens ? o->tokens->kept : 0;
    script.op[i].ntokens = o->tokens ? (uint32_t)(o->tokens->tokens.len / 4) : 0;
    script.op[i].nrefs = 0;
    for (size_t r = 0; r < o->n_runs; r++)
        for (size_t k = 0; k < o->runs[r]->refs.len / 8; k++) {
            struct tern_page page;

            memcpy(&page, o->runs[r]->refs.data + k * 8, sizeof page);
            if (script.op[i].nrefs < REFS)
                script.op[i].index[script.op[i].nrefs] = page.index;
            script.op[i].nrefs++;
        }
}

/* Answers n operations from `first` on. */
static void answer_step(struct fake *f, struct frame_header h, uint32_t first, uint32_t n)
{
    static Tern__Wire__OpResult result[OPS_MAX], *results[OPS_MAX];
    static Tern__Wire__Status status;
    static struct tern_page page = {.index = 999, .generation = 3};
    static Tern__Wire__Run run, *runs[] = {&run};
    Tern__Wire__StepReply r = TERN__WIRE__STEP_REPLY__INIT;

    tern__wire__status__init(&status);
    status.has_err = 1;
    status.err = script.refuse;
    status.text = script.why ? script.why : status.text;
    status.has_first = status.has_second = script.why != NULL;
    status.first = 7;
    status.second = MANY;
    run = fake_run(0, 0, &page, 1);
    for (uint32_t i = 0; i < n; i++) {
        tern__wire__op_result__init(&result[i]);
        results[i] = &result[i];
        if (script.refuse && script.op[first + i].kind == 9 && script.op[first + i].session == 2)
            result[i].status = &status;
        if (script.why && script.op[first + i].kind == 3)
            result[i].status = &status;
        if (script.runs && script.op[first + i].kind == 3) {
            result[i].n_runs = 1;
            result[i].runs = runs;
        }
    }
    r.n_results = n;
    r.results = results;
    f->h = h;
    fake_reply(f, &r);
}

static void serve(struct fake *f)
{
    struct frame_header held[16];
    uint32_t first[16], n[16], nheld = 0;
    const ProtobufCMessage *m;

    while ((m = fake_read(f)) != NULL) {
        struct frame_header h = f->h;

        while (script.deaf)
            usleep(100);
        if (h.type == FRAME_STEP) {
            const Tern__Wire__Step *s = (const Tern__Wire__Step *)m;

            check(nheld < 16 && script.nops + s->n_ops <= OPS_MAX);
            held[nheld] = h;
            first[nheld] = script.nops;
            n[nheld++] = (uint32_t)s->n_ops;
            for (size_t i = 0; i < s->n_ops; i++)
                note_op(s->ops[i]);
            script.steps++;
            if (nheld <= script.hold)
                continue;
        }
        for (uint32_t i = 0; i < nheld; i++)
            answer_step(f, held[i], first[i], n[i]);
        nheld = 0;
        f->h = h;
        if (h.type == FRAME_PAGE_LEASE)
            answer_lease(f, (const Tern__Wire__PageLease *)m);
        else if (h.type != FRAME_STEP)
            fake_reply_empty(f);
    }
}

static struct tern_lease *lease;
static uint32_t seq[2];

static const struct tern_group groups[] = {
    {.name = "kv", .family = TERN_HISTORY, .page_tokens = PT, .page_bytes = 4096}};
static const struct tern_layout layout = {.groups = groups, .ngroups = 1, .bytes = 1 << 20};

/* Two sessions, 1 and 2, of 20 tokens each in two pages. */
static void begin(void)
{
    const struct tern_lease_marks marks = {.low = LOW, .high = HIGH};
    const struct tern_result now = {.lengths = {0, 20, 20}, .tokens = 20};

    start(serve, NULL);
    assert_ok(tern_lease_begin(t, POOL, &layout, &marks, 4, &lease));
    assert_ok(tern_lease_wait(lease, 0));
    for (uint32_t i = 0; i < 2; i++)
        assert_ok(tern_lease_add(lease, i + 1, &now, &seq[i]));
}

FIXTURE(fresh)
{
    client_setup(state);
    script = (struct script){.given = 0};
    return 0;
}

TEST_EACH(fresh, client_stop);

static enum tern_err extend(uint32_t i, uint32_t n, uint32_t written, uint32_t allocated,
                            const struct tern_run **ret_runs, uint32_t *ret_n)
{
    return tern_lease_extend(lease, seq[i], zero_tokens, n, written, allocated, ret_runs, ret_n);
}

TEST(lease_extend_sends_nothing_and_one_step_tells_all)
{
    const struct tern_run *runs;
    uint32_t n;

    begin();
    assert_int_equal(script.leases, 1);
    assert_int_equal(tern_lease_stock(lease, 0), HIGH);
    assert_ok(extend(0, 3, 23, 28, &runs, &n)); /* within its pages: no new one */
    assert_int_equal(n, 0);
    assert_ok(extend(0, 2, 24, 40, &runs, &n));
    assert_int_equal(n, 1);
    assert_run(&runs[0], 0, 2, 1);
    assert_int_equal(tern_lease_stock(lease, 0), HIGH - 1);
    assert_int_equal(script.steps, 0);
    assert_ok(tern_lease_submit(lease, 1));
    assert_ok(tern_lease_wait(lease, 0));
    assert_int_equal(script.steps, 1);
    assert_int_equal(script.nops, 1);
    assert_int_equal(script.op[0].kind, 9);
    assert_int_equal(script.op[0].session, 1);
    assert_int_equal(script.op[0].ntokens, 5); /* of both calls */
    assert_int_equal(script.op[0].base, 20);
    assert_int_equal(script.op[0].written, 24);
    assert_int_equal(script.op[0].length, 40);
    assert_int_equal(script.op[0].nrefs, 1);
    assert_int_equal(script.op[0].index[0], runs[0].pages[0].index);
}

/* Each page is handed out once, in any order of extends, refills and answers. */
TEST(lease_hands_out_no_page_twice)
{
    bool seen[4096] = {false};
    uint32_t allocated[2] = {20, 20}, n;
    const struct tern_run *runs;

    begin();
    for (uint32_t round = 0; round < 100; round++) {
        uint32_t i = round % 2;

        allocated[i] += PT * (1 + round % 2);
        while (extend(i, 0, 20, allocated[i], &runs, &n) == TERN_BUSY)
            assert_ok(tern_lease_wait(lease, 0));
        for (uint32_t k = 0; k < runs[0].n; k++) {
            assert_false(seen[runs[0].pages[k].index]);
            seen[runs[0].pages[k].index] = true;
        }
        assert_ok(tern_lease_submit(lease, round));
        if (round % 3 == 0)
            assert_ok(tern_ping(t, 0)); /* its answer follows theirs */
    }
    assert_true(script.leases > 3);
}

TEST(lease_stock_is_filled_up_at_the_low_mark)
{
    const struct tern_run *runs;
    uint32_t n;

    begin();
    assert_ok(extend(0, 0, 20, 32 + PT * (HIGH - LOW - 1), &runs, &n));
    assert_ok(tern_lease_submit(lease, 1));
    assert_ok(tern_lease_wait(lease, 0));
    assert_int_equal(script.leases, 1);
    assert_ok(extend(1, 0, 20, 32 + PT, &runs, &n));
    assert_ok(tern_lease_submit(lease, 1));
    assert_ok(tern_lease_wait(lease, 0));
    assert_int_equal(script.leases, 2);
    assert_int_equal(script.asked, HIGH - LOW);
    assert_int_equal(tern_lease_stock(lease, 0), HIGH);
}

/* The pool has fewer pages: libtern asks for fewer, and the caller gets POOL_EXHAUSTED. */
TEST(lease_pool_exhausted_asks_for_fewer)
{
    const struct tern_run *runs;
    uint32_t n;

    script.lease_err = TERN_POOL_EXHAUSTED;
    begin();
    assert_int_equal(script.asked, HIGH);
    assert_err(TERN_POOL_EXHAUSTED, extend(0, 0, 20, 33, &runs, &n));
    assert_true(strlen(tern_error_text(t, NULL)) > 0);
    assert_ok(tern_lease_submit(lease, 1));
    assert_ok(tern_lease_wait(lease, 0));
    assert_int_equal(script.asked, HIGH / 2);
    script.lease_err = TERN_OK;
    assert_ok(tern_lease_submit(lease, 1));
    assert_err(TERN_POOL_EXHAUSTED, extend(0, 0, 20, 33, &runs, &n));
    assert_ok(tern_lease_wait(lease, 0));
    assert_int_equal(script.asked, HIGH / 4);
    assert_ok(extend(0, 0, 20, 33, &runs, &n));
}

/* A late refusal is reported once, and the session leaves the lease. The session's pages are
 * returned at the step that the removal names, and not to the stock. */
TEST(lease_assign_refused_late)
{
    const struct tern_run *runs;
    struct tern_lease_told told;
    uint32_t n, index;

    script.refuse = TERN_CONFLICT;
    begin();
    assert_ok(extend(1, 1, 21, 40, &runs, &n));
    index = runs[0].pages[0].index;
    assert_ok(tern_lease_submit(lease, 1));
    assert_ok(extend(1, 1, 22, 60, &runs, &n)); /* the refusal is not known yet */
    assert_ok(extend(0, 1, 21, 40, &runs, &n));
    assert_ok(tern_lease_submit(lease, 2));
    assert_ok(tern_lease_wait(lease, 0));
    assert_ok(tern_lease_told(lease, &told));
    assert_true(told.failed);
    assert_int_equal(told.slot, seq[1]);
    assert_err(TERN_CONFLICT, told.result.err);
    assert_string_equal(
        told.text,
        "session 1 of the lease: its extend to written 21, allocated 40 "
        "is refused: call tern_lease_remove with the last step that touches "
        "its pages, and continue from there. Why: it conflicts with something that already exists");
    assert_err(TERN_BUSY, tern_lease_told(lease, &told));
    assert_err(TERN_CONFLICT, extend(1, 0, 22, 61, &runs, &n));
    assert_non_null(
        strstr(tern_error_text(t, NULL), "session 1 of the lease: its extend to written 21"));
    assert_ok(extend(0, 1, 22, 41, &runs, &n));
    assert_int_equal(tern_lease_stock(lease, 0), HIGH - 3);
    n = script.nops;
    assert_ok(tern_lease_remove(lease, seq[1], 9));
    assert_ok(tern_lease_submit(lease, 0));
    assert_ok(tern_lease_wait(lease, 0));
    assert_int_equal(script.nops, n + 2);
    for (uint32_t i = n; i < n + 2; i++) {
        assert_int_equal(script.op[i].kind, 10);
        assert_int_equal(script.op[i].step, 9);
        assert_int_equal(script.op[i].pool, POOL);
        index = index == script.op[i].index[0] ? 0 : index;
    }
    assert_int_equal(index, 0);
    assert_int_equal(tern_lease_stock(lease, 0), HIGH - 3);
    assert_err(TERN_GONE, extend(1, 0, 22, 61, &runs, &n));
    assert_ok(tern_lease_remove(lease, seq[0], TERN_STEP_NONE));
    assert_ok(tern_lease_end(&lease, 0));
    assert_null(lease);
}

/* E4: the numbers of a refusal are fields, also of a late refusal and of one by libtern. */
TEST(e4_the_numbers_of_a_late_refusal_are_fields)
{
    const struct tern_run *runs;
    struct tern_lease_told told;
    uint64_t numbers[2];
    uint32_t n;

    script.refuse = TERN_QUOTA;
    script.why = (char *)(uintptr_t) "7 of them, of 1099511627776";
    begin();
    assert_ok(extend(1, 1, 21, 40, &runs, &n));
    assert_ok(tern_lease_commit(lease, seq[0], 16, TERN_STEP_NONE));
    assert_ok(tern_lease_submit(lease, 0));
    assert_ok(tern_lease_wait(lease, 0));
    for (uint32_t i = 0; i < 2; i++) { /* the extend, and the commit */
        assert_ok(tern_lease_told(lease, &told));
        assert_int_equal(told.failed, i == 0);
        assert_err(TERN_QUOTA, told.result.err);
        assert_non_null(strstr(told.text, "Why: 7 of them, of 1099511627776"));
        assert_true(told.numbers[0] == 7 && told.numbers[1] == MANY);
    }
    assert_err(TERN_QUOTA, extend(1, 0, 22, 61, &runs, &n));
    tern_error_numbers(t, NULL, numbers);
    assert_true(numbers[0] == 7 && numbers[1] == MANY);
    assert_err(TERN_QUOTA, extend(0, 0, 20, 32 + PT * (HIGH + 1), &runs, &n));
    tern_error_numbers(t, NULL, numbers);
    assert_true(numbers[0] == HIGH + 1 && numbers[1] == HIGH);
    assert_err(TERN_INVALID, extend(0, 0, 20, 1, &runs, &n));
    tern_error_numbers(t, NULL, numbers);
    assert_true(numbers[0] == 0 && numbers[1] == 0);
}

/* A late refusal is reported for its session, even if that was removed meanwhile: no other session
 * gets the number before. */
TEST(lease_number_of_a_session_is_free_when_all_of_it_was_told)
{
    const struct tern_result now = {.lengths = {0, 20, 20}, .tokens = 20};
    const struct tern_run *runs;
    struct tern_lease_told told;
    uint32_t n, at;

    script.refuse = TERN_CONFLICT;
    begin();
    assert_ok(extend(1, 1, 21, 40, &runs, &n));
    assert_ok(tern_lease_submit(lease, 1));
    assert_ok(tern_lease_remove(lease, seq[1], 9));
    for (uint32_t i = 0; i < 2; i++) { /* pages without an owner are returned */
        assert_ok(tern_lease_wait(lease, 0));
        assert_ok(tern_lease_submit(lease, 0));
    }
    assert_ok(tern_lease_wait(lease, 0));
    assert_int_equal(script.op[script.nops - 1].kind, 10);
    assert_ok(tern_lease_add(lease, 3, &now, &at));
    assert_int_not_equal(at, seq[1]);
    assert_ok(tern_lease_told(lease, &told));
    assert_true(told.failed);
    assert_int_equal(told.slot, seq[1]);
    assert_int_equal(told.session, 2);
    assert_ok(tern_lease_add(lease, 4, &now, &at));
    assert_int_equal(at, seq[1]);
}

/* A daemon that does not answer: gathered operations wait, and are sent when it answers. */
TEST(lease_many_unanswered_steps_busy_and_nothing_lost)
{
    const struct tern_run *runs;
    uint32_t n, sent = 0;

    script.hold = 15;
    begin();
    for (uint32_t i = 0; i < 12; i++) {
        assert_ok(extend(0, 0, 20, 33 + PT * i, &runs, &n));
        sent += tern_lease_submit(lease, 1) == TERN_OK;
    }
    assert_int_equal(sent, 8);
    assert_ok(tern_ping(t, 0)); /* makes the daemon answer */
    assert_ok(tern_lease_submit(lease, 1));
    assert_ok(tern_ping(t, 0));
    assert_int_equal(script.steps, 9);
    assert_int_equal(script.nops, 12);
    for (uint32_t i = 1; i < 12; i++)
        assert_int_equal(script.op[i].length, 33 + PT * i);
}

/* Requests of others fill the connection: gathered operations wait, too. */
TEST(lease_beside_as_many_requests_as_may_be_busy_and_nothing_lost)
{
    const struct tern_run *runs;
    struct tern_answer answer;
    uint32_t n;

    begin();
    script.deaf = true;
    for (uint32_t i = 0; i < TERN_INFLIGHT_MAX; i++)
        assert_ok(tern_submit_match(t, 100, &some_tokens, TERN_STEP_NONE, i));
    assert_ok(extend(0, 0, 20, 33, &runs, &n));
    assert_err(TERN_BUSY, tern_lease_submit(lease, 1));
    assert_non_null(strstr(tern_error_text(t, NULL), "TERN_INFLIGHT_MAX"));
    script.deaf = false;
    for (uint32_t i = 0; i < TERN_INFLIGHT_MAX; i++) {
        answer = polled();
        assert_int_equal(answer.cookie, i);
    }
    assert_ok(tern_lease_submit(lease, 1));
    assert_ok(tern_lease_wait(lease, 0));
    assert_int_equal(script.steps, 1);
    assert_int_equal(script.op[0].length, 33);
}

/* The answer to a commit changes the table: no step that follows the named one may be dispatched
 * before that answer was processed. */
TEST(lease_commit_answer_is_taken_before_its_step_is_over)
{
    struct tern_lease_told told;

    script.runs = true;
    begin();
    assert_ok(tern_lease_commit(lease, seq[0], 16, 5));
    assert_err(TERN_BUSY, tern_lease_commit(lease, seq[0], 16, 5));
    assert_ok(tern_lease_submit(lease, 4));
    assert_ok(tern_lease_submit(lease, 5));
    assert_err(TERN_BUSY, tern_lease_submit(lease, 6));
    assert_ok(tern_lease_wait(lease, 0));
    assert_err(TERN_BUSY, tern_lease_submit(lease, 6));
    assert_ok(tern_lease_told(lease, &told));
    assert_false(told.failed);
    assert_int_equal(told.session, 1);
    assert_run(&told.result.runs[0], 0, 0, 1);
    assert_int_equal(told.result.runs[0].pages[0].index, 999);
    assert_ok(tern_lease_submit(lease, 6));
    assert_int_equal(script.op[0].step, 5);
}

/* T21: the answer to a commit at the written length names the page in which the session continues.
 * The Step with the commit is sent, and no step begins before that answer was processed. */
TEST(t21_lease_commit_hands_state_over_before_a_step_overwrites_it)
{
    const struct tern_group kinds[] = {
        groups[0],
        {.name = "ssm", .family = TERN_RECURRENT, .page_bytes = 4096, .page_tokens = PT}};
    const struct tern_layout with_state = {.groups = kinds, .ngroups = 2, .bytes = 1 << 20};
    const struct tern_lease_marks marks[] = {{.low = LOW, .high = HIGH}, {0, 0}};
    const struct tern_result now = {.lengths = {0, 15, 20}, .tokens = 15};
    struct tern_lease_told told;
    const struct tern_run *runs;
    uint32_t n;

    script.runs = true;
    start(serve, NULL);
    assert_ok(tern_lease_begin(t, POOL, &with_state, marks, 4, &lease));
    assert_ok(tern_lease_wait(lease, 0));
    assert_ok(tern_lease_add(lease, 1, &now, &seq[0]));
    assert_ok(tern_lease_submit(lease, 4));
    assert_ok(extend(0, 1, 16, 20, &runs, &n));
    assert_ok(tern_lease_commit(lease, seq[0], 16, 9));
    assert_err(TERN_BUSY, tern_lease_submit(lease, 5)); /* although step 9 is far ahead */
    assert_non_null(strstr(tern_error_text(t, NULL), "RECURRENT"));
    assert_ok(tern_lease_wait(lease, 0)); /* that Step is sent */
    assert_int_equal(script.op[script.nops - 1].kind, 3);
    assert_err(TERN_BUSY, tern_lease_submit(lease, 5));
    assert_ok(tern_lease_told(lease, &told));
    assert_ok(tern_lease_submit(lease, 5));
}

/* T21: a step that was submitted after the extend may have overwritten the state. */
TEST(t21_lease_commit_of_a_state_that_a_step_has_overwritten_is_refused)
{
    const struct tern_group kinds[] = {
        groups[0],
        {.name = "ssm", .family = TERN_RECURRENT, .page_bytes = 4096, .page_tokens = PT}};
    const struct tern_layout with_state = {.groups = kinds, .ngroups = 2, .bytes = 1 << 20};
    const struct tern_lease_marks marks[] = {{.low = LOW, .high = HIGH}, {0, 0}};
    const struct tern_result now = {.lengths = {0, 16, 20}, .tokens = 16};
    const struct tern_run *runs;
    uint32_t n;

    start(serve, NULL);
    assert_ok(tern_lease_begin(t, POOL, &with_state, marks, 4, &lease));
    assert_ok(tern_lease_add(lease, 1, &now, &seq[0]));
    assert_ok(tern_lease_submit(lease, 4));
    assert_err(TERN_CONFLICT, tern_lease_commit(lease, seq[0], 16, 9));
    assert_non_null(strstr(tern_error_text(t, NULL), "step 4 was submitted"));
    assert_ok(extend(0, 0, 16, 20, &runs, &n)); /* not in step 4 */
    assert_err(TERN_CONFLICT, tern_lease_commit(lease, seq[0], 16, 3));
    assert_ok(tern_lease_commit(lease, seq[0], 16, 4));
}

/* E5: the daemon gets both lengths, even if only the allocated one has changed. */
TEST(e5_lease_tells_an_extend_of_the_allocated_length_alone)
{
    const struct tern_run *runs;
    uint32_t n;

    begin();
    assert_ok(extend(0, 0, 20, 24, &runs, &n));
    assert_int_equal(n, 0);
    assert_ok(tern_lease_remove(lease, seq[0], 3));
    assert_ok(tern_lease_submit(lease, 1));
    assert_ok(tern_lease_wait(lease, 0));
    assert_int_equal(script.nops, 1);
    assert_int_equal(script.op[0].kind, 9);
    assert_int_equal(script.op[0].length, 24);
    assert_int_equal(script.op[0].written, 20);
}

/* If the daemon refuses the rewind, its table has other pages than the engine's: no commit is sent
 * before its answer. An assign without pages reports lengths that need none, so that the daemon
 * takes none itself. */
TEST(lease_commit_waits_for_the_answer_to_a_rewind)
{
    const struct tern_run *runs;
    uint32_t n;

    begin();
    assert_ok(extend(0, 1, 21, 32, &runs, &n));
    assert_ok(extend(0, 1, 22, 32, &runs, &n));
    assert_ok(tern_lease_rewind(lease, seq[0], 21, 3));
    assert_err(TERN_BUSY, tern_lease_commit(lease, seq[0], 16, 5));
    assert_ok(tern_lease_submit(lease, 1));
    assert_err(TERN_BUSY, tern_lease_commit(lease, seq[0], 16, 5));
    assert_ok(tern_lease_wait(lease, 0));
    assert_ok(tern_lease_commit(lease, seq[0], 16, 5));
    for (uint32_t i = 0; i < script.nops; i++)
        assert_int_not_equal(script.op[i].kind, 1); /* an extend would take pages itself */
}

/* tern_poll shows no answer of a lease's requests, and a lost connection ends them. */
TEST(lease_connection_lost)
{
    struct tern_answer answer;
    const struct tern_run *runs;
    uint32_t n;

    script.hold = 15;
    begin();
    assert_ok(extend(0, 0, 20, 40, &runs, &n));
    assert_ok(tern_lease_submit(lease, 1));
    assert_err(TERN_BUSY, tern_poll(t, &answer));
    shutdown(fake.fd, SHUT_RDWR);
    while (tern_poll(t, &answer) == TERN_BUSY)
        usleep(100);
    assert_err(TERN_DAEMON_LOST, tern_poll(t, &answer));
    assert_err(TERN_DAEMON_LOST, extend(0, 0, 20, 60, &runs, &n));
    assert_err(TERN_DAEMON_LOST, tern_lease_submit(lease, 2));
    assert_err(TERN_DAEMON_LOST, tern_lease_wait(lease, 0));
    for (uint32_t i = 0; i < 2; i++)
        assert_err(TERN_DAEMON_LOST, tern_lease_remove(lease, seq[i], 2));
}

TEST(lease_arguments_are_checked)
{
    const struct tern_lease_marks wrong[] = {{.low = 5, .high = 4}, {.high = 0}, {.high = 5000}};
    struct tern_lease *none = NULL;
    const struct tern_run *runs;
    uint32_t n;

    begin();
    for (uint32_t i = 0; i < 3; i++)
        assert_err(TERN_INVALID, tern_lease_begin(t, POOL, &layout, &wrong[i], 4, &none));
    assert_err(TERN_INVALID,
               tern_lease_begin(t, POOL, &layout, &(struct tern_lease_marks){1, 2}, 0, &none));
    assert_null(none);
    assert_err(TERN_INVALID, extend(0, 0, 19, 20, &runs, &n));
    assert_err(TERN_INVALID, extend(0, 0, 20, 19, &runs, &n));
    assert_err(TERN_INVALID, extend(0, 0, 21, 40, &runs, &n)); /* no such token */
    assert_err(TERN_INVALID, extend(0, 25, 20, 40, &runs, &n));
    assert_err(TERN_INVALID, tern_lease_commit(lease, seq[0], 16, 0));
    assert_err(TERN_INVALID, tern_lease_rewind(lease, seq[0], 16, 0));
    assert_err(TERN_GONE, tern_lease_remove(lease, 3, 1));
    assert_err(TERN_CONFLICT, tern_lease_end(&lease, 0));
    assert_ok(tern_lease_end(&none, 0));
}

/* ---- sessions of a lease ---- */

/* Every call that would change a leased session is refused before anything is sent; after its
 * removal was submitted, none is. Other sessions are free. */
TEST(lease_session_is_used_by_the_lease_alone)
{
    struct tern_result r = {.err = TERN_OK};
    const struct tern_run *runs;
    struct tern_retracted away;
    struct tern_batch *batch;
    tern_session turn;
    uint32_t n, at;

    begin();
    assert_ok(tern_batch_create(t, &batch));
    for (uint32_t left = 0; left < 2; left++) {
        const enum tern_err want = left ? TERN_BUSY : TERN_CONFLICT;

        if (left) { /* some of its operations are still gathered */
            assert_ok(extend(0, 1, 21, 32, &runs, &n));
            assert_ok(tern_lease_remove(lease, seq[0], 5));
        }
        assert_err(want, tern_extend(t, 1, NULL, 21, 40, 0, &r));
        assert_err(want, tern_finish(t, 1, 20, 5, 0, &r));
        assert_err(want, tern_commit(t, 1, 16, 5, 0, &r));
        assert_err(want, tern_rewind(t, 1, 16, 5, 0, &r));
        assert_err(want, tern_abort(t, 1, 5, 0, &r));
        assert_err(want, tern_session_close(t, 1, 5, 0, &r));
        assert_err(want, tern_batch_extend(batch, 1, NULL, 21, 40));
        assert_err(want, tern_batch_session_close(batch, 1, 5));
        assert_err(want, tern_match(t, 1, &some_tokens, 5, 0, &r));
        assert_err(want, tern_submit_match(t, 1, &some_tokens, 5, 9));
        assert_err(want, tern_fetch(t, 1, &(struct tern_fetch){.peer = "peer", .step = 5}, 0, &r));
        assert_err(want, tern_submit_store(t, 1, 0, 9));
        assert_err(want, tern_retract(t, 1, TERN_RETRACT_DROP, 5, 0, &away));
        assert_err(want, tern_turn_begin(t, 1, 0, &turn));
        assert_non_null(
            strstr(tern_error_text(t, NULL), left ? "tern_lease_submit first" : "0x1 is in"));
        assert_err(want, tern_lease_add(lease, 1, &r, &at));
        assert_int_equal(script.nops, 0);
    }
    assert_ok(tern_lease_submit(lease, 0));
    assert_ok(tern_extend(t, 1, NULL, 21, 40, 0, &r));
    assert_ok(tern_extend(t, 77, NULL, 21, 40, 0, &r));
    assert_err(TERN_CONFLICT, tern_extend(t, 2, NULL, 21, 40, 0, &r));
    assert_ok(tern_lease_add(lease, 1, &r, &at)); /* the next turn */
    assert_err(TERN_CONFLICT, tern_extend(t, 1, NULL, 21, 40, 0, &r));
    tern_batch_destroy(batch);
}

/* A batch with operations of a session that joined a lease later is refused, and keeps its
 * operations. */
TEST(lease_session_of_a_gathered_batch_refused_when_it_is_sent)
{
    const struct tern_result now = {.lengths = {0, 20, 20}, .tokens = 20}, *results;
    struct tern_batch *batch;
    uint32_t at, done;

    begin();
    assert_ok(tern_batch_create(t, &batch));
    assert_ok(tern_batch_extend(batch, 77, NULL, 21, 40));
    assert_ok(tern_batch_extend(batch, 78, NULL, 21, 40));
    assert_ok(tern_lease_add(lease, 78, &now, &at));
    assert_err(TERN_CONFLICT, tern_batch_run(batch, 0, &results, &done));
    assert_err(TERN_CONFLICT, tern_batch_submit(batch, 9));
    assert_ok(tern_lease_remove(lease, at, 5)); /* no operation of it is gathered */
    assert_int_equal(script.nops, 0);
    assert_int_equal(tern_batch_count(batch), 2);
    assert_ok(tern_batch_run(batch, 0, &results, &done));
    assert_int_equal(done, 2);
    tern_batch_destroy(batch);
}

/* Sessions fill the lease again and again: each is known while it is there, and none later. */
TEST(lease_knows_its_sessions_whichever_come_and_go)
{
    struct tern_result now = {.lengths = {0, 20, 20}, .tokens = 20}, r;
    uint32_t at[4];

    begin();
    for (uint32_t i = 0; i < 2; i++)
        assert_ok(tern_lease_remove(lease, seq[i], TERN_STEP_NONE));
    for (uint32_t round = 0; round < 50; round++) {
        for (uint32_t i = 0; i < 4; i++)
            assert_ok(tern_lease_add(lease, (tern_session)(round + i) << 32 | i, &now, &at[i]));
        for (uint32_t i = 0; i < 4; i++)
            assert_err(TERN_CONFLICT,
                       tern_commit(t, (tern_session)(round + i) << 32 | i, 16, 5, 0, &r));
        for (uint32_t i = 0; i < 4; i++)
            assert_ok(tern_lease_remove(lease, at[i], TERN_STEP_NONE));
        for (uint32_t i = 0; i < 4; i++)
            assert_ok(tern_commit(t, (tern_session)(round + i) << 32 | i, 16, 5, 0, &r));
        script.nops = 0;
    }
}

/* ---- the thread that sends ---- */

/* Waits for n Steps without a call of the library. */
static void steps_come(uint32_t n)
{
    for (uint32_t i = 0; script.steps < n; i++) {
        assert_true(i < 100000);
        usleep(100);
    }
    assert_int_equal(script.steps, n);
}

/* Counts the threads of this process with the name of the lease's. *ret_blocked, *ret_naps: the
 * signals that the last one blocks, and how often it has slept. */
static uint32_t sending_threads(uint64_t *ret_blocked, uint64_t *ret_naps)
{
    DIR *d = opendir("/proc/self/task");
    char path[300], line[256];
    struct dirent *e;
    uint32_t n = 0;

    assert_non_null(d);
    while ((e = readdir(d)) != NULL) {
        bool is = false;
        FILE *f;

        snprintf(path, sizeof path, "/proc/self/task/%s/status", e->d_name);
        f = fopen(path, "r");
        while (f && fgets(line, sizeof line, f)) {
            if (strcmp(line, "Name:\ttern-lease\n") == 0)
                is = true;
            if (is && strncmp(line, "SigBlk:", 7) == 0)
                *ret_blocked = strtoull(line + 7, NULL, 16);
            if (is && strncmp(line, "voluntary_ctxt_switches:", 24) == 0)
                *ret_naps = strtoull(line + 24, NULL, 10);
        }
        if (f)
            fclose(f);
        n += is;
    }
    closedir(d);
    return n;
}

TEST(lease_step_is_sent_by_a_thread_of_its_own)
{
    const uint64_t most = 1ull << (SIGTERM - 1) | 1ull << (SIGINT - 1) | 1ull << (SIGPROF - 1);
    const struct tern_run *runs;
    uint64_t blocked = 0, naps;
    short events;
    uint32_t n;

    begin();
    assert_int_equal(sending_threads(&blocked, &naps), 1);
    assert_true((blocked & most) == most);
    assert_ok(extend(0, 1, 21, 40, &runs, &n));
    assert_ok(tern_lease_submit(lease, 1));
    (void)tern_fd(t, &events);
    assert_int_equal(events, POLLIN); /* no wait until it is writable */
    steps_come(1);
    assert_ok(extend(0, 1, 22, 60, &runs, &n));
    assert_ok(tern_lease_submit(lease, 2));
    steps_come(2);
    for (uint32_t i = 0; i < 2; i++)
        assert_ok(tern_lease_remove(lease, seq[i], TERN_STEP_NONE));
    assert_ok(tern_lease_end(&lease, 0));
    assert_int_equal(sending_threads(&blocked, &naps), 0);
    assert_ok(tern_ping(t, 0));
}

/* After a second without a Step the thread sleeps until it is woken. */
TEST(lease_thread_that_sleeps_is_woken)
{
    uint64_t blocked, naps = 0, before = UINT64_MAX;
    const struct tern_run *runs;
    uint32_t n;

    begin();
    for (uint32_t i = 0; naps != before; i++) {
        assert_true(i < 200);
        before = naps;
        usleep(100000);
        assert_int_equal(sending_threads(&blocked, &naps), 1);
    }
    for (uint32_t i = 1; i <= 3; i++) {
        assert_ok(extend(0, 0, 20, 32 + PT * i, &runs, &n));
        assert_ok(tern_lease_submit(lease, i));
        steps_come(i);
    }
}

/* Any later call sends the Step first, and its own request behind it. */
TEST(lease_other_calls_keep_the_order)
{
    struct tern_result r;
    const struct tern_run *runs;
    uint32_t n;

    begin();
    for (uint32_t i = 1; i <= 20; i++) {
        assert_ok(extend(0, 0, 20, 32 + PT * i, &runs, &n));
        assert_ok(tern_lease_submit(lease, i));
        assert_ok(tern_commit(t, 9, 16, 5, 0, &r));
        assert_int_equal(script.steps, 2 * i);
        assert_int_equal(script.op[2 * i - 2].kind, 9);
        assert_int_equal(script.op[2 * i - 1].session, 9);
        assert_ok(tern_lease_wait(lease, 0));
    }
}

/* tern_lease_told processes answers while the device computes. Without that the submit does. */
TEST(lease_answers_are_taken_by_told)
{
    struct tern_lease_told told;
    const struct tern_run *runs;
    uint32_t n, sent = 0;

    begin();
    assert_ok(extend(0, 0, 20, 32 + PT * (HIGH - LOW), &runs, &n));
    assert_ok(tern_lease_submit(lease, 1));
    for (uint32_t i = 0; tern_lease_stock(lease, 0) < HIGH; i++) {
        assert_true(i < 100000);
        assert_err(TERN_BUSY, tern_lease_told(lease, &told));
        usleep(100);
    }
    for (uint32_t i = 0; i < 60; i++) {
        assert_ok(extend(1, 1, 21 + i, 33 + i, &runs, &n));
        sent += tern_lease_submit(lease, 2) == TERN_OK;
        usleep(2000);
    }
    assert_int_equal(sent, 60);
}

/* A daemon that does not read for a while, and a socket with little room: everything is sent, once
 * and in order, without a call. */
TEST(lease_what_the_socket_does_not_take_is_sent_later)
{
    const struct tern_run *runs;
    uint32_t n, small = 4096, tokens = 20;

    begin();
    assert_int_equal(setsockopt(tern_fd(t, NULL), SOL_SOCKET, SO_SNDBUF, &small, sizeof small), 0);
    script.deaf = true;
    for (uint32_t i = 1; i <= 6; i++) {
        for (uint32_t k = 0; k < 30; k++)
            assert_ok(extend(0, TERN_LEASE_TOKENS_MAX, 20, 32, &runs, &n));
        assert_ok(tern_lease_submit(lease, i));
        usleep(3000);
    }
    assert_true(script.steps <= 1);
    script.deaf = false;
    steps_come(6);
    for (uint32_t i = 0; i < script.nops; i++) {
        assert_int_equal(script.op[i].base, tokens);
        tokens += script.op[i].ntokens;
    }
    assert_true(script.nops > 170);
}

/* A buffer with little more room than one Step: its bytes move to the front while the other thread
 * sends. None is lost, doubled or out of order. */
TEST(lease_small_buffer_is_used_by_both_threads)
{
    struct tern_lease_told told;
    const struct tern_run *runs;
    uint32_t n, small = 4096, sent = 0, tokens = 20;

    fake.body_max = 4096;
    begin();
    assert_int_equal(setsockopt(tern_fd(t, NULL), SOL_SOCKET, SO_SNDBUF, &small, sizeof small), 0);
    for (uint32_t i = 0; i < 3000 && script.steps < 200; i++) {
        enum tern_err err = extend(0, TERN_LEASE_TOKENS_MAX, 20, 32, &runs, &n);

        sent += err == TERN_OK ? TERN_LEASE_TOKENS_MAX : 0;
        assert_true(err == TERN_OK || err == TERN_BUSY);
        if (i % 7 == 0 || err == TERN_BUSY)
            err = tern_lease_submit(lease, 1);
        assert_true(err == TERN_OK || err == TERN_BUSY);
        assert_err(TERN_BUSY, tern_lease_told(lease, &told));
        if (i % 13 == 0)
            usleep(i % 3000);
    }
    while (tern_lease_remove(lease, seq[0], TERN_STEP_NONE) == TERN_BUSY) {
        (void)tern_lease_submit(lease, 1);
        assert_ok(tern_lease_wait(lease, 0));
    }
    while (tern_lease_submit(lease, 1) == TERN_BUSY)
        assert_ok(tern_lease_wait(lease, 0));
    assert_ok(tern_lease_wait(lease, 0));
    for (uint32_t i = 0; i < script.nops; i++) {
        assert_int_equal(script.op[i].base, tokens);
        tokens += script.op[i].ntokens;
    }
    assert_int_equal(tokens, 20 + sent);
    assert_true(script.steps > 20);
}

/* The daemon may die at any time, also while the thread sends: the next call returns that, and the
 * end is clean. */
TEST(lease_daemon_lost_while_the_thread_sends)
{
    const struct tern_run *runs;
    enum tern_err err = TERN_OK;
    uint32_t n;

    begin();
    shutdown(fake.fd, SHUT_RDWR);
    for (uint32_t i = 0; i < 1000 && err == TERN_OK; i++) {
        err = extend(0, 0, 20, 33 + i, &runs, &n);
        if (err == TERN_OK)
            err = tern_lease_submit(lease, 1);
        if (err == TERN_BUSY)
            err = tern_lease_wait(lease, 100);
        usleep(100);
    }
    assert_err(TERN_DAEMON_LOST, err);
    assert_err(TERN_DAEMON_LOST, tern_ping(t, 0));
}

/* A forked child has no such thread, and frees the connection's memory only. */
TEST(lease_child_has_no_thread)
{
    const struct tern_run *runs;
    uint32_t n;
    int status = -1;
    pid_t pid;

    begin();
    pid = fork();
    if (pid == 0) {
        tern_destroy(t);
        _exit(7);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(WEXITSTATUS(status), 7);
    assert_ok(extend(0, 1, 21, 40, &runs, &n));
    assert_ok(tern_lease_submit(lease, 1));
    steps_come(1);
}

/* Steps at a regular pace: the thread looks once for each, shortly after it, and never when the
 * scheduler's thread is about to queue one. */
TEST(lease_looks_are_behind_steps)
{
    const uint64_t pace = 1500000;
    uint64_t queued = 1000000000, now = queued + PACE_BEHIND_NS;

    for (uint32_t i = 0; i < 100; i++) {
        now = pace_next_look(now, queued, pace);
        queued += pace;
        assert_int_equal(now, queued + PACE_BEHIND_NS);
    }
}

/* The thread looks for an early or late Step within the limit, and not without a pause. */
TEST(lease_looks_have_a_limit)
{
    struct prng r;

    prng_init(&r, 1);
    for (uint32_t i = 0; i < 100000; i++) {
        uint64_t queued = 1000000000, now = queued + prng_below(&r, 100000000),
                 pace = prng_below(&r, 100000000), at = pace_next_look(now, queued, pace);

        assert_in_range(at, now + 1, now + PACE_LOOK_NS);
        if (now > queued + pace + PACE_BEHIND_NS)
            assert_true(at >= now + PACE_BEHIND_NS);
    }
}

/* A commit of session 9 is answered in two pieces, and the lease's requests under way between
 * them. */
static void serve_between(struct fake *f)
{
    struct tern_page pages[2] = {{501, 3}, {502, 3}};
    struct frame_header of_lease = {0};
    const ProtobufCMessage *m;
    uint32_t pieces = 0;

    while ((m = fake_read(f)) != NULL) {
        const Tern__Wire__Step *s = (const Tern__Wire__Step *)m;
        Tern__Wire__StepReply r = TERN__WIRE__STEP_REPLY__INIT;
        Tern__Wire__OpResult result = TERN__WIRE__OP_RESULT__INIT, *results[] = {&result};
        Tern__Wire__Status busy = fake_status(TERN_BUSY, "so far", NULL);
        struct frame_header h = f->h;
        Tern__Wire__Run run, *runs[] = {&run};

        if (h.type == FRAME_PAGE_LEASE) {
            answer_lease(f, (const Tern__Wire__PageLease *)m);
            continue;
        }
        check(h.type == FRAME_STEP && s->n_ops == 1 && pieces < 2);
        if (s->ops[0]->session != 9) {
            note_op(s->ops[0]);
            of_lease = h;
            continue;
        }
        if (pieces > 0)
            answer_step(f, of_lease, 0, 1);
        run = fake_run(0, pieces, &pages[pieces], 1);
        result.n_runs = r.n_results = 1;
        result.runs = runs;
        r.results = results;
        busy.has_goes_on = busy.goes_on = true;
        result.status = pieces == 0 ? &busy : NULL;
        result.has_committed = 1;
        result.committed = PT * ++pieces;
        f->h = h;
        fake_reply(f, &r);
    }
}

TEST(lease_answer_between_pieces_of_a_commit_stays_out_of_it)
{
    const struct tern_lease_marks marks = {.low = LOW, .high = HIGH};
    const struct tern_result now = {.lengths = {0, 20, 20}, .tokens = 20};
    struct tern_lease_told told;
    struct tern_result r;

    script.runs = true;
    start(serve_between, NULL);
    assert_ok(tern_lease_begin(t, POOL, &layout, &marks, 4, &lease));
    assert_ok(tern_lease_wait(lease, 0));
    assert_ok(tern_lease_add(lease, 1, &now, &seq[0]));
    assert_ok(tern_lease_commit(lease, seq[0], PT, 1));
    assert_ok(tern_lease_submit(lease, 1));
    assert_ok(tern_commit(t, 9, 2 * PT, TERN_STEP_NONE, 2000, &r));
    assert_int_equal(r.lengths.committed, 2 * PT);
    assert_int_equal(r.nruns, 2);
    for (uint32_t i = 0; i < 2; i++) {
        assert_run(&r.runs[i], 0, i, 1);
        assert_int_equal(r.runs[i].pages[0].index, 501 + i);
    }
    assert_ok(tern_lease_told(lease, &told));
    assert_int_equal(told.session, 1);
    assert_int_equal(told.result.nruns, 1);
    assert_int_equal(told.result.runs[0].pages[0].index, 999);
}
