"""The suites, in the order in which they run: cheap and decisive ones first."""
