/* Turn records and their memory: pages of a tenant's record memory, one bit each. A section takes
 * as few runs of pages as possible, found and freed in O(log memory + pages / 64) at any
 * fragmentation. core/turn/turn_records.c writes, reads and drops records; sessions and engines
 * that end free theirs here. */
#ifndef CORE_RECORD_PAGES_H
#define CORE_RECORD_PAGES_H

#include "core/arena/arena.h"

/* Allocates that many bytes to *section, which is empty. Returns false, without any change, if they
 * do not fit in RECORD_RUNS_MAX runs. */
bool section_take(struct core *c, struct turn_record *r, struct record_section *section,
                  uint64_t bytes);
/* Frees the pages of *section, which is empty afterwards. */
void section_free(struct core *c, struct turn_record *r, struct record_section *section);

/* Creates a PREPARED record of the session without sections; the share must have room. */
struct turn_record *record_take(struct core *c, struct session *s);
/* Removes a record from its list and frees all its pages. */
void record_free(struct core *c, struct turn_record *r);
/* Returns true if a turn that never ended may know the pages of this session's record. */
bool record_exposed(const struct core *c, const struct turn_record *r);
/* Drops a session's record: it becomes HELD if it is exposed, else it is freed. */
void record_drop(struct core *c, struct turn_record *r);
/* The session's turn is over. `ended`: by a TurnEnd, so nobody writes the prepared record. */
void session_records_turn_over(struct core *c, struct session *s, bool ended);
/* Drops the next record of a closing session or ending engine. Returns false if none is left. */
bool session_record_drop(struct core *c, struct session *s);
bool engine_record_drop(struct core *c, struct engine *e);

#endif
