"""Types of a table's columns: numbers and dates as people, spreadsheets and programs write them, and text."""
# The whole column decides: one cell that is no number makes it text, and what can be read in two ways is
# text, too, until somebody says which.

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any, Literal, get_args

from app.domain.errors import InvalidFieldError
from app.domain.names import join_words

Kind = Literal["text", "number", "decimal-point", "decimal-comma", "date", "day-first", "month-first"]
"""What a column can be said to be."""
_GAPS = " \u00a0\u2009\u202f"
_GROUPS = f"'\u2019{_GAPS}"  # signs between groups of digits, besides points and commas
_CURRENCY = (
    r"US\$|R\$|[$€£¥₹₩₽₺₴₫₪฿]|zł|Kč|Ft|kr\.?|Fr\.?|EUR|USD|GBP|CHF|JPY|CNY|PLN|CZK|SEK|NOK|DKK|INR|CAD|AUD"
)
_AMOUNT = re.compile(
    rf"([-\u2212]?)[{_GAPS}]*({_CURRENCY})?[{_GAPS}]*([-\u2212]?)"
    rf"([\d.,](?:[\d.,{_GROUPS}]*\d)?\.?(?:[eE][+-]?\d+)?)[{_GAPS}]*({_CURRENCY})?"
)
_WHOLE = r"(?:\d+|[1-9]\d{0,2}(?:([%s])\d{3})(?:\1\d{3})*)"  # digits, perhaps in groups of thousands
_STYLES = {
    "decimal-point": re.compile(rf"(?:{_WHOLE % (',' + _GROUPS)}(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?"),
    "decimal-comma": re.compile(rf"{_WHOLE % ('.' + _GROUPS)}(?:,\d+)?"),
}
_MARKS = {"decimal-point": ".", "decimal-comma": ","}
_POINT_CURRENCIES = {"$", "US$", "£", "USD", "GBP"}  # whose countries write a decimal point
_CLOCK = r"(?:[T ]+(\d{1,2}):(\d\d)(?::(\d\d)(?:\.\d+)?)? ?(Z|[+-]\d\d:?\d\d|[AaPp][Mm])?)?"
_YEAR_FIRST = re.compile(rf"(\d{{4}})([-./])(\d{{1,2}})\2(\d{{1,2}}){_CLOCK}")
_YEAR_LAST = re.compile(rf"(\d{{1,2}})([-./])(\d{{1,2}})\2(\d{{4}}){_CLOCK}")
_ORDERS = {"year-first": (0, 1, 2), "day-first": (2, 1, 0), "month-first": (2, 0, 1)}
"""Where year, month and day stand."""
_ABSENT = frozenset({"", "na", "n/a", "nan", "null", "none", "-", "\u2013", "\u2014"}) | {
    *("#n/a", "#div/0!", "#value!", "#ref!", "#name?", "#num!", "#null!")
}
"""Cells in which people, programs and spreadsheets write that there is no number and no date."""
_CODE = re.compile(
    r"(?:^|[^a-z])(?:id|ids|zip|plz|postal|postcode|postleitzahl|phone|tel|telefon|telephone|mobile|fax|ean|"
    r"gtin|upc|isbn|asin|sku|barcode|code|nr|nummer|artikelnummer)(?:[^a-z]|$)"
)
"""Names of columns whose digits are no amounts."""
_LONGEST_AMOUNT = 64
_MOST_SLIPS, _AMOUNTS_PER_SLIP = 3, 5
"""How many different cells may be slips in a column of numbers, and how many numbers it has for each."""
_MOST_TEXTS = 1000  # different cells that are remembered, so that what repeats is looked at once
_CODE_DIGITS, _MOST_DIGITS = 8, 15
"""Numbers of one length are codes from this length on; those of more digits than a float has are, too."""


