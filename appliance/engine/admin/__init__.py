"""The window: all that console, API and metrics may see of the engine, and all they may ask of it."""

from .window import EngineAdmin

__all__ = ["EngineAdmin"]
