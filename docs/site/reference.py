"""The reference, made from the command line's help, the schemas of files and the front door's docstrings."""

import json
from collections.abc import Container
from pathlib import Path
from typing import Any

import click
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

FILES = {
    "scenario": "What is emulated ([guide](../emulator.md)).",
    "devices": "The devices of a bench and their meters ([guide](../bench.md)).",
    "plan": "What a bench run measures ([guide](../bench.md)).",
    "probing": "Rounds on bench devices, with and without early exit ([guide](../probing.md)).",
    "federate": "Federated rounds on bench devices ([guide](../federate.md)).",
}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the three pages."""
    root = Path(config.config_file_path).parent
    pages = {
        "commands": commands_page(),
        "configuration": configuration_page(root / "docs/schemas"),
        "python": python_page(),
    }
    for name, content in pages.items():
        files.append(File.generated(config, f"reference/{name}.md", content=content))
    return files


def commands_page() -> str:
    """Every command with its help."""
    from harness.cli import cli

    lines = [
        "# Commands",
        "",
        "Made from `joulefleet COMMAND --help`. Every command takes `--json` and `-v`.",
        "",
    ]
    _add_command(lines, cli, ["joulefleet"], None)
    return "\n".join(lines)


def _add_command(
    lines: list[str], command: click.Command, path: list[str], parent: click.Context | None
) -> None:
    context = click.Context(
        command, info_name=path[-1], parent=parent, terminal_width=110, max_content_width=110
    )
    if isinstance(command, click.Group):
        if parent is not None:
            lines += [f"## {' '.join(path)}", "", command.help or "", ""]
        for name in command.list_commands(context):
            child = command.get_command(context, name)
            if child is not None and not child.hidden:
                _add_command(lines, child, [*path, name], context)
        return
    lines += [
        f"{'#' * min(len(path), 3)} {' '.join(path)}",
        "",
        "```text",
        command.get_help(context),
        "```",
        "",
    ]


def configuration_page(folder: Path) -> str:
    """Every key of every configuration file."""
    lines = [
        "# Configuration files",
        "",
        "Made from the schemas that the files are checked against. An unknown key is an error.",
        "",
    ]
    for name, about in FILES.items():
        schema = json.loads((folder / f"{name}.schema.json").read_text(encoding="utf-8"))
        lines += [f"## {name}.toml", "", about, f"[Schema for editors](../schemas/{name}.schema.json).", ""]
        parts = {title: part for title, part in schema.get("$defs", {}).items() if part.get("properties")}
        _add_table(lines, schema, name, parts)
        for title, part in sorted(parts.items()):
            lines += [f"### {title} {{ #{name}-{title.lower()} }}", ""]
            _add_table(lines, part, name, parts)
    return "\n".join(lines)


def _add_table(lines: list[str], part: dict[str, Any], name: str, parts: Container[str]) -> None:
    text, meanings = _described(part.get("description", ""))
    lines += [text, "", "| key | kind | default | meaning |", "|---|---|---|---|"]
    required = part.get("required", [])
    for key, value in part.get("properties", {}).items():
        kind = _kind(value)
        meaning = value.get("description") or meanings.get(key, "")
        cells = [f"`{key}`", f"[{kind}](#{name}-{kind.lower()})" if kind in parts else kind]
        cells += ["required" if key in required else _default(value), meaning.replace("\n", " ")]
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    lines.append("")


def _default(value: dict[str, Any]) -> str:
    """As it would be written; a table's own defaults are listed with its keys."""
    default = value.get("default")
    return "" if default in (None, {}, []) or isinstance(default, dict) else f"`{json.dumps(default)}`"


def _described(docstring: str) -> tuple[str, dict[str, str]]:
    """A docstring's text, and what it says of each attribute."""
    text, _, attributes = docstring.partition("\nAttributes:\n")
    text, _, _ = text.partition("\nExamples:\n")  # how it is made in Python
    meanings: dict[str, str] = {}
    name = ""
    for line in attributes.splitlines():
        if line.startswith("    ") and not line.startswith("     ") and ":" in line:
            name, _, meaning = line.strip().partition(": ")
            meanings[name] = meaning
        elif name:
            meanings[name] += " " + line.strip()
    return text.strip(), meanings


def _kind(value: dict[str, Any]) -> str:
    if "$ref" in value:
        return value["$ref"].rpartition("/")[2]
    if "anyOf" in value:
        return " or ".join(dict.fromkeys(_kind(one) for one in value["anyOf"] if one.get("type") != "null"))
    if "enum" in value or "const" in value:
        return ", ".join(f"`{one}`" for one in value.get("enum", [value.get("const")]))
    if value.get("type") == "array":
        return f"list of {_kind(value.get('items', {}))}"
    bounds = [
        f"{sign} {value[name]:g}"
        for name, sign in (
            ("minimum", ">="),
            ("exclusiveMinimum", ">"),
            ("maximum", "<="),
            ("exclusiveMaximum", "<"),
        )
        if name in value
    ]
    return " ".join([str(value.get("type", "any")), ", ".join(bounds)]).strip()


def python_page() -> str:
    """What `import joulefleet` offers; mkdocstrings fills it from the docstrings."""
    import joulefleet

    lines = [
        "# Python",
        "",
        "What `import joulefleet` offers, from its docstrings. How to use it: [notebooks](../python.md).",
        "",
    ]
    for name in sorted(joulefleet.__all__, key=str.lower):
        lines += [f"::: joulefleet.{name}", ""]
    return "\n".join(lines)
