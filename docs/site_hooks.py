"""Hooks of mkdocs (mkdocs.yml): links that leave the pages, and requests that would leave the site.

Pages link to files of the repository, such as ``../../src/golow/check/rule.py``: a link where the
repository is browsed. The site has no such files, so it shows the text of the link, and the path
unless the text is one. A link to a file that is not there, and a page that loads anything from the
network, end a strict build.
"""

from __future__ import annotations

import logging
import re
from pathlib import Path
from typing import Any

log = logging.getLogger("mkdocs.hooks.golow")

LINK = re.compile(r"(?<!!)\[([^\]]*)\]\(((?:\.\./)+[^)\s#]+)(?:#[^)\s]*)?\)")
LOADED = re.compile(
    r"<(?:script|img|iframe|link)\b[^>]*?\s(?:src|href)=\"?((?:https?:)?//[^\s\">]+)"
)


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Links out of docs/ become their text, with the path."""
    folder = Path(page.file.abs_src_path).parent
    docs = Path(config.docs_dir)

    def shown(found: re.Match[str]) -> str:
        target = (folder / found[2]).resolve()
        if target.is_relative_to(docs):
            return found[0]
        if not target.exists():
            log.warning("%s links to %s, which does not exist", page.file.src_path, found[2])
        path = target.relative_to(docs.parent)
        return found[1] if "`" in found[1] else f"{found[1]} in `{path}`"

    return LINK.sub(shown, markdown)


def on_post_page(output: str, page: Any, config: Any) -> str:
    """A page loads nothing from the network."""
    for address in LOADED.findall(output):
        log.warning("%s loads %s from the network", page.file.src_path, address)
    return output
