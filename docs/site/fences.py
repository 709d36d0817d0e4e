"""Notes behind a code block's language, for tests that follow a page: the site would take them for text."""

import re

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import Files
from mkdocs.structure.pages import Page

NOTED = re.compile(r"^```(?P<language>\w+) (?!title=)(?:file=(?P<file>\S+)|.*)$", re.MULTILINE)


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """A file's name becomes the block's title; other notes go."""

    def plain(fence: re.Match[str]) -> str:
        title = f' title="{fence["file"]}"' if fence["file"] else ""
        return f"```{fence['language']}{title}"

    return NOTED.sub(plain, markdown)
