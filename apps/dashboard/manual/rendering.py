"""Markdown to a page: stable anchors, links that stay inside the manual, and the text of every section for the search.

HTML in the text is not passed on, so a document can hold anything. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from markdown_it import MarkdownIt
from markdown_it.token import Token

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_:.-]*")
_OUTSIDE = re.compile(r"(?i)https?://")


@dataclass(frozen=True)
class Section:
    """What one heading, or one row of a table that explains a name, leads to; `anchor` is empty for the page itself."""

    heading: str
    anchor: str
    text: str


@dataclass(frozen=True)
class Heading:
    level: int
    text: str
    anchor: str


@dataclass(frozen=True)
class Rendered:
    html: str
    headings: tuple[Heading, ...]
    sections: tuple[Section, ...]
    anchors: frozenset[str]


def render(text: str, *, slugs: frozenset[str], prefix: str) -> Rendered:
    """`slugs`: the manual's pages; `prefix`: where they are, as in `/manual/`. Links elsewhere in the repository become
    plain text: a reader of the pages cannot follow them."""
    parser = MarkdownIt("commonmark", {"html": False}).enable("table")
    tokens = parser.parse(text)
    anchors: set[str] = set()
    headings = tuple(_name_headings(tokens, anchors))
    _name_rows(tokens, anchors)
    for token in tokens:
        _keep_links_inside(token, slugs, prefix)
        if token.type == "table_open":
            token.attrSet("class", "tight")
    html = parser.renderer.render(_scrolling(tokens), parser.options, {})
    return Rendered(html, headings, tuple(_sections(tokens)), frozenset(anchors))


def anchor_of(heading: str) -> str:
    """As GitHub makes them, so that links in the documents work in both places."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


def plain(token: Token) -> str:
    """The words of an inline token."""
    return "".join(
        child.content if child.type in ("text", "code_inline") else " " if "break" in child.type else ""
        for child in token.children or []
    )


def _name_headings(tokens: Sequence[Token], anchors: set[str]) -> Iterator[Heading]:
    for token, inline in zip(tokens, tokens[1:], strict=False):
        if token.type != "heading_open":
            continue
        text = plain(inline)
        anchor = _unused(anchor_of(text), anchors)
        token.attrSet("id", anchor)
        yield Heading(int(token.tag[1:]), text, anchor)


def _unused(anchor: str, anchors: set[str]) -> str:
    candidate, number = anchor, 0
    while candidate in anchors:
        number += 1
        candidate = f"{anchor}-{number}"
    anchors.add(candidate)
    return candidate


def _name_rows(tokens: Sequence[Token], anchors: set[str]) -> None:
    """A row whose first cell is a name (a finding's code, a setting, a metric) can be linked to by it."""
    for row, cell, inline in zip(tokens, tokens[1:], tokens[2:], strict=False):
        if row.type != "tr_open" or cell.type != "td_open" or not inline.children:
            continue
        first = next((child for child in inline.children if child.content.strip()), None)
        if first is None or first.type != "code_inline" or first.content in anchors:
            continue
        if _NAME.fullmatch(first.content):
            anchors.add(first.content)
            row.attrSet("id", first.content)


def _keep_links_inside(token: Token, slugs: frozenset[str], prefix: str) -> None:
    kept: list[Token] = []
    dropped: list[bool] = []
    for child in token.children or []:
        if child.type == "link_open":
            href = _inside(str(child.attrGet("href") or ""), slugs, prefix)
            dropped.append(href is None)
            if href is not None:
                child.attrSet("href", href)
                kept.append(child)
        elif child.type == "link_close":
            if not dropped.pop():
                kept.append(child)
        elif child.type == "image":
            kept.extend(child.children or [])
        else:
            kept.append(child)
    if token.children:
        token.children = kept


def _inside(href: str, slugs: frozenset[str], prefix: str) -> str | None:
    if href.startswith(("#", "/")) or _OUTSIDE.match(href):
        return href
    name, _hash, anchor = href.partition("#")
    slug = name.removesuffix(".md")
    if slug not in slugs or not name.endswith(".md"):
        return None
    return f"{prefix}{slug}/" + (f"#{anchor}" if anchor else "")


def _scrolling(tokens: Sequence[Token]) -> list[Token]:
    """Wide tables and blocks of code scroll by themselves, not the page; both can be reached by keyboard. Each has a
    name of its own: regions of one name are not told apart by a screen reader.
    """
    made: list[Token] = []
    kinds = {"table_open": "Table", "fence": "Code", "code_block": "Code"}
    for number, token in enumerate(tokens, start=1):
        if token.type in kinds:
            place = sum(kinds.get(one.type) == kinds[token.type] for one in tokens[:number])
            label = f"{kinds[token.type]} {place}"
            made.append(_html(f'<div class="scroll" tabindex="0" role="region" aria-label="{label}">'))
        made.append(token)
        if token.type in ("table_close", "fence", "code_block"):
            made.append(_html("</div>"))
    return made


def _html(text: str) -> Token:
    return Token("html_block", "", 0, content=text)


def _sections(tokens: Sequence[Token]) -> Iterator[Section]:
    """The text below each heading; a named row is a section of its own and part of the one it stands in."""
    heading, anchor = "", ""
    words: list[str] = []
    for number, token in enumerate(tokens):
        if token.type == "heading_open":
            if heading or words:
                yield Section(heading, anchor, " ".join(words))
            heading, anchor, words = plain(tokens[number + 1]), str(token.attrGet("id")), []
        elif token.type == "tr_open" and token.attrGet("id"):
            yield Section(str(token.attrGet("id")), str(token.attrGet("id")), _row_text(tokens[number + 1 :]))
        elif token.type == "inline" and tokens[number - 1].type != "heading_open":
            words.append(plain(token))
        elif token.type in ("fence", "code_block"):
            words.append(token.content)
    yield Section(heading, anchor, " ".join(words))


def _row_text(tokens: Sequence[Token]) -> str:
    words = []
    for token in tokens:
        if token.type == "tr_close":
            break
        if token.type == "inline":
            words.append(plain(token))
    return ": ".join(words)
