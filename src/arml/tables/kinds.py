"""The kinds of columns: one small parser each, tried in a stated order.

`column_of` tries the kinds in turn, as skrub's cleaner does: plain numbers, numbers
with marks (a unit, a currency, thousands), times and durations, dates. The first that parses every
cell becomes the column, is saved, and parses new cells in the same way; a text that means "unknown"
is a missing cell to it. If none fits, few texts that repeat are a category, and others are left out
with a reason. If a kind fits most cells, the odd ones are an error that names them.
"""

import contextlib
import datetime
import decimal
import itertools
import math
import numbers
import re
import zlib
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

import msgspec
import numpy as np
from jaxtyping import Float

from arml.predict.inputs import MAX_FLOAT32, MISSING_CELL, alike, missing, normal, tidy

AnyCell = Any
"""A text, a number, a date, or a missing value."""
Cells = Sequence[AnyCell] | np.ndarray
"""The cells of one column; an array if all are numbers."""
Dates = Literal["dmy", "mdy", "ymd"]
"""The order of day, month and year."""
_Parsed = tuple[Float[np.ndarray, " n"], list[int]]
"""Cells as numbers, NaN where one is missing or cannot be parsed, and the indices of those that
cannot."""
MAX_LEVELS = 12
"""The most columns of a category: its most frequent values have one each."""
ALLOWED_LEVELS = 5
"""A column of texts is a category if it has at most this many different values, or has each
value at least twice on average."""
_SHOWN_CELLS = 5
"""Cells or values that a message names."""
MAX_LETTERS = 40
"""Letters of a number, a time or a date."""
NUMBER_CELL = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
"""A decimal number. Python's own `float` also reads 0_5, nan and infinity."""
CURRENCY_SIGNS = "$£¥€฿\u20a0-\u20cf"
CURRENCY_CODES = (
    "(?:AED|ARS|AUD|BDT|BGN|BRL|CAD|CHF|CLP|CNY|COP|CZK|DKK|EGP|EUR|GBP|HKD|HUF|IDR|ILS|INR|ISK|JPY"
    "|KES|KRW|KWD|LKR|MAD|MXN|MYR|NGN|NOK|NZD|PEN|PHP|PKR|PLN|QAR|RON|RSD|RUB|SAR|SEK|SGD|THB|TRY"
    "|TWD|UAH|USD|VND|ZAR)"
)
"""Codes of ISO 4217. Other capitals before digits may be codes of things."""
QUANTITY_CELL = re.compile(
    r"(?P<sign>[+-]?) ?"
    rf"(?P<before>[A-Z]{{0,3}}[{CURRENCY_SIGNS}]|{CURRENCY_CODES}|Rs\.?|Fr\.|kr\.?)? ?"
    r"(?P<inner>[+-]?)"
    r"(?P<digits>(?:\d[\d.,' _]*)?\.?\d(?:\.(?!\w))?(?:[eE][+-]?\d+)?) ?"
    rf"(?P<after>[%‰°\"″′{CURRENCY_SIGNS}]?[^\W\d_]*(?:\^?[23²³])?(?:[/·][^\W\d_]+(?:\^?[23²³])?)*)\.?"
)
"""A number with a currency before it, or a currency or unit after it."""
NUMBER_STYLES = (".", ",.", "'.", "_.", " .", ".,", "',", " ,", ",")
"""The sign between thousands, if there is one, and the decimal sign, in the order in which they are
tried: 1,250 alone is 1250."""
_SIXTY_PARTS = r"(?::([0-5]\d(?:\.\d+)?))?"
TIME_CELL = re.compile(
    rf"(?:(\d+) days?,? ?)?(\d+){_SIXTY_PARTS}{_SIXTY_PARTS}(?: ?([ap])\.?m\.?)?",
    re.ASCII,
)
"""14:30, 2:05:10 pm, 8 am, 1 day 03:00:00; minutes and seconds, 4:12.5."""
DURATION_PART = re.compile(
    r"(\d+(?:\.\d+)?) ?(?:([smhdw])(?:ec(?:ond)?s?|in(?:ute)?s?|(?:ou)?rs?|ays?|(?:ee)?ks?)?)\.?"
    r"(?:,? |,|(?=\d)|$)",
    re.ASCII,
)
"""One part of a duration: 1h, 30 minutes."""
HOURS_PER_UNIT = {"s": 1 / 3600, "m": 1 / 60, "h": 1.0, "d": 24.0, "w": 168.0}
DATE_CELL = re.compile(
    r"(?:(?:mon|tue|wed|thu|fri|sat|sun)[a-z]*\.?,? )?(?P<date>\w+(?:(?:[-/ .]|, |\. )\w+){1,2}?)"
    r"(?:(?:,? |t)(?P<hour>\d\d?):(?P<minute>\d\d)(?::(?P<second>\d\d)(?:\.\d+)?)?"
    r"(?: ?(?P<half>[ap])\.?m\.?)?)?(?P<year> \d{4})?"
)
"""A date in small letters with a weekday before it and a time after it; the last year is that of C:
Fri Jan 5 14:30:00 2024."""
MONTH_NAMES = (
    *("jan|gen|ene", "f[eé][bv]", "m[aä]r|mrz|mrt", "a[pbv]r", "ma[yijg]|mei", "jun|juin|giu"),
    *("jul|juil|lug", "a[uû]g|ago|ao[uû]", "se[pt]", "o[ck]t|ott|out", "nov", "d[eéi][cz]"),
)
"""First letters of months in English, German, French, Spanish, Italian, Portuguese and Dutch."""
QUARTER_CELL = re.compile(r"(\d{4})[- ]?q([1-4])|q([1-4])[-/ ]?(\d{4})")
SHORT_DATE = re.compile(r"(?<!\d)\d\d?[-/. ]\w+[-/. ]\d\d(?!\d)")
"""A date whose year may have two digits."""
YEARS_AHEAD = 10
"""Years of two digits end this many years from now: 65 is 1965, a year of birth."""
_DATE_PARTS = {
    "Y": r"(?P<Y>\d{4})",
    "y": r"(?P<y>\d\d)",
    "M": r"(?P<M>\d\d?)",
    "B": rf"(?P<B>{'|'.join(MONTH_NAMES)})[^\W\d_]*",
    "D": r"(?P<D>\d\d?)(?:st|nd|rd|th)?",
    ".": r"\.",
}
"""Years of four and of two digits, months and their names, and days."""
DATE_ORDERS = {
    order: [
        re.compile("".join(_DATE_PARTS.get(sign, sign) for sign in form)) for form in forms.split()
    ]
    for order, forms in (
        ("", "Y-M-D Y-M M-Y Y.M.D D.M.Y D-B-Y D-B-y Y-B-D B-D-Y B-Y"),
        ("dmy", "D-M-Y D-M-y D.M.y"),
        ("mdy", "M-D-Y M-D-y M.D.y"),
        ("ymd", "y-M-D y.M.D"),
    )
}
"""Forms of dates that can be read in only one way, beside ISO 8601, and forms that depend on an
order. Other signs between the parts are minus signs here."""
_NUMBER_TEXT = r"[+-]?\d[\d.,]*"
TEXT_FORMS = {
    "numbers with different units or marks": QUANTITY_CELL,
    "bounds": re.compile(rf"[<>≤≥~≈±]=? ?{_NUMBER_TEXT}.*|{_NUMBER_TEXT} ?\+"),
    "ranges or ratios": re.compile(
        rf"{_NUMBER_TEXT}[^\d+-]{{0,5}} ?(?:-|to|\.\.\.?|…|/|:|±|\+/-|x|×) ?{_NUMBER_TEXT}\D{{0,9}}"
    ),
    "amounts in several units": re.compile(
        rf"(?:{_NUMBER_TEXT} ?(?:[^\W\d_]+\.?|['\"′″°]),? ?){{2,}}"
    ),
    "pairs of numbers": re.compile(r"[+-]?\d+\.\d+°? ?[,;] ?[+-]?\d+\.\d+°?"),
    "hexadecimal numbers": re.compile(r"0[xX][\da-fA-F]+"),
}
"""Forms that are nearly numbers, by the reason to leave them out."""
TOTAL_NAME = re.compile(
    r"((grand |sub[- ]?)?tota(ls?|le|al)|sum|mean|average|avg\.?|median|s\.?d\.?|std\.?( ?dev\.?)?"
    r"|min(imum|\.)?|max(imum|\.)?|[∑Σø]|gesamt|(zwischen|gesamt)?summe|mittel(wert)?|durchschnitt"
    r"|somme|moyenne|promedio|anzahl|итого|合计|总计) ?:?",
    re.IGNORECASE,
)
"""Names of rows that summarise other rows."""
UNSPACED_LETTER = re.compile(r"[\u0e00-\u0eff\u3040-\u30ff\u3400-\u9fff]")
ONE_VALUE, NO_VALUES = "has one value in all rows", "is empty"
KEEP_HINT = "; --keep or keep= uses it"


