"""How the documentation is built: Markdown, and a reference from the code.

Nothing is fetched while building, and nothing by the pages when they are read.
"""

import logging
import sys
from importlib.metadata import version as version_of
from pathlib import Path

from sphinx.application import Sphinx

DOCS = Path(__file__).parent
sys.path.insert(0, str(DOCS.parent))

from docs.tables import write_pages  # noqa: E402

project = "instep"
author = "The instep authors"
project_copyright = author
release = version = version_of("instep")

extensions = ["myst_parser", "sphinx.ext.autodoc"]
exclude_patterns = ["_build", "reference/tables"]
default_role = "code"
myst_enable_extensions = ["attrs_inline", "colon_fence", "deflist"]
myst_heading_anchors = 3

autodoc_member_order = "bysource"
autodoc_default_options = {"members": True, "imported-members": True}
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True

man_pages = [
    ("reference/command-line", "instep", "keeps a store in step with a provider", author, 1),
]

html_theme = "furo"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_js_files = ["site.js"]
html_title = f"instep {release}"
html_show_sphinx = False


def write_tables(_app: Sphinx) -> None:
    """Write the tables of the reference, which the pages include."""
    logging.getLogger("alembic").setLevel(logging.WARNING)
    write_pages()


def setup(app: Sphinx) -> None:
    """Let the tables be written before the pages are read."""
    app.connect("builder-inited", write_tables)
