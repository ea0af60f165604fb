"""Pure models on a simulated clock: the reference aggregator that engines are compared with."""
