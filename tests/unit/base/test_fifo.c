/* The queue of links: its order, and removal from the middle and from the end. */
#include "base/fifo.h"
#include "testing/test.h"

struct thing {
    int before;
    struct fifo_link link;
};

static struct fifo queue;
static struct thing thing[3];

FIXTURE(set_up)
{
    queue = (struct fifo){0};
    for (int i = 0; i < 3; i++)
        fifo_push(&queue, &thing[i].link);
    return 0;
}

static void leaves(const struct thing *expected)
{
    assert_ptr_equal(fifo_first(&queue, struct thing, link), expected);
    assert_ptr_equal(fifo_pop(&queue, struct thing, link), expected);
}

TEST_WITH(fifo_hands_out_in_order_and_can_be_filled_again, set_up, NULL)
{
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < 3; i++)
            leaves(&thing[i]);
        leaves(NULL);
        for (int i = 0; i < 3; i++)
            fifo_push(&queue, &thing[i].link);
    }
}

TEST_WITH(fifo_goes_on_without_what_was_removed, set_up, NULL)
{
    fifo_remove(&queue, &thing[1].link);
    fifo_remove(&queue, &thing[2].link);
    fifo_push(&queue, &thing[1].link);
    leaves(&thing[0]);
    leaves(&thing[1]);
    leaves(NULL);
    fifo_push(&queue, &thing[2].link);
    fifo_remove(&queue, &thing[2].link);
    leaves(NULL);
}