class Declared(list[AnyCell]):
    """Cells of a column that its data frame declares a category."""

    def __init__(self, cells: Iterable[AnyCell], order: Iterable[AnyCell]) -> None:
        super().__init__(cells)
        self.order = tuple(map(text_of, order))
        """Its values, if they have an order."""


def some_of(cells: Cells, places: Sequence[int]) -> list[AnyCell]:
    """Some cells of a column; it stays declared if it is."""
    found = [cells[i] for i in places]
    return Declared(found, cells.order) if isinstance(cells, Declared) else found


class Origin(NamedTuple):
    """Where columns come from, for messages, and the choices of their user."""

    where: str = "the table"
    lines: Sequence[int] | None = None
    dates: Dates | None = None
    keep: Sequence[str] = ()


class UnusedColumn(Exception):
    """A column is not used; the message is the reason."""


class OddCells(ValueError):
    """Cells that differ in kind from the rest of their column. The message names them."""


class Column(msgspec.Struct, frozen=True, tag_field="kind"):
    """How the cells of one column are parsed."""

    name: str
    example: str = ""
    """A cell whose marks are dropped."""
    kind: ClassVar[str]

    @classmethod
    def ways(cls, name: str, cells: Cells, origin: Origin) -> Sequence["Column"]:
        """The columns of this kind that may parse the cells, the likeliest first."""
        raise NotImplementedError

    def one(self, cell: AnyCell) -> float | None:
        """ONE cell as a number; None if it cannot be parsed."""
        raise NotImplementedError

    def parse(self, cells: Cells) -> _Parsed:
        """The cells as numbers."""
        values, odd = np.full(len(cells), np.nan), []
        for place, cell in enumerate(cells):
            if (value := self.one(cell)) is not None:
                values[place] = value
            elif not missing(cell):
                odd.append(place)
        return values, odd

    def about(self) -> str:
        """How the cells are parsed, in words."""
        hours = " hours" * (self.kind == "time")
        marks = f", {self.example!r} is {self.one(self.example) or 0:.6g}{hours}"
        return self.kind + marks * bool(self.example)


