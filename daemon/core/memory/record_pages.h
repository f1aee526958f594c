/* Turn records and the memory that they lie in: pages of a tenant's record memory, a bit each. They
 * are taken in runs, as few as there are, and found and given back in O(log memory + pages / 64),
 * however the memory is cut up. Who writes, reads and drops records is said in
 * core/turn/turn_records.c; sessions and engines that end give theirs back here. */
#ifndef CORE_RECORD_PAGES_H
#define CORE_RECORD_PAGES_H

#include "core/arena/arena.h"

/* Room for that many bytes in *section, which is empty. False: there is none in RECORD_RUNS_MAX
 * runs, and nothing was taken. */
bool section_take(struct core *c, struct turn_record *r, struct record_section *section,
                  uint64_t bytes);
/* It is empty afterwards. */
void section_free(struct core *c, struct turn_record *r, struct record_section *section);

/* A PREPARED one of that session, without sections; the share has room. */
struct turn_record *record_take(struct core *c, struct session *s);
/* Off the list that it is in, with all its pages. */
void record_free(struct core *c, struct turn_record *r);
/* One of its session's: a turn that never ended may have been told its pages. */
bool record_exposed(const struct core *c, const struct turn_record *r);
/* One of its session's goes: it is held if it is exposed, else free. */
void record_drop(struct core *c, struct turn_record *r);
/* Its turn is over. `ended`: by a TurnEnd, so that nobody writes what is prepared. */
void session_records_turn_over(struct core *c, struct session *s, bool ended);
/* The next of what a session that closes, or an engine that ends, has; false: there is none. */
bool session_record_drop(struct core *c, struct session *s);
bool engine_record_drop(struct core *c, struct engine *e);

#endif
