/* Replaces ctl_fail of client/ctl/ask.c in tests of parts of ternctl that do not link it. No case
 * may call it. A program includes this file once. */
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
