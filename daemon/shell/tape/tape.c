/* The ring, and writing it to a file. Records follow each other in the ring and wrap by words;
 * `first` is the oldest, `next` the place after the newest. Recording is on the path of every
 * request, so it only copies; tokens are mapped when the tape is written out. tape_dump may run in
 * a signal handler: it calls only write(2) and uses buffers allocated at create. Invariant, for a
 * signal within tape_record: a record exists once `next` has passed it, until `first` has passed
 * it. */
#include "shell/tape/tape.h"

#include <errno.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#include "base/check.h"
#include "base/hash.h"
#include "base/undumped.h"
#include "shell/tape/tape_codec.h"

#define OUT_WORDS 4096 /* words per write */

struct out {
    int fd;
    bool failed, mapped;
    size_t n;
    uint32_t words[OUT_WORDS];
};

struct tape {
    size_t nwords, first, next, used; /* words */
    uint64_t recorded, dropped;
    struct tape_file_head head;
    struct tenant_config tenant[TAPE_TENANTS_MAX];
    uint32_t round_key[4];
    uint64_t secret[2];
    struct codec_list lists[STEP_OPS_MAX]; /* of the event being recorded */
    struct out out;
    uint32_t words[]; /* the ring */
};

size_t tape_bytes(size_t ring)
{
    return ring ? (ring + 7) / 8 * 8 + sizeof(struct tape) : 0;
}

enum tern_err tape_create(const struct tape_config *config, struct tape **ret)
{
    struct tape *t;

    if (config->tenants > TAPE_TENANTS_MAX || config->bytes < TAPE_BYTES_MIN)
        return TERN_INVALID;
    t = undumped_take(tape_bytes(config->bytes), true);
    if (t == NULL)
        return TERN_INTERNAL;
    t->nwords = (config->bytes + 7) / 8 * 2;
    t->head = (struct tape_file_head){.magic = TAPE_MAGIC,
                                      .version = TAPE_VERSION,
                                      .limits_bytes = sizeof(struct core_limits),
                                      .tenants = config->tenants,
                                      .incarnation = config->incarnation,
                                      .limits = config->limits};
    if (config->tenants > 0)
        memcpy(t->tenant, config->tenant, config->tenants * sizeof *t->tenant);
    memcpy(t->secret, config->secret, sizeof t->secret);
    for (uint32_t i = 0; i < 4; i++)
        t->round_key[i] = (uint32_t)hash_mix(config->secret[0] + i, config->secret[1]);
    *ret = t;
    return TERN_OK;
}

void tape_destroy(struct tape *tape)
{
    if (tape != NULL)
        undumped_put(tape, sizeof *tape + tape->nwords * sizeof *tape->words);
}

#define PREFETCH_WORDS 128 /* a usual record; 16 words per cache line */

/* A full ring is larger than the caches, so prefetch the words that the next event overwrites. */
static void prefetch_oldest(const struct tape *t)
{
    for (size_t at = t->first; at < t->first + PREFETCH_WORDS && at < t->nwords; at += 16)
        __builtin_prefetch(&t->words[at], 1);
}

static void drop_oldest(struct tape *t)
{
    size_t n = t->words[t->first] / sizeof(uint32_t);

    check(n > 0 && n <= t->used);
    t->dropped++;
    t->used -= n;
    t->first = (t->first + n) % t->nwords;
    atomic_signal_fence(memory_order_seq_cst); /* only now may the record be overwritten */
    prefetch_oldest(t);
}

static uint32_t pad_even(struct codec *c, uint32_t words)
{
    uint32_t zero = 0;

    if (words % 2 != 0)
        codec_u32(c, &zero);
    return words % 2;
}

static uint32_t words_between(const struct tape *t, size_t from, size_t to)
{
    return (uint32_t)(to >= from ? to - from : to + t->nwords - from);
}

/* Drops the oldest records until there is room. Returns false if the ring is too small. Invariant:
 * `used` is below nwords, so that first == next always means empty. */
static bool make_room(struct tape *t, size_t words)
{
    while (t->used > 0 && t->used + words >= t->nwords)
        drop_oldest(t);
    return words < t->nwords;
}

static void put_lists(struct codec *c, uint32_t head[RECORD_HEAD_WORDS])
{
    for (uint32_t i = 0; i < c->nlists; i++) {
        const struct codec_list *l = &c->lists[i];

        codec_put_words(c, (const uint32_t *)(const void *)*l->keys, l->nkeys * KEY_WORDS);
        head[2] += l->nkeys;
    }
    for (uint32_t i = 0; i < c->nlists; i++) {
        codec_put_words(c, *c->lists[i].tokens, c->lists[i].n);
        head[3] += c->lists[i].n;
    }
    pad_even(c, head[3]);
}

/* Returns false if the ring is too small for the event. */
static bool write_record(struct tape *t, struct event *e)
{
    struct codec c = {.words = t->words, .n = t->nwords, .at = t->next, .lists = t->lists};
    uint32_t head[RECORD_HEAD_WORDS] = {0};
    size_t words = RECORD_HEAD_WORDS + codec_body_max(e) + 4, body_at;

    if (!make_room(t, words))
        return false;
    codec_put_words(&c, head, RECORD_HEAD_WORDS);
    body_at = c.at;
    codec_event(&c, e, NULL);
    head[1] = words_between(t, body_at, c.at);
    head[1] += pad_even(&c, head[1]);
    for (uint32_t i = 0; i < c.nlists; i++)
        words += c.lists[i].n + c.lists[i].nkeys * KEY_WORDS;
    if (!make_room(t, words))
        return false;
    put_lists(&c, head);
    head[0] = words_between(t, t->next, c.at) * (uint32_t)sizeof(uint32_t);
    t->used += head[0] / sizeof(uint32_t);
    check(t->used < t->nwords);
    c.at = t->next;
    codec_put_words(&c, head, RECORD_HEAD_WORDS);
    atomic_signal_fence(memory_order_seq_cst);
    t->next = (t->next + head[0] / sizeof(uint32_t)) % t->nwords;
    return true;
}

