/* One question to etcd at a time, over HTTP. An endpoint that fails is followed by the next one. */
#ifndef MEMBER_ETCD_H
#define MEMBER_ETCD_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#define ETCD_ENDPOINTS_MAX   8u
#define ETCD_ENDPOINT_BYTES  256u
#define ETCD_DEADLINE_MS     1000u /* of one question, by default */
#define ETCD_DEADLINE_MS_MAX 30000u
#define ETCD_WHY_BYTES       256u

struct etcd;

/* What the command line says; the texts are borrowed while it lives. NULL: not given. */
struct etcd_options {
    const char *endpoints[ETCD_ENDPOINTS_MAX]; /* http://HOST:PORT or https://HOST:PORT */
    uint32_t nendpoints, deadline_ms;
    const char *ca, *cert, *key; /* PEM files, of https:// */
};

bool etcd_endpoint_ok(const char *endpoint);

/* NULL: `why` says what is wrong. */
struct etcd *etcd_create(const struct etcd_options *options, char why[ETCD_WHY_BYTES]);
void etcd_destroy(struct etcd *e);

/* Sends `body`, which is consumed, to `path` at the endpoint that answered last. The caller owns
 * *ret. False: there is no answer, or not the status 200 and JSON; etcd_why says the reason in one
 * line without quotes, and the next question goes to the next endpoint. */
bool etcd_ask(struct etcd *e, const char *path, json_t *body, json_t **ret);
/* The answer is not what etcd says: that is the reason then, and the next endpoint is asked next.
 */
void etcd_misread(struct etcd *e);
const char *etcd_why(const struct etcd *e);
const char *etcd_endpoint(const struct etcd *e); /* that was asked last */
uint32_t etcd_endpoints(const struct etcd *e);   /* how many there are */

#endif
