"""Enter a folder and execute a program: `python -I -S start_in_folder.py FD FOLDER PROGRAM ARGS...`, as the
current user.

subprocess.Popen enters its `cwd` before it changes the user, so it would do that as root; and the caller of
Popen waits until the program runs, for as long as entering the folder takes. A failure is written to FD,
which the program does not inherit. Built-in modules only: this runs for every worker.
"""

import _signal  # type: ignore[import-not-found]  # signal itself takes 4 ms to import
import os
import sys

COULD_NOT = 126  # as shells have it


def main(fd: int, folder: str, argv: list[str]) -> None:
    os.set_inheritable(fd, False)
    for number in (_signal.SIGPIPE, _signal.SIGXFSZ):  # ignored by Python, and inherited by a program
        _signal.signal(number, _signal.SIG_DFL)
    attempt = f"enter {folder}"
    try:
        os.chdir(folder)
        attempt = f"run {argv[0]}"
        os.execvp(argv[0], argv)
    except OSError as error:
        os.write(fd, f"{attempt}: {error.strerror}".encode(errors="replace"))
        os._exit(COULD_NOT)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], sys.argv[3:])
