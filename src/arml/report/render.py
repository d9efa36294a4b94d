"""A report as one HTML file: its content is data, and its style is in `templates/`.

The file needs no network and no other file, so it can be mailed, archived and printed. Its security
policy allows no other source and no script. All text is escaped.
"""

from base64 import b64encode
from collections.abc import Mapping, Sequence

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from matplotlib.figure import Figure

from arml.report.curves import render
from arml.results.files import Json

Block = Json
"""A part of a section: `macro` names the macro of `blocks.html` that draws it."""


def html(title: str, lead: Sequence[str], sections: Mapping[str, Sequence[Block]]) -> str:
    """The page with the blocks of each section by its heading; empty ones are left out."""
    loader = PackageLoader("arml.report")
    options: Json = {"trim_blocks": True, "lstrip_blocks": True, "undefined": StrictUndefined}
    environment = Environment(loader=loader, autoescape=True, **options)
    # The style is our own file, and the only text that is not escaped.
    style = Markup(loader.get_source(environment, "style.css")[0])
    filled = {heading: blocks for heading, blocks in sections.items() if blocks}
    page = environment.get_template("report.html")
    return page.render(title=title, lead=lead, sections=filled, style=style).lstrip()


def block(macro: str, **content: object) -> Block:
    """A block for the macro of that name in `blocks.html`."""
    return {"macro": macro, **content}


def figure(drawn: Figure, alternative: str, caption: str) -> Block:
    """A figure as an image within the page, so that its inner names cannot collide."""
    data = b64encode(render(drawn, "svg")).decode()
    return block("figure", data=data, alternative=alternative, caption=caption)
