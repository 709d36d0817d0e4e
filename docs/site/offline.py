"""Search that needs no network.

Material's search runs in a worker, which a browser refuses to pages that come from the file system. Material
then loads a shim from a public server. The shim (iframe-worker 1.0.4, MIT) lies beside this file instead.
"""

from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from mkdocs.utils import get_relative_url

ELSEWHERE = "https://unpkg.com/iframe-worker/shim"
HERE = "assets/javascripts/iframe-worker.js"


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the shim."""
    text = Path(__file__).with_name("iframe-worker.js").read_text(encoding="utf-8")
    files.append(File.generated(config, HERE, content=text))
    return files


def on_post_page(output: str, page: Page, config: MkDocsConfig) -> str:
    """Let a page load it from here."""
    return output.replace(ELSEWHERE, get_relative_url(HERE, page.url))
