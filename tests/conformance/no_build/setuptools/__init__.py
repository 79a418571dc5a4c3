"""Stands in for setuptools while pip downloads vLLM's source distribution (see `sdist.py`)."""
