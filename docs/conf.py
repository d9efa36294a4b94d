"""Sphinx's settings; `make_site.py` runs it. Nothing in the site is asked of another machine."""

project = "arml"
copyright = "the arml authors"  # Sphinx's name for it
extensions = ["myst_parser"]
html_theme = "furo"
html_title = "arml"
html_show_sourcelink = False
html_show_copyright = False
# GitHub's anchors, which the pages use there.
myst_heading_anchors = 3
highlight_language = "none"
suppress_warnings = ["myst.header"]  # generated tables may skip a level
