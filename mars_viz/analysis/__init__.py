"""What a run was worth, in numbers: pure functions of records."""
