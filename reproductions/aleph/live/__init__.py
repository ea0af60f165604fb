"""The paper's experiments that need a testbed: section 3.1's example and section 6.3."""
