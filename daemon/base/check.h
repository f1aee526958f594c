/* check(x): always on, for our own bugs, never for what a peer, a client or a device sent. A failed
 * check calls the hook (the daemon writes its tape of events), prints file:line and aborts. */
#ifndef BASE_CHECK_H
#define BASE_CHECK_H

#define check(x) ((x) ? (void)0 : check_failed(#x, __FILE__, __LINE__))

_Noreturn void check_failed(const char *expr, const char *file, int line);

/* Called once before the abort, with the failed check's text; NULL: none. Set at start: no lock. */
void check_set_hook(void (*hook)(const char *text));

#endif
