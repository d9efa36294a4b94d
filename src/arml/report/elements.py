"""The parts of a page: elements, its style, and the document that needs nothing but itself."""

from base64 import b64encode
from collections.abc import Iterable
from hashlib import sha256
from html import escape

CSS = """
:root { color-scheme: light dark; --ink: #1c2733; --soft: #5a6672; --line: #d5dce3;
  --page: #ffffff; --tint: #f3f6f9; --accent: #0b5d9c; }
@media (prefers-color-scheme: dark) { :root { --ink: #e4e9ee; --soft: #9fabb7; --line: #39434d;
  --page: #14191f; --tint: #1d242c; --accent: #6db7ef; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 70rem; padding: 2rem 1.25rem 4rem; background: var(--page);
  color: var(--ink); font: 16px/1.55 system-ui, -apple-system, "Segoe UI", sans-serif; }
h1 { font-size: 1.8rem; line-height: 1.2; margin: 0 0 .25rem; }
h2 { font-size: 1.3rem; margin: 2.5rem 0 .75rem; padding-top: .75rem;
  border-top: 1px solid var(--line); }
h3 { font-size: 1.05rem; margin: 1.5rem 0 .5rem; }
p, li { max-width: 46rem; }
p.lead { font-size: 1.1rem; margin: .75rem 0; }
strong { white-space: nowrap; }
.soft, figcaption { color: var(--soft); }
code, pre { font: .88em/1.45 ui-monospace, "SF Mono", Consolas, monospace;
  overflow-wrap: anywhere; }
.scroll { overflow-x: auto; margin: 1rem 0; }
.scroll:focus-visible { outline: 2px solid var(--accent); }
table { border-collapse: collapse; font-size: .9rem; font-variant-numeric: tabular-nums;
  min-width: 100%; }
th, td { padding: .45rem .7rem; text-align: right; border-bottom: 1px solid var(--line);
  white-space: nowrap; }
thead th { vertical-align: bottom; background: var(--tint); font-weight: 600; line-height: 1.3;
  white-space: normal; }
td small { display: block; color: var(--soft); }
th[scope=row], thead th:first-child { text-align: left; font-weight: 600; }
th[scope=row] { white-space: normal; }
th code { overflow-wrap: normal; }
td.score { font-weight: 600; }
td.paper, th.paper { color: var(--soft); font-weight: 400; }
tr.floor th, tr.floor td { color: var(--soft); font-style: italic; font-weight: 400; }
figure { margin: 1.25rem 0; }
figure .scroll { margin: 0; border: 1px solid var(--line); border-radius: 6px; }
figure img { display: block; width: 100%; min-width: 42rem; height: auto; background: #ffffff;
  padding: .75rem; }
figcaption { font-size: .9rem; margin-top: .4rem; max-width: 46rem; }
details { border: 1px solid var(--line); border-radius: 6px; margin: .6rem 0;
  padding: .5rem .9rem; }
summary { cursor: pointer; font-weight: 600; overflow-wrap: anywhere; }
pre { background: var(--tint); padding: .75rem; border-radius: 4px; white-space: pre-wrap; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .15rem 1rem; }
dt { color: var(--soft); } dd { margin: 0; overflow-wrap: anywhere; }
@media (max-width: 40rem) { body { padding: 1.25rem .9rem 3rem; }
  dl { grid-template-columns: 1fr; } dd { margin-bottom: .4rem; } }
@media print { :root { --ink: #000; --soft: #444; --line: #bbb; --page: #fff; --tint: #f3f3f3; }
  body { max-width: none; padding: 0; font-size: 10pt; } table { font-size: 7.5pt; }
  th, td { padding: .25rem .35rem; white-space: normal; } .scroll { overflow: visible; }
  figure img { min-width: 0; }
  figure, tr { break-inside: avoid; } h2, h3 { break-after: avoid; } }
"""


def tag(name: str, content: str, **attributes: str) -> str:
    """One element; `content` is HTML already, attributes are escaped here."""
    given = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(v)}"' for key, v in attributes.items()
    )
    return f"<{name}{given}>{content}</{name}>"


def code(text: str) -> str:
    """Escaped text, with what stands between backticks as code."""
    parts = escape(text).split("`")
    return "".join(tag("code", p) if i % 2 else p for i, p in enumerate(parts))


def scrolling(content: str, name: str) -> str:
    """Something wide in a box of its own that scrolls, and that the keyboard can reach."""
    return tag("div", content, class_="scroll", tabindex="0", role="region", aria_label=name)


def image(svg: bytes, alternative: str) -> str:
    """A figure as an image within the page, so that its inner names cannot collide."""
    data = b64encode(svg).decode()
    return f'<img alt="{escape(alternative)}" src="data:image/svg+xml;base64,{data}">'


def section(identifier: str, title: str, parts: Iterable[str]) -> str:
    """A section under its heading."""
    return tag("section", tag("h2", title) + "\n".join(parts), id=identifier)


def document(title: str, body: Iterable[str], *, style: str = "", script: str = "") -> str:
    """The whole page. Its policy forbids anything from elsewhere, and all scripts but `script`."""
    policy = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
    if script:
        policy += f"; script-src 'sha256-{b64encode(sha256(script.encode()).digest()).decode()}'"
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        f"<title>{escape(title)}</title><style>{CSS}{style}</style></head>\n"
        f"<body>{tag('main', chr(10).join(body))}"
        f"{f'<script>{script}</script>' if script else ''}</body></html>\n"
    )
