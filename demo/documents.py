"""The real input: the system's documentation, and the work on each file."""

import gzip
import hashlib
import os
import zlib

ROOT = "/usr/share/doc"


def find(most):
    """The first `most` files below ROOT, and the number of all files there.

    If a file has links, only the file itself is listed, once.  Links to
    directories and unreadable files are skipped.
    """
    found = set()
    for directory, _, names in os.walk(ROOT):
        for name in names:
            path = os.path.realpath(os.path.join(directory, name))
            if os.path.isfile(path) and os.access(path, os.R_OK):
                found.add(path)
    return sorted(found)[:most], len(found)


def one_page(paths):
    """A page for alice: the README whose length is closest to one page."""
    readmes = [path for path in paths
               if os.path.basename(path).startswith("README")]
    return min(readmes or paths,
               key=lambda path: abs(os.path.getsize(path) - 3000))


def read_all(paths):
    """Reads all files, so that both runs find them in the cache.  Returns the
    number of bytes."""
    return sum(len(read(path)) for path in paths)


def read(path):
    with open(path, "rb") as file:
        return file.read()


def process(path):
    """The work of one task: its number of words, and its SHA-256."""
    try:
        data = read(path)
        if path.endswith(".gz"):
            data = gzip.decompress(data)
    except (OSError, EOFError, zlib.error):
        # A file that is gone or broken is reported, but the task does not fail.
        return None, None
    return len(data.split()), hashlib.sha256(data).hexdigest()
