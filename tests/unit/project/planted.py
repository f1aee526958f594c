"""What the checks of documents and of rules have in common: trees to try them on, and how a check ends."""
import os


def plant(tree, files):
    for path, text in files.items():
        os.makedirs(os.path.dirname(os.path.join(tree, path)), exist_ok=True)
        with open(os.path.join(tree, path), "w", encoding="utf-8") as f:
            f.write(text)


def ends(found, counted, enough):
    """Prints what was found and counted; the exit status. Not enough counted: the files were not found."""
    for line in found:
        print(line)
    print(f"{counted}, {len(found)} violations")
    if not enough:
        print("FAILED: too little was counted to be what the tree has")
    return 0 if enough and not found else 1
