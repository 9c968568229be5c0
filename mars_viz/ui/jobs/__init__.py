"""The server's background worker, the model process and the jobs."""
