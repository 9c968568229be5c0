"""Numbers about runs: pure functions of records."""
