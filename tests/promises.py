"""The lines that an example promises to print: the quoted texts of its docstring's last paragraph."""

from __future__ import annotations

import ast
import re


def promised(source: str) -> list[str]:
    """Return a regular expression for each of a program's promises, in which ... stands for any text."""
    *_, last = (ast.get_docstring(ast.parse(source)) or "").split("\n\n")
    texts = re.findall(r'"([^"]+)"', " ".join(last.split())) if last.startswith("Prints ") else []
    return [re.escape(text).replace(re.escape("..."), ".+") for text in texts]
