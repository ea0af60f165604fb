"""An option that may be given only once. Imports the standard library and the typed errors."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from testbed.errors import RequestError


class Once(argparse.Action):
    """Stores an option's value, but refuses a second one, which argparse would silently use in place of the
    first. For options with default None.
    """

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: str | Sequence[Any] | None,
        option_string: str | None = None,
    ) -> None:
        if (first := getattr(namespace, self.dest)) is not None:
            raise RequestError(
                f"{option_string} {values}: it is given twice, {first} before; one is accepted, "
                f"{self.metavar or 'a value'}"
            )
        setattr(namespace, self.dest, values)
