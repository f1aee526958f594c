/* Fuzz target: the bytes on a data connection on which pages are resharded. The first byte chooses
 * the side, and the number of pages of a pull. At the source the input is a caller's stream, behind
 * a good HELLO or in place of it, for a serve whose pages leave by a plan; at the destination it is
 * the answer to a REQUEST_PLAN. Real sockets, one connection for each input, both sides over one
 * ring. The connection must end once the input has, each pull must end once, and a destination
 * writes only the pages that it asked for, in any rank. */
#include "fuzz/data_talk.h"
#include "seam/xfer/flow/transfers.h"
#include "unit/rig/rig_reshard.h"

#define RANKS      2u
#define PAGE_BYTES 512u /* of eight heads, two tokens, two ranks */
#define PULLED_MAX 2u   /* pages of a pull */
#define UNITS      2u
#define GUARDS     4u /* pages behind them, which stay unwritten */
#define GUARD_BYTE 0x5a
#define HASH_SRC   0x51u
#define HASH_DST   0xd1u

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static int listener = -1;
static uint32_t pulls;

static void tell(void)
{
    struct world_end end = {
        .kind = WORLD_MHA, .ranks = RANKS, .stages = 1, .page_tokens = 2, .units = 2};
    struct reshard_layout src, dst;

    world_layout(&end, &src);
    end.order = 1;
    world_layout(&end, &dst);
    check(src.page_bytes == PAGE_BYTES && dst.page_bytes == PAGE_BYTES);
    xfer_pool_layouts(rig.src.xfer, 0, HASH_SRC, &src, 1);
    xfer_peer_layouts(rig.src.xfer, 0, HASH_DST, &dst, 1);
    xfer_pool_layouts(rig.dst.xfer, 0, HASH_DST, &dst, 1);
    xfer_peer_layouts(rig.dst.xfer, rig.link, HASH_SRC, &src, 1);
}

static void set_up(void)
{
    static const struct rig_options options = {.page_bytes = {PAGE_BYTES},
                                               .regions = RANKS,
                                               .units = 2,
                                               .memory_bytes = 1u << 20,
                                               .idle_ns = 3600000000000u};
    struct action act = {.kind = ACT_SERVE_START};
    uint16_t port;

    if (listener >= 0)
        return;
    rig_open_filled(&options, 40);
    listener = rig_listen(&port);
    rig.link = 1;
    rig_link(port, RIG_SRC_INC);
    rig.layout_hash = HASH_SRC;
    tell();
    act.serve.serve = (struct serve_id){1, 7};
    act.serve.layout_hash = HASH_DST;
    xfer_serve_start(rig.src.xfer, &act);
    check(!rig.src.xfer->serve[1].lost);
}

static uint8_t *page(uint32_t rank, uint32_t i)
{
    return mem_page(rig.dst.mem, 0, rank, 0, rig.base[0] + i);
}

static void guard(uint32_t pulled)
{
    for (uint32_t r = 0; r < RANKS; r++)
        memset(page(r, pulled + 1), GUARD_BYTE, GUARDS * PAGE_BYTES);
}

static void look(uint32_t pulled)
{
    for (uint32_t r = 0; r < RANKS; r++)
        for (uint32_t i = 0; i < GUARDS * PAGE_BYTES; i++)
            check(page(r, pulled + 1)[i] == GUARD_BYTE);
}

static void at_the_destination(uint32_t pulled, bool raw, const uint8_t *bytes, size_t n)
{
    struct pull_id pull = {pulls % 8, pulls + 1};

    guard(pulled);
    rig.dst.nevents = 0;
    pulls++;
    rig_pull(pull, 1, 0, 1, pulled);
    answered(pull, listener, bytes, n, raw ? 0 : RANKS * PAGE_BYTES, RANKS * UNITS);
    look(pulled);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    fuzz_begin();
    if (n == 0)
        return 0;
    set_up();
    if (data[0] & 1)
        at_the_destination(1 + (data[0] >> 2) % PULLED_MAX, data[0] & 2, data + 1, n - 1);
    else if (!(data[0] & 2) || n > XFER_HEAD_BYTES) /* with less it waits at the door for a while */
        at_the_source(!(data[0] & 2), data[0] & 0x80, data + 1, n - 1);
    return 0;
}
