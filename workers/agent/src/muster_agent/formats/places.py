"""Where checkpoints lie: a path of a mounted file system, or `s3://bucket/prefix`. A bucket's names are keys, so
nothing in them is resolved, shortened or followed."""

from __future__ import annotations

import os

BUCKET_SCHEME = "s3://"


class PlaceInvalid(ValueError):
    """The text names no place that can be looked at; the message says why."""


def is_bucket(path: str) -> bool:
    """Whether the path lies in a bucket."""
    return path.startswith(BUCKET_SCHEME)


def place_of(path: str) -> str:
    """The absolute path, without the `/` at its end. Raises PlaceInvalid."""
    if not path or "\0" in path:
        raise PlaceInvalid("the path is empty or holds a zero byte")
    if not is_bucket(path):
        if "://" in path:
            raise PlaceInvalid(f"{path} is not a local path, nor one of s3://")
        return os.path.abspath(path)
    place = path.removesuffix("/") if path != BUCKET_SCHEME else path
    bucket, _, prefix = place.removeprefix(BUCKET_SCHEME).partition("/")
    if not bucket:
        raise PlaceInvalid(f"{path} names no bucket")
    if any(part in ("", ".", "..") for part in prefix.split("/")[int(not prefix) :]):
        raise PlaceInvalid(f"{path} has an empty part, or one of dots, which no folder is called")
    return place


def bucket_and_prefix(place: str) -> tuple[str, str]:
    """The bucket, and what the keys of everything in the folder `place` begin with: it ends in `/`, or is empty."""
    bucket, _, prefix = place.removeprefix(BUCKET_SCHEME).partition("/")
    return bucket, f"{prefix}/" if prefix else ""


def bucket_and_key(location: str) -> tuple[str, str]:
    """The bucket and the key of an object, or what the keys of a place begin with, without a `/` at its end."""
    bucket, _, key = location.removeprefix(BUCKET_SCHEME).partition("/")
    return bucket, key


def lies_in(path: str, root: str) -> bool:
    """Whether the absolute path is `root` or lies below it, by their texts: resolve both first where links count."""
    return path == root or path.startswith(root.rstrip("/") + "/")


def resolved(path: str) -> str:
    """The path with all links resolved; a bucket has none."""
    return path if is_bucket(path) else os.path.realpath(path)
