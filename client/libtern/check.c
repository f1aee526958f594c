/* Checks of a caller's arguments before anything is sent, and names written into messages. Every
 * file that makes a request uses it. */
#include "internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/err.h"

#define PAGE_TOKENS_MOST 4096u /* the most tokens that one page covers */

static enum tern_err list_too_long(struct tern *t, const struct tern_tokens *tokens)
{
    char text[QUICK_TEXT_MAX];

    snprintf(text, sizeof(text),
             "a session has at most 4,194,304 tokens, and this list would end at %" PRIu64,
             (uint64_t)tokens->base + tokens->n);
    return set_error(t, TERN_INVALID, text);
}

enum tern_err check_tokens(struct tern *t, const struct tern_tokens *tokens)
{
    if (!tokens || (tokens->n && !tokens->v) || (tokens->nkeys && !tokens->keys))
        return set_error(t, TERN_INVALID, "a token list is NULL");
    if (tokens->n > WIRE_SESSION_TOKENS_MAX || tokens->base > WIRE_SESSION_TOKENS_MAX - tokens->n)
        return list_too_long(t, tokens);
    if (tokens->nkeys > WIRE_KEYS_MAX)
        return set_error(t, TERN_INVALID, "more than TERN_KEYS_MAX extra keys in one request");
    return TERN_OK;
}

enum tern_err check_step(struct tern *t, uint64_t step)
{
    if (step == 0)
        return set_error(t, TERN_INVALID,
                         "no step is named: name the last step that may touch the pages, or "
                         "TERN_STEP_NONE if none is in flight");
    return TERN_OK;
}

enum tern_err check_wait(struct tern *t, uint64_t step)
{
    TRY(check_step(t, step));
    if (step == TERN_STEP_NONE)
        return set_error(t, TERN_INVALID, "TERN_STEP_NONE is not a step to wait for");
    return TERN_OK;
}

static bool gives_back(enum client_op_kind kind)
{
    return kind != CLIENT_EXTEND && kind != CLIENT_ASSIGN && kind != CLIENT_SNAPSHOT_RELEASE;
}

enum tern_err check_op(struct tern *t, const struct client_op *op)
{
    TRY(check_tokens(t, &op->tokens));
    return gives_back(op->kind) ? check_step(t, op->step) : TERN_OK;
}

static enum tern_err check_peer(struct tern *t, const char *peer)
{
    if (peer && (!peer[0] || strnlen(peer, WIRE_STRING_MAX + 1) > WIRE_STRING_MAX))
        return set_error(
            t, TERN_INVALID,
            "a peer's name has 1 to 255 bytes; NULL is the pool's own host tier, TERN_PEER_DISK "
            "the daemon's disk, and TERN_PEER_ANY any peer that has the tokens");
    return TERN_OK;
}

enum tern_err check_ticket(struct tern *t, const char *ticket)
{
    if (!ticket || !ticket[0] || strnlen(ticket, TERN_TICKET_BYTES) == TERN_TICKET_BYTES)
        return set_error(
            t, TERN_INVALID,
            "that is not a ticket: pass the unchanged text that tern_handoff returned");
    return TERN_OK;
}

/* Returns the text about two fields that exclude each other; NULL: none do. */
static const char *broken_by_fetch(const struct tern_fetch *f)
{
    if (!f->ticket)
        return f->follow ? "follow needs a ticket: pass one, or use at_least" : NULL;
    if (f->peer)
        return "ticket and peer exclude each other: a ticket names the daemon that issued it";
    if (f->at_least)
        return "ticket and at_least exclude each other: a ticket is fetched as a whole";
    if (f->depth)
        return "ticket and depth exclude each other: a ticket is fetched as a whole";
    if (f->prefetch)
        return "ticket and prefetch exclude each other: a fetch by ticket is never ahead of need";
    return NULL;
}

enum tern_err check_fetch(struct tern *t, const struct tern_fetch *fetch)
{
    const char *broken = fetch ? broken_by_fetch(fetch) : "a fetch needs a struct tern_fetch";

    if (broken)
        return set_error(t, TERN_INVALID, broken);
    TRY(fetch->ticket ? check_ticket(t, fetch->ticket) : check_peer(t, fetch->peer));
    return check_step(t, fetch->step);
}

static bool name_fits(const char *name)
{
    return !name || strnlen(name, WIRE_STRING_MAX + 1) <= WIRE_STRING_MAX;
}

/* ---- layouts: the daemon's error texts name no group ---- */

