"""Measurements on throwaway servers: `python -m bench --list` names them."""
