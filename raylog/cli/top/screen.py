"""The terminal UI of `raylog top`: problems, above one of the tables."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.message import Message
from textual.screen import ModalScreen
from textual.widgets import DataTable, Footer, Input, Static, Tab, Tabs

from raylog.actors.log_formatting import plain
from raylog.cli.top.drawing import (
    fill_problems,
    fill_table,
    in_full,
    summary_text,
    verdict_text,
)
from raylog.cli.top.looking import Looking
from raylog.cli.top.machine import Watch
from raylog.cli.top.reader import now_ms
from raylog.cli.top.tables import BROKERS, TABLES, Choice, Table, details, view
from raylog.cli.top.troubles import Trouble, duration, troubles

if TYPE_CHECKING:
    from textual.events import Resize

    from raylog.cli.top.command import Of
    from raylog.cli.top.events import Event

ROWS_MAX = 200
"""Rows shown of a table; a filter finds the others."""
_DRAW_S = 0.25
_CLOCK_S = 1.0
_ROWS_OF_PROBLEM = 10
"""Screen rows per problem shown above a table; at least two problems are shown."""
_VERDICT_SHARE = 0.4
"""Maximum share of the screen's height for problems above a table."""
_OLD_AFTER = 2.5
"""Number of intervals after which the age of the metadata is shown."""
_NAMES = ["problems", *(table.name for table in TABLES)]
_TABS_WIDTH = 77
"""Width at which the names of all tabs fit."""
_INTERVALS_S = (1, 2, 3, 5, 10, 30, 60)
HELP = """\
raylog top shows what a cluster does, with problems at the top.

1 to 6, Tab  problems, brokers, topics, partitions, groups,
             transactions
up, down     choose a row; left and right scroll a wide table
Enter        everything about the row
s, S         sort by the next column; reverse the order
/            only rows whose name contains a text; Esc: all
p            pause and resume
+, -         refresh more often, less often
r            refresh now
?            this help
q            quit

Rates count records, from the ends of partitions at two refreshes.
In the tables of brokers and topics, "behind" counts replicas out of
sync. For a group it is the lag as a time, at the rate at which its
partitions are written.

Each refresh sends one Metadata request, one ListOffsets to each
broker, and a few requests for groups, transactions and the metadata
quorum. Disks and hanging transactions are checked every 30 s. On a
large cluster it refreshes less often, so that it takes at most a
quarter of a core.
"""


class Learned(Message):
    """Something was learned about the cluster."""

    def __init__(self, event: Event) -> None:
        super().__init__()
        self.event = event


class Ended(Message):
    """The queries have ended; `failure` is the cause if there is one."""

    def __init__(self, failure: BaseException | None) -> None:
        super().__init__()
        self.failure = failure