void tape_record(struct tape *tape, const struct event *event)
{
    struct event copy;

    if (tape == NULL)
        return;
    tape->recorded++;
    copy = *event;
    if (!write_record(tape, &copy))
        tape->dropped++;
}

static uint32_t word_at(const struct tape *t, size_t at)
{
    return t->words[at % t->nwords];
}

static uint64_t wide_at(const struct tape *t, size_t at)
{
    return word_at(t, at) | (uint64_t)word_at(t, at + 1) << 32;
}

void tape_stats(const struct tape *tape, struct tape_stats *ret)
{
    *ret = (struct tape_stats){0};
    if (tape == NULL)
        return;
    ret->recorded = tape->recorded;
    ret->dropped = tape->dropped;
    ret->bytes_used = tape->used * sizeof(uint32_t);
    if (tape->used > 0) /* the body begins with the event's kind and now_ns */
        ret->oldest_ns = wide_at(tape, tape->first + RECORD_HEAD_WORDS + 1);
}

static void write_all(struct out *o, const void *bytes, size_t n)
{
    const char *at = bytes;

    while (n > 0 && !o->failed) {
        ssize_t done = write(o->fd, at, n);

        if (done < 0 && errno == EINTR)
            continue;
        if (done <= 0) {
            errno = done == 0 ? ENOSPC : errno;
            o->failed = true;
            return;
        }
        at += done;
        n -= (size_t)done;
    }
}

static void flush(struct out *o)
{
    write_all(o, o->words, o->n * sizeof *o->words);
    o->n = 0;
}

static void put(struct out *o, uint32_t word)
{
    if (o->n == OUT_WORDS)
        flush(o);
    o->words[o->n++] = word;
}

/* A permutation of 32-bit values: four rounds of a Feistel network over 16-bit halves. Without the
 * key its values show only equality. */
static uint32_t map_token(const struct tape *t, uint32_t v)
{
    uint32_t left = v >> 16, right = v & 0xffff;

    for (uint32_t i = 0; i < 4; i++) {
        uint32_t mixed = (right + t->round_key[i]) * 0x9e3779b1u, next;

        mixed = (mixed ^ mixed >> 15) * 0x85ebca6bu;
        next = left ^ (mixed >> 13 & 0xffff);
        left = right;
        right = next;
    }
    return left << 16 | right;
}

/* Keeps position and padding; replaces the 128 bits of content by 128 bits of a keyed hash. */
static void put_mapped_key(struct tape *t, size_t at)
{
    uint64_t hi = wide_at(t, at + 2), lo = wide_at(t, at + 4);
    uint64_t a = hash_mix(t->secret[0] ^ hi, lo), b = hash_mix(t->secret[1] ^ lo, hi);

    put(&t->out, word_at(t, at));
    put(&t->out, word_at(t, at + 1));
    put(&t->out, (uint32_t)a);
    put(&t->out, (uint32_t)(a >> 32));
    put(&t->out, (uint32_t)b);
    put(&t->out, (uint32_t)(b >> 32));
}

static void dump_record(struct tape *t, size_t at)
{
    size_t words = word_at(t, at) / sizeof(uint32_t), body = RECORD_HEAD_WORDS + word_at(t, at + 1);
    size_t keys = word_at(t, at + 2), tokens = word_at(t, at + 3),
           tokens_at = body + keys * KEY_WORDS;

    for (size_t i = 0; i < body; i++)
        put(&t->out, word_at(t, at + i));
    for (size_t i = 0; i < keys; i++) {
        if (t->out.mapped)
            put_mapped_key(t, at + body + i * KEY_WORDS);
        else
            for (size_t w = 0; w < KEY_WORDS; w++)
                put(&t->out, word_at(t, at + body + i * KEY_WORDS + w));
    }
    for (size_t i = tokens_at; i < words; i++) {
        uint32_t word = word_at(t, at + i);

        put(&t->out, t->out.mapped && i < tokens_at + tokens ? map_token(t, word) : word);
    }
}

/* Counts the events; safe in a signal at any moment. */
static uint64_t events_there(const struct tape *t)
{
    uint64_t n = 0;

    for (size_t at = t->first; at != t->next && n < t->nwords; n++) {
        size_t words = t->words[at] / sizeof(uint32_t);

        if (words == 0 || words >= t->nwords)
            break;
        at = (at + words) % t->nwords;
    }
    return n;
}

enum tern_err tape_dump(struct tape *tape, int fd, bool keep_tokens)
{
    struct tape_file_head head;
    struct out *o;
    size_t at;

    if (tape == NULL)
        return TERN_INVALID;
    o = &tape->out;
    o->fd = fd;
    o->failed = false;
    o->mapped = !keep_tokens;
    o->n = 0;
    head = tape->head;
    head.first = tape->dropped;
    head.events = events_there(tape);
    head.flags = (tape->dropped == 0 ? TAPE_COMPLETE : 0) | (keep_tokens ? TAPE_TOKENS_KEPT : 0);
    write_all(o, &head, sizeof head);
    write_all(o, tape->tenant, head.tenants * sizeof *tape->tenant);
    at = tape->first;
    for (uint64_t i = 0; i < head.events && !o->failed; i++) {
        dump_record(tape, at);
        at = (at + tape->words[at] / sizeof(uint32_t)) % tape->nwords;
    }
    flush(o);
    return o->failed ? TERN_DISK : TERN_OK;
}
