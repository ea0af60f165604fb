"""How the kinds of synchronisation are named and coloured, everywhere the same. Imports nothing."""

from __future__ import annotations

NAMES = {
    "inc": "in the network (inc)",
    "ring": "ring (gloo)",
    "ps": "parameter server (ps)",
    "inc-across": "inc across two units",
}
# Of Okabe and Ito's palette, which people with colour blindness can tell apart
COLOURS = {"inc": "#0072B2", "ring": "#E69F00", "ps": "#A34F8A", "inc-across": "#56B4E9"}
TERMINAL = {"inc": "bold blue", "ring": "yellow", "ps": "magenta", "inc-across": "cyan"}
INK, MUTED, FAINT, PAPER = "#1F2933", "#6B7785", "#E3E7EB", "#FFFFFF"
