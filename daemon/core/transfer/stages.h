/* Stages of transfers, for operators: after each step that changed something they are read off the
 * records of all transfers, and the time is added up. Nothing in the core decides by them. */
#ifndef CORE_STAGES_H
#define CORE_STAGES_H

#include "core/arena/arena.h"

void stages_settle(struct core *c);

#endif
