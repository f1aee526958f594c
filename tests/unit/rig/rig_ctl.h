/* In place of ctl_fail of client/ctl/ask.c, for tests of the parts of ternctl without it: no case
 * comes there. A program includes it once. */
#ifndef RIG_CTL_H
#define RIG_CTL_H

#include <stdlib.h>

#include "../../../client/ctl/ctl.h"
#include "testing/test.h"

void ctl_fail(enum ctl_exit status, const char *format, ...)
{
    fail_msg("%d: %s", (int)status, format);
    abort();
}

#endif
