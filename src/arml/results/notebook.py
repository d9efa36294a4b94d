"""A line and a table in HTML, as a notebook shows them."""

from collections.abc import Sequence


def table_html(
    head: Sequence[str],
    rows: Sequence[Sequence[str | list[str]]],
    *,
    line: str = "",
    code: bool = False,
) -> str:
    """A line of text (in the style of code with `code`) above a table; no table without a head.

    The first cell of a row is its heading. A cell is text, or a list of PNGs in base64.
    """
    from jinja2 import Environment, PackageLoader, StrictUndefined  # only a notebook needs it

    loader = PackageLoader("arml.results")
    environment = Environment(loader=loader, autoescape=True, undefined=StrictUndefined)
    template = environment.get_template("notebook.html")
    return template.render(head=head, rows=rows, line=line, code=code).strip()
