/* Texts of refused requests: the request, what the session has, what to do. The daemon's own text
 * has priority; without one, the numbers of the answer make the sentence. Texts of a batch's
 * results are made on request: in a full pool hundreds of operations are refused for the same
 * reason, and nobody reads every text. */
#include "internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/err.h"

static const char *const names[ASKED_COUNT] = {
    [ASKED_NOTHING] = "the request",
    [CLIENT_EXTEND] = "tern_extend",
    [CLIENT_REWIND] = "tern_rewind",
    [CLIENT_COMMIT] = "tern_commit",
    [CLIENT_FINISH] = "tern_finish",
    [CLIENT_ABORT] = "tern_abort",
    [CLIENT_CLOSE] = "tern_session_close",
    [CLIENT_SLIDE] = "tern_slide",
    [CLIENT_SNAPSHOT_RELEASE] = "tern_snapshot_release",
    [CLIENT_ASSIGN] = "tern_lease_extend",
    [CLIENT_UNLEASE] = "tern_lease_end",
    [ASKED_MATCH] = "tern_match",
    [ASKED_FETCH] = "tern_fetch",
    [ASKED_FETCH_WAIT] = "tern_fetch_wait",
    [ASKED_RECOVER] = "tern_recover",
    [ASKED_RETRACT] = "tern_retract",
};

/* The arguments of a request that its numbers must fit. */
static const char *const length_names[ASKED_COUNT] = {
    [CLIENT_REWIND] = "length",
    [CLIENT_COMMIT] = "depth",
    [CLIENT_FINISH] = "length",
    [CLIENT_SLIDE] = "next_commit",
};

/* For a commit's depth that is no multiple of L: writes the nearest multiples. */
static void no_multiple(uint32_t depth, uint32_t align, char ret[WORDS_WHY_MAX])
{
    uint32_t below = depth / align * align;
    char lower[16] = "";

    if (below > 0)
        snprintf(lower, sizeof(lower), "%u or ", below);
    snprintf(ret, WORDS_WHY_MAX, "depth %u is not a multiple of %u: use %s%u", depth, align, lower,
             below + align);
}

static void refused_depth(uint32_t depth, const struct tern_result *r, char *ret)
{
    char why[WORDS_WHY_MAX];

    no_multiple(depth, r->align, why);
    snprintf(ret, QUICK_TEXT_MAX,
             "tern_commit is refused: %s; the session has committed %u and written %u", why,
             r->lengths.committed, r->lengths.written);
}

/* Returns the first rule that the lengths of an extend break; "": none. */
static const char *broken_by_extend(const struct asked *a, const struct tern_result *r)
{
    uint32_t allocated = a->length ? a->length : r->lengths.allocated;

    if (a->written && a->written < r->lengths.written)
        return "written is less than before, and only a rewind may reduce written; ";
    if (allocated < r->lengths.allocated)
        return "allocated is less than before, and only a rewind may reduce allocated; ";
    if (a->written > allocated)
        return "written is more than allocated: pass allocated, too; ";
    if (a->written > r->tokens + a->appended)
        return "written is more than the session's tokens: append tokens in this call or before; ";
    if (allocated > WIRE_SESSION_TOKENS_MAX || a->appended > WIRE_SESSION_TOKENS_MAX - r->tokens)
        return "a session has at most 4,194,304 tokens; ";
    return "";
}

/* Returns the same for an operation with one length. */
static const char *broken_by_length(const struct asked *a, const struct tern_result *r)
{
    if (a->length < r->lengths.committed)
        return "the length is below the committed length, which cannot shrink; ";
    if (a->length > r->lengths.allocated)
        return "the length is above the allocated length; ";
    if (a->kind == CLIENT_COMMIT && a->length > r->lengths.written)
        return "the length is above the written length: raise the written length by tern_extend; ";
    if (a->kind == CLIENT_REWIND || a->kind == CLIENT_FINISH)
        return "the session is retracted, or no turn has begun, or the session has no STATE to "
               "resume from that length; ";
    return "";
}

