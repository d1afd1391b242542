"""Measurements on a throwaway server: `python -m bench` beside rivals, `python -m bench.claim` and `.notify` of parts."""
