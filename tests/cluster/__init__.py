"""Task bodies on real local clusters of Dask and Ray: `make test-cluster`."""
