/* The commands that end others' objects: session close, engine kick, pool close. */
#include <stdio.h>
#include <string.h>

#include "ctl.h"

static json_t *ask_about(struct ctl *ctl, const char *command, const char *key, const char *id)
{
    char arg[64];
    const char *args[] = {arg};

    snprintf(arg, sizeof(arg), "%s=%s", key, id);
    return ctl_ask(ctl, command, args, 1);
}

static int run_session(struct ctl *ctl)
{
    json_t *answer;

    if (strspn(ctl->operand, "0123456789abcdefABCDEF") != strlen(ctl->operand) ||
        strlen(ctl->operand) > 16)
        ctl_fail(CTL_USAGE, "'%.40s' is not a session: `ternctl sessions` shows their handles",
                 ctl->operand);
    answer = ask_about(ctl, "session-close", "session", ctl->operand);
    if (!ctl_print_json(ctl, answer)) {
        printf("%s is closed; ", ctl->operand);
        if (j_u64(answer, "until_step") > 0)
            printf("its pages are free when its engine has passed step %s\n",
                   num(answer, "until_step"));
        else
            printf("its pages are free\n");
    }
    json_decref(answer);
    return CTL_OK;
}

static int run_engine(struct ctl *ctl)
{
    static const struct ctl_named engines = {"engines", "name", "engine"};
    json_t *answer =
        ask_about(ctl, "engine-kick", "engine", ctl_id_of(ctl, &engines, ctl->operand));
    json_t *pid;
    size_t i;

    if (!ctl_print_json(ctl, answer)) {
        printf("%s is ended, and its connections are closed. Its pages are free when its processes "
               "have exited:",
               ctl->operand);
        json_array_foreach(json_object_get(answer, "pids"), i, pid)
            printf(" %llu", (unsigned long long)json_integer_value(pid));
        printf("\n");
    }
    json_decref(answer);
    return CTL_OK;
}

static int run_pool(struct ctl *ctl)
{
    static const struct ctl_named pools = {"pools", NULL, "pool"};
    json_t *answer = ask_about(ctl, "pool-close", "pool", ctl_id_of(ctl, &pools, ctl->operand));

    if (!ctl_print_json(ctl, answer))
        printf(
            "%s is being closed: %s prefix nodes are evicted, then its memory is zeroed and free\n",
            ctl->operand, num(answer, "nodes"));
    json_decref(answer);
    return CTL_OK;
}

/* ---- the rows ---- */

static const struct argp_option engine_options[] = {OPTION_TENANT, {0}};

const struct command end_commands[] = {
    {"session", "close SESSION", "Closes a session that its engine has forgotten",
     "  ternctl session close 0000000100000002\n\nSESSION as `ternctl sessions` shows it. A "
     "session that its engine uses cannot be closed: only the engine knows which steps touch its "
     "pages. Closing a session that was handed over drops its ticket.\n",
     NULL, 1, run_session},
    {"engine", "kick ENGINE", "Ends an engine as if it had died",
     "  ternctl engine kick decode-0\n\nENGINE is its handle or its name. Its connections are "
     "closed. Its pages are free only when all of its processes have exited, because they may "
     "still write: the answer names them.\n",
     engine_options, 1, run_engine},
    {"pool", "close POOL", "Closes a pool that no engine has mapped",
     "  ternctl pool close 0\n\nPOOL is its handle or its slot. All prefixes cached in it are "
     "evicted, pinned ones too; without this command they stay for the next engine. While engines, "
     "tickets or transfers use the pool, the command is refused and names them.\n",
     NULL, 1, run_pool},
    {0},
};
