"""The colours of the page's pictures, for light and dark backgrounds. Pure."""

from __future__ import annotations

# Okabe and Ito's colours, distinguishable by the colour-blind, without black
JOBS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#b3a125")
FREE = "#9aa0a6"  # of no job
DARK, LIT = "#4a4f57", "#f0c419"  # an optical port without light, and with it
GOOD, BAD = "#1a9850", "#d73027"
# (above this share of a rate, its colour, the width of its line, its text); greys, distinguished by width:
# colours are for jobs, red for an alarm, a link that is down
USES = (
    (0.90, "#5b6068", 8.0, "above 90 %"),
    (0.50, "#6d737b", 6.0, "50 to 90 %"),
    (0.10, "#7f858d", 4.0, "10 to 50 %"),
    (0.001, "#8f959c", 2.5, "up to 10 %"),
    (-1.0, "#9aa0a6", 1.0, "idle"),
)
UNKNOWN = ("#9aa0a6", 1.0, "not measured")
_EVEN = 0.179  # the luminance on which black and white are equally readable
DOWN = ("#d73027", 1.5, "down")


def of_job(number: int | None) -> str:
    """Return a job's colour; several jobs may have the same."""
    return FREE if number is None else JOBS[(number - 1) % len(JOBS)]


def ink_on(colour: str) -> str:
    """Return black or white, whichever has more contrast on a colour, by WCAG 2's relative luminance."""
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (
        part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    )
    luminance = 0.2126 * red + 0.7152 * green + 0.0722 * blue
    return "#000000" if luminance > _EVEN else "#ffffff"


def of_use(share: float | None, is_up: bool = True) -> tuple[str, float, str]:
    """Return colour, width and text of a link with this utilisation."""
    if not is_up:
        return DOWN
    if share is None or share < 0:
        return UNKNOWN
    return next((colour, width, words) for least, colour, width, words in USES if share > least)