class Column:
    """What one column can be, by what the user says, its cells, and its name (whose digits may be codes)."""

    def __init__(self, name: str, override: Kind | None = None) -> None:
        self.name, self.kind, self.remark = name, "text", ""
        self._override = override
        self._is_code = override is None and _CODE.search(name.casefold()) is not None
        self._styles = set(_STYLES)
        self._orders = set(_ORDERS)
        self._currencies: set[str] = set()
        self._lengths: set[int] = set()
        self._texts: set[str] = set()
        self._is_whole = self._is_plain = True
        self._differs = self._has_separator = False
        self._n_cells = self._n_absent = self._n_native = self._n_true_or_false = 0
        self._n_amounts = 0
        self._odd: list[str] = []  # different cells that are no amounts

    def see(self, cell: Any) -> None:
        """Learn from a cell that is not blank."""
        self._n_cells += 1
        if not isinstance(cell, str):
            self._see_native(cell)
        elif (self._styles or self._orders) and cell.strip().casefold() in _ABSENT:
            self._n_absent += 1
        elif self._styles or self._orders:
            text = cell.strip()
            if text in self._texts:
                return
            if len(self._texts) < _MOST_TEXTS:
                self._texts.add(text)
            if self._styles:
                self._see_number(text)
            if self._orders:
                self._orders = {order for order in self._orders if _date(text, order) is not None}
                self._has_separator = self._has_separator or "." not in text

    def _see_native(self, cell: Any) -> None:
        self._n_native += 1
        self._n_true_or_false += isinstance(cell, bool)
        if isinstance(cell, bool) or not isinstance(cell, int | float):
            self._styles.clear()
        else:
            if str(cell) not in self._texts and len(self._texts) < _MOST_TEXTS:
                self._texts.add(str(cell))
                self._n_amounts += 1
            self._is_plain = False
            self._is_whole = self._is_whole and float(cell).is_integer()
        if not isinstance(cell, date):
            self._orders.clear()

    def _see_number(self, text: str) -> None:
        amount = _AMOUNT.fullmatch(text) if len(text) <= _LONGEST_AMOUNT else None
        values: dict[str, int | float] = {}
        if amount is not None and not re.match(r"0\d", amount[4]) and not (amount[2] and amount[5]):
            numbers = {style: _number(amount[4], style) for style in _STYLES}
            values = {style: number for style, number in numbers.items() if number is not None}
        if amount is None or not values:
            if text not in self._odd:
                self._odd.append(text)
            if len(self._odd) > _MOST_SLIPS:
                self._styles.clear()
            return
        self._styles &= values.keys()
        self._n_amounts += 1
        self._currencies.update(filter(None, (amount[2], amount[5])))
        self._lengths.add(len(amount[4]))
        self._is_plain = self._is_plain and text.isdecimal()
        of_styles = {values[style] for style in self._styles}
        self._differs = self._differs or len(of_styles) > 1
        self._is_whole = self._is_whole and all(value == int(value) for value in of_styles)

    @property
    def _fitting_styles(self) -> set[str]:
        return set() if self._odd else self._styles

    def _describe_slip(self) -> str:
        """Return which cell makes what is nearly a column of numbers text."""
        is_likely = self._n_amounts >= _AMOUNTS_PER_SLIP * len(self._odd) and len(self._currencies) < 2
        is_of_codes = self._is_code or self._is_of_codes() or any(text.isdecimal() for text in self._odd)
        if not (self._odd and self._styles and is_likely) or is_of_codes:
            return ""
        return f"{self._odd[0][:_LONGEST_AMOUNT]!r} is no number, as most cells are"

    @property
    def settled_style(self) -> str | None:
        """The decimal sign of its numbers, where they say it."""
        styles = self._fitting_styles
        return next(iter(styles)) if len(styles) == 1 and self._n_cells > self._n_absent else None

    def decide(self, decimal: str | None) -> None:
        """Set `kind` and `remark`, once all cells are seen; `decimal` (of the other columns) settles what
        reads in two ways. Raises InvalidFieldError if it is not what the user said."""
        n_values = self._n_cells - self._n_absent
        if self._override is not None:
            self._obey(self._override)
        elif n_values and self._n_true_or_false == self._n_cells:
            self.kind = "yes or no"
        elif n_values and self._fitting_styles and not self._is_of_codes():
            self._decide_number(decimal)
        elif n_values and self._orders:
            self._decide_date()
        else:
            self.remark = self._describe_slip()
        if self.kind in _STYLES:
            signs = ["decimal comma"] if self.kind == "decimal-comma" else []
            self.remark = ", ".join([*self._currencies, *signs])

    def _obey(self, override: Kind) -> None:
        fits: Mapping[Kind, Sequence[str]] = {
            "text": ["text"],
            "number": [style for style in _STYLES if style in self._fitting_styles],
            "date": [order for order in _ORDERS if order in self._orders],
        }
        fitting = fits.get(override, list({override} & (self._fitting_styles | self._orders)))
        if not fitting:
            is_number = override in ("number", *_STYLES)
            odd = f": {self._odd[0][:_LONGEST_AMOUNT]!r}" if self._odd and is_number else ""
            raise InvalidFieldError("--type", f"not every cell of column {self.name!r} is a {override}{odd}")
        self.kind = fitting[0]

    def _is_of_codes(self) -> bool:
        is_of_length = self._is_plain and len(self._lengths) == 1 and min(self._lengths) >= _CODE_DIGITS
        is_long = self._is_plain and max(self._lengths, default=0) > _MOST_DIGITS
        return self._n_native == 0 and (self._is_code or is_of_length or is_long)

    def _decide_number(self, decimal: str | None) -> None:
        if len(self._currencies) > 1:
            self.remark = f"amounts in {join_words(sorted(self._currencies), 'and')}"
            return
        if self._currencies and self._currencies <= _POINT_CURRENCIES:
            decimal = decimal or "decimal-point"
        if len(self._styles) == 1 or not self._differs:
            self.kind = sorted(self._styles)[-1]  # where both are the same, that with a point
        elif decimal in self._styles:
            self.kind = decimal
        else:
            self.remark = (
                "its points or commas may mark thousands or decimals: "
                f"--type {self.name}=decimal-point or decimal-comma says which"
            )

    def _decide_date(self) -> None:
        if self._orders >= {"day-first", "month-first"} and self._has_separator:
            self.remark = (
                f"day or month may come first: --type {self.name}=day-first or month-first says which"
            )
        else:
            self.kind = next(order for order in _ORDERS if order in self._orders)

    @property
    def is_empty(self) -> bool:
        """Whether no cell says anything."""
        return self._n_cells == 0

    @property
    def word(self) -> str:
        """What it was taken as, for the summary: "text", "number" or "date"."""
        if self.kind in _STYLES:
            return "number"
        return "date" if self.kind in _ORDERS else self.kind

    def value(self, cell: Any) -> Any:
        """Return what a cell says, as JSON has it; None where it is absent."""
        if self.kind == "text":
            return plain_text(cell)
        if isinstance(cell, str):
            return self._read(cell.strip())
        if self.kind in _STYLES and self._is_whole and math.isfinite(cell):
            return int(cell)
        return plain(cell)

    def _read(self, text: str) -> Any:
        if text.casefold() in _ABSENT:
            return None
        if self.kind in _ORDERS:
            return _date(text, self.kind)
        amount = _AMOUNT.fullmatch(text)
        number = None if amount is None else _number(amount[4], self.kind)
        if amount is None or number is None:
            return text
        sign = -1 if amount[1] or amount[3] else 1
        return sign * (int(number) if self._is_whole else number)


