"""Below every page: turns and threads, the settings database, static files, the keys of the process."""
