"""The documents as a site: it is built with every link checked, and asks no other host for anything."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from scripts.site_hooks import TOP, rewritten
from tests.limits import CALL_S

ROOT = Path(__file__).resolve().parents[2]
LOADED = re.compile(r"<(?:script|img|iframe|source)\b[^>]*\bsrc=\"([^\"]+)\"|<link\b[^>]*\bhref=\"([^\"]+)\"")


def built(folder: Path) -> subprocess.CompletedProcess[str]:
    words = ["-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    return subprocess.run(
        [sys.executable, *words],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=CALL_S,
    )


def test_the_site_has_every_document_and_loads_nothing_from_elsewhere(tmp_path: Path) -> None:
    build = built(tmp_path)
    assert build.returncode == 0, build.stdout + build.stderr
    documents = [path.relative_to(ROOT / "docs") for path in (ROOT / "docs").rglob("*.md")]
    pages = {page.relative_to(tmp_path) for page in tmp_path.rglob("*.html")}
    assert {path.with_suffix(".html") for path in [*documents, *map(Path, TOP)]} <= pages
    loaded = [
        f"{page}: {script or style}"
        for page in sorted(pages)
        for script, style in LOADED.findall((tmp_path / page).read_text())
        if re.match(r"(?:[a-z]+:)?//", script or style)
    ]
    assert loaded == []
    assert "search/search_index.json" in {
        str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*.json")
    }


@pytest.mark.parametrize(
    ("text", "page", "site"),
    [
        ("[a](verdict.md#how)", "tour.md", "[a](verdict.md#how)"),
        ("[a](../verdict.md)", "studies/faults.md", "[a](../verdict.md)"),
        ("[a](../CHANGELOG.md)", "index.md", "[a](CHANGELOG.md)"),
        ("[a](../../CHANGELOG.md)", "studies/faults.md", "[a](../CHANGELOG.md)"),
        ("[a](docs/verdict.md#how)", "CONTRIBUTING.md", "[a](verdict.md#how)"),
        ("[the codec](../testbed/wire/codec.py)", "protocol.md", "the codec (`testbed/wire/codec.py`)"),
        ("[codec.py](../testbed/wire/codec.py)", "protocol.md", "`testbed/wire/codec.py`"),
        ("[bpf/](bpf)", "CONTRIBUTING.md", "`bpf`"),
        ("![a](images/web.png) [b](https://example.org/c) [d](#e)", "web.md", None),
    ],
)
def test_a_link_leads_within_the_site_or_is_a_path(text: str, page: str, site: str | None) -> None:
    folder = "" if page in TOP else str((Path("docs") / page).parent)
    assert rewritten(text, folder, page) == (text if site is None else site)
