"""Files of the repository that pages link to, as pages of the site.

Pages link to what they speak of: an example, a model of this code, the changelog. On the site such a file
would be missing. So every file outside docs/ that a page links to becomes a page below files/, and so do
the files that those link to.
"""

import posixpath
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

LINK = re.compile(r"(?<=\]\()(?!\w+:|#)(?P<path>[^)\s#]+)(?P<anchor>#[^)\s]*)?(?=[)\s])")
FENCE = re.compile(r"^(```|~~~).*?^\1", re.MULTILINE | re.DOTALL)
LANGUAGES = {".py": "python", ".toml": "toml", ".yml": "yaml", ".json": "json", ".csv": "text"}
MOST_CHARACTERS = 100_000


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add a page for each file outside that is linked to, directly or from another such page."""
    root = Path(config.config_file_path).parent
    docs = Path(config.docs_dir).relative_to(root).as_posix()
    waiting = [f"{docs}/{file.src_uri}" for file in files.documentation_pages()]
    while waiting:
        place = waiting.pop()
        if not place.endswith(".md") or not (root / place).is_file():
            continue
        for target in _targets(place, (root / place).read_text(encoding="utf-8")):
            uri = _page_of(target, docs)
            if uri is None or files.get_file_from_path(uri) is not None or not (root / target).is_file():
                continue
            files.append(File.generated(config, uri, content=_as_page(root / target, target)))
            waiting.append(target)
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Let links lead to the pages of `on_files`."""
    docs = Path(config.docs_dir).name
    uri = page.file.src_uri
    place = uri.removeprefix("files/").removesuffix(".md") if uri.startswith("files/") else f"{docs}/{uri}"
    here = posixpath.dirname(uri)

    def rewritten(link: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(posixpath.dirname(place), link["path"]))
        found = _page_of(target, docs) or target.removeprefix(f"{docs}/")
        if files.get_file_from_path(found) is None:
            return link[0]  # mkdocs itself says that it is missing
        return posixpath.relpath(found, here or ".") + (link["anchor"] or "")

    return LINK.sub(rewritten, markdown)


def _targets(place: str, text: str) -> list[str]:
    """What a page links to, as paths from the repository's root."""
    folder = posixpath.dirname(place)
    return [
        posixpath.normpath(posixpath.join(folder, link["path"]))
        for link in LINK.finditer(FENCE.sub("", text))
    ]


def _page_of(target: str, docs: str) -> str | None:
    """The page that a file outside docs/ gets; None for files inside."""
    return None if target.startswith((f"{docs}/", "..")) else f"files/{target}.md"


def _as_page(path: Path, target: str) -> str:
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".md":
        return text
    cut = f"\n\nThe first {MOST_CHARACTERS:,} characters.\n" if len(text) > MOST_CHARACTERS else "\n"
    return f"# {target}\n\n~~~~ {LANGUAGES.get(path.suffix, 'text')}\n{text[:MOST_CHARACTERS]}\n~~~~{cut}"
