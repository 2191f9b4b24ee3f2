"""A dulwich client for the acceptance tests: clones a repository, commits one file, and pushes a branch.

Usage: dulwich_client.py URL DIR BRANCH, where URL holds user and password.
"""

import os
import sys

from dulwich import porcelain


def main(url: str, folder: str, branch: str) -> None:
    repo = porcelain.clone(url, folder, errstream=open(os.devnull, "wb"))
    porcelain.branch_create(repo, branch)
    repo.refs.set_symbolic_ref(b"HEAD", b"refs/heads/" + branch.encode())
    name = branch + ".txt"
    with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
        file.write("written by " + branch + "\n")
    porcelain.add(repo, [os.path.join(folder, name)])
    person = b"Dulwich <dulwich@example.com>"
    porcelain.commit(repo, message=b"Add " + name.encode(), author=person, committer=person)
    ref = "refs/heads/" + branch
    porcelain.push(repo, url, ref + ":" + ref, outstream=open(os.devnull, "wb"), errstream=open(os.devnull, "wb"))
    porcelain.fetch(repo, url, outstream=open(os.devnull, "w"), errstream=open(os.devnull, "wb"))


if __name__ == "__main__":
    main(*sys.argv[1:])