class Fit(NamedTuple):
    """A column, the values of its cells, and the indices of cells that it cannot parse."""

    column: Column
    values: Float[np.ndarray, " n"]
    odd: list[int]


class Number(Column, frozen=True, tag="number"):
    """Plain numbers and durations of data frames, in seconds; or numbers with marks: 12%, (3),
    $1,250.50, a unicode minus, one unit in all cells."""

    kind = "number"
    unit: str = ""
    style: Annotated[str, msgspec.Meta(min_length=1, max_length=2)] = "."
    """One of `NUMBER_STYLES`."""

    @classmethod
    def ways(cls, name: str, cells: Cells, origin: Origin) -> Sequence[Column]:
        """Plain, or with the most frequent unit in each style; but digits with a leading zero are
        codes."""
        if is_code(cells) and name not in origin.keep:
            return []
        marked = [c for c in cells if isinstance(c, str) and _number(c) is None]
        parts = [(tidy(c), part) for c in marked if (part := split_number(c))]
        if not parts:
            return [cls(name)]
        unit = Counter(unit for _, (_, _, unit) in parts).most_common(1)[0][0]
        example = max((cell for cell, part in parts if part[2] == unit), key=len)

        def fitting(style: str) -> int:
            return sum(_digits(digits, style) is not None for _, (_, digits, _) in parts)

        return [cls(name), cls(name, example, unit, max(NUMBER_STYLES, key=fitting))]

    def one(self, cell: AnyCell) -> float | None:
        value = _number(cell)
        if not self.unit and (
            not isinstance(cell, str) or (value is not None and not self.example)
        ):
            return value
        sign, digits, unit = split_number(cell) or ("", "", None)
        plain = _digits(digits, self.style) if unit == self.unit else None
        return None if plain is None else _number(sign + plain)

    def parse(self, cells: Cells) -> _Parsed:
        """Also of an array, without a loop."""
        if self.unit or not isinstance(cells, np.ndarray):
            return super().parse(cells)
        odd = np.abs(cells) > MAX_FLOAT32
        return np.where(odd, np.nan, cells), np.flatnonzero(odd).tolist()


