"""The server's one worker, the models it owns, and each kind of job."""
