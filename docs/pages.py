"""Pages that mkdocs makes from the repository when the site is built: what is written once stands there once.

The README is the first page. A method has a page of the header and content of its file in ``conf/method`` and the
docstrings of its module in ``fedsaf.methods``; losses and constructors have one page each, of their files in ``conf``;
the reference has a page per package.
"""

import os
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "src" / "fedsaf"
DOCUMENTS = {"README.md": "index.md", "CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md"}
CHOICES = {
    "losses.md": ("alignment", "Losses", "Each is a choice of `alignment=`, with any constructor."),
    "constructors.md": ("prototype", "Constructors", "Each is a choice of `prototype=`, with any loss."),
}
LINK = re.compile(r"\[([^\]]*)\]\((?!https?://|#)([^)#]*)(#[^)]*)?\)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add what is generated, and its place in the navigation."""
    methods = {f"methods/{path.stem}.md": method_page(path) for path in sorted((ROOT / "conf/method").glob("*.yaml"))}
    packages = sorted(path.name for path in PACKAGE.iterdir() if (path / "__init__.py").exists())
    reference = {f"reference/{name}.md": f"# {name}\n\n::: fedsaf.{name}\n" for name in packages}
    pages = {target: (ROOT / source).read_text(encoding="utf-8") for source, target in DOCUMENTS.items()}
    pages |= {target: choices_page(*content) for target, content in CHOICES.items()}
    for target, text in (pages | methods | reference).items():
        files.append(File.generated(config, target, content=text))
    for section in config.nav or []:
        for name, generated in (("Methods", methods), ("Reference", reference)):
            if name in section:
                section[name] += generated
    return files


def on_page_markdown(markdown: str, page: Page, **_: object) -> str:
    """Let links to documents of the repository lead to their pages; a link to any other file becomes its text."""
    uri = page.file.src_uri
    folder = ROOT if uri in DOCUMENTS.values() else (ROOT / "docs" / uri).parent

    def mended(match: re.Match[str]) -> str:
        place = os.path.relpath(folder / match[2], ROOT)
        target = DOCUMENTS.get(place) or (place.removeprefix("docs/") if place.startswith("docs/") else None)
        return (
            f"[{match[1]}]({os.path.relpath(target, os.path.dirname(uri) or '.')}{match[3] or ''})"
            if target
            else match[1]
        )

    return LINK.sub(mended, markdown)


def method_page(path: Path) -> str:
    """Return the page of one method: the header of its file, its module if it has one, and the file."""
    text = path.read_text(encoding="utf-8")
    modules = dict.fromkeys([*re.findall(r"fedsaf\.methods\.(\w+)", text), path.stem])
    code = "".join(
        f"::: fedsaf.methods.{name}\n\n" for name in modules if (PACKAGE / "methods" / f"{name}.py").exists()
    )
    return f"# {path.stem}\n\n`python src/train.py method={path.stem}`\n\n{header(text)}\n\n{code}{listing(path)}"


def choices_page(group: str, title: str, introduction: str) -> str:
    """Return one page of all files of a group, each with its header and content."""
    parts = [f"# {title}\n\n{introduction}\n"]
    for path in sorted((ROOT / "conf" / group).glob("*.yaml")):
        parts.append(f"## {path.stem}\n\n{header(path.read_text(encoding='utf-8'))}\n\n{listing(path)}")
    return "\n".join(parts)


def header(text: str) -> str:
    """Return the comment on top of a file as Markdown; indented lines, which are equations, stand as they are."""
    lines = [line[1:] for line in re.match(r"(#.*\n)*", text)[0].splitlines() if "@package" not in line]
    prose = [f"\n```text\n{line.rstrip()}\n```\n" if line.startswith("   ") else escape(line.strip()) for line in lines]
    return "\n".join(prose).replace("\n```\n\n\n```text\n", "\n")


def escape(line: str) -> str:
    """Return a line of plain text as Markdown."""
    return re.sub(r"([\\`*_<>\[\]|])", r"\\\1", line)


def listing(path: Path) -> str:
    """Return a configuration file without its header, under its name."""
    body = re.sub(r"\A(#.*\n)*", "", path.read_text(encoding="utf-8")).strip()
    return f'```yaml title="{path.relative_to(ROOT)}"\n{body}\n```\n' if body else ""
