"""Targets: one file each."""
