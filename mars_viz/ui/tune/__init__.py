"""Parts of the Tune page: sweep jobs, the catalog of sweeps, page state, texts, tables and forms."""