def read_kinds(entries: Sequence[str]) -> dict[str, Kind]:
    """Return what the user says of columns, each as "COLUMN=KIND"; raises InvalidFieldError."""
    kinds: dict[str, Kind] = {}
    for entry in entries:
        name, _, kind = entry.rpartition("=")
        if not name or kind not in get_args(Kind):
            expected = join_words(get_args(Kind))
            raise InvalidFieldError("--type", f"expected COLUMN=KIND with one of {expected}, got {entry!r}")
        kinds[name] = kind  # type: ignore[assignment]
    return kinds


def decide_all(columns: Sequence[Column]) -> None:
    """Decide every column; where one can be read in two ways, the others say what a point is here."""
    settled = {column.settled_style for column in columns} - {None}
    decimal = settled.pop() if len(settled) == 1 else None
    for column in columns:
        column.decide(decimal)


def is_blank(cell: Any) -> bool:
    """Return whether a cell is empty; a column of numbers written by pandas has NaN there."""
    if isinstance(cell, str):
        return not cell.strip()
    return cell is None or cell == b"" or (isinstance(cell, float) and math.isnan(cell))


def plain_text(cell: Any) -> str:
    """Return a cell as the text that a reader sees."""
    if isinstance(cell, datetime | date | time):
        return str(plain(cell))
    return cell.strip() if isinstance(cell, str) else str(cell)


def plain(value: Any) -> Any:
    """Return a value as JSON can have it: times as text, no bytes, None for what is absent."""
    match value:
        case bool() | int() | str():
            return value
        case float():
            return value if math.isfinite(value) else None
        case Decimal():
            return plain(int(value) if value == value.to_integral_value() else float(value))
        case datetime() | date() | time():
            return value.isoformat()
        case dict():
            return plain_metadata(value)
        case list():
            return [plain(one) for one in value]
        case bytes() | None:
            return None
    return str(value)


def plain_metadata(cells: Mapping[str, Any]) -> dict[str, Any]:
    """Return cells as JSON can have them: no empty ones and no bytes, and times as text."""
    values = {name: plain(value) for name, value in cells.items()}
    return {name: value for name, value in values.items() if value is not None}


def _number(digits: str, style: str) -> int | float | None:
    """Return what digits say in a style; None where they are none of it."""
    match = _STYLES[style].fullmatch(digits)
    if match is None:
        return None
    mark = _MARKS[style]
    number = digits if match[1] is None else digits.replace(match[1], "")
    if mark not in number and "e" not in number.casefold():
        return int(number)
    value = float(number.replace(mark, "."))
    return value if math.isfinite(value) else None


def _date(text: str, order: str) -> str | None:
    """Return a date in ISO 8601, with its time where it has one; None where it is none of this order."""
    match = (_YEAR_FIRST if order == "year-first" else _YEAR_LAST).fullmatch(text)
    if match is None:
        return None
    parts = (match[1], match[3], match[4])
    year, month, day = (int(parts[place]) for place in _ORDERS[order])
    hour, minute, second, zone = match.groups()[4:]
    try:
        if hour is None:
            return date(year, month, day).isoformat()
        hours, is_half = int(hour), (zone or "").casefold() in ("am", "pm")
        if is_half:
            if not 1 <= hours <= 12:
                return None
            hours, zone = hours % 12 + 12 * (zone.casefold() == "pm"), None
        moment = datetime(year, month, day, hours, int(minute), int(second or 0)).isoformat()
        return moment if zone is None else datetime.fromisoformat(f"{moment}{zone}").isoformat()
    except ValueError:
        return None
