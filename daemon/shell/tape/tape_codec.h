/* Encodes events as words, and decodes them. One walk over the fields serves both, so that the two
 * cannot diverge. Internal to tape*.c.
 *
 * A record is 8-byte aligned words: {bytes, body words, extra keys, tokens}, the body (padded to an
 * even count), the extra keys of all token lists in order, their tokens in order, padding. Keys and
 * tokens are last so that tape_dump can replace them without decoding events. */
#ifndef SHELL_TAPE_CODEC_H
#define SHELL_TAPE_CODEC_H

#include <assert.h>

#include "core/core.h"
#include "proto/messages.h"

#define RECORD_HEAD_WORDS 4
#define KEY_WORDS         (sizeof(struct extra_key) / sizeof(uint32_t))
#define GROUP_WORDS       8                               /* one group of a layout */
#define EVENT_WORDS_MAX   (64 + GROUPS_MAX * GROUP_WORDS) /* any event, no borrowed arrays */
#define OP_WORDS_MAX      16                              /* one operation of a Step */
#define RUN_WORDS         3                               /* one run without its refs */

#define TAPE_MAGIC       0x455041544e524554u /* "TERNTAPE" */
#define TAPE_COMPLETE    1u
#define TAPE_TOKENS_KEPT 2u

/* A tape can be read on the machine type that wrote it, by the same build of the core; `version`
 * and `limits_bytes` refuse other tapes. */
struct tape_file_head {
    uint64_t magic;
    uint32_t version, flags;
    uint32_t limits_bytes, tenants; /* tenants: configurations after the head */
    uint64_t incarnation, first, events;
    struct core_limits limits;
};

static_assert(sizeof(struct tape_file_head) % 8 == 0, "records behind it are aligned");
static_assert(sizeof(struct tenant_config) == 48,
              "records behind it are aligned, and nothing undefined is written");

/* A list of tokens of an event: the addresses of its arrays, and their lengths. */
struct codec_list {
    const uint32_t **tokens;
    const struct extra_key **keys;
    uint32_t n, nkeys;
};

struct codec {
    bool reading;
    bool bad; /* reading: no words left, or a value out of range; later values are 0 */
    uint32_t *words;
    size_t n, at;             /* at: wraps at n when writing; ends at n when reading */
    struct codec_list *lists; /* STEP_OPS_MAX; lists of the event, in the order of the walk */
    uint32_t nlists;
};

/* Memory for a read event's arrays of structs. */
struct codec_room {
    struct step_op ops[STEP_OPS_MAX];
    struct table_run op_runs[WIRE_RUNS_MAX]; /* runs of `ops` */
    struct table_run runs[GROUPS_MAX];
    struct codec_list lists[STEP_OPS_MAX];
};

/* room: NULL when writing. */
void codec_event(struct codec *c, struct event *event, struct codec_room *room);

void codec_u32(struct codec *c, uint32_t *v);
void codec_put_words(struct codec *c, const uint32_t *words, size_t n);

/* An upper bound of the event's words without its keys and tokens. */
size_t codec_body_max(const struct event *event);

#endif
