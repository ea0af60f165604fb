"""The lines that an example promises to print: the quoted texts of its docstring's last paragraph."""

from __future__ import annotations

import ast
import re


def promised(source: str) -> list[str]:
    """Return a regular expression for each of a program's promises, in which ... stands for any text, and a
    blank for any number of them.
    """
    *_, last = (ast.get_docstring(ast.parse(source)) or "").split("\n\n")
    texts = re.findall(r'"([^"]+)"', " ".join(last.split())) if last.startswith("Prints ") else []
    blanks = re.escape(" ")
    return [re.escape(text).replace(re.escape("..."), ".+").replace(blanks, r"\s+") for text in texts]
