#: These run inside the project, in a process of their own.
collect_ignore = ["project"]
