"""What the Live page is wired from."""
