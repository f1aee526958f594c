/* Processes of the benchmarks: children that never outlive their parent, pinned where asked, and
 * streams of small messages between them. */
#ifndef ENGINE_PROC_H
#define ENGINE_PROC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* As fork, but the child gets SIGKILL when its parent dies, and default signal handling. */
pid_t proc_fork(void);

/* The same with a stream socket between the two; *ret_fd is the end of each. -1: no child. */
pid_t proc_fork_linked(int *ret_fd);

/* Runs on that core alone; -1: on every core that the program was given. Returns false if the
 * program was not given that core. */
bool proc_pin(int core);

/* The n-th core that the program was given, or -1. */
int proc_core(uint32_t n);

/* Sends SIGKILL if it still runs, then waits. *pid becomes -1; -1 is fine. */
void proc_end(pid_t *pid);

/* Waits at most that long. Returns true with *ret_status (as waitpid) once it has ended; *pid is -1
 * then. */
bool proc_wait(pid_t *pid, uint32_t wait_ms, int *ret_status);

/* Whole messages over a blocking stream socket. Return false at its end or on an error. */
bool proc_send(int fd, const void *bytes, size_t n);
bool proc_recv(int fd, void *bytes, size_t n);

/* Memory for programs that end with status 2 when there is none: n zeroed items of that size; the
 * same as realloc; and zeroed memory shared with children that are forked afterwards. */
void *mem_need(size_t n, size_t each);
void *mem_grow(void *p, size_t n, size_t each);
void *proc_shared(size_t n);

void sleep_ms(uint32_t ms);

/* A fresh directory below $TMPDIR or /tmp, named PREFIX.XXXXXX; false with errno. */
bool tempdir_make(char *path, size_t cap, const char *prefix);
/* Removes it with the plain files and sockets inside. */
void tempdir_remove(const char *path);

#endif
