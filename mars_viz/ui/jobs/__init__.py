"""The server's background worker, the model process and the job classes."""
