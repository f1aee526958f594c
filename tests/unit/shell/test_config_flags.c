/* Flags of the command line, with and without a file, and the example file. */
#include <unistd.h>

#include "shell/config/config_table.h"
#include "test_config_rig.h"

static enum tern_err load_flags(char **argv, struct config **ret, char why[CONFIG_WHY_BYTES])
{
    int argc = 0;

    while (argv[argc] != NULL)
        argc++;
    why[0] = '\0';
    return config_load(argc, argv, ret, why, CONFIG_WHY_BYTES);
}

#define ARGV(...) ((char *[]){(char *)"ternd", __VA_ARGS__, NULL})
#define T         (char *)"--tenant=name=default,socket=/tmp/x.sock,memory=64M,regions=2"

static struct config *flags_accepted(char **argv)
{
    char why[CONFIG_WHY_BYTES];

    if (load_flags(argv, &configs[nconfigs], why) != TERN_OK)
        fail_msg("refused: %s", why);
    return configs[nconfigs++];
}

static void flags_refused(char **argv, const char *at, const char *words)
{
    char why[CONFIG_WHY_BYTES];
    struct config *c = NULL;

    assert_int_equal(load_flags(argv, &c, why), TERN_INVALID);
    if (strncmp(why, at, strlen(at)) != 0 || strstr(why, words) == NULL)
        fail_msg("wanted \"%s ... %s ...\", got \"%s\"", at, words, why);
}

TEST(config_flags_alone_are_enough)
{
    struct config *c = flags_accepted(
        ARGV(T, (char *)"--insecure_peers", (char *)"--peer",
             (char *)"name=b,address=127.0.0.1:7001,tenants=default+two",
             (char *)"--tenant=name=two,socket=/tmp/y.sock,memory=1M,"
                     "host_memory=2M",
             (char *)"--faults.copy_corrupt_every=5", (char *)"--limits.nodes=77",
             (char *)"--faults.corrupt_pages", (char *)"1000", (char *)"--huge_pages=no",
             (char *)"--check-config", (char *)"--listen=127.0.0.1:0"));

    assert_int_equal(c->ntenants, 2);
    assert_int_equal(c->tenants[0].regions, 2);
    assert_string_equal(c->tenants[1].socket, "/tmp/y.sock");
    assert_int_equal(c->npeers, 1);
    assert_int_equal(c->peers[0].tenants, 3);
    assert_int_equal(c->limits.nodes, 77);
    assert_int_equal(c->limits.sums_per_page, 2);
    assert_int_equal(c->fault_corrupt_pages, 1000);
    assert_int_equal(c->tenants[1].host_bytes, 2u << 20);
    assert_int_equal(c->fault_copy_corrupt_every, 5);
    assert_false(c->huge_pages);
    assert_true(c->insecure_peers && c->check_only);
}

TEST(config_flags_that_are_wrong_are_named)
{
    flags_refused(ARGV(T, (char *)"--workers=0"), "--workers: ", "from 1 to 256");
    flags_refused(ARGV(T, (char *)"--limits.sessions=x"), "--limits.sessions: ", "whole number");
    flags_refused(ARGV((char *)"--tenant=name=a,socket"), "--tenant a: socket: ", "no value");
    flags_refused(ARGV((char *)"--tenant=name=a,zork=1"), "--tenant a: zork: ", "unknown key");
    flags_refused(ARGV((char *)"--tenant=name=a,socket=/tmp/a,memory=lots"),
                  "--tenant a: memory: ", "bytes");
    flags_refused(ARGV(T, T), "--tenant default: name: ", "another tenant");
    flags_refused(
        ARGV(T, (char *)"--peer=name=b,address=h:1,tenants=nobody", (char *)"--insecure_peers"),
        "--peer b: tenants: ", "no tenant nobody");
    flags_refused(ARGV(T, (char *)"--peer=name=b,address=h:1,tenants=default"),
                  "--peer b: ", "--insecure_peers");
    flags_refused(ARGV(T, (char *)"--peer=name=b,port=1"), "--peer b: port: ", "unknown key");
    flags_refused(ARGV(T, (char *)"--peer=name=b,push=true"), "--peer b: push: ", "was retired");
    flags_refused(ARGV(T, (char *)"--rdma.wide_keys"), "--rdma.wide_keys: ", "was retired");
    flags_refused(ARGV(T, (char *)"--limits.slabs=9"), "--limits.slabs: ", "set limits.pools");
    flags_refused(ARGV(T, (char *)"--rdma_mr_bytes=1G"), "--rdma_mr_bytes: ", "was retired");
    flags_refused(ARGV(T, (char *)"--listen=h:1"), "--listen: ", "--insecure_peers");
    flags_refused(ARGV(T, (char *)"stray"), "", "stray");
    flags_refused(ARGV(T, (char *)"--config=/nonexistent/t.yaml"),
                  "/nonexistent/t.yaml: ", "No such file");
}

