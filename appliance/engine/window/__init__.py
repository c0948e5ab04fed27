"""The window: all that console, API and metrics may see of the engine, and all they may ask of it (`EngineAdmin`)."""