class Time(Column, frozen=True, tag="time"):
    """Times of the day and durations, in hours: 14:30, 2:05 pm, 1 h 30 min, PT1H30M."""

    kind = "time"
    minutes: bool = False
    """Whether 4:12 is minutes and seconds, because the column also has 4:12.5."""

    @classmethod
    def ways(cls, name: str, cells: Cells, origin: Origin) -> Sequence["Column"]:
        """**Raises** `ValueError` if 59:59 may be minutes and seconds, because 1:02:30 is there."""
        found = [cls(name, str(c)) for c in cells if cls(name).one(c) is not None]
        texts = [way.example.strip() for way in found]
        short = [text for text in texts if re.fullmatch(r"\d+:\d\d", text)]
        long = [text for text in texts if re.fullmatch(r"\d+:\d\d:\d\d(\.\d+)?", text)]
        clock = any(text[1] != ":" for text in long) and all(int(t[:-3]) < 24 for t in short)
        if short and long and not clock and name not in origin.keep:
            raise ValueError(
                f"{origin.where}: {short[0]!r} in column {name!r} may be hours and minutes, or "
                f"minutes and seconds beside {long[0]!r}: write 0:{short[0]} or {short[0]}:00"
            )
        minutes = any(re.fullmatch(r"-?\d+:[0-5]\d\.\d+", text) for text in texts)
        return [cls(name, way.example, minutes) for way in found[:1]]

    def one(self, cell: AnyCell) -> float | None:
        if not isinstance(cell, str | datetime.time) or len(text := str(cell)) > MAX_LETTERS:
            return None
        text = re.sub(r"(?<=\d) ?h ?(?=[0-5]\d$)", ":", tidy(text).casefold())  # 14h30
        if days := re.fullmatch(r"-(\d+) days?(?:, ?| \+ ?)(\d.*)", text):  # as Python writes them
            rest = self.one(days[2])
            return None if rest is None else rest - 24 * int(days[1])
        if text[:1] == "-":
            value = self.one(text[1:])
            return None if value is None else -value
        match = TIME_CELL.fullmatch(text)
        if match and (match[3] or match[5]):
            day, hour, minute, second = (float(match[k] or 0) for k in range(1, 5))
            alone = not (match[1] or match[4] or match[5])
            if "." in (match[3] or "") or (self.minutes and alone):
                return (hour + minute / 60) / 60
            hour = hour % 12 + 12 * (match[5] == "p") if match[5] else hour
            return 24 * day + hour + minute / 60 + second / 3600
        text = re.sub(r"^pt?(?=\d)|(?<=d)t(?=\d)", "", text)
        spans = [float(n) * HOURS_PER_UNIT[unit] for n, unit in DURATION_PART.findall(text)]
        return sum(spans) if spans and not DURATION_PART.sub("", text) else None


class Date(Column, frozen=True, tag="date"):
    """Dates with or without a time, in days since 1970 in UTC. ISO 8601, dates with the name of a
    month, years of four digits first or last, and years of two digits."""

    kind = "date"
    order: str = ""
    """One of `DATE_ORDERS`."""
    until: int = 2068
    """The last year that two digits can mean."""

    @classmethod
    def ways(cls, name: str, cells: Cells, origin: Origin) -> Sequence[Column]:
        """One for each order of day, month and year."""
        until = datetime.date.today().year + YEARS_AHEAD
        short = next((c for c in cells if isinstance(c, str) and SHORT_DATE.search(c)), "")
        orders = (origin.dates,) if origin.dates else DATE_ORDERS
        ways = [cls(name, short, order, until) for order in orders]
        return [w if w.one(short) is not None else cls(name, "", w.order, until) for w in ways]

    def one(self, cell: AnyCell) -> float | None:
        when = self._when(cell)
        return None if when is None else when.timestamp() / 86_400

    def _when(self, cell: AnyCell) -> datetime.datetime | None:
        text = str(cell).strip()
        if len(text) > MAX_LETTERS or isinstance(cell, numbers.Number) or text.isdecimal():
            return None
        when: datetime.datetime | None
        try:
            when = datetime.datetime.fromisoformat(text)
        except ValueError:
            text = tidy(text).casefold().replace(" de ", " ")
            if quarter := QUARTER_CELL.fullmatch(text):
                text = f"{quarter[1] or quarter[4]}-{3 * int(quarter[2] or quarter[3]) - 2}"
            match = DATE_CELL.fullmatch(text)
            if match is None or (when := self._spelled(match)) is None:
                return None
        return when if when.tzinfo is not None else when.replace(tzinfo=datetime.UTC)

    def _spelled(self, match: re.Match[str]) -> datetime.datetime | None:
        date = re.sub(r"[,.]? |/", "-", match["date"] + (match["year"] or ""))
        hour, minute, second = (int(match[k] or 0) for k in ("hour", "minute", "second"))
        hour = hour % 12 + 12 * (match["half"] == "p") if match["half"] else hour
        for form in (*DATE_ORDERS[""], *DATE_ORDERS.get(self.order, ())):
            if found := form.fullmatch(date):
                part, first = {"M": "0", "D": "1", **found.groupdict()}, self.until - 99
                year = int(part.get("Y") or first + (int(part["y"]) - first) % 100)
                names = [bool(re.fullmatch(name, part.get("B", ""))) for name in MONTH_NAMES]
                month = 1 + names.index(True) if "B" in part else int(part["M"])
                with contextlib.suppress(ValueError):
                    return datetime.datetime(year, month, int(part["D"]), hour, minute, second)
        return None

    def about(self) -> str:
        year = self.example and f", {self.example!r} is {self._when(self.example):%Y-%m-%d}"
        return (f"date ({self.order})" if self.order else "date") + year


