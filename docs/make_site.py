"""Make the site of the documentation from the pages of the repository, without a second copy.

python docs/make_site.py [FOLDER]          (build/site if none is named)

The README and similar files become pages of the site. Links between pages are changed to their new
addresses. A link to another file, such as a source, becomes the path of the file. Then Sphinx
builds the site, and a warning is an error. It needs the extra `docs` and no network.
"""

import os
import re
import shutil
import sys
import tempfile
from pathlib import Path, PurePosixPath

import make_api
import make_pages
from sphinx.cmd.build import main as sphinx

ROOT = Path(__file__).parents[1]
ELSEWHERE = {
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "benchmarks/README.md": "benchmarks.md",
    "starter/README.md": "starter-set.md",
    "study/README.md": "study.md",
    "study/tables.md": "study-tables.md",
    "study/searched.md": "study-searched.md",
}
"""Pages that lie outside docs/, and what they are in the site."""
PARTS = {
    "Guides": (
        "questions",
        "photographs-and-tables",
        "research",
        "arml",
        "data",
        "growing",
        "scaling",
    ),
    "Reference": ("api",),
    "Results": ("study", "study-tables", "study-searched", "benchmarks"),
    "Project": ("house", "changelog", "contributing", "starter-set"),
}
"""The table of contents; a page that is not in it fails the build."""
LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(((?!https?:|mailto:|#)[^()\s]+)\)")
CODE = re.compile(r"(^```.*?^```$)", re.DOTALL | re.MULTILINE)


def turned(text: str, source: str) -> str:
    """The text of the repository's file `source` with its links as they are in the site.

    **Raises** `ValueError` for a link to a file that is not there.
    """
    page = made_of(source)
    assert page is not None

    def turn(found: re.Match[str]) -> str:
        mark, label, address = found.groups()
        path, _, anchor = address.partition("#")
        target = os.path.normpath(PurePosixPath(source).parent / path)
        if not (ROOT / target).exists():
            raise ValueError(f"{source}: expected a file at {target}, found none: mend the link")
        made = made_of(target)
        if made is None:
            return label if target in label else f"{label} (`{target}`)"
        link = os.path.relpath(made, PurePosixPath(page).parent)
        return f"{mark}[{label}]({link}{'#' if anchor else ''}{anchor})"

    parts = CODE.split(text)
    parts[::2] = [LINK.sub(turn, part) for part in parts[::2]]
    return "".join(parts)


def made_of(path: str) -> str | None:
    """Where the repository's file is in the site's sources; None for what is not in it."""
    inside = path.removeprefix("docs/")
    return ELSEWHERE.get(path, None if inside == path else inside)


def contents() -> str:
    """The table of contents, for the end of the first page."""
    parts = {**PARTS, "Methods": ("methods", *(f"methods/{name}" for name in make_pages.pages()))}
    trees = [
        "\n".join(["```{toctree}", ":hidden:", f":caption: {name}", *pages, "```"])
        for name, pages in parts.items()
    ]
    return "\n\n".join(["", *trees, ""])


def gather(folder: Path) -> None:
    """Write the site's sources to `folder`."""
    shutil.copytree(
        ROOT / "docs", folder, ignore=shutil.ignore_patterns("make_*.py", "__pycache__")
    )
    sources = [*(ROOT / "docs").rglob("*.md"), *(ROOT / name for name in ELSEWHERE)]
    for path in sources:
        source = path.relative_to(ROOT).as_posix()
        page = made_of(source)
        assert page is not None
        text = turned(path.read_text(encoding="utf-8"), source)
        (folder / page).write_text(text + (contents() if page == "index.md" else ""), "utf-8")
    (folder / "api.md").write_text(make_api.page(), "utf-8")
    (folder / "methods").mkdir()
    for name, text in make_pages.pages().items():
        (folder / "methods" / f"{name}.md").write_text(text, "utf-8")


def main() -> int:
    """Build the site; the exit status is Sphinx's."""
    site = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "build" / "site"
    with tempfile.TemporaryDirectory() as folder:
        pages = Path(folder) / "pages"
        gather(pages)
        strict = ["-W", "--keep-going", "-q", "-d", f"{folder}/cache"]
        status = sphinx([*strict, "-b", "html", str(pages), str(site)])
    if not status:
        print(f"the site is {site / 'index.html'}")
    return status


if __name__ == "__main__":
    sys.exit(main())
