"""Server for one class: the teacher, the shown run, and the students' rights and limits."""
