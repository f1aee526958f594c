/* Fuzz target: the bytes on a data connection. The first byte chooses the side. At the source the
 * input is a caller's stream, behind a good HELLO or in place of it; at the destination it is the
 * answer to a request for a few pages, or for units of them, by that byte; its head is corrected,
 * unless bit 1 is set. Real sockets, one connection for each input, both sides over one ring. The
 * connection must end once the input has, each pull must end once, and a destination writes only
 * the pages that it asked for. */
#include "fuzz/data_talk.h"

#define PAGE_BYTES 512u
#define PULLED     4u /* pages of a pull: 1 to PULLED */
#define GUARDS     4u /* pages behind them, which stay unwritten */
#define GUARD_BYTE 0x5a
#define UNITS      4u

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static int listener = -1;
static uint32_t pulls;

static void set_up(void)
{
    static const struct rig_options options = {.page_bytes = {PAGE_BYTES},
                                               .units = UNITS,
                                               .memory_bytes = 1u << 20,
                                               .idle_ns = 3600000000000u};
    uint16_t port;

    if (listener >= 0)
        return;
    rig_open_filled(&options, 40);
    listener = rig_listen(&port);
    rig.link = 1;
    rig_link(port, RIG_SRC_INC);
}

static uint8_t *page(uint32_t i)
{
    return mem_page(rig.dst.mem, 0, 0, 0, rig.base[0] + i);
}

static void at_the_destination(uint8_t what, const uint8_t *bytes, size_t n)
{
    struct pull_id pull = {pulls % 8, pulls + 1};
    struct action act = {.kind = ACT_PULL};

    memset(page(PULLED + 1), GUARD_BYTE, GUARDS * PAGE_BYTES);
    rig.dst.nevents = 0;
    pulls++;
    rig_pull_part(pull, 0, 1, PULLED, &act);
    answered(pull, listener, bytes, n, what & 2 ? 0 : PAGE_BYTES, UNITS);
    for (uint32_t i = 0; i < GUARDS * PAGE_BYTES; i++)
        check(page(PULLED + 1)[i] == GUARD_BYTE);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    fuzz_begin();
    if (n == 0)
        return 0;
    set_up();
    if (data[0] & 1)
        at_the_destination(data[0], data + 1, n - 1);
    else if (!(data[0] & 2) || n > XFER_HEAD_BYTES) /* with less it waits at the door for a while */
        at_the_source(!(data[0] & 2), data[0] & 0x80, data + 1, n - 1);
    return 0;
}
