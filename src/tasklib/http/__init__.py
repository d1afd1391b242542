"""The HTTP service: FastAPI over the same service as the command line."""
