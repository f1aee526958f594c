/* Man pages, as text for scdoc. See pages.h. Invariant: every line that we write begins with a word
 * or with scdoc's own mark, since scdoc gives a meaning to many characters at a line's start. */
#include <stdlib.h>
#include <string.h>
#include <tern_version.h>

#include "pages.h"

#define EXIT_STATUS "Exit status: " /* begins a section of its own */

void page_words(const char *text, FILE *out)
{
    for (const char *c = text; *c; c++) {
        if (strchr("\\_*`~", *c))
            fputc('\\', out);
        fputc(*c == '\n' ? ' ' : *c, out);
    }
}

void page_entry(const char *name, const char *text, FILE *out)
{
    fputc('*', out);
    page_words(name, out);
    fputs("*\n\t", out);
    page_words(text, out);
    fputs("\n\n", out);
}

/* "word   what it is": a line of a list, as help texts write them. */
static bool is_entry(const char *line)
{
    size_t word = strcspn(line, " \n");

    return word > 0 && strncmp(line + word, "  ", 2) == 0;
}

static void entries(char *paragraph, FILE *out)
{
    char *rest = NULL;

    for (char *line = strtok_r(paragraph, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
        size_t word = strcspn(line, " ");

        line[word] = '\0';
        page_entry(line, line + word + 1 + strspn(line + word + 1, " "), out);
    }
}

/* Indented lines, such as examples, stay as they are; the others form one paragraph each. */
static void lines(char *paragraph, FILE *out)
{
    char *rest = NULL;
    bool literal = false;

    for (char *line = strtok_r(paragraph, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
        if ((*line == ' ') != literal)
            fputs(literal ? "```\n\n" : "```\n", out);
        literal = *line == ' ';
        if (literal)
            fprintf(out, "%s\n", line + strspn(line, " "));
        else
            page_words(line, out), fputs("\n\n", out);
    }
    fputs(literal ? "```\n\n" : "", out);
}

void page_text(const char *text, FILE *out)
{
    char *copy = strdup(text), *at = copy;

    while (at && *at) {
        char *end = strstr(at, "\n\n");

        if (end)
            *end = '\0';
        if (strncmp(at, EXIT_STATUS, strlen(EXIT_STATUS)) == 0) {
            fputs("# EXIT STATUS\n\n", out);
            at += strlen(EXIT_STATUS);
        }
        if (is_entry(at))
            entries(at, out);
        else if (strncmp(at, "Commands:", 9) != 0) /* a section of its own */
            lines(at, out);
        at = end ? end + 2 : NULL;
    }
    free(copy);
}

static void option(const struct page_option *o, FILE *out)
{
    if (o->letter)
        fprintf(out, "*-%c*, ", o->letter);
    fputs("*--", out);
    page_words(o->name, out);
    fputc('*', out);
    if (o->arg) {
        fputs(o->optional ? "[=_" : "=_", out);
        page_words(o->arg, out);
        fputs(o->optional ? "_]" : "_", out);
    }
    fputs("\n\t", out);
    page_words(o->doc, out);
    fputs(".\n\n", out);
}

static void options(const struct page_options *list, bool headings, FILE *out)
{
    for (size_t i = 0; i < list->n; i++) {
        if (!list->v[i].heading)
            option(&list->v[i], out);
        else if (headings)
            fprintf(out, "## %s\n\n", list->v[i].heading);
    }
}

static void command(const struct page *page, const struct page_command *c, FILE *out)
{
    fprintf(out, "## %s %s", page->name, c->name);
    if (*c->args)
        fprintf(out, " %s", c->args);
    fputs("\n\n", out);
    page_words(c->summary, out);
    fputs(".\n\n", out);
    options(&c->options, false, out);
    page_text(c->text, out);
}

/* whatis(1) shows the first sentence. */
static void head(const struct page *page, const char *section, FILE *out)
{
    const char *text = page->before, *end = strstr(text, ". ");
    bool named = strncmp(text, page->name, strlen(page->name)) == 0;
    const char *from = named ? text + strlen(page->name) + 1 : text;
    size_t n = end ? (size_t)(end - from) : strlen(from) - (from[strlen(from) - 1] == '.');
    char *first = strndup(from, n);

    fprintf(out, "%s(%s) \"Tern %s\" \"Tern\"\n\n# NAME\n\n%s - ", page->name, section,
            TERN_VERSION, page->name);
    page_words(first, out);
    free(first);
    fprintf(out, "\n\n# SYNOPSIS\n\n*%s* ", page->name);
    fprintf(out, page->commands ? "[_OPTION_...] _COMMAND_ [_OPTION_...]" : "[_OPTION_...]");
    if (!page->commands && *page->args)
        fprintf(out, " _%s_", page->args);
    fputs("\n\n# DESCRIPTION\n\n", out);
    page_text(page->before, out);
}

void page_scdoc(const struct page *page, const char *section, FILE *out)
{
    head(page, section, out);
    page_text(page->after, out);
    fputs("# OPTIONS\n\n", out);
    options(&page->options, true, out);
    if (page->commands)
        fputs("# COMMANDS\n\n", out);
    for (size_t i = 0; i < page->commands; i++)
        command(page, &page->command[i], out);
}