void words_why(const struct asked *a, const struct tern_result *r, char ret[WORDS_WHY_MAX])
{
    const char *broken = "";
    size_t n;

    if (r->err == TERN_INVALID && r->align)
        no_multiple(a->length, r->align, ret);
    else {
        if (r->err == TERN_INVALID && length_names[a->kind])
            broken = broken_by_length(a, r);
        n = strlen(broken);
        snprintf(ret, WORDS_WHY_MAX, "%.*s", n > 2 ? (int)n - 2 : 0, broken); /* without the "; " */
    }
    if (!ret[0])
        snprintf(ret, WORDS_WHY_MAX, "%s", err_text(r->err));
}

static void refused_lengths(const struct asked *a, const struct tern_result *r, char *ret)
{
    char with[64] = "";
    const char *broken = "";

    if (a->kind == CLIENT_EXTEND) {
        snprintf(with, sizeof(with), " with written %u and allocated %u", a->written, a->length);
        broken = broken_by_extend(a, r);
    } else if (length_names[a->kind]) {
        snprintf(with, sizeof(with), " with %s %u", length_names[a->kind], a->length);
        broken = broken_by_length(a, r);
    }
    snprintf(ret, QUICK_TEXT_MAX,
             "%s%s is refused: %sthe session has committed %u, written %u, allocated %u and %u "
             "tokens",
             names[a->kind], with, broken, r->lengths.committed, r->lengths.written,
             r->lengths.allocated, r->tokens);
}

/* Writes which pages are missing, and whether to wait for a step. The free pages may suffice for
 * the group and not for all groups of the request, which share the pool's memory. */
static void refused_pages(const struct asked *a, const struct tern_shortage *s, char *ret)
{
    char wait[80] = "no step will free more: finish, abort or retract a session";

    if (s->until_step)
        snprintf(wait, sizeof(wait), "retry when all ranks have passed step %" PRIu64,
                 s->until_step);
    snprintf(ret, QUICK_TEXT_MAX,
             "%s: group %u needs %u pages, and %u are free, %u evictable and %u retiring%s; %s",
             names[a->kind], s->group, s->needed, s->free, s->evictable, s->retiring,
             s->needed <= s->free + s->evictable
                 ? ", in memory that the request's other groups need, too"
                 : "",
             wait);
}

static void refused_for_ever(const struct asked *a, const struct tern_shortage *s, char *ret)
{
    snprintf(ret, QUICK_TEXT_MAX,
             "%s can never fit: group %u needs %u pages at once, and could have %u if nobody else "
             "used any: ask for less, or open a larger pool",
             names[a->kind], s->group, s->needed, s->free);
}

/* Returns true if the numbers give more detail than the daemon's text. */
static bool numbers_say_more(const struct asked *a, const struct tern_result *r)
{
    bool comes_back = a->kind == ASKED_FETCH || a->kind == ASKED_RECOVER;

    return (r->err == TERN_CONFLICT && a->kind == CLIENT_EXTEND) ||
           (r->shortage.needed > 0 &&
            (r->err == TERN_QUOTA || (r->err == TERN_POOL_EXHAUSTED && comes_back)));
}

static void refused_base(const struct asked *a, const struct tern_result *r, char *ret)
{
    snprintf(ret, QUICK_TEXT_MAX,
             "tern_extend is refused: the tokens to append begin at base %u, and the session has "
             "%u tokens: base is %u",
             a->base, r->tokens, r->tokens);
}

static void words_of(const struct asked *a, const struct tern_result *r, char *ret)
{
    if (r->err == TERN_INVALID && r->align)
        refused_depth(a->length, r, ret);
    else if (r->err == TERN_INVALID)
        refused_lengths(a, r, ret);
    else if (r->err == TERN_QUOTA && r->shortage.needed > 0)
        refused_for_ever(a, &r->shortage, ret);
    else if (r->err == TERN_POOL_EXHAUSTED)
        refused_pages(a, &r->shortage, ret);
    else if (numbers_say_more(a, r))
        refused_base(a, r, ret);
    else
        snprintf(ret, QUICK_TEXT_MAX, "%s: %s", names[a->kind], err_text(r->err));
}

