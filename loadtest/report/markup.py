"""HTML that is escaped unless it was made here."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence

from raylog.actors.plain_logs import plain

_EMPTY = frozenset({"meta"})


class Html(str):
    """Text that is markup already."""

    __slots__ = ()


def el(element: str, /, *inside: str | Html | Iterable[str | Html], **attributes: str) -> Html:
    """An element. Texts inside and attributes are escaped; "class_" stands for "class"."""
    told = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{html.escape(value)}"'
        for key, value in attributes.items()
    )
    if element in _EMPTY:
        return Html(f"<{element}{told}>")
    return Html(f"<{element}{told}>{joined(inside)}</{element}>")


def joined(inside: Iterable[str | Html | Iterable[str | Html]]) -> Html:
    """Several, one after the other."""
    return Html("".join(_one(each) for each in inside))


def _one(each: str | Html | Iterable[str | Html]) -> str:
    if isinstance(each, Html):
        return each
    if isinstance(each, str):
        return "<br>".join(html.escape(plain(line)) for line in each.split("\n"))
    return joined(each)


def table(columns: Sequence[str], rows: Iterable[Sequence[str | Html]]) -> Html:
    """A table; columns whose name ends in "#" are numbers and stand right.

    Whoever has no pointer scrolls a wide one with the arrow keys, once it has the focus.
    """
    is_number = [column.endswith("#") for column in columns]
    head = [
        el("th", column.removesuffix("#"), class_="number" if right else "text", scope="col")
        for column, right in zip(columns, is_number, strict=True)
    ]
    body = [
        el(
            "tr",
            [
                el("td", cell, class_="number" if right else "text")
                for cell, right in zip(row, is_number, strict=True)
            ],
        )
        for row in rows
    ]
    inside = el("table", el("thead", el("tr", head)), el("tbody", body))
    return el("div", inside, class_="scrolls", tabindex="0")


def facts(found: Iterable[tuple[str, str | Html]]) -> Html:
    """Names and values."""
    return el("dl", [joined([el("dt", name), el("dd", value)]) for name, value in found])
