"""What the Rules page is wired from."""
