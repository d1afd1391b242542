"""The HTTP service: FastAPI over the same queue and read-and-act service as the command line."""
