"""Every relative link in the documents leads to a file, and to a heading that it has."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = ("docs", "examples", "benchmarks")
DOCUMENTS = sorted(
    [*ROOT.glob("*.md"), *(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.md"))]
)

CODE = re.compile(r"^(```|~~~).*?^\1|`[^`\n]+`(?!\])", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(\s*<?([^)\s>]+)")
HEADING = re.compile(r"^#+\s+(.+?)\s*#*$", re.MULTILINE)


def anchors(document):
    """The names that GitHub gives to the headings of a document."""
    headings = HEADING.findall(re.sub(r"^```.*?^```", "", document.read_text(), flags=re.M | re.S))
    texts = (re.sub(r"\]\([^)]*\)", "", heading).lower() for heading in headings)
    return {re.sub(r"[^\w\- ]", "", text).replace(" ", "-") for text in texts}


def broken_links(document):
    for target in LINK.findall(CODE.sub("", document.read_text())):
        if re.match(r"[a-z]+:", target):  # https:, mailto:
            continue
        path, _, anchor = target.partition("#")
        file = (document.parent / path).resolve() if path else document
        if not file.exists() or (anchor and file.suffix == ".md" and anchor not in anchors(file)):
            yield target


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_of_document_lead_somewhere(document):
    assert list(broken_links(document)) == []
