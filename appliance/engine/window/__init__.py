"""The window: the only way for console, API and metrics to read and command the engine. A folder for each subject."""
