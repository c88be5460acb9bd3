"""The files of a directory tree, and how a file's name is shown."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import final

import attrs


@final
@attrs.define
class Listing:
    """What was found in a tree."""

    root: bytes
    """The tree's directory, absolute."""
    files: list[bytes] = attrs.field(factory=list)
    """Every regular file: absolute paths, as the system spells them, in order."""
    irregular: int = 0
    """Entries that are no files of their own: symbolic links, sockets, pipes, devices."""
    unlisted: list[str] = attrs.field(factory=list)
    """Directories that could not be looked into, with the reason."""


def list_tree(root: str, *, skip: Iterable[str] = ()) -> Listing:
    """List a tree. Symbolic links are not followed.

    Args:
        root: The directory.
        skip: Names or absolute paths of directories that are passed over, with what is in them.

    Raises:
        OSError: The root itself cannot be listed.
    """
    listing = Listing(os.path.abspath(os.fsencode(root)))  # noqa: PTH100 - in bytes
    passed = {os.fsencode(each) for each in skip}
    with os.scandir(listing.root):
        pass
    waiting = [listing.root]
    while waiting:
        directory = waiting.pop()
        try:
            entries = list(_scan(directory))
        except OSError as error:
            listing.unlisted.append(f"{show(directory)}: {error.strerror}")
            continue
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                if passed.isdisjoint((entry.name, entry.path)):
                    waiting.append(entry.path)
            elif entry.is_file(follow_symlinks=False):
                listing.files.append(entry.path)
            else:
                listing.irregular += 1
    listing.files.sort()
    return listing


def _scan(directory: bytes) -> Iterator[os.DirEntry[bytes]]:
    with os.scandir(directory) as entries:
        yield from entries


def show(path: bytes) -> str:
    """Write a path so that it is one line of text, whatever bytes the name is made of."""
    text = os.fsdecode(path)
    return text if text.isprintable() else repr(path)[1:]
