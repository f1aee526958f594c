/* The argp_parse of page programs. See pages.h. The program's main calls it like libc's. argv: NAME
 * man SECTION, NAME bash, NAME zsh, or words that page_other knows. */
#include <stdlib.h>
#include <string.h>

#include "pages.h"

static void fail(const char *text)
{
    fprintf(stderr, "pages: %s\n", text);
    exit(1);
}

/* One entry of a table. An alias is a row of its own in argp, and no table of ours has one. */
static void add(struct page_options *to, const struct argp_option *o)
{
    struct page_option *v = &to->v[to->n];

    if (to->n == PAGE_OPTIONS_MAX)
        fail("more options than PAGE_OPTIONS_MAX");
    *v = (struct page_option){.name = o->name,
                              .arg = o->arg,
                              .doc = o->doc ? o->doc : "",
                              .letter = o->key > ' ' && o->key < 127 ? o->key : 0,
                              .optional = o->flags & OPTION_ARG_OPTIONAL,
                              .group = o->group};
    if (!o->name)
        v->heading = v->doc;
    to->n++;
}

/* Keys of ternctl's own options are letters that its help shows as short forms; pages show them
 * too. */
void page_add_options(struct page_options *to, const struct argp_option *options)
{
    for (const struct argp_option *o = options; o && (o->name || o->key || o->doc); o++)
        add(to, o);
}

/* Sorts by group, in the order of --help, and within a group in the order of the table. */
static void sort(struct page_options *o)
{
    for (size_t i = 1; i < o->n; i++)
        for (size_t j = i; j > 0 && o->v[j - 1].group > o->v[j].group; j--) {
            struct page_option swap = o->v[j];

            o->v[j] = o->v[j - 1];
            o->v[j - 1] = swap;
        }
}

static void read_argp(struct page *page, const struct argp *argp)
{
    static char before[4096];
    const char *doc = argp->doc ? argp->doc : "", *end = strchr(doc, '\v');

    page->args = argp->args_doc ? argp->args_doc : "";
    snprintf(before, sizeof before, "%.*s", (int)(end ? end - doc : (long)strlen(doc)), doc);
    page->before = before;
    page->after = end ? end + 1 : "";
    if (end && argp->help_filter)
        page->after = argp->help_filter(ARGP_KEY_HELP_POST_DOC, page->after, NULL);
    page_add_options(&page->options, argp->options);
    sort(&page->options);
    for (const struct argp_child *c = argp->children; c && c->argp; c++)
        page_add_options(&page->options, c->argp->options);
    page_add_options(&page->options,
                     (struct argp_option[]){
                         {"help", '?', NULL, 0, "Print this help and exit", -1},
                         {"usage", 0, NULL, 0, "Print a short usage and exit", -1},
                         {"version", 'V', NULL, 0, "Print the version and exit", -1},
                         {0},
                     });
    page_commands(page);
}

error_t argp_parse(const struct argp *argp, int argc, char **argv, unsigned flags, int *at,
                   void *in)
{
    static struct page page;
    const char *what = argc > 1 ? argv[1] : "", *name = strrchr(argv[0], '/');
    char *end;

    (void)flags, (void)at, (void)in;
    page.name = name ? name + 1 : argv[0];
    end = strstr(argv[0], "-pages");
    if (end)
        *end = '\0';
    read_argp(&page, argp);
    if (strcmp(what, "man") == 0 && argc > 2)
        page_scdoc(&page, argv[2], stdout);
    else if (strcmp(what, "bash") == 0)
        page_bash(&page, stdout);
    else if (strcmp(what, "zsh") == 0)
        page_zsh(&page, stdout);
    else if (!page_other(what, stdout))
        fail("say man SECTION, bash or zsh");
    if (fflush(stdout) != 0 || ferror(stdout))
        fail("standard output cannot be written");
    exit(0);
}
