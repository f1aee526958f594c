"""Computes what a prefix cache with unlimited pools and alignment L finds in a trace, one request at a time in
file order.

Usage: trace_oracle.py TRACE L [LIMIT]. Prints "matched_tokens prompt_pages prompt_tokens". It shares nothing with
tern-replay: it compares pages by their block ids, in an exact tree, and never makes a token.
"""
import json
import sys


def page_key(ids, block, start, length, request):
    """Returns the pieces of blocks that make up the tokens [start, start + length); later tokens
    are the request's own."""
    key = []
    at, end = start, start + length
    while at < end:
        b = at // block
        if b >= len(ids):
            key.append(("own", request, at))
            break
        stop = min(end, (b + 1) * block)
        key.append((ids[b], at - b * block, stop - at))
        at = stop
    return tuple(key)


def main():
    align = int(sys.argv[2])
    limit = int(sys.argv[3]) if len(sys.argv) > 3 else None
    tree = {}
    matched = pages = tokens = 0
    with open(sys.argv[1]) as trace:
        for request, text in enumerate(trace):
            if request == limit:
                break
            line = json.loads(text)
            block, ids = line.get("block_size", 512), line["hash_ids"]
            node, found = 0, True
            for start in range(0, line["input_length"] // align * align, align):
                key = (node, page_key(ids, block, start, align, request))
                child = tree.get(key)
                found = found and child is not None
                if child is None:
                    child = tree[key] = len(tree) + 1
                matched += align if found else 0
                node = child
                pages += 1
            tokens += line["input_length"]
    print(matched, pages, tokens)


main()