/* Every setting has a flag of the same name as in the file. */
TEST(config_every_flag_refuses_nonsense)
{
    char flag[128], at[128];

    for (size_t i = 0; i < config_settings_n; i++) {
        const struct setting *s = &config_settings[i];

        snprintf(at, sizeof at, "--%s%s%s: ", s->section, *s->section ? "." : "", s->key);
        snprintf(flag, sizeof flag, "%.*s=!", (int)strlen(at) - 2, at);
        flags_refused(ARGV(T, flag), at, "must ");
    }
    flags_refused(ARGV(T, (char *)"--limits.sums_per_page=268435456"),
                  "--limits.sums_per_page: ", "lower it");
}

TEST(config_flags_override_the_file)
{
    static const char text[] = "workers: 2\nnode: fromfile\n" TENANT;
    char path[] = "/tmp/tern-config-XXXXXX", flag[64];
    struct config *c;
    int fd = mkstemp(path);

    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, sizeof text - 1), sizeof text - 1);
    snprintf(flag, sizeof flag, "--config=%s", path);
    c = flags_accepted(
        ARGV((char *)"--workers=5", flag, (char *)"--tenant=name=b,socket=/tmp/b,memory=1M"));
    assert_int_equal(c->workers, 5);
    assert_string_equal(c->node, "fromfile");
    assert_int_equal(c->ntenants, 2);
    assert_string_equal(c->file, path);
    flags_refused(ARGV(flag, (char *)"--tenant=name=b,socket=/tmp/t.sock,memory=1M"),
                  "--tenant b: socket: ", "tenant default has the same socket");
    unlink(path);
    close(fd);
}

TEST(config_file_larger_than_the_cap_is_refused)
{
    char path[] = "/tmp/tern-config-XXXXXX", flag[64];
    int fd = mkstemp(path);

    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, CONFIG_FILE_MAX + 1), 0);
    snprintf(flag, sizeof flag, "--config=%s", path);
    flags_refused(ARGV(flag), path, "larger than");
    unlink(path);
    close(fd);
}

/* The installed example must load, with the values in its own text. */
TEST(config_example_file_is_valid)
{
    const char *source = getenv("TERN_SOURCE");
    char flag[4096 + 32];

    snprintf(flag, sizeof flag, "--config=%s/deploy/ternd.yaml", source == NULL ? "." : source);
    assert_int_equal(flags_accepted(ARGV(flag))->ntenants, 1);
}

/* The file promises "Every setting is shown". */
TEST(config_example_file_shows_every_setting)
{
    const char *source = getenv("TERN_SOURCE");
    char path[4096 + 32], text[32768], key[64];
    FILE *f;

    snprintf(path, sizeof path, "%s/deploy/ternd.yaml", source == NULL ? "." : source);
    f = fopen(path, "re");
    assert_non_null(f);
    text[fread(text, 1, sizeof text - 1, f)] = '\0';
    fclose(f);
    for (size_t i = 0; i < config_settings_n; i++) {
        snprintf(key, sizeof key, " %s:", config_settings[i].key);
        if (strstr(text, key) == NULL && strstr(text, key + 1) == NULL)
            fail_msg("%s is not shown", config_settings[i].key);
    }
    for (size_t i = 0; i < TENANT_FIELDS; i++) {
        snprintf(key, sizeof key, " %s: ", config_tenant_fields[i].key);
        if (strstr(text, key) == NULL)
            fail_msg("tenants[].%s is not shown", config_tenant_fields[i].key);
    }
    for (size_t i = 0; i < PEER_FIELDS; i++) {
        snprintf(key, sizeof key, " %s: ", config_peer_fields[i].key);
        if (strstr(text, key) == NULL)
            fail_msg("peers[].%s is not shown", config_peer_fields[i].key);
    }
}
