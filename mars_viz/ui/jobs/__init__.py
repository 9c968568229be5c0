"""The server's one worker, the process that has its models, and each kind of job."""
