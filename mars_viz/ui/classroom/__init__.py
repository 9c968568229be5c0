"""A server for one class: who is the teacher, what the class is shown, and what a student may see and ask for."""
