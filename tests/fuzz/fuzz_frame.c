/* The splitter: a stream must give the same frames and the same end in pieces as in one. The first
 * byte of the input seeds the sizes of the pieces and decides whether there is room for frames in
 * pieces, the rest is the stream. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/prng.h"
#include "fuzz/passed.h"
#include "proto/frame.h"

#define BODY_MAX 512u

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

struct run {
    struct splitter splitter;
    bool room;     /* for frames in pieces */
    uint8_t *body; /* of the exact size: the sanitizer sees a byte too far */
    uint64_t digest, frames;
    enum tern_err end; /* TERN_OK: the stream continues */
};

static void note(struct run *r, const struct frame_header *h, const uint8_t *body)
{
    check(h->length > 0 && h->length <= BODY_MAX);
    r->frames++;
    r->digest = r->digest * 31 + h->type + h->request_id * 7 + h->session * 3 + h->length;
    for (uint32_t i = 0; r->room && i < h->length; i++)
        r->digest = r->digest * 1099511628211u + body[i];
}

static void make_room(struct run *r, const struct frame_header *h)
{
    free(r->body);
    r->body = r->room ? malloc(h->length) : NULL;
    r->splitter.body = r->body;
}

static void feed(struct run *r, const uint8_t *bytes, size_t n)
{
    uint8_t *piece = malloc(n ? n : 1);
    const uint8_t *in = piece, *body;
    struct frame_header h;
    enum split split = SPLIT_FRAME;

    check(piece);
    memcpy(piece, bytes, n);
    while (r->end == TERN_OK && split != SPLIT_MORE) {
        split = splitter_next(&r->splitter, &in, &n, &h, &body, &r->end);
        if (split == SPLIT_ROOM)
            make_room(r, &h);
        else if (split == SPLIT_FRAME || split == SPLIT_SKIPPED)
            note(r, &h, body);
        check((split == SPLIT_BAD) == (r->end != TERN_OK));
    }
    check(r->end != TERN_OK || n == 0);
    free(piece);
}

/* Can the first header be read? */
bool fuzz_gets_past(const uint8_t *data, size_t n)
{
    struct frame_header h;

    return n > FRAME_HEADER_BYTES && frame_decode(data + 1, BODY_MAX, &h) == TERN_OK;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct run whole, pieces;
    struct prng p;

    fuzz_begin();
    if (n < 1)
        return 0;
    if (fuzz_gets_past(data, n))
        fuzz_passed();
    prng_init(&p, data[0]);
    whole = pieces = (struct run){.splitter = {.body_max = BODY_MAX}, .room = data[0] / 2 % 2 == 0};
    feed(&whole, data + 1, n - 1);
    for (size_t at = 1; at < n;) {
        size_t take = 1 + prng_below(&p, data[0] % 2 ? 8 : 700);

        take = take < n - at ? take : n - at;
        feed(&pieces, data + at, take);
        at += take;
    }
    check(whole.frames == pieces.frames && whole.digest == pieces.digest);
    check(whole.end == pieces.end);
    free(whole.body);
    free(pieces.body);
    return 0;
}
