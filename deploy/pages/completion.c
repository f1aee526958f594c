/* Completion for bash and zsh. See pages.h. An argument's name in --help defines its values: FILE,
 * PATH, DIR and SOCKET are files, BOOL is true or false, and `a|b` is a choice. */
#include <string.h>

#include "pages.h"

static bool is_file(const char *arg)
{
    static const char *const files[] = {"FILE", "PATH", "DIR", "SOCKET"};

    for (size_t i = 0; arg && i < sizeof files / sizeof *files; i++)
        if (strncmp(arg, files[i], strlen(files[i])) == 0)
            return true;
    return false;
}

/* Copies value i of an argument. Returns false if there is none. */
static bool choice(const char *arg, size_t i, char ret[64])
{
    const char *all = arg && strcmp(arg, "BOOL") == 0 ? "true|false" : arg;

    if (!all || !strchr(all, '|'))
        return false;
    for (; i > 0; i--) {
        all = strchr(all, '|');
        if (!all)
            return false;
        all++;
    }
    snprintf(ret, 64, "%.*s", (int)strcspn(all, "|"), all);
    return true;
}

static bool has_choices(const char *arg)
{
    char word[64];

    return choice(arg, 0, word);
}

static void choices(const char *arg, FILE *out)
{
    char word[64];

    for (size_t i = 0; choice(arg, i, word); i++)
        fprintf(out, "%s%s", i ? " " : "", word);
}

/* ---- bash ---- */

static void bash_words(const struct page_options *o, FILE *out)
{
    for (size_t i = 0; i < o->n; i++)
        if (!o->v[i].heading)
            fprintf(out, " --%s", o->v[i].name);
}

static void bash_arms(const struct page_options *list, FILE *out)
{
    for (size_t i = 0; i < list->n; i++) {
        const struct page_option *o = &list->v[i];

        if (o->heading || !o->arg)
            continue;
        fprintf(out, "    --%s", o->name);
        if (o->letter)
            fprintf(out, "|-%c", o->letter);
        fputs(") ", out);
        if (o->optional) /* without a `=` the next word is not its argument */
            fputs("[[ -n $equals ]] || prev=; ", out);
        if (is_file(o->arg)) {
            fputs("_tern_files ;;\n", out);
        } else {
            fputs("_tern_of '", out);
            choices(o->arg, out);
            fputs("' ;;\n", out);
        }
    }
}

/* Writes the search for the command among the words before the cursor; options' arguments do not
 * count. */
static void bash_command(const struct page *page, FILE *out)
{
    fputs("    while ((++i < COMP_CWORD)); do\n        case ${COMP_WORDS[i]} in\n", out);
    for (size_t i = 0; i < page->options.n; i++) {
        const struct page_option *o = &page->options.v[i];

        if (!o->arg || o->optional)
            continue;
        fprintf(out, "        --%s", o->name);
        if (o->letter)
            fprintf(out, "|-%c", o->letter);
        fputs(") [[ ${COMP_WORDS[i + 1]} == = ]] && ((i++)); ((i++)) ;;\n", out);
    }
    fputs("        -*) ;;\n        *) command=${COMP_WORDS[i]}; break ;;\n        esac\n    done\n",
          out);
}

/* Returns the length of the word in front of an operand, as in "close SESSION". */
static size_t verb(const char *args)
{
    size_t n = strspn(args, "abcdefghijklmnopqrstuvwxyz");

    return args[n] == ' ' ? n : 0;
}

/* Returns the length of an optional word, as in "[read] FILE". */
static size_t optional_word(const char *args)
{
    return args[0] == '[' ? strcspn(args + 1, "]") : 0;
}

static const char *behind_optional(const char *args)
{
    size_t n = optional_word(args);

    return n ? args + n + strlen("[] ") : args;
}

static void bash_cases(const struct page *page, FILE *out)
{
    fputs("    case $command in\n    '') _tern_of '", out);
    for (size_t i = 0; i < page->commands; i++)
        fprintf(out, "%s%s", i ? " " : "", page->command[i].name);
    bash_words(&page->options, out);
    fputs("' ;;\n", out);
    for (size_t i = 0; i < page->commands; i++) {
        const struct page_command *c = &page->command[i];

        fprintf(out, "    %s) ", c->name);
        if (is_file(behind_optional(c->args)))
            fprintf(out, "[[ $cur == -* ]] || { _tern_files '%.*s'; return; }; ",
                    (int)optional_word(c->args), c->args + 1);
        fprintf(out, "_tern_of '%.*s", (int)verb(c->args), c->args);
        bash_words(&c->options, out);
        bash_words(&page->options, out);
        fputs("' ;;\n", out);
    }
    fputs("    esac\n", out);
}

