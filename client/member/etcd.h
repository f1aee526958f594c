/* Sends questions to etcd over HTTP, one at a time. After an endpoint failed the next one is
 * used. */
#ifndef MEMBER_ETCD_H
#define MEMBER_ETCD_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#define ETCD_ENDPOINTS_MAX   8u
#define ETCD_ENDPOINT_BYTES  256u
#define ETCD_DEADLINE_MS     1000u /* default deadline of one question */
#define ETCD_DEADLINE_MS_MAX 30000u
#define ETCD_WHY_BYTES       256u

struct etcd;

/* Options of the command line; the texts are borrowed while etcd exists. NULL: not given. */
struct etcd_options {
    const char *endpoints[ETCD_ENDPOINTS_MAX]; /* http://HOST:PORT or https://HOST:PORT */
    uint32_t nendpoints, deadline_ms;
    const char *ca, *cert, *key; /* PEM files, for https:// */
};

bool etcd_endpoint_ok(const char *endpoint);

/* NULL: `why` is the error. */
struct etcd *etcd_create(const struct etcd_options *options, char why[ETCD_WHY_BYTES]);
void etcd_destroy(struct etcd *e);

/* Sends `body`, which is consumed, to `path` at the endpoint that answered last. The caller owns
 * *ret. Returns false if there is no answer, or one without status 200 or JSON; etcd_why returns
 * the reason in one line without quotes, and the next question goes to the next endpoint. */
bool etcd_ask(struct etcd *e, const char *path, json_t *body, json_t **ret);
/* Marks the last answer as invalid: sets that reason, and the next question goes to the next
 * endpoint.
 */
void etcd_misread(struct etcd *e);
const char *etcd_why(const struct etcd *e);
const char *etcd_endpoint(const struct etcd *e); /* the one asked last */
uint32_t etcd_endpoints(const struct etcd *e);   /* how many there are */

#endif
