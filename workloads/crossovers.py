"""The bytes, on the side of all workers, from which the network carries a collective no later than gloo: by
collective, links and number of workers. None: it never does.

Written by `python -m tests.bench.collectives --crossovers`, which measures them: not by hand.
"""

LEAST_BYTES: dict[str, dict[str, dict[int, int | None]]] = {
    "all_gather": {
        "shaped": {2: 65536},
        "unshaped": {2: 65536},
    },
    "broadcast": {
        "shaped": {2: 65536},
        "unshaped": {2: 65536},
    },
    "reduce_scatter": {
        "shaped": {2: 65536},
        "unshaped": {2: 65536},
    },
}