class Reading(ModalScreen[None]):
    """A text shown over the tables."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,enter", "app.pop_screen", "back"),
        Binding("question_mark", "app.help", show=False),
        *(Binding(str(n + 1), f"app.show({n})", show=False) for n in range(len(_NAMES))),
    ]

    def __init__(self, lines: list[str]) -> None:
        super().__init__()
        self.text = "\n".join(plain(line) for line in lines)

    def compose(self) -> ComposeResult:
        """Lay out the text, in a box that scrolls."""
        with VerticalScroll(id="reading"):
            yield Static(Text(self.text))
        yield Footer()


class TopApp(App[BaseException | None]):
    """The application; returns the failure that ended the queries, or None."""

    ENABLE_COMMAND_PALETTE = False
    CSS = """
    #head, #summary, #note { height: 1; text-wrap: nowrap; text-overflow: ellipsis; }
    #head { background: $primary; color: $text; }
    #verdict { height: auto; }
    Tabs { height: 2; }
    DataTable { height: 1fr; }
    #find { display: none; height: 3; }
    #find.asked { display: block; }
    #note { color: $text-muted; }
    Reading { align: center middle; }
    #reading { width: 90%; height: 80%; border: round $primary; padding: 0 1;
               background: $surface; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q", "quit", "quit"),
        Binding("question_mark", "help", "help", key_display="?"),
        Binding("s", "sort", "sort"),
        Binding("S", "reverse", "reverse", show=False),
        Binding("slash", "find", "filter", key_display="/"),
        Binding("escape", "unfind", show=False),
        Binding("p", "pause", "pause"),
        Binding("r", "now", "now", show=False),
        Binding("plus,equals_sign", "often(-1)", show=False),
        Binding("minus", "often(1)", show=False),
        Binding("tab", "next(1)", "next tab", priority=True, show=False),
        Binding("shift+tab", "next(-1)", show=False, priority=True),
        *(Binding(str(n + 1), f"show({n})", show=False) for n in range(len(_NAMES))),
    ]

    def __init__(self, of: Of) -> None:
        super().__init__()
        self.watch_of = Watch(of.where)
        self.choices = {name: Choice(most=ROWS_MAX) for name in _NAMES}
        self._of = of
        self._looking = Looking(
            of.settings,
            of.interval_s * 1_000,
            lambda event: self._post(Learned(event)),
            lambda failure: self._post(Ended(failure)),
            of.metrics,
        )
        self._shown = BROKERS.name
        self._found: list[Trouble] = []
        """The problems when the screen was last drawn."""
        self._is_old = True
        """Whether the screen must be drawn again."""
        self._is_over = False

    def compose(self) -> ComposeResult:
        """Lay out the screen."""
        yield Static(id="head")
        yield Static(id="summary")
        yield Static(id="verdict")
        yield Tabs(
            *(Tab(f"{n + 1} {name}", id=name) for n, name in enumerate(_NAMES)),
            active=self._shown,
        )
        yield DataTable(cursor_type="row")
        yield Static(id="note")
        yield Input(placeholder="name contains ... (Enter: keep, Esc: all)", id="find")
        yield Footer()

    def on_mount(self) -> None:
        """Start the queries and the timers."""
        self.query_one(Tabs).can_focus = False
        self.query_one(DataTable).focus()
        self._looking.start()
        self.set_interval(_DRAW_S, self._draw_if_old)
        self.set_interval(_CLOCK_S, self._tick)
        self._draw()

    def on_unmount(self) -> None:
        """Stop the queries."""
        self._is_over = True
        self._looking.stop()

    def on_learned(self, message: Learned) -> None:
        """Handle the event; the screen is drawn a moment later, for all events until then."""
        self.watch_of.handle(message.event)
        self._is_old = True

    def on_ended(self, message: Ended) -> None:
        """Exit: no more events will come."""
        self.exit(message.failure)

    def on_resize(self, event: Resize) -> None:
        """Draw again: texts wrap at a different width."""
        self._is_old = True

    def on_tabs_tab_activated(self, event: Tabs.TabActivated) -> None:
        """Show another table."""
        assert event.tab.id is not None, "tabs have ids"
        if event.tab.id != self._shown:
            self._shown = event.tab.id
            self._name_tabs()
            grid: DataTable[Text] = self.query_one(DataTable)
            grid.clear(columns=True)
            self._draw()

    def on_data_table_row_selected(self, event: DataTable.RowSelected) -> None:
        """Show everything about a row."""
        name, table = str(event.row_key.value), self._table()
        known = self.watch_of.known
        lines = details(table, known, name) if table is not None else in_full(self._found, name)
        self.push_screen(Reading(lines))

    def on_input_changed(self, event: Input.Changed) -> None:
        """Filter while the user types."""
        self._choose(replace(self.choices[self._shown], text=event.value))

    def on_input_submitted(self) -> None:
        """Keep the filter."""
        self._leave_input()

    # -- keys ----------------------------------------------------------------------------------

    def action_show(self, number: int) -> None:
        """Show a table; close a text shown over the tables."""
        if isinstance(self.screen, Reading):
            self.pop_screen()
        self.query_one(Tabs).active = _NAMES[number]

    def action_next(self, step: int) -> None:
        """Show the next table, or the previous one for step -1."""
        if len(self.screen_stack) == 1:
            at = _NAMES.index(self._shown) + step
            self.action_show(at % len(_NAMES))

    def action_sort(self) -> None:
        """Sort by the next column."""
        table = self._table()
        if table is not None:
            keys = [one.key for one in view(table, self.watch_of.known).columns]
            choice = self.choices[table.name]
            now = choice.order or table.order
            at = keys.index(now) if now in keys else -1
            order = keys[(at + 1) % len(keys)]
            self._choose(replace(choice, order=order, is_reversed=False))

    def action_reverse(self) -> None:
        """Reverse the order."""
        table = self._table()
        if table is not None:
            choice = self.choices[table.name]
            self._choose(replace(choice, is_reversed=not choice.is_reversed))

    def action_find(self) -> None:
        """Ask for a text that names must contain."""
        table = self._table()
        if table is not None:
            field = self.query_one("#find", Input)
            field.value = self.choices[table.name].text
            field.add_class("asked")
            field.focus()

    def action_unfind(self) -> None:
        """Show all rows again."""
        self._leave_input()
        self._choose(replace(self.choices[self._shown], text=""))

    def action_pause(self) -> None:
        """Pause or resume."""
        self._looking.change(is_paused=not self._looking.is_paused)
        self._draw_head()

    def action_now(self) -> None:
        """Query now, unless paused."""
        self._looking.change()

    def action_often(self, step: int) -> None:
        """Query more or less often."""
        now_s = self._looking.interval_ms / 1_000
        others = [one for one in _INTERVALS_S if (one - now_s) * step > 0]
        if others:
            chosen = min(others, key=lambda one: abs(one - now_s))
            self._looking.change(interval_ms=chosen * 1_000)
            self._draw_head()

    def action_help(self) -> None:
        """Show the help in place of another text; close it if it is already shown."""
        help_text, before = Reading(HELP.splitlines()), self.screen
        if isinstance(before, Reading):
            self.pop_screen()
            if before.text == help_text.text:
                return
        self.push_screen(help_text)

    # -- drawing -------------------------------------------------------------------------------

    def _post(self, message: Message) -> None:
        """Post a message from the other thread; drop it if the application has ended."""
        if not self._is_over:
            self.post_message(message)

    def _table(self) -> Table | None:
        """Return the table that is shown; None for the problems."""
        return next((one for one in TABLES if one.name == self._shown), None)

    def _choose(self, choice: Choice) -> None:
        self.choices[self._shown] = choice
        self._draw()

    def _leave_input(self) -> None:
        self.query_one("#find", Input).remove_class("asked")
        self.query_one(DataTable).focus()

    def _tick(self) -> None:
        """Update the clock; check whether metadata is overdue."""
        if not self.is_running:  # on exit, widgets are removed before timers
            return
        known = self.watch_of.known
        self.watch_of.tick(now_ms(), self._looking.patience_ms)
        if known.is_stale or known.at_ms is None:
            self._is_old = True
        self._draw_head()

    def _name_tabs(self) -> None:
        """Label the tabs; on a narrow screen, name only the one that is shown."""
        is_narrow = self.size.width < _TABS_WIDTH
        for n, name in enumerate(_NAMES):
            has_name = not is_narrow or name == self._shown
            self.query_one(f"#{name}", Tab).label = f"{n + 1} {name}" if has_name else f"{n + 1}"

    def _draw_if_old(self) -> None:
        if self._is_old and self.is_running:
            self._draw()

    def _draw(self) -> None:
        self._is_old = False
        known, table, now = self.watch_of.known, self._table(), now_ms()
        self._found = troubles(known, now)
        self._draw_head()
        self._name_tabs()
        self.query_one("#summary", Static).update(summary_text(known, now, self._of.bootstrap))
        verdict_height = max(2, self.size.height // _ROWS_OF_PROBLEM) if table is not None else 0
        self.query_one("#verdict", Static).update(
            verdict_text(
                known,
                self._found,
                verdict_height,
                self.size.width,
                int(self.size.height * _VERDICT_SHARE),
            )
        )
        grid: DataTable[Text] = self.query_one(DataTable)
        if table is None:
            note = fill_problems(grid, self._found, self.size.width)
        else:
            note = fill_table(grid, table, known, self.choices[table.name])
        self.query_one("#note", Static).update(Text(plain(note)))

    def _draw_head(self) -> None:
        looking, known = self._looking, self.watch_of.known
        every_s = looking.period_ms / 1_000
        age_s = (now_ms() - known.at_ms) / 1_000 if known.at_ms is not None else 0.0
        how = "PAUSED" if looking.is_paused else f"every {duration(every_s)}"
        if age_s > _OLD_AFTER * every_s or looking.is_paused:
            how += f", {duration(age_s)} old"
        clock = time.strftime("%H:%M:%S")
        text = f"raylog top  {clock}  {how}  {self._of.bootstrap}"
        self.query_one("#head", Static).update(Text(plain(text)))
