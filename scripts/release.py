"""Print a release's notes, after checking that version, citation and changelog agree with its tag.

python3 scripts/release.py v0.1.0 prints the section of CHANGELOG.md. Standard library only.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
_VERSIONS = {"setup.py": r'^    version="([^"]+)",$', "CITATION.cff": r"^version: (\S+)$"}


def notes(root: Path, tag: str) -> str:
    """Return the changelog's section of a tag. Raises ValueError that names the file with another version, or
    says that the changelog has no dated section for this one.
    """
    version = tag.removeprefix("v")
    for name, pattern in _VERSIONS.items():
        stated = re.findall(pattern, (root / name).read_text(), re.MULTILINE)
        if stated != [version]:
            raise ValueError(f"{name}: version {' '.join(stated) or 'none'}, and the tag is {tag}")
    sections = re.split(r"^## (.+)$", (root / "CHANGELOG.md").read_text(), flags=re.MULTILINE)[1:]
    texts = dict(zip(sections[::2], sections[1::2], strict=True))
    for heading, text in texts.items():
        if re.fullmatch(rf"{re.escape(version)}, \d{{4}}-\d\d-\d\d", heading):
            return text.strip() + "\n"
    raise ValueError(f"CHANGELOG.md: no section `{version}, YEAR-MONTH-DAY`; there are: {', '.join(texts)}")


def main(argv: list[str]) -> int:
    if len(argv) != 1:
        print("usage: python3 scripts/release.py TAG", file=sys.stderr)
        return 2
    try:
        print(notes(ROOT, argv[0]), end="")
    except ValueError as error:
        print(f"release: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