void page_bash(const struct page *page, FILE *out)
{
    fprintf(out,
            "# bash completion of %s, written by its build from the table that answers --help.\n"
            "_tern_of() { mapfile -t COMPREPLY < <(compgen -W \"$1\" -- \"$cur\"); }\n"
            "_tern_files()\n{\n    compopt -o filenames 2>/dev/null\n"
            "    mapfile -t COMPREPLY < <(compgen -f -W \"${1-}\" -- \"$cur\")\n}\n"
            "_%s()\n{\n"
            "    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD - 1]}\n"
            "    local command= equals= i=0\n"
            "    COMPREPLY=()\n"
            "    [[ $prev == = ]] && prev=${COMP_WORDS[COMP_CWORD - 2]} equals=1\n"
            "    [[ $cur == = ]] && cur= equals=1\n"
            "    case $prev in\n",
            page->name, page->name);
    bash_arms(&page->options, out);
    for (size_t i = 0; i < page->commands; i++)
        bash_arms(&page->command[i].options, out);
    fputs("    *) prev= ;;\n    esac\n    [[ -z $prev ]] || return 0\n", out);
    if (page->commands) {
        bash_command(page, out);
        bash_cases(page, out);
    } else {
        fputs("    _tern_of '", out);
        choices(page->args, out);
        bash_words(&page->options, out);
        fputs("'\n", out);
    }
    fprintf(out, "}\ncomplete -F _%s %s\n", page->name, page->name);
}

/* ---- zsh ---- */

static void zsh_text(const char *text, const char *special, FILE *out)
{
    for (const char *c = text; *c; c++) {
        if (*c == '\'')
            fputs("'\\''", out);
        else
            fprintf(out, "%s%c", strchr(special, *c) ? "\\" : "", *c == '\n' ? ' ' : *c);
    }
}

static void zsh_action(const char *arg, bool optional, FILE *out)
{
    fputs(optional ? "::" : ":", out);
    zsh_text(has_choices(arg) ? "choice" : arg, ":[]", out);
    fputc(':', out);
    if (is_file(arg)) {
        fputs("_files", out);
    } else if (has_choices(arg)) {
        fputc('(', out);
        choices(arg, out);
        fputc(')', out);
    } else {
        fputc(' ', out);
    }
}

static void zsh_option(const char *form, const char *between, const struct page_option *o,
                       FILE *out)
{
    fprintf(out, " \\\n        '%s%s[", form, o->arg ? between : "");
    zsh_text(o->doc, "[]:\\", out);
    fputc(']', out);
    if (o->arg)
        zsh_action(o->arg, o->optional, out);
    fputc('\'', out);
}

static void zsh_options(const struct page_options *list, FILE *out)
{
    char form[64];

    for (size_t i = 0; i < list->n; i++) {
        const struct page_option *o = &list->v[i];

        if (o->heading)
            continue;
        snprintf(form, sizeof form, "--%s", o->name);
        zsh_option(form, o->optional ? "=-" : "=", o, out);
        if (o->letter && o->letter != '?') {
            snprintf(form, sizeof form, "-%c", o->letter);
            zsh_option(form, "+", o, out);
        }
    }
}

static void zsh_commands(const struct page *page, FILE *out)
{
    fputs(" \\\n        '1:command:->command' '*::argument:->rest'\n    case $state in\n    "
          "command)\n"
          "        _values command",
          out);
    for (size_t i = 0; i < page->commands; i++) {
        fprintf(out, " \\\n            '%s[", page->command[i].name);
        zsh_text(page->command[i].summary, "[]:\\", out);
        fputs("]'", out);
    }
    fputs(" ;;\n    rest)\n        case $words[1] in\n", out);
    for (size_t i = 0; i < page->commands; i++) {
        const struct page_command *c = &page->command[i];

        fprintf(out, "        %s) _arguments", c->name);
        zsh_options(&c->options, out);
        zsh_options(&page->options, out);
        if (verb(c->args)) {
            fprintf(out, " \\\n        '1:what:(%.*s)' '2", (int)verb(c->args), c->args);
            zsh_action(c->args + verb(c->args) + 1, false, out);
            fputc('\'', out);
        } else if (optional_word(c->args)) {
            fprintf(out, " \\\n        '1:%s:{ compadd %.*s; _files }' '2",
                    behind_optional(c->args), (int)optional_word(c->args), c->args + 1);
            zsh_action(behind_optional(c->args), false, out);
            fputc('\'', out);
        } else if (*c->args) {
            fputs(" \\\n        '1", out);
            zsh_action(c->args, false, out);
            fputc('\'', out);
        }
        fputs(" ;;\n", out);
    }
    fputs("        esac ;;\n    esac\n", out);
}

void page_zsh(const struct page *page, FILE *out)
{
    fprintf(out,
            "#compdef %s\n# Written by the build of %s from the table that answers --help.\n"
            "local context state line\ntypeset -A opt_args\n    _arguments -C",
            page->name, page->name);
    zsh_options(&page->options, out);
    if (page->commands) {
        zsh_commands(page, out);
        return;
    }
    if (has_choices(page->args)) {
        fputs(" \\\n        '1", out);
        zsh_action(page->args, false, out);
        fputc('\'', out);
    }
    fputc('\n', out);
}
