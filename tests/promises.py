"""The lines that an example promises to print: the quoted texts in the last paragraph of its docstring."""

from __future__ import annotations

import ast
import re


def promised(source: str) -> list[str]:
    """Return a regular expression for each of a program's promises; `...` in a promise stands for any text,
    and a blank for any number of blanks.
    """
    *_, last = (ast.get_docstring(ast.parse(source)) or "").split("\n\n")
    texts = re.findall(r'"([^"]+)"', " ".join(last.split())) if last.startswith("Prints ") else []
    blanks = re.escape(" ")
    return [re.escape(text).replace(re.escape("..."), ".+").replace(blanks, r"\s+") for text in texts]