uint8_t asked_of(uint16_t type)
{
    return type == FRAME_MATCH        ? ASKED_MATCH
           : type == FRAME_FETCH      ? ASKED_FETCH
           : type == FRAME_FETCH_WAIT ? ASKED_FETCH_WAIT
           : type == FRAME_RECOVER    ? ASKED_RECOVER
                                      : ASKED_NOTHING;
}

struct asked asked_op(const struct client_op *op)
{
    return (struct asked){.kind = (uint8_t)op->kind,
                          .session = op->session,
                          .length = op->length,
                          .written = op->written,
                          .appended = op->tokens.n,
                          .base = op->tokens.base};
}

void say_handle(struct tern *t, tern_session s)
{
    size_t n = strlen(t->text);

    if (s != 0)
        snprintf(t->text + n, QUICK_TEXT_MAX - n, "; the handle is 0x%" PRIx64, s);
}

/* Appends to the daemon's text. */
static void say_how_far(const struct tern_result *r, char *text)
{
    size_t n = strlen(text);

    snprintf(text + n, QUICK_TEXT_MAX - n,
             "; the session has committed %u and written %u of %u tokens", r->lengths.committed,
             r->lengths.written, r->tokens);
}

enum tern_err said(struct tern *t, const struct asked *a, const struct tern_result *r)
{
    if (r->err != TERN_OK && (!t->text[0] || numbers_say_more(a, r)))
        words_of(a, r, t->text);
    else if (r->err == TERN_INVALID && r->handed > 0)
        snprintf(t->text, QUICK_TEXT_MAX,
                 "the ticket was handed over with %u tokens, and the session's list has %u: Match "
                 "with exactly the ticket's tokens",
                 r->handed, r->tokens);
    else if (r->err == TERN_TIMED_OUT && a->kind == ASKED_FETCH)
        say_how_far(r, t->text);
    if (r->err == TERN_GONE && r->tokens == 0) /* else the session exists: something else is gone */
        say_handle(t, a->session);
    return r->err;
}

enum tern_err said_retracted(struct tern *t, enum tern_err err, const struct tern_retracted *away)
{
    struct tern_result r = {.err = err, .lengths = away->lengths, .shortage = away->shortage};

    if (err == TERN_POOL_EXHAUSTED || numbers_say_more(&(struct asked){.kind = ASKED_RETRACT}, &r))
        words_of(&(struct asked){.kind = ASKED_RETRACT}, &r, t->text);
    return err;
}

/* Returns true if `result` lies in the results of a batch; *ret_i is its index. */
static bool of_batch(const struct tern *t, const struct tern_result *result, size_t *ret_i)
{
    *ret_i = ((uintptr_t)result - (uintptr_t)t->results) / sizeof *result;
    return t->nresults > 0 && *ret_i < QUICK_ANSWERS_MAX * TERN_BATCH_OPS_MAX;
}

void tern_error_numbers(const struct tern *t, const struct tern_result *result, uint64_t ret[2])
{
    size_t i;

    if (!of_batch(t, result, &i)) {
        for (i = 0; i < 2; i++)
            ret[i] = t->text[0] ? t->store.numbers[i] : 0;
        return;
    }
    ret[0] = ret[1] = 0;
    if (i < t->nresults)
        quick_numbers(&t->store, (uint32_t)i, ret);
}

const char *error_text(struct tern *t, const struct tern_result *result)
{
    size_t i;

    if (!of_batch(t, result, &i))
        return t->text;
    if (i >= t->nresults || result->err == TERN_OK)
        return "";
    if (t->store.text_at[i] && !numbers_say_more(&t->asked[i], result))
        return t->store.texts + t->store.text_at[i];
    words_of(&t->asked[i], result, t->words);
    return t->words;
}
