"""HTML in which everything is escaped that this module did not make."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence

from raylog.actors.log_formatting import plain

_EMPTY = frozenset({"meta"})


class Html(str):
    """Text that is already markup."""

    __slots__ = ()


def el(element: str, /, *inside: str | Html | Iterable[str | Html], **attributes: str) -> Html:
    """An element. Texts inside and attributes are escaped. "class_" stands for "class"."""
    attributes_text = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{html.escape(value)}"'
        for key, value in attributes.items()
    )
    if element in _EMPTY:
        return Html(f"<{element}{attributes_text}>")
    return Html(f"<{element}{attributes_text}>{joined(inside)}</{element}>")


def joined(inside: Iterable[str | Html | Iterable[str | Html]]) -> Html:
    """The concatenation of several."""
    return Html("".join(_one(each) for each in inside))


def _one(each: str | Html | Iterable[str | Html]) -> str:
    if isinstance(each, Html):
        return each
    if isinstance(each, str):
        return "<br>".join(html.escape(plain(line)) for line in each.split("\n"))
    return joined(each)


def table(columns: Sequence[str], rows: Iterable[Sequence[str | Html]]) -> Html:
    """A table. Columns whose name ends in "#" are numbers and aligned right.

    It can have the focus, so that a wide one scrolls with the arrow keys.
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
    """A list of names and values."""
    return el("dl", [joined([el("dt", name), el("dd", value)]) for name, value in found])
