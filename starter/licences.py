"""`LICENCES.md`: whose work each sample is, and under which licence."""

import re
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
from fontTools.ttLib import TTFont

from glyphs import listed

Samples = dict[str, list[tuple[str, np.ndarray]]]

HEAD = """# Sources and licences of the starter set

The pictures in this folder were made by `starter/build.py` from the free works below. Every sample
was changed: drawn at 32 px in grey, turned, scaled, moved and relit. `index.json` names the source
of each sample. The arrangement (classes, split, index) is under the licence of arml, MIT.

## Glyphs

One picture of one character by each font family. The fonts themselves are not included. They come
from Debian packages; licence and copyright are those that the package and the font state.

| font family | pictures | licence | package | copyright |
|---|---:|---|---|---|
"""
ICONS = """
## Icons

From the npm package `@iconify/json` {version}, each set under its authors' licence.

| set | pictures | licence | authors | source |
|---|---:|---|---|---|
"""
TEXTURES = """
## Textures

From the Debian package `freedoom` {version}: walls and floors of Freedoom
(https://freedoom.github.io), whose licence follows. The contributors are named in the file CREDITS
at that address.

```
{notice}
```

## Texts of the licences

CC-BY-4.0: https://creativecommons.org/licenses/by/4.0/
CC-BY-3.0: https://creativecommons.org/licenses/by/3.0/
CC0-1.0: https://creativecommons.org/publicdomain/zero/1.0/
OFL-1.1 and OFL-1.0 (of the fonts, which are not included): https://openfontlicense.org
Bitstream-Vera (likewise): https://dejavu-fonts.github.io/License.html
Apache-2.0: https://www.apache.org/licenses/LICENSE-2.0, and in full in `Apache-2.0.txt` here.

MIT, with the copyright of each set's or font's authors above:

```
{mit}
```

ISC, likewise:

```
{isc}
```

BSD-3-Clause, of fonts: the text under "Textures", with the copyright of the font's authors above.
"""
MIT = """Permission is hereby granted, free of charge, to any person obtaining a copy of this
software and associated documentation files (the "Software"), to deal in the Software
without restriction, including without limitation the rights to use, copy, modify, merge,
publish, distribute, sublicense, and/or sell copies of the Software, and to permit persons
to whom the Software is furnished to do so, subject to the following conditions:

The above copyright notice and this permission notice shall be included in all copies or
substantial portions of the Software.

THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR IMPLIED,
INCLUDING BUT NOT LIMITED TO THE WARRANTIES OF MERCHANTABILITY, FITNESS FOR A PARTICULAR
PURPOSE AND NONINFRINGEMENT. IN NO EVENT SHALL THE AUTHORS OR COPYRIGHT HOLDERS BE LIABLE
FOR ANY CLAIM, DAMAGES OR OTHER LIABILITY, WHETHER IN AN ACTION OF CONTRACT, TORT OR
OTHERWISE, ARISING FROM, OUT OF OR IN CONNECTION WITH THE SOFTWARE OR THE USE OR OTHER
DEALINGS IN THE SOFTWARE."""
ISC = """Permission to use, copy, modify, and/or distribute this software for any purpose with or
without fee is hereby granted, provided that the above copyright notice and this permission notice
appear in all copies.

THE SOFTWARE IS PROVIDED "AS IS" AND THE AUTHOR DISCLAIMS ALL WARRANTIES WITH REGARD TO THIS
SOFTWARE INCLUDING ALL IMPLIED WARRANTIES OF MERCHANTABILITY AND FITNESS. IN NO EVENT SHALL THE
AUTHOR BE LIABLE FOR ANY SPECIAL, DIRECT, INDIRECT, OR CONSEQUENTIAL DAMAGES OR ANY DAMAGES
WHATSOEVER RESULTING FROM LOSS OF USE, DATA OR PROFITS, WHETHER IN AN ACTION OF CONTRACT,
NEGLIGENCE OR OTHER TORTIOUS ACTION, ARISING OUT OF OR IN CONNECTION WITH THE USE OR PERFORMANCE OF
THIS SOFTWARE."""


def text(
    families: dict[str, Samples],
    packages: dict[str, Path],
    sources: dict[str, Any],
    sets: dict[str, dict[str, Any]],
) -> str:
    """The whole file."""
    used = {
        name: Counter(source for samples in found.values() for source, _ in samples)
        for name, found in families.items()
    }
    lines = [HEAD.rstrip("\n")]
    for font in sorted(listed(), key=lambda font: font["family"].lower()):
        if count := used["glyphs"][font["family"]]:
            about = sources["debian"][font["package"]]
            holder = copyright_of(packages[font["package"]], font)
            package = f"{font['package']} {about['version']}"
            lines.append(row(font["family"], count, about["licence"], package, holder))
    lines += ICONS.format(version=sources["npm"]["@iconify/json"]["version"]).splitlines()
    drawn: Counter[str] = Counter()
    for source, count in used["icons"].items():
        drawn[source.partition(":")[0]] += count
    for prefix, count in sorted(drawn.items()):
        about = sets[prefix]
        author = about["author"]
        link = author.get("url", "")
        title = f"{about['name']} ({prefix})"
        lines.append(row(title, count, about["license"]["spdx"], author["name"], link))
    notice = freedoom_notice(packages["freedoom"])
    lines += TEXTURES.format(
        version=sources["debian"]["freedoom"]["version"], notice=notice, mit=MIT, isc=ISC
    ).splitlines()
    return "\n".join(lines) + "\n"


def row(*cells: object) -> str:
    return "| " + " | ".join(" ".join(str(cell).replace("|", "/").split()) for cell in cells) + " |"


def copyright_of(package: Path, about: dict[str, str]) -> str:
    """What the font says of its copyright, or else the package; at most a line of it."""
    with TTFont(package / about["file"], lazy=True) as font:
        said = font["name"].getDebugName(0) or ""
    if "(c)" not in said.lower() and "copyright" not in said.lower() and "©" not in said:
        stated = (package / f"usr/share/doc/{about['package']}/copyright").read_text("utf-8")
        found = re.search(r"^Copyright:(.*(?:\n\s+.*)*)", stated, re.MULTILINE)
        said = found.group(1) if found else said or "see the package"
    said = " ".join(said.split())
    return said if len(said) <= 160 else said[:157] + "..."


def freedoom_notice(package: Path) -> str:
    """The licence of Freedoom as the package states it."""
    said = (package / "usr/share/doc/freedoom/copyright").read_text("utf-8")
    body = said.rpartition("License: freedoom-license\n")[2].partition("For a list of")[0]
    lines = [line.removeprefix(" ") for line in body.splitlines()]
    return "\n".join("" if line == "." else line for line in lines).strip()