class Category(Column, frozen=True, tag="category"):
    """Texts, or numbers that a data frame declares a category, as places among its values. Of an
    unknown value the place is -1; NaN if the values have an order."""

    kind = "category"
    texts: tuple[str, ...] = ()
    """Its values, sorted or in their order."""
    ordered: bool = False

    def parse(self, cells: Cells) -> _Parsed:
        """See `Column`. A text that means "missing" is a value if it is one of the examples'."""
        place = {text: float(i) for i, text in enumerate(self.texts)}
        texts = [text_of(c) if isinstance(c, str) or not missing(c) else "" for c in cells]
        # A program that met an empty cell writes 1.0 for 1.
        texts = [t if t in place else re.sub(r"(?<=\d)\.0+$", "", t) for t in texts]
        values = np.array([place.get(text, math.nan) for text in texts])
        odd = [i for i, text in enumerate(texts) if text not in place and not missing(cells[i])]
        values[odd] = math.nan if self.ordered else -1
        return values, odd

    def about(self) -> str:
        values = ", ".join(text or "empty" for text in self.texts[:_SHOWN_CELLS])
        values += ", ..." * (len(self.texts) > _SHOWN_CELLS)
        return f"{'ordered ' * self.ordered}category of {len(self.texts)} values: {values}"


class Text(Column, frozen=True, tag="text"):
    """Free texts, as checksums; the words are counted apart: see `arml.tables.words`."""

    kind = "text"

    def one(self, cell: AnyCell) -> float | None:
        return None if missing(cell) else float(zlib.crc32(text_of(cell).encode()))

    @staticmethod
    def suits(texts: Iterable[str]) -> bool:
        """Whether half of the texts have three words or more; Chinese, Japanese and Thai words are
        not divided by blanks."""
        return bool(
            np.median([len(t.split()) + len(UNSPACED_LETTER.findall(t)) / 3 for t in texts]) >= 3
        )


AnyColumn = Number | Time | Date | Category | Text


def targets_in(
    name: str, cells: Cells, where: str, lines: Sequence[int]
) -> tuple[Float[np.ndarray, " n"], list[str]]:
    """The targets of a regression, and a line if marks were dropped.

    **Raises** `ValueError` in one line for a cell that is not a number.
    """
    ways = Number.ways(name, cells, Origin(keep=(name,)))
    way, values = min(
        ((w, w.parse(cells)[0]) for w in ways), key=lambda one: np.isnan(one[1]).sum()
    )
    if odd := np.flatnonzero(np.isnan(values)).tolist():
        raise ValueError(
            f"{where}: {named_cells(name, cells, odd, lines)} is not a number to predict: choose "
            "another --target, correct or empty the cells, or predict classes (the learner tables)"
        )
    return values, [f"read as numbers: {name} ({way.about()})"] * bool(way.example)


