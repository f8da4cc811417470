"""The screen of the monitor: tabs of tables, moved through by keys."""

from __future__ import annotations

import time
from collections import defaultdict, deque
from collections.abc import Sequence
from typing import ClassVar, Final

from rich.text import Text
from textual import work
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import DataTable, Footer, Static, TabbedContent, TabPane
from textual.widgets.data_table import RowDoesNotExist

from instep.cli.monitor.reading import MonitoredPlace, MonitorSnapshot
from instep.cli.monitor.rows import (
    TABLES,
    rates_of,
    stream_details,
    table_rows,
    verdict_of,
)
from instep.cli.output import plain_lines
from instep.model.entities import Quarantined
from instep.ports.reader import DeadMessage

__all__ = ["Monitor"]

_WIDE: Final = 120
_RATES_KEPT: Final = 8
_BODY_SHOWN_BYTES: Final = 2_000
_TABS: Final = tuple(TABLES)


class Monitor(App[None]):
    """Looks every `every_s` seconds, and shows what was found last while it looks."""

    ENABLE_COMMAND_PALETTE = False
    CSS = """
    Screen { overflow: hidden; }
    #verdict { height: auto; max-height: 3; padding: 0 1; text-style: bold; }
    TabbedContent { height: 1fr; }
    #details { height: 5; padding: 0 1; border-top: solid $foreground 30%; }
    TabPane { padding: 0; }
    DataTable { height: 1fr; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        *(
            Binding(str(number), f"show('{name}')", TABLES[name].title, show=False)
            for number, name in enumerate(_TABS, 1)
        ),
        Binding("1-7", "nothing", "Tab", key_display="1-7"),
        Binding("r", "replay", "Replay"),
        Binding("d", "dark", "Dark or light"),
        Binding("q", "quit", "Quit"),
    ]

    def __init__(self, place: MonitoredPlace, every_s: float) -> None:
        super().__init__()
        self._place, self._every_s = place, every_s
        self._reading: MonitorSnapshot | None = None
        self._read_at_s = 0.0
        self._rates: defaultdict[tuple[str, str], deque[float]] = defaultdict(
            lambda: deque(maxlen=_RATES_KEPT)
        )

    def compose(self) -> ComposeResult:
        """See textual."""
        yield Static("looking …", id="verdict", markup=False)
        with TabbedContent(id="tabs"):
            for number, (name, table) in enumerate(TABLES.items(), 1):
                with TabPane(f"{number} {table.title}", id=name):
                    yield DataTable(id=f"table-{name}", cursor_type="row")
        yield Static("", id="details", markup=False)
        yield Footer()

    def on_mount(self) -> None:
        """See textual."""
        self._lay_out()
        self.set_interval(self._every_s, self._look)
        self._look()

    def on_resize(self) -> None:
        """See textual."""
        self._lay_out()
        self._show()

    def _lay_out(self) -> None:
        """Give each table the columns that there is room for."""
        for name, table in TABLES.items():
            shown = self._table(name)
            columns = table.columns + (table.wide if self.size.width >= _WIDE else ())
            if len(shown.columns) != len(columns):
                shown.clear(columns=True)
                for number, (title, width) in enumerate(columns):
                    shown.add_column(title, width=width, key=str(number))

    @work(exclusive=True, group="look")
    async def _look(self) -> None:
        reading, now_s = await self._place.read(), time.monotonic()
        for stream, rate in rates_of(reading, self._reading, now_s - self._read_at_s).items():
            self._rates[stream].append(rate)
        self._reading, self._read_at_s = reading, now_s
        self._show()

    def _show(self) -> None:
        # What was looked for may come after the screen has gone.
        if self._reading is None or not self.query("#verdict"):
            return
        self.query_one("#verdict", Static).update(verdict_of(self._reading))
        rates = {stream: [*kept] for stream, kept in self._rates.items()}
        name = self.query_one(TabbedContent).active
        self._fill(name, table_rows(name, self._reading, rates))
        self._show_details()

    def _fill(self, name: str, rows: list[tuple[str, tuple[str, ...]]]) -> None:
        """Put rows into a table; the cursor stays on its row, wherever that has gone."""
        table, at = self._table(name), self._key_of(name)
        shown = len(table.columns)
        table.clear()
        for key, cells in rows:
            table.add_row(*map(Text, cells[:shown]), key=key)
        try:
            table.move_cursor(row=table.get_row_index(at))
        except RowDoesNotExist:
            table.move_cursor(row=0)

    def _show_details(self) -> None:
        name = self.query_one(TabbedContent).active
        self.query_one("#details", Static).update(self._details(name, self._key_of(name)))

    def _details(self, name: str, key: str) -> str:
        if self._reading is None:
            return ""
        if not key:
            return TABLES[name].empty
        if name == "streams":
            return stream_details(self._reading, key)
        entry = self._entry(name, key)
        if entry is None:
            return ""
        body = entry.raw if isinstance(entry, Quarantined) else entry.body
        text = body[:_BODY_SHOWN_BYTES].decode(errors="backslashreplace")
        return plain_lines(f"{entry.reason}\n{text}")

    def _entry(self, name: str, key: str) -> Quarantined | DeadMessage | None:
        """The entry of the quarantine or of the dead letter that a row shows."""
        if self._reading is None or name not in ("quarantine", "dead"):
            return None
        entries: Sequence[Quarantined | DeadMessage] = (
            self._reading.quarantined if name == "quarantine" else self._reading.dead
        )
        keys = [found for found, _ in table_rows(name, self._reading, {})]
        return dict(zip(keys, entries, strict=True)).get(key)

    def _table(self, name: str) -> DataTable[Text]:
        table: DataTable[Text] = self.query_one(f"#table-{name}", DataTable)
        return table

    def _key_of(self, name: str) -> str:
        """The key of the row with the cursor; empty: there is none."""
        table = self._table(name)
        if not table.is_valid_coordinate(table.cursor_coordinate):
            return ""
        return str(table.coordinate_to_cell_key(table.cursor_coordinate).row_key.value)

    # -- keys and events -------------------------------------------------------------------------

    def on_data_table_row_highlighted(self) -> None:
        """See textual."""
        self._show_details()

    def on_tabbed_content_tab_activated(self) -> None:
        """See textual."""
        self._table(self.query_one(TabbedContent).active).focus()
        self._show()

    def action_show(self, name: str) -> None:
        """Show the tab with this name."""
        self.query_one(TabbedContent).active = name

    def action_dark(self) -> None:
        """Go from dark to light and back."""
        self.theme = "textual-light" if self.theme == "textual-dark" else "textual-dark"

    @work(group="replay")
    async def action_replay(self) -> None:
        """Have what the cursor is on read or delivered again."""
        name = self.query_one(TabbedContent).active
        entry = self._entry(name, self._key_of(name))
        if entry is None:
            self.notify("choose an entry of the quarantine or of the dead letter (4, 5)")
            return
        self.notify(await self._place.replay(entry), markup=False)
        self._look()
