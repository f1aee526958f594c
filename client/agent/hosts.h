/* The host names accepted in requests. A web page of another host can make its own name resolve to
 * this address (DNS rebinding), and could then read the agent's answers as if they came from its
 * own host. So the Host header must be a name or an address of this host.
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

/* Adds an accepted name or address. Returns false if it is invalid, or there are HOSTS_MAX. */
bool hosts_add(struct hosts *hosts, const char *name);

/* Returns true if the Host header (NULL: none) is accepted for a connection to `local`: that
 * address, loopback and localhost, and the added names are, with any port. */
bool hosts_allow(const struct hosts *hosts, const char *host, const struct sockaddr *local);

#endif
