"""Run docs/tour.md as a user would, and write the output of its commands into it.

    sudo .venv/bin/python -m tests.bench.tour [--user NAME] [--check] [DOCUMENT]

A block marked `console` has commands, each after `$ `; a block marked `file=NAME` is saved under that name. A
comment `<!-- shown: REGULAR EXPRESSION -->` before a block selects the lines of output to show; `...` stands
for the others. Commands run from the checkout as the user, those with `sudo` as root for that user. Files
that appear in the checkout itself are removed. The exit code is 1 if a command fails; `--check` leaves the
document unchanged.
"""

from __future__ import annotations

import argparse
import os
import pwd
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BLOCK = re.compile(
    r"(?P<head>(?:<!-- shown: (?P<shown>.*?) -->\n)?```console\n)(?P<body>.*?)(?P<tail>^```$)", re.M | re.S
)
SAVED = re.compile(r"^```\w+ file=(\S+)\n(.*?)^```$", re.M | re.S)
COMMAND_S = 900


def shortened(printed: str, shown: str | None) -> list[str]:
    """Return the lines that match, with `...` for each run of other lines that are not blank."""
    lines: list[str] = []
    for line in printed.strip("\n").splitlines():
        if shown is None or re.search(shown, line):
            lines.append(line.rstrip())
        elif line.strip() and lines[-1:] != ["..."]:
            lines.append("...")
    return lines


def rewritten(document: str, run: Callable[[str], str]) -> str:
    """Return the document with the output that `run` returns for each command."""

    def block(match: re.Match[str]) -> str:
        lines: list[str] = []
        for line in match["body"].splitlines():
            if line.startswith("$ "):
                lines += [line, *shortened(run(line.removeprefix("$ ")), match["shown"])]
        return "".join([match["head"], *(f"{line}\n" for line in lines), match["tail"]])

    return BLOCK.sub(block, document)


class Shell:
    """Runs commands as a user with sudo would."""

    def __init__(self, user: pwd.struct_passwd) -> None:
        self._user = user
        self._environment = {
            **{name: os.environ[name] for name in ("PATH", "TERM", "LANG") if name in os.environ},
            "HOME": user.pw_dir,
        }

    def run(self, command: str) -> str:
        """Run a command and return its output. SystemExit if it fails."""
        print(f"$ {command}", flush=True)
        asks_root = command.startswith("sudo ")
        options: dict[str, object] = {"env": self._environment}
        if asks_root:
            uid, gid = str(self._user.pw_uid), str(self._user.pw_gid)
            options["env"] = {**self._environment, "SUDO_UID": uid, "SUDO_GID": gid}
        else:
            options |= {"user": self._user.pw_uid, "group": self._user.pw_gid, "extra_groups": []}
        ended = subprocess.run(
            ["bash", "-c", command.removeprefix("sudo ")],
            **options,  # type: ignore[call-overload]
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=COMMAND_S,
        )
        print(ended.stdout, flush=True)
        if ended.returncode:
            raise SystemExit(f"tour: {command}: ended with {ended.returncode}")
        return str(ended.stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description="Runs a document's commands, and writes what they print.")
    parser.add_argument("--user", help="whose testbed it is (who called sudo, else root)")
    parser.add_argument("--check", action="store_true", help="leave the document as it is")
    parser.add_argument("document", nargs="?", type=Path, default=ROOT / "docs" / "tour.md")
    options = parser.parse_args()
    uid = int(os.environ.get("SUDO_UID", os.geteuid()))
    shell = Shell(pwd.getpwnam(options.user) if options.user else pwd.getpwuid(uid))
    text = options.document.read_text()
    before = set(ROOT.iterdir())
    for name, content in SAVED.findall(text):
        (ROOT / name).write_text(content)
    try:
        text = rewritten(text, shell.run)
    finally:
        for path in set(ROOT.iterdir()) - before:
            if path.is_file():
                path.unlink()
    if not options.check:
        options.document.write_text(text)


if __name__ == "__main__":
    main()
