"""Shared by the checks of documents and of rules: trees to try them on, and the end of a check."""
import os


def plant(tree, files):
    for path, text in files.items():
        os.makedirs(os.path.dirname(os.path.join(tree, path)), exist_ok=True)
        with open(os.path.join(tree, path), "w", encoding="utf-8") as f:
            f.write(text)


def ends(found, counted, enough):
    """Prints findings and counts. Returns the exit status. Too low a count: the files were not found."""
    for line in found:
        print(line)
    print(f"{counted}, {len(found)} violations")
    if not enough:
        print("FAILED: too little was counted to be what the tree has")
    return 0 if enough and not found else 1