def column_of(name: str, cells: Cells, origin: Origin) -> tuple[Column, list[str]]:
    """How the cells of a column are parsed, and hints for the user.

    **Raises** `UnusedColumn` for cells that say nothing about new rows; `OddCells`; and
    `ValueError` in one line for dates that can be read in two ways.
    """
    known = [i for i, cell in enumerate(cells) if not missing(cell)]
    if not known:
        raise UnusedColumn(NO_VALUES)
    value = text_of(cells[known[0]])
    gaps = len(known) < len(cells) and name not in origin.keep
    if gaps and all(text_of(cells[i]) == value for i in known):
        hint = f"column {name!r}: an empty cell counts as another value than {value!r}"
        return Category(name, texts=("", value)), [hint]
    if isinstance(cells, Declared):
        texts = cells.order or tuple(sorted({text_of(cells[i]) for i in known}))
        return Category(name, texts=texts, ordered=bool(cells.order)), []
    told = strange(cells, known)
    if odd := [i for i in told if is_number(cells[i]) and _number(cells[i]) is None]:
        infinite = named_cells(name, cells, odd, origin.lines)
        raise OddCells(f"{infinite} is not finite, or too large")
    tried: list[Fit] = []
    sample = [cells[i] for i in told[:: 1 + len(told) // 100]]
    for kind in (Number, Time, Date):
        ways: Sequence[Column] = kind.ways(name, cells, origin)
        ways = [way for way in ways if len(way.parse(sample)[1]) < len(sample)]
        fits = [Fit(way, *way.parse(cells)) for way in ways]
        if whole := [fit for fit in fits if not strange(cells, fit.odd)]:
            for one, other in itertools.pairwise(whole if kind is Date else []):
                if len(unlike := np.flatnonzero(np.abs(one.values - other.values) > 0)):
                    orders = [fit.column.about().partition(",")[0] for fit in (one, other)]
                    raise ValueError(
                        f"{origin.where}: the dates of column {name!r}, such as "
                        f"{cells[int(unlike[0])]!r}, can be read as a {orders[0]} or a "
                        f"{orders[1]}: choose with --dates (dates=...), or write them "
                        "as 2024-05-31"
                    )
            words = sorted({repr(normal(cells[i])) for i in whole[0].odd})
            verb = "counts" if len(words) == 1 else "count"
            hint = f"column {name!r}: {', '.join(words)} {verb} as missing"
            return whole[0].column, [hint] * bool(words)
        tried += fits
    counts = Counter(text_of(cells[i]) for i in known)
    best = min(tried, key=lambda fit: len(fit.odd), default=None)
    if best is not None and name not in origin.keep:
        odd = strange(cells, best.odd)
        repeat = min(counts[text_of(cells[i])] for i in odd) > 1
        repeat = repeat and len(counts) <= min(MAX_LEVELS, len(known) / 2)
        if len(odd) < np.sum(~np.isnan(best.values)) and not repeat:
            unit = best.column.unit if isinstance(best.column, Number) else ""
            what = f"is not a {best.column.kind}{unit and f' with the unit {unit!r}'}"
            raise OddCells(f"{named_cells(name, cells, odd, origin.lines)} {what}")
    return _category(name, cells, counts, origin)


def _category(
    name: str, cells: Cells, counts: Counter[str], origin: Origin
) -> tuple[Column, list[str]]:
    """Texts as a category, unless they differ in nearly every row."""
    n, why, hints = counts.total(), "", list[str]()
    odd = [text for text in counts if _number(text) is None]
    forms = {
        text: form
        for form, pattern in TEXT_FORMS.items()
        for text in counts
        if pattern.fullmatch(tidy(text).strip("()"))
    }
    if is_code(cells):
        why = f"has codes with a leading zero, such as {min(counts)!r}"
    elif len(forms) > len(counts) / 2 and (near := [text for text in odd if text in forms]):
        why = f"has {forms[near[0]]}, such as {near[0]!r}"
    elif odd and len(odd) < len(counts):
        why = f"has texts among its numbers, such as {odd[0]!r}"
    many = len(counts) > max(ALLOWED_LEVELS, n / 2)
    if name in origin.keep and many and not why and Text.suits(counts):
        return Text(name), []
    if len(counts) > 1 and name not in origin.keep:
        spaced = len(counts) == n and sum(" " in text for text in counts) > n / 2
        if spaced or (len(counts) > n / 2 if why else many):
            if not why and Text.suits(counts):
                return Text(name), []
            raise UnusedColumn((why or "texts that differ in nearly every row") + KEEP_HINT)
        hints += [f"column {name!r} is a category: it {why}"] * bool(why)
        if any(isinstance(cell, str) and cell.strip() == "None" for cell in cells):
            hints.append(f"column {name!r}: 'None' counts as missing")
        hints += alike(counts, f"column {name!r}")
    return Category(name, texts=tuple(sorted(counts))), hints


def strange(cells: Cells, places: Iterable[int]) -> list[int]:
    """Those of the places whose cells do not mean "unknown"."""
    pairs = [(i, cells[i]) for i in places]
    return [
        i for i, c in pairs if not isinstance(c, str) or not MISSING_CELL.fullmatch(tidy(c).lower())
    ]


def named_cells(name: str, cells: Cells, places: Iterable[int], lines: Sequence[int] | None) -> str:
    """Cells of a column with their rows, for a message."""
    rows: dict[str, int] = {}
    for i in places:
        cell = repr(cells[i]) if isinstance(cells[i], str) else text_of(cells[i])
        rows.setdefault(cell, lines[i] if lines is not None else i + 1)
    (cell, row), *others = rows.items()
    more = ", ".join(f"{other} of row {row}" for other, row in others[:_SHOWN_CELLS])
    more += f" and {len(others) - _SHOWN_CELLS} more" * (len(others) > _SHOWN_CELLS)
    return f"{cell} in column {name!r} of row {row}{f' (also {more})' if more else ''}"


def is_code(cells: Cells) -> bool:
    """Whether all cells are digits, some of them with a leading zero: 02139, 007."""
    if isinstance(cells, np.ndarray):
        return False
    known = strange(cells, (i for i, cell in enumerate(cells) if not missing(cell)))
    texts = [str(cells[i]).strip() if isinstance(cells[i], str) else "odd" for i in known]
    return all(map(str.isdecimal, texts)) and any(t[0] == "0" and len(t) > 1 for t in texts)


def text_of(cell: AnyCell) -> str:
    """A cell of a category as text: the number 1.0 is the text 1."""
    if isinstance(cell, float | np.floating) and float(cell).is_integer():
        return str(int(cell))
    return normal(cell if isinstance(cell, str) else str(cell))


def is_number(cell: AnyCell) -> bool:
    """Whether a cell is a number, not a text."""
    return isinstance(cell, numbers.Real | decimal.Decimal) and not isinstance(cell, bool)


def _number(cell: AnyCell) -> float | None:
    """The cell as a number, a duration in seconds; None if it is not one, or too large for 32
    bits."""
    value = math.nan
    with contextlib.suppress(OverflowError):  # a large integer
        if isinstance(cell, str):
            cell = cell.strip()
            value = float(cell) if NUMBER_CELL.fullmatch(cell) else math.nan
        elif isinstance(cell, datetime.timedelta):
            value = cell.total_seconds()
        elif is_number(cell):
            value = float(cell)
    return value if abs(value) <= MAX_FLOAT32 else None


def split_number(cell: AnyCell) -> tuple[str, str, str] | None:
    """The sign, the digits and the unit of a number with marks; None for another cell."""
    if not isinstance(cell, str) or len(cell) > MAX_LETTERS:
        return None
    text = re.sub(r" ?[×x*·] ?10\^(?=-?\d)", "e", tidy(cell))
    inside = text.startswith("(") and text.endswith(")")
    match = QUANTITY_CELL.fullmatch(text[1:-1].strip() if inside else text)
    if match is None or match["after"].casefold() in ("am", "pm"):
        return None
    sign = match["sign"] + match["inner"] + "-" * inside
    unit = re.sub(r"(?<=[^\W\d_]{2})s$", "", match["after"])  # 1 day, 2 days
    unit = f"{match['before'] or ''} {unit}".strip()
    return (sign, match["digits"], unit) if len(sign) < 2 else None


def _digits(digits: str, style: str) -> str | None:
    """Digits in a style (see `NUMBER_STYLES`) as Python writes them; None for others."""
    *group, point = map(re.escape, style)
    whole = rf"\d*|[1-9]\d{{0,2}}(?:{group[0]}\d\d\d?)*{group[0]}\d{{3}}" if group else r"\d*"
    if not re.fullmatch(rf"(?:{whole})(?:{point}\d*)?(?:[eE][+-]?\d+)?", digits):
        return None
    return digits.replace(style[:-1], "").replace(style[-1], ".")