static const char *broken_by_axes(const struct tern_group *g)
{
    if (g->naxes > WIRE_AXES_MAX || (g->naxes && !g->axes))
        return "a group has at most 8 axes, and `axes` points to them";
    for (uint32_t i = 0; i < g->naxes; i++)
        if (!name_fits(g->axes[i].name))
            return "the name of an axis has at most 255 bytes";
    return NULL;
}

static const char *broken_by_fields(const struct tern_group *g)
{
    if (g->nfields > WIRE_FIELDS_MAX || (g->nfields && !g->fields))
        return "a group has at most 8 fields, and `fields` points to them";
    for (uint32_t i = 0; i < g->nfields; i++) {
        const struct tern_field *f = &g->fields[i];

        if (f->naxes > WIRE_AXES_MAX || (f->naxes && !f->axes) ||
            f->nsections > WIRE_SECTIONS_MAX || (f->nsections && !f->sections))
            return "a field has at most 8 axes and 8 sections, and `axes` and `sections` point to "
                   "them";
        if (!name_fits(f->name))
            return "the name of a field has at most 31 bytes";
        for (uint32_t k = 0; k < f->naxes; k++)
            if (!name_fits(f->axes[k].name))
                return "the name of an axis has at most 255 bytes";
        for (uint32_t k = 0; k < f->nsections; k++)
            if (!name_fits(f->sections[k].name))
                return "the name of a section has at most 31 bytes";
    }
    return NULL;
}

/* Returns the first broken rule, of the rules that depend neither on the daemon's configuration nor
 * on other groups; NULL: none. */
static const char *broken_by_group(const struct tern_group *g)
{
    bool window = g->family == TERN_WINDOW;

    if (!name_fits(g->name))
        return "a name has at most 255 bytes";
    if (g->page_tokens == 0 || g->page_tokens > PAGE_TOKENS_MOST)
        return "page_tokens must be 1 to 4096";
    if (g->page_bytes == 0 || g->page_bytes % 8 != 0)
        return "page_bytes must be a multiple of 8, and not 0";
    if (g->units && g->page_bytes % g->units != 0)
        return "page_bytes must be a multiple of units";
    if (g->family <= TERN_RECURRENT && (window != (g->window > 0) || window != (g->reserve > 0)))
        return "a WINDOW group needs a window and a reserve of at least one token; other groups "
               "have neither";
    return broken_by_axes(g) ? broken_by_axes(g) : broken_by_fields(g);
}

static enum tern_err refuse_group(struct tern *t, const struct tern_layout *layout, uint32_t g,
                                  const char *broken)
{
    const char *name = layout->groups[g].name;
    char text[QUICK_TEXT_MAX];

    if (name && name[0])
        snprintf(text, sizeof(text), "group '%.64s': %s", name, broken);
    else
        snprintf(text, sizeof(text), "group %u, which has no name: %s", g, broken);
    return set_error(t, TERN_INVALID, text);
}

enum tern_err check_layout(struct tern *t, const struct tern_layout *layout)
{
    if (!layout || !layout->groups || layout->ngroups == 0 || layout->ngroups > TERN_GROUPS_MAX)
        return set_error(t, TERN_INVALID, "a layout has 1 to TERN_GROUPS_MAX groups");
    for (uint32_t g = 0; g < layout->ngroups; g++) {
        const char *name = layout->groups[g].name, *broken = broken_by_group(&layout->groups[g]);

        if (broken)
            return refuse_group(t, layout, g, broken);
        for (uint32_t i = 0; i < g && name && name[0]; i++)
            if (layout->groups[i].name && strcmp(layout->groups[i].name, name) == 0)
                return refuse_group(t, layout, g, "two groups have this name: give each its own");
    }
    return TERN_OK;
}

/* ---- namespaces ---- */

static bool ns_fits(const struct tern_namespace *ns)
{
    const char *parts[] = {ns->model, ns->revision, ns->kv_dtype, ns->lora, ns->salt};

    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
        if (!name_fits(parts[i]))
            return false;
    }
    return true;
}

enum tern_err put_namespace(struct tern *t, const struct tern_namespace *ns,
                            Tern__Wire__Namespace *ret)
{
    if (!ns || !ns_fits(ns))
        return set_error(t, TERN_INVALID, "a namespace's parts are strings of at most 255 bytes");
    tern__wire__namespace__init(ret);
    ret->model = (char *)(uintptr_t)ns->model;
    ret->revision = (char *)(uintptr_t)ns->revision;
    ret->kv_dtype = (char *)(uintptr_t)ns->kv_dtype;
    ret->lora = (char *)(uintptr_t)ns->lora;
    ret->salt = (char *)(uintptr_t)ns->salt;
    return TERN_OK;
}
