"""Throwaway PostgreSQL servers that never outlive the process they were started for.

from tools.postgres import available, start
with start(available()[0]) as server:
    psycopg.connect(server.url)
"""

from tools.postgres.installations import Installation, available
from tools.postgres.server import Server
from tools.postgres.starting import start

__all__ = ["Installation", "Server", "available", "start"]
