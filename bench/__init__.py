"""Measurements: each module runs by itself (`python -m bench.claim`) on a throwaway server and prints what it found."""
