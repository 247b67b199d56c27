"""Where a tier may lie."""

from __future__ import annotations

import pytest

from apps.core.errors import InvalidInput
from apps.storage.paths import contains, is_posix, normalized_endpoint, normalized_uri
from tests.hostile_hosts import NEVER, PRIVATE, netloc


@pytest.mark.parametrize(
    ("text", "normalized"),
    [
        ("/fast/ckpt", "/fast/ckpt"),
        ("/fast//ckpt/", "/fast/ckpt"),
        ("//fast", "/fast"),
        ("/", "/"),
        ("s3://bucket/prefix/", "s3://bucket/prefix"),
        ("s3://my-bucket.x", "s3://my-bucket.x"),
    ],
)
def test_one_place_has_one_spelling(text: str, normalized: str) -> None:
    assert normalized_uri(text) == normalized
    assert is_posix(normalized) == text.startswith("/")


@pytest.mark.parametrize(
    "text",
    [
        "", "fast/ckpt", "~/ckpt", "./ckpt", "/fast/../etc", "/fast/./x", "/a\nb", "/a\0b", "s3://", "s3://B/x",
        "s3:///prefix", "s3://bucket/../other", "gs://bucket/x", "file:///x", "/" + "x" * 1100,
    ],
)  # fmt: skip
def test_what_is_no_place_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput) as refusal:
        normalized_uri(text)
    assert refusal.value.pointer == "/uri"


@pytest.mark.parametrize(
    ("outer", "inner", "inside"),
    [("/a", "/a", True), ("/a", "/a/b", True), ("/a", "/ab", False), ("/", "/x", True), ("/a/b", "/a", False)],
)
def test_inside_is_told_component_by_component(outer: str, inner: str, inside: bool) -> None:
    assert contains(outer, inner) is inside


@pytest.mark.parametrize("host", [*NEVER, "169.254.169.254.", "user@169.254.169.254", "169.254.169.254/latest"])
def test_an_endpoint_that_is_never_reached_is_refused_in_every_spelling(host: str) -> None:
    with pytest.raises(InvalidInput) as refusal:
        normalized_endpoint(f"http://{netloc(host)}")
    assert refusal.value.pointer == "/endpoint_url"


@pytest.mark.parametrize("host", PRIVATE)
def test_a_private_endpoint_is_taken_since_each_node_says_whether_it_goes_there(host: str) -> None:
    assert normalized_endpoint(f"https://{netloc(host)}:9000").endswith(":9000")
