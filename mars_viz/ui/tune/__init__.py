"""The Tune page's parts: sweeps as jobs, the list of sweeps, what a tab remembers, words, tables and forms."""
