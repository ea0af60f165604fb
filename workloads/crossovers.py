"""The ranges of sizes at which the network carries a collective in at most 1.05 of gloo's time.

They are listed by collective, by whether the workers' links have a rate, and by the number of workers. A
range has its first and last size, both included, in bytes on the side that has all workers' values; a last
size of `None` means no end.

`python -m tests.bench.collectives --crossovers` measures and writes the ranges; do not edit them.
"""

from collections.abc import Mapping, Sequence

Sizes = Sequence[tuple[int, int | None]]

CARRIED: Mapping[str, Mapping[str, Mapping[int, Sizes]]] = {
    "all_gather": {
        "shaped": {2: [(4, 16384)], 4: [(4, 65536)], 8: [(4, None)]},
        "unshaped": {2: [(4, 65536)], 4: [(4, 1048576)], 8: [(4, None)]},
    },
    "all_reduce of int64": {
        "shaped": {2: [(4, 1024)], 4: [(4, 16384)], 8: [(4, 16384)]},
        "unshaped": {2: [(4, 65536)], 4: [(4, 65536)], 8: [(4, 65536)]},
    },
    "broadcast": {
        "shaped": {2: [(65536, None)], 4: [(64, 1024), (65536, None)], 8: [(16384, None)]},
        "unshaped": {2: [], 4: [(4, 64), (4194304, None)], 8: [(1048576, None)]},
    },
    "reduce_scatter": {
        "shaped": {2: [(4, None)], 4: [(4, None)], 8: [(4, None)]},
        "unshaped": {2: [(4, None)], 4: [(4, None)], 8: [(4, None)]},
    },
}
