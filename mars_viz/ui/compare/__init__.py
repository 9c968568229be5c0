"""What the Compare page is wired from."""
