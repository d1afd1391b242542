"""Measurements on throwaway servers: `python -m bench` beside rivals, `python -m bench.claim` of parts."""
