/* Man pages and shell completion, written at build time from the tables that answer --help. A page
 * program is the program itself, linked with our argp_parse (argp.c), which reads the options and
 * writes the requested page instead of parsing a command line. So a page names exactly the options
 * that the program has. */
#ifndef PAGES_PAGES_H
#define PAGES_PAGES_H

#include <argp.h>
#include <stdbool.h>
#include <stdio.h>

#define PAGE_OPTIONS_MAX  160
#define PAGE_COMMANDS_MAX 64

struct page_option {
    const char *heading; /* NULL: an option. Else the heading of the following options */
    const char *name, *arg, *doc;
    int letter; /* 0: no short form */
    bool optional;
    int group;
};

struct page_options {
    struct page_option v[PAGE_OPTIONS_MAX];
    size_t n;
};

struct page_command {
    const char *name, *args, *summary, *text;
    struct page_options options; /* its own; options of all commands are in struct page */
};

struct page {
    const char *name, *args;
    const char *before, *after; /* the text of --help before the options and after them */
    struct page_options options;
    struct page_command command[PAGE_COMMANDS_MAX];
    size_t commands;
};

/* Adds the commands of a program that has some, and pages that no other program has. Each program
 * has a file of its own for this. */
void page_commands(struct page *page);
bool page_other(const char *what, FILE *out);

void page_add_options(struct page_options *to, const struct argp_option *options);

/* scdoc.c: text for scdoc, which makes the man page from it. */
void page_scdoc(const struct page *page, const char *section, FILE *out);
void page_text(const char *text, FILE *out);  /* paragraphs */
void page_words(const char *text, FILE *out); /* one line, with scdoc's own characters escaped */
void page_entry(const char *name, const char *text, FILE *out);

/* completion.c */
void page_bash(const struct page *page, FILE *out);
void page_zsh(const struct page *page, FILE *out);

#endif
