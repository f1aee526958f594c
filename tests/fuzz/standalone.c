/* Runs one fuzz target without libFuzzer: every file of a corpus folder as it is, then a number of
 * mutations of them and of random bytes, the same ones in each run, for at most SECONDS_MAX; it
 * prints how many ran.
 *
 *   fuzz_x CORPUS-FOLDER [MUTATIONS]
 *   fuzz_x FILE
 *
 * It fails if fewer than half of the corpus pass the first check (passed.h). The failing input is
 * stored in fuzz-failure-<pid>.bin of the working folder. */
#include <dirent.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/prng.h"
#include "fuzz/passed.h"

#define INPUTS_MAX      4096u
#define INPUT_BYTES_MAX (1u << 20)
#define RANDOM_BYTES    4096u /* at most, of an input made from nothing */
#define SECONDS_MAX     20

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

struct input {
    uint8_t *v;
    size_t n;
};

static struct input inputs[INPUTS_MAX];
static size_t ninputs;
static uint8_t current[INPUT_BYTES_MAX];
static volatile size_t current_n;

static void fail(const char *what, const char *name)
{
    fprintf(stderr, "%s: %s\n", name, what);
    exit(1);
}

/* Stores the current input; async-signal-safe enough for a process that is about to die. */
static void on_abort(int sig)
{
    char name[64];
    FILE *f;

    snprintf(name, sizeof name, "fuzz-failure-%d.bin", (int)getpid());
    f = fopen(name, "wb");
    if (f) {
        fwrite(current, 1, current_n, f);
        fclose(f);
        fprintf(stderr, "the input is in %s\n", name);
    }
    signal(sig, SIG_DFL);
    raise(sig);
}

static void load(const char *path)
{
    static uint8_t bytes[INPUT_BYTES_MAX];
    FILE *f = fopen(path, "rb");
    struct input *in = &inputs[ninputs];

    if (!f)
        fail("cannot be read", path);
    if (ninputs == INPUTS_MAX)
        fail("too many files in the corpus", path);
    in->n = fread(bytes, 1, sizeof bytes, f);
    in->v = malloc(in->n ? in->n : 1);
    if (!in->v)
        fail("out of memory", path);
    memcpy(in->v, bytes, in->n);
    fclose(f);
    ninputs++;
}

static int compare(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Sorted by name: the mutations depend on the order. */
static void load_folder(const char *folder)
{
    char *names[INPUTS_MAX];
    size_t n = 0;
    DIR *dir = opendir(folder);
    struct dirent *e;

    if (!dir)
        fail("no such corpus", folder);
    while ((e = readdir(dir)) != NULL && n < INPUTS_MAX) {
        char path[4096];

        snprintf(path, sizeof path, "%s/%s", folder, e->d_name);
        if (e->d_name[0] != '.')
            names[n++] = strdup(path);
    }
    closedir(dir);
    qsort(names, n, sizeof *names, compare);
    for (size_t i = 0; i < n; i++) {
        load(names[i]);
        free(names[i]);
    }
    if (ninputs == 0)
        fail("the corpus is empty", folder);
}

static void run(void)
{
    LLVMFuzzerTestOneInput(current, current_n);
}

static void take(const struct input *in)
{
    memcpy(current, in->v, in->n);
    current_n = in->n;
}

/* Bytes at edges of varints and lengths, more often than chance would draw them. */
static uint8_t odd_byte(struct prng *p)
{
    static const uint8_t favourites[] = {0, 1, 0x7f, 0x80, 0xff, 0x0a, 0x12, 0x18};

    return prng_below(p, 2) ? favourites[prng_below(p, sizeof favourites)] : (uint8_t)prng_u64(p);
}

static void mutate_once(struct prng *p)
{
    uint32_t at = prng_below(p, (uint32_t)current_n + 1), n;
    const struct input *other;

    switch (prng_below(p, 6)) {
    case 0: /* another byte */
        if (at < current_n)
            current[at] = odd_byte(p);
        break;
    case 1: /* another bit */
        if (at < current_n)
            current[at] ^= (uint8_t)(1u << prng_below(p, 8));
        break;
    case 2: /* cut the end off */ current_n = at; break;
    case 3: /* take a piece out */
        n = prng_below(p, (uint32_t)(current_n - at) + 1);
        memmove(current + at, current + at + n, current_n - at - n);
        current_n -= n;
        break;
    case 4: /* put a byte in */
        if (current_n < INPUT_BYTES_MAX) {
            memmove(current + at + 1, current + at, current_n - at);
            current[at] = odd_byte(p);
            current_n++;
        }
        break;
    default: /* put a piece of another input in */
        if (ninputs == 0)
            break;
        other = &inputs[prng_below(p, (uint32_t)ninputs)];
        n = prng_below(p, (uint32_t)other->n + 1);
        if (current_n + n <= INPUT_BYTES_MAX) {
            memmove(current + at + n, current + at, current_n - at);
            memcpy(current + at, other->v + other->n - n, n);
            current_n += n;
        }
    }
}

static void take_random(struct prng *p)
{
    current_n = prng_below(p, RANDOM_BYTES + 1);
    for (size_t i = 0; i < current_n; i++)
        current[i] = (uint8_t)prng_u64(p);
}

static long mutate_and_run(long mutations)
{
    time_t end = time(NULL) + SECONDS_MAX;
    struct prng p;
    long i;

    prng_init(&p, 1);
    for (i = 0; i < mutations && time(NULL) <= end; i++) {
        if (ninputs == 0 || prng_below(&p, 8) == 0)
            take_random(&p);
        else
            take(&inputs[prng_below(&p, (uint32_t)ninputs)]);
        for (uint32_t k = 1 + prng_below(&p, 8); k > 0; k--)
            mutate_once(&p);
        run();
    }
    return i;
}

int main(int argc, char **argv)
{
    long mutations = argc > 2 ? atol(argv[2]) : 0;
    struct stat st = {0};
    bool enough;

    if (argc < 2)
        fail("usage: fuzz_x CORPUS-FOLDER [MUTATIONS] | fuzz_x FILE", argv[0]);
    signal(SIGABRT, on_abort);
    signal(SIGSEGV, on_abort);
    if (stat(argv[1], &st) != 0)
        printf("no corpus at %s: random bytes only\n", argv[1]);
    else if (S_ISDIR(st.st_mode))
        load_folder(argv[1]);
    else
        load(argv[1]);
    for (size_t i = 0; i < ninputs; i++) {
        take(&inputs[i]);
        run();
    }
    enough = fuzz_report("inputs of the corpus") || !S_ISDIR(st.st_mode);
    mutations = mutate_and_run(mutations);
    printf("%zu inputs, %ld mutations\n", ninputs, mutations);
    return enough ? 0 : 1;
}
