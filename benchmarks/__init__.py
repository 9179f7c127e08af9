"""Measured comparisons: same input, same machine, one run, interleaved repetitions."""
