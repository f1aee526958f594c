/* By which names the agent may be called. A page of another host that a browser shows can have its
 * own name lead to this address (DNS rebinding) and would then read what is answered here, as if it
 * came from its own host: what a request says in Host has to be a name or an address of this one.
 */
#ifndef AGENT_HOSTS_H
#define AGENT_HOSTS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

#define HOSTS_MAX 16u

struct hosts {
    const char *name[HOSTS_MAX]; /* borrowed */
    uint32_t n;
};

/* Another name or address that is right. False: it is none, or there are HOSTS_MAX. */
bool hosts_add(struct hosts *hosts, const char *name);

/* Is what the request says in Host (NULL: nothing) right for a connection that came in at `local`?
 * Right are that address, loopback and localhost, and the names that were added; with any port. */
bool hosts_allow(const struct hosts *hosts, const char *host, const struct sockaddr *local);

#endif
